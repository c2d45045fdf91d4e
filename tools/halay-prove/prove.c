/* SPDX-License-Identifier: Apache-2.0 */
/* prove.c - proves every plan that the planners make, and adds up. */
#include "prove.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALL_ROOTS_RANKS_MAX = 9, ALL_SHAPES_RANKS_MAX = 128, REASONS_MAX = 10 };

typedef struct row {
    uint32_t first, last; /* ranks */
    uint64_t proofs, plans, steps, messages;
    uint32_t rounds, reduce_depth;
    uint64_t refused;
    double seconds;
} row_t;

int hly_plans_make(const hly_case_t *from, halay_plan_t *plans[])
{
    const halay_planner_info_t *info = halay_planner_get(from->planner);
    assert(info != NULL);
    for (uint32_t rank = 0; rank < from->nranks; rank++) {
        const halay_plan_params_t params = {info->collective, from->nranks,   rank,
                                            from->root,       from->in_place, from->shape};
        int rc = halay_plan_make(from->planner, &params, &plans[rank]);
        if (rc != 0) {
            hly_plans_free(plans, rank);
            return rc;
        }
    }
    return 0;
}

void hly_case_print(const hly_case_t *from)
{
    const halay_planner_info_t *info = halay_planner_get(from->planner);
    printf("%s/%s, %u ranks%s%s, root %u, in_place %u",
           halay_collective_name((halay_collective_t)info->collective), info->name, from->nranks,
           *from->nodes ? " on " : "", from->nodes, from->root, from->in_place);
}

int hly_next_shape(hly_shapes_t *shapes, hly_case_t *to)
{
    const halay_planner_info_t *info = halay_planner_get(shapes->planner);
    halay_shape_free(shapes->shape);
    shapes->shape = NULL;
    *to = (hly_case_t){.planner = shapes->planner, .nranks = shapes->nranks, .nodes = ""};
    if (!(info->restrictions & HALAY_PLANNER_SHAPE))
        return shapes->next++ == 0;
    if (shapes->options->shape != NULL) {
        to->shape = shapes->options->shape;
        to->nodes = "these nodes";
        return shapes->next++ == 0 && to->shape->nranks == to->nranks;
    }
    while (shapes->next < hly_shape_kinds()) {
        uint32_t kind = shapes->next++;
        if (shapes->nranks > ALL_SHAPES_RANKS_MAX &&
            (kind + shapes->nranks + shapes->options->seed) % 4 != 0)
            continue;
        int rc = hly_shape_of_kind(kind, shapes->nranks, &shapes->shape);
        to->shape = shapes->shape;
        to->nodes = hly_shape_kind_name(kind);
        if (rc == 0)
            return 1;
    }
    return 0;
}

void hly_plans_free(halay_plan_t *plans[], uint32_t nranks)
{
    for (uint32_t rank = 0; rank < nranks; rank++) {
        halay_plan_free(plans[rank]);
        plans[rank] = NULL;
    }
}

int hly_planner_wanted(const hly_options_t *options, const halay_planner_info_t *info)
{
    if (options->planner == NULL || strcmp(options->planner, info->name) == 0)
        return 1;
    const char *collective = halay_collective_name((halay_collective_t)info->collective);
    size_t length = strlen(collective);
    return strncmp(options->planner, collective, length) == 0 && options->planner[length] == '/' &&
           strcmp(options->planner + length + 1, info->name) == 0;
}

