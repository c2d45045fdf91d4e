/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c - which call a message belongs to. Every header of a known communicator is compared with
 * this rank's call of the same sequence, whether or not the plan expects that sender (decision 3).
 *
 * What comes before its call, or before its step may receive, is stashed. That is bounded: a sender
 * is at most HLY_SLOTS calls ahead on a communicator, and sends unannounced at most what one plan's
 * edges carry eagerly; of a call in tiles, what they carry in a few (ahead.h).
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "lend.h"

static bool is_same(halay_peer_id_t a, halay_peer_id_t b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

static void stash(halay_context_t *context, struct hly_link *list, const struct hly_header *h,
                  const void *data, size_t bytes, halay_peer_id_t peer)
{
    struct hly_stash *m = malloc(sizeof(*m) + bytes);
    if (!m) {
        hly_log(context, HLY_ERROR, "no memory for a message of %zu bytes that came early", bytes);
        return; /* its call ends by the deadline */
    }
    m->peer = peer;
    m->header = *h;
    m->bytes = bytes;
    if (bytes)
        memcpy(m->data, data, bytes);
    if (hly_channel_give_back(context))
        hly_link_append(list, &m->link);
    else
        free(m);
}

static void forget_one(struct hly_stash *m)
{
    hly_link_remove(&m->link);
    free(m);
}

void hly_match_forget(halay_context_t *context, struct hly_link *list)
{
    (void)context;
    while (!hly_link_empty(list))
        forget_one(HLY_OF(list->next, struct hly_stash, link));
}

/* ---------------------------------------------------------------- the hello */

/* Both without the items ("name value, ") that are equal at the beginning and at the end. */
static void skip_equal(const char **a, const char **b, int *a_length, int *b_length)
{
    size_t n = 0, item = 0, na, nb;
    for (; (*a)[n] && (*a)[n] == (*b)[n]; n++)
        if ((*a)[n] == ',' && (*a)[n + 1] == ' ')
            item = n + 2;
    *a += item <= n ? item : 0;
    *b += item <= n ? item : 0;
    na = strlen(*a);
    nb = strlen(*b);
    for (n = item = 0; n < na && n < nb && (*a)[na - 1 - n] == (*b)[nb - 1 - n]; n++)
        if (n && (*a)[na - 1 - n] == ',' && (*a)[na - n] == ' ')
            item = n + 1;
    *a_length = (int)(na - item);
    *b_length = (int)(nb - item);
}

static void settings_differ(halay_context_t *context, int rank, const char *mine,
                            const char *theirs)
{
    struct hly_link *next;
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = next) {
        next = l->next;
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        int other = hly_comm_rank_of(comm, rank);
        if (other < 0)
            continue;
        int low = other < comm->rank ? other : comm->rank;
        struct hly_verdict_wire v;
        hly_verdict_init(&v, comm, HLY_CAUSE_SETTINGS, HALAY_EMISMATCH, low);
        v.other = low == other ? comm->rank : other;
        const char *first = low == other ? theirs : mine, *second = low == other ? mine : theirs;
        int first_length, second_length;
        skip_equal(&first, &second, &first_length, &second_length);
        snprintf(v.detail, sizeof(v.detail), "rank %d has %.*s; rank %d has %.*s",
                 hly_comm_shown_rank(comm, low), first_length < 100 ? first_length : 100, first,
                 hly_comm_shown_rank(comm, v.other), second_length < 100 ? second_length : 100,
                 second);
        comm->broken = true;
        comm->broken_by = v;
        for (uint32_t s = comm->oldest; s != comm->started; s++)
            if (comm->slots[s % HLY_SLOTS].request)
                hly_fault_raise(comm, s, &v);
    }
}

static void match_hello(halay_context_t *context, const struct hly_header *h, const void *data,
                        size_t bytes, halay_peer_id_t peer)
{
    struct hly_hello hello;
    if (bytes != sizeof(hello) || h->from >= (uint32_t)context->info.nranks) {
        hly_log(context, HLY_ERROR, "a hello of wrong length came: another version of Halay?");
        return;
    }
    memcpy(&hello, data, sizeof(hello));
    hello.settings[sizeof(hello.settings) - 1] = 0;
    halay_peer_id_t id = hly_peer_id(context, (int)h->from);
    if (!is_same(id, peer))
        return;
    const struct hly_way *way = hly_way_of(context, (int)h->from, NULL);
    if (way->hello.settings_hash != hello.settings_hash)
        settings_differ(context, (int)h->from, way->hello.settings, hello.settings);
}

/* ---------------------------------------------------------------- calls */

static void mismatch(halay_request_t *r, const struct hly_header *h)
{
    int mine = r->comm->rank, theirs = (int)h->from;
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_MISMATCH, HALAY_EMISMATCH,
                     mine < theirs ? mine : theirs);
    v.other = mine < theirs ? theirs : mine;
    v.call = mine < theirs ? r->call.brief : h->call;
    v.other_call = mine < theirs ? h->call : r->call.brief;
    hly_verdict_other(&v, r->comm);
    hly_fault_raise(r->comm, r->sequence, &v);
}

