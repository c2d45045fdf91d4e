/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - what one does with a finished plan: copy, free, hash, print.
 * Invariant: a plan, its steps, operands, groups and members are one allocation, whose address is
 * the plan's.
 */
#include <halay/plan.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

static_assert(sizeof(halay_plan_t) % _Alignof(halay_step_t) == 0, "steps follow the plan");
static_assert(sizeof(halay_step_t) % _Alignof(halay_operand_t) == 0, "operands follow the steps");
static_assert(sizeof(halay_operand_t) % _Alignof(halay_group_t) == 0, "groups follow the operands");
static_assert(sizeof(halay_group_t) % _Alignof(halay_member_t) == 0, "members follow the groups");

int halay_plan_copy(const halay_plan_t *plan, halay_plan_t **copy)
{
    if (!plan || !copy) {
        return HALAY_EINVAL;
    }
    size_t steps_bytes = plan->nsteps * sizeof(halay_step_t);
    size_t operands_bytes = plan->noperands * sizeof(halay_operand_t);
    size_t groups_bytes = plan->ngroups * sizeof(halay_group_t);
    size_t members_bytes = plan->nmembers * sizeof(halay_member_t);
    halay_plan_t *made =
        malloc(sizeof(*made) + steps_bytes + operands_bytes + groups_bytes + members_bytes);
    if (!made) {
        return HALAY_ENOMEM;
    }
    *made = *plan;
    made->steps = (halay_step_t *)(made + 1);
    made->operands = (halay_operand_t *)(made->steps + plan->nsteps);
    made->groups = (halay_group_t *)(made->operands + plan->noperands);
    made->members = (halay_member_t *)(made->groups + plan->ngroups);
    if (steps_bytes) {
        memcpy(made->steps, plan->steps, steps_bytes);
    }
    if (operands_bytes) {
        memcpy(made->operands, plan->operands, operands_bytes);
    }
    if (groups_bytes) {
        memcpy(made->groups, plan->groups, groups_bytes);
    }
    if (members_bytes) {
        memcpy(made->members, plan->members, members_bytes);
    }
    *copy = made;
    return 0;
}

void halay_plan_free(halay_plan_t *plan)
{
    free(plan);
}

/*
 * For a given h this is a bijection of the two words (xor, multiplication by an odd number and
 * xor-shift can all be undone), so plans of equal length that differ in one word never collide.
 */
static uint64_t mix(uint64_t h, uint32_t low, uint32_t high)
{
    h ^= (uint64_t)high << 32 | low;
    h *= 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 29;
}

/* Plans without groups have the hashes that they had before there were any. */
static uint64_t mix_groups(uint64_t h, const halay_plan_t *plan)
{
    if (plan->ngroups == 0 && plan->nmembers == 0) {
        return h;
    }
    h = mix(h, plan->ngroups, plan->nmembers);
    for (uint32_t i = 0; i < plan->ngroups; i++) {
        h = mix(h, plan->groups[i].kind, plan->groups[i].member);
        h = mix(h, plan->groups[i].nmembers, 0);
    }
    for (uint32_t i = 0; i < plan->nmembers; i++) {
        h = mix(h, plan->members[i].rank, 0);
        h = mix(h, plan->members[i].first, plan->members[i].count);
    }
    return h;
}

uint64_t halay_plan_hash(const halay_plan_t *plan)
{
    const halay_plan_params_t *params = &plan->params;
    uint64_t h = mix(0x68616c6179706c31u, params->collective, params->nranks);

    h = mix(h, params->rank, params->root);
    h = mix(h, params->in_place, plan->planner);
    h = mix(h, (uint32_t)plan->shape, (uint32_t)(plan->shape >> 32));
    h = mix(h, plan->blocks, plan->scratch_slots);
    h = mix(h, plan->nsteps, plan->noperands);
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *step = &plan->steps[i];
        h = mix(h, (uint32_t)step->noperands << 16 | step->kind, step->peer);
        h = mix(h, step->edge, step->operand);
        h = mix(h, step->dep[0], step->dep[1]);
    }
    for (uint32_t i = 0; i < plan->noperands; i++) {
        const halay_operand_t *operand = &plan->operands[i];
        h = mix(h, operand->buffer, operand->first);
        h = mix(h, operand->count, operand->slot);
    }
    h = mix_groups(h, plan);
    if (plan->device_slots) {
        h = mix(h, plan->device_slots, 0);
    }
    return mix(h, plan->nsteps, plan->noperands);
}

