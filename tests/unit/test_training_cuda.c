/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_cuda.c - tensors in memory of a GPU, over the double of CUDA's driver: all
 * operations, alone and fused, rounds and replays; kinds that differ; a driver that fails.
 * test_training_cuda_behind.c has tensors behind streams.
 */
#include "training_cuda.h"

/* ------------------------------------------------------------------ allreduce */

/* A step of so many tensors: every other one is in place and scaled. */
enum { TENSORS = 5 };
static void step(struct rank *rank, void *in[], void *out[], int code)
{
    halay_ticket_t tickets[TENSORS];
    char name[16];
    for (int t = 0; t < TENSORS; t++) {
        double scale = t % 2 ? 0.5 : 1;
        fill(t % 2 ? out[t] : in[t], rank->rank, t, N);
        snprintf(name, sizeof(name), "t%d", t);
        int rc =
            halay_trainer_allreduce(rank->trainer, name, t % 2 ? HALAY_IN_PLACE : in[t], out[t], N,
                                    HALAY_FLOAT32, HALAY_SUM, scale, 4 * scale, &tickets[t]);
        CHECK(!rc, "submit: %s", halay_strerror(rc));
    }
    for (int t = 0; t < TENSORS; t++)
        finish(rank, tickets[t], code);
    for (int t = 0; t < TENSORS && !code; t++)
        want_sums(out[t], rank->nranks, t, N, t % 2 ? 1 : 4);
}

static void steps_end(void *in[], void *out[])
{
    for (int t = 0; t < TENSORS; t++) {
        gpu_free(in[t]);
        gpu_free(out[t]);
    }
}

static void steps_begin(void *in[], void *out[])
{
    for (int t = 0; t < TENSORS; t++) {
        in[t] = gpu_alloc(N * 4);
        out[t] = gpu_alloc(N * 4);
    }
}

/* Without rounds from some step on, and never through the host's memory of the trainer. */
static void allreduces(struct rank *rank)
{
    void *in[TENSORS], *out[TENSORS];
    steps_begin(in, out);
    for (int s = 0; s < 12; s++)
        step(rank, in, out, 0);
    uint64_t rounds = counters(rank).control_rounds, cycles = counters(rank).cycles;
    for (int s = 0; s < 5; s++)
        step(rank, in, out, 0);
    CHECK(counters(rank).cycles >= cycles + 4, "no replay");
    CHECK(counters(rank).control_rounds == rounds, "rounds in a replay");
    if (!getenv("HALAY_FUSION"))
        CHECK(counters(rank).fused_tensors > 0, "nothing was fused");
    meet(rank);
    steps_end(in, out);
}

/* A fused group is packed by one launch and unpacked by another; or by one for each tensor. */
static uint64_t launches; /* of all ranks, in a few replays */
static void packs(struct rank *rank)
{
    void *in[TENSORS], *out[TENSORS];
    steps_begin(in, out);
    for (int s = 0; s < 12; s++)
        step(rank, in, out, 0);
    meet(rank);
    const uint64_t before = cuda_double_counts().kernels, rounds = counters(rank).control_rounds;
    meet(rank);
    for (int s = 0; s < 5; s++)
        step(rank, in, out, 0);
    meet(rank);
    if (rank->rank == 0)
        launches = cuda_double_counts().kernels - before;
    CHECK(counters(rank).control_rounds == rounds, "rounds in a replay");
    meet(rank);
    steps_end(in, out);
}

static void packs_run(void)
{
    static const struct test_case one = {.name = "packs", .body = packs, .sizes = {2}};
    setenv("HALAY_NCCL_LIBRARY", "off", 1); /* their kernels would count, too */
    run_case(&one);
    unsetenv("HALAY_NCCL_LIBRARY");
    CHECK(launches == 2 * 5 * 2, "%d launches", (int)launches);
}

/* The host's tensors and a GPU's in one step: they are never fused with each other. */
static void both_kinds(struct rank *rank)
{
    void *at = gpu_alloc(N * 4);
    float host[N];
    halay_ticket_t tickets[2];
    for (int s = 0; s < 10; s++) {
        fill(at, rank->rank, 0, N);
        memcpy(host, inside(at, N * 4), sizeof(host));
        CHECK(!halay_trainer_allreduce(rank->trainer, "g", HALAY_IN_PLACE, at, N, HALAY_FLOAT32,
                                       HALAY_SUM, 1, 1, &tickets[0]),
              "gpu");
        CHECK(!halay_trainer_allreduce(rank->trainer, "h", HALAY_IN_PLACE, host, N, HALAY_FLOAT32,
                                       HALAY_SUM, 1, 1, &tickets[1]),
              "host");
        finish(rank, tickets[0], 0);
        finish(rank, tickets[1], 0);
        want_sums(at, rank->nranks, 0, N, 1);
        CHECK(!memcmp(host, inside(at, N * 4), sizeof(host)), "the host's");
    }
    gpu_free(at);
}

