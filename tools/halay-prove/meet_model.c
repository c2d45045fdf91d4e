/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet_model.c - what can happen to a job whose processes meet, and what must not.
 *
 * The holder does all that the functions say after each event. A process that is answered knows it
 * at once; one that is dead, or has hung up, does not, and that its connection has ended may be
 * seen before its end, or after it.
 */
#include "meet_model.h"

#include <stdio.h>
#include <string.h>

#include "seen.h"

enum {
    STARTS = 'S',      /* the launcher starts a process at the place */
    ASKS_ALL = 'a',    /* its hello arrives: it calls lost whom it knows to have died */
    ASKS_ONE = 'b',    /* and, wrongly, another one, too */
    TWIN_ASKS = 'T',   /* a second process says hello in its place, while it asks */
    SAYS_LEAVES = 'l', /* it says that it leaves the world that it is in */
    HANGS_UP = 'h',    /* it asks no more */
    KILLED = 'x',      /* it dies; */
    CUT = 'c',         /* the end of its connection is seen; */
    TOLD_END = 'e',    /* the launcher sees its end */
    ENDS_WELL = 'w',   /* it ends with status 0, as one that is in the last world may */
    STOPS = 's',       /* it is stopped, */
    CONTINUES = 'g',   /* and goes on */
    INIT_FAILS = 'f',  /* its halay_init fails before it could ask, and it lives */
    FOLLOWED = 'n',    /* it has died; the next program of the same script runs at its place */
    AGENT_LOST = 'L',  /* the last two places are lost with their agent */
    ALL_MET = 'F',     /* those on the list, and of it all others, have what they wait for */
    TIME = 't'         /* the time that is due comes */
};

#define TIMEOUT_NS UINT64_C(300000000)
#define LOOKS_NS   UINT64_C(2000000000) /* two looks of newcomers */

static int order[HLY_MODEL_PLACES]; /* of the table that is made; unused between two events */

static struct hly_worlds *worlds(hly_model_t *m)
{
    return (struct hly_worlds *)(void *)m->room;
}

static const struct hly_worlds *worlds_of(const hly_model_t *m)
{
    return (const struct hly_worlds *)(const void *)m->room;
}

/* What a process has for one meeting; it is to hear who is missing a fifth of that before. */
static uint64_t time_of(const hly_model_t *m)
{
    return (m->limits.tenths ? m->limits.tenths : 9) * UINT64_C(100000000);
}

static bool has_waited(const hly_model_t *m, int p)
{
    return m->now >= m->process[p].end_ns - time_of(m) / 5;
}

static uint64_t stopped_for(const hly_model_t *m, int p)
{
    const hly_process_t *it = &m->process[p];
    const uint64_t most = m->limits.tenths ? LOOKS_NS : TIMEOUT_NS, ns = m->now - it->stopped_ns;
    return it->stopped && !it->dead ? ns < most ? ns : most : 0;
}

static void complain(hly_model_t *m, const char *text)
{
    m->common.complaint = m->common.complaint ? m->common.complaint : text;
}

static void hello(hly_model_t *m, int p, uint32_t lost, bool leaves);

static const hly_worlds_ops_t *ops_of(const hly_model_t *m)
{
    return m->common.ops;
}

void hly_model_init(void *world, const uint8_t limits[])
{
    hly_model_t *m = world;
    memset(&m->limits, 0, sizeof *m - offsetof(hly_model_t, limits));
    memcpy(&m->limits, limits, sizeof m->limits);
    const hly_model_limits_t *l = &m->limits;
    m->now = 1;
    ops_of(m)->worlds_init(worlds(m), l->places, l->least, order);
    worlds(m)->timeout_ns = TIMEOUT_NS;
    for (int p = 0; p < l->places - l->late; p++) {
        ops_of(m)->worlds_start(worlds(m), p);
        m->process[p] = (hly_process_t){.state = HLY_RUNS, .number = 1};
    }
    worlds(m)->once = l->once;
    worlds(m)->list_ns = l->list ? m->now + time_of(m) / 2 : 0;
    if (l->once)
        hello(m, 0, 0, false);
}

