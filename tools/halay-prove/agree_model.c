/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree_model.c - what can happen to a group of ranks in an agreement, and what must not.
 *
 * Messages arrive, in any order. Those of a dead rank arrive until its death is found. A deadline
 * passes only when all that was sent to the rank has been read, and only for a rank that is dead,
 * has not called, has ended, is the slow one, or takes the rank itself for failed and has read all
 * that it sent. A rank that has ended may never listen again, as far as others are well.
 */
#include "agree_model.h"

#include <stdio.h>
#include <string.h>

#include "seen.h"

enum { NEXT = 4 }; /* so many messages of a pair are next */

enum {                  /* events */
       CALLS = 'c',     /* rank a calls */
       HEARS = 'h',     /* rank a hears the next message of rank b */
       OVERTAKES = 'o', /* or a later one: the b / 64-th of rank b modulo 64 */
       DIES = 'd',      /* rank a dies */
       FINDS = 'f',     /* rank a finds rank b dead; what was under way from there is lost */
       ASKS = 'a',      /* rank a, who coordinates, asks again */
       CLOCK = 't'      /* the timer of rank a is due */
};

static uint64_t bit(uint32_t rank)
{
    return UINT64_C(1) << rank;
}

static const hly_agreement_ops_t *ops_of(const hly_world_t *w)
{
    return w->common.ops;
}

static struct hly_agreement *rank_of(hly_world_t *w, uint32_t rank)
{
    return (struct hly_agreement *)(void *)w->room[rank];
}

static const struct hly_agreement *state_of(const hly_world_t *w, uint32_t rank)
{
    return (const struct hly_agreement *)(const void *)w->room[rank];
}

static uint64_t set(const hly_world_t *w, uint32_t rank, int which)
{
    return *hly_agreement_set(state_of(w, rank), which);
}

static void world_init(void *world, const uint8_t limits[])
{
    hly_world_t *w = world;
    memset(&w->limits, 0, offsetof(hly_world_t, flights) - offsetof(hly_world_t, limits));
    memcpy(&w->limits, limits, sizeof w->limits);
    for (uint32_t r = 0; r < w->limits.ranks; r++)
        hly_agreement_init(rank_of(w, r), w->limits.ranks, (int)r);
}

static void world_copy(void *copy, const void *world)
{
    hly_world_t *to = copy;
    const hly_world_t *from = world;
    const size_t ranks = from->limits.ranks;
    memcpy(to, from, offsetof(hly_world_t, known));
    memcpy(to->known, from->known, ranks * sizeof from->known[0]);
    memcpy(to->room, from->room, ranks * sizeof from->room[0]);
    memcpy(to->flights, from->flights, from->nflights * sizeof from->flights[0]);
}

/* The order of messages is no part of the state. */
static uint64_t world_hash(const void *world)
{
    const hly_world_t *w = world;
    uint64_t sum = 0, hash = hly_seen_mix(hly_seen_mix(w->dead, w->slow), w->away);
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        hash = hly_seen_mix(hash, w->known[r]);
        for (uint32_t i = 0; i < sizeof w->room[r] / sizeof w->room[r][0]; i++)
            hash = hly_seen_mix(hash, w->room[r][i]);
    }
    for (uint32_t i = 0; i < w->nflights; i++) {
        const hly_flight_t *f = &w->flights[i];
        const uint64_t pair = hly_seen_mix(1, f->from * 64u + f->to),
                       one = hly_seen_mix(pair, f->what | f->call << 8 |
                                                    (uint64_t)(uint32_t)f->flag << 16);
        sum += hly_seen_mix(one, f->ballot | f->failed << 8 | f->without << 16 |
                                     (uint64_t)(uint32_t)f->code << 32);
    }
    return hly_seen_mix(hash, sum);
}

/* ---------------------------------------------------------------- messages */

typedef struct sender {
    hly_world_t *w;
    uint32_t rank;
    int answers; /* the rank whose message is answered, or -1 */
} sender_t;

