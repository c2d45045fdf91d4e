/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c - one rank's error becomes every rank's, with the same verdict (docs/decisions/0005).
 *
 * A call that has failed anywhere fails everywhere, because no rank completes a plan before it has
 * heard from every other (proved; exec/relaxed.h is the exception). The ranks that have made the
 * call then agree on one verdict. They use a graph that does not depend on the plan: rank r sends
 * to r + 2^k modulo the ranks, for k = 0 .. L-1, where L = ceil(log2 of the ranks).
 *
 *  - ALARM: to all of these at once, when a rank enters. All ranks know of the failure in L hops.
 *  - ROUND k: to r + 2^k, once rounds 0 .. k-1 have come. This is a dissemination: after it all
 * ranks have the best of the verdicts with which they entered, so all have the same.
 *
 * A rank sends round 0 only when its buffers are withdrawn, so no rank leaves while others write to
 * it. The dead are not waited for. A rank that is absent (has not made the call, or hangs) is named
 * after a quarter of the grace time. The clock then ends the agreement, and better verdicts are
 * passed on until then.
 *
 * A rank may fail after others had all they need of it and have completed the call. So it also
 * alarms those to whom its plan still owes a message. Who has completed the call takes part in its
 * agreement all the same, for the grace time. Then it sends the rest of its rounds at once.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/circle.h"
#include "exec/exec.h"
#include "exec/listen.h"
#include "exec/record.h"
#include "exec/relaxed.h"
#include "exec/work.h"
#include "fault/agree.h"
#include "fault/elsewhere.h"
#include "fault/patience.h"
#include "wire/match.h"
#include "wire/rendezvous.h"

/* A rank that was not scheduled for long must read what came meanwhile before its time is up. So
 * the end takes so many looks at the clock, and it polls between them. */
#define LATE_LOOKS 8
/* A rank came late if it has been in the call for less than this share of the deadline when that
 * passes for others; or than half of the patience, where they give up a stopped rank. */
#define LATE_SHARE 8

/* ---------------------------------------------------------------- the agreement */

static int to_of(const halay_comm_t *comm, uint32_t k)
{
    return (int)(((uint64_t)comm->rank + (1ull << k)) % (uint64_t)comm->nranks);
}

/* Nothing is sent to who is called dead or stopped and has no link to this rank: it would wait for
 * one, and the call's end for that. One that has a link may live: others only cannot reach it. */
static bool is_beyond(const halay_comm_t *comm, const struct hly_verdict_wire *v, int rank)
{
    const halay_context_t *ctx = comm->context;
    const struct hly_peer *peer;
    if (!hly_agree_counts_out(v, rank))
        return false;
    peer = hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(comm, rank)));
    return !peer || !peer->greeted;
}

static void send_verdict(halay_comm_t *comm, const struct hly_slot *slot, enum hly_kind kind,
                         uint32_t k)
{
    if (is_beyond(comm, &slot->fault->verdict, to_of(comm, k)))
        return;
    const struct hly_call *call = slot->request ? &slot->request->call : NULL;
    hly_control_send(comm, to_of(comm, k), kind, slot->sequence, k, 0, call, &slot->fault->verdict,
                     sizeof(slot->fault->verdict));
}

static void alarm_all(halay_comm_t *comm, const struct hly_slot *slot)
{
    for (uint32_t k = 0; k < hly_agree_rounds(comm); k++)
        send_verdict(comm, slot, HLY_ALARM, k);
}

/*
 * Alarms those that wait for a message of this rank, which will not come now. If they are no
 * control neighbours, and the ranks between have completed the call, nobody else tells them.
 */
