/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll.c - completions become events. Each completion makes one event at most, so as many are
 * taken as there is room for; what may end more is told by the next poll (late).
 */
#include <string.h>

#include "verbs.h"

/* ------------------------------------------------------------------ completions */

static void work_done(halay_transport_t *t, hly_verbs_lane_t *lane, uint32_t number, int status)
{
    const hly_verbs_work_t *work = &lane->work[number % HLY_VERBS_SLOTS];
    hly_verbs_work_end(t, work);
    if (!work->ends_put)
        return;
    assert(work->put - lane->peer->put_first < HLY_VERBS_PUTS);
    hly_verbs_put_done(t, &lane->peer->puts[work->put % HLY_VERBS_PUTS], status);
}

/* All requests before this one have been carried out; it alone may have failed. */
static int on_sent(halay_transport_t *t, hly_verbs_lane_t *lane, const struct ibv_wc *wc,
                   halay_event_t *event)
{
    halay_ep_t *peer = lane ? lane->peer : NULL;
    const uint32_t number = (uint32_t)(wc->wr_id >> 1);
    const int status = wc->status ? HALAY_EPEER : HALAY_OK;
    if (!peer || number - lane->done >= lane->posted - lane->done)
        return 0; /* of a queue pair that is gone */
    while (lane->done != number + 1) {
        const uint32_t one = lane->done++;
        work_done(t, lane, one, one == number ? status : HALAY_OK);
    }
    t->n.sent++;
    lane->failed_here |= wc->status == IBV_WC_LOC_QP_OP_ERR;
    if (wc->status)
        hly_verbs_lane_broken(t, lane, ibv_wc_status_str(wc->status));
    else if (lane->tried < TRIED)
        hly_verbs_lane_tried(t, lane);
    hly_verbs_credits_return(t, peer);
    hly_verbs_puts_advance(t, peer);
    return hly_verbs_puts_give(t, peer, event, 1);
}

/*
 * A lane's part of a put that was cut is complete: the first lane keeps the buffer, whose credit
 * stands for all, the second brings the immediate; the n-th part of each are one put.
 */
static int on_part(halay_transport_t *t, hly_verbs_lane_t *lane, hly_verbs_buffer_t *buffer,
                   uint32_t immediate, halay_event_t *event)
{
    halay_ep_t *peer = lane->peer;
    if (lane->came - peer->told >= HLY_VERBS_CREDITS) {
        hly_verbs_buffer_give(&t->spare, buffer);
        hly_verbs_lane_broken(t, lane, "it has put more than it was allowed");
        return 0;
    }
    if (lane->place == 1)
        peer->immediates[lane->came % HLY_VERBS_CREDITS] = immediate;
    lane->came++;
    hly_verbs_buffer_give(lane->place == 0 ? &peer->kept : &t->spare, buffer);
    for (int k = 0; k < peer->nlanes; k++) {
        if (peer->lane[k]->came == peer->told)
            return 0;
    }
    buffer = hly_verbs_buffer_take(&peer->kept);
    buffer->owed_to = peer;
    hly_verbs_buffer_give(&t->idle, buffer);
    *event = (halay_event_t){.kind = HALAY_EVENT_IMMEDIATE,
                             .peer = peer->base.id,
                             .immediate = peer->immediates[peer->told++ % HLY_VERBS_CREDITS]};
    return 1;
}

/* A SEND brings credits; beside them a message, or a part, or nothing. */
static int on_send(halay_transport_t *t, hly_verbs_lane_t *lane, hly_verbs_buffer_t *buffer,
                   uint32_t bytes, uint32_t immediate, halay_event_t *event)
{
    halay_ep_t *peer = lane->peer;
    const uint32_t credits = immediate % HLY_VERBS_IMM_MESSAGE;
    if (credits > peer->its.grant - peer->credits) {
        hly_verbs_buffer_give(&t->spare, buffer);
        hly_verbs_lane_broken(t, lane, "it has given back more credits than it had got");
        return 0;
    }
    peer->credits += credits;
    if (immediate & HLY_VERBS_IMM_PART)
        return on_part(t, lane, buffer, 0, event);
    if (!(immediate & HLY_VERBS_IMM_MESSAGE)) {
        hly_verbs_buffer_give(&t->spare, buffer);
        return 0;
    }
    buffer->owed_to = peer;
    hly_verbs_buffer_give(&t->given, buffer);
    *event = (halay_event_t){.kind = HALAY_EVENT_MESSAGE,
                             .peer = peer->base.id,
                             .data = bytes ? buffer->at : NULL,
                             .bytes = bytes};
    return 1;
}

