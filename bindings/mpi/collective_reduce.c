/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_reduce.c - the collectives that reduce. Here ranks' types are compared, as MPI wants
 * the same operation, and the same type, on all. Data with gaps are packed: an operation takes one
 * packed element after the other.
 */
#include "collective.h"

#include <stdlib.h>

/* The buffers, which hold `all` elements; `own`: how many the result has; 0: no result here. */
static int both_sides(struct hly_mpi_collect *call, const void *sendbuf, void *recvbuf, int64_t all,
                      int64_t own, struct hly_mpi_type *type)
{
    const struct hly_mpi_how *how = call->how;
    const bool in_place = sendbuf == MPI_IN_PLACE;
    int rc = in_place ? MPI_SUCCESS : hly_mpi_check_side(how, sendbuf, all, type);
    if (!rc && (own || in_place))
        rc = hly_mpi_check_side(how, recvbuf, in_place ? all : own, type);
    if (!rc && !in_place && own && sendbuf == recvbuf && sendbuf && type->size)
        rc = hly_mpi_fail(MPI_ERR_BUFFER,
                          "%s: sendbuf is recvbuf: pass MPI_IN_PLACE as sendbuf instead",
                          how->function);
    if (rc)
        return rc;
    if (!in_place) {
        call->in = hly_mpi_collect_bytes(call, HLY_MPI_PACK, sendbuf, all, type);
        call->out = hly_mpi_collect_bytes(call, HLY_MPI_UNPACK, recvbuf, own, type);
        return call->in && call->out ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    }
    if (call->what != HLY_MPI_REDUCE_SCATTER && call->what != HLY_MPI_REDUCE_SCATTERV) {
        call->in = HALAY_IN_PLACE;
        call->out = hly_mpi_collect_bytes(call, HLY_MPI_PACK, recvbuf, all, type);
        if (!call->out)
            return MPI_ERR_NO_MEM;
        return type->dense || !own
                   ? MPI_SUCCESS
                   : hly_mpi_collect_copy(call, HLY_MPI_UNPACK, recvbuf, own, type, call->out);
    }
    /* From a copy: Halay may write to all of a buffer in place, MPI only to its own part. */
    void *copy = hly_mpi_collect_room(call, (size_t)(all * type->size));
    if (!copy)
        return MPI_ERR_NO_MEM;
    call->in = copy;
    call->out = hly_mpi_collect_bytes(call, HLY_MPI_UNPACK, recvbuf, own, type);
    return call->out ? hly_mpi_collect_copy(call, HLY_MPI_PACK, recvbuf, all, type, copy)
                     : MPI_ERR_NO_MEM;
}

static int check_type(const struct hly_mpi_how *how, struct hly_mpi_type *type)
{
    return hly_mpi_check_data(how->function, NULL, 0, type);
}

/* Has it elements that are larger than Halay's operations take? */
static bool is_wide(const struct hly_mpi_op *op, const struct hly_mpi_type *type,
                    const struct hly_mpi_comm *comm)
{
    return op && !op->predefined && type && type->size > HALAY_OP_GROUP_BYTES_MAX && comm->size > 1;
}

static int reduce_wide(const struct hly_mpi_how *how, struct hly_mpi_reduction reduction,
                       struct hly_mpi_comm *comm)
{
    if (reduction.sendbuf == MPI_IN_PLACE)
        reduction.sendbuf = reduction.recvbuf;
    return hly_mpi_inter_reduce(how, &reduction, MPI_ANY_SOURCE, comm);
}

/* Those in which each rank has the same count. own: has this rank a result? */
static int simple(const struct hly_mpi_how *how, enum hly_mpi_what what, const void *sendbuf,
                  void *recvbuf, int64_t count, struct hly_mpi_type *type, struct hly_mpi_op *op,
                  int root, bool own, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm, .what = what, .root = root};
    int64_t each;
    int rc = hly_mpi_check_root(how, comm, root);
    if (!rc && is_wide(op, type, comm)) {
        const int ranks = what == HLY_MPI_SCAN     ? comm->rank + 1
                          : what == HLY_MPI_EXSCAN ? comm->rank
                                                   : comm->size;
        const struct hly_mpi_reduction wide = {sendbuf,         recvbuf, count, 0,
                                               own ? count : 0, type,    op,    ranks};
        return reduce_wide(how, wide, comm);
    }
    if (!rc && count < 0)
        rc = hly_mpi_fail(MPI_ERR_COUNT, "%s: count is %lld: it has to be 0 or more", how->function,
                          (long long)count);
    if (!rc)
        rc = check_type(how, type);
    if (!rc)
        rc = hly_mpi_collect_op(&call, op, type, &each);
    if (!rc)
        rc = both_sides(&call, sendbuf, recvbuf, count, own ? count : 0, type);
    if (rc)
        return hly_mpi_collect_refuse(&call, rc);
    call.count = (size_t)(count * each);
    return hly_mpi_collect(&call);
}

