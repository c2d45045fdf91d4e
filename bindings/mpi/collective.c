/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c - makes a call of Halay's, in each of its forms, and packs and unpacks for it. */
#include "collective.h"

#include <stdlib.h>

#include <halay/local.h>

#include "error.h"
#include "message.h"

/* ---------------------------------------------------------------- what a call keeps */

struct room { /* of packed data: the bytes follow it */
    struct room *next;
    _Alignas(64) char bytes[];
};
struct copy {
    int ways;
    const void *buffer;
    int64_t count;
    struct hly_mpi_type *type; /* held */
    void *packed;
};
struct hly_mpi_kept {
    struct room *rooms;
    struct copy *copies;
    int ncopies, room;
    bool has_op;
    halay_op_t op;
    int (*then)(void *arg);
    void (*end)(void *arg);
    void *arg; /* of both */
};

static struct hly_mpi_kept *kept_of(struct hly_mpi_collect *call)
{
    if (!call->kept)
        call->kept = calloc(1, sizeof(*call->kept));
    if (!call->kept)
        hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for the call", call->how->function);
    return call->kept;
}

/* All but the struct itself. */
static void kept_end(struct hly_mpi_kept *kept)
{
    if (!kept)
        return;
    for (struct room *r = kept->rooms, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    for (int i = 0; i < kept->ncopies; i++)
        hly_mpi_object_release(kept->copies[i].type);
    free(kept->copies);
    if (kept->has_op)
        hly_mpi_op_done(kept->op);
    if (kept->end)
        kept->end(kept->arg);
    free(kept->arg);
}

static void kept_pack(const struct hly_mpi_kept *kept)
{
    for (int i = 0; kept && i < kept->ncopies; i++) {
        const struct copy *c = &kept->copies[i];
        if (c->ways & HLY_MPI_PACK)
            hly_mpi_pack_range(c->buffer, c->count, c->type, 0, c->count * c->type->size,
                               c->packed);
    }
}

static int kept_unpack(const struct hly_mpi_kept *kept)
{
    for (int i = 0; kept && i < kept->ncopies; i++) {
        const struct copy *c = &kept->copies[i];
        if (c->ways & HLY_MPI_UNPACK)
            hly_mpi_unpack_range((void *)(uintptr_t)c->buffer, c->count, c->type, 0,
                                 c->count * c->type->size, c->packed);
    }
    return kept && kept->then ? kept->then(kept->arg) : MPI_SUCCESS;
}

int hly_mpi_collect_then(struct hly_mpi_collect *call, int (*then)(void *arg),
                         void (*end)(void *arg), void *arg)
{
    struct hly_mpi_kept *kept = kept_of(call);
    if (!kept)
        return MPI_ERR_NO_MEM;
    kept->then = then;
    kept->end = end;
    kept->arg = arg;
    return MPI_SUCCESS;
}

void *hly_mpi_collect_room(struct hly_mpi_collect *call, size_t bytes)
{
    struct hly_mpi_kept *kept = kept_of(call);
    struct room *room = kept ? aligned_alloc(64, (sizeof(*room) + bytes + 63) & ~(size_t)63) : NULL;
    if (!room) {
        hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory to pack %zu bytes", call->how->function, bytes);
        return NULL;
    }
    room->next = kept->rooms;
    kept->rooms = room;
    return room->bytes;
}

int hly_mpi_collect_copy(struct hly_mpi_collect *call, int ways, const void *buffer, int64_t count,
                         struct hly_mpi_type *type, void *packed)
{
    struct hly_mpi_kept *kept = kept_of(call);
    if (!kept)
        return MPI_ERR_NO_MEM;
    if (kept->ncopies == kept->room) {
        const int room = kept->room ? 2 * kept->room : 4;
        struct copy *more = realloc(kept->copies, (size_t)room * sizeof(*more));
        if (!more)
            return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d copies", call->how->function,
                                room);
        kept->copies = more;
        kept->room = room;
    }
    hly_mpi_object_hold(type);
    kept->copies[kept->ncopies++] = (struct copy){ways, buffer, count, type, packed};
    return MPI_SUCCESS;
}

