/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_model.c - what can happen to the ranks of a call that fails, and what must not.
 *
 * Each rank sends its data to each when it calls, and completes the call when it has that of all.
 * Messages of a dead rank arrive until its death is found. Time passes only when those in the call,
 * except stopped ones, have read all that was sent to them and found all dead ones, and looked at
 * their clocks. A rank whose call fails goes on with it until nothing changes, as src/fault does.
 */
#include <stdio.h>
#include <string.h>

#include "verdict_model.h"

_Static_assert(sizeof(hly_held_t) == 56 && sizeof(hly_caller_t) == 96, "no other padding");

#define NOW_NS     UINT64_C(1000000000000) /* always: other times are told from it */
#define LATE_SHARE 8

enum { WHY = 'w' };

enum {                    /* events */
       CALLS = 'c',       /* rank a calls */
       WRONG = 'r',       /* rank a calls, and its call is wrong */
       HEARS = 'h',       /* rank a hears the next message of rank b */
       OVERTAKES = 'o',   /* or a later one: the b / 8-th of rank b modulo 8 */
       DIES = 'd',        /* rank a dies */
       LEAVES = 'e',      /* rank a ends: it has completed the call; or after another error */
       FINDS = 'f',       /* rank a finds rank b dead; what was under way from there is lost */
       STOPS = 's',       /* rank a is stopped */
       CONTINUES = 'g',   /* and goes on */
       SEES = 'p',        /* rank a has seen rank b stopped for the timeout */
       TIME_PASSES = 't', /* to the next timer that is due */
       LOOKS = 'l'        /* rank a looks at its clock: a timer is due */
};

static uint8_t bit(uint32_t rank)
{
    return (uint8_t)(1u << rank);
}

static struct hly_verdict_wire verdict(enum hly_cause cause, int rank, uint32_t words)
{
    return (struct hly_verdict_wire){
        .cause = cause, .code = -1, .rank = rank, .other = -1, .detail = {(char)words}};
}

/* ---------------------------------------------------------------- the rank of an event */

typedef struct actor {
    hly_call_world_t *w;
    const hly_failing_ops_t *ops;
    hly_caller_t *c;
    uint32_t rank;
    bool asked; /* the event is a coordinator's question, in the first round and in this rank's
                   ballot */
    struct hly_failing_view view;
    union { /* its state as src/agree has it, while the event lasts */
        struct hly_fault fault;
        uint8_t room[sizeof(struct hly_fault) + HLY_FAILING_SETS * sizeof(uint64_t)];
    };
} actor_t;

static unsigned what_is(void *arg, int rank)
{
    const actor_t *a = arg;
    const hly_caller_t *c = a->c;
    const uint8_t it = bit((uint32_t)rank);
    return rank == (int)a->rank ? 0
                                : (c->linked & it ? HLY_RANK_LINKED | HLY_RANK_CALLED : 0u) |
                                      (c->explained & it ? HLY_RANK_LEFT : 0u) |
                                      (c->known & it ? HLY_RANK_DEAD : 0u);
}

static const char *const said[] = {"NEWS", "VOTE", "ASK", "DECIDED", "", "BY_TIME", "LEAVES"};

/* Only votes and questions need their ballot. */
static void post(void *arg, int to, const struct hly_failing_message *m,
                 const struct hly_verdict_wire *v)
{
    const actor_t *a = arg;
    const bool ballot = m->what == HLY_AGREE_VOTE || m->what == HLY_AGREE_ASK;
    const hly_letter_t l = {(uint8_t)a->rank, (uint8_t)to, (uint8_t)m->what,
                            ballot ? (uint8_t)m->edge : 0, hly_shorten(v)};
    if (a->w->common.loud) {
        printf(" -> %s to %d:", said[m->what], to);
        hly_print_short(&l.verdict);
    }
    a->c->linked |= bit((uint32_t)to);
    hly_letter_put(a->w, &l);
}

static bool is_made(const hly_caller_t *c)
{
    return c->phase == HLY_IN || c->phase == HLY_FAILS;
}

