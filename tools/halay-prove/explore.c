/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore.c - a depth-first search of the states, drawn runs, and the replay of runs.
 *
 * States that are alike count as one: the search goes on from the one that `merge` makes of them.
 * hly_explore_merged() shows that this loses nothing. It goes through the states as they are, and
 * compares what can follow them: states that are merged into one must have the same successors, up
 * to merging, and the same complaints (a bisimulation).
 */
#include "explore.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seen.h"

enum { FILTER = 1 << 14, SUCCESSORS_MOST = 64 };

typedef struct trace {
    hly_happens_t events[HLY_TRACE_MOST];
    uint32_t n;
} trace_t;

typedef struct search {
    const hly_explored_t *kind;
    hly_seen_t seen;
    hly_seen_t follows;     /* pairs of a merged state and what follows it, or NULL */
    hly_seen_t merged;      /* and those states */
    bool checks;            /* that merging loses nothing; states are as they are */
    void **worlds;          /* on the path, */
    hly_happens_t **events; /* what can happen in them, */
    uint64_t *path;         /* and their hashes */
    uint8_t *on_path;       /* how many of them have these last bits */
    void *copy;
    trace_t *trace;
    uint64_t states, steps;
    const char *complaint;
} search_t;

static const char **complaint_of(void *world)
{
    return &((hly_common_t *)world)->complaint;
}

static const char *name_of(const void *ops)
{
    return *(const char *const *)ops;
}

static void begin(const hly_explored_t *kind, const void *ops, const uint8_t limits[], void *world)
{
    memset(world, 0, sizeof(hly_common_t));
    *(hly_common_t *)world = (hly_common_t){.ops = ops};
    kind->init(world, limits);
}

static void read_limits(const hly_explored_t *kind, const char *text, uint8_t limits[])
{
    memset(limits, 0, HLY_LIMITS_MOST);
    while (*text) {
        char *word = NULL;
        const unsigned long number = strtoul(text, &word, 10);
        word += *word == ' ';
        const size_t length = strcspn(word, ",");
        uint32_t i = 0;
        while (strncmp(kind->words[i], word, length) != 0 || kind->words[i][length])
            i++;
        limits[i] = (uint8_t)(word == text ? 1 : number);
        text = word + length + strspn(word + length, ", ");
    }
}

/* ---------------------------------------------------------------- all states */

static bool is_on_path(const search_t *s, uint32_t depth, uint64_t hash)
{
    bool is = false;
    for (uint32_t i = 0; s->on_path[hash % FILTER] && i < depth && !is; i++)
        is = s->path[i] == hash;
    return is;
}

/* All that can happen in the world; it is finished if nothing has to. */
static uint32_t events_in(const hly_explored_t *kind, void *world, hly_happens_t *events)
{
    const uint32_t n = kind->events(world, events);
    bool must = false;
    for (uint32_t i = 0; i < n; i++)
        must |= events[i].must;
    if (!must)
        kind->finish(world);
    return n;
}

static uint64_t hash_merged(search_t *s, const void *world)
{
    s->kind->copy(s->copy, world);
    s->kind->merge(s->copy);
    return s->kind->hash(s->copy) | 1;
}

static int compare(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* Do the same states follow as the first time that a state was merged into that one? */
static void check_follows(search_t *s, void *world, const hly_happens_t *events, uint32_t n,
                          void *next)
{
    static uint64_t follows[SUCCESSORS_MOST];
    const uint64_t merged = hash_merged(s, world);
    uint64_t all = merged;
    assert(n <= SUCCESSORS_MOST);
    for (uint32_t i = 0; i < n; i++) {
        s->kind->copy(next, world);
        s->kind->apply(next, &events[i]);
        follows[i] = *complaint_of(next) ? 2 : hash_merged(s, next);
        follows[i] = hly_seen_mix(follows[i], events[i].must);
    }
    qsort(follows, n, sizeof *follows, compare);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || follows[i] != follows[i - 1])
            all = hly_seen_mix(all, follows[i]);
    const bool first = hly_seen_is_new(&s->merged, merged);
    if (hly_seen_is_new(&s->follows, all | 1) != first)
        s->complaint = "two states count as one, and other states follow them";
}

static bool look(search_t *s, uint32_t depth);

