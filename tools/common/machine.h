/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - all ranks of a program in one state, moved one event at a time. The caller picks the
 * events, and so the order.
 *
 * A step starts as soon as it may and ends when the order says so; this makes it overlap with as
 * much as it ever could. While a step is on its way, its sources may be read, and garbage may stand
 * in its target, at any moment. So whatever two overlapping steps do to a cell, with one of them
 * writing, is taken at its worst: the reader gets garbage; of two writers that differ, garbage
 * stays.
 *
 * A rank's device takes group steps in the order in which they start there: the n-th that starts on
 * a channel meets the n-th of each member, and if that is another group, the run is a fault.
 *
 * The state is one flat piece of memory, for copying and comparing.
 */
#ifndef HLY_MACHINE_H
#define HLY_MACHINE_H

#include "program.h"
#include "terms.h"

typedef struct hly_cell {
    uint32_t value;
    uint64_t tag;
    uint32_t writers; /* on their way now */
    uint32_t writes;  /* begun so far */
} hly_cell_t;

typedef struct hly_read {
    uint32_t value;
    uint32_t writes; /* of the cell when the read began; more now: garbage */
} hly_read_t;

typedef struct hly_write {
    uint32_t writes;
    uint32_t shared; /* another writer was there when this one came */
} hly_write_t;

typedef enum hly_step_state {
    HLY_STEP_WAITS = 0,
    HLY_STEP_MOVES,
    HLY_STEP_SENT, /* eager: done for its rank, the message is out */
    HLY_STEP_DONE
} hly_step_state_t;

/*
 * A step that may end; with RECV, and a SEND under zero buffering, together with its other end; a
 * GROUP, of its first member, with those of all members.
 */
typedef struct hly_event {
    uint32_t step; /* the RECV, if it is a message */
    uint32_t send; /* or HLY_NO_SEND */
} hly_event_t;

#define HLY_NO_SEND UINT32_MAX

typedef struct hly_machine {
    const hly_program_t *program;
    hly_terms_t terms;
    uint32_t eager;
    /* The state, all in one allocation of `bytes` bytes at `state`. */
    uint8_t *state;
    size_t bytes;
    hly_cell_t *cells;
    hly_read_t *reads;
    hly_write_t *writes;
    hly_event_t *events;
    uint32_t *nevents;
    uint64_t *heard; /* by rank: from whom, as bits */
    uint64_t *told;  /* by step: what its rank had heard when a SEND or GROUP started */
    uint32_t *place; /* by step: a GROUP's, in the order of starts on its channel */
    uint32_t *begun; /* by rank and channel: GROUPs that have started */
    uint32_t *left;  /* by rank: steps not done */
    uint8_t *steps;  /* hly_step_state_t */
    uint8_t *need;
    /* Not state. */
    uint8_t *fresh;        /* the state in which no step has started */
    uint32_t *pending;     /* work list of hly_machine_start */
    hly_verdict_t verdict; /* of this run; once not HLY_RIGHT, the run is over */
    char why[192];
} hly_machine_t;

int hly_machine_init(hly_machine_t *machine, const hly_program_t *program);
void hly_machine_finish(hly_machine_t *machine);
/* Back to the beginning: all steps that may start have started. */
void hly_machine_reset(hly_machine_t *machine, uint32_t eager);
/* Carries out events[event]. */
void hly_machine_move(hly_machine_t *machine, uint32_t event);
/* To be called when no event is left: sets the verdict on stalls and results. */
void hly_machine_judge(hly_machine_t *machine);
/* The steps that a started GROUP meets, by member; 0 if one has not started yet. */
int hly_machine_meets(const hly_machine_t *machine, uint32_t g, uint32_t *meets);
/* What cell i of all the sources gives, read at the worst moment so far. */
uint32_t hly_machine_read(const hly_machine_t *machine, const hly_pstep_t *step, uint32_t i);

#endif
