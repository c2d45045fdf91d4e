/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - the plans of one call from where its ranks stood. They are made anew, by the planner that
 * the records name, and are those that ran if their hashes say so. A rank that is in a later
 * segment than the one that is run has done all of it. The machine of the proofs is led from the
 * beginning to the recorded steps, so it knows what stands in each block, and on from there.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- what is known */

static const halay_record_wait_t *wait_in(const hly_flight_t *f, const hly_question_t *q)
{
    const halay_record_wait_t *found = NULL;
    for (uint32_t i = 0; i < f->nwaits; i++)
        if (f->waits[i].comm == q->comm && f->waits[i].sequence == q->sequence)
            found = &f->waits[i];
    return found;
}

static const halay_record_call_t *call_in(const hly_flight_t *f, const hly_question_t *q)
{
    for (uint32_t i = f->ncalls; i--;)
        if (f->calls[i].comm == q->comm && f->calls[i].sequence == q->sequence)
            return &f->calls[i];
    return NULL;
}

/* The rank of a flight in the communicator; -1: it is none of it. */
static int rank_in(const hly_flight_t *f, const hly_question_t *q)
{
    const halay_record_comm_t *c = hly_flight_comm(f, q->comm), *m = q->members;
    if (c)
        return c->nranks == m->nranks ? c->rank : -1;
    const int64_t at = (int64_t)f->head.rank - m->first;
    if (!m->stride || at % m->stride || at / m->stride < 0 || at / m->stride >= m->nranks)
        return -1;
    return (int)(at / m->stride);
}

/* Plans of some planners need to know which ranks share a node. */
static int shape_of(const hly_replay_t *replay, const hly_flights_t *flights,
                    const hly_question_t *q, halay_shape_t **shape)
{
    uint32_t *nodes = calloc(replay->nranks, sizeof *nodes), known = 0;
    for (uint32_t i = 0; nodes && i < flights->n; i++) {
        const int rank = rank_in(flights->list[i], q);
        if (rank < 0 || flights->list[i]->head.node < 0)
            continue;
        nodes[rank] = (uint32_t)flights->list[i]->head.node;
        known++;
    }
    const int rc = nodes && known == replay->nranks ? halay_shape_make(nodes, replay->nranks, shape)
                                                    : halay_shape_make(NULL, replay->nranks, shape);
    free(nodes);
    return rc;
}

/* Any of the ranks says it for all. */
static const halay_record_wait_t *any_wait(const hly_flights_t *flights, const hly_question_t *q,
                                           const halay_record_call_t **call)
{
    for (uint32_t i = 0; i < flights->n; i++) {
        const halay_record_wait_t *w = wait_in(flights->list[i], q);
        *call = w ? call_in(flights->list[i], q) : NULL;
        if (*call && w->planner < halay_planner_count() && w->root < (uint32_t)q->members->nranks &&
            halay_planner_get(w->planner)->collective == ((*call)->what & 31))
            return w;
    }
    return NULL;
}

/* ---------------------------------------------------------------- plans and steps */

static int refuse(hly_replay_t *replay, const char *why)
{
    snprintf(replay->why, sizeof replay->why, "%s", why);
    return -1;
}

static int make_plans(hly_replay_t *replay, const hly_flights_t *flights, const hly_question_t *q,
                      const halay_record_wait_t *w, const halay_record_call_t *call)
{
    halay_shape_t *shape = NULL;
    int rc = shape_of(replay, flights, q, &shape);
    halay_plan_params_t params = {.collective = call->what & 31,
                                  .nranks = replay->nranks,
                                  .root = w->root,
                                  .in_place = w->in_place,
                                  .shape = shape};
    for (uint32_t r = 0; !rc && r < replay->nranks; r++) {
        params.rank = r;
        rc = halay_plan_make(w->planner, &params, &replay->plans[r]);
        if (!rc && !(replay->done[r] = calloc(replay->plans[r]->nsteps + 1, 1)))
            rc = HALAY_ENOMEM;
    }
    halay_shape_free(shape);
    return rc ? refuse(replay, "its plans cannot be made") : 0;
}