static void alarm_expectant(halay_comm_t *comm, const struct hly_slot *slot)
{
    const halay_request_t *r = slot->request;
    uint64_t mark = ++comm->context->alarms;
    for (uint32_t i = 0; r->run.ran && i < r->plan->nsteps; i++) {
        const halay_step_t *s = &r->plan->steps[i];
        struct hly_peer *peer = r->plan->peers[i];
        if (s->kind == HALAY_STEP_GROUP && r->run.state[i] != HLY_DONE)
            hly_fault_alarm_members(slot, s, mark);
        if (s->kind != HALAY_STEP_SEND || r->run.state[i] == HLY_DONE || peer->alarm == mark)
            continue;
        peer->alarm = mark;
        hly_control_send(comm, (int)s->peer, HLY_ALARM, slot->sequence, 0, 0, &r->call,
                         &slot->fault->verdict, sizeof(slot->fault->verdict));
    }
}

/*
 * Lets the clock end the agreement, where the rounds may never be complete. After a death, or a
 * stop, one rank judges. Who is absent has to be passed on, so that takes longer. The
 * same holds where ranks have gone on (`of`), or may have after a relaxed call. Ranks of another
 * build may send verdicts that make no sense here.
 */
static void by_time(const halay_comm_t *comm, const struct hly_slot *slot, enum hly_cause cause)
{
    struct hly_fault *f = slot->fault;
    bool slow = cause <= HLY_CAUSE_BUILD || cause >= HLY_CAUSE_STOPPED || f->verdict.of ||
                hly_relaxed_follows(comm, slot->sequence);
    const bool known = cause <= HLY_CAUSE_BUILD || cause == HLY_CAUSE_STOPPED;
    if (!slow || (f->slow && !known))
        return;
    uint64_t now = hly_now_ns(), grace = HLY_GRACE_NS, share = comm->deadline_ns / 4;
    if (!known && share > grace)
        grace = share < HLY_GRACE_MAX_NS ? share : HLY_GRACE_MAX_NS;
    if (f->slow && f->deadline_ns < now + grace)
        return;
    f->slow = true;
    hly_patience_hurry(comm);
    f->deadline_ns = now + grace;
    f->absent_ns = now + grace / 4;
}

void hly_fault_hurry(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    const uint64_t end_ns = hly_now_ns() + HLY_GRACE_MAX_NS;
    if (!f->final)
        by_time(comm, slot, HLY_CAUSE_ABSENT);
    if (f->deadline_ns > end_ns)
        f->deadline_ns = end_ns;
}

/* ---------------------------------------------------------------- its beginning and its end */

/* A persistent request that was wrong from the beginning keeps its refusal for the next start. */
static void forget_refusal(halay_request_t *r)
{
    if (r->refused && r->persistent)
        return;
    free(r->refusal);
    r->refusal = NULL;
}

static void enter(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    halay_request_t *r = slot->request;
    assert(f && r && !f->entered);
    f->entered = true;
    r->state = HLY_FAILING;
    hly_record_wait(r);
    r->listens = false;
    forget_refusal(r);
    f->deadline_ns = r->deadline_ns + HLY_GRACE_NS;
    f->absent_ns = r->deadline_ns;
    f->slow = false;
    slot->settled = true;
    comm->context->timer_ns = 0;
    if (hly_comm_is_over(comm, slot->sequence)) {
        f->final = f->after = true;
        f->verdict = comm->broken_by;
        f->deadline_ns = hly_now_ns() + HLY_GRACE_NS;
    } else {
        hly_agree_reconsider(comm, slot);
        hly_agree_note_dead(comm, f);
        by_time(comm, slot, f->verdict.cause);
        alarm_all(comm, slot);
        alarm_expectant(comm, slot);
    }
    hly_group_steps_fail(r);
    hly_rendezvous_withdraw(r, &f->verdict);
    hly_fault_progress(comm, slot);
}

void hly_fault_tell(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v,
                    enum hly_voice voice, struct hly_failure *f)
{
    char text[640];
    hly_failure_init(f, comm, sequence, v);
    hly_failure_text(f, text, sizeof(text));
    const bool loud = voice == HLY_VOICE_LOUD && hly_verdict_is_news(comm, v);
    hly_log(comm->context, loud ? HLY_WARN : HLY_INFO, "%s", text);
    if (voice == HLY_VOICE_KNOWN)
        return;
    halay_record_verdict_t said = {.comm = comm->id,
                                   .sequence = f->sequence,
                                   .code = v->code,
                                   .cause = (int32_t)v->cause,
                                   .rank = v->rank,
                                   .other = v->other,
                                   .broken = comm->broken};
    snprintf(said.text, sizeof(said.text), "%.463s", text);
    hly_record_verdict(comm->context, &said);
}

