/* SPDX-License-Identifier: Apache-2.0 */
#include "watch_log.h"

#include <stdatomic.h>
#include <string.h>

static struct watch_rank ranks[RANKS_MAX];
static atomic_ullong now;
static struct {
    enum hly_seed seed;
    int victim, after;
    atomic_bool made;
    const halay_request_t *request;
    uint32_t step;
} mistake;

struct watch_rank *watch_ranks(void)
{
    return ranks;
}

static struct watch_run *run_of(const halay_request_t *r)
{
    struct watch_rank *rank = &ranks[r->context->info.rank];
    for (uint32_t i = rank->nruns; i > 0; i--)
        if (rank->runs[i - 1]->request == r)
            return rank->runs[i - 1];
    CHECK(0, "a request that was never bound");
}

static struct watch_event *add(const halay_request_t *r, enum hly_saw what, uint32_t step)
{
    struct watch_run *run = run_of(r);
    if (run->nevents == run->room) {
        run->room = run->room ? 2 * run->room : 64;
        run->events = realloc(run->events, run->room * sizeof(run->events[0]));
        CHECK(run->events, "no memory");
    }
    struct watch_event *e = &run->events[run->nevents++];
    memset(e, 0, sizeof(*e));
    e->what = what;
    e->step = step;
    e->clock = atomic_fetch_add(&now, 1);
    return e;
}

static void bound(const halay_request_t *r)
{
    struct watch_rank *rank = &ranks[r->context->info.rank];
    if (rank->nruns == rank->room) {
        rank->room = rank->room ? 2 * rank->room : 64;
        rank->runs = realloc(rank->runs, rank->room * sizeof(struct watch_run *));
        CHECK(rank->runs, "no memory");
    }
    struct watch_run *run = calloc(1, sizeof(*run));
    CHECK(run && !halay_plan_copy(r->plan->plan, &run->plan), "no memory");
    rank->runs[rank->nruns++] = run;
    run->request = r;
    run->comm = r->comm->id;
    run->sequence = r->sequence;
    run->segment = r->segments.number;
    run->nsegments = r->segments.n;
    run->segment_count = r->segments.count;
    run->certified = r->plan->hash;
    run->call = r->call;
    run->in = r->layout.in;
    run->home = r->layout.result;
    run->out = r->layout.out;
    run->scratch = r->layout.scratch;
    run->slot_bytes = r->layout.slot_bytes;
    run->scratch_bytes = r->layout.scratch_bytes;
    run->laid = calloc(run->plan->noperands + 1, sizeof(run->laid[0]));
    CHECK(run->laid, "no memory");
    for (uint32_t i = 0; i < run->plan->noperands; i++)
        run->laid[i] = hly_operand_bytes(r, i);
    size_t n = run->plan->params.nranks;
    for (int i = 0; r->layout.tables && i < 2; i++) {
        run->blocks[i].offset = malloc(2 * n * sizeof(size_t));
        CHECK(run->blocks[i].offset, "no memory");
        run->blocks[i].bytes = run->blocks[i].offset + n;
        memcpy(run->blocks[i].offset, r->layout.block[i].offset, n * sizeof(size_t));
        memcpy(run->blocks[i].bytes, r->layout.block[i].bytes, n * sizeof(size_t));
    }
}

void hly_saw(const halay_request_t *r, enum hly_saw what, uint32_t step)
{
    if (what == HLY_SAW_BOUND) {
        bound(r);
    } else if (r->run.ran || what != HLY_SAW_FINISHED)
        add(r, what, step)->result = r->result;
}

/* Bytes [offset, offset + bytes) of a message, in up to two extents; ext NULL: all of it. */
void hly_saw_bytes(const halay_request_t *r, enum hly_saw what, uint32_t step,
                   const struct hly_extent ext[2], uint64_t offset, uint64_t bytes, uint32_t edge)
{
    if (!ext) {
        ext = hly_operand_extents(r, r->plan->plan->steps[step].operand);
        bytes = ext[0].bytes + ext[1].bytes;
    }
    do {
        bool second = offset >= ext[0].bytes && ext[0].bytes < offset + bytes;
        size_t at = second ? offset - ext[0].bytes : offset;
        size_t n = !second && at + bytes > ext[0].bytes ? ext[0].bytes - at : bytes;
        struct watch_event *e = add(r, what, step);
        e->at[0] = ext[second].address + at;
        e->bytes = n;
        e->offset = offset;
        e->edge = edge;
        offset += n;
        bytes -= n;
    } while (bytes);
}

void hly_saw_work(const halay_request_t *r, uint32_t step, const halay_work_t *work, int result)
{
    if (result < 0) { /* the device is full: what was wrong with this will be made again */
        if (mistake.made && mistake.request == r && mistake.step == step)
            mistake.made = false;
        return;
    }
    struct watch_event *e = add(r, HLY_SAW_WORK, step);
    e->at[0] = work->dst;
    for (uint32_t i = 0; i < work->nsrc; i++)
        e->at[1 + i] = work->src[i];
    e->bytes = work->count * halay_type_bytes(work->type);
    e->nsrc = work->nsrc;
    e->op = work->op;
    e->type = work->type;
    e->divisor = work->divisor;
    e->result = result;
}

/* ---------------------------------------------------------------- mistakes */

void replay_seed(enum hly_seed seed, int victim, int after)
{
    mistake.seed = seed;
    mistake.victim = victim;
    mistake.after = after;
    mistake.made = false;
}

bool replay_seeded(void)
{
    return mistake.made;
}

/* Would this mistake, made here, change anything? */
static bool matters(enum hly_seed seed, const halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    if (!r->call.desc.count)
        return false;
    switch (seed) {
    case HLY_SEED_SEND_EARLY: /* nobody writes what is only read */
        return r->plan->plan->params.in_place ||
               r->plan->plan->operands[s->operand].buffer != HALAY_BUFFER_IN;
    case HLY_SEED_WORK_TWICE:
        return hly_operand_bytes(r, s->operand) > 0;
    case HLY_SEED_WRONG_INPUT:
        return r->layout.in != r->layout.out && r->call.desc.collective != HALAY_BROADCAST;
    default:
        return true;
    }
}

bool hly_seeded(enum hly_seed seed, const halay_request_t *r, uint32_t step)
{
    if (seed != mistake.seed || r->context->info.rank != mistake.victim || mistake.made ||
        !matters(seed, r, step) || mistake.after-- > 0)
        return false;
    mistake.made = true;
    mistake.request = r;
    mistake.step = step;
    return true;
}

/* Once: the message's real end, which must not end the step again. */
bool hly_was_early(const halay_request_t *r, uint32_t step)
{
    if (mistake.seed != HLY_SEED_SEND_EARLY || !mistake.made || mistake.request != r ||
        mistake.step != step)
        return false;
    mistake.request = NULL;
    return true;
}
