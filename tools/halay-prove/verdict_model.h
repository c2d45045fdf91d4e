/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_model.h - the ranks of one call that fails (src/agree/failing.h), with the messages
 * between them and all that can happen to them: docs/explored.md has the assumptions.
 */
#ifndef HALAY_PROVE_VERDICT_MODEL_H
#define HALAY_PROVE_VERDICT_MODEL_H

#include "../../src/agree/failing.h"
#include "explore.h"

#define HLY_CALL_DEADLINE_NS UINT64_C(8000000000)

enum { HLY_CALL_RANKS = 8, HLY_CALL_FLIGHTS = 1024, HLY_CALL_EVENTS = 1024, HLY_SEQUENCE = 5 };

/* The functions of src/agree that are tried, each without its hly_. */
/* clang-format off */
#define HLY_FAILING_EACH(X) \
    X(failing_enter) X(failing_outlive) X(failing_raise) X(failing_sort) X(failing_heard) \
    X(failing_heard_after) X(failing_lost) X(failing_blames) X(failing_look) \
    X(failing_look_alone) X(failing_is_silent) X(failing_name) X(failing_named) \
    X(failing_end_too) X(failing_is_late) X(failing_go_on) X(failing_help) X(failing_end) \
    X(failing_end_in_step) X(failing_tell) X(failing_tell_all) X(held_adopt) X(failing_leave)
/* clang-format on */

typedef struct hly_failing_ops { /* those, or of a damaged copy */
    const char *name;            /* what is damaged */
    HLY_FAILING_EACH(HLY_OP)
} hly_failing_ops_t;

typedef struct hly_case_limits { /* of what may go wrong */
    uint8_t ranks, die, leave, stopped, away, wrong;
    uint8_t words;    /* ranks say one death by different words */
    uint8_t ring;     /* data go round a ring: ranks have links to the next one only */
    uint8_t in_order; /* messages of a pair do not overtake each other */
} hly_case_limits_t;

typedef struct hly_short { /* what of a verdict matters here; its lists are sets */
    uint8_t cause, words, of, stamp, present, gone;
    int16_t rank, other;
} hly_short_t;

typedef struct hly_letter { /* a message under way */
    uint8_t from, to, what, edge;
    hly_short_t verdict;
} hly_letter_t;

enum { HLY_DATA = 255 }; /* in place of a kind */

typedef struct hly_held { /* what of a struct hly_fault matters here; times are from now on */
    bool entered, slow, ready, final, after, hurry, clocked, probed, asked, overdue, answers;
    uint8_t looks, ballot, warned, voted, sets[HLY_FAILING_SETS];
    hly_short_t verdict, firm;
    uint8_t padding[2];              /* 0: states are compared as bytes */
    uint64_t deadline_in, absent_in; /* UINT64_MAX: never */
} hly_held_t;

typedef enum hly_phase { HLY_OUT, HLY_IN, HLY_FAILS, HLY_ENDED, HLY_WELL } hly_phase_t;

typedef struct hly_caller { /* a rank */
    uint8_t phase, data, known, linked, explained;
    bool has_fault, outcome_known, broken, agreed, listens;
    hly_short_t broken_by, result;
    uint8_t padding[2];
    uint64_t called_for; /* so long ago it has called */
    hly_held_t held;
} hly_caller_t;

typedef struct hly_call_world {
    hly_common_t common;
    hly_case_limits_t limits;
    uint32_t nletters;
    uint8_t wrong, dead, left, stopped, was_stopped, was_away; /* dead: and those that have left */
    hly_short_t best; /* of what ranks have found themselves */
    hly_caller_t ranks[HLY_CALL_RANKS];
    hly_letter_t letters[HLY_CALL_FLIGHTS];
} hly_call_world_t;

void hly_call_world_init(void *world, const uint8_t limits[]);
void hly_call_world_copy(void *copy, const void *world);
uint32_t hly_call_world_events(const void *world, hly_happens_t events[]);
void hly_call_world_apply(void *world, const hly_happens_t *e);
void hly_call_world_finish(void *world);

extern const void *const hly_damaged_verdict[];

/* ---------------------------------------------------------------- verdict_short.c */

hly_short_t hly_shorten(const struct hly_verdict_wire *verdict);
hly_short_t hly_bare(const struct hly_verdict_wire *verdict); /* without its lists of ranks */
struct hly_verdict_wire hly_whole(const hly_short_t *verdict);
/* The same in place; the texts and calls there are empty. */
void hly_widen(struct hly_verdict_wire *whole, const hly_short_t *verdict);
void hly_print_short(const hly_short_t *verdict);
/* The fault has room for its sets. */
void hly_hold(hly_held_t *held, const struct hly_fault *fault, uint64_t now_ns);
void hly_unhold(struct hly_fault *fault, const hly_held_t *held, uint64_t now_ns);
void hly_letter_put(hly_call_world_t *w, const hly_letter_t *letter);
uint32_t hly_letters(const hly_call_world_t *w, int from, uint32_t to); /* from -1: of any rank */
/* Takes a message of the pair out, behind so many others; false: there is none. */
bool hly_letter_take(hly_call_world_t *w, uint32_t from, uint32_t to, uint32_t behind,
                     hly_letter_t *letter);

/* ---------------------------------------------------------------- verdict_alike.c */

uint64_t hly_caller_due_in(const hly_caller_t *c); /* until its timer is due */
bool hly_caller_outlives(const hly_caller_t *c);   /* it has completed the call, and takes part */
void hly_call_world_forget(hly_call_world_t *w);   /* what makes no difference any more */
void hly_call_world_merge(void *world);
uint64_t hly_call_world_hash(const void *world);

#endif