static const char *const said[] = {"", "VOTE", "ASK", "DECIDED", "LEFT_OUT"};

static void send(void *arg, int to, const struct hly_agreement_message *m)
{
    const sender_t *s = arg;
    hly_world_t *w = s->w;
    if (!hly_agreement_is_sound((int)w->limits.ranks, m)) {
        w->common.complaint = "a message is sent that its receiver refuses";
        return;
    }
    if (m->what == HLY_AGREE_LEFT_OUT && to != s->answers &&
        !((set(w, s->rank, HLY_SET_ABSENT) | set(w, s->rank, HLY_SET_HEARD)) & bit((uint32_t)to)))
        return; /* it may have no link to it */
    if (w->dead & bit((uint32_t)to))
        return;
    if (w->common.loud)
        printf(" -> %s to %d", said[m->what], to);
    if (w->nflights == HLY_WORLD_FLIGHTS) {
        w->common.complaint = "messages without end";
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
    for (uint32_t i = 0; i < w->nflights; i++)
        n += w->flights[i].from == from && w->flights[i].to == to;
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
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
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
        const struct hly_agreement *to = state_of(w, f->to);
        const bool idle =
            (w->dead & bit(f->to)) || to->left_out ||
            (to->decided && (f->what == HLY_AGREE_DECIDED || (w->dead & bit(f->from))));
        if (!idle)
            w->flights[kept++] = *f;
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
    return hly_agreement_is_over(state_of(w, rank));
}

/* May this rank say nothing to `to` for a whole deadline? *slow, *away: those that it makes so. */
static bool may_be_silent(const hly_world_t *w, uint32_t rank, uint32_t to, uint64_t *slow,
                          uint64_t *away)
{
    const struct hly_agreement *a = state_of(w, rank);
    if (a->decided && !is_dead(w, rank))
        return false;
    if (is_dead(w, rank) || (w->slow & bit(rank)) || a->left_out)
        return true;
    if (!a->entered) {
        *away |= bit(rank);
        return (uint32_t)__builtin_popcountll(*away) <= w->limits.away;
    }
    if ((set(w, rank, HLY_SET_FAILED) & bit(to)) && !ops_of(w)->agreement_refuses(a, (int)to) &&
        !is_under_way(w, to, rank))
        return true;
    *slow |= bit(rank);
    return (uint32_t)__builtin_popcountll(*slow) <= w->limits.slow;
}

static bool can_be_late(const hly_world_t *w, uint32_t rank, uint64_t *slow, uint64_t *away)
{
    const struct hly_agreement *a = state_of(w, rank);
    *slow = w->slow;
    *away = w->away;
    if (!a->entered || is_over(w, rank))
        return false;
    for (uint32_t i = 0; i < w->nflights; i++)
        if (w->flights[i].to == rank && !is_dead(w, w->flights[i].from))
            return false;
    for (uint32_t x = 0; x < w->limits.ranks; x++)
        if (hly_agreement_awaits(a, (int)x) && !may_be_silent(w, x, rank, slow, away))
            return false;
    return true;
}

/* It does so all the time, and that matters where it is refused. */
static bool asks_again(const hly_world_t *w, uint32_t rank)
{
    const struct hly_agreement *a = state_of(w, rank);
    for (uint32_t x = 0; x < w->limits.ranks && a->leads && !is_over(w, rank); x++) {
        const struct hly_agreement *other = state_of(w, x);
        if (hly_agreement_awaits(a, (int)x) && !is_dead(w, x) && !other->left_out &&
            (other->decided || ops_of(w)->agreement_refuses(other, (int)rank)) &&
            !is_under_way(w, rank, x) && !is_under_way(w, x, rank))
            return true;
    }
    return false;
}

/* Does it take part? Whoever is slow or away may stay so. */
static bool is_active(const hly_world_t *w, uint32_t rank)
{
    return state_of(w, rank)->entered && !is_over(w, rank) && !(w->slow & bit(rank));
}

static bool world_can(const void *world, const hly_happens_t *e)
{
    const hly_world_t *w = world;
    uint64_t slow, away;
    if (e->what == OVERTAKES && e->a < w->limits.ranks && e->b % 64 < w->limits.ranks)
        return !is_dead(w, e->a) && under_way(w, e->b % 64, e->a) > e->b / 64;
    if (e->a >= w->limits.ranks || e->b >= w->limits.ranks || is_dead(w, e->a))
        return false;
    switch (e->what) {
    case CALLS:
        return !state_of(w, e->a)->entered && !is_over(w, e->a);
    case HEARS:
        return is_under_way(w, e->b, e->a);
    case DIES:
        return (uint32_t)__builtin_popcountll(w->dead) < w->limits.die;
    case FINDS:
        return is_dead(w, e->b) && !is_over(w, e->a) && !(w->known[e->a] & bit(e->b));
    case ASKS:
        return asks_again(w, e->a);
    default:
        return can_be_late(w, e->a, &slow, &away);
    }
}

static uint32_t world_events(const void *world, hly_happens_t events[])
{
    const hly_world_t *w = world;
    uint32_t n = 0;
    uint64_t slow, away;
    uint8_t before[HLY_WORLD_RANKS][HLY_WORLD_RANKS] = {0}; /* of the pair */
    for (uint32_t i = 0; i < w->nflights; i++) {
        const hly_flight_t *f = &w->flights[i];
        const uint32_t k = before[f->from][f->to];
        before[f->from][f->to] += k < NEXT;
        if (k == 0) {
            /* A rank that has ended listens within a deadline: only who was silent itself counts on
             * that.
             */
            const bool listens =
                is_over(w, f->to) && is_active(w, f->from) && ((w->slow | w->away) & bit(f->from));
            hly_may(events, &n, HEARS, f->to, f->from, is_active(w, f->to) || listens);
        } else if (k < NEXT) {
            hly_may(events, &n, OVERTAKES, f->to, f->from + 64 * k, false);
        }
    }
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        const uint64_t news = w->dead & ~w->known[r];
        if (is_dead(w, r))
            continue;
        if (!state_of(w, r)->entered && !is_over(w, r))
            hly_may(events, &n, CALLS, r, 0, !(w->away & bit(r)));
        for (uint32_t x = 0; x < w->limits.ranks && !is_over(w, r); x++)
            if (news >> x & 1)
                hly_may(events, &n, FINDS, r, x, is_active(w, r));
        if (asks_again(w, r))
            hly_may(events, &n, ASKS, r, 0, is_active(w, r));
        if (can_be_late(w, r, &slow, &away)) /* nobody counts on a rank that is not slow yet */
            hly_may(events, &n, CLOCK, r, 0, is_active(w, r) && slow == w->slow);
        if ((uint32_t)__builtin_popcountll(w->dead) < w->limits.die)
            hly_may(events, &n, DIES, r, 0, false);
    }
    return n;
}

