/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c - one meeting (world.h).
 *
 * Invariant: a world consists of processes that asked at the same time, and all get the same table.
 * If ranks may change, members of the last world come first, in the order of their ranks. So rank 0
 * is one of them, if any is left. Newcomers follow, by place. In static jobs a process's rank is
 * its place.
 */
#include "world.h"

#include <string.h>

#define S 1000000000ull

void hly_worlds_init(struct hly_worlds *w, int nplaces, int least, int *order)
{
    *w = (struct hly_worlds){.nplaces = nplaces,
                             .least = least,
                             .order = order,
                             .leaver = -1,
                             .failed = -1,
                             .first_ended = -1};
    for (int p = 0; p < nplaces; p++)
        w->place[p] = (struct hly_place){.state = HLY_PLACE_FREE, .rank = -1};
}

/* ---------------------------------------------------------------- what there is */

bool hly_worlds_is_static(const struct hly_worlds *w)
{
    return w->least == 0;
}

/* Does an asking process that was in the last world report this rank of it as lost? */
static bool is_lost(const struct hly_worlds *w, int rank)
{
    for (int p = 0; p < w->nplaces; p++) {
        const struct hly_place *place = &w->place[p];
        if (place->state != HLY_PLACE_ASKING || !place->member)
            continue;
        for (int i = 0; i < HLY_BOOT_LOST_RUNS; i++)
            if ((uint32_t)rank >= place->calls_lost[i].first &&
                (uint32_t)rank <= place->calls_lost[i].last)
                return true;
    }
    return false;
}

/* Static jobs, and the first world of others, wait for all started processes; later worlds wait for
 * the members of the last one. */
bool hly_worlds_is_awaited(const struct hly_worlds *w, int p)
{
    const struct hly_place *place = &w->place[p];
    if (place->lost)
        return false;
    if (place->state == HLY_PLACE_STARTED)
        return hly_worlds_is_static(w) || !w->epoch;
    return place->state == HLY_PLACE_IN && place->member && !place->leaves &&
           !is_lost(w, place->rank);
}

bool hly_worlds_is_absent(const struct hly_worlds *w, int p)
{
    const struct hly_place *place = &w->place[p];
    return (place->state == HLY_PLACE_STARTED || place->state == HLY_PLACE_IN) && !place->leaves &&
           !place->doomed;
}

bool hly_worlds_is_newcomer(const struct hly_worlds *w, int p)
{
    return w->place[p].state == HLY_PLACE_ASKING && !w->place[p].member && w->epoch &&
           !hly_worlds_is_static(w);
}

static int count(const struct hly_worlds *w, bool (*is)(const struct hly_worlds *, int))
{
    int n = 0;
    for (int p = 0; p < w->nplaces; p++)
        n += is(w, p);
    return n;
}

static bool asks(const struct hly_worlds *w, int p)
{
    return w->place[p].state == HLY_PLACE_ASKING;
}

int hly_worlds_asking(const struct hly_worlds *w)
{
    return w->asking;
}

int hly_worlds_waiting(const struct hly_worlds *w)
{
    return count(w, hly_worlds_is_awaited);
}

int hly_worlds_newcomers(const struct hly_worlds *w)
{
    return count(w, hly_worlds_is_newcomer);
}

static bool is_untold(const struct hly_worlds *w, int p)
{
    return w->place[p].state == HLY_PLACE_STARTED && !w->place[p].was_refused;
}

int hly_worlds_untold(const struct hly_worlds *w)
{
    return count(w, is_untold);
}

static bool is_complete(const struct hly_worlds *w)
{
    for (int p = 0; p < w->nplaces; p++)
        if (hly_worlds_is_awaited(w, p))
            return false;
    return true;
}

/* Do enough processes ask? Once a process has ended with status 0 the job is ending, and any number
 * is enough. */
static bool are_enough(const struct hly_worlds *w)
{
    const int n = hly_worlds_asking(w);
    return n >= (hly_worlds_is_static(w) ? w->nplaces : w->done ? 1 : w->least);
}

