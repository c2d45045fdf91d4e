/* SPDX-License-Identifier: Apache-2.0 */
/* mistakes_request.c - requests that are started, waited for or freed at the wrong time. */
#include <stddef.h>
#include <stdlib.h>

#include "mistakes.h"

static int in[64], out[64];

static MPI_Request begin_receive(int from, int tag)
{
    MPI_Request r;
    MPI_Irecv(in, 4, MPI_INT, from, tag, MPI_COMM_WORLD, &r);
    return r;
}

static int receive_without_wait(int rank)
{
    if (rank)
        MPI_Send(out, 4, MPI_INT, 0, 1, MPI_COMM_WORLD);
    else
        begin_receive(1, 1);
    return 0;
}

/* Nor does anybody send. */
static int receive_left_open(int rank)
{
    if (!rank)
        begin_receive(1, 1);
    return 0;
}

static int send_without_wait(int rank)
{
    MPI_Request r;
    if (rank)
        return MPI_Recv(in, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MPI_Isend(out, 4, MPI_INT, 1, 1, MPI_COMM_WORLD, &r);
}

static int collective_without_wait(int rank)
{
    MPI_Request r;
    (void)rank;
    return MPI_Iallreduce(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r);
}

static int freed_while_open(int rank)
{
    MPI_Request r;
    if (rank)
        return 0;
    r = begin_receive(1, 1);
    return MPI_Request_free(&r);
}

/* MPI forbids it, and tests of MPI libraries do it: the collective ends all the same. */
static int collective_freed(int rank)
{
    static int one = 1, sum;
    MPI_Request r;
    (void)rank;
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r);
    MPI_Request_free(&r);
    MPI_Barrier(MPI_COMM_WORLD);
    return sum != 2;
}

static int wait_after_free(int rank)
{
    MPI_Request r, old;
    if (rank)
        return MPI_Send(out, 4, MPI_INT, 0, 1, MPI_COMM_WORLD);
    old = r = begin_receive(1, 1);
    MPI_Request_free(&r);
    MPI_Barrier(MPI_COMM_SELF);
    for (int i = 0; i < 1000; i++) /* until it is done, and its handle has ended */
        MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &in[0], MPI_STATUS_IGNORE);
    return MPI_Wait(&old, MPI_STATUS_IGNORE);
}

static int waited_twice(int rank)
{
    MPI_Request r, old;
    if (rank)
        return MPI_Send(out, 4, MPI_INT, 0, 1, MPI_COMM_WORLD);
    old = r = begin_receive(1, 1);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    return MPI_Wait(&old, MPI_STATUS_IGNORE);
}

/* MPI permits it: the request is MPI_REQUEST_NULL. */
static int waited_again(int rank)
{
    MPI_Request r;
    if (rank)
        return MPI_Send(out, 4, MPI_INT, 0, 1, MPI_COMM_WORLD);
    r = begin_receive(1, 1);
    return MPI_Wait(&r, MPI_STATUS_IGNORE) || r != MPI_REQUEST_NULL ||
           MPI_Wait(&r, MPI_STATUS_IGNORE);
}

static int started_twice(int rank)
{
    MPI_Request r;
    MPI_Recv_init(in, 4, MPI_INT, !rank, 1, MPI_COMM_WORLD, &r);
    MPI_Start(&r);
    return MPI_Start(&r);
}

static int start_not_persistent(int rank)
{
    MPI_Request r = begin_receive(!rank, 1);
    return MPI_Start(&r);
}

