/* SPDX-License-Identifier: Apache-2.0 */
/* deadlock.c - when ranks wait in different calls (deadlock.h). */
#include "fault/deadlock.h"

#include <stdio.h>
#include <string.h>

#include "fault/stall.h"
#include "plan/text.h"
#include "wire/match.h"

/* ---------------------------------------------------------------- which rank waits where */

static struct hly_blocked blocked_in(const halay_request_t *r)
{
    return (struct hly_blocked){.comm = r->comm->id,
                                .sequence = r->sequence,
                                .rank = r->context->info.rank,
                                .nranks = (uint32_t)r->comm->nranks,
                                .call = r->call.desc};
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

/* The chain of calls that an awaited rank has sent for the oldest call of this communicator; NULL:
 * none has. */
static const struct hly_chain *told(const halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_stall *p = comm->stalls[HLY_OF_CALLS];
    for (int i = 0; p && p->sequence == sequence && i < HLY_AWAITED_MOST; i++)
        if (p->chains[i].n && hly_awaited_is_fresh(&p->waits.awaited[i], hly_now_ns()))
            return &p->chains[i];
    return NULL;
}

uint32_t hly_deadlock_chain(const halay_context_t *ctx, const halay_comm_t *comm, uint32_t sequence,
                            struct hly_blocked blocked[HLY_BLOCKED_MOST])
{
    uint32_t n = 0;
    if (!comm) {
        const halay_request_t *r = waiting(ctx);
        if (!r)
            return 0;
        blocked[n++] = blocked_in(r);
        comm = r->comm;
        sequence = r->sequence;
    }
    const struct hly_chain *chain = told(comm, sequence);
    for (uint32_t i = 0; chain && i < chain->n && n < HLY_BLOCKED_MOST; i++)
        blocked[n++] = chain->blocked[i];
    return n;
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

struct cycle {
    uint32_t n;
    struct hly_blocked blocked[HLY_BLOCKED_MOST + 1];
};

/* Does this rank belong to that call, and has not made it? */
static bool lacks(const halay_context_t *ctx, const struct hly_blocked *it)
{
    const halay_comm_t *comm = hly_comm_find(ctx, it->comm);
    return comm && (int32_t)(comm->next_sequence - it->sequence) <= 0;
}

static bool is_same(const struct hly_blocked *a, const struct hly_blocked *b)
{
    return a->comm == b->comm && a->sequence == b->sequence;
}

/* Finds the cycle of this rank's call and those of the chain: each waits for the rank of the next
 * one, and the last for the rank of the first. */
static bool find_cycle(const halay_request_t *r, const struct hly_chain *chain, struct cycle *c)
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

static void blocked_text(const struct hly_blocked *it, char *text, size_t bytes)
{
    char call[128] = "send or receive";
    if (!(it->call.flags & HLY_CALL_PAIR))
        hly_desc_text(&it->call, call, sizeof(call));
    snprintf(text, bytes, "%s (call %u on a communicator of %u rank%s)", call, it->sequence,
             it->nranks, it->nranks == 1 ? "" : "s");
}

/* Begins with the lowest rank, so that all ranks in the cycle have the same text. Calls without
 * room in it are counted. */
static void cycle_text(const struct cycle *c, char *text, size_t bytes)
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
        struct cycle c;
        if (!chain->n || !hly_awaited_is_fresh(a, now))
            continue;
        if (find_cycle(slot->request, chain, &c)) {
            hly_verdict_init(v, comm, HLY_CAUSE_DEADLOCK, HALAY_ETIMEOUT, -1);
            cycle_text(&c, v->detail, sizeof(v->detail));
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