/* ---------------------------------------------------------------- what must not */

static void check_value(hly_world_t *w, uint32_t rank)
{
    const struct hly_agreement *a = state_of(w, rank);
    const uint64_t without = set(w, rank, HLY_SET_WITHOUT);
    if (without & ~(w->dead | w->slow | w->away))
        w->common.complaint = "a value leaves out a rank that lives and was never silent";
    for (uint32_t r = 0; r < w->limits.ranks; r++) {
        const struct hly_agreement *other = state_of(w, r);
        if (!(without & bit(r)) && (uint32_t)a->value_flag >> r % 32 & 1)
            w->common.complaint = "a value has not the flag of a rank that it does not leave out";
        /* What a rank has decided that has died since binds the others if nobody was silent. */
        const bool bound = !is_dead(w, r) || !(w->slow | w->away);
        if (other->decided && bound &&
            (other->value_flag != a->value_flag || other->value_code != a->value_code ||
             set(w, r, HLY_SET_WITHOUT) != without))
            w->common.complaint = "two ranks have decided different values";
    }
}

static void check(hly_world_t *w, uint32_t rank)
{
    struct hly_agreement *a = rank_of(w, rank);
    a->wait_anew = false;
    if (a->decided)
        check_value(w, rank);
    if (a->left_out && !((w->slow | w->away) & bit(rank)))
        w->common.complaint = "a rank is left out that was never silent";
    if (w->common.loud && a->decided) {
        printf(" = has decided flag %x without %llx", (uint32_t)a->value_flag & 0xffff,
               (unsigned long long)set(w, rank, HLY_SET_WITHOUT));
    }
    if (w->common.loud && a->left_out)
        printf(" = is left out");
}

