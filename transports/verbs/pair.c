/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.c - a queue pair: how it is made, its states, the GIDs of both ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "verbs.h"

/* The completion queue holds all that may complete at once. */
static int cq_grow(halay_transport_t *t)
{
    int need = t->cq_promised + HLY_VERBS_SLOTS, room = t->cq_room;
    need += (int)t->buffers;
    while (room < need)
        room *= 2;
    if (room > t->limits.max_cqe)
        room = t->limits.max_cqe;
    if (room < need)
        return EMFILE;
    if (room > t->cq_room) {
        int rc = ibv_resize_cq(t->cq, room);
        if (rc)
            return rc;
        t->cq_room = room;
    }
    t->cq_promised += HLY_VERBS_SLOTS;
    return 0;
}

int hly_verbs_pair_make(halay_transport_t *t, halay_ep_t *peer)
{
    struct ibv_qp_init_attr init = {.send_cq = t->cq,
                                    .recv_cq = t->cq,
                                    .srq = t->srq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = HLY_VERBS_SLOTS,
                                            .max_send_sge = 1,
                                            .max_inline_data = HLY_VERBS_INLINE}};
    int rc = cq_grow(t);
    if (rc)
        return rc;
    peer->qp = ibv_create_qp(t->pd, &init);
    if (!peer->qp) { /* a device may have less room for what is inline */
        init.cap.max_inline_data = 0;
        peer->qp = ibv_create_qp(t->pd, &init);
    }
    if (!peer->qp) {
        t->cq_promised -= HLY_VERBS_SLOTS;
        return errno ? errno : EINVAL;
    }
    peer->inline_bytes = init.cap.max_inline_data;
    if (peer->inline_bytes > HLY_VERBS_INLINE)
        peer->inline_bytes = HLY_VERBS_INLINE;
    return 0;
}

void hly_verbs_tell_write(const halay_transport_t *t, const halay_ep_t *peer,
                          hly_verbs_tell_t *tell)
{
    *tell = (hly_verbs_tell_t){.qpn = peer->qp->qp_num,
                               .mtu = (uint32_t)t->mtu,
                               .lid = t->port.lid,
                               .grant = peer->grant,
                               .rkey = t->page_mr->rkey,
                               .port = (uint32_t)t->port_number,
                               .ngids = (uint32_t)t->ngids,
                               .type = t->port.link_layer,
                               .page = (uintptr_t)t->page};
    snprintf(tell->device, sizeof(tell->device), "%.15s", ibv_get_device_name(t->device->device));
    memcpy(tell->gids, t->gids, sizeof(tell->gids));
}

/* To the next state; the attributes of the states before are not looked at again. */
static int move(halay_ep_t *peer, struct ibv_qp_attr *attr, enum ibv_qp_state state)
{
    static const int masks[] = {
        [IBV_QPS_INIT] = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        [IBV_QPS_RTR] = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        [IBV_QPS_RTS] = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC};
    attr->qp_state = state;
    return ibv_modify_qp(peer->qp, attr, masks[state]);
}

/* After how long a peer is given up: what the device says that it took. */
static void patience_say(const halay_transport_t *t, const halay_ep_t *peer)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    if (ibv_query_qp(peer->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_PATH_MTU, &init))
        return;
    hly_meet_log(
        &t->meet, 3,
        "queue pair %u to %s: MTU %d, time-out %d and %d retries: it gives up after %.1f s",
        peer->qp->qp_num, peer->base.name, hly_verbs_mtu_bytes((int)attr.path_mtu), attr.timeout,
        attr.retry_cnt, 4.096e-6 * (double)(1ull << attr.timeout) * (1 + attr.retry_cnt));
}

int hly_verbs_pair_ready(halay_transport_t *t, halay_ep_t *peer)
{
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
                               .timeout = HLY_VERBS_TIMEOUT,
                               .retry_cnt = HLY_VERBS_RETRIES,
                               .port_num = (uint8_t)t->port_number};
    const hly_verbs_gid_t *gid = &t->gids[peer->gid], *its = &peer->its.gids[peer->its_gid];
    int ethernet = t->port.link_layer == IBV_LINK_LAYER_ETHERNET;
    attr.path_mtu = (enum ibv_mtu)peer->mtu;
    attr.dest_qp_num = attr.rq_psn = peer->its.qpn;
    attr.rq_psn &= 0xffffff;
    attr.sq_psn = peer->qp->qp_num & 0xffffff;
    attr.ah_attr.port_num = attr.port_num;
    attr.ah_attr.dlid = (uint16_t)peer->its.lid;
    attr.ah_attr.sl = 0;
    attr.ah_attr.is_global = ethernet || memcmp(gid->raw, its->raw, 8) != 0;
    attr.ah_attr.grh.sgid_index = gid->index;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.traffic_class = t->settings.class > 0 ? (uint8_t)t->settings.class : 0;
    memcpy(&attr.ah_attr.grh.dgid, its->raw, sizeof(its->raw));
    int rc = move(peer, &attr, IBV_QPS_INIT);
    if (rc == 0)
        rc = move(peer, &attr, IBV_QPS_RTR);
    if (rc == 0)
        rc = move(peer, &attr, IBV_QPS_RTS);
    if (rc == 0)
        patience_say(t, peer);
    return rc;
}

void hly_verbs_pair_stop(halay_ep_t *peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (peer->qp)
        ibv_modify_qp(peer->qp, &attr, IBV_QP_STATE);
}

void hly_verbs_pair_text(const halay_transport_t *t, const halay_ep_t *peer, char *text,
                         size_t bytes)
{
    char mine[INET6_ADDRSTRLEN] = "?", its[INET6_ADDRSTRLEN] = "?";
    inet_ntop(AF_INET6, t->gids[peer->gid].raw, mine, sizeof(mine));
    inet_ntop(AF_INET6, peer->its.gids[peer->its_gid].raw, its, sizeof(its));
    snprintf(text, bytes, "%s GID %d %s to %.15s/%u GID %d %s, MTU %d of %d and %d", t->name,
             t->gids[peer->gid].index, mine, peer->its.device, (unsigned)peer->its.port,
             peer->its.gids[peer->its_gid].index, its, hly_verbs_mtu_bytes(peer->mtu),
             hly_verbs_mtu_bytes(t->mtu), hly_verbs_mtu_bytes((int)peer->its.mtu));
}
