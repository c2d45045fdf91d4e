/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - resolves plans to cells, after looking at every index in them. */
#include "program.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_MAX = 1 << 14, OPERANDS_MAX = 5 };

enum { AT_ROOT = 3 }; /* full at the root, none elsewhere */

static const uint8_t layouts[HALAY_COLLECTIVE_COUNT][2] = {
    [HALAY_ALLREDUCE] = {HLY_LAYOUT_FULL, HLY_LAYOUT_FULL},
    [HALAY_BROADCAST] = {HLY_LAYOUT_NONE, HLY_LAYOUT_FULL},
    [HALAY_ALLGATHER] = {HLY_LAYOUT_OWN, HLY_LAYOUT_FULL},
    [HALAY_REDUCE_SCATTER] = {HLY_LAYOUT_FULL, HLY_LAYOUT_OWN},
    [HALAY_BARRIER] = {HLY_LAYOUT_NONE, HLY_LAYOUT_NONE},
    [HALAY_REDUCE] = {HLY_LAYOUT_FULL, AT_ROOT},
    [HALAY_GATHER] = {HLY_LAYOUT_OWN, AT_ROOT},
    [HALAY_SCATTER] = {AT_ROOT, HLY_LAYOUT_OWN},
    [HALAY_ALLTOALL] = {HLY_LAYOUT_FULL, HLY_LAYOUT_FULL},
    [HALAY_SCAN] = {HLY_LAYOUT_FULL, HLY_LAYOUT_FULL},
    [HALAY_EXSCAN] = {HLY_LAYOUT_FULL, HLY_LAYOUT_FULL},
};

uint32_t hly_layout(const halay_plan_params_t *params, uint32_t rank, uint32_t buffer)
{
    assert(params->collective < HALAY_COLLECTIVE_COUNT && buffer <= HALAY_BUFFER_OUT);
    uint32_t layout = layouts[params->collective][buffer];
    if (layout == AT_ROOT) {
        layout = rank == params->root ? HLY_LAYOUT_FULL : HLY_LAYOUT_NONE;
    }
    return layout;
}

__attribute__((format(printf, 2, 3))) static int refuse(hly_program_t *program, const char *format,
                                                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(program->fault, sizeof program->fault, format, arguments);
    va_end(arguments);
    return -1;
}

/* ------------------------------------------------------------------ is it a plan at all */

static int check_blocks(hly_program_t *program, uint32_t nranks)
{
    uint32_t blocks = program->blocks;
    uint32_t low = 1;
    uint32_t high = HLY_PROGRAM_BLOCKS_MAX;
    switch (program->params.collective) {
    case HALAY_ALLREDUCE:
    case HALAY_REDUCE:
    case HALAY_SCAN:
    case HALAY_EXSCAN:
        high = nranks * HALAY_PLAN_SLICES_MAX;
        break;
    case HALAY_ALLGATHER:
    case HALAY_REDUCE_SCATTER:
    case HALAY_GATHER:
    case HALAY_SCATTER:
    case HALAY_ALLTOALL:
        low = nranks;
        high = nranks;
        break;
    case HALAY_BARRIER:
        low = 0;
        high = 0;
        break;
    default:
        break;
    }
    return blocks >= low && blocks <= high ? 0 : refuse(program, "%u blocks", blocks);
}

/* Said again here, as the oracle shares nothing with the prover. */
static uint32_t in_order(const halay_plan_t *plan)
{
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    if (info == NULL || info->restrictions & HALAY_PLANNER_COMMUTATIVE) {
        return 0;
    }
    return !(info->restrictions & HALAY_PLANNER_BLOCKWISE) || plan->shape % 2 == 0;
}

static uint32_t in_series(const halay_plan_t *plan)
{
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    return info != NULL && (info->restrictions & HALAY_PLANNER_RELAXED) != 0;
}

