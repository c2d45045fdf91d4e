/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - runs the plans of one call on, from the recorded steps. */
#ifndef HALAY_REPLAY_RUN_H
#define HALAY_REPLAY_RUN_H

#include <halay/plan.h>

#include "../common/flight.h"
#include "../common/machine.h"

typedef struct hly_replay {
    uint32_t nranks, segment;
    halay_plan_t **plans; /* of each rank */
    uint8_t **done;       /* of each step, as recorded */
    uint8_t *frozen;      /* of each rank: it takes no step */
    uint8_t *made;        /* it has made the call, or it is not known */
    int *world;           /* its number in the job; -1: not known */
    hly_program_t program;
    hly_machine_t machine; /* its verdict is that of the last run */
    uint8_t *past;         /* of each step of the program: it has been done */
    char why[192];         /* it cannot be run */
} hly_replay_t;

/* 0, or -1 and `why`: not enough is known. Finish it in any case. */
int hly_replay_init(hly_replay_t *replay, const hly_flights_t *flights,
                    const hly_question_t *question);
void hly_replay_finish(hly_replay_t *replay);
/*
 * Runs all ranks but the frozen ones on until nothing moves, with messages that are buffered. Gives
 * how many ranks are through, and of each rank the first step that is not done; nsteps: none. If
 * all are through, the results are judged.
 */
uint32_t hly_replay_run(hly_replay_t *replay, uint32_t *stuck);

#endif
