/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.c - what is under way. A struct hly_out is one message, or one piece of work of the device.
 * It is in its peer's queue until the transport has accepted all of it, then, if the transport
 * still holds the memory, in request->flying; it ends once, in hly_out_complete() or, cancelled
 * before the transport took any of it, in hly_out_cancel().
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"
#include "core.h"
#include "lend.h"
#include "watch.h"

int hly_out_more(halay_context_t *context)
{
    struct hly_out *out = calloc(1, sizeof(*out));
    if (!out)
        return HALAY_ENOMEM;
    hly_link_append(&context->outs_free, &out->link);
    return HALAY_OK;
}

struct hly_out *hly_out_new(halay_context_t *context, enum hly_out_kind kind, struct hly_peer *peer)
{
    struct hly_out *out = hly_out_next(context);
    if (!out)
        return NULL;
    hly_link_remove(&out->link);
    out->kind = kind;
    out->peer = peer;
    out->request = NULL;
    out->sent_bytes = 0;
    out->flying = 0;
    out->status = 0;
    out->accepted = out->revoke = out->held = false;
    out->payload_bytes = 0;
    return out;
}

void hly_out_free(halay_context_t *context, struct hly_out *out)
{
    hly_link_remove(&out->link);
    hly_link_append(&context->outs_free, &out->link);
}

void hly_header_fill(struct hly_header *h, const halay_comm_t *comm, enum hly_kind kind,
                     uint32_t sequence, uint32_t edge, const struct hly_call *call)
{
    memset(h, 0, sizeof(*h));
    h->comm = comm->id;
    h->sequence = sequence;
    h->edge = edge;
    h->from = (uint32_t)comm->rank;
    h->kind = (uint16_t)kind;
    if (call) {
        h->signature = call->signature;
        h->call = call->brief;
    }
}

/* The hello goes first on every way. Returns what the transport's send returns. */
static int greet(halay_context_t *context, struct hly_peer *peer)
{
    const struct hly_hello *hello = &peer->way->hello;
    struct hly_header h;
    unsigned char message[sizeof(h) + sizeof(*hello)]; /* as header: it need not stay */
    memset(&h, 0, sizeof(h));
    h.kind = HLY_HELLO;
    h.from = (uint32_t)context->info.rank;
    memcpy(message, &h, sizeof(h));
    memcpy(message + sizeof(h), hello, sizeof(*hello));
    int rc = peer->way->ops->send(peer->way->transport, peer->ep, 0, message, sizeof(message), NULL,
                                  0, 0);
    if (rc >= 0)
        peer->greeted = true;
    return rc;
}

static void count_one(halay_context_t *context, struct hly_way *way, size_t bytes)
{
    context->counters.sent_messages++;
    context->counters.sent_bytes += bytes;
    way->traffic.sent_messages++;
    way->traffic.sent_bytes += bytes;
}

/* Counts one accepted message; returns rc. */
static int counted(halay_context_t *context, struct hly_out *out, int rc, size_t bytes)
{
    if (rc < 0)
        return rc;
    out->flying += rc == HALAY_INPROGRESS;
    count_one(context, out->peer->way, bytes);
    return rc;
}

/* What is left of an EAGER or STAGED message, piece by piece. */
static int send_pieces(halay_context_t *context, struct hly_out *out)
{
    const struct hly_way *way = out->peer->way;
    size_t most = out->kind == HLY_OUT_EAGER ? way->attr.eager_bytes : way->attr.piece_bytes;
    size_t total = out->segment[0].bytes + out->segment[1].bytes;
    do {
        bool second = out->segment[1].bytes && out->sent_bytes >= out->segment[0].bytes;
        const struct hly_segment *seg = &out->segment[second];
        size_t at = out->sent_bytes - (second ? out->segment[0].bytes : 0);
        size_t bytes = seg->bytes - at < most ? seg->bytes - at : most;
        out->header.offset = out->sent_bytes | (out->header.offset & HLY_PROMISE);
        int rc = way->ops->send(way->transport, out->peer->ep, 0, &out->header, sizeof(out->header),
                                seg->address + at, bytes, (uint64_t)(uintptr_t)out);
        if (counted(context, out, rc, bytes) < 0)
            return rc;
        hly_saw_bytes(out->request, HLY_SAW_SENT, out->step, out->segment, out->sent_bytes, bytes,
                      out->header.edge);
        out->sent_bytes += bytes;
        if (total - out->sent_bytes <= most && out->sent_bytes < total &&
            HLY_SEEDED(DROP_LAST_PIECE, out->request, out->step))
            out->sent_bytes = total;
    } while (out->sent_bytes < total);
    return HALAY_OK;
}

