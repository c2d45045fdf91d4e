/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_pairs.c - a program of MPI, for bench/mpi: ping-pong, message rate and short collectives.
 * Prints "what bytes microseconds" lines, the best of three.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (4 << 20)
#define WINDOW  64

static char *mine, *theirs;
static int rank, size;

static void ping_pong(int bytes)
{
    const int other = 1 - rank;
    if (rank == 0)
        MPI_Send(mine, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    if (rank < 2)
        MPI_Recv(theirs, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(mine, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
}

static void flood(int bytes)
{
    MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW && rank < 2; i++)
        if (rank == 0)
            MPI_Isend(mine, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(theirs, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[i]);
    if (rank < 2)
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
}

static void allreduce(int bytes)
{
    MPI_Allreduce(mine, theirs, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(int bytes)
{
    MPI_Bcast(mine, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void alltoall(int bytes)
{
    MPI_Alltoall(mine, bytes / size, MPI_BYTE, theirs, bytes / size, MPI_BYTE, MPI_COMM_WORLD);
}

/* parts: messages in one round. */
static void measure(const char *what, void (*call)(int bytes), int bytes, int parts)
{
    const int rounds = bytes <= 4096 ? 4000 : bytes <= 65536 ? 1000 : 60;
    double best = 1e9;
    for (int repeat = 0; repeat < 3; repeat++) {
        for (int i = 0; i < rounds / 10; i++)
            call(bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        for (int i = 0; i < rounds; i++)
            call(bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        const double each = (MPI_Wtime() - start) / rounds / parts;
        best = each < best ? each : best;
    }
    if (rank == 0)
        printf("%s %d %.3f\n", what, bytes, best * 1e6);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {8, 64, 512, 4096, 16384, 65536, 524288, LONGEST};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine = calloc(1, LONGEST);
    theirs = calloc(1, LONGEST);
    if (mine && theirs) { /* pages of their own: unwritten ones are all the page of zeros */
        memset(mine, 1, LONGEST);
        memset(theirs, 2, LONGEST);
    }
    for (int i = 0; mine && theirs && i < (int)(sizeof(sizes) / sizeof(sizes[0])); i++) {
        measure("ping-pong", ping_pong, sizes[i], 2);
        if (sizes[i] <= 65536)
            measure("rate", flood, sizes[i], WINDOW);
        measure("allreduce", allreduce, sizes[i], 1);
        measure("broadcast", broadcast, sizes[i], 1);
        measure("alltoall", alltoall, sizes[i], 1);
    }
    free(mine);
    free(theirs);
    MPI_Finalize();
    return 0;
}
