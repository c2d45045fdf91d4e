/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove_form.c - every plan by itself: all numbers in range, the plans of one collective.
 * It reads nothing through an index that it has not checked; those who come after need not check.
 */
#include <inttypes.h>
#include <string.h>

#include "group.h"
#include "prove.h"

/* Blocks of a broadcast are the planner's choice: one a rank, or as many pieces; any use of more is
 * far off. */
#define BROADCAST_BLOCKS_MAX (1u << 16)

static int check_params(struct hly_prover *v, uint32_t rank)
{
    const halay_plan_t *plan = v->plans[rank];
    const halay_plan_params_t *params = &plan->params;

    if (params->collective != v->params.collective || params->root != v->params.root ||
        params->in_place != v->params.in_place || plan->planner != v->plans[0]->planner ||
        plan->blocks != v->blocks || plan->shape != v->plans[0]->shape) {
        return hly_refuse(
            v, rank, HLY_NONE,
            "collective, root, in_place, planner, blocks or shape differ from rank 0's");
    }
    if (params->nranks != v->nranks || params->rank != rank) {
        return hly_refuse(v, rank, HLY_NONE, "says it is for rank %u of %u, not of %u",
                          params->rank, params->nranks, v->nranks);
    }
    return 0;
}

static int check_collective(struct hly_prover *v)
{
    uint32_t least = v->nranks, most = v->nranks;

    switch (v->params.collective) {
    case HALAY_ALLREDUCE:
    case HALAY_REDUCE:
    case HALAY_SCAN:
    case HALAY_EXSCAN:
        least = 1;
        most = v->nranks * HALAY_PLAN_SLICES_MAX;
        break;
    case HALAY_BROADCAST:
        least = 1;
        most = v->nranks > BROADCAST_BLOCKS_MAX ? v->nranks : BROADCAST_BLOCKS_MAX;
        break;
    case HALAY_ALLGATHER:
    case HALAY_REDUCE_SCATTER:
    case HALAY_GATHER:
    case HALAY_SCATTER:
    case HALAY_ALLTOALL:
        break;
    case HALAY_BARRIER:
        least = most = 0;
        break;
    default:
        return hly_refuse(v, 0, HLY_NONE, "collective %u is unknown", v->params.collective);
    }
    if (v->blocks < least || v->blocks > most) {
        return hly_refuse(v, 0, HLY_NONE, "%u blocks, where %u to %u are possible", v->blocks,
                          least, most);
    }
    if (v->params.in_place > 1 || v->params.root >= v->nranks ||
        (v->params.root != 0 &&
         !halay_collective_rooted((halay_collective_t)v->params.collective))) {
        return hly_refuse(v, 0, HLY_NONE, "root %u or in_place %u is not possible", v->params.root,
                          v->params.in_place);
    }
    return 0;
}

/* The operand is of a buffer that this rank has, and may be written if it is. */
static int check_buffer(struct hly_prover *v, uint32_t rank, uint32_t index, uint32_t which,
                        int written)
{
    static const char *const names[] = {"in", "out"};
    const halay_plan_t *plan = v->plans[rank];
    const halay_operand_t *operand = &plan->operands[plan->steps[index].operand + which];
    struct hly_memory memory;

    hly_memory_init(&memory, v, rank);
    if (memory.none[operand->buffer]) {
        return hly_refuse(v, rank, index, "operand %u is of %s, which this rank has not", which,
                          names[operand->buffer]);
    }
    if (memory.own[operand->buffer] && (operand->first != rank || operand->count != 1)) {
        return hly_refuse(v, rank, index, "operand %u is not this rank's one block of the buffer",
                          which);
    }
    if (operand->buffer == HALAY_BUFFER_IN && written &&
        !(v->params.collective == HALAY_REDUCE_SCATTER && v->params.in_place)) {
        return hly_refuse(v, rank, index, "writes to in, which is the user's");
    }
    if (operand->buffer == HALAY_BUFFER_OUT && written && rank == 0 &&
        v->params.collective == HALAY_EXSCAN) {
        return hly_refuse(v, rank, index, "writes to out, which an exscan leaves alone here");
    }
    return 0;
}

