/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.c - a spike: the contract on a real queue pair (docs/decisions/0011-verbs-spike.md).
 *
 * One RC queue pair a peer serves both directions; the two meet on a TCP link (transports/common).
 * A send takes a receive request of the peer, and so does a put, for its immediate: each takes a
 * credit. Credits come back before messages, or alone; for those KEPT requests are posted beyond
 * the credits: each brings half of all, so no more can be unread.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include "../common/meet.h"

enum { PEERS = 16, SLOTS = 32, CREDITS = 32, KEPT = 2, RECVS = CREDITS + KEPT };
enum { BUFFER = 8192, BUFFERS = RECVS + SLOTS, HEAD = 8, INLINE = 128, ROUNDS = 64, PORT = 1 };
enum { TIMEOUT = 17 /* 4.096 us * 2^17, times (1 + RETRIES): 3.8 s */, RETRIES = 6 };

typedef struct tells { /* what a peer is to know of this end of the queue pair */
    uint32_t qpn, mtu, lid;
    uint8_t gid[16];
} tells_t;

typedef struct put_key {
    uint64_t address, bytes, rkey;
} put_key_t;

typedef struct slot { /* a request under way; mr: of a put, made for it alone */
    uint64_t cookie;
    struct ibv_mr *mr;
    int put;
} slot_t;

struct halay_ep { /* a peer; a way is a reference to it */
    hly_meet_peer_t base;
    struct ibv_qp *qp; /* NULL: this place is free */
    uint32_t posted, owed, credits, free_slots;
    slot_t slot[SLOTS];
};

struct halay_transport {
    hly_meet_t meet;
    struct ibv_context *device;
    struct ibv_port_attr port;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr; /* of room: for each peer RECVS buffers, then one for each slot */
    uint8_t *room;
    union ibv_gid gid;
    int gid_index, armed;
    unsigned polls;
    uint64_t held; /* 1 + buffer of the message that a poll gave away: until the next */
    halay_ep_t peers[PEERS];
};

extern HALAY_API const halay_transport_ops_t halay_transport_v2_verbs;

static int said(const halay_transport_t *t, int rc, const char *what, const char *why)
{
    hly_meet_log(&t->meet, 0, "%s: %s", what, why);
    return rc;
}

static int fail(halay_transport_t *t, halay_ep_t *peer, const char *what, const char *why)
{
    hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER, "%s: %s", what, why);
    return HALAY_EPEER;
}

/* ------------------------------------------------------------------ queue pairs */

static hly_meet_peer_t *peer_make(halay_transport_t *t)
{
    struct ibv_qp_init_attr init = {.send_cq = t->cq, .recv_cq = t->cq, .qp_type = IBV_QPT_RC};
    halay_ep_t *peer = t->peers;
    while (peer < t->peers + PEERS && peer->qp)
        peer++;
    init.sq_sig_all = 1;
    init.cap = (struct ibv_qp_cap){SLOTS, RECVS, 1, 1, INLINE};
    struct ibv_qp *qp = peer < t->peers + PEERS ? ibv_create_qp(t->pd, &init) : NULL;
    if (!qp)
        said(t, 0, "no queue pair (it serves 16 peers, no more)", strerror(errno));
    else
        *peer = (halay_ep_t){.qp = qp, .free_slots = UINT32_MAX, .credits = CREDITS};
    return qp ? &peer->base : NULL;
}

/* n: number of the buffer; it is the wr_id, too. */
static void recv_post(halay_transport_t *t, uint64_t n)
{
    halay_ep_t *peer = &t->peers[n / BUFFERS];
    struct ibv_sge sge = {(uintptr_t)t->room + n * BUFFER, BUFFER, t->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1};
    int rc = ibv_post_recv(peer->qp, &wr, &bad);
    peer->posted += rc == 0;
    if (rc)
        fail(t, peer, "ibv_post_recv", strerror(rc));
}

static size_t peer_tell(halay_transport_t *t, hly_meet_peer_t *peer, uint8_t *tells)
{
    tells_t w = {((halay_ep_t *)peer)->qp->qp_num, t->port.active_mtu, t->port.lid, {0}};
    memcpy(w.gid, &t->gid, sizeof(w.gid));
    memcpy(tells, &w, sizeof(w));
    return sizeof(w);
}

