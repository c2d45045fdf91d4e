/* SPDX-License-Identifier: Apache-2.0 */
/* pair.h - hidden communicators of two ranks, and messages with tags. */
#ifndef HLY_PAIR_H
#define HLY_PAIR_H

#include "wire/message.h"

enum hly_pair_of { HLY_PAIR_CALLS, HLY_PAIR_MESSAGES };

/*
 * The communicator over which `from` sends to `to`. It is made when it is first used, with an id
 * that both sides can compute, and belongs to the one that the program has named. Errors on it name
 * that one's ranks (struct hly_failure).
 */
int hly_pair_get(halay_comm_t *parent, enum hly_pair_of what, int from, int to,
                 halay_comm_t **pair);

/* ---------------------------------------------------------------- message.c */

/* The request of a message; its receive or send has not begun. NULL: no memory. */
halay_request_t *hly_message_request(halay_comm_t *comm, enum hly_message_is is, void *buffer,
                                     uint64_t bytes, uint8_t type);
/* The program begins to wait for a request: the deadline of a message counts from now on. */
static inline void hly_message_await(halay_request_t *r)
{
    if (r->message.is && r->state != HLY_COMPLETE)
        r->deadline_ns = (r->started_ns = hly_now_ns()) + r->comm->deadline_ns;
}
/* A receive has found a message of which more is to come; one that was sent is received. */
void hly_message_matched(halay_request_t *request);
void hly_message_taken(halay_comm_t *comm, const struct hly_header *header);
/* The call that moves the bytes of a message has ended. */
void hly_message_moved(halay_request_t *call);
/* Ends messages that cannot come any more, or whose deadline has passed. */
void hly_message_timers(halay_context_t *context);
/* Why this communicator has no messages any more; HALAY_OK: it has. The failure is kept for
 * halay_comm_verdict(). */
int hly_message_refused(halay_comm_t *comm);

#endif