/* ------------------------------------------------------------------ other operations */

static void gathered(struct rank *rank, halay_ticket_t ticket, size_t want)
{
    const void *data;
    const size_t *rows;
    size_t count;
    char text[1024];
    int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
    CHECK(!rc, "%s", text);
    CHECK(!halay_trainer_result(rank->trainer, ticket, &data, &count, &rows), "result");
    CHECK(count == want, "%zu elements", count);
    for (size_t r = 0, at = 0; r < (size_t)rank->nranks; r++)
        for (size_t i = 0; i < rows[r] * 3; i++, at++)
            CHECK(inside(data, count * 4)[at] == (float)r, "element %zu", at);
    halay_trainer_release(rank->trainer, ticket);
}

/* Rank 0 has no rows to gather, and memory nowhere. */
static void gathers(struct rank *rank, void *at)
{
    halay_ticket_t ticket;
    int r = rank->rank, n = rank->nranks;
    size_t rows[RANKS_MAX], total = 0;
    for (int i = 0; i < n; i++) {
        rows[i] = 1;
        total += (size_t)i;
    }
    for (size_t i = 0; i < N; i++)
        inside(at, N * 4)[i] = (float)r;
    CHECK(!halay_trainer_allgather(rank->trainer, "g", r ? at : NULL, (size_t)r, 3, HALAY_FLOAT32,
                                   &ticket),
          "allgather");
    if (n > 1)
        gathered(rank, ticket, 3 * total);
    else
        finish(rank, ticket, 0);
    const halay_dims_t shape = {.ndims = 2, .dims = {(size_t)n, 3}};
    CHECK(!halay_trainer_alltoall(rank->trainer, "a", at, rows, &shape, HALAY_FLOAT32, &ticket),
          "alltoall");
    gathered(rank, ticket, 3 * (size_t)n);
}

static void others(struct rank *rank)
{
    halay_ticket_t ticket;
    void *at = gpu_alloc(N * 4), *out = gpu_alloc(N * 4);
    size_t n = (size_t)rank->nranks;
    for (int s = 0; s < 10; s++) {
        fill(at, rank->rank, 3, N);
        CHECK(!halay_trainer_broadcast(rank->trainer, "b", at, N, HALAY_FLOAT32, 0, &ticket), "b");
        finish(rank, ticket, 0);
        for (int i = 0; i < N; i++)
            CHECK(inside(at, N * 4)[i] == value(0, 3, i), "broadcast, element %d", i);
        fill(at, rank->rank, 0, N);
        const halay_dims_t shape = {.ndims = 2, .dims = {n, 10}};
        CHECK(!halay_trainer_reduce_scatter(rank->trainer, "s", at, out, &shape, HALAY_FLOAT32,
                                            HALAY_SUM, 2, 0.5, &ticket),
              "reduce_scatter");
        finish(rank, ticket, 0);
        for (int i = 0; i < 10; i++)
            CHECK(inside(out, 40)[i] == sum(rank->nranks, 0, rank->rank * 10 + i), "scatter %d", i);
        gathers(rank, at);
    }
    gpu_free(at);
    gpu_free(out);
}

/* The last rank has joined: its zeros are of the kind of the others'. */
static void joins(struct rank *rank)
{
    halay_ticket_t ticket;
    void *at = gpu_alloc(N * 4);
    int last = rank->nranks - 1;
    fill(at, rank->rank, 0, N);
    CHECK(!halay_trainer_allreduce(rank->trainer, "all", HALAY_IN_PLACE, at, N, HALAY_FLOAT32,
                                   HALAY_SUM, 1, 1, &ticket),
          "all");
    finish(rank, ticket, 0);
    if (rank->rank < last) {
        fill(at, rank->rank, 0, N);
        CHECK(!halay_trainer_allreduce(rank->trainer, "some", HALAY_IN_PLACE, at, N, HALAY_FLOAT32,
                                       HALAY_SUM, 1, 1, &ticket),
              "some");
        finish(rank, ticket, 0);
        want_sums(at, last, 0, N, 1);
    }
    CHECK(!halay_trainer_join(rank->trainer, &ticket), "join");
    finish(rank, ticket, 0);
    gpu_free(at);
}