static int check_operand(struct hly_prover *v, uint32_t rank, uint32_t index, uint32_t which,
                         int written)
{
    const halay_plan_t *plan = v->plans[rank];
    const halay_operand_t *operand = &plan->operands[plan->steps[index].operand + which];

    if (operand->buffer > HALAY_BUFFER_SCRATCH) {
        return hly_refuse(v, rank, index, "operand %u is of unknown buffer %u", which,
                          operand->buffer);
    }
    if (operand->buffer != HALAY_BUFFER_SCRATCH && operand->slot != 0) {
        return hly_refuse(v, rank, index, "operand %u has slot %u, but is not of scratch", which,
                          operand->slot);
    }
    if (operand->count > v->blocks || (operand->first >= v->blocks && operand->first != 0)) {
        return hly_refuse(v, rank, index, "operand %u is %u blocks from %u on, of %u blocks", which,
                          operand->count, operand->first, v->blocks);
    }
    if (operand->buffer == HALAY_BUFFER_SCRATCH &&
        (uint64_t)operand->slot + operand->count > plan->scratch_slots) {
        return hly_refuse(v, rank, index, "operand %u is slots %u to %" PRIu64 " of %u declared",
                          which, operand->slot, (uint64_t)operand->slot + operand->count,
                          plan->scratch_slots);
    }
    return operand->count == 0 ? 0 : check_buffer(v, rank, index, which, written);
}

/* Messages and reductions work on the stage, if there is one, and groups never do. */
static int check_stage(struct hly_prover *v, uint32_t rank, uint32_t index, uint32_t which)
{
    const halay_plan_t *plan = v->plans[rank];
    const halay_step_t *step = &plan->steps[index];
    const halay_operand_t *operand = &plan->operands[step->operand + which];
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    int scratch = operand->buffer == HALAY_BUFFER_SCRATCH;

    if (!info || !(info->restrictions & HALAY_PLANNER_STAGE) || operand->count == 0) {
        return 0;
    }
    int on_stage = scratch && operand->slot >= plan->device_slots;
    if (scratch && !on_stage && operand->count > plan->device_slots - operand->slot) {
        return hly_refuse(v, rank, index, "operand %u is partly on the stage", which);
    }
    if (step->kind == HALAY_STEP_COPY || on_stage == (step->kind != HALAY_STEP_GROUP)) {
        return 0;
    }
    return hly_refuse(v, rank, index, "operand %u is %s the stage", which,
                      on_stage ? "on" : "not on");
}

/* Runs of the same buffer, which begin at different blocks, have a block in common. */
static int runs_overlap(const struct hly_prover *v, const halay_operand_t *a,
                        const halay_operand_t *b)
{
    uint32_t apart = a->first < b->first ? b->first - a->first : a->first - b->first;

    return apart != 0 && (apart < a->count || v->blocks - apart < a->count);
}

/*
 * Operands of one COPY or REDUCE: the same run (the copies of an alltoall: runs of equal length),
 * and the destination apart from the sources.
 */
static int check_together(struct hly_prover *v, uint32_t rank, uint32_t index)
{
    const halay_plan_t *plan = v->plans[rank];
    const halay_step_t *step = &plan->steps[index];
    const halay_operand_t *to = &plan->operands[step->operand];
    int renumbers = step->kind == HALAY_STEP_COPY && v->params.collective == HALAY_ALLTOALL;
    struct hly_memory memory;

    hly_memory_init(&memory, v, rank);
    for (uint32_t i = 1; i < step->noperands; i++) {
        const halay_operand_t *from = to + i;

        if (from->count != to->count || (from->first != to->first && !renumbers)) {
            return hly_refuse(v, rank, index, "operands 0 and %u are different runs of blocks", i);
        }
        if (to->count == 0) {
            continue;
        }
        uint32_t a = hly_cell(&memory, to, 0), b = hly_cell(&memory, from, 0);
        uint32_t apart = a < b ? b - a : a - b;
        int slots = to->buffer == HALAY_BUFFER_SCRATCH && from->buffer == HALAY_BUFFER_SCRATCH;
        if (a == b && step->kind == HALAY_STEP_COPY) {
            return hly_refuse(v, rank, index, "copies memory to itself");
        }
        int same = to->buffer != HALAY_BUFFER_SCRATCH && from->buffer != HALAY_BUFFER_SCRATCH &&
                   memory.base[to->buffer] == memory.base[from->buffer];
        if (a != b &&
            ((slots && apart < to->count) || (same && renumbers && runs_overlap(v, to, from)))) {
            return hly_refuse(v, rank, index, "the destination overlaps operand %u in part", i);
        }
    }
    return 0;
}

static int share_cells(const struct hly_memory *memory, const halay_operand_t *to,
                       const halay_operand_t *from)
{
    for (uint32_t i = 0; i < to->count; i++) {
        for (uint32_t j = 0; j < from->count; j++) {
            if (hly_cell(memory, to, i) == hly_cell(memory, from, j)) {
                return 1;
            }
        }
    }
    return 0;
}

