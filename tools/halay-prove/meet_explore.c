/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet_explore.c - halay-prove --worlds: goes through all states that a few processes that meet can
 * reach, and shows that damaged meetings are refused.
 */
#include <stdio.h>
#include <string.h>

#include "meet_explore.h"

static const hly_explored_t meetings = {
    .bytes = sizeof(hly_model_t),
    .state_bytes = sizeof(hly_model_t),
    .complaint = offsetof(hly_model_t, complaint),
    .events_most = HLY_MODEL_EVENTS,
    .depth = 160,
    .trace = 256,
    .copy = hly_model_copy,
    .events = hly_model_events,
    .apply = hly_model_apply,
    .finish = hly_model_finish,
    .hash = hly_model_hash,
};

/* ---------------------------------------------------------------- a counter-example */

static const char *meaning(uint8_t what)
{
    switch (what) {
    case HLY_STARTS:
        return "starts";
    case HLY_ASKS_ALL:
        return "asks";
    case HLY_ASKS_ONE:
        return "asks, and calls a rank lost that lives";
    case HLY_TWIN_ASKS:
        return "has a twin that asks";
    case HLY_SAYS_LEAVES:
        return "says that it leaves";
    case HLY_HANGS_UP:
        return "hangs up";
    case HLY_KILLED:
        return "dies";
    case HLY_CUT:
        return "is seen to have hung up";
    case HLY_TOLD_END:
        return "is seen to have ended";
    case HLY_ENDS_WELL:
        return "ends with status 0";
    case HLY_STOPS:
        return "is stopped";
    case HLY_CONTINUES:
        return "goes on";
    case HLY_INIT_FAILS:
        return "has failed before it could ask, and lives";
    case HLY_FOLLOWED:
        return "is followed by the next program of its script";
    case HLY_ALL_MET:
        return "has its table, as all others";
    case HLY_AGENT_LOST:
        return "and the others of the last agent are lost with it";
    default:
        return "";
    }
}

static void print_trace(const hly_model_t *start, const hly_trace_t *trace)
{
    static hly_model_t m;
    m = *start;
    m.quiet = false;
    for (uint32_t i = 0; i < trace->n; i++) {
        const hly_happens_t *e = &trace->events[i];
        if (e->what == HLY_TIME) {
            printf("    time passes");
        } else {
            printf("    process %u %s", e->a, meaning(e->what));
        }
        hly_model_apply(&m, e);
        printf("\n");
    }
    if (!m.complaint) {
        hly_model_finish(&m);
    }
    printf("    %s\n", m.complaint ? m.complaint : "all is well");
}

/* ---------------------------------------------------------------- runs that are known */

/* What has gone wrong once, or would. Each run ends well, and does not with that damage: what
 * happens to which place. */
static const struct meet_story {
    const char *name, *damage, *events;
    hly_model_limits_t limits;
} stories[] = {
    {"a newcomer of another build waits: the members meet, and it is refused (shipped)",
     "who comes second is refused, a member too",
     "a1 a0 S2 a2 a1",
     {.places = 3, .least = 2, .late = 1, .again = 2, .odd = 4}},
    {"one has ended well, one hangs: the last one goes on without it (shipped)",
     "after a good end all wait for the late",
     "a0 a1 a2 a1 w2 e2 t0 t0 t0",
     {.places = 3, .least = 2, .again = 2}},
    {"in a job of always as many ranks a process that starts again has its old rank (shipped)",
     "members first, also where a rank is its place",
     "a0 x0 a1 e0 S0 a0 a1",
     {.places = 2, .again = 2, .deaths = 1, .starts = 1}},
    {"a second process in the place of one that asks is refused (0096)",
     "a twin is taken",
     "a0 T0 a1",
     {.places = 2, .again = 1, .twins = 1}},
    {"one that leaves is not waited for (0100)",
     "others wait for one that leaves",
     "a0 a1 a0 l1",
     {.places = 2, .least = 1, .again = 2}},
    {"the others go on without a member that is late, and it is killed (0100)",
     "who is left out lives on",
     "a0 a1 a0 t0 t0 t0",
     {.places = 2, .least = 1, .again = 2}},
    {"a stopped process does not hold newcomers (defect 9)",
     "newcomers wait for the stopped",
     "a0 s0 S1 a1 t0 t0",
     {.places = 2, .least = 1, .late = 1, .again = 2, .stops = 1, .tenths = 30}},
    {"an agent is lost while the others ask: they meet without its processes (0100)",
     "others wait for one that is called lost",
     "a0 a1 a2 a3 L0 a0 a1 e2 e3",
     {.places = 4, .least = 2, .again = 2, .agents = 1}},
    {"the list does not wait for one that is not seen beyond half of the time (0083)",
     "the list waits for those that are not seen",
     "a1 t0 t0 t0 t0",
     {.places = 3, .once = 1, .least = 1, .list = 1, .again = 1, .hidden = 4, .tenths = 30}},
    {"others wait for one that is seen to come late (0083)",
     "the list is closed without those that are seen",
     "a1 t0 t0 a2 F0",
     {.places = 3, .once = 1, .least = 1, .list = 1, .again = 1, .tenths = 30}},
};

