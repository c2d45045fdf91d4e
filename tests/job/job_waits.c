/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_waits - a rank that is away for a while. "stop RANK S": it is stopped, and goes on after S
 * seconds (0: never). "stop-long RANK S": the same, and the call is of 100,000 elements. "nap RANK
 * S": it sleeps in its program. "die RANK 0": it is killed before it has met any other rank, and
 * "stop-early RANK S": stopped. "die-between RANK 0", "stop-between RANK S": when it has met only
 * its neighbour, in a communicator of the two. "loop RANK S": nobody is away; all call for S
 * seconds. "halves RANK S": it sleeps; the others of its half (odd or even ranks) wait for it in
 * their communicator, and the rest in the world. "apart RANK S": it is killed, and rank 0 sleeps;
 * "stop-apart RANK S": it is stopped for good. "gone 3 S": of 8 ranks it is killed in the call, and
 * its neighbours in the call's plan sleep. "overslept RANK S": it is stopped in the call until the
 * deadline has passed, and rank 0, which it waits for, comes in time.
 * The others call, and say what they were told, and after how long.
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

enum { LONG = 100000 };
static size_t count = 1;

static int call(halay_comm_t *world, int rank, int nranks, int round)
{
    static int64_t in[LONG], out[LONG];
    for (size_t i = 0; i < count; i++)
        in[i] = rank + round;
    int rc = halay_allreduce(in, out, count, HALAY_INT64, HALAY_SUM, world);
    for (size_t i = 0; !rc && i < count; i++)
        CHECK(out[i] == (int64_t)nranks * (nranks - 1) / 2 + (int64_t)nranks * round, "wrong: %lld",
              (long long)out[i]);
    return rc;
}

static void stop(int seconds)
{
    const pid_t self = getpid();
    const pid_t child = seconds ? fork() : -1;
    if (child == 0) {
        sleep((unsigned)seconds);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

/* In the call, after a tenth of a second. */
static void interrupt(int number, int seconds)
{
    const pid_t self = getpid();
    if (fork())
        return;
    usleep(100000);
    kill(self, number);
    sleep((unsigned)seconds);
    if (number == SIGSTOP)
        kill(self, SIGCONT);
    _exit(0);
}

/* What there is before the call that is told of; rounds of the world, or of its halves. */
static void before(const char *what, halay_comm_t *world, int rank, int nranks, halay_comm_t **half)
{
    halay_comm_t *pair;
    *half = world;
    if (!strcmp(what, "halves")) {
        MUST(!halay_comm_split(world, rank % 2, rank, half));
        MUST(!call(*half, rank / 2, nranks / 2, 0));
    }
    if (!strcmp(what, "gone")) { /* all meet all */
        int32_t in[8] = {0}, out[8];
        MUST(nranks == 8 && !halay_alltoall(in, out, 1, HALAY_INT32, world));
    }
    if (!strcmp(what, "die") || !strcmp(what, "stop-early"))
        return;
    if (strcmp(what, "die-between") && strcmp(what, "stop-between")) {
        for (int round = 0; round < 3; round++)
            MUST(!call(world, rank, nranks, round));
        return;
    }
    MUST(!halay_comm_split(world, rank / 2, rank, &pair));
    MUST(!call(pair, rank % 2, 2, 0));
}

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *world, *on;
    int rank, nranks, rc = 0;
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    MUST(argc == 4 && !halay_init(NULL, &context) && !halay_comm_world(context, &world));
    MUST(!halay_comm_rank(world, &rank) && !halay_comm_size(world, &nranks));
    const int who = (int)strtol(argv[2], NULL, 10), seconds = (int)strtol(argv[3], NULL, 10);
    signal(SIGTERM, SIG_IGN); /* a second more to say it */
    before(argv[1], world, rank, nranks, &on);
    if (rank % 2 != who % 2)
        on = world;
    if (rank == who && (!strncmp(argv[1], "die", 3) || !strcmp(argv[1], "apart")))
        raise(SIGKILL);
    count = !strcmp(argv[1], "stop-long") ? LONG : 1;
    if (rank == who && !strncmp(argv[1], "stop", 4))
        stop(strcmp(argv[1], "stop-apart") ? seconds : 0);
    if ((rank == who && (!strcmp(argv[1], "nap") || !strcmp(argv[1], "halves"))) ||
        (rank == 0 && strstr(argv[1], "apart")))
        sleep((unsigned)seconds);
    if (!strcmp(argv[1], "gone") && strchr("1247", '0' + rank))
        sleep((unsigned)seconds);
    if (!strcmp(argv[1], "overslept") && rank == 0)
        sleep(1);
    double begin = now();
    if (rank == who && (!strcmp(argv[1], "gone") || !strcmp(argv[1], "overslept")))
        interrupt(argv[1][0] == 'g' ? SIGKILL : SIGSTOP, seconds);
    if (strcmp(argv[1], "loop"))
        rc = on == world ? call(world, rank, nranks, 3) : call(on, rank / 2, nranks / 2, 3);
    int more = 1; /* rank 0 says when it is over */
    for (int round = 0; !strcmp(argv[1], "loop") && more && !rc; round++) {
        double last = now();
        if ((round == 0 || now() - begin > 1) && round % 100 == 0)
            fprintf(stderr, "rank %d is in round %d\n", rank, round);
        rc = call(world, rank, nranks, round);
        more = now() - begin < seconds;
        if (!rc)
            rc = halay_broadcast(&more, 1, HALAY_INT32, 0, world);
        if (rc)
            begin = last;
        usleep(10000);
    }
    if (rc)
        MUST(!halay_comm_verdict(on, &verdict));
    fprintf(stderr, "rank %d was told after %d ms: %s\n", rank, (int)((now() - begin) * 1e3),
            rc ? verdict.text : "all is well");
    if (rc) { /* the other half waits in another call, and may be told later */
        sleep(strcmp(argv[1], "halves") ? 1 : 3);
        _exit(4);
    }
    MUST(!halay_finalize(context));
    return 0;
}