/* ---------------------------------------------------------------- events */

static void move(struct hly_worlds *w, struct hly_place *place, enum hly_place_state state)
{
    w->stale |= place->state == HLY_PLACE_ASKING;
    w->asking += (state == HLY_PLACE_ASKING) - (place->state == HLY_PLACE_ASKING);
    place->state = state;
}

void hly_worlds_bring(struct hly_worlds *w, int p)
{
    move(w, &w->place[p], HLY_PLACE_FREE);
    w->place[p] = (struct hly_place){.state = HLY_PLACE_FREE, .rank = -1};
}

void hly_worlds_start(struct hly_worlds *w, int p)
{
    hly_worlds_bring(w, p);
    w->place[p].state = HLY_PLACE_STARTED;
    if (w->first_ended != p)
        return;
    w->first_ended = -1;
    for (int i = 0; i < w->nplaces && w->first_ended < 0; i++)
        if (w->place[i].state == HLY_PLACE_ENDED)
            w->first_ended = i;
}

void hly_worlds_end(struct hly_worlds *w, int p, bool well)
{
    struct hly_place *place = &w->place[p];
    if (place->state == HLY_PLACE_IN && place->member && well && !w->done)
        w->done = p + 1;
    move(w, place, HLY_PLACE_ENDED);
    if (w->first_ended < 0)
        w->first_ended = p;
}

/* Takes the deadline of an asking process into account. */
static void count_time(struct hly_worlds *w, const struct hly_place *place, uint64_t now)
{
    const bool newcomer = !place->member && w->epoch && !hly_worlds_is_static(w);
    uint64_t *end = newcomer ? &w->expire_ns : &w->decide_ns;
    if (!newcomer && !*end)
        w->notices = (struct hly_notices){now, HLY_FIRST_NOTICE_NS, 0};
    if (!*end || place->end_ns < *end)
        *end = place->end_ns;
}

/* The process asks from now on. Its time ends a little before its own deadline, so that an answer
 * reaches it. */
static void take(struct hly_worlds *w, struct hly_place *place, const struct hly_worlds_hello *it,
                 bool same, uint64_t now)
{
    const uint64_t left = it->left_ns, spare = left / 5 < 2 * S ? left / 5 : 2 * S;
    /* Another process in the same place counts as a newcomer. */
    place->member = place->member && !place->leaves && same;
    place->leaves = place->lost = place->reported = false;
    place->condemned = place->doomed = place->stopped = false;
    place->unfit_ns = 0;
    move(w, place, HLY_PLACE_ASKING);
    memcpy(place->id, it->id, sizeof place->id);
    memcpy(place->calls_lost, it->lost, sizeof place->calls_lost);
    place->end_ns = left < UINT64_MAX - now ? now + left - spare : UINT64_MAX;
    count_time(w, place, now);
}

enum hly_hello hly_worlds_hello(struct hly_worlds *w, int p, const struct hly_worlds_hello *it,
                                uint64_t now)
{
    struct hly_place *place = &w->place[p];
    if (place->state == HLY_PLACE_FREE || place->state == HLY_PLACE_ENDED)
        return HLY_HELLO_NOBODY;
    const bool late = w->listed && place->state == HLY_PLACE_STARTED;
    if (w->once && (w->epoch || w->closed || late)) {
        place->was_refused = true;
        if (late && !w->closed)
            move(w, place, HLY_PLACE_ENDED);
        return HLY_HELLO_LATE;
    }
    const bool alike = !w->once && !memcmp(place->id, it->id, sizeof place->id);
    const bool same = alike && it->epoch == w->epoch; /* this very process is in the last world */
    if (place->state == HLY_PLACE_ASKING && !alike) {
        w->broken = w->once ? HLY_CAUSE_TWIN : w->broken;
        return HLY_HELLO_TWIN;
    }
    if (it->leaves) {
        place->leaves |= place->state == HLY_PLACE_IN && same;
        if (w->list_ns)
            move(w, place, HLY_PLACE_ENDED);
        return HLY_HELLO_MAY_GO;
    }
    take(w, place, it, same, now);
    return HLY_HELLO_TAKEN;
}

