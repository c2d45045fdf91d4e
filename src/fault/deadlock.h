/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadlock.h - ranks that wait in another call than others do: docs/decisions/agreements.md#0094.
 *
 * Then a failing call has gaps in its control graph, and who waits for whom may be a cycle. A rank
 * that is asked where it is tells in which call it waits, and what it was told itself: so who asks
 * sees a chain of calls, and whether it ends in one that this rank has not made.
 */
#ifndef HLY_DEADLOCK_H
#define HLY_DEADLOCK_H

#include "fault/fault.h"

/* What a rank that is asked about this call tells of its waiting. comm: NULL if it has not made the
 * call. Returns how many. */
uint32_t hly_deadlock_chain(const halay_context_t *context, const halay_comm_t *comm,
                            uint32_t sequence, struct hly_blocked blocked[HLY_BLOCKED_MOST]);
/* How many of them make sense? A peer has sent them. */
uint32_t hly_deadlock_check(const halay_comm_t *comm, const struct hly_blocked *blocked,
                            uint32_t nblocked);
/* The verdict calls nobody absent. Puts the cycle in it if there is one, or where the rank waits
 * that it names. */
void hly_deadlock_explain(halay_comm_t *comm, const struct hly_slot *slot,
                          struct hly_verdict_wire *verdict);
/* What a verdict says of a rank that has not made a call. answers: it has said so itself. */
void hly_deadlock_absent(const halay_comm_t *comm, int rank, bool answers, char *text,
                         size_t bytes);

#endif
