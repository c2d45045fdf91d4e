/* SPDX-License-Identifier: Apache-2.0 */
/* agree_explore.h - what the tool can be asked for about agreements. */
#ifndef HALAY_PROVE_AGREE_EXPLORE_H
#define HALAY_PROVE_AGREE_EXPLORE_H

#include "agree_world.h"
#include "prove.h"

/* All states of up to four ranks, those where faults are known too if `all`; and drawn runs. */
void hly_explore(bool all, uint32_t random, uint64_t seed, hly_count_t *count);

/* Each damaged copy has to be refused. `loud`: with its counter-example. */
void hly_explore_damaged(bool loud, hly_count_t *count);

extern const hly_agreement_ops_t *const hly_damaged[]; /* NULL is the last */

#endif