/* ---------------------------------------------------------------- states */

static uint64_t since(const hly_model_t *m, uint64_t time)
{
    return time ? m->now - time + (UINT64_C(1) << 40) : 0;
}

static uint64_t hash_place(const hly_model_t *m, int p, uint64_t hash)
{
    const struct hly_place *at = &worlds_of(m)->place[p];
    const hly_process_t *it = &m->process[p];
    const bool asks = at->state == HLY_PLACE_ASKING;
    hash =
        hly_seen_mix(hash, (uint64_t)at->state | (uint64_t)(at->rank + 1) << 4 | at->member << 8 |
                               at->leaves << 9 | at->reported << 10 | at->lost << 11 |
                               at->was_refused << 12 | at->stopped << 13 | at->condemned << 14 |
                               at->doomed << 15 | (uint64_t)at->id[1] << 16);
    hash = hly_seen_mix(hash, since(m, asks ? at->end_ns : 0) ^ since(m, at->unfit_ns) << 3);
    for (int i = 0; i < HLY_MODEL_PLACES && asks; i++)
        hash = hly_seen_mix(hash, at->calls_lost[i].first | (uint64_t)at->calls_lost[i].last << 32);
    hash = hly_seen_mix(hash, it->state | it->number << 4 | it->asked << 8 | it->epoch << 12 |
                                  it->rank << 16 | it->dead << 20 | it->well << 21 |
                                  it->connected << 22 | it->leaves << 23 | it->failed << 24 |
                                  it->stopped << 25 | it->excused << 26);
    hash = hly_seen_mix(hash, stopped_for(m, p));
    return hly_seen_mix(hash, it->state == HLY_ASKS_NOW ? since(m, it->end_ns) : 0);
}

uint64_t hly_model_hash(const void *world)
{
    const hly_model_t *m = world;
    const struct hly_worlds *w = worlds_of(m);
    uint64_t hash =
        hly_seen_mix(1, w->epoch | w->broken << 8 | (uint64_t)(w->failed + 1) << 12 |
                            (uint64_t)(w->first_ended + 1) << 16 | (uint64_t)w->done << 20 |
                            (uint64_t)w->looked << 24 | (uint64_t)m->done << 28 |
                            (uint64_t)m->twin << 29 | (uint64_t)w->closed << 30);
    hash = hly_seen_mix(hash, since(m, w->decide_ns));
    hash = hly_seen_mix(hash, since(m, w->expire_ns));
    hash = hly_seen_mix(hash, since(m, w->look_ns));
    hash = hly_seen_mix(hash, m->listed ? 1 : since(m, w->list_ns));
    hash = hly_seen_mix(hash, w->decide_ns ? since(m, w->notices.since_ns) ^ w->notices.given : 0);
    for (uint32_t i = 0; i < sizeof m->limits; i++)
        hash = hly_seen_mix(hash, ((const uint8_t *)&m->limits)[i]);
    for (int p = 0; p < w->nplaces; p++)
        hash = hash_place(m, p, hash);
    return hash;
}

/* ---------------------------------------------------------------- what can happen */

static bool lives(const hly_process_t *it)
{
    return it->state != HLY_NOBODY && !it->dead;
}

/* The ranks of its world that this process knows to have died. */
static uint32_t deaths_known(const hly_model_t *m, int p)
{
    uint32_t ranks = 0;
    for (int q = 0; q < m->limits.places && m->process[p].epoch; q++)
        if (q != p && m->process[q].dead && m->process[q].epoch == m->process[p].epoch)
            ranks |= 1u << m->process[q].rank;
    return ranks;
}