/*
 * Plans say that a message is as long here as there, and the signature that counts are equal; but
 * in an alltoallv each rank knows its own counts alone.
 */
static void misfit(halay_request_t *r, uint32_t step, const struct hly_header *h, uint64_t mine,
                   uint64_t theirs)
{
    const halay_plan_t *plan = r->plan->plan;
    bool sending = plan->steps[step].kind == HALAY_STEP_SEND;
    int me = r->comm->rank, from = (int)h->from;
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_MISMATCH, HALAY_EMISMATCH, me < from ? me : from);
    v.other = me < from ? from : me;
    v.call = v.other_call = r->call.brief;
    hly_verdict_other(&v, r->comm);
    snprintf(
        v.detail, sizeof(v.detail), "rank %d sends %llu to rank %d, which expects %llu",
        sending ? me : from, (unsigned long long)((sending ? mine : theirs) / r->element_bytes),
        sending ? from : me, (unsigned long long)((sending ? theirs : mine) / r->element_bytes));
    hly_fault_raise(r->comm, r->sequence, &v);
}

static inline bool fits(halay_request_t *r, uint32_t step, const struct hly_header *h,
                        uint64_t theirs)
{
    uint64_t mine = hly_operand_bytes(r, r->plan->plan->steps[step].operand);
    if (mine != theirs)
        misfit(r, step, h, mine, theirs);
    return mine == theirs;
}

/* The step of a running call that an EAGER part or a READY is for. */
static uint32_t step_of(const halay_request_t *r, const struct hly_header *h)
{
    uint32_t kind = h->kind == HLY_EAGER ? HALAY_STEP_RECV : HALAY_STEP_SEND;
    return hly_plan_step(r->plan, kind, h->from, h->edge);
}

/* Else it is of one soon after it: nobody gets further ahead (0032, 0038). */
static inline bool is_of_tile(const halay_request_t *r, uint16_t tile)
{
    return tile == (uint16_t)r->tiles.number;
}

/* Returns false if it is too early for it. */
static bool deliver(halay_request_t *r, uint32_t step, const struct hly_header *h, const void *data,
                    size_t bytes)
{
    if (h->kind == HLY_DOUBT)
        return true; /* it is the same call */
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
        if (!is_of_tile(r, ready.tile))
            return false;
        if (fits(r, step, h, ready.bytes))
            hly_channel_announced(r, step, h, &ready);
        return true;
    }
    if (!is_of_tile(r, h->tile))
        return false;
    hly_both_look(r, h);
    if (!fits(r, step, h, h->cookie) || (!bytes && h->cookie))
        return true; /* the latter: an offer */
    if (r->run[step].state == HLY_WAITS)
        return false;
    if (r->run[step].state == HLY_STARTED)
        hly_channel_land(r, step, h->offset & ~HLY_PROMISE, data, bytes);
    return true;
}

static void match_call(halay_comm_t *comm, struct hly_slot *slot, const struct hly_header *h,
                       const void *data, size_t bytes, halay_peer_id_t peer)
{
    halay_request_t *r = slot->request;
    if (!r) {
        stash(comm->context, &slot->stash, h, data, bytes, peer);
        return;
    }
    if (r->state != HLY_RUNNING)
        return; /* failing: whoever announced something withdraws it */
    if (h->signature != r->call.signature)
        mismatch(r, h);
    else if (!deliver(r, step_of(r, h), h, data, bytes))
        stash(comm->context, &slot->stash, h, data, bytes, peer);
}

/*
 * What a running call waits for, as most messages are: the plan knows who sends it, so that nobody
 * has to be looked up, and that others have called is no news.
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
        stash(comm->context, &slot->stash, h, data, bytes, peer);
    return true;
}

static void match_verdict(halay_comm_t *comm, struct hly_slot *slot, const struct hly_header *h,
                          const void *data, size_t bytes)
{
    struct hly_verdict_wire v;
    if (bytes != sizeof(v))
        return;
    memcpy(&v, data, sizeof(v));
    v.host[sizeof(v.host) - 1] = v.other_host[sizeof(v.other_host) - 1] = 0;
    v.detail[sizeof(v.detail) - 1] = 0;
    halay_request_t *r = slot ? slot->request : NULL;
    if (slot && !slot->complete)
        hly_fault_heard(comm, h, &v);
    else
        hly_fault_outlived(comm, h, &v);
    if (h->kind == HLY_REVOKE) /* the request may have ended meanwhile, but not been released */
        hly_channel_revoke(comm, slot && slot->request == r ? r : NULL, h);
}