void hly_fault_read(halay_request_t *r)
{
    halay_comm_t *known = hly_comm_known(r->comm);
    if (!r->failure) {
        hly_fault_alone(known, r->result, "no memory to say why the call has failed");
        return;
    }
    known->last = *r->failure;
    known->failed = true;
    free(r->failure);
    r->failure = NULL;
}

/* All calls on the communicator end with this verdict from now on. Tells the neighbours, for some
 * ranks were not in the agreement. */
static void agree(halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    comm->broken = comm->agreed = true;
    comm->broken_by = *v;
    hly_verdict_agreed(comm, v);
    comm->over = (uint32_t)(v->of - 1);
    comm->context->timer_ns = 0; /* hly_fault_timers() ends the calls in flight */
    if (v->cause == HLY_CAUSE_REVOKED)
        hly_fault_revoked(comm);
    for (uint32_t k = 0; k < hly_agree_rounds(comm); k++)
        if (!is_beyond(comm, v, to_of(comm, k)))
            hly_agree_tell(comm, to_of(comm, k), v);
    hly_judge_tell(comm, v);
}

static void help_all(halay_context_t *context);

static void conclude(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    halay_request_t *r = slot->request;
    const bool whole = hly_agree_is_whole(comm, f);
    if (!f->final && whole && hly_agree_is_claim(&f->verdict))
        hly_agree_hold_firm(comm, f);
    struct hly_verdict_wire v = f->verdict;
    memset(v.present, 0, sizeof(v.present));
    memset(v.gone, 0, sizeof(v.gone));
    bool out_of_step = v.cause <= HLY_CAUSE_SETTINGS || v.cause == HLY_CAUSE_DEVICE ||
                       v.cause >= HLY_CAUSE_STOPPED || v.of || !whole;
    if (out_of_step && !f->final && !comm->agreed) {
        if (!v.of)
            v.of = (uint64_t)slot->sequence + 1;
        agree(comm, &v);
    } else if (out_of_step && !f->final) { /* they have agreed in a later call: relaxed.h */
        comm->over = slot->sequence;
        v = comm->broken_by;
    }
    bool known = comm->asks_for || (r->foreseen && comm->said);
    comm->said = comm->said || out_of_step;
    r->failure = malloc(sizeof(*r->failure));
    struct hly_failure spare;
    hly_fault_tell(comm, slot->sequence, &v,
                   known ? HLY_VOICE_KNOWN : hly_agree_voice(comm, slot, &v),
                   r->failure ? r->failure : &spare);
    comm->relaxed.late = false;
    if (comm->inner) /* of groups that ended well: it is told by this call */
        comm->inner->relaxed.late = false;
    comm->told = (uint64_t)slot->sequence + 1;
    hly_exec_finish(r, v.code);
    if (comm->context->outlived)
        help_all(comm->context); /* perhaps it was the last call */
}

/* Are verdicts still queued for peers? After the call has returned nobody might send them. */
static bool has_to_tell(const halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_link *busy = &comm->context->busy_peers;
    for (const struct hly_link *l = busy->next; l != busy; l = l->next) {
        const struct hly_peer *peer = HLY_OF(l, struct hly_peer, waiting);
        for (const struct hly_link *o = peer->queue.next; o != &peer->queue; o = o->next) {
            const struct hly_send *out = HLY_OF(o, struct hly_send, link);
            if (out->kind == HLY_SEND_CONTROL && out->header.comm == comm->id &&
                out->header.sequence == sequence && out->header.kind < HLY_ASK)
                return true;
        }
    }
    return false;
}

/*
 * The verdict is known: may the call end? Not while it has to tell others; but that takes no longer
 * than the grace time, since some may have left without need of it.
 */
