/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send.c - messages that are sent. A struct hly_send is one message, or one piece of work of a
 * device. It waits in its peer's queue until the transport has taken all of it. If the transport
 * then still holds the memory, it is in request->flying. It ends once: in hly_send_complete(), or
 * in hly_send_cancel() if the transport took nothing of it.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/message.h"
#include "wire/news.h"
#include "wire/register.h"
#include "wire/rendezvous.h"
#include "wire/watch.h"

static int more(halay_context_t *context)
{
    struct hly_send *send = calloc(1, sizeof(*send));
    if (!send)
        return HALAY_ENOMEM;
    hly_link_append(&context->sends_unused, &send->link);
    return HALAY_OK;
}

struct hly_send *hly_send_next(halay_context_t *context)
{
    if (hly_link_empty(&context->sends_unused) && more(context))
        return NULL;
    return HLY_OF(context->sends_unused.next, struct hly_send, link);
}

struct hly_send *hly_send_new(halay_context_t *context, enum hly_send_kind kind,
                              struct hly_peer *peer)
{
    struct hly_send *send = hly_send_next(context);
    if (!send)
        return NULL;
    hly_link_remove(&send->link);
    send->kind = kind;
    send->peer = peer;
    send->request = send->message = NULL;
    send->sent_bytes = 0;
    send->flying = 0;
    send->status = 0;
    send->accepted = send->revoke = send->held = false;
    send->payload_bytes = 0;
    return send;
}

void hly_send_free(halay_context_t *context, struct hly_send *send)
{
    hly_link_remove(&send->link);
    hly_link_append(&context->sends_unused, &send->link);
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
        h->call = call->desc;
    }
}

/* Sends the hello, which goes first to each peer. Returns what the transport's send returns. */
static int greet(halay_context_t *context, struct hly_peer *peer)
{
    const struct hly_hello *hello = &peer->transport->hello;
    struct hly_header h;
    unsigned char message[sizeof(h) + sizeof(*hello)]; /* sent as a header, since a payload would
                                                          have to stay */
    memset(&h, 0, sizeof(h));
    h.kind = HLY_HELLO;
    h.from = (uint32_t)context->info.rank;
    memcpy(message, &h, sizeof(h));
    memcpy(message + sizeof(h), hello, sizeof(*hello));
    int rc = peer->transport->ops->send(peer->transport->handle, peer->ep, 0, message,
                                        sizeof(message), NULL, 0, 0);
    if (rc >= 0)
        peer->greeted = true;
    return rc;
}

static void count_one(struct hly_transport *transport, size_t bytes)
{
    transport->traffic.sent_messages++;
    transport->traffic.sent_bytes += bytes;
}

/* Counts one accepted message; returns rc. */
static int counted(struct hly_send *send, int rc, size_t bytes)
{
    if (rc < 0)
        return rc;
    send->flying += rc == HALAY_INPROGRESS;
    count_one(send->peer->transport, bytes);
    return rc;
}

/* Sends what is left of an EAGER or STAGED message, piece by piece. */
static int pieces_send(struct hly_send *send)
{
    const struct hly_transport *transport = send->peer->transport;
    size_t most =
        send->kind == HLY_SEND_EAGER ? transport->attr.eager_bytes : transport->attr.piece_bytes;
    size_t total = send->extent[0].bytes + send->extent[1].bytes;
    do {
        bool second = send->extent[1].bytes && send->sent_bytes >= send->extent[0].bytes;
        const struct hly_extent *ext = &send->extent[second];
        size_t at = send->sent_bytes - (second ? send->extent[0].bytes : 0);
        size_t bytes = ext->bytes - at < most ? ext->bytes - at : most;
        send->header.offset = send->sent_bytes;
        int rc = transport->ops->send(transport->handle, send->peer->ep, 0, &send->header,
                                      sizeof(send->header), ext->address + at, bytes,
                                      (uint64_t)(uintptr_t)send);
        if (counted(send, rc, bytes) < 0)
            return rc;
        if (send->request)
            hly_saw_bytes(send->request, HLY_SAW_SENT, send->step, send->extent, send->sent_bytes,
                          bytes, send->header.edge);
        send->sent_bytes += bytes;
        if (send->request && total - send->sent_bytes <= most && send->sent_bytes < total &&
            HLY_SEEDED(DROP_LAST_PIECE, send->request, send->step))
            send->sent_bytes = total;
    } while (send->sent_bytes < total);
    return HALAY_OK;
}

