/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.c - the table and the fast path.
 */
#include "verbs.h"

#include <arpa/inet.h>

extern HALAY_API const halay_transport_ops_t halay_transport_v2_verbs;

/* ------------------------------------------------------------------ messages and puts */

/* HALAY_OK: there is a slot and a credit. */
static int may_post(const halay_ep_t *peer)
{
    if (peer->state != PEER_WELL)
        return HALAY_EPEER;
    return peer->met && peer->credits && peer->free_slots ? HALAY_OK : HALAY_EAGAIN;
}

static int post(halay_transport_t *t, halay_ep_t *peer, int slot, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    wr->wr_id = (uint64_t)(peer - t->peers) * BUFFERS + RECVS + (uint64_t)slot;
    wr->num_sge = wr->sg_list->length > 0;
    wr->send_flags = wr->sg_list->length <= INLINE ? IBV_SEND_INLINE : 0;
    int rc = ibv_post_send(peer->qp, wr, &bad);
    if (rc)
        return hly_verbs_peer_fail(t, peer, "ibv_post_send", strerror(rc));
    peer->free_slots &= ~(1u << slot);
    return HALAY_OK;
}

/* Brings back all credits that are owed. message 0: and nothing else. */
static int message_post(halay_transport_t *t, halay_ep_t *peer, uint32_t message,
                        const void *header, size_t header_bytes, const void *payload, size_t bytes)
{
    int slot = __builtin_ctz(peer->free_slots);
    size_t n = (size_t)(peer - t->peers) * BUFFERS + RECVS + (size_t)slot;
    uint8_t *at = t->room + n * BUFFER;
    uint32_t head[2] = {message, peer->owed};
    struct ibv_sge sge = {(uintptr_t)at, (uint32_t)(HEAD + header_bytes + bytes), t->mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge};
    memcpy(at, head, HEAD);
    if (header_bytes)
        memcpy(at + HEAD, header, header_bytes);
    if (bytes)
        memcpy(at + HEAD + header_bytes, payload, bytes);
    peer->slot[slot].put = 0;
    peer->slot[slot].mr = NULL;
    peer->credits -= message;
    peer->granted += peer->owed;
    peer->owed = 0;
    assert(peer->posted >= peer->granted);
    return post(t, peer, slot, &wr);
}

static void credits_return(halay_transport_t *t, halay_ep_t *peer)
{
    if (peer->owed >= CREDITS / 2 && peer->free_slots && peer->state == PEER_WELL)
        message_post(t, peer, 0, NULL, 0, NULL, 0);
}

static int verbs_send(halay_transport_t *t, halay_ep_t *peer, uint64_t tag, const void *header,
                      size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    (void)cookie; /* all is copied */
    if (tag)
        return HALAY_EUNSUPPORTED;
    if (header_bytes > BUFFER - HEAD || bytes > BUFFER - HEAD - header_bytes)
        return HALAY_EINVAL;
    int rc = may_post(peer);
    return rc ? rc : message_post(t, peer, 1, header, header_bytes, payload, bytes);
}

/*
 * A payload that is not inline must be registered, and the contract does not say how: so here. Only
 * the last of its pieces has the immediate; the queue pair keeps their order.
 */
