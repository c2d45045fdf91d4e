/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_explore.c - halay-prove --agreements: goes through all states that the ranks of a call
 * that fails can reach, and shows that damaged agreements on its verdict are refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order.h"
#include "seen.h"
#include "verdict_explore.h"

enum { RUN_MOST = 1024, DRAWN = 20000 };

static const hly_explored_t failing_calls = {
    .bytes = sizeof(hly_call_world_t),
    .state_bytes = sizeof(hly_call_world_t),
    .complaint = offsetof(hly_call_world_t, complaint),
    .events_most = HLY_CALL_EVENTS,
    .depth = 600,
    .trace = RUN_MOST,
    .idles = true, /* a rank may look at its clock again and again */
    .copy = hly_call_world_copy,
    .events = hly_call_world_events,
    .apply = hly_call_world_apply,
    .finish = hly_call_world_finish,
    .hash = hly_call_world_hash,
};

static void print_event(const hly_happens_t *e)
{
    static const struct {
        uint8_t what;
        const char *text;
    } texts[] = {{HLY_CASE_CALLS, "rank %u calls"},
                 {HLY_CASE_REFUSED, "rank %u calls with a wrong argument"},
                 {HLY_CASE_HEARS, "rank %u hears rank %u:"},
                 {HLY_CASE_OVERTAKES, "rank %u hears a later message (%u):"},
                 {HLY_CASE_DIES, "rank %u dies"},
                 {HLY_CASE_LEAVES, "rank %u ends"},
                 {HLY_CASE_FINDS, "rank %u finds rank %u dead"},
                 {HLY_CASE_STOPS, "rank %u is stopped"},
                 {HLY_CASE_RESUMES, "rank %u goes on"},
                 {HLY_CASE_SEES, "rank %u has seen for long that rank %u is stopped"},
                 {HLY_CASE_PASSES, "time passes"},
                 {HLY_CASE_CLOCK, "rank %u looks at its clock"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].what == e->what) {
            printf("    ");
            printf(texts[i].text, e->a, e->b);
        }
    }
}

static void print_trace(const hly_call_world_t *start, const hly_trace_t *trace)
{
    hly_call_world_t *w = hly_seen_memory(sizeof *w);
    hly_call_world_copy(w, start);
    w->loud = true;
    for (uint32_t i = 0; i < trace->n; i++) {
        print_event(&trace->events[i]);
        hly_call_world_apply(w, &trace->events[i]);
        printf("\n");
    }
    if (!w->complaint) {
        hly_call_world_finish(w);
    }
    printf("    %s\n   ", w->complaint ? w->complaint : "all is well");
    for (uint32_t i = 0; i < trace->n; i++) {
        const hly_happens_t *e = &trace->events[i];
        printf(" %c%u", e->what, e->a);
        if (e->what == HLY_CASE_HEARS || e->what == HLY_CASE_FINDS || e->what == HLY_CASE_SEES) {
            printf("%u", e->b);
        }
    }
    printf("\n");
    free(w);
}

/* ---------------------------------------------------------------- what is explored */

static const struct bounds {
    uint32_t nranks;
    hly_case_limits_t limits;
    bool by_hand; /* it takes long */
} bounds[] = {
    /* die, stopped, away, wrong, words, sparse, leave, in order */
    {2, {2, 0, 0, 0, true, false, 0, false}, false},
    {2, {1, 1, 1, 1, true, false, 0, false}, false},
    {2, {1, 1, 1, 1, true, false, 1, false}, false},
    {3, {0, 0, 0, 2, false, false, 0, false}, false},
    {3, {0, 0, 0, 1, true, true, 1, false}, false},
    {3, {1, 0, 0, 1, true, false, 0, false}, false},
    {3, {1, 0, 0, 0, true, true, 1, false}, false},
    {3, {1, 0, 0, 1, true, false, 1, false}, false},
    {3, {2, 0, 0, 1, true, false, 0, false}, false},
    {3, {0, 0, 1, 0, true, false, 1, true}, false},
    {3, {0, 1, 0, 0, false, false, 0, true}, false},
    {3, {0, 0, 1, 1, false, false, 0, true}, true},
    {3, {0, 1, 0, 1, false, false, 0, true}, true},
    {3, {1, 0, 1, 1, false, false, 0, true}, true},
    {3, {1, 1, 0, 0, false, false, 0, true}, true}};

