/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - executes a plan: starts the steps whose predecessors are done, until all are. It names
 * no algorithm, and every plan goes the same way.
 *
 * Life of a request: IDLE until it is begun (a persistent one is IDLE again when it was waited
 * for); QUEUED until the communicator's window has room; RUNNING (where the input is
 * scaled, that comes before the first step); SCALING where the result is divided or multiplied;
 * COMPLETE. A failure takes it from any of these to FAILING
 * (fault.c), where no step is started and what is under way is drained; then to COMPLETE. Each step
 * is started once and done once, and hly_engine_finish() is reached once.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"
#include "core.h"
#include "lend.h"
#include "readers.h"
#include "straight.h"
#include "watch.h"

/* ---------------------------------------------------------------- steps */

static void push_ready(halay_request_t *r, uint32_t step)
{
    r->ready[r->ready_tail++] = step; /* each enters once */
}

/* Steps that waited for this one alone can be started. */
static void settle(halay_request_t *r, uint32_t step)
{
    r->run[step].state = HLY_DONE;
    r->steps_done++;
    const struct hly_plan *p = r->plan;
    for (uint32_t i = p->successor_first[step]; i < p->successor_first[step + 1]; i++) {
        uint32_t next = p->successors[i];
        if (HLY_SEEDED(FORGET_SUCCESSOR, r, next))
            continue;
        assert(r->run[next].pending > 0 && r->run[next].state == HLY_WAITS);
        if (--r->run[next].pending == 0)
            push_ready(r, next);
    }
}

void hly_engine_step_done(halay_request_t *r, uint32_t step)
{
    assert(r->run[step].state == HLY_STARTED);
    HLY_SAW(DONE, r, step);
    if (step == r->plan->ahead && r->tiles.sent <= r->tiles.number)
        r->tiles.sent = r->tiles.number + 1;
    settle(r, step);
    if (HLY_SEEDED(DONE_TWICE, r, step))
        hly_engine_step_done(r, step);
}

/* Hands work to the device; `step` is done when all its pieces are. HALAY_EAGAIN: nothing
 * started. */
static int device_launch(halay_request_t *r, uint32_t step, halay_work_t *work)
{
    halay_context_t *ctx = r->context;
    struct hly_out *out = hly_out_next(ctx);
    if (!out)
        return HALAY_ENOMEM;
    work->cookie = (uint64_t)(uintptr_t)out;
    int rc = ctx->device_ops->launch(ctx->device, work);
    hly_saw_work(r, step, work, rc);
    if (rc == HALAY_INPROGRESS) {
        out = hly_out_new(ctx, HLY_OUT_DEVICE, NULL); /* the same */
        out->request = r;
        out->step = step;
        out->flying = 1;
        out->accepted = true;
        hly_link_append(&r->flying, &out->link);
        ctx->device_flying++;
    }
    return rc;
}

/* Byte `at` of an operand in up to two segments. */
static char *address_of(const struct hly_segment *seg, size_t at)
{
    return at < seg[0].bytes ? seg[0].address + at : seg[1].address + (at - seg[0].bytes);
}

/*
 * A reduce or copy step: in pieces, cut where an operand wraps. HALAY_EAGAIN: the device is full;
 * to be called again, and goes on with the first piece that the device has not taken yet.
 */
