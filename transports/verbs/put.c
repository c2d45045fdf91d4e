/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c - puts, in pieces, as the send queues and the bounce buffers have room for them. On a lane
 * they are posted and complete in order; the credit for the immediate is taken at the beginning, so
 * it waits for nothing but room later. A put that is cut is on all lanes, each with its part; any
 * other is on lane 0.
 */
#include <string.h>

#include "verbs.h"

/* What ends a put on a lane. For a put that is cut, lane 1 brings the user's immediate (recv side:
 * poll.c). */
static void last_make(halay_transport_t *t, const hly_verbs_lane_t *lane,
                      const hly_verbs_put_t *put, struct ibv_send_wr *wr)
{
    const int part = put->lanes > 1 && lane->place == 0;
    wr->opcode = part ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data =
        part ? hly_verbs_immediate(t, lane->peer, HLY_VERBS_IMM_PART) : htonl(put->immediate);
}

/* 1: a piece, and what it holds. 0: no bounce buffer. */
static int piece_make(halay_transport_t *t, const hly_verbs_lane_t *lane, hly_verbs_put_t *put,
                      struct ibv_send_wr *wr, struct ibv_sge *sge, hly_verbs_work_t *work)
{
    const int k = lane->place, cut = put->lanes > 1;
    const size_t from = cut ? hly_verbs_part(put->bytes, lane->peer->plan, put->lanes, k) : 0;
    const size_t to =
        cut ? hly_verbs_part(put->bytes, lane->peer->plan, put->lanes, k + 1) : put->bytes;
    const size_t most = put->bounces ? HLY_VERBS_BOUNCE : t->most;
    hly_verbs_piece_t piece =
        hly_verbs_piece(to - from, put->offset[k], most, cut ? 0 : HLY_VERBS_APART);
    const uint8_t *source = put->payload + from + piece.offset;
    *work = (hly_verbs_work_t){.ends_put = piece.last, .put = lane->put_next, .pool = &t->bounces};
    *sge = (struct ibv_sge){(uintptr_t)source, (uint32_t)piece.bytes, 0};
    *wr = (struct ibv_send_wr){
        .sg_list = sge, .num_sge = piece.bytes > 0, .opcode = IBV_WR_RDMA_WRITE};
    wr->wr.rdma.remote_addr = put->remote + from + piece.offset;
    wr->wr.rdma.rkey = put->rkey[k];
    if (put->mem) {
        sge->lkey = put->mem->mr[t->rails[lane->rail].device]->lkey;
    } else if (piece.bytes <= lane->inline_bytes) {
        wr->send_flags = IBV_SEND_INLINE;
    } else {
        work->buffer = hly_verbs_buffer_take(work->pool);
        if (!work->buffer)
            return 0;
        memcpy(work->buffer->at, source, piece.bytes);
        sge->addr = (uintptr_t)work->buffer->at;
        sge->lkey = hly_verbs_lkey(t, lane, work->buffer);
        t->n.bounced_bytes += piece.bytes;
    }
    if (piece.last)
        last_make(t, lane, put, wr);
    put->offset[k] = piece.offset + piece.bytes;
    t->rails[lane->rail].put_bytes += piece.bytes;
    return 1;
}

/* One doorbell of a put. 1: go on; 0: there is no room; an error: the peer failed. */
static int chain_post(halay_transport_t *t, hly_verbs_lane_t *lane, hly_verbs_put_t *put)
{
    struct ibv_send_wr wr[HLY_VERBS_CHAIN];
    struct ibv_sge sge[HLY_VERBS_CHAIN];
    hly_verbs_work_t work[HLY_VERBS_CHAIN];
    int n = 0, last = 0;
    while (!last && n < HLY_VERBS_CHAIN && hly_verbs_room(lane) > (uint32_t)n + HLY_VERBS_SPARE) {
        if (!piece_make(t, lane, put, &wr[n], &sge[n], &work[n])) {
            t->starved = 1;
            break;
        }
        last = work[n++].ends_put;
    }
    if (n == 0)
        return 0;
    int rc = hly_verbs_post(t, lane, wr, n, work);
    lane->put_next += last && rc == 0;
    return rc ? rc : last || n == HLY_VERBS_CHAIN;
}

