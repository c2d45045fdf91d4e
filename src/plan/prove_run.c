/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove_run.c - runs all plans together, in an order that their dependencies allow.
 *
 * Zero buffering: a SEND and its RECV are one event, which happens when the predecessors of both
 * are done. If all steps can be run so, the union of the dependencies is without circles and no
 * execution can block; if not, what is left holds a circle, and one step of it is named.
 *
 * With each step it keeps which ranks this rank has heard from by then, directly or not: a message
 * carries what its sender's predecessors had heard, no more. A rank's own end has heard what any of
 * its steps has. A GROUP is one event of all its members, each of which has heard from the others
 * before; to whom data go hears from all from whom they come.
 */
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "prove_value.h"

struct run {
    struct hly_prover *v;
    struct hly_values values;
    struct hly_sets sets;
    uint32_t *followers; /* of a step: where its list begins; nsteps + 1 */
    uint32_t *list;      /* steps that follow */
    uint32_t *asked;     /* of a step: how many followers have not run yet */
    uint32_t *chain;     /* messages on the longest chain up to a step; HLY_NONE: has not run */
    uint32_t *heard;     /* set of a step that has run */
    uint32_t *ended;     /* set of a rank's end */
    uint32_t *queue;     /* steps that may run; of those that meet only one */
    uint8_t *waiting;    /* of a step: predecessors that have not run */
    uint32_t head, tail;
};

/* Numbers of a step's predecessors; returns how many. */
static uint32_t predecessors(const struct hly_prover *v, uint32_t number, uint32_t before[2])
{
    const halay_step_t *step = hly_step(v, number);
    uint32_t n = 0, base = v->base[v->rank_of[number]];

    for (int i = 0; i < 2; i++) {
        if (step->dep[i] != HLY_NONE) {
            before[n++] = base + step->dep[i];
        }
    }
    return n;
}

static void link_steps(struct run *u)
{
    uint32_t nsteps = u->v->nsteps, before[2], n;

    for (uint32_t number = 0; number < nsteps; number++) {
        u->waiting[number] = (uint8_t)(n = predecessors(u->v, number, before));
        while (n > 0) {
            u->followers[before[--n] + 1]++;
        }
        u->chain[number] = HLY_NONE;
    }
    for (uint32_t number = 0; number < nsteps; number++) {
        u->asked[number] = u->followers[number + 1];
        u->followers[number + 1] += u->followers[number];
    }
    /* Fills the lists from their ends; asked[] counts down and is set again after. */
    for (uint32_t number = 0; number < nsteps; number++) {
        n = predecessors(u->v, number, before);
        while (n > 0) {
            uint32_t to = before[--n];
            u->list[u->followers[to] + --u->asked[to]] = number;
        }
    }
    for (uint32_t number = 0; number < nsteps; number++) {
        u->asked[number] = u->followers[number + 1] - u->followers[number];
    }
}

/* A step has no predecessor left; it goes to the queue when none of those that it meets has. */
static void make_ready(struct run *u, uint32_t number)
{
    const uint32_t *partner = u->v->partner;

    for (uint32_t p = partner[number]; p != HLY_NONE && p != number; p = partner[p]) {
        if (u->waiting[p] != 0) {
            return;
        }
    }
    u->queue[u->tail++] = number;
}

/* Has it the lowest number of the steps that meet? */
static int is_lowest(const struct run *u, uint32_t number)
{
    const uint32_t *partner = u->v->partner;
    uint32_t p = partner[number];

    while (p != HLY_NONE && p > number) {
        p = partner[p];
    }
    return p == HLY_NONE || p == number;
}

/* What the predecessors of a step had heard: a set with a reference of its own. */
static int heard_before(struct run *u, uint32_t number, int own, uint32_t *set)
{
    uint32_t before[2], n = predecessors(u->v, number, before), shared = 0, different = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t heard = u->heard[before[i]];
        different += shared != 0 && heard != 0 && heard != shared;
        shared = heard ? heard : shared;
    }
    if (!own && !different) {
        if (shared) {
            u->sets.references[shared]++;
        }
        *set = shared;
        return 0;
    }
    *set = hly_sets_make(&u->sets);
    if (*set == 0) {
        return HALAY_ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        hly_sets_add(&u->sets, *set, u->heard[before[i]]);
    }
    return 0;
}

