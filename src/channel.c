/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.c - moves the messages of a plan's edges over the transport. How one edge travels is
 * settled by its size and by what its receiver announces, never by the plan:
 *  - eager: up to unannounced_bytes, at once; what comes early is stashed (bounded: match.c)
 *  - staged: in pieces through the transport's own memory, once the receiver has announced itself
 *  - put: straight into the receiver's memory (HALAY_CAN_PUT)
 *  - tagged: into a buffer that the receiver has posted (HALAY_CAN_LAND)
 * What is sent from memory that the transport lends (0034) need not be copied: it is read there.
 * Zero buffering is kept: beyond unannounced_bytes nothing is sent that has no place to go to.
 *
 * An announced buffer is withdrawn by a handshake (decision 18): REVOKE, and the sender's REVOKED
 * once the transport is off it; or the sender is dead. Before that no call returns an error.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"
#include "core.h"
#include "lend.h"
#include "readers.h"
#include "watch.h"

/* ---------------------------------------------------------------- landings */

static struct hly_landing *landing_new(halay_context_t *context, uint32_t *index)
{
    if (!context->landing_free) {
        uint32_t n = context->nlandings ? 2 * context->nlandings : 64;
        struct hly_landing *all =
            n <= HLY_LANDINGS_MAX ? realloc(context->landings, n * sizeof(*all)) : NULL;
        if (!all)
            return NULL;
        memset(all + context->nlandings, 0, (n - context->nlandings) * sizeof(*all));
        for (uint32_t i = n; i > context->nlandings; i--) {
            all[i - 1].next_free = context->landing_free;
            context->landing_free = i;
        }
        context->landings = all;
        context->nlandings = n;
    }
    *index = context->landing_free - 1;
    struct hly_landing *l = &context->landings[*index];
    context->landing_free = l->next_free;
    l->generation++;
    l->revoking = l->tag_posted = l->sent = false;
    l->mem = NULL;
    l->range = NULL;
    return l;
}

/* What travels: never 0, and the low 32 bits serve as an immediate. */
static uint64_t landing_cookie(uint32_t index, const struct hly_landing *l)
{
    return 1ull << 32 | (uint64_t)l->generation << 16 | index;
}

static struct hly_landing *landing_find(halay_context_t *context, uint64_t cookie)
{
    uint32_t index = cookie & 0xffff;
    if (index >= context->nlandings)
        return NULL;
    struct hly_landing *l = &context->landings[index];
    return l->request && l->generation == (uint16_t)(cookie >> 16) ? l : NULL;
}

static void landing_close(halay_context_t *context, struct hly_landing *l)
{
    if (l->mem)
        l->peer->way->ops->deregister_mem(l->peer->way->transport, l->mem);
    if (l->range)
        l->range->landings--;
    l->mem = NULL;
    l->range = NULL;
    l->request->run[l->step].landing = 0;
    l->request->landings--;
    l->request = NULL;
    l->next_free = context->landing_free;
    context->landing_free = (uint32_t)(l - context->landings) + 1;
}

/*
 * Its sender has not said that it is off the memory. Unless FAILED was told of it, it may still
 * write: so the key dies, also that of a range.
 */
static void landing_cut(halay_context_t *context, struct hly_landing *l)
{
    if (l->range && !(l->peer->dead && l->peer->ep))
        hly_range_revoke(context, l->range, l->peer->way);
    landing_close(context, l);
}

/* The data are all there. */
static void landing_complete(halay_context_t *context, struct hly_landing *l)
{
    halay_request_t *r = l->request;
    uint32_t step = l->step;
    if (l->revoking)
        return; /* too late for the call; the answer to the revocation closes it */
    if (l->mode != HLY_STAGED)
        hly_saw_bytes(r, HLY_SAW_LANDED, step, NULL, 0, 0, 0);
    landing_close(context, l);
    hly_engine_step_done(r, step);
    hly_engine_run(r);
}