void *hly_mpi_collect_bytes(struct hly_mpi_collect *call, int ways, const void *buffer,
                            int64_t count, struct hly_mpi_type *type)
{
    static char nothing; /* an address that is not NULL */
    if (!count || !type->size)
        return &nothing;
    if (type->dense)
        return (void *)(uintptr_t)buffer;
    void *packed = hly_mpi_collect_room(call, (size_t)(count * type->size));
    if (packed && hly_mpi_collect_copy(call, ways, buffer, count, type, packed))
        packed = NULL;
    return packed;
}

int hly_mpi_collect_op(struct hly_mpi_collect *call, struct hly_mpi_op *op,
                       struct hly_mpi_type *type, int64_t *each)
{
    struct hly_mpi_kept *kept;
    if (!op)
        return hly_mpi_fail(MPI_ERR_OP, "%s: the operation is MPI_OP_NULL, or was freed",
                            call->how->function);
    const bool alone = call->comm->size == 1;
    int rc =
        alone ? hly_mpi_op_find_alone(call->how->function, op, type, &call->op, &call->type, each)
              : hly_mpi_op_find(call->how->function, op, type, &call->op, &call->type, each);
    if (rc || call->op < HALAY_OP_USER)
        return rc;
    kept = kept_of(call);
    if (!kept) {
        hly_mpi_op_done(call->op);
        return MPI_ERR_NO_MEM;
    }
    kept->has_op = true;
    kept->op = call->op;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- the three forms */

static int begin_now(const struct hly_mpi_collect *c)
{
    halay_comm_t *comm = c->comm->halay;
    switch (c->what) {
    case HLY_MPI_BARRIER:
        return halay_barrier(comm);
    case HLY_MPI_BCAST:
        return halay_broadcast(c->out, c->count, c->type, c->root, comm);
    case HLY_MPI_GATHER:
        return halay_gather(c->in, c->out, c->count, c->type, c->root, comm);
    case HLY_MPI_SCATTER:
        return halay_scatter(c->in, c->out, c->count, c->type, c->root, comm);
    case HLY_MPI_ALLGATHER:
        return halay_allgather(c->in, c->out, c->count, c->type, comm);
    case HLY_MPI_ALLGATHERV:
        return halay_allgatherv(c->in, c->out, c->out_counts, c->out_displs, c->type, comm);
    case HLY_MPI_ALLTOALL:
        return halay_alltoall(c->in, c->out, c->count, c->type, comm);
    case HLY_MPI_ALLTOALLV:
        return halay_alltoallv(c->in, c->in_counts, c->in_displs, c->out, c->out_counts,
                               c->out_displs, c->type, comm);
    case HLY_MPI_REDUCE:
        return halay_reduce(c->in, c->out, c->count, c->type, c->op, c->root, comm);
    case HLY_MPI_ALLREDUCE:
        return halay_allreduce(c->in, c->out, c->count, c->type, c->op, comm);
    case HLY_MPI_REDUCE_SCATTER:
        return halay_reduce_scatter(c->in, c->out, c->count, c->type, c->op, comm);
    case HLY_MPI_REDUCE_SCATTERV:
        return halay_reduce_scatterv(c->in, c->out, c->out_counts, c->type, c->op, comm);
    case HLY_MPI_SCAN:
        return halay_scan(c->in, c->out, c->count, c->type, c->op, comm);
    case HLY_MPI_EXSCAN:
        return halay_exscan(c->in, c->out, c->count, c->type, c->op, comm);
    }
    return HALAY_EINTERNAL;
}

static int begin_later(const struct hly_mpi_collect *c, halay_request_t **r)
{
    halay_comm_t *comm = c->comm->halay;
    switch (c->what) {
    case HLY_MPI_BARRIER:
        return halay_ibarrier(comm, r);
    case HLY_MPI_BCAST:
        return halay_ibroadcast(c->out, c->count, c->type, c->root, comm, r);
    case HLY_MPI_GATHER:
        return halay_igather(c->in, c->out, c->count, c->type, c->root, comm, r);
    case HLY_MPI_SCATTER:
        return halay_iscatter(c->in, c->out, c->count, c->type, c->root, comm, r);
    case HLY_MPI_ALLGATHER:
        return halay_iallgather(c->in, c->out, c->count, c->type, comm, r);
    case HLY_MPI_ALLGATHERV:
        return halay_iallgatherv(c->in, c->out, c->out_counts, c->out_displs, c->type, comm, r);
    case HLY_MPI_ALLTOALL:
        return halay_ialltoall(c->in, c->out, c->count, c->type, comm, r);
    case HLY_MPI_ALLTOALLV:
        return halay_ialltoallv(c->in, c->in_counts, c->in_displs, c->out, c->out_counts,
                                c->out_displs, c->type, comm, r);
    case HLY_MPI_REDUCE:
        return halay_ireduce(c->in, c->out, c->count, c->type, c->op, c->root, comm, r);
    case HLY_MPI_ALLREDUCE:
        return halay_iallreduce(c->in, c->out, c->count, c->type, c->op, comm, r);
    case HLY_MPI_REDUCE_SCATTER:
        return halay_ireduce_scatter(c->in, c->out, c->count, c->type, c->op, comm, r);
    case HLY_MPI_REDUCE_SCATTERV:
        return halay_ireduce_scatterv(c->in, c->out, c->out_counts, c->type, c->op, comm, r);
    case HLY_MPI_SCAN:
        return halay_iscan(c->in, c->out, c->count, c->type, c->op, comm, r);
    case HLY_MPI_EXSCAN:
        return halay_iexscan(c->in, c->out, c->count, c->type, c->op, comm, r);
    }
    return HALAY_EINTERNAL;
}

static int prepare(const struct hly_mpi_collect *c, halay_request_t **r)
{
    halay_comm_t *comm = c->comm->halay;
    switch (c->what) {
    case HLY_MPI_BARRIER:
        return halay_barrier_init(comm, r);
    case HLY_MPI_BCAST:
        return halay_broadcast_init(c->out, c->count, c->type, c->root, comm, r);
    case HLY_MPI_GATHER:
        return halay_gather_init(c->in, c->out, c->count, c->type, c->root, comm, r);
    case HLY_MPI_SCATTER:
        return halay_scatter_init(c->in, c->out, c->count, c->type, c->root, comm, r);
    case HLY_MPI_ALLGATHER:
        return halay_allgather_init(c->in, c->out, c->count, c->type, comm, r);
    case HLY_MPI_ALLGATHERV:
        return halay_allgatherv_init(c->in, c->out, c->out_counts, c->out_displs, c->type, comm, r);
    case HLY_MPI_ALLTOALL:
        return halay_alltoall_init(c->in, c->out, c->count, c->type, comm, r);
    case HLY_MPI_ALLTOALLV:
        return halay_alltoallv_init(c->in, c->in_counts, c->in_displs, c->out, c->out_counts,
                                    c->out_displs, c->type, comm, r);
    case HLY_MPI_REDUCE:
        return halay_reduce_init(c->in, c->out, c->count, c->type, c->op, c->root, comm, r);
    case HLY_MPI_ALLREDUCE:
        return halay_allreduce_init(c->in, c->out, c->count, c->type, c->op, comm, r);
    case HLY_MPI_REDUCE_SCATTER:
        return halay_reduce_scatter_init(c->in, c->out, c->count, c->type, c->op, comm, r);
    case HLY_MPI_REDUCE_SCATTERV:
        return halay_reduce_scatterv_init(c->in, c->out, c->out_counts, c->type, c->op, comm, r);
    case HLY_MPI_SCAN:
        return halay_scan_init(c->in, c->out, c->count, c->type, c->op, comm, r);
    case HLY_MPI_EXSCAN:
        return halay_exscan_init(c->in, c->out, c->count, c->type, c->op, comm, r);
    }
    return HALAY_EINTERNAL;
}

static int request_then(struct hly_mpi_request *request)
{
    return kept_unpack(request->kept);
}

static int request_start(struct hly_mpi_request *request)
{
    kept_pack(request->kept);
    return hly_mpi_result(halay_request_start(request->halay), request->comm, request->function);
}

static void request_end(struct hly_mpi_request *request)
{
    kept_end(request->kept);
}

/* Each rank may start persistent calls in another order, and Halay wants one order for each
 * communicator, so a persistent call gets one of its own. */
static int own_comm(struct hly_mpi_collect *call)
{
    if (call->how->form == HLY_MPI_AGAIN)
        return hly_mpi_comm_copy(call->how->function, call->comm, &call->comm);
    hly_mpi_object_hold(call->comm);
    return MPI_SUCCESS;
}

static int collect_request(struct hly_mpi_collect *call)
{
    const struct hly_mpi_how *how = call->how;
    struct hly_mpi_request *made = hly_mpi_object_new(HLY_MPI_REQUEST, sizeof(*made));
    int rc = made ? own_comm(call)
                  : hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a request", how->function);
    if (!rc) {
        const int code = how->form == HLY_MPI_AGAIN ? prepare(call, &made->halay)
                                                    : begin_later(call, &made->halay);
        rc = hly_mpi_result(code, call->comm, how->function);
        if (rc)
            hly_mpi_object_release(call->comm);
    }
    if (rc) {
        kept_end(call->kept);
        free(call->kept);
        if (made)
            hly_mpi_object_release(made);
        return rc;
    }
    made->is = HLY_MPI_IS_CALL;
    made->function = how->function;
    made->kept = call->kept;
    made->end = request_end;
    made->comm = call->comm;
    made->persistent = how->form == HLY_MPI_AGAIN;
    made->active = !made->persistent;
    made->then = call->kept ? request_then : NULL;
    made->start = made->persistent ? request_start : NULL;
    *how->request = made;
    return MPI_SUCCESS;
}

int hly_mpi_collect(struct hly_mpi_collect *call)
{
    if (call->how->form != HLY_MPI_AGAIN)
        kept_pack(call->kept);
    if (call->how->form != HLY_MPI_NOW)
        return collect_request(call);
    const int code = begin_now(call);
    int rc = hly_mpi_result(code, call->comm, call->how->function);
    if (call->kept) {
        if (!code)
            rc = kept_unpack(call->kept);
        kept_end(call->kept);
        free(call->kept);
    }
    return rc;
}

/* The program gets no request, so it is as one that it has freed. */
static void refuse_later(struct hly_mpi_comm *comm, const char *function, halay_request_t *request)
{
    struct hly_mpi_request *made = hly_mpi_object_new(HLY_MPI_REQUEST, sizeof(*made));
    if (!made) {
        halay_request_wait(request);
        return;
    }
    made->is = HLY_MPI_IS_CALL;
    made->function = function;
    made->halay = request;
    made->active = true;
    made->comm = comm;
    hly_mpi_object_hold(comm);
    hly_mpi_request_free_active(made);
}

int hly_mpi_collect_refuse(struct hly_mpi_collect *call, int rc)
{
    halay_request_t *request;
    struct hly_mpi_comm *comm = call->comm;
    kept_end(call->kept);
    free(call->kept);
    if (call->how->form != HLY_MPI_AGAIN && comm && comm->halay &&
        !halay_local_refuse(comm->halay, HALAY_EINVAL, hly_mpi_error_text(rc), &request)) {
        if (call->how->form == HLY_MPI_NOW)
            halay_request_wait(request);
        else
            refuse_later(comm, call->how->function, request);
    }
    return rc;
}

/* ---------------------------------------------------------------- checks */

int hly_mpi_check_collective(const struct hly_mpi_how *how, const struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_check_comm(how->function, comm);
    if (rc || !comm->remote)
        return rc;
    return hly_mpi_fail(MPI_ERR_COMM, "%s: an intercommunicator has no such collective",
                        how->function);
}

int hly_mpi_check_root(const struct hly_mpi_how *how, const struct hly_mpi_comm *comm, int root)
{
    if (root >= 0 && root < comm->size)
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_ROOT, "%s: root is %d: it has to be a rank from 0 to %d",
                        how->function, root, comm->size - 1);
}

int hly_mpi_check_side(const struct hly_mpi_how *how, const void *buffer, int64_t count,
                       struct hly_mpi_type *type)
{
    if (buffer == MPI_IN_PLACE)
        return hly_mpi_fail(MPI_ERR_BUFFER, "%s: MPI_IN_PLACE stands where a buffer has to be",
                            how->function);
    return hly_mpi_check_data(how->function, buffer, count, type);
}