static int start_work(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    struct hly_step_run *run = &r->run[step];
    const struct hly_op *user = r->call.user;
    halay_work_t *kept = r->works ? &r->works[step] : NULL;
    if (r->both.mine)
        hly_both_missed(r);
    if (kept && kept->nsrc) {
        run->arrived = 1;
        return device_launch(r, step, kept);
    }
    const struct hly_segment *seg[1 + HALAY_REDUCE_SOURCES];
    const uint32_t noperands = s->noperands;
    assert(noperands >= 2 && noperands <= 1 + HALAY_REDUCE_SOURCES);
    size_t total = hly_operand_bytes(r, s->operand), to, group = user ? user->group : 1;
    seg[0] = hly_operand_segments(r, s->operand);
    for (uint32_t i = 1; i < noperands; i++)
        seg[i] = hly_operand_segments(r, s->operand + i);
    if (!run->pieces)
        run->arrived = 1; /* so that it is not done before all pieces are launched */
    uint32_t piece = 0;
    for (size_t from = 0; from < total; from = to, piece++) {
        to = total;
        for (uint32_t i = 0; i < noperands; i++)
            if (seg[i][0].bytes > from && seg[i][0].bytes < to)
                to = seg[i][0].bytes;
        if (piece < run->pieces)
            continue;
        halay_work_t work = {.dst = address_of(seg[0], from),
                             .count = (to - from) / r->element_bytes * group,
                             .type = (halay_type_t)r->call.brief.type,
                             .op = user ? user->number : (halay_op_t)r->call.brief.op,
                             .nsrc = noperands - 1u,
                             .fn = user ? user->fn : NULL,
                             .fn_arg = user ? user->arg : NULL,
                             .group = group,
                             .streams = hly_step_streams(r, step)};
        for (uint32_t i = 1; i < noperands; i++)
            work.src[i - 1] = address_of(seg[i], from);
        if (kept && to - from == total) {
            *kept = work;
            r->context->device_ops->bind(r->context->device, kept); /* where it can be */
        }
        if (work.nsrc > 1 && HLY_SEEDED(SWAP_SOURCES, r, step))
            hly_swap_sources(&work);
        work.count -= HLY_SEEDED(SHORT_WORK, r, step);
        int rc = device_launch(r, step, &work);
        if (rc < 0)
            return rc;
        run->pieces++;
        run->arrived += rc == HALAY_INPROGRESS;
    }
    return --run->arrived ? HALAY_INPROGRESS : HALAY_OK;
}

static void fail_here(halay_request_t *r, int code, const char *what)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_LOCAL, code, r->comm->rank);
    v.call = r->call.brief;
    snprintf(v.detail, sizeof(v.detail), "%s", what);
    hly_fault_raise(r->comm, r->sequence, &v);
}

/* Returns false if the step has to be started again later. */
static bool start_step(halay_request_t *r, uint32_t step)
{
    r->run[step].state = HLY_STARTED;
    HLY_SAW(STARTED, r, step);
    switch (r->plan->plan->steps[step].kind) {
    case HALAY_STEP_SEND:
        hly_channel_send(r, step);
        return true;
    case HALAY_STEP_RECV:
        hly_channel_recv(r, step);
        return true;
    case HALAY_STEP_JOIN:
        hly_engine_step_done(r, step);
        return true;
    default:
        break;
    }
    int rc = start_work(r, step);
    if (rc == HALAY_OK && HLY_SEEDED(WORK_TWICE, r, step)) {
        r->run[step].pieces = 0;
        rc = start_work(r, step);
    }
    if (rc == HALAY_EAGAIN) {
        HLY_SAW(BACK, r, step);
        r->run[step].state = HLY_WAITS;
        return false;
    }
    if (rc == HALAY_OK)
        hly_engine_step_done(r, step);
    else if (rc < 0)
        fail_here(r, rc, "the device could not reduce or copy");
    return true;
}

bool hly_engine_take_lying(halay_request_t *r, uint32_t step, const void *data)
{
    const uint32_t reader = hly_reader_of(r, step);
    if (reader == HALAY_STEP_NONE || r->state != HLY_RUNNING)
        return false;
    const uint32_t *dep = r->plan->plan->steps[reader].dep;
    bool last = (dep[0] == step || dep[1] == step) && r->run[reader].pending == 1;
    if (!last || r->run[reader].state != HLY_WAITS || !hly_ahead_reduce(r, step, reader, data))
        return false;
    if (!hly_channel_give_back(r->context))
        return true; /* the call fails: neither step is done */
    hly_saw_bytes(r, HLY_SAW_LANDED, step, NULL, 0, 0, 0);
    hly_engine_step_done(r, step);
    if (!r->run[reader].pending) {
        r->run[reader].state = HLY_STARTED; /* so hly_engine_run does not start it */
        HLY_SAW(STARTED, r, reader);
        hly_saw_work(r, reader, &r->works[reader], HALAY_OK);
        hly_engine_step_done(r, reader);
    }
    hly_engine_run(r);
    return true;
}

