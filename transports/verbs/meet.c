/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.c - peers and their queue pairs, and the TCP links on which they meet.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "verbs.h"

/* ------------------------------------------------------------------ a peer and its queue pair */

int hly_verbs_peer_fail(halay_transport_t *t, halay_ep_t *peer, const char *what, const char *why)
{
    if (peer->state == PEER_WELL) {
        snprintf(peer->text, sizeof(peer->text), "%s: %s", what, why);
        peer->state = PEER_FAILING;
        t->attention = 1;
    }
    return HALAY_EPEER;
}

/* Finds it or makes it. */
halay_ep_t *hly_verbs_peer_hold(halay_transport_t *t, halay_peer_id_t id)
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
        hly_verbs_say(t, 0, 0, "no queue pair",
                      peer ? strerror(errno) : "it serves 16 peers, no more");
        return NULL;
    }
    *peer = (halay_ep_t){.id = id, .state = PEER_WELL, .qp = qp, .free_slots = UINT32_MAX};
    peer->credits = peer->granted = CREDITS;
    return peer;
}

/* n: number of the buffer; it is the wr_id, too. */
void hly_verbs_recv_post(halay_transport_t *t, uint64_t n)
{
    halay_ep_t *peer = &t->peers[n / BUFFERS];
    struct ibv_sge sge = {(uintptr_t)t->room + n * BUFFER, BUFFER, t->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1};
    int rc = ibv_post_recv(peer->qp, &wr, &bad);
    peer->posted += rc == 0;
    if (rc)
        hly_verbs_peer_fail(t, peer, "ibv_post_recv", strerror(rc));
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
        hly_verbs_peer_fail(t, peer, "no route between the GIDs? ibv_modify_qp", strerror(rc));
        return;
    }
    for (uint64_t i = 0; i < RECVS; i++)
        hly_verbs_recv_post(t, (uint64_t)(peer - t->peers) * BUFFERS + i);
    peer->up = 1;
    snprintf(text, sizeof(text), "time-out %d, retries %d: it gives up after %.1f s", attr.timeout,
             attr.retry_cnt, 4.096e-6 * (double)(1u << attr.timeout) * (attr.retry_cnt + 1));
    hly_verbs_say(t, 2, 0, "queue pair", text);
}

/* ------------------------------------------------------------------ links */

int hly_verbs_watch(halay_transport_t *t, int fd)
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
    if (link == t->links + LINKS || hly_verbs_watch(t, fd)) {
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
        return t->warned++ ? EPERM
                           : hly_verbs_say(t, 1, EPERM, "a stranger was dropped", "another job's?");
    if (guest &&
        (!(link->peer = hly_verbs_peer_hold(t, w->from)) || link->peer->state != PEER_WELL))
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
        hly_verbs_peer_fail(t, link->peer, "its connection ended",
                            error == ENODATA ? "the process has ended, or has left"
                                             : strerror(error));
    else if (link->peer)
        link->peer->called = -1;
    link->state = LINK_FREE;
    close(link->fd);
}

/* Both directions end; what is posted completes with an error. */
void hly_verbs_peer_cut(halay_transport_t *t, const halay_ep_t *peer)
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
    if (hly_verbs_now_ns() - peer->begun_ns >= t->params.deadline_ns)
        hly_verbs_peer_fail(t, peer, "no connection by the deadline",
                            "is it of this job, and let through?");
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
    hly_verbs_peer_cut(t, peer);
    peer->state = PEER_FAILED;
    *event = (halay_event_t){.kind = HALAY_EVENT_FAILED, .status = HALAY_EPEER, .text = peer->text};
    event->peer = peer->id;
    return 1;
}

/* The slow path. */
int hly_verbs_attend(halay_transport_t *t, halay_event_t events[], int max)
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
