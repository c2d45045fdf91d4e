/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan.c - the first planners for 1 to 64 ranks are proved, and cost what their papers say
 * (those that ask for a shape: test_two_level.c; reduce and the collectives after it:
 * test_plan_costs.c; other algorithms of those before: test_algorithms.c); plans are
 * reproducible, and are hashed, copied and printed as promised.
 */
#include "test_plan.h"

struct cost {
    uint32_t rounds, reduce_depth, scratch_slots;
    uint64_t messages;
    uint64_t sent; /* blocks sent by all ranks */
};

enum { LAST_HERE = 15 }; /* the sliced ring */

static uint32_t log2_up(uint32_t p)
{
    uint32_t rounds = 0;

    while ((1u << rounds) < p) {
        rounds++;
    }
    return rounds;
}

/* Rounds of a dissemination: in the last, whoever has few ranks left to tell of sends early. */
static uint32_t hear_rounds(uint32_t p)
{
    uint32_t k = log2_up(p);

    return k >= 2 && p - (1u << (k - 1)) <= (1u << (k - 2)) ? k - 1 : k;
}

/* Rounds of a phase on a circulant graph: with skips 3, 2, 1 at the end the last two overlap. */
static uint32_t circulant_rounds(uint32_t p)
{
    uint32_t rounds = 0, overlap = 0;

    for (uint32_t skip = p; skip > 1; skip = (skip + 1) / 2) {
        overlap += skip == 3;
        rounds++;
    }
    return rounds - overlap;
}

/* Rounds of a binomial tree: bits in the number of a rank. */
static uint32_t tree_rounds(uint32_t p)
{
    uint32_t most = 0;

    for (uint32_t number = 0; number < p; number++) {
        uint32_t bits = (uint32_t)__builtin_popcount(number);
        most = bits > most ? bits : most;
    }
    return most;
}

/* What the literature promises of an algorithm. */
static struct cost expected(const halay_planner_info_t *info, uint32_t p, uint32_t in_place)
{
    uint64_t k = log2_up(p), hears = k * p;
    int sliced = strcmp(info->name, "sliced_ring") == 0;
    int ring = sliced || strcmp(info->name, "ring") == 0,
        reduces = info->collective == HALAY_ALLREDUCE;
    struct cost c = {0};

    if (strcmp(info->name, "recursive_doubling") == 0) {
        uint32_t q = 1u << log2_up(p), l, folds;
        q = q > p ? q / 2 : q;
        l = log2_up(q);
        folds = p - q;
        c = (struct cost){l + 2 * (folds > 0), l + (folds > 0), p == 1 ? 0 : 3,
                          (uint64_t)q * l + 2 * folds, (uint64_t)q * l + 2 * folds};
    } else if (info->collective == HALAY_BARRIER) {
        c = (struct cost){hear_rounds(p), 0, 0, hears, 0};
    } else if (info->collective == HALAY_BROADCAST) {
        uint32_t tree = tree_rounds(p), hear = hear_rounds(p);
        c = (struct cost){tree > hear ? tree : hear, 0, 0, hears + p - 1, p - 1};
    } else if (ring) {
        uint32_t phases = reduces ? 2 : 1;
        c = (struct cost){phases * (p - 1), info->collective == HALAY_ALLGATHER ? 0 : p - 1, 2,
                          (uint64_t)phases * p * (p - 1), (uint64_t)phases * p * (p - 1)};
        c.scratch_slots *= sliced ? 4 : 1;
        c.messages *= sliced ? 4 : 1;
        c.sent *= sliced ? 4 : 1;
    } else {
        uint32_t phases = reduces ? 2 : 1, blocks = info->collective == HALAY_REDUCE_SCATTER;
        c = (struct cost){phases * circulant_rounds(p),
                          info->collective == HALAY_ALLGATHER ? 0 : (uint32_t)k, p - 1,
                          blocks && !in_place ? (uint64_t)p * (p - 1) : phases * hears,
                          (uint64_t)phases * p * (p - 1)};
    }
    return c;
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

static void check_case(uint32_t planner, uint32_t p, uint32_t root, uint32_t in_place)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    const char *name = halay_collective_name((halay_collective_t)info->collective);
    struct cost want = expected(info, p, in_place);
    struct plans all;
    halay_proof_t proof;

    make_plans(&all, planner, p, root, in_place);
    int result = prove_plans(&all, &proof);
    CHECK(result == 0, "%s %s p=%u root=%u in_place=%u: %s", name, info->name, p, root, in_place,
          proof.reason);
    CHECK(proof.messages == want.messages, "%s %s p=%u: %llu messages, not %llu", name, info->name,
          p, (unsigned long long)proof.messages, (unsigned long long)want.messages);
    CHECK(blocks_sent(&all) == want.sent, "%s %s p=%u: %llu blocks sent", name, info->name, p,
          (unsigned long long)blocks_sent(&all));
    /* Where only some ranks fold, and where each block is a message, chains overlap. */
    int blockwise = info->collective == HALAY_REDUCE_SCATTER && !in_place && info->name[0] == 'c';
    int overlaps = (info->restrictions & HALAY_PLANNER_SHORT) && (p & (p - 1));
    CHECK(proof.rounds == want.rounds || (proof.rounds < want.rounds && (blockwise || overlaps)),
          "%s %s p=%u: %u rounds, not %u", name, info->name, p, proof.rounds, want.rounds);
    CHECK(proof.reduce_depth == want.reduce_depth, "%s %s p=%u: depth %u", name, info->name, p,
          proof.reduce_depth);
    CHECK(proof.scratch_slots <= want.scratch_slots, "%s %s p=%u: %u slots", name, info->name, p,
          proof.scratch_slots);
    free_plans(&all);
}

