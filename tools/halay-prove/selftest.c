/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.c - is the oracle any good? Each plan by hand is run in every order and, apart from
 * that, in adversarial orders only: both have to find what is known. The prover has to accept those
 * that are right under both bufferings, and no others.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "handmade.h"
#include "prove.h"

enum { OPERANDS_EACH = 4 };

typedef struct book {
    halay_plan_t plans[HLY_ORACLE_RANKS_MAX];
    const halay_plan_t *list[HLY_ORACLE_RANKS_MAX];
    halay_step_t steps[HLY_HANDMADE_STEPS_MAX];
    halay_operand_t operands[HLY_HANDMADE_STEPS_MAX * OPERANDS_EACH];
    halay_group_t groups[HLY_ORACLE_RANKS_MAX][4];
    halay_member_t members[HLY_ORACLE_RANKS_MAX][8];
} book_t;

/* A planner of the collective with the order, or for the blocks, that are wanted. */
static uint32_t planner_of(const hly_handmade_t *from)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        uint32_t in_order = !(info->restrictions & HALAY_PLANNER_COMMUTATIVE);
        uint32_t equal = (info->restrictions & HALAY_PLANNER_EQUAL) != 0;
        uint32_t group = (info->restrictions & HALAY_PLANNER_GROUP) != 0;
        uint32_t series = (info->restrictions & HALAY_PLANNER_RELAXED) != 0;
        int reduces = halay_collective_reduces((halay_collective_t)info->collective);
        if (info->collective == from->collective && series == from->series &&
            group == (from->ngroups > 0) && !(info->restrictions & HALAY_PLANNER_STAGE) &&
            (found == UINT32_MAX || (reduces ? in_order == from->in_order : equal == from->equal)))
            found = planner;
    }
    return found;
}

/* A rank declares what it uses, but no more than the case has. */
static uint32_t slots_of(const halay_plan_t *plan, uint32_t most)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < plan->noperands; i++) {
        const halay_operand_t *operand = &plan->operands[i];
        if (operand->buffer == HALAY_BUFFER_SCRATCH && operand->slot + operand->count > used)
            used = operand->slot + operand->count;
    }
    return used < most ? used : most;
}

static void open_book(book_t *book, const hly_handmade_t *from)
{
    memset(book, 0, sizeof *book);
    uint32_t at = 0;
    for (uint32_t rank = 0; rank < from->nranks; rank++) {
        halay_plan_t *plan = &book->plans[rank];
        plan->params =
            (halay_plan_params_t){from->collective, from->nranks, rank, from->root, from->in_place};
        plan->planner = planner_of(from);
        plan->blocks = from->blocks;
        plan->ngroups = from->ngroups;
        plan->nmembers = from->ngroups > 0 ? sizeof from->members / sizeof from->members[0] : 0;
        memcpy(book->groups[rank], from->groups, sizeof from->groups);
        memcpy(book->members[rank], from->members, sizeof from->members);
        plan->groups = book->groups[rank];
        plan->members = book->members[rank];
        plan->steps = book->steps + at;
        plan->operands = book->operands + (size_t)at * OPERANDS_EACH;
        for (; at < HLY_HANDMADE_STEPS_MAX && from->steps[at].kind != 0 &&
               from->steps[at].rank == rank;
             at++) {
            const hly_handmade_step_t *row = &from->steps[at];
            plan->steps[plan->nsteps] =
                (halay_step_t){row->kind, row->noperands,  row->peer,
                               row->edge, plan->noperands, {row->dep[0], row->dep[1]}};
            memcpy(plan->operands + plan->noperands, row->operands,
                   row->noperands * sizeof row->operands[0]);
            plan->noperands += row->noperands;
            plan->nsteps++;
        }
        plan->scratch_slots = slots_of(plan, from->scratch_slots);
        book->list[rank] = plan;
    }
    assert(at == HLY_HANDMADE_STEPS_MAX || from->steps[at].kind == 0);
}

/* 1 if the oracle finds what is known; states 0: without the search. */
static int check_oracle(const hly_handmade_t *from, const book_t *book, uint32_t buffering,
                        uint32_t states)
{
    hly_oracle_limits_t limits = HLY_ORACLE_LIMITS_INIT;
    hly_outcome_t outcome;
    hly_verdict_t wanted = buffering == HLY_ZERO_BUFFERING ? from->zero : from->eager;
    limits.buffering = buffering;
    limits.states = states;
    int rc = hly_oracle_run(book->list, from->nranks, &limits, &outcome);
    if (rc == 0 && outcome.verdict == wanted &&
        (states == 0 || wanted != HLY_RIGHT || outcome.exhaustive))
        return 1;
    printf("FAILED %s, %s buffering, %s: %s, not %s: %s\n", from->name,
           buffering == HLY_ZERO_BUFFERING ? "zero" : "eager",
           states == 0 ? "adversarial orders" : "every order", hly_verdict_name(outcome.verdict),
           hly_verdict_name(wanted), outcome.why);
    return 0;
}

static int check_prover(const hly_handmade_t *from, const book_t *book)
{
    halay_proof_t proof;
    memset(&proof, 0, sizeof proof);
    proof.size = sizeof proof;
    int right = from->zero == HLY_RIGHT && from->eager == HLY_RIGHT;
    int proved = halay_plan_prove(book->list, from->nranks, &proof) == 0;
    printf("%-32s %-6s %-6s %s%s\n", from->name, hly_verdict_name(from->zero),
           hly_verdict_name(from->eager),
           proved ? "proved" : "refused: ", proved ? "" : proof.reason);
    if (right != proved)
        printf("FAILED %s: the prover is wrong\n", from->name);
    return right == proved;
}

void hly_selftest(hly_count_t *count)
{
    printf("%-32s %-6s %-6s %s\n", "plans", "zero", "eager", "prover");
    for (uint32_t i = 0; i < hly_handmade_count; i++) {
        const hly_handmade_t *from = &hly_handmade[i];
        book_t book;
        open_book(&book, from);
        int good = check_prover(from, &book);
        for (uint32_t states = 0; states <= 20000; states += 20000) {
            good &= check_oracle(from, &book, HLY_ZERO_BUFFERING, states);
            good &= check_oracle(from, &book, HLY_EAGER_BUFFERING, states);
        }
        count->passed += (uint64_t)good;
        count->failed += (uint64_t)!good;
    }
}
