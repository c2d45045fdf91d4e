/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.c - a spike: the contract on a real queue pair (docs/decisions/0011-verbs-spike.md).
 * One RC queue pair a peer serves both directions. A send takes a receive request of the peer, and
 * so does a put, for its immediate: each takes a credit. Credits come back with messages, or alone;
 * for those KEPT requests are posted beyond the credits: each brings half of all, so no more can be
 * unread. Sends complete in the order of their slots.
 */
#include "../common/meet.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS = 16, SLOTS = 32, CREDITS = 32, KEPT = 2, RECVS = CREDITS + KEPT, PORT = 1 };
enum { BUFFER = 8192, BUFFERS = RECVS + SLOTS, INLINE = 128, IMM_MESSAGE = 1 << 16 };
enum { TIMEOUT = 17 /* 4.096 us * 2^17, times (1 + RETRIES): 3.8 s */, RETRIES = 6 };
enum { QPN, MTU, LID, GID, WORDS = GID + 4 }; /* what is told of an end of a queue pair */

struct halay_ep { /* a peer; a way is a reference to it */
    hly_meet_peer_t base;
    struct ibv_qp *qp;
    uint32_t first, posted, done, owed, credits; /* buffer; sends; sends; to give back; to spend */
    halay_event_t event[SLOTS];                  /* when it is done; kind 0: none */
    struct ibv_mr *mr[SLOTS];                    /* of a put, made for it alone */
};

struct halay_transport {
    hly_meet_t meet;
    struct ibv_context *device;
    struct ibv_port_attr port;
    struct ibv_gid_entry gid;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr; /* of room */
    uint32_t npeers, armed, polls;
    halay_ep_t peers[PEERS];
    uint64_t message[BUFFER / 8];          /* what the last poll gave away */
    uint8_t room[PEERS * BUFFERS][BUFFER]; /* a peer's: RECVS, then one for each slot */
};

static hly_meet_peer_t *peer_make(halay_transport_t *t)
{
    struct ibv_qp_init_attr init = {.send_cq = t->cq, .recv_cq = t->cq, .qp_type = IBV_QPT_RC};
    halay_ep_t *peer = &t->peers[t->npeers];
    init.cap = (struct ibv_qp_cap){SLOTS, RECVS, 1, 1, INLINE};
    init.sq_sig_all = 1;
    if (t->npeers == PEERS || !(peer->qp = ibv_create_qp(t->pd, &init))) {
        hly_meet_log(&t->meet, 0, "no queue pair (it serves 16 peers): %s", strerror(errno));
        return NULL;
    }
    peer->first = BUFFERS * t->npeers++;
    peer->credits = CREDITS;
    return &peer->base;
}

/* The number of the buffer is the wr_id, too. */
static void recv_post(halay_transport_t *t, halay_ep_t *peer, uint64_t buffer)
{
    struct ibv_sge sge = {(uintptr_t)t->room[buffer], BUFFER, t->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = buffer, .sg_list = &sge, .num_sge = 1};
    int rc = ibv_post_recv(peer->qp, &wr, &bad);
    if (rc)
        hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER, "ibv_post_recv: %s", strerror(rc));
}

static size_t peer_tell(halay_transport_t *t, hly_meet_peer_t *peer, uint8_t *tells)
{
    uint32_t w[WORDS] = {((halay_ep_t *)peer)->qp->qp_num, t->port.active_mtu, t->port.lid};
    memcpy(w + GID, &t->gid.gid, 16);
    memcpy(tells, w, sizeof(w));
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
    uint32_t w[WORDS] = {0};
    int rc = 0;
    memcpy(w, tells, n < sizeof(w) ? n : sizeof(w));
    attr.retry_cnt = RETRIES; /* rnr_retry is 0: there is always a receive request */
    attr.port_num = attr.ah_attr.port_num = PORT;
    attr.path_mtu = w[MTU] < t->port.active_mtu ? w[MTU] : t->port.active_mtu;
    attr.dest_qp_num = attr.rq_psn = w[QPN];
    attr.sq_psn = peer->qp->qp_num;
    attr.ah_attr.dlid = (uint16_t)w[LID];
    attr.ah_attr.is_global = t->port.link_layer == IBV_LINK_LAYER_ETHERNET;
    attr.ah_attr.grh.sgid_index = (uint8_t)t->gid.gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    memcpy(&attr.ah_attr.grh.dgid, w + GID, 16);
    for (int state = IBV_QPS_INIT; rc == 0 && state <= IBV_QPS_RTS; state++) {
        attr.qp_state = (enum ibv_qp_state)state;
        rc = ibv_modify_qp(peer->qp, &attr, masks[state]);
    }
    if (rc)
        hly_meet_peer_fail(&t->meet, base, HALAY_EPEER, "ibv_modify_qp: %s", strerror(rc));
    for (uint64_t i = 0; rc == 0 && i < RECVS; i++)
        recv_post(t, peer, peer->first + i);
}

