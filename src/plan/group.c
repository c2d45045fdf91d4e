/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - the form of group steps, and who meets whom: the n-th step of a rank on a channel meets
 * the n-th step there of each other member. Time: the square of the members for each step that
 * meets, in words compared.
 */
#include "group.h"

#include <stdlib.h>
#include <string.h>

#define NONE HALAY_STEP_NONE

static const char *check_members(const halay_plan_t *plan, const halay_group_t *group,
                                 uint32_t nranks, const halay_member_t **own)
{
    const halay_member_t *member = &plan->members[group->member];

    *own = NULL;
    for (uint32_t i = 0; i < group->nmembers; i++) {
        if (member[i].rank >= nranks || (i > 0 && member[i].rank <= member[i - 1].rank)) {
            return "the members of its group are not ranks that rise";
        }
        if (member[i].count > plan->blocks || member[i].first >= plan->blocks) {
            return "a member's run has blocks that there are not";
        }
        if (member[i].rank == plan->params.rank) {
            *own = &member[i];
        }
    }
    return *own ? NULL : "this rank is no member of its group";
}

/* The runs are the whole one after the other; of an allreduce each is. */
static const char *check_runs(const halay_plan_t *plan, const halay_group_t *group,
                              const halay_operand_t *whole)
{
    const halay_member_t *member = &plan->members[group->member];
    uint32_t at = whole->first, shared = 0, owners = 0;

    if (whole->count == 0) {
        return "its whole has no blocks";
    }
    for (uint32_t i = 0; i < group->nmembers; i++) {
        if (group->kind == HALAY_GROUP_ALLTOALL &&
            (member[i].count == 0 || member[i].count != member[0].count)) {
            return "the runs of its members are not of one length, as in an alltoall";
        }
        if (member[i].first != at ||
            member[i].count > whole->count - (group->kind == HALAY_GROUP_ALLREDUCE ? 0 : shared)) {
            return "the runs of its members do not follow one another";
        }
        if (group->kind != HALAY_GROUP_ALLREDUCE) {
            at = (uint32_t)(((uint64_t)at + member[i].count) % plan->blocks);
            shared += member[i].count;
        } else if (member[i].count != whole->count) {
            return "a member's run is not the whole, as in an allreduce";
        }
        owners += member[i].count > 0;
    }
    if (group->kind != HALAY_GROUP_ALLREDUCE && shared != whole->count) {
        return "the runs of its members are not the whole";
    }
    if ((group->kind == HALAY_GROUP_REDUCE || group->kind == HALAY_GROUP_BROADCAST) &&
        owners != 1) {
        return "its whole is not one member's";
    }
    return NULL;
}

const char *hly_group_check(const halay_plan_t *plan, const halay_step_t *step, uint32_t nranks)
{
    const halay_member_t *own;

    if (step->peer >= plan->ngroups || step->edge >= HALAY_PLAN_CHANNELS_MAX) {
        return "names a group or a channel that there is not";
    }
    const halay_group_t *group = hly_group_of(plan, step);
    if (group->kind < HALAY_GROUP_REDUCE_SCATTER || group->kind > HALAY_GROUP_ALLTOALL ||
        group->nmembers == 0 || (uint64_t)group->member + group->nmembers > plan->nmembers) {
        return "its group is of an unknown kind, or has members that there are not";
    }
    const char *why = check_members(plan, group, nranks, &own);
    if (why) {
        return why;
    }
    const halay_operand_t *whole = hly_group_whole(plan, step);
    why = check_runs(plan, group, whole);
    if (why) {
        return why;
    }
    const halay_operand_t *other =
        &plan->operands[step->operand + (hly_group_reduces(group) ? 0 : 1)];
    if (group->kind == HALAY_GROUP_ALLTOALL) {
        return other->count != whole->count || other->first != whole->first
                   ? "its operands are not both the whole"
                   : NULL;
    }
    if (other->count != own->count || (own->count > 0 && other->first != own->first)) {
        return "its own operand is not its own run";
    }
    return NULL;
}

int hly_groups_agree(const halay_plan_t *a, const halay_step_t *x, const halay_plan_t *b,
                     const halay_step_t *y, int runs)
{
    const halay_group_t *g = hly_group_of(a, x), *h = hly_group_of(b, y);
    const halay_member_t *m = hly_members_of(a, x), *o = hly_members_of(b, y);
    int same = g->nmembers == h->nmembers && (!runs || g->kind == h->kind);

    if (same && runs) {
        return memcmp(m, o, g->nmembers * sizeof(*m)) == 0;
    }
    for (uint32_t i = 0; same && i < g->nmembers; i++) {
        same = m[i].rank == o[i].rank;
    }
    return same;
}

/* ---------------------------------------------------------------- who meets whom */

