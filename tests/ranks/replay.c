/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include <stdarg.h>
#include <string.h>

#include "watch_log.h"

struct step {
    bool started, done;
    bool held;       /* the device was full: goes on later, and may have pieces there already */
    uint32_t flying; /* pieces that the device holds */
    uint32_t sent, left;
    uint64_t bytes; /* moved or worked on so far */
    uint64_t started_at, done_at;
};

struct replay {
    const struct watch_run *run;
    const halay_plan_t *plan;
    struct step *steps;
    uint32_t ndone, nscaled;
    bool finished;
    int result;
    char *why;
    size_t why_bytes;
};

static uint64_t calls, steps_checked;

uint64_t replay_calls(void)
{
    return calls;
}

uint64_t replay_steps(void)
{
    return steps_checked;
}

static int wrong(struct replay *p, const char *format, ...)
{
    va_list args;
    int n = snprintf(p->why, p->why_bytes, "rank %u, call %u (%s.%s): ", p->plan->params.rank,
                     p->run->sequence,
                     halay_collective_name((halay_collective_t)p->plan->params.collective),
                     halay_planner_get(p->plan->planner)->name);
    va_start(args, format);
    vsnprintf(p->why + n, p->why_bytes - (size_t)n, format, args);
    va_end(args);
    return -1;
}

/* ---------------------------------------------------------------- where an operand has to be */

static size_t element(const struct watch_run *run)
{
    size_t bytes = halay_type_bytes((halay_type_t)run->call.desc.type);
    return bytes ? bytes : 1;
}

/* Elements of the call before this segment, and in it. */
static size_t before(const struct watch_run *run)
{
    return run->segment * run->segment_count;
}

static size_t segment_count(const struct watch_run *run)
{
    bool last = run->segment + 1 == run->nsegments;
    return last ? run->call.desc.count - before(run) : run->segment_count;
}

/* `table`: 0 for IN and SCRATCH, 1 for OUT. */
static size_t block_bytes(const struct watch_run *run, int table, uint32_t block)
{
    const halay_plan_t *plan = run->plan;
    size_t count = segment_count(run);
    if (run->blocks[table].bytes)
        return run->blocks[table].bytes[block];
    switch (plan->params.collective) {
    case HALAY_ALLREDUCE:
    case HALAY_REDUCE:
    case HALAY_SCAN:
    case HALAY_EXSCAN:
    case HALAY_BROADCAST: /* the vector is cut, the first blocks an element longer */
        return (count / plan->blocks + (block < count % plan->blocks)) * element(run);
    default:
        return count * element(run);
    }
}

/* A vector lies together, segment behind segment; of blocks a segment is the same part of each. */
static size_t block_at(const struct watch_run *run, int table, uint32_t block)
{
    const halay_plan_params_t *p = &run->plan->params;
    size_t at = before(run) * element(run);
    if (run->blocks[table].offset)
        return run->blocks[table].offset[block];
    if (p->collective == HALAY_ALLGATHER || p->collective == HALAY_REDUCE_SCATTER ||
        p->collective == HALAY_ALLTOALL || p->collective == HALAY_GATHER ||
        p->collective == HALAY_SCATTER)
        return at + block * run->call.desc.count * element(run);
    for (uint32_t b = 0; b < block; b++)
        at += block_bytes(run, table, b);
    return at;
}

static bool is_own(const halay_plan_t *plan, uint32_t buffer)
{
    uint32_t c = plan->params.collective;
    return buffer == HALAY_BUFFER_IN ? c == HALAY_ALLGATHER || c == HALAY_GATHER
                                     : c == HALAY_REDUCE_SCATTER || c == HALAY_SCATTER;
}

