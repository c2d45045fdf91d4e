/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_verdict - all ranks of a job are told the same. "stopped RANK": that rank stops itself, the
 * others call. "killed RANK": it dies. "forked RANK": it dies, and a child of it, like one that
 * loads data, keeps its connections open. "early RANK": it dies before anybody has called anybody.
 * "closed RANK": that rank closes all descriptors that are not its own. "leaves RANK": its call on
 * another communicator fails, and it leaves.
 * "late": in each collective the last rank comes 1 s and 2 s after the others, whose deadline is 1
 * s.
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

#include "../check.h"

enum { COUNT = 64, RANKS_MOST = 8, FORMS = 11, SECOND = 1000000000 };

static int64_t in[COUNT * RANKS_MOST], out[COUNT * RANKS_MOST];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static int call(halay_comm_t *comm, int form)
{
    switch (form) {
    case 0:
        return halay_allreduce(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm);
    case 1:
        return halay_broadcast(out, COUNT, HALAY_INT64, 0, comm);
    case 2:
        return halay_allgather(in, out, COUNT, HALAY_INT64, comm);
    case 3:
        return halay_reduce_scatter(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm);
    case 4:
        return halay_reduce(in, out, COUNT, HALAY_INT64, HALAY_SUM, 0, comm);
    case 5:
        return halay_gather(in, out, COUNT, HALAY_INT64, 0, comm);
    case 6:
        return halay_scatter(in, out, COUNT, HALAY_INT64, 0, comm);
    case 7:
        return halay_alltoall(in, out, COUNT, HALAY_INT64, comm);
    case 8:
        return halay_scan(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm);
    case 9:
        return halay_exscan(in, out, COUNT, HALAY_INT64, HALAY_SUM, comm);
    default:
        return halay_barrier(comm);
    }
}

static void told(halay_comm_t *comm, int rank, int rc, const char *what)
{
    halay_verdict_t v = {.size = sizeof v};
    MUST(!halay_comm_verdict(comm, &v));
    fprintf(stderr, "%s: rank %d was told (%d): %s\n", what, rank, rc, rc ? v.text : "all is well");
}

static void stopped(halay_comm_t *comm, int rank, int who)
{
    signal(SIGTERM, SIG_IGN); /* a second more to say it, on a busy machine */
    if (rank == who)
        raise(SIGSTOP);
    int rc = call(comm, 0);
    told(comm, rank, rc, "stopped");
    uint64_t begin = now_ns();
    rc = call(comm, 4);
    MUST(rc == HALAY_ETIMEOUT && now_ns() - begin < SECOND / 4);
    exit(4);
}

static void killed(halay_comm_t *comm, int rank, int who)
{
    signal(SIGTERM, SIG_IGN);
    if (rank == who)
        raise(SIGKILL);
    uint64_t begin = now_ns();
    int rc = call(comm, 0);
    told(comm, rank, rc, "killed");
    MUST(rc == HALAY_EPEER && now_ns() - begin < SECOND / 4);
    pause(); /* not its end is what tells the others; a second SIGTERM is a SIGKILL */
}

static void ended(halay_comm_t *comm, int rank, int who, const char *what, int forks)
{
    if (rank == who) {
        if (forks && fork() == 0) {
            for (int fd = 0; fd < 3; fd++)
                close(fd);
            sleep(4);
            _exit(0);
        }
        raise(SIGKILL);
    }
    int rc = call(comm, 0);
    told(comm, rank, rc, what);
    exit(rc == HALAY_EPEER || rc == HALAY_ETIMEOUT ? 4 : 1);
}

/* Who has closed them waits for the others, and sleeps. */
static void closed(halay_comm_t *comm, int rank, int who)
{
    int rc = 0;
    for (int fd = 3; rank == who && fd < 1024; fd++)
        close(fd);
    if (rank != who)
        nanosleep(&(struct timespec){.tv_nsec = SECOND / 2}, NULL);
    for (int i = 0; !rc && i < 100; i++)
        rc = call(comm, 0);
    told(comm, rank, rc, "closed");
    for (int i = 0; i < 20; i++)
        MUST(call(comm, 0) == rc);
    exit(rc == (rank == who ? HALAY_ETRANSPORT : HALAY_EPEER) ? 4 : 1);
}

/*
 * It and the rank two after it are in a mismatch. The others' deadline is over when it leaves, and
 * some of them have called it and were never called by it.
 */
static void leaves(halay_context_t *context, halay_comm_t *world, int rank, int nranks, int who)
{
    halay_comm_t *half;
    MUST(!halay_comm_split(world, (rank + nranks - who) % 2, rank, &half));
    if ((rank + nranks - who) % 2 == 0)
        MUST(call(half, rank == who ? 0 : 4) == HALAY_EMISMATCH);
    MUST(!halay_comm_set_deadline(world, SECOND));
    if (rank != who)
        told(world, rank, call(world, 10), "leaves");
    else
        nanosleep(&(struct timespec){1, SECOND / 5}, NULL);
    MUST(!halay_finalize(context));
    exit(0);
}

/* Each on a communicator of its own, for it is broken then. */
static void late(halay_comm_t *world, int rank, int nranks, unsigned seconds)
{
    halay_comm_t *comm[FORMS];
    for (int i = 0; i < FORMS; i++)
        MUST(!halay_comm_dup(world, &comm[i]) && !halay_comm_set_deadline(comm[i], SECOND));
    for (int i = 0; i < FORMS; i++) {
        char what[32];
        snprintf(what, sizeof what, "form %d, %u s", i, seconds);
        MUST(!call(comm[i], 10) && !halay_barrier(world));
        if (rank == nranks - 1)
            sleep(seconds);
        told(comm[i], rank, call(comm[i], i), what);
        MUST(!halay_barrier(world));
    }
}

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *world;
    int rank, nranks;
    MUST(argc == 3 && !halay_init(NULL, &context) && !halay_comm_world(context, &world));
    MUST(!halay_comm_rank(world, &rank) && !halay_comm_size(world, &nranks));
    MUST(nranks <= RANKS_MOST);
    if (!strcmp(argv[1], "early"))
        ended(world, rank, atoi(argv[2]), "early", 0);
    MUST(!call(world, 0) && !call(world, 4));
    if (!strcmp(argv[1], "forked"))
        ended(world, rank, atoi(argv[2]), "forked", 1);
    if (!strcmp(argv[1], "closed"))
        closed(world, rank, atoi(argv[2]));
    if (!strcmp(argv[1], "leaves"))
        leaves(context, world, rank, nranks, atoi(argv[2]));
    if (!strcmp(argv[1], "stopped"))
        stopped(world, rank, atoi(argv[2]));
    if (!strcmp(argv[1], "killed"))
        killed(world, rank, atoi(argv[2]));
    late(world, rank, nranks, (unsigned)atoi(argv[2]));
    MUST(!halay_finalize(context));
    return 0;
}
