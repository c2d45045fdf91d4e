/* SPDX-License-Identifier: Apache-2.0 */
/* pair.c - hidden communicators of two ranks (pair.h; docs/decisions/plans.md#0014). */
#include "run/pair.h"

#include "fault/fault.h"
#include "run/run.h"

#define PAIR_TAG UINT64_C(0x7061697200000000) /* no number of children gets there */

int hly_pair_get(halay_comm_t *parent, enum hly_pair_of what, int from, int to, halay_comm_t **pair)
{
    uint64_t key[2] = {PAIR_TAG + what, (uint64_t)(uint32_t)from << 32 | (uint32_t)to};
    uint64_t id = hly_hash(parent->id, key, sizeof(key));
    halay_context_t *ctx = parent->context;
    halay_comm_t *comm = hly_comm_find(ctx, id);
    int rc = HALAY_OK;
    if (!comm) {
        int world[2] = {hly_comm_world_rank(parent, from), hly_comm_world_rank(parent, to)};
        struct hly_ranks *ranks;
        rc = hly_ranks_make(world, 2, &ranks);
        rc = rc ? rc : hly_comm_make(ctx, id, ranks, parent->rank == to, 1, &comm);
        if (rc)
            return rc;
        comm->parent = parent;
        comm->pair[0] = from;
        comm->pair[1] = to;
        hly_link_append(&parent->pairs, &comm->pair_link);
        hly_fault_inherit(parent, comm);
    }
    comm->deadline_ns = parent->deadline_ns;
    *pair = comm;
    return rc;
}
