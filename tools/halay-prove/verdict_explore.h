/* SPDX-License-Identifier: Apache-2.0 */
/* verdict_explore.h - what the tool can be asked for about the verdict of a call that fails. */
#ifndef HALAY_PROVE_VERDICT_EXPLORE_H
#define HALAY_PROVE_VERDICT_EXPLORE_H

#include "prove.h"
#include "verdict_world.h"

/* All states of up to three ranks, those that take long too if `all`; and drawn runs. */
void hly_explore_verdicts(bool all, uint32_t random, uint64_t seed, hly_count_t *count);

/* Each damaged copy has to be refused. `loud`: with its counter-example. */
void hly_explore_damaged_verdicts(bool loud, hly_count_t *count);

extern const hly_failing_ops_t *const hly_damaged_verdicts[]; /* NULL is the last */

#endif
