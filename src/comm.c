/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c - communicators: who is in them, and the window of their calls.
 *
 * Invariant of the window: `oldest` is the first call not complete; headers arrive for at most
 * [oldest, oldest + HLY_SLOTS), because a rank starts a call only within HLY_WINDOW of its own
 * oldest, and completes none before it has heard of it from every rank (proved for every plan).
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
        slot->complete = false;
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
    hly_link_append(&context->comms, &comm->link);
    comm->hash_next = context->comm_table[id & 255];
    context->comm_table[id & 255] = comm;
    context->ncomms++;
    hly_match_orphans(comm);
    *out = comm;
    return HALAY_OK;
}

/* Why a communicator cannot be used to make another one; 0 if it can. */
static int parent_check(halay_comm_t *comm, void *out, const char *call)
{
    if (!comm || !out || (comm->magic != HLY_COMM_MAGIC && comm->magic != HLY_COMM_FREED))
        return HALAY_EINVAL;
    if (hly_forked(comm->context))
        return HALAY_EFORKED;
    if (comm->magic == HLY_COMM_FREED) {
        hly_log(comm->context, HLY_ERROR, "%s: the communicator was freed on this rank", call);
        return HALAY_ESTATE;
    }
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

/* The id needs no agreement: parent's id, how many it has had before, colour (decision 17). */
static uint64_t child_id(halay_comm_t *parent, int colour)
{
    uint64_t key[2] = {parent->children++, (uint64_t)(uint32_t)colour};
    uint64_t id = hly_hash(parent->id, key, sizeof(key));
    return id ? id : 1;
}

int halay_comm_dup(halay_comm_t *comm, halay_comm_t **dup)
{
    int rc = parent_check(comm, dup, "comm_dup");
    if (rc)
        return rc;
    halay_context_t *ctx = comm->context;
    hly_lock(ctx);
    struct hly_group *group;
    rc = hly_group_copy(comm->group, &group);
    if (!rc)
        rc = hly_comm_create(ctx, child_id(comm, -1), group, comm->rank, comm->deadline_ns, dup);
    hly_unlock(ctx);
    return rc;
}

struct member {
    int32_t colour, key;
};

/* Old ranks of one colour, by key, then by old rank: insertion into order[]. */
static int order_members(const struct member *all, int nranks, int colour, int order[])
{
    int n = 0;
    for (int r = 0; r < nranks; r++) {
        if (all[r].colour != colour)
            continue;
        int at = n++;
        for (; at > 0 && all[order[at - 1]].key > all[r].key; at--)
            order[at] = order[at - 1];
        order[at] = r;
    }
    return n;
}

static int split_locked(halay_comm_t *comm, const struct member *all, int *order, int colour,
                        halay_comm_t **split)
{
    uint64_t id = child_id(comm, colour);
    if (colour < 0) {
        *split = NULL;
        return HALAY_OK;
    }
    int rank = -1;
    int n = order_members(all, comm->nranks, colour, order);
    for (int r = 0; r < n; r++) {
        if (order[r] == comm->rank)
            rank = r;
        order[r] = hly_comm_world_rank(comm, order[r]);
    }
    assert(rank >= 0);
    struct hly_group *group;
    int rc = hly_group_make(order, n, &group);
    return rc ? rc : hly_comm_create(comm->context, id, group, rank, comm->deadline_ns, split);
}

int halay_comm_split(halay_comm_t *comm, int colour, int key, halay_comm_t **split)
{
    int rc = parent_check(comm, split, "comm_split");
    if (rc)
        return rc;
    struct member mine = {colour, key};
    struct member *all = calloc((size_t)comm->nranks, sizeof(*all));
    int *order = calloc((size_t)comm->nranks, sizeof(*order));
    rc = all && order ? halay_allgather(&mine, all, 2, HALAY_INT32, comm) : HALAY_ENOMEM;
    if (!rc) {
        hly_lock(comm->context);
        rc = split_locked(comm, all, order, colour, split);
        hly_unlock(comm->context);
    }
    free(order);
    free(all);
    return rc;
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
    if (comm == ctx->world || comm->oldest != comm->next_sequence) {
        hly_log(ctx, HLY_ERROR, "comm_free: %s",
                comm == ctx->world ? "the world communicator belongs to the context"
                                   : "requests are in flight on it; wait for them first");
        rc = HALAY_ESTATE;
    } else {
        comm->magic = HLY_COMM_FREED;
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
        verdict->code = comm->last.code;
        verdict->rank = comm->last.rank;
        verdict->other = comm->last.other;
        verdict->sequence = comm->last_sequence;
        snprintf(verdict->host, sizeof(verdict->host), "%.63s", comm->last.host);
        hly_verdict_text(&comm->last, comm->last_sequence, comm->nranks, verdict->text,
                         sizeof(verdict->text));
    }
    hly_unlock(comm->context);
    return HALAY_OK;
}
