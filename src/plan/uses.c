/* SPDX-License-Identifier: Apache-2.0 */
/* uses.c - who waits for a step of a plan, who reads what it writes, which message is its own. */
#include "plan/uses.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- dependencies */

void hly_plan_successors(const halay_plan_t *p, uint32_t *successors, uint32_t *first)
{
    for (uint32_t i = 0; i < p->nsteps; i++)
        for (int d = 0; d < 2; d++)
            if (p->steps[i].dep[d] != HALAY_STEP_NONE)
                first[p->steps[i].dep[d] + 2]++;
    for (uint32_t i = 2; i < p->nsteps + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < p->nsteps; i++) /* moves first[j + 1] to its final place */
        for (int d = 0; d < 2; d++)
            if (p->steps[i].dep[d] != HALAY_STEP_NONE)
                successors[first[p->steps[i].dep[d] + 1]++] = i;
}

/* ---------------------------------------------------------------- readers */

/*
 * Finds which steps read what a step writes. In a proved plan steps that touch the same memory are
 * ordered, so the answer is the same in any order that the executor takes.
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

/* ---------------------------------------------------------------- edges */

/* A hash table of the messages. */
static uint32_t edge_hash(uint32_t kind, uint32_t peer, uint32_t edge)
{
    uint64_t x = ((uint64_t)peer << 34) ^ ((uint64_t)edge << 2) ^ kind;
    x *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 32);
}

uint32_t hly_plan_step(const halay_plan_t *plan, const struct hly_plan_uses *uses, uint32_t kind,
                       uint32_t peer, uint32_t edge)
{
    uint32_t at = edge_hash(kind, peer, edge) & uses->edge_mask;
    for (; uses->edges[at] != HALAY_STEP_NONE; at = (at + 1) & uses->edge_mask) {
        const halay_step_t *s = &plan->steps[uses->edges[at]];
        if (s->kind == kind && s->peer == peer && s->edge == edge)
            return uses->edges[at];
    }
    return HALAY_STEP_NONE;
}

static void fill_edges(const halay_plan_t *p, struct hly_plan_uses *uses)
{
    memset(uses->edges, 0xff, (uses->edge_mask + 1) * sizeof(*uses->edges));
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const halay_step_t *s = &p->steps[i];
        if (s->kind != HALAY_STEP_SEND && s->kind != HALAY_STEP_RECV)
            continue;
        uint32_t at = edge_hash(s->kind, s->peer, s->edge) & uses->edge_mask;
        while (uses->edges[at] != HALAY_STEP_NONE)
            at = (at + 1) & uses->edge_mask;
        uses->edges[at] = i;
    }
}

/* ---------------------------------------------------------------- all of it */

int hly_plan_uses(const halay_plan_t *plan, struct hly_plan_uses *uses)
{
    const size_t n = plan->nsteps;
    uint32_t room = 4;
    while (room < 2 * n)
        room *= 2;
    *uses = (struct hly_plan_uses){
        .successors = calloc(2 * n + 1, sizeof(*uses->successors)),
        .successor_first = calloc(n + 2, sizeof(*uses->successor_first)),
        .edges = calloc(room, sizeof(*uses->edges)),
        .edge_mask = room - 1,
        .reader = n <= HLY_FUSED_MAX ? calloc(n + 1, sizeof(*uses->reader)) : NULL};
    if (!uses->successors || !uses->successor_first || !uses->edges)
        return HALAY_ENOMEM;
    fill_edges(plan, uses);
    hly_plan_successors(plan, uses->successors, uses->successor_first);
    for (uint32_t i = 0; uses->reader && i < n; i++)
        uses->reader[i] = writes(&plan->steps[i]) ? reader(plan, i) : HLY_READ_BY_MORE;
    return HALAY_OK;
}

void hly_plan_uses_free(struct hly_plan_uses *uses)
{
    free(uses->successors);
    free(uses->successor_first);
    free(uses->edges);
    free(uses->reader);
}
