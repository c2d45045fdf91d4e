/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - peers come, are tried, fail and go.
 *
 * A peer is made with a queue pair on each rail, for it hears of them before it tells its own.
 * When both know both, those that are in no lane go. It may be sent to when it has answered a call
 * (its queue pairs are ready then) and on each lane a byte and a packet of the whole path MTU have
 * been written into a page of its (TRIED). When it fails, its queue pairs are stopped first, then
 * FAILED is told; they go when all that was posted has come back, the peer itself when no way leads
 * to it any more.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

static hly_verbs_lane_t **bucket_of(halay_transport_t *t, uint32_t qpn)
{
    return &t->by_qpn[(qpn ^ qpn >> 8) % HLY_VERBS_BUCKETS];
}

/* NULL: a queue pair that is gone. Two devices may use the same number. */
hly_verbs_lane_t *hly_verbs_lane_of(const halay_transport_t *t, int device, uint32_t qpn)
{
    hly_verbs_lane_t *lane = *bucket_of((halay_transport_t *)(uintptr_t)t, qpn);
    while (lane && (lane->qpn != qpn || t->rails[lane->rail].device != device))
        lane = lane->same_bucket;
    return lane;
}

/* Its queue pair is the caller's. */
static struct ibv_qp *lane_free(halay_transport_t *t, hly_verbs_lane_t *lane)
{
    hly_verbs_device_t *device = hly_verbs_device_of(t, lane);
    struct ibv_qp *qp = lane->qp;
    hly_verbs_lane_t **at = bucket_of(t, lane->qpn);
    while (*at != lane)
        at = &(*at)->same_bucket;
    *at = lane->same_bucket;
    lane->qp = NULL;
    device->cq_promised -= HLY_VERBS_SLOTS;
    device->promised -= lane->peer->grant + HLY_VERBS_KEPT;
    return qp;
}

/* 0: it has a queue pair and receive requests. */
static int lane_make(halay_transport_t *t, halay_ep_t *peer, int rail)
{
    hly_verbs_lane_t *lane = &peer->at[rail];
    hly_verbs_device_t *device = &t->devices[t->rails[rail].device];
    const uint32_t requests = peer->grant + HLY_VERBS_KEPT;
    lane->peer = peer;
    lane->rail = rail;
    if (hly_verbs_recvs_promise(t, t->rails[rail].device, requests)) {
        hly_meet_log(&t->meet, 0,
                     "no room on %s for one more peer: there are %u, and %u receive buffers of %u: "
                     "%s; check the limit on locked memory (ulimit -l)",
                     t->rails[rail].name, t->npeers, device->buffers, device->queue,
                     strerror(errno));
        return -1;
    }
    int rc = hly_verbs_pair_make(t, lane);
    if (rc) {
        hly_meet_log(&t->meet, 0,
                     "%s gives no queue pair for one more peer, there are %u: %s; check the limit "
                     "on locked memory (ulimit -l)",
                     t->rails[rail].name, t->npeers, strerror(rc));
        device->promised -= requests;
        return -1;
    }
    lane->qpn = lane->qp->qp_num;
    hly_verbs_lane_t **bucket = bucket_of(t, lane->qpn);
    lane->same_bucket = *bucket;
    *bucket = lane;
    return 0;
}

hly_meet_peer_t *hly_verbs_peer_make(halay_transport_t *t)
{
    halay_ep_t *peer = calloc(1, sizeof(*peer) + (size_t)t->nrails * sizeof(peer->at[0]));
    int i = 0;
    if (!peer)
        return NULL;
    peer->grant = hly_verbs_grant(t->npeers);
    while (i < t->nrails && lane_make(t, peer, i) == 0)
        i++;
    if (i == t->nrails) {
        t->npeers++;
        return &peer->base;
    }
    while (i-- > 0)
        ibv_destroy_qp(lane_free(t, &peer->at[i]));
    free(peer);
    return NULL;
}

/* ------------------------------------------------------------------ meeting */

