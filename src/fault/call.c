/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.c - runs the agreement on the verdict of a failing call (agree/failing.c): passes its
 * events, sends its messages, and withdraws the call's buffers before the call ends.
 *
 * A rank may fail when others have received all that they need from it, and have completed the
 * call. So it also sends NEWS to the ranks to which its plan still has to send a message.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/device_comm.h"
#include "exec/exec.h"
#include "exec/listen.h"
#include "exec/record.h"
#include "exec/relaxed.h"
#include "exec/work.h"
#include "fault/call.h"
#include "fault/deadlock.h"
#include "fault/stall.h"
#include "wire/match.h"
#include "wire/rendezvous.h"

/* A rank is late if others end its call by the deadline, and it has been in the call for less than
 * this share of the deadline. Half of the timeout for stopped ranks counts, if that is shorter. */
#define LATE_SHARE 8

/* ---------------------------------------------------------------- the agreement */

static unsigned what_is(void *arg, int rank)
{
    const struct hly_fault_view *at = arg;
    const halay_context_t *ctx = at->comm->context;
    const struct hly_peer *p =
        hly_peer_find(ctx, hly_peer_id(ctx, hly_comm_world_rank(at->comm, rank)));
    return !p ? 0
              : HLY_RANK_CALLED | (p->dead || p->left_out ? HLY_RANK_DEAD : 0u) |
                    (p->greeted ? HLY_RANK_LINKED : 0u) | (p->explained ? HLY_RANK_LEFT : 0u);
}

static void post(void *arg, int to, const struct hly_failing_message *m,
                 const struct hly_verdict_wire *verdict)
{
    const struct hly_fault_view *at = arg;
    const bool has_call = at->request && m->what != HLY_AGREE_DECIDED;
    hly_control_send(at->comm, to, HLY_ALARM, at->is.sequence, m->edge, m->what,
                     has_call ? &at->request->call : NULL, verdict, sizeof(*verdict));
}

hly_view_t *hly_fault_view(struct hly_fault_view *at, halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    *at = (struct hly_fault_view){.comm = comm,
                                  .request = slot->sequence == sequence ? slot->request : NULL,
                                  .is = {.nranks = comm->nranks,
                                         .rank = comm->rank,
                                         .sequence = sequence,
                                         .unconfirmed = hly_relaxed_follows(comm, sequence),
                                         .timeout_code = HALAY_ETIMEOUT,
                                         .now_ns = hly_now_ns(),
                                         .deadline_ns = comm->deadline_ns,
                                         .is = what_is,
                                         .send = post,
                                         .arg = at}};
    at->is.made = at->request != NULL;
    return &at->is;
}

/* After each event: does what the agreement asks for. */
static void after(halay_comm_t *comm, struct hly_fault *f)
{
    if (f->hurry)
        hly_stall_hurry(comm);
    f->hurry = false;
}

/* The state of the agreement on this call; NULL: this rank knows of no failure. */
static struct hly_fault *fault_at(const halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    return slot->sequence == sequence ? slot->fault : NULL;
}

static void say(halay_comm_t *comm, int to, const struct hly_verdict_wire *v)
{
    const uint32_t sequence = (uint32_t)(v->of - 1);
    struct hly_fault_view at;
    hly_failing_tell(hly_fault_view(&at, comm, sequence), fault_at(comm, sequence), to, v);
}

/*
 * Sends NEWS to the ranks that wait for a message of this rank, which will not come now. If they
 * are no control neighbours, and the ranks between have completed the call, no other rank sends it.
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

void hly_fault_hurry(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault_view at;
    hly_failing_hurry(hly_fault_view(&at, comm, slot->sequence), slot->fault);
    after(comm, slot->fault);
}

/* ---------------------------------------------------------------- its beginning and its end */

