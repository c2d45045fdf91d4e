/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c - communicators: who is in them, and the window of their calls.
 *
 * Invariant of the window: `oldest` is the first call not complete; headers arrive for at most
 * [oldest, oldest + HLY_SLOTS), because a rank starts a call only within HLY_WINDOW of the oldest
 * that not all are known to have made: before it is complete it has been heard of from every rank
 * (proved for every plan). Of a series only each 32nd call is, and counts for those before
 * (series.h).
 *
 * A freed communicator is kept for a while (HLY_FREED_MAX): calls on it are an error on all ranks,
 * and that error has to travel under its id.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

int hly_comm_world_rank(const halay_comm_t *comm, int rank)
{
    return hly_group_world_rank(comm->group, rank);
}

int hly_comm_shown_rank(const halay_comm_t *comm, int rank)
{
    return comm->parent && rank >= 0 ? comm->pair[rank & 1] : rank;
}

int hly_comm_rank_of(const halay_comm_t *comm, int world_rank)
{
    return hly_group_rank_of(comm->group, world_rank);
}

halay_comm_t *hly_comm_find(halay_context_t *context, uint64_t id)
{
    halay_comm_t *c = context->comm_table[id & 255];
    while (c && c->id != id)
        c = c->hash_next;
    return c;
}

struct hly_slot *hly_comm_slot(halay_comm_t *comm, uint32_t sequence)
{
    if (sequence - comm->oldest >= HLY_SLOTS)
        return NULL;
    struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    if (slot->sequence != sequence) {
        assert(!slot->request && !slot->fault && hly_link_empty(&slot->stash));
        slot->sequence = sequence;
        slot->complete = slot->settled = slot->unheard = false;
    }
    return slot;
}

static void table_remove(halay_comm_t *comm)
{
    halay_comm_t **p = &comm->context->comm_table[comm->id & 255];
    while (*p != comm)
        p = &(*p)->hash_next;
    *p = comm->hash_next;
}

/* Empties it for good: messages for its id are dropped from now on. */
static void comm_clear(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    table_remove(comm);
    hly_link_remove(&comm->link);
    for (int i = 0; i < HLY_SLOTS; i++) {
        hly_match_forget(ctx, &comm->slots[i].stash);
        free(comm->slots[i].fault);
    }
    hly_explain_end(comm);
    hly_select_forget(comm);
    while (!hly_link_empty(&comm->pairs)) {
        hly_comm_destroy(HLY_OF(comm->pairs.next, halay_comm_t, pair_link));
        ctx->ncomms--;
    }
    hly_link_remove(&comm->pair_link);
    if (comm->outer)
        comm->outer->inner = NULL;
    if (comm->inner) {
        hly_comm_destroy(comm->inner);
        ctx->ncomms--;
    }
    hly_group_forget(comm->bundle);
    hly_plan_drop_all(comm);
    ctx->gone_ids[ctx->ngone++ % 64] = comm->id;
    free(comm->group);
    comm->group = NULL;
}

void hly_comm_destroy(halay_comm_t *comm)
{
    comm_clear(comm);
    free(comm);
}

/* Memory for one more: that of the longest freed one, if enough are kept. */
static halay_comm_t *comm_memory(halay_context_t *context)
{
    if (context->nfreed < HLY_FREED_MAX)
        return calloc(1, sizeof(halay_comm_t));
    halay_comm_t *comm = HLY_OF(context->freed_comms.next, halay_comm_t, link);
    comm_clear(comm);
    context->nfreed--;
    memset(comm, 0, sizeof(*comm));
    return comm;
}

/* Takes the group over, also on failure. */
int hly_comm_create(halay_context_t *context, uint64_t id, struct hly_group *group, int rank,
                    uint64_t deadline_ns, halay_comm_t **out)
{
    halay_comm_t *comm = context->ncomms < HLY_COMMS_MAX ? comm_memory(context) : NULL;
    if (!comm) {
        free(group);
        return HALAY_ENOMEM;
    }
    comm->magic = HLY_COMM_MAGIC;
    comm->id = id;
    comm->context = context;
    comm->group = group;
    comm->rank = rank;
    comm->nranks = group->nranks;
    comm->deadline_ns = deadline_ns;
    int rc = hly_comm_count_nodes(comm);
    if (rc) {
        free(comm);
        free(group);
        return rc;
    }
    for (uint32_t i = 0; i < HLY_SLOTS; i++) {
        hly_link_init(&comm->slots[i].stash);
        comm->slots[i].sequence = i;
    }
    hly_link_init(&comm->pairs);
    hly_link_init(&comm->pair_link);
    hly_link_init(&comm->bundles);
    hly_link_append(&context->comms, &comm->link);
    comm->hash_next = context->comm_table[id & 255];
    context->comm_table[id & 255] = comm;
    context->ncomms++;
    hly_peer_break_comm(comm);
    hly_match_orphans(comm);
    *out = comm;
    return HALAY_OK;
}

