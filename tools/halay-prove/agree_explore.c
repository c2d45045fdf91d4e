/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree_explore.c - halay-prove --agreements: goes through all states that a few ranks in an
 * agreement can reach, or through drawn runs of many; and shows that damaged agreements are
 * refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree_explore.h"
#include "order.h"
#include "seen.h"

static const hly_explored_t agreements = {
    .bytes = sizeof(hly_world_t),
    .state_bytes = offsetof(hly_world_t, flights) + 512 * sizeof(hly_flight_t),
    .complaint = offsetof(hly_world_t, complaint),
    .events_most = HLY_WORLD_EVENTS,
    .depth = 400,
    .trace = HLY_TRACE_MOST,
    .copy = hly_world_copy,
    .events = hly_world_events,
    .can = hly_world_can,
    .apply = hly_world_apply,
    .finish = hly_world_finish,
    .hash = hly_world_hash,
};

/* ---------------------------------------------------------------- a counter-example */

static void print_event(const hly_happens_t *e)
{
    switch (e->what) {
    case HLY_CALLS:
        printf("    rank %u calls", e->a);
        break;
    case HLY_HEARS:
        printf("    rank %u hears rank %u:", e->a, e->b);
        break;
    case HLY_OVERTAKES:
        printf("    rank %u hears a later message of rank %u:", e->a, e->b % 64U);
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

static void print_trace(const hly_world_t *start, const hly_trace_t *trace)
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
     "no wait for votes for a proposal",
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

static const char *tell_story(const struct story *story, const hly_agreement_ops_t *ops)
{
    static hly_world_t start, w;
    hly_world_init(&start, ops, story->nranks, &story->limits);
    return hly_explore_tell(&agreements, &start, story->events, &w);
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
        const bool passed = hly_explore_told(stories[i].name, sound, other);
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
    static hly_trace_t trace;
    hly_explored_counts_t counts;
    hly_world_init(&start, ops, b->nranks, &b->limits);
    const char *complaint = hly_explore_all(&agreements, &start, &trace, &counts);
    if (loud && ops == &hly_sound) {
        printf("%u ranks, %u die, %u slow, %u away: %llu states, %llu steps\n", b->nranks,
               b->limits.deaths, b->limits.slow, b->limits.away, (unsigned long long)counts.states,
               (unsigned long long)counts.steps);
    }
    if (complaint) {
        printf("%s, %u ranks: %s\n", ops->name, b->nranks, complaint);
        hly_explore_shorten(&agreements, &start, &trace);
        if (loud) {
            print_trace(&start, &trace);
        }
    }
    return !complaint;
}

/* A run of many ranks: what happens next is drawn. Faults are rare, so that there is something to
 * disturb. */
static bool run_one(const hly_agreement_ops_t *ops, uint64_t *chance, bool loud)
{
    static hly_world_t start, w;
    static hly_trace_t trace;
    static hly_happens_t events[HLY_WORLD_EVENTS];
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
    for (trace.n = 0; must && !w.complaint && trace.n < HLY_TRACE_MOST;) {
        const uint32_t n = hly_world_events(&w, events);
        must = false;
        for (uint32_t i = 0; i < n; i++) {
            must |= events[i].must;
        }
        if (n == 0) {
            break;
        }
        const hly_happens_t *e = &events[hly_random_below(chance, n)];
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
        hly_explore_shorten(&agreements, &start, &trace);
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