static int reduce(const struct hly_mpi_how *how, const void *sendbuf, void *recvbuf, int64_t count,
                  struct hly_mpi_type *type, struct hly_mpi_op *op, int root,
                  struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm};
    const struct hly_mpi_reduction reduction = {sendbuf, recvbuf, count, 0, count, type, op, 0};
    if (comm && comm->remote)
        return hly_mpi_inter_reduce(how, &reduction, root, comm);
    int rc = hly_mpi_check_collective(how, comm);
    if (rc)
        return rc;
    if (sendbuf == MPI_IN_PLACE && root != comm->rank) {
        rc = hly_mpi_fail(MPI_ERR_BUFFER, "%s: MPI_IN_PLACE is for the root, rank %d",
                          how->function, root);
        return hly_mpi_collect_refuse(&call, rc);
    }
    return simple(how, HLY_MPI_REDUCE, sendbuf, recvbuf, count, type, op, root, root == comm->rank,
                  comm);
}

static int allreduce(const struct hly_mpi_how *how, const void *sendbuf, void *recvbuf,
                     int64_t count, struct hly_mpi_type *type, struct hly_mpi_op *op,
                     struct hly_mpi_comm *comm)
{
    const struct hly_mpi_reduction reduction = {sendbuf, recvbuf, count, 0, count, type, op, 0};
    if (comm && comm->remote)
        return hly_mpi_inter_reduce(how, &reduction, MPI_ANY_SOURCE, comm);
    const int rc = hly_mpi_check_collective(how, comm);
    return rc ? rc
              : simple(how, HLY_MPI_ALLREDUCE, sendbuf, recvbuf, count, type, op, 0, true, comm);
}

static int scan(const struct hly_mpi_how *how, const void *sendbuf, void *recvbuf, int64_t count,
                struct hly_mpi_type *type, struct hly_mpi_op *op, struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_check_collective(how, comm);
    return rc ? rc : simple(how, HLY_MPI_SCAN, sendbuf, recvbuf, count, type, op, 0, true, comm);
}

/* Rank 0's result is undefined: it keeps what it had. */
static int exscan(const struct hly_mpi_how *how, const void *sendbuf, void *recvbuf, int64_t count,
                  struct hly_mpi_type *type, struct hly_mpi_op *op, struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_check_collective(how, comm);
    return rc ? rc
              : simple(how, HLY_MPI_EXSCAN, sendbuf, recvbuf, count, type, op, 0, comm->rank > 0,
                       comm);
}

static int reduce_scatter_block(const struct hly_mpi_how *how, const void *sendbuf, void *recvbuf,
                                int64_t recvcount, struct hly_mpi_type *type, struct hly_mpi_op *op,
                                struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm, .what = HLY_MPI_REDUCE_SCATTER};
    int64_t each;
    if (comm && (comm->remote || is_wide(op, type, comm))) {
        const struct hly_mpi_reduction reduction = {
            sendbuf, recvbuf, recvcount * comm->size, recvcount * comm->rank, recvcount, type,
            op,      0};
        return comm->remote ? hly_mpi_inter_reduce(how, &reduction, MPI_ANY_SOURCE, comm)
                            : reduce_wide(how, reduction, comm);
    }
    int rc = hly_mpi_check_collective(how, comm);
    if (rc)
        return rc;
    if (recvcount < 0)
        rc = hly_mpi_fail(MPI_ERR_COUNT, "%s: recvcount is %lld: it has to be 0 or more",
                          how->function, (long long)recvcount);
    if (!rc)
        rc = check_type(how, type);
    if (!rc)
        rc = hly_mpi_collect_op(&call, op, type, &each);
    if (!rc)
        rc = both_sides(&call, sendbuf, recvbuf, recvcount * comm->size, recvcount, type);
    if (rc)
        return hly_mpi_collect_refuse(&call, rc);
    call.count = (size_t)(recvcount * each);
    return hly_mpi_collect(&call);
}

/* Each rank gets the vectors of all other ranks, and reduces its own part of them. */
static int gather_reduce_scatter(const struct hly_mpi_how *how, const void *sendbuf, void *recvbuf,
                                 struct hly_mpi_ints recvcounts, struct hly_mpi_type *type,
                                 struct hly_mpi_op *op, struct hly_mpi_comm *comm)
{
    struct hly_mpi_reduction reduction = {
        .sendbuf = sendbuf, .recvbuf = recvbuf, .type = type, .op = op};
    for (int r = 0; recvcounts.at && r < comm->size; r++) {
        if (r == comm->rank)
            reduction.first = reduction.count;
        reduction.count += hly_mpi_int(recvcounts, r);
    }
    reduction.own = recvcounts.at ? hly_mpi_int(recvcounts, comm->rank) : -1;
    return comm->remote ? hly_mpi_inter_reduce(how, &reduction, MPI_ANY_SOURCE, comm)
                        : reduce_wide(how, reduction, comm);
}

