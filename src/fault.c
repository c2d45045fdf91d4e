/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c - one rank's error becomes every rank's, with the same verdict (docs/decisions/0005).
 *
 * A call that has failed anywhere fails everywhere, because no rank completes a plan before it has
 * heard from every other (proved; but see series.h). The ranks that have made the call then agree
 * on one verdict, over a graph that does not depend on the plan: rank r sends to r + 2^k, k = 0 ..
 * L-1, modulo the ranks. ALARM  to all of these at once, on entering: spreads the news in L hops.
 * ROUND  k to r + 2^k, once rounds 0 .. k-1 were heard: a dissemination, after which every rank has
 * the best of the verdicts with which the ranks entered; so all have the same. A rank sends round 0
 * only when its buffers are withdrawn, so nobody leaves while it is asked to withdraw. Someone dead
 * is not waited for. Someone absent (has not made the call, or hangs) is named after a quarter of
 * the grace time, and the agreement ends with it: then by time, improvements being passed on.
 *
 * A rank may fail after others have all they need of it and have completed the call. It alarms
 * those to whom its plan still owes a message, too; and who has completed answers the first alarm
 * with all of its rounds, so that those who fail do not wait for it.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* A rank that was not scheduled for long reads what came meanwhile before it says that it is late:
 * it polls between two looks at the clock. */
#define LATE_LOOKS 8

/* ---------------------------------------------------------------- verdicts */

static void host_of(halay_comm_t *comm, int rank, char host[64])
{
    halay_context_t *ctx = comm->context;
    halay_place_t place = {.size = sizeof(place)};
    host[0] = 0;
    if (rank < 0 || rank >= comm->nranks)
        return;
    int world = hly_comm_world_rank(comm, rank);
    bool known = ctx->boot && !ctx->boot_ops->get(ctx->boot, world, &place);
    snprintf(host, 64, "%.63s", known ? place.host : ctx->info.host);
}

void hly_verdict_init(struct hly_verdict_wire *v, halay_comm_t *comm, enum hly_cause cause,
                      int code, int rank)
{
    memset(v, 0, sizeof(*v));
    v->cause = cause;
    v->code = code;
    v->rank = rank;
    v->other = -1;
    host_of(comm, rank, v->host);
}

void hly_verdict_other(struct hly_verdict_wire *v, halay_comm_t *comm)
{
    host_of(comm, v->other, v->other_host);
}

bool hly_verdict_better(const struct hly_verdict_wire *a, const struct hly_verdict_wire *b)
{
    if (!a->of != !b->of)
        return a->of; /* it was first */
    if (a->cause != b->cause)
        return a->cause < b->cause;
    if (a->rank != b->rank)
        return (uint32_t)a->rank < (uint32_t)b->rank; /* -1, nobody, is last */
    if (a->other != b->other)
        return (uint32_t)a->other < (uint32_t)b->other;
    return memcmp(a, b, sizeof(*a)) < 0;
}

static void op_text(const struct hly_brief *c, char *text, size_t bytes)
{
    if (c->op < HLY_BRIEF_USER)
        snprintf(text, bytes, ", %s%s", halay_op_name((halay_op_t)c->op),
                 c->flags & HLY_BRIEF_SCALED ? ", scaled" : "");
    else
        snprintf(text, bytes, ", user's operation %u%s", c->op % HLY_BRIEF_USER,
                 c->flags & HLY_BRIEF_ORDERED ? " in order" : "");
}

void hly_brief_text(const struct hly_brief *c, char *text, size_t bytes)
{
    halay_collective_t collective = (halay_collective_t)c->collective;
    bool known = c->collective < HALAY_COLLECTIVE_COUNT;
    const char *type = halay_type_name((halay_type_t)c->type);
    unsigned long long count = (unsigned long long)c->count;
    char what[64], op[40] = "", root[32] = "";
    if (collective == HALAY_BARRIER) {
        const char *form = c->flags & HLY_BRIEF_LIST    ? "comm_from_ranks of %llu"
                           : c->flags & HLY_BRIEF_GROUP ? "group of %llu calls"
                                                        : "barrier";
        snprintf(text, bytes, form, count);
        return;
    }
    if (!(c->flags & HLY_BRIEF_VECTOR))
        snprintf(what, sizeof(what), " of %llu %s", count, type);
    else if (collective == HALAY_ALLTOALL)
        snprintf(what, sizeof(what), "v of %s", type);
    else
        snprintf(what, sizeof(what), "v of %s, %llu in all", type, count);
    if (known && halay_collective_reduces(collective))
        op_text(c, op, sizeof(op));
    if (known && halay_collective_rooted(collective))
        snprintf(root, sizeof(root), " %s root %d",
                 collective == HALAY_GATHER || collective == HALAY_REDUCE ? "to" : "from",
                 (int)c->root);
    snprintf(text, bytes, "%s%s%s%s%s", known ? halay_collective_name(collective) : "?", what, op,
             root, c->flags & HLY_BRIEF_IN_PLACE ? ", in place" : "");
}