static void world_apply(void *world, const hly_happens_t *e)
{
    hly_world_t *w = world;
    struct hly_agreement *a = rank_of(w, e->a);
    const uint32_t from = e->b % 64, behind = e->what == OVERTAKES ? e->b / 64 : 0;
    const bool hears = e->what == HEARS || e->what == OVERTAKES;
    sender_t sender = {w, e->a, hears ? (int)from : -1};
    const struct hly_agreement_sink sink = {send, &sender};
    hly_flight_t f;
    if (e->what == DIES) {
        w->dead |= bit(e->a);
        forget(w);
        return;
    }
    if (e->what == CALLS) {
        ops_of(w)->agreement_enter(a, w->limits.other == e->a + 1 ? 2 : 1,
                                   (int32_t) ~(UINT32_C(1) << e->a % 32));
        for (uint32_t r = 0; r < w->limits.ranks; r++)
            if (w->known[e->a] & bit(r))
                ops_of(w)->agreement_note(a, (int)r, false);
        ops_of(w)->agreement_go_on(a, &sink);
    } else if (hears && receive(w, from, e->a, behind, &f)) {
        const struct hly_agreement_message m = {.what = (enum hly_agree_what)f.what,
                                                .call = f.call,
                                                .flag = f.flag,
                                                .code = f.code,
                                                .ballot = f.ballot,
                                                .failed = &f.failed,
                                                .without = &f.without};
        if (w->common.loud)
            printf(" %s", said[f.what]);
        ops_of(w)->agreement_heard(a, f.from, &m, &sink);
    } else if (e->what == FINDS) {
        w->known[e->a] |= bit(e->b);
        while (receive(w, e->b, e->a, 0, &f)) {
        }
        if (a->entered && !is_over(w, e->a)) {
            ops_of(w)->agreement_note(a, e->b, false);
            ops_of(w)->agreement_go_on(a, &sink);
        }
    } else if (e->what == ASKS) {
        ops_of(w)->agreement_ask(a, &sink);
    } else if (e->what == CLOCK) {
        can_be_late(w, e->a, &w->slow, &w->away);
        ops_of(w)->agreement_late(a, &sink);
    }
    check(w, e->a);
    forget(w);
}

static void world_finish(void *world)
{
    hly_world_t *w = world;
    for (uint32_t r = 0; r < w->limits.ranks; r++)
        if (!is_dead(w, r) && is_active(w, r))
            w->common.complaint = "a rank waits without end";
}

/* ---------------------------------------------------------------- what is explored */

static uint32_t world_draw(uint64_t *chance, uint8_t limits[])
{
    hly_limits_t *l = (hly_limits_t *)limits;
    l->ranks = (uint8_t)(5 + hly_random_below(chance, hly_random_below(chance, 4) ? 8 : 60));
    l->die = (uint8_t)hly_random_below(chance, 4);
    l->slow = (uint8_t)hly_random_below(chance, 2);
    l->away =
        (uint8_t)hly_random_below(chance, l->die && l->slow ? 1 : 2); /* else nobody can know */
    if (!hly_random_below(chance, 8))
        l->other = (uint8_t)(1 + hly_random_below(chance, l->ranks));
    return 1 + hly_random_below(chance, 100);
}

static const char *const words[] = {"ranks", "die", "slow", "away", "other", NULL};

