/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_rank - a rank for the job tests, over the public API. Adds numbers over all ranks; its
 * argument says what rank 1 does then, while the others add again and must be told what has become
 * of it. "during COLLECTIVE": rank 1 is killed in the middle of long calls of that.
 * "briefly": nothing becomes of it, and there are two cycles of init and finalize, not 21.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>

#include "../check.h"

enum { COUNT = 100000, CYCLES = 20 };

static int64_t in[COUNT], out[COUNT];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int add(halay_comm_t *comm, int rank, int nranks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        in[i] = (int64_t)i * (rank + 1);
    int rc = halay_allreduce(in, out, count, HALAY_INT64, HALAY_SUM, comm);
    for (size_t i = 0; !rc && i < count; i++)
        MUST(out[i] == (int64_t)i * nranks * (nranks + 1) / 2);
    return rc;
}

static void start(halay_context_t **context, halay_comm_t **comm, int *rank, int *nranks)
{
    char why[768] = "";
    halay_config_t config = HALAY_CONFIG_INIT;
    config.error = why;
    config.error_bytes = sizeof(why);
    if (halay_init(&config, context)) { /* one write: ranks do not mix */
        fprintf(stderr, "rank %s was told: %s\n", getenv("PMIX_RANK"), why);
        exit(1);
    }
    MUST(halay_comm_world(*context, comm) == HALAY_OK);
    MUST(halay_comm_rank(*comm, rank) == HALAY_OK && halay_comm_size(*comm, nranks) == HALAY_OK);
    MUST(add(*comm, *rank, *nranks, 1) == HALAY_OK);
    MUST(add(*comm, *rank, *nranks, COUNT) == HALAY_OK);
}

/* Each of the others once: `each` numbers for each rank, the root is the last one. */
static void call_the_others(halay_comm_t *comm, int rank, int nranks, size_t each)
{
    size_t n = (size_t)nranks, me = (size_t)rank, all = each * n;
    int root = nranks - 1, next = (rank + 1) % nranks, before = (rank + root) % nranks;
    for (size_t i = 0; i < all; i++)
        in[i] = (int64_t)(i + me * all);
    MUST(!halay_alltoall(in, out, each, HALAY_INT64, comm));
    for (size_t i = 0; i < all; i++)
        MUST(out[i] == (int64_t)(me * each + i % each + i / each * all));
    MUST(!halay_reduce(in, out, each, HALAY_INT64, HALAY_SUM, root, comm));
    for (size_t i = 0; i < each && rank == root; i++)
        MUST(out[i] == (int64_t)(n * i + all * n * (n - 1) / 2));
    MUST(!halay_scan(in, out, each, HALAY_INT64, HALAY_SUM, comm));
    for (size_t i = 0; i < each; i++)
        MUST(out[i] == (int64_t)((me + 1) * i + all * me * (me + 1) / 2));
    MUST(!halay_gather(in, out, each, HALAY_INT64, root, comm));
    for (size_t i = 0; i < all && rank == root; i++)
        MUST(out[i] == (int64_t)(i % each + i / each * all));
    MUST(!halay_scatter(in, out, each, HALAY_INT64, root, comm));
    for (size_t i = 0; i < each; i++)
        MUST(out[i] == (int64_t)(me * each + i + (size_t)root * all));
    if (nranks == 1)
        return;
    halay_request_t *sent;
    MUST(!halay_isend(in, each, HALAY_INT64, next, comm, &sent));
    MUST(!halay_recv(out, each, HALAY_INT64, before, comm) && !halay_request_wait(sent));
    for (size_t i = 0; i < each; i++)
        MUST(out[i] == (int64_t)(i + (size_t)before * all));
    MUST(halay_request_wait(sent) == HALAY_ESTATE);
}

static void leave(const char *how)
{
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    if (!strcmp(how, "family")) { /* a child that lives on, and holds all that is inherited */
        if (fork() == 0) {
            sleep(20);
            _exit(0);
        }
        raise(SIGKILL);
    }
    _exit(0); /* without halay_finalize */
}

enum { LONG_BYTES = 6 << 20, KILL_US = 40000, AGAIN_S = 20 };

