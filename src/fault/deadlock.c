/* SPDX-License-Identifier: Apache-2.0 */
/* deadlock.c - when ranks wait in different calls (deadlock.h). */
#include "fault/deadlock.h"

#include <stdio.h>
#include <string.h>

#include "fault/stall.h"
#include "plan/text.h"
#include "waits/text.h"
#include "wire/match.h"
#include "wire/message.h"

/* ---------------------------------------------------------------- which rank waits where */

static bool is_call(const halay_request_t *r)
{
    return r && r->slot && r->slot->request == r;
}

/* Can only the programs of other ranks end this wait? Not if this one may do something meanwhile,
 * or if the wait ends with time. */
static bool is_certain(const halay_context_t *ctx, const struct hly_waited *w)
{
    const struct hly_waiters *all = &ctx->waiters;
    const halay_request_t *r = w->request;
    if (!all->one_at_a_time || (all->name && !w->name) || all->ask || all->waited != w || w->next ||
        w->why || w->deadline_ns < hly_about_now_ns() + HLY_FAR_NS || w->comm->broken.is ||
        ctx->lost)
        return false;
    if (!r) /* the message may be here, and its thread has not looked yet */
        return !hly_tags_message_for(&w->comm->messages->tags, w->from, w->tag);
    if (r->state != HLY_RUNNING)
        return false;
    if (r->message.is) /* nothing of it is under way */
        return r->message.waits && !r->message.found && !r->message.other && !r->message.sending &&
               (r->message.is == HLY_MESSAGE_RECV || (r->message.id && !r->message.turn));
    return is_call(r) && r->sequence == r->comm->oldest && !r->comm->parent && !r->comm->asks_for &&
           !(r->call.desc.flags & HLY_CALL_RELAXED);
}

static struct hly_blocked blocked_in(const halay_request_t *r)
{
    return (struct hly_blocked){.comm = r->comm->id,
                                .sequence = r->sequence,
                                .rank = r->context->info.rank,
                                .nranks = (uint32_t)r->comm->nranks,
                                .in = HLY_IN_CALL,
                                .call = r->call.desc};
}

struct hly_blocked hly_deadlock_blocked(const struct hly_waited *w)
{
    const halay_context_t *ctx = w->comm->context;
    const halay_request_t *r = w->request;
    struct hly_blocked it = {.comm = w->comm->id,
                             .rank = ctx->info.rank,
                             .nranks = (uint32_t)w->comm->nranks,
                             .in = HLY_IN_PROBE};
    if (r && !r->message.is) {
        it = blocked_in(r);
    } else {
        const bool sends = r && r->message.is == HLY_MESSAGE_SEND;
        if (r)
            it.in = sends ? HLY_IN_SEND : HLY_IN_RECV;
        it.message.number = sends ? r->message.id : 0;
        it.message.peer = w->from;
        it.message.tag = w->tag;
        if (!sends && w->from != HLY_ANY)
            it.message.number = hly_message_came_from(w->comm->messages, w->from);
    }
    it.wait = is_certain(ctx, w) ? w->number : 0;
    if (w->name)
        memcpy(it.name, w->name, strnlen(w->name, sizeof(it.name)));
    return it;
}

/* The oldest call in which this rank waits; NULL: there is none. */
static const halay_request_t *waiting(const halay_context_t *ctx)
{
    for (const struct hly_link *l = ctx->requests.next; l != &ctx->requests; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, link);
        if (!r->comm->asks_for && (hly_request_runs(r) || r->state == HLY_FAILING))
            return r;
    }
    return NULL;
}

/* What awaited ranks have told for this call, or message: rank i of them. NULL: nothing. */
static const struct hly_chain *told_by(const struct hly_stall *p, int i)
{
    return p->chains[i].n && hly_awaited_is_fresh(&p->waits.awaited[i], hly_now_ns())
               ? &p->chains[i]
               : NULL;
}

/* The chain that an awaited rank has sent for the oldest call of this communicator, or for its
 * message; NULL: none has. One of ranks that cannot go on is taken first. */
static const struct hly_chain *told(const struct hly_stall *p)
{
    const struct hly_chain *any = NULL;
    for (int i = 0; i < HLY_AWAITED_MOST; i++) {
        const struct hly_chain *chain = told_by(p, i);
        if (chain && chain->blocked[0].wait)
            return chain;
        any = any ? any : chain;
    }
    return any;
}