int hly_failure_rank(const struct hly_failure *f, int rank)
{
    return f->paired && rank >= 0 ? f->pair[rank & 1] : rank;
}

/* The call as `rank` made it. */
static void call_text(const struct hly_failure *f, const struct hly_brief *call, int rank,
                      char *text, size_t bytes)
{
    if (!f->paired)
        hly_brief_text(call, text, bytes);
    else
        snprintf(text, bytes, "%s of %llu %s %s rank %d", rank == 1 ? "receive" : "send",
                 (unsigned long long)call->count, halay_type_name((halay_type_t)call->type),
                 rank == 1 ? "from" : "to", f->pair[rank != 1]);
}

/* Which call it was. */
static void number_text(const struct hly_failure *f, char *text, size_t bytes)
{
    if (f->paired)
        snprintf(text, bytes, "message %u from rank %d to rank %d", f->sequence, f->pair[0],
                 f->pair[1]);
    else
        snprintf(text, bytes, "call %u on this communicator", f->sequence);
}

static void mismatch_text(const struct hly_failure *f, const char *number, char *text, size_t bytes)
{
    const struct hly_verdict_wire *v = &f->verdict;
    char one[96], two[96];
    call_text(f, &v->call, v->rank, one, sizeof(one));
    call_text(f, &v->other_call, v->other, two, sizeof(two));
    if (v->detail[0])
        snprintf(
            text, bytes,
            "the counts of %s do not fit (%s): %s (rank %d is on %s, rank %d on %s). Each rank "
            "must expect from another what that one sends",
            one, number, v->detail, v->rank, v->host, v->other, v->other_host);
    else
        snprintf(text, bytes,
                 "the ranks' calls differ (%s): rank %d on %s called %s; rank %d on %s called "
                 "%s%s. All ranks must make the same calls in the same order",
                 number, hly_failure_rank(f, v->rank), v->host, one, hly_failure_rank(f, v->other),
                 v->other_host, two,
                 strcmp(one, two) ? ""
                 : (v->call.flags ^ v->other_call.flags) & HLY_BRIEF_SERIES
                     ? ", of which one did not follow the same call"
                 : f->verdict.call.flags & HLY_BRIEF_LIST ? " with another list"
                 : f->verdict.call.flags & HLY_BRIEF_GROUP
                     ? ", and those differ"
                     : " with other counts, factors or operations");
}

void hly_failure_text(const struct hly_failure *f, char *text, size_t bytes)
{
    const struct hly_verdict_wire *v = &f->verdict;
    bool waited = v->cause >= HLY_CAUSE_ABSENT; /* the call is that of the other side */
    char call[96], number[96];
    int rank = hly_failure_rank(f, v->rank);
    call_text(f, &v->call, waited ? v->rank == 0 : v->rank, call, sizeof(call));
    number_text(f, number, sizeof(number));
    switch (v->cause) {
    case HLY_CAUSE_PEER:
        snprintf(text, bytes,
                 "rank %d of %d on %s is lost: %s. Look at that rank's own output for the first "
                 "error, or why it has ended early; the job has to be started again",
                 rank, f->nranks, v->host, v->detail);
        return;
    case HLY_CAUSE_SETTINGS:
        snprintf(text, bytes,
                 "the ranks' versions or settings differ: %s. Give all ranks the same library and "
                 "the same HALAY_* variables",
                 v->detail);
        return;
    case HLY_CAUSE_MISMATCH:
        mismatch_text(f, number, text, bytes);
        return;
    case HLY_CAUSE_ARGUMENT:
    case HLY_CAUSE_STATE:
    case HLY_CAUSE_LOCAL:
        snprintf(text, bytes, "rank %d of %d on %s, %s (%s): %s", rank, f->nranks, v->host, call,
                 number, v->detail);
        return;
    default:
        snprintf(
            text, bytes,
            "the deadline passed in %s (%s): rank %d of %d on %s %s. See where that rank is (a "
            "debugger, py-spy); HALAY_DEADLINE sets more seconds",
            call, number, rank, f->nranks, v->host, v->detail);
    }
}