static hly_view_t *view_of(actor_t *a)
{
    a->view.made = is_made(a->c);
    return &a->view;
}

static void act(actor_t *a, hly_call_world_t *w, uint32_t r)
{
    a->w = w;
    a->ops = w->common.ops;
    a->c = &w->ranks[r];
    a->rank = r;
    a->asked = false;
    a->view = (struct hly_failing_view){.nranks = w->limits.ranks,
                                        .rank = (int)r,
                                        .sequence = HLY_SEQUENCE,
                                        .timeout_code = -1,
                                        .now_ns = NOW_NS,
                                        .deadline_ns = HLY_CALL_DEADLINE_NS,
                                        .is = what_is,
                                        .send = post,
                                        .arg = a};
    hly_unhold(&a->fault, &a->c->held, NOW_NS);
}

static void keep(actor_t *a)
{
    if (a->c->has_fault)
        hly_hold(&a->c->held, &a->fault, NOW_NS);
    else
        memset(&a->c->held, 0, sizeof a->c->held);
}

static uint64_t deadline_of(const hly_caller_t *c)
{
    return NOW_NS + HLY_CALL_DEADLINE_NS - c->called_for;
}

static bool has_letters(const actor_t *a)
{
    return hly_letters(a->w, -1, a->rank);
}

/* ---------------------------------------------------------------- as src/fault/call.c */

/* What this rank's later calls end with is held in short form. */
static struct hly_broken broken_of(const hly_caller_t *c)
{
    static struct hly_broken broken = {.since = HLY_SEQUENCE};
    broken.is = c->broken;
    broken.agreed = c->agreed;
    hly_widen(&broken.by, &c->broken_by);
    return broken;
}

static void set_broken(hly_caller_t *c, const struct hly_broken *b)
{
    c->broken = b->is;
    c->agreed = b->agreed;
    c->broken_by = hly_bare(&b->by);
}

static void note_broken(hly_caller_t *c, const struct hly_verdict_wire *v)
{
    struct hly_broken b = broken_of(c);
    hly_broken_note(&b, v);
    set_broken(c, &b);
}

static void agree(actor_t *a, const struct hly_verdict_wire *v)
{
    struct hly_broken b = broken_of(a->c);
    hly_broken_agree(&b, v);
    set_broken(a->c, &b);
    a->ops->failing_tell_all(view_of(a), a->c->has_fault ? &a->fault : NULL, v);
}

/* The program is told the same. */
static bool is_same(const hly_short_t *a, const hly_short_t *b)
{
    return a->cause == b->cause && a->rank == b->rank && a->other == b->other &&
           a->words == b->words;
}

static void check_end(actor_t *a)
{
    hly_call_world_t *w = a->w;
    const hly_short_t *result = &a->c->result;
    if (w->common.loud) {
        printf(" = ends with");
        hly_print_short(result);
    }
    if (!(w->dead | w->was_stopped | w->was_away) && !is_same(&w->best, result))
        w->common.complaint = "the verdict is not the best one that a rank has found";
    if (result->cause == HLY_CAUSE_PEER && w->left & bit((uint32_t)result->rank) &&
        result->words != WHY)
        w->common.complaint = "a rank that has said why it leaves is told to be lost";
    for (uint32_t x = 0; x < w->limits.ranks; x++) {
        const hly_caller_t *other = &w->ranks[x];
        const bool dead = w->dead & bit(x);
        if (!dead && other->phase == HLY_ENDED && !is_same(&other->result, result))
            w->common.complaint = "two ranks end with different verdicts";
        if (!dead && other->phase == HLY_OUT && !result->of)
            w->common.complaint = "a rank that has not made the call is taken to be in step";
    }
}

