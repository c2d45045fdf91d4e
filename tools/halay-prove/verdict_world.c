/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_world.c - what can happen to the ranks of a call that fails, and what must not.
 *
 * Each rank sends its data to each when it calls, and completes the call when it has that of all.
 * Messages of a pair stay in order, and arrive. Those of a dead rank arrive until its death is
 * found. Time passes only when those in the call, except stopped ones, have read all that was sent
 * to them and found all dead ones, and looked at their clocks.
 */
#include "verdict_world.h"

#include <stdio.h>
#include <string.h>

#define LATE_SHARE 8

enum { SEQUENCE = 5, DATA = 0, ALARM, WHY = 'w' };

static uint8_t bit(uint32_t rank)
{
    return (uint8_t)(1u << rank);
}

/* ---------------------------------------------------------------- verdicts */

static struct hly_verdict_wire verdict(enum hly_cause cause, int rank, uint32_t words)
{
    return (struct hly_verdict_wire){
        .cause = cause, .code = -1, .rank = rank, .other = -1, .detail = {(char)words}};
}

/* ---------------------------------------------------------------- messages */

typedef struct sight { /* what a rank sees */
    struct hly_failing_view is;
    hly_call_world_t *w;
    uint32_t rank;
} sight_t;

static unsigned what_is(void *arg, int rank)
{
    const sight_t *s = arg;
    if (rank == (int)s->rank) {
        return 0;
    }
    const hly_caller_t *c = &s->w->ranks[s->rank];
    return (c->linked & bit((uint32_t)rank) ? HLY_RANK_LINKED | HLY_RANK_CALLED : 0u) |
           (c->explained & bit((uint32_t)rank) ? HLY_RANK_LEFT : 0u) |
           (c->known & bit((uint32_t)rank) ? HLY_RANK_DEAD : 0u);
}

static const char *const said[] = {"NEWS", "VOTE", "ASK", "DECIDED", "", "BY_TIME", "LEAVES"};

static void post(void *arg, int to, const struct hly_failing_message *m,
                 const struct hly_verdict_wire *v)
{
    const sight_t *s = arg;
    if (s->w->loud) {
        printf(" -> %s to %d:", said[m->what], to);
        const hly_short_t told = hly_shorten(v);
        hly_print_short(&told);
    }
    s->w->ranks[s->rank].linked |= bit((uint32_t)to);
    hly_letter_put(s->w, &(hly_letter_t){.from = (uint8_t)s->rank,
                                         .to = (uint8_t)to,
                                         .kind = ALARM,
                                         .what = (uint8_t)m->what,
                                         .edge = (uint8_t)m->edge,
                                         .in_call = m->in_call,
                                         .verdict = hly_shorten(v)});
}

static bool is_made(const hly_call_world_t *w, uint32_t r)
{
    return w->ranks[r].phase == HLY_IN || w->ranks[r].phase == HLY_FAILS;
}

static hly_view_t *view_of(sight_t *s, hly_call_world_t *w, uint32_t r)
{
    *s = (sight_t){.w = w,
                   .rank = r,
                   .is = {.nranks = (int)w->nranks,
                          .rank = (int)r,
                          .sequence = SEQUENCE,
                          .made = is_made(w, r),
                          .timeout_code = -1,
                          .now_ns = w->now_ns,
                          .deadline_ns = HLY_CALL_DEADLINE_NS,
                          .is = what_is,
                          .send = post,
                          .arg = s}};
    return &s->is;
}

/* ---------------------------------------------------------------- as src/fault/call.c */

/* What this rank's later calls end with is held in short form. */
static struct hly_broken broken_of(const hly_caller_t *c)
{
    return (struct hly_broken){
        .is = c->broken, .agreed = c->agreed, .since = SEQUENCE, .by = hly_whole(&c->broken_by)};
}

static void set_broken(hly_caller_t *c, const struct hly_broken *b)
{
    c->broken = b->is;
    c->agreed = b->agreed;
    c->broken_by = hly_bare(&b->by);
}

/* True: later calls of this rank are not failed before. */
static bool note_broken(hly_caller_t *c, const struct hly_verdict_wire *v)
{
    struct hly_broken b = broken_of(c);
    const bool news = hly_broken_note(&b, v);
    set_broken(c, &b);
    return news;
}

