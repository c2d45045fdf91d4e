/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - the slow path: everything but records in rings.
 *
 * epoll keeps an entry as long as a forked child holds the file open, so a descriptor is always
 * taken out before it is closed. One event is asked for at a time: what it points to is alive.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "shm.h"

int hly_shm_watch_add(halay_transport_t *t, int fd, hly_shm_watch_t *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    return epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void hly_shm_watch_drop(halay_transport_t *t, int fd)
{
    if (t->epoll_fd >= 0)
        epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* Not watched while strangers have cost too much. */
static void gate_set(halay_transport_t *t)
{
    hly_meet_gate_set(&t->gate, t->attended_ns, t->epoll_fd, t->listen_fd, &t->listen_watch);
}

static void drain(halay_transport_t *t, int fd)
{
    uint64_t count;
    if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN && errno != EINTR)
        t->error = HALAY_ESTATE; /* the program has closed it */
}

static void event_handle(halay_transport_t *t, hly_shm_watch_t *watch, uint64_t now)
{
    switch (*watch) {
    case WATCH_LISTEN:
        hly_shm_guests_accept(t);
        gate_set(t);
        break;
    case WATCH_WAKE:
        drain(t, t->wake_fd);
        break;
    case WATCH_TIMER:
        drain(t, t->timer_fd);
        t->timer_ns = 0;
        break;
    case WATCH_GUEST:
        hly_shm_guest_look(t, (hly_shm_guest_t *)watch);
        break;
    case WATCH_WAY:
        hly_shm_way_answer(t, (halay_ep_t *)watch, now);
        break;
    case WATCH_PEER:
        hly_shm_peer_ended(t, (hly_shm_peer_t *)watch);
        break;
    }
}

/* Was there anything? */
static int descriptors_look(halay_transport_t *t, uint64_t now)
{
    struct epoll_event event;
    for (int i = 0; i < HLY_SHM_ROUNDS && !t->error && !t->full; i++) {
        if (epoll_wait(t->epoll_fd, &event, 1, 0) != 1)
            return i > 0;
        event_handle(t, event.data.ptr, now);
    }
    t->attention = 1;
    return 1;
}

/* While nothing happens there the looks become fewer: each is a system call. */
static void pause_set(halay_transport_t *t, int happens)
{
    if (happens || t->unsettled || t->nguests || t->failing || t->attention)
        t->slow_ns = HLY_SHM_SLOW_NS;
    else if (t->slow_ns < HLY_SHM_SLOW_MAX_NS)
        t->slow_ns *= 2;
}

static void guests_look(halay_transport_t *t, uint64_t now)
{
    for (int i = 0; t->nguests > 0 && i < HLY_SHM_GUESTS; i++) {
        hly_shm_guest_t *guest = &t->guests[i];
        if (guest->fd >= 0 && now - guest->since_ns >= HLY_SHM_GUEST_NS)
            hly_shm_guest_drop(t, guest);
        else if (guest->fd >= 0 && guest->lacks)
            hly_shm_guest_look(t, guest);
    }
}

/* Goodbyes are words in the rings' heads. */
static void goodbyes_look(halay_transport_t *t)
{
    for (int i = t->nins - 1; i >= 0; i--) {
        hly_shm_in_t *in = t->ins[i];
        uint32_t closed = atomic_load(&in->ring.shared->closed);
        hly_shm_maps_look(in);
        if (closed == HLY_SHM_STAYS)
            continue;
        if (closed != HLY_SHM_GAVE_UP)
            hly_shm_peer_fail(t, in->peer, HALAY_EPEER, "process %d on this node closed its end",
                              (int)in->peer->pid);
        else if (in->peer->state != PEER_FAILING && !hly_shm_ring_ready(&in->ring))
            hly_shm_in_remove(t, i);
    }
    for (halay_ep_t *ep = t->ways; ep; ep = ep->next) {
        if (ep->peer->state == PEER_WELL && atomic_load(&ep->ring.shared->left))
            hly_shm_peer_fail(t, ep->peer, HALAY_EPEER, "process %d on this node closed its end",
                              (int)ep->peer->pid);
    }
}

/* Takes the rings of a peer that failed away; 0 if one holds records still. */
static int rings_drained(halay_transport_t *t, const hly_shm_peer_t *peer)
{
    for (int i = 0; i < t->nins; i++) {
        hly_shm_in_t *in = t->ins[i];
        if (in->peer == peer && !in->broken && hly_shm_ring_ready(&in->ring))
            return 0;
    }
    for (int i = t->nins - 1; i >= 0; i--) {
        if (t->ins[i]->peer == peer)
            hly_shm_in_remove(t, i);
    }
    return 1;
}

/* What it has read, perhaps, is told first: the next poll does. */
static int lends_to(const halay_transport_t *t, const hly_shm_peer_t *peer)
{
    for (const halay_ep_t *ep = t->ways; ep; ep = ep->next) {
        if (ep->peer == peer && ep->lending && ep->lending->n)
            return 1;
    }
    return 0;
}

/* What it has sent and this end had no memory for: the last try. */
static void guests_last(halay_transport_t *t, const hly_shm_peer_t *peer)
{
    for (int i = 0; t->nguests > 0 && i < HLY_SHM_GUESTS; i++) {
        hly_shm_guest_t *guest = &t->guests[i];
        if (guest->fd >= 0 && guest->lacks && hly_meet_same_id(guest->hello.from, peer->id))
            hly_shm_guest_drop(t, guest);
    }
}

/*
 * Tells of failures. All that such a peer ever wrote is visible: it is dead, or has said goodbye,
 * or does not count any more. Its last rings may still wait to be accepted, so that comes first.
 */
static int failures_tell(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0;
    hly_shm_guests_accept(t);
    for (hly_shm_peer_t *peer = t->peers; peer && n < max; peer = peer->next) {
        if (peer->state != PEER_FAILING)
            continue;
        guests_last(t, peer);
        if (lends_to(t, peer) || !rings_drained(t, peer))
            continue;
        peer->state = PEER_FAILED;
        t->failing--;
        events[n++] = (halay_event_t){.kind = HALAY_EVENT_FAILED,
                                      .status = peer->status,
                                      .peer = peer->id,
                                      .text = peer->text};
    }
    t->attention = 1;
    return n;
}

static void told_peers_free(halay_transport_t *t)
{
    hly_shm_peer_t *next;
    for (hly_shm_peer_t *peer = t->peers; peer; peer = next) {
        next = peer->next;
        if (peer->state == PEER_FAILED && peer->refs == 0)
            hly_shm_peer_free(t, peer);
    }
}

/* Only while nothing of this poll has been handed out: it unmaps rings that have been read. */
int hly_shm_attend(halay_transport_t *t, halay_event_t events[], int max)
{
    halay_ep_t *next;
    uint64_t now = hly_shm_now_ns();
    t->attended_ns = now;
    t->attention = 0;
    t->full = 0;
    told_peers_free(t);
    gate_set(t);
    int happens = descriptors_look(t, now);
    guests_look(t, now);
    for (halay_ep_t *ep = t->unsettled ? t->ways : NULL; ep; ep = next) {
        next = ep->next;
        hly_shm_way_tend(t, ep, now);
    }
    goodbyes_look(t);
    pause_set(t, happens);
    return t->failing ? failures_tell(t, events, max) : 0;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return b < a ? b : a;
}

/* Before sleep: when does the slow path have something to do that no descriptor tells? */
int hly_shm_timer_set(halay_transport_t *t)
{
    uint64_t when = UINT64_MAX;
    for (halay_ep_t *ep = t->unsettled ? t->ways : NULL; ep; ep = ep->next) {
        if (ep->state == WAY_OPEN || ep->peer->state != PEER_WELL)
            continue;
        when = earlier(when, hly_shm_way_deadline_ns(t, ep));
        if (ep->state == WAY_CALLING)
            when = earlier(when, ep->again_ns);
    }
    for (int i = 0; t->nguests > 0 && i < HLY_SHM_GUESTS; i++) {
        if (t->guests[i].fd >= 0)
            when = earlier(when, t->guests[i].lacks ? t->attended_ns + HLY_SHM_LACKS_NS
                                                    : t->guests[i].since_ns + HLY_SHM_GUEST_NS);
    }
    if (t->gate.shut)
        when = earlier(when, t->gate.open_ns);
    if (when == UINT64_MAX || when == t->timer_ns)
        return HALAY_OK;
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(when / 1000000000), .tv_nsec = (long)(when % 1000000000)}};
    t->timer_ns = when;
    return timerfd_settime(t->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) ? HALAY_ETRANSPORT
                                                                        : HALAY_OK;
}
