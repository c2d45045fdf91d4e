/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fault at each call of CUDA's driver in an allreduce of memory of a GPU, the first one and a
 * later one, behind a stream of the program or not, or in a group of calls: the call ends long
 * before twice its deadline, those that fail are told the same, and those that do not have the
 * right sum. Where only some have failed (a rank's last copy up), the next call fails on all, and
 * is told the same.
 *
 *   test_cuda_faults [all]   without: some of the calls, by a seed
 */
#include <string.h>

#include "device/cuda/driver.h"
#include "double/cuda/double.h"
#include "ranks.h"

enum { RANKS = 3, COUNT = 70000, SAMPLES = 10 };
#define BYTES    (COUNT * sizeof(int32_t))
#define DEADLINE 1000000000ull

#define CALL(name, arguments) extern int name arguments;
HLY_CUDA_CALLS(CALL, CALL)

static struct plan { /* of one run */
    uint64_t nth;
    int result;
    bool warm, behind, grouped;
    uint64_t ncalls; /* of the driver, in the call */
    struct ranks_board all;
    int next[RANKS];
    char told[RANKS][512]; /* by it */
} plan;

static void *contexts[1];
static int nfailed, nlate, nruns;

static void enter(void)
{
    CHECK(!cuCtxPushCurrent_v2(contexts[0]), "push");
}

static void leave(void)
{
    void *was;
    CHECK(!cuCtxPopCurrent_v2(&was), "pop");
}

static uint64_t there(void)
{
    uint64_t at;
    enter();
    CHECK(!cuMemAlloc_v2(&at, BYTES), "memory");
    leave();
    return at;
}

static void drop(uint64_t at)
{
    enter();
    CHECK(!cuMemFree_v2(at), "free");
    leave();
}

static int call(struct rank *r, uint64_t in, uint64_t out, bool grouped)
{
    halay_request_t *group = NULL, *one;
    if (!grouped)
        return halay_allreduce((void *)(uintptr_t)in, (void *)(uintptr_t)out, COUNT, HALAY_INT32,
                               HALAY_SUM, r->world);
    CHECK(!halay_group_begin(r->world), "begin");
    int rc = halay_iallreduce((void *)(uintptr_t)in, (void *)(uintptr_t)out, COUNT, HALAY_INT32,
                              HALAY_SUM, r->world, &one);
    CHECK(!rc, "collected: %d", rc);
    rc = halay_group_end(r->world, &group);
    return rc ? rc : halay_request_wait(group);
}

static int reduce(struct rank *r, uint64_t in, uint64_t out, int salt, bool grouped)
{
    int32_t *from = cuda_double_inside(in, BYTES);
    for (int i = 0; i < COUNT; i++)
        from[i] = r->rank * i + salt;
    const uint64_t begin = ranks_now_ns();
    const int rc = call(r, in, out, grouped);
    CHECK(ranks_now_ns() - begin < 3 * DEADLINE, "call %d late: fault %llu", salt,
          (unsigned long long)plan.nth);
    const int32_t *to = cuda_double_inside(out, BYTES);
    for (int i = 0; !rc && i < COUNT; i++)
        CHECK(to[i] == RANKS * (RANKS - 1) / 2 * i + RANKS * salt, "fault %llu, element %d: %d",
              (unsigned long long)plan.nth, i, to[i]);
    return rc;
}

/* With all ranks' codes and texts. */
static void compare(void)
{
    int first = -1, failed = 0;
    for (int k = 0; k < RANKS; k++) {
        const int rc = plan.all.code[k];
        CHECK(rc == HALAY_OK || rc == HALAY_EDEVICE || rc == HALAY_ENOMEM || rc == HALAY_EINVAL,
              "fault %llu, rank %d: %s", (unsigned long long)plan.nth, k, halay_strerror(rc));
        failed += rc != HALAY_OK;
        if (rc && first < 0)
            first = k;
        CHECK(!rc || (plan.all.text[k][0] && !strcmp(plan.all.text[k], plan.all.text[first])),
              "fault %llu:\n%s\n%s", (unsigned long long)plan.nth, plan.all.text[first],
              plan.all.text[k]);
    }
    for (int k = 0; k < RANKS; k++) {
        CHECK(!plan.next[k] == !plan.next[0], "the next call, fault %llu: %d and %d",
              (unsigned long long)plan.nth, plan.next[0], plan.next[k]);
        CHECK(!failed || failed == RANKS || plan.next[k], "fault %llu is forgotten",
              (unsigned long long)plan.nth);
        CHECK(failed == RANKS || !plan.next[k] || !strcmp(plan.told[k], plan.all.text[first]),
              "told later:\n%s\n%s", plan.told[k], plan.all.text[first]);
    }
    nfailed += failed > 0;
    nlate += failed > 0 && failed < RANKS;
    nruns++;
}

static void faulted(struct rank *r, uint64_t in, uint64_t out)
{
    halay_verdict_t v = {.size = sizeof(v)};
    pthread_barrier_wait(&plan.all.barrier);
    if (!r->rank) {
        plan.ncalls = cuda_double_counts().calls;
        cuda_double_fail(NULL, plan.nth, plan.result);
    }
    pthread_barrier_wait(&plan.all.barrier);
    plan.all.code[r->rank] = reduce(r, in, out, 1, plan.grouped);
    CHECK(!halay_comm_verdict(r->world, &v) || !plan.all.code[r->rank], "verdict");
    snprintf(plan.all.text[r->rank], sizeof(plan.all.text[0]), "%s", v.text);
    pthread_barrier_wait(&plan.all.barrier);
    if (!r->rank) {
        plan.ncalls = cuda_double_counts().calls - plan.ncalls;
        cuda_double_fail(NULL, 0, 0);
    }
    pthread_barrier_wait(&plan.all.barrier);
    plan.next[r->rank] = reduce(r, in, out, 2, false);
    v.text[0] = 0;
    CHECK(!halay_comm_verdict(r->world, &v) || !plan.next[r->rank], "verdict");
    snprintf(plan.told[r->rank], sizeof(plan.told[0]), "%s", v.text);
    CHECK(!plan.next[r->rank] == !reduce(r, in, out, 4, true), "a group behind it");
    pthread_barrier_wait(&plan.all.barrier);
    if (!r->rank)
        compare();
    pthread_barrier_wait(&plan.all.barrier);
}

static void body(struct rank *r)
{
    halay_stream_t stream = {.size = sizeof(stream), .kind = HALAY_MEMORY_CUDA};
    const uint64_t in = there(), out = there();
    if (plan.behind) {
        enter();
        CHECK(!cuStreamCreate(&stream.handle, HLY_CU_NON_BLOCKING), "stream");
        CHECK(!halay_comm_stream(r->world, &stream), "set");
        leave();
    }
    for (int i = 0; plan.warm && i < 2; i++)
        CHECK(!reduce(r, in, out, 3, false), "a call without a fault");
    faulted(r, in, out);
    if (plan.behind) {
        enter();
        CHECK(!cuStreamDestroy_v2(stream.handle), "destroy");
        leave();
    }
    drop(in);
    drop(out);
}

static void run(uint64_t nth, int result)
{
    struct ranks_options o = {.nranks = RANKS, .deadline_ns = DEADLINE, .shm = nth % 2};
    plan.nth = nth;
    plan.result = result;
    ranks_run(&o, body, NULL);
}

int main(int argc, char **argv)
{
    static const int results[] = {719, HLY_CU_OUT_OF_MEMORY, 700, 999};
    const bool all = argc > 1 && !strcmp(argv[1], "all");
    uint64_t seed = 7;
    (void)argv;
    setenv("HALAY_DEBUG", "error", 1);
    cuda_double_settings()->delay_us = 20;
    CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&contexts[0], 0), "a GPU");
    pthread_barrier_init(&plan.all.barrier, NULL, RANKS);
    for (int how = 0; how < 6; how++) {
        plan.warm = how & 1;
        plan.behind = how & 2;
        plan.grouped = how & 4;
        run(0, 0);
        const uint64_t ncalls = plan.ncalls;
        CHECK(ncalls > 10, "%llu calls", (unsigned long long)ncalls);
        for (uint64_t n = 1; n <= (all ? ncalls : SAMPLES); n++)
            run(all ? n : 1 + ranks_random(&seed) % ncalls, results[n % 4]);
        printf("%s%s%s: %llu calls of the driver\n", plan.warm ? "a later call" : "the first call",
               plan.behind ? ", behind a stream" : "", plan.grouped ? ", in a group" : "",
               (unsigned long long)ncalls);
    }
    printf("%d runs, %d failed, %d of them not on all ranks at once\n", nruns, nfailed, nlate);
    CHECK(nfailed > nruns / 4, "few calls have failed");
    pthread_barrier_destroy(&plan.all.barrier);
    CHECK(!cuDevicePrimaryCtxRelease_v2(0), "release");
    return 0;
}
