/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_death.c - the last rank is killed while the others use a window: each of their waits has
 * to end with an error that names it. window_death HOW: what they wait in. Under halayrun the job
 * ends with an error, so the test reads what the ranks print.
 */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 100000

static int rank, size;
static MPI_Win win;
static MPI_Group everyone;

/* The one that dies: it holds a lock, or is in the middle of accumulates. */
static void die(const char *how, const int64_t *data)
{
    if (!strcmp(how, "lock"))
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(how, "near")) {
        alarm(1); /* in one of them */
        MPI_Win_lock_all(0, win);
        for (;;)
            MPI_Accumulate(data, WORDS, MPI_INT64_T, 0, 0, WORDS, MPI_INT64_T, MPI_SUM, win);
    }
    usleep(300000);
    raise(SIGKILL);
}

static int wait_in(const char *how, const int64_t *data)
{
    const int last = size - 1;
    int rc = MPI_SUCCESS;
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(how, "fence"))
        return MPI_Win_fence(0, win);
    if (!strcmp(how, "lock")) {
        rc = MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        return rc ? rc : MPI_Win_fence(0, win);
    }
    if (!strcmp(how, "start"))
        return MPI_Win_start(everyone, 0, win);
    if (!strcmp(how, "wait")) {
        rc = MPI_Win_post(everyone, 0, win);
        return rc ? rc : MPI_Win_wait(win);
    }
    rc = MPI_Win_lock_all(0, win);
    while (!rc) {
        rc = MPI_Accumulate(data, WORDS, MPI_INT64_T, last, 0, WORDS, MPI_INT64_T, MPI_SUM, win);
        rc = rc ? rc
                : MPI_Accumulate(data, WORDS, MPI_INT64_T, 0, 0, WORDS, MPI_INT64_T, MPI_SUM, win);
        rc = rc ? rc : MPI_Win_flush(last, win);
        /* Memory that is near needs no message: a barrier finds the death. */
        rc = rc || strcmp(how, "near") ? rc : MPI_Win_unlock_all(win);
        rc = rc || strcmp(how, "near") ? rc : MPI_Win_lock_all(0, win);
    }
    return rc;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "lock";
    int64_t *memory, *data = calloc(WORDS, sizeof(*data));
    const MPI_Aint bytes = WORDS * (MPI_Aint)sizeof(*data);
    char text[MPI_MAX_ERROR_STRING];
    int length, class;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_group(MPI_COMM_WORLD, &everyone);
    signal(SIGALRM, SIG_DFL);
    if (!strcmp(how, "near")) {
        MPI_Win_allocate(bytes, sizeof(*data), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else {
        memory = calloc(1, (size_t)bytes);
        MPI_Win_create(memory, bytes, sizeof(*data), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank == size - 1)
        die(how, data);
    const int rc = wait_in(how, data);
    MPI_Error_class(rc, &class);
    MPI_Error_string(rc, text, &length);
    printf("rank %d: %s has ended with class %d: %s\n", rank, how, class, text);
    fflush(stdout);
    _exit(rc ? 1 : 0);
}