/* Hands it to the transport. HALAY_OK: all is taken; HALAY_EAGAIN: not all; else the transport
 * refuses it. */
static int try_send(halay_context_t *context, struct hly_send *send)
{
    const struct hly_transport *transport = send->peer->transport;
    uint64_t cookie = (uint64_t)(uintptr_t)send;
    int rc = send->peer->greeted ? HALAY_OK : greet(context, send->peer);
    if (rc < 0)
        return rc;
    switch (send->kind) {
    case HLY_SEND_CONTROL:
        rc = counted(send,
                     transport->ops->send(transport->handle, send->peer->ep, 0, &send->header,
                                          sizeof(send->header), send->payload, send->payload_bytes,
                                          cookie),
                     0);
        break;
    case HLY_SEND_EAGER:
    case HLY_SEND_STAGED:
        rc = pieces_send(send);
        break;
    case HLY_SEND_PUT:
        rc = counted(send,
                     transport->ops->put(transport->handle, send->peer->ep, send->extent[0].address,
                                         send->extent[0].bytes, send->ready.key,
                                         send->ready.key_bytes, send->ready.offset,
                                         (uint32_t)send->header.cookie, cookie),
                     send->extent[0].bytes);
        break;
    case HLY_SEND_TAGGED:
        rc =
            counted(send,
                    transport->ops->send(transport->handle, send->peer->ep, send->ready.tag, NULL,
                                         0, send->extent[0].address, send->extent[0].bytes, cookie),
                    send->extent[0].bytes);
        break;
    case HLY_SEND_DEVICE:
    case HLY_SEND_GROUP:
        assert(0);
    }
    if (rc < 0)
        return rc;
    if (send->kind == HLY_SEND_PUT || send->kind == HLY_SEND_TAGGED)
        hly_saw_bytes(send->request, HLY_SAW_SENT, send->step, send->extent, 0,
                      send->extent[0].bytes, send->header.edge);
    send->accepted = true;
    return HALAY_OK;
}

static void send_revoked(const struct hly_send *send, bool sent)
{
    const halay_request_t *r = send->request;
    const halay_step_t *s = hly_step(r, send->step);
    hly_control_send(r->comm, (int)s->peer, HLY_REVOKED, r->sequence, sent, send->revoke_cookie,
                     NULL, NULL, 0);
}

static void leave_sent(halay_request_t *r, uint32_t step)
{
    struct hly_news *n = hly_news_leave(r->context, HLY_NEWS_SENT, r);
    if (n)
        n->step = step;
}

/* Leaves what it means for the call that a message has ended. */
static void news_of(halay_context_t *context, halay_request_t *r, uint32_t step, bool held,
                    bool message, int status)
{
    if (r->state == HLY_FAILING) {
        if (status == HALAY_OK && !held)
            r->run.state[step] = HLY_DONE; /* its peer may end now: fault/events.c */
        hly_news_leave(context, HLY_NEWS_QUIET, r);
    } else if (r->state != HLY_RUNNING) {
        return;
    } else if (status == HALAY_ETRANSPORT && message) { /* hly_range_recall() */
        hly_news_fail(r, HALAY_ETRANSPORT,
                      "its memory is that of another call too, which was given up");
    } else if (held) {
        if (hly_link_empty(&r->flying))
            hly_news_leave(context, HLY_NEWS_BACK, r);
    } else if (status == HALAY_OK && !hly_was_early(r, step)) {
        leave_sent(r, step);
    } /* else LOST says why */
}

/* The transport is off it. */
static void end(halay_context_t *context, struct hly_send *send, int status)
{
    halay_request_t *r = send->request;
    hly_link_remove(&send->link);
    if (send->revoke)
        send_revoked(send, status == HALAY_OK);
    if (send->message)
        hly_message_left(send->message, status);
    if (r && !send->held)
        r->run.step[send->step].send = NULL;
    if (r && !send->held)
        HLY_SAW(LEFT, r, send->step);
    hly_send_free(context, send);
}

void hly_send_complete(halay_context_t *context, struct hly_send *send, int status)
{
    halay_request_t *r = send->request;
    const uint32_t step = send->step;
    const bool held = send->held;
    const bool message = send->kind == HLY_SEND_EAGER || send->kind == HLY_SEND_STAGED;
    end(context, send, status);
    if (r)
        news_of(context, r, step, held, message, status);
}

/*
 * May the step be done although the transport still holds its message? Yes, out of IN, if the plan
 * does not work in place: no step writes there. Only the end of the call waits for the message.
 */
