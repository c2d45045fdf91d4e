/* SPDX-License-Identifier: Apache-2.0 */
/*
 * neighbour.c - neighbourhood collectives: alltoallvs in which all but the neighbours get nothing.
 * A rank may be a neighbour several times. Blocks between two ranks go in the order of the sender's
 * list; on a grid what is sent downwards in a dimension arrives from above.
 */
#include <stdlib.h>

#include "collective.h"

struct neighbour {
    int rank, order, block;
};

/* ---------------------------------------------------------------- who the neighbours are */

static int by_rank(const void *a, const void *b)
{
    const struct neighbour *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The neighbours of a rank of a grid: below and above, in each dimension. */
static int grid(struct hly_mpi_comm *comm, bool to, struct neighbour *list)
{
    for (int i = 0; i < comm->topology->n; i++) {
        const int rc = hly_mpi_cart_shift(comm, i, 1, &list[2 * i].rank, &list[2 * i + 1].rank);
        if (rc)
            return rc;
    }
    for (int k = 0; k < 2 * comm->topology->n; k++) {
        list[k].block = k;
        list[k].order = to ? k ^ 1 : k; /* the place of the block at the receiver */
    }
    return MPI_SUCCESS;
}

static int count_neighbours(struct hly_mpi_comm *comm, bool to)
{
    const struct hly_mpi_topology *t = comm->topology;
    if (t->kind == MPI_CART)
        return 2 * t->n;
    if (t->kind == MPI_DIST_GRAPH)
        return to ? t->m : t->n;
    return t->at[comm->rank] - (comm->rank ? t->at[comm->rank - 1] : 0);
}

/* To which this rank sends, or from which it receives, by rank. */
static int list_neighbours(const struct hly_mpi_how *how, struct hly_mpi_comm *comm, bool to,
                           struct neighbour **list, int *n)
{
    const struct hly_mpi_topology *t = comm->topology;
    const int count = count_neighbours(comm, to);
    struct neighbour *all = malloc(((size_t)count + 1) * sizeof(*all));
    if (!all)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d neighbours", how->function,
                            count);
    const int *ranks = t->kind == MPI_DIST_GRAPH ? t->at + (to ? 2 * t->n : 0)
                       : t->kind == MPI_GRAPH
                           ? t->at + t->n + (comm->rank ? t->at[comm->rank - 1] : 0)
                           : NULL;
    for (int i = 0; ranks && i < count; i++)
        all[i] = (struct neighbour){ranks[i], i, i};
    const int rc = ranks ? MPI_SUCCESS : grid(comm, to, all);
    if (rc) {
        free(all);
        return rc;
    }
    qsort(all, (size_t)count, sizeof(*all), by_rank);
    *list = all;
    *n = count;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- one side */

/* The parts of one side, which the caller frees. */
static int make_parts(const struct hly_mpi_how *how, struct hly_mpi_comm *comm,
                      const struct hly_mpi_blocks *blocks, bool to, struct hly_mpi_part **parts,
                      int *n)
{
    struct neighbour *list = NULL;
    int count = 0, used = 0, rc = list_neighbours(how, comm, to, &list, &count);
    if (rc)
        return rc;
    struct hly_mpi_part *made = malloc(((size_t)count + 1) * sizeof(*made));
    if (!made)
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d blocks", how->function, count);
    if (!rc && count && blocks->vector && (!blocks->counts.at || !blocks->displs.at))
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: the counts or displacements are NULL", how->function);
    for (int i = 0; i < count && !rc; i++) {
        if (list[i].rank != MPI_PROC_NULL)
            rc = hly_mpi_block(how, blocks, list[i].block, list[i].rank, &made[used++]);
    }
    free(list);
    if (rc) {
        free(made);
        return rc;
    }
    *parts = made;
    *n = used;
    return MPI_SUCCESS;
}

static int exchange(const struct hly_mpi_how *how, const struct hly_mpi_blocks *sent,
                    const struct hly_mpi_blocks *received, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm};
    struct hly_mpi_part *in = NULL, *out = NULL;
    int nin = 0, nout = 0, rc = hly_mpi_check_collective(how, comm);
    if (rc)
        return rc;
    if (!comm->topology)
        rc = hly_mpi_fail(MPI_ERR_TOPOLOGY,
                          "%s: the communicator has no topology, so no rank has neighbours",
                          how->function);
    if (!rc && (sent->buffer == MPI_IN_PLACE || received->buffer == MPI_IN_PLACE))
        rc = hly_mpi_check_side(how, MPI_IN_PLACE, 0, NULL);
    if (!rc)
        rc = make_parts(how, comm, sent, true, &in, &nin);
    if (!rc)
        rc = make_parts(how, comm, received, false, &out, &nout);
    rc =
        rc ? hly_mpi_collect_refuse(&call, rc) : hly_mpi_exchange(&call, in, nin, out, nout, false);
    free(in);
    free(out);
    return rc;
}