/* The address of byte `offset` of an operand, and how many follow it there; NULL: past its end. */
static const char *place(const struct watch_run *run, const halay_operand_t *o, uint64_t offset,
                         uint64_t *run_on)
{
    const char *const bases[] = {run->in, run->out, run->scratch};
    const char *base = bases[o->buffer];
    bool scratch = o->buffer == HALAY_BUFFER_SCRATCH, own = is_own(run->plan, o->buffer);
    size_t packed = scratch ? o->slot * run->slot_bytes : own ? before(run) * element(run) : 0;
    const char *found = NULL;
    int table = o->buffer == HALAY_BUFFER_OUT;
    *run_on = 0;
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t block = (o->first + i) % run->plan->blocks;
        size_t bytes = block_bytes(run, table, block);
        const char *at = base + (scratch || own ? packed : block_at(run, table, block));
        packed += bytes;
        if (found && found + *run_on != at && bytes)
            return found;
        if (found || offset < bytes) {
            found = found ? found : at + offset;
            *run_on += bytes - offset;
            offset = 0;
        } else {
            offset -= bytes;
        }
    }
    return found;
}

static uint64_t operand_bytes(const struct watch_run *run, const halay_operand_t *o)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < o->count; i++)
        bytes +=
            block_bytes(run, o->buffer == HALAY_BUFFER_OUT, (o->first + i) % run->plan->blocks);
    return bytes;
}

static int in_place_at(struct replay *p, uint32_t step, uint32_t index, const char *at,
                       uint64_t offset, uint64_t bytes)
{
    const halay_operand_t *o = &p->plan->operands[p->plan->steps[step].operand + index];
    uint64_t run_on;
    const char *want = place(p->run, o, offset, &run_on);
    if (!bytes)
        return 0;
    if (!want || at != want || bytes > run_on)
        return wrong(p,
                     "step %u: %llu bytes of operand %u are %td bytes off their place, or too many",
                     step, (unsigned long long)bytes, index, want ? at - want : 0);
    return 0;
}

/* ---------------------------------------------------------------- one event after the other */

static int started(struct replay *p, const struct watch_event *e)
{
    struct step *s = &p->steps[e->step];
    if (s->started)
        return wrong(p, "step %u was started twice", e->step);
    for (int d = 0; d < 2; d++) {
        uint32_t dep = p->plan->steps[e->step].dep[d];
        if (dep != HALAY_STEP_NONE && !p->steps[dep].done)
            return wrong(p, "step %u was started before step %u was done", e->step, dep);
    }
    s->started = true;
    s->started_at = e->clock;
    return 0;
}

/* Bytes of the result that is divided, or was kept staged, when all steps are done. */
static uint64_t scaled_bytes(const struct watch_run *run)
{
    const halay_plan_params_t *p = &run->plan->params;
    bool average = run->call.desc.op == HALAY_AVERAGE && p->nranks > 1;
    if ((!average && run->home == run->out) ||
        (p->collective == HALAY_REDUCE && p->rank != p->root))
        return 0;
    return p->collective == HALAY_REDUCE_SCATTER && run->blocks[1].bytes
               ? block_bytes(run, 1, p->rank)
               : run->call.desc.count * element(run);
}

static int scaled(struct replay *p, const struct watch_event *e)
{
    const struct watch_run *run = p->run;
    bool average = run->call.desc.op == HALAY_AVERAGE;
    if (p->ndone != p->plan->nsteps || p->nscaled++)
        return wrong(p, "a division that is not the end of an average");
    if (e->at[0] != run->home || e->at[1] != run->out || e->nsrc != 1 ||
        e->bytes != scaled_bytes(run) || e->divisor != (average ? p->plan->params.nranks : 0) ||
        e->op != (halay_op_t)run->call.desc.op)
        return wrong(p, "the average was divided elsewhere, or by something else");
    return 0;
}

static int worked(struct replay *p, const struct watch_event *e)
{
    const halay_step_t *step = &p->plan->steps[e->step];
    struct step *s = &p->steps[e->step];
    if (step->kind != HALAY_STEP_REDUCE && step->kind != HALAY_STEP_COPY)
        return wrong(p, "step %u is no work for a device", e->step);
    if (e->nsrc != step->noperands - 1u || e->type != (halay_type_t)p->run->call.desc.type ||
        (step->kind == HALAY_STEP_REDUCE && e->op != (halay_op_t)p->run->call.desc.op))
        return wrong(p, "step %u was given another operation", e->step);
    for (uint32_t i = 0; i < step->noperands; i++)
        if (in_place_at(p, e->step, i, e->at[i], s->bytes, e->bytes))
            return -1;
    s->bytes += e->bytes;
    s->flying += e->result == HALAY_INPROGRESS;
    return 0;
}

