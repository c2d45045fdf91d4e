/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - the order of a plan's steps: that in which the executor starts them.
 *
 * Sends go first, so that all else is done while they travel. Receives go last, so that no message
 * is waited for while there is something to do. Among steps of one kind: first come, first placed.
 */
#include "builder.h"

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
    /* Who waits for step s: first_use[s], then next_use[]. dep[d] of step i is use 2 * i + d, and
     * each list holds these numbers + 1; 0: there are no more. */
    uint32_t *first_use, *next_use;
    uint32_t *number; /* the new one */
    uint8_t *missing; /* predecessors that are not placed */
    halay_step_t *sorted;
};

static void place(struct order *o, const halay_step_t *steps, uint32_t step)
{
    struct queue *q = &o->queue[urgency(&steps[step])];
    q->step[q->end++] = step;
}

static void begin(struct order *o, const halay_plan_t *plan)
{
    for (uint32_t i = plan->nsteps; i-- > 0;) /* the list of each begins with the lowest step */
        for (uint32_t d = 0; d < 2; d++) {
            const uint32_t dep = plan->steps[i].dep[d];
            if (dep == HALAY_STEP_NONE)
                continue;
            o->missing[i]++;
            o->next_use[2 * i + d] = o->first_use[dep];
            o->first_use[dep] = 2 * i + d + 1;
        }
    for (uint32_t i = 0; i < plan->nsteps; i++)
        if (!o->missing[i])
            place(o, plan->steps, i);
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
        for (uint32_t use = o->first_use[step]; use; use = o->next_use[use - 1])
            if (--o->missing[(use - 1) / 2] == 0)
                place(o, plan->steps, (use - 1) / 2);
    }
    memcpy(plan->steps, o->sorted, plan->nsteps * sizeof(*plan->steps));
}

int hly_plan_sort(halay_plan_t *plan)
{
    const size_t n = plan->nsteps;
    uint32_t *memory = calloc((URGENCIES + 4) * n + 1, sizeof(*memory));
    struct order o = {.first_use = memory + URGENCIES * n,
                      .next_use = memory + (URGENCIES + 1) * n,
                      .number = memory + (URGENCIES + 3) * n,
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
