/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder.c - arrays that grow while a planner runs, then one allocation with the plan.
 * Invariant: nsteps <= HALAY_PLAN_STEPS_MAX, and every dep of a step is lower than its index.
 */
#include "two_level.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void hly_builder_init(struct hly_builder *b, const halay_plan_params_t *params)
{
    memset(b, 0, sizeof(*b));
    b->params = *params;
}

int hly_builder_finish(struct hly_builder *b, uint32_t planner, halay_plan_t **plan)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    const halay_shape_t *shape = b->params.shape;
    halay_plan_t header = {.params = b->params,
                           .planner = planner,
                           .shape = info->restrictions & HALAY_PLANNER_SHAPE ? shape->hash : 0,
                           .blocks = b->blocks,
                           .scratch_slots = b->scratch_slots,
                           .device_slots = b->device_slots,
                           .nsteps = b->nsteps,
                           .noperands = b->noperands,
                           .ngroups = b->ngroups,
                           .nmembers = b->nmembers,
                           .steps = b->steps,
                           .operands = b->operands,
                           .groups = b->groups,
                           .members = b->members};
    header.params.shape = NULL;
    int result = b->error ? b->error : halay_plan_copy(&header, plan);
    if (!result && (result = hly_plan_sort(*plan))) {
        halay_plan_free(*plan);
        *plan = NULL;
    }

    free(b->steps);
    free(b->operands);
    free(b->groups);
    free(b->members);
    return result;
}

/* Makes room for `more` items of `size` bytes behind the `used` first ones. */
static int make_room(void **items, uint32_t *room, uint32_t used, uint32_t more, size_t size)
{
    if (used + more <= *room) {
        return 0;
    }
    uint32_t wanted = *room ? *room * 2 : 64;
    wanted = wanted < used + more ? used + more : wanted;
    void *grown = realloc(*items, wanted * size);
    if (!grown) {
        return HALAY_ENOMEM;
    }
    *items = grown;
    *room = wanted;
    return 0;
}

static uint32_t add_operand(struct hly_builder *b, halay_operand_t operand)
{
    if (operand.buffer == HALAY_BUFFER_SCRATCH && operand.slot + operand.count > b->scratch_slots) {
        b->scratch_slots = operand.slot + operand.count;
    }
    b->operands[b->noperands] = operand;
    return b->noperands++;
}

uint32_t hly_team_rank(const struct hly_team *team, uint32_t i)
{
    const halay_shape_t *s = team->shape;

    i %= team->n;
    return s ? hly_leader(s, team->lanes, i, team->lane) : i;
}

static uint32_t add_step(struct hly_builder *b, halay_step_t step, const halay_operand_t *operands,
                         uint32_t after, uint32_t after2)
{
    if (!b->error && b->nsteps == HALAY_PLAN_STEPS_MAX) {
        b->error = HALAY_EUNSUPPORTED;
    }
    if (!b->error) {
        b->error =
            make_room((void **)&b->steps, &b->steps_room, b->nsteps, 1, sizeof(halay_step_t));
    }
    if (!b->error) {
        b->error = make_room((void **)&b->operands, &b->operands_room, b->noperands, step.noperands,
                             sizeof(halay_operand_t));
    }
    if (b->error) {
        return HLY_NONE;
    }
    assert(after == HLY_NONE || after < b->nsteps);
    assert(after2 == HLY_NONE || after2 < b->nsteps);
    step.dep[0] = after != HLY_NONE ? after : after2;
    step.dep[1] = after != HLY_NONE && after2 != after ? after2 : HLY_NONE;
    step.operand = step.noperands ? b->noperands : 0;
    for (uint32_t i = 0; i < step.noperands; i++) {
        add_operand(b, operands[i]);
    }
    b->steps[b->nsteps] = step;
    return b->nsteps++;
}

uint32_t hly_send(struct hly_builder *b, uint32_t peer, uint32_t edge, halay_operand_t from,
                  uint32_t after, uint32_t after2)
{
    halay_step_t step = {.kind = HALAY_STEP_SEND, .noperands = 1, .peer = peer, .edge = edge};
    return add_step(b, step, &from, after, after2);
}

uint32_t hly_recv(struct hly_builder *b, uint32_t peer, uint32_t edge, halay_operand_t to,
                  uint32_t after, uint32_t after2)
{
    halay_step_t step = {.kind = HALAY_STEP_RECV, .noperands = 1, .peer = peer, .edge = edge};
    return add_step(b, step, &to, after, after2);
}

uint32_t hly_copy(struct hly_builder *b, halay_operand_t to, halay_operand_t from, uint32_t after,
                  uint32_t after2)
{
    halay_step_t step = {.kind = HALAY_STEP_COPY, .noperands = 2, .peer = HLY_NONE};
    return add_step(b, step, (halay_operand_t[]){to, from}, after, after2);
}

uint32_t hly_reduce(struct hly_builder *b, halay_operand_t to, halay_operand_t left,
                    halay_operand_t right, uint32_t after, uint32_t after2)
{
    halay_step_t step = {.kind = HALAY_STEP_REDUCE, .noperands = 3, .peer = HLY_NONE};
    return add_step(b, step, (halay_operand_t[]){to, left, right}, after, after2);
}

uint32_t hly_reduce_many(struct hly_builder *b, halay_operand_t to, const halay_operand_t *sources,
                         uint32_t nsources, uint32_t after, uint32_t after2)
{
    halay_step_t step = {.kind = HALAY_STEP_REDUCE, .peer = HLY_NONE};
    halay_operand_t operands[5] = {to};

    assert(nsources >= 2 && nsources <= 4);
    for (uint32_t i = 0; i < nsources; i++) {
        operands[i + 1] = sources[i];
    }
    step.noperands = (uint16_t)(nsources + 1);
    return add_step(b, step, operands, after, after2);
}

uint32_t hly_group(struct hly_builder *b, uint32_t kind, uint32_t n)
{
    if (!b->error && n > HALAY_PLAN_MEMBERS_MAX - b->nmembers) {
        b->error = HALAY_EUNSUPPORTED;
    }
    if (!b->error) {
        b->error =
            make_room((void **)&b->groups, &b->groups_room, b->ngroups, 1, sizeof(halay_group_t));
    }
    if (!b->error) {
        b->error = make_room((void **)&b->members, &b->members_room, b->nmembers, n,
                             sizeof(halay_member_t));
    }
    if (b->error) {
        return 0;
    }
    memset(&b->members[b->nmembers], 0, n * sizeof(halay_member_t));
    b->groups[b->ngroups] = (halay_group_t){.kind = kind, .member = b->nmembers, .nmembers = n};
    b->nmembers += n;
    return b->ngroups++;
}

halay_member_t *hly_group_members(struct hly_builder *b, uint32_t group)
{
    return b->error ? NULL : &b->members[b->groups[group].member];
}

uint32_t hly_group_step(struct hly_builder *b, uint32_t group, uint32_t channel, halay_operand_t to,
                        halay_operand_t from, uint32_t after, uint32_t after2)
{
    halay_step_t step = {.kind = HALAY_STEP_GROUP, .noperands = 2, .peer = group, .edge = channel};
    return add_step(b, step, (halay_operand_t[]){to, from}, after, after2);
}

uint32_t hly_after(struct hly_builder *b, uint32_t after, uint32_t after2)
{
    if (after == HLY_NONE || after == after2) {
        return after2;
    }
    if (after2 == HLY_NONE) {
        return after;
    }
    halay_step_t step = {.kind = HALAY_STEP_JOIN, .peer = HLY_NONE};
    return add_step(b, step, NULL, after, after2);
}
