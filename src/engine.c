/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - executes a plan: starts the steps whose predecessors are done, until all are. It names
 * no algorithm, and every plan goes the same way.
 *
 * Life of a request: QUEUED until the communicator's window has room; RUNNING (where the input is
 * scaled, that comes before the first step); SCALING where the result is divided or multiplied;
 * COMPLETE. A failure takes it from any of these to FAILING
 * (fault.c), where no step is started and what is under way is drained; then to COMPLETE. Each step
 * is started once and done once, and hly_engine_finish() is reached once.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define SLOT_ALIGN 64

/* ---------------------------------------------------------------- operands: blocks to addresses */

/* Blocks of equal size, the first `long_blocks` of them one element longer (bind). */
static size_t block_offset(const halay_request_t *r, uint32_t block)
{
    if (r->block_offset)
        return r->block_offset[block];
    uint32_t longer = block < r->long_blocks ? block : r->long_blocks;
    return block * r->unit_bytes + longer * r->element_bytes;
}

/* Bytes of blocks [first, first + count), which do not wrap. */
static size_t run_bytes(const halay_request_t *r, uint32_t first, uint32_t count)
{
    if (!r->block_bytes)
        return block_offset(r, first + count) - block_offset(r, first);
    size_t bytes = 0;
    for (uint32_t b = first; b < first + count; b++)
        bytes += r->block_bytes[b];
    return bytes;
}

bool hly_operand_wraps(const halay_plan_t *plan, const halay_operand_t *o)
{
    return o->first + o->count > plan->blocks;
}

static const struct hly_span *span_of(const halay_request_t *r, const halay_operand_t *o)
{
    return &r->spans[o - r->plan->plan->operands];
}

size_t hly_operand_bytes(const halay_request_t *r, const halay_operand_t *o)
{
    return span_of(r, o)->bytes + span_of(r, o)->tail;
}

/*
 * Where an operand lies: one segment, or two where it wraps. Blocks that lie anywhere (allgatherv)
 * come one a run; selection sees to that.
 */
uint32_t hly_operand_segments(const halay_request_t *r, const halay_operand_t *o,
                              struct hly_segment seg[2])
{
    char *const bases[] = {r->in, r->out, r->scratch};
    const struct hly_span *span = span_of(r, o);
    seg[0] = (struct hly_segment){bases[o->buffer] + span->offset, span->bytes};
    seg[1] = (struct hly_segment){bases[o->buffer], span->tail};
    return span->tail ? 2 : o->count > 0;
}

/* In the OWN layout, and in scratch, a run lies together wherever it begins. */
static void measure(const halay_request_t *r, const halay_operand_t *o, struct hly_span *span)
{
    const halay_plan_t *plan = r->plan->plan;
    uint32_t collective = plan->params.collective;
    bool scratch = o->buffer == HALAY_BUFFER_SCRATCH;
    bool own = scratch || collective == (o->buffer == HALAY_BUFFER_IN ? HALAY_ALLGATHER
                                                                      : HALAY_REDUCE_SCATTER);
    *span = (struct hly_span){0, 0, 0};
    if (!o->count)
        return;
    assert(scratch || !r->block_offset || o->count == 1);
    uint32_t run = hly_operand_wraps(plan, o) ? plan->blocks - o->first : o->count;
    span->bytes = run_bytes(r, o->first, run);
    span->tail = run < o->count ? run_bytes(r, 0, o->count - run) : 0;
    span->offset = scratch ? o->slot * r->slot_bytes : own ? 0 : block_offset(r, o->first);
    if (own) {
        span->bytes += span->tail;
        span->tail = 0;
    }
}

/* ---------------------------------------------------------------- steps */

static void push_ready(halay_request_t *r, uint32_t step)
{
    r->ready[r->ready_tail++ % r->plan->plan->nsteps] = step;
}

