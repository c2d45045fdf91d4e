/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recv.c - the shared receive queue, and whose credits its requests are (verbs.h, promised).
 */
#include <string.h>

#include "verbs.h"

/* The first buffers of the list, with one doorbell. Returns how many, or -1. */
static int post_some(halay_transport_t *t, hly_verbs_buffer_t *list)
{
    struct ibv_recv_wr wr[HLY_VERBS_BATCH], *bad;
    struct ibv_sge sge[HLY_VERBS_BATCH];
    int n = 0;
    for (hly_verbs_buffer_t *buffer = list; buffer && n < HLY_VERBS_BATCH; buffer = buffer->next) {
        sge[n] = (struct ibv_sge){(uintptr_t)buffer->at, HLY_VERBS_MESSAGE, buffer->lkey};
        wr[n] = (struct ibv_recv_wr){
            .wr_id = (uintptr_t)buffer, .sg_list = &sge[n], .num_sge = 1, .next = &wr[n + 1]};
        n++;
    }
    wr[n - 1].next = NULL;
    int rc = ibv_post_srq_recv(t->srq, wr, &bad);
    t->n.refilled++;
    if (rc == 0)
        return n;
    t->meet.error = hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                                   "%s takes no receive requests: ibv_post_srq_recv: %s", t->name,
                                   strerror(rc));
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
            t->posted++;
            t->held--;
            if (!peer)
                continue;
            peer->owed++;
            assert(peer->owed <= peer->grant);
            hly_verbs_credits_return(t, peer);
        }
        assert(t->posted + t->held >= t->promised);
    }
}

int hly_verbs_recvs_promise(halay_transport_t *t, uint32_t many)
{
    const uint32_t have = t->posted + t->held - t->promised;
    const uint32_t more = many > have ? many - have : 0;
    hly_verbs_buffer_t *fresh = NULL;
    if (t->buffers + more > t->queue ||
        (more > 0 && hly_verbs_pool_add(t, &fresh, more, HLY_VERBS_MESSAGE)))
        return -1;
    t->buffers += more;
    t->held += more;
    hly_verbs_recvs_post(t, &fresh);
    t->promised += many;
    assert(t->meet.error || t->posted + t->held >= t->promised);
    return t->meet.error ? -1 : 0;
}

static void forget(hly_verbs_buffer_t *list, const halay_ep_t *peer)
{
    for (hly_verbs_buffer_t *buffer = list; buffer; buffer = buffer->next) {
        if (buffer->owed_to == peer)
            buffer->owed_to = NULL;
    }
}

void hly_verbs_recvs_forget(halay_transport_t *t, const halay_ep_t *peer)
{
    forget(t->given, peer);
    forget(t->idle, peer);
}