static int may_post(const halay_ep_t *peer, size_t slots)
{
    if (peer->base.state != PEER_WELL)
        return HALAY_EPEER;
    int may = peer->base.heard && peer->credits && peer->posted - peer->done + slots <= SLOTS;
    return may ? HALAY_OK : HALAY_EAGAIN;
}

static int post(halay_transport_t *t, halay_ep_t *peer, struct ibv_send_wr wr, struct ibv_sge sge)
{
    struct ibv_send_wr *bad;
    wr.wr_id = peer->first + RECVS + peer->posted % SLOTS;
    wr.sg_list = &sge;
    wr.num_sge = sge.length > 0;
    wr.send_flags = sge.length <= INLINE ? IBV_SEND_INLINE : 0;
    int rc = ibv_post_send(peer->qp, &wr, &bad);
    if (rc)
        return hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER, "post: %s", strerror(rc));
    peer->event[peer->posted % SLOTS].kind = 0;
    peer->mr[peer->posted++ % SLOTS] = NULL;
    return HALAY_OK;
}

/* Its immediate brings back all credits that are owed, and says if there is a message. */
static int message_post(halay_transport_t *t, halay_ep_t *peer, uint32_t message,
                        const void *header, size_t header_bytes, const void *payload, size_t bytes)
{
    uint8_t *at = t->room[peer->first + RECVS + peer->posted % SLOTS];
    struct ibv_sge sge = {(uintptr_t)at, (uint32_t)(header_bytes + bytes), t->mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM};
    wr.imm_data = htonl(message | peer->owed);
    if (header_bytes)
        memcpy(at, header, header_bytes);
    if (bytes)
        memcpy(at + header_bytes, payload, bytes);
    peer->credits -= message != 0;
    peer->owed = 0;
    return post(t, peer, wr, sge);
}

static int verbs_send(halay_transport_t *t, halay_ep_t *peer, uint64_t tag, const void *header,
                      size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    (void)cookie; /* all is copied */
    if (tag || header_bytes > BUFFER || bytes > BUFFER - header_bytes)
        return tag ? HALAY_EUNSUPPORTED : HALAY_EINVAL;
    int rc = may_post(peer, 1);
    return rc ? rc : message_post(t, peer, IMM_MESSAGE, header, header_bytes, payload, bytes);
}

/* A payload that is not inline is registered here. Only the last piece has the immediate. */
static int verbs_put(halay_transport_t *t, halay_ep_t *peer, const void *payload, size_t bytes,
                     const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                     uint64_t cookie)
{
    const size_t most = t->port.max_msg_sz, pieces = bytes ? (bytes - 1) / most + 1 : 1;
    struct ibv_sge sge = {.addr = (uintptr_t)payload, .length = (uint32_t)most};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .imm_data = htonl(immediate)};
    struct ibv_mr *mr = NULL;
    uint64_t k[3]; /* address, bytes, rkey */
    memcpy(k, key, key_bytes == sizeof(k) ? sizeof(k) : 0);
    if (key_bytes != sizeof(k) || offset > k[1] || bytes > k[1] - offset || pieces > SLOTS)
        return hly_meet_error(&t->meet, HALAY_EINVAL, "a put is too large, or ends beyond");
    int rc = may_post(peer, pieces);
    if (rc == 0 && bytes > INLINE && !(mr = ibv_reg_mr(t->pd, (void *)sge.addr, bytes, 0)))
        rc = hly_meet_error(&t->meet, HALAY_ENOMEM, "ulimit -l? a put: %s", strerror(errno));
    sge.lkey = mr ? mr->lkey : 0;
    wr.wr.rdma.remote_addr = k[0] + offset;
    wr.wr.rdma.rkey = (uint32_t)k[2];
    for (size_t i = 1; i <= pieces && rc == 0; i++) {
        if (i == pieces) {
            wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            sge.length = (uint32_t)(bytes - (pieces - 1) * most);
        }
        rc = post(t, peer, wr, sge);
        sge.addr += most;
        wr.wr.rdma.remote_addr += most;
    }
    if (rc && mr)
        ibv_dereg_mr(mr);
    if (rc)
        return rc;
    peer->event[(peer->posted - 1) % SLOTS] =
        (halay_event_t){.kind = HALAY_EVENT_PUT, .cookie = cookie};
    peer->mr[(peer->posted - 1) % SLOTS] = mr;
    peer->credits--;
    return HALAY_INPROGRESS;
}