/* A persistent request whose arguments are wrong keeps its refusal for the next start. */
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
    r->state = HLY_FAILING;
    hly_record_wait(r);
    r->listens = false;
    forget_refusal(r);
    slot->outcome_known = true;
    comm->context->timer_ns = 0;
    struct hly_fault_view at;
    const bool over = hly_broken_ends(&comm->broken, slot->sequence);
    hly_failing_enter(hly_fault_view(&at, comm, slot->sequence), f, r->deadline_ns,
                      over ? &comm->broken.by : NULL);
    after(comm, f);
    if (!over)
        alarm_expectant(comm, slot);
    hly_group_steps_fail(r);
    hly_rendezvous_withdraw(r, &f->verdict);
    hly_fault_progress(comm, slot);
}

void hly_fault_tell(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v,
                    enum hly_report report, struct hly_failure *f)
{
    char text[640];
    hly_failure_init(f, comm, sequence, v);
    hly_failure_text(f, text, sizeof(text));
    const bool loud = report == HLY_REPORT_WARNING && hly_verdict_is_news(comm, v);
    hly_log(comm->context, loud ? HLY_WARN : HLY_INFO, "%s", text);
    if (report == HLY_REPORT_KNOWN)
        return;
    halay_record_verdict_t said = {.comm = comm->id,
                                   .sequence = f->sequence,
                                   .code = v->code,
                                   .cause = (int32_t)v->cause,
                                   .rank = v->rank,
                                   .other = v->other,
                                   .broken = comm->broken.is};
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
    known->last = known->last_call = *r->failure;
    known->failed = known->call_failed = true;
    free(r->failure);
    r->failure = NULL;
}

/* All calls on the communicator end with this verdict from now on. Sends DECIDED, since some ranks
 * were not in the agreement. */
static void agree(halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    hly_broken_agree(&comm->broken, v);
    hly_verdict_agreed(comm, v);
    comm->context->timer_ns = 0; /* hly_fault_timers() ends the calls in flight */
    if (v->cause == HLY_CAUSE_REVOKED)
        hly_fault_revoked(comm);
    struct hly_fault_view at;
    const uint32_t sequence = (uint32_t)(v->of - 1);
    hly_failing_tell_all(hly_fault_view(&at, comm, sequence), fault_at(comm, sequence), v);
}

static void help_all(halay_context_t *context, bool looks);

/*
 * Does this rank log the verdict as a warning? The lowest rank that is known to be in the call
 * does, so one rank does it, whichever is dead or absent. The rank at fault does it, too. If the
 * verdict is about an earlier call, the ranks of that call have logged it.
 */
static enum hly_report report_of(halay_comm_t *comm, const struct hly_slot *slot,
                                 const struct hly_verdict_wire *v)
{
    const struct hly_fault *f = slot->fault;
    const int s = f->speaker - 1;
    struct hly_fault_view at;
    const bool earlier = v->of && (int32_t)((uint32_t)(v->of - 1) - slot->sequence) < 0;
    /* If others have ended the call before this rank, one has logged it, and may have left. */
    const bool lower = s >= 0 && s < comm->rank &&
                       ((f->final && !f->announced) ||
                        !hly_held_is_gone(hly_fault_view(&at, comm, slot->sequence), f, s));
    return (f->after || earlier || lower) && v->rank != comm->rank ? HLY_REPORT_INFO
                                                                   : HLY_REPORT_WARNING;
}

static void conclude(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    halay_request_t *r = slot->request;
    struct hly_fault_view at;
    struct hly_verdict_wire v;
    const enum hly_end end =
        hly_failing_end(hly_fault_view(&at, comm, slot->sequence), f, &comm->broken, &v);
    if (end == HLY_END_AGREES)
        agree(comm, &v);
    else if (end == HLY_END_ALONE)
        hly_fault_break(comm, slot->sequence, &v);
    const bool heard = comm->asks_for || (r->foreseen && comm->said);
    comm->said = comm->said || end != HLY_END_IN_STEP;
    r->failure = malloc(sizeof(*r->failure));
    struct hly_failure spare;
    hly_fault_tell(comm, slot->sequence, &v, heard ? HLY_REPORT_KNOWN : report_of(comm, slot, &v),
                   r->failure ? r->failure : &spare);
    comm->relaxed.late = false;
    if (comm->inner) /* this call reports the failure of groups that ended well, too */
        comm->inner->relaxed.late = false;
    comm->last_failed = (uint64_t)slot->sequence + 1;
    hly_exec_finish(r, v.code);
    if (comm->context->outlived)
        help_all(comm->context, false); /* this may have been the last older call */
}