int hly_planner_takes(const halay_planner_info_t *info, uint32_t nranks)
{
    return !(info->restrictions & HALAY_PLANNER_POWER_OF_TWO) || (nranks & (nranks - 1)) == 0;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void complain(row_t *row, const hly_case_t *from, const char *reason)
{
    if (row->refused++ < REASONS_MAX) {
        printf("FAILED ");
        hly_case_print(from);
        printf(": %s\n", reason);
    }
}

/* In place is the root's own affair: the plans of the others have to be the same either way. */
static const char *check_in_place(const hly_case_t *from, halay_plan_t *plans[])
{
    const halay_planner_info_t *info = halay_planner_get(from->planner);
    if (info->collective == HALAY_BROADCAST || !from->in_place ||
        !halay_collective_rooted((halay_collective_t)info->collective))
        return NULL;
    const char *why = NULL;
    for (uint32_t rank = 0; rank < from->nranks && why == NULL; rank++) {
        const halay_plan_params_t params = {info->collective, from->nranks, rank, from->root, 0,
                                            from->shape};
        halay_plan_t *plan = NULL;
        if (rank == from->root)
            continue;
        if (halay_plan_make(from->planner, &params, &plan) != 0)
            return "no plan out of place";
        const halay_plan_t *other = plans[rank];
        if (plan->blocks != other->blocks || plan->scratch_slots != other->scratch_slots ||
            plan->nsteps != other->nsteps || plan->noperands != other->noperands ||
            memcmp(plan->steps, other->steps, plan->nsteps * sizeof *plan->steps) != 0 ||
            memcmp(plan->operands, other->operands, plan->noperands * sizeof *plan->operands) != 0)
            why = "a rank that is not the root has another plan in place";
        halay_plan_free(plan);
    }
    return why;
}

static void prove_one(row_t *row, const hly_case_t *from, halay_plan_t *plans[])
{
    if (plans == NULL) {
        row->proofs++;
        row->plans += from->nranks;
        return;
    }
    int rc = hly_plans_make(from, plans);
    if (rc != 0) {
        complain(row, from, halay_strerror(rc));
        return;
    }
    halay_proof_t proof;
    memset(&proof, 0, sizeof proof);
    proof.size = sizeof proof;
    rc = halay_plan_prove((const halay_plan_t *const *)plans, from->nranks, &proof);
    const char *differs = check_in_place(from, plans);
    if (rc != 0) {
        complain(row, from, proof.reason);
    } else if (differs != NULL) {
        complain(row, from, differs);
    } else {
        row->first = row->first == 0 ? from->nranks : row->first;
        row->last = from->nranks;
        row->proofs++;
        row->plans += from->nranks;
        row->steps += proof.steps;
        row->messages += proof.messages;
        row->rounds = proof.rounds > row->rounds ? proof.rounds : row->rounds;
        row->reduce_depth =
            proof.reduce_depth > row->reduce_depth ? proof.reduce_depth : row->reduce_depth;
    }
    hly_plans_free(plans, from->nranks);
}

/* 1 if this root is to be proved: all of a small communicator, else ends, middle and neighbours. */
static int root_wanted(uint32_t root, uint32_t nranks)
{
    return nranks <= ALL_ROOTS_RANKS_MAX || root <= 1 || root == nranks / 2 || root == nranks - 1;
}

/* plans NULL: counts only. A planner may not turn down what its restrictions allow; what they do
 * not, it must. */
static void prove_case(row_t *row, hly_case_t *from, halay_plan_t *plans[])
{
    const halay_planner_info_t *info = halay_planner_get(from->planner);
    if (!hly_planner_takes(info, from->nranks)) {
        if (plans == NULL)
            return;
        int rc = hly_plans_make(from, plans);
        if (rc != HALAY_EUNSUPPORTED) {
            complain(row, from, "made against its restrictions");
            hly_plans_free(plans, rc == 0 ? from->nranks : 0);
        }
        return;
    }
    int rooted = halay_collective_rooted((halay_collective_t)info->collective);
    for (uint32_t root = 0; root < from->nranks; root++) {
        if ((rooted || root == 0) && root_wanted(root, from->nranks)) {
            from->root = root;
            prove_one(row, from, plans);
        }
    }
}

static void prove_ranks(row_t *row, const hly_options_t *options, uint32_t planner, uint32_t nranks,
                        halay_plan_t *plans[])
{
    hly_shapes_t shapes = {.options = options, .planner = planner, .nranks = nranks};
    hly_case_t from;
    while (hly_next_shape(&shapes, &from))
        for (from.in_place = 0; from.in_place < 2; from.in_place++)
            prove_case(row, &from, plans);
}

static void print_row(const halay_planner_info_t *info, const row_t *row)
{
    char ranks[32];
    snprintf(ranks, sizeof ranks, "%u-%u", row->first, row->last);
    printf("%-18s %-15s %8s %8llu %8llu %11llu %10llu %7u %7u %9.3f\n", info->name,
           halay_collective_name((halay_collective_t)info->collective), ranks,
           (unsigned long long)row->proofs, (unsigned long long)row->plans,
           (unsigned long long)row->steps, (unsigned long long)row->messages, row->rounds,
           row->reduce_depth, row->seconds);
}

static void prove_planner(row_t *row, const hly_options_t *options, uint32_t planner,
                          halay_plan_t *plans[])
{
    double begin = now_s();
    memset(row, 0, sizeof *row);
    for (uint32_t nranks = 1; nranks <= HLY_RANKS_MAX; nranks++)
        if (options->ranks[nranks])
            prove_ranks(row, options, planner, nranks, plans);
    row->seconds = now_s() - begin;
}

static void list(const hly_options_t *options, hly_count_t *count)
{
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        row_t row;
        if (!hly_planner_wanted(options, info))
            continue;
        prove_planner(&row, options, planner, NULL);
        printf("%s %s %llu %llu\n", halay_collective_name((halay_collective_t)info->collective),
               info->name, (unsigned long long)row.proofs, (unsigned long long)row.plans);
        count->passed += row.proofs;
    }
}

void hly_prove(const hly_options_t *options, hly_count_t *count)
{
    if (options->list) {
        list(options, count);
        return;
    }
    printf("seed %llu\n", (unsigned long long)options->seed);
    halay_plan_t **plans = calloc(HLY_RANKS_MAX, sizeof *plans);
    if (plans == NULL) {
        printf("FAILED: no memory\n");
        count->failed++;
        return;
    }
    printf("%-18s %-15s %8s %8s %8s %11s %10s %7s %7s %9s\n", "planner", "collective", "ranks",
           "proofs", "plans", "steps", "messages", "rounds", "reduces", "seconds");
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        if (!hly_planner_wanted(options, info))
            continue;
        row_t row;
        prove_planner(&row, options, planner, plans);
        print_row(info, &row);
        fflush(stdout);
        count->passed += row.proofs;
        count->failed += row.refused;
    }
    printf("rounds: the longest chain of messages; reduces: the most on a path to an output\n");
    free(plans);
}
