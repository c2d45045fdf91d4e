/* SPDX-License-Identifier: Apache-2.0 */
/* mistakes_collective.c - ranks whose collectives differ: in order, kind or arguments. */
#include <pthread.h>
#include <stddef.h>

#include "mistakes.h"

static int in[64], out[64];

static int root_differs(int rank)
{
    return MPI_Bcast(in, 4, MPI_INT, rank == 0 ? 0 : 1, MPI_COMM_WORLD);
}

static int reduce_root_differs(int rank)
{
    return MPI_Reduce(in, out, 4, MPI_INT, MPI_SUM, rank % 2, MPI_COMM_WORLD);
}

static int count_differs(int rank)
{
    return MPI_Bcast(in, rank ? 5 : 4, MPI_INT, 0, MPI_COMM_WORLD);
}

static int reduce_count_differs(int rank)
{
    return MPI_Allreduce(in, out, rank ? 5 : 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int type_differs(int rank)
{
    return MPI_Allreduce(in, out, 4, rank ? MPI_FLOAT : MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* The same bytes, but other numbers. */
static int bcast_type_differs(int rank)
{
    return MPI_Bcast(in, 4, rank ? MPI_FLOAT : MPI_INT, 0, MPI_COMM_WORLD);
}

static int gather_type_differs(int rank)
{
    return MPI_Gather(in, rank == 1 ? 1 : 2, rank == 1 ? MPI_DOUBLE : MPI_INT, out, 2, MPI_INT, 0,
                      MPI_COMM_WORLD);
}

static int allgather_type_differs(int rank)
{
    return MPI_Allgather(in, 2, rank == 1 ? MPI_FLOAT : MPI_INT, out, 2,
                         rank == 1 ? MPI_FLOAT : MPI_INT, MPI_COMM_WORLD);
}

static int alltoall_sides_differ(int rank)
{
    (void)rank;
    return MPI_Alltoall(in, 2, MPI_INT, out, 2, MPI_FLOAT, MPI_COMM_WORLD);
}

static int op_differs(int rank)
{
    return MPI_Reduce(in, out, 4, MPI_INT, rank ? MPI_MAX : MPI_SUM, 0, MPI_COMM_WORLD);
}

static void add(void *a, void *b, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)b)[i] += ((int *)a)[i];
}

static int commute_differs(int rank)
{
    MPI_Op op;
    MPI_Op_create(add, rank != 0, &op);
    return MPI_Allreduce(in, out, 4, MPI_INT, op, MPI_COMM_WORLD);
}

static int order_differs(int rank)
{
    if (rank)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(in, 4, MPI_INT, 0, MPI_COMM_WORLD);
    if (!rank)
        MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

static int kind_differs(int rank)
{
    return rank ? MPI_Reduce(in, out, 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD)
                : MPI_Allreduce(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int scan_kind_differs(int rank)
{
    return rank ? MPI_Exscan(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD)
                : MPI_Scan(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int later_order_differs(int rank)
{
    MPI_Request r[2];
    if (rank)
        MPI_Ibarrier(MPI_COMM_WORLD, &r[1]);
    MPI_Ibcast(in, 4, MPI_INT, 0, MPI_COMM_WORLD, &r[0]);
    if (!rank)
        MPI_Ibarrier(MPI_COMM_WORLD, &r[1]);
    MPI_Wait(&r[rank ? 1 : 0], MPI_STATUS_IGNORE);
    return MPI_Wait(&r[rank ? 0 : 1], MPI_STATUS_IGNORE);
}

/* MPI has them not match. Halay lets them, and the result is right. */
static int later_meets_now(int rank)
{
    MPI_Request request;
    int n = rank == 0 ? 17 : 0;
    if (rank)
        return MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD) || n != 17;
    MPI_Ibcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int one_rank_skips(int rank)
{
    return rank ? MPI_Bcast(in, 4, MPI_INT, 0, MPI_COMM_WORLD) : 0;
}

static int one_rank_leaves_loop(int rank)
{
    for (int i = 0; i < (rank == 1 ? 3 : 4); i++)
        MPI_Allreduce(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return 0;
}

static int copies_crossed(int rank)
{
    MPI_Comm a = copy_of_world(), b = copy_of_world();
    MPI_Barrier(rank ? a : b);
    return MPI_Barrier(rank ? b : a);
}

static int barrier_against_receive(int rank)
{
    if (rank)
        return MPI_Recv(in, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Send(in, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

static int barrier_against_synchronous_send(int rank)
{
    if (!rank)
        MPI_Ssend(in, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    return rank ? MPI_Recv(in, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE) : 0;
}

static int split_on_some_ranks(int rank)
{
    MPI_Comm part;
    if (!rank)
        return MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &part);
}

static int dup_on_some_ranks(int rank)
{
    return rank ? copy_of_world() == MPI_COMM_NULL : MPI_Barrier(MPI_COMM_WORLD);
}

static int gather_count_differs(int rank)
{
    return MPI_Gather(in, rank == 1 ? 3 : 4, MPI_INT, out, 4, MPI_INT, 0, MPI_COMM_WORLD);
}

static int gatherv_counts_differ(int rank)
{
    const int counts[] = {2, 2}, displs[] = {0, 2};
    return MPI_Gatherv(in, rank ? 3 : 2, MPI_INT, out, counts, displs, MPI_INT, 0, MPI_COMM_WORLD);
}

static int scatterv_counts_differ(int rank)
{
    const int counts[] = {2, 3}, displs[] = {0, 2};
    (void)rank;
    return MPI_Scatterv(in, counts, displs, MPI_INT, out, 2, MPI_INT, 0, MPI_COMM_WORLD);
}

static int alltoallv_counts_differ(int rank)
{
    const int sent[] = {1, rank ? 1 : 2}, received[] = {1, 1}, displs[] = {0, 4};
    return MPI_Alltoallv(in, sent, displs, MPI_INT, out, received, displs, MPI_INT, MPI_COMM_WORLD);
}

static int allgatherv_counts_differ(int rank)
{
    const int counts[] = {1, rank ? 1 : 2}, displs[] = {0, 4};
    return MPI_Allgatherv(in, 1, MPI_INT, out, counts, displs, MPI_INT, MPI_COMM_WORLD);
}

static int reduce_scatter_counts_differ(int rank)
{
    const int counts[] = {2, rank ? 2 : 3};
    return MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* The same sum, divided in another way. */
static int reduce_scatter_parts_differ(int rank)
{
    const int counts[] = {rank ? 1 : 2, rank ? 3 : 2};
    return MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int persistent_root_differs(int rank)
{
    MPI_Request request;
    MPI_Bcast_init(in, 4, MPI_INT, rank ? 1 : 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int persistent_not_started(int rank)
{
    MPI_Request request;
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    if (rank)
        return 0;
    MPI_Start(&request);
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void *reduce_two(void *comm)
{
    int a[2] = {1, 2}, b[2];
    MPI_Allreduce(a, b, 2, MPI_INT, MPI_SUM, *(MPI_Comm *)comm);
    return NULL;
}

static void *bcast_one(void *comm)
{
    int a = 1;
    MPI_Bcast(&a, 1, MPI_INT, 0, *(MPI_Comm *)comm);
    return NULL;
}

/* Two threads of a rank make collectives on one communicator: which is first is left to chance, so
 * here it differs from rank to rank. */
static int two_threads(int rank)
{
    pthread_t thread;
    MPI_Comm comm = MPI_COMM_WORLD;
    void *(*const calls[])(void *) = {reduce_two, bcast_one};
    pthread_create(&thread, NULL, calls[rank % 2], &comm);
    pthread_join(thread, NULL);
    calls[!(rank % 2)](&comm);
    return 0;
}

static int groups_overlap(int rank)
{
    MPI_Group world, group;
    MPI_Comm made;
    const int ranks[] = {0, 1, 2};
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, rank ? 3 : 2, ranks, &group);
    return MPI_Comm_create(MPI_COMM_WORLD, group, &made);
}

static int inter_without_root(int rank)
{
    MPI_Comm inter = even_and_odd(rank);
    return MPI_Bcast(in, 1, MPI_INT, 0, inter);
}

static int inter_scan(int rank)
{
    MPI_Comm inter = even_and_odd(rank);
    return MPI_Scan(in, out, 1, MPI_INT, MPI_SUM, inter);
}

static int merge_sides_differ(int rank)
{
    MPI_Comm inter = even_and_odd(rank), merged;
    return MPI_Intercomm_merge(inter, rank == 2, &merged);
}

static int inter_groups_overlap(int rank)
{
    MPI_Comm inter;
    (void)rank;
    return MPI_Intercomm_create(MPI_COMM_WORLD, 0, MPI_COMM_WORLD, 0, 7, &inter);
}

static int inter_tag_differs(int rank)
{
    MPI_Comm half, inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &half);
    return MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, !rank, 7 + rank, &inter);
}

static int dims_differ(int rank)
{
    const int dims[] = {rank ? 1 : 2}, periods[] = {0};
    MPI_Comm cart;
    return MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
}

#define ORDER "call ordering"
#define MATCH "parameter matching"
const struct mistake mistakes_collective[] = {
    {"root_differs", 2, ALL, MATCH, "root", root_differs, 0},
    {"reduce_root_differs", 3, ALL, MATCH, "root", reduce_root_differs, 0},
    {"count_differs", 2, ALL, MATCH, "MPI_Bcast", count_differs, 0},
    {"reduce_count_differs", 2, ALL, MATCH, "MPI_Allreduce", reduce_count_differs, 0},
    {"type_differs", 2, ALL, MATCH, "MPI_Allreduce", type_differs, 0},
    {"bcast_type_differs", 2, ALL, MATCH, "MPI_Bcast", bcast_type_differs, 0},
    {"gather_type_differs", 3, ALL, MATCH, "MPI_Gather", gather_type_differs, 0},
    {"allgather_type_differs", 2, ALL, MATCH, "MPI_Allgather", allgather_type_differs, 0},
    {"alltoall_sides_differ", 2, ALL, MATCH, "MPI_Alltoall", alltoall_sides_differ, 0},
    {"op_differs", 2, ALL, MATCH, "MPI_Reduce", op_differs, 0},
    {"commute_differs", 2, ALL, MATCH, "MPI_Allreduce", commute_differs, 0},
    {"order_differs", 2, ALL, ORDER, "called barrier", order_differs, 0},
    {"kind_differs", 2, ALL, ORDER, "allreduce", kind_differs, 0},
    {"scan_kind_differs", 2, ALL, ORDER, "called exscan", scan_kind_differs, 0},
    {"later_order_differs", 2, ALL, ORDER, "barrier", later_order_differs, 0},
    {"later_meets_now", 2, FINE, ORDER, "", later_meets_now, 0},
    {"one_rank_skips", 2, ALL, ORDER, "MPI_Finalize", one_rank_skips, 0},
    {"one_rank_leaves_loop", 3, ALL, ORDER, "MPI_Finalize", one_rank_leaves_loop, 0},
    {"copies_crossed", 2, WAIT, ORDER, "barrier", copies_crossed, 0},
    {"barrier_against_receive", 2, WAIT, ORDER, "barrier", barrier_against_receive, 0},
    {"barrier_against_synchronous_send", 2, WAIT, ORDER, "barrier",
     barrier_against_synchronous_send, 0},
    {"split_on_some_ranks", 2, ALL, ORDER, "MPI_Comm_split", split_on_some_ranks, 0},
    {"dup_on_some_ranks", 2, WAIT, ORDER, "MPI_Finalize", dup_on_some_ranks, 0},
    {"gather_count_differs", 2, ALL, MATCH, "MPI_Gather", gather_count_differs, 0},
    {"gatherv_counts_differ", 2, ALL, MATCH, "MPI_Gatherv: the counts", gatherv_counts_differ, 0},
    {"scatterv_counts_differ", 2, ALL, MATCH, "MPI_Scatterv", scatterv_counts_differ, 0},
    {"alltoallv_counts_differ", 2, ALL, MATCH, "MPI_Alltoallv", alltoallv_counts_differ, 0},
    {"allgatherv_counts_differ", 2, ALL, MATCH, "MPI_Allgatherv", allgatherv_counts_differ, 0},
    {"reduce_scatter_counts_differ", 2, ALL, MATCH, "MPI_Reduce_scatter",
     reduce_scatter_counts_differ, 0},
    {"reduce_scatter_parts_differ", 2, ALL, MATCH, "MPI_Reduce_scatter",
     reduce_scatter_parts_differ, 0},
    {"persistent_root_differs", 2, ALL, MATCH, "root", persistent_root_differs, 0},
    {"persistent_not_started", 2, WAIT, ORDER, "barrier", persistent_not_started, 0},
    {"two_threads", 2, ALL, "global concurrency", "MPI_Bcast", two_threads, 0},
    {"groups_overlap", 3, ALL, MATCH, "MPI_Comm_create", groups_overlap, 0},
    {"inter_without_root", 2, ALL, MATCH, "MPI_Bcast", inter_without_root, 0},
    {"inter_scan", 2, ONE, MATCH, "MPI_Scan: an intercommunicator", inter_scan, 0},
    {"merge_sides_differ", 3, ALL, MATCH, "MPI_Intercomm_merge", merge_sides_differ, 0},
    {"inter_groups_overlap", 2, ALL, MATCH, "MPI_Intercomm_create", inter_groups_overlap, 0},
    {"inter_tag_differs", 2, WAIT, MATCH, "MPI_Intercomm_create", inter_tag_differs, 0},
    {"dims_differ", 2, ALL, MATCH, "MPI_Cart_create", dims_differ, 0},
    {0},
};