static int moved(struct replay *p, const struct watch_event *e)
{
    const halay_step_t *step = &p->plan->steps[e->step];
    struct step *s = &p->steps[e->step];
    bool send = e->what == HLY_SAW_SENT;
    if (step->kind != (send ? HALAY_STEP_SEND : HALAY_STEP_RECV))
        return wrong(p, "step %u moves no bytes that transport", e->step);
    if (send && e->edge != step->edge)
        return wrong(p, "step %u was sent as edge %u, not %u", e->step, e->edge, step->edge);
    for (const struct watch_event *f = p->run->events; f < e; f++)
        if (f->what == e->what && f->step == e->step && f->offset < e->offset + e->bytes &&
            e->offset < f->offset + f->bytes)
            return wrong(p, "step %u: byte %llu was moved twice", e->step,
                         (unsigned long long)e->offset);
    s->bytes += e->bytes;
    s->sent += send;
    return in_place_at(p, e->step, 0, e->at[0], e->offset, e->bytes);
}

static int done(struct replay *p, const struct watch_event *e)
{
    const halay_step_t *step = &p->plan->steps[e->step];
    struct step *s = &p->steps[e->step];
    if (s->done)
        return wrong(p, "step %u was done twice", e->step);
    if (s->flying)
        return wrong(p, "step %u was done while the device had it", e->step);
    if (step->kind == HALAY_STEP_SEND && (!s->sent || s->left != 1))
        return wrong(p, "step %u was done while the transport had its message", e->step);
    if (step->kind != HALAY_STEP_JOIN) {
        uint64_t all = operand_bytes(p->run, &p->plan->operands[step->operand]);
        if (s->bytes != all)
            return wrong(p, "step %u was done after %llu of %llu bytes", e->step,
                         (unsigned long long)s->bytes, (unsigned long long)all);
    }
    s->done = true;
    s->done_at = e->clock;
    p->ndone++;
    return 0;
}

static int finished(struct replay *p, const struct watch_event *e)
{
    p->finished = true;
    p->result = e->result;
    if (e->result != HALAY_OK)
        return 0;
    if (p->ndone != p->plan->nsteps)
        return wrong(p, "it ended after %u of %u steps", p->ndone, p->plan->nsteps);
    bool last = p->run->segment + 1 == p->run->nsegments;
    if (p->nscaled != (last && scaled_bytes(p->run) > 0))
        return wrong(p, "an average was not divided");
    return 0;
}

static int event(struct replay *p, const struct watch_event *e)
{
    bool whole = e->step == HALAY_STEP_NONE;
    if (p->finished)
        return wrong(p, "something happened after its end");
    if (e->what == HLY_SAW_FINISHED)
        return finished(p, e);
    if (whole)
        return e->what == HLY_SAW_WORK ? scaled(p, e) : 0;
    if (e->step >= p->plan->nsteps)
        return wrong(p, "step %u is not in its plan", e->step);
    struct step *s = &p->steps[e->step];
    if (e->what != HLY_SAW_STARTED && !s->started && !(s->held && e->what == HLY_SAW_LEFT))
        return wrong(p, "step %u was not started", e->step);
    if (e->what != HLY_SAW_DONE && s->done)
        return wrong(p, "step %u goes on after it was done", e->step);
    switch (e->what) {
    case HLY_SAW_STARTED:
        return started(p, e);
    case HLY_SAW_BACK:
        s->started = false;
        s->held = true;
        return 0;
    case HLY_SAW_WORK:
        return worked(p, e);
    case HLY_SAW_SENT:
    case HLY_SAW_LANDED:
        return moved(p, e);
    case HLY_SAW_LEFT:
        s->left++;
        s->flying -= s->flying > 0;
        return 0;
    default:
        return done(p, e);
    }
}

/* ---------------------------------------------------------------- one call on one rank */

