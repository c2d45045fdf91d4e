/* SPDX-License-Identifier: Apache-2.0 */
/* collective_move.c - the collectives that move blocks of one size: barrier, bcast, gather,
 * scatter, allgather, alltoall. */
#include "collective.h"

#define BEGIN(what_, root_)                                                                        \
    struct hly_mpi_collect call = {                                                                \
        .how = how, .comm = comm, .what = (what_), .type = HALAY_UINT8, .root = (root_)};          \
    int rc = hly_mpi_check_collective(how, comm)

/* The call moves `bytes`, as numbers of the type, so that Halay compares these, too. No bytes have
 * no type. */
static void move(struct hly_mpi_collect *call, int64_t bytes, const struct hly_mpi_type *type)
{
    call->type = bytes ? hly_mpi_type_compared(type) : HALAY_UINT8;
    call->count = (size_t)bytes / halay_type_bytes(call->type);
}

/* The same buffer as input and output, which MPI writes in another way. */
static int check_alias(const struct hly_mpi_how *how, const void *in, int64_t in_bytes,
                       const void *out)
{
    if (in != out || !in_bytes || !in)
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_BUFFER,
                        "%s: sendbuf is recvbuf: pass MPI_IN_PLACE as sendbuf instead",
                        how->function);
}

static int barrier(const struct hly_mpi_how *how, struct hly_mpi_comm *comm)
{
    if (comm && comm->remote)
        return hly_mpi_inter_barrier(how, comm);
    BEGIN(HLY_MPI_BARRIER, 0);
    return rc ? rc : hly_mpi_collect(&call);
}

static int bcast(const struct hly_mpi_how *how, void *buffer, int64_t count,
                 struct hly_mpi_type *type, int root, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks one = {
        .buffer = buffer, .count = count, .type = type, .same = true};
    if (comm && comm->remote)
        return hly_mpi_inter_rooted(how, false, &one, &one, root, comm);
    BEGIN(HLY_MPI_BCAST, root);
    if (rc)
        return rc;
    rc = hly_mpi_check_root(how, comm, root);
    if (!rc)
        rc = hly_mpi_check_side(how, buffer, count, type);
    if (rc)
        return hly_mpi_collect_refuse(&call, rc);
    move(&call, count * type->size, type);
    call.out = hly_mpi_collect_bytes(&call, root == comm->rank ? HLY_MPI_PACK : HLY_MPI_UNPACK,
                                     buffer, count, type);
    return call.out ? hly_mpi_collect(&call) : hly_mpi_collect_refuse(&call, MPI_ERR_NO_MEM);
}

/* ---------------------------------------------------------------- gather, scatter */

static int check_equal(const struct hly_mpi_how *how, int64_t sent,
                       const struct hly_mpi_type *sendtype, int64_t received,
                       const struct hly_mpi_type *recvtype)
{
    if (sent == received &&
        (!sent || hly_mpi_type_compared(sendtype) == hly_mpi_type_compared(recvtype)))
        return MPI_SUCCESS;
    if (sent == received)
        return hly_mpi_fail(MPI_ERR_TYPE,
                            "%s: this rank sends numbers of %s and receives those of %s: make the "
                            "types equal",
                            how->function, halay_type_name(hly_mpi_type_compared(sendtype)),
                            halay_type_name(hly_mpi_type_compared(recvtype)));
    return hly_mpi_fail(MPI_ERR_COUNT,
                        "%s: this rank sends %lld bytes and receives %lld from each: make "
                        "sendcount and recvcount equal",
                        how->function, (long long)sent, (long long)received);
}

/* The root's side, of a block for each rank, into call->in or call->out; in place, `own` is the
 * block of this rank. */
static int root_side(struct hly_mpi_collect *call, bool gathers, const void *buffer, int64_t count,
                     struct hly_mpi_type *type, bool in_place)
{
    const int64_t n = call->comm->size, block = count * type->size;
    char *bytes = hly_mpi_collect_bytes(call, gathers ? HLY_MPI_UNPACK : HLY_MPI_PACK, buffer,
                                        n * count, type);
    int rc = bytes ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (!rc && in_place && gathers && block && !type->dense)
        rc = hly_mpi_collect_copy(call, HLY_MPI_PACK,
                                  (const char *)buffer + call->comm->rank * count * type->extent,
                                  count, type, bytes + call->comm->rank * block);
    if (gathers)
        call->out = bytes;
    else
        call->in = bytes;
    move(call, block, type);
    return rc;
}