/* Are blocks equal, so that slots are blocks? Only where the user's blocks are the plan's. */
static uint32_t equal_blocks(const halay_plan_t *plan)
{
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    switch (plan->params.collective) {
    case HALAY_ALLGATHER:
    case HALAY_REDUCE_SCATTER:
    case HALAY_GATHER:
    case HALAY_SCATTER:
    case HALAY_ALLTOALL:
        return info != NULL && info->restrictions & HALAY_PLANNER_EQUAL;
    default:
        return 0;
    }
}

static int check_heads(hly_program_t *program, const halay_plan_t *const plans[], uint32_t nranks)
{
    assert(nranks >= 1 && nranks <= HLY_PROGRAM_RANKS_MAX);
    uint64_t steps = 0;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        const halay_plan_params_t *params = &plans[rank]->params;
        if (params->nranks != nranks || params->rank != rank ||
            params->collective != plans[0]->params.collective ||
            params->root != plans[0]->params.root ||
            params->in_place != plans[0]->params.in_place ||
            plans[rank]->blocks != plans[0]->blocks || plans[rank]->shape != plans[0]->shape) {
            return refuse(program, "rank %u: another collective than rank 0", rank);
        }
        if (plans[rank]->scratch_slots > SLOTS_MAX) {
            return refuse(program, "rank %u: %u slots", rank, plans[rank]->scratch_slots);
        }
        steps += plans[rank]->nsteps;
    }
    program->params = plans[0]->params;
    program->blocks = plans[0]->blocks;
    program->in_order = in_order(plans[0]);
    program->equal = equal_blocks(plans[0]);
    program->series = in_series(plans[0]);
    if (program->params.collective >= HALAY_COLLECTIVE_COUNT || program->params.root >= nranks ||
        steps > HLY_PROGRAM_STEPS_MAX) {
        return refuse(program, "no collective that there is, or too long");
    }
    return check_blocks(program, nranks);
}

/* NULL if it is in memory that there is, and that may be written if it is. */
static const char *check_operand(const halay_plan_t *plan, const halay_operand_t *operand,
                                 int written)
{
    if (operand->buffer > HALAY_BUFFER_SCRATCH || operand->count > plan->blocks) {
        return "no such buffer, or more blocks than there are";
    }
    if (operand->count == 0) {
        return NULL;
    }
    if (operand->buffer == HALAY_BUFFER_SCRATCH) {
        return operand->slot <= plan->scratch_slots &&
                       operand->count <= plan->scratch_slots - operand->slot
                   ? NULL
                   : "scratch overrun";
    }
    int alone = plan->params.in_place == 0 ||
                hly_layout(&plan->params, plan->params.rank, HALAY_BUFFER_OUT) == HLY_LAYOUT_NONE;
    if (written && operand->buffer == HALAY_BUFFER_IN && alone) {
        return "writes to the input";
    }
    switch (hly_layout(&plan->params, plan->params.rank, operand->buffer)) {
    case HLY_LAYOUT_FULL:
        return NULL;
    case HLY_LAYOUT_OWN:
        return operand->count == 1 && operand->first % plan->blocks == plan->params.rank
                   ? NULL
                   : "not the block that the buffer has";
    default:
        return "a buffer that this collective has not";
    }
}

/* 1 if the block is in the run. */
static int has_block(const halay_plan_t *plan, uint32_t first, uint32_t count, uint32_t block)
{
    return (block + plan->blocks - first % plan->blocks) % plan->blocks < count;
}

/*
 * Each block of the whole is one member's, of an allreduce everyone's; no other block is anyone's;
 * and this rank's is what its own operand has.
 */
