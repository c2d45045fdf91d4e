/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - how one rank's error becomes every rank's: fault.c. */
#ifndef HLY_FAULT_H
#define HLY_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/halay.h>

#include "wire.h"

struct hly_slot;

/* Where the call of one sequence stands on this rank. */
struct hly_fault {
    bool raised;          /* this rank knows of a failure */
    bool entered;         /* and its call has been made: it takes part in the agreement */
    bool slow;            /* someone is dead or absent: ends by time, not by rounds */
    bool started;         /* round 0 is sent */
    uint32_t round;       /* next to be heard */
    uint32_t heard;       /* bits: rounds that came */
    uint32_t alarmed;     /* bits: control neighbours that have sent an alarm or a round */
    uint64_t deadline_ns; /* when the agreement ends anyway */
    uint32_t looks;       /* at the clock, after that */
    uint64_t absent_ns;   /* when silent neighbours are called absent */
    struct hly_verdict_wire verdict;
};

struct hly_failure { /* of one call, as it is told */
    struct hly_verdict_wire verdict;
    uint32_t sequence;
    int nranks;  /* of the communicator that the program knows */
    bool paired; /* send and receive: the verdict's ranks 0 and 1 are pair[0] and pair[1] there */
    int pair[2];
};

void hly_fault_raise(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *verdict);
void hly_fault_entered(halay_request_t *request);
void hly_fault_heard(halay_comm_t *comm, const struct hly_header *header,
                     const struct hly_verdict_wire *verdict);
void hly_fault_outlived(halay_comm_t *comm, const struct hly_header *header,
                        const struct hly_verdict_wire *verdict);
bool hly_fault_is_dead(const halay_comm_t *comm, int rank);
/* Keeps for halay_comm_verdict() how the call has failed, and says it. */
void hly_fault_tell(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *verdict,
                    int level);
void hly_fault_timers(halay_context_t *context);
void hly_fault_progress(halay_comm_t *comm, struct hly_slot *slot);
void hly_verdict_other(struct hly_verdict_wire *v, halay_comm_t *comm); /* fills other_host */
bool hly_verdict_better(const struct hly_verdict_wire *a, const struct hly_verdict_wire *b);
void hly_verdict_init(struct hly_verdict_wire *v, halay_comm_t *comm, enum hly_cause cause,
                      int code, int rank);
void hly_failure_text(const struct hly_failure *failure, char *text, size_t bytes);
int hly_failure_rank(const struct hly_failure *failure, int rank);
void hly_brief_text(const struct hly_brief *brief, char *text, size_t bytes);

#endif