/* ---------------------------------------------------------------- the agreement */

static uint32_t rounds_of(const halay_comm_t *comm)
{
    uint32_t rounds = 0;
    while ((1ull << rounds) < (uint64_t)comm->nranks)
        rounds++;
    assert(rounds <= HLY_CONTROL_MAX);
    return rounds;
}

static int to_of(const halay_comm_t *comm, uint32_t k)
{
    return (int)(((uint64_t)comm->rank + (1ull << k)) % (uint64_t)comm->nranks);
}

static int from_of(const halay_comm_t *comm, uint32_t k)
{
    uint64_t n = (uint64_t)comm->nranks;
    return (int)(((uint64_t)comm->rank + n - (1ull << k) % n) % n);
}

bool hly_fault_is_dead(const halay_comm_t *comm, int rank)
{
    halay_context_t *ctx = comm->context;
    struct hly_peer *p = hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    return p && p->dead;
}

static void send_verdict(halay_comm_t *comm, const struct hly_slot *slot, enum hly_kind kind,
                         uint32_t k)
{
    const struct hly_call *call = slot->request ? &slot->request->call : NULL;
    hly_control_send(comm, to_of(comm, k), kind, slot->sequence, k, 0, call, &slot->fault->verdict,
                     sizeof(slot->fault->verdict));
}

static void alarm_all(halay_comm_t *comm, const struct hly_slot *slot)
{
    for (uint32_t k = 0; k < rounds_of(comm); k++)
        send_verdict(comm, slot, HLY_ALARM, k);
}

/*
 * Those who wait for a message that will not come now. Where they are no control neighbours, and
 * the ranks between have completed the call, nobody else would tell them.
 */
static void alarm_expectant(halay_comm_t *comm, const struct hly_slot *slot)
{
    const halay_request_t *r = slot->request;
    uint64_t mark = ++comm->context->alarms;
    for (uint32_t i = 0; r->ran && i < r->plan->plan->nsteps; i++) {
        const halay_step_t *s = &r->plan->plan->steps[i];
        struct hly_peer *peer = r->plan->peers[i];
        if (s->kind != HALAY_STEP_SEND || r->run[i].state == HLY_DONE || peer->alarm == mark)
            continue;
        peer->alarm = mark;
        hly_control_send(comm, (int)s->peer, HLY_ALARM, slot->sequence, 0, 0, &r->call,
                         &slot->fault->verdict, sizeof(slot->fault->verdict));
    }
}

/*
 * After a death or an absence the rounds may never be complete: the clock ends them. Of a death all
 * ranks say the same by themselves; who is absent has to be passed on, so that takes longer. So it
 * is where ranks may have gone on, and make no call just now.
 */
static void by_time(const halay_comm_t *comm, const struct hly_slot *slot, enum hly_cause cause)
{
    struct hly_fault *f = slot->fault;
    bool slow = cause == HLY_CAUSE_PEER || cause >= HLY_CAUSE_ABSENT ||
                hly_series_follows(comm, slot->sequence);
    if (!slow || f->slow)
        return;
    uint64_t now = hly_now_ns(), grace = HLY_GRACE_NS, share = comm->deadline_ns / 4;
    if (cause != HLY_CAUSE_PEER && share > grace)
        grace = share < HLY_GRACE_MAX_NS ? share : HLY_GRACE_MAX_NS;
    f->slow = true;
    if (f->deadline_ns > now + grace || !f->deadline_ns)
        f->deadline_ns = now + grace;
    f->absent_ns = now + grace / 4;
}

static void enter(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    halay_request_t *r = slot->request;
    assert(f && r && !f->entered);
    f->entered = true;
    r->state = HLY_FAILING;
    f->deadline_ns = r->deadline_ns + HLY_GRACE_NS;
    f->absent_ns = r->deadline_ns;
    f->slow = false;
    slot->settled = true;
    by_time(comm, slot, f->verdict.cause);
    comm->context->timer_ns = 0;
    alarm_all(comm, slot);
    alarm_expectant(comm, slot);
    hly_channel_withdraw(r);
    hly_fault_progress(comm, slot);
}

