/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.h - what the tests of plans share: a check, and the plans of all ranks. */
#ifndef HALAY_TEST_PLAN_H
#define HALAY_TEST_PLAN_H

#include <halay/plan.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK_FAILED failures++
#include "../check.h"

enum { RANKS_MAX = 64 };

struct plans {
    uint32_t nranks;
    halay_plan_t *plan[RANKS_MAX];
};

static inline uint32_t find_planner(halay_collective_t collective, const char *name)
{
    uint32_t planner = 0;

    if (halay_planner_find(collective, name, &planner) != 0) {
        fprintf(stderr, "there is no planner %s\n", name);
        exit(1);
    }
    return planner;
}

/* 1 if the planner makes plans for these; the operation is taken to commute */
static inline int planner_takes(uint32_t planner, uint32_t nranks, uint32_t in_place)
{
    halay_planner_call_t call = {.nranks = nranks,
                                 .count = UINT64_MAX,
                                 .in_place = in_place,
                                 .commutative = 1,
                                 .relaxed = 1,
                                 .group = 1,
                                 .apart = 1};

    return halay_planner_serves(planner, &call, NULL);
}

/* shape NULL: all on one node */
static inline void make_plans_on(struct plans *all, uint32_t planner, uint32_t nranks,
                                 uint32_t root, uint32_t in_place, const halay_shape_t *shape)
{
    all->nranks = nranks;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        halay_plan_params_t params = {.collective = halay_planner_get(planner)->collective,
                                      .nranks = nranks,
                                      .rank = rank,
                                      .root = root,
                                      .in_place = in_place,
                                      .shape = shape};
        int result = halay_plan_make(planner, &params, &all->plan[rank]);
        if (result != 0) {
            fprintf(stderr, "planner %u, rank %u of %u: %d\n", planner, rank, nranks, result);
            exit(1);
        }
    }
}

static inline void make_plans(struct plans *all, uint32_t planner, uint32_t nranks, uint32_t root,
                              uint32_t in_place)
{
    make_plans_on(all, planner, nranks, root, in_place, NULL);
}

static inline void free_plans(struct plans *all)
{
    for (uint32_t rank = 0; rank < all->nranks; rank++) {
        halay_plan_free(all->plan[rank]);
    }
}

static inline int prove_plans(const struct plans *all, halay_proof_t *proof)
{
    memset(proof, 0, sizeof(*proof));
    proof->size = sizeof(*proof);
    return halay_plan_prove((const halay_plan_t *const *)all->plan, all->nranks, proof);
}

#endif
