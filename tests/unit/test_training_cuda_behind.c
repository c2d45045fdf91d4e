/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_cuda_behind.c - tensors that stand behind a stream of the program, over the double
 * of CUDA's driver: their values are made by work that is in the stream when they are submitted.
 * And what a device's failure, or a rank without it, does to the other ranks.
 */
#include "training_cuda.h"

extern int cuStreamCreate(void **stream, unsigned flags);
extern int cuStreamDestroy_v2(void *stream);
extern int cuStreamSynchronize(void *stream);
extern int cuLaunchHostFunc(void *stream, void (*fn)(void *arg), void *arg);

enum { TENSORS = 5, MANY = 200 }; /* MANY: more than a device's marks */

/* What the stream does: makes the values of a tensor, late. */
struct late {
    void *at;
    int rank, tensor;
    size_t count;
    const volatile int *gate; /* NULL, or it waits for this */
};

static void make(void *arg)
{
    const struct late *late = arg;
    while (late->gate && !__atomic_load_n(late->gate, __ATOMIC_ACQUIRE))
        usleep(100);
    usleep(50);
    fill(late->at, late->rank, late->tensor, late->count);
}

static void enqueue(void *stream, struct late *late)
{
    pthread_mutex_lock(&alone);
    CHECK(!cuCtxPushCurrent_v2(gpu) && !cuLaunchHostFunc(stream, make, late), "work");
    cuCtxPopCurrent_v2(&(void *){0});
    pthread_mutex_unlock(&alone);
}

static void *stream_make(void)
{
    void *stream;
    pthread_mutex_lock(&alone);
    CHECK(!cuCtxPushCurrent_v2(gpu) && !cuStreamCreate(&stream, 1), "a stream");
    cuCtxPopCurrent_v2(&(void *){0});
    pthread_mutex_unlock(&alone);
    return stream;
}

static void stream_end(void *stream)
{
    pthread_mutex_lock(&alone);
    CHECK(!cuCtxPushCurrent_v2(gpu), "the context");
    cuStreamSynchronize(stream);
    CHECK(!cuStreamDestroy_v2(stream), "a stream");
    cuCtxPopCurrent_v2(&(void *){0});
    pthread_mutex_unlock(&alone);
}

static void after(struct rank *rank, const char *name, void *stream)
{
    const halay_stream_t s = {.size = sizeof(s), .kind = HALAY_MEMORY_CUDA, .handle = stream};
    int rc = halay_trainer_after(rank->trainer, name, &s);
    CHECK(!rc, "after: %s", halay_strerror(rc));
}

static halay_ticket_t submit(struct rank *rank, const char *name, void *at, size_t count)
{
    halay_ticket_t ticket;
    int rc = halay_trainer_allreduce(rank->trainer, name, HALAY_IN_PLACE, at, count, HALAY_FLOAT32,
                                     HALAY_SUM, 1, 1, &ticket);
    CHECK(!rc, "submit %s: %s", name, halay_strerror(rc));
    return ticket;
}

/* ------------------------------------------------------------------ values that come late */

static void step(struct rank *rank, void *stream, void *at[])
{
    halay_ticket_t tickets[TENSORS];
    struct late late[TENSORS];
    char name[16];
    for (int t = 0; t < TENSORS; t++) {
        late[t] = (struct late){.at = at[t], .rank = rank->rank, .tensor = t, .count = N};
        enqueue(stream, &late[t]);
        snprintf(name, sizeof(name), "t%d", t);
        after(rank, name, stream);
        tickets[t] = submit(rank, name, at[t], N);
    }
    for (int t = 0; t < TENSORS; t++)
        finish(rank, tickets[t], 0);
    for (int t = 0; t < TENSORS; t++)
        want_sums(at[t], rank->nranks, t, N, 1);
}

/* In replays, none of which is void although all waits come before the values; and the processor
 * never waits for a stream. */
static void steps(struct rank *rank)
{
    void *at[TENSORS], *stream = stream_make();
    for (int t = 0; t < TENSORS; t++)
        at[t] = gpu_alloc(N * 4);
    for (int s = 0; s < 12; s++)
        step(rank, stream, at);
    const halay_trainer_counters_t before = counters(rank);
    const uint64_t waited = cuda_double_counts().waited;
    for (int s = 0; s < 6; s++)
        step(rank, stream, at);
    CHECK(counters(rank).cycles >= before.cycles + 5, "no replay");
    CHECK(counters(rank).voids == before.voids, "a replay was void");
    CHECK(counters(rank).control_rounds == before.control_rounds, "rounds in a replay");
    CHECK(cuda_double_counts().waited == waited, "the processor has waited");
    meet(rank);
    stream_end(stream);
    for (int t = 0; t < TENSORS; t++)
        gpu_free(at[t]);
}

/* Nothing is read before its values are there: the stream stands till all are submitted, and one of
 * another stream goes on meanwhile. More tensors than marks; a group stands behind its first. */