static int gather(const struct hly_mpi_how *how, const void *sendbuf, int64_t sendcount,
                  struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                  struct hly_mpi_type *recvtype, int root, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks one = {.buffer = sendbuf, .count = sendcount, .type = sendtype};
    const struct hly_mpi_blocks many = {.buffer = recvbuf, .count = recvcount, .type = recvtype};
    if (comm && comm->remote)
        return hly_mpi_inter_rooted(how, true, &many, &one, root, comm);
    BEGIN(HLY_MPI_GATHER, root);
    if (rc)
        return rc;
    const bool is_root = root == comm->rank, in_place = is_root && sendbuf == MPI_IN_PLACE;
    rc = hly_mpi_check_root(how, comm, root);
    if (!rc && !in_place)
        rc = hly_mpi_check_side(how, sendbuf, sendcount, sendtype);
    if (!rc && is_root)
        rc = hly_mpi_check_side(how, recvbuf, recvcount, recvtype);
    if (!rc && is_root && !in_place)
        rc = check_alias(how, sendbuf, sendcount * sendtype->size, recvbuf);
    if (!rc && is_root && !in_place)
        rc = check_equal(how, sendcount * sendtype->size, sendtype, recvcount * recvtype->size,
                         recvtype);
    if (!rc && is_root)
        rc = root_side(&call, true, recvbuf, recvcount, recvtype, in_place);
    if (rc)
        return hly_mpi_collect_refuse(&call, rc);
    if (in_place) {
        call.in = HALAY_IN_PLACE;
        return hly_mpi_collect(&call);
    }
    move(&call, sendcount * sendtype->size, sendtype);
    call.in = hly_mpi_collect_bytes(&call, HLY_MPI_PACK, sendbuf, sendcount, sendtype);
    return call.in ? hly_mpi_collect(&call) : hly_mpi_collect_refuse(&call, MPI_ERR_NO_MEM);
}

static int scatter(const struct hly_mpi_how *how, const void *sendbuf, int64_t sendcount,
                   struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                   struct hly_mpi_type *recvtype, int root, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks many = {.buffer = sendbuf, .count = sendcount, .type = sendtype};
    const struct hly_mpi_blocks one = {.buffer = recvbuf, .count = recvcount, .type = recvtype};
    if (comm && comm->remote)
        return hly_mpi_inter_rooted(how, false, &many, &one, root, comm);
    BEGIN(HLY_MPI_SCATTER, root);
    if (rc)
        return rc;
    const bool is_root = root == comm->rank, in_place = is_root && recvbuf == MPI_IN_PLACE;
    rc = hly_mpi_check_root(how, comm, root);
    if (!rc && !in_place)
        rc = hly_mpi_check_side(how, recvbuf, recvcount, recvtype);
    if (!rc && is_root)
        rc = hly_mpi_check_side(how, sendbuf, sendcount, sendtype);
    if (!rc && is_root && !in_place)
        rc = check_alias(how, sendbuf, sendcount * sendtype->size, recvbuf);
    if (!rc && is_root && !in_place)
        rc = check_equal(how, sendcount * sendtype->size, sendtype, recvcount * recvtype->size,
                         recvtype);
    if (!rc && is_root)
        rc = root_side(&call, false, sendbuf, sendcount, sendtype, in_place);
    if (rc)
        return hly_mpi_collect_refuse(&call, rc);
    if (in_place) {
        call.out = (void *)(uintptr_t)HALAY_IN_PLACE;
        return hly_mpi_collect(&call);
    }
    move(&call, recvcount * recvtype->size, recvtype);
    call.out = hly_mpi_collect_bytes(&call, HLY_MPI_UNPACK, recvbuf, recvcount, recvtype);
    return call.out ? hly_mpi_collect(&call) : hly_mpi_collect_refuse(&call, MPI_ERR_NO_MEM);
}

/* ---------------------------------------------------------------- allgather, alltoall */

