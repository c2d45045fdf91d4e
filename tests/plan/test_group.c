/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_group.c - group steps: plans written by hand that are right, and the same with one fault
 * each, which the prover, and the proof of one rank alone, refuse for the right reason; and what
 * such a plan costs, prints and hashes.
 */
#include "test_plan.h"

#define NO    HALAY_STEP_NONE
#define GROUP find_planner(HALAY_ALLREDUCE, "two_level_group")

enum { IN = HALAY_BUFFER_IN, OUT = HALAY_BUFFER_OUT, SCRATCH = HALAY_BUFFER_SCRATCH };
enum { NRANKS = 3, STEPS = 10 };

/* A plan that is written step by step. */
struct page {
    halay_plan_t plan;
    halay_step_t steps[STEPS];
    halay_operand_t operands[2 * STEPS];
    halay_group_t groups[4];
    halay_member_t members[4 * NRANKS];
};

static struct page pages[NRANKS];

static void write_step(struct page *p, uint16_t kind, uint32_t peer, uint32_t edge, uint32_t dep)
{
    p->plan.steps[p->plan.nsteps++] =
        (halay_step_t){kind, 0, peer, edge, p->plan.noperands, {dep, NO}};
}

static void operand(struct page *p, uint32_t buffer, uint32_t first, uint32_t count)
{
    p->plan.steps[p->plan.nsteps - 1].noperands++;
    p->plan.operands[p->plan.noperands++] = (halay_operand_t){buffer, first, count, 0};
}

/* All hear from all: two empty messages out and two in, each with no predecessor; then a JOIN. */
static void hear(struct page *p)
{
    uint32_t rank = p->plan.params.rank;

    for (uint32_t i = 1; i < NRANKS; i++) {
        write_step(p, HALAY_STEP_SEND, (rank + i) % NRANKS, 0, NO);
        operand(p, OUT, 0, 0);
    }
    for (uint32_t i = 1; i < NRANKS; i++) {
        write_step(p, HALAY_STEP_RECV, (rank + i) % NRANKS, 0, NO);
        operand(p, OUT, 0, 0);
    }
    write_step(p, HALAY_STEP_JOIN, NO, 0, 2);
    p->plan.steps[p->plan.nsteps - 1].dep[1] = 3;
}

/* Of all ranks: one block for each, or all blocks for all (allreduce) or for rank `root`. */
static void group(struct page *p, uint32_t kind, uint32_t root)
{
    halay_group_t *g = &p->plan.groups[p->plan.ngroups++];

    *g = (halay_group_t){kind, p->plan.nmembers, NRANKS};
    for (uint32_t i = 0; i < NRANKS; i++) {
        halay_member_t *m = &p->plan.members[p->plan.nmembers++];
        *m = (halay_member_t){i, i, 1};
        if (kind == HALAY_GROUP_ALLREDUCE) {
            *m = (halay_member_t){i, 0, NRANKS};
        } else if (kind == HALAY_GROUP_REDUCE || kind == HALAY_GROUP_BROADCAST) {
            *m = (halay_member_t){i, 0, i == root ? NRANKS : 0};
        }
    }
}

static void open_page(uint32_t rank)
{
    struct page *p = &pages[rank];

    memset(p, 0, sizeof(*p));
    p->plan = (halay_plan_t){.params = {HALAY_ALLREDUCE, NRANKS, rank},
                             .planner = GROUP,
                             .blocks = NRANKS,
                             .steps = p->steps,
                             .operands = p->operands,
                             .groups = p->groups,
                             .members = p->members};
    hear(p);
}

enum { JOINED = 4, FIRST = 5, SECOND = 6 }; /* steps */

/* IN is summed to own blocks of OUT, which are then gathered. */
static void scatter_gather(void)
{
    for (uint32_t r = 0; r < NRANKS; r++) {
        struct page *p = &pages[r];
        open_page(r);
        group(p, HALAY_GROUP_REDUCE_SCATTER, 0);
        write_step(p, HALAY_STEP_GROUP, 0, 0, JOINED);
        operand(p, OUT, r, 1);
        operand(p, IN, 0, NRANKS);
        group(p, HALAY_GROUP_ALLGATHER, 0);
        write_step(p, HALAY_STEP_GROUP, 1, 1, FIRST);
        operand(p, OUT, 0, NRANKS);
        operand(p, OUT, r, 1);
    }
}