static const char *check_shares(const halay_plan_t *plan, const halay_group_t *group,
                                const halay_operand_t *whole, const halay_operand_t *mine)
{
    const halay_member_t *members = plan->members + group->member;
    uint32_t seen = 0, owners = 0;
    for (uint32_t i = 0; i < group->nmembers; i++) {
        seen += members[i].rank == plan->params.rank;
        owners += members[i].count > 0;
        if (members[i].rank >= plan->params.nranks || members[i].count > plan->blocks ||
            (i > 0 && members[i].rank <= members[i - 1].rank)) {
            return "no such member";
        }
    }
    if (seen != 1 || whole->count == 0 ||
        (owners != 1 &&
         (group->kind == HALAY_GROUP_REDUCE || group->kind == HALAY_GROUP_BROADCAST))) {
        return "a group of others, or of nothing";
    }
    for (uint32_t block = 0; block < plan->blocks; block++) {
        uint32_t all = group->kind == HALAY_GROUP_ALLREDUCE ? group->nmembers : 1, has = 0;
        for (uint32_t i = 0; i < group->nmembers; i++) {
            int its = has_block(plan, members[i].first, members[i].count, block);
            has += (uint32_t)its;
            if (members[i].rank == plan->params.rank &&
                its != has_block(plan, mine->first, mine->count, block)) {
                return "another run than its own";
            }
        }
        if (has != (has_block(plan, whole->first, whole->count, block) ? all : 0)) {
            return "a block that is nobody's, or of too many";
        }
    }
    return NULL;
}

/* Each member has as many blocks, one run after the other, in both operands alike. */
static const char *check_exchange(const halay_plan_t *plan, const halay_group_t *group,
                                  const halay_operand_t *to, const halay_operand_t *from)
{
    const halay_member_t *members = plan->members + group->member;
    uint32_t seen = 0, run = group->nmembers > 0 ? to->count / group->nmembers : 0;
    if (run == 0 || to->count % group->nmembers != 0 || from->count != to->count ||
        from->first != to->first) {
        return "no run for each member";
    }
    for (uint32_t i = 0; i < group->nmembers; i++) {
        seen += members[i].rank == plan->params.rank;
        if (members[i].rank >= plan->params.nranks || members[i].count != run ||
            (i > 0 && members[i].rank <= members[i - 1].rank) ||
            members[i].first != (uint32_t)(((uint64_t)to->first + i * run) % plan->blocks)) {
            return "no such member, or another run than its own";
        }
    }
    return seen == 1 ? NULL : "a group of others";
}

static const char *check_group(const halay_plan_t *plan, const halay_step_t *step)
{
    if (step->peer >= plan->ngroups || step->edge >= HALAY_PLAN_CHANNELS_MAX || plan->blocks == 0) {
        return "no group, or no channel, or none possible";
    }
    const halay_group_t *group = &plan->groups[step->peer];
    if (group->kind == 0 || group->kind > HALAY_GROUP_ALLTOALL || group->member > plan->nmembers ||
        group->nmembers > plan->nmembers - group->member) {
        return "no such kind of group, or too many members";
    }
    const halay_operand_t *to = plan->operands + step->operand, *from = to + 1;
    const char *why = check_operand(plan, to, 1);
    if (why == NULL) {
        why = check_operand(plan, from, 0);
    }
    if (why != NULL) {
        return why;
    }
    if ((group->kind == HALAY_GROUP_ALLTOALL) != (plan->params.collective == HALAY_ALLTOALL)) {
        return "an alltoall in another collective, or the other way round";
    }
    if (group->kind == HALAY_GROUP_ALLTOALL) {
        return check_exchange(plan, group, to, from);
    }
    int moves = group->kind == HALAY_GROUP_ALLGATHER || group->kind == HALAY_GROUP_BROADCAST;
    return moves ? check_shares(plan, group, to, from) : check_shares(plan, group, from, to);
}

/* 1 if the step moves blocks to others of other numbers, as it may in an alltoall. */
static int renumbers(const halay_plan_t *plan, const halay_step_t *step)
{
    return plan->params.collective == HALAY_ALLTOALL && step->kind == HALAY_STEP_COPY;
}

