/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove_hazard.c - on one rank, two steps that touch the same cell, one of them writing it, must be
 * ordered by the rank's own dependencies: the earlier is done before the later starts.
 *
 * Group steps on one channel are ordered too, and have the same members: a device runs them as they
 * are started, and what others meet has to be the same in all runs.
 *
 * Steps are taken by index. For each cell it keeps the last writer and who has read it since. A
 * reader must follow the last writer; a writer must follow the last writer and those readers. That
 * is enough: anyone earlier was followed by that writer when it came.
 *
 * "Follows" is a search back along dep[] from the later step. It goes breadth first and remembers
 * for one step what it has found, so the usual answer, one to three steps back, costs as much.
 * Where each step follows the one before it by index, it leaps to the first of them. A bound on the
 * steps visited for one rank keeps it linear for every plan that is proved.
 */
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "prove.h"

struct hazard {
    struct hly_prover *v;
    uint32_t rank;
    struct hly_memory memory;
    uint32_t *writer;  /* of a cell: the last, or HLY_NONE */
    uint32_t *readers; /* of a cell: first entry of a list, or HLY_NONE */
    uint32_t *list;    /* entries: reading step, next entry */
    uint32_t entries;
    uint32_t *found; /* of a step: the latest one that is known to follow it */
    uint32_t *chain; /* of a step: the first of those up to it that each follow the one before */
    uint32_t *queue; /* of the search back from one step */
    uint32_t head, tail;
    uint64_t visited;
    uint32_t channel[HALAY_PLAN_CHANNELS_MAX]; /* the last step on it, or HLY_NONE */
};

static void find(struct hazard *z, uint32_t index, uint32_t step)
{
    if (step != HLY_NONE && z->found[step] != index) {
        z->found[step] = index;
        z->queue[z->tail++] = step;
        z->visited++;
    }
}

static int follows(struct hazard *z, uint32_t index, uint32_t earlier)
{
    const halay_step_t *steps = z->v->plans[z->rank]->steps;

    while (z->found[earlier] != index && z->head < z->tail) {
        uint32_t at = z->queue[z->head++];
        if (z->chain[at] <= earlier && earlier < at) {
            find(z, index, earlier);
        }
        find(z, index, z->chain[at]);
        find(z, index, steps[at].dep[0]);
        find(z, index, steps[at].dep[1]);
    }
    return z->found[earlier] == index;
}

static uint32_t chain_of(const struct hazard *z, const halay_step_t *step, uint32_t index)
{
    int follows_last = index > 0 && (step->dep[0] == index - 1 || step->dep[1] == index - 1);
    return follows_last ? z->chain[index - 1] : index;
}

static int check_order(struct hazard *z, uint32_t index, uint32_t earlier,
                       const halay_operand_t *operand, uint32_t i, int write)
{
    static const char *const names[] = {"in block", "out block", "scratch slot"};
    int scratch = operand->buffer == HALAY_BUFFER_SCRATCH;

    if (earlier == HLY_NONE || earlier == index || follows(z, index, earlier)) {
        return 0;
    }
    return hly_refuse(z->v, z->rank, index, "%s %s %u, which step %u touches, without following it",
                      write ? "writes" : "reads", names[operand->buffer],
                      scratch ? operand->slot + i : (operand->first + i) % z->v->blocks, earlier);
}

static int check_read(struct hazard *z, uint32_t index, const halay_operand_t *operand)
{
    for (uint32_t i = 0; i < operand->count; i++) {
        uint32_t cell = hly_cell(&z->memory, operand, i), first = z->readers[cell];
        int result = check_order(z, index, z->writer[cell], operand, i, 0);

        if (result < 0) {
            return result;
        }
        if (first == HLY_NONE || z->list[2 * (size_t)first] != index) {
            z->list[2 * (size_t)z->entries] = index;
            z->list[2 * (size_t)z->entries + 1] = first;
            z->readers[cell] = z->entries++;
        }
    }
    return 0;
}

static int check_write(struct hazard *z, uint32_t index, const halay_operand_t *operand)
{
    for (uint32_t i = 0; i < operand->count; i++) {
        uint32_t cell = hly_cell(&z->memory, operand, i);
        int result = check_order(z, index, z->writer[cell], operand, i, 1);

        for (uint32_t e = z->readers[cell]; result == 0 && e != HLY_NONE;
             e = z->list[2 * (size_t)e + 1]) {
            result = check_order(z, index, z->list[2 * (size_t)e], operand, i, 1);
        }
        if (result < 0) {
            return result;
        }
        z->writer[cell] = index;
        z->readers[cell] = HLY_NONE;
    }
    return 0;
}