static bool may_conclude(const halay_comm_t *comm, struct hly_slot *slot, bool late)
{
    if (late || !has_to_tell(comm, slot->sequence))
        return true;
    const uint64_t end_ns = hly_now_ns() + HLY_GRACE_NS;
    if (slot->fault->deadline_ns > end_ns)
        slot->fault->deadline_ns = end_ns;
    return false;
}

/* Does an older call fail, too? Then it ends first, since it may decide how this one does. */
static bool older_fails(const halay_comm_t *comm, const struct hly_slot *slot)
{
    for (uint32_t s = comm->oldest; s != slot->sequence; s++) {
        const struct hly_slot *older = &comm->slots[s % HLY_SLOTS];
        if (older->request &&
            (older->request->state == HLY_STOPPED || older->request->state == HLY_FAILING))
            return true;
    }
    return false;
}

static bool has_to_listen(halay_context_t *context)
{
    context->now_ns = hly_about_now_ns();
    return hly_exec_has_to_listen(context);
}

/*
 * Takes part in the rounds, as far as those before have come. Not while an older call is under way,
 * unless it is late: the older one may fail too, and then decides how this one does.
 */
static void go_round(halay_comm_t *comm, struct hly_slot *slot, bool late)
{
    struct hly_fault *f = slot->fault;
    const uint32_t rounds = hly_agree_rounds(comm);
    if (!late && (int32_t)(slot->sequence - comm->oldest) > 0)
        return; /* hly_fault_timers() calls this again */
    if (!f->started && rounds)
        send_verdict(comm, slot, HLY_ROUND, 0);
    f->started = true;
    /* Who was absent may have left meanwhile: that ends no agreement that the clock ends. */
    const bool clock = f->slow && f->verdict.cause > HLY_CAUSE_BUILD;
    while (f->round < rounds &&
           ((f->heard >> f->round & 1) ||
            (!clock && hly_agree_is_gone(comm, f, hly_agree_from(comm, f->round))))) {
        f->round++;
        if (f->round < rounds)
            send_verdict(comm, slot, HLY_ROUND, f->round);
    }
}

static bool is_decided(halay_comm_t *comm, struct hly_slot *slot)
{
    const bool over = slot->fault->round == hly_agree_rounds(comm);
    if (hly_comm_is_over(comm, slot->sequence))
        return false; /* who was told has no word for the next judge: hly_fault_timers() ends it */
    return hly_judge_rules(comm, &slot->fault->verdict) ? hly_judge_decides(comm, slot, over, false)
                                                        : over;
}

void hly_fault_progress(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    halay_request_t *r = slot->request;
    if (!f || !f->entered || !r || r->state != HLY_FAILING)
        return;
    if (!f->final && comm->broken && comm->broken_by.cause == HLY_CAUSE_PEER)
        by_time(comm, slot, HLY_CAUSE_PEER); /* lost, or left after it had ended this call */
    bool quiet = hly_link_empty(&r->flying) && !r->targets;
    const bool clock = f->looks >= LATE_LOOKS;
    bool late = comm->context->lost || (clock && (f->final || hly_judge_ends(comm, slot)));
    if ((late || clock) && !quiet) {
        hly_work_stop(r);
        hly_group_steps_force(r);
        hly_rendezvous_force(r);
        quiet = hly_link_empty(&r->flying) && !r->targets;
    }
    if (!f->final)
        is_decided(comm, slot); /* others need not wait until it is quiet */
    if (!quiet)
        return;
    hly_fault_runs_on(comm, slot);
    if (f->final) {
        if (may_conclude(comm, slot, late))
            conclude(comm, slot);
        return;
    }
    go_round(comm, slot, late);
    if (older_fails(comm, slot))
        return;
    if (f->round == hly_agree_rounds(comm) && !late && has_to_listen(comm->context)) {
        hly_exec_listen(comm->context); /* others may have concluded without this rank */
        comm->context->timer_ns = 0;    /* so that this is called again soon */
    } else if (late || (is_decided(comm, slot) && may_conclude(comm, slot, false))) {
        conclude(comm, slot);
    }
}

