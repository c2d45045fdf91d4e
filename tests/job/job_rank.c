/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_rank - a rank for the job tests, over the public API. Adds numbers over all ranks; its
 * argument says what rank 1 does then, while the others add again and must be told what has become
 * of it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>

#define CHECK(c)                                                                                   \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #c);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

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
        CHECK(out[i] == (int64_t)i * nranks * (nranks + 1) / 2);
    return rc;
}

static void start(halay_context_t **context, halay_comm_t **comm, int *rank, int *nranks)
{
    CHECK(halay_init(NULL, context) == HALAY_OK);
    CHECK(halay_comm_world(*context, comm) == HALAY_OK);
    CHECK(halay_comm_rank(*comm, rank) == HALAY_OK && halay_comm_size(*comm, nranks) == HALAY_OK);
    CHECK(add(*comm, *rank, *nranks, 1) == HALAY_OK);
    CHECK(add(*comm, *rank, *nranks, COUNT) == HALAY_OK);
}

/* Each of the others once: `each` numbers for each rank, the root is the last one. */
static void call_the_others(halay_comm_t *comm, int rank, int nranks, size_t each)
{
    size_t n = (size_t)nranks, me = (size_t)rank, all = each * n;
    int root = nranks - 1, next = (rank + 1) % nranks, before = (rank + root) % nranks;
    for (size_t i = 0; i < all; i++)
        in[i] = (int64_t)(i + me * all);
    CHECK(!halay_alltoall(in, out, each, HALAY_INT64, comm));
    for (size_t i = 0; i < all; i++)
        CHECK(out[i] == (int64_t)(me * each + i % each + i / each * all));
    CHECK(!halay_reduce(in, out, each, HALAY_INT64, HALAY_SUM, root, comm));
    for (size_t i = 0; i < each && rank == root; i++)
        CHECK(out[i] == (int64_t)(n * i + all * n * (n - 1) / 2));
    CHECK(!halay_scan(in, out, each, HALAY_INT64, HALAY_SUM, comm));
    for (size_t i = 0; i < each; i++)
        CHECK(out[i] == (int64_t)((me + 1) * i + all * me * (me + 1) / 2));
    CHECK(!halay_gather(in, out, each, HALAY_INT64, root, comm));
    for (size_t i = 0; i < all && rank == root; i++)
        CHECK(out[i] == (int64_t)(i % each + i / each * all));
    CHECK(!halay_scatter(in, out, each, HALAY_INT64, root, comm));
    for (size_t i = 0; i < each; i++)
        CHECK(out[i] == (int64_t)(me * each + i + (size_t)root * all));
    if (nranks == 1)
        return;
    halay_request_t *sent;
    CHECK(!halay_isend(in, each, HALAY_INT64, next, comm, &sent));
    CHECK(!halay_recv(out, each, HALAY_INT64, before, comm) && !halay_request_wait(sent));
    for (size_t i = 0; i < each; i++)
        CHECK(out[i] == (int64_t)(i + (size_t)before * all));
    CHECK(halay_request_wait(sent) == HALAY_ESTATE);
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

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *comm;
    int rank, nranks;
    for (int i = 0; i < CYCLES; i++) {
        start(&context, &comm, &rank, &nranks);
        CHECK(halay_barrier(comm) == HALAY_OK);
        CHECK(halay_finalize(context) == HALAY_OK);
    }
    start(&context, &comm, &rank, &nranks);
    if (argc > 1) {
        if (rank == 1)
            leave(argv[1]);
        halay_verdict_t verdict = {.size = sizeof verdict};
        double begin = now();
        int rc = add(comm, rank, nranks, COUNT);
        CHECK(rc != HALAY_OK && rc != HALAY_ETIMEOUT);
        CHECK(halay_comm_verdict(comm, &verdict) == HALAY_OK && verdict.rank == 1);
        fprintf(stderr, "rank %d was told: %s\n", rank, verdict.text);
        CHECK(now() - begin < 1.0);
        exit(4);
    }
    call_the_others(comm, rank, nranks, 3);
    call_the_others(comm, rank, nranks, COUNT / (size_t)nranks);
    halay_topology_t where = {.size = sizeof where};
    CHECK(halay_context_topology(context, &where) == HALAY_OK);
    printf("rank %d of %d, %s, %s\n", rank, nranks, where.launcher, where.transport);
    CHECK(halay_finalize(context) == HALAY_OK);
    return 0;
}
