/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.c - a spike: the contract on a real queue pair (docs/decisions/0011-verbs-spike.md).
 *
 * Who calls says hello on a TCP link, which stays open: its end is a death. One RC queue pair a
 * peer serves both directions. A send takes a receive request of the peer, and so does a put, for
 * its immediate: each takes a credit. Credits come back before messages, or alone; for those KEPT
 * requests are posted beyond the credits: each brings half of all, so no more can be unread.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "halay/transport.h"

enum { PEERS = 16, LINKS = 64, SLOTS = 32, CREDITS = 32, KEPT = 2, RECVS = CREDITS + KEPT };
enum { BUFFER = 8192, BUFFERS = RECVS + SLOTS, HEAD = 8, INLINE = 128, HELD = 16, ROUNDS = 64 };
enum { TIMEOUT = 17 /* 4.096 us * 2^17, times (1 + RETRIES): 3.8 s */, RETRIES = 6 };
enum { LINK_FREE, LINK_CALLING, LINK_GREETED, LINK_GUEST, LINK_OPEN };
enum { PEER_FREE, PEER_WELL, PEER_FAILING /* known, not told */, PEER_FAILED };
#define MAGIC UINT64_C(0x3162726556414c48)

typedef struct word { /* a hello, and its answer */
    uint64_t magic;
    uint32_t qpn, mtu, lid, zero;
    halay_peer_id_t from, to;
    uint8_t secret[16], gid[16];
    halay_address_t where;
} word_t;

typedef struct put_key {
    uint64_t address, bytes, rkey;
} put_key_t;

typedef struct link {
    int state, fd;
    size_t read;
    halay_ep_t *peer;
    word_t in;
} link_t;

struct halay_ep { /* a peer; a way is a reference to it */
    halay_peer_id_t id;
    int state, refs, called /* has a link; -1: had */, up /* the queue pair is */, met /* there */;
    uint64_t begun_ns;     /* 0: nobody here wants a link */
    halay_address_t where; /* family 0: not known */
    struct ibv_qp *qp;
    uint32_t posted, granted, owed, credits; /* receives; of them the peer's, ours; to spend */
    uint32_t free_slots;
    struct {
        uint64_t cookie;
        struct ibv_mr *mr; /* of a put, made for it alone */
        int put;
    } slot[SLOTS];
    char text[160];
};

struct halay_transport {
    struct ibv_context *device;
    struct ibv_port_attr port;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr
        *mr; /* of room: for each peer RECVS buffers to receive into, SLOTS to send from */
    uint8_t *room;
    union ibv_gid gid;
    int port_number, gid_index, epoll_fd, timer_fd, listen_fd, armed, attention, warned, nheld;
    unsigned polls;
    halay_address_t where;
    halay_ep_t peers[PEERS];
    link_t links[LINKS];
    uint64_t held[HELD]; /* messages that one poll gave away: until the next */
    halay_transport_params_t params;
};

extern HALAY_API const halay_transport_ops_t halay_transport_v2_verbs;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int say(const halay_transport_t *t, int level, int rc, const char *what, const char *why)
{
    char text[400];
    snprintf(text, sizeof(text), "verbs: %s: %s", what, why);
    if (t->params.log)
        t->params.log(t->params.log_arg, level, text);
    return rc;
}

/* ------------------------------------------------------------------ a peer and its queue pair */

static int peer_fail(halay_transport_t *t, halay_ep_t *peer, const char *what, const char *why)
{
    if (peer->state == PEER_WELL) {
        snprintf(peer->text, sizeof(peer->text), "%s: %s", what, why);
        peer->state = PEER_FAILING;
        t->attention = 1;
    }
    return HALAY_EPEER;
}

