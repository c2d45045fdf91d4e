/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cost.c - predicted times against formulas worked out by hand; bytes and rounds of the
 * busiest rank against the algorithms' own; no plan beats the lower bound; damaged plans are
 * refused; and a model's file comes back as it was.
 */
#include <unistd.h>

#include "test_plan.h"

/* Numbers that are exact in binary, so that times can be compared exactly. */
static const halay_model_t model = {.size = sizeof(model),
                                    .call_ns = 64,
                                    .step_ns = 2,
                                    .copy_byte_ns = 0.25,
                                    .reduce_byte_ns = 0.5,
                                    .near = {16, 128, 1, 1024},
                                    .far = {32, 4096, 4, 4096},
                                    .stage_latency_ns = 512,
                                    .stage_byte_ns = 2};

static halay_shape_t *shape_of(uint32_t nranks, uint32_t per_node)
{
    uint32_t node[256];
    halay_shape_t *shape;

    for (uint32_t r = 0; r < nranks; r++) {
        node[r] = r / per_node;
    }
    if (halay_shape_make(node, nranks, &shape)) {
        exit(1);
    }
    return shape;
}

static halay_cost_t cost_of(const char *name, halay_collective_t collective, uint32_t nranks,
                            uint32_t per_node, uint64_t bytes)
{
    halay_shape_t *shape = shape_of(nranks, per_node);
    halay_question_t q = {.collective = collective,
                          .commutative = 1,
                          .element_bytes = 1,
                          .count = bytes,
                          .shape = shape};
    halay_cost_t cost = {.size = sizeof(cost)};
    int rc = halay_planner_cost(find_planner(collective, name), &q, &model, &cost);

    CHECK(rc == 0, "%s: %s", name, halay_strerror(rc));
    halay_shape_free(shape);
    return cost;
}

static void is(const char *what, double got, double wanted)
{
    CHECK(got == wanted, "%s: %.17g, not %.17g", what, got, wanted);
}

/*
 * Two ranks send each other n bytes and add. Eager: the send is handed over (2 + 16) and the
 * receive started (2) while the bytes wait for the processor that copies them; then n, the latency,
 * and the receiver's 16; then the sum, 2 + n / 2.
 */
static void test_exchange(void)
{
    halay_cost_t c = cost_of("recursive_doubling", HALAY_ALLREDUCE, 2, 2, 512);
    is("near, eager", c.predicted_ns, 64 + 18 + 2 + 512 + 128 + 16 + 2 + 256);
    is("bytes", (double)c.busiest_bytes, 512);
    is("messages", (double)c.messages, 2);
    is("rounds", c.rounds, 1);
    c = cost_of("recursive_doubling", HALAY_ALLREDUCE, 2, 1, 512);
    is("far, eager", c.predicted_ns, 64 + 2 + 32 + 4096 + 4 * 512 + 32 + 2 + 256);
    /* Announced: the receive is ready at 2 + 32 + 2 + 32, its word is there 4096 later and costs
     * the sender 32; only then the bytes leave. */
    c = cost_of("recursive_doubling", HALAY_ALLREDUCE, 2, 1, 8192);
    is("far, announced", c.predicted_ns,
       64 + (2 + 32 + 2 + 32) + 4096 + 32 + 4096 + 4 * 8192 + 32 + 2 + 4096);
    c = cost_of("recursive_doubling", HALAY_ALLREDUCE, 1, 1, 8192);
    is("alone: a copy", c.predicted_ns, 64 + 2 + 2048);
}

/* p - 1 rounds out and p - 1 back; each rank sends 2 (p - 1) blocks. */
static void test_ring(void)
{
    for (uint32_t p = 2; p <= 64; p++) {
        const uint64_t block = 1u << 20;
        halay_cost_t c = cost_of("ring", HALAY_ALLREDUCE, p, 1, p * block);
        is("messages", (double)c.messages, 2.0 * p * (p - 1));
        is("bytes", (double)c.busiest_bytes, 2.0 * (p - 1) * block);
        is("rounds", c.rounds, 2 * (p - 1));
        double least = 2.0 * (p - 1) * block * 4 + (p - 1) * (block * 0.5);
        CHECK(c.predicted_ns > least && c.predicted_ns < least * 1.01, "p %u: %g, least %g", p,
              c.predicted_ns, least);
    }
    halay_cost_t eight = cost_of("recursive_doubling", HALAY_ALLREDUCE, 8, 8, 64);
    is("rounds of doubling", eight.rounds, 3);
    /* Ranks of a node share its interface: twice the ranks a node, twice the time for its bytes. */
    halay_cost_t one = cost_of("recursive_doubling", HALAY_ALLREDUCE, 2, 1, 1u << 24);
    halay_cost_t four = cost_of("circulant", HALAY_ALLGATHER, 8, 4, 1u << 20);
    halay_cost_t flat = cost_of("circulant", HALAY_ALLGATHER, 8, 1, 1u << 20);
    CHECK(four.predicted_ns > flat.predicted_ns, "an interface is shared for nothing");
    CHECK(one.predicted_ns > 4.0 * (1u << 24), "bytes cost nothing");
}

