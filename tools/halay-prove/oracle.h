/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oracle.h - a second opinion on plans. The oracle executes the plans of all ranks in many orders
 * and looks at what comes out. It shares no code and no method with the prover: values are whole
 * expression trees with explicit counts of contributors, not fingerprints, and a race is seen by
 * its effect, not derived from the dependencies.
 */
#ifndef HALAY_PROVE_ORACLE_H
#define HALAY_PROVE_ORACLE_H

#include "../common/program.h"

enum { HLY_ORACLE_RANKS_MAX = 16 }; /* in whose plans it looks for faults */

enum { HLY_ZERO_BUFFERING = 1, HLY_EAGER_BUFFERING = 2 };

typedef struct hly_oracle_limits {
    uint32_t buffering; /* HLY_*_BUFFERING, or-ed */
    uint32_t orders;    /* adversarial orders where not all can be tried */
    uint32_t states;    /* more than this many are not all tried */
    uint64_t seed;
} hly_oracle_limits_t;

#define HLY_ORACLE_LIMITS_INIT                                                                     \
    {                                                                                              \
        HLY_ZERO_BUFFERING | HLY_EAGER_BUFFERING, 1000, 20000, 1                                   \
    }

typedef struct hly_outcome {
    hly_verdict_t verdict;
    uint32_t buffering;  /* under which it failed; all that were tried if it is right */
    uint32_t exhaustive; /* 1: every order was tried */
    uint64_t runs;       /* states or orders that were tried */
    char why[192];
} hly_outcome_t;

const char *hly_verdict_name(hly_verdict_t verdict);

/* Executes plans[0..nranks). Any plans, also damaged ones. 0 or HALAY_ENOMEM. */
int hly_oracle_run(const halay_plan_t *const plans[], uint32_t nranks,
                   const hly_oracle_limits_t *limits, hly_outcome_t *outcome);

/* splitmix64: the tool's only source of chance. */
uint64_t hly_random(uint64_t *state);
/* Uniform in [0, bound), bound > 0. */
uint32_t hly_random_below(uint64_t *state, uint32_t bound);

#endif