/* Finds it or makes it. */
static halay_ep_t *peer_hold(halay_transport_t *t, halay_peer_id_t id)
{
    struct ibv_qp_init_attr init = {.send_cq = t->cq, .recv_cq = t->cq};
    halay_ep_t *peer = NULL;
    for (halay_ep_t *at = t->peers; at < t->peers + PEERS; at++) {
        if (at->state != PEER_FREE && !memcmp(&at->id, &id, sizeof(id)))
            return at;
        peer = at->state == PEER_FREE ? at : peer;
    }
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = 1;
    init.cap = (struct ibv_qp_cap){SLOTS, RECVS, 1, 1, INLINE};
    struct ibv_qp *qp = peer ? ibv_create_qp(t->pd, &init) : NULL;
    if (!qp) {
        say(t, 0, 0, "no queue pair", peer ? strerror(errno) : "it serves 16 peers, no more");
        return NULL;
    }
    *peer = (halay_ep_t){.id = id, .state = PEER_WELL, .qp = qp, .free_slots = UINT32_MAX};
    peer->credits = peer->granted = CREDITS;
    return peer;
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
        peer_fail(t, peer, "ibv_post_recv", strerror(rc));
}

/* What it says of its end has come. Where both have called, it comes twice, the same. */
static void peer_connect(halay_transport_t *t, halay_ep_t *peer, const word_t *w)
{
    static const int masks[] = {
        [IBV_QPS_INIT] = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        [IBV_QPS_RTR] = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        [IBV_QPS_RTS] = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC};
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .timeout = TIMEOUT};
    struct ibv_qp_init_attr init;
    char text[160];
    int rc = 0, state;
    if (peer->up)
        return;
    attr.retry_cnt = RETRIES; /* rnr_retry is 0: there is always a receive request */
    attr.port_num = attr.ah_attr.port_num = (uint8_t)t->port_number;
    attr.path_mtu = w->mtu < t->port.active_mtu ? w->mtu : t->port.active_mtu;
    attr.dest_qp_num = attr.rq_psn = w->qpn;
    attr.sq_psn = peer->qp->qp_num;
    attr.ah_attr.dlid = (uint16_t)w->lid;
    attr.ah_attr.is_global = t->port.link_layer == IBV_LINK_LAYER_ETHERNET;
    attr.ah_attr.grh.sgid_index = (uint8_t)t->gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    memcpy(&attr.ah_attr.grh.dgid, w->gid, sizeof(w->gid));
    for (state = IBV_QPS_INIT; rc == 0 && state <= IBV_QPS_RTS; state++) {
        attr.qp_state = (enum ibv_qp_state)state;
        rc = ibv_modify_qp(peer->qp, &attr, masks[state]);
    }
    if (rc || (rc = ibv_query_qp(peer->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &init))) {
        peer_fail(t, peer, "no route between the GIDs? ibv_modify_qp", strerror(rc));
        return;
    }
    for (uint64_t i = 0; i < RECVS; i++)
        recv_post(t, (uint64_t)(peer - t->peers) * BUFFERS + i);
    peer->up = 1;
    snprintf(text, sizeof(text), "time-out %d, retries %d: it gives up after %.1f s", attr.timeout,
             attr.retry_cnt, 4.096e-6 * (double)(1u << attr.timeout) * (attr.retry_cnt + 1));
    say(t, 2, 0, "queue pair", text);
}

/* ------------------------------------------------------------------ links */

