/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elsewhere.h - ranks that wait in another call than others do: docs/decisions/agreements.md#0094.
 *
 * Then a failing call has gaps in its control graph, and who waits for whom may be a circle. A rank
 * that is asked where it is tells in which call it waits, and what it was told itself: so who asks
 * sees a chain of calls, and whether it ends in one that this rank has not made.
 */
#ifndef HLY_ELSEWHERE_H
#define HLY_ELSEWHERE_H

#include "fault/fault.h"

/* What a rank that is asked about this call tells of its waiting. made: it has made the call.
 * Returns how many. */
uint32_t hly_elsewhere_hops(halay_comm_t *comm, uint32_t sequence, bool made,
                            struct hly_hop hops[HLY_HOPS_MOST]);
/* How many of them make sense? A peer has sent them. */
uint32_t hly_elsewhere_check(const halay_comm_t *comm, const struct hly_hop *hops, uint32_t nhops);
/* The verdict calls nobody absent. Puts the circle in it if there is one, or where the rank waits
 * that it names. */
void hly_elsewhere_explain(halay_comm_t *comm, const struct hly_slot *slot,
                           struct hly_verdict_wire *verdict);
/* What a verdict says of a rank that has not made a call. answers: it has said so itself. */
void hly_elsewhere_absent(const halay_comm_t *comm, int rank, bool answers, char *text,
                          size_t bytes);

#endif