/* If the ranks are in step: sends DECIDED before this call returns. After that the program may make
 * no call that would send it. */
static void tell_in_step(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    struct hly_fault_view at;
    struct hly_verdict_wire v;
    hly_view_t *view = hly_fault_view(&at, comm, slot->sequence);
    if (f->announced || hly_failing_end(view, f, &comm->broken, &v) != HLY_END_IN_STEP)
        return;
    f->announced = true;
    hly_failing_tell_all(view, f, &v);
    hly_failing_end_in_step(f, &v);
}

/* Are verdicts still queued for peers? After the call has returned they might never be sent. */
static bool has_to_tell(const halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_link *busy = &comm->context->busy_peers;
    for (const struct hly_link *l = busy->next; l != busy; l = l->next) {
        const struct hly_peer *peer = HLY_OF(l, struct hly_peer, waiting);
        for (const struct hly_link *o = peer->queue.next; o != &peer->queue; o = o->next) {
            const struct hly_send *out = HLY_OF(o, struct hly_send, link);
            if (out->kind == HLY_SEND_CONTROL && out->header.comm == comm->id &&
                out->header.sequence == sequence && out->header.kind < HLY_QUERY)
                return true;
        }
    }
    return false;
}

/*
 * The verdict is known: may the call end? Not while messages of the agreement are queued. But it
 * waits for them no longer than the grace time, since their receivers may have left.
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

/* Does an older call fail, too? Then it ends first, since its verdict may end this call as well. */
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

void hly_fault_progress(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    halay_request_t *r = slot->request;
    if (!f || !f->entered || !r || r->state != HLY_FAILING)
        return;
    struct hly_fault_view at;
    hly_view_t *v = hly_fault_view(&at, comm, slot->sequence);
    struct hly_failing_now now = {.late = hly_failing_is_late(v, f, &comm->broken) ||
                                          comm->context->lost,
                                  .first = (int32_t)(slot->sequence - comm->oldest) <= 0,
                                  .older_fails = older_fails(comm, slot),
                                  .unread = has_to_listen(comm->context)};
    after(comm, f);
    now.quiet = hly_link_empty(&r->flying) && !r->targets;
    if ((now.late || f->looks >= HLY_LATE_LOOKS) && !now.quiet) {
        hly_work_stop(r);
        hly_group_steps_force(r);
        hly_rendezvous_force(r);
        now.quiet = hly_link_empty(&r->flying) && !r->targets;
    }
    if (now.quiet)
        hly_fault_runs_on(comm, slot);
    const enum hly_course course = hly_failing_go_on(v, f, &comm->broken, &now);
    if (course == HLY_COURSE_READS) {
        hly_exec_listen(comm->context);
        comm->context->timer_ns = 0; /* so that this is called again soon */
    } else if (course == HLY_COURSE_ENDS) {
        tell_in_step(comm, slot);
        if (may_conclude(comm, slot, now.late))
            conclude(comm, slot);
    }
}

void hly_fault_others(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault_view at;
    if (slot->fault)
        hly_failing_lost(hly_fault_view(&at, comm, slot->sequence), slot->fault);
}

static struct hly_fault *fault_of(const halay_comm_t *comm, struct hly_slot *slot)
{
    if (!slot->fault)
        slot->fault = calloc(1, hly_failing_bytes(comm->nranks));
    return slot->fault;
}

void hly_fault_raise(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v)
{
    struct hly_slot *slot = hly_comm_slot(comm, sequence);
    if (!slot || slot->complete || !fault_of(comm, slot))
        return;
    struct hly_fault_view at;
    if (hly_failing_raise(hly_fault_view(&at, comm, sequence), slot->fault, v))
        enter(comm, slot);
}

/* This rank enters the agreement on a call that has failed elsewhere. If the others have waited for
 * it, and it has made the call only just now, or they call it stopped, its verdict is that it is
 * late. */