/* Hands it to the transport. 0: accepted; HALAY_EAGAIN: not all of it; other: the way is lost. */
static int try_out(halay_context_t *context, struct hly_out *out)
{
    const struct hly_way *way = out->peer->way;
    uint64_t cookie = (uint64_t)(uintptr_t)out;
    int rc = out->peer->greeted ? HALAY_OK : greet(context, out->peer);
    if (rc < 0)
        return rc;
    switch (out->kind) {
    case HLY_OUT_CONTROL:
        rc = counted(context, out,
                     way->ops->send(way->transport, out->peer->ep, 0, &out->header,
                                    sizeof(out->header), out->payload, out->payload_bytes, cookie),
                     0);
        break;
    case HLY_OUT_EAGER:
    case HLY_OUT_STAGED:
        rc = send_pieces(context, out);
        break;
    case HLY_OUT_PUT:
        rc = counted(context, out,
                     way->ops->put(way->transport, out->peer->ep, out->segment[0].address,
                                   out->segment[0].bytes, out->ready.key, out->ready.key_bytes,
                                   out->ready.offset, (uint32_t)out->header.cookie, cookie),
                     out->segment[0].bytes);
        break;
    case HLY_OUT_TAGGED:
        rc = counted(context, out,
                     way->ops->send(way->transport, out->peer->ep, out->ready.tag, NULL, 0,
                                    out->segment[0].address, out->segment[0].bytes, cookie),
                     out->segment[0].bytes);
        break;
    case HLY_OUT_DEVICE:
        assert(0);
    }
    if (rc < 0)
        return rc;
    if (out->kind == HLY_OUT_PUT || out->kind == HLY_OUT_TAGGED)
        hly_saw_bytes(out->request, HLY_SAW_SENT, out->step, out->segment, 0, out->segment[0].bytes,
                      out->header.edge);
    out->accepted = true;
    return HALAY_OK;
}

static void send_revoked(const struct hly_out *out, bool sent)
{
    const halay_request_t *r = out->request;
    const halay_step_t *s = &r->plan->plan->steps[out->step];
    hly_control_send(r->comm, (int)s->peer, HLY_REVOKED, r->sequence, sent, out->revoke_cookie,
                     NULL, NULL, 0);
}

/* What it has lent has been taken back, for a call that was given up: hly_range_recall(). */
static void recalled(halay_request_t *r)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_LOCAL, HALAY_ETRANSPORT, r->comm->rank);
    v.call = r->call.brief;
    snprintf(v.detail, sizeof(v.detail),
             "its memory is that of another call too, which was given up");
    hly_fault_raise(r->comm, r->sequence, &v);
}

void hly_out_complete(halay_context_t *context, struct hly_out *out, int status)
{
    halay_request_t *r = out->request;
    uint32_t step = out->step;
    bool device = out->kind == HLY_OUT_DEVICE;
    bool is_message = out->kind == HLY_OUT_EAGER || out->kind == HLY_OUT_STAGED;
    bool held = out->held;
    hly_link_remove(&out->link);
    if (out->revoke)
        send_revoked(out, status == HALAY_OK);
    if (r && !device && !held)
        r->run[step].out = NULL;
    hly_out_free(context, out);
    if (!r)
        return;
    if (!held)
        HLY_SAW(LEFT, r, step);
    if (device && step != HALAY_STEP_NONE && --r->run[step].arrived > 0 && r->state == HLY_RUNNING)
        return;
    if (r->state == HLY_FAILING) {
        hly_fault_progress(r->comm, hly_request_slot(r));
    } else if (r->state == HLY_SCALING) {
        hly_engine_result(r);
    } else if (device && step == HALAY_STEP_NONE) {
        hly_engine_prescaled(r);
    } else if (held && status != HALAY_ETRANSPORT && r->state == HLY_RUNNING) {
        hly_engine_run(r);
    } else if (status == HALAY_OK && r->state == HLY_RUNNING && !hly_was_early(r, step)) {
        hly_engine_step_done(r, step);
        hly_engine_run(r);
    } else if (status == HALAY_ETRANSPORT && r->state == HLY_RUNNING && is_message) {
        recalled(r);
    } /* else the event that the peer failed says why */
}