/* The same of a GROUP: what both operands name is the same block of both; in scratch all of it. In
 * an alltoall it is nothing. */
static int check_group_together(struct hly_prover *v, uint32_t rank, uint32_t index)
{
    const halay_plan_t *plan = v->plans[rank];
    const halay_operand_t *to = &plan->operands[plan->steps[index].operand], *from = to + 1;
    int scratch = to->buffer == HALAY_BUFFER_SCRATCH, bad = 0;
    struct hly_memory memory;

    hly_memory_init(&memory, v, rank);
    if (v->params.collective == HALAY_ALLTOALL) {
        return share_cells(&memory, to, from)
                   ? hly_refuse(v, rank, index, "the destination overlaps operand 1")
                   : 0;
    }
    if (to->count == 0 || from->count == 0 || scratch != (from->buffer == HALAY_BUFFER_SCRATCH)) {
        return 0;
    }
    if (scratch) {
        bad = to->slot < from->slot + from->count && from->slot < to->slot + to->count &&
              (to->slot != from->slot || to->first != from->first || to->count != from->count);
    } else if (memory.own[to->buffer] || memory.own[from->buffer]) { /* one of them has one block */
        for (uint32_t i = 0; i < to->count; i++) {
            for (uint32_t j = 0; j < from->count; j++) {
                bad |= hly_cell(&memory, to, i) == hly_cell(&memory, from, j) &&
                       (to->first + i) % v->blocks != (from->first + j) % v->blocks;
            }
        }
    }
    return bad ? hly_refuse(v, rank, index, "the destination overlaps operand 1 in part") : 0;
}

static int check_group(struct hly_prover *v, uint32_t rank, uint32_t index)
{
    const halay_plan_t *plan = v->plans[rank];
    const halay_planner_info_t *info = halay_planner_get(plan->planner);

    if (!info || !(info->restrictions & HALAY_PLANNER_GROUP)) {
        return hly_refuse(v, rank, index, "its planner has no group steps");
    }
    const char *why = hly_group_check(plan, &plan->steps[index], v->nranks);
    if (why) {
        return hly_refuse(v, rank, index, "%s", why);
    }
    if ((hly_group_of(plan, &plan->steps[index])->kind == HALAY_GROUP_ALLTOALL) !=
        (v->params.collective == HALAY_ALLTOALL)) {
        return hly_refuse(v, rank, index,
                          "its group is an alltoall, or the collective is; not both");
    }
    if (v->params.collective == HALAY_ALLTOALL && !(info->restrictions & HALAY_PLANNER_EQUAL)) {
        return hly_refuse(v, rank, index,
                          "its planner has blocks of any size, and a group has not");
    }
    return check_group_together(v, rank, index);
}

static int check_shape(struct hly_prover *v, uint32_t rank, uint32_t index)
{
    /* Operands of each kind, from and to. */
    static const uint16_t least[] = {0, 1, 1, 2, 3, 0, 2}, most[] = {0, 1, 1, 2, 5, 0, 2};
    const halay_plan_t *plan = v->plans[rank];
    const halay_step_t *step = &plan->steps[index];
    int message = step->kind == HALAY_STEP_SEND || step->kind == HALAY_STEP_RECV;

    if (step->kind < HALAY_STEP_SEND || step->kind > HALAY_STEP_GROUP) {
        return hly_refuse(v, rank, index, "kind %u is unknown", step->kind);
    }
    if (step->noperands < least[step->kind] || step->noperands > most[step->kind]) {
        return hly_refuse(v, rank, index, "has %u operands", step->noperands);
    }
    if ((uint64_t)step->operand + step->noperands > plan->noperands) {
        return hly_refuse(v, rank, index, "operand %u is past the plan's %u", step->operand,
                          plan->noperands);
    }
    if (message                          ? step->peer >= v->nranks || step->peer == rank
        : step->kind == HALAY_STEP_GROUP ? step->peer >= plan->ngroups
                                         : step->peer != HLY_NONE || step->edge != 0) {
        return hly_refuse(v, rank, index, "peer %u or edge %u is not possible", step->peer,
                          step->edge);
    }
    for (int i = 0; i < 2; i++) {
        if (step->dep[i] != HLY_NONE && step->dep[i] >= index) {
            return hly_refuse(v, rank, index, "follows step %u, which is not before it",
                              step->dep[i]);
        }
    }
    return 0;
}