static void enter_late(halay_comm_t *comm, struct hly_slot *slot, bool stopped)
{
    const halay_request_t *r = slot->request;
    const uint64_t since = hly_about_now_ns() - r->started_ns,
                   share = comm->deadline_ns / LATE_SHARE,
                   timeout = comm->context->settings.stop_timeout_ns / 2;
    stopped |= since < (share < timeout ? share : timeout);
    if (slot->fault->verdict.cause >= HLY_CAUSE_STOPPED && stopped) {
        struct hly_verdict_wire v;
        hly_verdict_init(&v, comm, HLY_CAUSE_LATE, HALAY_ETIMEOUT, comm->rank);
        v.call = r->call.desc;
        snprintf(v.detail, sizeof(v.detail), "made this call only when others had given it up");
        struct hly_fault_view at;
        hly_held_adopt(hly_fault_view(&at, comm, slot->sequence), slot->fault, &v);
    }
    enter(comm, slot);
}

/* Ends the call with the verdict on which the ranks of its communicator have agreed. */
static void end_too(halay_request_t *r)
{
    struct hly_slot *slot = r->slot;
    if (!fault_of(r->comm, slot))
        return;
    if (hly_failing_end_too(slot->fault, &r->comm->broken))
        hly_fault_progress(r->comm, slot);
    else
        enter(r->comm, slot);
}

/* Why the request was refused, as a verdict. */
static void refusal_verdict(halay_request_t *r, struct hly_verdict_wire *v)
{
    const struct hly_refusal *why = r->refusal;
    if (why->broken) {
        *v = r->comm->broken.by;
        return;
    }
    hly_verdict_init(v, r->comm, why->cause, why->code, r->comm->rank);
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
    } else if (hly_broken_ends(&r->comm->broken, r->sequence)) {
        end_too(r);
    } else {
        enter_late(r->comm, r->slot, false);
    }
}

static void heard_of_call(halay_comm_t *comm, struct hly_slot *slot,
                          const struct hly_failing_message *m, const struct hly_verdict_wire *v)
{
    struct hly_fault *f = fault_of(comm, slot);
    struct hly_fault_view at;
    if (!f)
        return;
    hly_failing_heard(hly_fault_view(&at, comm, slot->sequence), f, m, v);
    after(comm, f);
    if (!f->entered && slot->request)
        enter_late(comm, slot, hly_verdict_stops(v, comm->rank));
    else
        hly_fault_progress(comm, slot);
}

/* The calls after this one fail, too; older ones do not. */
static void raise_later(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v)
{
    for (uint32_t s = comm->oldest; s != comm->started; s++)
        if (comm->slots[s % HLY_SLOTS].request && (int32_t)(s - sequence) > 0)
            hly_fault_raise(comm, s, v);
}

void hly_fault_break(halay_comm_t *comm, uint32_t sequence, const struct hly_verdict_wire *v)
{
    if (!hly_broken_note(&comm->broken, v))
        return;
    comm->broken.by.of = (uint64_t)sequence + 1;
    raise_later(comm, sequence, &comm->broken.by);
}

/* Is this rank in the agreement on a call that it has completed? */
static bool outlives(const struct hly_slot *slot)
{
    return slot->fault && !slot->request && slot->fault->entered && !slot->fault->final;
}

static void help(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault_view at;
    struct hly_verdict_wire v;
    if (hly_failing_help(hly_fault_view(&at, comm, slot->sequence), slot->fault,
                         (int32_t)(slot->sequence - comm->oldest) <= 0, comm->broken.agreed, &v))
        agree(comm, &v);
}

/* Goes on with the agreements on all calls that have completed here: ranks have died meanwhile,
 * time has passed, or a call has ended. */
static void help_all(halay_context_t *context, bool looks)
{
    context->outlived = 0;
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = l->next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        for (uint32_t i = 0; comm->broken.is && i < HLY_SLOTS; i++) {
            struct hly_slot *slot = &comm->slots[i];
            struct hly_fault_view at;
            if (outlives(slot) && looks) /* what has come is read between two looks */
                hly_failing_look_alone(hly_fault_view(&at, comm, slot->sequence), slot->fault);
            if (outlives(slot))
                help(comm, slot);
            context->outlived += outlives(&comm->slots[i]);
        }
    }
}

