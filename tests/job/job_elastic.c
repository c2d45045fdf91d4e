/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_elastic STEPS [WHAT:SLOT:STEP]... - a rank of a job whose ranks change: adds numbers step by
 * step. Where a call fails it meets the others again; where newcomers wait, or somebody has to
 * leave, all do. Rank 0 has the step and the total that the others go on with, so each that comes
 * to the end has the same total. WHAT happens once to whoever is in the slot: kill, stop,
 * pause (it waits for ever), late, hang (it stops, or waits, when it is to meet the others again),
 * exit (with 3), end (with 0, without halay_finalize), slow (it leaves the others in mid-step, and
 * exits with 3 later), child (it starts a process, and goes on). The file `over` ends the steps.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/halay.h>

#include "../check.h"

enum { PACE_US = 20000, SLOW_US = 500000 };

static volatile sig_atomic_t told;
static char late; /* 'l', 'h' or 's': what it does between halay_finalize and halay_init */

static void tell(int number)
{
    (void)number;
    told = 1;
}

static const char *own_slot(void)
{
    const char *job = getenv("HALAY_JOB"), *slot = job ? strstr(job, ";slot=") : NULL;
    return slot ? slot + 6 : NULL;
}

/* The first to come there does it. */
static void suffer(int argc, char **argv, int64_t step)
{
    const char *slot = own_slot();
    const long self = slot ? strtol(slot, NULL, 10) : -1;
    char what[16], once[64];
    int whom;
    long when;
    for (int i = 2; i < argc; i++) {
        /* NOLINTNEXTLINE(cert-err34-c): elastic.sh has written it */
        MUST(sscanf(argv[i], "%15[a-z]:%d:%ld", what, &whom, &when) == 3);
        snprintf(once, sizeof once, "done.%d", i);
        if (whom != self || step < when || open(once, O_CREAT | O_EXCL, 0600) < 0)
            continue;
        if (!strcmp(what, "child") && !fork()) {
            const char *mark = getenv("MARK");
            MUST(mark && execlp("sleep", "sleep", mark, (char *)NULL));
        }
        if (!strcmp(what, "late") || !strcmp(what, "hang") || !strcmp(what, "slow"))
            late = what[0];
        if (!strcmp(what, "child") || late)
            continue;
        if (!strcmp(what, "exit") || !strcmp(what, "end"))
            _exit(what[1] == 'x' ? 3 : 0);
        if (!strcmp(what, "pause"))
            pause();
        raise(!strcmp(what, "stop") ? SIGSTOP : SIGKILL);
    }
}

enum next { AGAIN, OVER };

/* What a step's numbers are: how many add, the step of each, who has to leave, who waits to come,
 * and whether all is over. */
static enum next work(halay_context_t *context, halay_comm_t *comm, int argc, char **argv,
                      int64_t state[2])
{
    const int64_t steps = strtol(argv[1], NULL, 10);
    int rank, size, waiting;
    MUST(!halay_comm_rank(comm, &rank) && !halay_comm_size(comm, &size));
    if (halay_broadcast(state, 2, HALAY_INT64, 0, comm))
        return AGAIN;
    if (rank == 0)
        fprintf(stderr, "a world of %d from step %d\n", size, (int)state[0]);
    while (state[0] < steps) {
        suffer(argc, argv, state[0]);
        if (late == 's')
            return AGAIN;
        MUST(!halay_newcomers(context, &waiting) && (rank == 0 || waiting == 0));
        const int64_t in[] = {1, state[0], told, waiting, !access("over", F_OK)};
        int64_t out[5];
        if (halay_allreduce(in, out, 5, HALAY_INT64, HALAY_SUM, comm))
            return AGAIN;
        CHECK(out[0] == size && out[1] == size * state[0], "step %d: %d of %d, and %d",
              (int)state[0], (int)out[0], size, (int)out[1]);
        state[1] += state[0]++;
        if (in[2] || out[4])
            return OVER;
        if (out[2] || out[3])
            return AGAIN;
        usleep(PACE_US);
    }
    suffer(argc, argv, state[0]);
    return OVER;
}

int main(int argc, char **argv)
{
    int64_t state[2] = {0, 0};
    enum next next = AGAIN;
    MUST(argc > 1 && own_slot());
    signal(SIGTERM, tell);
    while (next == AGAIN) {
        halay_context_t *context;
        halay_comm_t *comm;
        const int rc = halay_init(NULL, &context);
        if (rc == HALAY_EOVER)
            printf("came too late\n");
        if (rc)
            return 7; /* it has said why */
        MUST(!halay_comm_world(context, &comm));
        next = work(context, comm, argc, argv, state);
        MUST(!(next == OVER && told ? halay_leave(context) : halay_finalize(context)));
        if (late == 's') { /* a program without a handler */
            signal(SIGTERM, SIG_DFL);
            usleep(SLOW_US);
            _exit(3);
        }
        if (late == 'l')
            raise(SIGSTOP);
        else if (late)
            pause();
    }
    CHECK(state[1] == state[0] * (state[0] - 1) / 2, "total of %d steps: %d", (int)state[0],
          (int)state[1]);
    printf("%s after %d steps\n", told ? "left" : "ended", (int)state[0]);
    return 0;
}