static const char *check_operands(const halay_plan_t *plan, const halay_step_t *step)
{
    if (step->operand > plan->noperands || step->noperands > plan->noperands - step->operand) {
        return "operands that the plan has not";
    }
    if (step->kind == HALAY_STEP_GROUP) {
        return check_group(plan, step);
    }
    const halay_operand_t *operands = plan->operands + step->operand;
    for (uint32_t i = 0; i < step->noperands; i++) {
        const char *why =
            check_operand(plan, &operands[i], i == 0 && step->kind != HALAY_STEP_SEND);
        if (why != NULL) {
            return why;
        }
        if (operands[i].count != operands[0].count ||
            (operands[i].count > 0 && operands[i].first != operands[0].first &&
             !renumbers(plan, step))) {
            return "operands of different blocks";
        }
    }
    return NULL;
}

/* Said again here: what messages and reductions touch is on the stage, what groups do is not. */
static const char *check_stage(const halay_plan_t *plan, const halay_step_t *step)
{
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    if (info == NULL || !(info->restrictions & HALAY_PLANNER_STAGE)) {
        return NULL;
    }
    for (uint32_t i = 0; i < step->noperands; i++) {
        const halay_operand_t *o = &plan->operands[step->operand + i];
        uint32_t last = o->slot + o->count - 1;
        int host = o->buffer == HALAY_BUFFER_SCRATCH && o->slot >= plan->device_slots;
        if (o->count == 0) {
            continue;
        }
        if (o->buffer == HALAY_BUFFER_SCRATCH && host != (last >= plan->device_slots)) {
            return "on the stage in part";
        }
        if ((step->kind == HALAY_STEP_GROUP && host) ||
            (step->kind != HALAY_STEP_GROUP && step->kind != HALAY_STEP_COPY && !host)) {
            return "on the wrong side of the stage";
        }
    }
    return NULL;
}

/* A REDUCE of one source is let through: what comes of it is seen in the result. */
static const char *check_step(const halay_plan_t *plan, uint32_t index)
{
    static const uint8_t fewest[] = {
        [HALAY_STEP_SEND] = 1,   [HALAY_STEP_RECV] = 1, [HALAY_STEP_COPY] = 2,
        [HALAY_STEP_REDUCE] = 2, [HALAY_STEP_JOIN] = 0, [HALAY_STEP_GROUP] = 2};
    static const uint8_t most[] = {[HALAY_STEP_SEND] = 1, [HALAY_STEP_RECV] = 1,
                                   [HALAY_STEP_COPY] = 2, [HALAY_STEP_REDUCE] = OPERANDS_MAX,
                                   [HALAY_STEP_JOIN] = 0, [HALAY_STEP_GROUP] = 2};
    const halay_step_t *step = &plan->steps[index];
    if (step->kind < HALAY_STEP_SEND || step->kind > HALAY_STEP_GROUP ||
        step->noperands < fewest[step->kind] || step->noperands > most[step->kind]) {
        return "no such step";
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (step->dep[i] != HALAY_STEP_NONE && step->dep[i] >= index) {
            return "waits for a later step";
        }
    }
    if ((step->kind == HALAY_STEP_SEND || step->kind == HALAY_STEP_RECV) &&
        step->peer >= plan->params.nranks) {
        return "a peer that there is not";
    }
    const char *why = check_operands(plan, step);
    return why != NULL ? why : check_stage(plan, step);
}

/* ------------------------------------------------------------------ building */

