/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_two_level.c - the two-level planners on shapes of every kind, up to 64 ranks: proved, only
 * leaders talk to other nodes (but in an alltoall), and what crosses between nodes is what
 * docs/algorithms.md says.
 */
#include "test_plan.h"

struct crossing {
    uint64_t messages, blocks; /* between nodes, of all ranks */
};

static uint32_t log2_up(uint32_t n)
{
    uint32_t rounds = 0;

    while ((1u << rounds) < n) {
        rounds++;
    }
    return rounds;
}

static int is(const halay_planner_info_t *info, halay_collective_t collective, const char *name)
{
    return info->collective == collective && strcmp(info->name, name) == 0;
}

/* Slices of a broadcast with group steps; 0: it has none. */
static uint32_t group_slices(const halay_planner_info_t *info)
{
    return !(info->restrictions & HALAY_PLANNER_GROUP) ? 0
           : is(info, HALAY_BROADCAST, "sliced_group") || is(info, HALAY_BROADCAST, "sliced_stage")
               ? 4
               : 1;
}

/* Messages: 0 where only the blocks are promised. */
static struct crossing expected(const halay_planner_info_t *info, const halay_shape_t *s)
{
    uint64_t n = s->nnodes, q = 1ull << log2_up((uint32_t)n);
    q = q > n ? q / 2 : q;
    uint64_t doubling = q * log2_up((uint32_t)q) + 2 * (n - q);
    uint64_t hears = n * log2_up((uint32_t)n);

    switch (info->collective) {
    case HALAY_ALLREDUCE:
        if (is(info, HALAY_ALLREDUCE, "sliced_stage"))
            return (struct crossing){0, 4 * 2 * s->smallest * n * (n - 1)};
        return is(info, HALAY_ALLREDUCE, "two_level") ||
                       is(info, HALAY_ALLREDUCE, "two_level_group") ||
                       is(info, HALAY_ALLREDUCE, "two_level_stage")
                   ? (struct crossing){0, 2 * s->smallest * n * (n - 1)}
                   : (struct crossing){doubling, doubling};
    case HALAY_BROADCAST:
        if (group_slices(info)) {
            uint64_t blocks = (uint64_t)group_slices(info) * s->smallest * (n - 1);
            return (struct crossing){blocks + hears, blocks};
        }
        return (struct crossing){n - 1 + hears, n - 1};
    case HALAY_BARRIER:
        return (struct crossing){hears, 0};
    case HALAY_ALLTOALL: { /* a node's blocks for a rank are one message */
        uint64_t inside = 0;
        for (uint32_t node = 0; node < n; node++) {
            uint64_t k = s->first[node + 1] - s->first[node];
            inside += k * k;
        }
        uint64_t blocks = (uint64_t)s->nranks * s->nranks - inside;
        return (struct crossing){
            is(info, HALAY_ALLTOALL, "two_level_stage") ? blocks : s->nranks * (n - 1), blocks};
    }
    default: /* each block enters, or leaves, each other node once */
        return (struct crossing){group_slices(info) ? 0 : s->nranks * (n - 1), s->nranks * (n - 1)};
    }
}

/* How many ranks of each node talk to other nodes. */
static struct crossing count(const struct plans *all, const halay_shape_t *s, uint32_t talkers[])
{
    struct crossing c = {0};

    memset(talkers, 0, RANKS_MAX * sizeof(*talkers));
    for (uint32_t rank = 0; rank < all->nranks; rank++) {
        const halay_plan_t *plan = all->plan[rank];
        int talks = 0;
        for (uint32_t i = 0; i < plan->noperands; i++) {
            const halay_operand_t *operand = &plan->operands[i];
            CHECK(operand->first + operand->count <= plan->blocks, "rank %u: operand %u wraps",
                  rank, i);
        }
        for (uint32_t i = 0; i < plan->nsteps; i++) {
            const halay_step_t *step = &plan->steps[i];
            int message = step->kind == HALAY_STEP_SEND || step->kind == HALAY_STEP_RECV;
            if (!message || s->node[step->peer] == s->node[rank]) {
                continue;
            }
            talks = 1;
            if (step->kind == HALAY_STEP_SEND) {
                c.messages++;
                c.blocks += plan->operands[step->operand].count;
            }
        }
        talkers[s->node[rank]] += (uint32_t)talks;
    }
    return c;
}

