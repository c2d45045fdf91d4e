/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute.c - the executor: walks the linear order of a compiled plan, and starts every step whose
 * predecessors are done. It names no algorithm, and there is no other executor. A blocking call is
 * advanced by the thread that waits for it, all others by whoever makes progress.
 *
 * Invariant: a step before the cursor is started, done, or skipped because a predecessor is not
 * done. A skipped step enters the list of ready ones when its last predecessor is done. Each step
 * is started once and done once, except one that finds the device full: it is started again.
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
#include "exec/staging.h"
#include "exec/work.h"
#include "wire/match.h"
#include "wire/news.h"
#include "wire/rendezvous.h"
#include "wire/watch.h"

/* ---------------------------------------------------------------- what can be started */

static inline bool can_start(const halay_request_t *r, const halay_step_t *s)
{
    return hly_step_is_done(r, s->dep[0]) && hly_step_is_done(r, s->dep[1]);
}

static void push_ready(halay_request_t *r, uint32_t step)
{
    struct hly_progress_of *run = &r->run;
    run->state[step] = HLY_WAITS;
    run->step[step].next = 0;
    run->nskipped--;
    if (run->last)
        run->step[run->last - 1].next = step + 1;
    else
        run->ready = step + 1;
    run->last = step + 1;
}

static uint32_t pop_ready(struct hly_progress_of *run)
{
    const uint32_t step = run->ready - 1;
    run->ready = run->step[step].next;
    if (!run->ready)
        run->last = 0;
    return step;
}

__attribute__((noinline)) static void release_successors(halay_request_t *r, uint32_t step)
{
    const struct hly_plan *p = r->plan;
    for (uint32_t i = p->uses.successor_first[step]; i < p->uses.successor_first[step + 1]; i++) {
        const uint32_t next = p->uses.successors[i];
        if (r->run.state[next] == HLY_SKIPPED && can_start(r, hly_step(r, next)) &&
            !HLY_SEEDED(FORGET_SUCCESSOR, r, next))
            push_ready(r, next);
    }
}

static inline void mark_done(halay_request_t *r, uint32_t step)
{
    HLY_SAW(DONE, r, step);
    r->run.ndone++;
    r->run.state[step] = HLY_DONE;
    if (HLY_SEEDED(DONE_TWICE, r, step)) {
        HLY_SAW(DONE, r, step);
        r->run.ndone++;
    }
}

static inline void done(halay_request_t *r, uint32_t step)
{
    mark_done(r, step);
    if (r->run.nskipped)
        release_successors(r, step);
}

/* ---------------------------------------------------------------- receiving */

/* Chooses the next expected message, of the RECV steps that have started. */
static inline void expect_next(halay_request_t *r)
{
    struct hly_progress_of *run = &r->run;
    r->expected.step = HALAY_STEP_NONE;
    while (run->looked < run->cursor && r->expected.step == HALAY_STEP_NONE) {
        const uint32_t step = run->looked++;
        if (run->state[step] == HLY_STARTED && hly_step(r, step)->kind == HALAY_STEP_RECV &&
            !run->step[step].target && !run->step[step].arrived)
            hly_expect(r, step);
    }
}

/* The message of a RECV step has come whole. reduced: the only reduction that reads it is done. */
static inline void mark_landed(halay_request_t *r, uint32_t step, bool reduced)
{
    mark_done(r, step);
    if (!reduced)
        return;
    const uint32_t reduction = r->plan->uses.reader[step];
    r->run.nskipped -= r->run.state[reduction] == HLY_SKIPPED;
    HLY_SAW(STARTED, r, reduction);
    hly_saw_work(r, reduction, &r->layout.works[reduction], HALAY_OK);
    mark_done(r, reduction);
}

/* After mark_landed(): chooses the next expected message, and starts the steps that waited. */
static inline void release_landed(halay_request_t *r, uint32_t step, bool reduced)
{
    if (r->expected.step == step)
        expect_next(r);
    if (reduced && r->run.nskipped)
        release_successors(r, r->plan->uses.reader[step]);
    if (r->run.nskipped)
        release_successors(r, step);
}

/* Starts a RECV step. */
static inline void receive(halay_request_t *r, uint32_t step, const halay_step_t *s)
{
    r->run.step[step].arrived = 0;
    if (hly_is_announced(r, step, hly_operand_bytes(r, s->operand))) {
        hly_rendezvous_announce(r, step);
        return;
    }
    if (!hly_link_empty(&r->slot->unexpected)) {
        const enum hly_landed what = hly_unexpected_land(r, step);
        if (what >= HLY_LANDED_ALL) {
            mark_landed(r, step, what == HLY_LANDED_REDUCED);
            release_landed(r, step, what == HLY_LANDED_REDUCED);
            return;
        }
        if (r->run.step[step].arrived) /* a part has come: the rest is matched as usual */
            return;
    }
    if (r->expected.step == HALAY_STEP_NONE) {
        hly_expect(r, step);
        r->run.looked = r->run.cursor;
    }
}