/* The bit of a rank of its world that lives; 0: there is none. */
static uint32_t suspect_of(const hly_model_t *m, int p)
{
    for (int q = 0; q < m->limits.places && m->process[p].epoch; q++)
        if (q != p && lives(&m->process[q]) && m->process[q].epoch == m->process[p].epoch)
            return 1u << (unsigned)m->process[q].rank;
    return 0;
}

static void add_its_own(const hly_model_t *m, int p, hly_happens_t events[], uint32_t *n)
{
    const hly_process_t *it = &m->process[p];
    const hly_model_limits_t *l = &m->limits;
    const bool idle = it->state != HLY_ASKS_NOW && !it->failed && !it->stopped &&
                      !(l->list && it->state != HLY_RUNS);
    if (idle && it->asked < l->again) {
        hly_may(events, n, ASKS_ALL, (uint32_t)p, 0, it->state == HLY_RUNS && it->asked == 0);
        if (l->wrong && suspect_of(m, p))
            hly_may(events, n, ASKS_ONE, (uint32_t)p, 0, false);
    }
    if (idle && !it->leaves && (l->list || (it->state == HLY_IS_IN && l->least)))
        hly_may(events, n, SAYS_LEAVES, (uint32_t)p, 0, false);
    if (idle && it->state == HLY_IS_IN)
        hly_may(events, n, ENDS_WELL, (uint32_t)p, 0, it->leaves);
    if (it->state == HLY_ASKS_NOW && it->connected && l->twins)
        hly_may(events, n, TWIN_ASKS, (uint32_t)p, 0, false);
    if (it->state == HLY_ASKS_NOW && !it->stopped && l->hangs)
        hly_may(events, n, HANGS_UP, (uint32_t)p, 0, false);
    if (l->deaths)
        hly_may(events, n, KILLED, (uint32_t)p, 0, false);
    if (l->stops && !it->stopped)
        hly_may(events, n, STOPS, (uint32_t)p, 0, false);
    if (it->stopped)
        hly_may(events, n, CONTINUES, (uint32_t)p, 0, false);
    if (l->fails && it->state == HLY_RUNS && !it->failed)
        hly_may(events, n, INIT_FAILS, (uint32_t)p, 0, false);
}

/* A list of ranks that is closed, and nobody is still to say that it is not on it. */
static bool may_all_meet(const hly_model_t *m)
{
    const struct hly_worlds *w = worlds_of(m);
    for (int p = 0; p < w->nplaces; p++)
        if (w->place[p].state == HLY_PLACE_STARTED)
            return false;
    return m->listed && !m->limits.over;
}

void hly_model_copy(void *copy, const void *world)
{
    memcpy(copy, world, sizeof(hly_model_t));
}

uint32_t hly_model_events(const void *world, hly_happens_t events[])
{
    const hly_model_t *m = world;
    uint32_t n = 0;
    for (int p = 0; p < m->limits.places; p++) {
        const hly_process_t *it = &m->process[p];
        if (it->state == HLY_NOBODY && (!it->number || m->limits.starts))
            hly_may(events, &n, STARTS, (uint32_t)p, 0, false);
        if (it->connected && (it->dead || it->state != HLY_ASKS_NOW))
            hly_may(events, &n, CUT, (uint32_t)p, 0, true);
        if (it->dead && !m->limits.once)
            hly_may(events, &n, TOLD_END, (uint32_t)p, 0, true);
        if (it->dead && !it->well && m->limits.follow)
            hly_may(events, &n, FOLLOWED, (uint32_t)p, 0, false);
        if (lives(it) && !(m->limits.once && p == 0))
            add_its_own(m, p, events, &n);
    }
    if (m->limits.agents)
        hly_may(events, &n, AGENT_LOST, 0, 0, false);
    if (may_all_meet(m))
        hly_may(events, &n, ALL_MET, 0, 0, true);
    if (ops_of(m)->worlds_due_ns(worlds_of(m)) != UINT64_MAX)
        hly_may(events, &n, TIME, 0, 0, true);
    return n;
}

/* ---------------------------------------------------------------- what must not */

