/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_world.h - the ranks of one call that fails (src/agree/failing.h), with the messages
 * between them and all that can happen to them: docs/explored.md has the assumptions.
 */
#ifndef HALAY_PROVE_VERDICT_WORLD_H
#define HALAY_PROVE_VERDICT_WORLD_H

#include "../../src/agree/failing.h"
#include "explore.h"

#define HLY_CALL_DEADLINE_NS UINT64_C(8000000000)

enum { HLY_CALL_RANKS = 8, HLY_CALL_FLIGHTS = 1024, HLY_CALL_LIST = 4, HLY_CALL_EVENTS = 1024 };

/* The functions of src/agree, or those of a damaged copy. */
typedef struct hly_failing_ops {
    const char *name; /* what is damaged */
    void (*enter)(hly_view_t *, struct hly_fault *, uint64_t, const struct hly_verdict_wire *);
    void (*outlive)(hly_view_t *, struct hly_fault *, const struct hly_verdict_wire *);
    bool (*raise)(hly_view_t *, struct hly_fault *, const struct hly_verdict_wire *);
    enum hly_heard (*sort)(hly_view_t *, struct hly_fault *, const struct hly_broken *,
                           const struct hly_failing_message *, const struct hly_verdict_wire *,
                           bool);
    bool (*heard)(hly_view_t *, struct hly_fault *, const struct hly_failing_message *,
                  const struct hly_verdict_wire *);
    bool (*heard_after)(hly_view_t *, struct hly_fault *, struct hly_broken *,
                        const struct hly_failing_message *, const struct hly_verdict_wire *);
    void (*lost)(hly_view_t *, struct hly_fault *);
    bool (*blames)(hly_view_t *, const struct hly_fault *, int, enum hly_given, bool);
    bool (*look)(hly_view_t *, struct hly_fault *, uint64_t);
    void (*look_alone)(hly_view_t *, struct hly_fault *);
    bool (*is_silent)(hly_view_t *, const struct hly_fault *, uint32_t);
    void (*name_absent)(hly_view_t *, struct hly_fault *, struct hly_verdict_wire *);
    void (*named)(hly_view_t *, const struct hly_fault *);
    bool (*end_too)(struct hly_fault *, const struct hly_broken *);
    bool (*is_late)(hly_view_t *, struct hly_fault *, const struct hly_broken *);
    enum hly_course (*go_on)(hly_view_t *, struct hly_fault *, const struct hly_broken *,
                             const struct hly_failing_now *);
    bool (*help)(hly_view_t *, struct hly_fault *, bool, bool, struct hly_verdict_wire *);
    enum hly_end (*end)(hly_view_t *, struct hly_fault *, struct hly_broken *,
                        struct hly_verdict_wire *);
    void (*end_in_step)(struct hly_fault *, const struct hly_verdict_wire *);
    void (*tell)(hly_view_t *, struct hly_fault *, int, const struct hly_verdict_wire *);
    void (*tell_all)(hly_view_t *, struct hly_fault *, const struct hly_verdict_wire *);
    bool (*adopt)(hly_view_t *, struct hly_fault *, const struct hly_verdict_wire *);
    void (*leave)(hly_view_t *, const struct hly_verdict_wire *);
} hly_failing_ops_t;

#define HLY_FAILING_OPS                                                                            \
    hly_failing_enter, hly_failing_outlive, hly_failing_raise, hly_failing_sort,                   \
        hly_failing_heard, hly_failing_heard_after, hly_failing_lost, hly_failing_blames,          \
        hly_failing_look, hly_failing_look_alone, hly_failing_is_silent, hly_failing_name,         \
        hly_failing_named, hly_failing_end_too, hly_failing_is_late, hly_failing_go_on,            \
        hly_failing_help, hly_failing_end, hly_failing_end_in_step, hly_failing_tell,              \
        hly_failing_tell_all, hly_held_adopt, hly_failing_leave

extern const hly_failing_ops_t hly_sound_verdicts;