static int check_step(struct hly_prover *v, uint32_t rank, uint32_t index, uint64_t *touched,
                      uint64_t *slots)
{
    const halay_plan_t *plan = v->plans[rank];
    const halay_step_t *step = &plan->steps[index];
    int result = check_shape(v, rank, index);

    for (uint32_t i = 0; result == 0 && i < step->noperands; i++) {
        result = check_operand(v, rank, index, i, i == 0 && step->kind != HALAY_STEP_SEND);
        result = result ? result : check_stage(v, rank, index, i);
    }
    if (result < 0) {
        return result;
    }
    for (uint32_t i = 0; i < step->noperands; i++) {
        const halay_operand_t *operand = &plan->operands[step->operand + i];
        *touched += operand->count;
        *slots += operand->buffer == HALAY_BUFFER_SCRATCH ? operand->count : 0;
    }
    if (*touched > HLY_PROVE_BLOCKS_MAX) {
        return hly_refuse(v, rank, index, "the plans touch too many blocks to be proved");
    }
    if (step->kind != HALAY_STEP_GROUP) {
        return check_together(v, rank, index);
    }
    *touched += plan->groups[step->peer].nmembers;
    return check_group(v, rank, index);
}

static int check_plan(struct hly_prover *v, uint32_t rank, uint64_t *touched, uint64_t *cells)
{
    const halay_plan_t *plan = v->plans[rank];
    uint64_t slots = 0;

    if (plan->nsteps > HALAY_PLAN_STEPS_MAX || plan->noperands > 5 * (uint64_t)plan->nsteps ||
        plan->ngroups > plan->nsteps || plan->nmembers > HALAY_PLAN_MEMBERS_MAX ||
        (plan->ngroups && !plan->groups) || (plan->nmembers && !plan->members) ||
        (plan->nsteps && !plan->steps) || (plan->noperands && !plan->operands) ||
        v->base[rank] + (uint64_t)plan->nsteps > HLY_PROVE_STEPS_MAX) {
        return hly_refuse(v, rank, HLY_NONE, "%u steps with %u operands cannot be a plan",
                          plan->nsteps, plan->noperands);
    }
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    if (plan->device_slots > plan->scratch_slots ||
        (plan->device_slots && !(info && info->restrictions & HALAY_PLANNER_STAGE))) {
        return hly_refuse(v, rank, HLY_NONE, "declares %u slots of the device's memory",
                          plan->device_slots);
    }
    v->base[rank + 1] = v->base[rank] + plan->nsteps;
    *cells += 2 * (uint64_t)v->blocks + plan->scratch_slots;
    if (*cells > HLY_PROVE_CELLS_MAX) {
        return hly_refuse(v, rank, HLY_NONE, "%u blocks and %u slots are too many to be proved",
                          v->blocks, plan->scratch_slots);
    }
    if (plan->scratch_slots > v->proof.scratch_slots) {
        v->proof.scratch_slots = plan->scratch_slots;
    }
    for (uint32_t index = 0; index < plan->nsteps; index++) {
        int result = check_step(v, rank, index, touched, &slots);
        if (result < 0) {
            return result;
        }
    }
    if (plan->scratch_slots > slots) {
        return hly_refuse(v, rank, HLY_NONE,
                          "declares %u scratch slots, and its steps name %" PRIu64,
                          plan->scratch_slots, slots);
    }
    return 0;
}

int hly_prove_form(struct hly_prover *v)
{
    uint64_t touched = 0, cells = 0;

    for (uint32_t rank = 0; rank < v->nranks; rank++) {
        if (!v->plans[rank]) {
            return hly_refuse(v, 0, HLY_NONE, "the plan of rank %u is missing", rank);
        }
    }
    v->params = v->plans[0]->params;
    v->blocks = v->plans[0]->blocks;
    int result = check_collective(v);
    for (uint32_t rank = 0; result == 0 && rank < v->nranks; rank++) {
        result = check_params(v, rank);
        if (result == 0) {
            result = check_plan(v, rank, &touched, &cells);
        }
    }
    v->proof.steps = v->base[v->nranks];
    return result;
}

int hly_prove_form_of(struct hly_prover *v, uint32_t rank)
{
    uint64_t touched = 0, cells = 0;
    int result = check_collective(v);

    v->base[rank] = 0;
    if (result == 0) {
        result = check_params(v, rank);
    }
    return result == 0 ? check_plan(v, rank, &touched, &cells) : result;
}
