/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recv.c - the shared receive queue, and whose credits its requests are (verbs.h, promised).
 */
#include <string.h>

#include "verbs.h"

/* The first buffers of the list, as far as they are one device's, with one doorbell. Returns how
 * many, or -1. */
static int post_some(halay_transport_t *t, hly_verbs_buffer_t *list)
{
    struct ibv_recv_wr wr[HLY_VERBS_BATCH], *bad;
    struct ibv_sge sge[HLY_VERBS_BATCH];
    const int at = list->slab->device;
    hly_verbs_device_t *device = &t->devices[at];
    int n = 0;
    for (hly_verbs_buffer_t *buffer = list;
         buffer && buffer->slab->device == at && n < HLY_VERBS_BATCH; buffer = buffer->next) {
        sge[n] =
            (struct ibv_sge){(uintptr_t)buffer->at, HLY_VERBS_MESSAGE, buffer->slab->mr[at]->lkey};
        wr[n] = (struct ibv_recv_wr){
            .wr_id = (uintptr_t)buffer, .sg_list = &sge[n], .num_sge = 1, .next = &wr[n + 1]};
        n++;
    }
    wr[n - 1].next = NULL;
    int rc = ibv_post_srq_recv(device->srq, wr, &bad);
    t->n.refilled++;
    if (rc == 0) {
        device->posted += (uint32_t)n;
        device->held -= (uint32_t)n;
        return n;
    }
    t->meet.error = hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                                   "%s takes no receive requests: ibv_post_srq_recv: %s",
                                   ibv_get_device_name(device->context->device), strerror(rc));
    return -1;
}

void hly_verbs_recvs_post(halay_transport_t *t, hly_verbs_buffer_t **list)
{
    while (*list) {
        int n = post_some(t, *list);
        if (n < 0)
            return; /* the whole end is lost */
        while (n-- > 0) {
            hly_verbs_buffer_t *buffer = hly_verbs_buffer_take(list);
            halay_ep_t *peer = buffer->owed_to;
            buffer->owed_to = NULL;
            if (!peer)
                continue;
            peer->owed++;
            if (peer->owed > peer->grant)
                hly_verbs_lane_broken(t, peer->lane[0], "it has sent more than it was allowed");
            else
                hly_verbs_credits_return(t, peer);
        }
    }
}

int hly_verbs_recvs_promise(halay_transport_t *t, int at, uint32_t many)
{
    hly_verbs_device_t *device = &t->devices[at];
    const uint32_t have = device->posted + device->held - device->promised;
    const uint32_t more = many > have ? many - have : 0;
    hly_verbs_buffer_t *fresh = NULL;
    if (device->buffers + more > device->queue ||
        (more > 0 && hly_verbs_pool_add(t, at, &fresh, more, HLY_VERBS_MESSAGE)))
        return -1;
    device->buffers += more;
    device->held += more;
    hly_verbs_recvs_post(t, &fresh);
    device->promised += many;
    assert(t->meet.error || device->posted + device->held >= device->promised);
    return t->meet.error ? -1 : 0;
}

static void forget(hly_verbs_buffer_t *list, const halay_ep_t *peer)
{
    for (hly_verbs_buffer_t *buffer = list; buffer; buffer = buffer->next) {
        if (buffer->owed_to == peer)
            buffer->owed_to = NULL;
    }
}

void hly_verbs_recvs_forget(halay_transport_t *t, halay_ep_t *peer)
{
    hly_verbs_buffer_t *kept;
    forget(t->given, peer);
    forget(t->idle, peer);
    while ((kept = hly_verbs_buffer_take(&peer->kept)) != NULL)
        hly_verbs_buffer_give(&t->spare, kept);
}
