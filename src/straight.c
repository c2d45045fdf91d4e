/* SPDX-License-Identifier: Apache-2.0 */
/*
 * straight.c - a short blocking call that is made again, with nobody else at work: its plan's steps
 * one after the other, in an order that was found when the plan was admitted. Nothing is queued,
 * counted down or looked up, and the message that is waited for is compared with what it has to be,
 * whole header at once; one for another step is taken as it comes. docs/decisions/0031 and 0033.
 *
 * Invariant: whatever is not as it was last time ends this at a step, and hly_engine_resume() makes
 * of the request what it would be had the engine done the steps so far. An event that came is taken
 * in after that: so nothing is decided here, and nobody waits here for long.
 *
 * What a step sends may be lent (0034): then steps go on that do not depend on it, and a tile ends
 * when all is back.
 */
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"
#include "core.h"
#include "device/device_builtin.h"
#include "lend.h"
#include "readers.h"
#include "straight.h"
#include "watch.h"

#define CALLS_MOST    256  /* between two looks at all ways, and at the clock */
#define YIELDS        200  /* for one message, with more ranks than processors */
#define SPINS_FAR     100  /* for one of another processor, before that */
#define SPINS_MATE    300  /* the same, for each rank of this one */
#define TILE_PATIENCE 16   /* a peer that is at work on a tile needs so much longer */
#define LONG_BYTES    4096 /* what is shorter is sooner copied than left to lie */
#define CLEARED       16   /* bytes at once */

static bool is_message(const halay_step_t *s)
{
    return s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV;
}

static int urgency(const halay_step_t *s) /* 0 is first */
{
    return s->kind == HALAY_STEP_RECV ? 2 : s->kind != HALAY_STEP_SEND;
}

/*
 * What waits for no message goes first, so that nobody waits for a step that could be done; and of
 * that what is sent, so that all else is done while it is on its way.
 */
void hly_straight_order(struct hly_plan *p)
{
    const uint32_t n = p->plan->nsteps;
    bool done[HLY_WORKS_KEPT] = {false};
    uint32_t nrecvs = 0;
    if (!p->straight)
        return;
    for (uint32_t at = 0; at < n; at++) {
        uint32_t best = HALAY_STEP_NONE;
        for (uint32_t i = 0; i < n; i++) {
            const halay_step_t *s = &p->plan->steps[i];
            bool can = !done[i] && (s->dep[0] == HALAY_STEP_NONE || done[s->dep[0]]) &&
                       (s->dep[1] == HALAY_STEP_NONE || done[s->dep[1]]);
            if (can && (best == HALAY_STEP_NONE || urgency(s) < urgency(&p->plan->steps[best])))
                best = i;
        }
        assert(best != HALAY_STEP_NONE); /* a proved plan has no cycle */
        done[best] = true;
        nrecvs += p->plan->steps[best].kind == HALAY_STEP_RECV;
        p->straight[at] = (uint16_t)best;
    }
    p->lone = nrecvs == 1;
}

/* Has the request's call only steps of the kinds that are done here? */
static bool is_straight(const halay_request_t *r)
{
    const struct hly_plan *p = r->plan;
    const halay_context_t *ctx = r->context;
    bool divides = r->call.brief.op == HALAY_AVERAGE && r->comm->nranks > 1;
    if (!p->straight || !r->works || r->tables || r->call.user || r->home != r->out || divides ||
        r->call.brief.flags & HLY_BRIEF_SCALED || ctx->device_ops != &hly_device_host ||
        ctx->settings.explain || ctx->settings.level >= HLY_TRACE)
        return false;
    for (uint32_t i = 0; i < p->plan->nsteps; i++) {
        const halay_step_t *s = &p->plan->steps[i];
        const struct hly_segment *seg = hly_operand_segments(r, s->operand);
        if (is_message(s) ? seg[1].bytes || seg->bytes > p->peers[i]->way->attr.eager_bytes
                          : s->kind != HALAY_STEP_JOIN && !r->works[i].nsrc)
            return false;
    }
    return true;
}

/* Are its messages long, and come from many? Then each is taken when its turn has come, and lies
 * where it is till then. */
