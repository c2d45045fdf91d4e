/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree_world.c - what can happen to a group of ranks in an agreement, and what must not.
 *
 * Messages arrive, in any order. Those of a dead rank arrive until its death is found. A deadline
 * passes only when all that was sent to the rank has been read, and only for a rank that is dead,
 * has not called, has ended, is the slow one, or takes the rank itself for failed and has read all
 * that it sent. A rank that has ended may never listen again, as far as others are well.
 */
#include "agree_world.h"

#include <stdio.h>
#include <string.h>

#include "seen.h"

enum { OVERTAKES = 4 }; /* so many of a pair are next */

const hly_agreement_ops_t hly_sound = {
    "src/agree",         hly_agreement_refuses, hly_agreement_enter, hly_agreement_note,
    hly_agreement_go_on, hly_agreement_heard,   hly_agreement_ask,   hly_agreement_late};

static uint64_t bit(uint32_t rank)
{
    return UINT64_C(1) << rank;
}

static struct hly_agreement *rank_of(hly_world_t *w, uint32_t rank)
{
    return (struct hly_agreement *)(void *)w->room[rank];
}

const struct hly_agreement *hly_world_rank(const hly_world_t *w, uint32_t rank)
{
    return (const struct hly_agreement *)(const void *)w->room[rank];
}

static uint64_t set(const hly_world_t *w, uint32_t rank, int which)
{
    return *hly_agreement_set(hly_world_rank(w, rank), which);
}

void hly_world_init(hly_world_t *w, const hly_agreement_ops_t *ops, uint32_t nranks,
                    const hly_limits_t *limits)
{
    memset(w, 0, offsetof(hly_world_t, flights));
    w->ops = ops;
    w->limits = *limits;
    w->nranks = nranks;
    w->quiet = true;
    for (uint32_t r = 0; r < nranks; r++) {
        hly_agreement_init(rank_of(w, r), (int)nranks, (int)r);
    }
}

void hly_world_copy(void *copy, const void *world)
{
    hly_world_t *to = copy;
    const hly_world_t *from = world;
    const size_t ranks = from->nranks;
    memcpy(to, from, offsetof(hly_world_t, known));
    memcpy(to->known, from->known, ranks * sizeof from->known[0]);
    memcpy(to->room, from->room, ranks * sizeof from->room[0]);
    memcpy(to->flights, from->flights, from->nflights * sizeof from->flights[0]);
    to->quiet = from->quiet;
    to->complaint = from->complaint;
}

/* The order of messages is no part of the state. */
uint64_t hly_world_hash(const void *world)
{
    const hly_world_t *w = world;
    uint64_t links[16] = {0}, hash = hly_seen_mix(hly_seen_mix(w->dead, w->slow), w->away);
    for (uint32_t r = 0; r < w->nranks; r++) {
        hash = hly_seen_mix(hash, w->known[r]);
        for (uint32_t i = 0; i < sizeof w->room[r] / sizeof w->room[r][0]; i++) {
            hash = hly_seen_mix(hash, w->room[r][i]);
        }
    }
    for (uint32_t i = 0; i < w->nflights; i++) {
        const hly_flight_t *f = &w->flights[i];
        uint64_t *link = &links[f->from * 4 + f->to];
        const uint64_t one =
            hly_seen_mix(1, f->what | f->call << 8 | (uint64_t)(uint32_t)f->flag << 16);
        *link += hly_seen_mix(one, f->ballot | f->failed << 8 | f->without << 16 |
                                       (uint64_t)(uint32_t)f->code << 32);
    }
    for (uint32_t i = 0; i < 16; i++) {
        hash = hly_seen_mix(hash, links[i]);
    }
    return hash;
}

/* ---------------------------------------------------------------- messages */

typedef struct sender {
    hly_world_t *w;
    uint32_t rank;
    int answers; /* the rank whose message is answered, or -1 */
} sender_t;

static const char *const words[] = {"", "VOTE", "ASK", "DECIDED", "LEFT_OUT"};

