/* SPDX-License-Identifier: Apache-2.0 */
/* mistakes_message.c - messages that nobody sends, nobody takes, or that do not fit. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "mistakes.h"

static int in[64], out[64];
#define LONG (1 << 20)
static char *longs(void)
{
    return calloc(1, LONG);
}

static int receive(int from, int tag)
{
    return MPI_Recv(in, 4, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int send(int to, int tag)
{
    return MPI_Send(out, 4, MPI_INT, to, tag, MPI_COMM_WORLD);
}

/* ---------------------------------------------------------------- ranks that wait for each other
 */

static int both_receive(int rank)
{
    receive(!rank, 1);
    return send(!rank, 1);
}

static int both_send_synchronously(int rank)
{
    MPI_Ssend(out, 4, MPI_INT, !rank, 1, MPI_COMM_WORLD);
    return receive(!rank, 1);
}

static int both_send_long(int rank)
{
    char *buffer = longs();
    MPI_Send(buffer, LONG, MPI_CHAR, !rank, 1, MPI_COMM_WORLD);
    return MPI_Recv(buffer, LONG, MPI_CHAR, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* MPI permits a library to wait here; short messages are kept. */
static int both_send_short(int rank)
{
    out[0] = rank;
    send(!rank, 1);
    receive(!rank, 1);
    return in[0] != !rank;
}

static int ring_receives(int rank)
{
    receive((rank + 2) % 3, 1);
    return send((rank + 1) % 3, 1);
}

static int ring_sends_long(int rank)
{
    char *buffer = longs();
    MPI_Send(buffer, LONG, MPI_CHAR, (rank + 1) % 3, 1, MPI_COMM_WORLD);
    return MPI_Recv(buffer, LONG, MPI_CHAR, (rank + 2) % 3, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int any_source_on_both(int rank)
{
    receive(MPI_ANY_SOURCE, MPI_ANY_TAG);
    return send(!rank, 1);
}

/* The receive from any rank takes rank 1's only message. */
static int any_source_takes_it(int rank)
{
    if (rank == 1)
        send(0, 1);
    if (rank == 0)
        receive(MPI_ANY_SOURCE, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2)
        send(0, 1);
    return rank ? 0 : receive(1, 1);
}

static int from_itself(int rank)
{
    receive(rank, 1);
    return send(rank, 1);
}

static int to_itself(int rank)
{
    MPI_Ssend(out, 4, MPI_INT, rank, 1, MPI_COMM_WORLD);
    return receive(rank, 1);
}

static int sendrecv_wrong_way(int rank)
{
    const int next = (rank + 1) % 3;
    return MPI_Sendrecv(out, 4, MPI_INT, next, 1, in, 4, MPI_INT, next, 1, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE);
}

static int waits_crossed(int rank)
{
    MPI_Request r;
    MPI_Irecv(in, 4, MPI_INT, !rank, 1, MPI_COMM_WORLD, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    return send(!rank, 1);
}

/* ---------------------------------------------------------------- nobody comes */

static int tag_differs(int rank)
{
    return rank ? receive(0, 2) : send(1, 1);
}

static int comm_differs(int rank)
{
    MPI_Comm copy = copy_of_world();
    if (!rank)
        return send(1, 1);
    return MPI_Recv(in, 4, MPI_INT, 0, 1, copy, MPI_STATUS_IGNORE);
}

static int source_differs(int rank)
{
    return rank == 0 ? receive(2, 1) : rank == 1 ? send(0, 1) : 0;
}

static int receive_too_many(int rank)
{
    if (rank)
        return send(0, 1);
    receive(1, 1);
    return receive(1, 1);
}

static int send_missing(int rank)
{
    return rank ? 0 : receive(1, 1);
}

static int receive_missing(int rank)
{
    return rank ? 0 : MPI_Ssend(out, 4, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

static int long_receive_missing(int rank)
{
    return rank ? 0 : MPI_Send(longs(), LONG, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
}

static int short_receive_missing(int rank)
{
    return rank ? 0 : send(1, 5);
}

static int probe_without_sender(int rank)
{
    return rank ? 0 : MPI_Probe(1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int mprobe_without_sender(int rank)
{
    MPI_Message message;
    return rank ? 0 : MPI_Mprobe(1, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
}

static int taken_not_received(int rank)
{
    MPI_Message message;
    return rank ? send(0, 1) : MPI_Mprobe(1, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
}

/* ---------------------------------------------------------------- it does not fit */

static int truncated(int rank)
{
    if (!rank)
        return MPI_Send(out, 8, MPI_INT, 1, 1, MPI_COMM_WORLD);
    return receive(0, 1);
}

static int truncated_later(int rank)
{
    MPI_Request r;
    if (!rank)
        return MPI_Send(longs(), LONG, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    MPI_Irecv(in, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, &r);
    return MPI_Wait(&r, MPI_STATUS_IGNORE);
}

static int type_differs(int rank)
{
    if (!rank)
        return send(1, 1);
    return MPI_Recv(in, 4, MPI_FLOAT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int width_differs(int rank)
{
    if (!rank)
        return send(1, 1);
    return MPI_Recv(in, 2, MPI_LONG_LONG, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Halay has one type for a message, and none for these: structs of the same size, with an int and a
 * float in another order. */
static int struct_differs(int rank)
{
    const int lengths[] = {1, 1};
    const MPI_Aint displs[] = {0, 4};
    const MPI_Datatype types[2][2] = {{MPI_INT, MPI_FLOAT}, {MPI_FLOAT, MPI_INT}};
    MPI_Datatype made;
    MPI_Type_create_struct(2, lengths, displs, types[rank], &made);
    MPI_Type_commit(&made);
    if (!rank)
        return MPI_Send(out, 1, made, 1, 1, MPI_COMM_WORLD);
    return MPI_Recv(in, 1, made, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* MPI permits it: the status says how many there are. */
static int shorter_than_room(int rank)
{
    MPI_Status status;
    int n = 0;
    if (!rank)
        return MPI_Send(out, 3, MPI_INT, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(in, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &n);
    return n != 3;
}

/* A receive type that has bytes twice. */
static int receive_overlaps(int rank)
{
    MPI_Datatype made;
    MPI_Type_vector(2, 2, 1, MPI_INT, &made);
    MPI_Type_commit(&made);
    if (!rank)
        return send(1, 1);
    return MPI_Recv(in, 1, made, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* ---------------------------------------------------------------- arguments */

static int dest_outside(int rank)
{
    return rank ? receive(0, 1) : send(2, 1);
}

static int dest_negative(int rank)
{
    return rank ? receive(0, 1) : send(-9, 1);
}

static int dest_any(int rank)
{
    return rank ? receive(0, 1) : send(MPI_ANY_SOURCE, 1);
}

static int source_outside(int rank)
{
    return rank ? 0 : receive(2, 1);
}

static int tag_negative(int rank)
{
    return rank ? receive(0, 1) : send(1, -4);
}

static int tag_any_in_send(int rank)
{
    return rank ? receive(0, 1) : send(1, MPI_ANY_TAG);
}

static int tag_negative_in_receive(int rank)
{
    return rank ? 0 : receive(1, -4);
}

static int count_negative(int rank)
{
    return rank ? receive(0, 1) : MPI_Send(out, -1, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

static int count_too_large(int rank)
{
    return rank ? receive(0, 1)
                : MPI_Send_c(out, (MPI_Count)1 << 62, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

/* 2^32 + 1 elements: an int would have 1. */
static int count_over_int(int rank)
{
    MPI_Request r = MPI_REQUEST_NULL;
    if (!rank)
        return MPI_Recv_c(in, ((MPI_Count)1 << 32) + 1, MPI_INT, 1, 1, MPI_COMM_SELF,
                          MPI_STATUS_IGNORE);
    return MPI_Wait(&r, MPI_STATUS_IGNORE);
}

static int type_null(int rank)
{
    return rank ? receive(0, 1) : MPI_Send(out, 1, MPI_DATATYPE_NULL, 1, 1, MPI_COMM_WORLD);
}

static int type_uncommitted(int rank)
{
    MPI_Datatype two;
    MPI_Type_contiguous(2, MPI_INT, &two);
    return rank ? receive(0, 1) : MPI_Send(out, 1, two, 1, 1, MPI_COMM_WORLD);
}

static int buffer_null(int rank)
{
    return rank ? receive(0, 1) : MPI_Send(NULL, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

static int in_place(int rank)
{
    return rank ? receive(0, 1) : MPI_Send(MPI_IN_PLACE, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

static int exchange_aliased(int rank)
{
    return MPI_Sendrecv(out, 4, MPI_INT, !rank, 1, out, 4, MPI_INT, !rank, 1, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE);
}

static int no_buffer(int rank)
{
    return rank ? receive(0, 1) : MPI_Bsend(out, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

static int buffer_too_small(int rank)
{
    static char room[100];
    MPI_Buffer_attach(room, sizeof room);
    return rank ? receive(0, 1) : MPI_Bsend(out, 40, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

static int attached_twice(int rank)
{
    static char room[2][100];
    (void)rank;
    MPI_Buffer_attach(room[0], 100);
    return MPI_Buffer_attach(room[1], 100);
}

static int detached_none(int rank)
{
    void *at;
    (void)rank;
    return MPI_Buffer_detach(&at, &in[0]);
}

/* MPI leaves it open what happens; Halay sends it as any other. */
static int ready_too_early(int rank)
{
    if (!rank) {
        out[0] = 17;
        MPI_Rsend(out, 4, MPI_INT, 1, 1, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return rank ? receive(0, 1) || in[0] != 17 : 0;
}

#define ORDER "call ordering"
#define MATCH "parameter matching"
#define BAD   "invalid parameter"
const struct mistake mistakes_message[] = {
    {"both_receive", 2, WAIT, ORDER, "MPI_Recv", both_receive, 0},
    {"both_send_synchronously", 2, WAIT, ORDER, "MPI_Ssend", both_send_synchronously, 0},
    {"both_send_long", 2, WAIT, ORDER, "MPI_Send", both_send_long, 0},
    {"both_send_short", 2, FINE, ORDER, "", both_send_short, 0},
    {"ring_receives", 3, WAIT, ORDER, "MPI_Recv", ring_receives, 0},
    {"ring_sends_long", 3, WAIT, ORDER, "MPI_Send", ring_sends_long, 0},
    {"any_source_on_both", 2, WAIT, ORDER, "MPI_Recv", any_source_on_both, 0},
    {"any_source_takes_it", 3, WAIT, "message race", "MPI_Recv", any_source_takes_it, 0},
    {"from_itself", 1, WAIT, ORDER, "MPI_Recv", from_itself, 0},
    {"to_itself", 1, WAIT, ORDER, "MPI_Ssend", to_itself, 0},
    {"sendrecv_wrong_way", 3, WAIT, ORDER, "MPI_Sendrecv", sendrecv_wrong_way, 0},
    {"waits_crossed", 2, WAIT, ORDER, "MPI_Irecv", waits_crossed, 0},
    {"tag_differs", 2, WAIT, MATCH, "tag 2", tag_differs, 0},
    {"comm_differs", 2, WAIT, MATCH, "tag 1", comm_differs, 0},
    {"source_differs", 3, WAIT, MATCH, "rank 2", source_differs, 0},
    {"receive_too_many", 2, WAIT, ORDER, "MPI_Recv", receive_too_many, 0},
    {"send_missing", 2, WAIT, ORDER, "MPI_Recv", send_missing, 0},
    {"receive_missing", 2, WAIT, ORDER, "MPI_Ssend", receive_missing, 0},
    {"long_receive_missing", 2, WAIT, ORDER, "MPI_Send", long_receive_missing, 0},
    {"short_receive_missing", 2, TOLD, ORDER, "tag 5", short_receive_missing, 0},
    {"probe_without_sender", 2, WAIT, ORDER, "MPI_Probe", probe_without_sender, 0},
    {"mprobe_without_sender", 2, WAIT, ORDER, "MPI_Mprobe", mprobe_without_sender, 0},
    {"taken_not_received", 2, TOLD, ORDER, "MPI_Mprobe", taken_not_received, 0},
    {"truncated", 2, ONE, MATCH, "MPI_Recv: the message from rank 0", truncated, 0},
    {"truncated_later", 2, ONE, MATCH, "MPI_Irecv: the message from rank 0", truncated_later, 0},
    {"message_type_differs", 2, ONE, MATCH, "MPI_Recv", type_differs, 0},
    {"message_width_differs", 2, ONE, MATCH, "MPI_Recv", width_differs, 0},
    {"message_struct_differs", 2, OPEN, MATCH, "", struct_differs, 0},
    {"shorter_than_room", 2, FINE, MATCH, "", shorter_than_room, 0},
    {"receive_overlaps", 2, ONE, BAD, "MPI_Recv", receive_overlaps, 0},
    {"dest_outside", 2, ONE, BAD, "MPI_Send: rank 2", dest_outside, 0},
    {"dest_negative", 2, ONE, BAD, "MPI_Send: rank -9", dest_negative, 0},
    {"dest_any", 2, ONE, BAD, "MPI_ANY_SOURCE", dest_any, 0},
    {"source_outside", 2, ONE, BAD, "MPI_Recv: rank 2", source_outside, 0},
    {"tag_negative", 2, ONE, BAD, "MPI_Send: tag -4", tag_negative, 0},
    {"tag_any_in_send", 2, ONE, BAD, "MPI_ANY_TAG", tag_any_in_send, 0},
    {"tag_negative_in_receive", 2, ONE, BAD, "MPI_Recv: tag -4", tag_negative_in_receive, 0},
    {"message_count_negative", 2, ONE, BAD, "MPI_Send: count is -1", count_negative, 0},
    {"count_too_large", 2, ONE, BAD, "MPI_Send: count is 4611686018427387904", count_too_large, 0},
    {"count_over_int", 2, ONE, BAD, "MPI_Recv: rank 1", count_over_int, 0},
    {"message_type_null", 2, ONE, BAD, "MPI_DATATYPE_NULL", type_null, 0},
    {"message_type_uncommitted", 2, ONE, BAD, "MPI_Type_commit", type_uncommitted, 0},
    {"message_buffer_null", 2, ONE, BAD, "MPI_Send: the buffer is null", buffer_null, 0},
    {"message_in_place", 2, ONE, BAD, "MPI_Send: MPI_IN_PLACE", in_place, 0},
    {"exchange_aliased", 2, ONE, BAD, "MPI_Sendrecv_replace", exchange_aliased, 0},
    {"no_buffer", 2, ONE, BAD, "MPI_Buffer_attach", no_buffer, 0},
    {"buffer_too_small", 2, ONE, BAD, "MPI_Bsend: the message needs", buffer_too_small, 0},
    {"attached_twice", 1, ONE, BAD, "MPI_Buffer_attach", attached_twice, 0},
    {"detached_none", 1, ONE, BAD, "MPI_Buffer_detach", detached_none, 0},
    {"ready_too_early", 2, FINE, ORDER, "", ready_too_early, 0},
    {0},
};