/* ------------------------------------------------------------------ errors */

static void kinds_differ(struct rank *rank)
{
    static float host[RANKS_MAX][N];
    char text[1024];
    halay_ticket_t ticket;
    void *at = gpu_alloc(N * 4), *mine = rank->rank == 1 ? (void *)host[1] : at;
    CHECK(!halay_trainer_allreduce(rank->trainer, "x", HALAY_IN_PLACE, mine, N, HALAY_FLOAT32,
                                   HALAY_SUM, 1, 1, &ticket),
          "submit");
    int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
    CHECK(rc == HALAY_EMISMATCH && strstr(text, "GPU's memory") && strstr(text, "host's memory") &&
              strstr(text, "rank 1"),
          "%d: %s", rc, text);
    halay_trainer_release(rank->trainer, ticket);
    rc = halay_trainer_allreduce(rank->trainer, "y", host[rank->rank], at, N, HALAY_FLOAT32,
                                 HALAY_SUM, 1, 1, &ticket);
    CHECK(rc == HALAY_EINVAL, "two kinds in one tensor: %d", rc);
    gpu_free(at);
}

/* The call that fails, and how many of its kind go well before. */
static const char *fault_call;
static uint64_t fault_nth;
static int fault_seen; /* tensors that have ended with an error */

/* A call of the driver fails in a step, of a replay too: in time, somebody says so. */
static void driver_fails(struct rank *rank)
{
    void *in[TENSORS], *out[TENSORS];
    char text[1024];
    halay_ticket_t tickets[TENSORS];
    int failed = 0;
    steps_begin(in, out);
    for (int s = 0; s < (fault_nth % 2 ? 2 : 9); s++)
        step(rank, in, out, 0);
    meet(rank);
    if (!rank->rank)
        cuda_double_fail(fault_call, fault_nth, 700);
    meet(rank);
    for (int t = 0; t < TENSORS; t++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", t);
        if (halay_trainer_allreduce(rank->trainer, name, in[t], out[t], N, HALAY_FLOAT32, HALAY_SUM,
                                    0.5, 2, &tickets[t]))
            tickets[t] = 0;
        failed += !tickets[t];
    }
    for (int t = 0; t < TENSORS; t++) {
        if (!tickets[t])
            continue;
        const int rc = halay_trainer_wait(rank->trainer, tickets[t], text, sizeof(text));
        CHECK(!rc || !strstr(text, "is NULL"), "%s", text);
        failed += rc != 0;
        halay_trainer_release(rank->trainer, tickets[t]);
    }
    meet(rank);
    cuda_double_fail(NULL, 0, 0);
    __atomic_add_fetch(&fault_seen, failed, __ATOMIC_SEQ_CST);
    steps_end(in, out);
}

/* More of them by name: a few take as long as the deadline. */
static void faults_run(uint64_t most)
{
    static const char *const calls[] = {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
                                        "cuLaunchKernel", "cuStreamWriteValue64_v2"};
    static const struct test_case one = {
        .name = "driver_fails", .body = driver_fails, .sizes = {2}, .deadline_s = "1"};
    for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
        for (fault_nth = 1; fault_nth <= most; fault_nth++) {
            fault_call = calls[c];
            fault_seen = 0;
            run_case(&one);
            CHECK(fault_seen || fault_nth > 2, "%s %d: nobody has seen it", fault_call,
                  (int)fault_nth);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {.name = "allreduces", .body = allreduces, .sizes = {1, 3}},
        {.name = "unfused", .body = allreduces, .sizes = {2}, .fusion = "0"},
        {.name = "both_kinds", .body = both_kinds, .sizes = {2}},
        {.name = "others", .body = others, .sizes = {1, 3}},
        {.name = "joins", .body = joins, .sizes = {3}},
        {.name = "kinds_differ", .body = kinds_differ, .sizes = {3}},
        {0}};
    gpu_begin();
    if (argc < 2 || !strcmp(argv[1], "packs"))
        packs_run();
    const int own = argc > 1 && (!strcmp(argv[1], "driver_fails") || !strcmp(argv[1], "packs"));
    int rc = own ? 0 : run_cases(cases, argc, argv);
    if (argc < 2 || !strcmp(argv[1], "driver_fails"))
        faults_run(argc < 2 ? 4 : 12);
    gpu_end();
    return rc;
}
