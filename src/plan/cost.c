/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c - how long plans take: all ranks' steps played through as events, in the order of time.
 *
 * After LogGP (Alexandrov, Ionescu, Schauser, Scheiman: SPAA 1995). Each rank's processor does one
 * thing at a time: it starts a step (step_ns), hands a message over or takes one (overhead_ns),
 * copies and reduces. A message of n bytes takes latency_ns + n byte_ns, of which the n byte_ns
 * also keep two paths busy, out of the sender and into the receiver, for one message at a time.
 * Inside a node these are the sender's processor, which does the copying, and the memory path into
 * the receiving rank; between nodes the interfaces of both nodes, which all their ranks share. A
 * message above eager_bytes leaves when its receiver's announcement (a message without bytes) has
 * come.
 *
 * A group step of k members begins when all are ready and takes a near latency for each doubling up
 * to k. The bytes of the whole except for one member's share, (k-1)/k of them, pass once at the
 * near byte_ns, in an allreduce twice, and are reduced once where it sums. No processor waits for
 * it.
 *
 * A copy between a device's memory and the stage takes the stage's latency and byte_ns for each
 * byte, of which the latter keep the rank's way down, or up, busy; no processor waits for it. A
 * call that is staged as a whole has all its bytes copied down before, and up behind.
 *
 * Invariant: events come off the heap in the order of (time, number of the step, kind), so that
 * equal plans give equal times on every machine: only + and * and comparisons of doubles.
 */
#include <halay/plan.h>

#include "group.h"

#include <stdlib.h>
#include <string.h>

#define NONE HALAY_STEP_NONE

enum kind {
    READY,     /* its predecessors are done */
    ANNOUNCED, /* of a send: the receiver has a place for it */
    LAUNCH,    /* of a send: handed over */
    LANDED,    /* of a receive: all bytes are there */
    DONE
};

struct event {
    double ns;
    uint32_t step;
    uint32_t kind;
};

struct state {       /* of one step */
    double ready_ns; /* send: handed over; receive: arrived, or ready, whichever was first */
    uint32_t rank;
    uint32_t partner; /* the step at the other end of a message; of a group's next member */
    uint32_t rounds;  /* messages on the longest chain that ends here */
    uint8_t pending;  /* predecessors */
    uint8_t half;     /* one of the two things that a message waits for has happened */
    uint8_t done;
};

struct rank {
    uint32_t base;        /* its first step's number */
    double cpu_ns, in_ns; /* when processor and memory path are free */
    double stage_ns[2];   /* when the ways to the stage, down and up, are */
    uint64_t sent, received;
};

struct walk {
    const halay_plan_t *const *plans;
    const halay_model_t *model;
    const halay_shape_t *shape;
    uint32_t nranks, nsteps;
    uint64_t unit_bytes, long_blocks, element_bytes;
    struct rank *ranks;
    struct state *steps;
    uint32_t *first, *successors;
    double *node_out_ns, *node_in_ns;
    struct event *heap;
    uint32_t nheap;
    double end_ns;
    uint64_t messages;
    uint32_t rounds, ndone;
};

/* ---------------------------------------------------------------- the heap */

static int earlier(const struct event *a, const struct event *b)
{
    if (a->ns != b->ns) {
        return a->ns < b->ns;
    }
    return a->step != b->step ? a->step < b->step : a->kind < b->kind;
}

/* A step has at most one event waiting, except for a send that is announced before it is ready. */
static void push(struct walk *w, double ns, uint32_t step, enum kind kind)
{
    struct event e = {ns, step, kind};
    uint32_t at = w->nheap++;

    while (at > 0 && earlier(&e, &w->heap[(at - 1) / 2])) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = e;
}

static struct event pop(struct walk *w)
{
    struct event top = w->heap[0], last = w->heap[--w->nheap];
    uint32_t at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < w->nheap && earlier(&w->heap[child + 1], &w->heap[child])) {
            child++;
        }
        if (child >= w->nheap || !earlier(&w->heap[child], &last)) {
            break;
        }
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return top;
}

/* ---------------------------------------------------------------- what a step is about */

static const halay_step_t *step_of(const struct walk *w, uint32_t step)
{
    uint32_t rank = w->steps[step].rank;

    return &w->plans[rank]->steps[step - w->ranks[rank].base];
}