/* Runs one event: a step, or (send is not HLY_NONE) a RECV with its SEND. */
static int run_event(struct run *u, uint32_t number, uint32_t send)
{
    const halay_step_t *step = hly_step(u->v, number);
    uint32_t rank = u->v->rank_of[number];
    int result = 0;

    if (step->kind != HALAY_STEP_JOIN) {
        result = hly_values_step(&u->values, number, send);
    }
    if (result == 0) {
        result = heard_before(u, number, send != HLY_NONE, &u->heard[number]);
    }
    if (result == 0 && send != HLY_NONE) {
        uint32_t sender = u->v->rank_of[send];
        result = heard_before(u, send, 0, &u->heard[send]);
        if (result == 0) {
            hly_sets_add(&u->sets, u->heard[number], u->heard[send]);
            hly_set(&u->sets, u->heard[number])[sender / 64] |= 1ull << sender % 64;
            hly_sets_add(&u->sets, u->ended[rank], u->heard[number]);
        }
    }
    return result;
}

static uint32_t chain_before(const struct run *u, uint32_t number)
{
    uint32_t before[2], n = predecessors(u->v, number, before), chain = 0;

    while (n > 0) {
        uint32_t c = u->chain[before[--n]];
        chain = c > chain ? c : chain;
    }
    return chain;
}

/* Lets followers go, and gives back the sets that nobody asks any more. */
static void finish_step(struct run *u, uint32_t number, uint32_t chain)
{
    uint32_t before[2], n = predecessors(u->v, number, before);

    u->chain[number] = chain;
    if (chain > u->v->proof.rounds) {
        u->v->proof.rounds = chain;
    }
    while (n > 0) {
        if (--u->asked[before[--n]] == 0) {
            hly_sets_put(&u->sets, u->heard[before[n]]);
        }
    }
    if (u->asked[number] == 0) {
        hly_sets_put(&u->sets, u->heard[number]);
    }
    for (uint32_t i = u->followers[number]; i < u->followers[number + 1]; i++) {
        if (--u->waiting[u->list[i]] == 0) {
            make_ready(u, u->list[i]);
        }
    }
}

/* What each member had heard before: that has to be all the others. The givers' goes to set all. */
static int hear_members(struct run *u, const uint32_t *steps, uint32_t n, uint32_t all)
{
    const halay_plan_t *plan = u->v->plans[u->v->rank_of[steps[0]]];
    const halay_group_t *group = hly_group_of(plan, hly_step(u->v, steps[0]));
    const halay_member_t *member = &plan->members[group->member];

    for (uint32_t m = 0; m < n; m++) {
        uint32_t *heard = &u->heard[steps[m]], index = steps[m] - u->v->base[member[m].rank];
        int result = heard_before(u, steps[m], 1, heard);
        if (result < 0) {
            return result;
        }
        for (uint32_t o = 0; o < n; o++) {
            uint32_t rank = member[o].rank;
            if (o != m && !(hly_set(&u->sets, *heard)[rank / 64] >> rank % 64 & 1)) {
                return hly_refuse(u->v, member[m].rank, index,
                                  "can begin before it has heard from rank %u, a member", rank);
            }
        }
        if (hly_member_gives(group, &member[m])) {
            hly_sets_add(&u->sets, all, *heard);
            hly_set(&u->sets, all)[member[m].rank / 64] |= 1ull << member[m].rank % 64;
        }
    }
    for (uint32_t m = 0; m < n; m++) {
        if (hly_member_takes(group, &member[m])) {
            hly_sets_add(&u->sets, u->heard[steps[m]], all);
            hly_sets_add(&u->sets, u->ended[member[m].rank], all);
        }
    }
    return 0;
}

/* Runs the event of all steps that meet this one. */
static int run_group(struct run *u, uint32_t number)
{
    const halay_plan_t *plan = u->v->plans[u->v->rank_of[number]];
    const halay_step_t *step = hly_step(u->v, number);
    uint32_t n = hly_group_of(plan, step)->nmembers, chain = 0;
    uint32_t *steps = malloc(n * sizeof(*steps)), all = hly_sets_make(&u->sets);
    int result = steps && all ? 0 : HALAY_ENOMEM;

    while (u->v->rank_of[number] != hly_members_of(plan, step)[0].rank) {
        number = u->v->partner[number];
    }
    for (uint32_t m = 0; result == 0 && m < n; m++, number = u->v->partner[number]) {
        uint32_t before = chain_before(u, number);
        chain = before >= chain ? before + 1 : chain;
        steps[m] = number;
    }
    if (result == 0) {
        result = hear_members(u, steps, n, all);
    }
    if (result == 0) {
        result = hly_values_group(&u->values, steps, n);
    }
    for (uint32_t m = 0; result == 0 && m < n; m++) {
        finish_step(u, steps[m], chain);
    }
    hly_sets_put(&u->sets, all);
    free(steps);
    return result;
}

