/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore.h - what the explorers of agreements, failing calls and meetings share: the search of all
 * states, drawn runs, known runs, damaged copies, and how runs are shortened and printed.
 *
 * A kind of world has its state, its events and what must not be. Each event brings somebody
 * further, so no run is endless: a state that comes again on its own path is a complaint. A hash of
 * 64 bits is kept of each state that was seen.
 */
#ifndef HALAY_PROVE_EXPLORE_H
#define HALAY_PROVE_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prove.h"

enum { HLY_TRACE_MOST = 4096, HLY_LIMITS_MOST = 24 };

typedef struct hly_happens {
    uint8_t what, a, b; /* what happens to whom, and from whom */
    bool must;          /* it happens, sooner or later, if nothing else does */
} hly_happens_t;

/* Members of a struct of functions, each named without its hly_, and their values. */
#define HLY_OP(f) __typeof__(hly_##f) *f;
#define HLY_IS(f) hly_##f,

typedef struct hly_common { /* a world begins with it */
    const void *ops;        /* the functions that are tried; they begin with their name */
    const char *complaint;  /* what has gone wrong, or NULL */
    bool loud;              /* prints what happens */
} hly_common_t;

enum hly_when {             /* a row of cases is explored */
                HLY_ALWAYS, /* also with damaged functions */
                HLY_SOUND,  /* with the sound ones */
                HLY_LONG    /* and if that is asked for, since it takes long */
};

/* Limits are text: numbers of what there may be, by the words of their kind. "2 ranks, 1 die" */
typedef struct hly_row {
    const char *limits;
    enum hly_when when;
} hly_row_t;

/* A run that is known: what happens to which one, and from which one ("c0 h10"). It ends well, and
 * does not with its damage. */
typedef struct hly_story {
    const char *name, *damage, *limits, *events;
} hly_story_t;

typedef struct hly_explored { /* a kind of world */
    const char *name;
    size_t bytes;               /* of one, and */
    size_t state_bytes;         /* of one on the path of a search, which may be smaller */
    uint32_t events_most;       /* that can happen in a world */
    uint32_t depth, trace;      /* a path and a run that are longer do not end */
    bool idles;                 /* events that need not happen may go in a circle */
    bool tells;                 /* a damage with a story is tried with that alone: rows take long */
    const char *const *words;   /* of the limits, a byte each, in their order; NULL is the last */
    const char *const *texts;   /* of the events: "hrank %u hears rank %u:"; NULL is the last */
    const hly_row_t *rows;      /* limits NULL is the last */
    const hly_story_t *stories; /* name NULL is the last */
    const void *sound;          /* functions */
    const void *const *damaged; /* and their damaged copies; NULL is the last */
    uint32_t draws, draws_damaged;      /* runs for each that is asked for; and of a damaged copy */
    const char *drawn_name, *drawn_may; /* events in drawn runs that are as frequent as musts */
    uint32_t (*draw)(uint64_t *chance, uint8_t limits[]); /* how rare other events are */
    void (*init)(void *world, const uint8_t limits[]); /* which has its ops, and zeros as common */
    void (*copy)(void *to, const void *from);
    uint32_t (*events)(const void *world, hly_happens_t events[]); /* all that can happen */
    bool (*can)(const void *world, const hly_happens_t *event);    /* NULL: if it is one of those */
    void (*apply)(void *world, const hly_happens_t *event);
    void (*finish)(void *world); /* nothing has to happen any more: complains if somebody waits */
    void (*merge)(void *world);  /* into the one that stands for all that are like it; or NULL */
    uint64_t (*hash)(const void *world);
} hly_explored_t;

/* What has the same name in each table. */
/* clang-format off */
#define HLY_EXPLORED(model) \
    .words = words, .texts = texts, .rows = rows, .stories = stories, .sound = &sound, \
    .init = model##_init, .copy = model##_copy, .events = model##_events, .apply = model##_apply, \
    .finish = model##_finish, .hash = model##_hash
/* clang-format on */

extern const hly_explored_t hly_agreements, hly_failing_calls, hly_meetings;

/* Known runs, all states of the rows, and so many drawn runs. */
void hly_explore(const hly_explored_t *kind, bool all, uint32_t random, uint64_t seed,
                 hly_count_t *count);
/* Each damaged copy has to be refused. `loud`: with its counter-example. */
void hly_explore_damaged(const hly_explored_t *kind, bool loud, hly_count_t *count);
/* Is it so that nothing is lost where states are merged? */
void hly_explore_merged(const hly_explored_t *kind, hly_count_t *count);

/* An event, for a list of those that can happen. */
static inline void hly_may(hly_happens_t events[], uint32_t *n, int what, uint32_t a, uint32_t b,
                           bool must)
{
    events[(*n)++] = (hly_happens_t){(uint8_t)what, (uint8_t)a, (uint8_t)b, must};
}

#endif
