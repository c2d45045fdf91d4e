/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training.c - what a training step costs: T named float32 tensors of B bytes, submitted and waited
 * for, on each rank of a job. Prints the counts of a step first, then its time. With a file, steps
 * with a timeline and steps without one take turns, and what the timeline costs is printed: each
 * pair of turns is compared in itself.
 *
 *   cc -O2 -Iinclude bench/training.c -o training -Lbuild/lib -lhalay
 *   LD_LIBRARY_PATH=build/lib build/bin/halayrun -np 2 ./training [tensors [bytes [steps [FILE]]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <halay/halay.h>
#include <halay/training.h>

#define TURN 40 /* steps */

static void must(int rc, const char *what)
{
    if (rc) {
        fprintf(stderr, "%s: %s\n", what, halay_strerror(rc));
        exit(1);
    }
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void step(halay_trainer_t *trainer, float **tensors, size_t count, size_t bytes,
                 halay_ticket_t *tickets)
{
    char name[32], why[512];
    for (size_t t = 0; t < count; t++) {
        snprintf(name, sizeof(name), "layer.%zu", t);
        must(halay_trainer_allreduce(trainer, name, tensors[t], tensors[t], bytes / sizeof(float),
                                     HALAY_FLOAT32, HALAY_AVERAGE, 1, 1, &tickets[t]),
             name);
    }
    for (size_t t = 0; t < count; t++) {
        int rc = halay_trainer_wait(trainer, tickets[t], why, sizeof(why));
        must(rc, why);
        halay_trainer_release(trainer, tickets[t]);
    }
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void report(halay_context_t *context, halay_trainer_t *trainer, int steps, int print)
{
    static halay_counters_t before = {.size = sizeof(before)};
    static halay_trainer_counters_t said = {.size = sizeof(said)};
    halay_counters_t after = {.size = sizeof(after)};
    halay_trainer_counters_t says = {.size = sizeof(says)};
    must(halay_context_counters(context, &after), "counters");
    must(halay_trainer_counters(trainer, &says), "counters");
    if (print)
        printf("a step: %g control rounds, %g control bytes, %g votes, %g calls, %g fused, %g B "
               "copied; the rank sends %g messages, %g B\n",
               (double)(says.control_rounds - said.control_rounds) / steps,
               (double)(says.control_bytes - said.control_bytes) / steps,
               (double)(says.votes - said.votes) / steps, (double)(says.calls - said.calls) / steps,
               (double)(says.fused_tensors - said.fused_tensors) / steps,
               (double)(says.copied_bytes - said.copied_bytes) / steps,
               (double)(after.sent_messages - before.sent_messages) / steps,
               (double)(after.sent_bytes - before.sent_bytes) / steps);
    before = after;
    said = says;
}

/* Milliseconds of a step: their mean, without the quarter that took longest. */
static double turn(halay_trainer_t *trainer, float **tensors, size_t count, size_t bytes,
                   halay_ticket_t *tickets)
{
    double times[TURN], sum = 0;
    for (int s = -2; s < TURN; s++) { /* two at first: a timeline starts on ranks one by one */
        double start = now_ms();
        step(trainer, tensors, count, bytes, tickets);
        if (s >= 0)
            times[s] = now_ms() - start;
    }
    qsort(times, TURN, sizeof(*times), compare);
    for (int s = 0; s < TURN * 3 / 4; s++)
        sum += times[s];
    return sum / (TURN * 3 / 4);
}

/* Which of a pair comes first changes from pair to pair. */
static void timeline_cost(halay_trainer_t *trainer, float **tensors, size_t count, size_t bytes,
                          halay_ticket_t *tickets, int pairs, const char *path)
{
    double *costs = calloc((size_t)pairs, sizeof(*costs)), ms[2], sums[2] = {0, 0};
    halay_timeline_result_t result = {.size = sizeof(result)};
    uint64_t recorded = 0, lost = 0;
    for (int p = 0; p < pairs; p++) {
        for (int i = 0; i < 2; i++) {
            int on = (p + i) % 2;
            if (on)
                must(halay_trainer_timeline_start(trainer, path, 1), path);
            ms[on] = turn(trainer, tensors, count, bytes, tickets);
            if (on)
                must(halay_trainer_timeline_stop(trainer, &result), path);
            sums[on] += ms[on];
            recorded += on ? result.recorded : 0;
            lost += on ? result.lost : 0;
        }
        costs[p] = 100 * (ms[1] / ms[0] - 1);
    }
    qsort(costs, (size_t)pairs, sizeof(*costs), compare);
    printf("timeline: %.3f ms a step without, %.3f with; it costs %+.2f %% (median of %d pairs; "
           "quartiles %+.2f, %+.2f); %llu records, %llu lost\n",
           sums[0] / pairs, sums[1] / pairs, costs[pairs / 2], pairs, costs[pairs / 4],
           costs[pairs * 3 / 4], (unsigned long long)recorded, (unsigned long long)lost);
    free(costs);
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 200;
    size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 65536;
    int steps = argc > 3 ? atoi(argv[3]) : 200, rank;
    halay_context_t *context;
    halay_comm_t *world;
    halay_trainer_t *trainer;
    must(halay_init(NULL, &context), "init");
    must(halay_comm_world(context, &world), "world");
    must(halay_comm_rank(world, &rank), "rank");
    must(halay_trainer_create(context, world, &trainer), "trainer");
    float **tensors = calloc(count, sizeof(*tensors));
    halay_ticket_t *tickets = calloc(count, sizeof(*tickets));
    double *times = calloc((size_t)steps, sizeof(*times));
    for (size_t t = 0; t < count; t++) {
        tensors[t] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memset(tensors[t], 0, bytes);
    }
    for (int s = 0; s < 5; s++)
        step(trainer, tensors, count, bytes, tickets);
    report(context, trainer, steps, 0);
    for (int s = 0; s < steps; s++) {
        double start = now_ms();
        step(trainer, tensors, count, bytes, tickets);
        times[s] = now_ms() - start;
    }
    report(context, trainer, steps, rank == 0);
    qsort(times, (size_t)steps, sizeof(*times), compare);
    if (rank == 0)
        printf("%zu tensors of %zu B: median %.3f ms, least %.3f ms, 90 %% %.3f ms\n", count, bytes,
               times[steps / 2], times[0], times[steps * 9 / 10]);
    if (argc > 4) {
        char path[4096];
        snprintf(path, sizeof(path), rank ? "%s.rank%d" : "%s", argv[4], rank);
        timeline_cost(trainer, tensors, count, bytes, tickets, steps / TURN + 1, path);
    }
    halay_trainer_destroy(trainer);
    must(halay_finalize(context), "finalize");
    for (size_t t = 0; t < count; t++)
        free(tensors[t]);
    free(tensors);
    free(tickets);
    free(times);
    return 0;
}