/* A target for a put: what it lies in, or a registration of its own. */
static bool put_offered(struct hly_landing *l, const struct hly_segment *seg,
                        struct hly_ready *ready)
{
    const struct hly_way *way = l->peer->way;
    size_t bytes = sizeof(ready->key);
    const halay_mem_t *mem;
    if (!(way->attr.capabilities & HALAY_CAN_PUT))
        return false;
    l->range = hly_range_of(l->request, way, seg);
    if (l->range) {
        l->range->landings++;
        mem = l->range->mem[way - l->request->context->ways];
        ready->offset = (uint64_t)(seg->address - l->range->address);
    } else if (!hly_mem_register(l->request->context, way, seg->address, seg->bytes, &l->mem)) {
        mem = l->mem;
    } else {
        return false;
    }
    int rc = way->ops->key(way->transport, mem, ready->key, &bytes);
    assert(!rc); /* it is registered, and there is room */
    ready->key_bytes = (uint32_t)bytes;
    return !rc;
}

/* Prepares the memory for the best way there is; STAGED needs nothing. */
static enum hly_mode choose_mode(struct hly_landing *l, uint64_t cookie, struct hly_ready *ready)
{
    const struct hly_way *way = l->peer->way;
    const halay_plan_t *plan = l->request->plan->plan;
    uint32_t operand = plan->steps[l->step].operand;
    const struct hly_segment *seg = hly_operand_segments(l->request, operand);
    const halay_operand_t *o = &plan->operands[operand];
    if (hly_operand_wraps(plan, o) || (o->count > 1 && plan->params.collective == HALAY_ALLTOALL))
        return HLY_STAGED; /* in two runs at one end at least, or perhaps at the sender's */
    if (put_offered(l, seg, ready))
        return HLY_PUT;
    if (way->attr.capabilities & HALAY_CAN_LAND &&
        !way->ops->recv(way->transport, cookie, seg[0].address, seg[0].bytes, cookie)) {
        ready->tag = cookie;
        l->tag_posted = true;
        return HLY_TAGGED;
    }
    return HLY_STAGED;
}

void hly_channel_recv(halay_request_t *r, uint32_t step)
{
    halay_context_t *ctx = r->context;
    const halay_step_t *s = &r->plan->plan->steps[step];
    if (hly_operand_bytes(r, s->operand) <= r->plan->peers[step]->way->unannounced_bytes) {
        if (r->tiles.n > 1)
            hly_ahead_fill(r);
        if (!hly_link_empty(&hly_request_slot(r)->stash))
            hly_match_stashed(r, step);
        return;
    }
    uint32_t index;
    struct hly_landing *l = landing_new(ctx, &index);
    struct hly_verdict_wire v;
    if (!l) {
        hly_verdict_init(&v, r->comm, HLY_CAUSE_LOCAL, HALAY_ENOMEM, r->comm->rank);
        snprintf(v.detail, sizeof(v.detail), "too many messages are announced at once");
        hly_fault_raise(r->comm, r->sequence, &v);
        return;
    }
    struct hly_ready ready;
    memset(&ready, 0, sizeof(ready));
    l->request = r;
    l->step = step;
    l->peer = r->plan->peers[step];
    uint64_t cookie = landing_cookie(index, l);
    l->mode = (uint8_t)choose_mode(l, cookie, &ready);
    ready.mode = l->mode;
    ready.tile = (uint16_t)r->tiles.number;
    ready.bytes = hly_operand_bytes(r, s->operand);
    r->run[step].landing = index + 1;
    r->landings++;
    hly_control_send(r->comm, (int)s->peer, HLY_READY, r->sequence, s->edge, cookie, &r->call,
                     &ready, sizeof(ready));
}

/* Copies into an operand of up to two segments. */
static void scatter(const struct hly_segment *seg, uint64_t offset, const char *data, size_t bytes,
                    bool streams)
{
    if (offset < seg[0].bytes) {
        size_t n = seg[0].bytes - offset < bytes ? seg[0].bytes - offset : bytes;
        hly_copy_in(seg[0].address + offset, data, n, streams);
        data += n;
        bytes -= n;
        offset += n;
    }
    if (bytes)
        hly_copy_in(seg[1].address + (offset - seg[0].bytes), data, bytes, streams);
}