size_t hly_verbs_peer_tell(halay_transport_t *t, hly_meet_peer_t *base, uint8_t *tells)
{
    hly_verbs_tell_t tell;
    _Static_assert(sizeof(tell) <= HLY_MEET_TELLS, "it fits");
    hly_verbs_tell_write(t, (halay_ep_t *)base, &tell);
    memcpy(tells, &tell, sizeof(tell));
    return sizeof(tell);
}

static int lower_of(const halay_transport_t *t, const halay_ep_t *peer)
{
    return hly_meet_lower_id(t->meet.self, peer->base.id);
}

/* What this end tells of itself; tells are compared as they were told. */
static int map_make(halay_transport_t *t, halay_ep_t *peer)
{
    hly_verbs_tell_t mine;
    hly_verbs_tell_write(t, peer, &mine);
    peer->nlanes = hly_verbs_map(mine.ports, (int)mine.nports, peer->its.ports,
                                 (int)peer->its.nports, lower_of(t, peer), peer->plan);
    return peer->nlanes ? 0 : -1;
}

uint64_t hly_verbs_peer_mark(const halay_transport_t *t, const hly_meet_peer_t *base)
{
    const halay_ep_t *peer = (const halay_ep_t *)base;
    hly_verbs_tell_t mine;
    hly_verbs_tell_write(t, peer, &mine);
    return hly_verbs_map_hash(mine.ports, peer->its.ports, lower_of(t, peer), peer->plan,
                              peer->nlanes);
}

void hly_verbs_peer_agree(halay_transport_t *t, hly_meet_peer_t *base, uint64_t its)
{
    const halay_ep_t *peer = (const halay_ep_t *)base;
    const uint64_t mark = hly_verbs_peer_mark(t, base);
    if (mark != its)
        hly_meet_peer_fail(&t->meet, base, HALAY_ETRANSPORT,
                           "%s (%s and %d more) and %s (%.15s/%u and %d more) do not see the same "
                           "rails between them: %016llx and %016llx; the same Halay at both? "
                           "HALAY_VERBS=rails=1?",
                           t->meet.name, t->rails[0].name, t->nrails - 1, base->name,
                           peer->its.ports[0].name, peer->its.ports[0].port,
                           (int)peer->its.nports - 1, (unsigned long long)mark,
                           (unsigned long long)its);
}

/* It may come from another version, or another network. */
static int tell_read(hly_verbs_tell_t *its, const uint8_t *tells, size_t bytes)
{
    if (bytes != sizeof(*its))
        return -1;
    memcpy(its, tells, bytes);
    if (its->nports < 1 || its->nports > HLY_VERBS_RAILS || its->grant < 1 ||
        its->grant > HLY_VERBS_CREDITS)
        return -1;
    for (uint32_t i = 0; i < its->nports; i++) {
        hly_verbs_port_t *port = &its->ports[i];
        if (port->ngids > HLY_VERBS_GIDS || port->mtu < 1 || port->mtu > 5 ||
            port->number >= HLY_VERBS_PORTS || port->device >= HLY_VERBS_RAILS)
            return -1;
        port->name[sizeof(port->name) - 1] = 0;
    }
    return 0;
}

/* Those without a partner go. */
static void lanes_take(halay_transport_t *t, halay_ep_t *peer)
{
    for (int k = 0; k < peer->nlanes; k++) {
        peer->lane[k] = &peer->at[peer->plan[k].mine];
        peer->lane[k]->place = k;
    }
    for (int i = 0; i < t->nrails; i++) {
        if (peer->lane[peer->at[i].place] != &peer->at[i])
            ibv_destroy_qp(lane_free(t, &peer->at[i]));
    }
}

