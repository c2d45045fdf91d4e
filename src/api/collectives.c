/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.c - the collectives: each checks its arguments and is posted in three forms. */
#include "api/api.h"
#include "exec/exec.h"
#include "plan/collective.h"

/* ---------------------------------------------------------------- all ranks alike */

/* How many blocks of `count` elements the buffers in and out have, in calls that treat all ranks
 * alike. */
static void blocks_of(halay_collective_t collective, const void *in, const halay_comm_t *comm,
                      size_t blocks[2])
{
    const struct hly_collective *c = &hly_collectives[collective];
    const size_t n = (size_t)comm->nranks;
    const bool none =
        !hly_access_at(&c->out, (uint32_t)comm->rank, 0) && in != HALAY_IN_PLACE; /* exscan */
    blocks[0] = c->in.part == HLY_EACH ? n : 1;
    blocks[1] = c->out.part == HLY_EACH ? n : !none;
}

/* Its request in the call cache, or NULL. */
static inline halay_request_t *cached(halay_collective_t collective, const void *in,
                                      const void *out, size_t count, halay_type_t type,
                                      halay_op_t op, int root, const halay_comm_t *comm)
{
    const unsigned t = (unsigned)type, o = (unsigned)op;
    if ((t | o) > UINT8_MAX)
        return NULL;
    return hly_cache_find(comm,
                          hly_call_key((uint32_t)collective, t, o, (uint32_t)root,
                                       in == HALAY_IN_PLACE ? HLY_CALL_IN_PLACE : 0),
                          count, in, out);
}

/* op 0: it does not reduce. */
static int post_alike(halay_collective_t collective, const void *in, void *out, size_t count,
                      halay_type_t type, halay_op_t op, halay_comm_t *comm, enum hly_post how,
                      halay_request_t **request)
{
    struct hly_check c = {0};
    struct hly_call call = hly_call_of(collective, in, out, count, type);
    size_t blocks[2];
    blocks_of(collective, in, comm, blocks);
    const size_t most = blocks[0] > blocks[1] ? blocks[0] : blocks[1];
    const size_t bytes = hly_check_type(&c, count, most, type);
    call.desc.op = hly_desc_op(op);
    if (halay_collective_reduces(collective))
        hly_check_op(&c, type, op);
    if (op == HALAY_AVERAGE && (collective == HALAY_SCAN || collective == HALAY_EXSCAN))
        hly_wrong(&c, "a scan takes no average: each rank would divide by another number");
    hly_check_buffers(&c, in, bytes * blocks[0], out, bytes * blocks[1]);
    return hly_post(comm, &call, &c, how, request);
}

static int post_barrier(halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    struct hly_check c = {0};
    struct hly_call call = {.desc = {.collective = HALAY_BARRIER}};
    return hly_post(comm, &call, &c, how, request);
}

/* ---------------------------------------------------------------- with a root */

static int post_broadcast(void *buffer, size_t count, halay_type_t type, int root,
                          halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    struct hly_check c = {0};
    struct hly_call call = hly_call_of(HALAY_BROADCAST, NULL, buffer, count, type);
    call.desc.root = (uint32_t)root;
    hly_check_buffers(&c, HALAY_IN_PLACE, 0, buffer, hly_check_type(&c, count, 1, type));
    hly_check_root(&c, root, comm);
    return hly_post(comm, &call, &c, how, request);
}

static int post_reduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                       int root, halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    struct hly_check c = {0};
    struct hly_call call =
        hly_call_of(HALAY_REDUCE, in, comm->rank == root ? out : NULL, count, type);
    call.desc.op = hly_desc_op(op);
    const size_t bytes = hly_check_type(&c, count, 1, type);
    hly_check_op(&c, type, op);
    hly_check_gathering(&c, &call, bytes, bytes, root, comm);
    return hly_post(comm, &call, &c, how, request);
}

static int post_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                       halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    struct hly_check c = {0};
    const size_t n = (size_t)comm->nranks, bytes = hly_check_type(&c, count, n, type);
    struct hly_call call = hly_call_of(HALAY_GATHER, in, out, count, type);
    hly_check_gathering(&c, &call, bytes, bytes * n, root, comm);
    return hly_post(comm, &call, &c, how, request);
}

