/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_cost.c - what "a plan is data" costs: an 8-byte allreduce of two ranks in one node, by Halay
 * over shm and by hand: each writes its value to a cache line of its own and reads the other's.
 *   plan_cost hand|halay count CALLS   one thread plays both ranks, so that each poll finds
 * something and instructions can be counted; prints ns a call and rank, the best of parts of 1000
 * calls plan_cost hand|halay time CALLS    two threads; prints ns a call: the best of 400 parts,
 * and the middle one
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "two_ranks.h"

enum { PARTS = 400, COUNTED = 1000 };

/* ---------------------------------------------------------------- by hand */

/* Two of them in turn: nobody is more than one call ahead of what the other has read. */
struct line {
    _Alignas(64) atomic_ullong sequence;
    double value;
};

static struct line (*lines)[2]; /* of each rank, in shared memory */

static void hand_post(int rank, unsigned long long sequence, double value)
{
    struct line *mine = &lines[rank][sequence & 1];
    mine->value = value;
    atomic_store_explicit(&mine->sequence, sequence, memory_order_release);
}

static double hand_take(int rank, unsigned long long sequence)
{
    struct line *theirs = &lines[!rank][sequence & 1];
    while (atomic_load_explicit(&theirs->sequence, memory_order_acquire) != sequence)
        __builtin_ia32_pause();
    double mine = lines[rank][sequence & 1].value; /* left: rank 0's */
    return rank ? theirs->value + mine : mine + theirs->value;
}

/* ---------------------------------------------------------------- Halay */

static halay_context_t *context[RANKS];
static halay_comm_t *comm[RANKS];

static double halay_count_one(double in[RANKS])
{
    halay_request_t *request[RANKS];
    double out[RANKS];
    for (int r = 0; r < RANKS; r++)
        check(halay_iallreduce(&in[r], &out[r], 1, HALAY_FLOAT64, HALAY_SUM, comm[r], &request[r]),
              "halay_iallreduce");
    two_ranks_wait(request);
    return out[0] == out[1] ? out[0] : -1;
}

/* ---------------------------------------------------------------- both */

struct thread { /* apart: what one writes would cost the other a trip of a line a call */
    _Alignas(128) pthread_t id;
    int rank, hand;
    long calls;
    double ns[PARTS], sum;
};

static pthread_barrier_t together;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Each to a processor of its own, if there are two. */
static void bind_to(int rank)
{
    cpu_set_t set, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof set, &set))
        return;
    for (int p = 0; p < CPU_SETSIZE; p++)
        if (CPU_ISSET(p, &set) && rank-- == 0)
            CPU_SET(p, &one);
    if (CPU_COUNT(&one))
        sched_setaffinity(0, sizeof one, &one);
}

static void *run(void *arg)
{
    struct thread *t = arg;
    bind_to(t->rank);
    unsigned long long sequence = 0;
    double in = t->rank + 1, out;
    for (int part = -1; part < PARTS; part++) { /* the first one warms up */
        pthread_barrier_wait(&together);
        double begin = now_ns();
        for (long i = 0; i < t->calls; i++) {
            if (t->hand) {
                hand_post(t->rank, ++sequence, in);
                out = hand_take(t->rank, sequence);
            } else {
                check(halay_allreduce(&in, &out, 1, HALAY_FLOAT64, HALAY_SUM, comm[t->rank]),
                      "halay_allreduce");
            }
            t->sum += out;
        }
        if (part >= 0)
            t->ns[part] = (now_ns() - begin) / (double)t->calls;
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int take_time(int hand, long calls)
{
    static struct thread threads[RANKS];
    pthread_barrier_init(&together, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        threads[r] = (struct thread){.rank = r, .hand = hand, .calls = calls / (PARTS + 1) + 1};
        if (pthread_create(&threads[r].id, NULL, run, &threads[r]))
            exit(1);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r].id, NULL);
    qsort(threads[0].ns, PARTS, sizeof(double), compare);
    printf("%.0f %.0f\n", threads[0].ns[0], threads[0].ns[PARTS / 2]);
    return threads[0].sum != threads[1].sum ||
           threads[0].sum != 3.0 * (PARTS + 1) * (double)threads[0].calls;
}

static int count(int hand, long calls)
{
    double in[RANKS] = {1, 2}, sum = 0, begin = now_ns(), best = 1e9;
    for (long i = 0; i < calls; i++) {
        if (i && i % COUNTED == 0) {
            double ns = (now_ns() - begin) / COUNTED / RANKS;
            best = ns < best ? ns : best;
            begin = now_ns();
        }
        unsigned long long sequence = (unsigned long long)i + 1;
        if (!hand) {
            sum += halay_count_one(in);
            continue;
        }
        for (int r = 0; r < RANKS; r++)
            hand_post(r, sequence, in[r]);
        for (int r = 0; r < RANKS; r++)
            sum += hand_take(r, sequence) / RANKS;
    }
    printf("%.0f\n", best);
    return sum != 3.0 * (double)calls;
}

int main(int argc, char **argv)
{
    long calls = argc == 4 ? atol(argv[3]) : 0;
    int hand = argc == 4 && !strcmp(argv[1], "hand"), timed = argc == 4 && !strcmp(argv[2], "time");
    if (calls <= 0 || (!hand && strcmp(argv[1], "halay")) || (!timed && strcmp(argv[2], "count"))) {
        fprintf(stderr, "usage: plan_cost hand|halay count|time CALLS\n");
        return 2;
    }
    lines = mmap(NULL, RANKS * sizeof(*lines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    if (lines == MAP_FAILED)
        return 1;
    if (!hand)
        two_ranks_init(context, comm);
    int wrong = timed ? take_time(hand, calls) : count(hand, calls);
    if (wrong)
        fprintf(stderr, "plan_cost: wrong data\n");
    for (int r = 0; r < RANKS && !hand; r++)
        halay_finalize(context[r]);
    return wrong;
}