/* The process asks no more: it has been refused, or has left. */
static void send_back(struct hly_worlds *w, struct hly_place *place, bool refused)
{
    place->was_refused = refused;
    move(w, place, place->member ? HLY_PLACE_IN : HLY_PLACE_STARTED);
}

/* Refuses the newcomer, if only one of the two is a member. */
int hly_worlds_differ(struct hly_worlds *w, int a, int b)
{
    const int refused = w->place[b].member && !w->place[a].member ? a : b;
    if (hly_worlds_is_static(w)) {
        w->broken = HLY_CAUSE_BROKEN;
        return -1;
    }
    send_back(w, &w->place[refused], true);
    return refused;
}

void hly_worlds_left(struct hly_worlds *w, int p)
{
    struct hly_place *place = &w->place[p];
    if (place->state != HLY_PLACE_ASKING)
        return;
    send_back(w, place, place->was_refused || w->once);
    if (w->once && !w->broken) {
        w->broken = HLY_CAUSE_LEFT;
        w->leaver = p;
    }
}

void hly_worlds_seen(struct hly_worlds *w, int p, bool stopped)
{
    w->place[p].stopped = stopped;
}

void hly_worlds_failed(struct hly_worlds *w, int p)
{
    w->failed = p;
}

void hly_worlds_break(struct hly_worlds *w)
{
    w->broken = HLY_CAUSE_BROKEN;
}

/* ---------------------------------------------------------------- the next world */

static bool act(struct hly_worlds_action *a, enum hly_worlds_what what, enum hly_worlds_cause cause,
                int place)
{
    *a = (struct hly_worlds_action){what, cause, place};
    return true;
}

/* Reports each process that the asking ones call lost, before they meet: its launcher may know that
 * others are lost with it. */
static bool report(struct hly_worlds *w, struct hly_worlds_action *a)
{
    for (int p = 0; p < w->nplaces && !hly_worlds_is_static(w); p++) {
        struct hly_place *place = &w->place[p];
        if (place->state != HLY_PLACE_IN || !place->member || place->leaves || place->reported ||
            !is_lost(w, place->rank))
            continue;
        place->reported = true;
        return act(a, HLY_WORLDS_REPORT, HLY_CAUSE_NONE, p);
    }
    return false;
}

/* Refuses a newcomer whose time is over at `now` (UINT64_MAX: any newcomer). */
static bool refuse_newcomer(struct hly_worlds *w, uint64_t now, enum hly_worlds_cause cause,
                            struct hly_worlds_action *a)
{
    for (int p = 0; p < w->nplaces; p++) {
        if (!hly_worlds_is_newcomer(w, p) || w->place[p].end_ns > now)
            continue;
        send_back(w, &w->place[p], true);
        return act(a, HLY_WORLDS_REFUSE, cause, p);
    }
    return false;
}

void hly_worlds_refused(struct hly_worlds *w)
{
    for (int p = 0; p < w->nplaces; p++)
        if (asks(w, p))
            send_back(w, &w->place[p], true);
    w->failed = -1;
    w->closed = w->once;
}

/* Assigns the ranks of the next world. */
static void rank_all(struct hly_worlds *w)
{
    const bool by_place = hly_worlds_is_static(w);
    w->n = 0;
    for (int rank = 0; rank < w->nplaces; rank++)
        w->order[rank] = -1;
    for (int p = 0; p < w->nplaces && !by_place; p++)
        if (asks(w, p) && w->place[p].member)
            w->order[w->place[p].rank] = p;
    for (int rank = 0; rank < w->nplaces; rank++)
        if (w->order[rank] >= 0)
            /* n <= rank: overwrites no entry that is still to be read */
            w->order[w->n++] = w->order[rank];
    for (int p = 0; p < w->nplaces; p++)
        if (asks(w, p) && (by_place || !w->place[p].member))
            w->order[w->n++] = p;
}