static int watch(halay_transport_t *t, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* Takes fd over. peer NULL: a guest. */
static void link_add(halay_transport_t *t, int fd, halay_ep_t *peer)
{
    link_t *link = t->links;
    while (link < t->links + LINKS && link->state != LINK_FREE)
        link++;
    if (link == t->links + LINKS || watch(t, fd)) {
        close(fd);
        return;
    }
    *link = (link_t){.state = peer ? LINK_CALLING : LINK_GUEST, .fd = fd, .peer = peer};
    if (peer)
        peer->called = 1;
}

/* The socket is fresh: a word always goes in. 0 or an errno; EAGAIN: it is not connected yet. */
static int link_say(halay_transport_t *t, link_t *link)
{
    word_t w = {.magic = MAGIC, .qpn = link->peer->qp->qp_num, .to = link->peer->id};
    w.mtu = t->port.active_mtu;
    w.lid = t->port.lid;
    w.from = t->params.self;
    w.where = t->where;
    memcpy(w.secret, t->params.secret, sizeof(w.secret));
    memcpy(w.gid, &t->gid, sizeof(w.gid));
    return send(link->fd, &w, sizeof(w), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

/* 0, or an errno: the link is of no use. */
static int on_word(halay_transport_t *t, link_t *link)
{
    const word_t *w = &link->in;
    int guest = link->state == LINK_GUEST;
    link->read = 0;
    if (w->magic != MAGIC || memcmp(w->secret, t->params.secret, sizeof(w->secret)) ||
        memcmp(&w->to, &t->params.self, sizeof(w->to)) || link->state == LINK_OPEN)
        return t->warned++ ? EPERM : say(t, 1, EPERM, "a stranger was dropped", "another job's?");
    if (guest && (!(link->peer = peer_hold(t, w->from)) || link->peer->state != PEER_WELL))
        return EPERM;
    link->state = LINK_OPEN;
    link->peer->where = w->where;
    peer_connect(t, link->peer, w);
    link->peer->met |= !guest && link->peer->up; /* who was called calls too before it sends */
    return guest ? link_say(t, link) : 0;
}

static void link_look(halay_transport_t *t, link_t *link)
{
    int error = link->state == LINK_CALLING ? link_say(t, link) : 0;
    if (link->state == LINK_CALLING && !error)
        link->state = LINK_GREETED;
    while (!error) {
        void *at = (uint8_t *)&link->in + link->read;
        ssize_t n = recv(link->fd, at, sizeof(link->in) - link->read, MSG_DONTWAIT);
        error = n > 0 ? 0 : n < 0 ? errno : ENODATA;
        link->read += n > 0 ? (size_t)n : 0;
        if (link->read == sizeof(link->in))
            error = on_word(t, link);
    }
    if (error == EAGAIN)
        return;
    if (link->state == LINK_OPEN)
        peer_fail(t, link->peer, "its connection ended",
                  error == ENODATA ? "the process has ended, or has left" : strerror(error));
    else if (link->peer)
        link->peer->called = -1;
    link->state = LINK_FREE;
    close(link->fd);
}

/* Both directions end; what is posted completes with an error. */
static void peer_cut(halay_transport_t *t, const halay_ep_t *peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    ibv_modify_qp(peer->qp, &attr, IBV_QP_STATE);
    for (link_t *link = t->links; link < t->links + LINKS; link++) {
        if (link->state != LINK_FREE && link->peer == peer) {
            link->state = LINK_FREE;
            close(link->fd);
        }
    }
}

/* At once, then at every tick of the timer, until the deadline. */
static void peer_call(halay_transport_t *t, halay_ep_t *peer, int tick)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = peer->where.port};
    memcpy(&to.sin_addr, peer->where.ip, sizeof(to.sin_addr));
    if (now_ns() - peer->begun_ns >= t->params.deadline_ns)
        peer_fail(t, peer, "no connection by the deadline", "is it of this job, and let through?");
    if (peer->where.family != AF_INET || peer->called > 0 || (peer->called && !tick))
        return;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    peer->called = -1;
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS)
        close(fd);
    else
        link_add(t, fd, peer);
}

/* The completion queue is empty, so what came before a failure has been told. */
static int peer_tend(halay_transport_t *t, halay_ep_t *peer, int tick, halay_event_t *event)
{
    if (peer->state == PEER_WELL && !peer->met && peer->begun_ns)
        peer_call(t, peer, tick);
    if (peer->state == PEER_FAILED && !peer->refs && !peer->posted &&
        peer->free_slots == UINT32_MAX) {
        ibv_destroy_qp(peer->qp);
        peer->state = PEER_FREE;
    }
    if (peer->state != PEER_FAILING)
        return 0;
    peer_cut(t, peer);
    peer->state = PEER_FAILED;
    *event = (halay_event_t){.kind = HALAY_EVENT_FAILED, .status = HALAY_EPEER, .text = peer->text};
    event->peer = peer->id;
    return 1;
}