void hly_engine_step_done(halay_request_t *r, uint32_t step)
{
    assert(r->run[step].state == HLY_STARTED);
    r->run[step].state = HLY_DONE;
    r->steps_done++;
    const struct hly_plan *p = r->plan;
    for (uint32_t i = p->successor_first[step]; i < p->successor_first[step + 1]; i++) {
        uint32_t next = p->successors[i];
        assert(r->run[next].pending > 0 && r->run[next].state == HLY_WAITS);
        if (--r->run[next].pending == 0)
            push_ready(r, next);
    }
}

/* Hands work to the device; `step` is done when all its pieces are. HALAY_EAGAIN: nothing
 * started. */
static int device_launch(halay_request_t *r, uint32_t step, halay_work_t *work)
{
    halay_context_t *ctx = r->context;
    struct hly_out *out = hly_out_new(ctx, HLY_OUT_DEVICE, NULL);
    if (!out)
        return HALAY_ENOMEM;
    out->request = r;
    out->step = step;
    work->cookie = (uint64_t)(uintptr_t)out;
    int rc = ctx->device_ops->launch(ctx->device, work);
    if (rc == HALAY_INPROGRESS) {
        out->flying = 1;
        out->accepted = true;
        hly_link_append(&r->flying, &out->link);
        ctx->device_flying++;
    } else {
        hly_out_free(ctx, out);
    }
    return rc;
}

/* A reduce or copy step: at most two pieces, because all its operands wrap at the same block. */
static int start_work(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    const halay_operand_t *o = &r->plan->plan->operands[s->operand];
    struct hly_segment seg[1 + HALAY_REDUCE_SOURCES][2];
    const struct hly_op *user = r->call.user;
    size_t total = hly_operand_bytes(r, &o[0]), split = total, group = user ? user->group : 1;
    r->run[step].arrived = 1; /* so that it is not done before both pieces are launched */
    for (uint32_t i = 0; i < s->noperands; i++)
        if (hly_operand_segments(r, &o[i], seg[i]) == 2)
            split = seg[i][0].bytes;
    for (int piece = 0; piece < 2; piece++) {
        size_t from = piece ? split : 0, to = piece ? total : split;
        halay_work_t work = {.count = (to - from) / r->element_bytes * group,
                             .type = (halay_type_t)r->call.brief.type,
                             .op = user ? user->number : (halay_op_t)r->call.brief.op,
                             .nsrc = s->noperands - 1u,
                             .fn = user ? user->fn : NULL,
                             .fn_arg = user ? user->arg : NULL,
                             .group = group};
        if (!work.count)
            continue;
        for (uint32_t i = 0; i < s->noperands; i++) {
            bool second = seg[i][1].bytes && piece;
            char *at = second ? seg[i][1].address : seg[i][0].address + from;
            if (i == 0)
                work.dst = at;
            else
                work.src[i - 1] = at;
        }
        int rc = device_launch(r, step, &work);
        while (rc == HALAY_EAGAIN && piece) { /* the second half must follow the first */
            hly_device_poll(r->context);
            rc = device_launch(r, step, &work);
        }
        if (rc < 0)
            return rc;
        r->run[step].arrived += rc == HALAY_INPROGRESS;
    }
    return --r->run[step].arrived ? HALAY_INPROGRESS : HALAY_OK;
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
    if (rc == HALAY_EAGAIN) {
        r->run[step].state = HLY_WAITS;
        return false;
    }
    if (rc == HALAY_OK)
        hly_engine_step_done(r, step);
    else if (rc < 0)
        fail_here(r, rc, "the device could not reduce or copy");
    return true;
}

/* One pass over all elements: out = in * factor, or out = in / ranks. */
static int scale(halay_request_t *r, const void *in, bool divide, double factor)
{
    halay_work_t work = {.dst = r->out,
                         .src = {in},
                         .count = r->call.brief.count,
                         .type = (halay_type_t)r->call.brief.type,
                         .op = HALAY_AVERAGE,
                         .nsrc = 1,
                         .divisor = divide ? (uint32_t)r->comm->nranks : 0,
                         .factor = factor,
                         .scales = !divide};
    return work.count ? device_launch(r, HALAY_STEP_NONE, &work) : HALAY_OK;
}