void hly_agree_lost(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    if (f && f->entered && !f->final && hly_judge_rules(comm, &f->verdict) &&
        hly_agree_note_dead(comm, f))
        alarm_all(comm, slot);
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
    if (f->entered && (f->final || (f->started && !f->slow)))
        return; /* with rounds, a rank's verdict is fixed when it sends the first one; */
    if (f->word && hly_judge_rules(comm, &f->verdict) && v->cause != HLY_CAUSE_DEVICE)
        return; /* with a judge, when it gives its word */
    bool better = hly_agree_adopt(comm, slot, v);
    if (!f->entered && slot->request)
        enter(comm, slot);
    else if (better && f->entered)
        alarm_all(comm, slot);
}

/* Others have given it up, by their deadline or their patience, and this call has hardly begun, or
 * they say that it was stopped: then it was waited for. */
static void enter_late(halay_comm_t *comm, struct hly_slot *slot, bool stopped)
{
    const halay_request_t *r = slot->request;
    const uint64_t since = hly_about_now_ns() - r->started_ns,
                   share = comm->deadline_ns / LATE_SHARE,
                   patience = comm->context->settings.stop_patience_ns / 2;
    stopped |= since < (share < patience ? share : patience);
    if (slot->fault->verdict.cause >= HLY_CAUSE_STOPPED && stopped) {
        struct hly_verdict_wire v;
        hly_verdict_init(&v, comm, HLY_CAUSE_LATE, HALAY_ETIMEOUT, comm->rank);
        v.call = r->call.desc;
        snprintf(v.detail, sizeof(v.detail), "made this call only when others had given it up");
        hly_agree_adopt(comm, slot, &v);
    }
    enter(comm, slot);
}

/* Ends the call with the verdict on which the ranks of its communicator have agreed. */
static void end_too(halay_request_t *r)
{
    struct hly_slot *slot = r->slot;
    struct hly_fault *f = fault_of(slot);
    if (!f)
        return;
    if (!f->entered) {
        enter(r->comm, slot);
        return;
    }
    f->final = true;
    f->verdict = r->comm->broken_by;
    hly_fault_progress(r->comm, slot);
}

/* Why the request was refused, as a verdict. */
static void refusal_verdict(halay_request_t *r, struct hly_verdict_wire *v)
{
    const struct hly_refusal *why = r->refusal;
    if (why->broken) {
        *v = r->comm->broken_by;
        return;
    }
    const bool waited = why->cause >= HLY_CAUSE_STOPPED; /* for another rank, or for nobody knows */
    hly_verdict_init(v, r->comm, why->cause, why->code,
                     !waited               ? r->comm->rank
                     : r->call.awaited > 0 ? r->call.awaited - 1
                                           : -1);
    v->call = r->call.desc;
    snprintf(v->detail, sizeof(v->detail), "%s", why->text);
}

void hly_fault_begin(halay_request_t *r)
{
    assert(r->state == HLY_STOPPED);
    if (r->refusal) {
        struct hly_verdict_wire v;
        refusal_verdict(r, &v);
        hly_fault_raise(r->comm, r->sequence, &v);
    } else if (hly_comm_is_over(r->comm, r->sequence)) {
        end_too(r);
    } else {
        enter_late(r->comm, r->slot, false);
    }
}

static void note_message(const halay_comm_t *comm, struct hly_fault *f, const struct hly_header *h)
{
    f->alarmed |= hly_agree_bits_of(comm, (int)h->from);
    if (h->kind == HLY_ROUND && h->edge < HLY_CONTROL_MAX)
        f->heard |= 1u << h->edge;
    if (h->signature)
        hly_agree_note_speaker(f, h->from);
    hly_judge_heard(comm, f, h);
}

