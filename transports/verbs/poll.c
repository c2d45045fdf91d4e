/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll.c - completions become events. Each completion makes one event at most, so as many are
 * taken as there is room for; what may end more is told by the next poll (late).
 */
#include <string.h>

#include "verbs.h"

/* ------------------------------------------------------------------ completions */

static void work_done(halay_transport_t *t, halay_ep_t *peer, const hly_verbs_work_t *work,
                      int status)
{
    if (work->buffer)
        hly_verbs_buffer_give(work->pool, work->buffer);
    if (!work->ends_put)
        return;
    uint32_t i = peer->put_first;
    while (peer->puts[i % HLY_VERBS_PUTS].over)
        i++;
    hly_verbs_put_t *put = &peer->puts[i % HLY_VERBS_PUTS];
    assert(i != peer->put_next && put->posted);
    put->over = 1;
    put->status = status;
    hly_verbs_source_drop(t, put->mem);
}

/* All requests before this one have been carried out; it alone may have failed. */
static int on_sent(halay_transport_t *t, halay_ep_t *peer, const struct ibv_wc *wc,
                   halay_event_t *event)
{
    const uint32_t number = (uint32_t)(wc->wr_id >> 1);
    const int status = wc->status ? HALAY_EPEER : HALAY_OK;
    if (!peer || number - peer->done >= peer->posted - peer->done)
        return 0; /* of a queue pair that is gone */
    while (peer->done != number + 1) {
        const uint32_t one = peer->done++;
        work_done(t, peer, &peer->work[one % HLY_VERBS_SLOTS], one == number ? status : HALAY_OK);
    }
    t->n.sent++;
    if (wc->status)
        hly_verbs_peer_broken(t, peer, ibv_wc_status_str(wc->status));
    else if (peer->tried < TRIED)
        hly_verbs_peer_tried(t, peer);
    hly_verbs_credits_return(t, peer);
    hly_verbs_puts_advance(t, peer);
    return hly_verbs_puts_give(t, peer, event, 1);
}

static int on_received(halay_transport_t *t, halay_ep_t *peer, const struct ibv_wc *wc,
                       halay_event_t *event)
{
    hly_verbs_buffer_t *buffer = (hly_verbs_buffer_t *)(uintptr_t)wc->wr_id;
    const uint32_t immediate = ntohl(wc->imm_data);
    t->posted -= t->posted > 0;
    t->held++;
    t->n.received++;
    buffer->owed_to = NULL;
    if (!peer || wc->status) {
        hly_verbs_buffer_give(&t->idle, buffer);
        if (peer)
            hly_verbs_peer_broken(t, peer, ibv_wc_status_str(wc->status));
        return 0;
    }
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        buffer->owed_to = peer;
        hly_verbs_buffer_give(&t->idle, buffer);
        *event = (halay_event_t){
            .kind = HALAY_EVENT_IMMEDIATE, .peer = peer->base.id, .immediate = immediate};
        return 1;
    }
    peer->credits += immediate % HLY_VERBS_IMM_MESSAGE;
    assert(peer->credits <= peer->its.grant);
    if (!(immediate & HLY_VERBS_IMM_MESSAGE)) {
        hly_verbs_buffer_give(&t->idle, buffer);
        return 0;
    }
    buffer->owed_to = peer;
    hly_verbs_buffer_give(&t->given, buffer);
    *event = (halay_event_t){.kind = HALAY_EVENT_MESSAGE,
                             .peer = peer->base.id,
                             .data = wc->byte_len ? buffer->at : NULL,
                             .bytes = wc->byte_len};
    return 1;
}

static int completions(halay_transport_t *t, halay_event_t events[], int max, int *n)
{
    struct ibv_wc wc[HLY_VERBS_BATCH];
    int got = ibv_poll_cq(t->cq, max < HLY_VERBS_BATCH ? max : HLY_VERBS_BATCH, wc);
    if (got < 0)
        return hly_meet_error(&t->meet, HALAY_ETRANSPORT, "%s: ibv_poll_cq failed", t->name);
    for (int i = 0; i < got; i++) {
        halay_ep_t *peer = hly_verbs_peer_of(t, wc[i].qp_num);
        *n += wc[i].wr_id & 1 ? on_sent(t, peer, &wc[i], &events[*n])
                              : on_received(t, peer, &wc[i], &events[*n]);
        if (peer && peer->refused) {
            peer->refused = 0;
            t->roused = 1;
        }
    }
    if (t->idle)
        hly_verbs_recvs_post(t, &t->idle);
    if (t->starved && t->bounces) {
        t->starved = 0;
        for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = hly_verbs_next(peer))
            hly_verbs_puts_advance(t, peer);
    }
    return got;
}