static void agree(hly_call_world_t *w, uint32_t r, const struct hly_verdict_wire *v)
{
    hly_caller_t *c = &w->ranks[r];
    struct hly_broken b = broken_of(c);
    sight_t s;
    hly_broken_agree(&b, v);
    set_broken(c, &b);
    w->ops->tell_all(view_of(&s, w, r), c->has_fault ? &c->fault : NULL, v);
}

/* The program is told the same. */
static bool is_same(const hly_short_t *a, const hly_short_t *b)
{
    return a->cause == b->cause && a->rank == b->rank && a->other == b->other &&
           a->words == b->words;
}

static void check_end(hly_call_world_t *w, uint32_t r)
{
    const hly_caller_t *c = &w->ranks[r];
    if (w->loud) {
        printf(" = ends with");
        hly_print_short(&c->result);
    }
    if (!(w->dead | w->was_stopped | w->was_away) && !is_same(&w->best, &c->result)) {
        w->complaint = "the verdict is not the best one that a rank has found";
    }
    if (c->result.cause == HLY_CAUSE_PEER && w->left & bit((uint32_t)c->result.rank) &&
        c->result.words != WHY) {
        w->complaint = "a rank that has said why it leaves is told to be lost";
    }
    for (uint32_t x = 0; x < w->nranks; x++) {
        const hly_caller_t *other = &w->ranks[x];
        if (!(w->dead & bit(x)) && other->phase == HLY_ENDED &&
            !is_same(&other->result, &c->result)) {
            w->complaint = "two ranks end with different verdicts";
        }
        if (!(w->dead & bit(x)) && other->phase == HLY_OUT && !c->result.of) {
            w->complaint = "a rank that has not made the call is taken to be in step";
        }
    }
}

static void conclude(hly_call_world_t *w, uint32_t r)
{
    hly_caller_t *c = &w->ranks[r];
    sight_t s;
    struct hly_verdict_wire v;
    struct hly_broken b = broken_of(c);
    const enum hly_end end = w->ops->end(view_of(&s, w, r), &c->fault, &b, &v);
    if (end == HLY_END_AGREES) {
        agree(w, r, &v);
    } else if (end == HLY_END_ALONE) {
        note_broken(c, &v);
    } else if (end == HLY_END_IN_STEP) {
        w->ops->tell_all(view_of(&s, w, r), &c->fault, &v);
    }
    c->result = hly_bare(&v);
    c->phase = HLY_ENDED;
    c->has_fault = false;
    memset(c->fault_bytes, 0, sizeof c->fault_bytes);
    check_end(w, r);
}

static void progress(hly_call_world_t *w, uint32_t r)
{
    hly_caller_t *c = &w->ranks[r];
    struct hly_fault *f = &c->fault;
    const struct hly_broken b = broken_of(c);
    sight_t s;
    hly_view_t *v = view_of(&s, w, r);
    if (c->phase != HLY_FAILS) {
        return;
    }
    const struct hly_failing_now now = {.quiet = true,
                                        .late = w->ops->is_late(v, f, &b),
                                        .first = true,
                                        .unread = c->listens && hly_letters(w, -1, r)};
    if (w->ops->go_on(v, f, &b, &now) == HLY_COURSE_ENDS) {
        conclude(w, r);
    }
}

static struct hly_fault *fault_of(hly_caller_t *c)
{
    c->has_fault = true;
    return &c->fault;
}

static void enter(hly_call_world_t *w, uint32_t r)
{
    hly_caller_t *c = &w->ranks[r];
    sight_t s;
    c->phase = HLY_FAILS;
    c->outcome_known = true;
    const struct hly_verdict_wire over = hly_whole(&c->broken_by);
    w->ops->enter(view_of(&s, w, r), fault_of(c), c->started_ns + HLY_CALL_DEADLINE_NS,
                  c->agreed ? &over : NULL);
    progress(w, r);
}

