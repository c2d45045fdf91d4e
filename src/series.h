/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series.h - equal broadcasts, one after the other: all but the first, and then every 32nd, need
 * not be heard of, so their plan may be one whose root hears of nobody (HALAY_PLANNER_SERIES).
 * docs/decisions/0046.
 *
 * Invariant: whether a call is one of those depends on the calls of its communicator alone, so all
 * ranks say the same; where they have not made the same calls, the signature tells. A call starts
 * within HLY_SERIES of `heard`, before which all ranks have made all calls: so nobody is further
 * ahead of anybody than he was when each call was heard of.
 */
#ifndef HLY_SERIES_H
#define HLY_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/halay.h>

#include "wire.h"

struct hly_call;
struct hly_plan;

#define HLY_SERIES      32                           /* calls, of which the first is heard of */
#define HLY_SERIES_SIGN UINT64_C(0x5345524945530001) /* in the signature of those calls */

struct hly_series {     /* of a communicator */
    uint64_t signature; /* of the last broadcast; 0: it has failed */
    uint64_t told;      /* a bit a rank: it has ended all calls; before this one leaves */
    uint32_t next;      /* the sequence number after that broadcast's */
    uint32_t first;     /* that of the first of all broadcasts right before it */
    uint32_t n;         /* equal ones right before it */
    uint64_t asks;      /* bits: who would leave when this one has ended */
    uint32_t last;      /* that call */
    bool late;          /* a call has failed that was complete here, and the program was not told */
};

/* The communicator's next call has this number and signature: is it the same as the one before? */
static inline bool hly_series_goes_on(const struct hly_series *s, uint32_t sequence,
                                      uint64_t signature)
{
    return s->signature == signature && s->next == sequence;
}
/* And need it not be heard of, if its plan can do so? */
static inline bool hly_series_next(const struct hly_series *s, uint32_t sequence,
                                   uint64_t signature)
{
    return hly_series_goes_on(s, sequence, signature) && (s->n + 1) % HLY_SERIES;
}
/* Then it is made; and whatever it is. */
static inline void hly_series_go_on(struct hly_series *s)
{
    s->n++;
    s->next++;
}
void hly_series_count(halay_comm_t *comm, const struct hly_brief *brief, uint64_t signature);
/* Counts the call; makes of it one that need not be heard of, if it can be. wrong: its arguments
 * are, so that it is as no other rank's. */
void hly_series_post(halay_comm_t *comm, struct hly_call *call, bool wrong);
/* The plan of such a call. */
int hly_series_plan(halay_comm_t *comm, const struct hly_call *call, struct hly_plan **plan,
                    char *reason, size_t reason_bytes);

/* May others have ended this call, or whatever they made of it, without waiting for anybody? */
bool hly_series_follows(const halay_comm_t *comm, uint32_t sequence);
/* The request waits for long: those for whom it waits are told what its call is, once. They compare
 * it: a root that has made another call waits for somebody too, perhaps. */
void hly_series_doubt(halay_request_t *request);
/* Another rank has failed in a call that is complete here: the communicator is of no use any more.
 * The verdict says so, too. */
void hly_series_failed(halay_comm_t *comm, uint32_t sequence, struct hly_verdict_wire *v);
/* Nobody leaves before all have ended their calls: what a root has sent would be gone with it, and
 * the others would take any rank for lost. He asks them: */
int hly_series_end(halay_context_t *context); /* HALAY_OK, or how a call has failed unheard */
/* What it asks, and the answer, have come; calls have ended, so perhaps it is time to answer. */
void hly_series_leave(halay_comm_t *comm, const struct hly_header *header);
void hly_series_answer(halay_comm_t *comm);
/* This rank frees the communicator: that answers, too. */
void hly_series_free(halay_comm_t *comm);

#endif