void hly_channel_land(halay_request_t *r, uint32_t step, uint64_t offset, const void *data,
                      size_t bytes)
{
    struct hly_step_run *run = &r->run[step];
    const struct hly_segment *seg = hly_operand_segments(r, r->plan->plan->steps[step].operand);
    size_t total = seg[0].bytes + seg[1].bytes;
    if (offset > total || bytes > total - offset || bytes > total - run->arrived) {
        hly_log(r->context, HLY_ERROR, "rank %u sent bytes beyond a message; they were dropped",
                r->plan->plan->steps[step].peer);
        return;
    }
    bool dropped = bytes && HLY_SEEDED(DROP_LANDED, r, step);
    if (bytes && bytes == total && !run->landing && !dropped &&
        hly_engine_take_lying(r, step, data))
        return;
    if (bytes && !dropped) {
        scatter(seg, offset, data, bytes, hly_step_streams(r, step));
        if (!hly_channel_give_back(r->context))
            return;
        hly_saw_bytes(r, HLY_SAW_LANDED, step, seg, offset, bytes, 0);
    }
    run->arrived += bytes;
    if (run->arrived < total && !HLY_SEEDED(RECV_EARLY, r, step))
        return;
    if (run->landing) {
        landing_complete(r->context, &r->context->landings[run->landing - 1]);
        return;
    }
    hly_engine_step_done(r, step);
    hly_engine_run(r);
}

void hly_channel_piece(halay_context_t *context, const struct hly_header *h, const void *data,
                       size_t bytes, struct hly_peer *peer)
{
    struct hly_landing *l = landing_find(context, h->cookie);
    if (l && l->peer == peer && l->mode == HLY_STAGED && !l->revoking)
        hly_channel_land(l->request, l->step, h->offset, data, bytes);
    /* else the call has failed here meanwhile */
}

/* ---------------------------------------------------------------- sending a step */

/* Might the receiver neither announce itself nor send? Then it learns from an offer that the calls
 * differ: in an alltoallv in the counts, in a broadcast on one node, or one whose data are among
 * the messages by which all hear from all, in the root. Of the first tile: the others are alike. */
static bool is_offered(const halay_request_t *r)
{
    const struct hly_brief *b = &r->call.brief;
    if (r->tiles.number)
        return false;
    if (b->collective == HALAY_ALLTOALL)
        return r->tables != NULL;
    return b->collective == HALAY_BROADCAST &&
           (r->comm->nnodes < 2 || halay_planner_get(r->plan->plan->planner)->restrictions &
                                       (HALAY_PLANNER_SHORT | HALAY_PLANNER_ROUNDS));
}

void hly_channel_send(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    const struct hly_segment *seg = hly_operand_segments(r, s->operand);
    struct hly_step_run *run = &r->run[step];
    size_t bytes = hly_operand_bytes(r, s->operand);
    const struct hly_way *way = r->plan->peers[step]->way;
    bool eager = bytes <= way->unannounced_bytes;
    struct hly_out *out = run->out;
    if (!eager && !out) {
        if (is_offered(r))
            hly_control_send(r->comm, (int)s->peer, HLY_EAGER, r->sequence, s->edge, bytes,
                             &r->call, NULL, 0);
        return; /* till the receiver announces itself */
    }
    r->header.edge = s->edge + HLY_SEEDED(WRONG_EDGE, r, step);
    r->header.cookie = bytes;
    if (!out) {
        int rc = bytes <= way->attr.eager_bytes ? hly_out_at_once(r, step, seg) : HALAY_EAGAIN;
        if (rc == HALAY_OK)
            hly_engine_step_done(r, step);
        if (rc >= 0)
            return;
        out = hly_out_new(r->context, HLY_OUT_EAGER, r->plan->peers[step]);
    }
    if (!out) {
        struct hly_verdict_wire v;
        hly_verdict_init(&v, r->comm, HLY_CAUSE_LOCAL, HALAY_ENOMEM, r->comm->rank);
        hly_fault_raise(r->comm, r->sequence, &v);
        return;
    }
    uint64_t landing = out->header.cookie;
    out->header = r->header;
    if (!eager) {
        out->header.kind = HLY_PIECE;
        out->header.cookie = landing;
    }
    out->request = r;
    out->step = step;
    out->segment[0] = seg[0];
    out->segment[1] = seg[1];
    run->out = out;
    hly_out_submit(r->context, out);
}