/* IN is summed to OUT of rank 1, which then goes to all. */
static void reduce_broadcast(void)
{
    for (uint32_t r = 0; r < NRANKS; r++) {
        struct page *p = &pages[r];
        open_page(r);
        group(p, HALAY_GROUP_REDUCE, 1);
        write_step(p, HALAY_STEP_GROUP, 0, 0, JOINED);
        operand(p, OUT, 0, r == 1 ? NRANKS : 0);
        operand(p, IN, 0, NRANKS);
        group(p, HALAY_GROUP_BROADCAST, 1);
        write_step(p, HALAY_STEP_GROUP, 1, 0, FIRST);
        operand(p, OUT, 0, NRANKS);
        operand(p, OUT, 0, r == 1 ? NRANKS : 0);
    }
}

static void allreduce(void)
{
    for (uint32_t r = 0; r < NRANKS; r++) {
        struct page *p = &pages[r];
        open_page(r);
        group(p, HALAY_GROUP_ALLREDUCE, 0);
        write_step(p, HALAY_STEP_GROUP, 0, 7, JOINED);
        operand(p, OUT, 0, NRANKS);
        operand(p, IN, 0, NRANKS);
    }
}

/* The same of an alltoall, by the planner that there is. */
static void alltoall(void)
{
    for (uint32_t r = 0; r < NRANKS; r++) {
        struct page *p = &pages[r];
        open_page(r);
        p->plan.params.collective = HALAY_ALLTOALL;
        CHECK(halay_planner_find(HALAY_ALLTOALL, "two_level_group", &p->plan.planner) == 0,
              "no planner");
        group(p, HALAY_GROUP_ALLTOALL, 0);
        write_step(p, HALAY_STEP_GROUP, 0, 7, JOINED);
        operand(p, OUT, 0, NRANKS);
        operand(p, IN, 0, NRANKS);
    }
}

static int prove_pages(halay_proof_t *proof)
{
    const halay_plan_t *plans[NRANKS];

    for (uint32_t r = 0; r < NRANKS; r++) {
        plans[r] = &pages[r].plan;
    }
    *proof = (halay_proof_t){.size = sizeof(*proof)};
    return halay_plan_prove(plans, NRANKS, proof);
}

static void right(const char *what, uint32_t rounds)
{
    halay_proof_t proof;
    int result = prove_pages(&proof);

    CHECK(result == 0, "%s: %s", what, proof.reason);
    CHECK(result || (proof.messages == NRANKS * (NRANKS - 1) && proof.rounds == rounds &&
                     proof.reduce_depth == NRANKS - 1),
          "%s: %u rounds, depth %u", what, proof.rounds, proof.reduce_depth);
}

static void wrong(const char *what, const char *reason)
{
    halay_proof_t proof;
    int result = prove_pages(&proof);

    CHECK(result == HALAY_EPLAN && strstr(proof.reason, reason), "%s: %d, %s", what, result,
          proof.reason);
}

static void test_right(void)
{
    scatter_gather();
    right("scatter and gather", 3);
    for (uint32_t r = 0; r < NRANKS; r++) {
        pages[r].plan.params.in_place = 1;
    }
    right("in place", 3);
    scatter_gather();
    for (uint32_t r = 0; r < NRANKS; r++) {
        pages[r].steps[SECOND].edge = 0;
    }
    right("on one channel", 3);
    reduce_broadcast();
    right("reduce and broadcast", 3);
    allreduce();
    right("allreduce", 2);
}

/* Faults of one rank by itself: the last one, on its first group step. */
static void test_form(void)
{
    struct page *p = &pages[NRANKS - 1];
    halay_step_t *step = &p->steps[FIRST];
    halay_member_t *member = p->members;
    static const struct {
        const char *reason;
        int field;
        uint32_t value;
    } cases[] = {{"is not possible", 0, 2},
                 {"has 1 operands", 1, 1},
                 {"group or a channel that there is not", 2, HALAY_PLAN_CHANNELS_MAX},
                 {"of an unknown kind", 3, 0},
                 {"of an unknown kind", 3, HALAY_GROUP_ALLTOALL + 1},
                 {"members that there are not", 4, 0},
                 {"members that there are not", 4, 7},
                 {"members that there are not", 5, UINT32_MAX},
                 {"this rank is no member", 4, 2},
                 {"not ranks that rise", 6, 1},
                 {"not ranks that rise", 7, 3},
                 {"blocks that there are not", 8, 3},
                 {"blocks that there are not", 9, 4},
                 {"do not follow one another", 8, 0},
                 {"do not follow one another", 9, 3},
                 {"are not the whole", 10, 0},
                 {"its own operand is not its own run", 11, 1},
                 {"its own operand is not its own run", 12, 0},
                 {"whole has no blocks", 13, 0},
                 {"do not follow one another", 13, 2},
                 {"writes to in", 14, IN}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        scatter_gather();
        halay_operand_t *to = &p->operands[step->operand], *from = to + 1;
        uint32_t *fields[] = {&step->peer,
                              NULL,
                              &step->edge,
                              &p->groups[0].kind,
                              &p->groups[0].nmembers,
                              &p->groups[0].member,
                              &member[0].rank,
                              &member[2].rank,
                              &member[1].first,
                              &member[1].count,
                              &member[2].count,
                              &to->first,
                              &to->count,
                              &from->count,
                              &to->buffer};
        if (cases[i].field == 1) {
            step->noperands = (uint16_t)cases[i].value;
        } else {
            *fields[cases[i].field] = cases[i].value;
        }
        wrong(cases[i].reason, cases[i].reason);
    }
}

