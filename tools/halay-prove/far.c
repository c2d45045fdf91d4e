/* SPDX-License-Identifier: Apache-2.0 */
/*
 * far.c - plans for up to 100,000 ranks, where all of them together are too many to prove. One
 * rank's plan is made, which has to cost what its own steps cost, and some of its messages are
 * looked for in the plans of their peers, which are made for that.
 */
#include "prove.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NEAR_RANKS = 512, FAR_RANKS = 100000, MESSAGES_EACH = 4 };
/* A step takes about 20 ns to make, a member of a group about 10; more than this is no longer in
 * proportion. */
enum { STEP_NS_MAX = 2000, MEMBER_NS_MAX = 1000, PLAN_NS_MAX = 20000000 };

typedef struct far_row {
    uint32_t cases, too_long;
    uint32_t least_ranks, most_ranks;
    uint32_t most_steps, most_slots;
    uint64_t steps, messages;
    double ns;
    uint64_t wrong;
} far_row_t;

/* The processor's: what else runs on the machine is no cost of a plan. */
static double spent_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void complain(far_row_t *row, const hly_case_t *from, uint32_t rank, const char *what)
{
    printf("FAILED ");
    hly_case_print(from);
    printf(", rank %u: %s\n", rank, what);
    row->wrong++;
}

static int make(const hly_case_t *from, uint32_t rank, halay_plan_t **plan)
{
    const halay_planner_info_t *info = halay_planner_get(from->planner);
    const halay_plan_params_t params = {info->collective, from->nranks,   rank,
                                        from->root,       from->in_place, from->shape};
    return halay_plan_make(from->planner, &params, plan);
}

/* Steps of `plan` that are the other end of this step of `rank`. */
static uint32_t other_ends(const halay_plan_t *plan, uint32_t rank, const halay_step_t *step,
                           const halay_operand_t *operand)
{
    uint32_t found = 0;
    uint32_t kind = step->kind == HALAY_STEP_SEND ? HALAY_STEP_RECV : HALAY_STEP_SEND;
    int any_first = plan->params.collective == HALAY_ALLTOALL || operand->count == 0;
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *other = &plan->steps[i];
        if (other->kind != kind || other->peer != rank || other->edge != step->edge)
            continue;
        const halay_operand_t *theirs = &plan->operands[other->operand];
        found += theirs->count == operand->count && (any_first || theirs->first == operand->first);
    }
    return found;
}

static void check_message(far_row_t *row, const hly_case_t *from, const halay_plan_t *plan,
                          uint32_t index)
{
    const halay_step_t *step = &plan->steps[index];
    uint32_t rank = plan->params.rank;
    halay_plan_t *peer = NULL;
    int rc = make(from, step->peer, &peer);
    if (rc == HALAY_EUNSUPPORTED) { /* a leader's plan is longer than its members' */
        row->too_long++;
        return;
    }
    if (rc != 0) {
        complain(row, from, step->peer, halay_strerror(rc));
        return;
    }
    if (peer->blocks != plan->blocks ||
        other_ends(peer, rank, step, &plan->operands[step->operand]) != 1) {
        char text[96];
        snprintf(text, sizeof text, "step %u has not one other end on rank %u", index, step->peer);
        complain(row, from, rank, text);
    }
    row->messages++;
    halay_plan_free(peer);
}

static int is_message(const halay_step_t *step)
{
    return step->kind == HALAY_STEP_SEND || step->kind == HALAY_STEP_RECV;
}

static void check_messages(far_row_t *row, const hly_case_t *from, const halay_plan_t *plan,
                           uint64_t *chance)
{
    for (uint32_t found = 0; found < MESSAGES_EACH && plan->nsteps > 0; found++) {
        uint32_t index = hly_random_below(chance, plan->nsteps), left = plan->nsteps;
        for (; left > 0 && !is_message(&plan->steps[index]); left--)
            index = (index + 1) % plan->nsteps;
        if (left > 0)
            check_message(row, from, plan, index);
    }
}

static double allowed_ns(const halay_plan_t *plan)
{
    return PLAN_NS_MAX + (double)STEP_NS_MAX * plan->nsteps +
           (double)MEMBER_NS_MAX * plan->nmembers;
}