static void send(void *arg, int to, const struct hly_agreement_message *m)
{
    const sender_t *s = arg;
    hly_world_t *w = s->w;
    if (!hly_agreement_is_sound((int)w->nranks, m)) {
        w->complaint = "a message is sent that its receiver refuses";
        return;
    }
    if (m->what == HLY_AGREE_LEFT_OUT && to != s->answers &&
        !((set(w, s->rank, HLY_SET_ABSENT) | set(w, s->rank, HLY_SET_HEARD)) & bit((uint32_t)to))) {
        return; /* it may have no link to it */
    }
    if (w->dead & bit((uint32_t)to)) {
        return;
    }
    if (!w->quiet) {
        printf(" -> %s to %d", words[m->what], to);
    }
    if (w->nflights == HLY_WORLD_FLIGHTS) {
        w->complaint = "messages without end";
        return;
    }
    /* A vote for a proposal, and a question without one, bear a value for nothing. */
    const uint32_t proposal = (m->what == HLY_AGREE_ASK ? s->rank : (uint32_t)to) + 1;
    const bool has_value =
        m->what == HLY_AGREE_DECIDED ||
        (m->what <= HLY_AGREE_ASK && (m->what == HLY_AGREE_ASK) == (m->ballot == proposal));
    w->flights[w->nflights++] =
        (hly_flight_t){.from = (uint8_t)s->rank,
                       .to = (uint8_t)to,
                       .what = (uint8_t)m->what,
                       .call = (uint8_t)m->call,
                       .flag = has_value ? m->flag : 0,
                       .code = has_value ? m->code : 0,
                       .ballot = has_value || m->what == HLY_AGREE_VOTE ? m->ballot : 0,
                       .failed = m->what < HLY_AGREE_DECIDED ? *m->failed : 0,
                       .without = has_value ? *m->without : 0};
}

/* Takes a message of the pair out, behind so many others; false: there is none. */
static bool receive(hly_world_t *w, uint32_t from, uint32_t to, uint32_t behind,
                    hly_flight_t *flight)
{
    for (uint32_t i = 0; i < w->nflights; i++) {
        if (w->flights[i].from == from && w->flights[i].to == to && !behind--) {
            *flight = w->flights[i];
            w->nflights--;
            memmove(w->flights + i, w->flights + i + 1, (w->nflights - i) * sizeof *flight);
            return true;
        }
    }
    return false;
}

static uint32_t under_way(const hly_world_t *w, uint32_t from, uint32_t to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->nflights; i++) {
        n += w->flights[i].from == from && w->flights[i].to == to;
    }
    return n;
}

static bool is_under_way(const hly_world_t *w, uint32_t from, uint32_t to)
{
    return under_way(w, from, to) > 0;
}

/* What makes no difference any more is forgotten, so that fewer states differ: messages to the dead
 * and to those that are left out, and what of a state only a rank under way needs. */
static void forget(hly_world_t *w)
{
    uint32_t kept = 0;
    for (uint32_t r = 0; r < w->nranks; r++) {
        struct hly_agreement *a = (struct hly_agreement *)(void *)w->room[r];
        if ((w->dead & bit(r)) || hly_agreement_is_over(a)) {
            a->voted_to = 0;
            a->leads = a->proposed = a->late = false;
            a->flag = a->code = 0;
            memset(a->set, 0, HLY_SET_WITHOUT * sizeof a->set[0]);
            w->known[r] = 0;
        }
        if (!a->decided && ((w->dead & bit(r)) || a->left_out)) {
            a->set[HLY_SET_WITHOUT] = 0;
            a->ballot = 0;
            a->value_flag = a->value_code = 0;
        }
    }
    for (uint32_t i = 0; i < w->nflights; i++) {
        const hly_flight_t *f = &w->flights[i];
        const struct hly_agreement *to = hly_world_rank(w, f->to);
        const bool idle =
            (w->dead & bit(f->to)) || to->left_out ||
            (to->decided && (f->what == HLY_AGREE_DECIDED || (w->dead & bit(f->from))));
        if (!idle) {
            w->flights[kept++] = *f;
        }
    }
    w->nflights = kept;
}

/* ---------------------------------------------------------------- what can happen */

static bool is_dead(const hly_world_t *w, uint32_t rank)
{
    return w->dead & bit(rank);
}

static bool is_over(const hly_world_t *w, uint32_t rank)
{
    return hly_agreement_is_over(hly_world_rank(w, rank));
}

/* May this rank say nothing to `to` for a whole deadline? *slow, *away: those that it makes so. */
static bool may_be_silent(const hly_world_t *w, uint32_t rank, uint32_t to, uint64_t *slow,
                          uint64_t *away)
{
    const struct hly_agreement *a = hly_world_rank(w, rank);
    if (a->decided && !is_dead(w, rank)) {
        return false;
    }
    if (is_dead(w, rank) || (w->slow & bit(rank)) || a->left_out) {
        return true;
    }
    if (!a->entered) {
        *away |= bit(rank);
        return (uint32_t)__builtin_popcountll(*away) <= w->limits.away;
    }
    if ((set(w, rank, HLY_SET_FAILED) & bit(to)) && !w->ops->refuses(a, (int)to) &&
        !is_under_way(w, to, rank)) {
        return true;
    }
    *slow |= bit(rank);
    return (uint32_t)__builtin_popcountll(*slow) <= w->limits.slow;
}