/* `in` is the root's, and may be its `out` too; either of them is HALAY_IN_PLACE then. */
static void check_scattering(struct hly_check *c, struct hly_call *call, size_t in_bytes,
                             size_t out_bytes, int root, const halay_comm_t *comm)
{
    hly_check_root(c, root, comm);
    call->desc.root = (uint32_t)root;
    if (root != comm->rank)
        call->in = NULL;
    if (root == comm->rank && call->in && call->out == HALAY_IN_PLACE) {
        call->out = (void *)(uintptr_t)call->in;
        call->in = HALAY_IN_PLACE;
    }
    call->local_in_place = call->in == HALAY_IN_PLACE;
    if (call->local_in_place)
        hly_check_buffers(c, HALAY_IN_PLACE, 0, call->out, in_bytes);
    else
        hly_check_buffers(c, call->in, root == comm->rank ? in_bytes : 0, call->out, out_bytes);
    if (call->local_in_place)
        call->in = NULL;
}

static int post_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                        halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    struct hly_check c = {0};
    const size_t n = (size_t)comm->nranks, bytes = hly_check_type(&c, count, n, type);
    struct hly_call call = hly_call_of(HALAY_SCATTER, in, out, count, type);
    check_scattering(&c, &call, bytes * n, bytes, root, comm);
    return hly_post(comm, &call, &c, how, request);
}

/* ---------------------------------------------------------------- with counts */

/* counts: of the blocks in `in` where ranks give parts of it away, else in `out`. */
static int post_vector(halay_collective_t collective, const void *in, void *out,
                       const size_t counts[], const size_t displs[], halay_type_t type,
                       halay_op_t op, int root, halay_comm_t *comm, enum hly_post how,
                       halay_request_t **request)
{
    struct hly_check c = {0};
    struct hly_call call = hly_call_of(collective, in, out, 0, type);
    const bool gives = collective == HALAY_REDUCE_SCATTER || collective == HALAY_SCATTER;
    if ((collective == HALAY_GATHER || collective == HALAY_SCATTER) && root != comm->rank)
        displs = NULL; /* those of the root are used */
    const size_t all = hly_check_counts(&c, &call, gives ? HALAY_BUFFER_IN : HALAY_BUFFER_OUT,
                                        counts, displs, type, comm);
    const size_t own = c.code ? 0 : counts[comm->rank] * halay_type_bytes(type);
    if (collective == HALAY_GATHER) {
        hly_check_gathering(&c, &call, own, all, root, comm);
    } else if (collective == HALAY_SCATTER) {
        check_scattering(&c, &call, all, own, root, comm);
    } else if (collective == HALAY_ALLGATHER) {
        hly_check_buffers(&c, in, own, out, all);
    } else {
        call.desc.op = hly_desc_op(op);
        call.staged = in == HALAY_IN_PLACE;
        hly_check_op(&c, type, op);
        hly_check_buffers(&c, in, all, out, own);
    }
    return hly_post(comm, &call, &c, how, request);
}

static int post_alltoallv(const void *in, const size_t in_counts[], const size_t in_displs[],
                          void *out, const size_t out_counts[], const size_t out_displs[],
                          halay_type_t type, halay_comm_t *comm, enum hly_post how,
                          halay_request_t **request)
{
    struct hly_check c = {0};
    struct hly_call call = hly_call_of(HALAY_ALLTOALL, in, out, 0, type);
    if (in == HALAY_IN_PLACE) {
        in_counts = out_counts;
        in_displs = out_displs;
    }
    size_t from = hly_check_counts(&c, &call, HALAY_BUFFER_IN, in_counts, in_displs, type, comm);
    size_t to = hly_check_counts(&c, &call, HALAY_BUFFER_OUT, out_counts, out_displs, type, comm);
    call.signature = 0; /* each rank knows its own counts alone: the messages are compared */
    call.desc.count = 0;
    hly_check_buffers(&c, in, from, out, to);
    if (!c.code && in_counts[comm->rank] != out_counts[comm->rank])
        hly_wrong(&c, "what it sends to itself is not as much as it expects from itself");
    return hly_post(comm, &call, &c, how, request);
}

/* ---------------------------------------------------------------- the public forms */

HLY_FORMS(barrier, (), cached(HALAY_BARRIER, NULL, NULL, 0, 0, 0, 0, comm),
          post_barrier(comm, how, request))