static void accepted(halay_context_t *context, struct hly_out *out)
{
    if (!out->flying) {
        hly_out_complete(context, out, HALAY_OK);
    } else if (out->request) {
        hly_link_remove(&out->link);
        hly_link_append(&out->request->flying, &out->link);
        if (out->request->state == HLY_RUNNING && HLY_SEEDED(SEND_EARLY, out->request, out->step))
            hly_engine_step_done(out->request, out->step);
    } else {
        hly_link_remove(&out->link);
        hly_link_append(&context->outs_flying, &out->link);
    }
}

/* Neither taken nor full nor lost: it would wait for ever, so it ends its call. */
static void refused(halay_context_t *context, struct hly_out *out, int rc)
{
    halay_request_t *r = out->request;
    const char *name = out->peer->way->ops->name;
    hly_log(context, HLY_ERROR, "the transport %s refuses a message to rank %d: %s", name,
            out->peer->world_rank, halay_strerror(rc));
    hly_out_cancel(context, out);
    if (!r || r->state != HLY_RUNNING)
        return;
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_LOCAL, HALAY_ETRANSPORT, r->comm->rank);
    v.call = r->call.brief;
    snprintf(v.detail, sizeof(v.detail), "its transport %s refuses a message: %s", name,
             halay_strerror(rc));
    hly_fault_raise(r->comm, r->sequence, &v);
}

void hly_out_submit(halay_context_t *context, struct hly_out *out)
{
    struct hly_peer *peer = out->peer;
    if (peer->dead || context->lost) {
        out->accepted = true;
        hly_out_complete(context, out, HALAY_EPEER);
        return;
    }
    int rc = hly_link_empty(&peer->queue) ? try_out(context, out) : HALAY_EAGAIN;
    if (rc == HALAY_OK) {
        accepted(context, out);
        return;
    }
    if (rc != HALAY_EAGAIN && rc != HALAY_EPEER) {
        refused(context, out, rc);
        return;
    }
    /* a way that is lost: the transport's event will empty the queue */
    hly_link_append(&peer->queue, &out->link);
    if (hly_link_empty(&peer->waiting))
        hly_link_append(&context->busy_peers, &peer->waiting);
}

bool hly_out_can(const halay_request_t *r, uint32_t step)
{
    const struct hly_peer *peer = r->plan->peers[step];
    return peer->greeted && !peer->dead && !r->context->lost && hly_link_empty(&peer->queue);
}

/* A message that has gone, with the next out as its cookie: the transport has lent it. */
static struct hly_out *fly(halay_request_t *r, uint32_t step, struct hly_segment segment)
{
    struct hly_out *out = hly_out_new(r->context, HLY_OUT_EAGER, r->plan->peers[step]);
    out->request = r;
    out->step = step;
    out->segment[0] = segment;
    out->segment[1] = (struct hly_segment){0};
    out->flying = 1;
    out->accepted = true;
    return out;
}

static void hold(struct hly_out *out)
{
    out->held = true;
    hly_link_remove(&out->link);
    hly_link_append(&out->request->flying, &out->link);
}

int hly_out_ahead(halay_request_t *r, uint32_t step, struct hly_segment payload)
{
    struct hly_peer *peer = r->plan->peers[step];
    const struct hly_way *way = peer->way;
    struct hly_out *out = hly_out_next(r->context);
    if (!out)
        return HALAY_ENOMEM;
    int rc = way->ops->send(way->transport, peer->ep, 0, &r->header, sizeof(r->header),
                            payload.address, payload.bytes, (uint64_t)(uintptr_t)out);
    if (rc < 0)
        return rc;
    count_one(r->context, peer->way, payload.bytes);
    if (rc == HALAY_INPROGRESS)
        hold(fly(r, step, payload));
    return HALAY_OK;
}

/*
 * Two ranks that reduce in place, each into what the other one reads, would wait for one another if
 * that was lent: there it is copied after all.
 */
__attribute__((noinline)) static const void *payload_in_place(const halay_request_t *r,
                                                              const struct hly_peer *peer,
                                                              const struct hly_segment *segment)
{
    const struct hly_way *way = peer->way;
    void *place = NULL;
    if (r->plan->plan->params.collective == HALAY_ALLGATHER || !segment->bytes ||
        !hly_range_lends(r->context, way, segment->address) ||
        way->ops->place(way->transport, peer->ep, sizeof(r->header), segment->bytes, &place))
        return segment->address;
    memcpy(place, segment->address, segment->bytes);
    return place;
}