static bool can_be_late(const hly_world_t *w, uint32_t rank, uint64_t *slow, uint64_t *away)
{
    const struct hly_agreement *a = hly_world_rank(w, rank);
    *slow = w->slow;
    *away = w->away;
    if (!a->entered || is_over(w, rank)) {
        return false;
    }
    for (uint32_t i = 0; i < w->nflights; i++) {
        if (w->flights[i].to == rank && !is_dead(w, w->flights[i].from)) {
            return false;
        }
    }
    for (uint32_t x = 0; x < w->nranks; x++) {
        if (hly_agreement_awaits(a, (int)x) && !may_be_silent(w, x, rank, slow, away)) {
            return false;
        }
    }
    return true;
}

/* It does so all the time, and that matters where it is refused. */
static bool asks_again(const hly_world_t *w, uint32_t rank)
{
    const struct hly_agreement *a = hly_world_rank(w, rank);
    for (uint32_t x = 0; x < w->nranks && a->leads && !is_over(w, rank); x++) {
        const struct hly_agreement *other = hly_world_rank(w, x);
        if (hly_agreement_awaits(a, (int)x) && !is_dead(w, x) && !other->left_out &&
            (other->decided || w->ops->refuses(other, (int)rank)) && !is_under_way(w, rank, x) &&
            !is_under_way(w, x, rank)) {
            return true;
        }
    }
    return false;
}

/* Does it take part? Whoever is slow or away may stay so. */
static bool is_active(const hly_world_t *w, uint32_t rank)
{
    return hly_world_rank(w, rank)->entered && !is_over(w, rank) && !(w->slow & bit(rank));
}

bool hly_world_can(const void *world, const hly_happens_t *e)
{
    const hly_world_t *w = world;
    uint64_t slow, away;
    if (e->what == HLY_OVERTAKES && e->a < w->nranks && e->b % 64 < w->nranks) {
        return !is_dead(w, e->a) && under_way(w, e->b % 64, e->a) > e->b / 64;
    }
    if (e->a >= w->nranks || e->b >= w->nranks || is_dead(w, e->a)) {
        return false;
    }
    switch (e->what) {
    case HLY_CALLS:
        return !hly_world_rank(w, e->a)->entered && !is_over(w, e->a);
    case HLY_HEARS:
        return is_under_way(w, e->b, e->a);
    case HLY_DIES:
        return (uint32_t)__builtin_popcountll(w->dead) < w->limits.deaths;
    case HLY_FINDS:
        return is_dead(w, e->b) && !is_over(w, e->a) && !(w->known[e->a] & bit(e->b));
    case HLY_ASKS:
        return asks_again(w, e->a);
    default:
        return can_be_late(w, e->a, &slow, &away);
    }
}

static void add(hly_happens_t events[], uint32_t *n, hly_happening_t what, uint32_t a, uint32_t b,
                bool must)
{
    events[(*n)++] = (hly_happens_t){(uint8_t)what, (uint8_t)a, (uint8_t)b, must};
}

uint32_t hly_world_events(const void *world, hly_happens_t events[])
{
    const hly_world_t *w = world;
    uint32_t n = 0;
    uint64_t slow, away;
    uint8_t before[HLY_WORLD_RANKS][HLY_WORLD_RANKS] = {0}; /* of the pair */
    for (uint32_t i = 0; i < w->nflights; i++) {
        const hly_flight_t *f = &w->flights[i];
        const uint32_t k = before[f->from][f->to];
        before[f->from][f->to] += k < OVERTAKES;
        if (k == 0) {
            /* A rank that has ended listens within a deadline: only who was silent itself counts on
             * that.
             */
            const bool listens =
                is_over(w, f->to) && is_active(w, f->from) && ((w->slow | w->away) & bit(f->from));
            add(events, &n, HLY_HEARS, f->to, f->from, is_active(w, f->to) || listens);
        } else if (k < OVERTAKES) {
            add(events, &n, HLY_OVERTAKES, f->to, f->from + 64 * k, false);
        }
    }
    for (uint32_t r = 0; r < w->nranks; r++) {
        const uint64_t news = w->dead & ~w->known[r];
        if (is_dead(w, r)) {
            continue;
        }
        if (!hly_world_rank(w, r)->entered && !is_over(w, r)) {
            add(events, &n, HLY_CALLS, r, 0, !(w->away & bit(r)));
        }
        for (uint32_t x = 0; x < w->nranks && !is_over(w, r); x++) {
            if (news >> x & 1) {
                add(events, &n, HLY_FINDS, r, x, is_active(w, r));
            }
        }
        if (asks_again(w, r)) {
            add(events, &n, HLY_ASKS, r, 0, is_active(w, r));
        }
        if (can_be_late(w, r, &slow, &away)) { /* nobody counts on a rank that is not slow yet */
            add(events, &n, HLY_CLOCK, r, 0, is_active(w, r) && slow == w->slow);
        }
        if ((uint32_t)__builtin_popcountll(w->dead) < w->limits.deaths) {
            add(events, &n, HLY_DIES, r, 0, false);
        }
    }
    return n;
}

