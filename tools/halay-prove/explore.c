/* SPDX-License-Identifier: Apache-2.0 */
/* explore.c - a depth-first search of the states, and the replay of its traces. */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seen.h"

typedef struct search {
    const hly_explored_t *kind;
    hly_seen_t seen;
    void **worlds;          /* on the path, */
    hly_happens_t **events; /* what can happen in them, */
    uint64_t *path;         /* and their hashes */
    hly_trace_t *trace;
    uint64_t steps;
    const char *complaint;
} search_t;

static const char **complaint_of(const hly_explored_t *kind, void *world)
{
    return (const char **)((char *)world + kind->complaint);
}

/* ---------------------------------------------------------------- all states */

static bool is_on_path(const search_t *s, uint32_t depth, uint64_t hash)
{
    for (uint32_t i = 0; i < depth; i++) {
        if (s->path[i] == hash) {
            return true;
        }
    }
    return false;
}

/* All that can happen in the world; it is finished if nothing has to. */
static uint32_t events_in(const hly_explored_t *kind, void *world, hly_happens_t *events)
{
    const uint32_t n = kind->events(world, events);
    bool must = false;
    for (uint32_t i = 0; i < n; i++) {
        must |= events[i].must;
    }
    if (!must) {
        kind->finish(world);
    }
    return n;
}

static bool look(search_t *s, uint32_t depth)
{
    const hly_explored_t *kind = s->kind;
    void *w = s->worlds[depth];
    if (s->events[depth] == NULL) {
        s->events[depth] = hly_seen_memory(kind->events_most * sizeof **s->events);
    }
    hly_happens_t *events = s->events[depth];
    const uint32_t n = events_in(kind, w, events);
    s->trace->n = depth;
    s->complaint = *complaint_of(kind, w);
    for (uint32_t i = 0; i < n && !s->complaint; i++) {
        if (s->worlds[depth + 1] == NULL) {
            s->worlds[depth + 1] = hly_seen_memory(kind->state_bytes);
        }
        void *next = s->worlds[depth + 1];
        kind->copy(next, w);
        kind->apply(next, &events[i]);
        s->steps++;
        s->trace->events[depth] = events[i];
        s->trace->n = depth + 1;
        s->complaint = *complaint_of(kind, next);
        const uint64_t hash = kind->hash(next) | 1;
        s->path[depth + 1] = hash;
        if (s->complaint) {
            break;
        }
        if (hly_seen_is_new(&s->seen, hash)) {
            if (depth + 2 == kind->depth) {
                s->complaint = "it does not end";
            } else if (!look(s, depth + 1)) {
                break;
            }
        } else if ((events[i].must || !kind->idles) && is_on_path(s, depth + 1, hash)) {
            s->complaint = "it goes in a circle";
        }
    }
    return !s->complaint;
}

const char *hly_explore_all(const hly_explored_t *kind, const void *start, hly_trace_t *trace,
                            hly_explored_counts_t *counts)
{
    search_t s = {.kind = kind,
                  .trace = trace,
                  .worlds = hly_seen_memory(kind->depth * sizeof *s.worlds),
                  .events = hly_seen_memory(kind->depth * sizeof *s.events),
                  .path = hly_seen_memory(kind->depth * sizeof *s.path)};
    s.worlds[0] = hly_seen_memory(kind->state_bytes);
    kind->copy(s.worlds[0], start);
    look(&s, 0);
    *counts = (hly_explored_counts_t){s.seen.used, s.steps};
    for (uint32_t i = 0; i < kind->depth; i++) {
        free(s.worlds[i]);
        free(s.events[i]);
    }
    free(s.path);
    free(s.events);
    free(s.worlds);
    hly_seen_free(&s.seen);
    return s.complaint;
}

/* ---------------------------------------------------------------- a counter-example */

static bool can(const hly_explored_t *kind, const void *world, const hly_happens_t *e,
                hly_happens_t *events)
{
    if (kind->can != NULL) {
        return kind->can(world, e);
    }
    const uint32_t n = kind->events(world, events);
    for (uint32_t i = 0; i < n; i++) {
        if (events[i].what == e->what && events[i].a == e->a && events[i].b == e->b) {
            return true;
        }
    }
    return false;
}

const char *hly_explore_play(const hly_explored_t *kind, const void *start, hly_trace_t *trace,
                             void *world)
{
    hly_happens_t *events = hly_seen_memory(kind->events_most * sizeof *events);
    const char **complaint = complaint_of(kind, world);
    uint32_t kept = 0;
    bool must = true;
    kind->copy(world, start);
    for (uint32_t i = 0; i < trace->n && !*complaint; i++) {
        if (can(kind, world, &trace->events[i], events)) {
            trace->events[kept++] = trace->events[i];
            kind->apply(world, &trace->events[i]);
        }
    }
    trace->n = kept;
    while (must && !*complaint) {
        const uint32_t n = kind->events(world, events);
        must = false;
        for (uint32_t i = 0; i < n && !must; i++) {
            must = events[i].must;
            if (must) {
                trace->events[trace->n++] = events[i];
                kind->apply(world, &events[i]);
            }
        }
        if (!must) {
            kind->finish(world);
        } else if (trace->n == kind->trace) {
            *complaint = "it goes in a circle";
        }
    }
    free(events);
    return *complaint;
}

void hly_explore_shorten(const hly_explored_t *kind, const void *start, hly_trace_t *trace)
{
    hly_trace_t *less = hly_seen_memory(sizeof *less);
    void *world = hly_seen_memory(kind->bytes);
    bool shorter = true;
    while (shorter) {
        shorter = false;
        for (uint32_t i = 0; i < trace->n && !shorter; i++) {
            less->n = 0;
            for (uint32_t k = 0; k < trace->n; k++) {
                if (k != i) {
                    less->events[less->n++] = trace->events[k];
                }
            }
            shorter = hly_explore_play(kind, start, less, world) && less->n < trace->n;
            if (shorter) {
                *trace = *less;
            }
        }
    }
    free(world);
    free(less);
}

/* ---------------------------------------------------------------- runs that are known */

const char *hly_explore_tell(const hly_explored_t *kind, const void *start, const char *events,
                             void *world)
{
    hly_trace_t *trace = hly_seen_memory(sizeof *trace);
    trace->n = 0;
    for (const char *at = events; *at; at += *at == ' ') {
        hly_happens_t *e = &trace->events[trace->n++];
        *e = (hly_happens_t){.what = (uint8_t)*at++, .a = (uint8_t)(*at++ - '0')};
        if (*at && *at != ' ') {
            e->b = (uint8_t)(*at++ - '0');
        }
    }
    const uint32_t n = trace->n;
    const char *complaint = hly_explore_play(kind, start, trace, world);
    const bool whole = trace->n >= n;
    free(trace);
    return complaint ? complaint : whole ? NULL : HLY_NO_SUCH_RUN;
}

bool hly_explore_told(const char *name, const char *sound, const char *damaged)
{
    /* The sound functions may send more, which is to be heard first: then less of the run happens.
     */
    const bool well = !sound || !strcmp(sound, HLY_NO_SUCH_RUN),
               seen = damaged && strcmp(damaged, HLY_NO_SUCH_RUN) != 0;
    printf("%s: %s\n", name, !well ? sound : seen ? "all is well" : "the damage is not seen");
    return well && seen;
}
