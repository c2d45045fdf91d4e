/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_survive HOW RANKS [SECONDS] - after three sums over all, the ranks in RANKS (a mask of bits)
 * are away: "stop", stopped; "nap", in the program; "die", killed; "cut": nobody, but somebody cuts
 * a wire when rank 0 says so; "call": as "stop", and all make a call first, which has to fail. The
 * others call halay_comm_agree, then halay_comm_shrink, and make 50 sums among those that are left.
 * Each says how many these are and who has failed. Who was away for SECONDS calls then, too. "part
 * ...": the same on communicators of the even and the odd ranks, of which each is in reverse order;
 * HOW follows.
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

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void be_away(const char *how, int seconds)
{
    const pid_t self = getpid();
    if (!strcmp(how, "die"))
        raise(SIGKILL);
    if (!strcmp(how, "nap"))
        sleep((unsigned)seconds);
    if (strcmp(how, "stop") && strcmp(how, "call"))
        return;
    if (!fork()) {
        sleep((unsigned)seconds);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

/* Over the ranks of the job that are in the communicator. */
static void check_sums(halay_comm_t *comm, int rank, int calls)
{
    int64_t in[2] = {1, rank}, out[2];
    int n, ranks[64];
    MUST(!halay_comm_size(comm, &n) && n <= 64);
    MUST(!halay_allgather(&rank, ranks, 1, HALAY_INT32, comm));
    for (int c = 0; c < calls; c++) {
        int64_t sum = 0;
        in[1] = rank + c;
        for (int i = 0; i < n; i++)
            sum += ranks[i] + c;
        MUST(!halay_allreduce(in, out, 2, HALAY_INT64, HALAY_SUM, comm));
        CHECK(out[0] == n && out[1] == sum, "wrong sum: %lld", (long long)out[1]);
    }
}

static int fail_alone(halay_comm_t *comm, int rank, double begin, const char *what)
{
    halay_verdict_t v = {.size = sizeof(v)};
    MUST(!halay_comm_verdict(comm, &v));
    fprintf(stderr, "rank %d, %s after %d ms: %s\n", rank, what, (int)((now() - begin) * 1e3),
            v.text);
    return 5;
}

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *comm, *left;
    int rank, n, flag = 1, failed[64], nfailed = 64;
    MUST(argc >= 3 && !halay_init(NULL, &context) && !halay_comm_world(context, &comm));
    MUST(!halay_comm_rank(comm, &rank));
    if (!strcmp(argv[1], "part")) {
        MUST(!halay_comm_split(comm, rank % 2, -rank, &comm));
        argv++;
        argc--;
    }
    const char *how = argv[1];
    const unsigned away = (unsigned)strtoul(argv[2], NULL, 0);
    check_sums(comm, rank, 3);
    fprintf(stderr, "rank %d is ready\n", rank);
    if (!strcmp(how, "cut") && getppid() > 1)
        sleep(2); /* meanwhile somebody cuts it */
    if (away >> rank & 1)
        be_away(how, argc > 3 ? atoi(argv[3]) : 0);
    int64_t one = 1, all;
    if (!strcmp(how, "call") && !halay_allreduce(&one, &all, 1, HALAY_INT64, HALAY_SUM, comm))
        CHECK(0, "rank %d: the call that was given up ended well", rank);
    const double begin = now();
    if (halay_comm_agree(comm, &flag))
        return fail_alone(comm, rank, begin, "agree");
    const int took = (int)((now() - begin) * 1e3);
    const double again = now();
    if (halay_comm_shrink(comm, &left))
        return fail_alone(comm, rank, again, "shrink");
    MUST(!halay_comm_size(left, &n) && !halay_comm_failed(comm, failed, &nfailed));
    check_sums(left, rank, 50);
    char who[256] = "";
    for (int i = 0, at = 0; i < nfailed; i++)
        at += snprintf(who + at, sizeof(who) - (size_t)at, " %d", failed[i]);
    fprintf(stderr, "rank %d agreed after %d ms and goes on with %d; failed:%s.\n", rank, took, n,
            who);
    MUST(!halay_barrier(left));
    MUST(!halay_finalize(context));
    return 0;
}