/* The time of one that asks is over; not of a newcomer, which waits for the others. */
static bool is_over(const hly_model_t *m)
{
    for (int p = 0; p < m->limits.places; p++) {
        const struct hly_place *at = &worlds_of(m)->place[p];
        if (at->state == HLY_PLACE_ASKING &&
            (at->member || !worlds_of(m)->epoch || !m->limits.least) && has_waited(m, p))
            return true;
    }
    return false;
}

static bool is_called_lost(const hly_model_t *m, int rank)
{
    for (int p = 0; p < m->limits.places; p++) {
        const struct hly_place *at = &worlds_of(m)->place[p];
        for (int i = 0; i < HLY_MODEL_PLACES && at->state == HLY_PLACE_ASKING && at->member; i++)
            if (at->calls_lost[i].first <= (uint32_t)rank &&
                (uint32_t)rank <= at->calls_lost[i].last)
                return true;
    }
    return false;
}

static uint32_t enough(const hly_model_t *m)
{
    return !m->limits.least ? m->limits.places : m->done ? 1 : m->limits.least;
}

static uint32_t asking(const hly_model_t *m)
{
    uint32_t n = 0;
    for (int p = 0; p < m->limits.places; p++)
        n += m->process[p].connected;
    return n;
}

static bool is_just_stopped(const hly_model_t *m, int p)
{
    return m->process[p].stopped && stopped_for(m, p) < TIMEOUT_NS && !is_over(m);
}

/* Whoever is in the last world, and does not ask, is left out for a reason. */
static void check_left_out(hly_model_t *m)
{
    const struct hly_worlds *w = worlds_of(m);
    for (int p = 0; p < m->limits.places; p++) {
        const hly_process_t *it = &m->process[p];
        if (!lives(it) || it->connected || it->leaves)
            continue;
        const bool member = w->epoch && it->epoch == w->epoch, first = !w->epoch;
        if ((member || first) && (!it->excused || is_just_stopped(m, p)) && !is_over(m) &&
            !(member && is_called_lost(m, it->rank)))
            complain(m, "a table leaves out a process that was never silent");
    }
}

/* It has not said anything yet, and does so, as far as its holder can see. */
static bool is_coming(const hly_model_t *m, int p)
{
    return m->process[p].state == HLY_RUNS && lives(&m->process[p]) && !(m->limits.hidden >> p & 1);
}

static bool is_lacking(const hly_model_t *m, int p)
{
    return m->listed ? m->process[p].state == HLY_RUNS : is_coming(m, p);
}

/* The list is closed. */
static void check_list(hly_model_t *m)
{
    const struct hly_worlds *w = worlds_of(m);
    if (m->listed || !m->limits.list)
        complain(m, "a list is closed twice, or where there is none");
    m->listed = true;
    if (w->n != (int)asking(m))
        complain(m, "the list has not all that ask");
    for (int p = 0; p < m->limits.places; p++) {
        if (is_coming(m, p))
            complain(m, "the list is closed without one that is about to come");
        if (m->process[p].state == HLY_RUNS && m->now < w->list_ns && !is_over(m))
            complain(m, "the list is closed too early");
    }
}

static void check_table(hly_model_t *m)
{
    const struct hly_worlds *w = worlds_of(m);
    int last = -1;
    bool newcomers = false;
    if (w->n < (int)enough(m) || w->n > m->limits.places)
        complain(m, "a table has too few ranks");
    for (int rank = 0; rank < w->n; rank++) {
        const int p = w->order[rank];
        const hly_process_t *it = &m->process[p];
        const bool member = w->epoch && it->epoch == w->epoch && !it->leaves;
        if (!it->connected || w->place[p].state != HLY_PLACE_ASKING)
            complain(m, "a table names a process that does not ask");
        for (int before = 0; before < rank; before++)
            if (w->order[before] == p)
                complain(m, "a table names a process twice");
        if (!m->limits.least && p != rank)
            complain(m, "in a job of always as many ranks a rank is not its place");
        if (m->limits.least && member && !it->dead && it->state == HLY_ASKS_NOW &&
            (newcomers || it->rank <= last))
            complain(m, "members do not come first, in their order");
        if (it->state == HLY_ASKS_NOW && !it->dead) {
            newcomers |= !member;
            last = member ? it->rank : last;
        }
    }
    if (!m->limits.list)
        check_left_out(m);
}

