/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relaxed.h - repeated broadcasts, on a communicator with HALAY_HINT_RELAXED_BROADCAST. Where
 * equal broadcasts follow one another, the first and then every 32nd are ordinary: all ranks hear
 * from all. The others are relaxed: their root waits for nobody (HALAY_PLANNER_RELAXED).
 * docs/decisions/plans.md#0046.
 *
 * Invariant: whether a call is relaxed depends on the calls of its communicator alone, so all ranks
 * say the same. Where they have not made the same calls, the signature tells. A call starts within
 * HLY_UNACKED_MOST of comm->acked, and all ranks have made the calls before that one. So nobody is
 * further ahead of anybody than there are slots.
 *
 * A rank that ends a confirmed call knows that all have ended the relaxed ones before it. So a rank
 * starts that call only after it has ended those, however many calls are under way.
 */
#ifndef HLY_RELAXED_H
#define HLY_RELAXED_H

#include "wire/request.h"

#define HLY_RELAXED_RANKS 64 /* at most, since `told` has a bit a rank */
#define HLY_RELAXED_SIGN                                                                           \
    UINT64_C(0x5345524945530001) /* xored into the signature of relaxed calls */

/* Counts the call, and relaxes it if it can be. wrong: its arguments are, so it equals no call. */
void hly_relaxed_post(halay_comm_t *comm, struct hly_call *call, bool wrong);
/* May other ranks have ended this call, or the one they made instead, without hearing from all? */
bool hly_relaxed_follows(const halay_comm_t *comm, uint32_t sequence);
/* Have relaxed calls started that others may not have made? */
static inline bool hly_relaxed_is_unconfirmed(const halay_comm_t *comm)
{
    return comm->relaxed.end - comm->acked - 1 < HLY_UNACKED_MOST; /* else `end` is long ago */
}
/*
 * Leaving (LEAVE). No rank finalizes before all have ended their calls: what a root has sent could
 * be lost with it, and others would take the rank for dead. So it asks them, and they answer.
 */
bool hly_relaxed_is_open(
    const halay_comm_t *comm); /* its calls have ended here, perhaps not elsewhere */
bool hly_relaxed_waits_for(const halay_comm_t *comm, int rank);
void hly_relaxed_ask(halay_comm_t *comm, int rank);
void hly_relaxed_leave(halay_comm_t *comm, const struct hly_header *header);
void hly_relaxed_answer(halay_comm_t *comm);
/* This rank frees the communicator: answers all ranks beforehand. */
void hly_relaxed_free(halay_comm_t *comm);

#endif
