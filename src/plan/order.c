/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - the order of a plan's steps: that in which the executor starts them.
 *
 * Sends go first, so that all else is done while they travel. Receives go last, so that nobody
 * waits for a message while there is something to do. Among steps of one kind: first come, first
 * placed.
 */
#include "builder.h"
#include "uses.h"

#include <stdlib.h>
#include <string.h>

enum { SENDS, WORKS, RECVS, URGENCIES };

static int urgency(const halay_step_t *s)
{
    return s->kind == HALAY_STEP_SEND ? SENDS : s->kind == HALAY_STEP_RECV ? RECVS : WORKS;
}

/* Steps of one urgency whose predecessors are placed, in the order in which that came. */
struct queue {
    uint32_t first, end;
    uint32_t *step;
};

struct order {
    struct queue queue[URGENCIES];
    uint32_t *successors, *first; /* plan/uses.h */
    uint32_t *number;             /* the new one */
    uint8_t *missing;             /* predecessors that are not placed */
    halay_step_t *sorted;
};

static void place(struct order *o, const halay_step_t *steps, uint32_t step)
{
    struct queue *q = &o->queue[urgency(&steps[step])];
    q->step[q->end++] = step;
}

static void begin(struct order *o, const halay_plan_t *plan)
{
    hly_plan_successors(plan, o->successors, o->first);
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        for (int d = 0; d < 2; d++)
            o->missing[i] += plan->steps[i].dep[d] != HALAY_STEP_NONE;
        if (!o->missing[i])
            place(o, plan->steps, i);
    }
}

static void sort(struct order *o, halay_plan_t *plan)
{
    begin(o, plan);
    for (uint32_t at = 0; at < plan->nsteps; at++) {
        int u = 0;
        while (o->queue[u].first == o->queue[u].end)
            u++; /* a predecessor has a lower number, so there is a next step */
        const uint32_t step = o->queue[u].step[o->queue[u].first++];
        o->number[step] = at;
        o->sorted[at] = plan->steps[step];
        for (int d = 0; d < 2; d++)
            if (o->sorted[at].dep[d] != HALAY_STEP_NONE)
                o->sorted[at].dep[d] = o->number[o->sorted[at].dep[d]];
        for (uint32_t i = o->first[step]; i < o->first[step + 1]; i++)
            if (--o->missing[o->successors[i]] == 0)
                place(o, plan->steps, o->successors[i]);
    }
    memcpy(plan->steps, o->sorted, plan->nsteps * sizeof(*plan->steps));
}

int hly_plan_sort(halay_plan_t *plan)
{
    const size_t n = plan->nsteps;
    uint32_t *memory = calloc((URGENCIES + 4) * n + 2, sizeof(*memory));
    struct order o = {.number = memory + URGENCIES * n,
                      .successors = memory + (URGENCIES + 1) * n,
                      .first = memory + (URGENCIES + 3) * n,
                      .missing = calloc(n + 1, 1),
                      .sorted = calloc(n + 1, sizeof(*o.sorted))};
    for (size_t u = 0; u < URGENCIES; u++)
        o.queue[u].step = memory + u * n;
    const int rc = memory && o.missing && o.sorted ? HALAY_OK : HALAY_ENOMEM;
    if (!rc)
        sort(&o, plan);
    free(o.sorted);
    free(o.missing);
    free(memory);
    return rc;
}