/* 1: there is an event. */
static int on_complete(halay_transport_t *t, const struct ibv_wc *wc, halay_event_t *event)
{
    halay_ep_t *peer = &t->peers[wc->wr_id / BUFFERS];
    const uint32_t i = (uint32_t)(wc->wr_id % BUFFERS), immediate = ntohl(wc->imm_data);
    *event = (halay_event_t){.kind = HALAY_EVENT_IMMEDIATE, .immediate = immediate};
    if (i >= RECVS) {
        *event = peer->event[i - RECVS];
        if (peer->mr[i - RECVS])
            ibv_dereg_mr(peer->mr[i - RECVS]);
        peer->done++;
    } else if (wc->status) {
        event->kind = 0;
    } else {
        if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
            event->kind = immediate & IMM_MESSAGE ? HALAY_EVENT_MESSAGE : 0;
            event->data = memcpy(t->message, t->room[wc->wr_id], event->bytes = wc->byte_len);
            peer->credits += immediate % IMM_MESSAGE;
        }
        recv_post(t, peer, wc->wr_id);
        peer->owed += event->kind != 0;
    }
    event->peer = peer->base.id;
    if (wc->status)
        event->status = hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER, "queue pair: %s",
                                           ibv_wc_status_str(wc->status));
    if (peer->owed >= CREDITS / 2 && peer->base.state == PEER_WELL &&
        peer->posted - peer->done < SLOTS)
        message_post(t, peer, 0, NULL, 0, NULL, 0);
    return event->kind != 0;
}

/* Gives one event at a time; failures when the queue is empty: what came before has been told. */
static int verbs_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR}; /* what is posted ends with an error */
    struct ibv_wc wc;
    int got, n = 0;
    while (n == 0 && max > 0 && (got = ibv_poll_cq(t->cq, 1, &wc)) != 0) {
        if (got < 0)
            return hly_meet_error(&t->meet, HALAY_ETRANSPORT, "ibv_poll_cq: the device failed");
        n = on_complete(t, &wc, events);
    }
    if (n || (!t->meet.attention && ++t->polls % 16))
        return n;
    hly_meet_peer_t *failed = hly_meet_peer_failed(&t->meet, events);
    if (failed)
        ibv_modify_qp(((halay_ep_t *)failed)->qp, &attr, IBV_QP_STATE);
    t->meet.attention = t->meet.failing > 0;
    hly_meet_attend(&t->meet, hly_meet_now_ns());
    return failed ? 1 : hly_meet_error_take(&t->meet);
}