static void test_tables(void)
{
    struct page *p = &pages[NRANKS - 1];

    halay_proof_t proof;
    alltoall();
    CHECK(prove_pages(&proof) == 0 && proof.rounds == 2, "alltoall: %s", proof.reason);
    p->members[0].count = 2;
    wrong("runs of two lengths", "not of one length, as in an alltoall");
    alltoall();
    p->operands[p->steps[FIRST].operand + 1].count = 2;
    wrong("a part of IN", "its operands are not both the whole");
    alltoall();
    for (uint32_t r = 0; r < NRANKS; r++) {
        pages[r].plan.params.in_place = 1;
    }
    wrong("in place", "the destination overlaps operand 1");
    alltoall();
    p->steps[FIRST].dep[0] = NO;
    wrong("an alltoall before all are heard", "before it has heard from rank");
    alltoall();
    CHECK(halay_planner_find(HALAY_ALLTOALL, "two_level", &p->plan.planner) == 0, "no planner");
    for (uint32_t r = 0; r < NRANKS; r++) {
        pages[r].plan.planner = p->plan.planner;
    }
    wrong("another planner", "its planner has no group steps");
    allreduce();
    for (uint32_t r = 0; r < NRANKS; r++) {
        for (uint32_t i = 0; i < NRANKS; i++) {
            pages[r].members[i] = (halay_member_t){i, i, 1};
        }
        pages[r].groups[0].kind = HALAY_GROUP_ALLTOALL;
    }
    wrong("in an allreduce", "is an alltoall, or the collective is");
    scatter_gather();
    p->plan.ngroups = STEPS + 1;
    wrong("more groups than steps", "cannot be a plan");
    scatter_gather();
    p->plan.nmembers = 5;
    wrong("fewer members", "members that there are not");
    allreduce();
    p->members[1].count = 2;
    wrong("not all in an allreduce", "not the whole, as in an allreduce");
    scatter_gather();
    p->groups[0].kind = HALAY_GROUP_REDUCE;
    wrong("a reduce to all", "its whole is not one member's");
    scatter_gather();
    for (uint32_t r = 0; r < NRANKS; r++) {
        pages[r].plan.planner = find_planner(HALAY_ALLREDUCE, "two_level");
    }
    wrong("a planner without", "its planner has no group steps");
}

/* What source and destination may share. */
static void test_together(void)
{
    for (uint32_t r = 0; r < NRANKS; r++) { /* OUT is a copy of IN, and then summed where it is */
        struct page *p = &pages[r];
        open_page(r);
        write_step(p, HALAY_STEP_COPY, NO, 0, JOINED);
        operand(p, SCRATCH, 0, NRANKS);
        operand(p, IN, 0, NRANKS);
        group(p, HALAY_GROUP_ALLREDUCE, 0);
        write_step(p, HALAY_STEP_GROUP, 0, 0, FIRST);
        operand(p, SCRATCH, 0, NRANKS);
        operand(p, SCRATCH, 0, NRANKS);
        write_step(p, HALAY_STEP_COPY, NO, 0, SECOND);
        operand(p, OUT, 0, NRANKS);
        operand(p, SCRATCH, 0, NRANKS);
        p->plan.scratch_slots = NRANKS;
    }
    right("the same scratch", 2);
    struct page *p = &pages[1];
    p->plan.scratch_slots = NRANKS + 1;
    p->operands[p->steps[SECOND].operand].slot = 1;
    wrong("other slots", "overlaps operand 1 in part");
}

