/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c - which call a message belongs to. Every header is compared with this rank's
 * call of the same communicator and sequence number, whether or not the plan expects that sender
 * (docs/decisions/agreements.md#0005).
 *
 * What comes before its call, or before its step has started, is kept as an unexpected message.
 * That is bounded: a sender is at most HLY_SLOTS calls ahead on a communicator. In each it sends at
 * most one eager message for each edge of the plan, and of a call in segments those of a few.
 */
#include "wire/match.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/message.h"
#include "wire/news.h"
#include "wire/rendezvous.h"

static bool is_same(halay_peer_id_t a, halay_peer_id_t b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* false: there is no memory. What was lent, and recalled meanwhile, is not kept. */
static bool keep(halay_context_t *context, struct hly_link *list, const struct hly_header *h,
                 const void *data, size_t bytes, halay_peer_id_t peer)
{
    struct hly_unexpected *m = malloc(sizeof(*m) + bytes);
    if (!m) {
        hly_log(context, HLY_ERROR, "no memory for a message of %zu bytes that came early", bytes);
        return false;
    }
    m->peer = peer;
    m->header = *h;
    m->bytes = bytes;
    if (bytes)
        memcpy(m->data, data, bytes);
    if (hly_lent_release(context))
        hly_link_append(list, &m->link);
    else
        free(m);
    return true;
}

/* The same for a call's message: without memory its call fails, which may not have been made yet.
 */
static void keep_early(halay_comm_t *comm, struct hly_slot *slot, const struct hly_header *h,
                       const void *data, size_t bytes, halay_peer_id_t peer)
{
    struct hly_news *n;
    if (keep(comm->context, &slot->unexpected, h, data, bytes, peer) ||
        !(n = hly_news_leave(comm->context, HLY_NEWS_UNKEPT, NULL)))
        return;
    n->comm = comm;
    n->sequence = h->sequence;
}

static void forget_one(struct hly_unexpected *m)
{
    hly_link_remove(&m->link);
    free(m);
}

void hly_unexpected_forget(struct hly_link *list)
{
    while (!hly_link_empty(list))
        forget_one(HLY_OF(list->next, struct hly_unexpected, link));
}

/* ---------------------------------------------------------------- the hello */

static void match_hello(halay_context_t *context, const struct hly_header *h, const void *data,
                        size_t bytes, halay_peer_id_t peer)
{
    struct hly_hello hello = {.settings_hash = 0};
    if (bytes < sizeof(hello.build) || h->from >= (uint32_t)context->info.nranks) {
        hly_log(context, HLY_ERROR, "a hello of wrong length came: another version of Halay?");
        return;
    }
    memcpy(&hello, data, bytes < sizeof(hello) ? bytes : sizeof(hello));
    hello.build[sizeof(hello.build) - 1] = hello.settings[sizeof(hello.settings) - 1] = 0;
    if (!is_same(hly_peer_id(context, (int)h->from), peer))
        return;
    const struct hly_transport *transport = hly_transport_of(context, (int)h->from, NULL);
    const bool built = bytes == sizeof(hello) && !strcmp(transport->hello.build, hello.build);
    struct hly_peer *from;
    if (built && !hly_peer_get(context, (int)h->from, &from))
        from->process = hello.process;
    if (built && transport->hello.settings_hash == hello.settings_hash)
        return;
    struct hly_news *n = hly_news_leave(context, HLY_NEWS_HELLO, NULL);
    if (n) {
        n->header = *h;
        n->value = built;
        n->hello = hello;
    }
}

/* ---------------------------------------------------------------- calls */

static void mismatch(halay_request_t *r, const struct hly_header *h)
{
    struct hly_news *n = hly_news_leave(r->context, HLY_NEWS_MISMATCH, r);
    if (n)
        n->header = *h;
    r->state = HLY_STOPPED;
}

/*
 * A plan's message is as long here as there, and the signature says that counts are equal. But in
 * an alltoallv each rank knows its own counts alone.
 */
static bool fits(halay_request_t *r, uint32_t step, const struct hly_header *h, uint64_t theirs)
{
    const uint64_t mine = hly_operand_bytes(r, hly_step(r, step)->operand);
    if (mine == theirs)
        return true;
    struct hly_news *n = hly_news_leave(r->context, HLY_NEWS_MISFIT, r);
    if (n) {
        n->header = *h;
        n->step = step;
        n->value = (int64_t)mine;
        n->other = theirs;
    }
    r->state = HLY_STOPPED;
    return false;
}

/* The step of a running call that an EAGER part or a READY is for. */
static uint32_t step_of(const halay_request_t *r, const struct hly_header *h)
{
    uint32_t kind = h->kind == HLY_EAGER ? HALAY_STEP_RECV : HALAY_STEP_SEND;
    return hly_plan_step(r->plan->plan, &r->plan->uses, kind, h->from, h->edge);
}

/* Else it is of a segment soon after it. */
static bool is_of_segment(const halay_request_t *r, uint16_t segment)
{
    return segment == (uint16_t)r->segments.number;
}

static void leave_landed(halay_request_t *r, uint32_t step, enum hly_landed landed)
{
    struct hly_news *n =
        landed >= HLY_LANDED_ALL ? hly_news_leave(r->context, HLY_NEWS_LANDED, r) : NULL;
    if (n) {
        n->step = step;
        n->value = landed == HLY_LANDED_REDUCED;
    }
}

/* false: it is too early; the message is to be kept. */
static bool deliver(halay_request_t *r, uint32_t step, const struct hly_header *h, const void *data,
                    size_t bytes)
{
    if (step == HALAY_STEP_NONE) {
        hly_log(r->context, HLY_ERROR, "rank %u sent edge %u, which this rank's plan does not have",
                h->from, h->edge);
        return true;
    }
    if (h->kind == HLY_READY) {
        struct hly_ready ready;
        if (bytes != sizeof(ready))
            return true;
        memcpy(&ready, data, sizeof(ready));
        if (!is_of_segment(r, ready.segment))
            return false;
        if (fits(r, step, h, ready.bytes))
            hly_rendezvous_announced(r, step, h, &ready);
        return true;
    }
    if (!is_of_segment(r, h->segment))
        return false;
    if (!fits(r, step, h, h->cookie) || (!bytes && h->cookie))
        return true; /* it was an offer */
    if (r->run.state[step] < HLY_STARTED)
        return false;
    if (r->run.step[step].target)
        hly_peer_nonsense(r->context, r->plan->peers[step], "unasked what it was told a place for");
    else if (r->run.state[step] == HLY_STARTED)
        leave_landed(r, step, hly_land(r, step, h->offset, data, bytes));
    return true;
}

/* A failing call takes no data; but it notes that they have come. So it knows of a rank that is
 * found dead whether that may have completed the call before. */
static void note_late(halay_request_t *r, const struct hly_header *h, size_t bytes)
{
    const bool same = r->state == HLY_FAILING && r->run.ran && h->signature == r->call.signature &&
                      is_of_segment(r, h->segment);
    const uint32_t step =
        same ? hly_plan_step(r->plan->plan, &r->plan->uses, HALAY_STEP_RECV, h->from, h->edge)
             : HALAY_STEP_NONE;
    if (step == HALAY_STEP_NONE || (!bytes && h->cookie)) /* or an offer */
        return;
    r->run.step[step].arrived += bytes;
    if (r->run.step[step].arrived >= hly_operand_bytes(r, hly_step(r, step)->operand))
        r->run.state[step] = HLY_DONE;
}

static void match_call(halay_comm_t *comm, struct hly_slot *slot, const struct hly_header *h,
                       const void *data, size_t bytes, halay_peer_id_t peer)
{
    halay_request_t *r = slot->request;
    const bool waits = r && r->state == HLY_UNPLANNED;
    if (!r || (waits && h->signature == r->call.signature)) {
        keep_early(comm, slot, h, data, bytes, peer);
        return;
    }
    if (r->state != HLY_RUNNING && !waits) { /* failing: who announced something withdraws it */
        if (h->kind == HLY_EAGER)
            note_late(r, h, bytes);
        return;
    }
    if (h->signature != r->call.signature)
        mismatch(r, h);
    else if (!deliver(r, step_of(r, h), h, data, bytes))
        keep_early(comm, slot, h, data, bytes, peer);
}

/*
 * Not the expected message: a running call waits for this one. Its sender is the
 * peer of the step, so none has to be looked up. That others have called is known already.
 */
static bool match_plan(halay_comm_t *comm, const struct hly_header *h, const void *data,
                       size_t bytes, halay_peer_id_t peer)
{
    struct hly_slot *slot = &comm->slots[h->sequence % HLY_SLOTS];
    halay_request_t *r = slot->request;
    if (!r || r->sequence != h->sequence || r->state != HLY_RUNNING || h->kind > HLY_READY ||
        h->signature != r->call.signature)
        return false;
    uint32_t step = step_of(r, h);
    if (step == HALAY_STEP_NONE || !is_same(r->plan->peers[step]->id, peer))
        return false;
    if (!deliver(r, step, h, data, bytes))
        keep_early(comm, slot, h, data, bytes, peer);
    return true;
}

static void match_verdict(halay_comm_t *comm, const struct hly_header *h, const void *data,
                          size_t bytes)
{
    struct hly_news *n =
        bytes == sizeof(n->verdict) ? hly_news_leave(comm->context, HLY_NEWS_VERDICT, NULL) : NULL;
    if (!n)
        return;
    n->comm = comm;
    n->header = *h;
    memcpy(&n->verdict, data, sizeof(n->verdict));
    n->verdict.host[sizeof(n->verdict.host) - 1] = 0;
    n->verdict.other_host[sizeof(n->verdict.other_host) - 1] = 0;
    n->verdict.detail[sizeof(n->verdict.detail) - 1] = 0;
}

static void match_invitation(halay_comm_t *comm, const struct hly_header *h, const void *data,
                             size_t bytes)
{
    struct hly_news *n = bytes == sizeof(n->invitation)
                             ? hly_news_leave(comm->context, HLY_NEWS_INVITE, NULL)
                             : NULL;
    if (!n)
        return;
    n->comm = comm;
    n->header = *h;
    memcpy(&n->invitation, data, sizeof(n->invitation));
}

static void match_consensus(halay_comm_t *comm, const struct hly_header *h, const void *data,
                            size_t bytes)
{
    const bool fits =
        bytes == hly_consensus_bytes(comm->nranks) && bytes <= sizeof(struct hly_consensus_wire);
    struct hly_news *n = fits ? hly_news_leave(comm->context, HLY_NEWS_CONSENSUS, NULL) : NULL;
    if (!n)
        return;
    n->comm = comm;
    n->header = *h;
    memset(&n->consensus, 0, sizeof(n->consensus));
    memcpy(&n->consensus, data, bytes);
}

static void match_question(halay_comm_t *comm, const struct hly_header *h, const void *data,
                           size_t bytes)
{
    const bool fits = bytes <= sizeof(((struct hly_news *)0)->blocked);
    struct hly_news *n = fits ? hly_news_leave(comm->context, HLY_NEWS_ASKED, NULL) : NULL;
    if (!n)
        return;
    n->comm = comm;
    n->header = *h;
    n->value = (int64_t)(bytes / sizeof(struct hly_blocked));
    if (n->value)
        memcpy(n->blocked, data, (size_t)n->value * sizeof(struct hly_blocked));
}

/* This rank has not made the communicator: it answers in which call it is instead. */
static void match_query(halay_context_t *ctx, const struct hly_header *h, halay_peer_id_t peer)
{
    struct hly_peer *from = hly_peer_find(ctx, peer);
    struct hly_news *n = from && h->cookie >> 32 == (uint64_t)(unsigned)ctx->info.rank + 1
                             ? hly_news_leave(ctx, HLY_NEWS_ASKED, NULL)
                             : NULL;
    if (!n)
        return;
    n->peer = from;
    n->header = *h;
}

/* The peer that the header names as its sender; NULL: the message came from another one. */
static struct hly_peer *sender_of(halay_comm_t *comm, const struct hly_header *h,
                                  halay_peer_id_t peer)
{
    halay_context_t *ctx = comm->context;
    struct hly_peer *from = NULL;
    if (h->from < (uint32_t)comm->nranks && h->from != (uint32_t)comm->rank) {
        int world_rank = hly_comm_world_rank(comm, (int)h->from);
        from = hly_peer_find(ctx, peer);
        if (!from || from->world_rank != world_rank)
            hly_peer_get(ctx, world_rank, &from);
    }
    if (from && is_same(from->id, peer))
        return from;
    hly_log(ctx, HLY_ERROR, "a message claims to be from rank %u, but is not; dropped", h->from);
    return NULL;
}

static void match_comm(halay_comm_t *comm, const struct hly_header *h, const void *data,
                       size_t bytes, halay_peer_id_t peer)
{
    halay_context_t *ctx = comm->context;
    const struct hly_peer *from = sender_of(comm, h, peer);
    if (!from)
        return;
    if (h->kind == HLY_REVOKED) {
        hly_rendezvous_revoked(ctx, h, from);
        return;
    }
    if (h->kind == HLY_CONSENSUS) { /* not of a call: its sequence is the agreement's */
        match_consensus(comm, h, data, bytes);
        return;
    }
    if (from->left_out)
        return;
    if (h->kind == HLY_MESSAGE) {
        hly_message_came(comm, h, data, bytes);
        return;
    }
    if (h->kind >= HLY_QUERY) { /* of a call that its sender may not have made */
        match_question(comm, h, data, bytes);
        return;
    }
    if (hly_comm_heard(comm, h->sequence))
        hly_wake(ctx); /* halay_comm_called() may have changed */
    struct hly_slot *slot = hly_comm_slot(comm, h->sequence);
    if (h->kind == HLY_LEAVE) {
        struct hly_news *n = hly_news_leave(ctx, HLY_NEWS_LEAVE, NULL);
        if (n) {
            n->comm = comm;
            n->header = *h;
        }
    } else if (h->kind == HLY_INVITE) {
        match_invitation(comm, h, data, bytes);
    } else if (h->kind == HLY_ALARM || h->kind == HLY_REVOKE) {
        match_verdict(comm, h, data, bytes);
    } else if (slot && !slot->complete) {
        match_call(comm, slot, h, data, bytes, peer);
    } else if ((int32_t)(h->sequence - comm->oldest) >= HLY_SLOTS) {
        hly_log(ctx, HLY_ERROR, "rank %u is more than %d calls ahead; its message was dropped",
                h->from, HLY_SLOTS);
    }
}

/* ---------------------------------------------------------------- of communicators to come */

static size_t orphan_size(size_t bytes)
{
    return sizeof(struct hly_unexpected) + bytes;
}

/* Is there room for one more? One peer cannot take all of it. */
static bool orphan_fits(const halay_context_t *ctx, size_t bytes, halay_peer_id_t peer)
{
    size_t all = ctx->orphan_bytes + orphan_size(bytes), of_peer = orphan_size(bytes);
    if (ctx->norphans == HLY_ORPHANS_MAX || all > HLY_ORPHANS_BYTES)
        return false;
    if (all <= HLY_ORPHANS_SHARE)
        return true;
    for (const struct hly_link *l = ctx->orphans.next; l != &ctx->orphans; l = l->next) {
        const struct hly_unexpected *m = HLY_OF(l, struct hly_unexpected, link);
        of_peer += is_same(m->peer, peer) ? orphan_size(m->bytes) : 0;
    }
    return of_peer <= HLY_ORPHANS_SHARE;
}

/* No call of its communicator waits for this rank any more: all have ended by their deadline. */
static bool is_stale(const halay_context_t *ctx, uint64_t came_ns)
{
    const uint64_t own = ctx->settings.deadline_ns, given = ctx->longest_ns;
    return hly_now_ns() - came_ns > 2 * (own > given ? own : given);
}

static void take_off(halay_context_t *ctx, struct hly_unexpected *m)
{
    hly_link_remove(&m->link);
    ctx->norphans--;
    ctx->orphan_bytes -= orphan_size(m->bytes);
}

/* So communicators that this rank never makes, or has freed long ago, hold no memory for ever, and
 * say nothing of the ones that it makes. The oldest orphans stand first. */
static void forget_stale(halay_context_t *ctx)
{
    while (!hly_link_empty(&ctx->orphans)) {
        struct hly_unexpected *m = HLY_OF(ctx->orphans.next, struct hly_unexpected, link);
        if (!is_stale(ctx, m->came_ns))
            break;
        take_off(ctx, m);
        free(m);
    }
    if (ctx->nlost && is_stale(ctx, ctx->lost_ns))
        ctx->nlost = 0;
}

const struct hly_call_desc *hly_orphan_from(const halay_context_t *ctx, halay_peer_id_t peer)
{
    for (const struct hly_link *l = ctx->orphans.next; l != &ctx->orphans; l = l->next) {
        const struct hly_unexpected *m = HLY_OF(l, struct hly_unexpected, link);
        if (is_same(m->peer, peer) && !is_stale(ctx, m->came_ns))
            return &m->header.call;
    }
    return NULL;
}

bool hly_orphan_lost(const halay_context_t *ctx, uint64_t id)
{
    for (uint32_t i = 0; i < ctx->nlost && i < HLY_LOST_IDS; i++)
        if (ctx->lost_ids[i] == id)
            return true;
    return ctx->nlost > HLY_LOST_IDS;
}

/* It did not fit: the communicator will be broken when it is made. */
static void lose_orphan(halay_context_t *ctx, uint64_t id)
{
    if (hly_orphan_lost(ctx, id))
        return;
    if (ctx->nlost < HLY_LOST_IDS)
        ctx->lost_ids[ctx->nlost] = id;
    ctx->nlost++;
    ctx->lost_ns = hly_now_ns();
    hly_log(ctx, HLY_ERROR,
            "others have sent more than fits for a communicator that this rank has not made yet "
            "(at most %u MiB, %u from one rank): calls on it will fail; make communicators on all "
            "ranks at the same point of the program",
            HLY_ORPHANS_BYTES >> 20, HLY_ORPHANS_SHARE >> 20);
}

static void keep_orphan(halay_context_t *context, const struct hly_header *h, const void *data,
                        size_t bytes, halay_peer_id_t peer)
{
    forget_stale(context);
    const struct hly_link *last = context->orphans.prev;
    if (!orphan_fits(context, bytes, peer) ||
        !keep(context, &context->orphans, h, data, bytes, peer)) {
        lose_orphan(context, h->comm);
    } else if (context->orphans.prev != last) {
        HLY_OF(context->orphans.prev, struct hly_unexpected, link)->came_ns = hly_now_ns();
        context->norphans++;
        context->orphan_bytes += orphan_size(bytes);
    }
}

/* ---------------------------------------------------------------- all messages */

static void match_piece(halay_context_t *context, const struct hly_header *h, const void *data,
                        size_t bytes, halay_peer_id_t peer)
{
    struct hly_peer *from = hly_peer_find(context, peer);
    if (!from || hly_target_piece(context, h, data, bytes, from))
        return;
    halay_comm_t *comm = hly_comm_find(context, h->comm);
    struct hly_slot *slot =
        comm && sender_of(comm, h, peer) == from ? hly_comm_slot(comm, h->sequence) : NULL;
    if (slot && slot->request)
        note_late(slot->request, h, bytes);
}

static void match(halay_context_t *context, const struct hly_header *h, const void *data,
                  size_t bytes, halay_peer_id_t peer)
{
    if (h->kind == HLY_PIECE) {
        match_piece(context, h, data, bytes, peer);
        return;
    }
    if (h->kind == HLY_HELLO) {
        match_hello(context, h, data, bytes, peer);
        return;
    }
    if (h->kind == 0 || h->kind >= HLY_KIND_END) {
        hly_log(context, HLY_ERROR, "a message of unknown kind %u came; dropped", h->kind);
        return;
    }
    halay_comm_t *comm = hly_comm_find(context, h->comm);
    if (comm) {
        if (!match_plan(comm, h, data, bytes, peer))
            match_comm(comm, h, data, bytes, peer);
    } else if (!hly_comm_is_gone(context, h->comm)) {
        if (h->kind < HLY_QUERY)
            keep_orphan(context, h, data, bytes, peer);
        else if (h->kind == HLY_QUERY)
            match_query(context, h, peer);
    }
}

struct hly_unexpected *hly_orphan_take(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    for (struct hly_link *l = ctx->orphans.next; l != &ctx->orphans; l = l->next) {
        struct hly_unexpected *m = HLY_OF(l, struct hly_unexpected, link);
        if (m->header.comm != comm->id)
            continue;
        take_off(ctx, m);
        return m;
    }
    return NULL;
}

void hly_orphan_match(halay_comm_t *comm, struct hly_unexpected *m)
{
    match_comm(comm, &m->header, m->data, m->bytes, m->peer);
}

bool hly_unexpected_compare(halay_request_t *r)
{
    struct hly_slot *slot = r->slot;
    struct hly_link *next;
    for (struct hly_link *l = slot->unexpected.next; l != &slot->unexpected; l = next) {
        struct hly_unexpected *m = HLY_OF(l, struct hly_unexpected, link);
        next = l->next;
        if (m->header.signature != r->call.signature) {
            mismatch(r, &m->header);
            return false;
        }
        if (r->state == HLY_UNPLANNED)
            continue;
        bool used = deliver(r, step_of(r, &m->header), &m->header, m->data, m->bytes);
        if (r->state != HLY_RUNNING)
            return false;
        if (used)
            forget_one(m);
    }
    return true;
}

enum hly_landed hly_unexpected_land(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = hly_step(r, step);
    struct hly_link *list = &r->slot->unexpected;
    enum hly_landed landed = HLY_LANDED_PART;
    for (struct hly_link *l = list->next; l != list && landed == HLY_LANDED_PART;) {
        struct hly_unexpected *m = HLY_OF(l, struct hly_unexpected, link);
        l = l->next;
        if (m->header.kind != HLY_EAGER || m->header.from != s->peer || m->header.edge != s->edge ||
            !is_of_segment(r, m->header.segment))
            continue;
        landed = hly_land(r, step, m->header.offset, m->data, m->bytes);
        forget_one(m);
    }
    return landed;
}

/* ---------------------------------------------------------------- events */

halay_request_t *hly_expected_by(halay_context_t *context, const halay_event_t *e)
{
    const struct hly_header *h = e->data;
    if ((e->kind != HALAY_EVENT_MESSAGE && e->kind != HALAY_EVENT_LENT) || e->bytes < sizeof(*h) ||
        !h->comm)
        return NULL;
    const halay_comm_t *comm = hly_comm_find(context, h->comm);
    halay_request_t *r = comm ? comm->slots[h->sequence % HLY_SLOTS].request : NULL;
    if (!r || r->state != HLY_RUNNING || r->expected.step == HALAY_STEP_NONE)
        return NULL;
    return hly_expected_came(&r->expected, e) ? r : NULL;
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
    match(context, e->data, payload, e->bytes - header, e->peer);
}

void hly_wire_take(halay_context_t *context, const struct hly_transport *transport,
                   const halay_event_t *e)
{
    struct hly_send *send = (struct hly_send *)(uintptr_t)e->cookie;
    switch (e->kind) {
    case HALAY_EVENT_MESSAGE:
        message(context, e);
        return;
    case HALAY_EVENT_LENT:
        context->lender = transport;
        message(context, e);
        hly_lent_release(context);
        return;
    case HALAY_EVENT_SENT:
    case HALAY_EVENT_PUT:
        if (!send)
            return; /* a hello */
        assert(send->flying > 0);
        if (e->status)
            send->status = e->status;
        if (--send->flying == 0 && send->accepted)
            hly_send_complete(context, send, send->status);
        return;
    case HALAY_EVENT_IMMEDIATE:
        hly_target_put(context, e->immediate, e->peer);
        return;
    case HALAY_EVENT_LANDED:
        hly_target_landed(context, e->cookie, e->status, e->bytes);
        return;
    case HALAY_EVENT_FAILED:
        hly_peer_failed(context, e->peer, e->status, e->text);
        return;
    default:
        hly_log(context, HLY_ERROR, "the transport reported an unknown event %d", e->kind);
    }
}

void hly_wire_failed(halay_context_t *context, const struct hly_transport *transport, int rc)
{
    if (rc == HALAY_ENOMEM) { /* a peer could not connect; it tries again, or fails */
        hly_log(context, HLY_ERROR, "the transport %s lacks memory or descriptors (ulimit -n)",
                transport->ops->name);
        return;
    }
    char why[sizeof(((struct hly_news *)0)->text)] =
        "the program has closed file descriptors of Halay (as os.closerange() and loops over "
        "close() do): it may close only its own";
    if (rc != HALAY_ESTATE)
        snprintf(why, sizeof(why), "its transport %s has failed", transport->ops->name);
    if (!context->lost)
        hly_log(context, HLY_ERROR, "no call can go on: %s", why);
    context->lost = true;
    struct hly_news *n = hly_news_leave(context, HLY_NEWS_TRANSPORT_LOST, NULL);
    if (n)
        snprintf(n->text, sizeof(n->text), "%s", why);
}