static void check_time(hly_model_t *m, int p)
{
    if (m->process[p].state == HLY_ASKS_NOW && m->now >= m->process[p].end_ns)
        complain(m, "an answer comes when the process waits no more");
}

/* The only meeting ends once. */
static void check_once(hly_model_t *m)
{
    if (m->limits.over)
        complain(m, "the only meeting ends twice");
    m->limits.over = m->limits.once;
}

static void join(hly_model_t *m)
{
    struct hly_worlds *w = worlds(m);
    check_table(m);
    check_once(m);
    if (m->limits.once && m->twin)
        complain(m, "two processes are one rank, and there is a table");
    const uint64_t before = w->epoch;
    ops_of(m)->worlds_joined(w);
    if (w->epoch != before + 1)
        complain(m, "a world has the number of another one");
    for (int rank = 0; rank < w->n; rank++) {
        hly_process_t *it = &m->process[w->order[rank]];
        check_time(m, w->order[rank]);
        it->connected = it->leaves = false;
        it->excused = it->stopped;
        if (it->state != HLY_ASKS_NOW || it->dead)
            continue; /* it does not know */
        it->state = HLY_IS_IN;
        it->epoch = (uint8_t)w->epoch;
        it->rank = (uint8_t)rank;
    }
}

static void tell(hly_model_t *m, int p)
{
    hly_process_t *it = &m->process[p];
    if (!it->connected)
        complain(m, "a process is refused that does not ask");
    check_time(m, p);
    it->connected = false;
    it->state = it->state == HLY_ASKS_NOW ? HLY_REFUSED : it->state;
}

/* It was started, and does not ask; nothing tells that it will not. */
static bool is_waited_for(const hly_model_t *m, int p)
{
    const struct hly_place *at = &worlds_of(m)->place[p];
    const hly_process_t *it = &m->process[p];
    if (it->state == HLY_NOBODY || it->connected || at->lost ||
        (m->limits.list && it->state == HLY_REFUSED))
        return false;
    if (!m->limits.least || !worlds_of(m)->epoch)
        return true;
    return at->member && !it->leaves && !is_called_lost(m, at->rank);
}

/* Those that newcomers wait for have been stopped for long. */
static bool are_stopped(const hly_model_t *m)
{
    bool any = false;
    for (int p = 0; p < m->limits.places; p++) {
        any |= is_waited_for(m, p);
        if (is_waited_for(m, p) && stopped_for(m, p) < LOOKS_NS)
            return false;
    }
    return any;
}

static bool has_failure(const hly_model_t *m)
{
    for (int p = 0; p < m->limits.places; p++)
        if (m->process[p].failed && lives(&m->process[p]) && !worlds_of(m)->place[p].was_refused)
            return true;
    return false;
}

/* Is the cause that is named there? */
static void check_cause(hly_model_t *m, const struct hly_worlds_action *a)
{
    const hly_process_t *it = a->place >= 0 ? &m->process[a->place] : NULL;
    bool right = false, lacks = !m->limits.list;
    for (int p = 0; p < m->limits.places; p++)
        lacks |= is_lacking(m, p);
    switch (a->cause) {
    case HLY_CAUSE_BROKEN:
        right = m->limits.odd;
        break;
    case HLY_CAUSE_TWIN:
        right = m->twin;
        break;
    case HLY_CAUSE_LEFT:
        right = it && (it->dead || it->state != HLY_ASKS_NOW);
        break;
    case HLY_CAUSE_ENDED:
        right = it && it->state == HLY_NOBODY && it->number;
        break;
    case HLY_CAUSE_FAILED:
        right = it && it->failed;
        break;
    case HLY_CAUSE_MISSING:
        right = is_over(m) && lacks && !has_failure(m) &&
                (m->limits.list || !(m->limits.least && asking(m) >= enough(m)));
        break;
    case HLY_CAUSE_OVER:
        right = m->done;
        break;
    case HLY_CAUSE_EXPIRED:
        right = it && has_waited(m, a->place) && !are_stopped(m);
        break;
    default:
        break;
    }
    if (!right)
        complain(m, "a refusal names a cause that is not there");
}