/* Elements of the result, or of the input that is scaled: where there is one, all of it. */
static size_t count_of(const halay_request_t *r)
{
    return r->result_bytes / halay_type_bytes((halay_type_t)r->call.brief.type);
}

static bool divides(const halay_request_t *r)
{
    return r->call.brief.op == HALAY_AVERAGE && r->comm->nranks > 1;
}

/* What is left when the plan is done: a result that had to wait moves, too. */
static uint8_t left_to_do(const halay_request_t *r)
{
    bool multiplied = r->call.brief.flags & HLY_BRIEF_SCALED && r->call.postscale != 1;
    uint8_t after = multiplied ? HLY_AFTER_MULTIPLY : 0;
    if (!r->result_bytes)
        return 0;
    if (divides(r))
        after |= HLY_AFTER_DIVIDE;
    return after || r->home == r->out ? after : HLY_AFTER_MOVE;
}

void hly_engine_result(halay_request_t *r)
{
    while (r->after) {
        uint8_t pass = r->after & (uint8_t)-r->after;
        bool again = pass == HLY_AFTER_MULTIPLY && divides(r); /* the result is there already */
        halay_work_t work = {.dst = r->home,
                             .src = {again ? r->home : r->out},
                             .count = count_of(r),
                             .type = (halay_type_t)r->call.brief.type,
                             .op = (halay_op_t)r->call.brief.op,
                             .nsrc = 1,
                             .divisor = pass == HLY_AFTER_DIVIDE ? (uint32_t)r->comm->nranks : 0,
                             .factor = r->call.postscale,
                             .scales = pass == HLY_AFTER_MULTIPLY};
        r->state = HLY_SCALING;
        int rc = device_launch(r, HALAY_STEP_NONE, &work);
        if (rc == HALAY_EAGAIN) {
            r->state = HLY_RUNNING; /* hly_engine_run comes back to it */
            return;
        }
        if (rc < 0) {
            fail_here(r, rc, "the device could not scale or copy the result");
            return;
        }
        r->after &= (uint8_t)~pass;
        if (rc == HALAY_INPROGRESS)
            return;
    }
    hly_engine_finish(r, HALAY_OK);
}

/* The steps that wait for no other: they always stand first in the queue. */
static void release_first(halay_request_t *r)
{
    r->ready_tail = r->plan->nready;
}

/* Returns false while steps have to wait for the input. */
static bool prescale(halay_request_t *r)
{
    if (r->before == HLY_BEFORE_FLYING)
        return false;
    halay_work_t work = {.dst = r->out,
                         .src = {r->call.in == HALAY_IN_PLACE ? r->out : r->call.in},
                         .count = count_of(r),
                         .type = (halay_type_t)r->call.brief.type,
                         .nsrc = 1,
                         .factor = r->call.prescale,
                         .scales = 1};
    int rc = work.count ? device_launch(r, HALAY_STEP_NONE, &work) : HALAY_OK;
    if (rc == HALAY_INPROGRESS)
        r->before = HLY_BEFORE_FLYING;
    else if (rc < 0 && rc != HALAY_EAGAIN)
        fail_here(r, rc, "the device could not scale the input");
    if (rc != HALAY_OK)
        return false;
    r->before = HLY_BEFORE_NOTHING;
    release_first(r);
    return true;
}

void hly_engine_prescaled(halay_request_t *r)
{
    r->before = HLY_BEFORE_NOTHING;
    release_first(r);
    hly_engine_run(r);
}

/* All as it is before the first step. */
static void lay_steps(halay_request_t *r)
{
    const struct hly_plan *p = r->plan;
    memcpy(r->run, p->fresh, p->plan->nsteps * sizeof(*r->run));
    r->steps_done = r->ready_head = r->ready_tail = 0;
}

