/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - the engine's log of all ranks, and its replay against their plans.
 *
 * The log has what was really done: the addresses that the device and the transport were given, the
 * ones that bytes landed at, and when (one clock for all ranks). The replay knows the plan and the
 * call, computes where every operand has to be by itself, and shares no code with the engine.
 */
#ifndef TESTS_REPLAY_H
#define TESTS_REPLAY_H

#include "wire/watch.h"

/* The mistake that rank `victim` makes at its opportunity number `after`; NONE: none. */
void replay_seed(enum hly_seed seed, int victim, int after);
bool replay_seeded(void); /* it was made */

/* Call once all ranks are through. Forgets the log. 0: everything was done right; else why not. */
int replay_check(char *why, size_t why_bytes);
/* Of all checks so far. */
uint64_t replay_calls(void), replay_steps(void);

#endif
