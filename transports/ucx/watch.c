/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - the slow path: our own sockets, timers, goodbyes, failures. It runs in poll, when no
 * event waits; so what earlier polls gave away may go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "ucx.h"

int hly_ucx_watch_add(int epoll_fd, int fd, uint32_t events, hly_ucx_watch_t *watch)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* One event is asked for at a time: what it points to is alive. */
static void descriptors_look(halay_transport_t *t)
{
    struct epoll_event event;
    uint64_t count;
    for (int i = 0; i < HLY_UCX_ROUNDS && !t->error; i++) {
        if (epoll_wait(t->slow_fd, &event, 1, 0) != 1)
            return;
        hly_ucx_watch_t *watch = event.data.ptr;
        switch (*watch) {
        case WATCH_LISTEN:
            hly_ucx_guests_accept(t);
            break;
        case WATCH_TIMER:
            if (read(t->timer_fd, &count, sizeof(count)) < 0)
                assert(errno == EAGAIN || errno == EINTR);
            t->timer_ns = 0;
            break;
        case WATCH_LINK:
            hly_ucx_link_look(t, (hly_ucx_link_t *)watch);
            break;
        }
    }
    t->attention = 1;
}

static void guests_look(halay_transport_t *t, uint64_t now)
{
    hly_ucx_link_t *next;
    for (hly_ucx_link_t *link = t->nguests ? t->links : NULL; link; link = next) {
        next = link->next;
        if (link->state == LINK_GUEST && now >= link->since_ns + HLY_UCX_GUEST_NS)
            hly_ucx_guest_drop(t, link, "it said nothing, or not enough");
    }
}

static void on_stray(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    (void)status, (void)info, (void)arg;
    ucp_request_free(request);
}

/*
 * Who sends to a tag knows that it was posted. So a message that nobody waits for was sent to a
 * buffer that has been withdrawn since; it is received into nothing, for the sender waits.
 */
int hly_ucx_strays_drop(halay_transport_t *t)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                       .cb.recv = on_stray};
    ucp_tag_recv_info_t info;
    int n = 0;
    while (t->lands && n < HLY_UCX_DROPS) {
        ucp_tag_message_h message = ucp_tag_probe_nb(t->worker, 0, 0, 1, &info);
        if (!message)
            break;
        ucp_tag_msg_recv_nbx(t->worker, NULL, 0, message, &param);
        n++;
    }
    return n;
}

/* Tells of failures, when all that had arrived before has been polled. */
static void failures_tell(halay_transport_t *t)
{
    hly_ucx_link_t *next;
    if (t->last > 0 || ucp_worker_progress(t->worker) || t->last > 0) {
        t->attention = 1;
        return;
    }
    for (hly_ucx_peer_t *peer = t->peers; peer; peer = peer->next) {
        if (peer->state != PEER_FAILING)
            continue;
        peer->state = PEER_FAILED;
        t->failing--;
        for (hly_ucx_link_t *link = t->links; link; link = next) {
            next = link->next;
            if (link->peer == peer)
                hly_ucx_link_free(t, link);
        }
        hly_ucx_ep_close(t, peer);
        hly_ucx_event_add(t, &(halay_event_t){.kind = HALAY_EVENT_FAILED,
                                              .status = peer->status,
                                              .peer = peer->id,
                                              .text = peer->text});
    }
}

static void told_peers_free(halay_transport_t *t)
{
    hly_ucx_peer_t *next;
    for (hly_ucx_peer_t *peer = t->peers; peer; peer = next) {
        next = peer->next;
        if (peer->state == PEER_FAILED && peer->refs == 0 && peer->under_way == 0)
            hly_ucx_peer_free(t, peer);
    }
}

void hly_ucx_attend(halay_transport_t *t)
{
    uint64_t now = hly_ucx_now_ns();
    assert(t->first == t->last);
    t->attended_ns = now;
    t->attention = 0;
    told_peers_free(t);
    descriptors_look(t);
    guests_look(t, now);
    for (hly_ucx_peer_t *peer = t->peers; peer; peer = peer->next) {
        hly_ucx_call_tend(t, peer, now);
        hly_ucx_goodbye_look(t, peer, now);
    }
    if (hly_ucx_strays_drop(t) > 0)
        t->attention = 1;
    if (t->failing)
        failures_tell(t);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return b < a ? b : a;
}

/* Before sleep: when does the slow path have something to do that no descriptor tells? */
int hly_ucx_timer_set(halay_transport_t *t)
{
    uint64_t when = UINT64_MAX;
    for (hly_ucx_peer_t *peer = t->peers; peer; peer = peer->next) {
        if (peer->state != PEER_WELL)
            continue;
        if (peer->goodbye)
            when = earlier(when, peer->goodbye_ns + HLY_UCX_CLOSE_NS);
        if (peer->calls)
            when = earlier(when, peer->begun_ns + t->deadline_ns);
        if (peer->calls && !peer->called)
            when = earlier(when, peer->again_ns);
    }
    for (hly_ucx_link_t *link = t->nguests ? t->links : NULL; link; link = link->next) {
        if (link->state == LINK_GUEST)
            when = earlier(when, link->since_ns + HLY_UCX_GUEST_NS);
    }
    if (when == UINT64_MAX || when == t->timer_ns)
        return HALAY_OK;
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(when / 1000000000), .tv_nsec = (long)(when % 1000000000)}};
    t->timer_ns = when;
    return timerfd_settime(t->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) ? HALAY_ETRANSPORT
                                                                        : HALAY_OK;
}
