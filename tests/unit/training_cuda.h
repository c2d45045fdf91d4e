/* SPDX-License-Identifier: Apache-2.0 */
/* training_cuda.h - memory of the GPU of the double of CUDA's driver, for the tests of the trainer.
 */
#ifndef HALAY_TESTS_TRAINING_CUDA_H
#define HALAY_TESTS_TRAINING_CUDA_H

#include "double/cuda/calls.h"
#include "double/cuda/double.h"
#include "training_ranks.h"

enum { N = 700 };

static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static void *gpu;

static inline void *gpu_alloc(size_t bytes)
{
    uint64_t at;
    pthread_mutex_lock(&alone);
    CHECK(!cuCtxPushCurrent_v2(gpu) && !cuMemAlloc_v2(&at, bytes), "memory of the GPU");
    cuCtxPopCurrent_v2(&(void *){0});
    pthread_mutex_unlock(&alone);
    return (void *)(uintptr_t)at;
}

static inline void gpu_free(void *at)
{
    pthread_mutex_lock(&alone);
    CHECK(!cuCtxPushCurrent_v2(gpu) && !cuMemFree_v2((uint64_t)(uintptr_t)at), "free");
    cuCtxPopCurrent_v2(&(void *){0});
    pthread_mutex_unlock(&alone);
}

static inline float *inside(const void *at, size_t bytes)
{
    float *p = cuda_double_inside((uint64_t)(uintptr_t)at, bytes);
    CHECK(p, "not of a GPU");
    return p;
}

/* Small integers, whose sums and halves have no rounding. */
static inline float value(int rank, int tensor, int i)
{
    return (float)((rank + 1) * ((i + tensor) % 13));
}

static inline void fill(void *at, int rank, int tensor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        inside(at, count * 4)[i] = value(rank, tensor, (int)i);
}

static inline float sum(int nranks, int tensor, int i)
{
    return (float)(nranks * (nranks + 1) / 2 * ((i + tensor) % 13));
}

static inline void want_sums(const void *at, int nranks, int tensor, size_t count, float factor)
{
    const float *out = inside(at, count * 4);
    for (size_t i = 0; i < count; i++)
        CHECK(out[i] == factor * sum(nranks, tensor, (int)i), "element %zu of tensor %d: %g", i,
              tensor, (double)out[i]);
}

/* Once, before all; and that nothing is left. */
static inline void gpu_begin(void)
{
    CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&gpu, 0), "a GPU");
}

static inline void gpu_end(void)
{
    cuDevicePrimaryCtxRelease_v2(0);
    const struct cuda_double_counts left = cuda_double_counts();
    CHECK(!left.allocations && !left.pinned && !left.streams && !left.events && !left.misused,
          "%d, %d, %d, %d left", left.allocations, left.pinned, left.streams, left.events);
}

#endif
