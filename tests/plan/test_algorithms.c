/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_algorithms.c - planners that came later, for 1 to 64 ranks: proved, and as cheap as
 * docs/algorithms.md says. And of all planners: who hands on runs of several blocks says so.
 */
#include "test_plan.h"

/* Of the plans of all ranks; "most" are bounds, the others exact. */
struct cost {
    uint64_t messages, sent, sent_by_one_most;
    uint32_t rounds_most, depth_most, slots_most;
};

static uint32_t log_up(uint32_t p, uint32_t base)
{
    uint32_t rounds = 0;

    for (uint64_t n = 1; n < p; n *= base) {
        rounds++;
    }
    return rounds;
}

/* Messages of a rank by which all hear from all, in radix four. */
static uint64_t hear_messages(uint32_t p)
{
    uint64_t messages = 0;

    for (uint64_t unit = 1; unit < p; unit *= 4) {
        uint64_t all = (p - 1) / unit;
        messages += all < 3 ? all : 3;
    }
    return messages;
}

static struct cost one_shot(uint32_t p)
{
    uint64_t all = (uint64_t)p * (p - 1);
    return (struct cost){all, all, p - 1, p > 1, (p + 1) / 3, p - 1};
}

static struct cost recursive_multiplying(uint32_t p)
{
    uint32_t power = 1, a = 0;
    for (; power * 4 <= p; power *= 4) {
        a++;
    }
    uint32_t m = p / power, q = m * power, folded = p - q, fold = folded > 0;
    uint32_t each = 3 * a + m - 1, rounds = a + (m > 1);
    uint64_t all = (uint64_t)q * each + 2 * folded;
    return (struct cost){all, all, each + fold, rounds + 2 * fold, rounds + fold, each + fold};
}

static struct cost halving_doubling(uint32_t p)
{
    uint32_t l = 0, q = 1;
    for (; q * 2 <= p; q *= 2) {
        l++;
    }
    uint32_t folded = p - q, fold = folded > 0;
    return (struct cost){.messages = 2ull * q * l + 2 * folded,
                         .sent = 2ull * q * (q - 1) + 2ull * folded * q,
                         .sent_by_one_most = 2 * (q - 1) + fold * q,
                         .rounds_most = 2 * l + 2 * fold,
                         .depth_most = l + fold,
                         .slots_most = q - 1 + fold};
}

static struct cost double_tree(uint32_t p)
{
    uint32_t l = log_up(p, 2), pieces = 4 * (l ? l : 1), height = p == 1 ? 0 : l + 1;
    uint64_t all = 4ull * pieces * (p - 1);
    return (struct cost){all, all, 4 * pieces, 2 * height + l, height, 8};
}

static struct cost chain(uint32_t p)
{
    uint32_t pieces = 4 * p < 16 ? 16 : 4 * p > 128 ? 128 : 4 * p;
    uint64_t all = (uint64_t)pieces * (p - 1), hear = log_up(p, 4);
    return (struct cost){
        all + p * hear_messages(p), all, pieces, (uint32_t)(p - 1 > hear ? p - 1 : hear), 0, 0};
}

static struct cost scatter_allgather(uint32_t p)
{
    uint64_t scattered = 0;
    for (uint32_t number = 1; number < p; number++) {
        uint32_t bit = number & -number;
        scattered += p - number < bit ? p - number : bit;
    }
    return (struct cost){.messages = p - 1 + (uint64_t)p * log_up(p, 2) + (p > 1 ? p : 0),
                         .sent = scattered + (uint64_t)p * (p - 1),
                         .sent_by_one_most = 2ull * (p - 1),
                         .rounds_most = 2 * log_up(p, 2)};
}

static struct cost knomial(uint32_t p)
{
    uint64_t children = 3ull * log_up(p, 4);
    return (struct cost){p - 1 + p * hear_messages(p), p - 1, children, log_up(p, 4), 0, 0};
}

static struct cost on_a_dissemination(uint32_t p)
{
    uint32_t rounds = log_up(p, 4);
    return (struct cost){p * hear_messages(p), p - 1, 3ull * rounds, rounds, 0, 0};
}

static struct cost all_at_once(uint32_t p)
{
    uint64_t all = (uint64_t)p * (p - 1);
    return (struct cost){all, all, p - 1, p > 1, 0, 0};
}

static struct cost star(uint32_t p)
{
    return (struct cost){.messages = 2ull * (p - 1),
                         .sent = p - 1,
                         .sent_by_one_most = p - 1,
                         .rounds_most = p > 1 ? 2 : 0};
}

