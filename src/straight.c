/* SPDX-License-Identifier: Apache-2.0 */
/*
 * straight.c - a short blocking call that is made again, with nobody else at work: its plan's steps
 * one after the other, in an order that was found when the plan was admitted. Nothing is queued,
 * counted down or looked up, and the one message that is waited for is compared with what it has to
 * be, whole header at once. docs/decisions/0031-straight-ahead.md.
 *
 * Invariant: whatever is not as it was last time ends this at a step, and hly_engine_resume() makes
 * of the request what it would be had the engine done the steps so far. An event that came is taken
 * in after that: so nothing is decided here, and nobody waits here for long.
 */
#include <assert.h>
#include <string.h>

#include "core.h"
#include "device/device_builtin.h"
#include "readers.h"
#include "watch.h"

#define CALLS_MOST    64 /* between two looks at all ways, and at the clock */
#define TILE_PATIENCE 16 /* a peer that is at work on a tile needs so much longer */

static bool is_message(const halay_step_t *s)
{
    return s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV;
}

/* What waits for no message goes first, so that nobody waits for a step that could be done. */
void hly_straight_order(struct hly_plan *p)
{
    const uint32_t n = p->plan->nsteps;
    bool done[HLY_WORKS_KEPT] = {false};
    if (!p->straight)
        return;
    for (uint32_t at = 0; at < n; at++) {
        uint32_t best = HALAY_STEP_NONE;
        for (uint32_t i = 0; i < n; i++) {
            const halay_step_t *s = &p->plan->steps[i];
            bool can = !done[i] && (s->dep[0] == HALAY_STEP_NONE || done[s->dep[0]]) &&
                       (s->dep[1] == HALAY_STEP_NONE || done[s->dep[1]]);
            if (can && s->kind != HALAY_STEP_RECV) {
                best = i;
                break;
            }
            if (can && best == HALAY_STEP_NONE)
                best = i;
        }
        assert(best != HALAY_STEP_NONE); /* a proved plan has no cycle */
        done[best] = true;
        p->straight[at] = (uint8_t)best;
    }
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

/* The request that made the same call last, if it can be used. */
static halay_request_t *ready_made(halay_comm_t *comm, const struct hly_call *call)
{
    const struct hly_plan *p = comm->last_plan;
    halay_request_t *r = p ? p->spare : NULL;
    if (!r || r->straight == HLY_STRAIGHT_NO || !hly_request_repeats(r, call))
        return NULL;
    if (r->straight == HLY_STRAIGHT_UNKNOWN) {
        hly_layout_tile(r, 0); /* the largest */
        r->straight = is_straight(r) ? HLY_STRAIGHT_YES : HLY_STRAIGHT_NO;
    }
    return r->straight == HLY_STRAIGHT_YES ? r : NULL;
}

/* Nothing is under way in the context, nobody waits in it, and nothing has come for this call. */
static bool is_quiet(const halay_comm_t *comm)
{
    const halay_context_t *ctx = comm->context;
    const struct hly_slot *slot = &comm->slots[comm->next_sequence % HLY_SLOTS];
    return comm->magic == HLY_COMM_MAGIC && !comm->bundle && !comm->persists && !comm->broken &&
           comm->oldest == comm->next_sequence && hly_link_empty(&ctx->requests) && !ctx->lost &&
           !ctx->watcher && !ctx->followers && hly_link_empty(&ctx->busy_peers) &&
           hly_link_empty(&slot->stash) && !slot->fault;
}

/* Is it the message that this step waits for? */
static bool is_expected(const halay_request_t *r, uint32_t step, const halay_event_t *e)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    const size_t bytes = hly_operand_segments(r, s->operand)->bytes;
    const halay_peer_id_t id = r->plan->peers[step]->id;
    struct hly_header want = r->header;
    want.from = s->peer;
    want.edge = s->edge;
    want.cookie = bytes;
    return e->kind == HALAY_EVENT_MESSAGE && e->bytes == sizeof(want) + bytes &&
           e->peer.lo == id.lo && e->peer.hi == id.hi && memcmp(e->data, &want, sizeof(want)) == 0;
}

/* Returns true if the step that comes next, `next`, has reduced it where it lies. */
static bool land(halay_request_t *r, uint32_t step, uint32_t next, const halay_event_t *e)
{
    const struct hly_segment *seg = hly_operand_segments(r, r->plan->plan->steps[step].operand);
    const char *data = (const char *)e->data + sizeof(struct hly_header);
    bool reduced = seg->bytes && hly_reader_of(r, step) == next && hly_reduce_lying(r, step, data);
    if (seg->bytes && !reduced)
        hly_copy_in(seg->address, data, seg->bytes, hly_step_streams(r, step));
    r->context->counters.received_messages++;
    r->context->counters.received_bytes += seg->bytes;
    hly_saw_bytes(r, HLY_SAW_LANDED, step, seg, 0, seg->bytes, 0);
    return reduced;
}

