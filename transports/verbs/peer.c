/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - peers come, are tried, fail and go.
 *
 * A peer may be sent to when it has answered a call (its queue pair is ready then) and a byte and a
 * packet of the whole path MTU have been written into a page of its (TRIED). When it fails, its
 * queue pair is stopped first, then FAILED is told; the queue pair goes when all that was posted
 * has come back, the peer itself when no way leads to it any more.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

static halay_ep_t **bucket_of(halay_transport_t *t, uint32_t qpn)
{
    return &t->by_qpn[(qpn ^ qpn >> 8) % HLY_VERBS_BUCKETS];
}

/* NULL: a queue pair that is gone. */
halay_ep_t *hly_verbs_peer_of(const halay_transport_t *t, uint32_t qpn)
{
    halay_ep_t *peer = *bucket_of((halay_transport_t *)(uintptr_t)t, qpn);
    while (peer && peer->qp->qp_num != qpn)
        peer = peer->same_bucket;
    return peer;
}

hly_meet_peer_t *hly_verbs_peer_make(halay_transport_t *t)
{
    const uint32_t grant = hly_verbs_grant(t->npeers);
    halay_ep_t *peer = calloc(1, sizeof(*peer));
    if (!peer)
        return NULL;
    if (hly_verbs_recvs_promise(t, grant + HLY_VERBS_KEPT)) {
        hly_meet_log(&t->meet, 0,
                     "no room for one more peer: there are %u, and %u receive buffers of %u: "
                     "%s; check the limit on locked memory (ulimit -l)",
                     t->npeers, t->buffers, t->queue, strerror(errno));
        goto free_peer;
    }
    int rc = hly_verbs_pair_make(t, peer);
    if (rc) {
        hly_meet_log(&t->meet, 0,
                     "%s gives no queue pair for one more peer, there are %u: %s; check the limit "
                     "on locked memory (ulimit -l)",
                     t->name, t->npeers, strerror(rc));
        goto take_back;
    }
    halay_ep_t **bucket = bucket_of(t, peer->qp->qp_num);
    peer->grant = grant;
    peer->same_bucket = *bucket;
    *bucket = peer;
    t->npeers++;
    return &peer->base;
take_back:
    t->promised -= grant + HLY_VERBS_KEPT;
free_peer:
    free(peer);
    return NULL;
}

size_t hly_verbs_peer_tell(halay_transport_t *t, hly_meet_peer_t *base, uint8_t *tells)
{
    hly_verbs_tell_t tell;
    _Static_assert(sizeof(tell) <= HLY_MEET_TELLS, "it fits");
    hly_verbs_tell_write(t, (halay_ep_t *)base, &tell);
    memcpy(tells, &tell, sizeof(tell));
    return sizeof(tell);
}

/* What it tells is judged: it may come from another version, or another network. */
void hly_verbs_peer_meet(halay_transport_t *t, hly_meet_peer_t *base, const uint8_t *tells,
                         size_t bytes)
{
    halay_ep_t *peer = (halay_ep_t *)base;
    int lower = hly_meet_lower_id(t->meet.self, base->id);
    memcpy(&peer->its, tells, bytes < sizeof(peer->its) ? bytes : sizeof(peer->its));
    peer->its.device[sizeof(peer->its.device) - 1] = 0;
    if (bytes != sizeof(peer->its) || peer->its.ngids > HLY_VERBS_GIDS || peer->its.mtu < 1 ||
        peer->its.mtu > 5 || peer->its.grant < 1) {
        hly_meet_peer_fail(&t->meet, base, HALAY_ETRANSPORT,
                           "%s tells of its queue pair what is not understood", base->name);
        return;
    }
    if (peer->its.type != t->port.link_layer ||
        hly_verbs_gids_pair(t->gids, t->ngids, peer->its.gids, (int)peer->its.ngids, lower,
                            &peer->gid, &peer->its_gid)) {
        hly_meet_peer_fail(&t->meet, base, HALAY_ETRANSPORT,
                           "no GID of %s leads to one of %.15s/%u at %s: one kind (RoCE v2, "
                           "InfiniBand) and one family (IPv4, IPv6) at both ends? show_gids; "
                           "HALAY_VERBS=device=NAME:PORT,gid=INDEX names one",
                           t->name, peer->its.device, (unsigned)peer->its.port, base->name);
        return;
    }
    peer->mtu = (int)peer->its.mtu < t->mtu ? (int)peer->its.mtu : t->mtu;
    peer->credits = peer->its.grant;
    int rc = hly_verbs_pair_ready(t, peer);
    if (rc) {
        char text[HLY_VERBS_TEXT];
        hly_verbs_pair_text(t, peer, text, sizeof(text));
        hly_meet_peer_fail(&t->meet, base, HALAY_ETRANSPORT, "no queue pair to %s: %s: %.150s",
                           base->name, strerror(rc), text);
    }
}

/* ------------------------------------------------------------------ trying */

