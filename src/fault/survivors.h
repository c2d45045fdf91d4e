/* SPDX-License-Identifier: Apache-2.0 */
/* survivors.h - runs the survivors' agreement (agree/agree.h) on a communicator. */
#ifndef HLY_CONSENSUS_H
#define HLY_CONSENSUS_H

#include "agree/agree.h"
#include "fault/fault.h"

enum hly_consensus_call { HLY_CALL_AGREE = 1, HLY_CALL_SHRINK };

struct hly_consensus_value { /* what was agreed on */
    int32_t flag;
    const uint64_t *without; /* the set of the ranks that have failed; until the next agreement */
};

/* One agreement, as far as this rank is in it. */
struct hly_consensus {
    uint32_t number;
    bool ended;
    uint32_t looks;
    uint64_t deadline_ns, ask_ns, started_ns, look_ns;
    uint64_t recorded;        /* its number in the flight record */
    struct hly_agreement *is; /* behind struct hly_survivors */
};

struct hly_survivors {                 /* of a communicator */
    uint32_t number;                   /* that this rank has entered */
    bool left_out;                     /* the others go on without this rank */
    struct hly_consensus consensus[2]; /* by number: this one and the one before it, or after it */
    uint64_t *failed, *without;        /* sets of the message that is read, and */
    uint64_t gone[];                   /* of the ranks that were agreed to have failed */
};

/* Enters the next agreement on this communicator. An error: it was not entered. */
int hly_consensus_begin(halay_comm_t *comm, enum hly_consensus_call call, int32_t flag);
bool hly_consensus_is_over(void *comm);
/* The end of the last one, when it is over. An error is this rank's alone, and text says why; or
 * that of the value, on all ranks. */
int hly_consensus_end(halay_comm_t *comm, struct hly_consensus_value *value, char text[192]);
/* Is the rank known here to have failed? */
bool hly_consensus_has_failed(const halay_comm_t *comm, int rank);

/* The program has freed the communicator: so is what the dead ranks of it had of this process. */
void hly_consensus_free(const halay_comm_t *comm);
/* An CONSENSUS message has come; a rank of it is lost. */
void hly_consensus_heard(halay_comm_t *comm, const struct hly_header *header,
                         const struct hly_consensus_wire *message);
void hly_consensus_lost(halay_comm_t *comm, int rank);
void hly_consensus_timers(halay_context_t *context);

/* ---------------------------------------------------------------- for stall.c */

/* Whom this rank waits for in it, the first ones; returns how many. */
int hly_consensus_awaited(const halay_comm_t *comm, const struct hly_consensus *consensus,
                          int ranks[], int most);
/* Changes whenever it has moved on. */
uint64_t hly_consensus_measure(const halay_comm_t *comm, const struct hly_consensus *consensus);
const char *
hly_consensus_text(const struct hly_consensus *consensus); /* what the program has called */
/* Has this rank called the agreement with this number? Does it wait in one? */
bool hly_consensus_is_made(const halay_comm_t *comm, uint32_t number);
bool hly_consensus_waits(const halay_comm_t *comm);
/* A rank that is awaited counts as failed. */
void hly_consensus_absent(halay_comm_t *comm, struct hly_consensus *consensus, int rank);

#endif