static void peer_meet(halay_transport_t *t, hly_meet_peer_t *base, const uint8_t *tells, size_t n)
{
    static const int masks[] = {
        [IBV_QPS_INIT] = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        [IBV_QPS_RTR] = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        [IBV_QPS_RTS] = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC};
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .timeout = TIMEOUT};
    halay_ep_t *peer = (halay_ep_t *)base;
    tells_t w = {0};
    memcpy(&w, tells, n < sizeof(w) ? n : sizeof(w));
    attr.retry_cnt = RETRIES; /* rnr_retry is 0: there is always a receive request */
    attr.port_num = attr.ah_attr.port_num = PORT;
    attr.path_mtu = w.mtu < t->port.active_mtu ? w.mtu : t->port.active_mtu;
    attr.dest_qp_num = attr.rq_psn = w.qpn;
    attr.sq_psn = peer->qp->qp_num;
    attr.ah_attr.dlid = (uint16_t)w.lid;
    attr.ah_attr.is_global = t->port.link_layer == IBV_LINK_LAYER_ETHERNET;
    attr.ah_attr.grh.sgid_index = (uint8_t)t->gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    memcpy(&attr.ah_attr.grh.dgid, w.gid, sizeof(w.gid));
    int rc = 0;
    for (int state = IBV_QPS_INIT; rc == 0 && state <= IBV_QPS_RTS; state++) {
        attr.qp_state = (enum ibv_qp_state)state;
        rc = ibv_modify_qp(peer->qp, &attr, masks[state]);
    }
    if (rc)
        fail(t, peer, "no route between the GIDs? ibv_modify_qp", strerror(rc));
    for (uint64_t i = 0; rc == 0 && i < RECVS; i++)
        recv_post(t, (uint64_t)(peer - t->peers) * BUFFERS + i);
}

/* The completion queue is empty, so what came before a failure has been told. */
static int attend(halay_transport_t *t, halay_event_t events[], int max)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR}; /* what is posted ends with an error */
    hly_meet_peer_t *failed;
    int n = 0;
    for (halay_ep_t *peer = t->peers; peer < t->peers + PEERS; peer++) {
        if (peer->qp && hly_meet_peer_over(&peer->base) && !peer->posted && !~peer->free_slots) {
            hly_meet_peer_forget(&t->meet, &peer->base);
            ibv_destroy_qp(peer->qp);
            peer->qp = NULL;
        }
    }
    for (; n < max && (failed = hly_meet_peer_failed(&t->meet, &events[n])); n++)
        ibv_modify_qp(((halay_ep_t *)failed)->qp, &attr, IBV_QP_STATE);
    t->meet.attention = t->meet.failing > 0;
    hly_meet_attend(&t->meet, hly_meet_now_ns());
    return n ? n : hly_meet_error_take(&t->meet);
}

/* ------------------------------------------------------------------ messages and puts */

/* HALAY_OK: there is a slot and a credit. */
static int may_post(const halay_ep_t *peer)
{
    if (peer->base.state != PEER_WELL)
        return HALAY_EPEER;
    return peer->base.heard && peer->credits && peer->free_slots ? HALAY_OK : HALAY_EAGAIN;
}

static int post(halay_transport_t *t, halay_ep_t *peer, struct ibv_send_wr *wr, slot_t what)
{
    struct ibv_send_wr *bad;
    int slot = __builtin_ctz(peer->free_slots);
    wr->wr_id = (uint64_t)(peer - t->peers) * BUFFERS + RECVS + (uint64_t)slot;
    wr->num_sge = wr->sg_list->length > 0;
    wr->send_flags = wr->sg_list->length <= INLINE ? IBV_SEND_INLINE : 0;
    int rc = ibv_post_send(peer->qp, wr, &bad);
    if (rc)
        return fail(t, peer, "ibv_post_send", strerror(rc));
    peer->slot[slot] = what;
    peer->free_slots &= ~(1u << slot);
    return HALAY_OK;
}