static void raise(hly_call_world_t *w, uint32_t r, const struct hly_verdict_wire *v)
{
    hly_caller_t *c = &w->ranks[r];
    sight_t s;
    if (c->phase == HLY_ENDED || c->phase == HLY_WELL) {
        return;
    }
    const struct hly_verdict_wire best = hly_whole(&w->best);
    if (!best.cause || hly_verdict_better(v, &best)) {
        w->best = hly_bare(v);
    }
    if (w->ops->raise(view_of(&s, w, r), fault_of(c), v)) {
        enter(w, r);
    }
}

static void enter_late(hly_call_world_t *w, uint32_t r, bool stopped)
{
    hly_caller_t *c = &w->ranks[r];
    sight_t s;
    stopped |= w->now_ns - c->started_ns < HLY_CALL_DEADLINE_NS / LATE_SHARE;
    if (c->fault.verdict.cause >= HLY_CAUSE_STOPPED && stopped) {
        const struct hly_verdict_wire late = verdict(HLY_CAUSE_LATE, (int)r, 0);
        w->ops->adopt(view_of(&s, w, r), &c->fault, &late);
    }
    enter(w, r);
}

static void end_too(hly_call_world_t *w, uint32_t r)
{
    hly_caller_t *c = &w->ranks[r];
    const struct hly_broken b = broken_of(c);
    if (w->ops->end_too(fault_of(c), &b)) {
        progress(w, r);
    } else {
        enter(w, r);
    }
}

static void heard(hly_call_world_t *w, uint32_t r, const struct hly_failing_message *m,
                  const struct hly_verdict_wire *v)
{
    hly_caller_t *c = &w->ranks[r];
    struct hly_fault *f = fault_of(c);
    sight_t s;
    w->ops->heard(view_of(&s, w, r), f, m, v);
    if (!f->entered && is_made(w, r)) {
        enter_late(w, r, hly_verdict_stops(v, (int)r));
    } else {
        progress(w, r);
    }
}

static bool outlives(const hly_caller_t *c)
{
    return c->phase == HLY_WELL && c->has_fault && c->fault.entered && !c->fault.final;
}

static void help(hly_call_world_t *w, uint32_t r)
{
    hly_caller_t *c = &w->ranks[r];
    sight_t s;
    struct hly_verdict_wire v;
    if (c->listens && hly_letters(w, -1, r)) {
        return; /* first it reads what has come */
    }
    if (outlives(c) && w->ops->help(view_of(&s, w, r), &c->fault, true, c->agreed, &v)) {
        agree(w, r, &v);
    }
}

static void outlived(hly_call_world_t *w, uint32_t r, const struct hly_failing_message *m,
                     const struct hly_verdict_wire *v)
{
    hly_caller_t *c = &w->ranks[r];
    sight_t s;
    if (!c->outcome_known) {
        struct hly_verdict_wire mine = *v;
        c->outcome_known = true;
        mine.of = mine.of ? mine.of : SEQUENCE + 1;
        note_broken(c, &mine);
        w->ops->outlive(view_of(&s, w, r), fault_of(c), &mine);
    }
    if (!outlives(c)) {
        return;
    }
    struct hly_broken b = broken_of(c);
    w->ops->heard_after(view_of(&s, w, r), &c->fault, &b, m, v);
    set_broken(c, &b);
    help(w, r);
}

static void concluded(hly_call_world_t *w, uint32_t r, const struct hly_verdict_wire *v)
{
    agree(w, r, v);
    if (is_made(w, r)) {
        end_too(w, r);
    }
    help(w, r);
}

static void hear_verdict(hly_call_world_t *w, uint32_t r, const hly_letter_t *l)
{
    hly_caller_t *c = &w->ranks[r];
    const struct hly_failing_message m = {.in_call = l->in_call,
                                          .from = l->from,
                                          .edge = l->edge,
                                          .what = (enum hly_agree_what)l->what};
    const struct hly_verdict_wire v = hly_whole(&l->verdict);
    const struct hly_broken b = broken_of(c);
    struct hly_fault *f = c->has_fault ? &c->fault : NULL;
    sight_t s;
    hly_view_t *view = view_of(&s, w, r);
    if (m.what == HLY_AGREE_LEAVES) {
        c->explained |= bit(l->from);
    }
    switch (w->ops->sort(view, f, &b, &m, &v, c->phase == HLY_WELL || c->phase == HLY_ENDED)) {
    case HLY_HEARD_IN_STEP:
        w->ops->end_in_step(f, &v);
        progress(w, r);
        break;
    case HLY_HEARD_AGREED:
        concluded(w, r, &v);
        break;
    case HLY_HEARD_QUESTION:
        w->ops->tell(view, f, m.from, &b.by);
        break;
    case HLY_HEARD_OF_CALL:
        heard(w, r, &m, &v);
        break;
    case HLY_HEARD_AFTER:
        outlived(w, r, &m, &v);
        break;
    case HLY_HEARD_NOTHING:
        break;
    }
}

