/* SPDX-License-Identifier: Apache-2.0 */
/* meet_explore.h - what the tool can be asked for about meetings. */
#ifndef HALAY_PROVE_MEET_EXPLORE_H
#define HALAY_PROVE_MEET_EXPLORE_H

#include "meet_model.h"
#include "prove.h"

/* All states of up to four processes that meet; more faults of them if `all`. */
void hly_meet_explore(bool all, hly_count_t *count);

/* Each damaged copy has to be refused. `loud`: with its counter-example. */
void hly_meet_explore_damaged(bool loud, hly_count_t *count);

extern const hly_worlds_ops_t *const hly_worlds_damaged[]; /* NULL is the last */

#endif
