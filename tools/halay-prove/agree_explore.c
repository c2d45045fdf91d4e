/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree_explore.c - halay-prove --agreements: goes through all states that a few ranks in an
 * agreement can reach, or through drawn runs of many; and shows that damaged agreements are
 * refused.
 *
 * Each event brings some rank further, so no run is endless: a state that comes again on its own
 * path would be a complaint. Of a state that was seen a hash of 64 bits is kept.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree_explore.h"
#include "order.h"
#include "seen.h"

enum { DEPTH = 400, TRACE_MOST = 4096 };

typedef struct trace {
    hly_world_event_t events[TRACE_MOST];
    uint32_t n;
} trace_t;

typedef struct search {
    hly_seen_t seen;
    hly_world_t *worlds[DEPTH];
    uint64_t path[DEPTH];
    trace_t trace;
    uint64_t steps;
    const char *complaint;
} search_t;

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

static bool look(search_t *s, uint32_t depth)
{
    hly_world_t *w = s->worlds[depth];
    hly_world_event_t events[512];
    const uint32_t n = hly_world_events(w, events);
    bool must = false;
    for (uint32_t i = 0; i < n; i++) {
        must |= events[i].must;
    }
    if (!must) {
        hly_world_finish(w);
    }
    s->trace.n = depth;
    s->complaint = w->complaint;
    for (uint32_t i = 0; i < n && !s->complaint; i++) {
        hly_world_t *next = s->worlds[depth + 1];
        hly_world_copy(next, w);
        hly_world_apply(next, &events[i]);
        s->steps++;
        s->trace.events[depth] = events[i];
        s->trace.n = depth + 1;
        s->complaint = next->complaint;
        const uint64_t hash = hly_world_hash(next) | 1;
        s->path[depth + 1] = hash;
        if (s->complaint) {
            break;
        }
        if (hly_seen_is_new(&s->seen, hash)) {
            if (depth + 2 == DEPTH) {
                s->complaint = "it does not end";
            } else if (!look(s, depth + 1)) {
                break;
            }
        } else if (is_on_path(s, depth + 1, hash)) {
            s->complaint = "it goes in a circle";
        }
    }
    return !s->complaint;
}

static search_t *search_new(void)
{
    search_t *s = hly_seen_memory(sizeof *s);
    for (uint32_t i = 0; i < DEPTH; i++) {
        s->worlds[i] = hly_seen_memory(offsetof(hly_world_t, flights) + 512 * sizeof(hly_flight_t));
    }
    return s;
}

static void search_free(search_t *s)
{
    for (uint32_t i = 0; i < DEPTH; i++) {
        free(s->worlds[i]);
    }
    hly_seen_free(&s->seen);
    free(s);
}

/* ---------------------------------------------------------------- a counter-example */

/* Plays what of the trace can happen, and then what must; complains as the search did. */
static const char *play(const hly_world_t *start, trace_t *trace, hly_world_t *w)
{
    uint32_t kept = 0;
    hly_world_copy(w, start);
    for (uint32_t i = 0; i < trace->n && !w->complaint; i++) {
        if (hly_world_can(w, &trace->events[i])) {
            trace->events[kept++] = trace->events[i];
            hly_world_apply(w, &trace->events[i]);
        }
    }
    trace->n = kept;
    static hly_world_event_t events[HLY_WORLD_EVENTS];
    bool must = true;
    while (must && !w->complaint) {
        const uint32_t n = hly_world_events(w, events);
        must = false;
        for (uint32_t i = 0; i < n && !must; i++) {
            must = events[i].must;
            if (must) {
                trace->events[trace->n++] = events[i];
                hly_world_apply(w, &events[i]);
            }
        }
        if (!must) {
            hly_world_finish(w);
        }
        if (must && trace->n == TRACE_MOST) {
            w->complaint = "it goes in a circle";
        }
    }
    return w->complaint;
}

/* Leaves out of it what the complaint does not need. */
static void shorten(const hly_world_t *start, trace_t *trace)
{
    static trace_t less;
    hly_world_t *w = hly_seen_memory(sizeof *w);
    bool shorter = true;
    while (shorter) {
        shorter = false;
        for (uint32_t i = 0; i < trace->n; i++) {
            less.n = 0;
            for (uint32_t k = 0; k < trace->n; k++) {
                if (k != i) {
                    less.events[less.n++] = trace->events[k];
                }
            }
            if (play(start, &less, w) && less.n < trace->n) {
                *trace = less;
                shorter = true;
                break;
            }
        }
    }
    free(w);
}

