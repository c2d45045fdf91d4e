/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c - puts, in pieces, as the send queue and the bounce buffers have room for them. Of a peer,
 * they are posted and complete in order; the credit for the immediate is taken at the beginning, so
 * nothing but room is waited for later.
 */
#include <string.h>

#include "verbs.h"

/* 1: a piece, and what it holds. 0: no bounce buffer. */
static int piece_make(halay_transport_t *t, const halay_ep_t *peer, const hly_verbs_put_t *put,
                      struct ibv_send_wr *wr, struct ibv_sge *sge, hly_verbs_work_t *work,
                      size_t *next)
{
    const size_t most = put->bounces ? HLY_VERBS_BOUNCE : t->most;
    hly_verbs_piece_t piece = hly_verbs_piece(put->bytes, *next, most, HLY_VERBS_APART);
    *work = (hly_verbs_work_t){.ends_put = piece.last, .pool = &t->bounces};
    *sge = (struct ibv_sge){(uintptr_t)put->payload + piece.offset, (uint32_t)piece.bytes, 0};
    *wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = piece.bytes > 0};
    wr->opcode = piece.last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    wr->imm_data = htonl(put->immediate);
    wr->wr.rdma.remote_addr = put->remote + piece.offset;
    wr->wr.rdma.rkey = put->rkey;
    *next = piece.offset + piece.bytes;
    if (put->mem) {
        sge->lkey = put->mem->mr->lkey;
    } else if (piece.bytes <= peer->inline_bytes) {
        wr->send_flags = IBV_SEND_INLINE;
    } else {
        work->buffer = hly_verbs_buffer_take(work->pool);
        if (!work->buffer)
            return 0;
        memcpy(work->buffer->at, (const void *)(uintptr_t)sge->addr, piece.bytes);
        sge->addr = (uintptr_t)work->buffer->at;
        sge->lkey = work->buffer->lkey;
        t->n.bounced_bytes += piece.bytes;
    }
    return 1;
}

/* One doorbell of a put. 1: it is posted whole; 0: there is no room; an error: the peer failed. */
static int chain_post(halay_transport_t *t, halay_ep_t *peer, hly_verbs_put_t *put)
{
    struct ibv_send_wr wr[HLY_VERBS_CHAIN];
    struct ibv_sge sge[HLY_VERBS_CHAIN];
    hly_verbs_work_t work[HLY_VERBS_CHAIN];
    size_t next = put->offset;
    int n = 0, last = 0;
    while (!last && n < HLY_VERBS_CHAIN && hly_verbs_room(peer) > (uint32_t)n + HLY_VERBS_SPARE) {
        if (!piece_make(t, peer, put, &wr[n], &sge[n], &work[n], &next)) {
            t->starved = 1;
            break;
        }
        put->offset = next;
        last = work[n++].ends_put;
    }
    if (n == 0)
        return 0;
    int rc = hly_verbs_post(t, peer, wr, n, work);
    put->posted = last && rc == 0;
    return rc ? rc : last || n == HLY_VERBS_CHAIN;
}

void hly_verbs_puts_advance(halay_transport_t *t, halay_ep_t *peer)
{
    int more = 1;
    while (more > 0 && peer->put_next != peer->put_end && peer->base.state == PEER_WELL) {
        hly_verbs_put_t *put = &peer->puts[peer->put_next % HLY_VERBS_PUTS];
        more = chain_post(t, peer, put);
        peer->put_next += put->posted;
    }
}

int hly_verbs_put(halay_transport_t *t, halay_ep_t *peer, const void *payload, size_t bytes,
                  const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                  uint64_t cookie)
{
    hly_verbs_put_t *put = &peer->puts[peer->put_end % HLY_VERBS_PUTS];
    uint64_t k[3]; /* address, bytes, rkey */
    memcpy(k, key, key_bytes == sizeof(k) ? sizeof(k) : 0);
    if (key_bytes != sizeof(k) || offset > k[1] || bytes > k[1] - offset)
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
                             .remote = k[0] + offset,
                             .cookie = cookie,
                             .rkey = (uint32_t)k[2],
                             .immediate = immediate};
    if (bytes > peer->inline_bytes)
        put->mem = hly_verbs_source_hold(t, payload, bytes);
    put->bounces = !put->mem;
    peer->credits--;
    peer->put_end++;
    t->n.puts++;
    t->n.put_bytes += bytes;
    hly_verbs_puts_advance(t, peer);
    return HALAY_INPROGRESS; /* also if it failed just now: the event says so */
}

int hly_verbs_puts_give(halay_transport_t *t, halay_ep_t *peer, halay_event_t events[], int max)
{
    int n = 0;
    while (peer->put_first != peer->put_end) {
        hly_verbs_put_t *put = &peer->puts[peer->put_first % HLY_VERBS_PUTS];
        if (!put->over)
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
            if (put->mem == mem && !put->over)
                hly_verbs_peer_broken(t, peer, "memory was deregistered under a put from it");
        }
    }
}

void hly_verbs_puts_drop(halay_transport_t *t, halay_ep_t *peer)
{
    for (uint32_t i = peer->put_first; i != peer->put_end; i++) {
        hly_verbs_put_t *put = &peer->puts[i % HLY_VERBS_PUTS];
        if (put->over)
            continue;
        put->over = 1;
        put->status = HALAY_EPEER;
        hly_verbs_source_drop(t, put->mem);
    }
}
