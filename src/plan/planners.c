/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planners.c - the table of planners, and what is common to all of them.
 * A planner's index is part of every plan and of its hash: new rows go to the end.
 */
#include <stddef.h>
#include <string.h>

#include "builder.h"

struct row {
    halay_planner_info_t info;
    void (*make)(struct hly_builder *b);
};

#define COMMUTATIVE  HALAY_PLANNER_COMMUTATIVE
#define RING_SOURCE  "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms, JPDC 69 (2009)"
#define CIRC_SOURCE  "Traeff: circulant graphs, any number of ranks, arXiv 2407.18004 (2024)"
#define RD_SOURCE    "Thakur, Rabenseifner, Gropp: Collective operations in MPICH, IJHPCA 19 (2005)"
#define BINOM_SOURCE "binomial tree (Chan et al., CCPE 19, 2007) beside a dissemination"
#define DISS_SOURCE                                                                                \
    "Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, IJPP 17 (1988)"

#define LINEAR_SOURCE                                                                              \
    "Chan et al., Collective communication, CCPE 19 (2007), beside a dissemination"
#define CHAIN_SOURCE "pipelined chain: Chan et al., Collective communication, CCPE 19 (2007)"
#define BRUCK_SOURCE "Bruck et al.: Efficient algorithms for all-to-all, IEEE TPDS 8 (1997)"
#define PACKS        (HALAY_PLANNER_RUNS | HALAY_PLANNER_EQUAL)
#define SCAN_SOURCE  "Hillis, Steele: Data parallel algorithms, CACM 29 (1986)"

#define SHAPE     HALAY_PLANNER_SHAPE
#define BLOCKWISE HALAY_PLANNER_BLOCKWISE
#define LANES_SOURCE                                                                               \
    "multi-leader: Bayatpour et al., Scalable reduction collectives with DPML, SC (2017)"
#define NODES_SOURCE                                                                               \
    "two levels: Luo et al., HAN: hierarchical autotuned collectives, CLUSTER (2020)"

#define STEPS_SOURCE                                                                               \
    "Traeff, Rougier: MPI collectives and datatypes for hierarchical all-to-all, EuroMPI (2014)"

#define PAIRS_SOURCE                                                                               \
    "pairs between nodes (Thakur et al., IJHPCA 19, 2005), a device's library in them"

#define SHORT       HALAY_PLANNER_SHORT
#define RUNS        HALAY_PLANNER_RUNS
#define DIRECT      "folklore: every input to every rank, each of which sums alone"
#define ALL_SOURCE  "folklore: every block to every rank"
#define ROUNDS      HALAY_PLANNER_ROUNDS
#define GROUP       HALAY_PLANNER_GROUP
#define STAGE       HALAY_PLANNER_STAGE
#define POST_SOURCE "folklore: copied once, and sent from there to all"
#define STAR_SOURCE "folklore: all tell one, which tells all"
#define TWO_SOURCE  "folklore: two that all tell, which tell one another, then all"
#define FLAT_SOURCE "folklore: the root tells all"
#define PIPE_SOURCE "Watts, van de Geijn: A pipelined broadcast for meshes, PPL 5 (1995)"
#define KNOM_SOURCE "binomial tree (Chan et al., CCPE 19, 2007) in base four beside a dissemination"
#define MULT_SOURCE                                                                                \
    "Ruefenacht, Bull, Booth: Generalisation of recursive doubling, Parallel Computing 69 (2017)"
#define TREES_SOURCE "Sanders, Speck, Traeff: Two-tree algorithms, Parallel Computing 35 (2009)"
#define VDG_SOURCE   "Barnett et al.: Interprocessor collective communication library, SHPCC (1994)"
#define FOUR_SOURCE  "Hoefler et al.: Fast barrier synchronization for InfiniBand, IPDPS (2006)"
#define RIDES_SOURCE                                                                               \
    "the data ride on it: Hoefler et al.: Fast barrier synchronization, IPDPS (2006)"