static struct cost star_allreduce(uint32_t p)
{
    struct cost cost = star(p);
    cost.sent *= 2;
    cost.depth_most = (p + 1) / 3;
    cost.slots_most = p - 1;
    return cost;
}

static struct cost star_barrier(uint32_t p)
{
    struct cost cost = star(p);
    cost.sent = cost.sent_by_one_most = 0;
    return cost;
}

static struct cost two_stars_barrier(uint32_t p)
{
    struct cost cost = star_barrier(p);
    cost.rounds_most = p > 2 ? 3 : p > 1;
    return cost;
}

static struct cost two_stars_allreduce(uint32_t p)
{
    struct cost cost = two_stars_barrier(p);
    const uint32_t members = (p - 1) / 2; /* of rank 0 */
    cost.sent = cost.messages;
    cost.sent_by_one_most = p > 1 ? members + 1 : 0;
    cost.depth_most = (members + 2) / 3 + (p > 1);
    cost.slots_most = p > 1 ? members + 1 : 0;
    return cost;
}

/* A root that is not rank 0 sends one more (check_case). */
static struct cost star_broadcast(uint32_t p)
{
    return star(p);
}

static struct cost flat(uint32_t p)
{
    return (struct cost){p - 1, p - 1, p - 1, p > 1, 0, 0};
}

static struct cost star_allgather(uint32_t p)
{
    struct cost cost = star(p);
    cost.sent = (uint64_t)(p - 1) * (p + 1);
    cost.sent_by_one_most = p > 1 ? (uint64_t)p * (p - 1) : 0;
    return cost;
}

static struct cost posted_broadcast(uint32_t p)
{
    return (struct cost){5ull * (p - 1), 4ull * (p - 1), 4ull * (p - 1), p > 1 ? 2 : 0, 0,
                         p > 1 ? 4 : 0};
}

static struct cost sliced_posted_broadcast(uint32_t p)
{
    uint32_t slices = p <= 8 ? 15 : 16;
    uint64_t sent = (uint64_t)slices * (p - 1);
    return (struct cost){sent + p - 1, sent, sent, p > 1 ? 2 : 0, 0, p > 1 ? slices : 0};
}

static struct cost gather_in_log_rounds(uint32_t p)
{
    uint64_t rounds = log_up(p, 2);
    return (struct cost){p * rounds, (uint64_t)p * (p - 1), p - 1, (uint32_t)rounds, 0, 0};
}

static struct cost pairwise(uint32_t p)
{
    uint64_t all = (uint64_t)p * (p - 1);
    return (struct cost){all, all, p - 1, p / 6 + 1, (p + 1) / 3 + 1, 7};
}

static struct cost dissemination_by_four(uint32_t p)
{
    return (struct cost){.messages = p * hear_messages(p), .rounds_most = log_up(p, 4)};
}

static const struct {
    halay_collective_t collective;
    const char *name;
    struct cost (*cost)(uint32_t p);
} algorithms[] = {
    {HALAY_ALLREDUCE, "one_shot", one_shot},
    {HALAY_ALLREDUCE, "recursive_multiplying", recursive_multiplying},
    {HALAY_ALLREDUCE, "halving_doubling", halving_doubling},
    {HALAY_ALLREDUCE, "double_tree", double_tree},
    {HALAY_BROADCAST, "chain", chain},
    {HALAY_BROADCAST, "scatter_allgather", scatter_allgather},
    {HALAY_BROADCAST, "knomial", knomial},
    {HALAY_BROADCAST, "dissemination_by_four", on_a_dissemination},
    {HALAY_ALLGATHER, "one_shot", all_at_once},
    {HALAY_ALLREDUCE, "star", star_allreduce},
    {HALAY_ALLGATHER, "star", star_allgather},
    {HALAY_BARRIER, "star", star_barrier},
    {HALAY_ALLREDUCE, "two_stars", two_stars_allreduce},
    {HALAY_BARRIER, "two_stars", two_stars_barrier},
    {HALAY_ALLGATHER, "bruck", gather_in_log_rounds},
    {HALAY_ALLGATHER, "recursive_doubling", gather_in_log_rounds},
    {HALAY_REDUCE_SCATTER, "pairwise", pairwise},
    {HALAY_BARRIER, "dissemination_by_four", dissemination_by_four},
    {HALAY_BROADCAST, "posted", posted_broadcast},
    {HALAY_BROADCAST, "star", star_broadcast},
    {HALAY_BROADCAST, "flat", flat},
    {HALAY_BROADCAST, "sliced_posted", sliced_posted_broadcast},
};

