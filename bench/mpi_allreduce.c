/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_allreduce.c - what `halay-bench allreduce` measures, of MPI_Allreduce on float32 sums: the
 * same sizes, warm-up, number of calls, clock readings and checks. Prints halay-bench's csv.
 *   mpi_allreduce MIN_BYTES MAX_BYTES SECONDS [FACTOR]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define CALLS_MAX  10000
#define CALLS_MIN  3
#define WARMUP_MAX 4096
#define ALIGNMENT  4096

static int rank, nranks;
static float *in, *out;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double switches_so_far(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_nvcsw + (double)usage.ru_nivcsw;
}

static float value_of(int r, size_t i)
{
    uint64_t x = ((uint64_t)r << 32 | i % 4093) * 0x9e3779b97f4a7c15u;
    return (float)(x >> 62);
}

static int checked_call(size_t count)
{
    int good = 1;
    for (size_t i = 0; i < count; i++)
        in[i] = value_of(rank, i);
    memset(out, 0xa5, count * sizeof *out);
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < nranks; r++)
            sum += value_of(r, i);
        good &= out[i] == sum;
    }
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return good;
}

static void timed_calls(size_t count, int calls, double us[])
{
    MPI_Barrier(MPI_COMM_WORLD);
    double before = now_us();
    for (int i = 0; i < calls; i++) {
        MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double after = now_us();
        us[i] = after - before;
        before = after;
    }
}

static int warm_up(size_t count, double seconds, double us[])
{
    double took;
    int n = 1;
    for (;; n *= 2) {
        took = 0;
        timed_calls(count, n, us);
        for (int i = 0; i < n; i++)
            took += us[i];
        MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (took > seconds * 1e6 / 8 || n >= WARMUP_MAX)
            break;
    }
    double fit = seconds * 1e6 / (took / n);
    return fit > CALLS_MAX ? CALLS_MAX : fit < CALLS_MIN ? CALLS_MIN : (int)fit;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(size_t bytes, double seconds, double us[])
{
    size_t count = bytes / sizeof(float);
    int valid = checked_call(count);
    int calls = warm_up(count, seconds, us);
    double sum = 0, switches = switches_so_far();
    timed_calls(count, calls, us);
    switches = switches_so_far() - switches;
    MPI_Allreduce(MPI_IN_PLACE, us, calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &switches, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    valid &= checked_call(count);
    for (int i = 0; i < calls; i++)
        sum += us[i];
    qsort(us, (size_t)calls, sizeof *us, by_size);
    if (rank == 0)
        printf("%zu,%zu,%d,%.3f,%.3f,%.3f,%.4f,%d\n", bytes, count, calls, sum / calls,
               (us[(calls - 1) / 2] + us[calls / 2]) / 2, us[0], switches / calls / nranks, valid);
    fflush(stdout);
    return valid;
}

int main(int argc, char **argv)
{
    static double us[CALLS_MAX];
    int valid = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    int well = argc == 4 || argc == 5;
    size_t least = well ? strtoull(argv[1], NULL, 10) / sizeof(float) * sizeof(float) : 0;
    size_t most = well ? strtoull(argv[2], NULL, 10) : 0;
    double seconds = well ? strtod(argv[3], NULL) : 0;
    size_t factor = argc == 5 ? strtoull(argv[4], NULL, 10) : 2;
    size_t room = (most + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    in = least ? aligned_alloc(ALIGNMENT, room) : NULL;
    out = least ? aligned_alloc(ALIGNMENT, room) : NULL;
    if (!in || !out || seconds <= 0 || factor < 2 || most > INT32_MAX) {
        fprintf(stderr, "usage: mpi_allreduce MIN_BYTES MAX_BYTES SECONDS [FACTOR]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    memset(in, 0, room);
    memset(out, 0, room);
    if (rank == 0)
        printf("bytes,count,calls,avg_us,median_us,min_us,switches,valid\n");
    for (size_t bytes = least; bytes <= most; bytes *= factor)
        valid &= measure(bytes, seconds, us);
    free(in);
    free(out);
    MPI_Finalize();
    return !valid;
}