/* Goes on to the call's next tile, if the plan is done for this one. */
static bool next_tile(halay_request_t *r)
{
    struct hly_tiles *t = &r->tiles;
    if (r->state != HLY_RUNNING || r->steps_done != r->plan->plan->nsteps || t->number + 1 == t->n)
        return false;
    HLY_SAW(FINISHED, r, HALAY_STEP_NONE);
    assert(!r->landings); /* and what flies is held */
    hly_layout_tile(r, t->number + 1);
    r->header.tile = (uint16_t)t->number;
    r->header.offset = hly_both_mine(r);
    HLY_SAW(BOUND, r, HALAY_STEP_NONE);
    lay_steps(r);
    release_first(r);
    if (r->plan->ahead != HALAY_STEP_NONE && hly_ahead_sent(r, r->plan->ahead)) {
        HLY_SAW(DONE, r, r->plan->ahead);
        settle(r, r->plan->ahead);
    }
    if (!hly_link_empty(&hly_request_slot(r)->stash))
        hly_match_posted(r);
    return true;
}

void hly_engine_run(halay_request_t *r)
{
    if (r->runs)
        return; /* a step that was done at once: the loop below goes on, however many there are */
    if (r->state == HLY_RUNNING && r->before && !prescale(r))
        return;
    r->runs = true;
    do {
        while (r->state == HLY_RUNNING && r->ready_head != r->ready_tail) {
            uint32_t step = r->ready[r->ready_head++];
            if (r->run[step].state != HLY_WAITS)
                continue; /* hly_engine_resume */
            if (!start_step(r, step)) {
                r->ready_head--;
                r->runs = false;
                return; /* the device is full */
            }
        }
    } while (next_tile(r));
    r->runs = false;
    if (r->state != HLY_RUNNING ||
        (r->steps_done != r->plan->plan->nsteps && !HLY_SEEDED(FINISH_EARLY, r, HALAY_STEP_NONE)))
        return;
    if (r->steps_done == r->plan->plan->nsteps && !hly_link_empty(&r->flying))
        return; /* what it holds is lent; when all is back this is called again */
    if (r->both.mine && r->steps_done == r->plan->plan->nsteps && !hly_both_end(r)) {
        if (r->both.failed)
            fail_here(r, HALAY_ETRANSPORT, "the other rank's memory could not be reached");
        return; /* till the other rank has written all of the result */
    }
    if (r->after && HLY_SEEDED(NO_DIVISION, r, HALAY_STEP_NONE))
        r->after = 0;
    if (r->after)
        hly_engine_result(r);
    else
        hly_engine_finish(r, HALAY_OK);
}

/* ---------------------------------------------------------------- requests */

static halay_request_t *request_new(halay_comm_t *comm, struct hly_plan *plan)
{
    halay_request_t *r = plan ? plan->spare : NULL;
    if (r) {
        plan->spare = r->next;
    } else {
        r = hly_request_memory(comm->context);
        if (!r)
            return NULL;
        uint32_t n = plan ? plan->plan->nsteps : 0;
        r->ready = calloc(n + 1, sizeof(*r->ready));
        r->run = calloc(n + 1, sizeof(*r->run));
        r->spans = calloc(plan ? plan->plan->noperands + 1 : 1, sizeof(*r->spans));
        if (n <= HLY_WORKS_KEPT)
            r->works = calloc(n + 1, sizeof(*r->works));
        if (!r->ready || !r->run || !r->spans) {
            hly_request_destroy(r);
            return NULL;
        }
        if (plan)
            memcpy(r->ready, plan->ready, plan->nready * sizeof(*r->ready));
        hly_link_init(&r->flying);
    }
    r->comm = comm;
    r->next = NULL;
    r->plan = plan;
    r->state = HLY_IDLE;
    r->landings = 0;
    r->persistent = r->refused = false;
    r->bundle = r->group = NULL;
    r->result = HALAY_OK;
    hly_link_init(&r->link);
    hly_link_init(&r->posted);
    hly_link_append(&comm->context->posted, &r->posted);
    return r;
}