/* Two ranks, a node each, 512 bytes in memory apart. Over the stage: block by block of 256, its own
 * first. Both copies down (2 and 2 of the processor) take the way one after the other; the block
 * that is sent is the second. As a whole: 512 down, the call in the host's memory, 512 up. */
static void test_stage(void)
{
    halay_shape_t *shape = shape_of(2, 1);
    halay_question_t q = {.collective = HALAY_ALLREDUCE,
                          .commutative = 1,
                          .element_bytes = 1,
                          .count = 512,
                          .apart = 1,
                          .shape = shape};
    halay_cost_t stage = {.size = sizeof(stage)}, host = stage, whole = stage, faster = stage;
    uint32_t doubling = find_planner(HALAY_ALLREDUCE, "recursive_doubling");
    uint32_t staged = find_planner(HALAY_ALLREDUCE, "two_level_stage");
    halay_model_t quick = model;

    CHECK(!halay_planner_cost(staged, &q, &model, &stage), "a stage");
    CHECK(!halay_planner_cost(doubling, &q, &model, &whole), "as a whole");
    quick.stage_byte_ns = 1;
    CHECK(!halay_planner_cost(staged, &q, &quick, &faster), "a faster link");
    q.apart = 0;
    CHECK(!halay_planner_cost(doubling, &q, &model, &host), "in the host's memory");
    is("down before, up behind", whole.predicted_ns - host.predicted_ns,
       2 * 512 + 2.0 * (512 + 512));
    /* Down 256 + 256, up 256 (the other block is up by then). */
    is("each byte of the way that all wait for", stage.predicted_ns - faster.predicted_ns, 768);
    q.collective = HALAY_ALLGATHER;
    uint32_t ring = find_planner(HALAY_ALLGATHER, "ring");
    CHECK(!halay_planner_cost(ring, &q, &model, &host), "in the host's memory");
    q.apart = 1;
    CHECK(!halay_planner_cost(ring, &q, &model, &whole), "as a whole");
    is("a block down, all up", whole.predicted_ns - host.predicted_ns,
       2 * 512 + 2.0 * (512 + 1024));
    halay_shape_free(shape);
}

static void test_bounds(void)
{
    static const uint32_t nodes[] = {1, 2, 3, 64};
    static const uint64_t sizes[] = {0, 1, 8, 1000, 65536, 1u << 20};
    halay_model_t built_in;
    unsigned compared = 0;

    halay_model_default(&built_in);
    for (uint32_t i = 0; i < halay_planner_count(); i++) {
        for (uint32_t p = 1; p <= 33; p += p < 9 ? 1 : 8) {
            for (uint32_t k = 0; k < 4 * 6 * 2; k++) {
                const halay_model_t *m = k % 2 ? &model : &built_in;
                halay_shape_t *shape = shape_of(p, nodes[k / 2 % 4]);
                halay_question_t q = {.collective = halay_planner_get(i)->collective,
                                      .commutative = 1,
                                      .element_bytes = 4,
                                      .count = sizes[k / 8],
                                      .shape = shape};
                halay_cost_t c = {.size = sizeof(c)};
                halay_bound_t b = {.size = sizeof(b)};
                int rc = halay_planner_cost(i, &q, m, &c);
                halay_cost_bound(&q, m, &b);
                CHECK(rc == 0 || rc == HALAY_EUNSUPPORTED, "planner %u: %d", i, rc);
                CHECK(rc || c.predicted_ns >= b.bound_ns * 0.999999,
                      "%s.%s p %u, %u a node, %llu: %g < %g (%g %g %g)",
                      halay_collective_name((halay_collective_t)q.collective),
                      halay_planner_get(i)->name, p, nodes[k / 2 % 4], (unsigned long long)q.count,
                      c.predicted_ns, b.bound_ns, b.latency_ns, b.bandwidth_ns, b.reduction_ns);
                compared += rc == 0;
                halay_shape_free(shape);
            }
        }
    }
    CHECK(compared > 1000, "only %u", compared);
}