/* Cells of a rank: IN, OUT, SCRATCH, less what is shared in place. */
static void place_buffers(hly_program_t *program, const halay_plan_t *plan)
{
    static const uint32_t own = 1;
    const uint32_t size[3] = {0, program->blocks, own};
    const halay_plan_params_t *params = &plan->params;
    uint32_t in_layout = hly_layout(params, params->rank, HALAY_BUFFER_IN);
    uint32_t out_layout = hly_layout(params, params->rank, HALAY_BUFFER_OUT);
    uint32_t in = size[in_layout], out = size[out_layout];
    uint32_t at = program->ncells;
    program->in[params->rank] = at;
    program->out[params->rank] = at + in;
    if (params->in_place && in_layout != HLY_LAYOUT_NONE && out_layout != HLY_LAYOUT_NONE) {
        program->out[params->rank] = at;
        if (in_layout == HLY_LAYOUT_OWN) {
            program->in[params->rank] = at + params->rank;
        }
        if (params->collective == HALAY_SCATTER) {
            program->out[params->rank] = at + params->rank;
        }
        at += in_layout == HLY_LAYOUT_FULL ? in : out;
    } else {
        at += in + out;
    }
    program->scratch[params->rank] = at;
    program->ncells = at + plan->scratch_slots;
}

static uint32_t cell_of(const hly_program_t *program, uint32_t rank, const halay_operand_t *operand,
                        uint32_t i)
{
    if (operand->buffer == HALAY_BUFFER_SCRATCH) {
        return program->scratch[rank] + operand->slot + i;
    }
    uint32_t base = operand->buffer == HALAY_BUFFER_IN ? program->in[rank] : program->out[rank];
    if (hly_layout(&program->params, rank, operand->buffer) == HLY_LAYOUT_OWN) {
        return base;
    }
    return base + (uint32_t)(((uint64_t)operand->first + i) % program->blocks);
}

static void add_run(hly_program_t *program, uint32_t rank, const halay_operand_t *operand,
                    uint32_t *ncells)
{
    hly_run_t *run = &program->runs[program->nruns++];
    run->cell = *ncells;
    run->count = operand->count;
    run->first = operand->count > 0 ? operand->first % program->blocks : 0;
    run->tag = 0;
    run->buffer = operand->buffer;
    if (operand->buffer == HALAY_BUFFER_SCRATCH && !program->equal) {
        run->tag = (uint64_t)(1 + operand->slot) << 32 | run->first << 16 | run->count;
    }
    for (uint32_t i = 0; i < operand->count; i++) {
        program->cells[(*ncells)++] = cell_of(program, rank, operand, i);
    }
}

/*
 * What rank s sends to rank d in an alltoall has a size of its own, here a number for s and d; in
 * place what d sends to s has the same. 0: the size of this block is not known.
 */
static uint32_t size_of(const hly_program_t *program, uint32_t rank, const hly_run_t *run,
                        uint32_t i)
{
    uint32_t block = (run->first + i) % program->blocks;
    uint32_t from = run->buffer == HALAY_BUFFER_OUT ? block : rank;
    uint32_t to = run->buffer == HALAY_BUFFER_OUT ? rank : block;
    if (program->params.in_place) {
        return 1 + (from < to ? from << 16 | to : to << 16 | from);
    }
    return run->buffer == HALAY_BUFFER_SCRATCH ? 0 : 1 + (from << 16 | to);
}

int hly_sizes_agree(const hly_program_t *program, uint32_t from_rank, const hly_run_t *from,
                    uint32_t to_rank, const hly_run_t *to)
{
    if (program->params.collective != HALAY_ALLTOALL || program->equal) {
        return 1;
    }
    for (uint32_t i = 0; i < to->count; i++) {
        uint32_t size = size_of(program, to_rank, to, i);
        if (size == 0 || size != size_of(program, from_rank, from, i)) {
            return 0;
        }
    }
    return 1;
}

/* In a GROUP: what both name is the same block, and in scratch all of it stands in one way. */
static int check_group_overlap(const hly_program_t *program, const hly_pstep_t *step)
{
    const hly_run_t *target = &program->runs[step->target];
    const hly_run_t *source = &program->runs[step->source];
    for (uint32_t i = 0; i < target->count; i++) {
        for (uint32_t j = 0; j < source->count; j++) {
            if (program->cells[target->cell + i] == program->cells[source->cell + j] &&
                ((target->first + i) % program->blocks != (source->first + j) % program->blocks ||
                 target->tag != source->tag || step->group == HALAY_GROUP_ALLTOALL)) {
                return -1;
            }
        }
    }
    return 0;
}