halay_request_t *hly_request_bare(halay_comm_t *comm)
{
    return request_new(comm, NULL);
}

void hly_request_release(halay_request_t *r)
{
    assert(r->state == HLY_COMPLETE && hly_link_empty(&r->flying) && !r->landings);
    if (r->group)
        hly_group_release(r);
    hly_request_retire(r);
    hly_link_remove(&r->posted);
    hly_layout_forget(r);
    free(r->early);
    r->early = NULL;
    if (r->call.user)
        r->call.user->users--;
    if (!r->plan) {
        hly_request_destroy(r);
        return;
    }
    r->plan->running--;
    r->next = r->plan->spare;
    r->plan->spare = r;
}

void hly_request_drop(halay_request_t *r)
{
    hly_link_remove(&r->posted);
    hly_link_remove(&r->link);
    while (!hly_link_empty(&r->flying)) {
        struct hly_out *out = HLY_OF(r->flying.next, struct hly_out, link);
        hly_link_remove(&out->link);
        hly_link_append(&r->context->outs_flying, &out->link);
    }
    if (r->plan)
        r->plan->running--;
    hly_group_forget(r->group);
    hly_request_destroy(r);
}

static struct hly_slot *enter(halay_request_t *r)
{
    struct hly_slot *slot = hly_comm_slot(r->comm, r->sequence);
    assert(slot && !slot->request);
    slot->request = r;
    slot->unheard = r->call.brief.flags & HLY_BRIEF_SERIES;
    r->state = HLY_RUNNING;
    hly_link_append(&r->context->requests, &r->link);
    return slot;
}

static void prepare_run(halay_request_t *r)
{
    r->ran = true;
    lay_steps(r);
    bool scaled = r->call.brief.flags & HLY_BRIEF_SCALED;
    r->before = scaled && r->call.prescale != 1 ? HLY_BEFORE_DUE : HLY_BEFORE_NOTHING;
    r->after = left_to_do(r);
    if (!r->before)
        release_first(r);
}

static void start(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    struct hly_slot *slot = enter(r);
    if (r->early) {
        struct hly_verdict_wire *early = r->early;
        if (!r->refused || !r->persistent)
            r->early = NULL;
        hly_fault_raise(comm, r->sequence, early);
        if (!r->early)
            free(early);
        return;
    }
    if (slot->fault) {
        hly_fault_entered(r);
        return;
    }
    hly_layout_begin(r);
    if (r->tiles.n > 1)
        hly_both_begin(r);
    HLY_SAW(BOUND, r, HALAY_STEP_NONE);
    prepare_run(r);
    hly_seed_dependencies(r);
    if (!hly_link_empty(&slot->stash))
        hly_match_posted(r);
    hly_engine_run(r);
}

/* Starts queued calls while the window has room. A call may complete, and be freed, inside. */
static void start_queued(halay_comm_t *comm)
{
    while (comm->queue_head && comm->started - comm->oldest < HLY_WINDOW &&
           comm->started - comm->heard < HLY_SERIES) {
        halay_request_t *r = comm->queue_head;
        comm->queue_head = r->next;
        if (!comm->queue_head)
            comm->queue_tail = NULL;
        r->next = NULL;
        comm->started++;
        start(r);
    }
}

