/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.c - a rank of a job, on the first GPU: allreduces in its memory, whose sums it checks.
 *
 * Without a GPU its memory is the host's, and the others' calls fail.
 *
 *   process CALLS [RANK MS]   after so many milliseconds this rank is killed, wherever it is; the
 *                             others must have a verdict before the deadline, and say so
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>

#include "check.h"
#include "device/cuda/driver.h"

enum { COUNT = 1000000, DEADLINE_S = 10 };
#define BYTES (COUNT * sizeof(int32_t))

static struct hly_cuda_driver driver;
static void *stream;
static uint64_t in, out;
static int32_t *host; /* pinned */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void finish(void)
{
    int rc;
    while ((rc = driver.cuStreamQuery(stream)) == HLY_CU_NOT_READY)
        sched_yield();
    CHECK(!rc, "the stream: %d", rc);
}

/* As a program does, whose context stays current. */
static void gpu_begin(void)
{
    char why[256] = "";
    void *context, *at;
    int device;
    CHECK(!hly_cuda_driver_open(&driver, false, why, sizeof(why)), "%s", why);
    const int none = driver.cuInit(0);
    if (none) {
        fprintf(stderr, "process: no GPU (%d)\n", none);
        in = (uint64_t)(uintptr_t)(host = calloc(COUNT, sizeof(*host)));
        out = (uint64_t)(uintptr_t)calloc(COUNT, sizeof(*host));
        MUST(in && out);
        return;
    }
    MUST(!driver.cuDeviceGet(&device, 0));
    MUST(!driver.cuDevicePrimaryCtxRetain(&context, device));
    MUST(!driver.cuCtxPushCurrent_v2(context));
    MUST(!driver.cuStreamCreate(&stream, HLY_CU_NON_BLOCKING));
    MUST(!driver.cuMemAlloc_v2(&in, BYTES) && !driver.cuMemAlloc_v2(&out, BYTES));
    MUST(!driver.cuMemHostAlloc(&at, BYTES, HLY_CU_PORTABLE));
    host = at;
}

static int sum(halay_comm_t *comm, int rank, int nranks, int call)
{
    for (int i = 0; i < COUNT; i++)
        host[i] = rank * (i % 1000) + call;
    MUST(!stream || !driver.cuMemcpyHtoDAsync_v2(in, host, BYTES, stream));
    if (stream)
        finish();
    const int rc = halay_allreduce((void *)(uintptr_t)in, (void *)(uintptr_t)out, COUNT,
                                   HALAY_INT32, HALAY_SUM, comm);
    if (rc || !stream)
        return rc;
    MUST(!driver.cuMemcpyDtoHAsync_v2(host, out, BYTES, stream));
    finish();
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == nranks * (nranks - 1) / 2 * (i % 1000) + nranks * call, "element %d", i);
    return 0;
}

static void die(int signal)
{
    (void)signal;
    kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *world;
    int rank, nranks, rc = 0;
    double begin = 0;
    MUST(argc == 2 || argc == 4);
    gpu_begin();
    MUST(!halay_init(NULL, &context) && !halay_comm_world(context, &world));
    MUST(!halay_comm_rank(world, &rank) && !halay_comm_size(world, &nranks));
    MUST(!halay_comm_set_deadline(world, DEADLINE_S * UINT64_C(1000000000)));
    rc = sum(world, rank, nranks, 0);
    if (rc) {
        fprintf(stderr, "process: rank %d: the first call: %s\n", rank, halay_strerror(rc));
        return 5;
    }
    signal(SIGTERM, SIG_IGN); /* time to say it */
    if (argc == 4 && rank == atoi(argv[2])) {
        const struct itimerval t = {.it_value.tv_usec = 1000l * atoi(argv[3])};
        signal(SIGALRM, die);
        MUST(!setitimer(ITIMER_REAL, &t, NULL));
    }
    for (int call = 1; !rc && call <= atoi(argv[1]); call++) {
        begin = now();
        rc = sum(world, rank, nranks, call);
    }
    if (argc == 2) {
        CHECK(!rc, "%s", halay_strerror(rc));
        MUST(!halay_finalize(context));
        return 0;
    }
    CHECK(rc == HALAY_EPEER && now() - begin < DEADLINE_S, "%s", halay_strerror(rc));
    fprintf(stderr, "process: rank %d was told after %.3f s: %s\n", rank, now() - begin,
            halay_strerror(rc));
    return 4;
}