/* A target may be a source exactly, not a part of one; blocks of a copy are equally large. */
static int check_overlap(const hly_program_t *program, const hly_pstep_t *step)
{
    if (step->target == HLY_NO_RUN) {
        return 0;
    }
    if (step->kind == HALAY_STEP_GROUP) {
        return check_group_overlap(program, step);
    }
    const hly_run_t *target = &program->runs[step->target];
    for (uint32_t s = 0; s < step->nsources; s++) {
        const hly_run_t *source = &program->runs[step->source + s];
        if (!hly_sizes_agree(program, step->rank, source, step->rank, target)) {
            return -1;
        }
        for (uint32_t i = 0; i < target->count; i++) {
            for (uint32_t j = 0; j < source->count; j++) {
                if (i != j &&
                    program->cells[target->cell + i] == program->cells[source->cell + j]) {
                    return -1;
                }
            }
        }
    }
    return 0;
}

static uint32_t channel_of(hly_program_t *program, uint32_t from, uint32_t to, uint32_t edge)
{
    for (uint32_t i = 0; i < program->nchannels; i++) {
        const hly_channel_t *channel = &program->channels[i];
        if (channel->from == from && channel->to == to && channel->edge == edge) {
            return i;
        }
    }
    program->channels[program->nchannels] = (hly_channel_t){.from = from, .to = to, .edge = edge};
    return program->nchannels++;
}

static void add_step(hly_program_t *program, const halay_plan_t *plan, uint32_t index,
                     uint32_t *ncells)
{
    const halay_step_t *from = &plan->steps[index];
    uint32_t rank = plan->params.rank;
    hly_pstep_t *step = &program->steps[program->nsteps++];
    *step = (hly_pstep_t){.kind = from->kind, .rank = rank, .index = index};
    step->target = HLY_NO_RUN;
    step->source = program->nruns;
    step->nsources = from->noperands;
    step->reads = program->nreads;
    step->writes = program->nwrites;
    for (uint32_t i = 0; i < from->noperands; i++) {
        add_run(program, rank, &plan->operands[from->operand + i], ncells);
    }
    uint32_t count = from->noperands > 0 ? program->runs[step->source].count : 0;
    if (from->noperands > 0 && from->kind != HALAY_STEP_SEND) {
        step->target = step->source++;
        step->nsources--;
        program->nwrites += count;
    }
    program->nreads +=
        step->nsources * (step->nsources > 0 ? program->runs[step->source].count : 0);
    program->nevents++;
    if (from->kind == HALAY_STEP_SEND) {
        step->channel = channel_of(program, rank, from->peer, from->edge);
        program->channels[step->channel].nsends++;
    } else if (from->kind == HALAY_STEP_RECV) {
        step->channel = channel_of(program, from->peer, rank, from->edge);
        program->channels[step->channel].nrecvs++;
    } else if (from->kind == HALAY_STEP_GROUP) {
        step->channel = from->edge;
        step->group = plan->groups[from->peer].kind;
        step->nmembers = plan->groups[from->peer].nmembers;
        step->members = plan->members + plan->groups[from->peer].member;
    }
}

