/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder.h - how a planner writes steps.
 *
 * A planner reads params, sets blocks and adds steps; each call returns the new step's index, which
 * later steps name as a predecessor. It holds until hly_builder_finish() sorts the steps (order.c).
 * The first error stays in the builder and makes all further calls do nothing, so a planner checks
 * none. The scratch a plan needs is what its operands touch.
 */
#ifndef HALAY_PLAN_BUILDER_H
#define HALAY_PLAN_BUILDER_H

#include <halay/plan.h>

#define HLY_NONE       HALAY_STEP_NONE
#define HLY_ROUNDS_MAX 32 /* more than log2 of any number of ranks */

struct hly_builder {
    halay_plan_params_t params;
    uint32_t blocks;
    uint32_t scratch_slots;
    uint32_t device_slots; /* set by planners with a stage (plan.h) */
    uint32_t nsteps, steps_room;
    uint32_t noperands, operands_room;
    uint32_t ngroups, groups_room;
    uint32_t nmembers, members_room;
    halay_step_t *steps;
    halay_operand_t *operands;
    halay_group_t *groups;
    halay_member_t *members;
    int error;
};

void hly_builder_init(struct hly_builder *b, const halay_plan_params_t *params);
/* Makes the plan, in one allocation, its steps in order, and frees what the builder holds. */
int hly_builder_finish(struct hly_builder *b, uint32_t planner, halay_plan_t **plan);
/* Puts the steps into the order in which they are started. */
int hly_plan_sort(halay_plan_t *plan);

/* after and after2 may be HLY_NONE. */
uint32_t hly_send(struct hly_builder *b, uint32_t peer, uint32_t edge, halay_operand_t from,
                  uint32_t after, uint32_t after2);
uint32_t hly_recv(struct hly_builder *b, uint32_t peer, uint32_t edge, halay_operand_t to,
                  uint32_t after, uint32_t after2);
uint32_t hly_copy(struct hly_builder *b, halay_operand_t to, halay_operand_t from, uint32_t after,
                  uint32_t after2);
uint32_t hly_reduce(struct hly_builder *b, halay_operand_t to, halay_operand_t left,
                    halay_operand_t right, uint32_t after, uint32_t after2);
/* 2 to 4 sources. */
uint32_t hly_reduce_many(struct hly_builder *b, halay_operand_t to, const halay_operand_t *sources,
                         uint32_t nsources, uint32_t after, uint32_t after2);
/* A group of n members, by rising rank; returns its index. */
uint32_t hly_group(struct hly_builder *b, uint32_t kind, uint32_t n);
/* Its members, to be filled in before the next group is made; NULL after an error. */
halay_member_t *hly_group_members(struct hly_builder *b, uint32_t group);
uint32_t hly_group_step(struct hly_builder *b, uint32_t group, uint32_t channel, halay_operand_t to,
                        halay_operand_t from, uint32_t after, uint32_t after2);
/* A step that follows both: one of them if the other is HLY_NONE, else a JOIN. */
uint32_t hly_after(struct hly_builder *b, uint32_t after, uint32_t after2);

/* A run of blocks of IN or OUT, of SCRATCH, and nothing at all. */
static inline halay_operand_t hly_run(uint32_t buffer, uint32_t first, uint32_t count)
{
    return (halay_operand_t){.buffer = buffer, .first = first, .count = count};
}

static inline halay_operand_t hly_in(uint32_t first, uint32_t count)
{
    return hly_run(HALAY_BUFFER_IN, first, count);
}

static inline halay_operand_t hly_out(uint32_t first, uint32_t count)
{
    return hly_run(HALAY_BUFFER_OUT, first, count);
}

static inline halay_operand_t hly_scratch(uint32_t first, uint32_t count, uint32_t slot)
{
    return (halay_operand_t){
        .buffer = HALAY_BUFFER_SCRATCH, .first = first, .count = count, .slot = slot};
}

static inline halay_operand_t hly_nothing(void)
{
    return hly_run(HALAY_BUFFER_OUT, 0, 0);
}

/* The rank (or block) that stands `up` above, or `down` below, the builder's own, modulo nranks. */
static inline uint32_t hly_up(const struct hly_builder *b, uint32_t up)
{
    return (b->params.rank + up) % b->params.nranks;
}

static inline uint32_t hly_down(const struct hly_builder *b, uint32_t down)
{
    return (b->params.rank + b->params.nranks - down % b->params.nranks) % b->params.nranks;
}

/* The rank (or member of a team) of a number, where the first `folded` pairs have one together. */
static inline uint32_t hly_unfolded(uint32_t number, uint32_t folded)
{
    return number < folded ? 2 * number : number + folded;
}

/* Some ranks that run an algorithm among themselves: all (no shape), or the leaders of one lane. */
struct hly_team {
    uint32_t n, me;
    const halay_shape_t *shape;
    uint32_t lanes, lane;
};

static inline struct hly_team hly_team_of_all(const struct hly_builder *b)
{
    return (struct hly_team){.n = b->params.nranks, .me = b->params.rank};
}

/* The rank of member i, modulo n. two_level.h says who leads a lane. */
uint32_t hly_team_rank(const struct hly_team *team, uint32_t i);

/* Rounds on a circulant graph of n: skip[0] is n, skip[rounds] is 1. */
struct hly_circulant {
    uint32_t rounds;
    uint32_t skip[HLY_ROUNDS_MAX + 1];
    uint32_t sent[HLY_ROUNDS_MAX]; /* who reads the memory into which round k gathers */
};