typedef enum hly_step_kind {
    HLY_CASE_CALLS = 'c',     /* rank a calls */
    HLY_CASE_REFUSED = 'r',   /* rank a calls, and its call is wrong */
    HLY_CASE_HEARS = 'h',     /* rank a hears the next message of rank b */
    HLY_CASE_OVERTAKES = 'o', /* or a later one: the b / 8-th of rank b modulo 8 */
    HLY_CASE_DIES = 'd',      /* rank a dies */
    HLY_CASE_LEAVES = 'e',    /* rank a ends: it has completed the call; or after another error */
    HLY_CASE_FINDS = 'f',     /* rank a finds rank b dead; what was under way from there is lost */
    HLY_CASE_STOPS = 's',     /* rank a is stopped */
    HLY_CASE_RESUMES = 'g',   /* and goes on */
    HLY_CASE_SEES = 'p',      /* rank a has seen rank b stopped for the timeout */
    HLY_CASE_PASSES = 't',    /* time passes, to the next timer that is due */
    HLY_CASE_CLOCK = 'l'      /* rank a looks at its clock: a timer is due */
} hly_step_kind_t;

typedef struct hly_case_limits { /* of what may go wrong */
    uint32_t deaths, stops, away, refused;
    bool words;     /* ranks say one death by different words */
    bool sparse;    /* data go round a ring: ranks have links to those before and after them only */
    uint32_t leave; /* ranks that end well, or after an error elsewhere */
    bool in_order;  /* messages of a pair do not overtake each other */
} hly_case_limits_t;

typedef struct hly_short { /* a verdict */
    uint8_t cause, words, of, stamp;
    int8_t rank, other;
    uint8_t present[HLY_CALL_LIST], gone[HLY_CALL_LIST];
} hly_short_t;

typedef struct hly_letter { /* a message under way */
    uint8_t from, to, kind, what, edge, in_call;
    hly_short_t verdict;
} hly_letter_t;

typedef enum hly_phase { HLY_OUT, HLY_IN, HLY_FAILS, HLY_ENDED, HLY_WELL } hly_phase_t;

typedef struct hly_caller { /* a rank */
    uint8_t phase, data, known, linked, explained;
    bool has_fault, outcome_known, broken, agreed, listens, asked;
    uint64_t started_ns;
    hly_short_t broken_by, result;
    union {
        struct hly_fault fault;
        uint8_t fault_bytes[sizeof(struct hly_fault) + HLY_FAILING_SETS * sizeof(uint64_t)];
    };
} hly_caller_t;

typedef struct hly_call_world {
    const hly_failing_ops_t *ops;
    hly_case_limits_t limits;
    uint32_t nranks, nletters, nrefused;
    uint8_t dead, left, stopped, was_stopped, was_away; /* dead: and those that have left */
    bool loud;
    uint64_t now_ns;
    const char *complaint; /* what has gone wrong, or NULL */
    hly_short_t best;      /* of what ranks have found themselves */
    hly_caller_t ranks[HLY_CALL_RANKS];
    hly_letter_t letters[HLY_CALL_FLIGHTS];
} hly_call_world_t;

void hly_call_world_init(hly_call_world_t *w, const hly_failing_ops_t *ops, uint32_t nranks,
                         const hly_case_limits_t *limits);
void hly_call_world_copy(void *copy, const void *world);
/* All that can happen; returns how many. */
uint32_t hly_call_world_events(const void *world, hly_happens_t events[]);
void hly_call_world_apply(void *world, const hly_happens_t *event);
/* Nothing has to happen any more: complains if a rank still waits, or knows another verdict. */
void hly_call_world_finish(void *world);
uint64_t hly_call_world_hash(const void *world);

/* ---------------------------------------------------------------- verdict_short.c */

hly_short_t hly_shorten(const struct hly_verdict_wire *verdict);
hly_short_t hly_bare(const struct hly_verdict_wire *verdict); /* without its lists of ranks */
struct hly_verdict_wire hly_whole(const hly_short_t *verdict);
void hly_print_short(const hly_short_t *verdict);
void hly_letter_put(hly_call_world_t *w, const hly_letter_t *letter);
uint32_t hly_letters(const hly_call_world_t *w, int from, uint32_t to); /* from -1: of any rank */
/* Takes a message of the pair out, behind so many others; false: there is none. */
bool hly_letter_take(hly_call_world_t *w, uint32_t from, uint32_t to, uint32_t behind,
                     hly_letter_t *letter);

#endif