/* ---------------------------------------------------------------- events of a rank */

static void try_complete(hly_call_world_t *w, uint32_t r)
{
    hly_caller_t *c = &w->ranks[r];
    if (!hly_letters(w, -1, r)) {
        c->listens = false;
    }
    if (c->phase == HLY_IN && c->data == (1u << w->nranks) - 1 && !c->listens) {
        c->phase = HLY_WELL;
        if (w->loud) {
            printf(" = completes the call");
        }
    } else if (c->phase == HLY_FAILS) {
        progress(w, r);
    } else if (c->phase == HLY_WELL) {
        help(w, r);
    }
}

static void call(hly_call_world_t *w, uint32_t r, bool refused)
{
    hly_caller_t *c = &w->ranks[r];
    struct hly_verdict_wire v = verdict(HLY_CAUSE_ARGUMENT, (int)r, 0);
    c->phase = HLY_IN;
    c->started_ns = w->now_ns;
    c->listens = hly_letters(w, -1, r);
    if (refused || (c->broken && !c->agreed)) {
        if (!refused) {
            v = hly_whole(&c->broken_by);
        }
        w->nrefused += refused;
        raise(w, r, &v);
    } else if (c->agreed) {
        end_too(w, r);
    } else if (c->has_fault) {
        enter_late(w, r, false);
    } else {
        c->data |= bit(r);
        for (uint32_t x = 0; x < w->nranks; x++) {
            if (x != r) {
                hly_letter_put(w,
                               &(hly_letter_t){.from = (uint8_t)r, .to = (uint8_t)x, .kind = DATA});
            }
        }
        try_complete(w, r);
    }
}

static void hear(hly_call_world_t *w, uint32_t r, uint32_t from, uint32_t behind)
{
    hly_letter_t l;
    if (!hly_letter_take(w, from, r, behind, &l)) {
        return;
    }
    if (w->loud) {
        printf(" %s", l.kind == DATA ? "data" : said[l.what]);
        if (l.kind != DATA) {
            hly_print_short(&l.verdict);
        }
    }
    if (l.kind == DATA) {
        w->ranks[r].data |= bit(from);
    } else {
        hear_verdict(w, r, &l);
    }
    try_complete(w, r);
}

static void die(hly_call_world_t *w, uint32_t r)
{
    uint32_t kept = 0;
    w->dead |= bit(r);
    memset(&w->ranks[r], 0, sizeof w->ranks[r]);
    for (uint32_t i = 0; i < w->nletters; i++) {
        if (w->letters[i].to != r) {
            w->letters[kept++] = w->letters[i];
        }
    }
    w->nletters = kept;
}

static void find(hly_call_world_t *w, uint32_t r, uint32_t x)
{
    hly_caller_t *c = &w->ranks[r];
    hly_letter_t l;
    sight_t s;
    while (hly_letter_take(w, x, r, 0, &l)) {
    }
    c->known |= bit(x);
    const uint32_t own = w->limits.words ? 'a' + r : 0, words = c->explained & bit(x) ? WHY : own;
    const struct hly_verdict_wire v = verdict(HLY_CAUSE_PEER, (int)x, words);
    note_broken(c, &v);
    if (c->has_fault) {
        w->ops->lost(view_of(&s, w, r), &c->fault);
    }
    const bool ran = c->data & bit(r), here = ran && c->data & bit(x);
    const enum hly_given given = here ? HLY_GIVEN_ALL : HLY_GIVEN_PART;
    if (c->phase == HLY_FAILS ? w->ops->blames(view_of(&s, w, r), &c->fault, (int)x, given, false)
                              : c->phase == HLY_IN && !here) {
        raise(w, r, &v);
    }
    help(w, r);
    try_complete(w, r);
}