/* Successors and the ends of channels, each list counted first and filled then. */
static void link_steps(hly_program_t *program, const halay_plan_t *const plans[])
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < program->nchannels; i++) {
        hly_channel_t *channel = &program->channels[i];
        program->nevents += channel->nsends * channel->nrecvs;
        channel->sends = at;
        channel->recvs = at + channel->nsends;
        at += channel->nsends + channel->nrecvs;
        channel->nsends = 0;
        channel->nrecvs = 0;
    }
    uint32_t nnext = 0;
    uint32_t base = 0;
    for (uint32_t g = 0; g < program->nsteps; g++) {
        hly_pstep_t *step = &program->steps[g];
        const halay_plan_t *plan = plans[step->rank];
        base = g - step->index;
        step->next = nnext;
        for (uint32_t i = step->index + 1; i < plan->nsteps; i++) {
            for (uint32_t d = 0; d < 2; d++) {
                if (plan->steps[i].dep[d] == step->index) {
                    program->next[nnext++] = base + i;
                    program->steps[base + i].need++;
                }
            }
        }
        step->nnext = nnext - step->next;
        if (step->kind != HALAY_STEP_SEND && step->kind != HALAY_STEP_RECV) {
            continue;
        }
        hly_channel_t *channel = &program->channels[step->channel];
        if (step->kind == HALAY_STEP_SEND) {
            program->ends[channel->sends + channel->nsends++] = g;
        } else {
            program->ends[channel->recvs + channel->nrecvs++] = g;
        }
    }
}

static int allocate(hly_program_t *program, uint32_t nsteps, uint32_t nruns, uint32_t ncells)
{
    program->steps = calloc(nsteps + 1, sizeof *program->steps);
    program->runs = calloc(nruns + 1, sizeof *program->runs);
    program->cells = calloc(ncells + 1, sizeof *program->cells);
    program->next = calloc(2 * (size_t)nsteps + 1, sizeof *program->next);
    program->channels = calloc(nsteps + 1, sizeof *program->channels);
    program->ends = calloc(nsteps + 1, sizeof *program->ends);
    return program->steps != NULL && program->runs != NULL && program->cells != NULL &&
                   program->next != NULL && program->channels != NULL && program->ends != NULL
               ? 0
               : HALAY_ENOMEM;
}

static int check_all(hly_program_t *program, const halay_plan_t *const plans[], uint32_t nranks,
                     uint32_t total[3])
{
    if (check_heads(program, plans, nranks) != 0) {
        return -1;
    }
    for (uint32_t rank = 0; rank < nranks; rank++) {
        const halay_plan_t *plan = plans[rank];
        for (uint32_t i = 0; i < plan->nsteps; i++) {
            const char *why = check_step(plan, i);
            if (why != NULL) {
                return refuse(program, "rank %u, step %u: %s", rank, i, why);
            }
            const halay_step_t *step = &plan->steps[i];
            total[1] += step->noperands;
            for (uint32_t o = 0; o < step->noperands; o++) {
                total[2] += plan->operands[step->operand + o].count;
            }
        }
        total[0] += plan->nsteps;
    }
    return 0;
}

int hly_program_init(hly_program_t *program, const halay_plan_t *const plans[], uint32_t nranks)
{
    memset(program, 0, sizeof *program);
    uint32_t total[3] = {0, 0, 0};
    if (check_all(program, plans, nranks, total) != 0) {
        return 0;
    }
    if (allocate(program, total[0], total[1], total[2]) != 0) {
        return HALAY_ENOMEM;
    }
    uint32_t ncells = 0;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        place_buffers(program, plans[rank]);
        program->nsteps_of[rank] = plans[rank]->nsteps;
        for (uint32_t i = 0; i < plans[rank]->nsteps; i++) {
            add_step(program, plans[rank], i, &ncells);
            if (check_overlap(program, &program->steps[program->nsteps - 1]) != 0) {
                refuse(program, "rank %u, step %u: overlaps itself, or sizes differ", rank, i);
                return 0;
            }
        }
    }
    assert(ncells == total[2] && program->nsteps == total[0] && program->nruns == total[1]);
    link_steps(program, plans);
    return 0;
}

void hly_program_finish(hly_program_t *program)
{
    free(program->steps);
    free(program->runs);
    free(program->cells);
    free(program->next);
    free(program->channels);
    free(program->ends);
    memset(program, 0, sizeof *program);
}
