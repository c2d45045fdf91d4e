/* SPDX-License-Identifier: Apache-2.0 */
/* edges.c - finds the step of a plan that a message belongs to: a hash table over the edges. */
#include <string.h>

#include "wire/match.h"

static uint32_t edge_hash(uint32_t kind, uint32_t peer, uint32_t edge)
{
    uint64_t x = ((uint64_t)peer << 34) ^ ((uint64_t)edge << 2) ^ kind;
    x *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 32);
}

uint32_t hly_plan_step(const struct hly_plan *plan, uint32_t kind, uint32_t peer, uint32_t edge)
{
    uint32_t at = edge_hash(kind, peer, edge) & plan->table_mask;
    for (; plan->table[at] != HALAY_STEP_NONE; at = (at + 1) & plan->table_mask) {
        const halay_step_t *s = &plan->steps[plan->table[at]];
        if (s->kind == kind && s->peer == peer && s->edge == edge)
            return plan->table[at];
    }
    return HALAY_STEP_NONE;
}

void hly_edges_fill(struct hly_plan *p)
{
    memset(p->table, 0xff, (p->table_mask + 1) * sizeof(*p->table));
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const halay_step_t *s = &p->steps[i];
        if (s->kind != HALAY_STEP_SEND && s->kind != HALAY_STEP_RECV)
            continue;
        uint32_t at = edge_hash(s->kind, s->peer, s->edge) & p->table_mask;
        while (p->table[at] != HALAY_STEP_NONE)
            at = (at + 1) & p->table_mask;
        p->table[at] = i;
    }
}