/* ---------------------------------------------------------------- the walk */

/* False: the device is full; the step has to be started again later. */
static inline bool start_step(halay_request_t *r, uint32_t step, const halay_step_t *s)
{
    r->run.state[step] = HLY_STARTED;
    HLY_SAW(STARTED, r, step);
    int rc = HALAY_OK;
    switch (s->kind) {
    case HALAY_STEP_SEND:
        rc = hly_step_send(r, step);
        break;
    case HALAY_STEP_RECV:
        receive(r, step, s);
        return true;
    case HALAY_STEP_JOIN:
        break;
    default:
        rc = s->kind == HALAY_STEP_GROUP ? hly_group_step_start(r, step) : hly_work_start(r, step);
    }
    if (rc == HALAY_OK)
        done(r, step);
    if (rc != HALAY_EAGAIN)
        return true;
    HLY_SAW(BACK, r, step);
    return false;
}

/* Marks all steps as not started, before a segment. Their other members are reset when a step
 * starts or ends. */
static inline void lay_steps(halay_request_t *r)
{
    struct hly_progress_of *run = &r->run;
    memset(run->state, HLY_WAITS, HLY_STATES_LEAST);
    if (r->plan->nsteps > HLY_STATES_LEAST)
        memset(run->state, HLY_WAITS, r->plan->nsteps);
    run->cursor = run->looked = run->ndone = run->nskipped = run->ready = run->last = 0;
    r->expected.step = HALAY_STEP_NONE;
}

/* Goes on to the call's next segment, if the plan is done for this one. */
static bool next_segment(halay_request_t *r)
{
    struct hly_segments *t = &r->segments;
    if (r->state != HLY_RUNNING || r->run.ndone != r->plan->nsteps || t->number + 1 == t->n)
        return false;
    if (r->staging && !hly_staging_leave(r))
        return false;
    HLY_SAW(FINISHED, r, HALAY_STEP_NONE);
    assert(!r->targets); /* messages in flight are only read: lent, or sent by an adapter */
    hly_layout_segment(r, t->number + 1);
    r->header.segment = (uint16_t)t->number;
    HLY_SAW(BOUND, r, HALAY_STEP_NONE);
    lay_steps(r);
    return hly_link_empty(&r->slot->unexpected) || hly_unexpected_compare(r);
}