void hly_engine_result(halay_request_t *r)
{
    while (r->after) {
        bool divide = r->after & HLY_AFTER_DIVIDE;
        r->state = HLY_SCALING;
        int rc = scale(r, r->out, divide, r->call.postscale);
        if (rc == HALAY_EAGAIN) {
            r->state = HLY_RUNNING; /* hly_engine_run comes back to it */
            return;
        }
        if (rc < 0) {
            fail_here(r, rc, "the device could not scale the result");
            return;
        }
        r->after &= (uint8_t) ~(divide ? HLY_AFTER_DIVIDE : HLY_AFTER_MULTIPLY);
        if (rc == HALAY_INPROGRESS)
            return;
    }
    hly_engine_finish(r, HALAY_OK);
}

/* The steps that wait for no other. */
static void release_first(halay_request_t *r)
{
    for (uint32_t i = 0; i < r->plan->plan->nsteps; i++)
        if (!r->run[i].pending)
            push_ready(r, i);
}

/* Returns false while steps have to wait for the input. */
static bool prescale(halay_request_t *r)
{
    if (r->before == HLY_BEFORE_FLYING)
        return false;
    const void *in = r->call.in == HALAY_IN_PLACE ? r->out : r->call.in;
    int rc = scale(r, in, false, r->call.prescale);
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

void hly_engine_run(halay_request_t *r)
{
    if (r->state == HLY_RUNNING && r->before && !prescale(r))
        return;
    while (r->state == HLY_RUNNING && r->ready_head != r->ready_tail) {
        uint32_t step = r->ready[r->ready_head++ % r->plan->plan->nsteps];
        if (!start_step(r, step)) {
            r->ready_head--;
            return; /* the device is full */
        }
    }
    if (r->state != HLY_RUNNING || r->steps_done != r->plan->plan->nsteps)
        return;
    hly_engine_result(r);
}

/* ---------------------------------------------------------------- requests */

void hly_request_destroy(halay_request_t *r)
{
    free(r->ready);
    free(r->run);
    free(r->spans);
    free(r->scratch);
    free(r->block_offset);
    free(r);
}

static halay_request_t *request_new(halay_comm_t *comm, struct hly_plan *plan)
{
    halay_request_t *r = plan ? plan->spare : NULL;
    if (r) {
        plan->spare = r->next;
    } else {
        r = calloc(1, sizeof(*r));
        if (!r)
            return NULL;
        uint32_t n = plan ? plan->plan->nsteps : 0;
        r->ready = calloc(n + 1, sizeof(*r->ready));
        r->run = calloc(n + 1, sizeof(*r->run));
        r->spans = calloc(plan ? plan->plan->noperands + 1 : 1, sizeof(*r->spans));
        if (!r->ready || !r->run || !r->spans) {
            hly_request_destroy(r);
            return NULL;
        }
    }
    r->magic = HLY_REQUEST_MAGIC;
    r->context = comm->context;
    r->comm = comm;
    r->next = NULL;
    r->plan = plan;
    r->steps_done = r->ready_head = r->ready_tail = 0;
    r->landings = 0;
    r->ran = r->foreseen = false;
    r->result = HALAY_OK;
    hly_link_init(&r->link);
    hly_link_init(&r->flying);
    hly_link_init(&r->posted);
    hly_link_append(&comm->context->posted, &r->posted);
    return r;
}

void hly_request_release(halay_request_t *r)
{
    assert(r->state == HLY_COMPLETE && hly_link_empty(&r->flying) && !r->landings);
    r->magic = 0;
    hly_link_remove(&r->posted);
    free(r->block_offset);
    r->block_offset = r->block_bytes = NULL;
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
    free(r->early);
    hly_request_destroy(r);
}

/* Elements that are never parted. */
static size_t group_of(const struct hly_call *call)
{
    return call->user ? call->user->group : 1;
}

/* How large blocks are, and so where operands lie: the same for the next call of this count. */
static void lay_out(halay_request_t *r)
{
    const halay_plan_t *plan = r->plan->plan;
    const struct hly_call *c = &r->call;
    bool cut = c->brief.collective == HALAY_ALLREDUCE && plan->blocks > 1;
    size_t element = halay_type_bytes((halay_type_t)c->brief.type);
    size_t group = group_of(c), count = c->brief.count / group;
    r->element_bytes = element ? group * element : 1; /* a barrier */
    r->unit_bytes = (cut ? count / plan->blocks : count) * r->element_bytes;
    r->long_blocks = cut ? (uint32_t)(count % plan->blocks) : 0;
    size_t slot = r->unit_bytes + (r->long_blocks ? r->element_bytes : 0);
    r->slot_bytes = (slot + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
    for (uint32_t i = 0; i < plan->noperands; i++)
        measure(r, &plan->operands[i], &r->spans[i]);
    r->laid_count = c->brief.count;
    r->laid_type = c->brief.type;
    r->laid_group = group;
    r->laid_out = !r->block_offset;
}

/* The addresses behind the plan's symbols. */
static int bind(halay_request_t *r)
{
    const struct hly_call *c = &r->call;
    if (!r->laid_out || r->block_offset || r->laid_count != c->brief.count ||
        r->laid_type != c->brief.type || r->laid_group != group_of(c))
        lay_out(r);
    r->out = c->out;
    r->in = (char *)(uintptr_t)c->in;
    if (c->brief.flags & HLY_BRIEF_IN_PLACE)
        r->in = c->brief.collective == HALAY_ALLGATHER
                    ? r->out + block_offset(r, r->plan->plan->params.rank)
                    : r->out;
    size_t need = r->slot_bytes * r->plan->plan->scratch_slots;
    if (need <= r->scratch_bytes)
        return HALAY_OK;
    free(r->scratch);
    r->scratch = aligned_alloc(SLOT_ALIGN, need);
    r->scratch_bytes = r->scratch ? need : 0;
    return r->scratch ? HALAY_OK : HALAY_ENOMEM;
}

static int copy_counts(halay_request_t *r, const struct hly_call *call)
{
    if (!call->counts)
        return HALAY_OK;
    size_t n = (size_t)r->comm->nranks, element = halay_type_bytes((halay_type_t)call->brief.type);
    r->block_offset = calloc(2 * n, sizeof(size_t));
    if (!r->block_offset)
        return HALAY_ENOMEM;
    r->block_bytes = r->block_offset + n;
    size_t next = 0;
    for (size_t i = 0; i < n; i++) {
        r->block_offset[i] = (call->displs ? call->displs[i] : next) * element;
        r->block_bytes[i] = call->counts[i] * element;
        next += call->counts[i];
    }
    return HALAY_OK;
}

static void start(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    struct hly_slot *slot = hly_comm_slot(comm, r->sequence);
    assert(slot && !slot->request);
    slot->request = r;
    r->state = HLY_RUNNING;
    hly_link_append(&r->context->requests, &r->link);
    if (r->early) {
        hly_fault_raise(comm, r->sequence, r->early);
        free(r->early);
        r->early = NULL;
        return;
    }
    if (slot->fault) {
        hly_fault_entered(r);
        return;
    }
    const halay_plan_t *plan = r->plan->plan;
    r->ran = true;
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *s = &plan->steps[i];
        r->run[i] = (struct hly_step_run){0};
        r->run[i].pending =
            (uint8_t)((s->dep[0] != HALAY_STEP_NONE) + (s->dep[1] != HALAY_STEP_NONE));
    }
    bool scaled = r->call.brief.flags & HLY_BRIEF_SCALED;
    r->before = scaled && r->call.prescale != 1 ? HLY_BEFORE_DUE : HLY_BEFORE_NOTHING;
    r->after = scaled && r->call.postscale != 1 ? HLY_AFTER_MULTIPLY : 0;
    if (r->call.brief.op == HALAY_AVERAGE && comm->nranks > 1)
        r->after |= HLY_AFTER_DIVIDE;
    if (!r->before)
        release_first(r);
    hly_match_posted(r);
    hly_engine_run(r);
}

/* Starts queued calls while the window has room. A call may complete, and be freed, inside. */
static void start_queued(halay_comm_t *comm)
{
    while (comm->queue_head && comm->started - comm->oldest < HLY_WINDOW) {
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
    struct hly_slot *slot = &comm->slots[r->sequence % HLY_SLOTS];
    assert(slot->request == r && slot->sequence == r->sequence && r->state != HLY_COMPLETE);
    assert(hly_link_empty(&r->flying) && !r->landings);
    r->state = HLY_COMPLETE;
    r->result = result;
    hly_link_remove(&r->link);
    slot->request = NULL;
    slot->complete = true;
    hly_match_forget(r->context, &slot->stash);
    free(slot->fault);
    slot->fault = NULL;
    r->context->counters.operations++;
    r->context->counters.errors += result != HALAY_OK;
    while (comm->oldest != comm->started && comm->slots[comm->oldest % HLY_SLOTS].complete) {
        comm->slots[comm->oldest % HLY_SLOTS].complete = false;
        comm->oldest++;
    }
    r->context->woken = true; /* whoever looked before this must not go to sleep now */
    hly_wake(r->context);
    start_queued(comm);
}

/* What would make this rank's call fail before it is compared with the others'. */
static int prepare(halay_comm_t *comm, const struct hly_call *call, struct hly_plan **plan,
                   char *reason, size_t reason_bytes)
{
    uint32_t planner;
    bool ordered = call->brief.flags & HLY_BRIEF_ORDERED;
    int rc = ordered ? hly_op_select(comm, call, &planner, reason, reason_bytes)
                     : hly_select(comm, call, &planner);
    if (rc && !ordered) {
        snprintf(reason, reason_bytes, "no algorithm serves this call");
    }
    if (rc)
        return rc;
    return hly_plan_admit(comm, planner, call, plan, reason, reason_bytes);
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

int hly_engine_post(halay_comm_t *comm, const struct hly_call *call, int argument_error,
                    const char *argument_text, halay_request_t **request)
{
    char reason[192] = "";
    struct hly_plan *plan = NULL;
    enum hly_cause cause = argument_error == HALAY_ESTATE ? HLY_CAUSE_STATE : HLY_CAUSE_ARGUMENT;
    int rc = argument_error;
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
    r->call = *call;
    if (call->user)
        call->user->users++;
    r->sequence = comm->next_sequence++;
    r->state = HLY_QUEUED;
    r->started_ns = hly_now_ns();
    r->deadline_ns = r->started_ns + comm->deadline_ns;
    if (!rc && ((rc = copy_counts(r, call)) || (rc = bind(r))))
        snprintf(reason, sizeof(reason), "no memory for a call of this size");
    r->call.counts = r->call.displs = NULL;
    if (comm->context->settings.level >= HLY_TRACE) {
        char text[96];
        hly_brief_text(&call->brief, text, sizeof(text));
        hly_log(comm->context, HLY_TRACE, "communicator %016llx, call %u: %s",
                (unsigned long long)comm->id, r->sequence, text);
    }
    if (rc || comm->broken) {
        r->early = calloc(1, sizeof(*r->early));
        if (r->early)
            fail_early(r, rc, rc ? reason : NULL, cause);
    }
    enqueue(comm, r);
    *request = r;
    return HALAY_OK;
}