/* Brings back all credits that are owed. message 0: and nothing else. */
static int message_post(halay_transport_t *t, halay_ep_t *peer, uint32_t message,
                        const void *header, size_t header_bytes, const void *payload, size_t bytes)
{
    size_t slot = (size_t)__builtin_ctz(peer->free_slots);
    uint8_t *at = t->room + ((size_t)(peer - t->peers) * BUFFERS + RECVS + slot) * BUFFER;
    uint32_t head[2] = {message, peer->owed};
    struct ibv_sge sge = {(uintptr_t)at, (uint32_t)(HEAD + header_bytes + bytes), t->mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge};
    memcpy(at, head, HEAD);
    if (header_bytes)
        memcpy(at + HEAD, header, header_bytes);
    if (bytes)
        memcpy(at + HEAD + header_bytes, payload, bytes);
    peer->credits -= message;
    peer->owed = 0;
    return post(t, peer, &wr, (slot_t){0});
}

static void credits_return(halay_transport_t *t, halay_ep_t *peer, uint32_t more)
{
    peer->owed += more;
    if (peer->owed >= CREDITS / 2 && peer->free_slots && peer->base.state == PEER_WELL)
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

/* A payload that is not inline is registered here. Only the last of its pieces has the immediate;
 * the queue pair keeps their order. */
static int verbs_put(halay_transport_t *t, halay_ep_t *peer, const void *payload, size_t bytes,
                     const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                     uint64_t cookie)
{
    const size_t most = t->port.max_msg_sz, pieces = bytes ? (bytes - 1) / most + 1 : 1;
    struct ibv_sge sge = {.addr = (uintptr_t)payload};
    struct ibv_send_wr wr = {.sg_list = &sge, .imm_data = htonl(immediate)};
    slot_t what = {.cookie = cookie};
    put_key_t k = {0};
    memcpy(&k, key, key_bytes == sizeof(k) ? sizeof(k) : 0);
    if (key_bytes != sizeof(k) || offset > k.bytes || bytes > k.bytes - offset || pieces > SLOTS)
        return said(t, HALAY_EINVAL, "a put was refused", "key, or too large, or ends beyond");
    int rc = may_post(peer);
    if (rc == 0 && (size_t)__builtin_popcount(peer->free_slots) < pieces)
        rc = HALAY_EAGAIN;
    if (rc == 0 && bytes > INLINE &&
        !(what.mr = ibv_reg_mr(t->pd, (void *)(uintptr_t)payload, bytes, 0)))
        rc = said(t, HALAY_ENOMEM, "the source of a put (ulimit -l?)", strerror(errno));
    if (rc)
        return rc;
    peer->credits--;
    sge.lkey = what.mr ? what.mr->lkey : 0;
    wr.wr.rdma.remote_addr = k.address + offset;
    wr.wr.rdma.rkey = (uint32_t)k.rkey;
    for (size_t i = 0; i < pieces && rc == 0; i++) {
        what.put = i == pieces - 1;
        sge.length = (uint32_t)(what.put ? bytes - i * most : most);
        wr.opcode = what.put ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        rc = post(t, peer, &wr, what.put ? what : (slot_t){0});
        sge.addr += sge.length;
        wr.wr.rdma.remote_addr += sge.length;
    }
    if (rc && what.mr)
        ibv_dereg_mr(what.mr);
    return rc ? rc : HALAY_INPROGRESS;
}

/* ------------------------------------------------------------------ poll, arm */

/* 1: there is an event. */
static int on_received(halay_transport_t *t, halay_ep_t *peer, const struct ibv_wc *wc,
                       halay_event_t *event)
{
    const uint8_t *at = t->room + wc->wr_id * BUFFER;
    uint32_t head[2] = {1, 0}; /* an immediate has no room for credits */
    peer->posted--;
    if (wc->status)
        return 0;
    *event = (halay_event_t){.kind = HALAY_EVENT_IMMEDIATE, .peer = peer->base.id};
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        event->immediate = ntohl(wc->imm_data);
    } else {
        memcpy(head, at, HEAD);
        event->kind = HALAY_EVENT_MESSAGE;
        event->data = at + HEAD;
        event->bytes = wc->byte_len - HEAD;
        t->held = head[0] ? wc->wr_id + 1 : 0;
    }
    peer->credits += head[1];
    if (!t->held) {
        recv_post(t, wc->wr_id);
        credits_return(t, peer, head[0]);
    }
    return (int)head[0];
}