static int start_null(int rank)
{
    MPI_Request r[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    (void)rank;
    return MPI_Startall(2, r);
}

static int start_after_free(int rank)
{
    MPI_Request r, old;
    MPI_Send_init(out, 4, MPI_INT, !rank, 1, MPI_COMM_WORLD, &r);
    old = r;
    MPI_Request_free(&r);
    return MPI_Start(&old);
}

static int persistent_left(int rank)
{
    MPI_Request r;
    MPI_Recv_init(in, 4, MPI_INT, !rank, 1, MPI_COMM_WORLD, &r);
    return MPI_Start(&r);
}

/* MPI permits it: the request is inactive, so the wait returns at once. */
static int wait_not_started(int rank)
{
    MPI_Request r;
    MPI_Recv_init(in, 4, MPI_INT, !rank, 1, MPI_COMM_WORLD, &r);
    return MPI_Wait(&r, MPI_STATUS_IGNORE) || MPI_Request_free(&r);
}

static int free_null(int rank)
{
    MPI_Request r = MPI_REQUEST_NULL;
    (void)rank;
    return MPI_Request_free(&r);
}

static int cancel_null(int rank)
{
    MPI_Request r = MPI_REQUEST_NULL;
    (void)rank;
    return MPI_Cancel(&r);
}

static int wait_for_garbage(int rank)
{
    MPI_Request r[2] = {MPI_REQUEST_NULL, (MPI_Request)(size_t)0x7fffabcd};
    (void)rank;
    return MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
}

static int waitall_negative(int rank)
{
    MPI_Request r[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    (void)rank;
    return MPI_Waitall(-2, r, MPI_STATUSES_IGNORE);
}

static int test_without_flag(int rank)
{
    MPI_Request r = MPI_REQUEST_NULL;
    (void)rank;
    return MPI_Test(&r, NULL, MPI_STATUS_IGNORE);
}

/* Two receives write the same bytes: MPI forbids it, and no library can tell. Both messages come.
 */
static int receives_share_buffer(int rank)
{
    MPI_Request r[2];
    if (rank) {
        out[0] = 17;
        MPI_Send(out, 4, MPI_INT, 0, 1, MPI_COMM_WORLD);
        return MPI_Send(out, 4, MPI_INT, 0, 2, MPI_COMM_WORLD);
    }
    r[0] = begin_receive(1, 1);
    r[1] = begin_receive(1, 2);
    return MPI_Waitall(2, r, MPI_STATUSES_IGNORE) || in[0] != 17;
}

static int mrecv_null(int rank)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    (void)rank;
    return MPI_Mrecv(in, 4, MPI_INT, &message, MPI_STATUS_IGNORE);
}

static int mrecv_twice(int rank)
{
    MPI_Message message, old;
    if (rank)
        return MPI_Send(out, 4, MPI_INT, 0, 1, MPI_COMM_WORLD);
    MPI_Mprobe(1, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    old = message;
    MPI_Mrecv(in, 4, MPI_INT, &message, MPI_STATUS_IGNORE);
    return MPI_Mrecv(in, 4, MPI_INT, &old, MPI_STATUS_IGNORE);
}

static int complete_wrong(int rank)
{
    MPI_Request r = begin_receive(!rank, 1);
    return MPI_Grequest_complete(r);
}

/* MPI permits it: the communicator ends when the receive does. */
static int comm_freed_in_use(int rank)
{
    MPI_Comm copy = copy_of_world();
    MPI_Request r;
    out[0] = 17;
    MPI_Irecv(in, 4, MPI_INT, !rank, 1, copy, &r);
    MPI_Send(out, 4, MPI_INT, !rank, 1, copy);
    MPI_Comm_free(&copy);
    return MPI_Wait(&r, MPI_STATUS_IGNORE) || in[0] != 17;
}

#define LIFE "request lifecycle"
const struct mistake mistakes_request[] = {
    {"receive_without_wait", 2, TOLD, LIFE, "MPI_Irecv from rank 1 with tag 1",
     receive_without_wait, 0},
    {"receive_left_open", 2, TOLD, LIFE, "MPI_Irecv", receive_left_open, 0},
    {"send_without_wait", 2, TOLD, LIFE, "MPI_Isend", send_without_wait, 0},
    {"collective_without_wait", 2, TOLD, LIFE, "MPI_Iallreduce", collective_without_wait, 0},
    {"freed_while_open", 2, TOLD, LIFE, "MPI_Irecv from rank 1 with tag 1", freed_while_open, 0},
    {"collective_freed", 2, FINE, LIFE, "", collective_freed, 0},
    {"wait_after_free", 2, ONE, LIFE, "MPI_Wait", wait_after_free, 0},
    {"waited_twice", 2, ONE, LIFE, "MPI_Wait", waited_twice, 0},
    {"waited_again", 2, FINE, LIFE, "", waited_again, 0},
    {"started_twice", 2, ONE, LIFE, "MPI_Start", started_twice, 0},
    {"start_not_persistent", 2, ONE, LIFE, "MPI_Start", start_not_persistent, 0},
    {"start_null", 2, ONE, LIFE, "MPI_Startall", start_null, 0},
    {"start_after_free", 2, ONE, LIFE, "MPI_Start", start_after_free, 0},
    {"persistent_left", 2, TOLD, LIFE, "MPI_Recv_init", persistent_left, 0},
    {"wait_not_started", 2, FINE, LIFE, "", wait_not_started, 0},
    {"free_null", 1, ONE, LIFE, "MPI_Request_free", free_null, 0},
    {"cancel_null", 1, ONE, LIFE, "MPI_Cancel", cancel_null, 0},
    {"wait_for_garbage", 1, ONE, LIFE, "MPI_Waitall", wait_for_garbage, 0},
    {"waitall_negative", 1, ONE, LIFE, "MPI_Waitall", waitall_negative, 0},
    {"test_without_flag", 1, ONE, LIFE, "MPI_Test", test_without_flag, 0},
    {"receives_share_buffer", 2, FINE, "local concurrency", "", receives_share_buffer, 0},
    {"mrecv_null", 1, ONE, LIFE, "MPI_Mrecv", mrecv_null, 0},
    {"mrecv_twice", 2, ONE, LIFE, "MPI_Mrecv", mrecv_twice, 0},
    {"complete_wrong", 2, ONE, LIFE, "MPI_Grequest_complete", complete_wrong, 0},
    {"comm_freed_in_use", 2, FINE, LIFE, "", comm_freed_in_use, 0},
    {0},
};
