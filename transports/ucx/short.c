/* SPDX-License-Identifier: Apache-2.0 */
/*
 * short.c - short messages that come. They are sent as tagged messages, for UCX sends those with
 * fewer instructions and a cheaper system call than active messages. All have the same tag, for
 * UCX finds a receive of one tag sooner than one of many; the token that the receiver has given to
 * the sender goes first. Receives are always posted: a few, which stay in the cache; more for a
 * while, once all of them were taken in one poll. They are posted again in a poll that finds
 * nothing, or when none is left. What comes while all of them hold something that nobody has polled
 * waits inside UCX.
 *
 * Invariant: a short is posted, or spare, or spent: its event waits or was given away since the
 * arena last started anew. UCX's request lies before it, so none has to be found and given back.
 */
#include "ucx.h"

#include <stdlib.h>

__attribute__((cold)) static void throw_away(halay_transport_t *t, size_t bytes)
{
    if (!t->meet.closing && !(t->warned & 1))
        hly_meet_log(&t->meet, 1,
                     "a message of %zu bytes of an unknown sender was thrown away; this is logged "
                     "once",
                     bytes);
    t->warned |= 1;
}

static inline void message(halay_transport_t *t, uint64_t token, const void *data, size_t bytes,
                           int stays)
{
    hly_ucx_peer_t *peer = hly_ucx_peer_of(t, token);
    halay_event_t event;
    if (!peer || bytes > HLY_UCX_MESSAGE) {
        throw_away(t, bytes);
        return;
    }
    peer->came++;
    t->meet.attention |= peer->base.goodbye;
    if (t->meet.closing)
        return;
    const int now = stays && t->last == 0 && t->sunk < t->sink_room;
    halay_event_t *to = now ? &t->sink[t->sunk++] : &event;
    *to = (halay_event_t){.kind = HALAY_EVENT_MESSAGE,
                          .peer = peer->base.id,
                          .data = bytes ? data : NULL,
                          .bytes = bytes};
    if (!now)
        hly_ucx_event_add(t, to, stays);
}

void hly_ucx_message(halay_transport_t *t, uint64_t token, const void *data, size_t bytes,
                     int stays)
{
    message(t, token, data, bytes, stays);
}

/* A message is in its room; or its receive was cancelled, because the transport closes. */
static void on_short(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    hly_ucx_short_t *one = request;
    halay_transport_t *t = arg;
    one->posted = 0;
    one->next = t->spent;
    t->spent = one;
    if (--t->shorts_posted == 0 && (t->sunk > 0 || t->last > 0) &&
        t->shorts_wanted < HLY_UCX_SHORTS)
        t->shorts_wanted *= 2;
    if (status == UCS_OK && info->length >= HLY_UCX_TOKEN)
        message(t, one->token, one->room, info->length - HLY_UCX_TOKEN, 1);
}

/* UCX 1.13 does not say what came if it completes a receive at once: so it may not. */
static void post(halay_transport_t *t, hly_ucx_short_t *one)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .request = one,
        .cb.recv = on_short,
        .user_data = t};
    one->posted = 1;
    t->shorts_posted++;
    void *request = ucp_tag_recv_nbx(t->worker, &one->token, sizeof(one->token) + sizeof(one->room),
                                     HLY_UCX_SHORT_TAG, UINT64_MAX, &param);
    if (!UCS_PTR_IS_ERR(request))
        return;
    one->posted = 0; /* tried again when the arena starts anew */
    t->shorts_posted--;
    one->next = t->spent;
    t->spent = one;
}

void hly_ucx_shorts_post(halay_transport_t *t)
{
    hly_ucx_short_t *one = t->spent, *next;
    t->spent = NULL; /* what comes at once is spent again, and not to be posted now */
    for (; one; one = next) {
        next = one->next;
        if (t->shorts_posted < t->shorts_wanted) {
            post(t, one);
        } else {
            one->next = t->spare;
            t->spare = one;
        }
    }
    for (int n = t->shorts_wanted - t->shorts_posted; n > 0 && (one = t->spare) != NULL; n--) {
        t->spare = one->next;
        post(t, one);
    }
}

static hly_ucx_short_t *at(const halay_transport_t *t, size_t i)
{
    return (hly_ucx_short_t *)(t->shorts + t->shorts_stride * (i + 1) - sizeof(hly_ucx_short_t));
}

int hly_ucx_shorts_make(halay_transport_t *t)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};
    if (ucp_context_query(t->context, &attr) != UCS_OK)
        return HALAY_ETRANSPORT;
    const size_t line = _Alignof(hly_ucx_short_t);
    t->shorts_stride = (attr.request_size + line - 1) / line * line + sizeof(hly_ucx_short_t);
    t->shorts = aligned_alloc(line, HLY_UCX_SHORTS * t->shorts_stride); /* touched where used */
    if (!t->shorts)
        return HALAY_ENOMEM;
    for (size_t i = HLY_UCX_SHORTS; i-- > 0;) {
        hly_ucx_short_t *one = at(t, i);
        one->posted = 0;
        one->next = t->spare;
        t->spare = one;
    }
    t->shorts_wanted = HLY_UCX_SHORTS_LEAST;
    return HALAY_OK;
}

void hly_ucx_shorts_cancel(halay_transport_t *t)
{
    for (size_t i = 0; i < HLY_UCX_SHORTS; i++) {
        if (at(t, i)->posted)
            ucp_request_cancel(t->worker, at(t, i));
    }
}