static const struct row rows[] = {
    {{"ring", HALAY_ALLREDUCE, 1, COMMUTATIVE, RING_SOURCE}, hly_ring_allreduce},
    {{"recursive_doubling", HALAY_ALLREDUCE, 1, HALAY_PLANNER_SHORT, RD_SOURCE},
     hly_recursive_doubling_allreduce},
    {{"circulant", HALAY_ALLREDUCE, 1, COMMUTATIVE | HALAY_PLANNER_WRAPS, CIRC_SOURCE},
     hly_circulant_allreduce},
    {{"binomial", HALAY_BROADCAST, 1, 0, BINOM_SOURCE}, hly_binomial_broadcast},
    {{"ring", HALAY_ALLGATHER, 1, 0, RING_SOURCE}, hly_ring_allgather},
    {{"circulant", HALAY_ALLGATHER, 1, RUNS, CIRC_SOURCE}, hly_circulant_allgather},
    {{"ring", HALAY_REDUCE_SCATTER, 1, COMMUTATIVE, RING_SOURCE}, hly_ring_reduce_scatter},
    {{"circulant", HALAY_REDUCE_SCATTER, 1, RUNS | COMMUTATIVE, CIRC_SOURCE},
     hly_circulant_reduce_scatter},
    {{"dissemination", HALAY_BARRIER, 1, 0, DISS_SOURCE}, hly_dissemination_barrier},
    {{"two_level", HALAY_ALLREDUCE, 1, SHAPE | COMMUTATIVE, LANES_SOURCE}, hly_two_level_allreduce},
    {{"two_level_short", HALAY_ALLREDUCE, 1, SHAPE | BLOCKWISE | HALAY_PLANNER_SHORT, NODES_SOURCE},
     hly_two_level_short_allreduce},
    {{"two_level", HALAY_BROADCAST, 1, SHAPE, NODES_SOURCE}, hly_two_level_broadcast},
    {{"two_level", HALAY_ALLGATHER, 1, SHAPE, LANES_SOURCE}, hly_two_level_allgather},
    {{"two_level", HALAY_REDUCE_SCATTER, 1, SHAPE | COMMUTATIVE, LANES_SOURCE},
     hly_two_level_reduce_scatter},
    {{"two_level", HALAY_BARRIER, 1, SHAPE, NODES_SOURCE}, hly_two_level_barrier},
    {{"sliced_ring", HALAY_ALLREDUCE, 1, COMMUTATIVE, RING_SOURCE}, hly_sliced_ring_allreduce},
    {{"binomial", HALAY_REDUCE, 1, HALAY_PLANNER_SHORT, BINOM_SOURCE}, hly_binomial_reduce},
    {{"linear", HALAY_GATHER, 1, 0, LINEAR_SOURCE}, hly_linear_gather},
    {{"linear", HALAY_SCATTER, 1, 0, LINEAR_SOURCE}, hly_linear_scatter},
    {{"pairwise", HALAY_ALLTOALL, 1, HALAY_PLANNER_EQUAL, RD_SOURCE}, hly_pairwise_alltoall},
    {{"recursive_doubling", HALAY_SCAN, 1, HALAY_PLANNER_SHORT, SCAN_SOURCE}, hly_doubling_scan},
    {{"recursive_doubling", HALAY_EXSCAN, 1, HALAY_PLANNER_SHORT, SCAN_SOURCE},
     hly_doubling_exscan},
    {{"binomial", HALAY_GATHER, 1, PACKS, BINOM_SOURCE}, hly_binomial_gather},
    {{"binomial", HALAY_SCATTER, 1, PACKS, BINOM_SOURCE}, hly_binomial_scatter},
    {{"bruck", HALAY_ALLTOALL, 1, PACKS | HALAY_PLANNER_SHORT, BRUCK_SOURCE}, hly_bruck_alltoall},
    {{"circulant", HALAY_REDUCE, 1, COMMUTATIVE, CIRC_SOURCE}, hly_circulant_reduce},
    {{"chain", HALAY_REDUCE, 1, 0, CHAIN_SOURCE}, hly_chain_reduce},
    {{"chain", HALAY_SCAN, 1, 0, CHAIN_SOURCE}, hly_chain_scan},
    {{"chain", HALAY_EXSCAN, 1, 0, CHAIN_SOURCE}, hly_chain_exscan},
    {{"one_shot", HALAY_ALLREDUCE, 1, SHORT, DIRECT}, hly_one_shot_allreduce},
    {{"recursive_multiplying", HALAY_ALLREDUCE, 1, SHORT, MULT_SOURCE},
     hly_recursive_multiplying_allreduce},
    {{"halving_doubling", HALAY_ALLREDUCE, 1, 0, RD_SOURCE}, hly_halving_doubling_allreduce},
    {{"double_tree", HALAY_ALLREDUCE, 1, 0, TREES_SOURCE}, hly_double_tree_allreduce},
    {{"chain", HALAY_BROADCAST, 1, 0, PIPE_SOURCE}, hly_chain_broadcast},
    {{"scatter_allgather", HALAY_BROADCAST, 2, HALAY_PLANNER_WRAPS, VDG_SOURCE},
     hly_scatter_allgather_broadcast},
    {{"knomial", HALAY_BROADCAST, 1, SHORT, KNOM_SOURCE}, hly_knomial_broadcast},
    {{"bruck", HALAY_ALLGATHER, 1, RUNS, BRUCK_SOURCE}, hly_bruck_allgather},
    {{"recursive_doubling", HALAY_ALLGATHER, 1, RUNS | HALAY_PLANNER_POWER_OF_TWO, RD_SOURCE},
     hly_recursive_doubling_allgather},
    {{"pairwise", HALAY_REDUCE_SCATTER, 1, 0, RD_SOURCE}, hly_pairwise_reduce_scatter},
    {{"dissemination_by_four", HALAY_BARRIER, 1, 0, FOUR_SOURCE},
     hly_dissemination_by_four_barrier},
    {{"pairwise_checked", HALAY_ALLTOALL, 1, 0, RD_SOURCE}, hly_checked_alltoall},
    {{"two_level", HALAY_ALLTOALL, 1, SHAPE | PACKS, STEPS_SOURCE}, hly_two_level_alltoall},
    {{"dissemination_by_four", HALAY_BROADCAST, 1, SHORT, RIDES_SOURCE},
     hly_dissemination_broadcast},
    {{"one_shot", HALAY_ALLGATHER, 1, 0, ALL_SOURCE}, hly_one_shot_allgather},
    {{"star", HALAY_BARRIER, 1, 0, STAR_SOURCE}, hly_star_barrier},
    {{"star", HALAY_ALLREDUCE, 1, SHORT, STAR_SOURCE}, hly_star_allreduce},
    {{"star", HALAY_ALLGATHER, 1, RUNS | SHORT, STAR_SOURCE}, hly_star_allgather},
    {{"posted", HALAY_BROADCAST, 1, ROUNDS, POST_SOURCE}, hly_posted_broadcast},
    {{"two_stars", HALAY_BARRIER, 1, 0, TWO_SOURCE}, hly_two_stars_barrier},
    {{"two_stars", HALAY_ALLREDUCE, 1, SHORT | COMMUTATIVE, TWO_SOURCE}, hly_two_stars_allreduce},
    {{"star", HALAY_BROADCAST, 1, SHORT, STAR_SOURCE}, hly_star_broadcast},
    {{"sliced_posted", HALAY_BROADCAST, 2, ROUNDS, POST_SOURCE}, hly_sliced_posted_broadcast},
    {{"two_stars", HALAY_REDUCE, 1, SHORT | COMMUTATIVE, TWO_SOURCE}, hly_two_stars_reduce},
    {{"flat", HALAY_BROADCAST, 1, SHORT | HALAY_PLANNER_RELAXED, FLAT_SOURCE}, hly_flat_broadcast},
    {{"two_level_group", HALAY_ALLREDUCE, 1, SHAPE | COMMUTATIVE | HALAY_PLANNER_GROUP,
      LANES_SOURCE},
     hly_two_level_group_allreduce},
    {{"two_level_group", HALAY_REDUCE_SCATTER, 1, SHAPE | COMMUTATIVE | GROUP | PACKS,
      LANES_SOURCE},
     hly_two_level_group_reduce_scatter},
    {{"two_level_group", HALAY_ALLGATHER, 2, SHAPE | GROUP | RUNS, LANES_SOURCE},
     hly_two_level_group_allgather},
    {{"two_level_group", HALAY_BROADCAST, 1, SHAPE | GROUP, LANES_SOURCE},
     hly_two_level_group_broadcast},
    {{"sliced_group", HALAY_BROADCAST, 1, SHAPE | GROUP, LANES_SOURCE}, hly_sliced_group_broadcast},
    {{"two_level_stage", HALAY_ALLREDUCE, 1, SHAPE | COMMUTATIVE | GROUP | STAGE, LANES_SOURCE},
     hly_two_level_stage_allreduce},
    {{"sliced_stage", HALAY_ALLREDUCE, 1, SHAPE | COMMUTATIVE | GROUP | STAGE, LANES_SOURCE},
     hly_sliced_stage_allreduce},
    {{"two_level_stage", HALAY_REDUCE_SCATTER, 1, SHAPE | COMMUTATIVE | GROUP | STAGE | PACKS,
      LANES_SOURCE},
     hly_two_level_stage_reduce_scatter},
    {{"two_level_stage", HALAY_ALLGATHER, 1, SHAPE | GROUP | STAGE | RUNS, LANES_SOURCE},
     hly_two_level_stage_allgather},
    {{"two_level_stage", HALAY_BROADCAST, 1, SHAPE | GROUP | STAGE, LANES_SOURCE},
     hly_two_level_stage_broadcast},
    {{"sliced_stage", HALAY_BROADCAST, 1, SHAPE | GROUP | STAGE, LANES_SOURCE},
     hly_sliced_stage_broadcast},
    {{"two_level_group", HALAY_ALLTOALL, 1, SHAPE | GROUP | PACKS, STEPS_SOURCE},
     hly_two_level_group_alltoall},
    {{"two_level_stage", HALAY_ALLTOALL, 1, SHAPE | GROUP | STAGE | PACKS, PAIRS_SOURCE},
     hly_two_level_stage_alltoall},
};