static void print_event(const hly_world_event_t *e)
{
    switch (e->what) {
    case HLY_CALLS:
        printf("    rank %u calls", e->a);
        break;
    case HLY_HEARS:
        printf("    rank %u hears rank %u:", e->a, e->b);
        break;
    case HLY_DIES:
        printf("    rank %u dies", e->a);
        break;
    case HLY_FINDS:
        printf("    rank %u finds rank %u dead", e->a, e->b);
        break;
    case HLY_ASKS:
        printf("    rank %u asks again", e->a);
        break;
    default:
        printf("    rank %u has waited long enough", e->a);
        break;
    }
}

static void print_trace(const hly_world_t *start, const trace_t *trace)
{
    hly_world_t *w = hly_seen_memory(sizeof *w);
    hly_world_copy(w, start);
    w->quiet = false;
    for (uint32_t i = 0; i < trace->n; i++) {
        print_event(&trace->events[i]);
        hly_world_apply(w, &trace->events[i]);
        printf("\n");
    }
    if (!w->complaint) {
        hly_world_finish(w);
    }
    printf("    %s\n", w->complaint ? w->complaint : "all is well");
    free(w);
}

/* ---------------------------------------------------------------- runs that are known */

/* What has gone wrong once, or would. Each run ends well, and does not with that damage: what
 * happens to which rank, and of a message or a death from which one. */
static const struct story {
    const char *name, *damage;
    uint32_t nranks;
    hly_limits_t limits;
    const char *events;
} stories[] = {
    {"the coordinator decides and dies: its value is decided (0078)",
     "a new value after one was taken",
     3,
     {1, 0, 0},
     "c0 c1 c2 h01 h02 h10 h10 h20 h20 h01 h02 d0 f10 f20"},
    {"the coordinator dies: the next one gets the contributions (0084)",
     "the next coordinator is not told",
     3,
     {1, 0, 0},
     "c0 c1 c2 h01 h10 h20 d0 f10 f20"},
    {"a rank sends the value that it has taken, not its own flag (0084)",
     "the own flag is sent in place of the value's",
     3,
     {1, 0, 0},
     "c0 c1 c2 h01 h02 h10 h10 h20 h20 h01 h02 d0 f10 f20"},
    {"all have to have taken it before it is decided (0084)",
     "no wait for TAKEN",
     3,
     {1, 0, 0},
     "c0 c1 c2 h01 h02 d0 f10 f20"},
    {"who calls late gives up one rank after the other and decides alone (review, bug 8)",
     "who is given up gets no answer",
     4,
     {0, 0, 1},
     "c0 h10 h20 h30 c1 h01 c2 h02 t0 h10 h20 c3 h03 t3 h13 t3 h23 t3"},
    {"the coordinator dies; who has decided has gone on, and has told the others",
     "who decides does not pass it on",
     3,
     {1, 0, 0},
     "c0 c1 c2 h01 h02 h10 h10 h20 h20 h01 h02 h10 d0 f20 h21"},
    {"the coordinator is silent: it is given up (0084)",
     "no deadline for a coordinator",
     3,
     {0, 0, 1},
     "c1 c2 t1 t2"},
};

static void read_trace(const char *text, trace_t *trace)
{
    for (trace->n = 0; *text; text += *text == ' ') {
        hly_world_event_t *e = &trace->events[trace->n++];
        *e = (hly_world_event_t){.what = (uint8_t)*text++, .a = (uint8_t)(*text++ - '0')};
        if (*text && *text != ' ') {
            e->b = (uint8_t)(*text++ - '0');
        }
    }
}

static const char *tell_story(const struct story *story, const hly_agreement_ops_t *ops)
{
    static hly_world_t start, w;
    static trace_t trace;
    hly_world_init(&start, ops, story->nranks, &story->limits);
    read_trace(story->events, &trace);
    return play(&start, &trace, &w);
}

static void tell_stories(hly_count_t *count)
{
    for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
        const hly_agreement_ops_t *damaged = NULL;
        for (uint32_t k = 0; hly_damaged[k]; k++) {
            damaged =
                strcmp(hly_damaged[k]->name, stories[i].damage) == 0 ? hly_damaged[k] : damaged;
        }
        const char *sound = tell_story(&stories[i], &hly_sound);
        const char *other = damaged ? tell_story(&stories[i], damaged) : NULL;
        const bool passed = !sound && other;
        printf("%s: %s\n", stories[i].name,
               sound   ? sound
               : other ? "all is well"
                       : "the damage is not seen");
        count->passed += passed;
        count->failed += !passed;
    }
}

/* ---------------------------------------------------------------- what is explored */