static bool in_turn(const halay_request_t *r)
{
    const halay_plan_t *p = r->plan->plan;
    size_t most = 0;
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const halay_step_t *s = &p->steps[i];
        const size_t bytes = s->kind == HALAY_STEP_RECV ? hly_operand_bytes(r, s->operand) : 0;
        most = bytes > most ? bytes : most;
        if (is_message(s) && !(r->plan->peers[i]->way->attr.capabilities & HALAY_CAN_CHOOSE))
            return false;
    }
    return p->params.nranks > 2 && most >= LONG_BYTES;
}

/* Is its call the one that was checked last, with the same memory? */
static bool repeats(const halay_request_t *r, const struct hly_checked *now, bool series)
{
    const struct hly_call *was = &r->call;
    struct hly_brief brief = now->brief;
    brief.flags |= series ? HLY_BRIEF_SERIES : 0;
    return r->bound && was->signature == (now->signature ^ (series ? HLY_SERIES_SIGN : 0)) &&
           was->in == now->in && was->out == now->out && !was->local_in_place && !was->aside &&
           memcmp(&was->brief, &brief, sizeof(was->brief)) == 0;
}

/* The request that made the same call last, if it can be used. */
static halay_request_t *ready_made(halay_comm_t *comm)
{
    const struct hly_checked *now = &comm->checked;
    const struct hly_plan *p = comm->last_plan;
    if (hly_series_next(&comm->series, comm->next_sequence, now->signature))
        p = comm->last_series;
    halay_request_t *r = p ? p->spare : NULL;
    if (!r || r->straight == HLY_STRAIGHT_NO)
        return NULL;
    if (r->repeated != comm->checked.number) {
        if (!repeats(r, &comm->checked, p != comm->last_plan))
            return NULL;
        r->repeated = comm->checked.number;
    }
    if (r->straight == HLY_STRAIGHT_UNKNOWN) {
        hly_layout_tile(r, 0); /* the largest */
        r->straight = is_straight(r) ? HLY_STRAIGHT_YES : HLY_STRAIGHT_NO;
        r->in_turn = in_turn(r);
    }
    return r->straight == HLY_STRAIGHT_YES ? r : NULL;
}

/* Nothing is under way in the context, nobody waits in it. */
static bool is_quiet(const halay_comm_t *comm)
{
    const halay_context_t *ctx = comm->context;
    const struct hly_slot *slot = &comm->slots[comm->next_sequence % HLY_SLOTS];
    return comm->magic == HLY_COMM_MAGIC && !comm->bundle && !comm->persists && !comm->broken &&
           !comm->series.asks && comm->oldest == comm->next_sequence &&
           hly_link_empty(&ctx->requests) && !ctx->lost && !ctx->watcher && !ctx->followers &&
           hly_link_empty(&ctx->busy_peers) && !slot->fault;
}

/* What the message of a RECV step has to be. */
static void foresee(const halay_request_t *r, uint32_t step, struct hly_due *due)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    const struct hly_segment *seg = hly_operand_segments(r, s->operand);
    due->header = r->header;
    hly_header_number(&due->header, r->sequence, s->edge);
    due->header.from = s->peer;
    due->header.cookie = seg->bytes;
    if (r->tiles.n > 1)
        due->header.offset = hly_both_theirs(r);
    due->from = r->plan->peers[step]->id;
    due->bytes = seg->bytes;
    due->place = seg->address;
    due->step = step;
}

bool hly_straight_expects(const halay_request_t *r, uint32_t step, halay_peer_id_t from,
                          const struct hly_header *h, size_t bytes)
{
    struct hly_due due;
    foresee(r, step, &due);
    return hly_due_is(&due, from, h, bytes);
}

/* Of the RECV step that an EAGER message of the request's call is for, if the plan has it. */
static uint32_t step_of(const halay_request_t *r, const struct hly_header *h)
{
    return h->kind == HLY_EAGER ? hly_plan_step(r->plan, HALAY_STEP_RECV, h->from, h->edge)
                                : HALAY_STEP_NONE;
}