#define NROWS ((uint32_t)(sizeof(rows) / sizeof(rows[0])))

const char *halay_collective_name(halay_collective_t collective)
{
    static const char *const names[HALAY_COLLECTIVE_COUNT] = {
        "allreduce", "broadcast", "allgather", "reduce_scatter", "barrier", "reduce",
        "gather",    "scatter",   "alltoall",  "scan",           "exscan"};

    return (uint32_t)collective < HALAY_COLLECTIVE_COUNT ? names[collective] : "unknown";
}

int halay_collective_rooted(halay_collective_t collective)
{
    return collective == HALAY_BROADCAST || collective == HALAY_REDUCE ||
           collective == HALAY_GATHER || collective == HALAY_SCATTER;
}

int halay_collective_reduces(halay_collective_t collective)
{
    return collective == HALAY_ALLREDUCE || collective == HALAY_REDUCE_SCATTER ||
           collective == HALAY_REDUCE || collective == HALAY_SCAN || collective == HALAY_EXSCAN;
}

uint32_t halay_planner_count(void)
{
    return NROWS;
}

const halay_planner_info_t *halay_planner_get(uint32_t planner)
{
    return planner < NROWS ? &rows[planner].info : NULL;
}

int halay_planner_find(halay_collective_t collective, const char *name, uint32_t *planner)
{
    for (uint32_t i = 0; name && planner && i < NROWS; i++) {
        if (rows[i].info.collective == (uint32_t)collective &&
            strcmp(rows[i].info.name, name) == 0) {
            *planner = i;
            return 0;
        }
    }
    return HALAY_EINVAL;
}