static void test_match(void)
{
    scatter_gather();
    pages[1].groups[0].kind = HALAY_GROUP_ALLGATHER;
    pages[1].operands[pages[1].steps[FIRST].operand] = (halay_operand_t){OUT, 0, NRANKS, 0};
    pages[1].operands[pages[1].steps[FIRST].operand + 1] = (halay_operand_t){IN, 1, 1, 0};
    wrong("another kind", "has another group at this place of the channel");
    scatter_gather();
    pages[1].groups[1].nmembers = 2;
    pages[1].operands[pages[1].steps[SECOND].operand].count = 2;
    wrong("one member less", "has another group at this place of the channel");
    scatter_gather();
    pages[2].members[0].count = 0;
    pages[2].members[1] = (halay_member_t){1, 0, 2};
    wrong("other runs", "has another group at this place of the channel");
    scatter_gather();
    pages[1].steps[SECOND].edge = 2;
    wrong("another channel", "a member, has no such step on the channel");
    scatter_gather();
    pages[1].plan.nsteps--;
    wrong("one step less", "a member, has no such step on the channel");
    scatter_gather();
    for (uint32_t r = 0; r < NRANKS; r++) {
        pages[r].steps[SECOND].edge = 0;
    }
    halay_step_t kept = pages[1].steps[FIRST];
    pages[1].steps[FIRST] = pages[1].steps[SECOND];
    pages[1].steps[SECOND] = kept;
    pages[1].steps[FIRST].dep[0] = JOINED;
    pages[1].steps[SECOND].dep[0] = FIRST;
    wrong("in another order", "has another group at this place of the channel");
}

/* Two allreduces of scratch on one channel, which no data order: so the plan has to. */
static void test_channel(void)
{
    for (int chained = 0; chained < 2; chained++) {
        for (uint32_t r = 0; r < NRANKS; r++) {
            struct page *p = &pages[r];
            open_page(r);
            for (uint32_t i = 0; i < 2; i++) {
                group(p, HALAY_GROUP_ALLREDUCE, 0);
                write_step(p, HALAY_STEP_GROUP, i, 3, i && (chained || r != 1) ? FIRST : JOINED);
                operand(p, i ? SCRATCH : OUT, 0, NRANKS);
                operand(p, IN, 0, NRANKS);
            }
            p->plan.scratch_slots = NRANKS;
        }
        if (chained) {
            right("chained", 3);
        } else {
            wrong("not chained", "does not follow step 5, which is before it on the channel");
        }
    }
    for (uint32_t r = 0; r < NRANKS; r++) { /* the second without rank 0 */
        struct page *p = &pages[r];
        p->groups[1].member++;
        p->groups[1].nmembers--;
        p->plan.nsteps -= r == 0;
        p->plan.scratch_slots = r == 0 ? 0 : NRANKS;
    }
    wrong("other members", "other members than step 5 on this channel");
}

static void test_run(void)
{
    scatter_gather();
    pages[2].steps[FIRST].dep[0] = 2; /* has heard from rank 0 alone */
    wrong("begins too early", "can begin before it has heard from rank 1, a member");
    scatter_gather();
    pages[2].steps[FIRST].dep[0] = NO;
    wrong("without hearing", "can begin before it has heard from rank 0, a member");

    scatter_gather(); /* the gather does not wait for the sum */
    pages[1].steps[SECOND].dep[0] = JOINED;
    wrong("a race", "which step 5 touches, without following it");

    /* Rank 0 sends before its group step what rank 1 wants before its own: no circle. */
    for (int circle = 0; circle < 2; circle++) {
        allreduce();
        write_step(&pages[0], HALAY_STEP_SEND, 1, 1, circle ? FIRST : NO);
        operand(&pages[0], OUT, 0, 0);
        pages[1].steps[SECOND] = pages[1].steps[FIRST];
        pages[1].plan.nsteps = FIRST;
        write_step(&pages[1], HALAY_STEP_RECV, 0, 1, NO);
        operand(&pages[1], OUT, 0, 0);
        pages[1].plan.nsteps++;
        pages[1].steps[SECOND].dep[1] = FIRST;
        halay_proof_t proof;
        int result = prove_pages(&proof);
        CHECK(result == (circle ? HALAY_EPLAN : 0) &&
                  (!circle || strstr(proof.reason, "waits for itself, in a circle")),
              "circle %d: %s", circle, proof.reason);
    }
}

