/* SPDX-License-Identifier: Apache-2.0 */
/* agree.h - the control graph of an agreement, and the verdict that a rank holds in it (held.c). */
#ifndef HLY_AGREE_H
#define HLY_AGREE_H

#include <assert.h>

#include "fault/fault.h"

/* The neighbours that a rank tells; so many tell it. */
static inline uint32_t hly_agree_rounds(const halay_comm_t *comm)
{
    uint32_t rounds = 0;
    while ((1ull << rounds) < (uint64_t)comm->nranks)
        rounds++;
    assert(rounds <= HLY_CONTROL_MAX);
    return rounds;
}

static inline int hly_agree_from(const halay_comm_t *comm, uint32_t k)
{
    uint64_t n = (uint64_t)comm->nranks;
    return (int)(((uint64_t)comm->rank + n - (1ull << k) % n) % n);
}

/* Bit k: the rank 2^k before this one is `rank`. 0: it is no neighbour that tells this one. */
static inline uint32_t hly_agree_bits_of(const halay_comm_t *comm, int rank)
{
    uint32_t bits = 0;
    for (uint32_t k = 0; k < hly_agree_rounds(comm); k++)
        if (hly_agree_from(comm, k) == rank)
            bits |= 1u << k;
    return bits;
}

/* Have all rounds come? Then nobody was absent. */
static inline bool hly_agree_is_whole(const halay_comm_t *comm, const struct hly_fault *fault)
{
    return fault->heard == (UINT64_C(1) << hly_agree_rounds(comm)) - 1;
}

/* Does the verdict say that the rank is dead, or stopped? Then nobody waits for it. */
static inline bool hly_agree_counts_out(const struct hly_verdict_wire *verdict, int rank)
{
    return (verdict->cause == HLY_CAUSE_PEER || verdict->cause == HLY_CAUSE_STOPPED) &&
           verdict->rank == rank;
}

/* Is the rank dead, or does this call's verdict count it out? */
bool hly_agree_is_gone(const halay_comm_t *comm, const struct hly_fault *fault, int rank);
/* All that this rank knows to be dead. True: it is news. */
bool hly_agree_note_dead(const halay_comm_t *comm, struct hly_fault *fault);
bool hly_agree_note_gone(const halay_comm_t *comm, struct hly_fault *fault, int rank);
bool hly_agree_is_claim(const struct hly_verdict_wire *verdict); /* that a rank is absent */
bool hly_agree_is_present(const struct hly_fault *fault, int rank);
void hly_agree_hold(struct hly_fault *fault, const struct hly_verdict_wire *verdict);
void hly_agree_hold_firm(halay_comm_t *comm, struct hly_fault *fault);
bool hly_agree_reconsider(halay_comm_t *comm, struct hly_slot *slot);
bool hly_agree_share_call(const struct hly_slot *slot, struct hly_verdict_wire *to,
                          const struct hly_verdict_wire *from);
/* Has this rank taken part, as far as this one knows? */
bool hly_agree_is_heard(const halay_comm_t *comm, const struct hly_slot *slot, int rank);
/* This rank is in the call. */
void hly_agree_note_speaker(struct hly_fault *fault, uint32_t rank);
/* Sends that this verdict is agreed on, with the lowest rank in the call as far as is known. */
void hly_agree_tell(halay_comm_t *comm, int to, const struct hly_verdict_wire *verdict);
/* Who logs the verdict? */
enum hly_voice hly_agree_voice(const halay_comm_t *comm, const struct hly_slot *slot,
                               const struct hly_verdict_wire *verdict);
bool hly_agree_adopt(halay_comm_t *comm, struct hly_slot *slot,
                     const struct hly_verdict_wire *theirs);
/* A rank is lost while this call is agreed on: others may not know. */
void hly_agree_lost(halay_comm_t *comm, struct hly_slot *slot);

/* ---------------------------------------------------------------- judge.c: a death, or a stop */

/* Does one rank judge for all which one the verdict names? */
bool hly_judge_rules(const halay_comm_t *comm, const struct hly_verdict_wire *verdict);
/* Goes on with that. over: the rounds are. True: this rank judges, and has the words of all others
 * that live; or it is late, and nobody else has a word. */
bool hly_judge_decides(halay_comm_t *comm, struct hly_slot *slot, bool over, bool late);
/* The clock has passed: does this rank end it by itself? Else it has more time now. */
bool hly_judge_ends(halay_comm_t *comm, struct hly_slot *slot);
void hly_judge_heard(const halay_comm_t *comm, struct hly_fault *f, const struct hly_header *h);
/* A message of it has come, and its verdict was adopted, or was not the better one. */
void hly_judge_compare(const halay_comm_t *comm, struct hly_fault *f, const struct hly_header *h,
                       const struct hly_verdict_wire *verdict);
/* Has a judge decided this that is dead, and did not hear it when this rank gave its word to the
 * next one? */
bool hly_judge_is_past(const halay_comm_t *comm, const struct hly_header *h);
/* It is decided. */
void hly_judge_tell(halay_comm_t *comm, const struct hly_verdict_wire *verdict);

#endif