int halay_comm_rank(const halay_comm_t *comm, int *rank)
{
    if (!comm || !rank || comm->magic != HLY_COMM_MAGIC)
        return HALAY_EINVAL;
    *rank = comm->rank;
    return HALAY_OK;
}

int halay_comm_size(const halay_comm_t *comm, int *nranks)
{
    if (!comm || !nranks || comm->magic != HLY_COMM_MAGIC)
        return HALAY_EINVAL;
    *nranks = comm->nranks;
    return HALAY_OK;
}

/* Calls that the program has not seen the end of, on it or between two of its ranks. */
static bool in_use(const halay_comm_t *comm)
{
    bool busy = comm->oldest != comm->next_sequence || comm->npersistent || comm->bundle ||
                !hly_link_empty(&comm->bundles) || (comm->inner && in_use(comm->inner));
    for (const struct hly_plan *p = comm->plans; p && !busy; p = p->next)
        busy = p->running > 0; /* complete, perhaps, but not waited for */
    for (const struct hly_link *l = comm->pairs.next; l != &comm->pairs && !busy; l = l->next)
        busy = in_use(HLY_OF(l, halay_comm_t, pair_link));
    return busy;
}

int halay_comm_free(halay_comm_t *comm)
{
    if (!comm)
        return HALAY_OK;
    if (comm->magic != HLY_COMM_MAGIC)
        return comm->magic == HLY_COMM_FREED ? HALAY_ESTATE : HALAY_EINVAL;
    halay_context_t *ctx = comm->context;
    if (hly_forked(ctx))
        return HALAY_EFORKED;
    hly_lock(ctx);
    int rc = HALAY_OK;
    if (comm == ctx->world || in_use(comm)) {
        hly_log(ctx, HLY_ERROR, "comm_free: %s",
                comm == ctx->world ? "the world communicator belongs to the context"
                                   : "requests are in flight on it; wait for them first");
        rc = HALAY_ESTATE;
    } else {
        hly_series_free(comm);
        comm->magic = HLY_COMM_FREED;
        hly_explain_end(comm);
        hly_select_forget(comm);
        hly_plan_drop_all(comm);
        hly_link_remove(&comm->link);
        hly_link_append(&ctx->freed_comms, &comm->link);
        ctx->nfreed++;
        ctx->ncomms--;
        if (ctx->nfreed > HLY_FREED_MAX) {
            hly_comm_destroy(HLY_OF(ctx->freed_comms.next, halay_comm_t, link));
            ctx->nfreed--;
        }
    }
    hly_unlock(ctx);
    return rc;
}

int halay_comm_set_deadline(halay_comm_t *comm, uint64_t deadline_ns)
{
    if (!comm || comm->magic != HLY_COMM_MAGIC || !deadline_ns)
        return HALAY_EINVAL;
    if (hly_forked(comm->context))
        return HALAY_EFORKED;
    hly_lock(comm->context);
    comm->deadline_ns = deadline_ns;
    hly_unlock(comm->context);
    return HALAY_OK;
}

int halay_comm_called(halay_comm_t *comm, int *called)
{
    if (!comm || !called || comm->magic != HLY_COMM_MAGIC)
        return HALAY_EINVAL;
    if (hly_forked(comm->context))
        return HALAY_EFORKED;
    hly_lock(comm->context);
    *called = comm->foreign_sequence > comm->next_sequence ? 1 : comm->broken ? 2 : 0;
    hly_unlock(comm->context);
    return HALAY_OK;
}

int halay_comm_verdict(const halay_comm_t *comm, halay_verdict_t *verdict)
{
    if (!comm || !verdict || verdict->size < sizeof(*verdict) ||
        (comm->magic != HLY_COMM_MAGIC && comm->magic != HLY_COMM_FREED))
        return HALAY_EINVAL;
    if (hly_forked(comm->context))
        return HALAY_EFORKED;
    hly_lock(comm->context);
    *verdict = (halay_verdict_t){.size = sizeof(*verdict), .rank = -1, .other = -1};
    if (comm->failed) {
        const struct hly_failure *f = &comm->last;
        verdict->code = f->verdict.code;
        verdict->rank = hly_failure_rank(f, f->verdict.rank);
        verdict->other = hly_failure_rank(f, f->verdict.other);
        verdict->sequence = f->sequence;
        snprintf(verdict->host, sizeof(verdict->host), "%.63s", f->verdict.host);
        hly_failure_text(f, verdict->text, sizeof(verdict->text));
    }
    hly_unlock(comm->context);
    return HALAY_OK;
}