static void message(uint32_t rank, uint16_t kind, uint32_t peer, uint32_t count)
{
    write_step(&pages[rank], kind, peer, 0, NO);
    operand(&pages[rank], OUT, 0, count);
}

/*
 * A broadcast of rank 0, which all but rank 1 hear from rank 2: that hears it through a group step
 * of ranks 0 and 1, if rank 0 is the one from whom data come.
 */
static void test_heard(void)
{
    for (uint32_t root = 0; root < 2; root++) {
        for (uint32_t r = 0; r < NRANKS; r++) {
            open_page(r);
            pages[r].plan.params.collective = HALAY_BROADCAST;
            pages[r].plan.blocks = 1;
            pages[r].plan.nsteps = pages[r].plan.noperands = 0;
        }
        message(0, HALAY_STEP_SEND, 1, 1);
        message(0, HALAY_STEP_RECV, 1, 0);
        message(0, HALAY_STEP_RECV, 2, 0);
        message(0, HALAY_STEP_SEND, 2, 1);
        write_step(&pages[0], HALAY_STEP_JOIN, NO, 0, 1);
        pages[0].steps[4].dep[1] = 2;
        write_step(&pages[0], HALAY_STEP_JOIN, NO, 0, 0);
        pages[0].steps[5].dep[1] = 3;
        message(1, HALAY_STEP_RECV, 0, 1);
        message(1, HALAY_STEP_SEND, 0, 0);
        message(1, HALAY_STEP_SEND, 2, 0);
        message(2, HALAY_STEP_SEND, 0, 0);
        message(2, HALAY_STEP_RECV, 0, 1);
        message(2, HALAY_STEP_RECV, 1, 0);
        for (uint32_t r = 0; r < 2; r++) {
            struct page *p = &pages[r];
            p->plan.ngroups = 1;
            p->plan.nmembers = 2;
            p->groups[0] = (halay_group_t){HALAY_GROUP_BROADCAST, 0, 2};
            p->members[0] = (halay_member_t){0, 0, root == 0};
            p->members[1] = (halay_member_t){1, 0, root == 1};
            write_step(p, HALAY_STEP_GROUP, 0, 0, r == 0 ? 4 : 0);
            p->steps[p->plan.nsteps - 1].dep[1] = r == 0 ? 5 : NO;
            operand(p, OUT, 0, 1);
            operand(p, OUT, 0, r == root);
        }
        if (root == 0) {
            halay_proof_t proof;
            CHECK(prove_pages(&proof) == 0, "from rank 0: %s", proof.reason);
        } else {
            wrong("from rank 1",
                  "rank 1: can end before it has heard, directly or not, from rank 2");
        }
    }
}

static void test_values(void)
{
    scatter_gather();
    for (uint32_t r = 0; r < NRANKS; r++) {
        pages[r].groups[0].kind = HALAY_GROUP_ALLGATHER;
        pages[r].operands[pages[r].steps[FIRST].operand] = (halay_operand_t){OUT, 0, NRANKS, 0};
        pages[r].operands[pages[r].steps[FIRST].operand + 1] = (halay_operand_t){IN, r, 1, 0};
    }
    wrong("gathered, not summed", "does not end with each rank's input exactly once");

    scatter_gather(); /* rank 1 gives its inputs, not its sums */
    pages[1].operands[pages[1].steps[SECOND].operand + 1].buffer = IN;
    wrong("another operand", "does not end with each rank's input exactly once");

    /* Two devices need not add in one order: rank 0 takes the first's sum, others the second's. */
    for (uint32_t r = 0; r < NRANKS; r++) {
        struct page *p = &pages[r];
        open_page(r);
        for (uint32_t i = 0; i < 2; i++) {
            group(p, HALAY_GROUP_ALLREDUCE, 0);
            write_step(p, HALAY_STEP_GROUP, i, i, JOINED);
            operand(p, (r == 0) == (i == 0) ? OUT : SCRATCH, 0, NRANKS);
            operand(p, IN, 0, NRANKS);
        }
        p->plan.scratch_slots = NRANKS;
    }
    wrong("two sums", "is not reduced in the same order as on rank 0");

    allreduce(); /* what was never written */
    pages[1].operands[pages[1].steps[FIRST].operand + 1].buffer = OUT;
    wrong("reads nothing", "before anything was put there");
}

/* One rank alone sees its own faults, and that a member's plan, as the planner makes it, differs.
 */