/* Starts the steps that can start in this segment. False: a step has to be started again. */
static inline bool walk_segment(halay_request_t *r)
{
    struct hly_progress_of *run = &r->run;
    const halay_step_t *const steps = r->plan->steps;
    const uint32_t n = r->plan->nsteps;
    while (r->state == HLY_RUNNING) {
        uint32_t step = run->cursor;
        if (run->ready)
            step = pop_ready(run);
        else if (step == n)
            return true;
        else
            run->cursor++;
        if (run->state[step] != HLY_WAITS)
            continue; /* a reduction that was done when its message landed */
        if (!can_start(r, &steps[step]) && !HLY_SEEDED(SKIP_DEPENDENCY, r, step)) {
            run->state[step] = HLY_SKIPPED;
            run->nskipped++;
        } else if (!start_step(r, step, &steps[step])) {
            run->state[step] = HLY_SKIPPED; /* the device is full */
            run->nskipped++;
            push_ready(r, step);
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------- the window */

static void start_next(halay_request_t *r);

/*
 * May the next call start? A confirmed call after relaxed ones waits for all older calls. Its
 * messages tell the other ranks that those have ended here, and one of them may yet fail.
 */
static inline bool has_room(const halay_comm_t *comm, const halay_request_t *r)
{
    if (comm->started == comm->acked) /* and so is `oldest`: no call is under way */
        return true;
    return comm->started - comm->oldest < HLY_WINDOW &&
           comm->started - comm->acked < HLY_UNACKED_MOST &&
           (comm->started == comm->oldest || r->call.desc.flags & HLY_CALL_RELAXED ||
            !hly_relaxed_is_unconfirmed(comm));
}

int hly_exec_refuse_as(halay_request_t *r, int code, enum hly_cause cause, const char *text)
{
    r->refusal = calloc(1, sizeof(*r->refusal));
    if (!r->refusal)
        return HALAY_ENOMEM;
    r->refusal->code = code;
    r->refusal->cause = cause;
    r->refusal->broken = !text;
    r->foreseen = !text;
    if (text)
        snprintf(r->refusal->text, sizeof(r->refusal->text), "%s", text);
    return HALAY_OK;
}

/* Makes the call fail when it starts, if its communicator or transport has failed. */
static void refuse_if_over(halay_request_t *r)
{
    const halay_comm_t *comm = r->comm;
    const bool broken =
        comm->broken.agreed ? hly_broken_ends(&comm->broken, r->sequence) : comm->broken.is;
    if (!r->refusal && (broken || comm->context->lost))
        hly_exec_refuse_as(r, HALAY_ETRANSPORT, HLY_CAUSE_LOCAL, broken ? NULL : HLY_LOST_TEXT);
}

/* Starts queued calls while the window has room. */
__attribute__((noinline)) static void start_queued(halay_comm_t *comm)
{
    while (comm->queue_head && has_room(comm, comm->queue_head)) {
        halay_request_t *r = comm->queue_head;
        comm->queue_head = r->next;
        if (!comm->queue_head)
            comm->queue_tail = NULL;
        r->next = NULL;
        comm->started++;
        if (comm->broken.is || comm->context->lost) /* since it was queued */
            refuse_if_over(r);
        start_next(r);
    }
}

static void enqueue(halay_comm_t *comm, halay_request_t *r)
{
    r->state = HLY_QUEUED;
    if (comm->queue_tail)
        comm->queue_tail->next = r;
    else
        comm->queue_head = r;
    comm->queue_tail = r;
    start_queued(comm);
}

/* Moves the window past its oldest call, and past those after it that are complete already. */
static inline void move_window(halay_comm_t *comm, struct hly_slot *slot)
{
    do {
        slot->complete = false;
        comm->oldest++;
        if (!slot->unacked)
            comm->acked = comm->oldest;
        if (comm->oldest == comm->started)
            return;
        slot = &comm->slots[comm->oldest % HLY_SLOTS];
    } while (slot->complete);
}

void hly_exec_finish(halay_request_t *r, int result)
{
    halay_comm_t *comm = r->comm;
    struct hly_slot *slot = r->slot;
    assert(slot->request == r && !r->targets);
    r->state = HLY_COMPLETE;
    r->result = result;
    hly_record_end(r, result);
    HLY_SAW(FINISHED, r, HALAY_STEP_NONE);
    hly_link_remove(&r->link);
    slot->request = NULL;
    slot->complete = true;
    if (!hly_link_empty(&slot->unexpected))
        hly_unexpected_forget(&slot->unexpected);
    if (slot->fault) {
        free(slot->fault);
        slot->fault = NULL;
    }
    if (result) {
        if (r->run.ran) /* a failed call: its steps stopped anywhere */
            memset(r->run.step, 0, r->plan->nsteps * sizeof(*r->run.step));
        slot->unacked = false; /* failed: all ranks know of it, or the communicator is broken */
        comm->relaxed.signature = 0;
        r->context->counters.errors++;
    }
    r->context->counters.operations++;
    if (r->sequence == comm->oldest)
        move_window(comm, slot);
    if (comm->relaxed.asks)
        hly_relaxed_answer(comm);
    hly_wake_if_asleep(r->context);
    if (r->reports)
        hly_news_leave(r->context, HLY_NEWS_COMPLETE, r);
    if (comm->queue_head)
        start_queued(comm);
}

/* ---------------------------------------------------------------- all of a call */

/* Ends the call, if the plan is done. */
static inline void conclude(halay_request_t *r)
{
    const uint32_t nsteps = r->plan->nsteps;
    if ((r->run.ndone != nsteps && !HLY_SEEDED(FINISH_EARLY, r, HALAY_STEP_NONE)) ||
        r->state != HLY_RUNNING)
        return;
    if (r->run.ndone >= nsteps && !hly_link_empty(&r->flying))
        return; /* IN is still being sent; news of the last message calls this again */
    if (hly_exec_has_to_listen(r->context) && r->run.ndone == nsteps) {
        r->listens = true;
        hly_exec_listen(r->context);
        return; /* read_all() of run/progress.c calls this again */
    }
    if (r->run.after && HLY_SEEDED(NO_DIVISION, r, HALAY_STEP_NONE))
        r->run.after = 0;
    if (!r->run.after || hly_work_result(r) == HALAY_OK)
        hly_exec_finish(r, HALAY_OK);
}

/* Does all steps of a running call that can be done now, and completes it if those were the
 * last. */
static void go_on(halay_request_t *r)
{
    do {
        if (r->run.before && hly_work_before(r) != HALAY_OK)
            return;
        if (!walk_segment(r))
            return;
    } while (r->segments.n > 1 && next_segment(r));
    conclude(r);
}

void hly_exec_advance(halay_request_t *r)
{
    if (r->state == HLY_RUNNING)
        go_on(r);
}

/* Peers of a call that starts may have been lost earlier: reports them again, for this call. */
__attribute__((noinline)) static void leave_lost(halay_request_t *r)
{
    struct hly_peer *last = NULL;
    for (uint32_t i = 0; i < r->plan->nsteps; i++) {
        struct hly_peer *peer = r->plan->peers[i];
        if (!peer || !peer->dead || peer == last)
            continue;
        last = peer;
        struct hly_news *n = hly_news_leave(r->context, HLY_NEWS_LOST, NULL);
        if (n)
            n->peer = peer;
    }
}

/* Starts the steps of a call that has its slot. */
__attribute__((always_inline)) static inline void begin(const halay_comm_t *comm,
                                                        halay_request_t *r, struct hly_slot *slot)
{
    r->run.ran = true;
    lay_steps(r);
    HLY_SAW(BOUND, r, HALAY_STEP_NONE);
    if (comm->broken.is) /* and other ranks had made this call before */
        leave_lost(r);
    if (hly_link_empty(&slot->unexpected) || hly_unexpected_compare(r))
        go_on(r);
}

__attribute__((noinline)) static void start_unplanned(halay_request_t *r)
{
    r->state = HLY_UNPLANNED;
    r->run.before &= HLY_BEFORE_MOVES | HLY_BEFORE_FAILED;
    r->run.before |= hly_request_follows(r) ? HLY_BEFORE_MARK : HLY_BEFORE_NOTHING;
    if (!hly_unexpected_compare(r))
        return;
    hly_news_leave(r->context, HLY_NEWS_UNPLANNED, r);
    hly_work_before(r); /* the mark is where the program's stream is now */
}

void hly_exec_begin(halay_request_t *r)
{
    r->run.before |= r->layout.before & (uint8_t)~HLY_BEFORE_MARK; /* if it has one, it is made */
    r->run.after = r->layout.after;
    hly_record_planned(r);
    begin(r->comm, r, r->slot);
}

__attribute__((always_inline)) static inline void start(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    bool over = false;
    struct hly_slot *slot;
    if (comm->broken.is) {
        slot = hly_comm_slot(comm, r->sequence);
        over = hly_broken_ends(&comm->broken, r->sequence);
    } else {
        slot = hly_slot_of(comm, r->sequence);
    }
    r->slot = slot;
    slot->request = r;
    if (r->call.desc.flags & HLY_CALL_RELAXED) {
        slot->unacked = true;
        comm->relaxed.end = r->sequence + 1;
    }
    r->state = HLY_RUNNING;
    hly_link_append(&r->context->requests, &r->link);
    if (r->refusal || slot->fault || over) {
        r->foreseen |= over;
        hly_news_leave(r->context, HLY_NEWS_REFUSED, r);
        r->state = HLY_STOPPED;
        return;
    }
    if (!r->plan) {
        start_unplanned(r);
        return;
    }
    begin(comm, r, slot);
}

/* Out of line, for queued calls; hly_exec_go() inlines it for all others. */
static void start_next(halay_request_t *r)
{
    start(r);
}

void hly_exec_go(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    halay_context_t *ctx = comm->context;
    assert(r->state == HLY_IDLE);
    const uint32_t sequence = comm->next_sequence++;
    r->sequence = r->header.sequence = sequence;
    if (r->segments.n > 1) {
        hly_layout_segment(r, 0);
        r->header.segment = 0;
    }
    r->run.ran = r->foreseen = r->listens = false;
    r->run.before = r->layout.before;
    r->run.after = r->layout.after;
    r->overdue = 0;
    if (comm->preceded)
        hly_work_preceded(r);
    const uint64_t now = hly_about_now_ns();
    r->started_ns = ctx->now_ns = now;
    hly_record_post(r, comm, &ctx->record, now);
    r->deadline_ns = now + comm->deadline_ns;
    if (comm->broken.is || ctx->lost)
        refuse_if_over(r);
    if (comm->queue_head || !has_room(comm, r)) {
        enqueue(comm, r);
        return;
    }
    comm->started++;
    start(r);
}

/* ---------------------------------------------------------------- news */

void hly_exec_landed(halay_request_t *r, uint32_t step, bool reduced)
{
    assert(r->run.state[step] == HLY_STARTED);
    mark_landed(r, step, reduced);
    if (r->run.ndone == r->plan->nsteps && r->segments.n == 1) {
        r->expected.step = HALAY_STEP_NONE;
        conclude(r);
        return;
    }
    release_landed(r, step, reduced);
    hly_exec_advance(r);
}

void hly_exec_step_done(halay_request_t *r, uint32_t step)
{
    assert(r->run.state[step] == HLY_STARTED);
    done(r, step);
    hly_exec_advance(r);
}