static int on_complete(halay_transport_t *t, const struct ibv_wc *wc, halay_event_t *event)
{
    halay_ep_t *peer = &t->peers[wc->wr_id / BUFFERS];
    int slot = (int)(wc->wr_id % BUFFERS) - RECVS;
    if (wc->status)
        fail(t, peer, "the queue pair failed", ibv_wc_status_str(wc->status));
    if (slot < 0)
        return on_received(t, peer, wc, event);
    peer->free_slots |= 1u << slot;
    if (peer->slot[slot].mr)
        ibv_dereg_mr(peer->slot[slot].mr);
    credits_return(t, peer, 0);
    *event = (halay_event_t){.kind = HALAY_EVENT_PUT, .peer = peer->base.id};
    event->status = wc->status ? HALAY_EPEER : HALAY_OK;
    event->cookie = peer->slot[slot].cookie;
    return peer->slot[slot].put;
}

static int verbs_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    struct ibv_wc wc;
    int n = 0, got = 1;
    if (t->held) {
        recv_post(t, t->held - 1);
        credits_return(t, &t->peers[(t->held - 1) / BUFFERS], 1);
        t->held = 0;
    }
    for (int i = 0; i < ROUNDS && n < max && !t->held && got > 0; i++) {
        if ((got = ibv_poll_cq(t->cq, 1, &wc)) > 0)
            n += on_complete(t, &wc, &events[n]);
    }
    if (got < 0)
        return said(t, HALAY_ETRANSPORT, "ibv_poll_cq", "the device failed");
    if (n == 0 && got == 0 && (t->meet.attention || ++t->polls % 16 == 0))
        return attend(t, events, max);
    return n;
}

/* The queue is armed first, and looked at once more, by the poll that EAGAIN asks for. */
static int verbs_arm(halay_transport_t *t, int *fd)
{
    struct ibv_cq *cq;
    void *arg;
    if (t->meet.attention)
        return HALAY_EAGAIN;
    if (t->armed && ibv_get_cq_event(t->channel, &cq, &arg) == 0) {
        ibv_ack_cq_events(cq, 1);
        t->armed = 0;
    }
    if (!t->armed) {
        t->armed = 1;
        return ibv_req_notify_cq(t->cq, 0) ? HALAY_ETRANSPORT : HALAY_EAGAIN;
    }
    t->meet.attention = 1; /* whatever wakes it, poll looks everywhere */
    *fd = t->meet.epoll_fd;
    return hly_meet_timer_set(&t->meet);
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
    return hly_meet_address(&t->meet, address, bytes);
}

static int verbs_connect(halay_transport_t *t, halay_peer_id_t id, const void *address,
                         size_t bytes, halay_ep_t **ep)
{
    *ep = (halay_ep_t *)hly_meet_connect(&t->meet, id, address, bytes);
    return *ep ? HALAY_OK : HALAY_ENOMEM;
}

static void verbs_disconnect(halay_transport_t *t, halay_ep_t *ep)
{
    t->meet.attention = 1;
    if (ep)
        ep->base.refs--;
}

static int verbs_register(halay_transport_t *t, void *address, size_t bytes, halay_mem_t **mem)
{
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    *mem = (halay_mem_t *)ibv_reg_mr(t->pd, address, bytes, access);
    return *mem ? HALAY_OK : said(t, HALAY_ENOMEM, "ibv_reg_mr (ulimit -l?)", strerror(errno));
}

static void verbs_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    if (mem && ibv_dereg_mr((struct ibv_mr *)mem))
        said(t, 0, "ibv_dereg_mr", strerror(errno));
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