/* What a rank has done of the segment. */
static int take_steps(hly_replay_t *replay, const hly_flight_t *f, const hly_question_t *q, int r)
{
    const halay_record_wait_t *w = wait_in(f, q);
    const halay_record_call_t *call = call_in(f, q);
    const halay_plan_t *plan = replay->plans[r];
    if (w && (w->plan != halay_plan_hash(plan) || w->nsteps != plan->nsteps))
        return refuse(replay, "another build of Halay made them: run this one's halay-replay");
    const int all = call && call->state == HALAY_RECORD_COMPLETE;
    if (all || (w && w->segment > replay->segment))
        memset(replay->done[r], 1, plan->nsteps);
    else if (w && w->segment == replay->segment && plan->nsteps > HALAY_RECORD_STEPS)
        return refuse(replay, "it has more steps than a record has room for");
    else if (w && w->segment == replay->segment)
        for (uint32_t i = 0; i < plan->nsteps; i++)
            replay->done[r][i] = (w->steps[i / 4] >> i % 4 * 2 & 3) == HALAY_RECORD_DONE;
    return 0;
}

/* The n-th GROUP of a channel meets the n-th of each member: that of `rank`. */
static uint32_t met_by(const hly_program_t *program, const uint32_t *first, uint32_t g,
                       uint32_t rank)
{
    const hly_pstep_t *step = &program->steps[g];
    uint32_t number = 0;
    for (uint32_t i = first[step->rank]; i < g; i++)
        number += program->steps[i].kind == HALAY_STEP_GROUP &&
                  program->steps[i].channel == step->channel;
    for (uint32_t i = first[rank]; i < first[rank + 1]; i++)
        if (program->steps[i].kind == HALAY_STEP_GROUP &&
            program->steps[i].channel == step->channel && number-- == 0)
            return i;
    return g; /* no such: the machine says so */
}

static void push(hly_replay_t *replay, uint32_t g, uint32_t *list, uint32_t *n)
{
    if (!replay->past[g]) {
        replay->past[g] = 1;
        list[(*n)++] = g;
    }
}

/*
 * What has been done: the steps that are recorded as done, and those that had to be before. The
 * records are of different moments, so of a message only the receiver's may know.
 */
static int find_past(hly_replay_t *replay)
{
    const hly_program_t *program = &replay->program;
    uint32_t *list = calloc(program->nsteps + 1, sizeof *list), n = 0;
    uint32_t *first = calloc(replay->nranks + 1, sizeof *first);
    replay->past = calloc(program->nsteps + 1, 1);
    const int rc = list && first && replay->past ? 0 : -1;
    for (uint32_t r = 0; !rc && r < replay->nranks; r++)
        first[r + 1] = first[r] + replay->plans[r]->nsteps;
    for (uint32_t g = 0; !rc && g < program->nsteps; g++)
        if (replay->done[program->steps[g].rank][program->steps[g].index])
            push(replay, g, list, &n);
    while (!rc && n) {
        const uint32_t g = list[--n];
        const hly_pstep_t *step = &program->steps[g];
        const hly_channel_t *channel = &program->channels[step->channel];
        const halay_step_t *plan = &replay->plans[step->rank]->steps[step->index];
        for (uint32_t d = 0; d < 2; d++)
            if (plan->dep[d] != HALAY_STEP_NONE)
                push(replay, first[step->rank] + plan->dep[d], list, &n);
        for (uint32_t i = 0; step->kind == HALAY_STEP_RECV && i < channel->nsends; i++)
            push(replay, program->ends[channel->sends + i], list, &n);
        for (uint32_t m = 0; step->kind == HALAY_STEP_GROUP && m < step->nmembers; m++)
            push(replay, met_by(program, first, g, step->members[m].rank), list, &n);
    }
    free(list);
    free(first);
    return rc;
}

static int make_machine(hly_replay_t *replay)
{
    const halay_plan_t *const *plans = (const halay_plan_t *const *)replay->plans;
    const int rc = hly_program_init(&replay->program, plans, replay->nranks);
    if (!rc && replay->program.fault[0])
        return refuse(replay, replay->program.fault);
    return rc || find_past(replay) || hly_machine_init(&replay->machine, &replay->program)
               ? refuse(replay, "no memory")
               : 0;
}

