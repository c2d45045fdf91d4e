/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - the processes that this one talks to. A peer has a 128-bit id, which is computed from
 * job, rank, epoch and secret, so that nothing has to be exchanged. It is connected when the first
 * plan that needs it is admitted, and lives as long as the context.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/news.h"
#include "wire/rendezvous.h"

halay_peer_id_t hly_peer_id(const halay_context_t *context, int world_rank)
{
    uint64_t key[2] = {(uint64_t)world_rank, context->info.epoch};
    halay_peer_id_t id;
    id.hi = hly_hash(hly_hash(1, context->info.job, sizeof(context->info.job)), key, sizeof(key));
    id.lo = hly_hash(id.hi, context->info.secret, sizeof(context->info.secret));
    return id;
}

struct hly_peer *hly_peer_find(const halay_context_t *context, halay_peer_id_t id)
{
    struct hly_peer *p = context->peer_table[id.lo & context->peer_mask];
    while (p && (p->id.lo != id.lo || p->id.hi != id.hi))
        p = p->hash_next;
    return p;
}

/* Twice the buckets when there are as many peers as buckets. */
static void grow_table(halay_context_t *context)
{
    uint32_t room = 2 * (context->peer_mask + 1);
    struct hly_peer **table = calloc(room, sizeof(*table));
    if (!table)
        return; /* longer chains, no harm */
    for (uint32_t i = 0; i <= context->peer_mask; i++)
        while (context->peer_table[i]) {
            struct hly_peer *p = context->peer_table[i];
            context->peer_table[i] = p->hash_next;
            p->hash_next = table[p->id.lo & (room - 1)];
            table[p->id.lo & (room - 1)] = p;
        }
    free(context->peer_table);
    context->peer_table = table;
    context->peer_mask = room - 1;
}

struct hly_transport *hly_transport_of(const halay_context_t *ctx, int world_rank,
                                       halay_place_t *place)
{
    halay_place_t at;
    if (!place)
        place = &at;
    *place = (halay_place_t){.size = sizeof(*place)};
    int rc = ctx->boot_ops->get(ctx->boot, world_rank, place);
    assert(!rc && ctx->ntransports);
    (void)rc;
    return &ctx->transports[place->node == ctx->info.node ? 0 : ctx->ntransports - 1];
}

static int connect_peer(halay_context_t *context, struct hly_peer *p)
{
    halay_place_t place;
    p->transport = hly_transport_of(context, p->world_rank, &place);
    p->process = place.process;
    const void *address = &place.address;
    size_t bytes = place.address.family ? sizeof(place.address) : 0;
    if (p->transport->attr.capabilities & HALAY_CAN_WATCH) {
        address = &p->process;
        bytes = p->process.space && p->process.space == p->transport->hello.process.space
                    ? sizeof(p->process)
                    : 0;
    }
    int rc = p->transport->ops->connect(p->transport->handle, p->id, bytes ? address : NULL, bytes,
                                        &p->ep);
    if (!rc)
        p->transport->traffic.connections++;
    return rc;
}

int hly_peer_get(halay_context_t *context, int world_rank, struct hly_peer **out)
{
    assert(world_rank >= 0 && world_rank < context->info.nranks);
    assert(world_rank != context->info.rank);
    halay_peer_id_t id = hly_peer_id(context, world_rank);
    struct hly_peer *p = hly_peer_find(context, id);
    if (p) {
        *out = p;
        return HALAY_OK;
    }
    p = calloc(1, sizeof(*p));
    if (!p)
        return HALAY_ENOMEM;
    p->id = id;
    p->world_rank = world_rank;
    hly_link_init(&p->queue);
    hly_link_init(&p->waiting);
    int rc = connect_peer(context, p);
    if (rc) {
        free(p);
        return rc;
    }
    context->counters.connections++;
    if (context->npeers++ > context->peer_mask)
        grow_table(context);
    p->hash_next = context->peer_table[id.lo & context->peer_mask];
    context->peer_table[id.lo & context->peer_mask] = p;
    *out = p;
    return HALAY_OK;
}

bool hly_peer_is_dead(const halay_comm_t *comm, int rank)
{
    halay_context_t *ctx = comm->context;
    struct hly_peer *p = hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    return p && (p->dead || p->left_out);
}

static void lose(halay_context_t *context, struct hly_peer *peer, const char *text)
{
    if (peer->dead)
        return;
    peer->dead = true;
    peer->greeted = false;
    if (!peer->explained)
        snprintf(peer->evidence, sizeof(peer->evidence), "%s",
                 text ? text : "no way to it any more");
    hly_log(context, HLY_INFO, "rank %d is lost: %s", peer->world_rank, peer->evidence);
    while (!hly_link_empty(&peer->queue))
        hly_send_cancel(context, HLY_OF(peer->queue.next, struct hly_send, link));
    hly_link_remove(&peer->waiting);
    hly_targets_peer_lost(context, peer);
    struct hly_news *n = hly_news_leave(context, HLY_NEWS_LOST, NULL);
    if (n)
        n->peer = peer;
}

void hly_peer_sever(halay_context_t *context, struct hly_peer *peer, const char *text)
{
    if (!peer->ep)
        return;
    peer->transport->ops->sever(peer->transport->handle, peer->ep);
    peer->transport->ops->disconnect(peer->transport->handle, peer->ep);
    peer->ep = NULL;
    lose(context, peer, text);
}

void hly_peer_give_back(halay_context_t *context, int world_rank)
{
    struct hly_peer *peer = hly_peer_find(context, hly_peer_id(context, world_rank));
    if (!peer || !peer->dead || !peer->ep)
        return;
    peer->transport->ops->disconnect(peer->transport->handle, peer->ep);
    peer->ep = NULL;
}

void hly_peer_nonsense(halay_context_t *context, struct hly_peer *peer, const char *what)
{
    char text[192];
    snprintf(text, sizeof(text),
             "it sent %.90s: it runs another version of Halay, or its memory is corrupt", what);
    if (!peer->dead)
        hly_log(context, HLY_ERROR, "rank %d: %s", peer->world_rank, text);
    hly_peer_sever(context, peer, text);
}

void hly_peer_failed(halay_context_t *context, halay_peer_id_t id, int status, const char *text)
{
    struct hly_peer *peer = hly_peer_find(context, id);
    for (int r = 0; !peer && r < context->info.nranks;
         r++) { /* it has called, and was never called */
        halay_peer_id_t of_rank = hly_peer_id(context, r);
        if (of_rank.lo == id.lo && of_rank.hi == id.hi && r != context->info.rank)
            hly_peer_get(context, r, &peer);
    }
    if (!peer)
        return;
    peer->cut = peer->cut || (!peer->dead && status == HALAY_ETIMEOUT);
    peer->refused = peer->refused || (!peer->dead && status == HALAY_ENOMEM);
    lose(context, peer, text);
}