/* Appends what this rank has been told. all: all that owe it a message, and nothing else. */
static uint32_t append_told(const halay_comm_t *comm, int of, uint32_t number, bool all,
                            struct hly_blocked blocked[HLY_BLOCKED_MOST], uint32_t n)
{
    const struct hly_stall *p = comm->stalls[of];
    if (!p || p->sequence != number)
        return n;
    const struct hly_chain *chain = all ? NULL : told(p);
    for (uint32_t i = 0; chain && i < chain->n && n < HLY_BLOCKED_MOST; i++)
        blocked[n++] = chain->blocked[i];
    for (int i = 0; all && i < HLY_AWAITED_MOST && n < HLY_BLOCKED_MOST; i++)
        if (told_by(p, i) && p->waits.awaited[i].says == HLY_SEEN_BEHIND)
            blocked[n++] = p->chains[i].blocked[0];
    return n;
}

uint32_t hly_deadlock_chain(const halay_context_t *ctx, const halay_comm_t *comm, uint32_t sequence,
                            struct hly_blocked blocked[HLY_BLOCKED_MOST])
{
    const struct hly_waited *w = ctx->waiters.waited;
    const halay_request_t *r = w ? w->request : NULL;
    if (comm)
        return append_told(comm, HLY_OF_CALLS, sequence, false, blocked, 0);
    if (w && (!r || r->message.is)) {
        blocked[0] = hly_deadlock_blocked(w);
        return append_told(w->comm, HLY_OF_MESSAGES, w->number, w->from == HLY_ANY, blocked, 1);
    }
    if (is_call(r)) {
        blocked[0] = hly_deadlock_blocked(w);
    } else {
        r = waiting(ctx);
        if (!r)
            return 0;
        blocked[0] = blocked_in(r);
    }
    return append_told(r->comm, HLY_OF_CALLS, r->sequence, false, blocked, 1);
}

uint32_t hly_deadlock_check(const halay_comm_t *comm, const struct hly_blocked *blocked,
                            uint32_t nblocked)
{
    const int world = comm->context->info.nranks;
    uint32_t n = 0;
    while (n < nblocked && n < HLY_BLOCKED_MOST && blocked[n].rank >= 0 &&
           blocked[n].rank < world && blocked[n].nranks <= (uint32_t)world)
        n++;
    return n;
}

/* ---------------------------------------------------------------- cycles */

bool hly_deadlock_owes(const halay_comm_t *comm, int to, const struct hly_blocked *it)
{
    if (it->in == HLY_IN_CALL)
        return (int32_t)(comm->next_sequence - it->sequence) <= 0;
    if (it->in == HLY_IN_SEND)
        return it->message.peer == comm->rank &&
               hly_message_is_offered(comm->messages, to, it->message.number);
    /* else one is under way */
    return (it->message.peer == comm->rank || it->message.peer == HLY_ANY) &&
           hly_message_sent(comm->messages, to) == (uint32_t)it->message.number;
}

/* Does this rank belong to that call, and has not made it; or owes it that one a message? */
static bool lacks(const halay_context_t *ctx, const struct hly_blocked *it)
{
    const halay_comm_t *comm = hly_comm_find(ctx, it->comm);
    const int to = comm && it->in != HLY_IN_CALL ? hly_comm_rank_of(comm, it->rank) : 0;
    return comm && to >= 0 && hly_deadlock_owes(comm, to, it);
}

static bool is_same(const struct hly_blocked *a, const struct hly_blocked *b)
{
    return a->in == HLY_IN_CALL && b->in == HLY_IN_CALL && a->comm == b->comm &&
           a->sequence == b->sequence;
}

/* Finds the cycle of this rank's call and those of the chain: each waits for the rank of the next
 * one, and the last for the rank of the first. */
static bool find_cycle(const halay_request_t *r, const struct hly_chain *chain, struct hly_cycle *c)
{
    c->blocked[0] = blocked_in(r);
    for (uint32_t i = 0; i < chain->n; i++) {
        c->blocked[i + 1] = chain->blocked[i];
        c->n = i + 2;
        if (lacks(r->context, &chain->blocked[i]))
            return true;
        if (is_same(&c->blocked[0], &chain->blocked[i]) &&
            c->blocked[0].rank == chain->blocked[i].rank) { /* it waits in its own call, for others
                                                             * on a communicator it has not made */
            c->n = i + 1;
            return true;
        }
        for (uint32_t k = 0; k < i; k++)
            if (is_same(&chain->blocked[k],
                        &chain->blocked[i])) { /* a cycle that this rank is not in */
                c->n = i - k;
                memmove(c->blocked, &chain->blocked[k + 1], c->n * sizeof(c->blocked[0]));
                return true;
            }
    }
    return false;
}