struct meet {
    const halay_plan_t *const *plans;
    const uint32_t *base;
    uint32_t *first; /* of a rank and channel: where its steps begin in list[] */
    uint32_t *list;  /* indexes of steps, by rank, channel and index */
    struct hly_group_fault *fault;
};

/* Step number n of a rank on a channel, or NONE. */
static uint32_t nth(const struct meet *w, uint32_t rank, uint32_t channel, uint32_t n)
{
    size_t at = (size_t)rank * HALAY_PLAN_CHANNELS_MAX + channel;

    return n < w->first[at + 1] - w->first[at] ? w->list[w->first[at] + n] : NONE;
}

static int list_steps(struct meet *w, uint32_t nranks, uint64_t total)
{
    size_t places = (size_t)nranks * HALAY_PLAN_CHANNELS_MAX;

    w->first = calloc(places + 2, sizeof(*w->first));
    w->list = malloc((total + 1) * sizeof(*w->list));
    if (!w->first || !w->list) {
        return HALAY_ENOMEM;
    }
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t rank = 0; rank < nranks; rank++) {
            const halay_plan_t *plan = w->plans[rank];
            for (uint32_t i = 0; i < plan->nsteps; i++) {
                if (plan->steps[i].kind != HALAY_STEP_GROUP) {
                    continue;
                }
                size_t at = (size_t)rank * HALAY_PLAN_CHANNELS_MAX + plan->steps[i].edge;
                if (fill) { /* first[at + 1] moves to where the next place begins */
                    w->list[w->first[at + 1]++] = i;
                } else {
                    w->first[at + 2]++;
                }
            }
        }
        for (size_t at = 2; !fill && at < places + 2; at++) {
            w->first[at] += w->first[at - 1];
        }
    }
    return 0;
}

/* The n-th step of `rank` on its channel has its like on `other`. */
static int compare(const struct meet *w, uint32_t rank, uint32_t index, uint32_t other, uint32_t n)
{
    const halay_step_t *step = &w->plans[rank]->steps[index];
    uint32_t theirs = nth(w, other, step->edge, n);
    const char *why = NULL;

    if (theirs == NONE) {
        why = "has no such step on the channel";
    } else if (!hly_groups_agree(w->plans[rank], step, w->plans[other],
                                 &w->plans[other]->steps[theirs], 1)) {
        why = "has another group at this place of the channel";
    }
    if (why) {
        *w->fault = (struct hly_group_fault){rank, index, other, why};
    }
    return why ? HALAY_EPLAN : 0;
}

/* Each compares with the first member, and that with each. */
static int join(const struct meet *w, uint32_t rank, uint32_t index, uint32_t n, uint32_t *partner)
{
    const halay_step_t *step = &w->plans[rank]->steps[index];
    const halay_group_t *group = hly_group_of(w->plans[rank], step);
    const halay_member_t *member = hly_members_of(w->plans[rank], step);
    int result = compare(w, rank, index, member[0].rank, n);

    if (member[0].rank != rank) {
        return result;
    }
    uint32_t before = w->base[rank] + index;
    for (uint32_t i = 1; result == 0 && i < group->nmembers; i++) {
        result = compare(w, rank, index, member[i].rank, n);
        if (result == 0) {
            uint32_t number = w->base[member[i].rank] + nth(w, member[i].rank, step->edge, n);
            partner[before] = number;
            before = number;
        }
    }
    partner[before] = w->base[rank] + index;
    return result;
}

static int join_all(const struct meet *w, uint32_t nranks, uint32_t *partner)
{
    int result = 0;

    for (uint32_t rank = 0; result == 0 && rank < nranks; rank++) {
        for (uint32_t channel = 0; result == 0 && channel < HALAY_PLAN_CHANNELS_MAX; channel++) {
            uint32_t index;
            for (uint32_t n = 0; result == 0 && (index = nth(w, rank, channel, n)) != NONE; n++) {
                result = join(w, rank, index, n, partner);
            }
        }
    }
    return result;
}

int hly_group_link(const halay_plan_t *const plans[], uint32_t nranks, const uint32_t *base,
                   uint32_t *partner, struct hly_group_fault *fault)
{
    struct meet w = {.plans = plans, .base = base, .fault = fault};
    uint64_t total = 0;

    for (uint32_t rank = 0; rank < nranks; rank++) {
        for (uint32_t i = 0; plans[rank]->ngroups > 0 && i < plans[rank]->nsteps; i++) {
            total += plans[rank]->steps[i].kind == HALAY_STEP_GROUP;
        }
    }
    if (total == 0) {
        return 0;
    }
    int result = list_steps(&w, nranks, total);
    if (result == 0) {
        result = join_all(&w, nranks, partner);
    }
    free(w.list);
    free(w.first);
    return result;
}