/* "_its": the rank that is killed is the root. */
static int call_long(halay_comm_t *comm, const char *name, int nranks, char *from, char *to)
{
    const size_t n = LONG_BYTES / 8, each = n / (size_t)nranks;
    if (!strcmp(name, "allreduce") || !strcmp(name, "three"))
        return halay_allreduce(from, to, n, HALAY_INT64, HALAY_SUM, comm);
    if (!strcmp(name, "broadcast"))
        return halay_broadcast(to, n, HALAY_INT64, 0, comm);
    if (!strcmp(name, "broadcast_its"))
        return halay_broadcast(to, n, HALAY_INT64, 1, comm);
    if (!strncmp(name, "series", 6)) /* not long: its root does not wait for the others */
        return halay_broadcast(to, 2, HALAY_INT64, !strcmp(name, "series_its"), comm);
    if (!strcmp(name, "reduce"))
        return halay_reduce(from, to, n, HALAY_INT64, HALAY_SUM, 0, comm);
    if (!strcmp(name, "reduce_its"))
        return halay_reduce(from, to, n, HALAY_INT64, HALAY_SUM, 1, comm);
    if (!strcmp(name, "allgather"))
        return halay_allgather(from, to, each, HALAY_INT64, comm);
    if (!strcmp(name, "reduce_scatter"))
        return halay_reduce_scatter(from, to, each, HALAY_INT64, HALAY_SUM, comm);
    if (!strcmp(name, "alltoall"))
        return halay_alltoall(from, to, each, HALAY_INT64, comm);
    MUST(!strcmp(name, "barrier"));
    return halay_barrier(comm);
}

static void die(int number)
{
    (void)number;
    raise(SIGKILL);
}

static void die_during(halay_comm_t *comm, const char *name, int rank, int nranks)
{
    char *from = calloc(1, LONG_BYTES), *to = calloc(1, LONG_BYTES);
    struct itimerval soon = {.it_value = {0, KILL_US}};
    halay_verdict_t verdict = {.size = sizeof verdict};
    halay_comm_t *others[2];
    halay_request_t *waits[2]; /* "three": for rank 1, on two more communicators */
    char host[64] = "";
    int rc = 0, calls = 0;
    double begin = now(), end = begin + AGAIN_S, took;
    signal(SIGTERM, SIG_IGN); /* a second more to say it, on a busy machine */
    MUST(from && to && signal(SIGALRM, die) != SIG_ERR && !gethostname(host, sizeof host - 1));
    const int nothers = strcmp(name, "three") ? 0 : 2;
    for (int i = 0; i < nothers; i++)
        MUST(!halay_comm_split(comm, 0, rank, &others[i]) &&
             (rank == 1 || !halay_ibarrier(others[i], &waits[i])));
    MUST(!call_long(comm, name, nranks, from, to));
    MUST(rank != 1 || !setitimer(ITIMER_REAL, &soon, NULL));
    while (!rc && begin < end) {
        begin = now();
        calls++;
        rc = call_long(comm, name, nranks, from, to);
    }
    took = now() - begin;
    MUST(rc == HALAY_EPEER && took < 5);
    MUST(!halay_comm_verdict(comm, &verdict) && verdict.rank == 1);
    MUST(strstr(verdict.text, "rank 1 of ") && strstr(verdict.text, host));
    MUST(call_long(comm, name, nranks, from, to) == HALAY_EPEER);
    for (int i = 0; i < nothers; i++)
        MUST(halay_request_wait(waits[i]) == HALAY_EPEER);
    fprintf(stderr, "rank %d was told in call %d, after %.2f s\n", rank, calls, took);
    free(from);
    free(to);
    exit(4);
}

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *comm;
    int rank, nranks;
    const int briefly = argc == 2 && !strcmp(argv[1], "briefly");
    for (int i = 0; i < (briefly ? 1 : CYCLES) && argc < 3; i++) {
        start(&context, &comm, &rank, &nranks);
        MUST(halay_barrier(comm) == HALAY_OK);
        MUST(halay_finalize(context) == HALAY_OK);
    }
    start(&context, &comm, &rank, &nranks);
    if (argc > 2)
        die_during(comm, argv[2], rank, nranks);
    if (argc > 1 && !briefly) {
        if (rank == 1)
            leave(argv[1]);
        halay_verdict_t verdict = {.size = sizeof verdict};
        double begin = now();
        int rc = add(comm, rank, nranks, COUNT);
        MUST(rc != HALAY_OK && rc != HALAY_ETIMEOUT);
        MUST(halay_comm_verdict(comm, &verdict) == HALAY_OK && verdict.rank == 1);
        fprintf(stderr, "rank %d was told: %s\n", rank, verdict.text);
        MUST(now() - begin < 1.0);
        exit(4);
    }
    call_the_others(comm, rank, nranks, 3);
    call_the_others(comm, rank, nranks, COUNT / (size_t)nranks);
    halay_topology_t where = {.size = sizeof where};
    MUST(halay_context_topology(context, &where) == HALAY_OK);
    printf("rank %d of %d, %s, %s\n", rank, nranks, where.launcher, where.transport);
    MUST(halay_finalize(context) == HALAY_OK);
    return 0;
}
