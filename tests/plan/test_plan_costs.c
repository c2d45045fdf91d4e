/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_costs.c - the planners of reduce, gather, scatter, alltoall, scan and exscan for 1 to
 * 64 ranks and every root: proved, and as costly as docs/algorithms.md says; in a rooted collective
 * whether the root works in place is nobody else's business.
 */
#include "test_plan.h"

struct cost {
    uint64_t messages; /* of all ranks */
    uint64_t sent;     /* blocks, of all ranks */
    uint32_t rounds, depth, slots;
};

enum { CHAIN_BLOCKS = 8, WINDOW = 4 };

static uint32_t log2_up(uint32_t p)
{
    uint32_t rounds = 0;

    while ((1u << rounds) < p) {
        rounds++;
    }
    return rounds;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Sum of the sizes of all subtrees but the root's own, and the largest of them with children. */
static struct cost tree_blocks(uint32_t p)
{
    struct cost c = {0};

    for (uint32_t number = 1; number < p; number++) {
        uint32_t low = number & -number, size = low < p - number ? low : p - number;
        c.sent += size;
        c.slots = size > 1 ? larger(c.slots, size) : c.slots;
    }
    return c;
}

/* One block a message but in the trees and Bruck's algorithm; without the zero-byte messages. */
static struct cost rooted_cost(const halay_planner_info_t *info, uint32_t p, uint32_t root)
{
    uint32_t rounds = log2_up(p), small = root < p - 1 - root ? root : p - 1 - root;
    uint32_t chain = p - 1 - small;

    if (strcmp(info->name, "linear") == 0) {
        return (struct cost){p - 1, p - 1, larger(1, rounds), 0, 0};
    }
    if (info->collective != HALAY_REDUCE) {
        struct cost tree = tree_blocks(p);
        return (struct cost){p - 1, tree.sent, rounds, 0, tree.slots};
    }
    if (strcmp(info->name, "two_stars") == 0) {
        uint32_t mates = (p - 1) / 2; /* of rank 0 */
        uint32_t depth = p > 1 ? (mates + 2) / 3 + 1 : 0;
        return (struct cost){p > 1 ? 2 * p - 1 : 0, p > 1 ? p - 1 + (root > 1) : 0,
                             p > 2 ? 3 : p > 1, depth, p > 1 ? mates + 1 + (root > 1) : 0};
    }
    if (strcmp(info->name, "circulant") == 0) {
        uint64_t sent = (uint64_t)p * (p - 1) + p - 1;
        return (struct cost){sent, sent, rounds + 1, rounds, p - 1};
    }
    if (strcmp(info->name, "chain") == 0) {
        uint64_t sent = (uint64_t)CHAIN_BLOCKS * (p - 1);
        return (struct cost){sent, sent, larger(chain + CHAIN_BLOCKS, rounds), chain, 4};
    }
    return (struct cost){p - 1, p - 1, rounds, log2_up(p - small) + (small > 0), 3};
}

static struct cost other_cost(const halay_planner_info_t *info, uint32_t p, uint32_t in_place)
{
    uint32_t rounds = log2_up(p), exclusive = info->collective == HALAY_EXSCAN;
    uint64_t all = (uint64_t)p * (p - 1), doubling = 0, bruck = 0;

    for (uint32_t i = 0; i < p; i++) {
        bruck += (uint64_t)p * (uint32_t)__builtin_popcount(i);
        doubling += log2_up(i + 1); /* rank i receives from i-1, i-2, i-4 ... */
    }
    if (strcmp(info->name, "pairwise") == 0) {
        uint32_t lockstep = (p - 1 + WINDOW - 1) / WINDOW;
        return (struct cost){all, all, in_place ? p : lockstep, 0, in_place ? WINDOW : 0};
    }
    if (strcmp(info->name, "pairwise_checked") == 0) {
        uint32_t exchange = in_place ? p : (p - 1 + WINDOW - 1) / WINDOW;
        uint64_t messages = all + (uint64_t)p * rounds;
        return (struct cost){messages, all, exchange + rounds, 0, in_place ? WINDOW : 0};
    }
    if (strcmp(info->name, "bruck") == 0) {
        return (struct cost){(uint64_t)p * rounds, bruck, rounds, 0, 2 * p};
    }
    if (strcmp(info->name, "chain") == 0) {
        uint64_t sent = (uint64_t)CHAIN_BLOCKS * (p - 1);
        return (struct cost){sent, sent, larger(p - 1 + CHAIN_BLOCKS, rounds),
                             p - 1 - (exclusive && p > 1), exclusive ? 4 : 2};
    }
    return (struct cost){doubling, doubling, rounds, rounds - (exclusive && (p == 2 || p == 3)),
                         exclusive ? 4 : 3};
}

static uint64_t blocks_sent(const struct plans *all)
{
    uint64_t sent = 0;

    for (uint32_t rank = 0; rank < all->nranks; rank++) {
        const halay_plan_t *plan = all->plan[rank];
        for (uint32_t i = 0; i < plan->nsteps; i++) {
            if (plan->steps[i].kind == HALAY_STEP_SEND) {
                sent += plan->operands[plan->steps[i].operand].count;
            }
        }
    }
    return sent;
}

static void check_same_but_root(const struct plans *all, uint32_t planner, uint32_t root)
{
    struct plans other;

    make_plans(&other, planner, all->nranks, root, 0);
    for (uint32_t rank = 0; rank < all->nranks; rank++) {
        halay_plan_t *plan = other.plan[rank];
        plan->params.in_place = 1;
        CHECK(rank == root || halay_plan_hash(plan) == halay_plan_hash(all->plan[rank]),
              "planner %u p=%u root=%u: rank %u has another plan in place", planner, all->nranks,
              root, rank);
    }
    free_plans(&other);
}

static void check_case(uint32_t planner, uint32_t p, uint32_t root, uint32_t in_place)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    int rooted = halay_collective_rooted((halay_collective_t)info->collective);
    struct cost want = rooted ? rooted_cost(info, p, root) : other_cost(info, p, in_place);
    struct plans all;
    halay_proof_t proof;
    char what[128];

    snprintf(what, sizeof(what), "%s %s p=%u root=%u in_place=%u",
             halay_collective_name((halay_collective_t)info->collective), info->name, p, root,
             in_place);
    make_plans(&all, planner, p, root, in_place);
    int result = prove_plans(&all, &proof);
    CHECK(result == 0, "%s: %s", what, proof.reason);
    if (info->collective != HALAY_ALLTOALL && strcmp(info->name, "two_stars") != 0) {
        /* else all hear from all anyway */
        want.messages += (uint64_t)p * log2_up(p);
    }
    CHECK(proof.messages == want.messages, "%s: %llu messages, not %llu", what,
          (unsigned long long)proof.messages, (unsigned long long)want.messages);
    CHECK(blocks_sent(&all) == want.sent, "%s: %llu blocks sent, not %llu", what,
          (unsigned long long)blocks_sent(&all), (unsigned long long)want.sent);
    CHECK(proof.rounds <= want.rounds, "%s: %u rounds, not %u", what, proof.rounds, want.rounds);
    CHECK(proof.reduce_depth == want.depth, "%s: depth %u, not %u", what, proof.reduce_depth,
          want.depth);
    CHECK(proof.scratch_slots <= want.slots, "%s: %u slots, not %u", what, proof.scratch_slots,
          want.slots);
    if (rooted && in_place) {
        check_same_but_root(&all, planner, root);
    }
    free_plans(&all);
}