/* The event happens in the state at this depth. */
static void follow(search_t *s, uint32_t depth, const hly_happens_t *event)
{
    const hly_explored_t *kind = s->kind;
    void *next = s->worlds[depth + 1];
    kind->copy(next, s->worlds[depth]);
    kind->apply(next, event);
    s->steps++;
    s->trace->events[depth] = *event;
    s->trace->n = depth + 1;
    s->complaint = *complaint_of(next);
    if (s->complaint)
        return;
    if (kind->merge && !s->checks)
        kind->merge(next);
    const uint64_t hash = kind->hash(next) | 1;
    if (hly_seen_is_new(&s->seen, hash)) {
        s->path[depth + 1] = hash;
        s->on_path[hash % FILTER]++;
        if (depth + 2 == kind->depth)
            s->complaint = "it does not end";
        else
            look(s, depth + 1);
        s->on_path[hash % FILTER]--;
    } else if ((event->must || !kind->idles) && is_on_path(s, depth + 1, hash)) {
        s->complaint = "it goes in a circle";
    }
}

static bool look(search_t *s, uint32_t depth)
{
    const hly_explored_t *kind = s->kind;
    if (!s->events[depth])
        s->events[depth] = hly_seen_memory(kind->events_most * sizeof **s->events);
    if (!s->worlds[depth + 1])
        s->worlds[depth + 1] = hly_seen_memory(kind->state_bytes);
    const uint32_t n = events_in(kind, s->worlds[depth], s->events[depth]);
    s->trace->n = depth;
    s->complaint = *complaint_of(s->worlds[depth]);
    if (s->checks && !s->complaint)
        check_follows(s, s->worlds[depth], s->events[depth], n, s->worlds[depth + 1]);
    for (uint32_t i = 0; i < n && !s->complaint; i++)
        follow(s, depth, &s->events[depth][i]);
    return !s->complaint;
}

/* All that can come of this world. Returns the first complaint, with its trace; NULL: all is well.
 */
static const char *search_all(search_t *s, const void *start)
{
    const hly_explored_t *kind = s->kind;
    s->worlds = hly_seen_memory(kind->depth * sizeof *s->worlds);
    s->events = hly_seen_memory(kind->depth * sizeof *s->events);
    s->path = hly_seen_memory(kind->depth * sizeof *s->path);
    s->on_path = hly_seen_memory(FILTER);
    s->copy = hly_seen_memory(kind->state_bytes);
    s->worlds[0] = hly_seen_memory(kind->state_bytes);
    kind->copy(s->worlds[0], start);
    look(s, 0);
    s->states = s->seen.used;
    for (uint32_t i = 0; i < kind->depth; i++) {
        free(s->worlds[i]);
        free(s->events[i]);
    }
    free(s->worlds);
    free(s->events);
    free(s->path);
    free(s->on_path);
    free(s->copy);
    hly_seen_free(&s->seen);
    hly_seen_free(&s->merged);
    hly_seen_free(&s->follows);
    return s->complaint;
}

/* ---------------------------------------------------------------- a run */

static bool can(const hly_explored_t *kind, const void *world, const hly_happens_t *e,
                hly_happens_t *events)
{
    if (kind->can)
        return kind->can(world, e);
    const uint32_t n = kind->events(world, events);
    bool is = false;
    for (uint32_t i = 0; i < n && !is; i++)
        is = events[i].what == e->what && events[i].a == e->a && events[i].b == e->b;
    return is;
}

/* Plays what of the trace can happen, and then what must; complains as the search does. `world`:
 * room for one. */
static const char *play(const hly_explored_t *kind, const void *start, trace_t *trace, void *world)
{
    hly_happens_t *events = hly_seen_memory(kind->events_most * sizeof *events);
    const char **complaint = complaint_of(world);
    uint32_t kept = 0;
    bool must = true;
    kind->copy(world, start);
    for (uint32_t i = 0; i < trace->n && !*complaint; i++)
        if (can(kind, world, &trace->events[i], events)) {
            trace->events[kept++] = trace->events[i];
            kind->apply(world, &trace->events[i]);
        }
    trace->n = kept;
    while (must && !*complaint) {
        const uint32_t n = events_in(kind, world, events);
        uint32_t first = 0;
        while (first < n && !events[first].must)
            first++;
        must = first < n;
        if (must && trace->n == kind->trace)
            *complaint = "it goes in a circle";
        if (must && !*complaint) {
            trace->events[trace->n++] = events[first];
            kind->apply(world, &events[first]);
        }
    }
    free(events);
    return *complaint;
}