static void test_all_planners(void)
{
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        int rooted = halay_planner_get(planner)->collective == HALAY_BROADCAST;

        if (halay_planner_get(planner)->restrictions & HALAY_PLANNER_SHAPE || planner > LAST_HERE) {
            continue;
        }
        for (uint32_t p = 1; p <= RANKS_MAX; p++) {
            for (uint32_t root = 0; root < (rooted ? p : 1); root++) {
                check_case(planner, p, root, 0);
                check_case(planner, p, root, 1);
            }
        }
    }
}

static void test_table(void)
{
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        uint32_t found = UINT32_MAX;

        CHECK(info->version >= 1 && strlen(info->source) > 10, "planner %u", planner);
        CHECK(halay_planner_find((halay_collective_t)info->collective, info->name, &found) == 0 &&
                  found == planner,
              "planner %u is found as %u", planner, found);
    }
    uint32_t found = 77;
    CHECK(halay_planner_get(halay_planner_count()) == NULL, "past the end");
    CHECK(halay_planner_find(HALAY_BARRIER, "ring", &found) == HALAY_EINVAL && found == 77, "%u",
          found);
    CHECK(halay_planner_find(HALAY_BARRIER, NULL, &found) == HALAY_EINVAL, "no name");
    CHECK(strcmp(halay_collective_name(HALAY_COLLECTIVE_COUNT), "unknown") == 0, "name");
    CHECK(strcmp(halay_collective_name(HALAY_REDUCE_SCATTER), "reduce_scatter") == 0, "name");
}

static void test_params(void)
{
    halay_plan_params_t good = {.collective = HALAY_ALLREDUCE, .nranks = 4, .rank = 3};
    halay_plan_t *plan = NULL;
    struct {
        halay_plan_params_t params;
        uint32_t planner;
        int result;
    } cases[] = {
        {good, halay_planner_count(), HALAY_EINVAL},
        {good, find_planner(HALAY_BARRIER, "dissemination"), HALAY_EINVAL},
        {good, 0, HALAY_EINVAL},
        {good, 0, HALAY_EINVAL},
        {good, 0, HALAY_EINVAL},
        {good, 0, HALAY_EINVAL},
        {good, 0, HALAY_EUNSUPPORTED},
        {good, 0, HALAY_EUNSUPPORTED},
    };

    cases[2].params.rank = 4;
    cases[3].params.nranks = cases[3].params.rank = 0;
    cases[4].params.root = 1;
    cases[5].params.in_place = 2;
    cases[6].params.nranks = UINT32_MAX;
    cases[7].params.nranks = HALAY_PLAN_STEPS_MAX; /* 5 (p - 1) steps are too many */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int result = halay_plan_make(cases[i].planner, &cases[i].params, &plan);
        CHECK(result == cases[i].result && !plan, "case %zu: %d", i, result);
    }
    CHECK(halay_plan_make(0, NULL, &plan) == HALAY_EINVAL, "no params");
    CHECK(halay_plan_make(0, &good, NULL) == HALAY_EINVAL, "no plan");
    halay_plan_free(NULL);
}

static int same_plan(const halay_plan_t *a, const halay_plan_t *b)
{
    return memcmp(&a->params, &b->params, offsetof(halay_plan_params_t, shape)) == 0 &&
           !a->params.shape && !b->params.shape && a->shape == b->shape &&
           a->planner == b->planner && a->blocks == b->blocks &&
           a->scratch_slots == b->scratch_slots && a->nsteps == b->nsteps &&
           a->noperands == b->noperands &&
           memcmp(a->steps, b->steps, a->nsteps * sizeof(*a->steps)) == 0 &&
           memcmp(a->operands, b->operands, a->noperands * sizeof(*a->operands)) == 0;
}

