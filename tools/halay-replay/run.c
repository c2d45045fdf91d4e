/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - the plans of one call from where its ranks stood. They are made anew, by the planner that
 * the records name, and are those that ran if their hashes say so. A rank that is in a later
 * segment than the one that is run has done all of it.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 1024

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

int hly_replay_init(hly_replay_t *replay, const hly_flights_t *flights, const hly_question_t *q)
{
    const halay_record_call_t *call = NULL;
    *replay = (hly_replay_t){0};
    if (!q->members || q->members->nranks > RANKS_MAX)
        return refuse(replay, "its ranks are not known, or there are too many");
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
    return 0;
}

void hly_replay_finish(hly_replay_t *replay)
{
    for (uint32_t r = 0; r < replay->nranks; r++) {
        if (replay->plans)
            halay_plan_free(replay->plans[r]);
        if (replay->done)
            free(replay->done[r]);
    }
    free(replay->plans);
    free(replay->done);
    free(replay->frozen);
    free(replay->made);
    free(replay->world);
}

/* ---------------------------------------------------------------- forward */

static int may_start(const halay_step_t *s, const uint8_t *done)
{
    return (s->dep[0] == HALAY_STEP_NONE || done[s->dep[0]]) &&
           (s->dep[1] == HALAY_STEP_NONE || done[s->dep[1]]);
}

/* The SEND that a RECV of `rank` takes has been done. */
static int has_come(const hly_replay_t *replay, uint8_t *const *done, uint32_t rank,
                    const halay_step_t *s)
{
    const halay_plan_t *from = replay->plans[s->peer];
    for (uint32_t i = 0; i < from->nsteps; i++)
        if (from->steps[i].kind == HALAY_STEP_SEND && from->steps[i].peer == rank &&
            from->steps[i].edge == s->edge)
            return done[s->peer][i];
    return 0;
}

/* All members have come to their step of this kind on this channel, or are past it. */
static int have_met(const hly_replay_t *replay, uint8_t *const *done, uint32_t rank, uint32_t step)
{
    const halay_plan_t *mine = replay->plans[rank];
    const halay_step_t *s = &mine->steps[step];
    const halay_group_t *group = &mine->groups[s->peer];
    uint32_t number = 0;
    for (uint32_t i = 0; i < step; i++)
        number += mine->steps[i].kind == HALAY_STEP_GROUP && mine->steps[i].edge == s->edge;
    for (uint32_t m = 0; m < group->nmembers; m++) {
        const uint32_t other = mine->members[group->member + m].rank;
        const halay_plan_t *plan = replay->plans[other];
        uint32_t n = 0, i = 0;
        for (; i < plan->nsteps; i++)
            if (plan->steps[i].kind == HALAY_STEP_GROUP && plan->steps[i].edge == s->edge &&
                n++ == number)
                break;
        if (i == plan->nsteps || (!done[other][i] && (replay->frozen[other] ||
                                                      !may_start(&plan->steps[i], done[other]))))
            return 0;
    }
    return 1;
}

static int moves(const hly_replay_t *replay, uint8_t *const *done, uint32_t rank, uint32_t step)
{
    const halay_step_t *s = &replay->plans[rank]->steps[step];
    if (done[rank][step] || !may_start(s, done[rank]))
        return 0;
    if (s->kind == HALAY_STEP_RECV)
        return has_come(replay, done, rank, s);
    return s->kind != HALAY_STEP_GROUP || have_met(replay, done, rank, step);
}

uint32_t hly_replay_run(const hly_replay_t *replay, uint32_t *stuck)
{
    uint32_t through = 0;
    uint8_t **done = calloc(replay->nranks, sizeof(uint8_t *));
    int moved = done != NULL;
    for (uint32_t r = 0; moved && r < replay->nranks; r++) {
        done[r] = malloc(replay->plans[r]->nsteps + 1);
        moved = done[r] != NULL;
        if (moved)
            memcpy(done[r], replay->done[r], replay->plans[r]->nsteps + 1);
    }
    while (moved) {
        moved = 0;
        for (uint32_t r = 0; r < replay->nranks; r++)
            for (uint32_t i = 0; !replay->frozen[r] && i < replay->plans[r]->nsteps; i++)
                if (moves(replay, done, r, i))
                    moved = done[r][i] = 1;
    }
    for (uint32_t r = 0; done && r < replay->nranks; r++) {
        stuck[r] = 0;
        while (done[r] && stuck[r] < replay->plans[r]->nsteps && done[r][stuck[r]])
            stuck[r]++;
        through += done[r] && stuck[r] == replay->plans[r]->nsteps;
        free(done[r]);
    }
    free(done);
    return through;
}