void hly_channel_announced(halay_request_t *r, uint32_t step, const struct hly_header *h,
                           const struct hly_ready *ready)
{
    static const enum hly_out_kind kinds[] = {
        [HLY_STAGED] = HLY_OUT_STAGED, [HLY_PUT] = HLY_OUT_PUT, [HLY_TAGGED] = HLY_OUT_TAGGED};
    if (ready->mode < HLY_STAGED || ready->mode > HLY_TAGGED ||
        ready->key_bytes > sizeof(ready->key) || r->run[step].out ||
        r->run[step].state == HLY_DONE) {
        hly_log(r->context, HLY_ERROR, "rank %u announced a message wrongly; it was dropped",
                h->from);
        return;
    }
    struct hly_out *out = hly_out_new(r->context, kinds[ready->mode], r->plan->peers[step]);
    if (!out)
        return; /* ends by the deadline */
    out->header.cookie = h->cookie;
    out->ready = *ready;
    if (ready->mode == HLY_PUT) /* the transport finds it there */
        hly_range_of(r, out->peer->way,
                     hly_operand_segments(r, r->plan->plan->steps[step].operand));
    r->run[step].out = out; /* belongs to the step until it is submitted */
    if (r->run[step].state == HLY_STARTED)
        hly_channel_send(r, step);
}

/* ---------------------------------------------------------------- withdrawing */

/* The sender's half. */
void hly_channel_revoke(halay_comm_t *comm, halay_request_t *r, const struct hly_header *h)
{
    bool sent = false;
    uint32_t step = HALAY_STEP_NONE;
    if (r && r->ran)
        step = hly_plan_step(r->plan, HALAY_STEP_SEND, h->from, h->edge);
    if (step != HALAY_STEP_NONE) {
        struct hly_out *out = r->run[step].out;
        sent = r->run[step].state == HLY_DONE;
        if (out && out->request && out->flying) { /* answered when the transport is off it */
            out->revoke = true;
            out->revoke_cookie = h->cookie;
            return;
        }
    }
    hly_control_send(comm, (int)h->from, HLY_REVOKED, h->sequence, sent, h->cookie, NULL, NULL, 0);
}

static void landing_abandon(halay_context_t *context, struct hly_landing *l)
{
    halay_request_t *r = l->request;
    landing_close(context, l);
    hly_fault_progress(r->comm, hly_request_slot(r));
}

/* Takes a tagged landing back from the transport; false if its bytes are still to come. */
static bool tag_withdrawn(halay_context_t *context, struct hly_landing *l)
{
    uint64_t cookie = landing_cookie((uint32_t)(l - context->landings), l);
    if (!l->tag_posted || context->lost)
        return true;
    if (l->peer->way->ops->recv(l->peer->way->transport, cookie, NULL, 0, cookie))
        return false;
    l->tag_posted = false;
    return true;
}

void hly_channel_revoked(halay_context_t *context, const struct hly_header *h,
                         struct hly_peer *peer)
{
    struct hly_landing *l = landing_find(context, h->cookie);
    if (!l || l->peer != peer || !l->revoking)
        return;
    l->sent = true;
    bool on_its_way = h->edge != 0;
    if ((on_its_way && l->tag_posted) || !tag_withdrawn(context, l))
        return; /* the event that it landed closes it */
    landing_abandon(context, l);
}

