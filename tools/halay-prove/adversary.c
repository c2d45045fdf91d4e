/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adversary.c - orders that hurt. Each order gives every step a priority once; the highest one that
 * can move moves (Burckhardt et al., A randomized scheduler with probabilistic guarantees of
 * finding bugs, ASPLOS 2010). What is starved has the lowest priorities. To starve all steps that
 * touch one cell brings the two lowest of them on their way together, if anything can.
 */
#include "order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { STARVED = 1u << 31 };

struct hly_adversary {
    const hly_program_t *program;
    uint64_t seed;
    uint32_t *touched; /* steps by cell: from[cell] .. from[cell + 1] */
    uint32_t *from;
    uint32_t *cells; /* those with two steps or more, one of them writing */
    uint32_t ncells;
    uint32_t *priority;
};

uint64_t hly_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t hly_random_below(uint64_t *state, uint32_t bound)
{
    assert(bound > 0);
    return (uint32_t)((hly_random(state) >> 32) * bound >> 32);
}

/* Lists the steps of each cell, a step once for each operand that has the cell. */
static void list_touches(hly_adversary_t *adversary)
{
    const hly_program_t *program = adversary->program;
    uint8_t *written = (uint8_t *)(void *)adversary->priority; /* borrowed for now, by cell */
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t g = 0; g < program->nsteps; g++) {
            const hly_pstep_t *step = &program->steps[g];
            uint32_t first = step->target != HLY_NO_RUN ? step->target : step->source;
            for (uint32_t r = first; r < step->source + step->nsources; r++) {
                const hly_run_t *run = &program->runs[r];
                for (uint32_t i = 0; i < run->count; i++) {
                    uint32_t cell = program->cells[run->cell + i];
                    written[cell] |= r == step->target;
                    if (fill)
                        adversary->touched[adversary->from[cell]] = g;
                    adversary->from[cell + !fill]++;
                }
            }
        }
        for (uint32_t cell = 0; !fill && cell < program->ncells; cell++)
            adversary->from[cell + 1] += adversary->from[cell];
    }
    memmove(adversary->from + 1, adversary->from, program->ncells * sizeof *adversary->from);
    adversary->from[0] = 0;
    for (uint32_t cell = 0; cell < program->ncells; cell++)
        if (written[cell] && adversary->from[cell + 1] - adversary->from[cell] >= 2)
            adversary->cells[adversary->ncells++] = cell;
}

int hly_adversary_create(const hly_program_t *program, uint64_t seed, hly_adversary_t **adversary)
{
    hly_adversary_t *made = calloc(1, sizeof *made);
    if (made == NULL)
        return HALAY_ENOMEM;
    uint32_t touches = program->nreads + program->nwrites;
    uint32_t larger = program->nsteps > program->ncells ? program->nsteps : program->ncells;
    made->program = program;
    made->seed = seed;
    made->touched = calloc((size_t)touches + 1, sizeof *made->touched);
    made->from = calloc((size_t)program->ncells + 2, sizeof *made->from);
    made->cells = calloc((size_t)program->ncells + 1, sizeof *made->cells);
    made->priority = calloc((size_t)larger + 1, sizeof *made->priority);
    if (made->touched == NULL || made->from == NULL || made->cells == NULL ||
        made->priority == NULL) {
        hly_adversary_free(made);
        return HALAY_ENOMEM;
    }
    list_touches(made);
    *adversary = made;
    return 0;
}

void hly_adversary_free(hly_adversary_t *adversary)
{
    if (adversary == NULL)
        return;
    free(adversary->touched);
    free(adversary->from);
    free(adversary->cells);
    free(adversary->priority);
    free(adversary);
}

/* ------------------------------------------------------------------ one order */

enum { STYLE_PRIORITY, STYLE_FIRST_IN, STYLE_LAST_IN, STYLE_ANY };

/* Bit 31 set: starved; lower is earlier. */
static void draw_priorities(hly_adversary_t *adversary, uint64_t *chance)
{
    for (uint32_t g = 0; g < adversary->program->nsteps; g++)
        adversary->priority[g] = (uint32_t)hly_random(chance) & ~(uint32_t)STARVED;
}

/* The rank that is starved in this order, and how the others are picked. */
static uint32_t plan_order(hly_adversary_t *adversary, uint32_t order, uint64_t *chance)
{
    const hly_program_t *program = adversary->program;
    uint32_t nranks = program->params.nranks;
    draw_priorities(adversary, chance);
    uint32_t style = order < nranks ? STYLE_PRIORITY : hly_random_below(chance, 4);
    uint32_t rank = order < nranks ? order : hly_random_below(chance, nranks);
    if (order >= nranks && order % 2 == 0 && adversary->ncells > 0) {
        uint32_t cell = adversary->cells[order / 2 % adversary->ncells];
        for (uint32_t i = adversary->from[cell]; i < adversary->from[cell + 1]; i++)
            adversary->priority[adversary->touched[i]] |= STARVED;
    } else if (order < nranks || order % 4 == 1) {
        for (uint32_t g = 0; g < program->nsteps; g++)
            if (program->steps[g].rank == rank)
                adversary->priority[g] |= STARVED;
    }
    return style;
}

/* The latest one's, where several end together. */
static uint32_t priority_of(const hly_adversary_t *adversary, const hly_machine_t *machine,
                            const hly_event_t *event)
{
    uint32_t priority = adversary->priority[event->step];
    uint32_t meets[HLY_ORACLE_RANKS_MAX];
    if (adversary->program->steps[event->step].kind == HALAY_STEP_GROUP &&
        hly_machine_meets(machine, event->step, meets)) {
        for (uint32_t m = 0; m < adversary->program->steps[event->step].nmembers; m++) {
            uint32_t other = adversary->priority[meets[m]];
            priority = priority > other ? priority : other;
        }
    }
    if (event->send != HLY_NO_SEND && !machine->eager) {
        uint32_t other = adversary->priority[event->send];
        return priority > other ? priority : other;
    }
    return priority;
}

/* The best event by priority; by age or by chance among those that are not starved. */
static uint32_t pick(const hly_adversary_t *adversary, const hly_machine_t *machine, uint32_t style,
                     uint64_t *chance)
{
    uint32_t nevents = *machine->nevents;
    uint32_t skip = style == STYLE_ANY ? hly_random_below(chance, nevents) : 0;
    uint32_t best = UINT32_MAX;
    uint32_t chosen = 0;
    if (style != STYLE_PRIORITY && hly_random_below(chance, 8) == 0)
        skip = hly_random_below(chance, nevents);
    for (uint32_t i = 0; i < nevents; i++) {
        uint32_t at = (i + skip) % nevents;
        at = style == STYLE_LAST_IN ? nevents - 1 - at : at;
        uint32_t priority = priority_of(adversary, machine, &machine->events[at]);
        if (style != STYLE_PRIORITY && priority < STARVED)
            return at;
        if (priority < best) {
            best = priority;
            chosen = at;
        }
    }
    return chosen;
}

void hly_adversary_run(hly_adversary_t *adversary, hly_machine_t *machine, uint32_t order,
                       uint32_t eager)
{
    uint64_t chance = adversary->seed ^ (uint64_t)order << 32;
    uint32_t style = plan_order(adversary, order, &chance);
    hly_machine_reset(machine, eager);
    while (machine->verdict == HLY_RIGHT && *machine->nevents > 0)
        hly_machine_move(machine, pick(adversary, machine, style, &chance));
    if (machine->verdict == HLY_RIGHT)
        hly_machine_judge(machine);
}