void hly_verbs_peer_meet(halay_transport_t *t, hly_meet_peer_t *base, const uint8_t *tells,
                         size_t bytes)
{
    halay_ep_t *peer = (halay_ep_t *)base;
    const hly_verbs_port_t *its = &peer->its.ports[0];
    if (tell_read(&peer->its, tells, bytes)) {
        hly_meet_peer_fail(&t->meet, base, HALAY_ETRANSPORT,
                           "%s tells of its queue pairs what is not understood", base->name);
        return;
    }
    if (map_make(t, peer)) {
        hly_meet_peer_fail(&t->meet, base, HALAY_ETRANSPORT,
                           "no GID of %s%s leads to one of %.15s/%u%s at %s: one kind (RoCE v2, "
                           "InfiniBand) and one family (IPv4, IPv6) at both ends? show_gids; "
                           "HALAY_VERBS=device=NAME:PORT,gid=INDEX names one",
                           t->rails[0].name, t->nrails > 1 ? " and others" : "", its->name,
                           its->port, peer->its.nports > 1 ? " and others" : "", base->name);
        return;
    }
    lanes_take(t, peer);
    peer->credits = peer->its.grant;
    for (int k = 0; k < peer->nlanes; k++) {
        int rc = hly_verbs_pair_ready(t, peer->lane[k]);
        char text[HLY_VERBS_TEXT];
        if (rc == 0)
            continue;
        hly_verbs_pair_text(t, peer->lane[k], text, sizeof(text));
        hly_meet_peer_fail(&t->meet, base, HALAY_ETRANSPORT, "no queue pair to %s: %s: %.150s",
                           base->name, strerror(rc), text);
        return;
    }
}

/* ------------------------------------------------------------------ trying */

static void lane_try(halay_transport_t *t, hly_verbs_lane_t *lane)
{
    const uint32_t lkey = t->page_mr[t->rails[lane->rail].device]->lkey;
    const int mtu = lane->peer->plan[lane->place].mtu;
    struct ibv_sge sge[2] = {{(uintptr_t)t->page, 1, lkey},
                             {(uintptr_t)t->page, (uint32_t)hly_verbs_mtu_bytes(mtu), lkey}};
    struct ibv_send_wr wr[2] = {{.sg_list = &sge[0]}, {.sg_list = &sge[1]}};
    static const hly_verbs_work_t nothing[2];
    for (int i = 0; i < 2; i++) {
        wr[i].num_sge = 1;
        wr[i].opcode = IBV_WR_RDMA_WRITE;
        wr[i].send_flags = IBV_SEND_SIGNALED;
        wr[i].wr.rdma.remote_addr = hly_verbs_its_port(lane)->page;
        wr[i].wr.rdma.rkey = hly_verbs_its_port(lane)->rkey;
    }
    lane->tried = TRYING_SMALL;
    lane->trial = lane->posted; /* credits may have been given back before */
    hly_verbs_post(t, lane, wr, 2, nothing);
}

void hly_verbs_peer_try(halay_transport_t *t, halay_ep_t *peer)
{
    assert(peer->tried == TRIED_NOT && peer->nlanes > 0);
    peer->tried = TRYING_SMALL;
    peer->base.look_ns = hly_meet_now_ns() + t->meet.deadline_ns;
    for (int k = 0; k < peer->nlanes; k++)
        lane_try(t, peer->lane[k]);
}

void hly_verbs_lane_tried(halay_transport_t *t, hly_verbs_lane_t *lane)
{
    halay_ep_t *peer = lane->peer;
    const int32_t done = (int32_t)(lane->done - lane->trial);
    if (lane->tried == TRIED_NOT || done <= 0)
        return;
    lane->tried = done == 1 ? TRYING_LARGE : TRIED;
    for (int k = 0; k < peer->nlanes; k++) {
        if (peer->lane[k]->tried < TRIED)
            return;
    }
    peer->tried = TRIED;
    peer->base.look_ns = 0;
    t->roused = 1; /* who could not send yet tries again before it sleeps */
    t->n.connections++;
    t->n.lanes += (uint64_t)peer->nlanes;
}

/* What to do about a connection that worked. */
static const char *look_where(halay_transport_t *t, const hly_verbs_lane_t *lane)
{
    struct ibv_context *context = hly_verbs_device_of(t, lane)->context;
    const uint8_t port = (uint8_t)t->rails[lane->rail].port.port;
    struct ibv_port_attr now;
    if (ibv_query_port(context, port, &now) || now.state != IBV_PORT_ACTIVE)
        return "; this end's port is down: ip link, rdma link";
    if (lane->failed_here) /* a port that goes down still says that it is up, for a moment */
        return "; this end's port goes down? ip link, rdma link";
    return "; its process, port, network? (halay-doctor)";
}