/* This rank enters the agreement on a call that it has completed. Ranks are out of step since then.
 */
static void enter_after(halay_comm_t *comm, struct hly_slot *slot,
                        const struct hly_failing_message *m, const struct hly_verdict_wire *v)
{
    struct hly_verdict_wire mine = *v;
    slot->outcome_known = true;
    if (!mine.of)
        mine.of = (uint64_t)slot->sequence + 1;
    if (hly_broken_note(&comm->broken, &mine)) {
        struct hly_failure failure;
        comm->relaxed.late = true;
        hly_fault_tell(comm, slot->sequence, &mine,
                       m->in_call || m->from < comm->rank ? HLY_REPORT_INFO : HLY_REPORT_WARNING,
                       &failure);
        raise_later(comm, slot->sequence, &mine);
    }
    struct hly_fault *f = fault_of(comm, slot);
    if (!f)
        return; /* the others wait until their time is up */
    struct hly_fault_view at;
    hly_failing_outlive(hly_fault_view(&at, comm, slot->sequence), f, &mine);
    after(comm, f);
    comm->context->outlived++;
}

/*
 * This rank has completed the call before it heard of the failure, so ranks are out of step. Its
 * later calls fail, and it takes part in the agreement: otherwise it would forward only the first
 * verdict that it heard, and two ranks might end with different verdicts. The decided verdict comes
 * later (HLY_AGREE_DECIDED).
 */
static void heard_after(halay_comm_t *comm, struct hly_slot *slot,
                        const struct hly_failing_message *m, const struct hly_verdict_wire *v)
{
    struct hly_fault_view at;
    if (!slot->outcome_known)
        enter_after(comm, slot, m, v);
    if (!outlives(slot)) /* it has failed in this call, too */
        return;
    const bool better = hly_failing_heard_after(hly_fault_view(&at, comm, slot->sequence),
                                                slot->fault, &comm->broken, m, v);
    after(comm, slot->fault);
    if (better)
        raise_later(comm, slot->sequence, &slot->fault->verdict);
    if (has_to_listen(comm->context)) { /* others may have decided without this rank */
        hly_exec_listen(comm->context);
        comm->context->timer_ns = 0; /* so that it goes on soon */
    } else {
        help(comm, slot);
    }
}

void hly_fault_concluded(halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    const uint32_t sequence = (uint32_t)(v->of - 1);
    const struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    if (comm->broken.agreed || !v->of)
        return;
    bool ended = slot->sequence == sequence && slot->complete;
    if ((ended || (int32_t)(sequence - comm->oldest) < 0) && !comm->relaxed.late &&
        comm->last_failed < v->of && v->cause != HLY_CAUSE_REVOKED) {
        struct hly_failure f;
        comm->relaxed.late = true; /* the program was told that the call is good */
        hly_fault_tell(comm, sequence, v, HLY_REPORT_INFO,
                       &f); /* a rank of the call has logged it */
    }
    agree(comm, v);
}

void hly_fault_heard(halay_comm_t *comm, const struct hly_header *h,
                     const struct hly_verdict_wire *v)
{
    const struct hly_failing_message m = {
        .in_call = h->signature != 0,
        .from = (int)h->from,
        .edge = h->edge,
        .what = h->kind == HLY_ALARM ? (enum hly_agree_what)h->cookie : HLY_AGREE_NEWS};
    struct hly_slot *at = &comm->slots[h->sequence % HLY_SLOTS],
                    *slot = hly_comm_slot(comm, h->sequence);
    struct hly_fault_view view;
    switch (hly_failing_sort(hly_fault_view(&view, comm, h->sequence), fault_at(comm, h->sequence),
                             &comm->broken, &m, v, !slot || slot->complete)) {
    case HLY_HEARD_IN_STEP:
        if (slot && slot->fault) {
            hly_failing_end_in_step(slot->fault, v);
            hly_fault_progress(comm, slot);
        }
        break;
    case HLY_HEARD_AGREED:
        hly_fault_concluded(comm, v);
        break;
    case HLY_HEARD_QUESTION:
        say(comm, m.from, &comm->broken.by);
        break;
    case HLY_HEARD_OF_CALL:
        if (slot)
            heard_of_call(comm, slot, &m, v);
        break;
    case HLY_HEARD_AFTER:
        if (at->sequence == h->sequence)
            heard_after(comm, at, &m, v);
        break;
    case HLY_HEARD_NOTHING:
        break;
    }
}