static void many(struct rank *rank)
{
    static volatile int gates[RANKS_MAX];
    static void *at[RANKS_MAX][MANY];
    void *stream = stream_make(), **mine = at[rank->rank], *other = gpu_alloc(N * 4);
    halay_ticket_t tickets[MANY], group[2], free_one;
    struct late late[MANY];
    char name[16];
    __atomic_store_n(&gates[rank->rank], 0, __ATOMIC_RELEASE);
    for (int t = 0; t < MANY; t++) {
        mine[t] = gpu_alloc(64);
        late[t] = (struct late){.at = mine[t],
                                .rank = rank->rank,
                                .tensor = t,
                                .count = 16,
                                .gate = &gates[rank->rank]};
        enqueue(stream, &late[t]);
        snprintf(name, sizeof(name), "m%d", t);
        if (t > 1)
            after(rank, name, stream);
        if (t > 1)
            tickets[t] = submit(rank, name, mine[t], 16);
    }
    after(rank, "m0", stream);
    const halay_reduction_t says[2] = {
        {sizeof(*says), "m0", {1, {16}}, HALAY_FLOAT32, HALAY_SUM, 1, 1},
        {sizeof(*says), "m1", {2, {4, 4}}, HALAY_FLOAT32, HALAY_SUM, 1, 1}};
    CHECK(!halay_trainer_allreduce_group(rank->trainer, 2, says, (const void *const *)mine, mine,
                                         group),
          "group");
    fill(other, rank->rank, 3, N);
    free_one = submit(rank, "other", other, N);
    finish(rank, free_one, 0);
    want_sums(other, rank->nranks, 3, N, 1);
    for (int t = 2; t < MANY; t += 50)
        CHECK(halay_trainer_poll(rank->trainer, tickets[t]) == 0, "%d is done too early", t);
    CHECK(halay_trainer_poll(rank->trainer, group[1]) == 0, "the group is done too early");
    __atomic_store_n(&gates[rank->rank], 1, __ATOMIC_RELEASE);
    for (int t = 0; t < MANY; t++) {
        finish(rank, t < 2 ? group[t] : tickets[t], 0);
        want_sums(mine[t], rank->nranks, t, 16, 1);
    }
    meet(rank);
    for (int t = 0; t < MANY; t++)
        gpu_free(mine[t]);
    stream_end(stream);
    gpu_free(other);
}

/* Streams that are none, names that are never submitted or submitted twice, and a trainer that ends
 * while a tensor stands behind a stream that does not go on. */
static void odd(struct rank *rank)
{
    static volatile int gates[RANKS_MAX];
    void *at = gpu_alloc(N * 4), *stream = stream_make();
    halay_stream_t s = {.size = sizeof(s), .kind = HALAY_MEMORY_TEST};
    halay_ticket_t ticket = submit(rank, "first", at, N), twice;
    struct late late = {.at = at, .rank = rank->rank, .count = N, .gate = &gates[rank->rank]};
    finish(rank, ticket, 0);
    CHECK(halay_trainer_after(rank->trainer, "x", &s) == HALAY_EUNSUPPORTED, "no such device");
    s.size = 0;
    CHECK(halay_trainer_after(rank->trainer, "x", &s) == HALAY_EINVAL, "no size");
    cuda_double_capture(stream, 1);
    s = (halay_stream_t){.size = sizeof(s), .kind = HALAY_MEMORY_CUDA, .handle = stream};
    CHECK(halay_trainer_after(rank->trainer, "x", &s) == HALAY_EUNSUPPORTED, "captured");
    cuda_double_capture(stream, 0);
    __atomic_store_n(&gates[rank->rank], 0, __ATOMIC_RELEASE);
    enqueue(stream, &late);
    after(rank, "never", stream);
    after(rank, "never", stream);
    after(rank, "x", stream);
    ticket = submit(rank, "x", at, N);
    after(rank, "x", stream);
    CHECK(halay_trainer_allreduce(rank->trainer, "x", HALAY_IN_PLACE, at, N, HALAY_FLOAT32,
                                  HALAY_SUM, 1, 1, &twice) == HALAY_EINVAL,
          "it is out already");
    CHECK(halay_trainer_poll(rank->trainer, ticket) == 0, "too early");
    meet(rank);
    halay_trainer_destroy(rank->trainer);
    rank->trainer = NULL;
    __atomic_store_n(&gates[rank->rank], 1, __ATOMIC_RELEASE);
    stream_end(stream);
    gpu_free(at);
}