/* Both sides, of a block for each rank where `all` says so; an input in place is the output's. */
static int both_sides(struct hly_mpi_collect *call, const void *sendbuf, int64_t sendcount,
                      struct hly_mpi_type *sendtype, bool all_sent, void *recvbuf,
                      int64_t recvcount, struct hly_mpi_type *recvtype)
{
    const struct hly_mpi_how *how = call->how;
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const int64_t n = call->comm->size, m = all_sent ? n : 1;
    int rc = in_place ? MPI_SUCCESS : hly_mpi_check_side(how, sendbuf, sendcount, sendtype);
    if (!rc)
        rc = hly_mpi_check_side(how, recvbuf, recvcount, recvtype);
    if (!rc && !in_place)
        rc = check_alias(how, sendbuf, sendcount * sendtype->size, recvbuf);
    if (rc)
        return rc;
    const int64_t block = recvcount * recvtype->size;
    char *out = hly_mpi_collect_bytes(
        call, in_place && all_sent ? HLY_MPI_PACK | HLY_MPI_UNPACK : HLY_MPI_UNPACK, recvbuf,
        n * recvcount, recvtype);
    call->out = out;
    if (!out)
        return MPI_ERR_NO_MEM;
    if (in_place) {
        call->in = HALAY_IN_PLACE;
        move(call, block, recvtype);
        if (all_sent || recvtype->dense || !block)
            return MPI_SUCCESS;
        return hly_mpi_collect_copy(call, HLY_MPI_PACK,
                                    (const char *)recvbuf +
                                        call->comm->rank * recvcount * recvtype->extent,
                                    recvcount, recvtype, out + call->comm->rank * block);
    }
    rc = check_equal(how, sendcount * sendtype->size, sendtype, block, recvtype);
    if (rc)
        return rc;
    move(call, block, recvtype);
    call->in = hly_mpi_collect_bytes(call, HLY_MPI_PACK, sendbuf, m * sendcount, sendtype);
    return call->in ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static int allgather(const struct hly_mpi_how *how, const void *sendbuf, int64_t sendcount,
                     struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                     struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {
        .buffer = sendbuf, .count = sendcount, .type = sendtype, .same = true};
    const struct hly_mpi_blocks received = {
        .buffer = recvbuf, .count = recvcount, .type = recvtype};
    if (comm && comm->remote)
        return hly_mpi_inter_all(how, &sent, &received, comm);
    BEGIN(HLY_MPI_ALLGATHER, 0);
    if (rc)
        return rc;
    rc = both_sides(&call, sendbuf, sendcount, sendtype, false, recvbuf, recvcount, recvtype);
    return rc ? hly_mpi_collect_refuse(&call, rc) : hly_mpi_collect(&call);
}

static int alltoall(const struct hly_mpi_how *how, const void *sendbuf, int64_t sendcount,
                    struct hly_mpi_type *sendtype, void *recvbuf, int64_t recvcount,
                    struct hly_mpi_type *recvtype, struct hly_mpi_comm *comm)
{
    const struct hly_mpi_blocks sent = {.buffer = sendbuf, .count = sendcount, .type = sendtype};
    const struct hly_mpi_blocks received = {
        .buffer = recvbuf, .count = recvcount, .type = recvtype};
    if (comm && comm->remote)
        return hly_mpi_inter_all(how, &sent, &received, comm);
    BEGIN(HLY_MPI_ALLTOALL, 0);
    if (rc)
        return rc;
    rc = both_sides(&call, sendbuf, sendcount, sendtype, true, recvbuf, recvcount, recvtype);
    return rc ? hly_mpi_collect_refuse(&call, rc) : hly_mpi_collect(&call);
}

/* ---------------------------------------------------------------- the forms of each */

int hly_mpi_barrier(struct hly_mpi_comm *comm)
{
    return barrier(HLY_MPI_HOW_NOW("MPI_Barrier"), comm);
}

int hly_mpi_ibarrier(struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return barrier(HLY_MPI_HOW_LATER("MPI_Ibarrier", request), comm);
}

int hly_mpi_barrier_init(struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                         struct hly_mpi_request **request)
{
    (void)info;
    return barrier(HLY_MPI_HOW_AGAIN("MPI_Barrier_init", request), comm);
}

int hly_mpi_bcast(void *buffer, int64_t count, struct hly_mpi_type *datatype, int root,
                  struct hly_mpi_comm *comm)
{
    return bcast(HLY_MPI_HOW_NOW("MPI_Bcast"), buffer, count, datatype, root, comm);
}

int hly_mpi_ibcast(void *buffer, int64_t count, struct hly_mpi_type *datatype, int root,
                   struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return bcast(HLY_MPI_HOW_LATER("MPI_Ibcast", request), buffer, count, datatype, root, comm);
}

int hly_mpi_bcast_init(void *buffer, int64_t count, struct hly_mpi_type *datatype, int root,
                       struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                       struct hly_mpi_request **request)
{
    (void)info;
    return bcast(HLY_MPI_HOW_AGAIN("MPI_Bcast_init", request), buffer, count, datatype, root, comm);
}

int hly_mpi_gather(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                   void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                   struct hly_mpi_comm *comm)
{
    return gather(HLY_MPI_HOW_NOW("MPI_Gather"), sendbuf, sendcount, sendtype, recvbuf, recvcount,
                  recvtype, root, comm);
}

int hly_mpi_igather(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                    void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                    struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return gather(HLY_MPI_HOW_LATER("MPI_Igather", request), sendbuf, sendcount, sendtype, recvbuf,
                  recvcount, recvtype, root, comm);
}

int hly_mpi_gather_init(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                        void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                        struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                        struct hly_mpi_request **request)
{
    (void)info;
    return gather(HLY_MPI_HOW_AGAIN("MPI_Gather_init", request), sendbuf, sendcount, sendtype,
                  recvbuf, recvcount, recvtype, root, comm);
}

int hly_mpi_scatter(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                    void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                    struct hly_mpi_comm *comm)
{
    return scatter(HLY_MPI_HOW_NOW("MPI_Scatter"), sendbuf, sendcount, sendtype, recvbuf, recvcount,
                   recvtype, root, comm);
}

int hly_mpi_iscatter(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                     void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                     struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return scatter(HLY_MPI_HOW_LATER("MPI_Iscatter", request), sendbuf, sendcount, sendtype,
                   recvbuf, recvcount, recvtype, root, comm);
}

int hly_mpi_scatter_init(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                         void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype, int root,
                         struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                         struct hly_mpi_request **request)
{
    (void)info;
    return scatter(HLY_MPI_HOW_AGAIN("MPI_Scatter_init", request), sendbuf, sendcount, sendtype,
                   recvbuf, recvcount, recvtype, root, comm);
}

int hly_mpi_allgather(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                      void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype,
                      struct hly_mpi_comm *comm)
{
    return allgather(HLY_MPI_HOW_NOW("MPI_Allgather"), sendbuf, sendcount, sendtype, recvbuf,
                     recvcount, recvtype, comm);
}

int hly_mpi_iallgather(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                       void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype,
                       struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return allgather(HLY_MPI_HOW_LATER("MPI_Iallgather", request), sendbuf, sendcount, sendtype,
                     recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_allgather_init(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                           void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype,
                           struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                           struct hly_mpi_request **request)
{
    (void)info;
    return allgather(HLY_MPI_HOW_AGAIN("MPI_Allgather_init", request), sendbuf, sendcount, sendtype,
                     recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_alltoall(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                     void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype,
                     struct hly_mpi_comm *comm)
{
    return alltoall(HLY_MPI_HOW_NOW("MPI_Alltoall"), sendbuf, sendcount, sendtype, recvbuf,
                    recvcount, recvtype, comm);
}

int hly_mpi_ialltoall(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                      void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype,
                      struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return alltoall(HLY_MPI_HOW_LATER("MPI_Ialltoall", request), sendbuf, sendcount, sendtype,
                    recvbuf, recvcount, recvtype, comm);
}

int hly_mpi_alltoall_init(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                          void *recvbuf, int64_t recvcount, struct hly_mpi_type *recvtype,
                          struct hly_mpi_comm *comm, struct hly_mpi_info *info,
                          struct hly_mpi_request **request)
{
    (void)info;
    return alltoall(HLY_MPI_HOW_AGAIN("MPI_Alltoall_init", request), sendbuf, sendcount, sendtype,
                    recvbuf, recvcount, recvtype, comm);
}
