/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - frames between a head and its agents: sealed, numbered, put together (frame.h). */
#define _GNU_SOURCE
#include "frame.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "env.h"

enum { SILENCE_MS = 5000 };

void hly_frames_init(struct hly_frames *f, const struct hly_boot_key *key, enum hly_frame_from from,
                     const struct hly_boot_greeting *greeting, const struct hly_boot_hello *hello)
{
    *f = (struct hly_frames){.key = key, .from = from};
    memcpy(f->challenges[0], greeting->challenge, sizeof f->challenges[0]);
    memcpy(f->challenges[1], hello->challenge, sizeof f->challenges[1]);
}

static void mac_of(const struct hly_frames *f, const struct hly_frame *frame, uint8_t mac[32])
{
    const struct hly_piece pieces[3] = {{"frame", 5},
                                        {f->challenges, sizeof f->challenges},
                                        {frame, offsetof(struct hly_frame, mac)}};
    hly_mac(f->key->secret, pieces, 3, mac);
}

void hly_frame_seal(struct hly_frames *f, struct hly_frame *frame)
{
    frame->number = ++f->sent;
    frame->from = f->from;
    mac_of(f, frame, frame->mac);
}

int hly_frames_take(struct hly_frames *f, const char **bytes, size_t *n)
{
    uint8_t mac[32];
    size_t part = sizeof f->next - f->got;
    part = *n < part ? *n : part;
    memcpy((char *)&f->next + f->got, *bytes, part);
    *bytes += part;
    *n -= part;
    f->got += part;
    if (f->got < sizeof f->next)
        return 0;
    f->got = 0;
    mac_of(f, &f->next, mac);
    if (!hly_mac_equal(mac, f->next.mac) || f->next.number != f->heard + 1 ||
        f->next.from == f->from)
        return -1;
    f->heard++;
    f->next.text[sizeof f->next.text - 1] = '\0';
    return 1;
}

/* As the links of ranks, but no longer than this: ranks that others call lost have ended once their
 * agent is lost, and the others wait for that word. */
static int silence_ms(void)
{
    const uint64_t ms = hly_meet_seconds_ns("HALAY_LINK_TIMEOUT", HLY_MEET_STOP_S) / 1000000;
    return ms < 1000 ? 1000 : ms < SILENCE_MS ? (int)ms : SILENCE_MS;
}

void hly_frame_keep_alive(int fd)
{
    const int on = 1, idle_s = 1, every_s = 1, most_ms = silence_ms(), probes = most_ms / 1000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most_ms, sizeof most_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool hly_frame_tells(unsigned *tell, enum halay_launch_what what, int rank, int count,
                     halay_launch_event_t *event)
{
    if (!(*tell & 1u << what))
        return false;
    *tell &= ~(1u << what);
    *event =
        (halay_launch_event_t){.size = sizeof *event, .what = what, .rank = rank, .count = count};
    return true;
}
