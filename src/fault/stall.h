/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stall.h - whom a call waits for, and for how long: docs/decisions/agreements.md#0080, 0081;
 * and an agreement of survivors: 0084.
 *
 * A call that has made no progress for a while asks those that it waits for where they are. A rank
 * answers when it is in Halay, in whatever call. The process of one that does not is looked at by
 * this rank, if it is of the same node, else by another rank of its node. What was found goes to
 * one rank, which says it for all.
 */
#ifndef HLY_STALL_H
#define HLY_STALL_H

#include "fault/survivors.h"
#include "waits/waits.h"

#define HLY_STALL_LOOK_NS  250000000ull /* between two looks at a call that waits */
#define HLY_EDGE_CONSENSUS 0x100        /* in the edge of a message: it is of an agreement */

/* About a rank that a verdict calls absent; stall.c adds what it was seen to do. */
#define HLY_ABSENT_TEXT "has not made this call, or does not answer"

/* The calls in which an awaited rank waits, as it has told: fault/deadlock.c. */
struct hly_chain {
    uint32_t n;
    struct hly_blocked blocked[HLY_BLOCKED_MOST];
};

/* The wait of the oldest call of a communicator, or of its agreement: made when one waits for the
 * first time.
 */
struct hly_stall {
    uint32_t of; /* HLY_OF_* */
    uint32_t sequence;
    uint64_t started_ns;                  /* of the call: what follows is of that one */
    uint64_t moved;                       /* a measure of its progress */
    uint64_t look_ns, report_ns, dead_ns; /* next times */
    uint32_t dead_next;                   /* whom to look at then, from the one after it on */
    struct hly_waits waits;               /* since its last progress */
    struct hly_chain chains[HLY_AWAITED_MOST];
};

/* From the timers: a call that is not complete. */
void hly_stall_look(halay_request_t *request, uint64_t now_ns);
/* The same of an agreement that is not decided. */
void hly_stall_look_consensus(halay_comm_t *comm, struct hly_consensus *consensus, uint64_t now_ns);
/* Its next look is due now: whom the agreement on a verdict awaits is asked at once. */
void hly_stall_hurry(const halay_comm_t *comm);
/* Has this rank answered that it has not made this call? */
bool hly_stall_is_behind(const halay_comm_t *comm, uint32_t sequence, int rank);
/* A QUERY, REPLY or MISSING message. */
void hly_stall_asked(halay_comm_t *comm, const struct hly_header *header,
                     const struct hly_blocked *blocked, uint32_t nblocked);
/* A QUERY of a communicator that this rank has not made, from that peer. */
void hly_stall_asked_early(halay_context_t *context, const struct hly_header *header,
                           struct hly_peer *peer);

#endif