void hly_engine_finish(halay_request_t *r, int result)
{
    halay_comm_t *comm = r->comm;
    struct hly_slot *slot = hly_request_slot(r);
    assert(slot->request == r && slot->sequence == r->sequence && r->state != HLY_COMPLETE);
    assert(hly_link_empty(&r->flying) && !r->landings);
    if (result && r->both.mine)
        hly_both_withdraw(r);
    r->state = HLY_COMPLETE;
    r->result = result;
    HLY_SAW(FINISHED, r, HALAY_STEP_NONE);
    hly_link_remove(&r->link);
    slot->request = NULL;
    slot->complete = true;
    hly_match_forget(r->context, &slot->stash);
    free(slot->fault);
    slot->fault = NULL;
    if (result) {
        slot->unheard = false; /* it has been heard of, or the communicator is broken */
        comm->series.signature = 0;
    }
    r->context->counters.operations++;
    r->context->counters.errors += result != HALAY_OK;
    if (r->explained)
        hly_explain_done(r);
    while (comm->oldest != comm->started && comm->slots[comm->oldest % HLY_SLOTS].complete) {
        struct hly_slot *done = &comm->slots[comm->oldest++ % HLY_SLOTS];
        done->complete = false;
        if (!done->unheard)
            comm->heard = comm->oldest;
    }
    if (comm->series.asks)
        hly_series_answer(comm);
    r->context->woken = true; /* whoever looked before this must not go to sleep now */
    hly_wake(r->context);
    if (r->bundle)
        hly_group_part_done(r);
    start_queued(comm);
}

static bool is_last(const halay_comm_t *comm, const struct hly_brief *brief)
{
    return hly_brief_equal(brief, &comm->last_brief);
}

/* What would make this rank's call fail before it is compared with the others'. */
static int prepare(halay_comm_t *comm, const struct hly_call *call, struct hly_plan **plan,
                   char *reason, size_t reason_bytes)
{
    uint32_t planner;
    if (call->brief.flags & HLY_BRIEF_SERIES)
        return hly_series_plan(comm, call, plan, reason, reason_bytes);
    *plan = comm->last_plan;
    if (*plan && is_last(comm, &call->brief) &&
        (*plan)->in_place == (uint32_t)(hly_call_in_place(call) && !call->aside))
        return HALAY_OK;
    *plan = NULL;
    int rc = hly_select(comm, call, &planner, reason, reason_bytes);
    if (!rc)
        rc = hly_plan_admit(comm, planner, call, plan, reason, reason_bytes);
    comm->last_plan = *plan;
    comm->last_series = NULL;
    comm->last_brief = call->brief;
    return rc;
}

bool hly_request_repeats(const halay_request_t *r, const struct hly_call *call)
{
    const struct hly_call *was = &r->call;
    return r->bound && was->signature == call->signature && was->in == call->in &&
           was->out == call->out && was->local_in_place == call->local_in_place &&
           was->aside == call->aside && hly_brief_equal(&was->brief, &call->brief);
}

static void take_call(halay_request_t *r, const struct hly_call *call)
{
    r->bound = false;
    r->straight = HLY_STRAIGHT_UNKNOWN;
    r->repeated = 0;
    hly_due_forget(&r->due);
    r->call = *call;
    memset(r->call.vector, 0, sizeof(r->call.vector)); /* the program's arrays may go */
    if (call->user)
        call->user->users++;
    hly_header_fill(&r->header, r->comm, HLY_EAGER, 0, 0, call);
}

static int bind(halay_request_t *r, const struct hly_call *call)
{
    int rc = hly_layout_tables(r, call);
    if (!rc)
        rc = hly_layout_bind(r);
    r->bound = !rc && !r->tables && !call->user;
    return rc;
}

/* The request will fail as soon as the window lets it start. */
static void fail_early(halay_request_t *r, int code, const char *text, enum hly_cause cause)
{
    if (!text) {
        *r->early = r->comm->broken_by;
        r->foreseen = true;
        return;
    }
    hly_verdict_init(r->early, r->comm, cause, code, r->comm->rank);
    r->early->call = r->call.brief;
    snprintf(r->early->detail, sizeof(r->early->detail), "%s", text);
}

static void enqueue(halay_comm_t *comm, halay_request_t *r)
{
    if (comm->queue_tail)
        comm->queue_tail->next = r;
    else
        comm->queue_head = r;
    comm->queue_tail = r;
    start_queued(comm);
}

