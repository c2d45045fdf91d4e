/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stall.h - which ranks a call waits for, and for how long: docs/decisions/agreements.md#0080,
 * 0081. The same for an agreement of survivors: 0084.
 *
 * If a call has made no progress for a while, this rank asks the ranks that it waits for where they
 * are. A rank answers when it is in Halay, in whatever call. If a rank does not answer, this rank
 * looks at its process in /proc, or, on another node, a rank of that node does. What was found goes
 * to one rank, the speaker, which logs it for all.
 */
#ifndef HLY_STALL_H
#define HLY_STALL_H

#include "fault/survivors.h"
#include "waits/waits.h"

#define HLY_STALL_LOOK_NS 250000000ull /* between two looks at a call that waits */
/* Bit in the edge of a QUERY, REPLY or MISSING: `sequence` is the number of an agreement. */
#define HLY_EDGE_CONSENSUS 0x100
/* The same: the question is about a message, and `sequence` the number of its sender's wait. */
#define HLY_EDGE_MESSAGE 0x200
#define HLY_EDGE_SEEN    0xffu /* the rest of the edge of a REPLY or MISSING */

/* The text about a rank that a verdict calls absent; stall.c adds what its process does. */
#define HLY_ABSENT_TEXT "has not made this call, or does not answer"

/* The calls in which an awaited rank waits, from its last REPLY: fault/deadlock.c. */
struct hly_chain {
    uint32_t n;
    struct hly_blocked blocked[HLY_BLOCKED_MOST];
};

/* The wait of the oldest call of a communicator, of its agreement of survivors, or of a message. It
 * is allocated when one of them waits for the first time. */
struct hly_stall {
    uint32_t of;                          /* HLY_OF_* */
    uint32_t sequence;                    /* number of the call, agreement, or wait */
    uint64_t started_ns;                  /* when that has begun */
    uint64_t moved;                       /* measure() of its progress at the last look */
    uint64_t look_ns, report_ns, dead_ns; /* when to look, send MISSING, look for dead processes */
    uint32_t dead_next;                   /* how many ranks look_for_dead() has passed so far */
    struct hly_waits waits;               /* the awaited ranks */
    struct hly_chain chains[HLY_AWAITED_MOST]; /* of each entry of waits.awaited */
};

/* A look at a call that is not complete; the timers call this. */
void hly_stall_look(halay_request_t *request, uint64_t now_ns);
/* The same for an agreement that is not decided. */
void hly_stall_look_consensus(halay_comm_t *comm, struct hly_consensus *consensus, uint64_t now_ns);
/* The same for a thread of the program that waits for a message. */
void hly_stall_look_message(struct hly_waited *message, uint64_t now_ns);
/* Makes the next look due now: this rank asks at once the ranks that a failing call awaits. */
void hly_stall_hurry(const halay_comm_t *comm);
/* Does this rank, or another one, say that it has not made the call with this number? */
bool hly_stall_is_behind(const halay_comm_t *comm, uint32_t sequence, int rank);
/* What the process of this rank does, if it is one of this node: then *pid is
 * its number, or 0. */
enum hly_doing hly_stall_look_near(const halay_comm_t *comm, int rank, int64_t *pid);
/* A QUERY, REPLY or MISSING message. */
void hly_stall_asked(halay_comm_t *comm, const struct hly_header *header,
                     const struct hly_blocked *blocked, uint32_t nblocked);
/* A QUERY of a communicator that this rank has not made, from that peer. */
void hly_stall_asked_early(halay_context_t *context, const struct hly_header *header,
                           struct hly_peer *peer);

#endif
