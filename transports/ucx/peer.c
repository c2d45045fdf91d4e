/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - peers, and the events that wait to be polled.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ucx.h"

/* ------------------------------------------------------------------ events */

hly_ucx_waiting_t *hly_ucx_event_add(halay_transport_t *t, const halay_event_t *event, int stays)
{
    size_t bytes = event->data && !stays ? (event->bytes + 7) / 8 * 8 : 0;
    if (t->last == t->room) {
        size_t room = t->room ? t->room * 2 : 256;
        hly_ucx_waiting_t *waiting = realloc(t->waiting, room * sizeof(*waiting));
        if (!waiting)
            goto full;
        t->waiting = waiting;
        t->room = room;
    }
    if (bytes > t->arena_room - t->arena_bytes) {
        size_t room = t->arena_room ? t->arena_room * 2 : 256 << 10;
        while (room - t->arena_bytes < bytes)
            room *= 2;
        uint8_t *arena = realloc(t->arena, room);
        if (!arena)
            goto full;
        t->arena = arena;
        t->arena_room = room;
    }
    hly_ucx_waiting_t *waiting = &t->waiting[t->last++];
    *waiting = (hly_ucx_waiting_t){.event = *event, .stays = stays, .offset = t->arena_bytes};
    if (bytes)
        memcpy(t->arena + t->arena_bytes, event->data, event->bytes);
    t->arena_bytes += bytes;
    return waiting;
full:
    hly_meet_log(&t->meet, 0, "no memory for what arrived, %zu bytes; raise the limit on memory",
                 event->bytes);
    t->meet.error = HALAY_ENOMEM;
    return NULL;
}

/* ------------------------------------------------------------------ peers */

static int index_take(halay_transport_t *t, hly_ucx_peer_t *peer)
{
    int i = 0;
    while (i < t->nindex && t->by_index[i])
        i++;
    if (i == t->nindex) {
        int n = t->nindex ? t->nindex * 2 : 16;
        hly_ucx_peer_t **by_index = realloc(t->by_index, (size_t)n * sizeof(hly_ucx_peer_t *));
        if (!by_index)
            return -ENOMEM;
        memset(by_index + t->nindex, 0, (size_t)(n - t->nindex) * sizeof(hly_ucx_peer_t *));
        t->by_index = by_index;
        t->nindex = n;
    }
    t->by_index[i] = peer;
    peer->index = i;
    peer->token = (uint64_t)++t->lives << 32 | (uint32_t)i;
    return 0;
}

hly_meet_peer_t *hly_ucx_peer_make(halay_transport_t *t)
{
    hly_ucx_peer_t *peer = calloc(1, sizeof(*peer));
    if (peer && index_take(t, peer)) {
        free(peer);
        peer = NULL;
    }
    return peer ? &peer->base : NULL;
}

void hly_ucx_peer_free(halay_transport_t *t, hly_ucx_peer_t *peer)
{
    assert(!peer->ucp && peer->under_way == 0);
    hly_meet_peer_forget(&t->meet, &peer->base);
    t->by_index[peer->index] = NULL;
    free(peer);
}

void hly_ucx_peer_break(halay_transport_t *t, hly_ucx_peer_t *peer, ucs_status_t status)
{
    if (peer->broken == UCS_OK)
        peer->broken = status;
    t->meet.attention = 1;
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    halay_transport_t *t = arg;
    for (hly_ucx_peer_t *peer = hly_ucx_first(t); peer; peer = hly_ucx_next(peer)) {
        if (peer->ucp == ep)
            hly_ucx_peer_break(t, peer, status);
    }
}

size_t hly_ucx_peer_tell(halay_transport_t *t, hly_meet_peer_t *peer, uint8_t *tells)
{
    memcpy(tells, &((hly_ucx_peer_t *)peer)->token, HLY_UCX_TOKEN);
    memcpy(tells + HLY_UCX_TOKEN, t->worker_address, t->worker_address_bytes);
    return HLY_UCX_TOKEN + t->worker_address_bytes;
}

void hly_ucx_peer_meet(halay_transport_t *t, hly_meet_peer_t *base, const uint8_t *tells,
                       size_t bytes)
{
    hly_ucx_peer_t *peer = (hly_ucx_peer_t *)base;
    if (bytes <= HLY_UCX_TOKEN) {
        hly_meet_peer_fail(&t->meet, base, HALAY_ETRANSPORT, "%s tells no UCX address", base->name);
        return;
    }
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = (const void *)(tells + HLY_UCX_TOKEN),
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {on_error, t}};
    ucs_status_t status = ucp_ep_create(t->worker, &params, &peer->ucp);
    if (status != UCS_OK) {
        peer->ucp = NULL;
        hly_meet_peer_fail(&t->meet, &peer->base, HALAY_ETRANSPORT,
                           "UCX finds no way to %s: %s; see what networks both have (ucx_info -d), "
                           "and UCX_TLS and UCX_NET_DEVICES, if they are set",
                           peer->base.name, ucs_status_string(status));
        return;
    }
    memcpy(&peer->its_token, tells, HLY_UCX_TOKEN);
}

static void on_closed(void *request, ucs_status_t status, void *arg)
{
    halay_transport_t *t = arg;
    (void)status;
    t->closes--;
    ucp_request_free(request);
}

/* Without a word to the peer; sends under way end with an error. */
void hly_ucx_ep_close(halay_transport_t *t, hly_ucx_peer_t *peer)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                                                 UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                 .cb.send = on_closed,
                                 .user_data = t};
    ucp_ep_h ucp = peer->ucp;
    if (!ucp)
        return;
    peer->ucp = NULL;
    t->closes++;
    void *request = ucp_ep_close_nbx(ucp, &param);
    if (!UCS_PTR_IS_PTR(request))
        t->closes--;
}