static void conclude(actor_t *a)
{
    struct hly_verdict_wire v;
    struct hly_broken b = broken_of(a->c);
    const enum hly_end end = a->ops->failing_end(view_of(a), &a->fault, &b, &v);
    if (end == HLY_END_AGREES)
        agree(a, &v);
    else if (end == HLY_END_ALONE)
        note_broken(a->c, &v);
    else if (end == HLY_END_IN_STEP)
        a->ops->failing_tell_all(view_of(a), &a->fault, &v);
    a->c->result = hly_bare(&v);
    a->c->phase = HLY_ENDED;
    a->c->called_for = 0;
    a->c->has_fault = false;
    memset(a->room, 0, sizeof a->room);
    check_end(a);
}

static void progress(actor_t *a)
{
    if (a->c->phase != HLY_FAILS)
        return;
    const struct hly_broken b = broken_of(a->c);
    const struct hly_failing_now now = {.quiet = true,
                                        .late = a->ops->failing_is_late(view_of(a), &a->fault, &b),
                                        .first = true,
                                        .unread = a->c->listens && has_letters(a)};
    if (a->ops->failing_go_on(view_of(a), &a->fault, &b, &now) == HLY_COURSE_ENDS)
        conclude(a);
}

static struct hly_fault *fault_of(actor_t *a)
{
    a->c->has_fault = true;
    return &a->fault;
}

static void enter(actor_t *a)
{
    const struct hly_verdict_wire over = hly_whole(&a->c->broken_by);
    a->c->phase = HLY_FAILS;
    a->c->outcome_known = true;
    a->ops->failing_enter(view_of(a), fault_of(a), deadline_of(a->c), a->c->agreed ? &over : NULL);
    progress(a);
}

static void raise(actor_t *a, const struct hly_verdict_wire *v)
{
    if (a->c->phase == HLY_ENDED || a->c->phase == HLY_WELL)
        return;
    const struct hly_verdict_wire best = hly_whole(&a->w->best);
    if (!best.cause || hly_verdict_better(v, &best))
        a->w->best = hly_bare(v);
    if (a->ops->failing_raise(view_of(a), fault_of(a), v))
        enter(a);
}

static void enter_late(actor_t *a, bool stopped)
{
    stopped |= a->c->called_for < HLY_CALL_DEADLINE_NS / LATE_SHARE;
    if (a->fault.verdict.cause >= HLY_CAUSE_STOPPED && stopped) {
        const struct hly_verdict_wire late = verdict(HLY_CAUSE_LATE, (int)a->rank, 0);
        a->ops->held_adopt(view_of(a), &a->fault, &late);
    }
    enter(a);
}

static void end_too(actor_t *a)
{
    const struct hly_broken b = broken_of(a->c);
    if (a->ops->failing_end_too(fault_of(a), &b))
        progress(a);
    else
        enter(a);
}

static void heard(actor_t *a, const struct hly_failing_message *m, const struct hly_verdict_wire *v)
{
    a->ops->failing_heard(view_of(a), fault_of(a), m, v);
    if (!a->fault.entered && is_made(a->c))
        enter_late(a, hly_verdict_stops(v, (int)a->rank));
    else
        progress(a);
}

static bool outlives(const hly_caller_t *c, bool entered, bool final)
{
    return c->phase == HLY_WELL && c->has_fault && entered && !final;
}

/* First it reads what has come. */
static void help(actor_t *a)
{
    struct hly_verdict_wire v;
    if (!(a->c->listens && has_letters(a)) && outlives(a->c, a->fault.entered, a->fault.final) &&
        a->ops->failing_help(view_of(a), &a->fault, true, a->c->agreed, &v))
        agree(a, &v);
}

static void outlived(actor_t *a, const struct hly_failing_message *m,
                     const struct hly_verdict_wire *v)
{
    if (!a->c->outcome_known) {
        struct hly_verdict_wire mine = *v;
        a->c->outcome_known = true;
        mine.of = mine.of ? mine.of : HLY_SEQUENCE + 1;
        note_broken(a->c, &mine);
        a->ops->failing_outlive(view_of(a), fault_of(a), &mine);
    }
    if (!outlives(a->c, a->fault.entered, a->fault.final))
        return;
    struct hly_broken b = broken_of(a->c);
    a->ops->failing_heard_after(view_of(a), &a->fault, &b, m, v);
    set_broken(a->c, &b);
    help(a);
}