/* Are the addresses those that the call names, and is there room behind them? */
static int bound_right(struct replay *p)
{
    const struct watch_run *run = p->run;
    const struct hly_call *c = &run->call;
    size_t largest = 0;
    const char *in = c->in;
    bool known = !hly_call_in_place(c) || c->desc.collective <= HALAY_BARRIER;
    if (hly_call_in_place(c))
        in = c->desc.collective == HALAY_ALLGATHER
                 ? (const char *)c->out + block_at(run, 1, run->plan->params.rank) -
                       before(run) * element(run)
                 : c->out;
    if (known && (run->in != in || run->home != c->out))
        return wrong(p, "its buffers are not the call's");
    for (uint32_t b = 0; b < run->plan->blocks; b++)
        largest = block_bytes(run, 0, b) > largest ? block_bytes(run, 0, b) : largest;
    for (uint32_t i = 0; i < run->plan->noperands; i++)
        if (run->laid[i] != operand_bytes(run, &run->plan->operands[i]))
            return wrong(p, "operand %u is taken for %zu bytes", i, run->laid[i]);
    if (run->plan->scratch_slots &&
        (run->slot_bytes < largest ||
         run->slot_bytes * run->plan->scratch_slots > run->scratch_bytes))
        return wrong(p, "its scratch is too small");
    return 0;
}

/* Every call that ended well has all its segments, one after the other. */
static int all_segments(struct replay *p)
{
    const struct watch_run *run = p->run;
    const struct watch_rank *ranks = watch_ranks();
    const size_t count = run->call.desc.count;
    bool last = run->segment + 1 == run->nsegments;
    if (run->segment >= run->nsegments || (!last && before(run) + run->segment_count >= count) ||
        (last && (before(run) > count || count - before(run) > run->segment_count)))
        return wrong(p, "segment %u of %u is not a part of the call", run->segment, run->nsegments);
    if (last || p->result)
        return 0;
    for (uint32_t w = 0; w < RANKS_MAX; w++)
        for (uint32_t i = 0; i < ranks[w].nruns; i++) {
            const struct watch_run *next = ranks[w].runs[i];
            if (next->comm == run->comm && next->sequence == run->sequence &&
                next->plan->params.rank == run->plan->params.rank &&
                next->segment == run->segment + 1)
                return 0;
        }
    return wrong(p, "segment %u of %u is the last that ran", run->segment, run->nsegments);
}

static int one_call(struct replay *p)
{
    if (halay_plan_hash(p->plan) != p->run->certified)
        return wrong(p, "its plan is not the one that was proved");
    if (bound_right(p))
        return -1;
    for (uint32_t i = 0; i < p->run->nevents; i++)
        if (event(p, &p->run->events[i]))
            return -1;
    if (!p->finished)
        return wrong(p, "it never ended");
    if (all_segments(p))
        return -1;
    for (uint32_t i = 0; p->result && i < p->plan->nsteps; i++) {
        const uint32_t *dep = p->plan->steps[i].dep;
        if (!p->steps[i].started && (dep[0] == HALAY_STEP_NONE || p->steps[dep[0]].done) &&
            (dep[1] == HALAY_STEP_NONE || p->steps[dep[1]].done))
            return wrong(p, "step %u could have been started and was not", i);
    }
    calls++;
    steps_checked += p->plan->nsteps;
    return 0;
}

/* ---------------------------------------------------------------- all ranks of one call */

static int edge_right(struct replay *p, struct replay *q, uint32_t send)
{
    const halay_step_t *s = &p->plan->steps[send];
    for (uint32_t i = 0; i < q->plan->nsteps; i++) {
        const halay_step_t *t = &q->plan->steps[i];
        if (t->kind != HALAY_STEP_RECV || t->peer != p->plan->params.rank || t->edge != s->edge)
            continue;
        if (operand_bytes(p->run, &p->plan->operands[s->operand]) !=
            operand_bytes(q->run, &q->plan->operands[t->operand]))
            return wrong(p, "step %u sends another number of bytes than is received", send);
        if (q->steps[i].done &&
            (!p->steps[send].started || q->steps[i].done_at < p->steps[send].started_at))
            return wrong(q, "step %u was done before its message was sent", i);
        return 0;
    }
    return wrong(p, "step %u sends to nobody", send);
}

