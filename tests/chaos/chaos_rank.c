/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chaos_rank.c - a rank of a job that chaos.py disturbs: collectives of random kinds and sizes, by
 * one seed on all ranks, until a time is over; each result is checked. It says on stdout how it
 * ended.
 *
 * At SIGUSR1 it takes memory until the kernel kills it.
 *
 *   chaos_rank SECONDS SEED     0: all was well; 1: a wrong result; 4: it was told of an error
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>

enum { MOST = 1 << 18, MARGIN = 4, MOST_MIB = 1024 };

static struct job {
    halay_context_t *context;
    halay_comm_t *world;
    int rank, nranks;
    int64_t *in, *out;
    uint64_t state;
    volatile sig_atomic_t fills;
} job;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t draw(void)
{
    job.state = job.state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return job.state >> 33;
}

static int64_t value(int rank, size_t i, uint64_t salt)
{
    return (int64_t)((uint64_t)(rank + 1) * (i % 997 + 1) + salt % 1009);
}

static void wrong(const char *call, size_t i)
{
    printf("chaos: rank %d: %s: element %zu is wrong\n", job.rank, call, i);
    fflush(stdout);
    exit(1);
}

static void fill(size_t count, uint64_t salt)
{
    for (size_t i = 0; i < count; i++)
        job.in[i] = value(job.rank, i, salt);
}

static int allreduce(size_t count, uint64_t salt)
{
    const uint64_t n = (uint64_t)job.nranks;
    fill(count, salt);
    const int rc = halay_allreduce(job.in, job.out, count, HALAY_INT64, HALAY_SUM, job.world);
    for (size_t i = 0; !rc && i < count; i++)
        if (job.out[i] != (int64_t)(n * (n + 1) / 2 * (i % 997 + 1) + n * (salt % 1009)))
            wrong("allreduce", i);
    return rc;
}

static int allgather(size_t count, uint64_t salt)
{
    const size_t each = count / (size_t)job.nranks;
    fill(each, salt);
    const int rc = halay_allgather(job.in, job.out, each, HALAY_INT64, job.world);
    for (size_t i = 0; !rc && i < each * (size_t)job.nranks; i++)
        if (job.out[i] != value((int)(i / each), i % each, salt))
            wrong("allgather", i);
    return rc;
}

static int alltoall(size_t count, uint64_t salt)
{
    const size_t each = count / (size_t)job.nranks;
    fill(each * (size_t)job.nranks, salt);
    const int rc = halay_alltoall(job.in, job.out, each, HALAY_INT64, job.world);
    for (size_t i = 0; !rc && i < each * (size_t)job.nranks; i++)
        if (job.out[i] != value((int)(i / each), (size_t)job.rank * each + i % each, salt))
            wrong("alltoall", i);
    return rc;
}

static int broadcast(size_t count, uint64_t salt)
{
    const int root = (int)(salt % (uint64_t)job.nranks);
    for (size_t i = 0; i < count; i++)
        job.out[i] = job.rank == root ? value(root, i, salt) : -1;
    const int rc = halay_broadcast(job.out, count, HALAY_INT64, root, job.world);
    for (size_t i = 0; !rc && i < count; i++)
        if (job.out[i] != value(root, i, salt))
            wrong("broadcast", i);
    return rc;
}

static void on_fill(int number)
{
    (void)number;
    job.fills = 1;
}

/* A bound for a machine where nobody kills it: it goes on, and that is seen. */
static void fill_memory(void)
{
    for (int mib = 0; mib < MOST_MIB; mib++) {
        char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return;
        memset(p, 1, 1 << 20);
    }
}

/* Another one on each rank; all stop after the same call. */
static int goes_on(double end, int *rc)
{
    int32_t mine = now() < end, all = 0;
    *rc = halay_allreduce(&mine, &all, 1, HALAY_INT32, HALAY_MIN, job.world);
    return !*rc && all;
}

static int told(int rc, double begin)
{
    halay_verdict_t v = {.size = sizeof(v)};
    const char *text =
        job.world && !halay_comm_verdict(job.world, &v) ? v.text : halay_strerror(rc);
    printf("chaos: rank %d: told %d after %.0f ms: %s\n", job.rank, rc, 1e3 * (now() - begin),
           text);
    fflush(stdout);
    return 4;
}

int main(int argc, char **argv)
{
    static int (*const calls[])(size_t, uint64_t) = {allreduce, allgather, alltoall, broadcast};
    char host[65] = "?";
    uint64_t ncalls = 0;
    double begin = now();
    int rc;
    if (argc != 3 || gethostname(host, sizeof(host) - 1))
        return 2;
    signal(SIGUSR1, on_fill);
    job.state = strtoull(argv[2], NULL, 10);
    job.in = malloc(MOST * sizeof(int64_t));
    job.out = malloc(MOST * sizeof(int64_t));
    if (!job.in || !job.out)
        return 2;
    rc = halay_init(NULL, &job.context);
    if (rc)
        return told(rc, begin);
    if (halay_comm_world(job.context, &job.world) || halay_comm_rank(job.world, &job.rank) ||
        halay_comm_size(job.world, &job.nranks))
        return 2;
    printf("chaos: rank %d: begins on %s\n", job.rank, host);
    fflush(stdout);
    const double end = now() + strtod(argv[1], NULL);
    while (goes_on(end, &rc))
        for (int i = 0; !rc && i < MARGIN; i++, ncalls++) {
            if (job.fills)
                fill_memory();
            const uint64_t which = draw() % 4, shift = draw() % 18, salt = draw();
            const size_t count = 1 + draw() % ((size_t)1 << shift);
            begin = now();
            rc = calls[which](count, salt);
            if (rc)
                return told(rc, begin);
        }
    if (!rc)
        rc = halay_finalize(job.context);
    if (rc)
        return told(rc, begin);
    printf("chaos: rank %d: well, %llu calls\n", job.rank, (unsigned long long)ncalls);
    return 0;
}