static void condemn(struct hly_place *place)
{
    place->condemned = place->doomed = true;
}

void hly_worlds_joined(struct hly_worlds *w)
{
    w->epoch++;
    for (int p = 0; p < w->nplaces; p++) {
        struct hly_place *place = &w->place[p];
        const bool left_out = place->state == HLY_PLACE_IN && place->member;
        if (hly_worlds_is_absent(w, p) && (left_out || (place->lost && place->unfit_ns)))
            condemn(place);
        place->member = false;
    }
    for (int rank = 0; rank < w->n; rank++) {
        struct hly_place *place = &w->place[w->order[rank]];
        place->rank = rank;
        place->member = true;
        place->was_refused = false;
        move(w, place, HLY_PLACE_IN);
    }
}

static bool decide(struct hly_worlds *w, struct hly_worlds_action *a)
{
    if (!hly_worlds_asking(w))
        return false;
    if (w->broken)
        return act(a, HLY_WORLDS_REFUSE_ALL, w->broken, w->leaver);
    if (hly_worlds_is_static(w) && w->first_ended >= 0)
        return act(a, HLY_WORLDS_REFUSE_ALL, HLY_CAUSE_ENDED, w->first_ended);
    if (w->failed >= 0)
        return act(a, HLY_WORLDS_REFUSE_ALL, HLY_CAUSE_FAILED, w->failed);
    if (w->listed || !are_enough(w) || !is_complete(w))
        return false;
    rank_all(w);
    if (!w->list_ns)
        return act(a, HLY_WORLDS_TABLE, HLY_CAUSE_NONE, -1);
    w->listed = true;
    for (int p = 0; p < w->nplaces; p++)
        w->place[p].lost = false; /* waits for it again: it has to ask, or to say that it leaves */
    return act(a, HLY_WORLDS_LIST, HLY_CAUSE_NONE, -1);
}

/* ---------------------------------------------------------------- the time */

static void set_times(struct hly_worlds *w, uint64_t now)
{
    const struct hly_notices notices = w->notices;
    const bool before = w->decide_ns;
    if (!w->stale)
        return;
    w->stale = false;
    w->decide_ns = w->expire_ns = 0;
    for (int p = 0; p < w->nplaces; p++)
        if (asks(w, p))
            count_time(w, &w->place[p], now);
    if (before && w->decide_ns)
        w->notices = notices;
    if (!w->decide_ns && !w->expire_ns)
        w->look_ns = w->looked = 0;
}

/* When to look which ranks of a node are coming, before the list closes; UINT64_MAX: never. */
static uint64_t list_look_ns(const struct hly_worlds *w)
{
    return w->listed ? UINT64_MAX : w->look_ns > w->list_ns ? w->look_ns : w->list_ns;
}

uint64_t hly_worlds_due_ns(const struct hly_worlds *w)
{
    uint64_t next = w->expire_ns ? w->expire_ns : UINT64_MAX;
    if (w->listed && is_complete(w))
        return UINT64_MAX;
    if (w->list_ns && w->decide_ns)
        next = list_look_ns(w);
    const uint64_t notice = w->decide_ns ? hly_notices_due_ns(&w->notices) : UINT64_MAX;
    if (w->decide_ns && w->decide_ns < next)
        next = w->decide_ns;
    next = notice < next ? notice : next;
    return !w->list_ns && w->look_ns && w->look_ns < next ? w->look_ns : next;
}

/* True if all members that newcomers wait for are stopped, so none will ask. */
static bool are_stopped(const struct hly_worlds *w)
{
    for (int p = 0; p < w->nplaces; p++)
        if (hly_worlds_is_awaited(w, p) && !w->place[p].stopped)
            return false;
    return true;
}