static void test_alone(void)
{
    static const uint32_t node[] = {0, 0, 0, 1, 1};
    halay_proof_t proof = {.size = sizeof(proof)};
    halay_shape_t *shape;
    struct plans all;

    if (halay_shape_make(node, 5, &shape) != 0) {
        exit(1);
    }
    for (uint32_t fault = 0; fault < 4; fault++) {
        make_plans_on(&all, GROUP, 5, 0, 0, shape);
        halay_plan_t *plan = all.plan[1];
        halay_step_t *last = &plan->steps[plan->nsteps - 1];
        CHECK(last->kind == HALAY_STEP_GROUP && plan->ngroups == 2, "another plan");
        halay_group_t *g = &plan->groups[last->peer];
        if (fault == 1) {
            last->edge = 2;
        } else if (fault == 2) {
            plan->members[g->member + 2].rank = 3;
        } else if (fault == 3) {
            plan->nsteps--;
        }
        int rc = halay_plan_prove_local(plan, shape, &proof);
        CHECK(fault ? rc == HALAY_EPLAN : rc == 0, "fault %u: %d, %s", fault, rc, proof.reason);
        free_plans(&all);
    }
    halay_shape_free(shape);
}

static double cost_of(uint64_t count, halay_shape_t *shape)
{
    const halay_plan_t *plans[NRANKS];
    halay_model_t model = {.size = sizeof(model)};
    halay_cost_t cost = {.size = sizeof(cost)};
    halay_question_t q = {.collective = HALAY_ALLREDUCE,
                          .commutative = 1,
                          .element_bytes = 4,
                          .count = count,
                          .shape = shape};

    for (uint32_t r = 0; r < NRANKS; r++) {
        plans[r] = &pages[r].plan;
    }
    halay_model_default(&model);
    int rc = halay_plan_cost(plans, &q, &model, &cost);
    CHECK(rc == 0 && cost.rounds == 2 && cost.busiest_bytes == (count ? 2 * count * 4 / 3 * 2 : 0),
          "%d: %u rounds, %llu bytes", rc, cost.rounds, (unsigned long long)cost.busiest_bytes);
    return cost.predicted_ns;
}

static void test_cost(void)
{
    halay_model_t m = {.size = sizeof(m)};
    halay_shape_t *shape;

    if (halay_shape_make(NULL, NRANKS, &shape) != 0) {
        exit(1);
    }
    halay_model_default(&m);
    allreduce();
    double none = cost_of(0, shape), some = cost_of(3000, shape);
    double bytes = 8000 * (2 * m.near.byte_ns + m.reduce_byte_ns);
    CHECK(some - none > bytes * 0.999 && some - none < bytes * 1.001, "%g ns, not %g", some - none,
          bytes);
    CHECK(none > 3 * m.near.latency_ns, "%g ns without bytes", none); /* 1 to hear, 2 doublings */
    pages[2].steps[FIRST].edge = 6;
    halay_cost_t cost = {.size = sizeof(cost)};
    const halay_plan_t *plans[] = {&pages[0].plan, &pages[1].plan, &pages[2].plan};
    halay_question_t q = {
        .collective = HALAY_ALLREDUCE, .element_bytes = 4, .count = 1, .shape = shape};
    CHECK(halay_plan_cost(plans, &q, &m, &cost) == HALAY_EPLAN, "they do not meet");
    halay_shape_free(shape);
}

static void test_text(void)
{
    char text[2048];
    halay_plan_t *copy;

    scatter_gather();
    halay_plan_print(&pages[1].plan, text, sizeof(text));
    CHECK(strstr(text, "     5 group  out[1+1] = in[0+3] reduce_scatter channel 0 of 0[0+1] 1[1+1] "
                       "2[2+1] after 4\n"),
          "%s", text);
    CHECK(halay_plan_copy(&pages[1].plan, &copy) == 0, "no copy");
    uint64_t hash = halay_plan_hash(&pages[1].plan);
    CHECK(hash == halay_plan_hash(copy), "the copy's hash");
    uint32_t *words[] = {&copy->groups[1].kind,  &copy->groups[0].member, &copy->groups[1].nmembers,
                         &copy->members[0].rank, &copy->members[5].first, &copy->members[3].count};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        ++*words[i];
        CHECK(hash != halay_plan_hash(copy), "word %zu is not in the hash", i);
        --*words[i];
    }
    halay_plan_free(copy);
}

int main(void)
{
    test_right();
    test_form();
    test_tables();
    test_together();
    test_match();
    test_channel();
    test_run();
    test_heard();
    test_values();
    test_alone();
    test_cost();
    test_text();
    return failures != 0;
}