void hly_channel_withdraw(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    for (uint32_t i = 0; r->ran && i < r->plan->plan->nsteps; i++) {
        struct hly_step_run *run = &r->run[i];
        const halay_step_t *s = &r->plan->plan->steps[i];
        if (run->out && !run->out->request) { /* announced, not on its way */
            hly_out_free(ctx, run->out);
            run->out = NULL;
        } else if (run->out && !run->out->accepted) {
            hly_out_cancel(ctx, run->out);
        }
        if (!run->landing)
            continue;
        struct hly_landing *l = &ctx->landings[run->landing - 1];
        if (l->mode == HLY_STAGED || (l->peer->dead && tag_withdrawn(ctx, l))) {
            landing_cut(ctx, l);
            continue;
        }
        l->revoking = true;
        if (!l->peer->dead)
            hly_control_send(r->comm, (int)s->peer, HLY_REVOKE, r->sequence, s->edge,
                             landing_cookie(run->landing - 1, l), &r->call,
                             &hly_request_slot(r)->fault->verdict, sizeof(struct hly_verdict_wire));
    }
}

/*
 * Keys die with their registration and a way that still holds our memory is given up: hard on the
 * connection, so only for peers that have not answered in time.
 */
void hly_channel_force(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    for (uint32_t i = 0; r->ran && i < r->plan->plan->nsteps; i++) {
        uint32_t landing = r->run[i].landing;
        if (landing && tag_withdrawn(ctx, &ctx->landings[landing - 1]))
            landing_cut(ctx, &ctx->landings[landing - 1]);
    }
    struct hly_link *next;
    for (struct hly_link *l = r->flying.next; l != &r->flying; l = next) {
        struct hly_out *out = HLY_OF(l, struct hly_out, link);
        struct hly_peer *peer = out->peer;
        next = l->next;
        bool message = out->kind == HLY_OUT_EAGER || out->kind == HLY_OUT_STAGED;
        if (message && !ctx->lost && hly_range_recall(ctx, peer->way, out->segment[0].address))
            continue;            /* it ends with the next poll */
        if (peer && ctx->lost) { /* no event will come for it */
            hly_link_remove(&out->link);
            hly_link_append(&ctx->outs_flying, &out->link);
            out->request = NULL;
        }
        if (!peer || !peer->ep || ctx->lost)
            continue;
        peer->way->ops->disconnect(peer->way->transport, peer->ep); /* its sends end in errors */
        peer->ep = NULL;
        peer->dead = true;
        snprintf(peer->evidence, sizeof(peer->evidence), "it did not answer in time");
    }
}

void hly_channel_peer_dead(halay_context_t *context, struct hly_peer *peer)
{
    while (!hly_link_empty(&peer->queue))
        hly_out_cancel(context, HLY_OF(peer->queue.next, struct hly_out, link));
    hly_link_remove(&peer->waiting);
    for (uint32_t i = 0; i < context->nlandings; i++) {
        struct hly_landing *l = &context->landings[i];
        if (l->request && l->peer == peer && l->revoking && tag_withdrawn(context, l))
            landing_abandon(context, l);
    }
}

static void lost(halay_context_t *context, const struct hly_way *way)
{
    struct hly_link *next;
    hly_log(context, HLY_ERROR, "the transport %s has failed; no call can go on", way->ops->name);
    context->lost = true;
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        struct hly_verdict_wire v;
        next = l->next;
        hly_verdict_init(&v, r->comm, HLY_CAUSE_LOCAL, HALAY_ETRANSPORT, r->comm->rank);
        snprintf(v.detail, sizeof(v.detail), "its transport %s has failed", way->ops->name);
        if (r->state == HLY_FAILING)
            hly_fault_progress(r->comm, hly_request_slot(r));
        else
            hly_fault_raise(r->comm, r->sequence, &v);
    }
}

/* ---------------------------------------------------------------- events */

