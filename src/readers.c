/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readers.c - who reads what a step of a plan writes. Found once, in the order of straight.c: in a
 * proved plan steps that touch the same memory are ordered, so that it is the same in any order
 * that the engine takes.
 */
#include "readers.h"

#include "core.h"

static uint32_t apart(uint32_t from, uint32_t to, uint32_t blocks)
{
    return (to + blocks - from) % blocks;
}

static bool overlap(const halay_plan_t *p, const halay_operand_t *a, const halay_operand_t *b)
{
    bool scratch = a->buffer == HALAY_BUFFER_SCRATCH;
    if (!a->count || !b->count || scratch != (b->buffer == HALAY_BUFFER_SCRATCH))
        return false;
    if (scratch)
        return a->slot < b->slot + b->count && b->slot < a->slot + a->count;
    if (a->buffer != b->buffer)
        return p->params.in_place; /* perhaps */
    return apart(a->first, b->first, p->blocks) < a->count ||
           apart(b->first, a->first, p->blocks) < b->count;
}

static bool is_same(const halay_operand_t *a, const halay_operand_t *b)
{
    return a->buffer == b->buffer && a->first == b->first && a->count == b->count &&
           a->slot == b->slot;
}

static bool writes(const halay_step_t *s)
{
    return s->kind != HALAY_STEP_SEND && s->kind != HALAY_STEP_JOIN;
}

/* How many of its operands overlap it, or, if `same`, are it. */
static uint32_t reads(const halay_plan_t *p, const halay_step_t *s, const halay_operand_t *what,
                      bool same)
{
    uint32_t n = 0;
    for (uint32_t i = writes(s); i < s->noperands; i++) {
        const halay_operand_t *o = &p->operands[s->operand + i];
        n += same ? is_same(o, what) : overlap(p, o, what);
    }
    return n;
}

static uint16_t reader(const struct hly_plan *plan, uint32_t at)
{
    const halay_plan_t *p = plan->plan;
    const halay_step_t *s = &p->steps[plan->straight[at]];
    const halay_operand_t *what = &p->operands[s->operand];
    bool lies = s->kind == HALAY_STEP_RECV && what->buffer == HALAY_BUFFER_SCRATCH;
    uint16_t found = HLY_READ_BY_NONE;
    for (uint32_t next = at + 1; next < p->nsteps; next++) {
        const halay_step_t *t = &p->steps[plan->straight[next]];
        bool alone = lies && t->kind == HALAY_STEP_REDUCE && reads(p, t, what, true) == 1;
        if (reads(p, t, what, false))
            found = found == HLY_READ_BY_NONE && alone ? plan->straight[next] : HLY_READ_BY_MORE;
        if (writes(t) && is_same(&p->operands[t->operand], what))
            break;
    }
    return found;
}

void hly_readers_find(struct hly_plan *plan)
{
    for (uint32_t at = 0; plan->straight && at < plan->plan->nsteps; at++) {
        uint32_t step = plan->straight[at];
        bool any = writes(&plan->plan->steps[step]);
        plan->reader[step] = any ? reader(plan, at) : HLY_READ_BY_MORE;
    }
}

uint32_t hly_reader_of(const halay_request_t *r, uint32_t step)
{
    const struct hly_plan *p = r->plan;
    if (!p->straight || !r->works || r->context->device_ops != &hly_device_host)
        return HALAY_STEP_NONE;
    uint16_t found = p->reader[step];
    return found < HLY_READ_BY_MORE && r->works[found].nsrc ? found : HALAY_STEP_NONE;
}

bool hly_reduce_lying(halay_request_t *r, uint32_t step, uint32_t reduction, const void *data,
                      const struct hly_beside *beside)
{
    halay_context_t *ctx = r->context;
    const char *place = hly_operand_segments(r, r->plan->plan->steps[step].operand)->address;
    const halay_work_t *made = &r->works[reduction];
    if (made->bound && !made->streams && !beside) {
        bool left = made->src[0] == place;
        hly_host_combine(made, left ? data : made->src[0], left ? made->src[1] : data);
        return true;
    }
    halay_work_t work = *made;
    for (uint32_t i = 0; i < work.nsrc; i++)
        if (work.src[i] == place)
            work.src[i] = data;
    if (beside)
        return hly_host_beside(ctx->device, &work, beside) == HALAY_OK;
    return ctx->device_ops->launch(ctx->device, &work) == HALAY_OK;
}

bool hly_step_streams(const halay_request_t *r, uint32_t step)
{
    const halay_plan_t *p = r->plan->plan;
    const halay_step_t *s = &p->steps[step];
    return r->large && r->plan->straight && r->plan->reader[step] == HLY_READ_BY_NONE &&
           p->operands[s->operand].buffer == HALAY_BUFFER_OUT;
}
