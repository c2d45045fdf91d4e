/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mortal.h - ranks that die, or stand still, before a message: what the tests of deaths share. Each
 * includes it once.
 */
#ifndef HLY_TEST_MORTAL_H
#define HLY_TEST_MORTAL_H

#include <halay/plan.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

enum { COUNT = 24, WORKERS = 8, MOST = 16 /* ranks */ };

struct death {
    int rank;
    uint32_t at; /* before it sends this message, the first one being 1; 0: never */
};

/* Of this thread's rank: how many more messages it sends before it dies. */
static _Thread_local struct {
    uint32_t left;
    unsigned stall_s;   /* it stands still instead, for so long; 0: it dies */
    unsigned linger_ms; /* in which others hear what it has sent so far */
    struct rank *rank;
    atomic_bool *reached, *dead; /* to be set */
} doom;

static void strike(void)
{
    if (!doom.rank || !doom.left || --doom.left)
        return;
    atomic_store(doom.reached, true);
    if (doom.stall_s) {
        sleep(doom.stall_s);
        return;
    }
    usleep(doom.linger_ms * 1000);
    atomic_store(doom.dead, true);
    halay_inproc_kill(doom.rank->hub, doom.rank->rank);
}

static int mortal_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                       size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    strike();
    return halay_transport_v7_inproc.send(t, ep, tag, header, header_bytes, payload, bytes, cookie);
}

static int mortal_put(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                      const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                      uint64_t cookie)
{
    strike();
    return halay_transport_v7_inproc.put(t, ep, payload, bytes, key, key_bytes, offset, immediate,
                                         cookie);
}

static halay_transport_ops_t mortal_ops(void)
{
    halay_transport_ops_t mortal = halay_transport_v7_inproc;
    mortal.send = mortal_send;
    mortal.put = mortal_put;
    return mortal;
}

/* What is under way may be lost at a death. */
static halay_inproc_faults_t mortal_faults(uint64_t seed)
{
    static const uint32_t delays[] = {0, 4, 40, 40};
    return (halay_inproc_faults_t){.seed = seed + 1,
                                   .delay_polls_max = delays[seed / 2 % 4],
                                   .reorder = (uint32_t)(seed / 8 % 2),
                                   .eager_bytes = seed / 16 % 2 ? 64 : 1024};
}

static int call_planned(uint32_t planner, int root, halay_comm_t *comm)
{
    static _Thread_local int32_t in[COUNT * MOST], out[COUNT * MOST];
    switch ((halay_collective_t)halay_planner_get(planner)->collective) {
    case HALAY_ALLREDUCE:
        return halay_allreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    case HALAY_BROADCAST:
        return halay_broadcast(out, COUNT, HALAY_INT32, root, comm);
    case HALAY_ALLGATHER:
        return halay_allgather(in, out, COUNT, HALAY_INT32, comm);
    case HALAY_REDUCE_SCATTER:
        return halay_reduce_scatter(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    case HALAY_REDUCE:
        return halay_reduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, root, comm);
    case HALAY_GATHER:
        return halay_gather(in, out, COUNT, HALAY_INT32, root, comm);
    case HALAY_SCATTER:
        return halay_scatter(in, out, COUNT, HALAY_INT32, root, comm);
    case HALAY_ALLTOALL:
        return halay_alltoall(in, out, COUNT, HALAY_INT32, comm);
    case HALAY_SCAN:
        return halay_scan(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    case HALAY_EXSCAN:
        return halay_exscan(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    default:
        return halay_barrier(comm);
    }
}

static bool serves(uint32_t planner, int nranks)
{
    const halay_planner_call_t call = {
        .nranks = (uint32_t)nranks, .count = COUNT, .commutative = 1, .nodes = 1};
    return halay_planner_serves(planner, &call, NULL);
}

/* "collective=planner", as HALAY_ALGORITHM takes it. */
static void algorithm_of(uint32_t planner, char text[64])
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    snprintf(text, 64, "%s=%s", halay_collective_name((halay_collective_t)info->collective),
             info->name);
}

static char described[200]; /* the case that this process runs */

static void describe(int signal_number)
{
    const ssize_t n = write(STDERR_FILENO, described, strlen(described));
    (void)n;
    signal(signal_number, SIG_DFL);
}

/* Each of WORKERS processes does its part. */
static void work_in_processes(void (*part)(int worker, char **argv), char **argv)
{
    pid_t pids[WORKERS];
    for (int w = 0; w < WORKERS; w++) {
        pids[w] = fork();
        CHECK(pids[w] >= 0, "fork");
        if (pids[w])
            continue;
        part(w, argv);
        exit(0);
    }
    int failed = 0, status;
    for (int w = 0; w < WORKERS; w++)
        failed += waitpid(pids[w], &status, 0) != pids[w] || status != 0;
    CHECK(!failed, "%d of %d workers failed", failed, WORKERS);
}

#endif
