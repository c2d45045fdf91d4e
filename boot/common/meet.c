/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - the messages of a meeting that both sides need, and their authentication (meet.h). */
#define _GNU_SOURCE
#include "meet.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../common/proc.h"
#include "../../src/waits/text.h"
#include "listen.h"
#include "share.h"
#include <hly_build.h>

uint64_t hly_boot_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool hly_boot_same_user(int fd)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) && cred.uid == geteuid();
}

int hly_boot_random(const struct hly_boot_log *log, void *bytes, size_t n)
{
    if (getrandom(bytes, n, 0) == (ssize_t)n)
        return HALAY_OK;
    return hly_boot_errno(log, errno, "no random bytes for the rendezvous");
}

const char *hly_boot_who(const struct hly_boot_hello *hello, char text[128])
{
    if (hello->rank == HLY_BOOT_NOBODY)
        snprintf(text, 128, "process %u (pid %u on %s)", hello->slot, hello->pid, hello->host);
    else
        snprintf(text, 128, "rank %u (pid %u on %s)", hello->rank, hello->pid, hello->host);
    return text;
}

void hly_boot_remind(const struct hly_boot_log *log, uint64_t since_ns, uint64_t end_ns,
                     const char *who, const char *format, ...)
{
    const uint64_t now = hly_boot_now_ns();
    char what[600], text[700];
    struct hly_line line = hly_line(text, sizeof text);
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    hly_line_waited(&line, now - since_ns, "%s", who);
    hly_line_put(&line, "%s", what);
    hly_line_until(&line, HLY_ENDS, end_ns, now);
    hly_boot_say(log, 1, "%s", text);
}

void hly_boot_hello_mac(const struct hly_boot_key *key, const struct hly_boot_greeting *greeting,
                        const struct hly_boot_hello *hello, uint8_t mac[32])
{
    struct hly_piece pieces[3] = {
        {"hello", 5}, {greeting, sizeof *greeting}, {hello, offsetof(struct hly_boot_hello, mac)}};
    hly_mac(key->secret, pieces, 3, mac);
}

void hly_boot_answer_mac(const struct hly_boot_key *key, const struct hly_boot_greeting *greeting,
                         const struct hly_boot_hello *hello, const struct hly_boot_answer *answer,
                         const uint8_t digest[32], uint8_t mac[32])
{
    struct hly_piece pieces[5] = {{"answer", 6},
                                  {greeting, sizeof *greeting},
                                  {hello, sizeof *hello},
                                  {answer, offsetof(struct hly_boot_answer, mac)},
                                  {digest, 32}};
    hly_mac(key->secret, pieces, 5, mac);
}

void hly_boot_describe(const char *name, const halay_boot_info_t *info, struct hly_boot_hello *me)
{
    struct stat net;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    me->magic = HLY_BOOT_MAGIC;
    me->version = HLY_BOOT_VERSION;
    me->bytes = sizeof *me;
    me->pid = (uint32_t)getpid();
    for (int i = 0; i < HLY_BOOT_LOST_RUNS; i++)
        me->lost[i] = (struct hly_boot_lost){1, 0};
    me->processors = info ? (uint32_t)info->processors : 0;
    me->kept = info ? info->kept : 0;
    me->uid = (uint32_t)geteuid();
    hly_proc_self(&me->process);
    hly_proc_host(me->host, sizeof me->host);
    /* Identifies machine and network namespace: ranks of one node have both in common. */
    if (!file || fscanf(file, "%39s", me->machine) != 1)
        snprintf(me->machine, sizeof me->machine, "%.39s", me->host);
    if (file)
        fclose(file);
    if (stat("/proc/self/ns/net", &net) == 0)
        me->netns = net.st_ino;
    if (!hly_share_probe(me->alone))
        snprintf(me->machine, sizeof me->machine, "%.39s", name);
    _Static_assert(sizeof HLY_BUILD <= sizeof me->library, "with its end");
    strcpy(me->library, hly_build());
}

/* Finds a lower rank on the rank's machine with which it cannot share a node. NULL: none. */
static const struct hly_boot_hello *apart_from(const struct hly_boot_hello *hellos, int rank)
{
    for (int r = 0; r < rank; r++)
        if (!strcmp(hellos[r].machine, hellos[rank].machine))
            return hellos[r].netns != hellos[rank].netns || hellos[r].uid != hellos[rank].uid
                       ? &hellos[r]
                       : NULL;
    return NULL;
}

static void say_why(const struct hly_boot_hello *me, const struct hly_boot_hello *other,
                    char why[256])
{
    char who[128];
    if (me->alone[0])
        snprintf(why, 256, "it can share no memory: %s", me->alone);
    else if (me->netns != other->netns)
        snprintf(why, 256, "it is in a network namespace of its own");
    else
        snprintf(why, 256, "it is user %u's, and %s is user %u's: no user gives another its memory",
                 me->uid, hly_boot_who(other, who), other->uid);
}

void hly_boot_say_alone(const struct hly_boot_log *log, const struct hly_boot_hello *hellos,
                        int nranks)
{
    char who[128], why[256], more[48] = "";
    int n = 0, first = -1;
    for (int r = 0; r < nranks; r++)
        if (hellos[r].alone[0] || (r < 1024 && apart_from(hellos, r))) {
            first = first < 0 ? r : first;
            n++;
        }
    if (!n)
        return;
    if (n > 1)
        snprintf(more, sizeof more, ", and so are %d more", n - 1);
    say_why(&hellos[first], apart_from(hellos, first), why);
    hly_boot_say(log, 1, "%s is a node of its own%s: %s", hly_boot_who(&hellos[first], who), more,
                 why);
}

const char *hly_boot_cut_off(const struct hly_boot_hello *a, const struct hly_boot_hello *b,
                             char text[400])
{
    char who[128];
    struct stat net;
    const uint64_t ours = stat("/proc/self/ns/net", &net) ? 0 : net.st_ino;
    if (a->netns == b->netns ||
        (!hly_address_loopback(&a->address) && !hly_address_loopback(&b->address)))
        return NULL;
    const struct hly_boot_hello *it = b->netns == ours ? a : b;
    snprintf(text, 400,
             "%s is in a container with a network of its own, whose loopback is another one's: no "
             "rank outside reaches it. Give the container the host's network (Docker and Podman: "
             "--network=host; Apptainer: without --net), or one that all ranks reach, and name it "
             "(HALAY_INTERFACE)",
             hly_boot_who(it, who));
    return text;
}

const char *hly_boot_builds_differ(const struct hly_boot_hello *a, const struct hly_boot_hello *b,
                                   char text[400])
{
    char one[128], other[128];
    if (!strcmp(a->library, b->library))
        return NULL;
    snprintf(text, 400, "%s runs Halay %s, but %s runs Halay %s: run the same version on all nodes",
             hly_boot_who(b, other), b->library, hly_boot_who(a, one), a->library);
    return text;
}