static bool explore_one(const hly_failing_ops_t *ops, const struct bounds *b, bool loud)
{
    static hly_call_world_t start;
    static hly_trace_t trace;
    hly_explored_counts_t counts;
    hly_call_world_init(&start, ops, b->nranks, &b->limits);
    const char *complaint = hly_explore_all(&failing_calls, &start, &trace, &counts);
    if (loud && ops == &hly_sound_verdicts) {
        printf("a call of %u ranks, %u die, %u leave, %u stopped, %u away, %u refused: %llu "
               "states, %llu steps\n",
               b->nranks, b->limits.deaths, b->limits.leave, b->limits.stops, b->limits.away,
               b->limits.refused, (unsigned long long)counts.states,
               (unsigned long long)counts.steps);
    }
    if (complaint) {
        printf("%s, %u ranks: %s\n", ops->name, b->nranks, complaint);
        hly_explore_shorten(&failing_calls, &start, &trace);
        if (loud) {
            print_trace(&start, &trace);
        }
    }
    return !complaint;
}

/* ---------------------------------------------------------------- runs that are known */

static const struct call_story {
    const char *name, *damage;
    uint32_t nranks;
    hly_case_limits_t limits;
    const char *events;
} stories[] = {
    {"who was stopped reads what has come before it coordinates",
     "what has come is not read first",
     2,
     {0, 1, 1, 0, false},
     "c1 h01 t0 l1 c0 s0 t0 l1 t0 g0 l1 h01 h01"},
    {"the coordinator tells one rank, which has no link to the other one, and dies",
     "a vote can change",
     4,
     {2, 0, 0, 0, false, true},
     "c0 c2 c3 d1 f01 f21 h32 h32 h02 h02 h02 h03 h03 h03 d0 h30 f20 t0 l2 t0 l2"},
    {"an absent rank calls when one has ended by the clock, and died",
     "the clock ends it for each rank",
     3,
     {1, 0, 1, 0, false},
     "c0 h10 c1 h01 h20 t0 l0 h10 h01 h01 h20 t0 l0 h10 h01 h10 l1 h01 h20 h20 t0 l0 d0 f10 c2 h12 "
     "l1 h20"},
    {"an absent rank calls when the others have said that it is absent, and their coordinator dies",
     "no verdict is proposed",
     3,
     {1, 0, 1, 0, false},
     "c0 h10 c1 h01 h20 h21 t0 l0 h10 h01 h10 h01 h20 h21 h21 t0 l0 h10 h01 h10 l1 h01 h20 h20 h21 "
     "h21 t0 l0 h10 h01 d0 f10 h20 h21 c2 h12 h12 h20"},
    {"the same, where the votes are alike",
     "who may live and has not voted does not count",
     3,
     {1, 0, 1, 0, false},
     "c0 h10 c1 h01 h20 h21 t0 l0 h10 h01 h10 h01 h20 h21 h21 t0 l0 h10 h01 h10 l1 h01 h20 h20 h21 "
     "h21 t0 l0 h10 h01 d0 f10 h20 h21 c2 h12 h12 h20"},
    {"of six ranks two have called, which have no path to each other in the control graph",
     "who is absent is told to nobody",
     6,
     {0, 0, 4, 0, false},
     "c1 c4 h14 h41 t0 l1 l4 t0 l1 l4 t0 l1 l4"},
    {"one completes the call and leaves, and one dies in it",
     "who has completed the call and left is called lost",
     3,
     {1, 0, 0, 0, true, false, 1},
     "c0 h10 c1 h01 c2 h12 e1 d2 f02 f01"},
    {"the same, where the call fails by its deadline",
     "who has completed the call and left is called lost at the deadline",
     3,
     {0, 0, 1, 0, true, false, 1, true},
     "c0 h10 c1 h01 h20 t0 l0 c2 h02 h12 e1 f01 h20 h02 h02 h20 h02 h20 h02"},
    {"who was stopped and goes on waits for the coordinator",
     "who was stopped and speaks is not asked",
     3,
     {1, 1, 0, 0, false},
     "c0 s0 c1 h20 h21 c2 p10 g0 h01 h01 h10 h10 h10 t0 l0 h10 l1 h01 t0 l0 h10 t0 l0 h10 h20 h02 "
     "h10 h01 h12 t0 l0 h10 l1 h01 t0 l0 h10 t0 l0 d2 f12 t0 l1"},
};

static const char *tell_story(const struct call_story *story, const hly_failing_ops_t *ops)
{
    static hly_call_world_t start, w;
    hly_call_world_init(&start, ops, story->nranks, &story->limits);
    return hly_explore_tell(&failing_calls, &start, story->events, &w);
}

static void tell_stories(hly_count_t *count)
{
    for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
        const hly_failing_ops_t *damaged = NULL;
        for (uint32_t k = 0; hly_damaged_verdicts[k]; k++) {
            damaged = strcmp(hly_damaged_verdicts[k]->name, stories[i].damage) == 0
                          ? hly_damaged_verdicts[k]
                          : damaged;
        }
        const char *sound = tell_story(&stories[i], &hly_sound_verdicts);
        const char *other = damaged ? tell_story(&stories[i], damaged) : NULL;
        const bool passed = hly_explore_told(stories[i].name, sound, other);
        count->passed += passed;
        count->failed += !passed;
    }
}