void hly_fault_heard(halay_comm_t *comm, const struct hly_header *h,
                     const struct hly_verdict_wire *v)
{
    struct hly_slot *slot = hly_comm_slot(comm, h->sequence);
    if (!slot || !fault_of(slot))
        return;
    struct hly_fault *f = slot->fault;
    if (f->final)
        return;
    note_message(comm, f, h);
    bool better = hly_agree_adopt(comm, slot, v);
    hly_judge_compare(comm, f, h, v);
    if (f->entered && h->kind == HLY_ALARM && h->cookie == HLY_BY_TIME)
        by_time(comm, slot, HLY_CAUSE_ABSENT);
    if (f->entered && better) {
        by_time(comm, slot, v->cause);
        if (f->slow && !(h->kind == HLY_ALARM && h->cookie == HLY_PROPOSED)) /* all have it */
            alarm_all(comm, slot);
    }
    if (!f->entered && slot->request)
        enter_late(comm, slot, v->cause == HLY_CAUSE_STOPPED && v->rank == comm->rank);
    else
        hly_fault_progress(comm, slot);
}

/* The calls after this one fail, too. Older ones are decided before it. */
static void raise_later(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v)
{
    for (uint32_t s = comm->oldest; s != comm->started; s++)
        if (comm->slots[s % HLY_SLOTS].request && (int32_t)(s - sequence) > 0)
            hly_fault_raise(comm, s, v);
}

/* Another rank has failed in a call that is complete here, so the communicator is broken. The
 * verdict says since which call. */
static void complete_call_failed(halay_comm_t *comm, uint32_t sequence, struct hly_verdict_wire *v,
                                 enum hly_voice voice)
{
    struct hly_failure f;
    if (!v->of)
        v->of = (uint64_t)sequence + 1;
    if (comm->broken)
        return;
    comm->broken = true;
    comm->broken_by = *v;
    comm->relaxed.late = true;
    hly_fault_tell(comm, sequence, v, voice, &f);
    raise_later(comm, sequence, v);
}

void hly_fault_break(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v)
{
    if (comm->broken)
        return;
    comm->broken = true;
    comm->broken_by = *v;
    comm->broken_by.of = (uint64_t)sequence + 1;
    raise_later(comm, sequence, &comm->broken_by);
}

/* Is this rank in the agreement on a call that it has completed? */
static bool outlives(const struct hly_slot *slot)
{
    return slot->fault && !slot->request && slot->fault->entered && !slot->fault->final;
}

/*
 * Goes on with that. A rank that is in no call may be away for long. Of up to three ranks each
 * hears each other one directly, so it can send all rounds at once; of more it cannot, for a round
 * tells what others know. After the grace time it does in any case.
 */
static void help(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    const uint32_t rounds = hly_agree_rounds(comm);
    const bool judged = !comm->agreed && hly_judge_rules(comm, &f->verdict);
    const bool late = hly_now_ns() >= f->deadline_ns && hly_judge_ends(comm, slot);
    go_round(comm, slot, late);
    if (late || (comm->oldest == comm->started && comm->nranks <= 3))
        while (f->round < rounds)
            if (++f->round < rounds)
                send_verdict(comm, slot, HLY_ROUND, f->round);
    if (judged && hly_judge_decides(comm, slot, f->round == rounds, late)) {
        struct hly_verdict_wire v = f->verdict;
        memset(v.present, 0, sizeof(v.present));
        memset(v.gone, 0, sizeof(v.gone));
        agree(comm, &v);
    } else if (judged && !late) {
        return;
    }
    f->final = f->round == rounds || comm->agreed;
}

/* Goes on with all of them: ranks have died meanwhile, time has passed, or a call has ended. */
static void help_all(halay_context_t *context)
{
    context->outlived = 0;
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = l->next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        for (uint32_t i = 0; comm->broken && i < HLY_SLOTS; i++) {
            if (outlives(&comm->slots[i]))
                help(comm, &comm->slots[i]);
            context->outlived += outlives(&comm->slots[i]);
        }
    }
}

