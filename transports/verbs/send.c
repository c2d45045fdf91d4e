/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send.c - work requests, messages, credits.
 *
 * What ends a put is signalled, and what holds a buffer that somebody may wait for; of all else
 * every QUIET-th. So a queue that is full has one that will tell. Half of the buffers for messages
 * may stay with requests that nothing follows: once fewer are free each is signalled.
 */
#include <errno.h>
#include <string.h>

#include "verbs.h"

_Static_assert(HLY_VERBS_SLOTS >= 2 * HLY_VERBS_QUIET, "a full queue will tell");
_Static_assert(HLY_VERBS_CHAIN + HLY_VERBS_SPARE <= HLY_VERBS_SLOTS, "a chain fits");

int hly_verbs_may(halay_ep_t *peer, uint32_t slots)
{
    if (peer->base.state != PEER_WELL)
        return HALAY_EPEER;
    if (peer->tried == TRIED && peer->credits > 0 &&
        hly_verbs_room(peer->lane[0]) >= slots + HLY_VERBS_SPARE)
        return HALAY_OK;
    peer->refused = 1;
    return HALAY_EAGAIN;
}

/* Must it say that it is done? A buffer comes back with the end of its put, too. */
static int must_tell(const hly_verbs_work_t work[], int i, int n)
{
    return work[i].ends_put ||
           (work[i].buffer && !work[i].patient && !(i + 1 < n && work[i + 1].ends_put));
}

void hly_verbs_work_end(halay_transport_t *t, const hly_verbs_work_t *work)
{
    if (!work->buffer)
        return;
    hly_verbs_buffer_give(work->pool, work->buffer);
    t->nsends -= work->pool == &t->sends;
}

int hly_verbs_post(halay_transport_t *t, hly_verbs_lane_t *lane, struct ibv_send_wr wr[], int n,
                   const hly_verbs_work_t work[])
{
    struct ibv_send_wr *bad;
    assert(n > 0 && hly_verbs_room(lane) >= (uint32_t)n);
    for (int i = 0; i < n; i++) {
        const uint32_t number = lane->posted + (uint32_t)i;
        lane->work[number % HLY_VERBS_SLOTS] = work[i];
        wr[i].wr_id = HLY_VERBS_SEND(number);
        wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
        if (must_tell(work, i, n) || lane->quiet + 1 >= HLY_VERBS_QUIET)
            wr[i].send_flags |= IBV_SEND_SIGNALED;
        lane->quiet = wr[i].send_flags & IBV_SEND_SIGNALED ? 0 : lane->quiet + 1;
        t->n.signalled += lane->quiet == 0;
        t->n.inlined += (wr[i].send_flags & IBV_SEND_INLINE) != 0;
    }
    t->n.requests += (uint64_t)n;
    t->n.doorbells++;
    int rc = ibv_post_send(lane->qp, wr, &bad);
    /* Those before the bad one are posted. */
    lane->posted += rc ? (uint32_t)(bad - wr) : (uint32_t)n;
    if (rc == 0)
        return HALAY_OK;
    for (int i = (int)(bad - wr); i < n; i++)
        hly_verbs_work_end(t, &work[i]);
    return hly_meet_peer_fail(&t->meet, &lane->peer->base, HALAY_EPEER,
                              "%s takes no work request to %s: ibv_post_send: %s",
                              t->rails[lane->rail].name, lane->peer->base.name, strerror(rc));
}

uint32_t hly_verbs_immediate(halay_transport_t *t, halay_ep_t *peer, uint32_t says)
{
    const hly_verbs_device_t *device = hly_verbs_device_of(t, peer->lane[0]);
    const uint32_t owed = peer->owed;
    assert(device->posted + device->held >= device->promised); /* it can be received */
    (void)device;
    peer->owed = 0;
    return htonl(says | owed);
}

/* A SEND, which brings back all credits that are owed. */
static int message_post(halay_transport_t *t, halay_ep_t *peer, uint32_t immediate,
                        const struct ibv_sge *sge, const hly_verbs_work_t *work)
{
    struct ibv_sge one = *sge;
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &one};
    wr.num_sge = one.length > 0;
    wr.send_flags = work->buffer || one.length == 0 ? 0 : IBV_SEND_INLINE;
    wr.imm_data = hly_verbs_immediate(t, peer, immediate);
    return hly_verbs_post(t, peer->lane[0], &wr, 1, work);
}

int hly_verbs_send(halay_transport_t *t, halay_ep_t *peer, uint64_t tag, const void *header,
                   size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    uint8_t small[HLY_VERBS_INLINE];
    hly_verbs_work_t work = {.pool = &t->sends};
    struct ibv_sge sge = {.addr = (uintptr_t)small};
    (void)cookie; /* all is copied */
    if (tag || header_bytes > HLY_VERBS_MESSAGE || bytes > HLY_VERBS_MESSAGE - header_bytes)
        return tag ? HALAY_EUNSUPPORTED : HALAY_EINVAL;
    int rc = hly_verbs_may(peer, 1);
    if (rc)
        return rc;
    sge.length = (uint32_t)(header_bytes + bytes);
    if (sge.length > peer->lane[0]->inline_bytes) {
        work.buffer = hly_verbs_buffer_take(work.pool);
        peer->refused |= !work.buffer;
        if (!work.buffer)
            return HALAY_EAGAIN;
        work.patient = ++t->nsends <= HLY_VERBS_SENDS / 2;
        sge.addr = (uintptr_t)work.buffer->at;
        sge.lkey = hly_verbs_lkey(t, peer->lane[0], work.buffer);
    }
    if (header_bytes)
        memcpy((uint8_t *)sge.addr, header, header_bytes);
    if (bytes)
        memcpy((uint8_t *)sge.addr + header_bytes, payload, bytes);
    rc = message_post(t, peer, HLY_VERBS_IMM_MESSAGE, &sge, &work);
    if (rc)
        return rc;
    peer->credits--;
    t->n.messages++;
    return HALAY_OK;
}

void hly_verbs_credits_return(halay_transport_t *t, halay_ep_t *peer)
{
    static const hly_verbs_work_t nothing;
    static const struct ibv_sge none;
    if (!hly_verbs_owes_enough(peer->owed, peer->grant) || peer->base.state != PEER_WELL ||
        hly_verbs_room(peer->lane[0]) == 0)
        return;
    t->n.credits++;
    message_post(t, peer, 0, &none, &nothing);
}

void hly_verbs_fence(halay_transport_t *t, hly_verbs_lane_t *lane)
{
    static const hly_verbs_work_t nothing;
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = hly_verbs_its_port(lane)->page;
    wr.wr.rdma.rkey = hly_verbs_its_port(lane)->rkey;
    if (lane->quiet > 0 && hly_verbs_room(lane) > 0)
        hly_verbs_post(t, lane, &wr, 1, &nothing);
}
