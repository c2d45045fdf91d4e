/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore.h - goes through all states that a world can reach, and shortens the way to a complaint.
 *
 * Each event brings somebody further, so no run is endless: a state that comes again on its own
 * path is a complaint. A hash of 64 bits is kept of each state that was seen.
 */
#ifndef HALAY_PROVE_EXPLORE_H
#define HALAY_PROVE_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HLY_TRACE_MOST = 4096 };

typedef struct hly_happens {
    uint8_t what, a, b; /* what happens to whom, and from whom */
    bool must;          /* it happens, sooner or later, if nothing else does */
} hly_happens_t;

typedef struct hly_trace {
    hly_happens_t events[HLY_TRACE_MOST];
    uint32_t n;
} hly_trace_t;

typedef struct hly_explored { /* a kind of world */
    size_t bytes;             /* of one, and */
    size_t state_bytes;       /* of one on the path of a search, which may be smaller */
    size_t complaint;         /* the offset of its const char *, NULL while all is well */
    uint32_t events_most;     /* that can happen in a world */
    uint32_t depth, trace;    /* a path and a run that are longer do not end */
    bool idles;               /* events that need not happen may go in a circle */
    void (*copy)(void *to, const void *from);
    uint32_t (*events)(const void *world, hly_happens_t events[]); /* all that can happen */
    bool (*can)(const void *world, const hly_happens_t *event);    /* NULL: if it is one of those */
    void (*apply)(void *world, const hly_happens_t *event);
    void (*finish)(void *world); /* nothing has to happen any more: complains if somebody waits */
    uint64_t (*hash)(const void *world);
} hly_explored_t;

typedef struct hly_explored_counts {
    uint64_t states, steps;
} hly_explored_counts_t;

/* All that can come of this world. Returns the first complaint, with its trace; NULL: all is well.
 */
const char *hly_explore_all(const hly_explored_t *kind, const void *start, hly_trace_t *trace,
                            hly_explored_counts_t *counts);
/* Plays what of the trace can happen, and then what must; complains as the search does. `world`:
 * room for one. */
const char *hly_explore_play(const hly_explored_t *kind, const void *start, hly_trace_t *trace,
                             void *world);
/* Leaves out of it what the complaint does not need. */
void hly_explore_shorten(const hly_explored_t *kind, const void *start, hly_trace_t *trace);

/* A run that is known: what happens to which one, and from which one ("c0 h10"). Returns what is
 * wrong with it; NULL: all is well. `world`: room for one. */
#define HLY_NO_SUCH_RUN "the run cannot happen"
const char *hly_explore_tell(const hly_explored_t *kind, const void *start, const char *events,
                             void *world);
/* Prints it. True: what can happen of it ends well, and does not with its damage. */
bool hly_explore_told(const char *name, const char *sound, const char *damaged);

#endif