int halay_planner_serves(uint32_t planner, const halay_planner_call_t *call, const char **why)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    const char *no = NULL;

    if (!info || !call || call->nranks == 0) {
        no = "there is no such planner or call";
    } else if (info->restrictions & HALAY_PLANNER_POWER_OF_TWO &&
               (call->nranks & (call->nranks - 1)) != 0) {
        no = "needs a power of two of ranks";
    } else if (info->restrictions & COMMUTATIVE && !call->commutative) {
        no = "the operation does not commute";
    } else if (info->restrictions & BLOCKWISE && !call->commutative && call->scattered) {
        no = "the operation does not commute, and the ranks of a node are not consecutive";
    } else if (info->restrictions & HALAY_PLANNER_RUNS && call->vector) {
        no = "handles several blocks at once, which lie anywhere here";
    } else if (info->restrictions & HALAY_PLANNER_EQUAL && call->vector) {
        no = "needs blocks of equal size";
    } else if (info->restrictions & HALAY_PLANNER_OUT_OF_PLACE && call->in_place) {
        no = "does not work in place";
    } else if (info->restrictions & HALAY_PLANNER_RELAXED && !call->relaxed) {
        no = "not all hear from all: only for a call that is the same as the one before it";
    } else if (info->restrictions & HALAY_PLANNER_GROUP && !call->group) {
        no = "no device offers group steps";
    } else if (info->restrictions & HALAY_PLANNER_STAGE && !call->apart) {
        no = "is for memory that messages cannot carry";
    } else if (info->restrictions & HALAY_PLANNER_GROUP && call->apart && call->nodes > 1 &&
               !(info->restrictions & HALAY_PLANNER_STAGE) &&
               (!call->direct ||
                halay_planner_indirect(planner, call->nranks, call->nodes, call->uneven))) {
        no = "its messages carry the call's memory, which the processor cannot touch";
    } else if (call->count < info->min_count) {
        no = "is meant for longer vectors";
    }
    if (why) {
        *why = no;
    }
    return !no;
}

