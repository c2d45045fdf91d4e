/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_prove.c - plans that were damaged by hand are refused for the right reason, one case
 * and more for each thing that is proved; plans that were damaged at random are refused or
 * harmless, and never crash the prover.
 */
#include "test_plan.h"

#define RING      find_planner(HALAY_ALLREDUCE, "ring")
#define DOUBLING  find_planner(HALAY_ALLREDUCE, "recursive_doubling")
#define CIRCULANT find_planner(HALAY_ALLREDUCE, "circulant")
#define GATHER    find_planner(HALAY_ALLGATHER, "ring")
#define SCATTER   find_planner(HALAY_REDUCE_SCATTER, "ring")
#define BROADCAST find_planner(HALAY_BROADCAST, "binomial")
#define BARRIER   find_planner(HALAY_BARRIER, "dissemination")

/* Proves what a case left, and expects this in the reason. */
static void refused(struct plans *all, const char *what, const char *reason)
{
    halay_proof_t proof;
    int result = prove_plans(all, &proof);

    CHECK(result == HALAY_EPLAN && strstr(proof.reason, reason), "%s: %d, %s", what, result,
          proof.reason);
    free_plans(all);
}

static halay_step_t *step_of(struct plans *all, uint32_t rank, uint32_t index)
{
    return &all->plan[rank]->steps[index];
}

static halay_operand_t *operand_of(struct plans *all, uint32_t rank, uint32_t index, uint32_t which)
{
    return &all->plan[rank]->operands[step_of(all, rank, index)->operand + which];
}

/* Step number n of this kind, counted from 0. */
static uint32_t nth(const struct plans *all, uint32_t rank, uint32_t kind, uint32_t n)
{
    for (uint32_t i = 0; i < all->plan[rank]->nsteps; i++) {
        if (all->plan[rank]->steps[i].kind == kind && n-- == 0) {
            return i;
        }
    }
    fprintf(stderr, "rank %u has not so many steps of kind %u\n", rank, kind);
    exit(1);
}

static void make_join(halay_step_t *step)
{
    step->kind = HALAY_STEP_JOIN;
    step->noperands = 0;
    step->peer = HALAY_STEP_NONE;
    step->edge = 0;
}