/* ---------------------------------------------------------------- time */

/* The verdict of a missed deadline: names the peer of the first step that is not done. */
static void name_the_missing(halay_request_t *r, struct hly_verdict_wire *v)
{
    const halay_request_t *at = hly_request_steps(r);
    uint32_t n = at->run.ran ? at->plan->nsteps : 0;
    for (uint32_t i = 0; i < n; i++) {
        const halay_step_t *s = &at->plan->steps[i];
        if (at->run.state[i] != HLY_STARTED || !at->plan->peers[i])
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
 * Names the first neighbour that has been silent; or else the first that answers that it has not
 * made the call. A silent one comes first, since it may be what the other one waits for. If ranks
 * have failed in an older call, names none: they are not in the agreement on this one.
 */
static void name_the_absent(halay_comm_t *comm, struct hly_slot *slot)
{
    struct hly_fault *f = slot->fault;
    struct hly_fault_view at;
    struct hly_verdict_wire v = {.cause = 0};
    if ((f->verdict.of && f->verdict.of != (uint64_t)slot->sequence + 1) ||
        hly_verdict_is_certain(&f->verdict))
        return;
    hly_view_t *view = hly_fault_view(&at, comm, slot->sequence);
    for (uint32_t k = 0; k < hly_failing_neighbours(comm->nranks) && v.cause != HLY_CAUSE_ABSENT;
         k++) {
        const int from = hly_failing_from(view, k);
        const bool answers = hly_stall_is_behind(comm, slot->sequence, from);
        if (!hly_failing_is_silent(view, f, k) || (v.cause && answers))
            continue;
        hly_verdict_init(&v, comm, answers ? HLY_CAUSE_UNCALLED : HLY_CAUSE_ABSENT, HALAY_ETIMEOUT,
                         from);
        hly_deadlock_absent(comm, from, answers, v.detail, sizeof(v.detail));
    }
    if (v.cause != HLY_CAUSE_ABSENT)
        hly_deadlock_explain(comm, slot, &v);
    if (!v.cause)
        return;
    v.call = slot->request->call.desc;
    hly_failing_name(view, f, &v);
    after(comm, f); /* asks what the named rank does */
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
    if (hly_broken_ends(&r->comm->broken, r->sequence) && !(f && f->final)) {
        end_too(r);
    } else if (r->state == HLY_FAILING) {
        struct hly_fault_view at;
        hly_view_t *v = hly_fault_view(&at, r->comm, r->sequence);
        at.is.now_ns = now;
        const bool name = hly_failing_look(v, f, r->deadline_ns);
        after(r->comm, f);
        if (name) {
            name_the_absent(r->comm, slot);
            hly_failing_named(v, f);
        }
        if (now >= r->deadline_ns)
            device_is_to_blame(r);
        hly_fault_progress(r->comm, slot);
    } else if (r->comm->broken.is && hly_group_steps_orphaned(r)) {
        hly_fault_raise(r->comm, r->sequence, &r->comm->broken.by);
    } else if (now >= r->deadline_ns && !r->listens) {
        struct hly_verdict_wire v;
        if (r->overdue++ < HLY_LATE_LOOKS) {
            r->comm->context->timer_ns = 0; /* first reads messages that may have come long ago */
            return;
        }
        if (device_is_to_blame(r))
            return;
        name_the_missing(r, &v);
        hly_fault_raise(r->comm, r->sequence, &v);
    }
}

void hly_fault_timers(halay_context_t *context)
{
    struct hly_link *next;
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        next = l->next;
        look_at(r, context->now_ns);
        if (hly_request_runs(r) || r->state == HLY_FAILING)
            hly_stall_look(r, context->now_ns);
    }
    if (context->outlived)
        help_all(context, true);
}