/* In plans with group steps messages with data go between nodes only; but those of a
 * reduce_scatter, where a leader's lane has ranks that it does not lead. */
static const char *group_indirect(const halay_planner_info_t *info, uint32_t nodes, uint32_t uneven)
{
    if (info->restrictions & STAGE)
        return "this algorithm's messages carry the stage";
    if (nodes < 2)
        return "this algorithm's messages carry nothing";
    if (info->collective == HALAY_ALLTOALL)
        return "data are sent inside of nodes";
    return info->collective == HALAY_REDUCE_SCATTER && uneven
               ? "the nodes have different numbers of ranks, so data are sent inside of nodes"
               : NULL;
}

const char *halay_planner_indirect(uint32_t planner, uint32_t nranks, uint32_t nodes,
                                   uint32_t uneven)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    if (!info || nranks < 2)
        return "there are no messages";
    if (info->restrictions & GROUP)
        return group_indirect(info, nodes, uneven);
    if (nodes != nranks)
        return "ranks share a node";
    if (info->restrictions & (HALAY_PLANNER_RUNS | HALAY_PLANNER_WRAPS))
        return "this algorithm's messages lie in two places; another one may serve "
               "(HALAY_ALGORITHM)";
    return NULL;
}

int halay_plan_commutative(const halay_plan_t *plan)
{
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    uint32_t restrictions = info ? info->restrictions : COMMUTATIVE;
    int scattered = (plan->shape & HALAY_SHAPE_SCATTERED) != 0;

    return restrictions & COMMUTATIVE || (restrictions & BLOCKWISE && scattered);
}

static int check_params(const struct row *row, const halay_plan_params_t *params)
{
    if (params->collective != row->info.collective || params->nranks == 0 ||
        params->rank >= params->nranks || params->root >= params->nranks || params->in_place > 1 ||
        (params->root != 0 && !halay_collective_rooted((halay_collective_t)params->collective))) {
        return HALAY_EINVAL;
    }
    if (params->shape && params->shape->nranks != params->nranks) {
        return HALAY_EINVAL;
    }
    if (params->nranks > HALAY_PLAN_STEPS_MAX ||
        ((row->info.restrictions & HALAY_PLANNER_POWER_OF_TWO) &&
         (params->nranks & (params->nranks - 1)) != 0)) {
        return HALAY_EUNSUPPORTED;
    }
    return 0;
}

int halay_plan_make(uint32_t planner, const halay_plan_params_t *params, halay_plan_t **plan)
{
    if (planner >= NROWS || !params || !plan) {
        return HALAY_EINVAL;
    }
    int result = check_params(&rows[planner], params);
    if (result < 0) {
        return result;
    }
    struct hly_builder b;
    halay_shape_t *one_node = NULL;
    hly_builder_init(&b, params);
    if (!params->shape && rows[planner].info.restrictions & SHAPE) {
        result = halay_shape_make(NULL, params->nranks, &one_node);
        if (result < 0) {
            return result;
        }
        b.params.shape = one_node;
    }
    rows[planner].make(&b);
    result = hly_builder_finish(&b, planner, plan);
    halay_shape_free(one_node);
    return result;
}
