/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instructions.c - 8-byte allreduces of two ranks that one thread plays: it starts the call of
 * both, then waits for both. So each poll finds something, and the instructions of a call can be
 * counted. Or, blocking: blocking calls, by two threads of which one runs at a time. Each takes
 * itself for one of two ranks on one processor, polls twice, finds nothing, yields, and so lets the
 * other run; that, and the second poll, is counted too. Or, cold: the first call of a communicator,
 * of which CALLS are made and freed; made: these without a call, to be taken off. instructions
 * CALLS BYTES [persistent|blocking|cold|made]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>

#include "two_ranks.h"

static halay_request_t *persistent[RANKS]; /* NULL: the ordinary call */

static void call(halay_comm_t *comm[], char *in[], char *out[], size_t count)
{
    halay_request_t *request[RANKS];
    for (int r = 0; r < RANKS; r++) {
        request[r] = persistent[r];
        if (request[r])
            check(halay_request_start(request[r]), "halay_request_start");
        else
            check(halay_iallreduce(in[r], out[r], count, HALAY_FLOAT32, HALAY_SUM, comm[r],
                                   &request[r]),
                  "halay_iallreduce");
    }
    two_ranks_wait(request);
}

/* The world's first call has had the plan proved. */
static void first_calls(halay_comm_t *world[], char *in[], char *out[], size_t count, int calls,
                        bool cold)
{
    call(world, in, out, count);
    for (int i = 0; i < calls; i++) {
        halay_comm_t *comm[RANKS];
        for (int r = 0; r < RANKS; r++)
            check(halay_comm_dup(world[r], &comm[r]), "halay_comm_dup");
        if (cold)
            call(comm, in, out, count);
        for (int r = 0; r < RANKS; r++)
            check(halay_comm_free(comm[r]), "halay_comm_free");
    }
}

/* ---------------------------------------------------------------- blocking */

struct side {
    int rank, calls;
    size_t count;
    char *in, *out;
    halay_comm_t *comm;
};

static bool blocking;
static sem_t turn[RANKS];
static __thread struct side *playing; /* NULL: nobody waits for this thread */

/*
 * These stand before the C library's. The clock moves by each look at it, so that what is done at
 * times is done as often in each run. (The two threads take turns.)
 */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static struct timespec time = {1, 0};
    (void)clock;
    time.tv_nsec += 100;
    if (time.tv_nsec >= 1000000000)
        time = (struct timespec){time.tv_sec + 1, 0};
    *now = time;
    return 0;
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    memset(set, 0, bytes);
    for (int p = 0; p < (blocking ? 1 : RANKS); p++)
        CPU_SET(p, set);
    return 0;
}

int sched_yield(void)
{
    if (playing) {
        sem_post(&turn[!playing->rank]);
        sem_wait(&turn[playing->rank]);
    }
    return 0;
}

static void *play(void *arg)
{
    playing = arg;
    sem_wait(&turn[playing->rank]);
    for (int i = 0; i < playing->calls; i++)
        check(halay_allreduce(playing->in, playing->out, playing->count, HALAY_FLOAT32, HALAY_SUM,
                              playing->comm),
              "halay_allreduce");
    sem_post(&turn[!playing->rank]);
    return NULL;
}

static void play_both(struct side sides[RANKS])
{
    pthread_t thread[RANKS];
    for (int r = 0; r < RANKS; r++)
        sem_init(&turn[r], 0, r == 0);
    for (int r = 0; r < RANKS; r++) {
        if (pthread_create(&thread[r], NULL, play, &sides[r]))
            check(HALAY_ENOMEM, "a thread");
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
}

int main(int argc, char **argv)
{
    halay_context_t *context[RANKS];
    halay_comm_t *comm[RANKS];
    char *in[RANKS], *out[RANKS];
    struct side sides[RANKS];
    const bool persists = argc == 4 && !strcmp(argv[3], "persistent");
    const bool cold = argc == 4 && !strcmp(argv[3], "cold");
    const bool first = cold || (argc == 4 && !strcmp(argv[3], "made"));
    blocking = argc == 4 && !strcmp(argv[3], "blocking");
    const int calls = argc == 3 || persists || blocking || first ? atoi(argv[1]) : 0;
    const size_t count = calls ? strtoull(argv[2], NULL, 10) / sizeof(float) : 0;
    if (calls <= 0 || !count) {
        fprintf(stderr, "usage: instructions CALLS BYTES [persistent|blocking|cold|made]\n");
        return 2;
    }
    two_ranks_init(context, comm);
    for (int r = 0; r < RANKS; r++) {
        in[r] = calloc(count, sizeof(float));
        out[r] = calloc(count, sizeof(float));
        if (!in[r] || !out[r])
            check(HALAY_ENOMEM, "the buffers");
        ((float *)in[r])[count - 1] = (float)(r + 1);
        sides[r] = (struct side){r, calls, count, in[r], out[r], comm[r]};
    }
    for (int r = 0; persists && r < RANKS; r++)
        check(halay_allreduce_init(in[r], out[r], count, HALAY_FLOAT32, HALAY_SUM, comm[r],
                                   &persistent[r]),
              "halay_allreduce_init");
    if (blocking)
        play_both(sides);
    if (first)
        first_calls(comm, in, out, count, calls, cold);
    for (int i = 0; i < calls && !blocking && !first; i++)
        call(comm, in, out, count);
    int wrong = 0;
    for (int r = 0; r < RANKS; r++) {
        wrong |= ((float *)out[r])[count - 1] != 3.0f;
        free(in[r]);
        free(out[r]);
        halay_finalize(context[r]);
    }
    if (wrong)
        fprintf(stderr, "instructions: wrong data\n");
    return wrong;
}