/* ---------------------------------------------------------------- what is done */

static const char *const causes[] = {"",       "broken",  "twin", "left",   "ended",
                                     "failed", "missing", "over", "expired"};

static void look(hly_model_t *m)
{
    struct hly_worlds *w = worlds(m);
    for (int p = 0; p < m->limits.places; p++) {
        const hly_process_t *it = &m->process[p];
        if (!hly_worlds_is_absent(w, p))
            continue;
        if (m->limits.least)
            ops_of(m)->worlds_seen(w, p,
                                   m->limits.list ? !is_coming(m, p) : it->stopped && lives(it));
        else if (it->failed && lives(it) && !w->place[p].was_refused && hly_worlds_is_awaited(w, p))
            ops_of(m)->worlds_failed(w, p);
    }
}

static void refuse(hly_model_t *m, const struct hly_worlds_action *a)
{
    check_cause(m, a);
    if (m->common.loud)
        printf(" -> %s refused: %s", a->what == HLY_WORLDS_REFUSE ? "one" : "all",
               causes[a->cause]);
    if (a->what == HLY_WORLDS_REFUSE) {
        tell(m, a->place);
        return;
    }
    for (int p = 0; p < m->limits.places; p++)
        if (m->process[p].connected)
            tell(m, p);
    check_once(m);
    ops_of(m)->worlds_refused(worlds(m));
}

static void act(hly_model_t *m)
{
    struct hly_worlds_action a;
    int p, turns = 0;
    while (!m->common.complaint && ops_of(m)->worlds_next(worlds(m), m->now, &a)) {
        if (++turns > 64)
            complain(m, "there is no end of what is to be done");
        switch (a.what) {
        case HLY_WORLDS_TABLE:
            if (m->common.loud)
                printf(" -> a table of %d", worlds(m)->n);
            join(m);
            break;
        case HLY_WORLDS_LIST:
            if (m->common.loud)
                printf(" -> a list of %d", worlds(m)->n);
            check_list(m);
            break;
        case HLY_WORLDS_LOOK:
            look(m);
            break;
        case HLY_WORLDS_REFUSE:
        case HLY_WORLDS_REFUSE_ALL:
            refuse(m, &a);
            break;
        case HLY_WORLDS_REPORT:
            if (!is_called_lost(m, worlds(m)->place[a.place].rank))
                complain(m, "a process is reported that nobody calls lost");
            break;
        default: /* a notice, and no more */
            break;
        }
    }
    while (ops_of(m)->worlds_condemned(worlds(m), &p)) {
        hly_process_t *it = &m->process[p];
        const struct hly_worlds *w = worlds_of(m);
        if (m->common.loud)
            printf(" -> process %d is to be killed", p);
        if (lives(it) && it->epoch == w->epoch && is_just_stopped(m, p))
            complain(m, "a process is given up before it is stopped for long");
        if (it->connected || (lives(it) && !it->excused && it->epoch == w->epoch &&
                              !(it->epoch && is_called_lost(m, it->rank))))
            complain(m, "a process is to be killed that was never silent");
        it->dead |= it->state != HLY_NOBODY;
    }
}