static const char *const texts[] = {"crank %u calls",
                                    "hrank %u hears rank %u:",
                                    "orank %u hears a later message (%u):",
                                    "drank %u dies",
                                    "frank %u finds rank %u dead",
                                    "arank %u asks again",
                                    "trank %u has waited long enough",
                                    NULL};

static const hly_row_t rows[] = {{"2 ranks, 2 die, 1 slow, 1 away", HLY_ALWAYS},
                                 {"3 ranks, 2 die", HLY_ALWAYS},
                                 {"3 ranks, 2 die, 1 slow", HLY_ALWAYS},
                                 {"3 ranks, 2 die, 1 away", HLY_ALWAYS},
                                 {"3 ranks, 1 slow, 1 away", HLY_ALWAYS},
                                 {"4 ranks", HLY_ALWAYS},
                                 {"4 ranks, 2 die", HLY_ALWAYS},
                                 {"4 ranks, 1 away", HLY_ALWAYS},
                                 {"4 ranks, 1 slow", HLY_ALWAYS},
                                 {"4 ranks, 1 die, 1 slow", HLY_LONG},
                                 {"4 ranks, 1 die, 1 away", HLY_LONG},
                                 {"4 ranks, 2 die, 1 slow", HLY_LONG},
                                 {"4 ranks, 2 die, 1 away", HLY_LONG},
                                 {"4 ranks, 1 slow, 1 away", HLY_LONG},
                                 {NULL, HLY_LONG}};

/* What has gone wrong once, or would. */
static const hly_story_t stories[] = {
    {"the coordinator decides and dies: its value is decided (0078)",
     "a new value after one was taken", "3 ranks, 1 die",
     "c0 c1 c2 h01 h02 h10 h10 h20 h20 h01 h02 d0 f10 f20"},
    {"the coordinator dies: the next one gets the contributions (0084)",
     "the next coordinator is not told", "3 ranks, 1 die", "c0 c1 c2 h01 h10 h20 d0 f10 f20"},
    {"a rank sends the value that it has taken, not its own flag (0084)",
     "the own flag is sent in place of the value's", "3 ranks, 1 die",
     "c0 c1 c2 h01 h02 h10 h10 h20 h20 h01 h02 d0 f10 f20"},
    {"all have to have taken it before it is decided (0084)", "no wait for votes for a proposal",
     "3 ranks, 1 die", "c0 c1 c2 h01 h02 d0 f10 f20"},
    {"who calls late gives up one rank after the other and decides alone (review, bug 8)",
     "who is given up gets no answer", "4 ranks, 1 away",
     "c0 h10 h20 h30 c1 h01 c2 h02 t0 h10 h20 c3 h03 t3 h13 t3 h23 t3"},
    {"the coordinator dies; who has decided has gone on, and has told the others",
     "who decides does not pass it on", "3 ranks, 1 die",
     "c0 c1 c2 h01 h02 h10 h10 h20 h20 h01 h02 h10 d0 f20 h21"},
    {"the coordinator is silent: it is given up (0084)", "no deadline for a coordinator",
     "3 ranks, 1 away", "c1 c2 t1 t2"},
    {NULL, NULL, NULL, NULL}};

static const hly_agreement_ops_t sound = {"src/agree", HLY_AGREEMENT_EACH(HLY_IS)};

const hly_explored_t hly_agreements = {.name = "an agreement",
                                       .bytes = sizeof(hly_world_t),
                                       .state_bytes = offsetof(hly_world_t, flights) +
                                                      512 * sizeof(hly_flight_t),
                                       .events_most = HLY_WORLD_EVENTS,
                                       .depth = 400,
                                       .trace = HLY_TRACE_MOST,
                                       .damaged = hly_damaged_agreement,
                                       .draws = 1,
                                       .drawn_name = "an agreement of 5 to 64 ranks",
                                       .drawn_may = "",
                                       .draw = world_draw,
                                       .can = world_can,
                                       HLY_EXPLORED(world)};
