/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that change hands: accepted or called where two processes meet (transports/common),
 * by strangers and peers, and then the transport's, which reads frames on them, retires one of two
 * and ends them; while this end calls, sends, gives up and closes. All of the transport over TCP,
 * with a kernel and a clock of this file. Each descriptor is closed once, by whoever holds it.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "fuzz.h"
#include "transports/tcp/tcp.h"

extern const halay_transport_ops_t halay_transport_v7_tcp;
#define OPS (&halay_transport_v7_tcp)

enum { WAYS = 3, ROOM = 64, TURNS = 64, EVENTS = 3 };
#define TICK_NS  UINT64_C(20000)
#define CLOSE_NS UINT64_C(50000000) /* while it closes: a wait passes soon */

static struct fuzz *input;
static halay_transport_t *t;
static uint64_t now_ns, tick_ns;
static long opened;

/* ---------------------------------------------------------------- the kernel */

static int gives(int how)
{
    if (how == 0xff) {
        errno = EMFILE;
        return -1;
    }
    opened++;
    return FUZZ_FD;
}

int __wrap_epoll_create1(int flags)
{
    (void)flags;
    return gives(0);
}

int __wrap_timerfd_create(int clock, int flags)
{
    (void)clock, (void)flags;
    return gives(0);
}

int __wrap_socket(int family, int type, int protocol)
{
    (void)family, (void)type, (void)protocol;
    return gives(fuzz_byte(input));
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    const uint8_t how = fuzz_byte(input);
    (void)address, (void)bytes, (void)flags;
    FUZZ_WANT(fd == FUZZ_FD);
    if (how == 0 || how == 2) {
        errno = how ? ECONNABORTED : EAGAIN;
        return -1;
    }
    return gives(how);
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    static const int errors[] = {EINPROGRESS, EINPROGRESS, ECONNREFUSED, ENETUNREACH};
    const uint8_t how = fuzz_byte(input);
    (void)address, (void)bytes;
    FUZZ_WANT(fd == FUZZ_FD);
    errno = errors[how & 3];
    return how & 0x80 ? 0 : -1;
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *spec, void *old)
{
    (void)flags, (void)spec, (void)old;
    FUZZ_WANT(fd == FUZZ_FD);
    return 0;
}

int __wrap_ioctl(int fd, unsigned long request, int *bytes)
{
    FUZZ_WANT(fd == FUZZ_FD && request == SIOCOUTQ);
    *bytes = 0;
    return 0;
}

/* Which socket has something is the input's choice; what it says may be that it has nothing. */
int __wrap_epoll_wait(int set, struct epoll_event *events, int max, int timeout_ms)
{
    uint8_t which = fuzz_byte(input);
    (void)timeout_ms;
    FUZZ_WANT(set == FUZZ_FD);
    if (which == 0)
        return 0;
    *events = (struct epoll_event){.events = EPOLLIN};
    if (max > 1) {
        events->data.ptr = which % 4 && t->nopen ? t->open[which % t->nopen] : NULL;
        return 1;
    }
    hly_meet_link_t *link = t->meet.links;
    for (which--; link && which > 1; which--)
        link = link->next;
    events->data.ptr = which == 0 || !link ? &t->meet.listen_watch : &link->watch;
    return 1;
}

uint64_t __wrap_hly_meet_now_ns(void)
{
    return now_ns += tick_ns;
}

/* ---------------------------------------------------------------- proofs */

void __wrap_hly_meet_prove(const uint8_t key[32], const void *word, size_t bytes, const void *tells,
                           size_t ntells, uint8_t mac[32])
{
    (void)key, (void)word, (void)bytes, (void)tells, (void)ntells;
    memset(mac, 0, 32);
}

void __wrap_hly_meet_keys_make(const uint8_t secret[16], const hly_meet_greeting_t *greeting,
                               const uint8_t nonce[HLY_MEET_NONCE], halay_peer_id_t caller,
                               halay_peer_id_t called, int called_here, hly_meet_keys_t *keys)
{
    (void)secret, (void)greeting, (void)nonce, (void)caller, (void)called, (void)called_here;
    memset(keys, 0, sizeof(*keys));
}

int __wrap_hly_meet_nonce(uint8_t nonce[HLY_MEET_NONCE])
{
    memset(nonce, 0, HLY_MEET_NONCE);
    return 0;
}

/* All but what ends with 255 is right. */
int __wrap_hly_meet_proved(const uint8_t key[32], const void *word, size_t bytes, const void *tells,
                           size_t ntells, const uint8_t mac[32])
{
    (void)key, (void)word, (void)bytes, (void)tells, (void)ntells;
    return mac[31] != 255;
}