HLY_FORMS(allreduce, (const void *in, void *out, size_t count, halay_type_t type, halay_op_t op, ),
          cached(HALAY_ALLREDUCE, in, out, count, type, op, 0, comm),
          post_alike(HALAY_ALLREDUCE, in, out, count, type, op, comm, how, request))
HLY_FORMS(reduce_scatter,
          (const void *in, void *out, size_t count, halay_type_t type, halay_op_t op, ),
          cached(HALAY_REDUCE_SCATTER, in, out, count, type, op, 0, comm),
          post_alike(HALAY_REDUCE_SCATTER, in, out, count, type, op, comm, how, request))
HLY_FORMS(scan, (const void *in, void *out, size_t count, halay_type_t type, halay_op_t op, ),
          cached(HALAY_SCAN, in, out, count, type, op, 0, comm),
          post_alike(HALAY_SCAN, in, out, count, type, op, comm, how, request))
HLY_FORMS(exscan, (const void *in, void *out, size_t count, halay_type_t type, halay_op_t op, ),
          cached(HALAY_EXSCAN, in, out, count, type, op, 0, comm),
          post_alike(HALAY_EXSCAN, in, out, count, type, op, comm, how, request))
HLY_FORMS(allgather, (const void *in, void *out, size_t count, halay_type_t type, ),
          cached(HALAY_ALLGATHER, in, out, count, type, 0, 0, comm),
          post_alike(HALAY_ALLGATHER, in, out, count, type, 0, comm, how, request))
HLY_FORMS(alltoall, (const void *in, void *out, size_t count, halay_type_t type, ),
          cached(HALAY_ALLTOALL, in, out, count, type, 0, 0, comm),
          post_alike(HALAY_ALLTOALL, in, out, count, type, 0, comm, how, request))
HLY_FORMS(broadcast, (void *buffer, size_t count, halay_type_t type, int root, ),
          cached(HALAY_BROADCAST, NULL, buffer, count, type, 0, root, comm),
          post_broadcast(buffer, count, type, root, comm, how, request))
HLY_FORMS(reduce,
          (const void *in, void *out, size_t count, halay_type_t type, halay_op_t op, int root, ),
          cached(HALAY_REDUCE, in, comm->rank == root ? out : NULL, count, type, op, root, comm),
          post_reduce(in, out, count, type, op, root, comm, how, request))
HLY_FORMS(gather, (const void *in, void *out, size_t count, halay_type_t type, int root, ), NULL,
          post_gather(in, out, count, type, root, comm, how, request))
HLY_FORMS(scatter, (const void *in, void *out, size_t count, halay_type_t type, int root, ), NULL,
          post_scatter(in, out, count, type, root, comm, how, request))
HLY_FORMS(reduce_scatterv,
          (const void *in, void *out, const size_t counts[], halay_type_t type, halay_op_t op, ),
          NULL,
          post_vector(HALAY_REDUCE_SCATTER, in, out, counts, NULL, type, op, 0, comm, how, request))
HLY_FORMS(allgatherv,
          (const void *in, void *out, const size_t counts[], const size_t displs[],
           halay_type_t type, ),
          NULL,
          post_vector(HALAY_ALLGATHER, in, out, counts, displs, type, 0, 0, comm, how, request))
HLY_FORMS(gatherv,
          (const void *in, void *out, const size_t counts[], const size_t displs[],
           halay_type_t type, int root, ),
          NULL,
          post_vector(HALAY_GATHER, in, out, counts, root == comm->rank ? displs : NULL, type, 0,
                      root, comm, how, request))
HLY_FORMS(scatterv,
          (const void *in, void *out, const size_t counts[], const size_t displs[],
           halay_type_t type, int root, ),
          NULL,
          post_vector(HALAY_SCATTER, in, out, counts, root == comm->rank ? displs : NULL, type, 0,
                      root, comm, how, request))
HLY_FORMS(alltoallv,
          (const void *in, const size_t in_counts[], const size_t in_displs[], void *out,
           const size_t out_counts[], const size_t out_displs[], halay_type_t type, ),
          NULL,
          post_alltoallv(in, in_counts, in_displs, out, out_counts, out_displs, type, comm, how,
                         request))