/* A v form's blocks lie anywhere: no operand in IN or OUT of several blocks, unless it says so. */
static void check_runs(uint32_t planner, uint32_t p, uint32_t in_place)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    struct plans all;

    make_plans(&all, planner, p, 0, in_place);
    for (uint32_t rank = 0; rank < p; rank++) {
        for (uint32_t i = 0; i < all.plan[rank]->noperands; i++) {
            const halay_operand_t *operand = &all.plan[rank]->operands[i];
            CHECK(operand->buffer == HALAY_BUFFER_SCRATCH || operand->count <= 1 ||
                      info->restrictions & HALAY_PLANNER_RUNS,
                  "%s %s p=%u: %u blocks at once",
                  halay_collective_name((halay_collective_t)info->collective), info->name, p,
                  operand->count);
        }
    }
    free_plans(&all);
}

int main(void)
{
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        int rooted = halay_collective_rooted((halay_collective_t)info->collective);

        if (info->collective < HALAY_REDUCE || info->restrictions & HALAY_PLANNER_SHAPE) {
            continue;
        }
        for (uint32_t p = 1; p <= RANKS_MAX; p++) {
            for (uint32_t root = 0; root < (rooted ? p : 1); root++) {
                check_case(planner, p, root, 0);
                check_case(planner, p, root, 1);
            }
            if (info->collective != HALAY_REDUCE && info->collective != HALAY_SCAN &&
                info->collective != HALAY_EXSCAN) {
                check_runs(planner, p, 0);
                check_runs(planner, p, 1);
            }
        }
    }
    return failures != 0;
}