int __wrap_hly_tcp_frame_right(const hly_tcp_seal_t *seal, const hly_tcp_frame_t *frame)
{
    (void)seal;
    return frame->seal >> 56 != 255;
}

/* ---------------------------------------------------------------- this end */

static halay_ep_t *ways[WAYS];
static uint8_t landing[WAYS][ROOM];
static volatile uint8_t read_all; /* what messages say */

static void look(const halay_event_t *event)
{
    const uint8_t *at = event->data;
    uint8_t sum = 0;
    for (size_t i = 0; event->kind == HALAY_EVENT_MESSAGE && i < event->bytes; i++)
        sum ^= at[i];
    read_all ^= sum;
    FUZZ_WANT(event->kind != HALAY_EVENT_FAILED || (event->text && event->text[0]));
}

/* Who holds what is the same, whomever is asked. */
static void check(void)
{
    int more = 0, guests = 0;
    for (int i = 0; i < t->nopen; i++) {
        const hly_tcp_link_t *link = t->open[i];
        int of_peer = 0;
        for (int k = 0; k < t->nopen; k++) {
            FUZZ_WANT(k == i || t->open[k] != link);
            of_peer += t->open[k]->peer == link->peer;
        }
        FUZZ_WANT(link->fd == FUZZ_FD && of_peer == link->peer->nlinks);
        FUZZ_WANT(of_peer <= HLY_TCP_LINKS_PEER && link->end <= HLY_TCP_IN);
        FUZZ_WANT(!link->peer->out || link->peer->out->peer == link->peer);
        more += link->more;
    }
    for (const hly_meet_link_t *link = t->meet.links; link; link = link->next)
        guests += link->state == LINK_GUEST;
    FUZZ_WANT(more == t->nmore && guests == t->meet.nguests && guests <= HLY_MEET_GUESTS);
}

static void call(uint8_t which)
{
    const halay_address_t where = {.family = AF_INET, .ip = {127, 0, 0, 1}, .port = 9};
    halay_ep_t **ep = &ways[which % WAYS];
    if (!*ep)
        FUZZ_WANT(!OPS->connect(t, (halay_peer_id_t){.lo = 2 + which % WAYS}, &where,
                                which & 0x80 ? 0 : sizeof(where), ep));
}

/* Some of it is copied where the socket is full. */
static void say(uint8_t which)
{
    static const uint8_t bytes[HLY_TCP_SMALL * 2];
    halay_ep_t *ep = ways[which % WAYS];
    if (ep)
        OPS->send(t, ep, which & 0x20, NULL, 0, bytes, which & 0x10 ? sizeof(bytes) : 8, 1);
}

static void turn(uint8_t what)
{
    halay_event_t events[EVENTS];
    halay_ep_t **ep = &ways[what % WAYS];
    int fd;
    fuzz_net_full = (what & 0xc0) == 0x40;
    if (what < 0x80) {
        t->meet.attention |= what & 1; /* as if the clock were looked at */
        for (int n = OPS->poll(t, events, EVENTS); n > 0; n--)
            look(&events[n - 1]);
        OPS->arm(t, &fd);
    } else if (what < 0xa0) {
        call(fuzz_byte(input));
    } else if (what < 0xc0) {
        say(fuzz_byte(input));
    } else if (what < 0xd0) {
        OPS->recv(t, 1 + what % WAYS, landing[what % WAYS], ROOM, what);
    } else if (what < 0xe0 && *ep) {
        OPS->sever(t, *ep);
    } else if (what < 0xf0 && *ep) {
        OPS->disconnect(t, *ep);
        *ep = NULL;
    } else if (what >= 0xf0) {
        now_ns += UINT64_C(100000000) << (what & 7);
    }
    check();
}

static void nowhere(void *arg, int level, const char *text)
{
    (void)arg, (void)level;
    FUZZ_WANT(text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    halay_transport_params_t params = {.size = sizeof(params),
                                       .self = {.lo = 3},
                                       .log = nowhere,
                                       .listen_fd = FUZZ_FD,
                                       .listen_address = {.family = AF_INET, .port = 1}};
    input = &f;
    now_ns = 1000000000;
    tick_ns = TICK_NS;
    opened = fuzz_net_closed = fuzz_net_full = 0;
    memset(ways, 0, sizeof(ways));
    fuzz_net_feed(&f);
    FUZZ_WANT(!OPS->open(&params, &t));
    for (int i = 0; i < TURNS && f.left; i++)
        turn(fuzz_byte(&f));
    fuzz_net_full = 0;
    tick_ns = CLOSE_NS;
    for (int i = 0; i < WAYS; i++)
        if (ways[i])
            OPS->disconnect(t, ways[i]);
    OPS->close(t);
    FUZZ_WANT(opened == fuzz_net_closed);
    return 0;
}
