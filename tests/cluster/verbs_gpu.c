/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_gpu - a rank whose calls are in memory of a GPU, of a double of CUDA's driver, whose pages
 * crash whoever touches them. Results are right; memory that was freed and is given again at the
 * same address is registered again. Exit codes: 0, 1, or 4: a call failed.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <halay/halay.h>

#include "double/cuda/double.h"

enum { COUNT = 60000, BYTES = COUNT * 4, TRIES = 1000 };
#define CHECK(c)                                                                                   \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #c);         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

extern int cuInit(unsigned flags);
extern int cuDevicePrimaryCtxRetain(void **context, int device);
extern int cuCtxPushCurrent_v2(void *context);
extern int cuMemAlloc_v2(uint64_t *at, size_t bytes);
extern int cuMemFree_v2(uint64_t at);

static halay_comm_t *world;
static int rank, nranks;

static int32_t *inside(uint64_t at)
{
    int32_t *p = cuda_double_inside(at, BYTES);
    CHECK(p);
    return p;
}

static void good(int rc)
{
    if (rc) {
        fprintf(stderr, "rank %d: %s\n", rank, halay_strerror(rc));
        exit(4);
    }
}

static void *at(uint64_t gpu)
{
    return (void *)(uintptr_t)gpu;
}

/* Of so many elements; also few, which no transport may send inline. */
static void calls(uint64_t in, uint64_t out, int count, int salt)
{
    for (int i = 0; i < count; i++)
        inside(in)[i] = rank * i + salt;
    good(halay_allreduce(at(in), at(out), (size_t)count, HALAY_INT32, HALAY_SUM, world));
    for (int i = 0; i < count; i++)
        CHECK(inside(out)[i] == nranks * (nranks - 1) / 2 * i + nranks * salt);
    good(halay_broadcast(at(in), (size_t)count, HALAY_INT32, 1, world));
    for (int i = 0; i < count; i++)
        CHECK(inside(in)[i] == i + salt);
    inside(in)[0] = rank + salt;
    good(halay_allgather(at(in), at(out), (size_t)(count / nranks), HALAY_INT32, world));
    for (int r = 0; r < nranks; r++)
        CHECK(inside(out)[r * (count / nranks)] == r + salt || count < nranks);
}

/* Another allocation, which has the address of an earlier one. */
static uint64_t again(uint64_t before)
{
    uint64_t now = 0;
    int n = 0;
    CHECK(!cuMemFree_v2(before));
    do {
        CHECK(!now || !cuMemFree_v2(now));
        CHECK(!cuMemAlloc_v2(&now, BYTES));
    } while (now != before && ++n < TRIES);
    CHECK(now == before);
    return now;
}

int main(void)
{
    static const int counts[] = {2, 40, 1000, COUNT};
    halay_context_t *context;
    uint64_t in, out;
    void *gpu;
    CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&gpu, 0) && !cuCtxPushCurrent_v2(gpu));
    CHECK(!cuMemAlloc_v2(&in, BYTES) && !cuMemAlloc_v2(&out, BYTES));
    if (halay_init(NULL, &context) || halay_comm_world(context, &world))
        return 1;
    CHECK(!halay_comm_rank(world, &rank) && !halay_comm_size(world, &nranks));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++)
            calls(in, out, counts[i], 7 * round + i);
        in = again(in);
    }
    calls(in, out, COUNT, 3);
    const struct cuda_double_counts c = cuda_double_counts();
    printf("rank %d: %llu allocations exported, %llu flushes\n", rank,
           (unsigned long long)c.exports, (unsigned long long)c.flushes);
    CHECK(c.exports >= 3 && c.flushes > 10 && !c.misused);
    CHECK(!halay_finalize(context));
    return 0;
}
