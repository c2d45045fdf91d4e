/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relaxed.h - repeated broadcasts, on a communicator with HALAY_HINT_RELAXED_BROADCAST. Where
 * equal broadcasts follow one another, the first and then every 32nd are ordinary: all ranks hear
 * from all. The others are relaxed: their root waits for nobody (HALAY_PLANNER_RELAXED).
 * docs/decisions/plans.md#0046.
 *
 * Invariant: whether a call is relaxed depends on the calls of its communicator alone, so all ranks
 * decide alike. If they have not made the same calls, their signatures differ. A call starts within
 * HLY_UNACKED_MOST of comm->acked, and all ranks have made the calls before that one. So no rank is
 * further ahead of another than there are slots.
 *
 * A rank that completes a confirmed (not relaxed) call knows that all ranks have completed the
 * relaxed ones before it. For that a rank starts a confirmed call only after it has completed
 * those, whatever room the window has.
 */
#ifndef HLY_RELAXED_H
#define HLY_RELAXED_H

#include "wire/request.h"

#define HLY_RELAXED_RANKS 64 /* at most, since `ended` has a bit a rank */
#define HLY_RELAXED_SIGN                                                                           \
    UINT64_C(0x5345524945530001) /* xored into the signature of relaxed calls */

/* Counts the call, and makes it a relaxed one if possible. wrong: its arguments are wrong, so it
 * equals no other call. */
void hly_relaxed_post(halay_comm_t *comm, struct hly_call *call, bool wrong);
/* May other ranks have ended this call, or the one they made instead, without hearing from all? */
bool hly_relaxed_follows(const halay_comm_t *comm, uint32_t sequence);
/* Have relaxed calls started that others may not have made? */
static inline bool hly_relaxed_is_unconfirmed(const halay_comm_t *comm)
{
    return comm->relaxed.end - comm->acked - 1 < HLY_UNACKED_MOST; /* else `end` is long ago */
}
/*
 * Leaving (LEAVE). No rank finalizes before all have completed their relaxed calls: messages of a
 * root could be lost with it, and others would take the rank for dead. So it asks the others, and
 * they answer.
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
