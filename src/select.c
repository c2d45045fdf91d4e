/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c - which planner serves a call: the first row that fits. Rows look only at what is equal
 * on all ranks (decision 5), never at pointers or memory: the nodes that a communicator's ranks are
 * on are known to all from the bootstrap. A forced algorithm (HALAY_ALGORITHM) wins wherever its
 * restrictions allow.
 */
#include <assert.h>

#include "core.h"

/* Of the communicators that a row serves. */
enum where {
    ANYWHERE = 0,
    SHARED, /* several nodes, one of them with several ranks */
    APART   /* each rank on a node of its own: a message costs more than the memory's work */
};

static const struct row {
    uint32_t collective;
    uint32_t max_ranks; /* where a proof grows with the square of the ranks */
    uint64_t max_bytes; /* of one rank's vector (allgather, reduce_scatter: of all blocks) */
    bool vector;        /* also where blocks lie anywhere (allgatherv): runs of one block only */
    const char *planner;
    enum where where;
} rows[] = {
    {HALAY_ALLREDUCE, UINT32_MAX, 32768, false, "two_level_short", SHARED},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, false, "two_level", SHARED},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, true, "two_level", SHARED},
    {HALAY_ALLGATHER, 256, UINT64_MAX, true, "two_level", SHARED},
    {HALAY_REDUCE_SCATTER, 256, UINT64_MAX, false, "two_level", SHARED},
    {HALAY_BARRIER, UINT32_MAX, UINT64_MAX, true, "two_level", SHARED},
    {HALAY_ALLREDUCE, 2, 1048576, false, "recursive_doubling", APART},
    {HALAY_ALLREDUCE, UINT32_MAX, 65536, false, "recursive_doubling", APART},
    {HALAY_ALLREDUCE, UINT32_MAX, 16384, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, UINT32_MAX, 524288, false, "circulant"},
    {HALAY_ALLREDUCE, 128, UINT64_MAX, false, "sliced_ring", APART},
    {HALAY_ALLREDUCE, 128, UINT64_MAX, false, "ring"},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, false, "circulant"},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, true, "binomial"},
    {HALAY_ALLGATHER, UINT32_MAX, 65536, false, "circulant"},
    {HALAY_ALLGATHER, 128, UINT64_MAX, true, "ring"},
    {HALAY_ALLGATHER, UINT32_MAX, UINT64_MAX, false, "circulant"},
    {HALAY_ALLGATHER, UINT32_MAX, UINT64_MAX, true, "ring"},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, 65536, false, "circulant"},
    {HALAY_REDUCE_SCATTER, 128, UINT64_MAX, false, "ring"},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, UINT64_MAX, false, "circulant"},
    {HALAY_BARRIER, UINT32_MAX, UINT64_MAX, true, "dissemination"},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, UINT64_MAX, true, "ring"},
    {HALAY_REDUCE, UINT32_MAX, UINT64_MAX, false, "binomial"},
    {HALAY_GATHER, UINT32_MAX, UINT64_MAX, true, "linear"},
    {HALAY_SCATTER, UINT32_MAX, UINT64_MAX, true, "linear"},
    {HALAY_ALLTOALL, UINT32_MAX, UINT64_MAX, true, "pairwise"},
    {HALAY_SCAN, UINT32_MAX, UINT64_MAX, false, "recursive_doubling"},
    {HALAY_EXSCAN, UINT32_MAX, UINT64_MAX, false, "recursive_doubling"},
};

static_assert(sizeof(rows) / sizeof(rows[0]) == HLY_ROWS,
              "context->row_planner has a place for each");

int hly_select_init(halay_context_t *context)
{
    for (size_t i = 0; i < HLY_ROWS; i++) {
        int rc = halay_planner_find((halay_collective_t)rows[i].collective, rows[i].planner,
                                    &context->row_planner[i]);
        if (rc)
            return rc;
    }
    return HALAY_OK;
}

int hly_select(const halay_comm_t *comm, const struct hly_call *call, uint32_t *planner)
{
    halay_collective_t collective = (halay_collective_t)call->brief.collective;
    bool vector = call->brief.flags & HLY_BRIEF_VECTOR;
    uint32_t forced = comm->context->settings.planner[collective];
    if (forced != UINT32_MAX && !vector) {
        *planner = forced;
        return HALAY_OK;
    }
    uint64_t bytes = call->brief.count * halay_type_bytes((halay_type_t)call->brief.type);
    if (collective == HALAY_ALLGATHER || collective == HALAY_REDUCE_SCATTER)
        bytes *= (uint64_t)comm->nranks;
    bool apart = comm->nnodes == (uint32_t)comm->nranks;
    enum where where = comm->nnodes < 2 ? ANYWHERE : apart ? APART : SHARED;
    for (size_t i = 0; i < HLY_ROWS; i++)
        if (rows[i].collective == collective &&
            (rows[i].where == ANYWHERE || rows[i].where == where) && bytes <= rows[i].max_bytes &&
            (uint32_t)comm->nranks <= rows[i].max_ranks && (rows[i].vector || !vector)) {
            *planner = comm->context->row_planner[i];
            return HALAY_OK;
        }
    return HALAY_EPLAN;
}
