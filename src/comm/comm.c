/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c - communicators: who is in them, and the window of their calls.
 *
 * Invariant of the window: `oldest` is the first call that is not complete, and headers arrive for
 * calls of [oldest, oldest + HLY_SLOTS) only. A rank starts a call only within HLY_WINDOW of its
 * own oldest. A call that is complete has been made by all ranks, which is proved for every plan.
 * Relaxed broadcasts are the exception: of these each 32nd shows it, for those before it too. So
 * calls start only within HLY_UNACKED_MOST of `acked`.
 *
 * A freed communicator is kept for a while (HLY_FREED_MAX): calls on it are an error on all ranks,
 * and that error has to travel under its id. Then its memory is the next one's, with another
 * handle: the address of the struct at first, then of one word after the other after that. The word
 * holds a mark while the handle is valid. So a handle that was freed long ago is recognised, until
 * the same memory has been handed out HLY_COMM_HANDLES times more.
 */
#include "comm/comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(halay_comm_t) + HLY_COMM_HANDLES * sizeof(uint64_t) <= HLY_COMM_BYTES,
              "all handles point into it");
static_assert(offsetof(halay_comm_t, mark) == 0, "the first handle is the struct's address");

int hly_comm_shown_rank(const halay_comm_t *comm, int rank)
{
    return comm->parent && rank >= 0 ? comm->pair[rank & 1] : rank;
}

halay_comm_t *hly_comm_find(const halay_context_t *context, uint64_t id)
{
    halay_comm_t *c = context->comm_table[id % HLY_COMM_TABLE];
    while (c && c->id != id)
        c = c->hash_next;
    return c;
}

bool hly_comm_is_gone(const halay_context_t *context, uint64_t id)
{
    uint32_t n = context->ngone < HLY_GONE_IDS ? context->ngone : HLY_GONE_IDS;
    for (uint32_t i = 0; i < n; i++)
        if (context->gone_ids[i] == id)
            return true;
    return false;
}

/* Most calls leave peer_sequence as it is, so it may be any number of calls old. It counts only
 * while its slot is still of that call. */
uint32_t hly_comm_ahead(const halay_comm_t *comm)
{
    uint32_t last = comm->peer_sequence - 1, n = comm->peer_sequence - comm->oldest;
    return n <= HLY_SLOTS && comm->slots[last % HLY_SLOTS].sequence == last ? n : 0;
}

struct hly_slot *hly_comm_slot(halay_comm_t *comm, uint32_t sequence)
{
    struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    if (sequence - comm->oldest >= HLY_SLOTS)
        return NULL;
    if (slot->sequence != sequence && slot->fault) {
        free(slot->fault); /* of a call that has failed elsewhere after it was complete here */
        slot->fault = NULL;
    }
    return hly_slot_of(comm, sequence);
}

bool hly_comm_heard(halay_comm_t *comm, uint32_t sequence)
{
    if (sequence - comm->oldest < hly_comm_ahead(comm) || !hly_comm_slot(comm, sequence))
        return false;
    comm->peer_sequence = sequence + 1;
    return true;
}

void hly_comm_remove(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    halay_comm_t **p = &ctx->comm_table[comm->id % HLY_COMM_TABLE];
    while (*p != comm)
        p = &(*p)->hash_next;
    *p = comm->hash_next;
    hly_link_remove(&comm->link);
    hly_link_remove(&comm->pair_link);
    ctx->gone_ids[ctx->ngone++ % HLY_GONE_IDS] = comm->id;
    for (int i = 0; i < HLY_STALLS; i++) {
        free(comm->stalls[i]);
        comm->stalls[i] = NULL;
    }
    free(comm->ranks);
    free(comm->survivors);
    comm->ranks = NULL;
    comm->survivors = NULL;
}

/* All zero but handle, mark and generation. The longest idle memory is used first. */
static halay_comm_t *memory_of(halay_context_t *ctx)
{
    halay_comm_t *comm;
    uint32_t generation = 0;
    if (hly_link_empty(&ctx->unused_comms)) {
        comm = aligned_alloc(HLY_COMM_BYTES, HLY_COMM_BYTES);
        if (!comm)
            return NULL;
        memset(comm, 0, HLY_COMM_BYTES);
    } else {
        comm = HLY_OF(ctx->unused_comms.next, halay_comm_t, link);
        hly_link_remove(&comm->link);
        generation = (comm->generation + 1) % HLY_COMM_HANDLES;
    }
    memset(comm, 0, sizeof(*comm));
    comm->generation = generation;
    uint64_t *mark = &comm->mark;
    if (generation)
        mark = (uint64_t *)(void *)((char *)comm + HLY_COMM_BYTES) - generation;
    comm->handle = (halay_comm_t *)(void *)mark;
    *mark = hly_comm_mark(comm->handle);
    return comm;
}

void hly_comm_give_back(halay_comm_t *comm)
{
    *(uint64_t *)comm->handle = 0;
    hly_link_append(&comm->context->unused_comms, &comm->link);
}

void hly_comms_free_memory(halay_context_t *ctx)
{
    while (!hly_link_empty(&ctx->unused_comms)) {
        halay_comm_t *comm = HLY_OF(ctx->unused_comms.next, halay_comm_t, link);
        hly_link_remove(&comm->link);
        free(comm);
    }
}

/* Into the flight record. */
static void record(const halay_comm_t *comm)
{
    const int first = hly_comm_world_rank(comm, 0);
    int stride = comm->nranks > 1 ? hly_comm_world_rank(comm, 1) - first : 1;
    for (int r = 2; r < comm->nranks && stride; r++)
        if (hly_comm_world_rank(comm, r) != first + r * stride)
            stride = 0;
    const halay_record_comm_t entry = {.id = comm->id,
                                       .rank = comm->rank,
                                       .nranks = comm->nranks,
                                       .first = first,
                                       .stride = stride};
    hly_record_comm(comm->context, &entry);
}

int hly_comm_create(halay_context_t *context, uint64_t id, struct hly_ranks *ranks, int rank,
                    uint64_t deadline_ns, halay_comm_t **out)
{
    halay_comm_t *comm = context->ncomms < HLY_COMMS_MAX ? memory_of(context) : NULL;
    int rc = HALAY_ENOMEM;
    if (!comm)
        goto free_ranks;
    comm->id = id;
    comm->context = context;
    comm->ranks = ranks;
    comm->rank = rank;
    comm->nranks = ranks->nranks;
    comm->deadline_ns = deadline_ns;
    rc = hly_comm_count_nodes(comm);
    if (rc)
        goto give_back;
    for (uint32_t i = 0; i < HLY_SLOTS; i++) {
        hly_link_init(&comm->slots[i].unexpected);
        comm->slots[i].sequence = i;
    }
    hly_link_init(&comm->moves.flying);
    hly_link_init(&comm->pairs);
    hly_link_init(&comm->pair_link);
    hly_link_init(&comm->groups);
    hly_link_init(&comm->grouped);
    hly_link_append(&context->comms, &comm->link);
    comm->hash_next = context->comm_table[id % HLY_COMM_TABLE];
    context->comm_table[id % HLY_COMM_TABLE] = comm;
    context->ncomms++;
    record(comm);
    *out = comm;
    return HALAY_OK;
give_back:
    hly_comm_give_back(comm);
free_ranks:
    free(ranks);
    return rc;
}