/* ---------------------------------------------------------------- the collectives */

static int neighbor_allgather(const struct hly_mpi_how *how, const void *sendbuf, int64_t sendcount,
                              struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                              struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {
        .buffer = sendbuf, .count = sendcount, .type = sendtype, .same = true};
    const struct hly_mpi_blocks received = {
        .buffer = recvbuf, .count = recvcount, .type = recvtype};
    return exchange(how, &sent, &received, comm);
}

static int neighbor_allgatherv(const struct hly_mpi_how *how, const void *sendbuf,
                               int64_t sendcount, struct hly_mpi_type *sendtype, void *recvbuf,
                               struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                               struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {
        .buffer = sendbuf, .count = sendcount, .type = sendtype, .same = true};
    const struct hly_mpi_blocks received = {.buffer = recvbuf,
                                            .counts = recvcounts,
                                            .displs = displs,
                                            .vector = true,
                                            .type = recvtype};
    return exchange(how, &sent, &received, comm);
}

static int neighbor_alltoall(const struct hly_mpi_how *how, const void *sendbuf, int64_t sendcount,
                             struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                             struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {.buffer = sendbuf, .count = sendcount, .type = sendtype};
    const struct hly_mpi_blocks received = {
        .buffer = recvbuf, .count = recvcount, .type = recvtype};
    return exchange(how, &sent, &received, comm);
}

static int neighbor_alltoallv(const struct hly_mpi_how *how, const void *sendbuf,
                              struct hly_mpi_ints sendcounts, struct hly_mpi_ints sdispls,
                              struct hly_mpi_type *sendtype, void *recvbuf,
                              struct hly_mpi_ints recvcounts, struct hly_mpi_ints rdispls,
                              struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {.buffer = sendbuf,
                                        .counts = sendcounts,
                                        .displs = sdispls,
                                        .vector = true,
                                        .type = sendtype};
    const struct hly_mpi_blocks received = {.buffer = recvbuf,
                                            .counts = recvcounts,
                                            .displs = rdispls,
                                            .vector = true,
                                            .type = recvtype};
    return exchange(how, &sent, &received, comm);
}

static int neighbor_alltoallw(const struct hly_mpi_how *how, const void *sendbuf,
                              struct hly_mpi_ints sendcounts, struct hly_mpi_ints sdispls,
                              struct hly_mpi_type *const sendtypes[], void *recvbuf,
                              struct hly_mpi_ints recvcounts, struct hly_mpi_ints rdispls,
                              struct hly_mpi_type *const recvtypes[], struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {.buffer = sendbuf,
                                        .counts = sendcounts,
                                        .displs = sdispls,
                                        .vector = true,
                                        .types = sendtypes};
    const struct hly_mpi_blocks received = {.buffer = recvbuf,
                                            .counts = recvcounts,
                                            .displs = rdispls,
                                            .vector = true,
                                            .types = recvtypes};
    return exchange(how, &sent, &received, comm);
}

/* ---------------------------------------------------------------- the forms of each */