static int reduce_scatter(const struct hly_mpi_how *how, const void *sendbuf, void *recvbuf,
                          struct hly_mpi_ints recvcounts, struct hly_mpi_type *type,
                          struct hly_mpi_op *op, struct hly_mpi_comm *comm)
{
    struct hly_mpi_collect call = {.how = how, .comm = comm, .what = HLY_MPI_REDUCE_SCATTERV};
    size_t few[64], *counts = few;
    int64_t each, all = 0;
    if (comm && (comm->remote || is_wide(op, type, comm)))
        return gather_reduce_scatter(how, sendbuf, recvbuf, recvcounts, type, op, comm);
    int rc = hly_mpi_check_collective(how, comm);
    if (rc)
        return rc;
    if (comm->size > 64)
        counts = malloc((size_t)comm->size * sizeof(*counts));
    if (!counts)
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d counts", how->function, comm->size);
    if (!rc && !recvcounts.at)
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: recvcounts is NULL", how->function);
    if (!rc)
        rc = check_type(how, type);
    if (!rc)
        rc = hly_mpi_collect_op(&call, op, type, &each);
    for (int r = 0; r < comm->size && !rc; r++) {
        const int64_t count = hly_mpi_int(recvcounts, r);
        if (count < 0)
            rc = hly_mpi_fail(MPI_ERR_COUNT, "%s: recvcounts[%d] is %lld: it has to be 0 or more",
                              how->function, r, (long long)count);
        else
            counts[r] = (size_t)(count * each);
        all += count;
    }
    if (!rc)
        rc = both_sides(&call, sendbuf, recvbuf, all, hly_mpi_int(recvcounts, comm->rank), type);
    call.out_counts = counts;
    rc = rc ? hly_mpi_collect_refuse(&call, rc) : hly_mpi_collect(&call);
    if (counts != few)
        free(counts);
    return rc;
}

/* ---------------------------------------------------------------- the forms of each */

/* Why Halay has not made a call of a predefined type and operation. */
int hly_mpi_allreduce_error(int code, const struct hly_mpi_type *type, const struct hly_mpi_op *op,
                            const struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_result(code, comm, "MPI_Allreduce");
    if (code == HALAY_EINVAL && !halay_op_takes((halay_op_t)op->halay, (halay_type_t)type->halay))
        return hly_mpi_fail(MPI_ERR_OP, "MPI_Allreduce: %s does not take %s", hly_mpi_op_name(op),
                            type->name);
    return rc;
}

int hly_mpi_allreduce(const void *sendbuf, void *recvbuf, int64_t count,
                      struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                      struct hly_mpi_comm *comm)
{
    return allreduce(HLY_MPI_HOW_NOW("MPI_Allreduce"), sendbuf, recvbuf, count, datatype, op, comm);
}

int hly_mpi_reduce(const void *sendbuf, void *recvbuf, int64_t count, struct hly_mpi_type *datatype,
                   struct hly_mpi_op *op, int root, struct hly_mpi_comm *comm)
{
    return reduce(HLY_MPI_HOW_NOW("MPI_Reduce"), sendbuf, recvbuf, count, datatype, op, root, comm);
}

int hly_mpi_ireduce(const void *sendbuf, void *recvbuf, int64_t count,
                    struct hly_mpi_type *datatype, struct hly_mpi_op *op, int root,
                    struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return reduce(HLY_MPI_HOW_LATER("MPI_Ireduce", request), sendbuf, recvbuf, count, datatype, op,
                  root, comm);
}

int hly_mpi_reduce_init(const void *sendbuf, void *recvbuf, int64_t count,
                        struct hly_mpi_type *datatype, struct hly_mpi_op *op, int root,
                        struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                        struct hly_mpi_request **request)
{
    (void)info;
    return reduce(HLY_MPI_HOW_AGAIN("MPI_Reduce_init", request), sendbuf, recvbuf, count, datatype,
                  op, root, comm);
}

int hly_mpi_iallreduce(const void *sendbuf, void *recvbuf, int64_t count,
                       struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                       struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return allreduce(HLY_MPI_HOW_LATER("MPI_Iallreduce", request), sendbuf, recvbuf, count,
                     datatype, op, comm);
}

