/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadlock.h - ranks that wait in different calls: docs/decisions/agreements.md#0094.
 *
 * Each of these ranks may wait for the next one in a cycle. A rank that gets a QUERY answers in
 * which call it waits, and which calls it has heard of in the same way. So the rank that has asked
 * gets a chain of calls. There is a cycle if the chain comes to a call that the asking rank belongs
 * to and has not made.
 */
#ifndef HLY_DEADLOCK_H
#define HLY_DEADLOCK_H

#include "fault/fault.h"
#include "fault/stall.h"
#include "waits/text.h"

/* The chain of calls that a rank sends which is asked about this call. comm: NULL if it has not
 * made that call. Returns the length of the chain. */
uint32_t hly_deadlock_chain(const halay_context_t *context, const halay_comm_t *comm,
                            uint32_t sequence, struct hly_blocked blocked[HLY_BLOCKED_MOST]);
/* How many entries of a chain from a peer, from the first on, are valid? */
uint32_t hly_deadlock_check(const halay_comm_t *comm, const struct hly_blocked *blocked,
                            uint32_t nblocked);
/* How this rank waits there. */
struct hly_blocked hly_deadlock_blocked(const struct hly_waited *waited);
/* Does this rank owe a rank of the communicator what that one waits for? False also if it may be
 * under way. */
bool hly_deadlock_owes(const halay_comm_t *comm, int to, const struct hly_blocked *blocked);
/* "MPI_Recv(source 0, tag 99)"; where: " on a communicator of 2 ranks" follows. */
void hly_deadlock_text(const struct hly_blocked *blocked, bool where, struct hly_line *line);
/* "; rank 0 of the job is in MPI_Recv(source 1, tag 99)", if the rank that this wait is for has
 * said so; else "". */
void hly_deadlock_other(const struct hly_waited *waited, char *text, size_t bytes);
struct hly_cycle { /* ranks that wait for each other */
    uint32_t n;
    struct hly_blocked blocked[HLY_BLOCKED_MOST + 1];
};
/* Is this wait in a set of ranks that cannot go on? Then c is that set. */
bool hly_deadlock_find(const struct hly_waited *waited, struct hly_stall *stall,
                       struct hly_cycle *c);
/* Is it in a set that another rank has found, and where? */
bool hly_deadlock_is_in(const struct hly_waited *waited, const struct hly_cycle *c, uint32_t *at);
/* "rank 0 is in X, rank 1 is in Y" */
void hly_deadlock_cycle_text(const struct hly_cycle *c, char *text, size_t bytes);
bool hly_deadlock_is_call(const struct hly_waited *waited); /* else for a message, or another */
/* For a verdict that calls no rank absent. If there is a cycle, makes it the verdict. Else adds in
 * which call the rank waits that the verdict names. */
void hly_deadlock_explain(halay_comm_t *comm, const struct hly_slot *slot,
                          struct hly_verdict_wire *verdict);
/* The text of a verdict about a rank that has not made a call. answers: it has said so itself. */
void hly_deadlock_absent(const halay_comm_t *comm, int rank, bool answers, char *text,
                         size_t bytes);

#endif