/* A rank ends: when it has completed the call; or after an error elsewhere, and says so. */
static void leave(hly_call_world_t *w, uint32_t r)
{
    sight_t s;
    const struct hly_verdict_wire v = verdict(HLY_CAUSE_PEER, (int)r, WHY);
    if (w->ranks[r].phase == HLY_OUT) {
        w->ops->leave(view_of(&s, w, r), &v);
    }
    w->left |= bit(r);
    die(w, r);
}

static void name_the_absent(hly_call_world_t *w, uint32_t r)
{
    hly_caller_t *c = &w->ranks[r];
    struct hly_fault *f = &c->fault;
    sight_t s;
    hly_view_t *v = view_of(&s, w, r);
    for (uint32_t k = 0; k < hly_failing_neighbours((int)w->nranks); k++) {
        if ((!f->verdict.of || f->verdict.of == SEQUENCE + 1) && w->ops->is_silent(v, f, k)) {
            struct hly_verdict_wire absent = verdict(HLY_CAUSE_ABSENT, hly_failing_from(v, k), 0);
            w->ops->name_absent(v, f, &absent);
            break;
        }
    }
    w->ops->named(v, f);
}

static void look(hly_call_world_t *w, uint32_t r)
{
    hly_caller_t *c = &w->ranks[r];
    sight_t s;
    const uint64_t deadline_ns = c->started_ns + HLY_CALL_DEADLINE_NS;
    for (int i = 0; i < HLY_LATE_LOOKS && outlives(c); i++) {
        w->ops->look_alone(view_of(&s, w, r), &c->fault);
        help(w, r);
    }
    if (c->phase == HLY_WELL) {
        return;
    }
    if (c->phase == HLY_IN) {
        int missing = 0;
        while (c->data & bit((uint32_t)missing)) {
            missing++;
        }
        const struct hly_verdict_wire v = verdict(HLY_CAUSE_DEADLINE, missing, 0);
        raise(w, r, &v);
        return;
    }
    for (int i = 0; i < HLY_LATE_LOOKS && c->phase == HLY_FAILS; i++) {
        if (w->ops->look(view_of(&s, w, r), &c->fault, deadline_ns)) {
            name_the_absent(w, r);
        }
        progress(w, r);
        if (hly_letters(w, -1, r)) {
            break;
        }
    }
}

/* ---------------------------------------------------------------- what can happen */

static bool is_active(const hly_call_world_t *w, uint32_t r)
{
    return is_made(w, r) && !((w->dead | w->stopped) & bit(r));
}

static uint64_t timer_of(const hly_call_world_t *w, uint32_t r)
{
    const hly_caller_t *c = &w->ranks[r];
    const struct hly_fault *f = &c->fault;
    if (c->phase == HLY_IN) {
        return c->started_ns + HLY_CALL_DEADLINE_NS;
    }
    uint64_t due = f->deadline_ns;
    if (f->slow && !f->final && f->absent_ns < due) {
        due = f->absent_ns;
    }
    if (!f->slow && !f->final && c->started_ns + HLY_CALL_DEADLINE_NS < due) {
        due = c->started_ns + HLY_CALL_DEADLINE_NS;
    }
    return due;
}

/* When time can go on to; 0: not now, or nobody waits for it. */
static uint64_t next_time(const hly_call_world_t *w)
{
    uint64_t next = 0;
    for (uint32_t r = 0; r < w->nranks; r++) {
        if (!is_active(w, r)) {
            continue;
        }
        const uint64_t due = timer_of(w, r);
        if (due <= w->now_ns || hly_letters(w, -1, r) || (w->dead & ~w->ranks[r].known)) {
            return 0;
        }
        next = !next || due < next ? due : next;
    }
    return next;
}

static void add(hly_happens_t events[], uint32_t *n, hly_step_kind_t what, uint32_t a, uint32_t b,
                bool must)
{
    events[(*n)++] = (hly_happens_t){(uint8_t)what, (uint8_t)a, (uint8_t)b, must};
}

static uint32_t count(uint8_t set)
{
    return (uint32_t)__builtin_popcount(set);
}