static int on_received(halay_transport_t *t, hly_verbs_lane_t *lane, const struct ibv_wc *wc,
                       halay_event_t *event)
{
    hly_verbs_buffer_t *buffer = (hly_verbs_buffer_t *)(uintptr_t)wc->wr_id;
    hly_verbs_device_t *device = &t->devices[buffer->slab->device];
    const uint32_t immediate = ntohl(wc->imm_data);
    device->posted -= device->posted > 0;
    device->held++;
    t->n.received++;
    buffer->owed_to = NULL;
    if (!lane || wc->status) {
        hly_verbs_buffer_give(&t->spare, buffer);
        if (lane)
            hly_verbs_lane_broken(t, lane, ibv_wc_status_str(wc->status));
        return 0;
    }
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
        return on_send(t, lane, buffer, wc->byte_len, immediate, event);
    if (lane->place > 0)
        return on_part(t, lane, buffer, immediate, event);
    buffer->owed_to = lane->peer;
    hly_verbs_buffer_give(&t->idle, buffer);
    *event = (halay_event_t){
        .kind = HALAY_EVENT_IMMEDIATE, .peer = lane->peer->base.id, .immediate = immediate};
    return 1;
}

static int queue_look(halay_transport_t *t, int device, halay_event_t events[], int max, int *n)
{
    struct ibv_wc wc[HLY_VERBS_BATCH];
    int got = ibv_poll_cq(t->devices[device].cq, max < HLY_VERBS_BATCH ? max : HLY_VERBS_BATCH, wc);
    if (got < 0)
        return hly_meet_error(&t->meet, HALAY_ETRANSPORT, "%s: ibv_poll_cq failed",
                              ibv_get_device_name(t->devices[device].context->device));
    for (int i = 0; i < got; i++) {
        hly_verbs_lane_t *lane = hly_verbs_lane_of(t, device, wc[i].qp_num);
        *n += wc[i].wr_id & 1 ? on_sent(t, lane, &wc[i], &events[*n])
                              : on_received(t, lane, &wc[i], &events[*n]);
        if (lane && lane->peer->refused) {
            lane->peer->refused = 0;
            t->roused = 1;
        }
    }
    return got;
}

/* In turn: no device waits for ever for one that always has something. */
static int completions(halay_transport_t *t, halay_event_t events[], int max, int *n)
{
    const int begin = *n;
    int all = 0;
    for (int i = 0; i < t->ndevices && *n - begin < max; i++) {
        int device = (int)((t->polls + (uint32_t)i) % (uint32_t)t->ndevices);
        int got = queue_look(t, device, events, max - (*n - begin), n);
        if (got < 0)
            return got;
        all += got;
    }
    /* Requests of other lanes first: then the credit that stands for them may go back. */
    if (t->spare)
        hly_verbs_recvs_post(t, &t->spare);
    if (t->idle)
        hly_verbs_recvs_post(t, &t->idle);
    if (t->starved && t->bounces) {
        t->starved = 0;
        for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = hly_verbs_next(peer))
            hly_verbs_puts_advance(t, peer);
    }
    return all;
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
    hly_verbs_peer_name_device(t, failed);
    for (int k = 0; k < failed->nlanes; k++)
        hly_verbs_pair_stop(failed->lane[k]);
    t->late = 1;
    return 1;
}

/* A driver may try for ever: the end of that is here. */
static void overdue(halay_transport_t *t, halay_ep_t *peer)
{
    const hly_verbs_lane_t *lane = peer->lane[0];
    peer->base.look_ns = 0;
    for (int k = 0; k < peer->nlanes; k++) {
        const hly_verbs_lane_t *one = peer->lane[k];
        if (one->tried != lane->tried ? one->tried < lane->tried : lane->posted == lane->done)
            lane = one;
    }
    if (peer->tried < TRIED)
        hly_verbs_lane_broken(t, lane, "no answer by the deadline");
    else if (peer->base.refs == 0 && peer->put_first != peer->put_end)
        hly_verbs_lane_broken(t, lane, "it was given up");
}

static void attend(halay_transport_t *t)
{
    const uint64_t now = hly_meet_now_ns();
    halay_ep_t *next;
    t->attended_ns = now;
    t->meet.attention = 0;
    hly_verbs_devices_look(t);
    hly_meet_attend(&t->meet, now);
    for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = next) {
        next = hly_verbs_next(peer);
        if (peer->base.state == PEER_WELL && peer->base.heard && peer->tried == TRIED_NOT)
            hly_verbs_peer_try(t, peer);
        else if (peer->base.look_ns && now >= peer->base.look_ns)
            overdue(t, peer);
        else if (hly_verbs_peer_gone(t, peer))
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
    int fresh = 0;
    if (t->meet.attention || t->meet.failing || t->late || t->roused || t->given) {
        t->roused = 0;
        return HALAY_EAGAIN;
    }
    for (int i = 0; i < t->ndevices; i++) {
        hly_verbs_device_t *device = &t->devices[i];
        while (ibv_get_cq_event(device->channel, &cq, &arg) == 0) {
            ibv_ack_cq_events(cq, 1);
            device->armed = 0;
        }
        if (device->armed)
            continue;
        int rc = ibv_req_notify_cq(device->cq, 0);
        if (rc)
            return hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                                  "it cannot sleep: ibv_req_notify_cq: %s", strerror(rc));
        device->armed = 1;
        fresh = 1;
    }
    if (fresh)
        return HALAY_EAGAIN;
    t->meet.attention = 1; /* whatever wakes it, poll looks everywhere */
    *fd = t->meet.epoll_fd;
    return hly_meet_timer_set(&t->meet, UINT64_MAX);
}