static bool is_held(const halay_request_t *r, uint32_t step)
{
    const halay_plan_t *plan = r->plan->plan;
    return !plan->params.in_place &&
           plan->operands[plan->steps[step].operand].buffer == HALAY_BUFFER_IN;
}

/* The transport has taken all of it. HALAY_OK: and is off its memory. */
static int accepted(halay_context_t *context, struct hly_send *send)
{
    halay_request_t *r = send->request;
    if (!send->flying) {
        end(context, send, HALAY_OK);
        return HALAY_OK;
    }
    hly_link_remove(&send->link);
    hly_link_append(r ? &r->flying : &context->sends_flying, &send->link);
    if (r && r->state == HLY_RUNNING && HLY_SEEDED(SEND_EARLY, r, send->step))
        return HALAY_OK;
    return HALAY_INPROGRESS;
}

/* The transport will not take it at all, so its call fails. */
static void refused(halay_context_t *context, struct hly_send *send, int rc)
{
    halay_request_t *r = send->request;
    const char *name = send->peer->transport->ops->name;
    hly_log(context, HLY_ERROR, "the transport %s refuses a message to rank %d: %s", name,
            send->peer->world_rank, halay_strerror(rc));
    hly_send_cancel(context, send);
    if (r && r->state == HLY_RUNNING)
        hly_news_fail(r, HALAY_ETRANSPORT, "its transport %s refuses a message: %s", name,
                      halay_strerror(rc));
}

/* It stays queued, for as long as its call: also where memory has run out, which may come back. */
static bool waits(int rc)
{
    return rc == HALAY_EAGAIN || rc == HALAY_EPEER || rc == HALAY_ENOMEM;
}

int hly_send_submit(halay_context_t *context, struct hly_send *send)
{
    struct hly_peer *peer = send->peer;
    if (peer->dead || context->lost) {
        send->accepted = true;
        end(context, send, HALAY_EPEER);
        return HALAY_INPROGRESS; /* LOST says why */
    }
    int rc = hly_link_empty(&peer->queue) ? try_send(context, send) : HALAY_EAGAIN;
    if (rc == HALAY_OK)
        return accepted(context, send);
    if (!waits(rc)) {
        refused(context, send, rc);
        return HALAY_INPROGRESS;
    }
    /* also if the peer is lost: the transport's event will empty the queue */
    hly_link_append(&peer->queue, &send->link);
    if (hly_link_empty(&peer->waiting))
        hly_link_append(&context->busy_peers, &peer->waiting);
    return HALAY_INPROGRESS;
}

/* The transport still holds the memory: it is lent, or an adapter has yet to read it. */
__attribute__((noinline)) static int flies(halay_request_t *r, uint32_t step,
                                           const struct hly_extent *extent)
{
    struct hly_send *send = hly_send_new(r->context, HLY_SEND_EAGER, r->plan->peers[step]);
    send->request = r;
    send->step = step;
    send->extent[0] = *extent;
    send->extent[1] = (struct hly_extent){0};
    send->flying = 1;
    send->accepted = true;
    send->held = is_held(r, step);
    hly_link_append(&r->flying, &send->link);
    if (send->held) {
        HLY_SAW(LEFT, r, step);
        return HALAY_OK;
    }
    r->run.step[step].send = send;
    return HLY_SEEDED(SEND_EARLY, r, step) ? HALAY_OK : HALAY_INPROGRESS;
}

/*
 * Sends an eager message without a hly_send, if that is possible. HALAY_OK: the step is done;
 * HALAY_INPROGRESS: the transport holds it; HALAY_EAGAIN: nothing was sent.
 */
static inline int send_now(halay_request_t *r, uint32_t step, const struct hly_extent *extent)
{
    halay_context_t *ctx = r->context;
    struct hly_peer *peer = r->plan->peers[step];
    struct hly_transport *transport = peer->transport;
    const struct hly_send *send = hly_send_next(ctx);
    if (extent[1].bytes || extent->bytes > transport->attr.eager_bytes || !peer->greeted ||
        ctx->lost || !hly_link_empty(&peer->queue) || !send)
        return HALAY_EAGAIN;
    if (r->header.cookie != extent->bytes) /* rarely: a store would stall the copy of the header */
        r->header.cookie = extent->bytes;
    int rc = transport->ops->send(transport->handle, peer->ep, 0, &r->header, sizeof(r->header),
                                  extent->address, extent->bytes, (uint64_t)(uintptr_t)send);
    if (rc != HALAY_OK && rc != HALAY_INPROGRESS)
        return HALAY_EAGAIN;
    count_one(transport, extent->bytes);
    hly_saw_bytes(r, HLY_SAW_SENT, step, extent, 0, extent->bytes, r->header.edge);
    if (rc != HALAY_OK)
        return flies(r, step, extent);
    HLY_SAW(LEFT, r, step);
    return HALAY_OK;
}