static void concluded(actor_t *a, const struct hly_verdict_wire *v)
{
    agree(a, v);
    if (is_made(a->c))
        end_too(a);
    help(a);
}

static void hear_verdict(actor_t *a, const hly_letter_t *l)
{
    const struct hly_failing_message m = {
        .in_call = true, .from = l->from, .edge = l->edge, .what = (enum hly_agree_what)l->what};
    const struct hly_verdict_wire v = hly_whole(&l->verdict);
    const struct hly_broken b = broken_of(a->c);
    struct hly_fault *f = a->c->has_fault ? &a->fault : NULL;
    const bool complete = a->c->phase == HLY_WELL || a->c->phase == HLY_ENDED;
    if (m.what == HLY_AGREE_LEAVES)
        a->c->explained |= bit(l->from);
    switch (a->ops->failing_sort(view_of(a), f, &b, &m, &v, complete)) {
    case HLY_HEARD_IN_STEP:
        a->ops->failing_end_in_step(f, &v);
        progress(a);
        break;
    case HLY_HEARD_AGREED:
        concluded(a, &v);
        break;
    case HLY_HEARD_QUESTION:
        a->ops->failing_tell(view_of(a), f, m.from, &b.by);
        break;
    case HLY_HEARD_OF_CALL:
        heard(a, &m, &v);
        break;
    case HLY_HEARD_AFTER:
        outlived(a, &m, &v);
        break;
    case HLY_HEARD_NOTHING:
        break;
    }
}

/* ---------------------------------------------------------------- events of a rank */

static void try_complete(actor_t *a)
{
    hly_caller_t *c = a->c;
    c->listens &= has_letters(a);
    if (c->phase == HLY_IN && c->data == (1u << a->w->limits.ranks) - 1 && !c->listens) {
        c->phase = HLY_WELL;
        c->called_for = 0;
        if (a->w->common.loud)
            printf(" = completes the call");
    } else if (c->phase == HLY_FAILS) {
        progress(a);
    } else if (c->phase == HLY_WELL) {
        help(a);
    }
}

static void call(actor_t *a, bool wrong)
{
    hly_caller_t *c = a->c;
    struct hly_verdict_wire v = verdict(HLY_CAUSE_ARGUMENT, (int)a->rank, 0);
    c->phase = HLY_IN;
    c->listens = has_letters(a);
    if (wrong || (c->broken && !c->agreed)) {
        if (!wrong)
            v = hly_whole(&c->broken_by);
        a->w->wrong += wrong;
        raise(a, &v);
    } else if (c->agreed) {
        end_too(a);
    } else if (c->has_fault) {
        enter_late(a, false);
    } else {
        c->data |= bit(a->rank);
        for (uint32_t x = 0; x < a->w->limits.ranks; x++)
            if (x != a->rank)
                hly_letter_put(
                    a->w,
                    &(hly_letter_t){.from = (uint8_t)a->rank, .to = (uint8_t)x, .what = HLY_DATA});
        try_complete(a);
    }
}

static void hear(actor_t *a, uint32_t from, uint32_t behind)
{
    hly_letter_t l;
    if (!hly_letter_take(a->w, from, a->rank, behind, &l))
        return;
    if (a->w->common.loud) {
        printf(" %s", l.what == HLY_DATA ? "data" : said[l.what]);
        if (l.what != HLY_DATA)
            hly_print_short(&l.verdict);
    }
    if (l.what == HLY_DATA)
        a->c->data |= bit(from);
    else
        hear_verdict(a, &l);
    a->asked =
        l.what == HLY_AGREE_ASK && l.edge < a->w->limits.ranks && l.edge == a->fault.voting.ballot;
    try_complete(a);
}

static void die(actor_t *a)
{
    hly_letter_t l;
    a->w->dead |= bit(a->rank);
    memset(a->c, 0, sizeof *a->c);
    for (uint32_t x = 0; x < a->w->limits.ranks; x++)
        while (hly_letter_take(a->w, x, a->rank, 0, &l)) {
        }
}

