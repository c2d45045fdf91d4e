/* SPDX-License-Identifier: Apache-2.0 */
/*
 * short.c - short messages that come. They are sent as tagged messages, for UCX sends those with
 * fewer instructions and a cheaper system call than active messages: the tag holds
 * HLY_UCX_SHORT_TAG and the token that the receiver has given to the sender. Receives for any such
 * tag are always posted; what comes while all of them hold something that nobody has polled waits
 * inside UCX.
 *
 * Invariant: a short is posted, or in the list of the spent, or its event waits or was given away
 * since the arena last started anew.
 */
#include "ucx.h"

#include <stdlib.h>

/* A message is in its room; or its receive was cancelled, because the transport closes. */
static void on_short(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    hly_ucx_short_t *one = arg;
    halay_transport_t *t = one->transport;
    one->request = NULL;
    one->posted = 0;
    one->next = t->spent;
    t->spent = one;
    if (status == UCS_OK)
        hly_ucx_message(t, info->sender_tag & ~HLY_UCX_SHORT_TAG, one->room, info->length, 1);
    ucp_request_free(request);
}

/* UCX 1.13 does not say what came if it completes a receive at once: so it may not. */
static void post(halay_transport_t *t, hly_ucx_short_t *one)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                       UCP_OP_ATTR_FIELD_USER_DATA |
                                                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                       .cb.recv = on_short,
                                       .user_data = one};
    one->posted = 1;
    void *request = ucp_tag_recv_nbx(t->worker, one->room, sizeof(one->room), HLY_UCX_SHORT_TAG,
                                     HLY_UCX_SHORT_TAG, &param);
    if (UCS_PTR_IS_ERR(request)) { /* tried again when the arena starts anew */
        one->posted = 0;
        one->next = t->spent;
        t->spent = one;
    }
    one->request = one->posted ? request : NULL;
}

void hly_ucx_shorts_post(halay_transport_t *t)
{
    hly_ucx_short_t *one = t->spent, *next;
    t->spent = NULL;
    for (; one; one = next) {
        next = one->next;
        post(t, one);
    }
}

int hly_ucx_shorts_make(halay_transport_t *t)
{
    t->shorts = calloc(HLY_UCX_SHORTS, sizeof(*t->shorts));
    if (!t->shorts)
        return HALAY_ENOMEM;
    for (int i = 0; i < HLY_UCX_SHORTS; i++) {
        t->shorts[i].transport = t;
        t->shorts[i].next = t->spent;
        t->spent = &t->shorts[i];
    }
    return HALAY_OK;
}

void hly_ucx_shorts_cancel(halay_transport_t *t)
{
    for (int i = 0; i < HLY_UCX_SHORTS; i++) {
        if (t->shorts[i].request)
            ucp_request_cancel(t->worker, t->shorts[i].request);
    }
}