void hly_verbs_peer_try(halay_transport_t *t, halay_ep_t *peer)
{
    struct ibv_sge sge[2] = {
        {(uintptr_t)t->page, 1, t->page_mr->lkey},
        {(uintptr_t)t->page, (uint32_t)hly_verbs_mtu_bytes(peer->mtu), t->page_mr->lkey}};
    struct ibv_send_wr wr[2] = {{.sg_list = &sge[0]}, {.sg_list = &sge[1]}};
    static const hly_verbs_work_t nothing[2];
    for (int i = 0; i < 2; i++) {
        wr[i].num_sge = 1;
        wr[i].opcode = IBV_WR_RDMA_WRITE;
        wr[i].send_flags = IBV_SEND_SIGNALED;
        wr[i].wr.rdma.remote_addr = peer->its.page;
        wr[i].wr.rdma.rkey = peer->its.rkey;
    }
    assert(peer->tried == TRIED_NOT);
    peer->tried = TRYING_SMALL;
    peer->base.look_ns = hly_meet_now_ns() + t->meet.deadline_ns;
    peer->trial = peer->posted; /* credits may have been given back before */
    hly_verbs_post(t, peer, wr, 2, nothing);
}

void hly_verbs_peer_tried(halay_transport_t *t, halay_ep_t *peer)
{
    const int32_t done = (int32_t)(peer->done - peer->trial);
    if (peer->tried == TRIED_NOT || done <= 0)
        return;
    peer->tried = done == 1 ? TRYING_LARGE : TRIED;
    if (peer->tried < TRIED)
        return;
    peer->base.look_ns = 0;
    t->roused = 1; /* who could not send yet tries again before it sleeps */
    t->n.connections++;
}

/* What to do about a connection that worked. */
static const char *look_where(const halay_transport_t *t)
{
    struct ibv_port_attr now;
    if (ibv_query_port(t->device, (uint8_t)t->port_number, &now) || now.state != IBV_PORT_ACTIVE)
        return "; this end's port is down: ip link, rdma link";
    return "; its process, port, network? (halay-doctor)";
}

void hly_verbs_peer_broken(halay_transport_t *t, halay_ep_t *peer, const char *why)
{
    char text[HLY_VERBS_TEXT];
    const char *what = peer->tried == TRIED          ? "RDMA stopped to"
                       : peer->tried == TRYING_LARGE ? "only small RDMA packets reach"
                                                     : "no RDMA packet reaches";
    const char *remedy = peer->tried == TRIED          ? look_where(t)
                         : peer->tried == TRYING_LARGE ? "; HALAY_VERBS=mtu=1024?"
                                                       : "; HALAY_VERBS=gid=INDEX?";
    if (peer->base.state != PEER_WELL)
        return;
    hly_verbs_pair_text(t, peer, text, sizeof(text));
    hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER, "%s %s (%s): %.*s%s", what,
                       peer->base.name, why, peer->tried == TRIED ? 110 : 150, text, remedy);
}

void hly_verbs_peer_name_device(const halay_transport_t *t, halay_ep_t *peer)
{
    char text[HLY_VERBS_TEXT], *end = peer->base.text + strlen(peer->base.text);
    if (!peer->base.met || strstr(peer->base.text, t->name))
        return;
    hly_verbs_pair_text(t, peer, text, sizeof(text));
    snprintf(end, sizeof(peer->base.text) - (size_t)(end - peer->base.text), ": %.110s%s", text,
             look_where(t));
}

/* ------------------------------------------------------------------ going */

/* The queue pair may have taken one receive request with it. */
static void pair_let_go(halay_transport_t *t, halay_ep_t *peer)
{
    halay_ep_t **at = bucket_of(t, peer->qp->qp_num);
    while (*at != peer)
        at = &(*at)->same_bucket;
    *at = peer->same_bucket;
    ibv_destroy_qp(peer->qp);
    peer->qp = NULL;
    t->cq_promised -= HLY_VERBS_SLOTS;
    t->promised -= peer->grant + HLY_VERBS_KEPT;
    t->posted -= t->posted > 0;
    t->npeers--;
    hly_verbs_recvs_forget(t, peer);
}

int hly_verbs_peers_tidy(halay_transport_t *t)
{
    int again = 0;
    for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = hly_verbs_next(peer)) {
        if (peer->base.state != PEER_FAILED || !peer->qp)
            continue;
        if (peer->posted == peer->done)
            hly_verbs_puts_drop(t, peer);
        if (peer->posted == peer->done && peer->put_first == peer->put_end)
            pair_let_go(t, peer);
        again |= peer->qp != NULL;
    }
    return again;
}

void hly_verbs_peer_free(halay_transport_t *t, halay_ep_t *peer)
{
    hly_meet_peer_forget(&t->meet, &peer->base);
    if (peer->qp)
        pair_let_go(t, peer);
    hly_verbs_puts_drop(t, peer); /* their sources */
    free(peer);
}
