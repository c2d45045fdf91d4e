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
 * and that error has to travel under its id.
 */
#include "comm/comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
    free(comm->ranks);
    comm->ranks = NULL;
}

int hly_comm_create(halay_context_t *context, uint64_t id, struct hly_ranks *ranks, int rank,
                    uint64_t deadline_ns, halay_comm_t **out)
{
    halay_comm_t *comm = context->ncomms < HLY_COMMS_MAX ? calloc(1, sizeof(*comm)) : NULL;
    int rc = HALAY_ENOMEM;
    if (!comm)
        goto free_ranks;
    comm->magic = HLY_COMM_MAGIC;
    comm->id = id;
    comm->context = context;
    comm->ranks = ranks;
    comm->rank = rank;
    comm->nranks = ranks->nranks;
    comm->deadline_ns = deadline_ns;
    rc = hly_comm_count_nodes(comm);
    if (rc)
        goto free_comm;
    for (uint32_t i = 0; i < HLY_SLOTS; i++) {
        hly_link_init(&comm->slots[i].unexpected);
        comm->slots[i].sequence = i;
    }
    hly_link_init(&comm->pairs);
    hly_link_init(&comm->pair_link);
    hly_link_init(&comm->groups);
    hly_link_append(&context->comms, &comm->link);
    comm->hash_next = context->comm_table[id % HLY_COMM_TABLE];
    context->comm_table[id % HLY_COMM_TABLE] = comm;
    context->ncomms++;
    *out = comm;
    return HALAY_OK;
free_comm:
    free(comm);
free_ranks:
    free(ranks);
    return rc;
}