static void add_calls(const hly_call_world_t *w, uint32_t r, hly_happens_t events[], uint32_t *n)
{
    if (w->ranks[r].phase != HLY_OUT) {
        return;
    }
    add(events, n, HLY_CASE_CALLS, r, 0, !(w->was_away & bit(r)));
    if (w->nrefused < w->limits.refused) {
        add(events, n, HLY_CASE_REFUSED, r, 0, false);
    }
}

static void add_faults(const hly_call_world_t *w, uint32_t r, hly_happens_t events[], uint32_t *n)
{
    if (count(w->dead & ~w->left) < w->limits.deaths) {
        add(events, n, HLY_CASE_DIES, r, 0, false);
    }
    if (count(w->left) < w->limits.leave &&
        (w->ranks[r].phase == HLY_OUT || w->ranks[r].phase == HLY_WELL)) {
        add(events, n, HLY_CASE_LEAVES, r, 0, false);
    }
    if (count(w->was_stopped) < w->limits.stops && is_made(w, r)) {
        add(events, n, HLY_CASE_STOPS, r, 0, false);
    }
    for (uint32_t x = 0; x < w->nranks; x++) {
        if ((w->stopped & bit(x)) && !(w->dead & bit(x)) && w->ranks[r].phase == HLY_IN &&
            !(w->ranks[r].data & bit(x))) {
            add(events, n, HLY_CASE_SEES, r, x, false);
        }
    }
}

/* Has it told its program of the failure? */
static bool is_told(const hly_call_world_t *w, uint32_t r)
{
    const hly_caller_t *c = &w->ranks[r];
    return (w->dead & bit(r)) || c->phase == HLY_ENDED || (c->phase == HLY_WELL && c->agreed);
}

/* Data that come in a failing call matter where ranks may complete it and leave. */
static hly_phase_t last_with_data(const hly_call_world_t *w)
{
    return w->limits.leave ? HLY_FAILS : HLY_IN;
}

/* Makes this message no difference? */
static bool is_idle(const hly_call_world_t *w, const hly_letter_t *l)
{
    const hly_caller_t *to = &w->ranks[l->to];
    const bool concluded = l->kind == ALARM && l->what == HLY_AGREE_DECIDED;
    if (l->kind == DATA) {
        return to->phase > last_with_data(w);
    }
    if (to->agreed) {
        return concluded || is_told(w, l->from);
    }
    return to->phase == HLY_ENDED && !concluded;
}

/* What makes no difference any more is forgotten, so that fewer states differ. */
static void forget(hly_call_world_t *w)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->nletters; i++) {
        if (!is_idle(w, &w->letters[i])) {
            w->letters[kept++] = w->letters[i];
        }
    }
    w->nletters = kept;
    for (uint32_t r = 0; r < w->nranks; r++) {
        hly_caller_t *c = &w->ranks[r];
        if (c->phase > last_with_data(w)) {
            c->data = 0;
        }
        if (is_told(w, r)) {
            memset(c->fault_bytes, 0, sizeof c->fault_bytes);
            c->has_fault = c->listens = false;
            c->known = w->dead;
            c->explained = w->left;
        }
    }
}

uint32_t hly_call_world_events(const void *world, hly_happens_t events[])
{
    const hly_call_world_t *w = world;
    uint32_t n = 0, calls = 0;
    bool away_may_stay = true;
    for (uint32_t r = 0; r < w->nranks; r++) {
        if ((w->dead | w->stopped) & bit(r)) {
            if (w->stopped & ~w->dead & bit(r)) {
                add(events, &n, HLY_CASE_RESUMES, r, 0, false);
            }
            continue;
        }
        const bool active = is_active(w, r);
        for (uint32_t x = 0; x < w->nranks; x++) {
            const uint32_t letters = hly_letters(w, (int)x, r);
            if (letters) {
                add(events, &n, HLY_CASE_HEARS, r, x, active);
            }
            for (uint32_t k = 1; !w->limits.in_order && k < letters && k < 8; k++) {
                add(events, &n, HLY_CASE_OVERTAKES, r, x + 8 * k, false);
            }
            if (w->dead & ~w->ranks[r].known & bit(x) && !(w->left & bit(x) && letters)) {
                add(events, &n, HLY_CASE_FINDS, r, x, active);
            }
        }
        if (active && timer_of(w, r) <= w->now_ns && !hly_letters(w, -1, r)) {
            add(events, &n, HLY_CASE_CLOCK, r, 0, true);
        }
        if (outlives(&w->ranks[r]) && w->ranks[r].fault.deadline_ns <= w->now_ns &&
            !hly_letters(w, -1, r)) {
            add(events, &n, HLY_CASE_CLOCK, r, 0, false);
        }
        calls += w->ranks[r].phase == HLY_OUT && !(w->was_away & bit(r));
        add_calls(w, r, events, &n);
        add_faults(w, r, events, &n);
    }
    away_may_stay = count(w->was_away) + calls <= w->limits.away;
    if (next_time(w) && away_may_stay) { /* who has not called by then is away */
        add(events, &n, HLY_CASE_PASSES, 0, 0, true);
    }
    return n;
}

