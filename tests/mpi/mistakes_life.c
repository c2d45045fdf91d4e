/* SPDX-License-Identifier: Apache-2.0 */
/* mistakes_life.c - MPI_Init and MPI_Finalize at the wrong time, and ranks that end too early. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mistakes.h"

static int in[64], out[64];

static int rank_in_world(void)
{
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static int init_twice(int rank)
{
    (void)rank;
    return MPI_Init(NULL, NULL);
}

static int before_init(int rank)
{
    (void)rank;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int after_finalize(int rank)
{
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    return MPI_Send(out, 1, MPI_INT, rank + 1, 1, MPI_COMM_WORLD);
}

static int finalize_twice(int rank)
{
    (void)rank;
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    return MPI_Finalize();
}

static int init_after_finalize(int rank)
{
    (void)rank;
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    return MPI_Init(NULL, NULL);
}

static int finalize_without_init(int rank)
{
    (void)rank;
    return MPI_Finalize();
}

static int no_finalize(int rank)
{
    rank = rank_in_world();
    if (rank == 0)
        MPI_Finalize();
    return 0;
}

static int no_finalize_at_all(int rank)
{
    rank_in_world();
    (void)rank;
    return 0;
}

static int exit_in_collective(int rank)
{
    if (rank == 1)
        exit(0);
    return MPI_Allreduce(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int exit_with_error(int rank)
{
    if (rank == 1)
        exit(7);
    return MPI_Allreduce(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int abort_of_c(int rank)
{
    if (rank == 1)
        abort();
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int killed_in_receive(int rank)
{
    if (rank == 1) {
        usleep(100000);
        raise(SIGKILL);
    }
    return MPI_Recv(in, 4, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int segmentation(int rank)
{
    if (rank == 1)
        raise(SIGSEGV);
    return MPI_Recv(in, 4, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int abort_of_mpi(int rank)
{
    if (rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 9);
    return MPI_Barrier(MPI_COMM_WORLD);
}

/* The error comes back, names its cause, and the job goes on. */
static int errors_return(int rank)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, code, class = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Send(out, 1, MPI_INT, 77, 1, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "rank %d: %s\n", rank, text);
    return class != MPI_ERR_RANK || MPI_Barrier(MPI_COMM_WORLD);
}

/* A collective that has failed on all ranks does not spoil the next one. */
static int error_ignored(int rank)
{
    int n = rank ? 0 : 17, code;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Bcast(in, 1, MPI_INT, rank ? 0 : 9, MPI_COMM_WORLD);
    MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return code == MPI_SUCCESS || n != 17;
}

static int other_comm_is_fatal(int rank)
{
    MPI_Comm copy = copy_of_world();
    (void)rank;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return MPI_Send(out, 1, MPI_INT, 77, 1, copy);
}

#define LIFE "initialization"
#define DEAD "process failure"
const struct mistake mistakes_life[] = {
    {"init_twice", 2, ONE, LIFE, "MPI_Init: MPI was initialized before", init_twice, 0},
    {"before_init", 2, ONE, LIFE, "before MPI_Init", before_init, 1},
    {"after_finalize", 2, ONE, LIFE, "after MPI_Finalize", after_finalize, 1},
    {"finalize_twice", 2, ONE, LIFE, "MPI_Finalize: it was called before", finalize_twice, 1},
    {"init_after_finalize", 2, ONE, LIFE, "MPI_Init: MPI was initialized and finalized",
     init_after_finalize, 1},
    {"finalize_without_init", 2, ONE, LIFE, "before MPI_Init", finalize_without_init, 1},
    {"no_finalize", 2, DIES, LIFE, "rank 1", no_finalize, 1},
    {"no_finalize_at_all", 2, TOLD, LIFE, "rank 1: the program has ended without MPI_Finalize",
     no_finalize_at_all, 1},
    {"exit_in_collective", 2, DIES, DEAD, "rank 1", exit_in_collective, 0},
    {"exit_with_error", 2, DIES, DEAD, "rank 1", exit_with_error, 0},
    {"abort_of_c", 2, DIES, DEAD, "rank 1", abort_of_c, 0},
    {"killed_in_receive", 2, DIES, DEAD, "rank 1", killed_in_receive, 0},
    {"segmentation", 2, DIES, DEAD, "rank 1", segmentation, 0},
    {"abort_of_mpi", 2, DIES, DEAD, "rank 1", abort_of_mpi, 0},
    {"errors_return", 2, FINE, LIFE, "MPI_Send: rank 77", errors_return, 0},
    {"error_ignored", 2, FINE, LIFE, "root is 9", error_ignored, 0},
    {"other_comm_is_fatal", 2, ONE, LIFE, "MPI_Send: rank 77", other_comm_is_fatal, 0},
    {0},
};
