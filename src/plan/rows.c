/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c - the table of rows: which planner serves which calls where nothing else was asked for.
 * The first row that fits is taken. A row looks only at what is equal on all ranks (decision 5).
 */
#include "rows.h"

#include <halay/plan.h>

#define ANYWHERE       HLY_ANYWHERE
#define SHARED         HLY_SHARED
#define APART          HLY_APART
#define TOGETHER       HLY_TOGETHER
#define ONE            HLY_ONE
#define OVERSUBSCRIBED HLY_OVERSUBSCRIBED
#define SINGLE         HLY_SINGLE

/* Ranks that are not consecutive on their nodes: a planner of group_blocks.c has a group step for
 * each run of them, so up to one a rank. */
#define DEALT 64

/* The rows of planners with group steps come first: they fit only where a device offers those, and
 * where messages can carry the call's memory. After them those with a stage, for where these
 * cannot. */
static const struct hly_plan_row table[] = {
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "two_level_group", SHARED},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "two_level_group", ONE},
    {HALAY_ALLREDUCE, UINT32_MAX, 8388608, "two_level_stage", SHARED},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "sliced_stage", SHARED},
    {HALAY_ALLREDUCE, UINT32_MAX, 32768, "two_level_short", SHARED},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "two_level", SHARED},
    {HALAY_ALLREDUCE, UINT32_MAX, 65536, "recursive_doubling", SHARED}, /* does not commute */
    {HALAY_ALLREDUCE, 2, 524288, "recursive_doubling", APART},
    {HALAY_ALLREDUCE, UINT32_MAX, 65536, "recursive_doubling", APART},
    {HALAY_ALLREDUCE, 2, 4096, "recursive_multiplying", ONE},
    {HALAY_ALLREDUCE, 2, 31744, "recursive_doubling", ONE},
    {HALAY_ALLREDUCE, 2, 6291456, "ring", ONE},
    {HALAY_ALLREDUCE, 2, UINT64_MAX, "recursive_doubling", ONE},
    {HALAY_ALLREDUCE, 16, 32768, "star", SINGLE},
    {HALAY_ALLREDUCE, 3, 16384, "star", OVERSUBSCRIBED},
    {HALAY_ALLREDUCE, 16, 524288, "two_stars", OVERSUBSCRIBED},
    {HALAY_ALLREDUCE, 16, 32768, "star", OVERSUBSCRIBED}, /* does not commute */
    {HALAY_ALLREDUCE, 4, UINT64_MAX, "two_level", OVERSUBSCRIBED},
    {HALAY_ALLREDUCE, 16, UINT64_MAX, "circulant", OVERSUBSCRIBED},
    {HALAY_ALLREDUCE, 128, 4096, "recursive_multiplying", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, 16384, "recursive_doubling", ANYWHERE},
    {HALAY_ALLREDUCE, 4, 524288, "circulant", APART},
    {HALAY_ALLREDUCE, 4, UINT64_MAX, "sliced_ring", APART},
    {HALAY_ALLREDUCE, 4, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, 524288, "circulant", ANYWHERE},
    {HALAY_ALLREDUCE, 128, UINT64_MAX, "sliced_ring", APART},
    {HALAY_ALLREDUCE, 128, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "circulant", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, 65536, "recursive_doubling", ANYWHERE}, /* does not commute */
    {HALAY_ALLREDUCE, UINT32_MAX, 524288, "halving_doubling", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "double_tree", ANYWHERE},
    {HALAY_BROADCAST, UINT32_MAX, 4194304, "two_level_group", SHARED},
    {HALAY_BROADCAST, UINT32_MAX, 4194304, "two_level_group", ONE},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "sliced_group", SHARED},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "sliced_group", ONE},
    {HALAY_BROADCAST, UINT32_MAX, 4194304, "two_level_stage", SHARED},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "sliced_stage", SHARED},
    {HALAY_BROADCAST, 8, 262144, "two_level", TOGETHER},
    {HALAY_BROADCAST, 8, UINT64_MAX, "chain", TOGETHER},
    {HALAY_BROADCAST, UINT32_MAX, 1048576, "two_level", SHARED},
    {HALAY_BROADCAST, 128, UINT64_MAX, "chain", TOGETHER},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "two_level", SHARED},
    {HALAY_BROADCAST, 4, 1048576, "binomial", APART},
    {HALAY_BROADCAST, UINT32_MAX, 131072, "binomial", APART},
    {HALAY_BROADCAST, UINT32_MAX, 4194304, "scatter_allgather", APART},
    {HALAY_BROADCAST, 64, UINT64_MAX, "chain", APART},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "scatter_allgather", APART},
    {HALAY_BROADCAST, 2, 16384, "flat", ONE}, /* relaxed */
    {HALAY_BROADCAST, 2, UINT64_MAX, "dissemination_by_four", ONE},
    {HALAY_BROADCAST, 16, 16384, "flat", OVERSUBSCRIBED},
    {HALAY_BROADCAST, 4, 32768, "binomial", OVERSUBSCRIBED},
    {HALAY_BROADCAST, 4, 8192, "dissemination_by_four", ONE},
    {HALAY_BROADCAST, 4, 131072, "scatter_allgather", ONE},
    {HALAY_BROADCAST, 4, UINT64_MAX, "chain", ONE},
    {HALAY_BROADCAST, 16, 65536, "star", OVERSUBSCRIBED},
    {HALAY_BROADCAST, 16, UINT64_MAX, "posted", OVERSUBSCRIBED},
    {HALAY_BROADCAST, UINT32_MAX, 8192, "dissemination_by_four", ONE},
    {HALAY_BROADCAST, 128, UINT64_MAX, "scatter_allgather", ONE},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "binomial", ANYWHERE},
    {HALAY_ALLGATHER, 256, UINT64_MAX, "two_level_group", TOGETHER},
    {HALAY_ALLGATHER, DEALT, UINT64_MAX, "two_level_group", SHARED},
    {HALAY_ALLGATHER, 256, UINT64_MAX, "two_level_group", ONE},
    {HALAY_ALLGATHER, 256, UINT64_MAX, "two_level_stage", TOGETHER},
    {HALAY_ALLGATHER, DEALT, UINT64_MAX, "two_level_stage", SHARED},
    {HALAY_ALLGATHER, 256, UINT64_MAX, "two_level", SHARED},
    {HALAY_ALLGATHER, 2, UINT64_MAX, "one_shot", ONE},
    {HALAY_ALLGATHER, 4, 2048, "star", OVERSUBSCRIBED},
    {HALAY_ALLGATHER, 4, UINT64_MAX, "circulant", OVERSUBSCRIBED},
    {HALAY_ALLGATHER, 4, UINT64_MAX, "one_shot", ONE},
    {HALAY_ALLGATHER, 16, 65536, "star", OVERSUBSCRIBED},
    {HALAY_ALLGATHER, 16, UINT64_MAX, "circulant", OVERSUBSCRIBED},
    {HALAY_ALLGATHER, 16, 32768, "one_shot", ONE},
    {HALAY_ALLGATHER, UINT32_MAX, 65536, "circulant", ANYWHERE},
    {HALAY_ALLGATHER, 128, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_ALLGATHER, UINT32_MAX, UINT64_MAX, "circulant", ANYWHERE},
    {HALAY_ALLGATHER, UINT32_MAX, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_REDUCE_SCATTER, 256, UINT64_MAX, "two_level_group", TOGETHER},
    {HALAY_REDUCE_SCATTER, DEALT, UINT64_MAX, "two_level_group", SHARED},
    {HALAY_REDUCE_SCATTER, 256, UINT64_MAX, "two_level_group", ONE},
    {HALAY_REDUCE_SCATTER, 256, UINT64_MAX, "two_level_stage", TOGETHER},
    {HALAY_REDUCE_SCATTER, DEALT, UINT64_MAX, "two_level_stage", SHARED},
    {HALAY_REDUCE_SCATTER, 256, UINT64_MAX, "two_level", SHARED},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, 65536, "circulant", APART},
    {HALAY_REDUCE_SCATTER, 16, 8192, "pairwise", ANYWHERE},
    {HALAY_REDUCE_SCATTER, 16, 65536, "pairwise", OVERSUBSCRIBED},
    {HALAY_REDUCE_SCATTER, 16, 524288, "ring", OVERSUBSCRIBED},
    {HALAY_REDUCE_SCATTER, 4, UINT64_MAX, "pairwise", OVERSUBSCRIBED},
    {HALAY_REDUCE_SCATTER, 16, UINT64_MAX, "ring", OVERSUBSCRIBED},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, 65536, "circulant", ANYWHERE},
    {HALAY_REDUCE_SCATTER, 128, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, UINT64_MAX, "circulant", ANYWHERE},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, UINT64_MAX, "pairwise", ANYWHERE}, /* does not commute */
    {HALAY_BARRIER, UINT32_MAX, UINT64_MAX, "two_level", SHARED},
    {HALAY_BARRIER, UINT32_MAX, UINT64_MAX, "dissemination", APART},
    {HALAY_BARRIER, 2, UINT64_MAX, "dissemination", ONE},
    {HALAY_BARRIER, 16, UINT64_MAX, "star", SINGLE},
    {HALAY_BARRIER, 3, UINT64_MAX, "star", OVERSUBSCRIBED},
    {HALAY_BARRIER, 16, UINT64_MAX, "two_stars", OVERSUBSCRIBED},
    {HALAY_BARRIER, 4, UINT64_MAX, "dissemination", ANYWHERE},
    {HALAY_BARRIER, 128, UINT64_MAX, "dissemination_by_four", ANYWHERE},
    {HALAY_BARRIER, UINT32_MAX, UINT64_MAX, "dissemination", ANYWHERE},
    {HALAY_REDUCE, UINT32_MAX, 65536, "binomial", TOGETHER},
    {HALAY_REDUCE, 32, UINT64_MAX, "chain", TOGETHER},
    {HALAY_REDUCE, UINT32_MAX, UINT64_MAX, "binomial", TOGETHER},
    {HALAY_REDUCE, UINT32_MAX, 131072, "binomial", APART},
    {HALAY_REDUCE, 2, 8192, "binomial", ONE},
    {HALAY_REDUCE, 16, 524288, "two_stars", OVERSUBSCRIBED},
    {HALAY_REDUCE, UINT32_MAX, 8192, "binomial", ANYWHERE},
    {HALAY_REDUCE, UINT32_MAX, UINT64_MAX, "circulant", ANYWHERE},
    {HALAY_REDUCE, UINT32_MAX, UINT64_MAX, "binomial", ANYWHERE}, /* does not commute */
    {HALAY_GATHER, 16, 131072, "binomial", SHARED},
    {HALAY_GATHER, UINT32_MAX, 1048576, "binomial", SHARED},
    {HALAY_GATHER, 7, UINT64_MAX, "linear", ANYWHERE},
    {HALAY_GATHER, UINT32_MAX, 16384, "binomial", APART},
    {HALAY_GATHER, UINT32_MAX, UINT64_MAX, "linear", ANYWHERE},
    {HALAY_SCATTER, 4, UINT64_MAX, "linear", SHARED},
    {HALAY_SCATTER, 16, 65536, "binomial", SHARED},
    {HALAY_SCATTER, UINT32_MAX, 524288, "binomial", SHARED},
    {HALAY_SCATTER, 7, UINT64_MAX, "linear", ANYWHERE},
    {HALAY_SCATTER, UINT32_MAX, 131072, "binomial", APART},
    {HALAY_SCATTER, UINT32_MAX, UINT64_MAX, "linear", ANYWHERE},
    {HALAY_ALLTOALL, 256, UINT64_MAX, "two_level_group", ONE},
    {HALAY_ALLTOALL, 32, 65536, "two_level", SHARED},
    {HALAY_ALLTOALL, 32, UINT64_MAX, "two_level_stage", SHARED},
    {HALAY_ALLTOALL, 32, UINT64_MAX, "pairwise", SHARED},
    {HALAY_ALLTOALL, UINT32_MAX, 8192, "bruck", SHARED},
    {HALAY_ALLTOALL, UINT32_MAX, 131072, "two_level", SHARED},
    {HALAY_ALLTOALL, 256, UINT64_MAX, "two_level_stage", SHARED},
    {HALAY_ALLTOALL, 16, UINT64_MAX, "two_level", OVERSUBSCRIBED},
    {HALAY_ALLTOALL, 3, UINT64_MAX, "pairwise", ANYWHERE},
    {HALAY_ALLTOALL, 8, 4096, "bruck", APART},
    {HALAY_ALLTOALL, 8, UINT64_MAX, "pairwise", ANYWHERE},
    {HALAY_ALLTOALL, UINT32_MAX, 65536, "bruck", APART},
    {HALAY_ALLTOALL, UINT32_MAX, UINT64_MAX, "pairwise", ANYWHERE},
    {HALAY_ALLTOALL, UINT32_MAX, UINT64_MAX, "pairwise_checked", ANYWHERE}, /* alltoallv */
    {HALAY_SCAN, UINT32_MAX, 16384, "recursive_doubling", TOGETHER},
    {HALAY_SCAN, 128, UINT64_MAX, "chain", TOGETHER},
    {HALAY_SCAN, UINT32_MAX, 131072, "recursive_doubling", ANYWHERE},
    {HALAY_SCAN, 24, UINT64_MAX, "chain", ANYWHERE},
    {HALAY_SCAN, UINT32_MAX, UINT64_MAX, "recursive_doubling", ANYWHERE},
    {HALAY_EXSCAN, UINT32_MAX, 16384, "recursive_doubling", TOGETHER},
    {HALAY_EXSCAN, 128, UINT64_MAX, "chain", TOGETHER},
    {HALAY_EXSCAN, UINT32_MAX, 131072, "recursive_doubling", ANYWHERE},
    {HALAY_EXSCAN, 24, UINT64_MAX, "chain", ANYWHERE},
    {HALAY_EXSCAN, UINT32_MAX, UINT64_MAX, "recursive_doubling", ANYWHERE},
};

uint32_t hly_plan_rows(const struct hly_plan_row **rows)
{
    *rows = table;
    return (uint32_t)(sizeof(table) / sizeof(table[0]));
}