static uint64_t blocks_sent(const halay_plan_t *plan)
{
    uint64_t sent = 0;

    for (uint32_t i = 0; i < plan->nsteps; i++) {
        if (plan->steps[i].kind == HALAY_STEP_SEND) {
            sent += plan->operands[plan->steps[i].operand].count;
        }
    }
    return sent;
}

static void check_case(size_t which, uint32_t planner, uint32_t p, uint32_t root, uint32_t in_place)
{
    const char *name = algorithms[which].name;
    struct cost want = algorithms[which].cost(p);
    want.messages += root != 0 && algorithms[which].cost == star_broadcast;
    struct plans all;
    halay_proof_t proof;
    uint64_t sent = 0, most = 0;

    make_plans(&all, planner, p, root, in_place);
    int result = prove_plans(&all, &proof);
    CHECK(result == 0, "%s p=%u root=%u in_place=%u: %s", name, p, root, in_place, proof.reason);
    for (uint32_t rank = 0; rank < p; rank++) {
        uint64_t mine = blocks_sent(all.plan[rank]);
        sent += mine;
        most = mine > most ? mine : most;
    }
    CHECK(proof.messages == want.messages, "%s p=%u: %llu messages, not %llu", name, p,
          (unsigned long long)proof.messages, (unsigned long long)want.messages);
    CHECK(sent == want.sent, "%s p=%u: %llu blocks sent, not %llu", name, p,
          (unsigned long long)sent, (unsigned long long)want.sent);
    CHECK(most <= want.sent_by_one_most, "%s p=%u: %llu blocks sent by one rank", name, p,
          (unsigned long long)most);
    CHECK(proof.rounds <= want.rounds_most, "%s p=%u: %u rounds", name, p, proof.rounds);
    CHECK(proof.reduce_depth <= want.depth_most, "%s p=%u: depth %u", name, p, proof.reduce_depth);
    CHECK(proof.scratch_slots <= want.slots_most, "%s p=%u: %u slots", name, p,
          proof.scratch_slots);
    free_plans(&all);
}

/* All roots of few ranks; of many the ends, the middle and their neighbours. */
static int root_wanted(uint32_t root, uint32_t p)
{
    return p <= 9 || root <= 1 || root == p / 2 || root == p - 1;
}

static void test_costs(void)
{
    for (size_t which = 0; which < sizeof(algorithms) / sizeof(algorithms[0]); which++) {
        uint32_t planner = find_planner(algorithms[which].collective, algorithms[which].name);
        int rooted = algorithms[which].collective == HALAY_BROADCAST;

        for (uint32_t p = 1; p <= RANKS_MAX; p++) {
            for (uint32_t root = 0; root < (rooted ? p : 1); root++) {
                for (uint32_t in_place = 0; in_place < 2 && root_wanted(root, p); in_place++) {
                    if (planner_takes(planner, p, in_place)) {
                        check_case(which, planner, p, root, in_place);
                    }
                }
            }
        }
    }
}

/* Every rank is inside one tree at most: nobody sums, or sends down, for both. */
static void test_double_tree_shares_work(void)
{
    uint32_t planner = find_planner(HALAY_ALLREDUCE, "double_tree");

    for (uint32_t p = 2; p <= RANKS_MAX; p++) {
        struct plans all;
        make_plans(&all, planner, p, 0, 0);
        for (uint32_t rank = 0; rank < p; rank++) {
            const halay_plan_t *plan = all.plan[rank];
            uint32_t sums = 0;
            for (uint32_t i = 0; i < plan->nsteps; i++) {
                sums += plan->steps[i].kind == HALAY_STEP_REDUCE;
            }
            CHECK(sums <= plan->blocks / 2, "p=%u rank %u: %u sums", p, rank, sums);
        }
        free_plans(&all);
    }
}

static int names_a_run(const halay_plan_t *plan)
{
    for (uint32_t i = 0; i < plan->noperands; i++) {
        if (plan->operands[i].buffer != HALAY_BUFFER_SCRATCH && plan->operands[i].count > 1) {
            return 1;
        }
    }
    return 0;
}

/* Nodes of two ranks each. */
static halay_shape_t *by_two(uint32_t p)
{
    uint32_t node[16];
    halay_shape_t *shape = NULL;

    for (uint32_t rank = 0; rank < p; rank++) {
        node[rank] = rank / 2;
    }
    CHECK(halay_shape_make(node, p, &shape) == 0, "a shape of %u ranks", p);
    return shape;
}

