/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits CASE: ranks that wait for each other in functions of MPI, and print what they are told; or
 * that only wait for one that comes late. "away": rank 0 comes after 2 s. "hang": rank 0 is in
 * MPI_Allreduce, rank 1 receives from it, and others sleep. "locked": rank 0 waits for a lock.
 * multiple as a second argument: with MPI_THREAD_MULTIPLE.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 100000 };
static int data[LONG];

/* Rank 0 waits for a lock that rank 2 has, then sends to rank 1, of whose window it is. */
static int play_locked(int rank)
{
    int rc = MPI_SUCCESS, out = 0;
    MPI_Win window;
    MPI_Win_create(data, sizeof(data), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (rank == 2)
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) {
        sleep(4);
        rc = MPI_Win_unlock(1, window);
    } else if (rank == 1) {
        rc = MPI_Recv(&out, 1, MPI_INT, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        rc = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
        if (!rc)
            rc = MPI_Win_unlock(1, window);
        if (!rc)
            rc = MPI_Send(&out, 1, MPI_INT, 1, 99, MPI_COMM_WORLD);
    }
    if (!rc)
        MPI_Win_free(&window);
    return rc;
}

static int play(const char *how, int rank, int n)
{
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    int in = 1, out = 0, rc = MPI_SUCCESS;
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    if (!strcmp(how, "recv"))
        return MPI_Recv(&out, 1, MPI_INT, before, 99, world, MPI_STATUS_IGNORE);
    if (!strcmp(how, "send"))
        return MPI_Send(data, LONG, MPI_INT, next, 5, world);
    if (!strcmp(how, "ssend"))
        return MPI_Ssend(data, 1, MPI_INT, next, 5, world);
    if (!strcmp(how, "probe"))
        return MPI_Probe(before, 9, world, MPI_STATUS_IGNORE);
    if (!strcmp(how, "any"))
        return MPI_Recv(&out, 1, MPI_INT, rank ? before : MPI_ANY_SOURCE, 99, world,
                        MPI_STATUS_IGNORE);
    if (!strcmp(how, "waitall")) {
        MPI_Irecv(&out, 1, MPI_INT, before, 3, world, &requests[0]);
        MPI_Irecv(&in, 1, MPI_INT, before, 4, world, &requests[1]);
        rc = MPI_Waitall(2, requests, statuses);
        return rc == MPI_ERR_IN_STATUS ? statuses[0].MPI_ERROR : rc;
    }
    if (!strcmp(how, "collective") || !strcmp(how, "hang")) {
        if (rank == 1)
            return MPI_Recv(&out, 1, MPI_INT, 0, 99, world, MPI_STATUS_IGNORE);
        if (rank > 1 && how[0] == 'h')
            sleep(30);
        return MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, world);
    }
    if (!strcmp(how, "away")) {
        if (rank == 1)
            return MPI_Recv(&out, 1, MPI_INT, 0, 99, world, MPI_STATUS_IGNORE);
        if (rank == 0) {
            sleep(2);
            return MPI_Ssend(&in, 1, MPI_INT, 1, 99, world);
        }
    }
    if (!strcmp(how, "locked"))
        rc = play_locked(rank);
    return rc;
}

int main(int argc, char **argv)
{
    const int level = argc > 2 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
    char text[MPI_MAX_ERROR_STRING] = "";
    int rank, n, provided, length;
    MPI_Init_thread(&argc, &argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const int rc = argc > 1 ? play(argv[1], rank, n) : 1;
    if (rc)
        MPI_Error_string(rc, text, &length);
    printf("rank %d: %s\n", rank, rc ? text : "well");
    fflush(stdout);
    sleep(rc ? 6 : 0); /* else the others hear first that this one has ended */
    if (!rc)
        MPI_Finalize();
    return 0;
}
