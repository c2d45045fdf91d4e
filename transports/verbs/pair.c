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
static int cq_grow(hly_verbs_device_t *device)
{
    int need = device->cq_promised + HLY_VERBS_SLOTS, room = device->cq_room;
    need += (int)device->buffers;
    while (room < need)
        room *= 2;
    if (room > device->limits.max_cqe)
        room = device->limits.max_cqe;
    if (room < need)
        return EMFILE;
    if (room > device->cq_room) {
        int rc = ibv_resize_cq(device->cq, room);
        if (rc)
            return rc;
        device->cq_room = room;
    }
    device->cq_promised += HLY_VERBS_SLOTS;
    return 0;
}

int hly_verbs_pair_make(halay_transport_t *t, hly_verbs_lane_t *lane)
{
    hly_verbs_device_t *device = hly_verbs_device_of(t, lane);
    struct ibv_qp_init_attr init = {.send_cq = device->cq,
                                    .recv_cq = device->cq,
                                    .srq = device->srq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = HLY_VERBS_SLOTS,
                                            .max_send_sge = 1,
                                            .max_inline_data = HLY_VERBS_INLINE}};
    int rc = cq_grow(device);
    if (rc)
        return rc;
    lane->qp = ibv_create_qp(device->pd, &init);
    if (!lane->qp) { /* a device may have less room for what is inline */
        init.cap.max_inline_data = 0;
        lane->qp = ibv_create_qp(device->pd, &init);
    }
    if (!lane->qp) {
        device->cq_promised -= HLY_VERBS_SLOTS;
        return errno ? errno : EINVAL;
    }
    lane->inline_bytes = init.cap.max_inline_data;
    if (lane->inline_bytes > HLY_VERBS_INLINE)
        lane->inline_bytes = HLY_VERBS_INLINE;
    return 0;
}

void hly_verbs_tell_write(const halay_transport_t *t, const halay_ep_t *peer,
                          hly_verbs_tell_t *tell)
{
    *tell = (hly_verbs_tell_t){.nports = (uint32_t)t->nrails, .grant = peer->grant};
    for (int i = 0; i < t->nrails; i++) {
        hly_verbs_port_t *port = &tell->ports[i];
        *port = t->rails[i].port;
        port->qpn = peer->at[i].qpn;
        port->rkey = t->page_mr[t->rails[i].device]->rkey;
        port->page = (uintptr_t)t->page;
    }
}

/* To the next state; the attributes of the states before are not looked at again. */
static int move(hly_verbs_lane_t *lane, struct ibv_qp_attr *attr, enum ibv_qp_state state)
{
    static const int masks[] = {
        [IBV_QPS_INIT] = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        [IBV_QPS_RTR] = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        [IBV_QPS_RTS] = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC};
    attr->qp_state = state;
    return ibv_modify_qp(lane->qp, attr, masks[state]);
}

/* After how long a peer is given up: what the device says that it took. */
static void timeout_say(const halay_transport_t *t, const hly_verbs_lane_t *lane)
{
    char text[HLY_VERBS_TEXT];
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    if (ibv_query_qp(lane->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &init))
        return;
    hly_verbs_pair_text(t, lane, text, sizeof(text));
    hly_meet_log(&t->meet, 3,
                 "queue pair %u, %d of %d to %s: %s; time-out %d and %d retries: it gives up after "
                 "%.1f s",
                 lane->qpn, lane->place + 1, lane->peer->nlanes, lane->peer->base.name, text,
                 attr.timeout, attr.retry_cnt,
                 4.096e-6 * (double)(1ull << attr.timeout) * (1 + attr.retry_cnt));
}

int hly_verbs_pair_ready(halay_transport_t *t, hly_verbs_lane_t *lane)
{
    const hly_verbs_lane_plan_t *plan = &lane->peer->plan[lane->place];
    const hly_verbs_port_t *mine = &t->rails[lane->rail].port, *its = hly_verbs_its_port(lane);
    const hly_verbs_gid_t *from = &mine->gids[plan->gid], *to = &its->gids[plan->its_gid];
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
                               .timeout = HLY_VERBS_TIMEOUT,
                               .retry_cnt = HLY_VERBS_RETRIES,
                               .port_num = (uint8_t)mine->port};
    int ethernet = mine->type == IBV_LINK_LAYER_ETHERNET;
    attr.path_mtu = (enum ibv_mtu)plan->mtu;
    attr.dest_qp_num = attr.rq_psn = its->qpn;
    attr.rq_psn &= 0xffffff;
    attr.sq_psn = lane->qpn & 0xffffff;
    attr.ah_attr.port_num = attr.port_num;
    attr.ah_attr.dlid = (uint16_t)its->lid;
    attr.ah_attr.sl = 0;
    attr.ah_attr.is_global = ethernet || memcmp(from->raw, to->raw, 8) != 0;
    attr.ah_attr.grh.sgid_index = from->index;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.traffic_class = t->settings.class > 0 ? (uint8_t)t->settings.class : 0;
    memcpy(&attr.ah_attr.grh.dgid, to->raw, sizeof(to->raw));
    int rc = move(lane, &attr, IBV_QPS_INIT);
    if (rc == 0)
        rc = move(lane, &attr, IBV_QPS_RTR);
    if (rc == 0)
        rc = move(lane, &attr, IBV_QPS_RTS);
    if (rc == 0)
        timeout_say(t, lane);
    return rc;
}

void hly_verbs_pair_stop(hly_verbs_lane_t *lane)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (lane->qp)
        ibv_modify_qp(lane->qp, &attr, IBV_QP_STATE);
}

void hly_verbs_pair_text(const halay_transport_t *t, const hly_verbs_lane_t *lane, char *text,
                         size_t bytes)
{
    const hly_verbs_lane_plan_t *plan = &lane->peer->plan[lane->place];
    const hly_verbs_port_t *mine = &t->rails[lane->rail].port, *its = hly_verbs_its_port(lane);
    const hly_verbs_gid_t *from = &mine->gids[plan->gid], *to = &its->gids[plan->its_gid];
    char a[INET6_ADDRSTRLEN] = "?", b[INET6_ADDRSTRLEN] = "?";
    inet_ntop(AF_INET6, from->raw, a, sizeof(a));
    inet_ntop(AF_INET6, to->raw, b, sizeof(b));
    snprintf(text, bytes, "%s GID %d %s to %.15s/%u GID %d %s, MTU %d of %d and %d",
             t->rails[lane->rail].name, from->index, a, its->name, its->port, to->index, b,
             hly_verbs_mtu_bytes(plan->mtu), hly_verbs_mtu_bytes((int)mine->mtu),
             hly_verbs_mtu_bytes((int)its->mtu));
}
