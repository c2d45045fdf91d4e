/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.c - every order of a small program, many of a large one, and the verdict. */
#include "oracle.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "order.h"

enum { SEARCH_RANKS_MAX = 4, SEARCH_STEPS_MAX = 40 };

const char *hly_verdict_name(hly_verdict_t verdict)
{
    static const char *const names[] = {"right", "wrong", "stall", "fault"};
    assert((unsigned)verdict < sizeof names / sizeof names[0]);
    return names[verdict];
}

/* 1: the run was bad, and the outcome says so. */
static int take_verdict(const hly_machine_t *machine, hly_outcome_t *outcome)
{
    if (machine->verdict == HLY_RIGHT)
        return 0;
    outcome->verdict = machine->verdict;
    outcome->buffering = machine->eager ? HLY_EAGER_BUFFERING : HLY_ZERO_BUFFERING;
    memcpy(outcome->why, machine->why, sizeof outcome->why);
    return 1;
}

/* 1: all orders were tried, or a bad one found. 0: too many. */
static int search_all(hly_machine_t *machine, const hly_oracle_limits_t *limits,
                      hly_outcome_t *outcome)
{
    for (uint32_t eager = 0; eager < 2; eager++) {
        uint64_t states = 0;
        int complete = 0;
        if (!(limits->buffering & (eager ? HLY_EAGER_BUFFERING : HLY_ZERO_BUFFERING)))
            continue;
        int rc = hly_search(machine, eager, limits->states, &states, &complete);
        if (rc != 0)
            return rc;
        outcome->runs += states;
        if (take_verdict(machine, outcome))
            return 1;
        if (!complete)
            return 0;
    }
    outcome->exhaustive = 1;
    return 1;
}

static int try_orders(hly_machine_t *machine, const hly_oracle_limits_t *limits,
                      hly_outcome_t *outcome)
{
    hly_adversary_t *adversary = NULL;
    int rc = hly_adversary_create(machine->program, limits->seed, &adversary);
    if (rc != 0)
        return rc;
    for (uint32_t order = 0; order < limits->orders; order++) {
        for (uint32_t eager = 0; eager < 2; eager++) {
            if (!(limits->buffering & (eager ? HLY_EAGER_BUFFERING : HLY_ZERO_BUFFERING)))
                continue;
            hly_adversary_run(adversary, machine, order, eager);
            outcome->runs++;
            if (take_verdict(machine, outcome)) {
                hly_adversary_free(adversary);
                return 0;
            }
        }
    }
    hly_adversary_free(adversary);
    return 0;
}

static int run_program(const hly_program_t *program, const hly_oracle_limits_t *limits,
                       hly_outcome_t *outcome)
{
    hly_machine_t machine;
    int rc = hly_machine_init(&machine, program);
    if (rc != 0)
        return rc;
    int finished = 0;
    if (program->params.nranks <= SEARCH_RANKS_MAX && program->nsteps <= SEARCH_STEPS_MAX)
        finished = search_all(&machine, limits, outcome);
    rc = finished < 0 ? finished : 0;
    if (finished == 0)
        rc = try_orders(&machine, limits, outcome);
    if (rc == 0 && machine.terms.full)
        rc = HALAY_ENOMEM;
    hly_machine_finish(&machine);
    return rc;
}

int hly_oracle_run(const halay_plan_t *const plans[], uint32_t nranks,
                   const hly_oracle_limits_t *limits, hly_outcome_t *outcome)
{
    assert(nranks >= 1 && nranks <= HLY_ORACLE_RANKS_MAX && limits->buffering != 0);
    memset(outcome, 0, sizeof *outcome);
    outcome->buffering = limits->buffering;
    hly_program_t program;
    int rc = hly_program_init(&program, plans, nranks);
    if (rc == 0 && program.fault[0] != '\0') {
        outcome->verdict = HLY_FAULT;
        memcpy(outcome->why, program.fault, sizeof outcome->why);
    } else if (rc == 0) {
        rc = run_program(&program, limits, outcome);
    }
    hly_program_finish(&program);
    return rc;
}