/* ---------------------------------------------------------------- what must not */

static void check_value(hly_world_t *w, uint32_t rank)
{
    const struct hly_agreement *a = hly_world_rank(w, rank);
    const uint64_t without = set(w, rank, HLY_SET_WITHOUT);
    if (without & ~(w->dead | w->slow | w->away)) {
        w->complaint = "a value leaves out a rank that lives and was never silent";
    }
    for (uint32_t r = 0; r < w->nranks; r++) {
        const struct hly_agreement *other = hly_world_rank(w, r);
        if (!(without & bit(r)) && (uint32_t)a->value_flag >> r % 32 & 1) {
            w->complaint = "a value has not the flag of a rank that it does not leave out";
        }
        /* What a rank has decided that has died since binds the others if nobody was silent. */
        const bool bound = !is_dead(w, r) || !(w->slow | w->away);
        if (other->decided && bound &&
            (other->value_flag != a->value_flag || other->value_code != a->value_code ||
             set(w, r, HLY_SET_WITHOUT) != without)) {
            w->complaint = "two ranks have decided different values";
        }
    }
}

static void check(hly_world_t *w, uint32_t rank)
{
    struct hly_agreement *a = rank_of(w, rank);
    a->wait_anew = false;
    if (a->decided) {
        check_value(w, rank);
    }
    if (a->left_out && !((w->slow | w->away) & bit(rank))) {
        w->complaint = "a rank is left out that was never silent";
    }
    if (!w->quiet && a->decided) {
        printf(" = has decided flag %x without %llx", (uint32_t)a->value_flag & 0xffff,
               (unsigned long long)set(w, rank, HLY_SET_WITHOUT));
    }
    if (!w->quiet && a->left_out) {
        printf(" = is left out");
    }
}

void hly_world_apply(void *world, const hly_happens_t *e)
{
    hly_world_t *w = world;
    struct hly_agreement *a = rank_of(w, e->a);
    const uint32_t from = e->b % 64, behind = e->what == HLY_OVERTAKES ? e->b / 64 : 0;
    const bool hears = e->what == HLY_HEARS || e->what == HLY_OVERTAKES;
    sender_t sender = {w, e->a, hears ? (int)from : -1};
    const struct hly_agreement_sink sink = {send, &sender};
    hly_flight_t f;
    if (e->what == HLY_DIES) {
        w->dead |= bit(e->a);
        forget(w);
        return;
    }
    if (e->what == HLY_CALLS) {
        w->ops->enter(a, w->calls_other & bit(e->a) ? 2 : 1, (int32_t) ~(UINT32_C(1) << e->a % 32));
        for (uint32_t r = 0; r < w->nranks; r++) {
            if (w->known[e->a] & bit(r)) {
                w->ops->note(a, (int)r, false);
            }
        }
        w->ops->go_on(a, &sink);
    } else if (hears && receive(w, from, e->a, behind, &f)) {
        const struct hly_agreement_message m = {.what = (enum hly_agree_what)f.what,
                                                .call = f.call,
                                                .flag = f.flag,
                                                .code = f.code,
                                                .ballot = f.ballot,
                                                .failed = &f.failed,
                                                .without = &f.without};
        if (!w->quiet) {
            printf(" %s", words[f.what]);
        }
        w->ops->heard(a, f.from, &m, &sink);
    } else if (e->what == HLY_FINDS) {
        w->known[e->a] |= bit(e->b);
        while (receive(w, e->b, e->a, 0, &f)) {
        }
        if (a->entered && !is_over(w, e->a)) {
            w->ops->note(a, e->b, false);
            w->ops->go_on(a, &sink);
        }
    } else if (e->what == HLY_ASKS) {
        w->ops->ask(a, &sink);
    } else if (e->what == HLY_CLOCK) {
        can_be_late(w, e->a, &w->slow, &w->away);
        w->ops->late(a, &sink);
    }
    check(w, e->a);
    forget(w);
}

void hly_world_finish(void *world)
{
    hly_world_t *w = world;
    for (uint32_t r = 0; r < w->nranks; r++) {
        if (!is_dead(w, r) && is_active(w, r)) {
            w->complaint = "a rank waits without end";
        }
    }
}