void hly_fault_tell(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v,
                    int level)
{
    halay_comm_t *known = comm->parent ? comm->parent : comm;
    struct hly_failure f = {.verdict = *v,
                            .sequence = v->of ? (uint32_t)(v->of - 1) : sequence,
                            .nranks = known->nranks,
                            .paired = comm->parent != NULL,
                            .pair = {comm->pair[0], comm->pair[1]}};
    char text[512];
    known->last = f;
    known->failed = true;
    hly_failure_text(&f, text, sizeof(text));
    hly_log(comm->context, level, "%s", text);
}

static void conclude(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_verdict_wire v = slot->fault->verdict;
    if (!v.of && slot->fault->round < rounds_of(comm) && hly_series_follows(comm, slot->sequence))
        v.of = (uint64_t)slot->sequence + 1; /* somebody has gone on, perhaps */
    bool out_of_step = v.cause == HLY_CAUSE_PEER || v.cause == HLY_CAUSE_SETTINGS ||
                       v.cause >= HLY_CAUSE_ABSENT || v.of;
    if (out_of_step && !comm->broken) {
        comm->broken = true;
        comm->broken_by = v;
    }
    hly_fault_tell(comm, slot->sequence, &v, slot->request->foreseen ? HLY_INFO : HLY_WARN);
    comm->series.late = false;
    hly_engine_finish(slot->request, v.code);
}

/* Do peers still have to be told by this rank? After its call has returned nobody moves that on. */
static bool has_to_tell(const halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_link *busy = &comm->context->busy_peers;
    for (const struct hly_link *l = busy->next; l != busy; l = l->next) {
        const struct hly_peer *peer = HLY_OF(l, struct hly_peer, waiting);
        for (const struct hly_link *o = peer->queue.next; o != &peer->queue; o = o->next) {
            const struct hly_out *out = HLY_OF(o, struct hly_out, link);
            if (out->kind == HLY_OUT_CONTROL && out->header.comm == comm->id &&
                out->header.sequence == sequence)
                return true;
        }
    }
    return false;
}

void hly_fault_progress(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    halay_request_t *r = slot->request;
    if (!f || !f->entered || !r || r->state != HLY_FAILING)
        return;
    if (f->verdict.rank >= 0 && hly_fault_is_dead(comm, f->verdict.rank))
        by_time(comm, slot, HLY_CAUSE_PEER);
    uint32_t rounds = rounds_of(comm);
    bool quiet = hly_link_empty(&r->flying) && !r->landings;
    bool late = f->looks >= LATE_LOOKS || comm->context->lost;
    if (late && !quiet) {
        hly_channel_force(r);
        quiet = hly_link_empty(&r->flying) && !r->landings;
    }
    if (!quiet)
        return;
    if (!f->started && rounds)
        send_verdict(comm, slot, HLY_ROUND, 0);
    f->started = true;
    while (f->round < rounds &&
           ((f->heard >> f->round & 1) || hly_fault_is_dead(comm, from_of(comm, f->round)))) {
        f->round++;
        if (f->round < rounds)
            send_verdict(comm, slot, HLY_ROUND, f->round);
    }
    if (late || (f->round == rounds && !has_to_tell(comm, slot->sequence)))
        conclude(comm, slot);
}

/* Takes a verdict over if it is the first or a better one. */
static bool adopt(struct hly_fault *f, const struct hly_verdict_wire *v)
{
    if (f->raised && !hly_verdict_better(v, &f->verdict))
        return false;
    f->raised = true;
    f->verdict = *v;
    return true;
}

static struct hly_fault *fault_of(struct hly_slot *slot)
{
    if (!slot->fault)
        slot->fault = calloc(1, sizeof(*slot->fault));
    return slot->fault;
}

void hly_fault_raise(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v)
{
    struct hly_slot *slot = hly_comm_slot(comm, sequence);
    if (!slot || slot->complete || !fault_of(slot))
        return;
    struct hly_fault *f = slot->fault;
    if (f->entered && !f->slow)
        return; /* what a rank brings into the agreement is fixed when it enters */
    bool better = adopt(f, v);
    if (!f->entered && slot->request)
        enter(comm, slot);
    else if (better && f->entered)
        alarm_all(comm, slot);
}

void hly_fault_entered(halay_request_t *r)
{
    struct hly_slot *slot = hly_request_slot(r);
    enter(r->comm, slot);
}

