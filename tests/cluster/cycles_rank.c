/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cycles_rank NUMBER: so often from halay_init to halay_finalize, with pauses of 0 to 2 ms, each
 * with a sum; neither descriptors nor memory may grow. Exit code 0 if all was right.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>

#define CHECK(c)                                                                                   \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            fprintf(stderr, "%s:%d: cycle %d: not so: %s\n", __FILE__, __LINE__, cycle, #c);       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* GROWTH_KIB: UCX's pools have grown by 1,064 once, on a busy machine; a leak would be that of 100
 * cycles. */
enum { WARM = 50, GROWTH_KIB = 2048, COUNTS = 3 };

static const size_t counts[COUNTS] = {1, 1000, 20000};
static int cycle;

static int descriptors(void)
{
    int n = 0;
    DIR *all = opendir("/proc/self/fd");
    CHECK(all);
    while (readdir(all))
        n++;
    closedir(all);
    return n - 3; /* ., .. and that of the folder */
}

static long resident_kib(void)
{
    long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void pause_randomly(void)
{
    struct timespec t = {0, random() % 2000000};
    nanosleep(&t, NULL);
}

static int one_life(int64_t *data)
{
    halay_context_t *context;
    halay_comm_t *world;
    int rank, nranks;
    pause_randomly();
    CHECK(halay_init(NULL, &context) == HALAY_OK);
    CHECK(halay_comm_world(context, &world) == HALAY_OK);
    CHECK(halay_comm_rank(world, &rank) == HALAY_OK && halay_comm_size(world, &nranks) == HALAY_OK);
    pause_randomly();
    size_t count = counts[cycle % COUNTS];
    for (size_t i = 0; i < count; i++)
        data[i] = (int64_t)i * (rank + 1) + cycle;
    CHECK(halay_allreduce(HALAY_IN_PLACE, data, count, HALAY_INT64, HALAY_SUM, world) == HALAY_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(data[i] == (int64_t)i * nranks * (nranks + 1) / 2 + (int64_t)nranks * cycle);
    pause_randomly();
    CHECK(halay_finalize(context) == HALAY_OK);
    return rank;
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 0, fds = 0, rank = 0;
    long kib = 0;
    struct timespec begin, end;
    int64_t *data = calloc(counts[COUNTS - 1], sizeof *data);
    CHECK(data && number > WARM);
    srandom((unsigned)getpid());
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (cycle = 0; cycle < number; cycle++) {
        if (cycle == WARM)
            fds = descriptors(), kib = resident_kib();
        rank = one_life(data);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double s = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("rank %d: %d cycles in %.1f s, descriptors %d then %d, resident KiB %ld then %ld\n",
           rank, number, s, fds, descriptors(), kib, resident_kib());
    CHECK(descriptors() == fds);
    CHECK(resident_kib() <= kib + GROWTH_KIB);
    free(data);
    return 0;
}