void hly_call_world_apply(void *world, const hly_happens_t *e)
{
    hly_call_world_t *w = world;
    const uint32_t r = e->a;
    hly_caller_t *c = &w->ranks[r];
    if (e->what == HLY_CASE_CALLS || e->what == HLY_CASE_REFUSED) {
        call(w, r, e->what == HLY_CASE_REFUSED);
    } else if (e->what == HLY_CASE_HEARS) {
        hear(w, r, e->b, 0);
    } else if (e->what == HLY_CASE_OVERTAKES) {
        hear(w, r, e->b % 8, e->b / 8);
    } else if (e->what == HLY_CASE_FINDS) {
        find(w, r, e->b);
    } else if (e->what == HLY_CASE_CLOCK) {
        look(w, r);
    } else if (e->what == HLY_CASE_STOPS) {
        w->stopped |= bit(r);
        w->was_stopped |= bit(r);
    } else if (e->what == HLY_CASE_RESUMES) {
        w->stopped &= (uint8_t)~bit(r);
        c->listens = true;
    } else if (e->what == HLY_CASE_SEES) {
        const struct hly_verdict_wire v = verdict(HLY_CAUSE_STOPPED, e->b, 0);
        raise(w, r, &v);
    } else if (e->what == HLY_CASE_PASSES) {
        const uint64_t next = next_time(w);
        w->now_ns = next ? next : w->now_ns;
        for (uint32_t x = 0; x < w->nranks; x++) {
            w->ranks[x].listens |= w->ranks[x].phase == HLY_WELL;
            w->was_away |= w->ranks[x].phase == HLY_OUT && !(w->dead & bit(x)) ? bit(x) : 0;
        }
        if (!(w->dead | w->was_stopped | w->was_away)) {
            w->complaint = "ranks wait for the clock, and all are there";
        }
    } else if (e->what == HLY_CASE_DIES) {
        die(w, r);
    } else if (e->what == HLY_CASE_LEAVES) {
        leave(w, r);
    }
    forget(w);
    for (uint32_t x = 0; x < w->nranks; x++) { /* has it read now what had come? */
        if (w->ranks[x].listens && !((w->dead | w->stopped) & bit(x)) && !hly_letters(w, -1, x)) {
            try_complete(w, x);
        }
    }
}

void hly_call_world_finish(void *world)
{
    hly_call_world_t *w = world;
    for (uint32_t r = 0; r < w->nranks; r++) {
        const hly_caller_t *c = &w->ranks[r];
        if (is_active(w, r)) {
            w->complaint = "a rank waits without end";
        }
        for (uint32_t x = 0; x < w->nranks && !(w->dead & bit(r)); x++) {
            const hly_caller_t *other = &w->ranks[x];
            if (c->phase != HLY_ENDED || other->phase != HLY_WELL || (w->dead & bit(x))) {
                continue;
            }
            if (!c->result.of) {
                w->complaint = "the ranks are out of step, and the verdict does not say so";
            }
            if (!other->broken && !hly_letters(w, -1, x)) {
                w->complaint = "who has completed the call is not told that it failed";
            }
            const bool bound =
                !w->dead ||
                !(w->was_away | w->was_stopped); /* else the dead one may have told it */
            if (other->agreed && bound && !is_same(&other->broken_by, &c->result)) {
                w->complaint = "who has completed the call is told another verdict";
            }
        }
    }
}
