/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c - a rank that times blocking calls in memory of the first GPU: the median of each size.
 * Rank 0 prints.
 *
 *   calls LARGEST_BYTES [REPEATS]
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <halay/halay.h>

#include "check.h"
#include "device/cuda/driver.h"

enum { REPEATS_MAX = 1000, WARM = 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int call(int which, void *in, void *out, size_t count, halay_comm_t *comm)
{
    switch (which) {
    case 0:
        return halay_allreduce(in, out, count, HALAY_FLOAT32, HALAY_SUM, comm);
    case 1:
        return halay_allgather(in, out, count, HALAY_FLOAT32, comm);
    case 2:
        return halay_alltoall(in, out, count, HALAY_FLOAT32, comm);
    default:
        return halay_broadcast(out, count, HALAY_FLOAT32, 0, comm);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"allreduce", "allgather", "alltoall", "broadcast"};
    static double times[REPEATS_MAX];
    static struct hly_cuda_driver driver;
    halay_context_t *context;
    halay_comm_t *world;
    char why[256] = "";
    void *gpu;
    uint64_t in, out;
    int rank, nranks, device;
    MUST(argc == 2 || argc == 3);
    const size_t largest = strtoul(argv[1], NULL, 10);
    const int repeats = argc == 3 ? (int)strtol(argv[2], NULL, 10) : 50;
    MUST(repeats >= 1 && repeats <= REPEATS_MAX);
    CHECK(!hly_cuda_driver_open(&driver, false, why, sizeof(why)), "%s", why);
    MUST(!driver.cuInit(0) && !driver.cuDeviceGet(&device, 0));
    MUST(!driver.cuDevicePrimaryCtxRetain(&gpu, device) && !driver.cuCtxPushCurrent_v2(gpu));
    MUST(!driver.cuMemAlloc_v2(&in, largest) && !driver.cuMemAlloc_v2(&out, largest));
    MUST(!halay_init(NULL, &context) && !halay_comm_world(context, &world));
    MUST(!halay_comm_rank(world, &rank) && !halay_comm_size(world, &nranks));
    for (int which = 0; which < 4; which++)
        for (size_t bytes = 64; bytes <= largest; bytes *= 4) {
            const size_t each = which == 1 || which == 2 ? bytes / (size_t)nranks : bytes;
            int n = 0;
            double begin = 0;
            for (int i = 0; i < WARM + repeats; i++) {
                begin = now();
                MUST(!call(which, (void *)(uintptr_t)in, (void *)(uintptr_t)out, each / 4, world));
                if (i >= WARM)
                    times[n++] = now() - begin;
            }
            qsort(times, (size_t)n, sizeof(*times), compare);
            if (!rank)
                printf("%-9s %2d ranks %10zu bytes %10.1f us\n", names[which], nranks, bytes,
                       1e6 * times[n / 2]);
        }
    MUST(!halay_finalize(context));
    return 0;
}
