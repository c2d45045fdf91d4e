/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute.c - the executor: walks the linear order of a compiled plan, and starts every step whose
 * predecessors are done. It names no algorithm, and there is no other executor. A blocking call is
 * advanced by the thread that waits for it, all others by whoever makes progress.
 *
 * Invariant: a step before the cursor is started, done, or skipped since a predecessor is not done.
 * A skipped step enters the list of ready ones when its last predecessor is done. Each step is
 * started once and done once, but for one that finds the device full: it is started again.
 */
#include <assert.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/listen.h"
#include "wire/match.h"
#include "wire/news.h"
#include "wire/rendezvous.h"
#include "wire/watch.h"

#define DOUBT_NS    1000000000ll /* in a call */
#define DOUBTS_MOST 8            /* messages, so that no wait connects to very many ranks */

/* ---------------------------------------------------------------- what can be started */

static inline bool can_start(const halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = hly_step(r, step);
    return hly_step_is_done(r, s->dep[0]) && hly_step_is_done(r, s->dep[1]);
}

static void push_ready(halay_request_t *r, uint32_t step)
{
    struct hly_progress_of *run = &r->run;
    run->step[step].state = HLY_WAITS;
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

/* The next step to start, or HALAY_STEP_NONE. */
static inline uint32_t next_step(halay_request_t *r)
{
    struct hly_progress_of *run = &r->run;
    const uint32_t n = r->plan->plan->nsteps, *order = r->plan->order;
    while (run->ready) {
        const uint32_t step = pop_ready(run);
        if (run->step[step].state == HLY_WAITS)
            return step;
    }
    while (run->cursor < n) {
        const uint32_t step = order[run->cursor++];
        if (run->step[step].state != HLY_WAITS)
            continue; /* a reduction that was done when its message landed */
        if (can_start(r, step) || HLY_SEEDED(SKIP_DEPENDENCY, r, step))
            return step;
        run->step[step].state = HLY_SKIPPED;
        run->nskipped++;
    }
    return HALAY_STEP_NONE;
}

__attribute__((noinline)) static void release_successors(halay_request_t *r, uint32_t step)
{
    const struct hly_plan *p = r->plan;
    for (uint32_t i = p->successor_first[step]; i < p->successor_first[step + 1]; i++) {
        const uint32_t next = p->successors[i];
        if (r->run.step[next].state == HLY_SKIPPED && can_start(r, next) &&
            !HLY_SEEDED(FORGET_SUCCESSOR, r, next))
            push_ready(r, next);
    }
}

static inline void mark_done(halay_request_t *r, uint32_t step)
{
    HLY_SAW(DONE, r, step);
    r->run.step[step].state = HLY_DONE;
    r->run.ndone++;
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
static void expect_next(halay_request_t *r)
{
    struct hly_progress_of *run = &r->run;
    r->expected.step = HALAY_STEP_NONE;
    while (run->looked < run->cursor && r->expected.step == HALAY_STEP_NONE) {
        const uint32_t step = r->plan->order[run->looked++];
        if (run->step[step].state == HLY_STARTED && hly_step(r, step)->kind == HALAY_STEP_RECV &&
            !run->step[step].target && !run->step[step].arrived)
            hly_expect(r, step);
    }
}

static inline void landed(halay_request_t *r, uint32_t step, bool reduced)
{
    struct hly_progress_of *run = &r->run;
    mark_done(r, step);
    if (r->expected.step == step)
        expect_next(r);
    if (reduced) {
        const uint32_t reduction = r->plan->reader[step];
        run->nskipped -= run->step[reduction].state == HLY_SKIPPED;
        HLY_SAW(STARTED, r, reduction);
        hly_saw_work(r, reduction, &r->layout.works[reduction], HALAY_OK);
        mark_done(r, reduction);
        if (run->nskipped)
            release_successors(r, reduction);
    }
    if (run->nskipped)
        release_successors(r, step);
}

/* Starts a RECV step. HALAY_OK: its message was there already. */
static int receive(halay_request_t *r, uint32_t step)
{
    const size_t bytes = hly_operand_bytes(r, hly_step(r, step)->operand);
    if (bytes > r->plan->peers[step]->transport->unannounced_bytes) {
        hly_rendezvous_announce(r, step);
        return HALAY_INPROGRESS;
    }
    if (!hly_link_empty(&hly_request_slot(r)->unexpected)) {
        const enum hly_landed what = hly_unexpected_land(r, step);
        if (what >= HLY_LANDED_ALL) {
            landed(r, step, what == HLY_LANDED_REDUCED);
            return HALAY_OK;
        }
    }
    if (r->expected.step == HALAY_STEP_NONE && !r->run.step[step].arrived) {
        hly_expect(r, step);
        r->run.looked = r->run.cursor;
    }
    return HALAY_INPROGRESS;
}

/* ---------------------------------------------------------------- the walk */

/* false: it has to be started again later. */
static inline bool start_step(halay_request_t *r, uint32_t step)
{
    r->run.step[step].state = HLY_STARTED;
    HLY_SAW(STARTED, r, step);
    int rc = HALAY_OK;
    switch (hly_step(r, step)->kind) {
    case HALAY_STEP_SEND:
        rc = hly_step_send(r, step);
        break;
    case HALAY_STEP_RECV:
        receive(r, step);
        return true;
    case HALAY_STEP_JOIN:
        break;
    default:
        rc = hly_work_start(r, step);
    }
    if (rc == HALAY_OK)
        done(r, step);
    if (rc != HALAY_EAGAIN)
        return true;
    HLY_SAW(BACK, r, step);
    return false;
}

/* Marks all steps as not started, before a segment. */
static void lay_steps(halay_request_t *r)
{
    struct hly_progress_of *run = &r->run;
    for (uint32_t i = 0; i < r->plan->plan->nsteps; i++)
        run->step[i] = (struct hly_step_run){0};
    run->cursor = run->looked = run->ndone = run->nskipped = run->ready = run->last = 0;
    r->expected.step = HALAY_STEP_NONE;
}

/* Goes on to the call's next segment, if the plan is done for this one. */
static bool next_segment(halay_request_t *r)
{
    struct hly_segments *t = &r->segments;
    if (r->state != HLY_RUNNING || r->run.ndone != r->plan->plan->nsteps || t->number + 1 == t->n)
        return false;
    HLY_SAW(FINISHED, r, HALAY_STEP_NONE);
    assert(!r->targets); /* what still flies is only read: lent, or sent out of IN by an adapter */
    hly_layout_segment(r, t->number + 1);
    r->header.segment = (uint16_t)t->number;
    HLY_SAW(BOUND, r, HALAY_STEP_NONE);
    lay_steps(r);
    return hly_link_empty(&hly_request_slot(r)->unexpected) || hly_unexpected_compare(r);
}

/* false: the device is full. */
static bool start_or_put_back(halay_request_t *r, uint32_t step)
{
    if (start_step(r, step))
        return true;
    r->run.step[step].state = HLY_SKIPPED;
    r->run.nskipped++;
    push_ready(r, step);
    return false;
}

/* Starts what can be started in this segment. false: a step has to be started again. */
static inline bool walk_segment(halay_request_t *r)
{
    uint32_t step;
    while (r->state == HLY_RUNNING && (step = next_step(r)) != HALAY_STEP_NONE)
        if (!start_or_put_back(r, step))
            return false;
    return true;
}

void hly_exec_advance(halay_request_t *r)
{
    if (r->state != HLY_RUNNING)
        return;
    if (r->run.before && hly_work_prescale(r) != HALAY_OK)
        return;
    const uint32_t nsteps = r->plan->plan->nsteps;
    do
        if ((r->run.ready || r->run.cursor < nsteps) && !walk_segment(r))
            return;
    while (r->segments.n > 1 && next_segment(r));
    if (r->state != HLY_RUNNING ||
        (r->run.ndone != nsteps && !HLY_SEEDED(FINISH_EARLY, r, HALAY_STEP_NONE)))
        return;
    if (r->run.ndone >= nsteps && !hly_link_empty(&r->flying))
        return; /* messages out of IN still fly; the news that the last is back calls this again */
    if (hly_exec_has_to_listen(r->context) && r->run.ndone == r->plan->plan->nsteps) {
        r->listens = true;
        hly_exec_listen(r->context);
        return; /* read_all() of api/progress.c calls this again */
    }
    if (r->run.after && HLY_SEEDED(NO_DIVISION, r, HALAY_STEP_NONE))
        r->run.after = 0;
    if (!r->run.after || hly_work_result(r) == HALAY_OK)
        hly_exec_finish(r, HALAY_OK);
}

void hly_exec_start(halay_request_t *r)
{
    r->run.ran = true;
    lay_steps(r);
    const bool scaled = r->call.desc.flags & HLY_CALL_SCALED;
    r->run.before = scaled && r->call.prescale != 1 ? HLY_BEFORE_DUE : HLY_BEFORE_NOTHING;
    r->run.after = r->layout.after;
    HLY_SAW(BOUND, r, HALAY_STEP_NONE);
    if (hly_link_empty(&hly_request_slot(r)->unexpected) || hly_unexpected_compare(r))
        hly_exec_advance(r);
}

/* ---------------------------------------------------------------- long waits */

void hly_exec_doubt(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    const bool relaxed = r->call.desc.flags & HLY_CALL_RELAXED;
    const bool waited = (int64_t)(r->context->now_ns - r->started_ns) >= DOUBT_NS &&
                        r->sequence == comm->oldest && !comm->parent;
    if (r->doubts || r->state != HLY_RUNNING || !r->run.ran || !(relaxed || waited))
        return;
    r->doubts = true;
    uint32_t most = DOUBTS_MOST;
    for (uint32_t i = 0; i < r->plan->plan->nsteps && most; i++) {
        const halay_step_t *s = hly_step(r, i);
        if (s->kind != HALAY_STEP_RECV || r->run.step[i].state != HLY_STARTED)
            continue;
        hly_control_send(comm, (int)s->peer, HLY_DOUBT, r->sequence, 0, 0, &r->call, NULL, 0);
        most--;
    }
}

/* ---------------------------------------------------------------- news */

void hly_exec_landed(halay_request_t *r, uint32_t step, bool reduced)
{
    assert(r->run.step[step].state == HLY_STARTED);
    landed(r, step, reduced);
    hly_exec_advance(r);
}

void hly_exec_sent(halay_request_t *r, uint32_t step)
{
    assert(r->run.step[step].state == HLY_STARTED);
    done(r, step);
    hly_exec_advance(r);
}