static const char *look_how_large(const hly_verbs_lane_t *lane)
{
    return lane->peer->plan[lane->place].mtu > IBV_MTU_1024
               ? "; HALAY_VERBS=mtu=1024?"
               : "; a filter, or a network with a smaller MTU?";
}

void hly_verbs_lane_broken(halay_transport_t *t, const hly_verbs_lane_t *lane, const char *why)
{
    halay_ep_t *peer = lane->peer;
    char text[HLY_VERBS_TEXT];
    const char *what = lane->tried == TRIED          ? "RDMA stopped to"
                       : lane->tried == TRYING_LARGE ? "only small RDMA packets reach"
                                                     : "no RDMA packet reaches";
    const char *remedy = lane->tried == TRIED          ? look_where(t, lane)
                         : lane->tried == TRYING_LARGE ? look_how_large(lane)
                         : peer->nlanes > 1            ? "; HALAY_VERBS=rails=1 or gid=INDEX?"
                                                       : "; HALAY_VERBS=gid=INDEX?";
    if (peer->base.state != PEER_WELL)
        return;
    hly_verbs_pair_text(t, lane, text, sizeof(text));
    hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER, "%s %s (%s): %.*s%s", what,
                       peer->base.name, why, lane->tried == TRIED ? 110 : 150, text, remedy);
}

void hly_verbs_peer_name_device(halay_transport_t *t, halay_ep_t *peer)
{
    const hly_verbs_lane_t *lane = peer->nlanes ? peer->lane[0] : NULL;
    char text[HLY_VERBS_TEXT], *end = peer->base.text + strlen(peer->base.text);
    if (!lane || strstr(peer->base.text, t->rails[lane->rail].name))
        return;
    hly_verbs_pair_text(t, lane, text, sizeof(text));
    snprintf(end, sizeof(peer->base.text) - (size_t)(end - peer->base.text), ": %.110s%s", text,
             look_where(t, lane));
}

/* ------------------------------------------------------------------ going */

int hly_verbs_peer_quiet(const halay_ep_t *peer)
{
    for (int k = 0; k < peer->nlanes; k++) {
        if (peer->lane[k]->posted != peer->lane[k]->done)
            return 0;
    }
    return 1;
}

/* Each queue pair may have taken one receive request with it. */
static void pairs_let_go(halay_transport_t *t, halay_ep_t *peer)
{
    for (int i = 0; i < t->nrails; i++) {
        hly_verbs_lane_t *lane = &peer->at[i];
        hly_verbs_device_t *device = hly_verbs_device_of(t, lane);
        if (!lane->qp)
            continue;
        hly_verbs_pair_end(t, lane_free(t, lane));
        device->posted -= device->posted > 0;
    }
    t->npeers--;
    hly_verbs_recvs_forget(t, peer);
}

static int has_pairs(const halay_transport_t *t, const halay_ep_t *peer)
{
    int has = 0;
    for (int i = 0; i < t->nrails; i++)
        has |= peer->at[i].qp != NULL;
    return has;
}

int hly_verbs_peers_tidy(halay_transport_t *t)
{
    int again = 0;
    for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = hly_verbs_next(peer)) {
        if (peer->base.state != PEER_FAILED || !has_pairs(t, peer))
            continue;
        const int quiet = hly_verbs_peer_quiet(peer);
        if (quiet)
            hly_verbs_puts_drop(t, peer);
        if (quiet && peer->put_first == peer->put_end)
            pairs_let_go(t, peer);
        else
            again = 1;
    }
    return again;
}

int hly_verbs_peer_gone(const halay_transport_t *t, const halay_ep_t *peer)
{
    return hly_meet_peer_over(&peer->base) && !has_pairs(t, peer);
}

void hly_verbs_peer_free(halay_transport_t *t, halay_ep_t *peer)
{
    hly_meet_peer_forget(&t->meet, &peer->base);
    if (has_pairs(t, peer))
        pairs_let_go(t, peer);
    hly_verbs_puts_drop(t, peer); /* their sources */
    free(peer);
}