static void landed(halay_context_t *context, const struct hly_landing *found, int status,
                   size_t bytes)
{
    struct hly_landing *l = &context->landings[found - context->landings];
    context->counters.received_messages++;
    context->counters.received_bytes += bytes;
    l->tag_posted = false;
    if (!l->revoking && status == HALAY_OK)
        landing_complete(context, l);
    else if (l->revoking && (l->sent || l->peer->dead))
        landing_abandon(context, l);
}

/* A peer's put into a landing is visible. */
static void put_here(halay_context_t *context, struct hly_landing *l)
{
    const halay_plan_t *plan = l->request->plan->plan;
    context->counters.received_messages++;
    context->counters.received_bytes += hly_operand_bytes(l->request, plan->steps[l->step].operand);
    landing_complete(context, l);
}

bool hly_channel_give_back(halay_context_t *context)
{
    const struct hly_way *way = context->lender;
    context->lender = NULL;
    return !way || way->ops->poll(way->transport, NULL, 0) == HALAY_OK;
}

static void message(halay_context_t *context, const halay_event_t *e)
{
    const size_t header = sizeof(struct hly_header);
    const void *payload = e->kind == HALAY_EVENT_LENT ? e->payload : (const char *)e->data + header;
    context->counters.received_messages++;
    if (e->bytes < header) {
        hly_log(context, HLY_ERROR, "a message of %zu bytes has no header; dropped", e->bytes);
        return;
    }
    context->counters.received_bytes += e->bytes - header;
    hly_match(context, e->data, payload, e->bytes - header, e->peer);
}

static void dispatch(halay_context_t *context, const struct hly_way *way, const halay_event_t *e)
{
    struct hly_out *out = (struct hly_out *)(uintptr_t)e->cookie;
    struct hly_landing *l;
    switch (e->kind) {
    case HALAY_EVENT_MESSAGE:
        message(context, e);
        return;
    case HALAY_EVENT_LENT:
        context->lender = way;
        message(context, e);
        hly_channel_give_back(context);
        return;
    case HALAY_EVENT_SENT:
    case HALAY_EVENT_PUT:
        if (!out)
            return; /* a hello */
        assert(out->flying > 0);
        if (e->status)
            out->status = e->status;
        if (--out->flying == 0 && out->accepted)
            hly_out_complete(context, out, out->status);
        return;
    case HALAY_EVENT_IMMEDIATE:
        l = landing_find(context, 1ull << 32 | e->immediate);
        if (l && l->mode == HLY_PUT && l->peer->id.lo == e->peer.lo && l->peer->id.hi == e->peer.hi)
            put_here(context, l);
        return;
    case HALAY_EVENT_LANDED:
        l = landing_find(context, e->cookie);
        if (l)
            landed(context, l, e->status, e->bytes);
        return;
    case HALAY_EVENT_FAILED:
        hly_peer_failed(context, e->peer, e->text);
        return;
    default:
        hly_log(context, HLY_ERROR, "the transport reported an unknown event %d", e->kind);
    }
}

int hly_channel_take(halay_context_t *context, const struct hly_way *way,
                     const halay_event_t events[], int n)
{
    if (n == HALAY_ENOMEM) /* a peer could not be taken in; it is tried again, or fails by itself */
        hly_log(context, HLY_ERROR, "the transport %s lacks memory or descriptors (ulimit -n)",
                way->ops->name);
    else if (n < 0)
        lost(context, way);
    for (int i = 0; i < n; i++)
        dispatch(context, way, &events[i]);
    return n < 0 ? 0 : n;
}

static int poll_way(halay_context_t *context, const struct hly_way *way)
{
    halay_event_t events[16];
    return hly_channel_take(context, way, events, way->ops->poll(way->transport, events, 16));
}

int hly_channel_poll(halay_context_t *context)
{
    int n = 0;
    if (!hly_link_empty(&context->busy_peers))
        hly_channel_flush(context);
    for (int w = 0; w < context->nways && !context->lost; w++)
        n += poll_way(context, &context->ways[w]);
    return n;
}