/* The slow path. */
static int attend(halay_transport_t *t, halay_event_t events[], int max)
{
    uint64_t ticks;
    int tick = read(t->timer_fd, &ticks, sizeof(ticks)) > 0, n = 0, fd;
    for (int i = 0; i < PEERS && n < max; i++)
        n += peer_tend(t, &t->peers[i], tick, &events[n]);
    t->attention = n > 0; /* then again: there may be more */
    while ((fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
        link_add(t, fd, NULL);
    for (link_t *link = t->links; link < t->links + LINKS; link++) {
        if (link->state != LINK_FREE)
            link_look(t, link);
    }
    return n;
}

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
        return peer_fail(t, peer, "ibv_post_send", strerror(rc));
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
        return say(t, 0, HALAY_EINVAL, "a put was refused", "it is too large, or ends beyond");
    int rc = may_post(peer);
    if (rc == 0 && (size_t)__builtin_popcount(peer->free_slots) < pieces)
        rc = HALAY_EAGAIN;
    if (rc == 0 && bytes > INLINE &&
        !(mr = ibv_reg_mr(t->pd, (void *)(uintptr_t)payload, bytes, 0)))
        rc = say(t, 0, HALAY_ENOMEM, "the source of a put (ulimit -l?)", strerror(errno));
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
    recv_post(t, wc->wr_id);
    peer->owed += head[0];
    credits_return(t, peer);
    return immediate;
}

static int on_complete(halay_transport_t *t, const struct ibv_wc *wc, halay_event_t *event)
{
    halay_ep_t *peer = &t->peers[wc->wr_id / BUFFERS];
    int slot = (int)(wc->wr_id % BUFFERS) - RECVS;
    if (wc->status)
        peer_fail(t, peer, "the queue pair failed", ibv_wc_status_str(wc->status));
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

static int verbs_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    struct ibv_wc wc;
    int n = 0, got = 1;
    while (t->nheld > 0) {
        uint64_t buffer = t->held[--t->nheld];
        recv_post(t, buffer);
        t->peers[buffer / BUFFERS].owed++;
        credits_return(t, &t->peers[buffer / BUFFERS]);
    }
    for (int i = 0; i < ROUNDS && n < max && t->nheld < HELD && got > 0; i++) {
        if ((got = ibv_poll_cq(t->cq, 1, &wc)) > 0)
            n += on_complete(t, &wc, &events[n]);
    }
    if (got < 0)
        return say(t, 0, HALAY_ETRANSPORT, "ibv_poll_cq", "the device failed");
    if (n == 0 && got == 0 && (t->attention || ++t->polls % 16 == 0))
        return attend(t, events, max);
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

/* ------------------------------------------------------------------ open, close */

static int gid_worth(const struct ibv_gid_entry *e)
{
    static const uint8_t four[12] = {[10] = 0xff, [11] = 0xff};
    if (e->gid_type == IBV_GID_TYPE_ROCE_V1)
        return 1;
    return !memcmp(e->gid.raw, four, sizeof(four)) ? 4 : e->gid.raw[0] == 0xfe ? 2 : 3;
}

/* "DEVICE:PORT:GID", as much as is given; the GID: RoCE v2 and routable, if there is one. */
static int device_open(halay_transport_t *t)
{
    char name[64] = "";
    struct ibv_gid_entry e;
    int n = 0, most = 0, gid = -1;
    t->port_number = 1;
    if (t->params.options)
        sscanf(t->params.options, "%63[^:]:%d:%d", name, &t->port_number, &gid);
    struct ibv_device **list = ibv_get_device_list(&n);
    for (int i = 0; i < n && !t->device; i++) {
        if (!*name || !strcmp(name, ibv_get_device_name(list[i])))
            t->device = ibv_open_device(list[i]);
    }
    if (list)
        ibv_free_device_list(list);
    if (!t->device || ibv_query_port(t->device, (uint8_t)t->port_number, &t->port))
        return -1;
    for (int i = 0; i < t->port.gid_tbl_len; i++) {
        if ((gid >= 0 && i != gid) ||
            ibv_query_gid_ex(t->device, (uint32_t)t->port_number, (uint32_t)i, &e, 0) ||
            gid_worth(&e) <= most)
            continue;
        most = gid_worth(&e);
        t->gid = e.gid;
        t->gid_index = i;
    }
    return most > 0 && t->port.state == IBV_PORT_ACTIVE ? 0 : -1;
}

static int memory_open(halay_transport_t *t)
{
    size_t bytes = (size_t)PEERS * BUFFERS * BUFFER;
    return (t->room = aligned_alloc(BUFFER, bytes)) && (t->pd = ibv_alloc_pd(t->device)) &&
                   (t->mr = ibv_reg_mr(t->pd, t->room, bytes, IBV_ACCESS_LOCAL_WRITE)) &&
                   (t->channel = ibv_create_comp_channel(t->device)) &&
                   (t->cq = ibv_create_cq(t->device, PEERS * BUFFERS, t, t->channel, 0))
               ? 0
               : -1;
}

static int listener_open(halay_transport_t *t)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof(at);
    t->listen_fd = t->params.listen_fd;
    t->where = t->params.listen_address;
    if (t->where.family)
        return 0;
    memcpy(&at.sin_addr, t->gid.raw + 12, 4); /* of RoCE over IPv4 */
    t->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listen_fd < 0 || bind(t->listen_fd, (struct sockaddr *)&at, length) ||
        listen(t->listen_fd, LINKS) || getsockname(t->listen_fd, (struct sockaddr *)&at, &length))
        return -1;
    t->where = (halay_address_t){.family = AF_INET, .port = at.sin_port};
    memcpy(t->where.ip, &at.sin_addr, 4);
    return 0;
}

