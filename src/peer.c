/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - the processes that this one talks to. A peer is known by its 128-bit id, which is
 * computed from the job, its rank and the epoch, so nothing has to be exchanged; it is connected
 * when the first plan that needs it is admitted, and lives as long as the context.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"
#include "core.h"

halay_peer_id_t hly_peer_id(const halay_context_t *context, int world_rank)
{
    uint64_t key[2] = {(uint64_t)world_rank, context->info.epoch};
    halay_peer_id_t id;
    id.hi = hly_hash(hly_hash(1, context->info.job, sizeof(context->info.job)), key, sizeof(key));
    id.lo = hly_hash(id.hi, context->info.secret, sizeof(context->info.secret));
    return id;
}

struct hly_peer *hly_peer_find(halay_context_t *context, halay_peer_id_t id)
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

static int connect_peer(halay_context_t *context, struct hly_peer *p)
{
    halay_address_t address;
    p->way = hly_way_of(context, p->world_rank, &address);
    size_t bytes = address.family ? sizeof(address) : 0;
    int rc = p->way->ops->connect(p->way->transport, p->id, bytes ? &address : NULL, bytes, &p->ep);
    if (!rc)
        p->way->traffic.connections++;
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

/* Has a part of this step's message come before the step could use it? */
static bool is_stashed(const struct hly_slot *slot, const halay_step_t *s, uint32_t tile)
{
    for (struct hly_link *l = slot->stash.next; l != &slot->stash; l = l->next) {
        const struct hly_stash *m = HLY_OF(l, struct hly_stash, link);
        if (m->header.kind == HLY_EAGER && m->header.from == s->peer && m->header.edge == s->edge &&
            m->header.tile == (uint16_t)tile)
            return true;
    }
    return false;
}

/* Has this step with a peer still to be done in this tile, which is the request's or comes after?
 */
static bool is_needed(const halay_request_t *r, const struct hly_slot *slot, uint32_t step,
                      uint32_t tile)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    if (tile == r->tiles.number && r->run[step].state == HLY_DONE)
        return false;
    if (s->kind == HALAY_STEP_RECV)
        return !is_stashed(slot, s, tile);
    return step != r->plan->ahead || tile >= r->tiles.sent;
}

/*
 * Does the request still wait for something from this peer? A peer that has left in good order has
 * done all it had to do, so what it sent is here, in its place or in the stash; and what it was
 * sent has gone, so that this rank is in one of the call's last tiles.
 */
static bool needs(const halay_request_t *r, const struct hly_slot *slot,
                  const struct hly_peer *peer)
{
    const struct hly_tiles *t = &r->tiles;
    if (t->n - t->number > HLY_AHEAD + 1 || hly_both_waits(r))
        return true;
    for (uint32_t tile = t->number; tile < t->n; tile++)
        for (uint32_t i = 0; i < r->plan->plan->nsteps; i++)
            if (r->plan->peers[i] == peer && is_needed(r, slot, i, tile))
                return true;
    return false;
}

static void lost_for_comm(halay_comm_t *comm, int rank, const struct hly_peer *peer)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, comm, HLY_CAUSE_PEER, HALAY_EPEER, rank);
    snprintf(v.detail, sizeof(v.detail), "%s", peer->evidence);
    if (!comm->broken) {
        comm->broken = true;
        comm->broken_by = v;
    }
    for (uint32_t s = comm->oldest; s != comm->started; s++) {
        struct hly_slot *slot = &comm->slots[s % HLY_SLOTS];
        halay_request_t *r = slot->request;
        if (!r)
            continue;
        if (r->state == HLY_RUNNING && needs(r, slot, peer))
            hly_fault_raise(comm, s, &v);
        else if (r->state == HLY_FAILING)
            hly_fault_progress(comm, slot);
    }
}

void hly_peer_break_comm(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    for (uint32_t i = 0; i <= ctx->peer_mask; i++)
        for (const struct hly_peer *p = ctx->peer_table[i]; p; p = p->hash_next) {
            int rank = p->dead ? hly_comm_rank_of(comm, p->world_rank) : -1;
            if (rank >= 0)
                lost_for_comm(comm, rank, p);
        }
}

static void lose(halay_context_t *context, struct hly_peer *peer, const char *text)
{
    if (peer->dead)
        return;
    peer->dead = true;
    snprintf(peer->evidence, sizeof(peer->evidence), "%s", text ? text : "no way to it any more");
    hly_log(context, HLY_INFO, "rank %d is lost: %s", peer->world_rank, peer->evidence);
    hly_channel_peer_dead(context, peer);
    struct hly_link *next;
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = next) {
        next = l->next;
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        int rank = hly_comm_rank_of(comm, peer->world_rank);
        if (rank >= 0)
            lost_for_comm(comm, rank, peer);
    }
}

void hly_peer_failed(halay_context_t *context, halay_peer_id_t id, const char *text)
{
    struct hly_peer *peer = hly_peer_find(context, id);
    for (int r = 0; !peer && r < context->info.nranks;
         r++) { /* it came to us, we never called it */
        halay_peer_id_t of_rank = hly_peer_id(context, r);
        if (of_rank.lo == id.lo && of_rank.hi == id.hi && r != context->info.rank)
            hly_peer_get(context, r, &peer);
    }
    if (peer)
        lose(context, peer, text);
}