/* A message of the request's call and of a later tile, which is looked at when that comes. */
static bool is_ahead(const halay_request_t *r, const struct hly_header *h)
{
    const uint32_t after = hly_ahead_of(r, h->tile);
    return h->signature == r->call.signature && after && after <= HLY_AHEAD_SEEN &&
           r->tiles.number + after < r->tiles.n;
}

/* Is what came before its call all of it, and as it has to be? */
__attribute__((cold)) static bool stash_fits(const halay_request_t *r)
{
    const struct hly_link *list = &hly_request_slot(r)->stash;
    for (const struct hly_link *l = list->next; l != list; l = l->next) {
        const struct hly_stash *m = HLY_OF(l, struct hly_stash, link);
        uint32_t step = step_of(r, &m->header);
        if (step == HALAY_STEP_NONE ||
            !(hly_straight_expects(r, step, m->peer, &m->header, m->bytes) ||
              is_ahead(r, &m->header)))
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------- the walk */

/* Of each step of the tile: */
enum { WAITS = 0, DONE, FLYING }; /* the last: a SEND that has lent */

/* Steps of a tile done so far, and in which order; more than HLY_WORKS_KEPT are not done here. */
struct walk {
    halay_request_t *r;
    const halay_step_t *steps; /* of its plan */
    uint32_t ndone, nflying;
    int over;                  /* the poll's result that ends the walk; event is its, */
    const struct hly_way *way; /* of this way */
    halay_event_t event;
    uint8_t state[HLY_WORKS_KEPT];
    uint16_t order[HLY_WORKS_KEPT];
};
static_assert(HLY_WORKS_KEPT % CLEARED == 0, "cleared by so many");

static inline void start_over(struct walk *w, uint32_t nsteps)
{
    w->ndone = w->nflying = 0;
    for (uint32_t at = 0; at < nsteps; at += CLEARED)
        memset(w->state + at, WAITS, CLEARED);
}

static bool is_done(const struct walk *w, uint32_t step)
{
    return step == HALAY_STEP_NONE || w->state[step] == DONE;
}

static bool can_start(const struct walk *w, uint32_t step)
{
    const halay_step_t *s = &w->steps[step];
    return !is_done(w, step) && is_done(w, s->dep[0]) && is_done(w, s->dep[1]);
}

static void settle(struct walk *w, uint32_t step)
{
    w->order[w->ndone++] = (uint16_t)step;
    w->state[step] = DONE;
    HLY_SAW(DONE, w->r, step);
}

/* The reduction that waits for this step and for nothing else, and alone reads what it brings. */
static uint32_t reduction_of(const struct walk *w, uint32_t step)
{
    const struct hly_plan *p = w->r->plan;
    const uint32_t found = p->reader[step];
    if (found >= HLY_READ_BY_MORE)
        return HALAY_STEP_NONE;
    const uint32_t *dep = p->plan->steps[found].dep;
    bool can = (dep[0] == step || is_done(w, dep[0])) && (dep[1] == step || is_done(w, dep[1]));
    return can ? found : HALAY_STEP_NONE;
}

/* What can be known before the message is there. */
static void prepare(const struct walk *w, uint32_t step, struct hly_due *due)
{
    halay_request_t *r = w->r;
    foresee(r, step, due);
    due->work = NULL;
    due->reduction = due->bytes ? reduction_of(w, step) : HALAY_STEP_NONE;
    if (due->reduction == HALAY_STEP_NONE || r->tiles.n > 1)
        return;
    const halay_work_t *work = &r->works[due->reduction];
    if (work->bound && !work->streams) {
        due->work = work;
        due->left = work->src[0] == due->place;
    }
}

/* Has the reduction been done that could read it where it lies? */
static inline bool reduce(struct walk *w, const struct hly_due *due, const void *data)
{
    const halay_work_t *work = due->work;
    if (!work)
        return due->reduction != HALAY_STEP_NONE &&
               hly_ahead_reduce(w->r, due->step, due->reduction, data);
    if (due->left)
        hly_host_combine(work, data, work->src[1]);
    else
        hly_host_combine(work, work->src[0], data);
    return true;
}

/* The step is done; so is the reduction that could read it where it lies. But what was lent may
 * have been anything (hly_channel_give_back): then neither is. */
__attribute__((always_inline)) static inline void land(struct walk *w, const struct hly_due *due,
                                                       const void *data)
{
    halay_request_t *r = w->r;
    halay_context_t *ctx = r->context;
    const bool reduced = reduce(w, due, data);
    if (due->bytes && !reduced)
        hly_copy_in(due->place, data, due->bytes, hly_step_streams(r, due->step));
    ctx->counters.received_messages++;
    ctx->counters.received_bytes += due->bytes;
    if (ctx->lender && !hly_channel_give_back(ctx))
        return;
    hly_saw_bytes(r, HLY_SAW_LANDED, due->step,
                  hly_operand_segments(r, r->plan->plan->steps[due->step].operand), 0, due->bytes,
                  0);
    settle(w, due->step);
    if (!reduced)
        return;
    HLY_SAW(STARTED, r, due->reduction);
    hly_saw_work(r, due->reduction, &r->works[due->reduction], HALAY_OK);
    settle(w, due->reduction);
}

static inline void land_event(struct walk *w, const struct hly_due *due)
{
    if (w->event.kind == HALAY_EVENT_LENT) {
        w->r->context->lender = w->r->plan->peers[due->step]->way;
        land(w, due, w->event.payload);
    } else {
        land(w, due, (const char *)w->event.data + sizeof(struct hly_header));
    }
}

/* What a step of the tile had lent has been read. */
__attribute__((cold)) static bool take_back(struct walk *w)
{
    struct hly_out *out = (struct hly_out *)(uintptr_t)w->event.cookie;
    if (w->event.kind != HALAY_EVENT_SENT || w->event.status || !out || out->request != w->r ||
        (!w->nflying && !out->held))
        return false;
    const uint32_t step = out->step;
    const bool held = out->held;
    hly_out_free(w->r->context, out);
    if (held)
        return true;
    w->nflying--;
    HLY_SAW(LEFT, w->r, step);
    settle(w, step);
    return true;
}

__attribute__((cold)) static bool land_stashed(struct walk *w, uint32_t step)
{
    halay_request_t *r = w->r;
    const halay_step_t *s = &r->plan->plan->steps[step];
    const struct hly_link *list = &hly_request_slot(r)->stash;
    for (struct hly_link *l = list->next; l != list; l = l->next) {
        struct hly_stash *m = HLY_OF(l, struct hly_stash, link);
        if (m->header.from != s->peer || m->header.edge != s->edge)
            continue;
        hly_both_look(r, &m->header);
        if (!hly_straight_expects(r, step, m->peer, &m->header, m->bytes))
            continue;
        struct hly_due due;
        prepare(w, step, &due);
        land(w, &due, m->data);
        hly_link_remove(l);
        free(m);
        return true;
    }
    return false;
}

/*
 * A message that another step of this call, its next tile, or a later call of this communicator
 * waits for. What cannot be used yet is stashed, as it is by the engine.
 */
__attribute__((cold)) static bool take_other(struct walk *w, const struct hly_way *way)
{
    halay_request_t *r = w->r;
    const halay_event_t *e = &w->event;
    const struct hly_header *h = e->data;
    if (take_back(w))
        return true;
    if ((e->kind != HALAY_EVENT_MESSAGE && e->kind != HALAY_EVENT_LENT) || e->bytes < sizeof(*h) ||
        h->comm != r->header.comm ||
        (h->kind != HLY_EAGER && h->kind != HLY_ROOM && h->kind != HLY_FILLED))
        return false;
    if (h->sequence == r->sequence && h->kind == HLY_EAGER) {
        struct hly_due due;
        uint32_t step = step_of(r, h);
        hly_both_look(r, h);
        if (step != HALAY_STEP_NONE)
            prepare(w, step, &due);
        bool mine = step != HALAY_STEP_NONE && hly_due_came(&due, e);
        if (!mine && (step == HALAY_STEP_NONE || !is_ahead(r, h)))
            return false;
        if (mine && can_start(w, step)) {
            HLY_SAW(STARTED, r, step);
            land_event(w, &due);
            return true;
        }
    }
    hly_channel_take(r->context, way, e, 1);
    return true;
}

/*
 * Once all ranks that share this one's processor have sent what is waited for, there is nothing to
 * yield to them for: so many polls come first, and to run them all in vain takes the longer the
 * more they are. Fewer where what others lend has to be read by them too. halayrun deals more
 * ranks than processors out in turn.
 */
__attribute__((noinline)) static uint32_t spins_far(const struct walk *w)
{
    const halay_context_t *ctx = w->r->context;
    const struct hly_plan *p = w->r->plan;
    if (!ctx->dealt)
        return 0;
    const int mates = ctx->info.nranks / ctx->dealt - 1;
    int missing = mates;
    for (uint32_t i = 0; i < p->plan->nsteps; i++) {
        if (p->plan->steps[i].kind != HALAY_STEP_RECV ||
            (p->peers[i]->world_rank - ctx->info.rank) % ctx->dealt)
            continue;
        if (!is_done(w, i))
            return 0;
        missing--;
    }
    if (missing > 0)
        return 0;
    if (halay_planner_get(p->planner)->restrictions & HALAY_PLANNER_ROUNDS)
        return SPINS_FAR;
    return SPINS_MATE * (uint32_t)mates;
}

/* Its way's poll; of the messages only this peer's, if each is taken in turn. */
static inline int poll_of(struct walk *w, const struct hly_way *way, const halay_peer_id_t *peer)
{
    if (!w->r->in_turn)
        return way->ops->poll(way->transport, &w->event, 1);
    w->event.peer = *peer;
    return way->ops->poll(way->transport, &w->event, HALAY_POLL_ONE);
}

/* After the first poll. */
static bool await_more(struct walk *w, const struct hly_way *way, const halay_peer_id_t *peer,
                       int *n)
{
    halay_context_t *ctx = w->r->context;
    uint32_t spins = hly_spins(ctx), most = spins + YIELDS, far = 0;
    if (!hly_crowded(ctx))
        most = spins *= w->r->tiles.n > 1 ? TILE_PATIENCE : 1;
    for (uint32_t polls = 1; polls < most; polls++) {
        if (polls == spins && !far && (far = spins_far(w))) {
            spins += far;
            most += far;
        }
        if (polls >= spins)
            sched_yield();
        if (atomic_load_explicit(&ctx->want, memory_order_relaxed))
            return false;
        *n = poll_of(w, way, peer);
        if (*n)
            return true;
    }
    return false;
}

/* Its way's poll, until it returns something; false: not soon, or another thread wants to go on. */
static inline bool await(struct walk *w, const struct hly_way *way, const halay_peer_id_t *peer,
                         int *n)
{
    w->way = way;
    *n = 0;
    if (!atomic_load_explicit(&w->r->context->want, memory_order_relaxed))
        *n = poll_of(w, way, peer);
    return *n || await_more(w, way, peer, n);
}

static inline int send_step(halay_request_t *r, uint32_t step, const halay_step_t *s)
{
    const struct hly_segment *seg = hly_operand_segments(r, s->operand);
    hly_header_number(&r->header, r->sequence, s->edge);
    if (r->header.cookie != seg->bytes) /* mostly not: what is not written need not be waited for */
        r->header.cookie = seg->bytes;
    return hly_out_at_once(r, step, seg);
}

/* Something that is not waited for by name: no message, if each is taken in turn. */
static bool await_other(struct walk *w, const struct hly_way *way)
{
    const halay_peer_id_t nobody = {0};
    int n;
    if (!await(w, way, &nobody, &n))
        return false;
    if (n == 1 && take_other(w, way))
        return true;
    w->over = n;
    return false;
}

/* One of the steps that this one waits for, or of all, whose message is lent. */
static uint32_t lent_before(const struct walk *w, uint32_t step)
{
    const struct hly_plan *p = w->r->plan;
    if (step != HALAY_STEP_NONE) {
        const uint32_t *dep = p->plan->steps[step].dep;
        return !is_done(w, dep[0]) ? dep[0] : !is_done(w, dep[1]) ? dep[1] : HALAY_STEP_NONE;
    }
    for (uint32_t i = 0; w->nflying && i < p->plan->nsteps; i++)
        if (w->state[i] == FLYING)
            return i;
    return HALAY_STEP_NONE;
}

/* Until nothing is lent that this step waits for, or nothing at all of the tile. */
static bool await_back(struct walk *w, uint32_t step)
{
    uint32_t lent;
    while ((lent = lent_before(w, step)) != HALAY_STEP_NONE)
        if (!await_other(w, w->r->plan->peers[lent]->way))
            return false;
    return true;
}

/* Until nothing is lent that the call waits for. */
static bool await_held(struct walk *w)
{
    const halay_request_t *r = w->r;
    while (!hly_link_empty(&r->flying))
        if (!await_other(w, r->plan->peers[r->plan->ahead]->way))
            return false;
    return true;
}

/* Until the other rank has written all that it does of the result. */
static bool await_both(struct walk *w)
{
    const halay_request_t *r = w->r;
    while (!hly_both_end(w->r))
        if (r->both.failed || !await_other(w, r->plan->peers[r->plan->ahead]->way))
            return false;
    return true;
}

/* The message of this step, as it is foreseen when the walk comes to it. */
__attribute__((noinline)) static const struct hly_due *
expect_anew(const struct walk *w, uint32_t step, struct hly_due *made)
{
    halay_request_t *r = w->r;
    const bool keeps = r->plan->lone && r->tiles.n == 1 && !w->nflying;
    struct hly_due *due = keeps ? &r->due : made;
    prepare(w, step, due);
    return due;
}

/*
 * It is kept for the next call where nothing but the number can be another one then: of a plan with
 * one message all steps before it are done, unless what they lent flies, and none behind it.
 */
static inline const struct hly_due *expect(const struct walk *w, uint32_t step,
                                           struct hly_due *made)
{
    struct hly_due *kept = &w->r->due;
    if (kept->step != step || w->nflying)
        return expect_anew(w, step, made);
    hly_header_number(&kept->header, w->r->sequence, kept->header.edge);
    return kept;
}

/* Its message, or HALAY_EAGAIN. */
static int receive(struct walk *w, uint32_t step)
{
    halay_request_t *r = w->r;
    const struct hly_way *way = r->plan->peers[step]->way;
    int n;
    if (r->tiles.n > 1)
        hly_ahead_fill(r);
    if (!hly_link_empty(&hly_request_slot(r)->stash) && land_stashed(w, step))
        return HALAY_OK;
    struct hly_due made;
    const struct hly_due *due = expect(w, step, &made);
    while (await(w, way, &r->plan->peers[step]->id, &n)) {
        if (n == 1 && hly_due_came(due, &w->event)) {
            land_event(w, due);
            return is_done(w, step) ? HALAY_OK : HALAY_EAGAIN;
        }
        if (n != 1 || !take_other(w, way)) {
            w->over = n;
            return HALAY_EAGAIN;
        }
        if (is_done(w, step)) /* it was the first that promises (both.h) */
            return HALAY_OK;
        due = expect(w, step, &made); /* for other steps are done, perhaps */
    }
    return HALAY_EAGAIN;
}

static void start_tile(halay_request_t *r, uint32_t tile)
{
    if (r->tiles.number != tile)
        hly_layout_tile(r, tile);
    if (r->header.tile != (uint16_t)tile)
        r->header.tile = (uint16_t)tile;
    if (tile)
        r->header.offset = hly_both_mine(r);
}

/* HALAY_OK: it is done; HALAY_INPROGRESS: it is flying. */
static int do_step(struct walk *w, uint32_t step)
{
    halay_request_t *r = w->r;
    const halay_step_t *s = &w->steps[step];
    const uint32_t kind = s->kind;
    int rc = HALAY_OK;
    if (kind == HALAY_STEP_RECV)
        return receive(w, step);
    if (kind == HALAY_STEP_SEND) {
        rc = send_step(r, step, s);
        if (step == r->plan->ahead && rc == HALAY_OK)
            r->tiles.sent = r->tiles.number + 1;
    } else if (kind != HALAY_STEP_JOIN) {
        if (r->both.mine)
            hly_both_missed(r);
        rc = r->context->device_ops->launch(r->context->device, &r->works[step]);
        hly_saw_work(r, step, &r->works[step], rc);
    }
    if (rc == HALAY_OK)
        settle(w, step);
    return rc;
}

/* Of the call, with its last tile: what is lent, and what the other rank does of the result. */
static bool await_end(struct walk *w)
{
    const struct hly_tiles *t = &w->r->tiles;
    if (t->number + 1 < t->n)
        return true;
    return await_held(w) && (!w->r->both.mine || await_both(w));
}

/* Does the steps of the tile that is laid out until one is not done at once; true if all were. */
static bool walk_tile(struct walk *w)
{
    halay_request_t *r = w->r;
    const struct hly_plan *p = r->plan;
    const uint32_t nsteps = p->plan->nsteps;
    start_over(w, nsteps);
    HLY_SAW(BOUND, r, HALAY_STEP_NONE);
    if (r->tiles.sent > r->tiles.number) /* before the tile began */
        settle(w, p->ahead);
    for (uint32_t at = 0; at < nsteps; at++) {
        const uint32_t step = p->straight[at];
        if (w->nflying && !await_back(w, step))
            return false;
        if (is_done(w, step))
            continue;
        HLY_SAW(STARTED, r, step);
        int rc = do_step(w, step);
        if (rc < 0) {
            HLY_SAW(BACK, r, step);
            return false;
        }
        if (rc != HALAY_OK) {
            w->state[step] = FLYING;
            w->nflying++;
        }
    }
    if (w->nflying && !await_back(w, HALAY_STEP_NONE))
        return false;
    if (r->tiles.n > 1 && !await_end(w)) /* else nothing is held */
        return false;
    HLY_SAW(FINISHED, r, HALAY_STEP_NONE);
    return true;
}

static bool walk(struct walk *w)
{
    uint32_t tile = 0;
    w->steps = w->r->plan->plan->steps;
    while (walk_tile(w)) {
        if (++tile == w->r->tiles.n)
            return true;
        start_tile(w->r, tile);
    }
    return false;
}

/* The engine goes on where the walk has ended, and takes in the event that ended it. */
__attribute__((cold)) static void give_up(struct walk *w)
{
    halay_request_t *r = w->r;
    hly_engine_resume(r, w->order, w->ndone);
    if (w->over)
        hly_channel_take(r->context, w->way, &w->event, w->over);
}

/* The call is complete. */
static void end(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    struct hly_slot *slot = hly_request_slot(r);
    const bool unheard = r->call.brief.flags & HLY_BRIEF_SERIES;
    slot->sequence = r->sequence;
    slot->settled = false;
    slot->unheard = unheard;
    comm->next_sequence++;
    comm->started++;
    comm->oldest++;
    if (!unheard)
        comm->heard = comm->oldest;
    r->context->counters.operations++;
    r->context->counters.straight++;
}

bool hly_straight_try(halay_comm_t *comm, halay_request_t **request)
{
    halay_context_t *ctx = comm->context;
    *request = NULL;
    if (!is_quiet(comm))
        return false;
    halay_request_t *r = ready_made(comm);
    if (!r)
        return false;
    r->sequence = comm->next_sequence;
    if (r->told)
        hly_layout_begin(r);
    start_tile(r, 0);
    r->tiles.sent = 0;
    struct hly_link *stash = &hly_request_slot(r)->stash;
    if (!hly_link_empty(stash) && !stash_fits(r))
        return false;
    if (r->tiles.n > 1)
        hly_both_begin(r);
    if (r->call.brief.flags & HLY_BRIEF_SERIES)
        hly_series_go_on(&comm->series);
    else if (r->call.brief.collective == HALAY_BROADCAST)
        hly_series_count(comm, &comm->checked.brief, comm->checked.signature);
    struct walk w;
    w.r = r;
    w.over = 0;
    if (walk(&w)) {
        if (!hly_link_empty(stash))
            hly_match_forget(ctx, stash);
        assert(hly_link_empty(&r->flying));
        end(r);
        if (++ctx->polls >= CALLS_MOST) /* now: it would stash what this call waits for */
            hly_progress(ctx);
        return true;
    }
    give_up(&w);
    *request = r;
    return true;
}