/* ---------------------------------------------------------------- drawn runs */

/* A run of some ranks: what happens next is drawn. Faults are rare, so that there is something to
 * disturb. */
static bool run_one(const hly_failing_ops_t *ops, uint64_t *chance, bool loud)
{
    static hly_call_world_t start, w;
    static hly_trace_t trace;
    hly_happens_t events[HLY_CALL_EVENTS];
    const uint32_t more = hly_random_below(chance, 2) ? HLY_CALL_RANKS - 2 : 3;
    const uint32_t nranks = 3 + hly_random_below(chance, more);
    const uint32_t deaths = hly_random_below(chance, 3), stops = hly_random_below(chance, 2),
                   away = hly_random_below(chance, deaths + stops ? 2 : nranks - 1),
                   leave = hly_random_below(chance, 2);
    const bool sparse = !stops && !away && hly_random_below(chance, 2);
    const hly_case_limits_t limits = {deaths,
                                      stops,
                                      away,
                                      hly_random_below(chance, 3),
                                      hly_random_below(chance, 2),
                                      sparse,
                                      leave,
                                      hly_random_below(chance, 2)};
    const uint32_t rare = 1 + hly_random_below(chance, 60);
    bool must = true;
    hly_call_world_init(&start, ops, nranks, &limits);
    hly_call_world_copy(&w, &start);
    for (trace.n = 0; must && !w.complaint && trace.n < RUN_MOST;) {
        const uint32_t n = hly_call_world_events(&w, events);
        must = false;
        for (uint32_t i = 0; i < n; i++) {
            must |= events[i].must;
        }
        if (!must) {
            hly_call_world_finish(&w);
            break;
        }
        const hly_happens_t *e = &events[hly_random_below(chance, n)];
        const bool free = e->must || e->what == HLY_CASE_HEARS || e->what == HLY_CASE_FINDS ||
                          e->what == HLY_CASE_OVERTAKES;
        if (free || !hly_random_below(chance, rare)) {
            trace.events[trace.n++] = *e;
            hly_call_world_apply(&w, e);
        }
    }
    if (w.complaint && loud) {
        printf("%s, %u ranks, %u die, %u leave, %u stopped, %u away, %u refused: %s\n", ops->name,
               nranks, limits.deaths, limits.leave, limits.stops, limits.away, limits.refused,
               w.complaint);
        hly_explore_shorten(&failing_calls, &start, &trace);
        print_trace(&start, &trace);
    }
    return !w.complaint;
}

void hly_explore_verdicts(bool all, uint32_t random, uint64_t seed, hly_count_t *count)
{
    tell_stories(count);
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (all || !bounds[i].by_hand) {
            const bool passed = explore_one(&hly_sound_verdicts, &bounds[i], true);
            count->passed += passed;
            count->failed += !passed;
            fflush(stdout);
        }
    }
    uint64_t chance = seed, failed = 0;
    for (uint32_t i = 0; i < random && failed < 3; i++) {
        failed += !run_one(&hly_sound_verdicts, &chance, true);
    }
    if (random) {
        printf("%u drawn runs of a call of 3 to 8 ranks: %llu failed\n", random,
               (unsigned long long)failed);
        count->passed += failed == 0;
        count->failed += failed;
    }
}

/* Its known run first, then drawn ones: most damages show at once. */
static bool is_refused(const hly_failing_ops_t *ops, bool loud)
{
    for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
        if (strcmp(stories[i].damage, ops->name) == 0) {
            const char *complaint = tell_story(&stories[i], ops);
            return complaint && strcmp(complaint, HLY_NO_SUCH_RUN) != 0;
        }
    }
    uint64_t chance = 1;
    for (uint32_t i = 0; i < DRAWN; i++) {
        if (!run_one(ops, &chance, loud)) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        const bool is_short = !bounds[i].limits.stops && !bounds[i].limits.away;
        if (is_short && !explore_one(ops, &bounds[i], loud)) {
            return true;
        }
    }
    return false;
}

void hly_explore_damaged_verdicts(bool loud, hly_count_t *count)
{
    for (uint32_t k = 0; hly_damaged_verdicts[k]; k++) {
        const bool refused = is_refused(hly_damaged_verdicts[k], loud);
        printf("%s: %s\n", hly_damaged_verdicts[k]->name, refused ? "refused" : "not refused");
        count->failed += !refused;
        count->passed += refused;
        fflush(stdout);
    }
}