static void try_rank(far_row_t *row, const hly_case_t *from, uint32_t rank, uint64_t *chance)
{
    halay_plan_t *plan = NULL;
    double begin = spent_ns();
    int rc = make(from, rank, &plan);
    double ns = spent_ns() - begin;
    if (rc == HALAY_EUNSUPPORTED) {
        row->too_long++;
        return;
    }
    if (rc != 0) {
        complain(row, from, rank, halay_strerror(rc));
        return;
    }
    if (ns > allowed_ns(plan))
        complain(row, from, rank, "took longer than its steps and members are worth");
    row->cases++;
    row->least_ranks =
        row->cases == 1 || from->nranks < row->least_ranks ? from->nranks : row->least_ranks;
    row->most_ranks = from->nranks > row->most_ranks ? from->nranks : row->most_ranks;
    row->most_steps = plan->nsteps > row->most_steps ? plan->nsteps : row->most_steps;
    row->most_slots = plan->scratch_slots > row->most_slots ? plan->scratch_slots : row->most_slots;
    row->steps += plan->nsteps;
    row->ns += ns;
    check_messages(row, from, plan, chance);
    halay_plan_free(plan);
}

/* Nodes of 1 to 200 ranks, all as large but the last; sometimes dealt out in turn. */
static int draw_shape(uint32_t nranks, uint64_t *chance, halay_shape_t **shape)
{
    uint32_t *node = calloc(nranks, sizeof *node);
    uint32_t size = 1 + hly_random_below(chance, 200), cyclic = hly_random_below(chance, 3) == 0;
    uint32_t nnodes = (nranks + size - 1) / size;
    if (node == NULL)
        return HALAY_ENOMEM;
    for (uint32_t rank = 0; rank < nranks; rank++)
        node[rank] = cyclic ? rank % nnodes : rank / size;
    int rc = halay_shape_make(node, nranks, shape);
    free(node);
    return rc;
}

static void try_case(far_row_t *row, uint32_t planner, uint64_t *chance)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    uint32_t nranks = NEAR_RANKS + 1 + hly_random_below(chance, FAR_RANKS - NEAR_RANKS);
    halay_shape_t *shape = NULL;
    if (!hly_planner_takes(info, nranks))
        nranks = 1u << (10 + hly_random_below(chance, 7));
    hly_case_t from = {.planner = planner, .nranks = nranks, .nodes = ""};
    from.in_place = hly_random_below(chance, 2);
    if (halay_collective_rooted((halay_collective_t)info->collective))
        from.root = hly_random_below(chance, nranks);
    if (info->restrictions & HALAY_PLANNER_SHAPE) {
        if (draw_shape(nranks, chance, &shape) != 0) {
            complain(row, &from, 0, "no memory for a shape");
            return;
        }
        from.shape = shape;
        from.nodes = "nodes";
    }
    try_rank(row, &from, from.root, chance);
    try_rank(row, &from, hly_random_below(chance, nranks), chance);
    halay_shape_free(shape);
}

void hly_prove_far(const hly_options_t *options, hly_count_t *count)
{
    printf("\nplans of single ranks, %u numbers of ranks from %u to %u each, seed %llu\n"
           "%-18s %-15s %13s %8s %9s %9s %8s %9s\n",
           options->far, NEAR_RANKS + 1, FAR_RANKS, (unsigned long long)options->seed, "planner",
           "collective", "ranks", "plans", "too long", "steps<=", "ns/step", "messages");
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        uint64_t chance = options->seed * 1000003u + planner;
        far_row_t row;
        memset(&row, 0, sizeof row);
        if (!hly_planner_wanted(options, info))
            continue;
        for (uint32_t i = 0; i < options->far; i++)
            try_case(&row, planner, &chance);
        char ranks[32];
        snprintf(ranks, sizeof ranks, "%u-%u", row.least_ranks, row.most_ranks);
        printf("%-18s %-15s %13s %8u %9u %9u %8.1f %9llu\n", info->name,
               halay_collective_name((halay_collective_t)info->collective), ranks, row.cases,
               row.too_long, row.most_steps, row.steps > 0 ? row.ns / (double)row.steps : 0,
               (unsigned long long)row.messages);
        fflush(stdout);
        count->passed += row.cases;
        count->failed += row.wrong;
    }
    printf("too long: more than %u steps, which is refused; messages: sought in the plan of the "
           "peer\n",
           HALAY_PLAN_STEPS_MAX);
}