static int verbs_put(halay_transport_t *t, halay_ep_t *peer, const void *payload, size_t bytes,
                     const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                     uint64_t cookie)
{
    const size_t most = t->port.max_msg_sz, pieces = bytes ? (bytes - 1) / most + 1 : 1;
    struct ibv_sge sge = {.addr = (uintptr_t)payload};
    struct ibv_send_wr wr = {.sg_list = &sge, .imm_data = htonl(immediate)};
    struct ibv_mr *mr = NULL;
    put_key_t k;
    if (key_bytes != sizeof(k))
        return HALAY_EINVAL;
    memcpy(&k, key, sizeof(k));
    if (offset > k.bytes || bytes > k.bytes - offset || pieces > SLOTS)
        return hly_verbs_say(t, 0, HALAY_EINVAL, "a put was refused",
                             "it is too large, or ends beyond");
    int rc = may_post(peer);
    if (rc == 0 && (size_t)__builtin_popcount(peer->free_slots) < pieces)
        rc = HALAY_EAGAIN;
    if (rc == 0 && bytes > INLINE &&
        !(mr = ibv_reg_mr(t->pd, (void *)(uintptr_t)payload, bytes, 0)))
        rc = hly_verbs_say(t, 0, HALAY_ENOMEM, "the source of a put (ulimit -l?)", strerror(errno));
    if (rc)
        return rc;
    peer->credits--;
    sge.lkey = mr ? mr->lkey : 0;
    wr.wr.rdma.remote_addr = k.address + offset;
    wr.wr.rdma.rkey = (uint32_t)k.rkey;
    for (size_t i = 0; i < pieces && rc == 0; i++) {
        int slot = __builtin_ctz(peer->free_slots), last = i == pieces - 1;
        sge.length = (uint32_t)(last ? bytes - i * most : most);
        wr.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        peer->slot[slot].put = last;
        peer->slot[slot].cookie = cookie;
        peer->slot[slot].mr = last ? mr : NULL;
        rc = post(t, peer, slot, &wr);
        sge.addr += sge.length;
        wr.wr.rdma.remote_addr += sge.length;
    }
    if (rc && mr)
        ibv_dereg_mr(mr);
    return rc ? rc : HALAY_INPROGRESS;
}

/* ------------------------------------------------------------------ poll, arm */

/* 1: there is an event. */
static int on_received(halay_transport_t *t, halay_ep_t *peer, const struct ibv_wc *wc,
                       halay_event_t *event)
{
    const uint8_t *at = t->room + wc->wr_id * BUFFER;
    int immediate = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    uint32_t head[2] = {1, 0}; /* an immediate has no room for credits */
    peer->posted--;
    if (wc->status)
        return 0;
    *event = (halay_event_t){.kind = HALAY_EVENT_IMMEDIATE, .peer = peer->id};
    if (immediate) {
        event->immediate = ntohl(wc->imm_data);
    } else {
        memcpy(head, at, HEAD);
        event->kind = HALAY_EVENT_MESSAGE;
        event->data = at + HEAD;
        event->bytes = wc->byte_len - HEAD;
    }
    peer->credits += head[1];
    peer->granted -= head[0];
    if (head[0] && !immediate) {
        t->held[t->nheld++] = wc->wr_id;
        return 1;
    }
    hly_verbs_recv_post(t, wc->wr_id);
    peer->owed += head[0];
    credits_return(t, peer);
    return immediate;
}

static int on_complete(halay_transport_t *t, const struct ibv_wc *wc, halay_event_t *event)
{
    halay_ep_t *peer = &t->peers[wc->wr_id / BUFFERS];
    int slot = (int)(wc->wr_id % BUFFERS) - RECVS;
    if (wc->status)
        hly_verbs_peer_fail(t, peer, "the queue pair failed", ibv_wc_status_str(wc->status));
    if (slot < 0)
        return on_received(t, peer, wc, event);
    peer->free_slots |= 1u << slot;
    if (peer->slot[slot].mr)
        ibv_dereg_mr(peer->slot[slot].mr);
    credits_return(t, peer);
    *event = (halay_event_t){.kind = HALAY_EVENT_PUT, .peer = peer->id};
    event->status = wc->status ? HALAY_EPEER : HALAY_OK;
    event->cookie = peer->slot[slot].cookie;
    return peer->slot[slot].put;
}

int hly_verbs_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    struct ibv_wc wc;
    int n = 0, got = 1;
    while (t->nheld > 0) {
        uint64_t buffer = t->held[--t->nheld];
        hly_verbs_recv_post(t, buffer);
        t->peers[buffer / BUFFERS].owed++;
        credits_return(t, &t->peers[buffer / BUFFERS]);
    }
    for (int i = 0; i < ROUNDS && n < max && t->nheld < HELD && got > 0; i++) {
        if ((got = ibv_poll_cq(t->cq, 1, &wc)) > 0)
            n += on_complete(t, &wc, &events[n]);
    }
    if (got < 0)
        return hly_verbs_say(t, 0, HALAY_ETRANSPORT, "ibv_poll_cq", "the device failed");
    if (n == 0 && got == 0 && (t->attention || ++t->polls % 16 == 0))
        return hly_verbs_attend(t, events, max);
    return n;
}