void hly_fault_heard(halay_comm_t *comm, const struct hly_header *h,
                     const struct hly_verdict_wire *v)
{
    struct hly_slot *slot = hly_comm_slot(comm, h->sequence);
    if (!slot || !fault_of(slot))
        return;
    struct hly_fault *f = slot->fault;
    for (uint32_t k = 0; k < rounds_of(comm); k++)
        if (from_of(comm, k) == (int)h->from)
            f->alarmed |= 1u << k;
    if (h->kind == HLY_ROUND && h->edge < HLY_CONTROL_MAX)
        f->heard |= 1u << h->edge;
    bool better = adopt(f, v);
    if (f->entered && better) {
        by_time(comm, slot, v->cause);
        if (f->slow)
            alarm_all(comm, slot);
    }
    if (!f->entered && slot->request)
        enter(comm, slot);
    else
        hly_fault_progress(comm, slot);
}

/* This rank had completed the call before: those who fail in it need not wait for its rounds. If
 * this was in a series, they hear that ranks are not in step any more. */
void hly_fault_outlived(halay_comm_t *comm, const struct hly_header *h,
                        const struct hly_verdict_wire *v)
{
    struct hly_slot *slot = &comm->slots[h->sequence % HLY_SLOTS];
    if (slot->sequence != h->sequence || slot->settled)
        return;
    slot->settled = true;
    struct hly_verdict_wire mine = *v;
    if (slot->unheard)
        hly_series_failed(comm, h->sequence, &mine);
    for (uint32_t k = 0; k < rounds_of(comm); k++)
        hly_control_send(comm, to_of(comm, k), HLY_ROUND, h->sequence, k, 0, NULL, &mine,
                         sizeof(mine));
}

/* ---------------------------------------------------------------- time */

/* Whom a call waits for: the first peer that a started step has not heard from. */
static void name_the_missing(halay_request_t *r, struct hly_verdict_wire *v)
{
    uint32_t n = r->ran ? r->plan->plan->nsteps : 0;
    for (uint32_t i = 0; i < n; i++) {
        const halay_step_t *s = &r->plan->plan->steps[i];
        const bool last = i == r->plan->ahead && hly_both_waits(r);
        if ((r->run[i].state != HLY_STARTED && !last) || !r->plan->peers[i])
            continue;
        hly_verdict_init(v, r->comm, HLY_CAUSE_DEADLINE, HALAY_ETIMEOUT, (int)s->peer);
        v->call = r->call.brief;
        snprintf(v->detail, sizeof(v->detail), "did not answer rank %d (step %u, %s)",
                 hly_comm_shown_rank(r->comm, r->comm->rank), i,
                 s->kind == HALAY_STEP_RECV ? "receive" : "send");
        return;
    }
    hly_verdict_init(v, r->comm, HLY_CAUSE_DEADLINE, HALAY_ETIMEOUT, -1);
    v->call = r->call.brief;
}

static void name_the_absent(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    for (uint32_t k = 0; k < rounds_of(comm); k++) {
        if (f->alarmed >> k & 1 || hly_fault_is_dead(comm, from_of(comm, k)))
            continue;
        struct hly_verdict_wire v;
        hly_verdict_init(&v, comm, HLY_CAUSE_ABSENT, HALAY_ETIMEOUT, from_of(comm, k));
        v.call = slot->request->call.brief;
        snprintf(v.detail, sizeof(v.detail), "has not made this call, or does not answer");
        if (hly_verdict_better(&v, &f->verdict)) {
            f->verdict = v;
            alarm_all(comm, slot);
        }
        return;
    }
}

void hly_fault_timers(halay_context_t *context)
{
    struct hly_link *next;
    uint64_t now = context->now_ns;
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = next) {
        next = l->next;
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        struct hly_slot *slot = hly_request_slot(r);
        if (r->state == HLY_FAILING) {
            struct hly_fault *f = slot->fault;
            if (f->slow && f->round < rounds_of(r->comm) && now >= f->absent_ns) {
                f->absent_ns = UINT64_MAX;
                name_the_absent(r->comm, slot);
            }
            f->looks += now >= f->deadline_ns;
            hly_fault_progress(r->comm, slot);
        } else if (now >= r->deadline_ns) {
            struct hly_verdict_wire v;
            name_the_missing(r, &v);
            hly_fault_raise(r->comm, r->sequence, &v);
        } else {
            hly_series_doubt(r);
        }
    }
}