void hly_circulant_init(struct hly_circulant *c, uint32_t n);

/*
 * Recursive doubling in the team over block 0, from `input` (after step `start`) to OUT; returns
 * the last step. Uses three slots from `slot` on, edges from `edge` on.
 */
uint32_t hly_doubling(struct hly_builder *b, const struct hly_team *team, halay_operand_t input,
                      uint32_t start, uint32_t edge, uint32_t slot);

/*
 * Zero-byte messages, the first ones after `start`; after done[0] and done[1] this rank has heard
 * from the team. Edges count from `edge`.
 */
void hly_hear_team(struct hly_builder *b, const struct hly_team *team, uint32_t start,
                   uint32_t edge, uint32_t done[2]);

/* The gather phase on a circulant graph of all ranks: block `rank` is in OUT after step `own`. */
void hly_circulant_gather(struct hly_builder *b, const struct hly_circulant *c, uint32_t own);

/* Zero-byte messages in rounds of radix four; after the step returned all ranks are heard. */
uint32_t hly_hear_all_by_four(struct hly_builder *b, uint32_t edge);

/* The planners, one file an algorithm; listed in planners.c. */
void hly_ring_allreduce(struct hly_builder *b);
void hly_sliced_ring_allreduce(struct hly_builder *b);
void hly_ring_allgather(struct hly_builder *b);
void hly_ring_reduce_scatter(struct hly_builder *b);
void hly_recursive_doubling_allreduce(struct hly_builder *b);
void hly_circulant_allreduce(struct hly_builder *b);
void hly_circulant_allgather(struct hly_builder *b);
void hly_circulant_reduce_scatter(struct hly_builder *b);
void hly_binomial_broadcast(struct hly_builder *b);
void hly_dissemination_barrier(struct hly_builder *b);

void hly_two_level_allreduce(struct hly_builder *b);
void hly_two_level_short_allreduce(struct hly_builder *b);
void hly_two_level_broadcast(struct hly_builder *b);
void hly_two_level_allgather(struct hly_builder *b);
void hly_two_level_reduce_scatter(struct hly_builder *b);
void hly_two_level_barrier(struct hly_builder *b);
void hly_two_level_alltoall(struct hly_builder *b);
void hly_two_level_group_alltoall(struct hly_builder *b);
void hly_two_level_stage_alltoall(struct hly_builder *b);
void hly_two_level_group_allreduce(struct hly_builder *b);
void hly_two_level_stage_allreduce(struct hly_builder *b);
void hly_sliced_stage_allreduce(struct hly_builder *b);
void hly_two_level_group_reduce_scatter(struct hly_builder *b);
void hly_two_level_group_allgather(struct hly_builder *b);
void hly_two_level_group_broadcast(struct hly_builder *b);
void hly_sliced_group_broadcast(struct hly_builder *b);
void hly_two_level_stage_reduce_scatter(struct hly_builder *b);
void hly_two_level_stage_allgather(struct hly_builder *b);
void hly_two_level_stage_broadcast(struct hly_builder *b);
void hly_sliced_stage_broadcast(struct hly_builder *b);

void hly_binomial_reduce(struct hly_builder *b);
void hly_linear_gather(struct hly_builder *b);
void hly_linear_scatter(struct hly_builder *b);
void hly_pairwise_alltoall(struct hly_builder *b);
void hly_checked_alltoall(struct hly_builder *b);
void hly_doubling_scan(struct hly_builder *b);
void hly_doubling_exscan(struct hly_builder *b);
void hly_binomial_gather(struct hly_builder *b);
void hly_binomial_scatter(struct hly_builder *b);
void hly_bruck_alltoall(struct hly_builder *b);
void hly_circulant_reduce(struct hly_builder *b);
void hly_chain_reduce(struct hly_builder *b);
void hly_chain_scan(struct hly_builder *b);
void hly_chain_exscan(struct hly_builder *b);
void hly_one_shot_allreduce(struct hly_builder *b);
void hly_recursive_multiplying_allreduce(struct hly_builder *b);
void hly_halving_doubling_allreduce(struct hly_builder *b);
void hly_double_tree_allreduce(struct hly_builder *b);
void hly_chain_broadcast(struct hly_builder *b);
void hly_scatter_allgather_broadcast(struct hly_builder *b);
void hly_knomial_broadcast(struct hly_builder *b);
void hly_bruck_allgather(struct hly_builder *b);
void hly_recursive_doubling_allgather(struct hly_builder *b);
void hly_pairwise_reduce_scatter(struct hly_builder *b);
void hly_dissemination_by_four_barrier(struct hly_builder *b);
void hly_dissemination_broadcast(struct hly_builder *b);
void hly_one_shot_allgather(struct hly_builder *b);
void hly_star_barrier(struct hly_builder *b);
void hly_star_allreduce(struct hly_builder *b);
void hly_star_allgather(struct hly_builder *b);
void hly_two_stars_barrier(struct hly_builder *b);
void hly_two_stars_allreduce(struct hly_builder *b);
void hly_two_stars_reduce(struct hly_builder *b);
void hly_star_broadcast(struct hly_builder *b);
void hly_flat_broadcast(struct hly_builder *b);
void hly_posted_broadcast(struct hly_builder *b);
void hly_sliced_posted_broadcast(struct hly_builder *b);

#endif