void hly_deadlock_text(const struct hly_blocked *it, bool where, struct hly_line *line)
{
    static const enum hly_line_of of[] = {[HLY_IN_RECV] = HLY_LINE_RECV,
                                          [HLY_IN_PROBE] = HLY_LINE_PROBE,
                                          [HLY_IN_SEND] = HLY_LINE_SEND};
    char call[128] = "send or receive", name[sizeof(it->name) + 1] = "";
    memcpy(name, it->name, strnlen(it->name, sizeof(it->name)));
    if (it->in != HLY_IN_CALL) {
        hly_line_message(line, name, of[it->in], it->message.peer, it->message.tag);
        if (where)
            hly_line_put(line, " on a communicator of %u rank%s", it->nranks,
                         it->nranks == 1 ? "" : "s");
        return;
    }
    if (!(it->call.flags & HLY_CALL_PAIR))
        hly_desc_text(&it->call, call, sizeof(call));
    hly_line_put(line, "%s%s%s%scall %u on a communicator of %u rank%s)", name, name[0] ? " (" : "",
                 call, name[0] ? ", " : " (", it->sequence, it->nranks, it->nranks == 1 ? "" : "s");
}

static void blocked_text(const struct hly_blocked *it, char *text, size_t bytes)
{
    struct hly_line line = hly_line(text, bytes);
    hly_deadlock_text(it, false, &line);
}

/* Begins with the lowest rank, so that all ranks in the cycle have the same text. Calls without
 * room in it are counted. */
void hly_deadlock_cycle_text(const struct hly_cycle *c, char *text, size_t bytes)
{
    struct hly_text out = {text, bytes, 0};
    uint32_t first = 0;
    for (uint32_t i = 1; i < c->n; i++)
        first = c->blocked[i].rank < c->blocked[first].rank ? i : first;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct hly_blocked *it = &c->blocked[(first + i) % c->n];
        char at[224];
        blocked_text(it, at, sizeof(at));
        if (i && out.used + strlen(at) + 64 > bytes) {
            hly_text_put(&out, ", and %u more", c->n - i);
            return;
        }
        hly_text_put(&out, "%srank %d is in %s", i ? ", " : "", it->rank, at);
    }
}

/* Has that rank called on a communicator that this one does not have? hly_deadlock_absent() says
 * what that means. */
static bool calls_strangely(const halay_comm_t *comm, int rank)
{
    const halay_context_t *ctx = comm->context;
    return hly_orphan_from(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank))) != NULL;
}

void hly_deadlock_explain(halay_comm_t *comm, const struct hly_slot *slot,
                          struct hly_verdict_wire *v)
{
    const struct hly_stall *p = comm->stalls[HLY_OF_CALLS];
    const uint64_t now = hly_now_ns();
    for (int i = 0; p && p->sequence == slot->sequence && i < HLY_AWAITED_MOST; i++) {
        const struct hly_awaited *a = &p->waits.awaited[i];
        const struct hly_chain *chain = &p->chains[i];
        struct hly_cycle c;
        if (!chain->n || !hly_awaited_is_fresh(a, now))
            continue;
        if (find_cycle(slot->request, chain, &c)) {
            hly_verdict_init(v, comm, HLY_CAUSE_DEADLOCK, HALAY_ETIMEOUT, -1);
            hly_deadlock_cycle_text(&c, v->detail, sizeof(v->detail));
            return;
        }
        if (v->cause == HLY_CAUSE_UNCALLED && a->rank == (uint32_t)v->rank + 1 &&
            a->says != HLY_SEEN_HERE && !calls_strangely(comm, v->rank)) {
            char at[160];
            blocked_text(&chain->blocked[0], at, sizeof(at));
            snprintf(v->detail, sizeof(v->detail), "has not made this call: it waits in %s", at);
        }
    }
}