int hly_step_send(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = hly_step(r, step);
    hly_header_number(&r->header, r->sequence, s->edge + HLY_SEEDED(WRONG_EDGE, r, step));
    if (!r->run.step[step].send && !r->direct) { /* else its receiver has announced it */
        const int rc = send_now(r, step, hly_operand_extents(r, s->operand));
        if (rc != HALAY_EAGAIN)
            return rc;
    }
    return hly_rendezvous_send(r, step);
}

void hly_send_flush(halay_context_t *context)
{
    struct hly_link *l = context->busy_peers.next, *next;
    for (; l != &context->busy_peers; l = next) {
        struct hly_peer *peer = HLY_OF(l, struct hly_peer, waiting);
        next = l->next;
        while (!hly_link_empty(&peer->queue) && !peer->dead) {
            struct hly_send *send = HLY_OF(peer->queue.next, struct hly_send, link);
            halay_request_t *r = send->request;
            const uint32_t step = send->step;
            int rc = try_send(context, send);
            if (waits(rc))
                break;
            if (rc != HALAY_OK)
                refused(context, send, rc);
            else if (accepted(context, send) == HALAY_OK && r)
                leave_sent(r, step);
        }
        if (hly_link_empty(&peer->queue)) {
            next = peer->waiting.next; /* peers may have been appended */
            hly_link_remove(&peer->waiting);
        }
    }
}

static void control_submit(halay_context_t *ctx, struct hly_send *send, uint64_t cookie,
                           const void *payload, size_t payload_bytes)
{
    assert(payload_bytes <= sizeof(send->payload));
    send->header.cookie = cookie;
    send->payload_bytes = (uint32_t)payload_bytes;
    if (payload_bytes)
        memcpy(send->payload, payload, payload_bytes);
    hly_send_submit(ctx, send);
}

void hly_control_reply(halay_context_t *ctx, struct hly_peer *to, const struct hly_header *query,
                       uint32_t edge, uint64_t cookie, const void *payload, size_t payload_bytes)
{
    struct hly_send *send = ctx->lost ? NULL : hly_send_new(ctx, HLY_SEND_CONTROL, to);
    if (!send)
        return; /* its sender asks again */
    send->header = (struct hly_header){.comm = query->comm,
                                       .sequence = query->sequence,
                                       .edge = edge,
                                       .from = (uint32_t)query->cookie,
                                       .kind = HLY_REPLY};
    control_submit(ctx, send, cookie, payload, payload_bytes);
}

int hly_control_send(halay_comm_t *comm, int to, enum hly_kind kind, uint32_t sequence,
                     uint32_t edge, uint64_t cookie, const struct hly_call *call,
                     const void *payload, size_t payload_bytes)
{
    halay_context_t *ctx = comm->context;
    struct hly_peer *peer;
    struct hly_send *send = NULL;
    if (ctx->lost)
        return HALAY_OK;
    int rc = hly_peer_get(ctx, hly_comm_world_rank(comm, to), &peer);
    if (!rc)
        send = hly_send_new(ctx, HLY_SEND_CONTROL, peer);
    if (!send) {
        hly_log(ctx, HLY_ERROR, "rank %d cannot be told of this call: %s", to,
                halay_strerror(rc ? rc : HALAY_ENOMEM));
        return rc ? rc : HALAY_ENOMEM;
    }
    hly_header_fill(&send->header, comm, kind, sequence, edge, call);
    control_submit(ctx, send, cookie, payload, payload_bytes);
    return HALAY_OK;
}

void hly_send_cancel(halay_context_t *context, struct hly_send *send)
{
    halay_request_t *r = send->request;
    hly_link_remove(&send->link);
    if (send->flying) { /* some of it is with the transport: it ends when that is back */
        send->accepted = true;
        hly_link_append(r ? &r->flying : &context->sends_flying, &send->link);
        return;
    }
    if (r)
        r->run.step[send->step].send = NULL;
    if (send->message)
        hly_message_left(send->message, HALAY_EPEER);
    hly_send_free(context, send);
}