/* The queue is armed first, and looked at once more, by the poll that EAGAIN asks for. */
static int verbs_arm(halay_transport_t *t, int *fd)
{
    struct ibv_cq *cq;
    void *arg;
    if (t->attention)
        return HALAY_EAGAIN;
    if (t->armed && ibv_get_cq_event(t->channel, &cq, &arg) == 0) {
        ibv_ack_cq_events(cq, 1);
        t->armed = 0;
    }
    if (!t->armed) {
        t->armed = 1;
        return ibv_req_notify_cq(t->cq, 0) ? HALAY_ETRANSPORT : HALAY_EAGAIN;
    }
    t->attention = 1; /* whatever wakes it, poll looks everywhere */
    *fd = t->epoll_fd;
    return HALAY_OK;
}

/* ------------------------------------------------------------------ small answers */

static int verbs_query(const halay_transport_t *t, halay_transport_attr_t *attr)
{
    (void)t;
    if (!attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    attr->capabilities = HALAY_CAN_PUT | HALAY_CAN_SLEEP;
    attr->message_bytes = attr->eager_bytes = attr->piece_bytes = BUFFER - HEAD;
    return HALAY_OK;
}

static int verbs_address(const halay_transport_t *t, void *address, size_t *bytes)
{
    if (*bytes < sizeof(t->where))
        return HALAY_EINVAL;
    memcpy(address, &t->where, *bytes = sizeof(t->where));
    return HALAY_OK;
}

/* Without an address the peer has to call first: then it says where it is. */
static int verbs_connect(halay_transport_t *t, halay_peer_id_t id, const void *address,
                         size_t bytes, halay_ep_t **ep)
{
    if (bytes != 0 && bytes != sizeof(halay_address_t))
        return HALAY_EINVAL;
    halay_ep_t *peer = hly_verbs_peer_hold(t, id);
    if (!peer)
        return HALAY_ENOMEM;
    if (bytes)
        memcpy(&peer->where, address, bytes);
    peer->begun_ns = peer->begun_ns ? peer->begun_ns : hly_verbs_now_ns();
    peer->refs++;
    t->attention = 1;
    *ep = peer;
    return HALAY_OK;
}

static void verbs_disconnect(halay_transport_t *t, halay_ep_t *ep)
{
    t->attention = 1;
    if (ep)
        ep->refs--;
}

static int verbs_register(halay_transport_t *t, void *address, size_t bytes, halay_mem_t **mem)
{
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    *mem = (halay_mem_t *)ibv_reg_mr(t->pd, address, bytes, access);
    return *mem ? HALAY_OK
                : hly_verbs_say(t, 0, HALAY_ENOMEM, "ibv_reg_mr (ulimit -l?)", strerror(errno));
}

static void verbs_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    int rc = mem ? ibv_dereg_mr((struct ibv_mr *)mem) : 0;
    if (rc)
        hly_verbs_say(t, 0, 0, "ibv_dereg_mr", strerror(rc));
}

static int verbs_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes)
{
    const struct ibv_mr *mr = (const struct ibv_mr *)mem;
    put_key_t k = {(uintptr_t)mr->addr, mr->length, mr->rkey};
    (void)t;
    if (*bytes < sizeof(k))
        return HALAY_EINVAL;
    memcpy(key, &k, *bytes = sizeof(k));
    return HALAY_OK;
}

static int verbs_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes,
                      uint64_t cookie)
{
    (void)t, (void)tag, (void)buffer, (void)bytes, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

const halay_transport_ops_t halay_transport_v2_verbs = {
    .size = sizeof(halay_transport_ops_t),
    .name = "verbs",
    .open = hly_verbs_open,
    .close = hly_verbs_close,
    .query = verbs_query,
    .address = verbs_address,
    .connect = verbs_connect,
    .disconnect = verbs_disconnect,
    .register_mem = verbs_register,
    .deregister_mem = verbs_deregister,
    .key = verbs_key,
    .send = verbs_send,
    .recv = verbs_recv,
    .put = verbs_put,
    .poll = hly_verbs_poll,
    .arm = verbs_arm,
};