static int check_channel(struct hazard *z, uint32_t index)
{
    const halay_plan_t *plan = z->v->plans[z->rank];
    const halay_step_t *step = &plan->steps[index];
    uint32_t last = z->channel[step->edge];

    z->channel[step->edge] = index;
    if (last == HLY_NONE) {
        return 0;
    }
    if (!hly_groups_agree(plan, step, plan, &plan->steps[last], 0)) {
        return hly_refuse(z->v, z->rank, index, "has other members than step %u on this channel",
                          last);
    }
    if (!follows(z, index, last)) {
        return hly_refuse(z->v, z->rank, index,
                          "does not follow step %u, which is before it on the channel", last);
    }
    return 0;
}

static int check_steps(struct hazard *z)
{
    const halay_plan_t *plan = z->v->plans[z->rank];

    for (uint32_t index = 0; index < plan->nsteps; index++) {
        const halay_step_t *step = &plan->steps[index];
        const halay_operand_t *operands = plan->operands + step->operand;
        uint32_t writes = step->kind != HALAY_STEP_SEND && step->kind != HALAY_STEP_JOIN;
        int result = 0;

        z->head = z->tail = 0;
        z->chain[index] = chain_of(z, step, index);
        find(z, index, step->dep[0]);
        find(z, index, step->dep[1]);
        if (step->kind == HALAY_STEP_GROUP) {
            result = check_channel(z, index);
        }
        for (uint32_t i = writes; result == 0 && i < step->noperands; i++) {
            result = check_read(z, index, &operands[i]);
        }
        if (result == 0 && writes) {
            result = check_write(z, index, &operands[0]);
        }
        if (result == 0 && z->visited > HLY_PROVE_SEARCH_MAX) {
            result = hly_refuse(z->v, z->rank, index, "the order of steps is too tangled to prove");
        }
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

/* Blocks that the operands of one plan name: no more are read. */
static uint64_t count_blocks(const halay_plan_t *plan)
{
    uint64_t blocks = 0;

    for (uint32_t index = 0; index < plan->nsteps; index++) {
        for (uint32_t i = 0; i < plan->steps[index].noperands; i++) {
            blocks += plan->operands[plan->steps[index].operand + i].count;
        }
    }
    return blocks;
}

static int check_rank(struct hazard *z, uint32_t *room)
{
    const halay_plan_t *plan = z->v->plans[z->rank];

    z->writer = room;
    z->readers = z->writer + z->memory.cells;
    z->found = z->readers + z->memory.cells;
    z->chain = z->found + plan->nsteps;
    z->queue = z->chain + plan->nsteps;
    z->list = z->queue + plan->nsteps;
    z->entries = 0;
    z->visited = 0;
    memset(z->channel, 0xff, sizeof(z->channel));
    /* All ones is HLY_NONE, for cells and for steps. */
    memset(room, 0xff, (2 * (size_t)z->memory.cells + plan->nsteps) * sizeof(uint32_t));
    return check_steps(z);
}

/* Ranks [from, to). */
static int check_ranks(struct hly_prover *v, uint32_t from, uint32_t to)
{
    struct hazard z = {.v = v};
    uint64_t most = 0;

    for (uint32_t rank = from; rank < to; rank++) {
        const halay_plan_t *plan = v->plans[rank];
        hly_memory_init(&z.memory, v, rank);
        uint64_t words =
            2 * ((uint64_t)z.memory.cells + count_blocks(plan)) + 3 * (uint64_t)plan->nsteps;
        most = words > most ? words : most;
    }
    uint32_t *room = malloc((most + 1) * sizeof(uint32_t));
    if (!room) {
        return HALAY_ENOMEM;
    }
    int result = 0;
    for (z.rank = from; result == 0 && z.rank < to; z.rank++) {
        hly_memory_init(&z.memory, v, z.rank);
        result = check_rank(&z, room);
    }
    free(room);
    return result;
}

int hly_prove_hazard(struct hly_prover *v)
{
    return check_ranks(v, 0, v->nranks);
}

int hly_prove_hazard_of(struct hly_prover *v, uint32_t rank)
{
    return check_ranks(v, rank, rank + 1);
}