void hly_deadlock_absent(const halay_comm_t *comm, int rank, bool answers, char *text, size_t bytes)
{
    const halay_context_t *ctx = comm->context;
    const struct hly_call_desc *early =
        hly_orphan_from(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    if (early && early->flags & HLY_CALL_PAIR)
        snprintf(text, bytes,
                 "has not made this call: it sends to rank %d of the job, which has not called "
                 "halay_recv; of two ranks that send to each other one receives first, or both use "
                 "halay_isend",
                 ctx->info.rank);
    else if (early)
        snprintf(text, bytes,
                 "has not made this call, but calls on a communicator that rank %d of the job does "
                 "not have: all ranks must make communicators of one parent in the same order",
                 ctx->info.rank);
    else
        snprintf(text, bytes, "%s", answers ? "has not made this call" : HLY_ABSENT_TEXT);
}

void hly_deadlock_other(const struct hly_waited *w, char *text, size_t bytes)
{
    struct hly_stall *p = w->comm->stalls[HLY_OF_MESSAGES];
    struct hly_line line = hly_line(text, bytes);
    const struct hly_awaited *a = p && p->sequence == w->number && w->from != HLY_ANY
                                      ? hly_waits_find(&p->waits, w->from)
                                      : NULL;
    const struct hly_chain *chain = a ? told_by(p, (int)(a - p->waits.awaited)) : NULL;
    if (!chain || a->says != HLY_SEEN_BEHIND)
        return;
    hly_line_put(&line, "; rank %d of the job is in ", chain->blocked[0].rank);
    hly_deadlock_text(&chain->blocked[0], false, &line);
}

/* ---------------------------------------------------------------- ranks that cannot go on */

/*
 * A rank that owes another one a call or message said so in a wait that only others end, and which
 * has a number. If each of a set of ranks waits for ranks of the set that said so in the waits that
 * they are in, none can be the first one to go on. So old answers are as good as new ones:
 * docs/agreements.md.
 */
static bool closes(const halay_context_t *ctx, const struct hly_blocked *me,
                   const struct hly_chain *chain, struct hly_cycle *c)
{
    c->blocked[0] = *me;
    for (uint32_t i = 0; i < chain->n && i + 1 < HLY_BLOCKED_MOST; i++) {
        const struct hly_blocked *it = c->blocked + i + 1;
        c->blocked[i + 1] = chain->blocked[i];
        c->n = i + 2;
        if (!it->wait || (it->in != HLY_IN_CALL && it->message.peer == HLY_ANY))
            return false;
        if (lacks(ctx, it))
            return true;
    }
    return false;
}

static bool is_in(const struct hly_cycle *c, const struct hly_blocked *it)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->blocked[i].rank == it->rank && c->blocked[i].wait == it->wait)
            return it->wait != 0;
    return false;
}

/* Does the first rank of the chain wait for ranks of this set only? */
static bool is_held(const halay_context_t *ctx, const struct hly_cycle *c,
                    const struct hly_chain *chain)
{
    const struct hly_blocked *first = &chain->blocked[0];
    if (first->in == HLY_IN_CALL || first->message.peer != HLY_ANY)
        return lacks(ctx, first) || (chain->n > 1 && is_in(c, &chain->blocked[1]));
    bool all = chain->n == first->nranks;
    for (uint32_t i = 1; i < chain->n; i++)
        all = all && is_in(c, &chain->blocked[i]);
    return all;
}

/* This rank waits for a message of any other one. Do all of them wait for each other, or for this
 * one? */
static bool find_set(const struct hly_waited *w, struct hly_stall *p, const struct hly_blocked *me,
                     struct hly_cycle *c)
{
    const halay_comm_t *comm = w->comm;
    if (comm->nranks > HLY_BLOCKED_MOST)
        return false;
    c->n = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        const struct hly_awaited *a = rank == comm->rank ? NULL : hly_waits_find(&p->waits, rank);
        const struct hly_blocked *it = a ? &p->chains[a - p->waits.awaited].blocked[0] : me;
        if (rank != comm->rank &&
            (!a || a->says != HLY_SEEN_BEHIND || !p->chains[a - p->waits.awaited].n))
            return false;
        if (!it->wait || it->rank != hly_comm_world_rank(comm, rank))
            return false;
        c->blocked[c->n++] = *it;
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        const struct hly_awaited *a = rank == comm->rank ? NULL : hly_waits_find(&p->waits, rank);
        if (a && !is_held(comm->context, c, &p->chains[a - p->waits.awaited]))
            return false;
    }
    return c->n > 1;
}

bool hly_deadlock_find(const struct hly_waited *w, struct hly_stall *p, struct hly_cycle *c)
{
    const struct hly_blocked how = hly_deadlock_blocked(w), *const me = &how;
    if (!me->wait)
        return false;
    const bool message = me->in != HLY_IN_CALL;
    if (message && w->from == w->comm->rank) {
        c->blocked[0] = *me;
        c->n = 1;
        return true;
    }
    if (message && w->from == HLY_ANY)
        return find_set(w, p, me, c);
    for (int i = 0; i < HLY_AWAITED_MOST; i++) {
        const struct hly_awaited *a = &p->waits.awaited[i];
        if (a->rank && p->chains[i].n &&
            (!message || (a->rank == (uint32_t)w->from + 1 && a->says == HLY_SEEN_BEHIND)) &&
            closes(w->comm->context, me, &p->chains[i], c))
            return true;
    }
    return false;
}

bool hly_deadlock_is_in(const struct hly_waited *w, const struct hly_cycle *c, uint32_t *at)
{
    const struct hly_blocked me = hly_deadlock_blocked(w);
    for (*at = 0; me.wait && *at < c->n; ++*at)
        if (c->blocked[*at].rank == me.rank && c->blocked[*at].wait == me.wait)
            return true;
    return false;
}

bool hly_deadlock_is_call(const struct hly_waited *w)
{
    return is_call(w->request);
}
