/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile.c - lays a proved plan out for the executor: who depends on whom, which message belongs
 * to which step, and who reads what a step writes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "wire/match.h"

/* ---------------------------------------------------------------- dependencies */

static void fill_successors(struct hly_plan *p)
{
    uint32_t *first = p->successor_first;
    memset(first, 0, (p->nsteps + 2) * sizeof(*first));
    for (uint32_t i = 0; i < p->nsteps; i++)
        for (int d = 0; d < 2; d++)
            if (p->steps[i].dep[d] != HALAY_STEP_NONE)
                first[p->steps[i].dep[d] + 2]++;
    for (uint32_t i = 2; i < p->nsteps + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < p->nsteps; i++) /* moves first[j + 1] to its final place */
        for (int d = 0; d < 2; d++)
            if (p->steps[i].dep[d] != HALAY_STEP_NONE)
                p->successors[first[p->steps[i].dep[d] + 1]++] = i;
}

/* ---------------------------------------------------------------- readers */

/*
 * Who reads what a step writes. In a proved plan steps that touch the same memory are ordered, so
 * the answer is the same in any order that the executor takes.
 */
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
        return p->params.in_place; /* IN may be OUT */
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

/* How many operands that the step reads overlap `what`; with `same`, are equal to it. */
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

static uint16_t reader(const halay_plan_t *p, uint32_t at)
{
    const halay_step_t *s = &p->steps[at];
    const halay_operand_t *what = &p->operands[s->operand];
    bool lies = s->kind == HALAY_STEP_RECV && what->buffer == HALAY_BUFFER_SCRATCH;
    uint16_t found = HLY_READ_BY_NONE;
    for (uint32_t next = at + 1; next < p->nsteps; next++) {
        const halay_step_t *t = &p->steps[next];
        bool alone = lies && t->kind == HALAY_STEP_REDUCE && reads(p, t, what, true) == 1 &&
                     (t->dep[0] == at || t->dep[1] == at);
        if (reads(p, t, what, false))
            found = found == HLY_READ_BY_NONE && alone ? (uint16_t)next : HLY_READ_BY_MORE;
        if (writes(t) && is_same(&p->operands[t->operand], what))
            break;
    }
    return found;
}

static void fill_readers(struct hly_plan *p)
{
    for (uint32_t i = 0; i < p->nsteps; i++)
        p->reader[i] = writes(&p->steps[i]) ? reader(p->plan, i) : HLY_READ_BY_MORE;
}

/* ---------------------------------------------------------------- all of it */

int hly_plan_compile(struct hly_plan *p)
{
    const uint32_t n = p->plan->nsteps;
    uint32_t room = 4;
    while (room < 2 * n)
        room *= 2;
    p->nsteps = n;
    p->steps = p->plan->steps;
    p->table_mask = room - 1;
    p->successors = calloc(2 * (size_t)n + 1, sizeof(*p->successors));
    p->successor_first = calloc((size_t)n + 2, sizeof(*p->successor_first));
    p->table = calloc(room, sizeof(*p->table));
    p->reader = n <= HLY_FUSED_MAX ? calloc((size_t)n + 1, sizeof(*p->reader)) : NULL;
    if (!p->successors || !p->successor_first || !p->table)
        return HALAY_ENOMEM;
    fill_successors(p);
    hly_edges_fill(p);
    if (p->reader)
        fill_readers(p);
    return HALAY_OK;
}

void hly_plan_uncompile(struct hly_plan *p)
{
    free(p->successors);
    free(p->successor_first);
    free(p->table);
    free(p->reader);
}
