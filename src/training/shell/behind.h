/* SPDX-License-Identifier: Apache-2.0 */
/* behind.h - tensors that wait for a stream of the program. */
#ifndef HLT_BEHIND_H
#define HLT_BEHIND_H

#include "../core/core.h"

enum { HLT_AFTERS = 1024 }; /* streams that the next submissions of so many names wait for */

/* The place in a stream of the program that the tensors of one submission wait for. */
struct hlt_behind {
    struct hlt_behind *next; /* mutex: of those that wait for their submission; of unused ones */
    uint64_t name;           /* of the submission, hashed */
    halay_stream_t stream;
    halay_mark_t mark;
    int out;     /* the mark is */
    int over;    /* the stream has come so far, or never will */
    int code;    /* over: why not */
    size_t refs; /* tensors, once they are submitted */
};

struct hlt_behinds {
    struct hlt_behind *after, *unused; /* mutex */
    size_t nafters;                    /* mutex */
    struct hlt_list list;              /* stepper: a stream has not come to them */
};

/* behind.c */
/* Mutex held. The mark that the next submission of this name waits for, for so many tensors, or
 * NULL. */
struct hlt_behind *hlt_behind_take(halay_trainer_t *trainer, const char *name, size_t ntensors);
/* Without the mutex: the device has failed before a submission. Returns its code. */
int hlt_trainer_lose(halay_trainer_t *trainer, int code);
/* Mutex held. A tensor of it was not submitted. Takes NULL. */
void hlt_behind_drop(halay_trainer_t *trainer, struct hlt_behind *behind);
/* Stepper, without the mutex: tensors to which their streams have come become pending. Returns when
 * to look again; 0: no need. */
uint64_t hlt_behind_step(halay_trainer_t *trainer);
void hlt_behinds_free(halay_trainer_t *trainer);

#endif
