/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_peers.c - how many ranks of other nodes a rank has to be connected to: by the plans that
 * selection takes of all sizes together, in proportion to the logarithm of the ranks. Not so in an
 * alltoall, and at the root of a long reduce, gather or scatter, to or from whom blocks go
 * straight.
 */
#include <stdbool.h>

#include "select/select.h"
#include "test_plan.h"

enum { MOST = 4096, ROOT = 0 };

static const halay_collective_t collectives[] = {
    HALAY_ALLREDUCE, HALAY_BROADCAST, HALAY_ALLGATHER, HALAY_REDUCE_SCATTER,
    HALAY_BARRIER,   HALAY_REDUCE,    HALAY_SCAN,      HALAY_EXSCAN};

static halay_context_t context;
static halay_comm_t comm;
static bool met[MOST];

static uint32_t log2_up(uint32_t n)
{
    uint32_t l = 0;
    while (1u << l < n)
        l++;
    return l;
}

/* Adds the ranks of other nodes that the plan of this call needs; returns how many it needs. */
static uint32_t meet(halay_collective_t collective, uint64_t count, uint32_t rank,
                     const halay_shape_t *shape)
{
    struct hly_call call = {
        .desc = {.collective = (uint8_t)collective, .count = count, .type = HALAY_UINT8}};
    halay_plan_params_t params = {.collective = collective,
                                  .nranks = shape->nranks,
                                  .rank = rank,
                                  .root = ROOT,
                                  .shape = shape};
    char reason[192] = "";
    static bool here[MOST];
    halay_plan_t *plan;
    uint32_t planner, n = 0;
    CHECK(!hly_select(&comm, &call, &planner, reason, sizeof(reason)), "%s", reason);
    CHECK(!halay_plan_make(planner, &params, &plan), "%s", halay_planner_get(planner)->name);
    memset(here, 0, sizeof(here));
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        uint32_t peer = plan->steps[i].peer;
        if (peer == HALAY_STEP_NONE || plan->steps[i].kind == HALAY_STEP_GROUP ||
            shape->node[peer] == shape->node[rank])
            continue;
        n += !here[peer];
        here[peer] = met[peer] = true;
    }
    halay_plan_free(plan);
    return n;
}

/* Of a rank, over all collectives and sizes: a doubling each way, and its neighbours of a ring. */
static uint32_t count(uint32_t rank, const halay_shape_t *shape)
{
    const uint32_t log = log2_up(shape->nranks);
    uint32_t all = 0;
    memset(met, 0, sizeof(met));
    for (size_t c = 0; c < sizeof(collectives) / sizeof(collectives[0]); c++)
        for (uint64_t bytes = 8; bytes <= 1u << 28; bytes *= 8) {
            if (collectives[c] == HALAY_REDUCE && rank == ROOT)
                continue;
            uint32_t n = meet(collectives[c], bytes, rank, shape);
            CHECK(n <= 2 * log + 4, "%s of %llu bytes: %u of %u ranks on %u nodes",
                  halay_collective_name(collectives[c]), (unsigned long long)bytes, n,
                  shape->nranks, shape->nnodes);
        }
    for (uint32_t r = 0; r < shape->nranks; r++)
        all += met[r];
    CHECK(all <= 2 * log + 4, "%u connections for %u ranks on %u nodes", all, shape->nranks,
          shape->nnodes);
    return all;
}

int main(void)
{
    char error[256];
    halay_selection_t *selection;
    if (halay_selection_make(NULL, NULL, NULL, error, sizeof(error), &selection))
        return 1;
    context.settings.selection = selection;
    comm.context = &context;
    for (uint32_t node = 1; node <= 8; node *= 8)
        for (uint32_t p = 16; p <= MOST; p *= 4) {
            uint32_t node_of[MOST], most = 0;
            halay_shape_t *shape;
            for (uint32_t r = 0; r < p; r++)
                node_of[r] = r / node;
            if (halay_shape_make(node_of, p, &shape))
                return 1;
            comm.nranks = (int)p;
            comm.nnodes = shape->nnodes;
            const uint32_t ranks[] = {0, 1, p / 2, p / 2 + 1, p - 2, p - 1};
            for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
                uint32_t n = count(ranks[i], shape);
                most = n > most ? n : most;
            }
            printf("%4u ranks, %u on a node: at most %2u connections, log2 is %u\n", p, node, most,
                   log2_up(p));
            halay_shape_free(shape);
        }
    halay_selection_free(selection);
    return failures != 0;
}