/* Its hello arrives. `lost`: the ranks that it calls lost. */
static void hello(hly_model_t *m, int p, uint32_t lost, bool leaves)
{
    hly_process_t *it = &m->process[p];
    struct hly_boot_lost runs[HLY_BOOT_LOST_RUNS];
    const uint8_t id[16] = {(uint8_t)(p + 1), m->limits.once ? 0 : it->number};
    const bool taken_before = it->connected;
    for (uint32_t i = 0; i < HLY_BOOT_LOST_RUNS; i++)
        runs[i] = lost >> i & 1 ? (struct hly_boot_lost){i, i} : (struct hly_boot_lost){1, 0};
    const struct hly_worlds_hello h = {id, it->epoch, time_of(m), runs, leaves};
    const enum hly_hello was = ops_of(m)->worlds_hello(worlds(m), p, &h, m->now);
    it->asked += !leaves;
    m->twin |= m->limits.once && taken_before;      /* it has hung up, and that is not seen yet */
    if (m->limits.list && was != HLY_HELLO_TAKEN) { /* it is alone, or there is no job */
        it->state = HLY_REFUSED;
        if (was != (m->listed || m->limits.over ? HLY_HELLO_LATE : HLY_HELLO_MAY_GO) && !m->twin)
            complain(m, "a process is alone for a cause that is not there");
    } else if (leaves) {
        it->leaves = true;
        if (was != HLY_HELLO_MAY_GO)
            complain(m, "a process that leaves is not heard");
    } else if (was == HLY_HELLO_TAKEN) {
        if (m->listed)
            complain(m, "a process comes to a list that is closed");
        it->state = HLY_ASKS_NOW;
        it->connected = true;
        it->end_ns = m->now + time_of(m);
    } else {
        it->state = HLY_REFUSED;
        const bool late = was == HLY_HELLO_LATE && m->limits.once && m->limits.over;
        if (!late && (was != HLY_HELLO_TWIN || !taken_before))
            complain(m, "a hello is refused for a cause that is not there");
    }
    for (int q = 0; q < m->limits.places && it->state == HLY_ASKS_NOW; q++) {
        if (q == p || !m->process[q].connected ||
            !((m->limits.odd >> q ^ m->limits.odd >> p) & 1) || worlds(m)->broken)
            continue;
        const bool member = worlds(m)->place[p].member, other = worlds(m)->place[q].member;
        const int refused = ops_of(m)->worlds_differ(worlds(m), q, p);
        if (refused >= 0) {
            tell(m, refused);
            if (refused == p ? member && !other : other && !member)
                complain(m, "a newcomer drives out a member");
        }
    }
}

static void twin(hly_model_t *m, int p)
{
    static const struct hly_boot_lost none[HLY_BOOT_LOST_RUNS];
    const uint8_t id[16] = {(uint8_t)(p + 1), m->limits.once ? 0 : 99};
    const struct hly_worlds_hello h = {id, m->process[p].epoch, time_of(m), none, false};
    m->twin = true;
    if (ops_of(m)->worlds_hello(worlds(m), p, &h, m->now) != HLY_HELLO_TWIN)
        complain(m, "a second process takes the place of one that asks");
}

static void ended(hly_model_t *m, int p)
{
    hly_process_t *it = &m->process[p];
    m->done |= it->well && worlds(m)->place[p].member && worlds(m)->place[p].state == HLY_PLACE_IN;
    ops_of(m)->worlds_end(worlds(m), p, it->well);
    *it = (hly_process_t){.state = HLY_NOBODY, .number = it->number};
}

static void pass_time(hly_model_t *m)
{
    const uint64_t due = ops_of(m)->worlds_due_ns(worlds(m));
    if (due <= m->now)
        complain(m, "a time is due that has been");
    m->now = due;
}

static void lose_agent(hly_model_t *m)
{
    m->limits.agents--;
    for (int p = m->limits.places - 2; p < m->limits.places; p++)
        m->process[p].dead |= m->process[p].state != HLY_NOBODY;
}

