/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rendezvous.c - messages that do not leave at once (send.c), and how their targets are withdrawn.
 * How one travels depends on its size and on what its receiver announces, never on the plan:
 *  - eager: up to unannounced_bytes, at once. What comes early is kept, which is bounded (match.c)
 *  - staged: in pieces through the transport's own memory, once the receiver has announced itself
 *  - put: written into the receiver's memory by the transport (HALAY_CAN_PUT)
 *  - tagged: into a buffer that the receiver has posted (HALAY_CAN_LAND)
 * What is sent from memory that the transport lends need not be copied: the receiver reads it
 * there. Beyond unannounced_bytes nothing is sent that has no place to go to.
 *
 * A target is withdrawn by a handshake (docs/decisions/transports.md#0006): REVOKE, and the
 * sender's REVOKED once its transport is off the memory. A dead sender needs none. Before that no
 * call returns an error.
 */
#include "wire/rendezvous.h"
#include "plan/collective.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/expected.h"
#include "wire/match.h"
#include "wire/news.h"
#include "wire/register.h"
#include "wire/watch.h"

/* ---------------------------------------------------------------- targets */

static struct hly_target *target_new(halay_context_t *context, uint32_t *index)
{
    if (!context->target_free) {
        uint32_t n = context->ntargets ? 2 * context->ntargets : 64;
        struct hly_target *all =
            n <= HLY_TARGETS_MAX ? realloc(context->targets, n * sizeof(*all)) : NULL;
        if (!all)
            return NULL;
        memset(all + context->ntargets, 0, (n - context->ntargets) * sizeof(*all));
        for (uint32_t i = n; i > context->ntargets; i--) {
            all[i - 1].next_free = context->target_free;
            context->target_free = i;
        }
        context->targets = all;
        context->ntargets = n;
    }
    *index = context->target_free - 1;
    struct hly_target *l = &context->targets[*index];
    context->target_free = l->next_free;
    l->generation++;
    l->revoking = l->tag_posted = l->sent = false;
    l->mem = NULL;
    l->range = NULL;
    return l;
}

/* How a target is named in messages: never 0, and the low 32 bits serve as an immediate. */
static uint64_t target_cookie(uint32_t index, const struct hly_target *l)
{
    return 1ull << 32 | (uint64_t)l->generation << 16 | index;
}

static struct hly_target *target_find(halay_context_t *context, uint64_t cookie)
{
    uint32_t index = cookie & 0xffff;
    if (index >= context->ntargets)
        return NULL;
    struct hly_target *l = &context->targets[index];
    return l->request && l->generation == (uint16_t)(cookie >> 16) ? l : NULL;
}

static void target_close(halay_context_t *context, struct hly_target *l)
{
    if (l->mem)
        l->peer->transport->ops->deregister_mem(l->peer->transport->handle, l->mem);
    if (l->range)
        l->range->targets--;
    l->mem = NULL;
    l->range = NULL;
    l->request->run.step[l->step].target = 0;
    l->request->targets--;
    l->request = NULL;
    l->next_free = context->target_free;
    context->target_free = (uint32_t)(l - context->targets) + 1;
}

/*
 * Closes a target whose sender has not said that it is off the memory. Unless the transport has
 * told FAILED of the sender, it may still write; so the key is revoked, also that of a range.
 */
static void target_cut(halay_context_t *context, struct hly_target *l)
{
    if (l->range && !(l->peer->dead && l->peer->ep))
        hly_range_revoke(context, l->range, l->peer->transport);
    target_close(context, l);
}

/* The data are all there. */
static void target_complete(halay_context_t *context, struct hly_target *l)
{
    halay_request_t *r = l->request;
    const uint32_t step = l->step;
    if (l->revoking) { /* too late for the call; REVOKED closes it */
        r->run.state[step] = HLY_DONE;
        return;
    }
    if (l->range && l->range->flushes && r->device->ops->flush(r->device->handle) < 0)
        hly_news_fail(
            r, HALAY_EDEVICE,
            "GPUDirect: its GPU could not be flushed: %s; HALAY_GPUDIRECT=0 needs no flush",
            r->device->ops->why(r->device->handle));
    if (l->mode != HLY_STAGED)
        hly_saw_bytes(r, HLY_SAW_LANDED, step, NULL, 0, 0, 0);
    target_close(context, l);
    struct hly_news *n = hly_news_leave(context, HLY_NEWS_LANDED, r);
    if (n)
        n->step = step;
}

/* Where the extent is registered. NULL: nowhere; in a device's memory the call fails then. */
static struct hly_range *range_for(halay_request_t *r, uint32_t step, const struct hly_extent *ext)
{
    const struct hly_transport *transport = r->plan->peers[step]->transport;
    char why[160] = "";
    if (!r->direct)
        return hly_range_of(r, transport, ext);
    struct hly_range *range = hly_range_direct(r, transport, ext, why, sizeof(why));
    if (!range)
        hly_news_fail(r, HALAY_EDEVICE,
                      "GPUDirect: the transport %s cannot reach its memory: %s; HALAY_GPUDIRECT=0 "
                      "has it copied through the host's",
                      transport->ops->name, why);
    return range;
}

/* Makes a target for a put: in a range of the registration cache, or registered by itself. */
static bool put_offered(struct hly_target *l, const struct hly_extent *ext, struct hly_ready *ready)
{
    const struct hly_transport *transport = l->peer->transport;
    size_t bytes = sizeof(ready->key);
    const halay_mem_t *mem;
    if (!(transport->attr.capabilities & HALAY_CAN_PUT))
        return false;
    l->range = range_for(l->request, l->step, ext);
    if (l->range) {
        l->range->targets++;
        mem = l->range->mem[transport - l->request->context->transports];
        ready->offset = (uint64_t)(ext->address - l->range->address);
    } else if (l->request->direct || hly_mem_register(l->request->context, transport, ext->address,
                                                      ext->bytes, &l->mem)) {
        return false;
    } else {
        mem = l->mem;
    }
    int rc = transport->ops->key(transport->handle, mem, ready->key, &bytes);
    assert(!rc); /* it is registered, and there is room */
    ready->key_bytes = (uint32_t)bytes;
    return !rc;
}

/* Prepares the memory for the best mode that the transport has; STAGED needs nothing. */
static enum hly_mode choose_mode(struct hly_target *l, uint64_t cookie, struct hly_ready *ready)
{
    const struct hly_transport *transport = l->peer->transport;
    const halay_plan_t *plan = l->request->plan->plan;
    uint32_t operand = plan->steps[l->step].operand;
    const struct hly_extent *ext = hly_operand_extents(l->request, operand);
    const halay_operand_t *o = &plan->operands[operand];
    if (o->first + o->count > plan->blocks ||
        (o->count > 1 && hly_collective_is_exchange(plan->params.collective))) {
        assert(!l->request->direct); /* hly_is_direct() */
        return HLY_STAGED;           /* it may be in two extents here or at the sender */
    }
    if (put_offered(l, ext, ready) || l->request->direct)
        return HLY_PUT; /* without a key the call has failed */
    if (transport->attr.capabilities & HALAY_CAN_LAND &&
        !transport->ops->recv(transport->handle, cookie, ext[0].address, ext[0].bytes, cookie)) {
        ready->tag = cookie;
        l->tag_posted = true;
        return HLY_TAGGED;
    }
    return HLY_STAGED;
}

void hly_rendezvous_announce(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = hly_step(r, step);
    uint32_t index;
    struct hly_target *l = target_new(r->context, &index);
    if (!l) {
        hly_news_fail(r, HALAY_ENOMEM, "too many messages are announced at once");
        return;
    }
    struct hly_ready ready;
    memset(&ready, 0, sizeof(ready));
    l->request = r;
    l->step = step;
    l->peer = r->plan->peers[step];
    uint64_t cookie = target_cookie(index, l);
    l->mode = (uint8_t)choose_mode(l, cookie, &ready);
    ready.mode = l->mode;
    ready.segment = (uint16_t)r->segments.number;
    ready.bytes = hly_operand_bytes(r, s->operand);
    r->run.step[step].target = index + 1;
    r->targets++;
    if (l->mode == HLY_PUT && !ready.key_bytes) { /* range_for() has failed the call */
        target_close(r->context, l);
        return;
    }
    if (hly_control_send(r->comm, (int)s->peer, HLY_READY, r->sequence, s->edge, cookie, &r->call,
                         &ready, sizeof(ready)))
        hly_news_fail(r, HALAY_ENOMEM, "no memory to announce a message");
}

bool hly_target_piece(halay_context_t *context, const struct hly_header *h, const void *data,
                      size_t bytes, const struct hly_peer *peer)
{
    struct hly_target *l = target_find(context, h->cookie);
    if (!l || l->peer != peer || l->mode != HLY_STAGED || l->revoking)
        return false; /* the call has failed here meanwhile */
    if (hly_land(l->request, l->step, h->offset, data, bytes) >= HLY_LANDED_ALL)
        target_complete(context, l);
    return true;
}

/* ---------------------------------------------------------------- sending a step */

/*
 * Is an offer sent, a header without its payload? It is where a receiver whose call differs might
 * neither announce itself nor send, so that nobody would learn of it. In an alltoallv the counts
 * may differ; in a broadcast on one node the root, or in one whose data are among the messages by
 * which all hear from all. Only of the first segment: the others are alike.
 */
static bool is_offered(const halay_request_t *r)
{
    const struct hly_call_desc *b = &r->call.desc;
    if (r->segments.number)
        return false;
    if (hly_collective_is_exchange(b->collective))
        return r->layout.tables != NULL;
    return hly_collective_is_from_root(b->collective) &&
           (r->comm->nnodes < 2 || halay_planner_get(r->plan->plan->planner)->restrictions &
                                       (HALAY_PLANNER_SHORT | HALAY_PLANNER_ROUNDS));
}

/* What carries the step's message: the one that its receiver has announced, or a new one. */
static struct hly_send *carrier(halay_request_t *r, uint32_t step, bool eager)
{
    struct hly_send *send = r->run.step[step].send;
    if (!send)
        send = hly_send_new(r->context, HLY_SEND_EAGER, r->plan->peers[step]);
    if (!send)
        return NULL;
    const struct hly_extent *ext = hly_operand_extents(r, hly_step(r, step)->operand);
    const uint64_t target = send->header.cookie;
    send->header = r->header;
    send->header.cookie = ext[0].bytes + ext[1].bytes;
    if (!eager) {
        send->header.kind = HLY_PIECE;
        send->header.cookie = target;
    }
    send->request = r;
    send->step = step;
    send->extent[0] = ext[0];
    send->extent[1] = ext[1];
    return send;
}

int hly_rendezvous_send(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = hly_step(r, step);
    struct hly_step_run *run = &r->run.step[step];
    const size_t bytes = hly_operand_bytes(r, s->operand);
    const bool eager = !hly_is_announced(r, step, bytes);
    if (!eager && !run->send) {
        if (is_offered(r))
            hly_control_send(r->comm, (int)s->peer, HLY_EAGER, r->sequence, s->edge, bytes,
                             &r->call, NULL, 0);
        return HALAY_INPROGRESS; /* until the receiver announces itself */
    }
    struct hly_send *send = carrier(r, step, eager);
    if (!send) {
        hly_news_fail(r, HALAY_ENOMEM, "no memory to send a message");
        return HALAY_INPROGRESS;
    }
    run->send = send;
    return hly_send_submit(r->context, send);
}

void hly_rendezvous_announced(halay_request_t *r, uint32_t step, const struct hly_header *h,
                              const struct hly_ready *ready)
{
    static const enum hly_send_kind kinds[] = {
        [HLY_STAGED] = HLY_SEND_STAGED, [HLY_PUT] = HLY_SEND_PUT, [HLY_TAGGED] = HLY_SEND_TAGGED};
    struct hly_step_run *run = &r->run.step[step];
    if (ready->mode < HLY_STAGED || ready->mode > HLY_TAGGED ||
        ready->key_bytes > sizeof(ready->key) || run->send || r->run.state[step] == HLY_DONE) {
        hly_peer_nonsense(r->context, r->plan->peers[step], "a message's place that cannot be");
        return;
    }
    /* registers it, so that the put finds the registration */
    if (ready->mode == HLY_PUT &&
        !range_for(r, step, hly_operand_extents(r, hly_step(r, step)->operand)) && r->direct)
        return; /* it has failed */
    struct hly_send *send = hly_send_new(r->context, kinds[ready->mode], r->plan->peers[step]);
    if (!send) {
        hly_news_fail(r, HALAY_ENOMEM, "no memory to send a message");
        return;
    }
    send->header.cookie = h->cookie;
    send->ready = *ready;
    run->send = send; /* it has no request until it is submitted */
    struct hly_news *n;
    if (r->run.state[step] == HLY_STARTED && hly_step_send(r, step) == HALAY_OK &&
        (n = hly_news_leave(r->context, HLY_NEWS_SENT, r)))
        n->step = step;
}

/* ---------------------------------------------------------------- withdrawing */

/* The sender's half of the handshake. */
void hly_rendezvous_revoke(halay_comm_t *comm, halay_request_t *r, const struct hly_header *h)
{
    bool sent = false;
    uint32_t step = HALAY_STEP_NONE;
    if (r && r->run.ran && r->call.signature == h->signature) /* else its plan is another one */
        step = hly_plan_step(r->plan->plan, &r->plan->uses, HALAY_STEP_SEND, h->from, h->edge);
    if (step != HALAY_STEP_NONE) {
        struct hly_send *send = r->run.step[step].send;
        sent = r->run.state[step] == HLY_DONE;
        if (send && send->request && send->flying) { /* answered when the transport is off it */
            send->revoke = true;
            send->revoke_cookie = h->cookie;
            return;
        }
    }
    hly_control_send(comm, (int)h->from, HLY_REVOKED, h->sequence, sent, h->cookie, NULL, NULL, 0);
}

static void target_abandon(halay_context_t *context, struct hly_target *l)
{
    halay_request_t *r = l->request;
    target_close(context, l);
    hly_news_leave(context, HLY_NEWS_QUIET, r);
}

/* Takes a posted buffer back from the transport; false: its bytes are landing. */
static bool tag_withdrawn(halay_context_t *context, struct hly_target *l)
{
    uint64_t cookie = target_cookie((uint32_t)(l - context->targets), l);
    if (!l->tag_posted || context->lost)
        return true;
    if (l->peer->transport->ops->withdraw(l->peer->transport->handle, cookie))
        return false;
    l->tag_posted = false;
    return true;
}

void hly_rendezvous_revoked(halay_context_t *context, const struct hly_header *h,
                            const struct hly_peer *peer)
{
    struct hly_target *l = target_find(context, h->cookie);
    if (!l || l->peer != peer || !l->revoking)
        return;
    l->sent = true;
    bool on_its_way = h->edge != 0;
    if ((on_its_way && l->tag_posted) || !tag_withdrawn(context, l))
        return; /* its LANDED closes it */
    target_abandon(context, l);
}

void hly_rendezvous_withdraw(halay_request_t *r, const struct hly_verdict_wire *verdict)
{
    halay_context_t *ctx = r->context;
    for (uint32_t i = 0; r->run.ran && i < r->plan->nsteps; i++) {
        struct hly_step_run *run = &r->run.step[i];
        if (run->send && !run->send->request) { /* announced by the receiver, not submitted yet */
            hly_send_free(ctx, run->send);
            run->send = NULL;
        } else if (run->send && !run->send->accepted) {
            hly_send_cancel(ctx, run->send);
        }
        if (!run->target)
            continue;
        struct hly_target *l = &ctx->targets[run->target - 1];
        if (l->mode == HLY_STAGED || (l->peer->dead && tag_withdrawn(ctx, l))) {
            target_cut(ctx, l);
            continue;
        }
        l->revoking = true;
        if (!l->peer->dead)
            hly_control_send(r->comm, (int)hly_step(r, i)->peer, HLY_REVOKE, r->sequence,
                             hly_step(r, i)->edge, target_cookie(run->target - 1, l), &r->call,
                             verdict, sizeof(*verdict));
    }
}

/*
 * Revokes all keys. A peer whose bytes still land here, or who still reads our memory, is severed.
 * That ends the connection, so it is for peers that have not answered in time.
 */
void hly_rendezvous_force(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    for (uint32_t i = 0; r->run.ran && i < r->plan->nsteps; i++) {
        uint32_t target = r->run.step[i].target;
        struct hly_target *l = target ? &ctx->targets[target - 1] : NULL;
        if (l && tag_withdrawn(ctx, l))
            target_cut(ctx, l);
        else if (l) /* its LANDED closes it */
            hly_peer_sever(ctx, l->peer, "it did not answer in time");
    }
    struct hly_link *next;
    for (struct hly_link *l = r->flying.next; l != &r->flying; l = next) {
        struct hly_send *send = HLY_OF(l, struct hly_send, link);
        struct hly_peer *peer = send->peer;
        next = l->next;
        bool message = send->kind == HLY_SEND_EAGER || send->kind == HLY_SEND_STAGED;
        if (message && !ctx->lost &&
            hly_range_recall(ctx, peer->transport, send->extent[0].address))
            continue;            /* the send ends with the next poll */
        if (peer && ctx->lost) { /* no event will come for the send */
            hly_link_remove(&send->link);
            hly_link_append(&ctx->sends_flying, &send->link);
            send->request = NULL;
        } else if (peer) {
            hly_peer_sever(ctx, peer, "it did not answer in time");
        }
    }
}

void hly_targets_peer_lost(halay_context_t *context, const struct hly_peer *peer)
{
    for (uint32_t i = 0; i < context->ntargets; i++) {
        struct hly_target *l = &context->targets[i];
        if (!l->request || l->peer != peer || !l->revoking || !tag_withdrawn(context, l))
            continue;
        halay_request_t *r = l->request;
        target_cut(context, l);
        hly_news_leave(context, HLY_NEWS_QUIET, r);
    }
}

/* ---------------------------------------------------------------- events */

void hly_target_landed(halay_context_t *context, uint64_t cookie, int status, size_t bytes)
{
    struct hly_target *l = target_find(context, cookie);
    if (!l)
        return;
    context->counters.received_messages++;
    context->counters.received_bytes += bytes;
    l->tag_posted = false;
    const size_t said = hly_operand_bytes(l->request, hly_step(l->request, l->step)->operand);
    if (!l->revoking && (status == HALAY_EINVAL || (status == HALAY_OK && bytes != said)))
        hly_peer_nonsense(context, l->peer, "a message of another length than it said");
    else if (!l->revoking && status == HALAY_OK)
        target_complete(context, l);
    else if (l->revoking && (l->sent || l->peer->dead))
        target_abandon(context, l);
}

/* A peer's put into a target is complete, and visible here. */
void hly_target_put(halay_context_t *context, uint32_t immediate, halay_peer_id_t peer)
{
    struct hly_target *l = target_find(context, 1ull << 32 | immediate);
    if (!l || l->mode != HLY_PUT || l->peer->id.lo != peer.lo || l->peer->id.hi != peer.hi)
        return;
    context->counters.received_messages++;
    context->counters.received_bytes +=
        hly_operand_bytes(l->request, hly_step(l->request, l->step)->operand);
    target_complete(context, l);
}