/* What its way's poll returns, once that is not 0; or 0. */
static int await(halay_request_t *r, uint32_t step, halay_event_t *event)
{
    halay_context_t *ctx = r->context;
    const struct hly_way *way = r->plan->peers[step]->way;
    uint32_t polls = hly_spins(ctx) * (r->tiles.n > 1 ? TILE_PATIENCE : 1);
    int n = 0;
    while (n == 0 && polls-- > 0 && !atomic_load_explicit(&ctx->want, memory_order_relaxed))
        n = way->ops->poll(way->transport, event, 1);
    return n;
}

static int send_step(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    const struct hly_segment *seg = hly_operand_segments(r, s->operand);
    r->header.edge = s->edge;
    r->header.cookie = seg->bytes;
    return hly_out_at_once(r, step, seg);
}

/* Its message, or HALAY_EAGAIN with what came instead, if something did. */
static int receive(halay_request_t *r, uint32_t at, halay_event_t *event, int *nevents,
                   bool *reduced)
{
    const uint8_t *step_at = r->plan->straight;
    const uint32_t step = step_at[at];
    *nevents = await(r, step, event);
    if (*nevents != 1 || !is_expected(r, step, event))
        return HALAY_EAGAIN;
    *nevents = 0;
    *reduced = land(r, step, step_at[at + 1], event);
    return HALAY_OK;
}

/* Does the steps of a tile until one is not done at once; returns how many were. */
static uint32_t run_tile(halay_request_t *r, uint32_t tile, halay_event_t *event, int *nevents)
{
    const struct hly_plan *p = r->plan;
    halay_context_t *ctx = r->context;
    uint32_t at = 0;
    bool reduced = false; /* what this step would reduce, already */
    hly_layout_tile(r, tile);
    r->header.tile = (uint16_t)tile;
    HLY_SAW(BOUND, r, HALAY_STEP_NONE);
    for (; at < p->plan->nsteps; at++) {
        const uint32_t step = p->straight[at];
        const uint32_t kind = p->plan->steps[step].kind;
        int rc = HALAY_OK;
        HLY_SAW(STARTED, r, step);
        if (kind == HALAY_STEP_SEND) {
            rc = send_step(r, step);
        } else if (kind == HALAY_STEP_RECV) {
            rc = receive(r, at, event, nevents, &reduced);
        } else if (kind != HALAY_STEP_JOIN) {
            if (!reduced)
                rc = ctx->device_ops->launch(ctx->device, &r->works[step]);
            reduced = false;
            hly_saw_work(r, step, &r->works[step], rc);
        }
        if (rc < 0)
            HLY_SAW(BACK, r, step);
        if (rc != HALAY_OK)
            break;
        HLY_SAW(DONE, r, step);
    }
    if (at == p->plan->nsteps)
        HLY_SAW(FINISHED, r, HALAY_STEP_NONE);
    return at;
}

static uint32_t run(halay_request_t *r, halay_event_t *event, int *nevents)
{
    uint32_t tile = 0, ndone;
    do
        ndone = run_tile(r, tile, event, nevents);
    while (ndone == r->plan->plan->nsteps && ++tile < r->tiles.n);
    return ndone;
}

bool hly_straight_try(halay_comm_t *comm, const struct hly_call *call, halay_request_t **request)
{
    halay_context_t *ctx = comm->context;
    halay_event_t event;
    int nevents = 0;
    *request = NULL;
    if (++ctx->polls >= CALLS_MOST)
        hly_progress(ctx);
    if (!is_quiet(comm))
        return false;
    halay_request_t *r = ready_made(comm, call);
    if (!r)
        return false;
    r->sequence = r->header.sequence = comm->next_sequence;
    uint32_t ndone = run(r, &event, &nevents);
    if (ndone == r->plan->plan->nsteps) {
        comm->next_sequence++;
        comm->started++;
        comm->oldest++;
        ctx->counters.operations++;
        ctx->counters.straight++;
        return true;
    }
    const struct hly_way *way = NULL;
    if (nevents)
        way = r->plan->peers[r->plan->straight[ndone]]->way;
    hly_engine_resume(r, r->plan->straight, ndone);
    if (nevents)
        hly_channel_take(ctx, way, &event, nevents);
    *request = r;
    return true;
}