int hly_mpi_neighbor_allgather(const void *sendbuf, int64_t sendcount,
                               struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                               struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    return neighbor_allgather(HLY_MPI_HOW_NOW("MPI_Neighbor_allgather"), sendbuf, sendcount,
                              sendtype, recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_ineighbor_allgather(const void *sendbuf, int64_t sendcount,
                                struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                                struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm,
                                struct hly_mpi_request **request)
{
    return neighbor_allgather(HLY_MPI_HOW_LATER("MPI_Ineighbor_allgather", request), sendbuf,
                              sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_neighbor_allgather_init(const void *sendbuf, int64_t sendcount,
                                    struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                                    struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm,
                                    struct hly_mpi_info *info, struct hly_mpi_request **request)
{
    (void)info;
    return neighbor_allgather(HLY_MPI_HOW_AGAIN("MPI_Neighbor_allgather_init", request), sendbuf,
                              sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_neighbor_allgatherv(const void *sendbuf, int64_t sendcount,
                                struct hly_mpi_type *sendtype, void *recvbuf,
                                struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                                struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    return neighbor_allgatherv(HLY_MPI_HOW_NOW("MPI_Neighbor_allgatherv"), sendbuf, sendcount,
                               sendtype, recvbuf, recvcounts, displs, recvtype, comm);
}

int hly_mpi_ineighbor_allgatherv(const void *sendbuf, int64_t sendcount,
                                 struct hly_mpi_type *sendtype, void *recvbuf,
                                 struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                                 struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm,
                                 struct hly_mpi_request **request)
{
    return neighbor_allgatherv(HLY_MPI_HOW_LATER("MPI_Ineighbor_allgatherv", request), sendbuf,
                               sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm);
}

int hly_mpi_neighbor_allgatherv_init(const void *sendbuf, int64_t sendcount,
                                     struct hly_mpi_type *sendtype, void *recvbuf,
                                     struct hly_mpi_ints recvcounts, struct hly_mpi_ints displs,
                                     struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm,
                                     struct hly_mpi_info *info, struct hly_mpi_request **request)
{
    (void)info;
    return neighbor_allgatherv(HLY_MPI_HOW_AGAIN("MPI_Neighbor_allgatherv_init", request), sendbuf,
                               sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm);
}

int hly_mpi_neighbor_alltoall(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                              void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype,
                              struct hly_mpi_comm *comm)
{
    return neighbor_alltoall(HLY_MPI_HOW_NOW("MPI_Neighbor_alltoall"), sendbuf, sendcount, sendtype,
                             recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_ineighbor_alltoall(const void *sendbuf, int64_t sendcount,
                               struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                               struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm,
                               struct hly_mpi_request **request)
{
    return neighbor_alltoall(HLY_MPI_HOW_LATER("MPI_Ineighbor_alltoall", request), sendbuf,
                             sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_neighbor_alltoall_init(const void *sendbuf, int64_t sendcount,
                                   struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                                   struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm,
                                   struct hly_mpi_info *info, struct hly_mpi_request **request)
{
    (void)info;
    return neighbor_alltoall(HLY_MPI_HOW_AGAIN("MPI_Neighbor_alltoall_init", request), sendbuf,
                             sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_neighbor_alltoallv(const void *sendbuf, struct hly_mpi_ints sendcounts,
                               struct hly_mpi_ints sdispls, struct hly_mpi_type *sendtype,
                               void *recvbuf, struct hly_mpi_ints recvcounts,
                               struct hly_mpi_ints rdispls, struct hly_mpi_type *recvtype,
                               struct hly_mpi_comm *comm)
{
    return neighbor_alltoallv(HLY_MPI_HOW_NOW("MPI_Neighbor_alltoallv"), sendbuf, sendcounts,
                              sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
}

int hly_mpi_ineighbor_alltoallv(const void *sendbuf, struct hly_mpi_ints sendcounts,
                                struct hly_mpi_ints sdispls, struct hly_mpi_type *sendtype,
                                void *recvbuf, struct hly_mpi_ints recvcounts,
                                struct hly_mpi_ints rdispls, struct hly_mpi_type *recvtype,
                                struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return neighbor_alltoallv(HLY_MPI_HOW_LATER("MPI_Ineighbor_alltoallv", request), sendbuf,
                              sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,
                              comm);
}

int hly_mpi_neighbor_alltoallv_init(const void *sendbuf, struct hly_mpi_ints sendcounts,
                                    struct hly_mpi_ints sdispls, struct hly_mpi_type *sendtype,
                                    void *recvbuf, struct hly_mpi_ints recvcounts,
                                    struct hly_mpi_ints rdispls, struct hly_mpi_type *recvtype,
                                    struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                                    struct hly_mpi_request **request)
{
    (void)info;
    return neighbor_alltoallv(HLY_MPI_HOW_AGAIN("MPI_Neighbor_alltoallv_init", request), sendbuf,
                              sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,
                              comm);
}

int hly_mpi_neighbor_alltoallw(const void *sendbuf, struct hly_mpi_ints sendcounts,
                               struct hly_mpi_ints sdispls, struct hly_mpi_type *const sendtypes[],
                               void *recvbuf, struct hly_mpi_ints recvcounts,
                               struct hly_mpi_ints rdispls, struct hly_mpi_type *const recvtypes[],
                               struct hly_mpi_comm *comm)
{
    return neighbor_alltoallw(HLY_MPI_HOW_NOW("MPI_Neighbor_alltoallw"), sendbuf, sendcounts,
                              sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm);
}

int hly_mpi_ineighbor_alltoallw(const void *sendbuf, struct hly_mpi_ints sendcounts,
                                struct hly_mpi_ints sdispls, struct hly_mpi_type *const sendtypes[],
                                void *recvbuf, struct hly_mpi_ints recvcounts,
                                struct hly_mpi_ints rdispls, struct hly_mpi_type *const recvtypes[],
                                struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return neighbor_alltoallw(HLY_MPI_HOW_LATER("MPI_Ineighbor_alltoallw", request), sendbuf,
                              sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls,
                              recvtypes, comm);
}

int hly_mpi_neighbor_alltoallw_init(const void *sendbuf, struct hly_mpi_ints sendcounts,
                                    struct hly_mpi_ints sdispls,
                                    struct hly_mpi_type *const sendtypes[], void *recvbuf,
                                    struct hly_mpi_ints recvcounts, struct hly_mpi_ints rdispls,
                                    struct hly_mpi_type *const recvtypes[],
                                    struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                                    struct hly_mpi_request **request)
{
    (void)info;
    return neighbor_alltoallw(HLY_MPI_HOW_AGAIN("MPI_Neighbor_alltoallw_init", request), sendbuf,
                              sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls,
                              recvtypes, comm);
}
