/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - group steps, as prover and cost model both look at them: is a step's entry a group at
 * all, and which steps of the ranks meet.
 */
#ifndef HALAY_PLAN_GROUP_H
#define HALAY_PLAN_GROUP_H

#include <halay/plan.h>

static inline const halay_group_t *hly_group_of(const halay_plan_t *plan, const halay_step_t *step)
{
    return &plan->groups[step->peer];
}

static inline const halay_member_t *hly_members_of(const halay_plan_t *plan,
                                                   const halay_step_t *step)
{
    return &plan->members[hly_group_of(plan, step)->member];
}

/* 1 if the members' wholes are summed; 0 if each block moves from the member whose it is. */
static inline int hly_group_reduces(const halay_group_t *group)
{
    return !halay_group_moves(group->kind);
}

/* 1 if data come from this member; 1 if some go to it. */
static inline int hly_member_gives(const halay_group_t *group, const halay_member_t *member)
{
    return hly_group_reduces(group) || member->count > 0;
}

static inline int hly_member_takes(const halay_group_t *group, const halay_member_t *member)
{
    return !hly_group_reduces(group) || member->count > 0;
}

/* That one of the step's two operands which is the whole. */
static inline const halay_operand_t *hly_group_whole(const halay_plan_t *plan,
                                                     const halay_step_t *step)
{
    return &plan->operands[step->operand + (hly_group_reduces(hly_group_of(plan, step)) ? 1 : 0)];
}

/*
 * NULL, or what is wrong with a group step by itself. The step has two operands that are in range;
 * nothing else of it is trusted.
 */
const char *hly_group_check(const halay_plan_t *plan, const halay_step_t *step, uint32_t nranks);

/* 1 if both steps have the same kind and members, and (runs: 1) the same runs. */
int hly_groups_agree(const halay_plan_t *a, const halay_step_t *x, const halay_plan_t *b,
                     const halay_step_t *y, int runs);

/* A rank's step that has not its like on another rank. */
struct hly_group_fault {
    uint32_t rank, index, other;
    const char *why; /* said of `other` */
};

/*
 * Joins the steps that meet to circles: partner[] of a member's step is that of the next member.
 * Steps are numbered over all ranks, base[rank] is the number of a rank's first. Each has passed
 * hly_group_check(). 0, HALAY_ENOMEM, or HALAY_EPLAN with the fault.
 */
int hly_group_link(const halay_plan_t *const plans[], uint32_t nranks, const uint32_t *base,
                   uint32_t *partner, struct hly_group_fault *fault);

#endif