static int verbs_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t n, uint64_t cookie)
{
    (void)t, (void)tag, (void)buffer, (void)n, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

/* ------------------------------------------------------------------ open, close */

/* The first device, its first port; RoCE v2 over IPv4, if it has a GID for that. */
static int device_open(halay_transport_t *t)
{
    static const uint8_t four[12] = {[10] = 0xff, [11] = 0xff};
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_gid_entry e;
    t->device = list && list[0] ? ibv_open_device(list[0]) : NULL;
    if (list)
        ibv_free_device_list(list);
    if (!t->device || ibv_query_port(t->device, PORT, &t->port) ||
        ibv_query_gid(t->device, PORT, 0, &t->gid) || t->port.state != IBV_PORT_ACTIVE)
        return -1;
    for (int i = 0; i < t->port.gid_tbl_len; i++) {
        if (!ibv_query_gid_ex(t->device, PORT, (uint32_t)i, &e, 0) &&
            e.gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(e.gid.raw, four, sizeof(four))) {
            t->gid = e.gid;
            t->gid_index = i;
        }
    }
    size_t bytes = (size_t)PEERS * BUFFERS * BUFFER;
    return (t->room = aligned_alloc(BUFFER, bytes)) && (t->pd = ibv_alloc_pd(t->device)) &&
                   (t->mr = ibv_reg_mr(t->pd, t->room, bytes, IBV_ACCESS_LOCAL_WRITE)) &&
                   (t->channel = ibv_create_comp_channel(t->device)) &&
                   (t->cq = ibv_create_cq(t->device, PEERS * BUFFERS, t, t->channel, 0))
               ? fcntl(t->channel->fd, F_SETFL, O_NONBLOCK)
               : -1;
}

static void verbs_close(halay_transport_t *t)
{
    uint64_t until = hly_meet_now_ns() + HLY_MEET_CLOSE_NS;
    halay_event_t event;
    if (!t)
        return;
    for (halay_ep_t *peer = t->peers; peer < t->peers + PEERS; peer++) {
        while (peer->qp && peer->base.state == PEER_WELL && ~peer->free_slots &&
               hly_meet_now_ns() < until)
            verbs_poll(t, &event, 1);
    }
    hly_meet_close(&t->meet);
    for (halay_ep_t *peer = t->peers; peer < t->peers + PEERS; peer++) {
        if (peer->qp)
            ibv_destroy_qp(peer->qp);
        for (int i = 0; i < SLOTS && peer->qp; i++) {
            if (~peer->free_slots & 1u << i && peer->slot[i].mr)
                ibv_dereg_mr(peer->slot[i].mr);
        }
    }
    if (t->cq)
        ibv_destroy_cq(t->cq);
    if (t->channel)
        ibv_destroy_comp_channel(t->channel);
    if (t->mr)
        ibv_dereg_mr(t->mr);
    if (t->pd)
        ibv_dealloc_pd(t->pd);
    if (t->device)
        ibv_close_device(t->device);
    free(t->room);
    free(t);
}

static int verbs_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    static const hly_meet_ops_t ops = {
        "verbs", UINT64_C(0x3262726556414c48), 1, peer_make, peer_tell, peer_meet};
    halay_address_t where = {.family = AF_INET};
    if (!params || params->size < sizeof(*params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    int bad = device_open(t);
    memcpy(where.ip, t->gid.raw + 12, 4); /* of RoCE over IPv4 */
    hly_meet_init(&t->meet, &ops, t, params, &where);
    if (bad)
        said(t, 0, "it cannot open (see ibv_devinfo -v, ulimit -l)", strerror(errno));
    if (bad || hly_meet_open(&t->meet, t->channel->fd)) {
        verbs_close(t);
        return HALAY_ETRANSPORT;
    }
    *out = t;
    return HALAY_OK;
}

const halay_transport_ops_t halay_transport_v2_verbs = {sizeof(halay_transport_ops_t),
                                                        "verbs",
                                                        verbs_open,
                                                        verbs_close,
                                                        verbs_query,
                                                        verbs_address,
                                                        verbs_connect,
                                                        verbs_disconnect,
                                                        verbs_register,
                                                        verbs_deregister,
                                                        verbs_key,
                                                        verbs_send,
                                                        verbs_recv,
                                                        verbs_put,
                                                        verbs_poll,
                                                        verbs_arm};