static const char *tell_story(const struct meet_story *story, const hly_worlds_ops_t *ops)
{
    static hly_model_t start, m;
    hly_model_init(&start, ops, &story->limits);
    return hly_explore_tell(&meetings, &start, story->events, &m);
}

static void tell_stories(hly_count_t *count)
{
    for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
        const hly_worlds_ops_t *damaged = NULL;
        for (uint32_t k = 0; hly_worlds_damaged[k]; k++) {
            damaged = strcmp(hly_worlds_damaged[k]->name, stories[i].damage) == 0
                          ? hly_worlds_damaged[k]
                          : damaged;
        }
        const char *sound = tell_story(&stories[i], &hly_worlds_sound);
        const char *other = damaged ? tell_story(&stories[i], damaged) : NULL;
        const bool passed = hly_explore_told(stories[i].name, sound, other);
        count->passed += passed;
        count->failed += !passed;
    }
}

/* ---------------------------------------------------------------- what is explored */

static const struct meet_bounds {
    const char *name;
    hly_model_limits_t limits;
    bool by_hand; /* it takes long */
} bounds[] = {
    {"always 2: 2 die, 1 hangs up, 1 starts again",
     {.places = 2, .again = 2, .deaths = 2, .hangs = 1, .starts = 1},
     false},
    {"always 2: 1 fails, 1 dies, 1 starts again, 1 twin",
     {.places = 2, .again = 3, .fails = 1, .deaths = 1, .starts = 1, .twins = 1},
     false},
    {"always 2: 1 dies in a script that goes on, 1 hangs up",
     {.places = 2, .again = 2, .deaths = 1, .follow = 1, .hangs = 1},
     false},
    {"always 3: 1 dies, 1 starts again",
     {.places = 3, .again = 2, .deaths = 1, .starts = 1},
     false},
    {"always 3: 1 of another build, 1 dies",
     {.places = 3, .again = 1, .deaths = 1, .odd = 2},
     false},
    {"1 to 2: 2 die, 1 starts again",
     {.places = 2, .least = 1, .again = 2, .deaths = 2, .starts = 1},
     false},
    {"1 to 2: 1 dies, 1 stops, 1 starts again",
     {.places = 2, .least = 1, .again = 2, .stops = 1, .deaths = 1, .starts = 1},
     false},
    {"2: 1 stops, 1 starts again",
     {.places = 2, .least = 2, .again = 2, .stops = 1, .starts = 1},
     false},
    {"1 to 2: 1 hangs up, 1 is wrongly called lost",
     {.places = 2, .least = 1, .again = 3, .hangs = 1, .wrong = 1},
     false},
    {"1 to 2: 1 dies in a script that goes on, 1 twin",
     {.places = 2, .least = 1, .again = 2, .deaths = 1, .follow = 1, .twins = 1},
     false},
    {"1 to 2: 1 newcomer, 1 stops, long deadlines",
     {.places = 2, .least = 1, .again = 2, .late = 1, .stops = 1, .tenths = 30},
     false},
    {"2 to 3: 1 newcomer of another build",
     {.places = 3, .least = 2, .late = 1, .again = 2, .odd = 4},
     false},
    {"1 to 3: 1 newcomer, 1 of another build",
     {.places = 3, .least = 1, .late = 1, .again = 2, .odd = 1},
     false},
    {"once 2: 1 dies, 1 hangs up, 1 twin",
     {.places = 2, .once = 1, .again = 3, .deaths = 1, .hangs = 1, .twins = 1},
     false},
    {"once 3: 1 dies, 1 twin",
     {.places = 3, .once = 1, .again = 2, .deaths = 1, .twins = 1},
     false},
    {"once 4: 2 die, 1 hangs up",
     {.places = 4, .once = 1, .again = 2, .deaths = 2, .hangs = 1},
     false},
    {"list 3: 1 dies, 1 hangs up, 1 twin",
     {.places = 3,
      .once = 1,
      .least = 1,
      .list = 1,
      .again = 1,
      .deaths = 1,
      .hangs = 1,
      .twins = 1,
      .tenths = 30},
     false},
    {"list 3: 1 is not seen, 1 dies",
     {.places = 3, .once = 1, .least = 1, .list = 1, .again = 1, .deaths = 1, .hidden = 4},
     false},
    {"list 4: 1 is not seen, 2 die, 1 hangs up",
     {.places = 4,
      .once = 1,
      .least = 1,
      .list = 1,
      .again = 1,
      .deaths = 2,
      .hangs = 1,
      .hidden = 2,
      .tenths = 30},
     false},
    {"list 4: 3 are not seen, 1 dies",
     {.places = 4, .once = 1, .least = 1, .list = 1, .again = 1, .deaths = 1, .hidden = 14},
     false},
    {"always 4: an agent of 2, 1 dies, 1 starts again",
     {.places = 4, .again = 2, .agents = 1, .deaths = 1, .starts = 1},
     false},
    {"1 to 3: 1 newcomer", {.places = 3, .least = 1, .late = 1, .again = 2}, false},
    {"2 to 3: 1 dies", {.places = 3, .least = 2, .again = 2, .deaths = 1}, false},
    {"2 to 3: 1 stops", {.places = 3, .least = 2, .again = 2, .stops = 1}, false},
    {"2 to 3: 1 is wrongly called lost", {.places = 3, .least = 2, .again = 2, .wrong = 1}, false},
    {"2 to 3: 1 hangs up", {.places = 3, .least = 2, .again = 2, .hangs = 1}, false},
    {"2 to 4: an agent of 2, 1 starts again",
     {.places = 4, .least = 2, .again = 1, .agents = 1, .starts = 1},
     false},
    {"2 to 3: 1 newcomer, 1 stops",
     {.places = 3, .least = 2, .late = 1, .again = 2, .stops = 1},
     true},
    {"2 to 3: 2 die", {.places = 3, .least = 2, .again = 2, .deaths = 2}, true},
    {"2 to 3: 1 dies, 1 starts again",
     {.places = 3, .least = 2, .again = 2, .deaths = 1, .starts = 1},
     true},
    {"2 to 3: 1 dies, 1 stops",
     {.places = 3, .least = 2, .again = 2, .deaths = 1, .stops = 1},
     true},
    {"2 to 4: an agent of 2", {.places = 4, .least = 2, .again = 2, .agents = 1}, true},
};