static void find(actor_t *a, uint32_t x)
{
    hly_caller_t *c = a->c;
    hly_letter_t l;
    while (hly_letter_take(a->w, x, a->rank, 0, &l)) {
    }
    c->known |= bit(x);
    const uint32_t own = a->w->limits.words ? 'a' + a->rank : 0,
                   words = c->explained & bit(x) ? WHY : own;
    const struct hly_verdict_wire v = verdict(HLY_CAUSE_PEER, (int)x, words);
    note_broken(c, &v);
    if (c->has_fault)
        a->ops->failing_lost(view_of(a), &a->fault);
    const bool ran = c->data & bit(a->rank), here = ran && c->data & bit(x);
    const enum hly_given given = here ? HLY_GIVEN_ALL : HLY_GIVEN_PART;
    if (c->phase == HLY_FAILS ? a->ops->failing_blames(view_of(a), &a->fault, (int)x, given, false)
                              : c->phase == HLY_IN && !here)
        raise(a, &v);
    help(a);
    try_complete(a);
}

/* A rank ends: when it has completed the call; or after an error elsewhere, and says so. */
static void leave(actor_t *a)
{
    const struct hly_verdict_wire v = verdict(HLY_CAUSE_PEER, (int)a->rank, WHY);
    if (a->c->phase == HLY_OUT)
        a->ops->failing_leave(view_of(a), &v);
    a->w->left |= bit(a->rank);
    die(a);
}

static void name_the_absent(actor_t *a)
{
    struct hly_fault *f = &a->fault;
    hly_view_t *v = view_of(a);
    for (uint32_t k = 0; k < hly_failing_neighbours(v->nranks); k++)
        if ((!f->verdict.of || f->verdict.of == HLY_SEQUENCE + 1) &&
            a->ops->failing_is_silent(v, f, k)) {
            struct hly_verdict_wire absent = verdict(HLY_CAUSE_ABSENT, hly_failing_from(v, k), 0);
            a->ops->failing_name(v, f, &absent);
            break;
        }
    a->ops->failing_named(v, f);
}

static void look(actor_t *a)
{
    hly_caller_t *c = a->c;
    for (int i = 0; i < HLY_LATE_LOOKS && outlives(c, a->fault.entered, a->fault.final); i++) {
        a->ops->failing_look_alone(view_of(a), &a->fault);
        help(a);
    }
    if (c->phase == HLY_IN) {
        int missing = 0;
        while (c->data & bit((uint32_t)missing))
            missing++;
        const struct hly_verdict_wire v = verdict(HLY_CAUSE_DEADLINE, missing, 0);
        raise(a, &v);
        return;
    }
    for (int i = 0; i < HLY_LATE_LOOKS && c->phase == HLY_FAILS; i++) {
        if (a->ops->failing_look(view_of(a), &a->fault, deadline_of(c)))
            name_the_absent(a);
        progress(a);
        if (has_letters(a))
            break;
    }
}

/* ---------------------------------------------------------------- what can happen */

static bool is_active(const hly_call_world_t *w, uint32_t r)
{
    return is_made(&w->ranks[r]) && !((w->dead | w->stopped) & bit(r));
}

/* How long until the next timer; 0: time cannot pass now, or nobody waits for it. */
static uint64_t next_time(const hly_call_world_t *w)
{
    uint64_t next = 0;
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        if (!is_active(w, r))
            continue;
        const uint64_t due = hly_caller_due_in(&w->ranks[r]);
        if (!due || hly_letters(w, -1, r) || (w->dead & ~w->ranks[r].known))
            return 0;
        next = !next || due < next ? due : next;
    }
    return next;
}