static const struct bounds {
    uint32_t nranks;
    hly_limits_t limits;
    bool by_hand; /* it takes long */
} bounds[] = {{2, {2, 1, 1}, false}, {3, {2, 0, 0}, false}, {3, {2, 1, 0}, false},
              {3, {2, 0, 1}, false}, {3, {0, 1, 1}, false}, {4, {0, 0, 0}, false},
              {4, {2, 0, 0}, false}, {4, {0, 0, 1}, false}, {4, {0, 1, 0}, false},
              {4, {1, 1, 0}, true},  {4, {1, 0, 1}, true},  {4, {2, 1, 0}, true},
              {4, {2, 0, 1}, true},  {4, {0, 1, 1}, true}};

static bool explore_one(const hly_agreement_ops_t *ops, const struct bounds *b, bool loud)
{
    static hly_world_t start;
    search_t *s = search_new();
    hly_world_init(&start, ops, b->nranks, &b->limits);
    hly_world_copy(s->worlds[0], &start);
    look(s, 0);
    if (loud && ops == &hly_sound) {
        printf("%u ranks, %u die, %u slow, %u away: %llu states, %llu steps\n", b->nranks,
               b->limits.deaths, b->limits.slow, b->limits.away, (unsigned long long)s->seen.used,
               (unsigned long long)s->steps);
    }
    const bool refused = s->complaint;
    if (refused) {
        printf("%s, %u ranks: %s\n", ops->name, b->nranks, s->complaint);
        shorten(&start, &s->trace);
        if (loud) {
            print_trace(&start, &s->trace);
        }
    }
    search_free(s);
    return !refused;
}

/* A run of many ranks: what happens next is drawn. Faults are rare, so that there is something to
 * disturb. */
static bool run_one(const hly_agreement_ops_t *ops, uint64_t *chance, bool loud)
{
    static hly_world_t start, w;
    static trace_t trace;
    static hly_world_event_t events[HLY_WORLD_EVENTS];
    const uint32_t nranks = 5 + hly_random_below(chance, hly_random_below(chance, 4) ? 8 : 60);
    hly_limits_t limits = {hly_random_below(chance, 4), hly_random_below(chance, 2),
                           hly_random_below(chance, 2)};
    if (limits.deaths && limits.slow && limits.away) { /* nobody can know enough */
        limits.away = 0;
    }
    const uint32_t rare = 1 + hly_random_below(chance, 100);
    bool must = true;
    hly_world_init(&start, ops, nranks, &limits);
    if (!hly_random_below(chance, 8)) {
        start.calls_other = UINT64_C(1) << hly_random_below(chance, nranks);
    }
    hly_world_copy(&w, &start);
    for (trace.n = 0; must && !w.complaint && trace.n < TRACE_MOST;) {
        const uint32_t n = hly_world_events(&w, events);
        must = false;
        for (uint32_t i = 0; i < n; i++) {
            must |= events[i].must;
        }
        if (n == 0) {
            break;
        }
        const hly_world_event_t *e = &events[hly_random_below(chance, n)];
        if (e->must || !hly_random_below(chance, rare) || !must) {
            trace.events[trace.n++] = *e;
            hly_world_apply(&w, e);
            must = true;
        }
        if (n && !must) {
            hly_world_finish(&w);
        }
    }
    if (w.complaint && loud) {
        printf("%s, %u ranks: %s\n", ops->name, nranks, w.complaint);
        shorten(&start, &trace);
        print_trace(&start, &trace);
    }
    return !w.complaint;
}

void hly_explore(bool all, uint32_t random, uint64_t seed, hly_count_t *count)
{
    tell_stories(count);
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (all || !bounds[i].by_hand) {
            const bool passed = explore_one(&hly_sound, &bounds[i], true);
            count->passed += passed;
            count->failed += !passed;
            fflush(stdout);
        }
    }
    uint64_t chance = seed, failed = 0;
    for (uint32_t i = 0; i < random && failed < 3; i++) {
        failed += !run_one(&hly_sound, &chance, true);
    }
    if (random) {
        printf("%u drawn runs of 5 to 64 ranks: %llu failed\n", random, (unsigned long long)failed);
        count->passed += failed == 0;
        count->failed += failed;
    }
}

void hly_explore_damaged(bool loud, hly_count_t *count)
{
    for (uint32_t k = 0; hly_damaged[k]; k++) {
        bool passed = true;
        for (size_t i = 0; passed && i < sizeof bounds / sizeof bounds[0]; i++) {
            passed = bounds[i].by_hand || explore_one(hly_damaged[k], &bounds[i], loud);
        }
        if (passed) {
            printf("%s: not refused\n", hly_damaged[k]->name);
        }
        count->failed += passed;
        count->passed += !passed;
        fflush(stdout);
    }
}