static void happen(hly_model_t *m, const hly_happens_t *e)
{
    hly_process_t *it = &m->process[e->a];
    hly_model_limits_t *l = &m->limits;
    switch (e->what) {
    case STARTS:
        l->starts -= it->number > 0;
        *it = (hly_process_t){.state = HLY_RUNS, .number = (uint8_t)(it->number + 1)};
        ops_of(m)->worlds_start(worlds(m), e->a);
        break;
    case ASKS_ALL:
        hello(m, e->a, deaths_known(m, e->a), false);
        break;
    case ASKS_ONE:
        l->wrong--;
        hello(m, e->a, deaths_known(m, e->a) | suspect_of(m, e->a), false);
        break;
    case SAYS_LEAVES:
        hello(m, e->a, 0, true);
        break;
    case HANGS_UP:
        l->hangs--;
        it->state = HLY_REFUSED;
        break;
    case TWIN_ASKS:
        l->twins--;
        twin(m, e->a);
        break;
    case CUT:
        it->connected = false;
        ops_of(m)->worlds_left(worlds(m), e->a);
        break;
    case TOLD_END:
        ended(m, e->a);
        break;
    case KILLED:
        l->deaths--;
        it->dead = true;
        break;
    case ENDS_WELL:
        it->dead = it->well = true;
        break;
    case FOLLOWED:
        l->follow--;
        *it = (hly_process_t){.state = HLY_RUNS,
                              .number = (uint8_t)(it->number + 1),
                              .connected = it->connected,
                              .end_ns = it->end_ns,
                              .excused = true};
        break;
    case AGENT_LOST:
        lose_agent(m);
        break;
    case ALL_MET:
        join(m);
        break;
    case TIME:
        pass_time(m);
        break;
    default:
        l->stops -= e->what == STOPS;
        l->fails -= e->what == INIT_FAILS;
        it->failed |= e->what == INIT_FAILS;
        it->stopped = e->what == STOPS;
        it->stopped_ns = it->stopped ? m->now : 0;
        it->excused = true;
        break;
    }
}

/* All that can be told is told at once. */
static void check_told(hly_model_t *m)
{
    const struct hly_worlds *w = worlds_of(m);
    bool waits = false, ended = false;
    for (int p = 0; p < m->limits.places; p++) {
        const hly_process_t *it = &m->process[p];
        waits |= is_waited_for(m, p);
        ended |= it->state == HLY_NOBODY && it->number;
        if (lives(it) && it->state == HLY_IS_IN && it->epoch < w->epoch && !it->leaves)
            complain(m, "a process goes on in a world that is over");
        if (it->connected && m->done && !w->place[p].member && m->limits.least)
            complain(m, "a newcomer waits for a job that ends");
    }
    if (asking(m) >= enough(m) && !waits && !m->listed)
        complain(m, "nobody is missing, and there is no table");
    for (int p = 0; p < m->limits.places; p++)
        ended |= m->limits.once && !m->limits.list && m->process[p].state == HLY_REFUSED &&
                 !m->process[p].connected;
    if (asking(m) && ((!m->limits.least && ended) || w->broken))
        complain(m, "there can be no table, and those that ask are not told");
}

void hly_model_apply(void *world, const hly_happens_t *e)
{
    hly_model_t *m = world;
    happen(m, e);
    act(m);
    for (int p = 0; p < m->limits.places; p++) {
        const hly_process_t *it = &m->process[p];
        if (lives(it) && it->state == HLY_ASKS_NOW && m->now >= it->end_ns)
            complain(m, "a process waits beyond its own time");
        if ((worlds_of(m)->place[p].state == HLY_PLACE_ASKING) != it->connected)
            complain(m, "a process that asks is forgotten");
    }
    if (hly_worlds_asking(worlds_of(m)) != (int)asking(m))
        complain(m, "those that ask are counted wrongly");
    check_told(m);
}

void hly_model_finish(void *world)
{
    hly_model_t *m = world;
    for (int p = 0; p < m->limits.places; p++)
        if (lives(&m->process[p]) && m->process[p].state == HLY_ASKS_NOW)
            complain(m, "a process waits without end");
}
