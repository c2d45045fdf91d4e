/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - the slow path: connections that are not open yet, timers, failures. It runs in poll
 * before anything is handed out; so what earlier polls gave away may go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tcp.h"

int hly_tcp_watch_add(int epoll_fd, int fd, uint32_t events, hly_tcp_watch_t *watch)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int hly_tcp_watch_change(int epoll_fd, int fd, hly_tcp_watch_t *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    return epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event) ? -errno : 0;
}

/* One event is asked for at a time: what it points to is alive. */
static void descriptors_look(halay_transport_t *t)
{
    struct epoll_event event;
    uint64_t count;
    for (int i = 0; i < HLY_TCP_ROUNDS && !t->error; i++) {
        if (epoll_wait(t->slow_fd, &event, 1, 0) != 1)
            return;
        hly_tcp_watch_t *watch = event.data.ptr;
        switch (*watch) {
        case WATCH_LISTEN:
            hly_tcp_guests_accept(t);
            break;
        case WATCH_TIMER:
            if (read(t->timer_fd, &count, sizeof(count)) < 0)
                assert(errno == EAGAIN || errno == EINTR);
            t->timer_ns = 0;
            break;
        case WATCH_LINK:
            hly_tcp_link_look(t, (hly_tcp_link_t *)watch);
            break;
        case WATCH_SLOW: /* that is this descriptor itself */
            break;
        }
    }
    t->attention = 1;
}

static void guests_look(halay_transport_t *t, uint64_t now)
{
    hly_tcp_link_t *next;
    for (hly_tcp_link_t *link = t->nguests ? t->links : NULL; link; link = next) {
        next = link->next;
        if (link->state == LINK_GUEST && now >= link->since_ns + HLY_TCP_GUEST_NS)
            hly_tcp_guest_drop(t, link, "it said nothing, or not enough");
    }
}

/*
 * Something was written that the other host has not acknowledged. A host that is there acknowledges
 * what it gets, and answers when it is asked whether there is room again, also while its process
 * stands still. So several looks in a row with a repetition or a question under way, and no sign of
 * life in between, mean that it is gone.
 */
static void silence_look(halay_transport_t *t, hly_tcp_link_t *link, uint64_t passed_ms)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    if (!link->spoke || link->ended || getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes))
        return;
    link->spoke = link->first || info.tcpi_unacked || info.tcpi_probes || info.tcpi_backoff;
    if ((info.tcpi_retransmits || info.tcpi_probes) && info.tcpi_last_ack_recv >= passed_ms)
        link->silent++;
    else
        link->silent = 0;
    if (link->silent < HLY_TCP_SILENT)
        return;
    link->ended = 1;
    link->error = ETIMEDOUT;
    t->changed = 1;
}

static void silences_look(halay_transport_t *t, uint64_t now)
{
    if (now - t->watched_ns < HLY_TCP_WATCH_NS)
        return;
    for (int i = 0; i < t->nopen; i++)
        silence_look(t, t->open[i], HLY_TCP_WATCH_NS / 1000000);
    t->watched_ns = now;
}

int hly_tcp_failures_give(halay_transport_t *t, halay_event_t events[], int max)
{
    hly_tcp_link_t *next;
    int n = 0;
    for (hly_tcp_peer_t *peer = t->peers; peer && n < max; peer = peer->next) {
        if (peer->state != PEER_FAILING)
            continue;
        peer->state = PEER_FAILED;
        t->failing--;
        t->untold = 1;
        for (hly_tcp_link_t *link = t->links; link; link = next) {
            next = link->next;
            if (link->peer == peer)
                hly_tcp_link_free(t, link);
        }
        events[n++] = (halay_event_t){.kind = HALAY_EVENT_FAILED,
                                      .status = peer->status,
                                      .peer = peer->id,
                                      .text = peer->text};
    }
    return n;
}

static void told_peers_free(halay_transport_t *t)
{
    hly_tcp_peer_t *next;
    t->untold = 0;
    for (hly_tcp_peer_t *peer = t->peers; peer; peer = next) {
        next = peer->next;
        if (peer->state == PEER_FAILED && peer->refs == 0)
            hly_tcp_peer_free(t, peer);
    }
}

void hly_tcp_attend(halay_transport_t *t)
{
    uint64_t now = hly_tcp_now_ns();
    t->attended_ns = now;
    t->attention = 0;
    if (t->untold)
        told_peers_free(t);
    hly_meet_gate_set(&t->gate, now, t->slow_fd, t->listen_fd, &t->listen_watch);
    descriptors_look(t);
    guests_look(t, now);
    hly_meet_gate_set(&t->gate, now, t->slow_fd, t->listen_fd, &t->listen_watch);
    silences_look(t, now);
    for (hly_tcp_peer_t *peer = t->unsettled ? t->peers : NULL; peer; peer = peer->next)
        hly_tcp_call_tend(t, peer, now);
    if (t->changed)
        hly_tcp_ends_look(t);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return b < a ? b : a;
}

/* Before sleep: when does the slow path have something to do that no descriptor tells? */
int hly_tcp_timer_set(halay_transport_t *t)
{
    uint64_t when = UINT64_MAX;
    for (hly_tcp_peer_t *peer = t->unsettled ? t->peers : NULL; peer; peer = peer->next) {
        if (peer->state != PEER_WELL || !peer->calls)
            continue;
        when = earlier(when, peer->begun_ns + t->deadline_ns);
        if (!peer->called)
            when = earlier(when, peer->again_ns);
    }
    for (hly_tcp_link_t *link = t->nguests ? t->links : NULL; link; link = link->next) {
        if (link->state == LINK_GUEST)
            when = earlier(when, link->since_ns + HLY_TCP_GUEST_NS);
    }
    if (t->gate.shut)
        when = earlier(when, t->gate.open_ns);
    for (int i = 0; i < t->nopen; i++) {
        if (t->open[i]->spoke)
            when = earlier(when, t->watched_ns + HLY_TCP_WATCH_NS);
    }
    if (when == UINT64_MAX || when == t->timer_ns)
        return HALAY_OK;
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(when / 1000000000), .tv_nsec = (long)(when % 1000000000)}};
    t->timer_ns = when;
    return timerfd_settime(t->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) ? HALAY_ETRANSPORT
                                                                        : HALAY_OK;
}