/* This rank enters the agreement on a call that it has completed. */
static void enter_outlived(halay_comm_t *comm, struct hly_slot *slot, const struct hly_header *h,
                           const struct hly_verdict_wire *v)
{
    struct hly_verdict_wire mine = *v;
    slot->settled = true;
    complete_call_failed(comm, slot->sequence, &mine,
                         h->signature || (int)h->from < comm->rank ? HLY_VOICE_QUIET
                                                                   : HLY_VOICE_LOUD);
    struct hly_fault *f = fault_of(slot);
    if (!f)
        return; /* the others wait until their time is up */
    f->entered = true;
    f->deadline_ns = hly_now_ns() + HLY_GRACE_NS;
    hly_agree_hold(f, &mine);
    if (v->cause >= HLY_CAUSE_STOPPED)
        by_time(comm, slot, v->cause); /* the others name who is absent later than that */
    hly_agree_note_dead(comm, f);
    alarm_all(comm, slot);
    comm->context->outlived++;
}

/* Who is at fault is known better now, or who is there after all. */
static void outlived_news(halay_comm_t *comm, const struct hly_slot *slot)
{
    if (comm->agreed || comm->broken_by.of != (uint64_t)slot->sequence + 1)
        return;
    const struct hly_verdict_wire *v = &slot->fault->verdict;
    alarm_all(comm, slot);
    comm->broken_by = *v;
    memset(comm->broken_by.present, 0, sizeof(v->present));
    memset(comm->broken_by.gone, 0, sizeof(v->gone));
    raise_later(comm, slot->sequence, v);
}

/*
 * This rank completed the call before it heard of the failure. It tells that ranks are out of step.
 * Its later calls fail, and while they do it takes part in the rounds: else it would pass on only
 * what it was told first, and two ranks that fail might end with different verdicts. What the
 * others agree on comes later (HLY_CONCLUDED).
 */
void hly_fault_outlived(halay_comm_t *comm, const struct hly_header *h,
                        const struct hly_verdict_wire *v)
{
    struct hly_slot *slot = &comm->slots[h->sequence % HLY_SLOTS];
    if (slot->sequence != h->sequence)
        return;
    if (!slot->settled)
        enter_outlived(comm, slot, h, v);
    if (!outlives(slot)) /* it has failed in this call, too */
        return;
    note_message(comm, slot->fault, h);
    if (hly_agree_adopt(comm, slot, v))
        outlived_news(comm, slot);
    hly_judge_compare(comm, slot->fault, h, v);
    help(comm, slot);
}

void hly_fault_concluded(halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    const uint32_t sequence = (uint32_t)(v->of - 1);
    const struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    if (comm->agreed || !v->of)
        return;
    bool ended = slot->sequence == sequence && slot->complete;
    if ((ended || (int32_t)(sequence - comm->oldest) < 0) && !comm->relaxed.late &&
        comm->told < v->of && v->cause != HLY_CAUSE_REVOKED) {
        struct hly_failure f;
        comm->relaxed.late = true; /* the program was told that the call is good */
        hly_fault_tell(comm, sequence, v, HLY_VOICE_QUIET, &f); /* who has concluded says it */
    }
    agree(comm, v);
}

void hly_fault_answer(halay_comm_t *comm, const struct hly_header *h)
{
    if (h->kind == HLY_ALARM)
        hly_agree_tell(comm, (int)h->from, &comm->broken_by);
}

/* ---------------------------------------------------------------- time */

/* The verdict of a missed deadline: names the peer of the first step that is not done. */
static void name_the_missing(halay_request_t *r, struct hly_verdict_wire *v)
{
    uint32_t n = r->run.ran ? r->plan->nsteps : 0;
    for (uint32_t i = 0; i < n; i++) {
        const halay_step_t *s = &r->plan->steps[i];
        if (r->run.state[i] != HLY_STARTED || !r->plan->peers[i])
            continue;
        hly_verdict_init(v, r->comm, HLY_CAUSE_DEADLINE, HALAY_ETIMEOUT, (int)s->peer);
        v->call = r->call.desc;
        snprintf(v->detail, sizeof(v->detail), "did not answer rank %d (step %u, %s)",
                 hly_comm_shown_rank(r->comm, r->comm->rank), i,
                 s->kind == HALAY_STEP_RECV ? "receive" : "send");
        return;
    }
    hly_verdict_init(v, r->comm, HLY_CAUSE_DEADLINE, HALAY_ETIMEOUT, -1);
    v->call = r->call.desc;
}