/* The same arguments give the same bytes; other arguments give another hash. */
static void test_reproducible(void)
{
    uint64_t hashes[4096];
    uint32_t nhashes = 0;

    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        for (uint32_t p = 1; p <= 8; p++) {
            struct plans one, two;

            if (!planner_takes(planner, p, p % 2)) {
                continue;
            }
            make_plans(&one, planner, p, 0, p % 2);
            make_plans(&two, planner, p, 0, p % 2);
            for (uint32_t rank = 0; rank < p; rank++) {
                CHECK(same_plan(one.plan[rank], two.plan[rank]), "planner %u p=%u", planner, p);
                CHECK(nhashes < sizeof(hashes) / sizeof(hashes[0]), "too many plans");
                hashes[nhashes++] = halay_plan_hash(one.plan[rank]);
                CHECK(hashes[nhashes - 1] == halay_plan_hash(two.plan[rank]), "p=%u", p);
            }
            free_plans(&one);
            free_plans(&two);
        }
    }
    for (uint32_t i = 0; i < nhashes; i++) {
        for (uint32_t j = 0; j < i; j++) {
            CHECK(hashes[i] != hashes[j], "plans %u and %u have one hash", j, i);
        }
    }
}

/* Every bit of every field counts, and nothing else. */
static void test_hash(void)
{
    struct plans all;
    halay_plan_t *copy;
    uint64_t hash, changed;

    make_plans(&all, find_planner(HALAY_ALLREDUCE, "circulant"), 7, 0, 0);
    hash = halay_plan_hash(all.plan[3]);
    CHECK(halay_plan_copy(all.plan[3], &copy) == 0 && copy != all.plan[3], "copy");
    CHECK(same_plan(copy, all.plan[3]) && copy->steps != all.plan[3]->steps, "copy differs");
    CHECK(halay_plan_copy(NULL, &copy) == HALAY_EINVAL, "copy of nothing");
    CHECK(halay_plan_hash(copy) == hash, "the copy's hash differs");
    uint32_t *header[] = {
        &copy->params.collective, &copy->params.nranks, &copy->params.rank, &copy->params.root,
        &copy->params.in_place,   &copy->planner,       &copy->blocks,      &copy->scratch_slots};
    for (size_t i = 0; i < 32 * sizeof(header) / sizeof(header[0]); i++) {
        *header[i / 32] ^= 1u << i % 32;
        changed = halay_plan_hash(copy);
        CHECK(changed != hash, "bit %zu of the header does not count", i);
        *header[i / 32] ^= 1u << i % 32;
    }
    for (int i = 0; i < 64; i++) {
        copy->shape ^= 1ull << i;
        CHECK(halay_plan_hash(copy) != hash, "bit %d of the shape does not count", i);
        copy->shape ^= 1ull << i;
    }
    unsigned char *steps = (unsigned char *)copy->steps;
    for (size_t i = 0; i < 8 * copy->nsteps * sizeof(halay_step_t); i++) {
        steps[i / 8] ^= (unsigned char)(1 << i % 8);
        CHECK(halay_plan_hash(copy) != hash, "bit %zu of the steps does not count", i);
        steps[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    unsigned char *operands = (unsigned char *)copy->operands;
    for (size_t i = 0; i < 8 * copy->noperands * sizeof(halay_operand_t); i++) {
        operands[i / 8] ^= (unsigned char)(1 << i % 8);
        CHECK(halay_plan_hash(copy) != hash, "bit %zu of the operands does not count", i);
        operands[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    copy->nsteps--;
    CHECK(halay_plan_hash(copy) != hash, "a step less has the same hash");
    copy->nsteps++;
    copy->noperands--;
    CHECK(halay_plan_hash(copy) != hash, "an operand less has the same hash");
    halay_plan_free(copy);
    free_plans(&all);
}

static void test_print(void)
{
    struct plans all;
    char text[4096], small[64];

    make_plans(&all, find_planner(HALAY_ALLREDUCE, "recursive_doubling"), 3, 0, 0);
    size_t bytes = halay_plan_print(all.plan[0], text, sizeof(text)), lines = 0;
    CHECK(bytes == strlen(text) + 1, "%zu bytes", bytes);
    for (const char *at = text; (at = strchr(at, '\n')); at++) {
        lines++;
    }
    CHECK(lines == all.plan[0]->nsteps + 1, "%zu lines", lines);
    CHECK(strstr(text, "allreduce recursive_doubling rank 0 of 3"), "%s", text);
    CHECK(strstr(text, "     1 reduce scratch[0+1]@2 = in[0+1] op scratch[0+1]@0 after 0\n"), "%s",
          text);
    CHECK(strstr(text, "send   out[0+1] to 1 edge 0 after"), "%s", text);
    CHECK(halay_plan_print(all.plan[0], NULL, 0) == bytes, "bytes needed");
    memset(small, 'x', sizeof(small));
    CHECK(halay_plan_print(all.plan[0], small, 32) == bytes, "bytes needed of a small text");
    CHECK(strlen(small) == 31 && small[32] == 'x' && strncmp(small, text, 31) == 0, "%s", small);
    all.plan[0]->steps[0].kind = 99; /* a damaged plan is printed, not trusted */
    all.plan[0]->steps[1].operand = UINT32_MAX - 1;
    CHECK(halay_plan_print(all.plan[0], text, sizeof(text)) > 0 && strchr(text, '?'), "%s", text);
    free_plans(&all);
}

int main(void)
{
    test_table();
    test_params();
    test_all_planners();
    test_reproducible();
    test_hash();
    test_print();
    return failures != 0;
}
