/* SPDX-License-Identifier: Apache-2.0 */
/*
 * startup_halay - when this rank was in main(), had initialized and had done the first barrier (ns,
 * of the machine's clock, which the nodes of a test-bed share), and its connections. startup_mpi.c
 * does the same.
 */
#include <halay/halay.h>
#include <stdio.h>
#include <time.h>

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int main(void)
{
    long long begin = now_ns();
    halay_context_t *context;
    halay_comm_t *world;
    halay_counters_t counters = {.size = sizeof counters};
    int rank;
    if (halay_init(NULL, &context))
        return 1; /* it has said why */
    long long ready = now_ns();
    if (halay_comm_world(context, &world) || halay_barrier(world))
        return 1;
    long long met = now_ns();
    if (halay_comm_rank(world, &rank) || halay_context_counters(context, &counters))
        return 1;
    printf("startup %d %lld %lld %lld %llu\n", rank, begin, ready, met,
           (unsigned long long)counters.connections);
    return halay_finalize(context) != HALAY_OK;
}
