/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_opens.c - a program that has loaded CUDA's driver passes memory of its GPU, and says so
 * nowhere: the context opens CUDA's device at the first call. Over the double of the driver.
 */
#include <string.h>

#include "base/context.h"
#include "double/cuda/calls.h"
#include "double/cuda/double.h"
#include "ranks.h"

enum { COUNT = 400000, RANKS = 3 };
#define BYTES (COUNT * sizeof(int32_t))

static int32_t *inside(uint64_t at)
{
    int32_t *p = cuda_double_inside(at, BYTES);
    CHECK(p, "not of a GPU");
    return p;
}

static void sums(struct rank *r, uint64_t in, uint64_t out)
{
    for (int call = 0; call < 3; call++) {
        for (int i = 0; i < COUNT; i++)
            inside(in)[i] = r->rank * i + call;
        int rc = halay_allreduce((void *)(uintptr_t)in, (void *)(uintptr_t)out, COUNT, HALAY_INT32,
                                 HALAY_SUM, r->world);
        CHECK(!rc, "allreduce: %s", halay_strerror(rc));
        for (int i = 0; i < COUNT; i++)
            CHECK(inside(out)[i] == RANKS * (RANKS - 1) / 2 * i + RANKS * call, "element %d", i);
    }
}

/* The host's on one rank, a GPU's on the others: the same error on all. */
static void kinds_differ(struct rank *r, uint64_t at)
{
    static int32_t host[4];
    halay_verdict_t v = {.size = sizeof(v)};
    void *buffer = r->rank == 1 ? (void *)host : (void *)(uintptr_t)at;
    int rc = halay_broadcast(buffer, 4, HALAY_INT32, 0, r->world);
    CHECK(rc == HALAY_EMISMATCH, "%s", halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && v.text[0], "verdict");
}

static void body(struct rank *r)
{
    void *gpu;
    uint64_t in, out;
    uint32_t kind;
    CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&gpu, 0) && !cuCtxPushCurrent_v2(gpu), "a GPU");
    CHECK(!cuMemAlloc_v2(&in, BYTES) && !cuMemAlloc_v2(&out, BYTES), "memory of it");
    cuCtxPopCurrent_v2(&gpu);
    CHECK(r->context->ndevices == 1, "%d devices", r->context->ndevices);
    sums(r, in, out);
    CHECK(r->context->ndevices == 2, "%d devices", r->context->ndevices);
    CHECK(!halay_mem_kind(r->context, (void *)(uintptr_t)in, BYTES, &kind), "kind");
    CHECK(kind == HALAY_MEMORY_CUDA, "kind %u", kind);
    kinds_differ(r, in);
    sums(r, in, out);
    CHECK(!halay_barrier(r->world), "barrier");
    cuCtxPushCurrent_v2(gpu);
    CHECK(!cuMemFree_v2(in) && !cuMemFree_v2(out), "free");
    cuCtxPopCurrent_v2(&gpu);
    cuDevicePrimaryCtxRelease_v2(0);
}

int main(void)
{
    for (int shm = 0; shm < 2; shm++) {
        struct ranks_options o = {.nranks = RANKS, .shm = shm};
        ranks_run(&o, body, NULL);
    }
    const struct cuda_double_counts left = cuda_double_counts();
    CHECK(!left.allocations && !left.pinned && !left.streams && !left.misused, "%d, %d, %d left",
          left.allocations, left.pinned, left.streams);
    return 0;
}
