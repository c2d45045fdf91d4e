/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_halay.c - a rank for bench/faults: 8-byte allreduces until a call fails; then the
 * survivors go on without whoever has failed. Times are of CLOCK_MONOTONIC, in seconds.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
    halay_context_t *context;
    halay_comm_t *world, *left;
    halay_verdict_t v = {.size = sizeof(v)};
    int64_t in = 1, out = 0;
    int rank, nranks, rc = 0;
    if (halay_init(NULL, &context) || halay_comm_world(context, &world) ||
        halay_comm_rank(world, &rank) || halay_comm_size(world, &nranks))
        return 2;
    printf("rank %d pid %d begins\n", rank, (int)getpid());
    fflush(stdout);
    while (!rc)
        rc = halay_allreduce(&in, &out, 1, HALAY_INT64, HALAY_SUM, world);
    printf("rank %d told at %.6f: %s\n", rank, now(),
           halay_comm_verdict(world, &v) ? halay_strerror(rc) : v.text);
    fflush(stdout);
    rc = halay_comm_shrink(world, &left);
    if (!rc)
        rc = halay_allreduce(&in, &out, 1, HALAY_INT64, HALAY_SUM, left);
    printf("rank %d back at %.6f: %d of %d\n", rank, now(), rc ? rc : (int)out, nranks);
    fflush(stdout);
    if (!rc)
        rc = halay_barrier(left);
    return rc ? 4 : 0;
}
