/* SPDX-License-Identifier: Apache-2.0 */
/* survivors.h - runs the survivors' agreement (agree/agree.h) on a communicator. */
#ifndef HLY_CONSENSUS_H
#define HLY_CONSENSUS_H

#include "agree/agree.h"
#include "fault/fault.h"

enum hly_consensus_call { HLY_CALL_AGREE = 1, HLY_CALL_SHRINK };

struct hly_consensus_value { /* the decided value */
    int32_t flag;            /* AND of the ranks' flags */
    const uint64_t *without; /* set of the failed ranks; valid until the next agreement */
};

/* One agreement, as far as this rank knows it. */
struct hly_consensus {
    uint32_t number; /* of the agreement on its communicator: 1, 2, ... */
    bool ended;      /* it is decided, or this rank was left out */
    uint32_t looks;  /* looks at the clock after deadline_ns */
    /* When silent ranks count as failed; when to send ASK again (0: at once); when the program has
     * called it; when to look at it next. */
    uint64_t deadline_ns, ask_ns, started_ns, look_ns;
    uint64_t recorded;        /* its number in the flight record */
    struct hly_agreement *is; /* its state, in the allocation of struct hly_survivors */
};

struct hly_survivors { /* the agreements of a communicator */
    uint32_t number;   /* of the last agreement that this rank has entered */
    bool left_out;     /* the others go on without this rank */
    struct hly_consensus
        consensus[2];           /* [number % 2]; the other is the one before it, or after it */
    uint64_t *failed, *without; /* sets of the message that is being read */
    uint64_t gone[];            /* set of the ranks that agreements have left out */
};

/* Enters the next agreement on this communicator. An error: it was not entered. */
int hly_consensus_begin(halay_comm_t *comm, enum hly_consensus_call call, int32_t flag);
/* Has the last agreement ended? comm: a halay_comm_t. */
bool hly_consensus_is_over(void *comm);
/* Fills in the result of the last agreement, when it is over. Returns HALAY_OK; an error of the
 * value, equal on all ranks; or an error of this rank alone. text: the cause of an error. */
int hly_consensus_end(halay_comm_t *comm, struct hly_consensus_value *value, char text[192]);
/* Is the rank known here to have failed? */
bool hly_consensus_has_failed(const halay_comm_t *comm, int rank);

/* The program has freed the communicator: releases the peers that its agreements have left out. */
void hly_consensus_free(const halay_comm_t *comm);
/* A CONSENSUS message has come; a rank of the communicator is lost. */
void hly_consensus_heard(halay_comm_t *comm, const struct hly_header *header,
                         const struct hly_consensus_wire *message);
void hly_consensus_lost(halay_comm_t *comm, int rank);
void hly_consensus_timers(halay_context_t *context);

/* ---------------------------------------------------------------- for stall.c */

/* Writes the first ranks that this rank waits for in the agreement; returns how many. */
int hly_consensus_awaited(const halay_comm_t *comm, const struct hly_consensus *consensus,
                          int ranks[], int most);
/* A number that changes whenever the agreement makes progress. */
uint64_t hly_consensus_measure(const halay_comm_t *comm, const struct hly_consensus *consensus);
const char *
hly_consensus_text(const struct hly_consensus *consensus); /* name of the called function */
/* Has this rank called the agreement with this number? Does it wait in an agreement? */
bool hly_consensus_is_made(const halay_comm_t *comm, uint32_t number);
bool hly_consensus_waits(const halay_comm_t *comm);
/* A rank that the agreement waits for is stopped: it counts as failed. */
void hly_consensus_absent(halay_comm_t *comm, struct hly_consensus *consensus, int rank);

#endif