/* What called_for is compared with is less than the sum here. */
static void pass(hly_call_world_t *w)
{
    const uint64_t ns = next_time(w);
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        hly_caller_t *c = &w->ranks[r];
        hly_held_t *h = &c->held;
        c->called_for += is_made(c) ? ns : 0;
        if (c->called_for > HLY_CALL_DEADLINE_NS + HLY_GRACE_NS)
            c->called_for = HLY_CALL_DEADLINE_NS + HLY_GRACE_NS;
        h->deadline_in -= h->deadline_in < ns ? h->deadline_in : ns;
        if (h->absent_in != UINT64_MAX)
            h->absent_in -= h->absent_in < ns ? h->absent_in : ns;
        c->listens |= c->phase == HLY_WELL;
        w->was_away |= c->phase == HLY_OUT && !(w->dead & bit(r)) ? bit(r) : 0;
    }
    if (!(w->dead | w->was_stopped | w->was_away))
        w->common.complaint = "ranks wait for the clock, and all are there";
}

static uint32_t count(uint8_t set)
{
    return (uint32_t)__builtin_popcount(set);
}

static void add_faults(const hly_call_world_t *w, uint32_t r, hly_happens_t events[], uint32_t *n)
{
    const hly_caller_t *c = &w->ranks[r];
    if (c->phase == HLY_OUT)
        hly_may(events, n, CALLS, r, 0, !(w->was_away & bit(r)));
    if (c->phase == HLY_OUT && w->wrong < w->limits.wrong)
        hly_may(events, n, WRONG, r, 0, false);
    if (count(w->dead & ~w->left) < w->limits.die)
        hly_may(events, n, DIES, r, 0, false);
    if (count(w->left) < w->limits.leave && (c->phase == HLY_OUT || c->phase == HLY_WELL))
        hly_may(events, n, LEAVES, r, 0, false);
    if (count(w->was_stopped) < w->limits.stopped && is_made(c))
        hly_may(events, n, STOPS, r, 0, false);
    for (uint32_t x = 0; x < w->limits.ranks && c->phase == HLY_IN; x++)
        if (w->stopped & ~w->dead & ~c->data & bit(x))
            hly_may(events, n, SEES, r, x, false);
}

uint32_t hly_call_world_events(const void *world, hly_happens_t events[])
{
    const hly_call_world_t *w = world;
    uint32_t n = 0, calls = 0;
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        const hly_caller_t *c = &w->ranks[r];
        const bool active = is_active(w, r);
        if (w->stopped & ~w->dead & bit(r))
            hly_may(events, &n, CONTINUES, r, 0, false);
        if ((w->dead | w->stopped) & bit(r))
            continue;
        for (uint32_t x = 0; x < w->limits.ranks; x++) {
            const uint32_t letters = hly_letters(w, (int)x, r);
            if (letters)
                hly_may(events, &n, HEARS, r, x, active);
            for (uint32_t k = 1; !w->limits.in_order && k < letters && k < 8; k++)
                hly_may(events, &n, OVERTAKES, r, x + 8 * k, false);
            if (w->dead & ~c->known & bit(x) && !(w->left & bit(x) && letters))
                hly_may(events, &n, FINDS, r, x, active);
        }
        if (active && !hly_caller_due_in(c) && !hly_letters(w, -1, r))
            hly_may(events, &n, LOOKS, r, 0, true);
        if (hly_caller_outlives(c) && !c->held.deadline_in && !hly_letters(w, -1, r))
            hly_may(events, &n, LOOKS, r, 0, false);
        calls += c->phase == HLY_OUT && !(w->was_away & bit(r));
        add_faults(w, r, events, &n);
    }
    if (count(w->was_away) + calls <= w->limits.away && next_time(w))
        hly_may(events, &n, TIME_PASSES, 0, 0, true); /* who has not called by then is away */
    return n;
}

/* ---------------------------------------------------------------- what happens */

