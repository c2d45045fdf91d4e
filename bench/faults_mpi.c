/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_mpi.c - the same for an MPI with ULFM: its calls return errors; who sees one revokes the
 * communicator, so that all leave their calls, and they shrink it.
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
/* It needs what mpi.h declares. */
#include <mpi-ext.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    MPI_Comm left;
    char text[MPI_MAX_ERROR_STRING] = "";
    int64_t in = 1, out = 0;
    int rank, nranks, length = 0, rc = MPI_SUCCESS;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    printf("rank %d pid %d begins\n", rank, (int)getpid());
    fflush(stdout);
    while (rc == MPI_SUCCESS)
        rc = MPI_Allreduce(&in, &out, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Error_string(rc, text, &length);
    printf("rank %d told at %.6f: %s\n", rank, now(), text);
    fflush(stdout);
    MPIX_Comm_revoke(MPI_COMM_WORLD);
    rc = MPIX_Comm_shrink(MPI_COMM_WORLD, &left);
    if (rc == MPI_SUCCESS)
        rc = MPI_Allreduce(&in, &out, 1, MPI_INT64_T, MPI_SUM, left);
    printf("rank %d back at %.6f: %d of %d\n", rank, now(), rc ? -rc : (int)out, nranks);
    fflush(stdout);
    if (rc == MPI_SUCCESS)
        MPI_Barrier(left);
    _exit(rc != MPI_SUCCESS);
}
