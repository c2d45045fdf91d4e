/* SPDX-License-Identifier: Apache-2.0 */
/* prove.h - what the tool can be asked for. Each part prints its table and counts. */
#ifndef HALAY_PROVE_PROVE_H
#define HALAY_PROVE_PROVE_H

#include "oracle.h"
#include "shapes.h"

typedef struct hly_count {
    uint64_t passed;
    uint64_t failed;
} hly_count_t;

enum { HLY_RANKS_MAX = 4096 };

typedef struct hly_options {
    const char *planner;              /* only these: "ring", or "allreduce/ring"; NULL: all */
    uint8_t ranks[HLY_RANKS_MAX + 1]; /* 1: prove for so many */
    halay_shape_t *shape;             /* only this one; NULL: those of all kinds */
    uint32_t random;                  /* so many more numbers of ranks, drawn up to 512 */
    uint32_t far;                     /* so many up to 100,000, of which single plans are made */
    uint32_t mutants;                 /* non-harmless ones of a kind; 0: prove instead */
    uint32_t orders;
    uint64_t seed;
    uint32_t selftest;
    uint32_t verbose;
    uint32_t list; /* count the proofs only */
    uint32_t agreements, worlds, all;
} hly_options_t;

/* What the plans of all ranks are made from. */
typedef struct hly_case {
    uint32_t planner, nranks, root, in_place;
    const halay_shape_t *shape; /* NULL for a planner that asks for none */
    const char *nodes;          /* the shape in words, or "" */
} hly_case_t;

/* The plans of all ranks; freed by hly_plans_free. Also the errors of halay_plan_make. */
int hly_plans_make(const hly_case_t *from, halay_plan_t *plans[]);
void hly_plans_free(halay_plan_t *plans[], uint32_t nranks);
/* 1 if the option --planner lets it through. */
int hly_planner_wanted(const hly_options_t *options, const halay_planner_info_t *info);
/* Writes "allreduce/ring, 3 ranks, root 0, in_place 1". */
void hly_case_print(const hly_case_t *from);
/* 1 if the planner says that it makes plans for so many ranks. */
int hly_planner_takes(const halay_planner_info_t *info, uint32_t nranks);

/*
 * Goes through the shapes that a planner is to be tried on, of many ranks some only; call it until
 * it returns 0.
 */
typedef struct hly_shapes {
    const hly_options_t *options;
    uint32_t planner, nranks, next;
    halay_shape_t *shape; /* made for the case, freed by the next call */
} hly_shapes_t;

int hly_next_shape(hly_shapes_t *shapes, hly_case_t *to);

void hly_prove(const hly_options_t *options, hly_count_t *count);
void hly_prove_far(const hly_options_t *options, hly_count_t *count);
void hly_campaign(const hly_options_t *options, hly_count_t *count);
void hly_selftest(hly_count_t *count);

#endif