/* Blocks of these are the caller's, and may lie anywhere: HALAY_PLANNER_RUNS says who cannot. */
static void test_runs(void)
{
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        int runs = 0;

        if (info->collective != HALAY_ALLGATHER && info->collective != HALAY_REDUCE_SCATTER &&
            info->collective != HALAY_GATHER && info->collective != HALAY_SCATTER &&
            info->collective != HALAY_ALLTOALL) {
            continue;
        }
        for (uint32_t p = 2; p <= 16; p++) {
            for (uint32_t in_place = 0; in_place < 2; in_place++) {
                struct plans all = {0};
                halay_shape_t *shape = by_two(p);
                if (planner_takes(planner, p, in_place)) {
                    make_plans_on(&all, planner, p, 0, in_place, shape);
                }
                for (uint32_t rank = 0; rank < all.nranks; rank++) {
                    runs |= names_a_run(all.plan[rank]);
                }
                free_plans(&all);
                halay_shape_free(shape);
            }
        }
        int says = (info->restrictions & HALAY_PLANNER_RUNS) != 0;
        CHECK(says == runs, "%s %s: names runs %d, says so %d",
              halay_collective_name((halay_collective_t)info->collective), info->name, runs, says);
    }
}

/* Of one rank's plan: does an operand go on from the last block to the first? */
static int wraps(const halay_plan_t *plan)
{
    for (uint32_t i = 0; i < plan->noperands; i++)
        if (plan->operands[i].first + plan->operands[i].count > plan->blocks)
            return 1;
    return 0;
}

/* Whose messages may lie in two places says so; runs in IN and OUT may, too. */
static void test_wraps(void)
{
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        int found = 0;
        for (uint32_t p = 2; p <= 16; p++) {
            struct plans all = {0};
            halay_shape_t *shape = by_two(p);
            if (planner_takes(planner, p, 0))
                make_plans_on(&all, planner, p, 0, 0, shape);
            for (uint32_t rank = 0; rank < all.nranks; rank++)
                found |= wraps(all.plan[rank]);
            free_plans(&all);
            halay_shape_free(shape);
        }
        CHECK(!found || info->restrictions & (HALAY_PLANNER_RUNS | HALAY_PLANNER_WRAPS),
              "%s %s wraps, and does not say so",
              halay_collective_name((halay_collective_t)info->collective), info->name);
        CHECK(found || !(info->restrictions & HALAY_PLANNER_WRAPS), "%s does not wrap", info->name);
        CHECK(!found || !(info->restrictions & HALAY_PLANNER_GROUP), "%s wraps", info->name);
    }
}

/* Of one rank's plan: does a message inside of its node carry data? */
static int carries_in_node(const halay_plan_t *plan, const halay_shape_t *shape)
{
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *s = &plan->steps[i];
        int message = s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV;
        if (message && shape->node[s->peer] == shape->node[plan->params.rank] &&
            plan->operands[s->operand].count > 0)
            return 1;
    }
    return 0;
}

/* With group steps and GPUDirect, what lies in a device's memory goes from node to node alone. */
static void test_between(void)
{
    uint32_t ndirect = 0;
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        int found = 0;
        for (uint32_t p = 3; info->restrictions & HALAY_PLANNER_GROUP && p <= 16; p++) {
            struct plans all = {0};
            halay_shape_t *shape = by_two(p);
            uint32_t direct = !halay_planner_indirect(planner, p, shape->nnodes, p % 2);
            if (planner_takes(planner, p, 0))
                make_plans_on(&all, planner, p, 0, 0, shape);
            CHECK(all.nranks == p, "no plans");
            for (uint32_t rank = 0; rank < all.nranks; rank++) {
                int carries = carries_in_node(all.plan[rank], shape);
                CHECK(!carries || !direct, "%s: rank %u of %u", info->name, rank, p);
                found |= carries;
            }
            ndirect += direct;
            free_plans(&all);
            halay_shape_free(shape);
        }
        CHECK(!found || info->collective == HALAY_REDUCE_SCATTER ||
                  (info->collective == HALAY_ALLTOALL && strcmp(info->name, "two_level_stage")),
              "%s", info->name);
    }
    CHECK(ndirect == 4 * 14 + 7, "%u sets of plans are direct", ndirect);
}

int main(void)
{
    test_costs();
    test_double_tree_shares_work();
    test_runs();
    test_wraps();
    test_between();
    return failures != 0;
}