int hly_engine_make(halay_comm_t *comm, const struct hly_call *call, int argument_error,
                    const char *argument_text, halay_request_t **request)
{
    char reason[192];
    struct hly_plan *plan = NULL;
    enum hly_cause cause = argument_error == HALAY_ESTATE ? HLY_CAUSE_STATE : HLY_CAUSE_ARGUMENT;
    int rc = argument_error;
    reason[0] = 0;
    if (comm->context->lost) {
        cause = HLY_CAUSE_LOCAL;
        rc = HALAY_ETRANSPORT;
        snprintf(reason, sizeof(reason), "its transport has failed");
    } else if (rc) {
        snprintf(reason, sizeof(reason), "%s", argument_text);
    } else {
        cause = HLY_CAUSE_LOCAL;
        rc = prepare(comm, call, &plan, reason, sizeof(reason));
    }
    halay_request_t *r = request_new(comm, plan);
    if (!r)
        return HALAY_ENOMEM;
    if (plan)
        plan->running++;
    bool again =
        !rc && hly_request_repeats(r, call); /* on the request that the call before had, perhaps */
    if (!again)
        take_call(r, call);
    if (!rc && !again && (rc = bind(r, call)))
        snprintf(reason, sizeof(reason), "no memory for a call of this size");
    r->refused = rc != HALAY_OK;
    r->early = rc ? calloc(1, sizeof(*r->early)) : NULL;
    if (rc && !r->early) {
        r->state = HLY_COMPLETE;
        hly_request_release(r);
        return HALAY_ENOMEM;
    }
    if (rc)
        fail_early(r, rc, reason, cause);
    *request = r;
    return HALAY_OK;
}

static void begin(halay_request_t *r)
{
    assert(r->state == HLY_IDLE);
    r->sequence = r->header.sequence = r->comm->next_sequence++;
    r->state = HLY_QUEUED;
    r->header.tile = 0;
    r->header.offset = 0;
    r->ran = r->foreseen = r->runs = r->doubts = false;
    r->started_ns = hly_about_now_ns();
    r->deadline_ns = r->started_ns + r->comm->deadline_ns;
    r->explained = NULL;
}

void hly_engine_resume(halay_request_t *r, const uint16_t done[], uint32_t ndone)
{
    struct hly_plan *plan = r->plan;
    halay_request_t *same = request_new(r->comm, plan);
    assert(same == r && !r->early);
    (void)same;
    plan->running++;
    begin(r);
    r->comm->started++;
    enter(r);
    prepare_run(r);
    r->header.tile = (uint16_t)r->tiles.number;
    r->header.offset = hly_both_mine(r);
    for (uint32_t i = 0; i < ndone; i++)
        settle(r, done[i]);
    for (struct hly_link *l = r->flying.next; l != &r->flying; l = l->next) {
        struct hly_out *out = HLY_OF(l, struct hly_out, link);
        if (out->held)
            continue;
        r->run[out->step].state = HLY_STARTED;
        r->run[out->step].out = out;
    }
    if (!hly_link_empty(&hly_request_slot(r)->stash))
        hly_match_posted(r);
    hly_engine_run(r);
}

void hly_engine_go(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    begin(r);
    r->tiles.sent = 0;
    if (comm->context->settings.level >= HLY_TRACE) {
        char text[96];
        hly_brief_text(&r->call.brief, text, sizeof(text));
        hly_log(comm->context, HLY_TRACE, "communicator %016llx, call %u: %s",
                (unsigned long long)comm->id, r->sequence, text);
    }
    if (comm->context->settings.explain && !r->refused)
        hly_explain_call(r);
    if (!r->refused && (comm->broken || comm->context->lost)) {
        r->early = calloc(1, sizeof(*r->early));
        if (r->early)
            fail_early(r, HALAY_ETRANSPORT, comm->broken ? NULL : "its transport has failed",
                       HLY_CAUSE_LOCAL);
    }
    enqueue(comm, r);
}

int hly_engine_post(halay_comm_t *comm, struct hly_call *call, int argument_error,
                    const char *argument_text, halay_request_t **request)
{
    if (argument_error || call->brief.collective == HALAY_BROADCAST)
        hly_series_post(comm, call, argument_error);
    int rc = hly_engine_make(comm, call, argument_error, argument_text, request);
    if (!rc)
        hly_engine_go(*request);
    return rc;
}