static void happen(actor_t *a, const hly_happens_t *e)
{
    hly_call_world_t *w = a->w;
    struct hly_verdict_wire stopped;
    switch (e->what) {
    case CALLS:
    case WRONG:
        call(a, e->what == WRONG);
        break;
    case HEARS:
        hear(a, e->b, 0);
        break;
    case OVERTAKES:
        hear(a, e->b % 8, e->b / 8);
        break;
    case FINDS:
        find(a, e->b);
        break;
    case LOOKS:
        look(a);
        break;
    case STOPS:
        w->stopped |= bit(a->rank);
        w->was_stopped |= bit(a->rank);
        break;
    case CONTINUES:
        w->stopped &= (uint8_t)~bit(a->rank);
        a->c->listens = true;
        break;
    case SEES:
        stopped = verdict(HLY_CAUSE_STOPPED, e->b, 0);
        raise(a, &stopped);
        break;
    case DIES:
        die(a);
        break;
    case LEAVES:
        leave(a);
        break;
    }
}

/* A rank whose call fails goes on with it until that changes nothing. */
static void acted(actor_t *a)
{
    hly_held_t last;
    keep(a);
    do {
        last = a->c->held;
        progress(a);
        keep(a);
    } while (a->c->phase == HLY_FAILS && memcmp(&last, &a->c->held, sizeof last) != 0);
}

/* A rank that was asked gives the coordinator the time for votes, and for those on its proposal.
 * The rounds after the first have an end. */
static void check_timeout(actor_t *a, bool asked)
{
    const hly_held_t *h = &a->c->held;
    if (asked && a->c->phase == HLY_FAILS && h->voted == h->ballot + 1 &&
        h->deadline_in < 2 * HLY_GRACE_NS)
        a->w->common.complaint = "a rank that was asked does not give the coordinator its time";
}

void hly_call_world_apply(void *world, const hly_happens_t *e)
{
    hly_call_world_t *w = world;
    static actor_t a; /* the texts of its verdicts are empty always */
    if (e->what == TIME_PASSES) {
        pass(w);
    } else {
        act(&a, w, e->a);
        happen(&a, e);
        acted(&a);
        check_timeout(&a, a.asked);
    }
    hly_call_world_forget(w);
    for (uint32_t x = 0; x < w->limits.ranks; x++) /* has it read now what had come? */
        if (w->ranks[x].listens && !((w->dead | w->stopped) & bit(x)) && !hly_letters(w, -1, x)) {
            act(&a, w, x);
            try_complete(&a);
            acted(&a);
        }
}

void hly_call_world_finish(void *world)
{
    hly_call_world_t *w = world;
    const bool bound =
        !w->dead || !(w->was_away | w->was_stopped); /* else the dead may have told */
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        const hly_caller_t *c = &w->ranks[r];
        if (is_active(w, r))
            w->common.complaint = "a rank waits without end";
        for (uint32_t x = 0; x < w->limits.ranks && !(w->dead & bit(r)); x++) {
            const hly_caller_t *other = &w->ranks[x];
            if (c->phase != HLY_ENDED || other->phase != HLY_WELL || (w->dead & bit(x)))
                continue;
            if (!c->result.of)
                w->common.complaint = "the ranks are out of step, and the verdict does not say so";
            if (!other->broken && !hly_letters(w, -1, x))
                w->common.complaint = "who has completed the call is not told that it failed";
            if (other->agreed && bound && !is_same(&other->broken_by, &c->result))
                w->common.complaint = "who has completed the call is told another verdict";
        }
    }
}

void hly_call_world_init(void *world, const uint8_t limits[])
{
    hly_call_world_t *w = world;
    memset(&w->limits, 0, offsetof(hly_call_world_t, letters) - offsetof(hly_call_world_t, limits));
    memcpy(&w->limits, limits, sizeof w->limits);
    const uint32_t n = w->limits.ranks;
    for (uint32_t r = 0; r < n; r++)
        w->ranks[r].linked = (uint8_t)(w->limits.ring ? 1u << ((r + 1) % n) : ~(1u << r));
}

void hly_call_world_copy(void *copy, const void *world)
{
    hly_call_world_t *to = copy;
    const hly_call_world_t *from = world;
    memcpy(to, from, offsetof(hly_call_world_t, ranks));
    memcpy(to->ranks, from->ranks, from->limits.ranks * sizeof from->ranks[0]);
    memcpy(to->letters, from->letters, from->nletters * sizeof from->letters[0]);
}