/* Cases that put one number into one field of a ring allreduce of 4 ranks, on rank 2. */
enum { HEADER, STEP, OPERAND };
enum { ROUND_SEND = 3, ROUND_RECV = 4, ROUND_REDUCE = 5 }; /* steps of the second round */
static const struct {
    const char *reason;
    int where;
    uint32_t step, operand;
    size_t offset, bytes;
    uint32_t value;
} field_cases[] = {
#define FIELD(type, field) offsetof(type, field), sizeof(((type *)0)->field)
    {"differ from rank 0's", HEADER, 0, 0, FIELD(halay_plan_t, params.collective), 3},
    {"differ from rank 0's", HEADER, 0, 0, FIELD(halay_plan_t, params.root), 1},
    {"differ from rank 0's", HEADER, 0, 0, FIELD(halay_plan_t, params.in_place), 1},
    {"differ from rank 0's", HEADER, 0, 0, FIELD(halay_plan_t, planner), 1},
    {"differ from rank 0's", HEADER, 0, 0, FIELD(halay_plan_t, blocks), 3},
    {"or shape differ", HEADER, 0, 0, FIELD(halay_plan_t, shape), 1},
    {"it is for rank 2 of 5", HEADER, 0, 0, FIELD(halay_plan_t, params.nranks), 5},
    {"it is for rank 1 of 4", HEADER, 0, 0, FIELD(halay_plan_t, params.rank), 1},
    {"cannot be a plan", HEADER, 0, 0, FIELD(halay_plan_t, nsteps), HALAY_PLAN_STEPS_MAX + 1},
    {"cannot be a plan", HEADER, 0, 0, FIELD(halay_plan_t, noperands), UINT32_MAX},
    {"past the plan's", HEADER, 0, 0, FIELD(halay_plan_t, noperands), 4},
    {"too many to be proved", HEADER, 0, 0, FIELD(halay_plan_t, scratch_slots), UINT32_MAX},
    {"declares 9 scratch slots", HEADER, 0, 0, FIELD(halay_plan_t, scratch_slots), 9},
    {"is slots 1 to 2 of 1 declared", HEADER, 0, 0, FIELD(halay_plan_t, scratch_slots), 1},
    {"kind 0 is unknown", STEP, ROUND_SEND, 0, FIELD(halay_step_t, kind), 0},
    {"kind 7 is unknown", STEP, ROUND_SEND, 0, FIELD(halay_step_t, kind), 7},
    {"has 1 operands", STEP, ROUND_SEND, 0, FIELD(halay_step_t, kind), HALAY_STEP_GROUP},
    {"has 2 operands", STEP, ROUND_SEND, 0, FIELD(halay_step_t, noperands), 2},
    {"has 2 operands", STEP, ROUND_REDUCE, 0, FIELD(halay_step_t, noperands), 2},
    {"has 6 operands", STEP, ROUND_REDUCE, 0, FIELD(halay_step_t, noperands), 6},
    {"is past the plan's", STEP, ROUND_REDUCE, 0, FIELD(halay_step_t, operand), UINT32_MAX - 1},
    {"is not possible", STEP, ROUND_SEND, 0, FIELD(halay_step_t, peer), 2},
    {"is not possible", STEP, ROUND_SEND, 0, FIELD(halay_step_t, peer), 4},
    {"is not possible", STEP, ROUND_REDUCE, 0, FIELD(halay_step_t, peer), 1},
    {"is not possible", STEP, ROUND_REDUCE, 0, FIELD(halay_step_t, edge), 1},
    {"which is not before it", STEP, ROUND_SEND, 0, FIELD(halay_step_t, dep[0]), ROUND_SEND},
    {"which is not before it", STEP, ROUND_SEND, 0, FIELD(halay_step_t, dep[1]), 1000},
    {"unknown buffer 3", OPERAND, ROUND_SEND, 0, FIELD(halay_operand_t, buffer), 3},
    {"is not of scratch", OPERAND, ROUND_SEND, 0, FIELD(halay_operand_t, slot), 1},
    {"of 4 blocks", OPERAND, ROUND_SEND, 0, FIELD(halay_operand_t, count), 5},
    {"of 4 blocks", OPERAND, ROUND_SEND, 0, FIELD(halay_operand_t, first), 4},
    {"of 2 declared", OPERAND, ROUND_RECV, 0, FIELD(halay_operand_t, slot), UINT32_MAX},
    {"writes to in", OPERAND, ROUND_REDUCE, 0, FIELD(halay_operand_t, buffer), HALAY_BUFFER_IN},
    {"are different runs", OPERAND, ROUND_REDUCE, 2, FIELD(halay_operand_t, first), 1},
    {"are different runs", OPERAND, ROUND_REDUCE, 1, FIELD(halay_operand_t, count), 0},
    {"nobody sends this", STEP, ROUND_RECV, 0, FIELD(halay_step_t, peer), 3},
    {"nobody sends this", STEP, ROUND_RECV, 0, FIELD(halay_step_t, edge), 1000},
    {"sent to the same rank on the same edge", STEP, ROUND_SEND, 0, FIELD(halay_step_t, edge), 0},
    {"receives the same message", STEP, ROUND_RECV, 0, FIELD(halay_step_t, edge), 0},
    {"but is sent 1 blocks from", OPERAND, ROUND_RECV, 0, FIELD(halay_operand_t, first), 1},
    {"but is sent 1 blocks from", OPERAND, ROUND_RECV, 0, FIELD(halay_operand_t, count), 0},
    {"reads scratch slot 1, which step 4", STEP, ROUND_REDUCE, 0, FIELD(halay_step_t, dep[0]), 1},
    {"reads out block 3, which step 5", STEP, 6, 0, FIELD(halay_step_t, dep[0]), 1},
    {"writes scratch slot 0, which step", OPERAND, ROUND_RECV, 0, FIELD(halay_operand_t, slot), 0},
#undef FIELD
};