static void put_operand(struct hly_text *text, const halay_plan_t *plan, const halay_step_t *step,
                        uint32_t i)
{
    static const char *const buffers[] = {"in", "out", "scratch"};

    if ((uint64_t)step->operand + i >= plan->noperands) {
        hly_text_put(text, " ?");
        return;
    }
    const halay_operand_t *operand = &plan->operands[step->operand + i];
    hly_text_put(text, " %s[%u+%u]",
                 operand->buffer <= HALAY_BUFFER_SCRATCH ? buffers[operand->buffer] : "?",
                 operand->first, operand->count);
    if (operand->buffer == HALAY_BUFFER_SCRATCH) {
        hly_text_put(text, "@%u", operand->slot);
    }
}

static void put_group(struct hly_text *text, const halay_plan_t *plan, const halay_step_t *step)
{
    static const char *const kinds[] = {"?",      "reduce_scatter", "allgather", "allreduce",
                                        "reduce", "broadcast",      "alltoall"};

    if (step->peer >= plan->ngroups) {
        hly_text_put(text, " group ?");
        return;
    }
    const halay_group_t *group = &plan->groups[step->peer];
    hly_text_put(text, " %s channel %u of",
                 kinds[group->kind <= HALAY_GROUP_ALLTOALL ? group->kind : 0], step->edge);
    for (uint32_t i = 0; i < group->nmembers && (uint64_t)group->member + i < plan->nmembers; i++) {
        const halay_member_t *m = &plan->members[group->member + i];
        hly_text_put(text, " %u[%u+%u]", m->rank, m->first, m->count);
    }
}

static void put_step(struct hly_text *text, const halay_plan_t *plan, uint32_t index)
{
    static const char *const kinds[] = {"?", "send", "recv", "copy", "reduce", "join", "group"};
    const halay_step_t *step = &plan->steps[index];
    const char *sign = step->kind == HALAY_STEP_REDUCE ? " op" : "";

    hly_text_put(text, "%6u %-6s", index, step->kind <= HALAY_STEP_GROUP ? kinds[step->kind] : "?");
    for (uint32_t i = 0; i < step->noperands; i++) {
        hly_text_put(text, "%s", i == 1 ? " =" : i > 1 ? sign : "");
        put_operand(text, plan, step, i);
    }
    if (step->kind == HALAY_STEP_SEND || step->kind == HALAY_STEP_RECV) {
        hly_text_put(text, " %s %u edge %u", step->kind == HALAY_STEP_SEND ? "to" : "from",
                     step->peer, step->edge);
    } else if (step->kind == HALAY_STEP_GROUP) {
        put_group(text, plan, step);
    }
    for (int i = 0; i < 2; i++) {
        if (step->dep[i] != HALAY_STEP_NONE) {
            hly_text_put(text, "%s %u", i == 0 ? " after" : ",", step->dep[i]);
        }
    }
    hly_text_put(text, "\n");
}

size_t halay_plan_print(const halay_plan_t *plan, char *text, size_t bytes)
{
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    const halay_plan_params_t *params = &plan->params;
    struct hly_text out = {.at = text, .room = text ? bytes : 0};

    hly_text_put(&out, "%s %s rank %u of %u root %u%s: %u blocks, %u scratch slots, %u steps\n",
                 halay_collective_name((halay_collective_t)params->collective),
                 info ? info->name : "?", params->rank, params->nranks, params->root,
                 params->in_place ? " in place" : "", plan->blocks, plan->scratch_slots,
                 plan->nsteps);
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        put_step(&out, plan, i);
    }
    return out.used + 1; /* with the terminating zero */
}
