/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_stopped BYTES - rank 1 is stopped (SIGSTOP) in the middle of a long allreduce. The others are
 * told by the deadline, and no byte of their memory changes afterwards: also not when rank 1 runs
 * on. They say whether another communicator was told at once, as it is if rank 1 was severed.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>

#include "../check.h"

enum { STOP_US = 50000, CALLS_MAX = 100000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void stop(int number)
{
    (void)number;
    raise(SIGSTOP);
}

/* Progress is made meanwhile: what comes late could only be taken in so. */
static void linger(halay_context_t *context, double seconds)
{
    for (double end = now() + seconds; now() < end;)
        halay_context_progress(context, 1000000);
}

static void survive(halay_context_t *context, halay_comm_t *other, int32_t *out, size_t count,
                    pid_t stopped)
{
    const size_t bytes = count * sizeof(*out);
    int32_t *copy = malloc(bytes), one = 1, sum;
    CHECK(copy, "no memory");
    memcpy(copy, out, bytes);
    double begin = now();
    int rc = halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, other);
    CHECK(rc < 0, "the other communicator goes on");
    fprintf(stderr, "the other communicator was told %s\n", now() - begin < 1 ? "at once" : "late");
    linger(context, 0.2);
    CHECK(!memcmp(copy, out, bytes), "the result changed after the error");
    CHECK(!kill(stopped, SIGCONT), "no rank 1");
    linger(context, 0.5);
    CHECK(!memcmp(copy, out, bytes), "the result changed when rank 1 went on");
    begin = now();
    CHECK(!halay_finalize(context) && now() - begin < 0.9, "finalize took %.1f s", now() - begin);
    free(copy);
}

int main(int argc, char **argv)
{
    const size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) / sizeof(int32_t) : 1;
    int32_t *in = calloc(count, sizeof(*in)), *out = calloc(count, sizeof(*out)), pids[64], mine;
    struct itimerval soon = {.it_value = {0, STOP_US}};
    halay_verdict_t verdict = {.size = sizeof verdict};
    halay_context_t *context;
    halay_comm_t *comm, *other;
    int rank, rc = 0;
    double begin = 0;
    signal(SIGTERM, SIG_IGN); /* rank 1 may be told later */
    CHECK(in && out, "no memory");
    memset(in, 1, count * sizeof(*in)); /* so that the first call does not wait for pages */
    memset(out, 1, count * sizeof(*out));
    CHECK(!halay_init(NULL, &context) && !halay_comm_world(context, &comm), "start");
    CHECK(!halay_comm_dup(comm, &other) && !halay_comm_rank(comm, &rank), "communicators");
    mine = (int32_t)getpid();
    CHECK(!halay_allgather(&mine, pids, 1, HALAY_INT32, other), "process ids");
    CHECK(!halay_allreduce(in, out, count, HALAY_INT32, HALAY_SUM, comm), "the first call");
    CHECK(signal(SIGALRM, stop) != SIG_ERR, "signal");
    CHECK(rank != 1 || !setitimer(ITIMER_REAL, &soon, NULL), "timer");
    for (int call = 0; !rc && call < CALLS_MAX; call++) {
        memset(out, call, count * sizeof(*out));
        begin = now();
        rc = halay_allreduce(in, out, count, HALAY_INT32, HALAY_SUM, comm);
    }
    if (rank == 1) {
        CHECK(rc, "rank 1 was not stopped");
        _exit(4);
    }
    CHECK(rc == HALAY_ETIMEOUT || rc == HALAY_EPEER, "%s", halay_strerror(rc));
    CHECK(!halay_comm_verdict(comm, &verdict) && verdict.rank == 1, "blames %d", verdict.rank);
    fprintf(stderr, "rank %d was told after %.1f s: %s\n", rank, now() - begin, verdict.text);
    CHECK(now() - begin < atof(getenv("HALAY_DEADLINE")) + 4, "too late");
    survive(context, other, out, count, (pid_t)pids[1]);
    free(in);
    free(out);
    return 4;
}