static int run_all(struct run *u)
{
    for (uint32_t number = 0; number < u->v->nsteps; number++) {
        if (u->waiting[number] == 0 && is_lowest(u, number)) {
            make_ready(u, number);
        }
    }
    while (u->head < u->tail) {
        uint32_t number = u->queue[u->head++], send = HLY_NONE, chain;

        if (hly_step(u->v, number)->kind == HALAY_STEP_GROUP) {
            int ran = run_group(u, number);
            if (ran < 0) {
                return ran;
            }
            continue;
        }
        if (u->v->partner[number] != HLY_NONE) {
            send = u->v->partner[number];
            if (hly_step(u->v, number)->kind == HALAY_STEP_SEND) {
                send = number;
                number = u->v->partner[send];
            }
        }
        int result = run_event(u, number, send);
        if (result < 0) {
            return result;
        }
        chain = chain_before(u, number);
        if (send != HLY_NONE) {
            uint32_t other = chain_before(u, send);
            chain = (other > chain ? other : chain) + 1;
            finish_step(u, send, chain);
        }
        finish_step(u, number, chain);
    }
    return 0;
}

/* Some step has not run: goes from one that waits to what it waits for until it comes round. */
static int check_no_circle(struct run *u)
{
    uint32_t number = 0, before[2], length = 0;

    while (number < u->v->nsteps && u->chain[number] != HLY_NONE) {
        number++;
    }
    if (number == u->v->nsteps) {
        return 0;
    }
    memset(u->asked, 0, u->v->nsteps * sizeof(*u->asked)); /* now: when a step was seen */
    while (u->asked[number] == 0) {
        u->asked[number] = ++length;
        uint32_t next = u->v->partner[number], n = predecessors(u->v, number, before);
        while (n > 0) {
            if (u->chain[before[--n]] == HLY_NONE) {
                next = before[n];
            }
        }
        number = next;
    }
    uint32_t rank = u->v->rank_of[number];
    return hly_refuse(u->v, rank, number - u->v->base[rank],
                      "waits for itself, in a circle of %u steps: deadlock without buffers",
                      length + 1 - u->asked[number]);
}

/* Of whom a rank has to have heard: of all, in a relaxed call of the root. */
static int has_to_hear(const struct hly_prover *v, uint32_t rank, uint32_t other)
{
    const halay_plan_t *plan = v->plans[rank];
    const halay_planner_info_t *info = halay_planner_get(plan->planner);

    return other != rank &&
           (!info || !(info->restrictions & HALAY_PLANNER_RELAXED) || other == plan->params.root);
}

static int check_heard(struct run *u)
{
    for (uint32_t rank = 0; rank < u->v->nranks; rank++) {
        const uint64_t *set = hly_set(&u->sets, u->ended[rank]);

        for (uint32_t other = 0; other < u->v->nranks; other++) {
            if (has_to_hear(u->v, rank, other) && !(set[other / 64] >> other % 64 & 1)) {
                return hly_refuse(u->v, rank, HLY_NONE,
                                  "can end before it has heard, directly or not, from rank %u",
                                  other);
            }
        }
    }
    return 0;
}

static int run_and_check(struct run *u)
{
    for (uint32_t rank = 0; rank < u->v->nranks; rank++) {
        u->ended[rank] = hly_sets_make(&u->sets);
        if (u->ended[rank] == 0) {
            return HALAY_ENOMEM;
        }
    }
    link_steps(u);
    int result = run_all(u);
    if (result == 0) {
        result = check_no_circle(u);
    }
    if (result == 0) {
        result = hly_values_check(&u->values);
    }
    return result == 0 ? check_heard(u) : result;
}

int hly_prove_run(struct hly_prover *v)
{
    struct run u = {.v = v};
    size_t n = v->nsteps;
    int result = hly_values_init(&u.values, v);

    if (result < 0) {
        return result;
    }
    result = hly_sets_init(&u.sets, v->nranks);
    if (result < 0) {
        goto finish_values;
    }
    uint32_t *room = calloc(7 * n + 2 + v->nranks, sizeof(*room));
    u.waiting = calloc(n + 1, 1);
    if (!room || !u.waiting) {
        result = HALAY_ENOMEM;
        goto free_room;
    }
    u.followers = room;
    u.list = u.followers + n + 1;
    u.asked = u.list + 2 * n;
    u.chain = u.asked + n;
    u.heard = u.chain + n;
    u.queue = u.heard + n;
    u.ended = u.queue + n;
    result = run_and_check(&u);
free_room:
    free(u.waiting);
    free(room);
    hly_sets_finish(&u.sets);
finish_values:
    hly_values_finish(&u.values);
    return result;
}