/* It has gone, but its memory is lent. */
__attribute__((noinline)) static int lent_at_once(halay_request_t *r, uint32_t step,
                                                  const struct hly_segment *segment)
{
    struct hly_out *out = fly(r, step, *segment);
    if (!hly_ahead_holds(r, step)) {
        r->run[step].out = out;
        accepted(r->context, out);
        return HALAY_INPROGRESS;
    }
    hold(out);
    HLY_SAW(LEFT, r, step);
    return HALAY_OK;
}

int hly_out_at_once(halay_request_t *r, uint32_t step, const struct hly_segment *segment)
{
    halay_context_t *ctx = r->context;
    const struct hly_plan *plan = r->plan;
    struct hly_peer *peer = plan->peers[step];
    struct hly_way *way = peer->way;
    const struct hly_out *out = hly_out_next(ctx);
    if (!out || !hly_out_can(r, step) || segment[1].bytes)
        return HALAY_EAGAIN;
    const void *payload = segment->address;
    if (plan->plan->params.in_place)
        payload = payload_in_place(r, peer, segment);
    int rc = way->ops->send(way->transport, peer->ep, 0, &r->header, sizeof(r->header), payload,
                            segment->bytes, (uint64_t)(uintptr_t)out);
    if (rc < 0)
        return rc;
    count_one(ctx, way, segment->bytes);
    hly_saw_bytes(r, HLY_SAW_SENT, step, segment, 0, segment->bytes, r->header.edge);
    if (rc == HALAY_INPROGRESS)
        return lent_at_once(r, step, segment);
    HLY_SAW(LEFT, r, step);
    return HALAY_OK;
}

void hly_channel_flush(halay_context_t *context)
{
    struct hly_link *l = context->busy_peers.next, *next;
    for (; l != &context->busy_peers; l = next) {
        struct hly_peer *peer = HLY_OF(l, struct hly_peer, waiting);
        next = l->next;
        while (!hly_link_empty(&peer->queue) && !peer->dead) {
            struct hly_out *out = HLY_OF(peer->queue.next, struct hly_out, link);
            int rc = try_out(context, out);
            if (rc == HALAY_EAGAIN || rc == HALAY_EPEER)
                break;
            if (rc == HALAY_OK)
                accepted(context, out);
            else
                refused(context, out, rc);
        }
        if (hly_link_empty(&peer->queue)) {
            next = peer->waiting.next; /* peers may have been appended */
            hly_link_remove(&peer->waiting);
        }
    }
}

void hly_control_send(halay_comm_t *comm, int to, enum hly_kind kind, uint32_t sequence,
                      uint32_t edge, uint64_t cookie, const struct hly_call *call,
                      const void *payload, size_t payload_bytes)
{
    halay_context_t *ctx = comm->context;
    struct hly_peer *peer;
    struct hly_out *out = NULL;
    if (ctx->lost)
        return;
    int rc = hly_peer_get(ctx, hly_comm_world_rank(comm, to), &peer);
    if (!rc)
        out = hly_out_new(ctx, HLY_OUT_CONTROL, peer);
    if (!out) {
        hly_log(ctx, HLY_ERROR, "rank %d cannot be told of this call: %s", to,
                halay_strerror(rc ? rc : HALAY_ENOMEM));
        return;
    }
    assert(payload_bytes <= sizeof(out->payload));
    hly_header_fill(&out->header, comm, kind, sequence, edge, call);
    out->header.cookie = cookie;
    out->payload_bytes = (uint32_t)payload_bytes;
    if (payload_bytes)
        memcpy(out->payload, payload, payload_bytes);
    hly_out_submit(ctx, out);
}

void hly_out_cancel(halay_context_t *context, struct hly_out *out)
{
    halay_request_t *r = out->request;
    hly_link_remove(&out->link);
    if (out->flying) { /* some of it is with the transport: wait for that */
        out->accepted = true;
        hly_link_append(r ? &r->flying : &context->outs_flying, &out->link);
        return;
    }
    if (r)
        r->run[out->step].out = NULL;
    hly_out_free(context, out);
}
