/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile.c - lays a proved plan out for the executor: a linear order of its steps, who depends on
 * whom, which message belongs to which step, and who reads what a step writes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "wire/match.h"

/* ---------------------------------------------------------------- dependencies */

static void fill_successors(struct hly_plan *p)
{
    const struct hly_plan *plan = p;
    uint32_t *first = p->successor_first;
    memset(first, 0, (plan->nsteps + 2) * sizeof(*first));
    for (uint32_t i = 0; i < plan->nsteps; i++)
        for (int d = 0; d < 2; d++)
            if (plan->steps[i].dep[d] != HALAY_STEP_NONE)
                first[plan->steps[i].dep[d] + 2]++;
    for (uint32_t i = 2; i < plan->nsteps + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < plan->nsteps; i++) /* moves first[j + 1] to its final place */
        for (int d = 0; d < 2; d++)
            if (plan->steps[i].dep[d] != HALAY_STEP_NONE)
                p->successors[first[plan->steps[i].dep[d] + 1]++] = i;
}

/* ---------------------------------------------------------------- the order */

enum { SENDS, WORKS, RECVS, URGENCIES }; /* in this order */

static int urgency(const halay_step_t *s)
{
    return s->kind == HALAY_STEP_SEND ? SENDS : s->kind == HALAY_STEP_RECV ? RECVS : WORKS;
}

/* Steps of one urgency whose predecessors are placed already, in the order in which that came. */
struct queue {
    uint32_t first, end;
    uint32_t *step;
};

/*
 * The order in which steps are started. Sends go first, so that all else is done while they travel.
 * Receives go last, so that no message is waited for while there is something to do.
 */
static void fill_order(const struct hly_plan *p, uint32_t *order, uint32_t *memory, uint8_t *missing)
{
    const uint32_t n = p->nsteps;
    struct queue queues[URGENCIES];
    uint32_t at = 0;
    for (int u = 0; u < URGENCIES; u++)
        queues[u] = (struct queue){0, 0, memory + (size_t)u * n};
    for (uint32_t i = 0; i < n; i++) {
        const halay_step_t *s = &p->steps[i];
        struct queue *q = &queues[urgency(s)];
        missing[i] = (uint8_t)((s->dep[0] != HALAY_STEP_NONE) + (s->dep[1] != HALAY_STEP_NONE));
        if (!missing[i])
            q->step[q->end++] = i;
    }
    while (at < n) {
        int u = 0;
        while (queues[u].first == queues[u].end)
            u++; /* a proved plan has no cycle */
        const uint32_t step = queues[u].step[queues[u].first++];
        order[at++] = step;
        for (uint32_t i = p->successor_first[step]; i < p->successor_first[step + 1]; i++) {
            const uint32_t next = p->successors[i];
            struct queue *q = &queues[urgency(&p->steps[next])];
            if (--missing[next] == 0)
                q->step[q->end++] = next;
        }
    }
}

/* Sorts the plan's steps, which gives them new numbers. */
static void sort(struct hly_plan *p, const uint32_t *order, uint32_t *number, halay_step_t *sorted)
{
    const uint32_t n = p->nsteps;
    for (uint32_t at = 0; at < n; at++) {
        sorted[at] = p->steps[order[at]];
        number[order[at]] = at;
    }
    for (uint32_t at = 0; at < n; at++)
        for (int d = 0; d < 2; d++)
            if (sorted[at].dep[d] != HALAY_STEP_NONE)
                sorted[at].dep[d] = number[sorted[at].dep[d]];
    memcpy(p->plan->steps, sorted, n * sizeof(*sorted));
}

static int put_in_order(struct hly_plan *p)
{
    const size_t n = p->nsteps;
    uint32_t *memory = calloc((URGENCIES + 1) * n + 1, sizeof(*memory));
    uint8_t *missing = calloc(n + 1, 1);
    halay_step_t *sorted = calloc(n + 1, sizeof(*sorted));
    const int rc = memory && missing && sorted ? HALAY_OK : HALAY_ENOMEM;
    if (!rc) {
        fill_order(p, memory, memory + n, missing);
        sort(p, memory, memory + n, sorted);
        fill_successors(p);
    }
    free(sorted);
    free(missing);
    free(memory);
    return rc;
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
        bool alone = lies && t->kind == HALAY_STEP_REDUCE && reads(p, t, what, true) == 1;
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
    const int rc = put_in_order(p);
    if (rc)
        return rc;
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