static uint32_t rounds_most(const halay_planner_info_t *info, const halay_shape_t *s)
{
    uint32_t between = log2_up(s->nnodes), in = log2_up(s->largest), tree = (in + 1) / 2;
    uint32_t batches = (s->largest + 1) / 3; /* of three landings */

    if (is(info, HALAY_ALLREDUCE, "two_level")) {
        return batches + 2 * between + 1;
    }
    if (is(info, HALAY_ALLREDUCE,
           "sliced_stage")) { /* the fourth slice has the first one's slots */
        return 2 * tree + 4 * between + 5;
    }
    if (is(info, HALAY_ALLREDUCE, "two_level_group") ||
        is(info, HALAY_ALLREDUCE, "two_level_stage")) {
        return 2 * tree + 2 * between + (s->nnodes > 1 ? 2 : 1);
    }
    if (group_slices(info) && info->collective == HALAY_BROADCAST) {
        return 2 * tree + between + group_slices(info) + 1;
    }
    if (group_slices(info) && info->collective == HALAY_ALLGATHER) { /* of pieces, in one order */
        return 2 * tree + 2 + 2 * s->nranks;
    }
    if (info->collective == HALAY_ALLGATHER) {
        return between + 2;
    }
    if (is(info, HALAY_ALLTOALL, "two_level_stage")) { /* four rounds are under way */
        uint32_t pairs = (s->nranks + 3) / 4;
        return pairs > 2 * tree + 1 ? pairs : 2 * tree + 1;
    }
    if (info->collective == HALAY_ALLTOALL) {
        return is(info, HALAY_ALLTOALL, "two_level_group") && s->nnodes == 1 ? 2 * tree + 1 : 2;
    }
    if (info->collective == HALAY_REDUCE_SCATTER) {
        return UINT32_MAX; /* landings are used again by one block after another */
    }
    if (info->collective == HALAY_BROADCAST && in > 2 * tree) {
        return between + in;
    }
    return between + 2 * tree + 1;
}

static void check_case(uint32_t planner, const halay_shape_t *s, uint32_t root, uint32_t in_place,
                       const char *kind)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    const char *name = halay_collective_name((halay_collective_t)info->collective);
    struct crossing want = expected(info, s);
    uint32_t talkers[RANKS_MAX];
    struct plans all;
    halay_proof_t proof;

    make_plans_on(&all, planner, s->nranks, root, in_place, s);
    int result = prove_plans(&all, &proof);
    CHECK(result == 0, "%s %s, %u ranks %s, root %u, in_place %u: %s", name, info->name, s->nranks,
          kind, root, in_place, proof.reason);
    struct crossing got = count(&all, s, talkers);
    CHECK(got.blocks == want.blocks && (want.messages == 0 || got.messages == want.messages),
          "%s %s, %u ranks %s: %llu messages with %llu blocks between nodes, not %llu, %llu", name,
          info->name, s->nranks, kind, (unsigned long long)got.messages,
          (unsigned long long)got.blocks, (unsigned long long)want.messages,
          (unsigned long long)want.blocks);
    CHECK(proof.rounds <= rounds_most(info, s), "%s %s, %u ranks %s: %u rounds", name, info->name,
          s->nranks, kind, proof.rounds);
    uint32_t lanes = group_slices(info) && info->collective == HALAY_BROADCAST ? s->smallest + 1
                     : info->collective == HALAY_BROADCAST ? 2 /* the root, and who hears */
                     : info->collective == HALAY_ALLTOALL  ? s->largest
                     : info->collective == HALAY_BARRIER || all.plan[0]->blocks == 1 ? 1
                                                                                     : s->smallest;
    for (uint32_t node = 0; node < s->nnodes; node++) {
        CHECK(talkers[node] <= lanes, "%s %s, %u ranks %s: %u ranks of node %u talk to others",
              name, info->name, s->nranks, kind, talkers[node], node);
    }
    if (is(info, HALAY_ALLREDUCE, "two_level")) {
        CHECK(all.plan[0]->blocks == s->smallest * s->nnodes &&
                  proof.scratch_slots <= 4 * s->nnodes,
              "%u blocks, %u slots", all.plan[0]->blocks, proof.scratch_slots);
    }
    if (is(info, HALAY_ALLREDUCE, "two_level_group")) {
        CHECK(proof.scratch_slots <= s->nnodes &&
                  proof.reduce_depth <= s->largest - 1 + log2_up(s->nnodes),
              "%u slots, depth %u", proof.scratch_slots, proof.reduce_depth);
    }
    if (is(info, HALAY_ALLTOALL, "two_level_stage")) { /* no more of the stage for more ranks */
        for (uint32_t rank = 0; rank < s->nranks; rank++) {
            uint32_t stage = all.plan[rank]->scratch_slots - all.plan[rank]->device_slots;
            CHECK(stage <= 8 && !stage == (s->nnodes == 1), "%u slots of the stage", stage);
        }
    }
    CHECK(all.plan[0]->shape == s->hash, "the plan's shape");
    free_plans(&all);
}

static uint64_t random_state = 42;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

static const char *const kinds[] = {"on one node",
                                    "on a node each",
                                    "by 2",
                                    "by 3",
                                    "by 8",
                                    "round robin over 2",
                                    "round robin over 3",
                                    "as 1 and the rest",
                                    "as a third and the rest",
                                    "anyhow on 3",
                                    "anyhow on many"};

static uint32_t node_of(uint32_t kind, uint32_t rank, uint32_t p)
{
    const uint32_t nodes[] = {0,        rank,     rank / 2, rank / 3,     rank / 8,
                              rank % 2, rank % 3, rank > 0, rank >= p / 3};

    return kind < 9 ? nodes[kind] : kind == 9 ? draw(3) : draw(1 + p / 2) * 1000003;
}

