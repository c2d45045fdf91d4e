/* SPDX-License-Identifier: Apache-2.0 */
/* startup_mpi - as startup_halay, of MPI; how many connections it has made, it does not say: -1. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int main(int argc, char **argv)
{
    long long begin = now_ns();
    int rank;
    MPI_Init(&argc, &argv);
    long long ready = now_ns();
    MPI_Barrier(MPI_COMM_WORLD);
    long long met = now_ns();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("startup %d %lld %lld %lld -1\n", rank, begin, ready, met);
    MPI_Finalize();
    return 0;
}