int hly_replay_init(hly_replay_t *replay, const hly_flights_t *flights, const hly_question_t *q)
{
    const halay_record_call_t *call = NULL;
    *replay = (hly_replay_t){0};
    if (!q->members)
        return refuse(replay, "which ranks its communicator has is not recorded");
    if (q->members->nranks > HLY_PROGRAM_RANKS_MAX)
        return refuse(replay, "the simulator takes 64 ranks at most");
    const halay_record_wait_t *w = any_wait(flights, q, &call);
    if (!w)
        return refuse(replay, "no rank has waited in it for long enough to be recorded");
    const uint32_t n = replay->nranks = (uint32_t)q->members->nranks;
    replay->plans = calloc(n, sizeof(halay_plan_t *));
    replay->done = calloc(n, sizeof(uint8_t *));
    replay->frozen = calloc(n, 1);
    replay->made = calloc(n, 1);
    replay->world = calloc(n, sizeof(int));
    if (!replay->plans || !replay->done || !replay->frozen || !replay->made || !replay->world)
        return refuse(replay, "no memory");
    replay->segment = w->segment;
    for (uint32_t r = 0; r < n; r++)
        replay->world[r] =
            q->members->stride ? q->members->first + (int)r * q->members->stride : -1;
    for (uint32_t i = 0; i < flights->n; i++) { /* the first segment that some rank is in */
        const halay_record_wait_t *other = wait_in(flights->list[i], q);
        if (other && other->segment < replay->segment)
            replay->segment = other->segment;
    }
    if (make_plans(replay, flights, q, w, call))
        return -1;
    for (uint32_t i = 0; i < flights->n; i++) {
        const int r = rank_in(flights->list[i], q);
        if (r < 0)
            continue;
        replay->world[r] = flights->list[i]->head.rank;
        replay->made[r] = (uint8_t)hly_flight_made(flights->list[i], q->comm, q->sequence);
        if (take_steps(replay, flights->list[i], q, r))
            return -1;
    }
    return make_machine(replay);
}

void hly_replay_finish(hly_replay_t *replay)
{
    for (uint32_t r = 0; r < replay->nranks; r++) {
        if (replay->plans)
            halay_plan_free(replay->plans[r]);
        if (replay->done)
            free(replay->done[r]);
    }
    hly_machine_finish(&replay->machine);
    hly_program_finish(&replay->program);
    free(replay->past);
    free(replay->plans);
    free(replay->done);
    free(replay->frozen);
    free(replay->made);
    free(replay->world);
}

/* ---------------------------------------------------------------- forward */

static int may_move(const hly_replay_t *replay, const hly_event_t *event, int forward)
{
    const hly_pstep_t *step = &replay->program.steps[event->step];
    if (!forward)
        return replay->past[event->step];
    for (uint32_t m = 0; step->kind == HALAY_STEP_GROUP && m < step->nmembers; m++)
        if (replay->frozen[step->members[m].rank])
            return 0;
    return !replay->frozen[step->rank];
}

static void move(hly_replay_t *replay, int forward)
{
    hly_machine_t *machine = &replay->machine;
    for (uint32_t i = 0; machine->verdict == HLY_RIGHT && i < *machine->nevents;) {
        if (may_move(replay, &machine->events[i], forward)) {
            hly_machine_move(machine, i);
            i = 0;
        } else {
            i++;
        }
    }
}

uint32_t hly_replay_run(hly_replay_t *replay, uint32_t *stuck)
{
    hly_machine_t *machine = &replay->machine;
    uint32_t through = 0, g = 0;
    hly_machine_reset(machine, 1);
    move(replay, 0);
    move(replay, 1);
    for (uint32_t r = 0; r < replay->nranks; r++) {
        const uint32_t n = replay->plans[r]->nsteps, end = g + n;
        for (stuck[r] = 0; stuck[r] < n && machine->steps[g + stuck[r]] >= HLY_STEP_SENT;)
            stuck[r]++;
        through += stuck[r] == n;
        g = end;
    }
    if (through == replay->nranks && machine->verdict == HLY_RIGHT && !*machine->nevents)
        hly_machine_judge(machine);
    return through;
}