static int descriptors_open(halay_transport_t *t)
{
    struct itimerspec tick = {{0, 100000000}, {0, 100000000}};
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return listener_open(t) || timerfd_settime(t->timer_fd, 0, &tick, NULL) ||
           watch(t, t->timer_fd) || watch(t, t->listen_fd) || watch(t, t->channel->fd) ||
           fcntl(t->channel->fd, F_SETFL, O_NONBLOCK);
}

static void verbs_close(halay_transport_t *t)
{
    halay_event_t events[HELD];
    uint64_t until = now_ns() + 1000000000;
    if (!t)
        return;
    for (halay_ep_t *peer = t->peers; peer < t->peers + PEERS; peer++) {
        while (peer->state == PEER_WELL && peer->free_slots != UINT32_MAX && now_ns() < until)
            verbs_poll(t, events, HELD);
    }
    for (halay_ep_t *peer = t->peers; peer < t->peers + PEERS; peer++) {
        if (peer->state == PEER_FREE)
            continue;
        peer_cut(t, peer);
        ibv_destroy_qp(peer->qp);
        for (int i = 0; i < SLOTS; i++) {
            if (~peer->free_slots & 1u << i && peer->slot[i].mr)
                ibv_dereg_mr(peer->slot[i].mr);
        }
    }
    for (link_t *link = t->links; link < t->links + LINKS; link++) {
        if (link->state != LINK_FREE)
            close(link->fd);
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
    if (t->listen_fd > 0 && !t->params.listen_address.family)
        close(t->listen_fd);
    if (t->timer_fd > 0)
        close(t->timer_fd);
    if (t->epoll_fd > 0)
        close(t->epoll_fd);
    free(t->room);
    free(t);
}

static int verbs_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    if (!params || params->size < sizeof(*params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    t->params = *params;
    if (device_open(t) || memory_open(t) || descriptors_open(t)) {
        say(t, 0, 0, "it cannot open (DEVICE:PORT:GID; see ibv_devinfo -v, ulimit -l)",
            strerror(errno));
        verbs_close(t);
        return HALAY_ETRANSPORT;
    }
    *out = t;
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
    halay_ep_t *peer = peer_hold(t, id);
    if (!peer)
        return HALAY_ENOMEM;
    if (bytes)
        memcpy(&peer->where, address, bytes);
    peer->begun_ns = peer->begun_ns ? peer->begun_ns : now_ns();
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
    return *mem ? HALAY_OK : say(t, 0, HALAY_ENOMEM, "ibv_reg_mr (ulimit -l?)", strerror(errno));
}

static void verbs_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    int rc = mem ? ibv_dereg_mr((struct ibv_mr *)mem) : 0;
    if (rc)
        say(t, 0, 0, "ibv_dereg_mr", strerror(rc));
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
    .open = verbs_open,
    .close = verbs_close,
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
    .poll = verbs_poll,
    .arm = verbs_arm,
};