static bool explore_one(const hly_worlds_ops_t *ops, const struct meet_bounds *b, bool loud)
{
    static hly_model_t start;
    static hly_trace_t trace;
    hly_explored_counts_t counts;
    hly_model_init(&start, ops, &b->limits);
    const char *complaint = hly_explore_all(&meetings, &start, &trace, &counts);
    const bool sound = ops == &hly_worlds_sound;
    if (loud && sound) {
        printf("%s: %llu states, %llu steps\n", b->name, (unsigned long long)counts.states,
               (unsigned long long)counts.steps);
    }
    if (complaint) {
        printf("%s, %s: %s\n", ops->name, b->name, complaint);
        if (loud) {
            hly_explore_shorten(&meetings, &start, &trace);
            print_trace(&start, &trace);
        }
    }
    return !complaint;
}

void hly_meet_explore(bool all, hly_count_t *count)
{
    tell_stories(count);
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (all || !bounds[i].by_hand) {
            const bool passed = explore_one(&hly_worlds_sound, &bounds[i], true);
            count->passed += passed;
            count->failed += !passed;
            fflush(stdout);
        }
    }
}

void hly_meet_explore_damaged(bool loud, hly_count_t *count)
{
    for (uint32_t k = 0; hly_worlds_damaged[k]; k++) {
        bool passed = true;
        for (size_t i = 0; passed && i < sizeof bounds / sizeof bounds[0]; i++) {
            passed = bounds[i].by_hand || explore_one(hly_worlds_damaged[k], &bounds[i], loud);
        }
        if (passed) {
            printf("%s: not refused\n", hly_worlds_damaged[k]->name);
        }
        count->failed += passed;
        count->passed += !passed;
        fflush(stdout);
    }
}
