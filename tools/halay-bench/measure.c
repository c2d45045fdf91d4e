/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - one size: a call that is checked, calls to warm up until a call's time is known, the
 * timed calls, and one more call that is checked. Every decision is taken on numbers that all ranks
 * have agreed on, so that all make the same calls.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "bench.h"

#define CALLS_MAX  1000000 /* so that short calls, too, take the time asked for */
#define CALLS_MIN  3
#define WARMUP_MAX 4096

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double switches_so_far(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_nvcsw + (double)usage.ru_nivcsw;
}

int hly_call(const struct hly_bench *b, const struct hly_data *d, halay_comm_t *comm, size_t count)
{
    const bool elsewhere = halay_collective_rooted(b->collective) && d->rank > 0;
    const void *in = b->in_place && !elsewhere ? HALAY_IN_PLACE : d->in;
    switch (b->collective) {
    case HALAY_ALLREDUCE:
        return halay_allreduce(in, d->out, count, b->type, b->op, comm);
    case HALAY_BROADCAST:
        return halay_broadcast(d->out, count, b->type, 0, comm);
    case HALAY_ALLGATHER:
        return halay_allgather(in, d->out, count, b->type, comm);
    case HALAY_REDUCE_SCATTER:
        return halay_reduce_scatter(in, d->out, count, b->type, b->op, comm);
    case HALAY_BARRIER:
        return halay_barrier(comm);
    case HALAY_REDUCE:
        return halay_reduce(in, d->out, count, b->type, b->op, 0, comm);
    case HALAY_GATHER:
        return halay_gather(in, d->out, count, b->type, 0, comm);
    case HALAY_SCATTER:
        return halay_scatter(in, d->out, count, b->type, 0, comm);
    case HALAY_ALLTOALL:
        return halay_alltoall(in, d->out, count, b->type, comm);
    case HALAY_SCAN:
        return halay_scan(in, d->out, count, b->type, b->op, comm);
    case HALAY_EXSCAN:
        return halay_exscan(in, d->out, count, b->type, b->op, comm);
    default:
        return HALAY_EINVAL;
    }
}

static int checked_call(const struct hly_bench *b, struct hly_data *d, halay_comm_t *comm,
                        size_t count, bool *valid)
{
    hly_data_prepare(d, count);
    int rc = hly_call(b, d, comm, count);
    int32_t good = rc == HALAY_OK && hly_data_valid(d, count);
    if (rc == HALAY_OK)
        rc = halay_allreduce(HALAY_IN_PLACE, &good, 1, HALAY_INT32, HALAY_MIN, comm);
    *valid = *valid && good;
    return rc;
}

/* The time of each call on this rank. Back to back, a call ends where the next one begins. */
static int timed_calls(const struct hly_bench *b, const struct hly_data *d, halay_comm_t *comm,
                       size_t count, int calls, double us[])
{
    int rc = halay_barrier(comm);
    double before = now_us();
    for (int i = 0; i < calls && rc == HALAY_OK; i++) {
        if (b->barrier) {
            rc = halay_barrier(comm);
            before = now_us();
        }
        if (rc == HALAY_OK)
            rc = hly_call(b, d, comm, count);
        double after = now_us();
        us[i] = after - before;
        before = after;
    }
    return rc;
}

/* Warms up, and finds how many calls fit. */
static int warm_up(const struct hly_bench *b, const struct hly_data *d, halay_comm_t *comm,
                   size_t count, double us[], int *calls)
{
    const double most_us = b->seconds * 1e6;
    double took;
    int n = b->warmup >= 0 ? b->warmup : 1, rc;
    for (;; n *= 2) {
        took = 0;
        rc = timed_calls(b, d, comm, count, n, us);
        for (int i = 0; i < n; i++)
            took += us[i];
        if (rc == HALAY_OK)
            rc = halay_allreduce(HALAY_IN_PLACE, &took, 1, HALAY_FLOAT64, HALAY_MAX, comm);
        if (rc != HALAY_OK || b->warmup >= 0 || took > most_us / 8 || n >= WARMUP_MAX)
            break;
    }
    double fit = n && took > 0 ? most_us / (took / n) : CALLS_MIN;
    *calls = fit > CALLS_MAX ? CALLS_MAX : fit < CALLS_MIN ? CALLS_MIN : (int)fit;
    if (b->iterations >= 0)
        *calls = b->iterations;
    return rc;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarize(double us[], int calls, struct hly_result *result)
{
    double sum = 0;
    for (int i = 0; i < calls; i++)
        sum += us[i];
    qsort(us, (size_t)calls, sizeof *us, by_size);
    result->avg_us = sum / calls;
    result->median_us = (us[(calls - 1) / 2] + us[calls / 2]) / 2;
    result->min_us = us[0];
}

int hly_measure(const struct hly_bench *b, struct hly_data *d, halay_comm_t *comm, size_t bytes,
                struct hly_result *result)
{
    const size_t count = hly_data_count(d, bytes);
    int most = b->iterations > b->warmup ? b->iterations : b->warmup, calls = 0;
    *result = (struct hly_result){.bytes = bytes, .count = count, .valid = true};
    double *us = calloc((size_t)(most > CALLS_MAX ? most : CALLS_MAX), sizeof *us);
    if (!us)
        return HALAY_ENOMEM;
    int rc = checked_call(b, d, comm, count, &result->valid);
    hly_data_rest(d, count);
    if (rc == HALAY_OK)
        rc = warm_up(b, d, comm, count, us, &calls);
    double switches = switches_so_far();
    if (rc == HALAY_OK)
        rc = timed_calls(b, d, comm, count, calls, us);
    switches = switches_so_far() - switches;
    if (rc == HALAY_OK)
        rc = halay_allreduce(HALAY_IN_PLACE, us, (size_t)calls, HALAY_FLOAT64, HALAY_MAX, comm);
    if (rc == HALAY_OK)
        rc = halay_allreduce(HALAY_IN_PLACE, &switches, 1, HALAY_FLOAT64, HALAY_SUM, comm);
    if (rc == HALAY_OK)
        rc = checked_call(b, d, comm, count, &result->valid);
    if (rc == HALAY_OK) {
        result->calls = calls;
        result->switches = switches / calls / d->nranks;
        summarize(us, calls, result);
    }
    free(us);
    return rc;
}