/* The queue is armed first, and looked at once more, by the poll that EAGAIN asks for. */
static int verbs_arm(halay_transport_t *t, int *fd)
{
    struct ibv_cq *cq;
    void *arg;
    if (t->meet.attention)
        return HALAY_EAGAIN;
    if (ibv_get_cq_event(t->channel, &cq, &arg) == 0) {
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

static int verbs_query(const halay_transport_t *t, halay_transport_attr_t *attr)
{
    if (!attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    attr->capabilities = HALAY_CAN_PUT | HALAY_CAN_SLEEP;
    attr->message_bytes = attr->eager_bytes = attr->piece_bytes = sizeof(t->message);
    return HALAY_OK;
}

static int verbs_register(halay_transport_t *t, void *address, size_t bytes, halay_mem_t **mem)
{
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    if ((*mem = (halay_mem_t *)ibv_reg_mr(t->pd, address, bytes, access)))
        return HALAY_OK;
    return hly_meet_error(&t->meet, HALAY_ENOMEM, "ulimit -l? ibv_reg_mr: %s", strerror(errno));
}

static void verbs_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    if (mem && ibv_dereg_mr((struct ibv_mr *)mem))
        hly_meet_log(&t->meet, 0, "ibv_dereg_mr: %s", strerror(errno));
}

static int verbs_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes)
{
    const struct ibv_mr *mr = (const struct ibv_mr *)mem;
    uint64_t k[3] = {(uintptr_t)mr->addr, mr->length, mr->rkey};
    (void)t;
    if (*bytes < sizeof(k))
        return HALAY_EINVAL;
    memcpy(key, k, *bytes = sizeof(k));
    return HALAY_OK;
}

static int verbs_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t n, uint64_t cookie)
{
    (void)t, (void)tag, (void)buffer, (void)n, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

static void verbs_close(halay_transport_t *t)
{
    uint64_t until = hly_meet_now_ns() + HLY_MEET_CLOSE_NS; /* a put that is not done then leaks */
    halay_event_t event;
    if (!t)
        return;
    for (halay_ep_t *peer = t->peers; peer < t->peers + t->npeers; peer++) {
        while (peer->posted != peer->done && hly_meet_now_ns() < until)
            verbs_poll(t, &event, 1);
    }
    hly_meet_close(&t->meet);
    while (t->npeers > 0)
        ibv_destroy_qp(t->peers[--t->npeers].qp);
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
    free(t);
}

/* The first device, its first port, its last GID but for RoCE v1: over IPv4, if there is one. */
static int device_open(halay_transport_t *t)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_gid_entry e;
    t->device = list && list[0] ? ibv_open_device(list[0]) : NULL;
    if (list)
        ibv_free_device_list(list);
    if (!t->device || ibv_query_port(t->device, PORT, &t->port))
        return -1;
    for (int i = 0; i < t->port.gid_tbl_len; i++) {
        if (!ibv_query_gid_ex(t->device, PORT, (uint32_t)i, &e, 0) &&
            e.gid_type != IBV_GID_TYPE_ROCE_V1)
            t->gid = e;
    }
    t->pd = ibv_alloc_pd(t->device);
    t->mr = t->pd ? ibv_reg_mr(t->pd, t->room, sizeof(t->room), IBV_ACCESS_LOCAL_WRITE) : NULL;
    t->channel = ibv_create_comp_channel(t->device);
    t->cq = ibv_create_cq(t->device, PEERS * BUFFERS, t, t->channel, 0);
    return t->mr && t->channel && t->cq ? fcntl(t->channel->fd, F_SETFL, O_NONBLOCK) : -1;
}

static int verbs_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    static const hly_meet_ops_t ops = {"verbs",   0x3262726556414c48, 1,
                                       peer_make, peer_tell,          peer_meet};
    halay_address_t where = {.family = AF_INET};
    if (!params || params->size < sizeof(*params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    int rc = device_open(t);
    memcpy(where.ip, t->gid.gid.raw + 12, 4); /* of RoCE over IPv4 */
    hly_meet_init(&t->meet, &ops, t, params, &where);
    if (rc)
        hly_meet_log(&t->meet, 0, "it cannot open: ibv_devinfo? ulimit -l? %s", strerror(errno));
    if (rc || hly_meet_open(&t->meet, t->channel->fd)) {
        verbs_close(t);
        return HALAY_ETRANSPORT;
    }
    *out = t;
    return HALAY_OK;
}

/* clang-format off */
HALAY_API const halay_transport_ops_t halay_transport_v2_verbs = {
    sizeof(halay_transport_ops_t), "verbs", verbs_open, verbs_close, verbs_query, hly_meet_address,
    hly_meet_connect, hly_meet_disconnect, verbs_register, verbs_deregister, verbs_key, verbs_send,
    verbs_recv, verbs_put, verbs_poll, verbs_arm};