static void test_fields(void)
{
    for (size_t i = 0; i < sizeof(field_cases) / sizeof(field_cases[0]); i++) {
        struct plans all;
        char what[32];

        make_plans(&all, RING, 4, 0, 0);
        char *base = field_cases[i].where == HEADER ? (char *)all.plan[2]
                     : field_cases[i].where == STEP
                         ? (char *)step_of(&all, 2, field_cases[i].step)
                         : (char *)operand_of(&all, 2, field_cases[i].step, field_cases[i].operand);
        uint16_t narrow = (uint16_t)field_cases[i].value;
        memcpy(base + field_cases[i].offset,
               field_cases[i].bytes == 2 ? (const void *)&narrow
                                         : (const void *)&field_cases[i].value,
               field_cases[i].bytes);
        snprintf(what, sizeof(what), "field case %zu", i);
        refused(&all, what, field_cases[i].reason);
    }
}

/* The same wrong number on every rank. */
static void test_headers(void)
{
    static const struct {
        const char *reason;
        uint32_t collective, blocks, in_place, root;
    } cases[] = {
        {"collective 11 is unknown", HALAY_COLLECTIVE_COUNT, 4, 0, 0},
        {"33 blocks, where 1 to 32", HALAY_ALLREDUCE, 33, 0, 0},
        {"0 blocks, where 1 to 32", HALAY_ALLREDUCE, 0, 0, 0},
        {"3 blocks, where 4 to 4", HALAY_REDUCE_SCATTER, 3, 0, 0},
        {"3 blocks, where 4 to 4", HALAY_ALLGATHER, 3, 0, 0},
        {"4 blocks, where 0 to 0", HALAY_BARRIER, 4, 0, 0},
        {"65537 blocks, where", HALAY_BROADCAST, 65537, 0, 0},
        {"is not possible", HALAY_ALLREDUCE, 4, 2, 0},
        {"is not possible", HALAY_ALLREDUCE, 4, 0, 1},
        {"is not possible", HALAY_BROADCAST, 4, 0, 4},
        {"of in, which this rank has not", HALAY_BROADCAST, 4, 0, 0},
        {"not this rank's one block", HALAY_ALLGATHER, 4, 0, 0},
        {"33 blocks, where 1 to 32", HALAY_REDUCE, 33, 0, 0},
        {"0 blocks, where 1 to 32", HALAY_SCAN, 0, 0, 0},
        {"33 blocks, where 1 to 32", HALAY_EXSCAN, 33, 0, 0},
        {"3 blocks, where 4 to 4", HALAY_GATHER, 3, 0, 0},
        {"5 blocks, where 4 to 4", HALAY_SCATTER, 5, 0, 0},
        {"3 blocks, where 4 to 4", HALAY_ALLTOALL, 3, 0, 0},
        {"is not possible", HALAY_SCAN, 4, 0, 1},
        {"is not possible", HALAY_ALLTOALL, 4, 0, 1},
        {"is not possible", HALAY_REDUCE, 4, 0, 4},
        {"of out, which this rank has not", HALAY_REDUCE, 4, 0, 2},
        {"not this rank's one block", HALAY_GATHER, 4, 0, 0},
        {"not this rank's one block", HALAY_SCATTER, 4, 0, 0},
        {"an exscan leaves alone here", HALAY_EXSCAN, 4, 0, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plans all;

        make_plans(&all, RING, 4, 0, 0);
        for (uint32_t rank = 0; rank < 4; rank++) {
            all.plan[rank]->params.collective = cases[i].collective;
            all.plan[rank]->params.in_place = cases[i].in_place;
            all.plan[rank]->params.root = cases[i].root;
            all.plan[rank]->blocks = cases[i].blocks;
        }
        refused(&all, "header", cases[i].reason);
    }
    struct plans all;
    make_plans(&all, RING, 4, 0, 0);
    halay_plan_free(all.plan[3]);
    all.plan[3] = NULL;
    refused(&all, "no plan", "the plan of rank 3 is missing");
}

static void test_memory(void)
{
    struct plans all;

    /* In place, the copy of an allgather is of memory to itself. */
    make_plans(&all, GATHER, 3, 0, 0);
    for (uint32_t rank = 0; rank < 3; rank++) {
        all.plan[rank]->params.in_place = 1;
    }
    refused(&all, "in place", "copies memory to itself");

    make_plans(&all, CIRCULANT, 7, 0, 0);
    uint32_t reduce = nth(&all, 2, HALAY_STEP_REDUCE, 0);
    *operand_of(&all, 2, reduce, 0) = *operand_of(&all, 2, reduce, 2);
    operand_of(&all, 2, reduce, 0)->slot++;
    refused(&all, "overlap", "overlaps operand 2 in part");

    /* An out-of-place plan in place: inputs are overwritten while they are sent. */
    make_plans(&all, RING, 4, 0, 0);
    for (uint32_t rank = 0; rank < 4; rank++) {
        all.plan[rank]->params.in_place = 1;
    }
    refused(&all, "in place", "writes out block");

    make_plans(&all, SCATTER, 4, 0, 1);
    step_of(&all, 3, nth(&all, 3, HALAY_STEP_REDUCE, 2))->dep[1] = HALAY_STEP_NONE;
    refused(&all, "result over block 0", "writes out block 3, which step 5 touches");

    /* Not written: the block that an odd number of ranks leaves over. */
    make_plans(&all, CIRCULANT, 5, 0, 0);
    make_join(step_of(&all, 1, nth(&all, 1, HALAY_STEP_COPY, 0)));
    refused(&all, "copy dropped", "before anything was put there");

    /* Slot 0 holds another block than the one that all operands of the step name. */
    make_plans(&all, SCATTER, 4, 0, 0);
    reduce = nth(&all, 1, HALAY_STEP_REDUCE, 0);
    for (uint32_t i = 0; i < 3; i++) {
        operand_of(&all, 1, reduce, i)->first = 0;
    }
    refused(&all, "another block", "reads scratch as blocks 0+1 at slot 0, written as 3+1 at 0");
}

static void test_values(void)
{
    struct plans all;
    halay_operand_t swap;
    uint32_t step;

    make_plans(&all, RING, 4, 0, 0);
    step = nth(&all, 3, HALAY_STEP_REDUCE, 1);
    *operand_of(&all, 3, step, 1) = *operand_of(&all, 3, step, 2);
    refused(&all, "own input twice", "each rank's input exactly once");

    make_plans(&all, SCATTER, 4, 0, 0);
    step = nth(&all, 0, HALAY_STEP_REDUCE, 0);
    *operand_of(&all, 0, step, 2) = *operand_of(&all, 0, step, 1);
    refused(&all, "partial sum twice", "each rank's input exactly once");

    make_plans(&all, DOUBLING, 4, 0, 0);
    step = nth(&all, 3, HALAY_STEP_REDUCE, 1);
    swap = *operand_of(&all, 3, step, 1);
    *operand_of(&all, 3, step, 1) = *operand_of(&all, 3, step, 2);
    *operand_of(&all, 3, step, 2) = swap;
    refused(&all, "swapped on one rank", "rank 3: out block 0 is not reduced in the same order");

    make_plans(&all, DOUBLING, 4, 0, 0);
    for (uint32_t rank = 0; rank < 4; rank++) {
        step = nth(&all, rank, HALAY_STEP_REDUCE, 1);
        swap = *operand_of(&all, rank, step, 1);
        *operand_of(&all, rank, step, 1) = *operand_of(&all, rank, step, 2);
        *operand_of(&all, rank, step, 2) = swap;
    }
    refused(&all, "swapped on all ranks", "not reduced in the order of ranks");

    make_plans(&all, GATHER, 4, 0, 0);
    make_join(step_of(&all, 2, nth(&all, 2, HALAY_STEP_COPY, 0)));
    refused(&all, "own block missing", "rank 2: out block 2 does not end with rank 2's input");

    make_plans(&all, RING, 1, 0, 0);
    make_join(step_of(&all, 0, 0));
    refused(&all, "alone", "rank 0: out block 0 does not end with each rank's input");
}

static void swap_sources(struct plans *all, uint32_t rank, uint32_t n)
{
    uint32_t step = nth(all, rank, HALAY_STEP_REDUCE, n);
    halay_operand_t left = *operand_of(all, rank, step, 1);

    *operand_of(all, rank, step, 1) = *operand_of(all, rank, step, 2);
    *operand_of(all, rank, step, 2) = left;
}

/* What only one of the later collectives promises. */
static void test_rooted(void)
{
    struct plans all;
    halay_proof_t proof;

    make_plans(&all, find_planner(HALAY_REDUCE, "binomial"), 6, 2, 0);
    swap_sources(&all, 2, 0);
    refused(&all, "reduce", "rank 2: out block 0 is not reduced in the order of ranks");
    make_plans(&all, find_planner(HALAY_REDUCE, "circulant"), 6, 2, 0);
    swap_sources(&all, 1, 2);
    CHECK(prove_plans(&all, &proof) == 0, "only the root has it, and it commutes: %s",
          proof.reason);
    *operand_of(&all, 1, nth(&all, 1, HALAY_STEP_REDUCE, 2), 1) =
        *operand_of(&all, 1, nth(&all, 1, HALAY_STEP_REDUCE, 2), 2);
    refused(&all, "reduce", "rank 2: out block");

    make_plans(&all, find_planner(HALAY_REDUCE, "binomial"), 6, 2, 0);
    operand_of(&all, 1, nth(&all, 1, HALAY_STEP_RECV, 0), 0)->buffer = HALAY_BUFFER_OUT;
    refused(&all, "reduce", "of out, which this rank has not");

    /* The root's plan in place leaves its own block alone; out of place it has to copy it. */
    make_plans(&all, find_planner(HALAY_GATHER, "linear"), 5, 3, 1);
    for (uint32_t rank = 0; rank < 5; rank++) {
        all.plan[rank]->params.in_place = 0;
    }
    refused(&all, "gather", "rank 3: out block 3 does not end with rank 3's input");
    make_plans(&all, find_planner(HALAY_SCATTER, "linear"), 5, 3, 1);
    for (uint32_t rank = 0; rank < 5; rank++) {
        all.plan[rank]->params.in_place = 0;
    }
    refused(&all, "scatter", "rank 3: out block 3 does not end with rank 3's input");

    /* A subtree's slots in another order: read as they may be, but with other blocks in them. */
    make_plans(&all, find_planner(HALAY_GATHER, "binomial"), 8, 0, 0);
    operand_of(&all, 6, nth(&all, 6, HALAY_STEP_RECV, 0), 0)->slot = 0;
    operand_of(&all, 6, nth(&all, 6, HALAY_STEP_COPY, 0), 0)->slot = 1;
    refused(&all, "gather", "rank 0: out block 6 does not end with rank 6's input");
    make_plans(&all, find_planner(HALAY_GATHER, "binomial"), 8, 0, 0);
    for (uint32_t rank = 0; rank < 8; rank++) { /* a planner for blocks of any sizes */
        all.plan[rank]->planner = find_planner(HALAY_GATHER, "linear");
    }
    refused(&all, "gather", "reads scratch as blocks");

    /* The dissemination beside the tree: the first message of zero bytes, dropped on both sides. */
    make_plans(&all, find_planner(HALAY_SCATTER, "binomial"), 8, 0, 0);
    for (uint32_t i = 0; i < all.plan[6]->nsteps; i++) {
        if (step_of(&all, 6, i)->kind == HALAY_STEP_SEND && step_of(&all, 6, i)->edge == 1) {
            make_join(step_of(&all, 6, i));
        }
    }
    for (uint32_t i = 0; i < all.plan[7]->nsteps; i++) {
        if (step_of(&all, 7, i)->kind == HALAY_STEP_RECV && step_of(&all, 7, i)->edge == 1) {
            make_join(step_of(&all, 7, i));
        }
    }
    refused(&all, "scatter", "can end before it has heard, directly or not, from rank 6");
}

static void test_alltoall(void)
{
    const uint32_t pairwise = find_planner(HALAY_ALLTOALL, "pairwise");
    struct plans all;

    make_plans(&all, pairwise, 4, 0, 0);
    uint32_t recv = nth(&all, 1, HALAY_STEP_RECV, 0);
    operand_of(&all, 1, recv, 0)->first = 3; /* from rank 0 */
    refused(&all, "alltoall", "writes out block 3, which step");

    make_plans(&all, find_planner(HALAY_ALLTOALL, "pairwise_checked"), 2, 0, 0); /* for alltoallv */
    operand_of(&all, 1, nth(&all, 1, HALAY_STEP_RECV, 0), 0)->first = 1;
    operand_of(&all, 1, nth(&all, 1, HALAY_STEP_COPY, 0), 0)->first = 0;
    refused(&all, "alltoall", "puts in out block");

    make_plans(&all, pairwise, 4, 0, 0);
    operand_of(&all, 1, nth(&all, 1, HALAY_STEP_SEND, 0), 0)->count = 2;
    refused(&all, "alltoall", "but is sent 2 blocks");

    make_plans(&all, pairwise, 4, 0, 1);
    step_of(&all, 2, nth(&all, 2, HALAY_STEP_COPY, 1))->dep[0] = HALAY_STEP_NONE;
    refused(&all, "alltoall in place", "writes out block");

    make_plans(&all, find_planner(HALAY_ALLTOALL, "bruck"), 4, 0, 0);
    operand_of(&all, 3, nth(&all, 3, HALAY_STEP_COPY, 0), 1)->first = 2;
    refused(&all, "bruck", "does not end with rank 3's input");

    make_plans(&all, find_planner(HALAY_ALLTOALL, "bruck"), 4, 0, 1);
    halay_operand_t *to = operand_of(&all, 3, nth(&all, 3, HALAY_STEP_COPY, 0), 0);
    *to = (halay_operand_t){HALAY_BUFFER_OUT, (to[1].first + 1) % 4, to->count, 0};
    refused(&all, "overlap", to->count < 4 ? "" : "overlaps operand 1 in part");
}

static void test_scans(void)
{
    struct plans all;

    make_plans(&all, find_planner(HALAY_SCAN, "recursive_doubling"), 7, 0, 0);
    swap_sources(&all, 4, 1);
    refused(&all, "scan", "is not reduced in the order of ranks");
    make_plans(&all, find_planner(HALAY_SCAN, "chain"), 4, 0, 0);
    *operand_of(&all, 2, nth(&all, 2, HALAY_STEP_REDUCE, 3), 2) =
        *operand_of(&all, 2, nth(&all, 2, HALAY_STEP_REDUCE, 3), 1);
    refused(&all, "scan", "rank 2: out block 3 does not end with each rank's input exactly once");
    /* An exscan's plans do not make a scan, nor the reverse. */
    make_plans(&all, find_planner(HALAY_EXSCAN, "chain"), 4, 0, 0);
    for (uint32_t rank = 0; rank < 4; rank++) {
        all.plan[rank]->params.collective = HALAY_SCAN;
    }
    refused(&all, "scan", "rank 0: out block 0 does not end with each rank's input");
    make_plans(&all, find_planner(HALAY_SCAN, "chain"), 4, 0, 1);
    for (uint32_t rank = 0; rank < 4; rank++) {
        all.plan[rank]->params.collective = HALAY_EXSCAN;
    }
    refused(&all, "exscan", "rank 1: out block 0 does not end with each rank's input");
    make_plans(&all, find_planner(HALAY_SCAN, "chain"), 4, 0, 0);
    for (uint32_t rank = 0; rank < 4; rank++) {
        all.plan[rank]->params.collective = HALAY_EXSCAN;
    }
    refused(&all, "exscan", "writes to out, which an exscan leaves alone here");
}

static void test_order(void)
{
    struct plans all;

    make_plans(&all, RING, 4, 0, 0);
    make_join(step_of(&all, 1, nth(&all, 1, HALAY_STEP_RECV, 5)));
    refused(&all, "recv dropped", "nobody receives this message");

    /* Two ranks that each receive before they send. */
    make_plans(&all, BARRIER, 2, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        halay_step_t send = *step_of(&all, rank, 0);
        *step_of(&all, rank, 0) = *step_of(&all, rank, 1);
        *step_of(&all, rank, 1) = send;
    }
    halay_proof_t proof;
    CHECK(prove_plans(&all, &proof) == 0, "independent steps may stand in any order");
    step_of(&all, 0, 1)->dep[0] = 0;
    CHECK(prove_plans(&all, &proof) == 0, "one side may wait");
    step_of(&all, 1, 1)->dep[1] = 0;
    refused(&all, "circle", "in a circle of 4 steps: deadlock");

    for (uint32_t deaf = 0; deaf < 8; deaf++) {
        make_plans(&all, BROADCAST, 8, 3, 0);
        uint32_t to = (deaf + 1) % 8; /* the dissemination's first round, one message less */
        for (uint32_t i = 0; i < all.plan[deaf]->nsteps; i++) {
            halay_step_t *step = step_of(&all, deaf, i);
            if (step->kind == HALAY_STEP_SEND && step->peer == to && step->edge == 1) {
                make_join(step);
            }
        }
        for (uint32_t i = 0; i < all.plan[to]->nsteps; i++) {
            halay_step_t *step = step_of(&all, to, i);
            if (step->kind == HALAY_STEP_RECV && step->peer == deaf && step->edge == 1) {
                make_join(step);
            }
        }
        if (deaf == 3) { /* all hear the root through the tree */
            CHECK(prove_plans(&all, &proof) == 0, "the root: %s", proof.reason);
            free_plans(&all);
            continue;
        }
        refused(&all, "one message less", "can end before it has heard, directly or not, from");
    }

    /* The message is there, but its sender need not have heard before it sends. */
    make_plans(&all, BARRIER, 4, 0, 0);
    step_of(&all, 1, 2)->dep[0] = HALAY_STEP_NONE;
    refused(&all, "sent too early",
            "rank 3: can end before it has heard, directly or not, from rank 0");
}

/* One rank, n steps of one shape; each follows the one before if in_order. */
static halay_plan_t *many_steps(uint32_t n, halay_step_t step, const halay_operand_t *operands,
                                uint32_t slots, uint32_t blocks)
{
    halay_plan_t header = {.params = {.collective = HALAY_BROADCAST, .nranks = 1},
                           .blocks = blocks,
                           .scratch_slots = slots,
                           .nsteps = n,
                           .noperands = n * step.noperands};
    halay_plan_t *plan;

    header.steps = calloc(n, sizeof(*header.steps));
    header.operands = calloc(header.noperands, sizeof(*header.operands));
    for (uint32_t i = 0; i < n; i++) {
        header.steps[i] = step;
        header.steps[i].operand = i * step.noperands;
        header.steps[i].dep[0] = i ? i - 1 : HALAY_STEP_NONE;
        header.steps[i].dep[1] = HALAY_STEP_NONE;
        for (uint32_t j = 0; j < step.noperands; j++) {
            header.operands[i * step.noperands + j] = operands[j];
        }
    }
    if (halay_plan_copy(&header, &plan) != 0) {
        exit(1);
    }
    free(header.operands);
    free(header.steps);
    return plan;
}

/* Each step but the first, which reads OUT, copies slot 0 to a slot of its own. */
static halay_plan_t *far_reads(uint32_t n, halay_step_t copy, const halay_operand_t operands[2])
{
    halay_plan_t *plan = many_steps(n, copy, operands, n, 1);

    plan->operands[1].buffer = HALAY_BUFFER_OUT;
    for (uint32_t i = 0; i < n; i++) {
        plan->operands[2 * i].slot = i;
    }
    return plan;
}

/* Plans that would cost too much to prove are refused, and in time. */
static void test_bounds(void)
{
    halay_step_t copy = {.kind = HALAY_STEP_COPY, .noperands = 2, .peer = HALAY_STEP_NONE};
    halay_operand_t wide[] = {{HALAY_BUFFER_SCRATCH, 0, 65536, 0}, {HALAY_BUFFER_OUT, 0, 65536, 0}};
    struct plans all = {.nranks = 1};

    all.plan[0] = many_steps(8300, copy, wide, 65536, 65536);
    refused(&all, "wide", "touch too many blocks to be proved");

    /* Each step reads what the first one wrote, at the far end of a chain: quick. */
    halay_operand_t narrow[] = {{HALAY_BUFFER_SCRATCH, 0, 1, 1}, {HALAY_BUFFER_SCRATCH, 0, 1, 0}};
    all.plan[0] = far_reads(24000, copy, narrow);
    halay_proof_t proof;
    CHECK(prove_plans(&all, &proof) == 0 && proof.steps == 24000, "a long chain: %s", proof.reason);
    free_plans(&all);

    /* The same with two chains, each step following the one before the last. */
    all.plan[0] = far_reads(24000, copy, narrow);
    for (uint32_t i = 2; i < 24000; i++) {
        all.plan[0]->steps[i].dep[0] = i - 2;
    }
    refused(&all, "tangled", "too tangled to prove");
    all.plan[0] = far_reads(4000, copy, narrow);
    for (uint32_t i = 2; i < 4000; i++) {
        all.plan[0]->steps[i].dep[0] = i - 2;
    }
    CHECK(prove_plans(&all, &proof) == 0 && proof.steps == 4000, "two chains: %s", proof.reason);
    free_plans(&all);
}

static void test_arguments(void)
{
    struct plans all;
    halay_proof_t proof = {.size = sizeof(proof)};

    make_plans(&all, RING, 2, 0, 0);
    const halay_plan_t *const *plans = (const halay_plan_t *const *)all.plan;
    CHECK(halay_plan_prove(NULL, 2, &proof) == HALAY_EINVAL, "no plans");
    CHECK(halay_plan_prove(plans, 0, &proof) == HALAY_EINVAL, "no ranks");
    CHECK(halay_plan_prove(plans, 2, NULL) == HALAY_EINVAL, "no proof");
    proof.size = 1;
    CHECK(halay_plan_prove(plans, 2, &proof) == HALAY_EINVAL, "size 1");
    memset(&proof, 0x55, sizeof(proof));
    proof.size = offsetof(halay_proof_t, messages); /* an older caller's, shorter struct */
    CHECK(halay_plan_prove(plans, 2, &proof) == 0 && proof.steps == 10 &&
              proof.rounds == 0x55555555,
          "a short proof: %llu steps", (unsigned long long)proof.steps);
    free_plans(&all);
}

static uint64_t random_state = 0x1234567;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

static uint32_t draw_value(void)
{
    static const uint32_t special[] = {0, 1, UINT32_MAX, UINT32_MAX - 1, 1u << 31, 1u << 22, 65536};
    return draw(2) ? special[draw(7)] : draw(12);
}

static void damage(struct plans *all)
{
    halay_plan_t *plan = all->plan[draw(all->nranks)];
    uint32_t *words[] = {
        &plan->params.collective, &plan->params.nranks, &plan->params.rank, &plan->params.root,
        &plan->params.in_place,   &plan->planner,       &plan->blocks,      &plan->scratch_slots};
    uint32_t what = draw(16);

    if (what == 0) {
        *words[draw(8)] = draw_value();
    } else if (what == 1) {
        plan->nsteps = draw(plan->nsteps + 1);
    } else if (what == 2) {
        plan->noperands = draw(plan->noperands + 1);
    } else if (what < 9 && plan->noperands) {
        ((uint32_t *)plan->operands)[draw(plan->noperands * 4)] = draw_value();
    } else if (plan->nmembers && draw(2)) {
        halay_group_t *g = &plan->groups[draw(plan->ngroups)];
        halay_member_t *m = &plan->members[draw(plan->nmembers)];
        uint32_t *fields[] = {&g->kind, &g->member, &g->nmembers, &m->rank, &m->first, &m->count};
        *fields[draw(6)] = draw_value();
    } else if (plan->nsteps) {
        halay_step_t *step = &plan->steps[draw(plan->nsteps)];
        uint32_t *fields[] = {&step->peer, &step->edge, &step->operand, &step->dep[0],
                              &step->dep[1]};
        uint32_t field = draw(7);
        if (field == 5) {
            step->kind = (uint16_t)draw(8);
        } else if (field == 6) {
            step->noperands = (uint16_t)draw_value();
        } else {
            *fields[field] = draw_value();
        }
    }
}

/* The sanitizers are the judge here; a refusal must say why. */
static void test_random_damage(void)
{
    uint32_t refusals = 0, rounds = 40000;

    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t planner = draw(halay_planner_count()), nranks = 1 + draw(6);
        struct plans all;
        halay_proof_t proof;

        while (!planner_takes(planner, nranks, 0)) {
            nranks = 1 + draw(6);
        }
        make_plans(&all, planner, nranks, 0, draw(2));
        for (uint32_t n = 1 + draw(3); n > 0; n--) {
            damage(&all);
        }
        int result = prove_plans(&all, &proof);
        CHECK(result == 0 || (result == HALAY_EPLAN && strlen(proof.reason) > 10), "%d", result);
        refusals += result != 0;
        for (uint32_t rank = 0; rank < nranks; rank++) {
            halay_plan_hash(all.plan[rank]);
        }
        free_plans(&all);
    }
    CHECK(refusals > rounds / 2, "only %u of %u were refused", refusals, rounds);
}

int main(void)
{
    test_fields();
    test_headers();
    test_memory();
    test_values();
    test_rooted();
    test_alltoall();
    test_scans();
    test_order();
    test_bounds();
    test_arguments();
    test_random_damage();
    return failures != 0;
}