/* ------------------------------------------------------------------ the slow path */

/* Events that found no room, and queue pairs that have failed. */
static int late_look(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0;
    t->late = hly_verbs_peers_tidy(t);
    for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = hly_verbs_next(peer))
        n += hly_verbs_puts_give(t, peer, events + n, max - n);
    return n;
}

/* A failure is told when all that came before has been; nothing is written here from then on. */
static int failure_tell(halay_transport_t *t, halay_event_t *event, int quiet)
{
    if (!t->meet.failing || (!quiet && ++t->failing_polls < HLY_VERBS_HURRY))
        return 0;
    halay_ep_t *failed = (halay_ep_t *)hly_meet_peer_failed(&t->meet, event);
    if (!failed)
        return 0;
    t->failing_polls = 0;
    hly_verbs_pair_stop(failed);
    t->late = 1;
    return 1;
}

/* A driver may try for ever: the end of that is here. */
static void overdue(halay_transport_t *t, halay_ep_t *peer)
{
    peer->base.look_ns = 0;
    if (peer->tried < TRIED)
        hly_verbs_peer_broken(t, peer, "no answer by the deadline");
    else if (peer->base.refs == 0 && peer->put_first != peer->put_end)
        hly_verbs_peer_broken(t, peer, "it was given up");
}

static void attend(halay_transport_t *t)
{
    const uint64_t now = hly_meet_now_ns();
    halay_ep_t *next;
    t->attended_ns = now;
    t->meet.attention = 0;
    hly_verbs_device_look(t);
    hly_meet_attend(&t->meet, now);
    for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = next) {
        next = hly_verbs_next(peer);
        if (peer->base.state == PEER_WELL && peer->base.heard && peer->tried == TRIED_NOT)
            hly_verbs_peer_try(t, peer);
        else if (peer->base.look_ns && now >= peer->base.look_ns)
            overdue(t, peer);
        else if (hly_meet_peer_over(&peer->base) && !peer->qp)
            hly_verbs_peer_free(t, peer);
    }
}

int hly_verbs_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0, got = 0;
    assert(max > 0);
    hly_verbs_recvs_post(t, &t->given);
    if (t->late)
        n = late_look(t, events, max);
    if (n < max)
        got = completions(t, events, max - n, &n);
    if (got < 0 || t->meet.error)
        return got < 0 ? got : hly_meet_error_take(&t->meet);
    t->polls++;
    if (t->meet.failing && n < max)
        n += failure_tell(t, events + n, got == 0);
    else if ((got == 0 && t->meet.attention) ||
             (t->polls % HLY_VERBS_TICK == 0 &&
              hly_meet_now_ns() - t->attended_ns >= HLY_VERBS_SLOW_NS))
        attend(t);
    return n;
}

/* The queue is armed first, and looked at once more, by the poll that EAGAIN asks for. */
int hly_verbs_arm(halay_transport_t *t, int *fd)
{
    struct ibv_cq *cq;
    void *arg;
    if (t->meet.attention || t->meet.failing || t->late || t->roused || t->given) {
        t->roused = 0;
        return HALAY_EAGAIN;
    }
    while (ibv_get_cq_event(t->channel, &cq, &arg) == 0) {
        ibv_ack_cq_events(cq, 1);
        t->armed = 0;
    }
    if (!t->armed) {
        int rc = ibv_req_notify_cq(t->cq, 0);
        if (rc)
            return hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                                  "it cannot sleep: ibv_req_notify_cq: %s", strerror(rc));
        t->armed = 1;
        return HALAY_EAGAIN;
    }
    t->meet.attention = 1; /* whatever wakes it, poll looks everywhere */
    *fd = t->meet.epoll_fd;
    return hly_meet_timer_set(&t->meet);
}
