/* SPDX-License-Identifier: Apache-2.0 */
/* recording.h - what a timeline records of a trainer. */
#ifndef HLT_RECORDING_H
#define HLT_RECORDING_H

#include "calls.h"

enum { HLT_RECORDING_CYCLES = 2 }; /* hlt_recording.on: cycles, too */

/* What to add to the clock of this node to have that of rank 0's, and how wrong that may be. */
struct hlt_clock {
    int64_t offset_ns;
    uint64_t error_ns;
};

struct hlt_timeline;

struct hlt_recording {
    /* mutex */
    struct hlt_timeline *timeline; /* NULL: none is on */
    char label[32];                /* before names in a timeline that is shared */
    uint64_t label_hash;
    uint64_t timelines; /* begun or shared so far */

    /* stepper */
    struct hlt_clock clock; /* of this node */
    int on;                 /* a timeline is on, as seen by this step */
    uint64_t end_ns;        /* when the tensors end that end together now; else 0 */
    int listed;             /* the timeline has these tensors already */
    uint64_t round_ns;      /* when the round in flight began */
};

/* timeline.c. Stepper, without the mutex; they do nothing while no timeline is on. */
/*
 * Records a fused call, which is unpacked at end_ns. Returns 1 if it has recorded the tensors of
 * the call's list, too.
 */
int hlt_timeline_fused(halay_trainer_t *trainer, const struct hlt_call *call, uint64_t end_ns);
void hlt_timeline_vote(halay_trainer_t *trainer, const struct hlt_call *call);
void hlt_timeline_round(halay_trainer_t *trainer);
void hlt_timeline_cycle(halay_trainer_t *trainer);
void hlt_timeline_void(halay_trainer_t *trainer);
int hlt_timeline_recording(const struct hlt_timeline *timeline);
/* Mutex held, and a timeline is on. */
void hlt_timeline_tensor(halay_trainer_t *trainer, const struct hlt_tensor *tensor, int code,
                         uint64_t end_ns);

#endif