/* Is the process unfit to ask: stopped, or called lost by the asking ones? */
static bool is_unfit(const struct hly_worlds *w, const struct hly_place *place)
{
    return place->stopped ||
           (place->state == HLY_PLACE_IN && place->member && is_lost(w, place->rank));
}

/* In a job whose ranks may change, the others go on without a process that is unfit for too long.
 * When their time is over they go on without any that has not asked. If they are too few, an unfit
 * process is condemned all the same: the launcher starts another one in its place. */
static void give_up(struct hly_worlds *w, bool over, uint64_t now)
{
    const bool wait = w->decide_ns || are_stopped(w), enough = are_enough(w);
    for (int p = 0; p < w->nplaces; p++) {
        struct hly_place *place = &w->place[p];
        if (!hly_worlds_is_absent(w, p))
            continue;
        if (w->list_ns) {
            place->lost = place->stopped;
            continue;
        }
        const bool unfit = wait && is_unfit(w, place);
        place->unfit_ns = !unfit ? 0 : place->unfit_ns ? place->unfit_ns : now;
        const bool useless = unfit && now - place->unfit_ns >= w->timeout_ns;
        if (hly_worlds_is_awaited(w, p) && (useless || (over && enough)))
            place->lost = true;
        if (useless && !enough)
            condemn(place);
    }
}

/* Newcomers wait until the members ask, at a commit; members wait for each other. A static job
 * looks only for processes whose halay_init has failed. */
static bool is_look_due(const struct hly_worlds *w, bool over, uint64_t now)
{
    if (!w->decide_ns && !w->expire_ns)
        return false;
    if (hly_worlds_is_static(w))
        return over || now >= hly_notices_due_ns(&w->notices);
    if (w->list_ns)
        return !w->listed && (over || now >= list_look_ns(w));
    return over || now >= w->look_ns;
}

static bool look(struct hly_worlds *w, bool over, uint64_t now, struct hly_worlds_action *a)
{
    if (!w->looked && is_look_due(w, over, now)) {
        w->look_ns = hly_worlds_is_static(w) ? 0 : now + (w->decide_ns && !w->list_ns ? S / 4 : S);
        w->looked = 1;
        return act(a, HLY_WORLDS_LOOK, HLY_CAUSE_NONE, -1);
    }
    if (!w->looked)
        return false;
    if (w->looked == 1 && over && !hly_worlds_is_static(w) && !w->list_ns && are_enough(w)) {
        w->looked = 2;
        return act(a, HLY_WORLDS_GO_ON, HLY_CAUSE_NONE, -1);
    }
    w->looked = 0;
    if (hly_worlds_is_static(w))
        return false;
    give_up(w, over, now);
    return decide(w, a);
}

bool hly_worlds_next(struct hly_worlds *w, uint64_t now, struct hly_worlds_action *a)
{
    set_times(w, now);
    if (report(w, a) || (w->done && refuse_newcomer(w, UINT64_MAX, HLY_CAUSE_OVER, a)) ||
        decide(w, a))
        return true;
    set_times(w, now);
    const bool waits = w->decide_ns && !(w->listed && is_complete(w));
    const bool over = waits && now >= w->decide_ns;
    if (look(w, over, now, a) ||
        (w->expire_ns && now >= w->expire_ns && refuse_newcomer(w, now, HLY_CAUSE_EXPIRED, a)))
        return true;
    if (over)
        return act(a, HLY_WORLDS_REFUSE_ALL, HLY_CAUSE_MISSING, -1);
    return waits && hly_notices_give(&w->notices, now) &&
           act(a, HLY_WORLDS_NOTICE, HLY_CAUSE_NONE, -1);
}

bool hly_worlds_condemned(struct hly_worlds *w, int *place)
{
    for (int p = 0; p < w->nplaces; p++) {
        if (!w->place[p].condemned)
            continue;
        w->place[p].condemned = false;
        if (w->place[p].state == HLY_PLACE_IN || w->place[p].state == HLY_PLACE_STARTED) {
            *place = p;
            return true; /* else it asks, and gets a refusal */
        }
    }
    return false;
}