static double operand_bytes(const struct walk *w, const halay_plan_t *plan,
                            const halay_operand_t *o)
{
    uint64_t longer = 0, end = (uint64_t)o->first + o->count;

    if (o->first < w->long_blocks) {
        longer = (end < w->long_blocks ? end : w->long_blocks) - o->first;
    }
    if (end > plan->blocks) { /* it wraps */
        uint64_t rest = end - plan->blocks;
        longer += rest < w->long_blocks ? rest : w->long_blocks;
    }
    return (double)(o->count * w->unit_bytes + longer * w->element_bytes);
}

static double bytes_of(const struct walk *w, uint32_t step)
{
    const halay_plan_t *plan = w->plans[w->steps[step].rank];

    return operand_bytes(w, plan, &plan->operands[step_of(w, step)->operand]);
}

static int is_far(const struct walk *w, uint32_t a, uint32_t b)
{
    return w->shape->node[a] != w->shape->node[b];
}

static const halay_link_model_t *link_of(const struct walk *w, uint32_t step)
{
    return is_far(w, w->steps[step].rank, step_of(w, step)->peer) ? &w->model->far
                                                                  : &w->model->near;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* ---------------------------------------------------------------- the events */

/* The rank's processor is busy for so long, from `ns` on or when it is free; returns the end. */
static double work(struct walk *w, uint32_t step, double ns, double work_ns)
{
    struct rank *rank = &w->ranks[w->steps[step].rank];

    rank->cpu_ns = later(rank->cpu_ns, ns) + work_ns;
    return rank->cpu_ns;
}

/* What a group step's members wait for, and the bytes that pass each of them. */
static double group_ns(const struct walk *w, uint32_t step, uint64_t *passed)
{
    const halay_plan_t *plan = w->plans[w->steps[step].rank];
    const halay_group_t *group = hly_group_of(plan, step_of(w, step));
    double whole = operand_bytes(w, plan, hly_group_whole(plan, step_of(w, step))), ns = 0;
    uint64_t share = (uint64_t)whole / group->nmembers * (group->nmembers - 1);
    uint64_t rest = (uint64_t)whole % group->nmembers * (group->nmembers - 1) / group->nmembers;

    for (uint64_t k = 1; k < group->nmembers; k *= 2) {
        ns += w->model->near.latency_ns;
    }
    *passed = (share + rest) * (group->kind == HALAY_GROUP_ALLREDUCE ? 2 : 1);
    if ((group->kind == HALAY_GROUP_BROADCAST || group->kind == HALAY_GROUP_REDUCE) &&
        group->nmembers > 1) {
        *passed = (uint64_t)whole; /* all of it leaves, or reaches, one member */
    }
    ns += (double)*passed * w->model->near.byte_ns;
    return hly_group_reduces(group) ? ns + (double)(share + rest) * w->model->reduce_byte_ns : ns;
}

/* The last member that is ready starts the group: then it is done for all at one time. */
static void join_group(struct walk *w, uint32_t step, double ns)
{
    struct state *state = &w->steps[step];
    uint32_t rounds = state->rounds, member = step;
    uint64_t passed;

    state->ready_ns = work(w, step, ns, w->model->step_ns + w->model->near.overhead_ns);
    state->half = 1;
    ns = state->ready_ns;
    while ((member = w->steps[member].partner) != step) {
        if (!w->steps[member].half) {
            return;
        }
        ns = later(ns, w->steps[member].ready_ns);
        rounds = rounds > w->steps[member].rounds ? rounds : w->steps[member].rounds;
    }
    ns += group_ns(w, step, &passed);
    do {
        struct rank *rank = &w->ranks[w->steps[member].rank];
        w->steps[member].rounds = rounds + 1;
        rank->sent += passed;
        rank->received += passed;
        push(w, ns, member, DONE);
        member = w->steps[member].partner;
    } while (member != step);
}

static int on_stage(const halay_plan_t *plan, const halay_operand_t *o)
{
    return o->buffer == HALAY_BUFFER_SCRATCH && o->slot >= plan->device_slots;
}

static int has_stage(const halay_plan_t *plan)
{
    const halay_planner_info_t *info = halay_planner_get(plan->planner);

    return info && info->restrictions & HALAY_PLANNER_STAGE;
}

/* A copy: by the processor, or by the device if one end is on the stage. */
static void copy(struct walk *w, uint32_t step, double ns)
{
    const halay_plan_t *plan = w->plans[w->steps[step].rank];
    const halay_operand_t *operand = &plan->operands[step_of(w, step)->operand];
    double bytes = bytes_of(w, step), copy_ns = w->model->copy_byte_ns * bytes;
    int up = on_stage(plan, &operand[1]);

    if (!has_stage(plan) || on_stage(plan, &operand[0]) == up) {
        push(w, work(w, step, ns, w->model->step_ns + copy_ns), step, DONE);
        return;
    }
    double *way = &w->ranks[w->steps[step].rank].stage_ns[up];
    ns = work(w, step, ns, w->model->step_ns);
    *way = later(*way, ns) + bytes * w->model->stage_byte_ns;
    push(w, *way + w->model->stage_latency_ns, step, DONE);
}

static void ready(struct walk *w, uint32_t step, double ns)
{
    const halay_step_t *s = step_of(w, step);
    struct state *state = &w->steps[step];
    double step_ns = w->model->step_ns;

    if (s->kind == HALAY_STEP_SEND) {
        const halay_link_model_t *link = link_of(w, step);
        ns = work(w, step, ns, step_ns + link->overhead_ns);
        if (bytes_of(w, step) <= (double)link->eager_bytes || state->half) {
            push(w, ns, step, LAUNCH);
        }
        state->ready_ns = ns;
        state->half = 1;
    } else if (s->kind == HALAY_STEP_RECV) {
        const halay_link_model_t *link = link_of(w, step);
        ns = work(w, step, ns, step_ns);
        if (bytes_of(w, step) > (double)link->eager_bytes) {
            ns = work(w, step, ns, link->overhead_ns);
            push(w, ns + link->latency_ns, state->partner, ANNOUNCED);
        } else if (state->half) { /* it came before */
            push(w, later(ns, state->ready_ns), step, LANDED);
        }
        state->half = 1;
    } else if (s->kind == HALAY_STEP_GROUP) {
        join_group(w, step, ns);
    } else if (s->kind == HALAY_STEP_COPY) {
        copy(w, step, ns);
    } else {
        double per_byte =
            s->kind == HALAY_STEP_REDUCE ? w->model->reduce_byte_ns * (s->noperands - 2u) : 0;
        double bytes = s->noperands ? bytes_of(w, step) : 0;
        push(w, work(w, step, ns, step_ns + per_byte * bytes), step, DONE);
    }
}

static void launch(struct walk *w, uint32_t step, double ns)
{
    const halay_link_model_t *link = link_of(w, step);
    struct state *state = &w->steps[step], *landing = &w->steps[state->partner];
    struct rank *from = &w->ranks[state->rank], *to = &w->ranks[landing->rank];
    int far = is_far(w, state->rank, landing->rank);
    double bytes = bytes_of(w, step), bytes_ns = bytes * link->byte_ns;
    double *out = far ? &w->node_out_ns[w->shape->node[state->rank]] : &from->cpu_ns;
    double *in = far ? &w->node_in_ns[w->shape->node[landing->rank]] : &to->in_ns;
    double begin = later(ns, *out);

    *out = begin + bytes_ns;
    *in = later(begin + link->latency_ns, *in) + bytes_ns;
    from->sent += (uint64_t)bytes;
    to->received += (uint64_t)bytes;
    w->messages++;
    push(w, *out, step, DONE);
    landing->ready_ns = *in;
    if (landing->half || bytes > (double)link->eager_bytes) {
        push(w, *in, state->partner, LANDED);
    }
    landing->half = 1;
}

static void done(struct walk *w, uint32_t step, double ns)
{
    struct state *state = &w->steps[step];

    state->done = 1;
    w->ndone++;
    w->end_ns = later(w->end_ns, ns);
    if (step_of(w, step)->kind == HALAY_STEP_RECV) {
        uint32_t chain = w->steps[state->partner].rounds + 1;
        state->rounds = state->rounds > chain ? state->rounds : chain;
    }
    w->rounds = w->rounds > state->rounds ? w->rounds : state->rounds;
    for (uint32_t i = w->first[step]; i < w->first[step + 1]; i++) {
        struct state *next = &w->steps[w->successors[i]];
        next->rounds = next->rounds > state->rounds ? next->rounds : state->rounds;
        if (--next->pending == 0) {
            push(w, ns, w->successors[i], READY);
        }
    }
}

static void play(struct walk *w)
{
    for (uint32_t i = 0; i < w->nsteps; i++) {
        if (w->steps[i].pending == 0) {
            push(w, 0, i, READY);
        }
    }
    while (w->nheap > 0) {
        struct event e = pop(w);
        struct state *state = &w->steps[e.step];
        if (e.kind == READY) {
            ready(w, e.step, e.ns);
        } else if (e.kind == ANNOUNCED) {
            double ns = work(w, e.step, e.ns, link_of(w, e.step)->overhead_ns);
            if (state->half) {
                push(w, ns, e.step, LAUNCH);
            }
            state->half = 1;
        } else if (e.kind == LAUNCH) {
            launch(w, e.step, e.ns);
        } else if (e.kind == LANDED) {
            push(w, work(w, e.step, e.ns, link_of(w, e.step)->overhead_ns), e.step, DONE);
        } else {
            done(w, e.step, e.ns);
        }
    }
}

/* ---------------------------------------------------------------- laying it out */

static int is_message(const halay_step_t *s)
{
    return s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV;
}

static int step_is_sane(const halay_plan_t *plan, uint32_t i, uint32_t nranks)
{
    const halay_step_t *s = &plan->steps[i];
    int group = s->kind == HALAY_STEP_GROUP;
    uint32_t least = is_message(s)                         ? 1
                     : s->kind == HALAY_STEP_COPY || group ? 2
                     : s->kind == HALAY_STEP_REDUCE        ? 3
                                                           : 0;

    if (s->kind < HALAY_STEP_SEND || s->kind > HALAY_STEP_GROUP || s->noperands < least ||
        (uint64_t)s->operand + s->noperands > plan->noperands ||
        (is_message(s) && (s->peer >= nranks || s->peer == plan->params.rank))) {
        return 0;
    }
    for (uint32_t o = s->operand; o < s->operand + s->noperands; o++) {
        if (plan->operands[o].count > plan->blocks ||
            (plan->blocks && plan->operands[o].first >= plan->blocks)) {
            return 0;
        }
    }
    if (group && hly_group_check(plan, s, nranks)) {
        return 0;
    }
    return (s->dep[0] == NONE || s->dep[0] < i) && (s->dep[1] == NONE || s->dep[1] < i);
}

/* Numbers the steps, counts predecessors, and lays out successors. */
static int number_steps(struct walk *w)
{
    uint32_t at = 0;

    for (uint32_t r = 0; r < w->nranks; r++) {
        const halay_plan_t *plan = w->plans[r];
        w->ranks[r].base = at;
        for (uint32_t i = 0; i < plan->nsteps; i++, at++) {
            if (plan->params.rank != r || plan->params.nranks != w->nranks ||
                !step_is_sane(plan, i, w->nranks)) {
                return HALAY_EPLAN;
            }
            w->steps[at].rank = r;
            w->steps[at].partner = NONE;
            for (int d = 0; d < 2; d++) {
                if (plan->steps[i].dep[d] != NONE) {
                    w->steps[at].pending++;
                    w->first[w->ranks[r].base + plan->steps[i].dep[d] + 2]++;
                }
            }
        }
    }
    for (uint32_t i = 2; i < w->nsteps + 2; i++) {
        w->first[i] += w->first[i - 1];
    }
    for (at = 0; at < w->nsteps; at++) { /* first[j + 1] moves to its final place */
        const halay_step_t *s = step_of(w, at);
        uint32_t base = w->ranks[w->steps[at].rank].base;
        for (int d = 0; d < 2; d++) {
            if (s->dep[d] != NONE) {
                w->successors[w->first[base + s->dep[d] + 1]++] = at;
            }
        }
    }
    return 0;
}

static uint64_t mix(uint64_t from, uint64_t to, uint64_t edge)
{
    uint64_t h = (from << 32 | to) * 0x9e3779b97f4a7c15u;

    h = (h ^ h >> 32 ^ edge) * 0xd6e8feb86659fd93u;
    return h ^ h >> 29;
}

/* The receive of a send in the table that has not been found yet, and asks for as many bytes. */
static int is_pair(const struct walk *w, uint32_t send, uint32_t recv)
{
    const halay_step_t *s = step_of(w, send), *r = step_of(w, recv);

    return w->steps[send].rank == r->peer && s->peer == w->steps[recv].rank && s->edge == r->edge &&
           w->steps[send].partner == NONE && bytes_of(w, send) == bytes_of(w, recv);
}

static void add_send(const struct walk *w, uint32_t *table, uint32_t mask, uint32_t step)
{
    const halay_step_t *s = step_of(w, step);
    uint32_t at = (uint32_t)mix(w->steps[step].rank, s->peer, s->edge) & mask;

    while (table[at] != NONE) {
        at = (at + 1) & mask;
    }
    table[at] = step;
}

static int find_send(struct walk *w, const uint32_t *table, uint32_t mask, uint32_t step)
{
    const halay_step_t *s = step_of(w, step);
    uint32_t at = (uint32_t)mix(s->peer, w->steps[step].rank, s->edge) & mask;

    while (table[at] != NONE && !is_pair(w, table[at], step)) {
        at = (at + 1) & mask;
    }
    if (table[at] == NONE) {
        return HALAY_EPLAN;
    }
    w->steps[step].partner = table[at];
    w->steps[table[at]].partner = step;
    return 0;
}

/* Finds the other end of every message: all sends in a table, then each receive looks its up. */
static int pair_messages(struct walk *w)
{
    uint32_t room = 16;
    int rc = 0;

    while (room < 2 * w->nsteps) {
        room *= 2;
    }
    uint32_t *table = malloc(room * sizeof(*table));
    if (!table) {
        return HALAY_ENOMEM;
    }
    memset(table, 0xff, room * sizeof(*table));
    for (uint32_t i = 0; i < w->nsteps; i++) {
        if (step_of(w, i)->kind == HALAY_STEP_SEND) {
            add_send(w, table, room - 1, i);
        }
    }
    for (uint32_t i = 0; rc == 0 && i < w->nsteps; i++) {
        if (step_of(w, i)->kind == HALAY_STEP_RECV) {
            rc = find_send(w, table, room - 1, i);
        }
    }
    for (uint32_t i = 0; rc == 0 && i < w->nsteps; i++) {
        rc = is_message(step_of(w, i)) && w->steps[i].partner == NONE ? HALAY_EPLAN : 0;
    }
    free(table);
    return rc;
}

/* Joins the steps of each group's members to a circle. */
static int join_groups(struct walk *w)
{
    struct hly_group_fault fault;
    uint32_t *base = calloc((size_t)w->nranks + w->nsteps + 1, sizeof(*base));

    if (!base) {
        return HALAY_ENOMEM;
    }
    uint32_t *partner = base + w->nranks;
    for (uint32_t r = 0; r < w->nranks; r++) {
        base[r] = w->ranks[r].base;
    }
    int rc = hly_group_link(w->plans, w->nranks, base, partner, &fault);
    for (uint32_t i = 0; rc == 0 && i < w->nsteps; i++) {
        if (step_of(w, i)->kind == HALAY_STEP_GROUP) {
            w->steps[i].partner = partner[i];
        }
    }
    free(base);
    return rc;
}

/* Has every rank a whole vector, which the planner cuts? */
static int is_whole(const halay_question_t *q)
{
    return q->collective == HALAY_ALLREDUCE || q->collective == HALAY_BROADCAST ||
           q->collective == HALAY_REDUCE || q->collective == HALAY_SCAN ||
           q->collective == HALAY_EXSCAN;
}

/* As the executor cuts a call's data into blocks. */
static void lay_out(struct walk *w, const halay_question_t *q, uint32_t blocks)
{
    w->element_bytes = q->element_bytes;
    w->unit_bytes = q->count * q->element_bytes;
    if (is_whole(q) && blocks > 1) {
        w->unit_bytes = q->count / blocks * q->element_bytes;
        w->long_blocks = q->count % blocks;
    }
}

static void clear(struct walk *w)
{
    free(w->ranks);
    free(w->steps);
    free(w->first);
    free(w->successors);
    free(w->node_out_ns);
    free(w->heap);
}

static int allocate(struct walk *w)
{
    size_t n = w->nsteps;

    w->ranks = calloc(w->nranks, sizeof(*w->ranks));
    w->steps = calloc(n + 1, sizeof(*w->steps));
    w->first = calloc(n + 2, sizeof(*w->first));
    w->successors = calloc(2 * n + 1, sizeof(*w->successors));
    w->node_out_ns = calloc(2 * (size_t)w->shape->nnodes, sizeof(double));
    w->heap = calloc(2 * n + 1, sizeof(*w->heap));
    if (!w->ranks || !w->steps || !w->first || !w->successors || !w->node_out_ns || !w->heap) {
        return HALAY_ENOMEM;
    }
    w->node_in_ns = w->node_out_ns + w->shape->nnodes;
    return 0;
}

static int count_steps(const halay_plan_t *const plans[], uint32_t nranks, uint32_t *nsteps)
{
    uint64_t n = 0;

    for (uint32_t r = 0; r < nranks; r++) {
        n += plans[r]->nsteps;
        if (plans[r]->blocks != plans[0]->blocks) {
            return HALAY_EPLAN;
        }
    }
    *nsteps = (uint32_t)n;
    return n > HALAY_COST_STEPS_MAX ? HALAY_EUNSUPPORTED : 0;
}

/* What a call that is staged as a whole takes for its copies; 0 for others. */
static double staged_ns(const struct walk *w, const halay_question_t *q)
{
    int moves = 0, block_in, block_out;
    uint64_t block = q->count * q->element_bytes, whole = block * w->nranks;

    if (q->direct && !halay_planner_indirect(w->plans[0]->planner, w->nranks, w->shape->nnodes,
                                             w->shape->smallest != w->shape->largest)) {
        return 0;
    }
    for (uint32_t i = 0; q->apart && i < w->nsteps; i++) {
        moves |= step_of(w, i)->kind == HALAY_STEP_SEND && bytes_of(w, i) > 0;
    }
    if (!moves || has_stage(w->plans[0])) {
        return 0;
    }
    block_in = q->collective == HALAY_ALLGATHER || q->collective == HALAY_GATHER || is_whole(q);
    block_out =
        q->collective == HALAY_REDUCE_SCATTER || q->collective == HALAY_SCATTER || is_whole(q);
    return 2 * w->model->stage_latency_ns +
           (double)((block_in ? block : whole) + (block_out ? block : whole)) *
               w->model->stage_byte_ns;
}

static void report(const struct walk *w, const halay_question_t *q, halay_cost_t *cost)
{
    cost->predicted_ns = w->model->call_ns + w->end_ns + staged_ns(w, q);
    cost->messages = w->messages;
    cost->rounds = w->rounds;
    cost->busiest_bytes = 0;
    for (uint32_t r = 0; r < w->nranks; r++) {
        uint64_t most =
            w->ranks[r].sent > w->ranks[r].received ? w->ranks[r].sent : w->ranks[r].received;
        cost->busiest_bytes = most > cost->busiest_bytes ? most : cost->busiest_bytes;
    }
}

int halay_plan_cost(const halay_plan_t *const plans[], const halay_question_t *question,
                    const halay_model_t *model, halay_cost_t *cost)
{
    if (!plans || !question || !question->shape || !model || model->size < sizeof(*model) ||
        !cost || cost->size < sizeof(*cost)) {
        return HALAY_EINVAL;
    }
    struct walk w = {.plans = plans, .model = model, .shape = question->shape};
    w.nranks = question->shape->nranks;
    int rc = count_steps(plans, w.nranks, &w.nsteps);
    if (rc < 0) {
        return rc;
    }
    lay_out(&w, question, plans[0]->blocks);
    rc = allocate(&w);
    if (rc == 0) {
        rc = number_steps(&w);
    }
    if (rc == 0) {
        rc = pair_messages(&w);
    }
    if (rc == 0) {
        rc = join_groups(&w);
    }
    if (rc == 0) {
        play(&w);
        rc = w.ndone == w.nsteps ? 0 : HALAY_EPLAN;
    }
    if (rc == 0) {
        report(&w, question, cost);
    }
    clear(&w);
    return rc;
}

int halay_planner_cost(uint32_t planner, const halay_question_t *question,
                       const halay_model_t *model, halay_cost_t *cost)
{
    if (!question || !question->shape) {
        return HALAY_EINVAL;
    }
    uint32_t nranks = question->shape->nranks;
    uint64_t nsteps = 0;
    halay_plan_t **plans = calloc(nranks, sizeof(*plans));
    int rc = plans ? 0 : HALAY_ENOMEM;
    for (uint32_t r = 0; rc == 0 && r < nranks; r++) {
        halay_plan_params_t params = {question->collective, nranks,         r, question->root,
                                      question->in_place,   question->shape};
        rc = halay_plan_make(planner, &params, &plans[r]);
        nsteps += rc == 0 ? plans[r]->nsteps : 0;
        if (rc == 0 && nsteps > HALAY_COST_STEPS_MAX) {
            rc = HALAY_EUNSUPPORTED;
        }
    }
    if (rc == 0) {
        rc = halay_plan_cost((const halay_plan_t *const *)plans, question, model, cost);
    }
    for (uint32_t r = 0; plans && r < nranks; r++) {
        halay_plan_free(plans[r]);
    }
    free(plans);
    return rc;
}