/* The stream does not come to the tensor: its rank says so, and the others name that rank. */
static void stands(struct rank *rank)
{
    static volatile int gate;
    char text[1024];
    void *at = gpu_alloc(N * 4), *stream = stream_make();
    struct late late = {.at = at, .rank = rank->rank, .count = N, .gate = &gate};
    __atomic_store_n(&gate, 0, __ATOMIC_RELEASE);
    meet(rank);
    if (rank->rank == 1) {
        enqueue(stream, &late);
        after(rank, "x", stream);
    }
    halay_ticket_t ticket = submit(rank, "x", at, N);
    int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
    CHECK(rc == HALAY_ETIMEOUT && strstr(text, rank->rank == 1 ? "stream" : "rank 1") != NULL,
          "%d: %s", rc, text);
    halay_trainer_release(rank->trainer, ticket);
    meet(rank);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    stream_end(stream);
    gpu_free(at);
}

/* ------------------------------------------------------------------ failures */

static const char *fault_call;
static uint64_t fault_nth;

/* A driver's call fails on some rank, in a replay or (nth 1) in rounds. Nobody waits for the
 * deadline, then or in the next step: so all ranks know. */
static void failure(struct rank *rank)
{
    void *at[TENSORS], *stream = stream_make();
    halay_ticket_t tickets[TENSORS];
    char text[1024], name[24];
    int failed = 0;
    for (int t = 0; t < TENSORS; t++)
        at[t] = gpu_alloc(N * 4);
    for (int s = 0; s < (fault_nth == 1 ? 1 : 9); s++)
        step(rank, stream, at);
    meet(rank);
    if (!rank->rank)
        cuda_double_fail(fault_call, fault_nth, 700);
    meet(rank);
    for (int s = 0; s < 2; s++) {
        for (int t = 0; t < TENSORS; t++) {
            snprintf(name, sizeof(name), "t%d", t);
            after(rank, name, stream);
            int rc = halay_trainer_allreduce(rank->trainer, name, HALAY_IN_PLACE, at[t], N,
                                             HALAY_FLOAT32, HALAY_SUM, 1, 1, &tickets[t]);
            CHECK(!rc || rc == HALAY_EDEVICE, "submit: %s", halay_strerror(rc));
            tickets[t] = rc ? 0 : tickets[t];
        }
        failed = 0;
        for (int t = 0; t < TENSORS; t++) {
            int rc = HALAY_EDEVICE;
            if (tickets[t])
                rc = halay_trainer_wait(rank->trainer, tickets[t], text, sizeof(text));
            CHECK(rc != HALAY_ETIMEOUT, "%s: %s", fault_call, text);
            CHECK(!rc || !tickets[t] || text[0], "an error without a text");
            failed += rc != 0;
            halay_trainer_release(rank->trainer, tickets[t]);
        }
    }
    CHECK(failed == TENSORS, "rank %d goes on, %s %d", rank->rank, fault_call, (int)fault_nth);
    meet(rank);
    cuda_double_fail(NULL, 0, 0);
    stream_end(stream);
    for (int t = 0; t < TENSORS; t++)
        gpu_free(at[t]);
}

static void failures(void)
{
    static const char *const calls[] = {"cuEventQuery", "cuMemcpyDtoHAsync_v2"};
    static const struct test_case one = {.name = "failure", .body = failure, .sizes = {2}};
    for (size_t c = 0; c < 2; c++)
        for (fault_nth = 1; fault_nth <= 4; fault_nth++) {
            fault_call = calls[c];
            run_case(&one);
        }
}

/* ------------------------------------------------------------------ a rank without a GPU */

/* The last rank has joined, and never had memory of a GPU: its zeros can be nowhere. All others are
 * told so, and go on with the host's. */
static void join_without(struct rank *rank)
{
    int last = rank->nranks - 1;
    float host[N];
    char text[1024], name[24];
    halay_ticket_t ticket;
    if (rank->rank < last) {
        void *at = gpu_alloc(N * 4);
        ticket = submit(rank, "gpu", at, N);
        int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
        snprintf(name, sizeof(name), "rank %d", last);
        CHECK(rc == HALAY_EUNSUPPORTED && strstr(text, name) && strstr(text, "GPU's memory"),
              "%d: %s", rc, text);
        halay_trainer_release(rank->trainer, ticket);
        for (int i = 0; i < N; i++)
            host[i] = 1;
        finish(rank, submit(rank, "host", host, N), 0);
        CHECK(host[N - 1] == (float)last, "%g", (double)host[N - 1]);
        gpu_free(at);
    }
    CHECK(!halay_trainer_join(rank->trainer, &ticket), "join");
    finish(rank, ticket, 0);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {.name = "steps", .body = steps, .sizes = {1, 3}},
        {.name = "unfused", .body = steps, .sizes = {2}, .fusion = "0"},
        {.name = "many", .body = many, .sizes = {2}},
        {.name = "odd", .body = odd, .sizes = {2}},
        {.name = "stands", .body = stands, .sizes = {3}, .deadline_s = "1"},
        {.name = "join_without", .body = join_without, .sizes = {3}},
        {0}};
    gpu_begin();
    int rc = argc > 1 && !strcmp(argv[1], "failures") ? 0 : run_cases(cases, argc, argv);
    if (argc < 2 || !strcmp(argv[1], "failures"))
        failures();
    gpu_end();
    return rc;
}