static void match_comm(halay_comm_t *comm, const struct hly_header *h, const void *data,
                       size_t bytes, halay_peer_id_t peer)
{
    halay_context_t *ctx = comm->context;
    struct hly_peer *from = NULL;
    if (h->from < (uint32_t)comm->nranks && h->from != (uint32_t)comm->rank) {
        int world_rank = hly_comm_world_rank(comm, (int)h->from);
        from = hly_peer_find(ctx, peer);
        if (!from || from->world_rank != world_rank)
            hly_peer_get(ctx, world_rank, &from);
    }
    if (!from || !is_same(from->id, peer)) {
        hly_log(ctx, HLY_ERROR, "a message claims to be from rank %u, but is not; dropped",
                h->from);
        return;
    }
    if (h->kind == HLY_REVOKED) {
        hly_channel_revoked(ctx, h, from);
        return;
    }
    uint64_t reached = (uint64_t)h->sequence + 1;
    if ((int32_t)(h->sequence - comm->oldest) >= 0 && reached > comm->foreign_sequence) {
        comm->foreign_sequence = reached;
        ctx->woken = true; /* halay_comm_called() may have changed */
        hly_wake(ctx);
    }
    if (h->kind == HLY_ROOM || h->kind == HLY_FILLED) {
        hly_both_heard(comm, h, data, bytes);
        return;
    }
    if (h->kind == HLY_LEAVE) {
        hly_series_leave(comm, h);
        return;
    }
    struct hly_slot *slot = hly_comm_slot(comm, h->sequence);
    if (h->kind == HLY_ALARM || h->kind == HLY_ROUND || h->kind == HLY_REVOKE)
        match_verdict(comm, slot, h, data, bytes);
    else if (slot && !slot->complete)
        match_call(comm, slot, h, data, bytes, peer);
    else if ((int32_t)(h->sequence - comm->oldest) >= HLY_SLOTS)
        hly_log(ctx, HLY_ERROR, "rank %u is more than %d calls ahead; its message was dropped",
                h->from, HLY_SLOTS);
}

static bool is_gone(const halay_context_t *context, uint64_t id)
{
    uint32_t n = context->ngone < 64 ? context->ngone : 64;
    for (uint32_t i = 0; i < n; i++)
        if (context->gone_ids[i] == id)
            return true;
    return false;
}

void hly_match(halay_context_t *context, const struct hly_header *h, const void *data, size_t bytes,
               halay_peer_id_t peer)
{
    if (h->kind == HLY_PIECE) {
        struct hly_peer *from = hly_peer_find(context, peer);
        if (from)
            hly_channel_piece(context, h, data, bytes, from);
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
    } else if (!is_gone(context, h->comm) && context->norphans < HLY_ORPHANS_MAX) {
        stash(context, &context->orphans, h, data, bytes, peer);
        context->norphans++;
    }
}

void hly_match_orphans(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    struct hly_link *next;
    for (struct hly_link *l = ctx->orphans.next; l != &ctx->orphans; l = next) {
        struct hly_stash *m = HLY_OF(l, struct hly_stash, link);
        next = l->next;
        if (m->header.comm != comm->id)
            continue;
        hly_link_remove(&m->link);
        ctx->norphans--;
        match_comm(comm, &m->header, m->data, m->bytes, m->peer);
        free(m);
    }
}

/* The call has been made: compares it with what came before, and takes what is of use already. */
void hly_match_posted(halay_request_t *r)
{
    struct hly_slot *slot = hly_request_slot(r);
    struct hly_link *next;
    for (struct hly_link *l = slot->stash.next; l != &slot->stash; l = next) {
        struct hly_stash *m = HLY_OF(l, struct hly_stash, link);
        next = l->next;
        if (m->header.signature != r->call.signature) {
            mismatch(r, &m->header);
            return;
        }
        bool used = deliver(r, step_of(r, &m->header), &m->header, m->data,
                            m->bytes); /* no step has started yet */
        if (r->state != HLY_RUNNING)
            return;
        if (used)
            forget_one(m);
    }
}

/* The recv step has started: lands the parts that came before. */
void hly_match_stashed(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    struct hly_slot *slot = hly_request_slot(r);
    for (struct hly_link *l = slot->stash.next; l != &slot->stash;) {
        struct hly_stash *m = HLY_OF(l, struct hly_stash, link);
        l = l->next;
        if (m->header.kind != HLY_EAGER || m->header.from != s->peer || m->header.edge != s->edge ||
            !is_of_tile(r, m->header.tile))
            continue;
        hly_link_remove(&m->link);
        uint64_t offset = m->header.offset & ~HLY_PROMISE;
        hly_both_look(r, &m->header);
        bool last = r->run[step].arrived + m->bytes == hly_operand_bytes(r, s->operand);
        hly_channel_land(r, step, offset, m->data, m->bytes);
        free(m);
        if (last)
            return; /* the call may be over: the stash is not ours any more */
    }
}