/* The bound itself, where it is known. */
static void test_bound_values(void)
{
    halay_shape_t *shape = shape_of(16, 16);
    halay_question_t q = {.collective = HALAY_ALLREDUCE,
                          .commutative = 1,
                          .element_bytes = 4,
                          .count = 4000,
                          .shape = shape};
    halay_bound_t b = {.size = sizeof(b)};

    halay_cost_bound(&q, &model, &b);
    is("2 n (p - 1) / p", b.bandwidth_ns, 2.0 * 16000 * 15 / 16);
    is("n (p - 1) / p", b.reduction_ns, 0.5 * 16000 * 15 / 16);
    /* 160 = 10 x 16: who knows at t is F(t) = F(t - 1) + F(t - 10) in units of 16; F is 1 till 9,
     * t - 8 till 19, 13 at 20 and 16 at 21. */
    is("latency", b.latency_ns, 21 * 16);
    halay_model_t slow = model;
    slow.near.latency_ns = 0; /* o, and 2 o: 1 1 2 3 5 8 13 21 */
    halay_cost_bound(&q, &slow, &b);
    is("Fibonacci", b.latency_ns, 7 * 16);
    halay_shape_free(shape);
}

static void test_damage(void)
{
    struct plans all;
    halay_shape_t *shape = shape_of(5, 5);
    halay_question_t q = {
        .collective = HALAY_ALLREDUCE, .element_bytes = 4, .count = 100, .shape = shape};
    unsigned refused = 0, tried = 0;

    make_plans(&all, find_planner(HALAY_ALLREDUCE, "ring"), 5, 0, 0);
    for (uint32_t i = 0; i < all.plan[2]->nsteps * 12; i++) {
        static const uint32_t values[] = {0, 3, UINT32_MAX};
        halay_step_t *s = &all.plan[2]->steps[i / 12], kept = *s;
        uint32_t value = values[i % 3];
        halay_cost_t c = {.size = sizeof(c)};
        switch (i / 3 % 4) {
        case 0:
            s->peer = value;
            break;
        case 1:
            s->operand = value;
            break;
        case 2:
            s->dep[0] = value;
            break;
        default:
            s->edge = value;
            break;
        }
        int rc = halay_plan_cost((const halay_plan_t *const *)all.plan, &q, &model, &c);
        CHECK(rc == 0 || rc == HALAY_EPLAN, "%d", rc);
        refused += rc == HALAY_EPLAN;
        tried++;
        *s = kept;
    }
    CHECK(refused > tried / 4, "%u of %u refused", refused, tried);
    free_plans(&all);
    halay_shape_free(shape);
}

static void test_file(void)
{
    static const char *const path = "test_cost.model";
    static const char *const wrong[][2] = {
        {"call_ns -1\n", "line 1"},           {"call_ns 1 2\n", "line 1"},
        {"\ncall_ns x\n", "line 2"},          {"call_ns nan\n", "line 1"},
        {"call_ns 1\ncall_ns 1\n", "twice"},  {"speed 1\n", "speed"},
        {"near_eager_bytes 1.5\n", "line 1"}, {"", "missing"}};
    halay_model_t back = {.size = sizeof(back)}, other;
    char text[1024], error[256];
    size_t bytes = halay_model_print(&model, NULL, 0);

    CHECK(bytes == halay_model_print(&model, text, sizeof(text)) && bytes == strlen(text) + 1,
          "bytes needed");
    for (size_t i = 0; i <= sizeof(wrong) / sizeof(wrong[0]); i++) {
        int right = i == sizeof(wrong) / sizeof(wrong[0]);
        FILE *file = fopen(path, "w");
        if (!file || fputs(right ? text : wrong[i][0], file) < 0 || fclose(file)) {
            perror(path);
            exit(1);
        }
        error[0] = 0;
        int rc = halay_model_read(path, &back, error, sizeof(error));
        CHECK(right ? rc == 0
                    : rc == HALAY_EINVAL && strstr(error, wrong[i][1]) && strstr(error, path),
              "%zu: %s", i, error);
    }
    CHECK(halay_model_hash(&back) == halay_model_hash(&model), "a model is not what it was");
    other = back;
    other.far.eager_bytes++;
    CHECK(halay_model_hash(&back) != halay_model_hash(&other), "two models are one");
    /* A file of before there was a stage has its constants from the default. */
    FILE *file = fopen(path, "w");
    halay_model_default(&other);
    CHECK(file && fwrite(text, 1, (size_t)(strstr(text, "stage_latency_ns") - text), file) &&
              !fclose(file) && !halay_model_read(path, &back, error, sizeof(error)) &&
              back.call_ns == model.call_ns && back.stage_latency_ns == other.stage_latency_ns &&
              back.stage_byte_ns == other.stage_byte_ns,
          "an older file: %s", error);
    unlink(path);
}

int main(void)
{
    test_exchange();
    test_ring();
    test_stage();
    test_bounds();
    test_bound_values();
    test_damage();
    test_file();
    return failures != 0;
}