void hly_verbs_puts_advance(halay_transport_t *t, halay_ep_t *peer)
{
    for (int k = 0; k < peer->nlanes; k++) {
        hly_verbs_lane_t *lane = peer->lane[k];
        int more = 1;
        while (more > 0 && lane->put_next != peer->put_end && peer->base.state == PEER_WELL) {
            hly_verbs_put_t *put = &peer->puts[lane->put_next % HLY_VERBS_PUTS];
            if (k < put->lanes)
                more = chain_post(t, lane, put);
            else
                lane->put_next++;
        }
    }
}

void hly_verbs_put_done(halay_transport_t *t, hly_verbs_put_t *put, int status)
{
    assert(put->awaits > 0);
    if (status)
        put->status = status;
    if (--put->awaits == 0)
        hly_verbs_source_drop(t, put->mem);
}

int hly_verbs_put(halay_transport_t *t, halay_ep_t *peer, const void *payload, size_t bytes,
                  const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                  uint64_t cookie)
{
    hly_verbs_put_t *put = &peer->puts[peer->put_end % HLY_VERBS_PUTS];
    hly_verbs_key_t k = {.bytes = 0};
    memcpy(&k, key, key_bytes == sizeof(k) ? sizeof(k) : 0);
    if (key_bytes != sizeof(k) || offset > k.bytes || bytes > k.bytes - offset)
        return hly_meet_error(&t->meet, HALAY_EINVAL,
                              "a put of %zu bytes has a key that is none, or ends beyond", bytes);
    int rc = hly_verbs_may(peer, 1);
    if (rc == 0 && peer->put_end - peer->put_first == HLY_VERBS_PUTS) {
        peer->refused = 1;
        rc = HALAY_EAGAIN;
    }
    if (rc)
        return rc;
    *put = (hly_verbs_put_t){.payload = payload,
                             .bytes = bytes,
                             .remote = k.address + offset,
                             .cookie = cookie,
                             .immediate = immediate,
                             .lanes = 1};
    if (bytes > peer->lane[0]->inline_bytes)
        put->mem = hly_verbs_source_hold(t, payload, bytes);
    else if (t->ngpu && bytes)
        put->mem = hly_verbs_gpu_hold(t, payload, bytes);
    put->bounces = !put->mem;
    if (put->mem && bytes > HLY_VERBS_PARTED)
        put->lanes = peer->nlanes;
    put->awaits = put->lanes;
    for (int i = 0; i < put->lanes; i++)
        put->rkey[i] = k.rkey[hly_verbs_its_port(peer->lane[i])->device];
    peer->credits--;
    peer->put_end++;
    t->n.puts++;
    t->n.cut += put->lanes > 1;
    t->n.put_bytes += bytes;
    hly_verbs_puts_advance(t, peer);
    return HALAY_INPROGRESS; /* also if it failed just now: the event says so */
}

int hly_verbs_puts_give(halay_transport_t *t, halay_ep_t *peer, halay_event_t events[], int max)
{
    int n = 0;
    while (peer->put_first != peer->put_end) {
        hly_verbs_put_t *put = &peer->puts[peer->put_first % HLY_VERBS_PUTS];
        if (put->awaits)
            break;
        t->late |= n == max;
        if (n == max)
            break;
        events[n++] = (halay_event_t){.kind = HALAY_EVENT_PUT,
                                      .status = put->status,
                                      .peer = peer->base.id,
                                      .cookie = put->cookie};
        peer->put_first++;
    }
    return n;
}

/* They may not wait for what is not there any more. */
void hly_verbs_puts_break(halay_transport_t *t, const halay_mem_t *mem)
{
    for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = hly_verbs_next(peer)) {
        for (uint32_t i = peer->put_first; i != peer->put_end; i++) {
            const hly_verbs_put_t *put = &peer->puts[i % HLY_VERBS_PUTS];
            if (put->mem == mem && put->awaits)
                hly_verbs_lane_broken(t, peer->lane[0],
                                      "memory was deregistered under a put from it");
        }
    }
}

void hly_verbs_puts_drop(halay_transport_t *t, halay_ep_t *peer)
{
    for (uint32_t i = peer->put_first; i != peer->put_end; i++) {
        hly_verbs_put_t *put = &peer->puts[i % HLY_VERBS_PUTS];
        while (put->awaits)
            hly_verbs_put_done(t, put, HALAY_EPEER);
    }
}