/* Leaves out of it what the complaint does not need. */
static void shorten(const hly_explored_t *kind, const void *start, trace_t *trace)
{
    trace_t *less = hly_seen_memory(sizeof *less);
    void *world = hly_seen_memory(kind->bytes);
    for (uint32_t i = 0; i < trace->n;) {
        memcpy(less->events, trace->events, i * sizeof *less->events);
        memcpy(less->events + i, trace->events + i + 1, (trace->n - i - 1) * sizeof *less->events);
        less->n = trace->n - 1;
        const bool shorter = play(kind, start, less, world) && less->n < trace->n;
        if (shorter)
            *trace = *less;
        i = shorter ? 0 : i + 1;
    }
    free(world);
    free(less);
}

static void print_run(const hly_explored_t *kind, const void *start, const trace_t *trace)
{
    hly_common_t *w = hly_seen_memory(kind->bytes);
    kind->copy(w, start);
    w->loud = true;
    for (uint32_t i = 0; i < trace->n; i++) {
        const hly_happens_t *e = &trace->events[i];
        uint32_t text = 0;
        while (kind->texts[text][0] != (char)e->what)
            text++;
        printf("    ");
        printf(kind->texts[text] + 1, e->a, e->b);
        kind->apply(w, e);
        printf("\n");
    }
    if (!w->complaint)
        kind->finish(w);
    printf("    %s\n   ", w->complaint ? w->complaint : "all is well");
    for (uint32_t i = 0; i < trace->n; i++)
        printf(" %c%u/%u", trace->events[i].what, trace->events[i].a, trace->events[i].b);
    printf("\n");
    free(w);
}

/* ---------------------------------------------------------------- runs that are known */

#define NO_SUCH_RUN "the run cannot happen"

/* Returns what is wrong with the run; NULL: all is well. */
static const char *tell(const hly_explored_t *kind, const hly_story_t *story, const void *ops)
{
    uint8_t limits[HLY_LIMITS_MOST];
    trace_t *trace = hly_seen_memory(sizeof *trace);
    void *start = hly_seen_memory(kind->bytes), *world = hly_seen_memory(kind->bytes);
    read_limits(kind, story->limits, limits);
    begin(kind, ops, limits, start);
    for (const char *at = story->events; *at; at += *at == ' ') {
        hly_happens_t *e = &trace->events[trace->n++];
        *e = (hly_happens_t){.what = (uint8_t)*at++, .a = (uint8_t)(*at++ - '0')};
        if (*at && *at != ' ')
            e->b = (uint8_t)(*at++ - '0');
    }
    const uint32_t n = trace->n;
    const char *complaint = play(kind, start, trace, world);
    const bool whole = trace->n >= n;
    free(trace);
    free(start);
    free(world);
    return complaint ? complaint : whole ? NULL : NO_SUCH_RUN;
}

/* Does the run fail with these functions? */
static bool fails(const hly_explored_t *kind, const hly_story_t *story, const void *ops)
{
    const char *complaint = tell(kind, story, ops);
    return complaint && strcmp(complaint, NO_SUCH_RUN) != 0;
}

static void tell_stories(const hly_explored_t *kind, hly_count_t *count)
{
    for (const hly_story_t *story = kind->stories; story->name; story++) {
        const void *const *damaged = kind->damaged;
        while (*damaged && strcmp(name_of(*damaged), story->damage) != 0)
            damaged++;
        /* The sound functions may send more, which is to be heard first: then less of the run
         * happens. */
        const bool well = !fails(kind, story, kind->sound),
                   seen = *damaged && fails(kind, story, *damaged);
        printf("%s: %s\n", story->name,
               !well  ? tell(kind, story, kind->sound)
               : seen ? "all is well"
                      : "the damage is not seen");
        count->passed += well && seen;
        count->failed += !(well && seen);
    }
}

/* ---------------------------------------------------------------- rows and drawn runs */

static bool explore_row(const hly_explored_t *kind, const hly_row_t *row, const void *ops,
                        bool checks, bool loud)
{
    static trace_t trace;
    uint8_t limits[HLY_LIMITS_MOST];
    search_t s = {.kind = kind, .trace = &trace, .checks = checks};
    void *start = hly_seen_memory(kind->bytes);
    read_limits(kind, row->limits, limits);
    begin(kind, ops, limits, start);
    const char *complaint = search_all(&s, start);
    if (ops == kind->sound)
        printf("%s of %s: %llu states, %llu steps%s\n", kind->name, row->limits,
               (unsigned long long)s.states, (unsigned long long)s.steps,
               checks ? ", not merged" : "");
    if (complaint) {
        printf("%s, %s: %s\n", name_of(ops), row->limits, complaint);
        if (!checks)
            shorten(kind, start, &trace);
        if (loud)
            print_run(kind, start, &trace);
    }
    fflush(stdout);
    free(start);
    return !complaint;
}