int hly_mpi_allreduce_init(const void *sendbuf, void *recvbuf, int64_t count,
                           struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                           struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                           struct hly_mpi_request **request)
{
    (void)info;
    return allreduce(HLY_MPI_HOW_AGAIN("MPI_Allreduce_init", request), sendbuf, recvbuf, count,
                     datatype, op, comm);
}

int hly_mpi_reduce_scatter_block(const void *sendbuf, void *recvbuf, int64_t recvcount,
                                 struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                                 struct hly_mpi_comm *comm)
{
    return reduce_scatter_block(HLY_MPI_HOW_NOW("MPI_Reduce_scatter_block"), sendbuf, recvbuf,
                                recvcount, datatype, op, comm);
}

int hly_mpi_ireduce_scatter_block(const void *sendbuf, void *recvbuf, int64_t recvcount,
                                  struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                                  struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return reduce_scatter_block(HLY_MPI_HOW_LATER("MPI_Ireduce_scatter_block", request), sendbuf,
                                recvbuf, recvcount, datatype, op, comm);
}

int hly_mpi_reduce_scatter_block_init(const void *sendbuf, void *recvbuf, int64_t recvcount,
                                      struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                                      struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                                      struct hly_mpi_request **request)
{
    (void)info;
    return reduce_scatter_block(HLY_MPI_HOW_AGAIN("MPI_Reduce_scatter_block_init", request),
                                sendbuf, recvbuf, recvcount, datatype, op, comm);
}

int hly_mpi_reduce_scatter(const void *sendbuf, void *recvbuf, struct hly_mpi_ints recvcounts,
                           struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                           struct hly_mpi_comm *comm)
{
    return reduce_scatter(HLY_MPI_HOW_NOW("MPI_Reduce_scatter"), sendbuf, recvbuf, recvcounts,
                          datatype, op, comm);
}

int hly_mpi_ireduce_scatter(const void *sendbuf, void *recvbuf, struct hly_mpi_ints recvcounts,
                            struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                            struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return reduce_scatter(HLY_MPI_HOW_LATER("MPI_Ireduce_scatter", request), sendbuf, recvbuf,
                          recvcounts, datatype, op, comm);
}

int hly_mpi_reduce_scatter_init(const void *sendbuf, void *recvbuf, struct hly_mpi_ints recvcounts,
                                struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                                struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                                struct hly_mpi_request **request)
{
    (void)info;
    return reduce_scatter(HLY_MPI_HOW_AGAIN("MPI_Reduce_scatter_init", request), sendbuf, recvbuf,
                          recvcounts, datatype, op, comm);
}

int hly_mpi_scan(const void *sendbuf, void *recvbuf, int64_t count, struct hly_mpi_type *datatype,
                 struct hly_mpi_op *op, struct hly_mpi_comm *comm)
{
    return scan(HLY_MPI_HOW_NOW("MPI_Scan"), sendbuf, recvbuf, count, datatype, op, comm);
}

int hly_mpi_iscan(const void *sendbuf, void *recvbuf, int64_t count, struct hly_mpi_type *datatype,
                  struct hly_mpi_op *op, struct hly_mpi_comm *comm,
                  struct hly_mpi_request **request)
{
    return scan(HLY_MPI_HOW_LATER("MPI_Iscan", request), sendbuf, recvbuf, count, datatype, op,
                comm);
}

int hly_mpi_scan_init(const void *sendbuf, void *recvbuf, int64_t count,
                      struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                      struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                      struct hly_mpi_request **request)
{
    (void)info;
    return scan(HLY_MPI_HOW_AGAIN("MPI_Scan_init", request), sendbuf, recvbuf, count, datatype, op,
                comm);
}

int hly_mpi_exscan(const void *sendbuf, void *recvbuf, int64_t count, struct hly_mpi_type *datatype,
                   struct hly_mpi_op *op, struct hly_mpi_comm *comm)
{
    return exscan(HLY_MPI_HOW_NOW("MPI_Exscan"), sendbuf, recvbuf, count, datatype, op, comm);
}

int hly_mpi_iexscan(const void *sendbuf, void *recvbuf, int64_t count,
                    struct hly_mpi_type *datatype, struct hly_mpi_op *op, struct hly_mpi_comm *comm,
                    struct hly_mpi_request **request)
{
    return exscan(HLY_MPI_HOW_LATER("MPI_Iexscan", request), sendbuf, recvbuf, count, datatype, op,
                  comm);
}

int hly_mpi_exscan_init(const void *sendbuf, void *recvbuf, int64_t count,
                        struct hly_mpi_type *datatype, struct hly_mpi_op *op,
                        struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                        struct hly_mpi_request **request)
{
    (void)info;
    return exscan(HLY_MPI_HOW_AGAIN("MPI_Exscan_init", request), sendbuf, recvbuf, count, datatype,
                  op, comm);
}