static void test_shapes(void)
{
    for (uint32_t p = 1; p <= RANKS_MAX; p = p < 17 ? p + 1 : p + 1 + draw(9)) {
        for (uint32_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
            uint32_t map[RANKS_MAX];
            halay_shape_t *s;
            for (uint32_t rank = 0; rank < p; rank++) {
                map[rank] = node_of(kind, rank, p);
            }
            CHECK(halay_shape_make(map, p, &s) == 0, "shape");
            for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
                const halay_planner_info_t *info = halay_planner_get(planner);
                uint32_t roots = info->collective == HALAY_BROADCAST ? p : 1;
                if (!(info->restrictions & HALAY_PLANNER_SHAPE)) {
                    continue;
                }
                for (uint32_t root = 0; root < roots; root += p < 17 ? 1 : 1 + draw(8)) {
                    check_case(planner, s, root, 0, kinds[kind]);
                    check_case(planner, s, root, 1, kinds[kind]);
                }
            }
            halay_shape_free(s);
        }
    }
}

/* One form for one map, whatever the nodes are called; another hash for another map. */
static void test_shape(void)
{
    const uint32_t a[] = {7, 7, 9, UINT32_MAX, 9, 0}, b[] = {0, 0, 1, 2, 1, 3};
    const uint32_t other[] = {0, 0, 1, 2, 2, 3}, node[] = {0, 0, 1, 2, 1, 3};
    const uint32_t first[] = {0, 2, 4, 5, 6}, member[] = {0, 1, 2, 4, 3, 5};
    halay_shape_t *x, *y, *z;

    CHECK(halay_shape_make(a, 6, &x) == 0 && halay_shape_make(b, 6, &y) == 0 &&
              halay_shape_make(other, 6, &z) == 0,
          "shapes");
    CHECK(x->nranks == 6 && x->nnodes == 4 && x->smallest == 1 && x->largest == 2, "%u nodes",
          x->nnodes);
    CHECK(!memcmp(x->node, node, sizeof(node)) && !memcmp(x->first, first, sizeof(first)) &&
              !memcmp(x->member, member, sizeof(member)),
          "another map");
    CHECK(x->hash == y->hash && x->hash != z->hash, "hashes");
    CHECK((x->hash & HALAY_SHAPE_SCATTERED) && !(z->hash & HALAY_SHAPE_SCATTERED), "scattered");
    halay_plan_params_t params = {.collective = HALAY_BARRIER, .nranks = 7, .shape = x};
    halay_plan_t *plan = NULL;
    CHECK(halay_plan_make(find_planner(HALAY_BARRIER, "two_level"), &params, &plan) ==
                  HALAY_EINVAL &&
              !plan,
          "a shape of 6 ranks for 7");
    halay_shape_free(z);
    halay_shape_free(y);
    halay_shape_free(x);
    CHECK(halay_shape_make(a, 0, &x) == HALAY_EINVAL, "no ranks");
    CHECK(halay_shape_make(a, 6, NULL) == HALAY_EINVAL, "nowhere to put it");
    halay_shape_free(NULL);
}

/* Plans of ranks that see different nodes are refused, even where they would fit together. */
static void test_two_minds(void)
{
    const uint32_t one[] = {0, 0, 1, 1}, two[] = {0, 1, 0, 1};
    uint32_t planner = find_planner(HALAY_ALLREDUCE, "two_level_short");
    halay_shape_t *x, *y;
    halay_proof_t proof;
    struct plans all, mixed;

    CHECK(halay_shape_make(one, 4, &x) == 0 && halay_shape_make(two, 4, &y) == 0, "shapes");
    make_plans_on(&all, planner, 4, 0, 0, x);
    make_plans_on(&mixed, planner, 4, 0, 0, y);
    CHECK(!halay_plan_commutative(all.plan[0]) && halay_plan_commutative(mixed.plan[0]),
          "the order of ranks is kept where nodes have consecutive ones, and only there");
    CHECK(prove_plans(&mixed, &proof) == 0, "%s", proof.reason);
    for (uint32_t rank = 0; rank < 4; rank++) {
        mixed.plan[rank]->shape &= ~(uint64_t)HALAY_SHAPE_SCATTERED;
    }
    CHECK(prove_plans(&mixed, &proof) == HALAY_EPLAN && strstr(proof.reason, "the order of ranks"),
          "round robin passes for consecutive: %s", proof.reason);
    halay_plan_t *kept = all.plan[2];
    all.plan[2] = mixed.plan[2];
    CHECK(prove_plans(&all, &proof) == HALAY_EPLAN && strstr(proof.reason, "or shape differ"),
          "two shapes: %s", proof.reason);
    all.plan[2] = kept;
    free_plans(&all);
    free_plans(&mixed);
    halay_shape_free(y);
    halay_shape_free(x);
}

int main(void)
{
    test_shape();
    test_two_minds();
    test_shapes();
    return failures != 0;
}