/* What happens next is drawn. Faults are rare, so that there is something to disturb. */
static bool run_one(const hly_explored_t *kind, const void *ops, uint64_t *chance, bool loud,
                    void *start, void *world)
{
    static trace_t trace;
    static hly_happens_t events[1 << 15];
    uint8_t limits[HLY_LIMITS_MOST] = {0};
    const uint32_t rare = kind->draw(chance, limits);
    const char *const *complaint = (const char *const *)complaint_of(world);
    begin(kind, ops, limits, start);
    kind->copy(world, start);
    trace.n = 0;
    while (!*complaint && trace.n < kind->trace) {
        const uint32_t n = events_in(kind, world, events);
        bool must = false;
        for (uint32_t i = 0; i < n && !must; i++)
            must = events[i].must;
        if (*complaint || n == 0 || (!must && hly_random_below(chance, 4) == 0))
            break;
        const hly_happens_t *e = &events[hly_random_below(chance, n)];
        if (e->must || !must || strchr(kind->drawn_may, e->what) ||
            !hly_random_below(chance, rare)) {
            trace.events[trace.n++] = *e;
            kind->apply(world, e);
        }
    }
    const bool well = !*complaint;
    if (!well && loud) {
        printf("%s:", name_of(ops));
        for (uint32_t i = 0; kind->words[i]; i++)
            printf(limits[i] ? " %u %s," : "", limits[i], kind->words[i]);
        printf(" %s\n", *complaint);
        shorten(kind, start, &trace);
        print_run(kind, start, &trace);
    }
    return well;
}

static uint64_t run_some(const hly_explored_t *kind, const void *ops, uint32_t runs,
                         uint64_t chance, uint64_t most, bool loud)
{
    uint64_t failed = 0;
    void *start = hly_seen_memory(kind->bytes), *world = hly_seen_memory(kind->bytes);
    for (uint32_t i = 0; i < runs && failed < most; i++)
        failed += !run_one(kind, ops, &chance, loud, start, world);
    free(start);
    free(world);
    return failed;
}

void hly_explore(const hly_explored_t *kind, bool all, uint32_t random, uint64_t seed,
                 hly_count_t *count)
{
    tell_stories(kind, count);
    for (const hly_row_t *row = kind->rows; row->limits; row++)
        if (all || row->when != HLY_LONG) {
            const bool passed = explore_row(kind, row, kind->sound, false, true);
            count->passed += passed;
            count->failed += !passed;
        }
    if (random && kind->draw) {
        const uint64_t failed = run_some(kind, kind->sound, random * kind->draws, seed, 3, true);
        printf("%u drawn runs of %s: %llu failed\n", random * kind->draws, kind->drawn_name,
               (unsigned long long)failed);
        count->passed += failed == 0;
        count->failed += failed;
    }
}

/* ---------------------------------------------------------------- checks of the explorer */

/* Its known run, or drawn ones: most damages show at once. */
static bool is_refused(const hly_explored_t *kind, const void *ops, bool loud)
{
    for (const hly_story_t *story = kind->stories; story->name && kind->tells; story++)
        if (strcmp(story->damage, name_of(ops)) == 0)
            return fails(kind, story, ops);
    if (kind->draws_damaged && run_some(kind, ops, kind->draws_damaged, 1, 1, loud))
        return true;
    for (const hly_row_t *row = kind->rows; row->limits; row++)
        if (row->when == HLY_ALWAYS && !explore_row(kind, row, ops, false, loud))
            return true;
    return false;
}

void hly_explore_damaged(const hly_explored_t *kind, bool loud, hly_count_t *count)
{
    for (const void *const *ops = kind->damaged; *ops; ops++) {
        const bool refused = is_refused(kind, *ops, loud);
        printf("%s: %s\n", name_of(*ops), refused ? "refused" : "not refused");
        count->passed += refused;
        count->failed += !refused;
        fflush(stdout);
    }
}

void hly_explore_merged(const hly_explored_t *kind, hly_count_t *count)
{
    for (const hly_row_t *row = kind->rows; row->limits && kind->merge; row++)
        if (row->when == HLY_ALWAYS) {
            const bool passed = explore_row(kind, row, kind->sound, true, true);
            count->passed += passed;
            count->failed += !passed;
        }
}
