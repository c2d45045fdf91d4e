/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan runs only if its bytes are those that were proved: every byte of a plan's steps and
 * operands is flipped in turn, and the engine's check must refuse each.
 */
#include <halay/plan.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec/exec.h"

static unsigned long flips;

static int flip_all(struct hly_plan *p, unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        int rc = hly_plan_check(p);
        bytes[i] ^= 0x10;
        flips++;
        if (rc != HALAY_EPLAN)
            return 1;
    }
    return hly_plan_check(p); /* and unharmed it is accepted */
}

static int one(uint32_t planner, uint32_t nranks)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    halay_plan_params_t params = {info->collective, nranks, nranks - 1, 0, 0};
    struct hly_plan p = {0};
    int rc = halay_plan_make(planner, &params, &p.plan);
    if (rc == HALAY_EUNSUPPORTED && nranks & (nranks - 1))
        return !(info->restrictions & HALAY_PLANNER_POWER_OF_TWO);
    if (rc)
        return 1;
    p.hash = halay_plan_hash(p.plan);
    int bad = flip_all(&p, (unsigned char *)p.plan->steps, p.plan->nsteps * sizeof(halay_step_t));
    if (!bad)
        bad = flip_all(&p, (unsigned char *)p.plan->operands,
                       p.plan->noperands * sizeof(halay_operand_t));
    if (!bad)
        bad =
            flip_all(&p, (unsigned char *)p.plan->groups, p.plan->ngroups * sizeof(halay_group_t));
    if (!bad)
        bad = flip_all(&p, (unsigned char *)p.plan->members,
                       p.plan->nmembers * sizeof(halay_member_t));
    if (!bad)
        bad = flip_all(&p, (unsigned char *)&p.plan->params,
                       offsetof(halay_plan_params_t, in_place) + sizeof(p.plan->params.in_place));
    if (!bad)
        bad = flip_all(&p, (unsigned char *)&p.plan->shape, sizeof(p.plan->shape));
    if (p.plan->params.shape)
        bad = 1; /* the plan has outlived it */
    if (bad)
        fprintf(stderr, "%s for %u ranks: a flipped byte was not noticed\n", info->name, nranks);
    halay_plan_free(p.plan);
    return bad;
}

int main(void)
{
    int failed = 0;
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++)
        for (uint32_t n = 2; n <= 9; n++)
            failed += one(planner, n);
    printf("%lu flipped bytes, all refused\n", flips);
    return failed ? 1 : 0;
}