/* The same segment of a call on all ranks: all[r], which have been looked at one by one. */
static int together(struct replay *all, uint32_t n)
{
    const halay_plan_t *plans[RANKS_MAX] = {NULL};
    halay_proof_t proof = {.size = sizeof(proof)};
    for (uint32_t r = 0; r < n; r++)
        plans[r] = all[r].plan;
    if (halay_plan_prove(plans, n, &proof))
        return wrong(&all[0], "the plans that ran do not fit together: %s", proof.reason);
    for (uint32_t r = 0; r < n; r++)
        if (all[r].run->nsegments != all[0].run->nsegments)
            return wrong(&all[r], "it has another number of segments than rank 0's");
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < plans[r]->nsteps; i++)
            if (plans[r]->steps[i].kind == HALAY_STEP_SEND &&
                edge_right(&all[r], &all[plans[r]->steps[i].peer], i))
                return -1;
    return 0;
}

/* What another rank has of the same call and segment. */
static const struct watch_run *find(const struct watch_run *same, uint32_t rank)
{
    const struct watch_rank *ranks = watch_ranks();
    for (uint32_t w = 0; w < RANKS_MAX; w++)
        for (uint32_t i = 0; i < ranks[w].nruns; i++) {
            const struct watch_run *run = ranks[w].runs[i];
            if (run->comm == same->comm && run->sequence == same->sequence &&
                run->segment == same->segment && run->plan->params.rank == rank)
                return run;
        }
    return NULL;
}

/* No lower rank has started this call. */
static bool is_lowest(const struct watch_run *run)
{
    for (uint32_t r = 0; r < run->plan->params.rank; r++)
        if (find(run, r))
            return false;
    return true;
}

/* A call, seen from the first of its communicator's ranks. */
static int one_collective(const struct watch_run *first, char *why, size_t why_bytes)
{
    struct replay all[RANKS_MAX] = {{0}};
    uint32_t n = first->plan->params.nranks;
    int rc = 0, absent = -1, ended = -1;
    for (uint32_t r = 0; !rc && r < n; r++) {
        const struct watch_run *run = find(first, r);
        all[r] = (struct replay){.run = run, .why = why, .why_bytes = why_bytes};
        if (!run) {
            absent = (int)r;
            continue;
        }
        all[r].plan = run->plan;
        all[r].steps = calloc(run->plan->nsteps + 1, sizeof(struct step));
        CHECK(all[r].steps, "no memory");
        rc = one_call(&all[r]);
        ended = all[r].result == HALAY_OK ? (int)r : ended;
    }
    if (!rc && absent >= 0 && ended >= 0)
        rc = wrong(&all[ended], "it ended though it never started on rank %d", absent);
    else if (!rc && absent < 0)
        rc = together(all, n);
    for (uint32_t r = 0; r < n; r++)
        free(all[r].steps);
    return rc;
}

static void forget(struct watch_rank *rank)
{
    for (uint32_t i = 0; i < rank->nruns; i++) {
        halay_plan_free(rank->runs[i]->plan);
        free(rank->runs[i]->laid);
        free(rank->runs[i]->blocks[0].offset);
        free(rank->runs[i]->blocks[1].offset);
        free(rank->runs[i]->events);
        free(rank->runs[i]);
    }
    free(rank->runs);
    memset(rank, 0, sizeof(*rank));
}

int replay_check(char *why, size_t why_bytes)
{
    struct watch_rank *ranks = watch_ranks();
    int rc = 0;
    for (uint32_t w = 0; w < RANKS_MAX; w++)
        for (uint32_t i = 0; !rc && i < ranks[w].nruns; i++)
            if (is_lowest(ranks[w].runs[i]))
                rc = one_collective(ranks[w].runs[i], why, why_bytes);
    for (uint32_t w = 0; w < RANKS_MAX; w++)
        forget(&ranks[w]);
    return rc;
}