/*
 * Names the first neighbour that has been silent, or else the first that waits in another call: who
 * keeps that one is to blame, and somebody may name it. Where ranks have failed in a call before
 * this one, they are not in its agreement.
 */
static void name_the_absent(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    struct hly_verdict_wire v = {.cause = 0};
    if (f->verdict.of && f->verdict.of != (uint64_t)slot->sequence + 1)
        return;
    for (uint32_t k = 0; k < hly_agree_rounds(comm) && v.cause != HLY_CAUSE_ABSENT; k++) {
        const int from = hly_agree_from(comm, k);
        const bool waits = hly_patience_is_elsewhere(comm, slot->sequence, from);
        if (f->alarmed >> k & 1 || hly_agree_is_present(f, from) ||
            hly_agree_is_gone(comm, f, from) || (v.cause && waits))
            continue;
        hly_verdict_init(&v, comm, waits ? HLY_CAUSE_ELSEWHERE : HLY_CAUSE_ABSENT, HALAY_ETIMEOUT,
                         from);
        hly_elsewhere_absent(comm, from, waits, v.detail, sizeof(v.detail));
    }
    if (v.cause != HLY_CAUSE_ABSENT)
        hly_elsewhere_explain(comm, slot, &v);
    if (!v.cause)
        return;
    v.call = slot->request->call.desc;
    hly_agree_share_call(slot, &v, &f->verdict);
    if (hly_verdict_better(&v, &f->verdict)) {
        hly_agree_hold(f, &v);
        alarm_all(comm, slot);
        hly_patience_hurry(comm); /* what does it do? */
    }
}

/* A device that holds work for too long is to blame, not the ranks that wait for this one. */
static bool device_is_to_blame(halay_request_t *r)
{
    char text[256];
    if (!hly_work_overdue(r, text, sizeof(text)) && !hly_group_steps_overdue(r, text, sizeof(text)))
        return false;
    hly_fault_local(r, HALAY_EDEVICE, text);
    return true;
}

static void look_at(halay_request_t *r, uint64_t now)
{
    struct hly_slot *slot = r->slot;
    struct hly_fault *f = slot->fault;
    if (hly_comm_is_over(r->comm, r->sequence) && !(f && f->final)) {
        end_too(r);
    } else if (r->state == HLY_FAILING) {
        if (now >= r->deadline_ns && !f->slow && !f->final)
            by_time(r->comm, slot, HLY_CAUSE_ABSENT); /* a mismatch, and some are absent */
        if (f->slow && !f->final && f->round < hly_agree_rounds(r->comm) && now >= f->absent_ns) {
            f->absent_ns = UINT64_MAX;
            name_the_absent(r->comm, slot);
            hly_elsewhere_tell_all(r->comm, slot);
        }
        f->looks += now >= f->deadline_ns;
        if (now >= r->deadline_ns)
            device_is_to_blame(r);
        hly_fault_progress(r->comm, slot);
    } else if (r->comm->broken && hly_group_steps_orphaned(r)) {
        hly_fault_raise(r->comm, r->sequence, &r->comm->broken_by);
    } else if (now >= r->deadline_ns && !r->listens) {
        struct hly_verdict_wire v;
        if (r->overdue++ < LATE_LOOKS) {
            r->comm->context->timer_ns = 0; /* first it polls what may have come long ago */
            return;
        }
        if (device_is_to_blame(r))
            return;
        name_the_missing(r, &v);
        hly_fault_raise(r->comm, r->sequence, &v);
    } else {
        hly_exec_doubt(r);
    }
}

void hly_fault_timers(halay_context_t *context)
{
    struct hly_link *next;
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        next = l->next;
        look_at(r, context->now_ns);
        if (r->state == HLY_RUNNING || r->state == HLY_FAILING)
            hly_patience_look(r, context->now_ns);
    }
    if (context->outlived)
        help_all(context);
}
