/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - the calls that reduce. */
#include "api/api.h"

static struct hly_call call_of(const void *in, void *out, size_t count, halay_type_t type,
                               halay_op_t op)
{
    struct hly_call call = {.in = in, .out = out};
    call.desc.count = count;
    call.desc.type = hly_desc_byte(type);
    call.desc.op = hly_desc_byte(op);
    return call;
}

static int post_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                          halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    int rc;
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    const struct hly_call_desc desc = hly_desc_of(comm, HALAY_ALLREDUCE, in, count, type, op, 0);
    if (hly_repeat(comm, &desc, in, out, how, request, &rc))
        return rc;
    struct hly_check c = {0};
    struct hly_call call = call_of(in, out, count, type, op);
    hly_check_type(&c, count, 1, type);
    hly_check_op(&c, type, op);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    hly_check_buffers(&c, in, bytes, out, bytes);
    return hly_post(comm, HALAY_ALLREDUCE, &call, &c, how, request);
}

static int post_reduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                       int root, halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    int rc;
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    const struct hly_call_desc desc = hly_desc_of(comm, HALAY_REDUCE, in, count, type, op, root);
    if (hly_repeat(comm, &desc, in, comm->rank == root ? out : NULL, how, request, &rc))
        return rc;
    struct hly_check c = {0};
    struct hly_call call = call_of(in, comm->rank == root ? out : NULL, count, type, op);
    call.desc.root = (uint32_t)root;
    hly_check_type(&c, count, 1, type);
    hly_check_op(&c, type, op);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    hly_check_gathering(&c, &call, bytes, bytes, root, comm);
    return hly_post(comm, HALAY_REDUCE, &call, &c, how, request);
}

static int post_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                               halay_op_t op, halay_comm_t *comm, enum hly_post how,
                               halay_request_t **request)
{
    int rc;
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    const struct hly_call_desc desc =
        hly_desc_of(comm, HALAY_REDUCE_SCATTER, in, count, type, op, 0);
    if (hly_repeat(comm, &desc, in, out, how, request, &rc))
        return rc;
    struct hly_check c = {0};
    size_t n = (size_t)comm->nranks;
    struct hly_call call = call_of(in, out, count, type, op);
    hly_check_type(&c, count, n, type);
    hly_check_op(&c, type, op);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    hly_check_buffers(&c, in, bytes * n, out, bytes);
    return hly_post(comm, HALAY_REDUCE_SCATTER, &call, &c, how, request);
}

static int post_reduce_scatterv(const void *in, void *out, const size_t counts[], halay_type_t type,
                                halay_op_t op, halay_comm_t *comm, enum hly_post how,
                                halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type, op);
    size_t all = hly_check_counts(&c, &call, HALAY_BUFFER_IN, counts, NULL, type, comm);
    hly_check_op(&c, type, op);
    hly_check_buffers(&c, in, all, out, c.code ? 0 : counts[comm->rank] * halay_type_bytes(type));
    call.staged = in == HALAY_IN_PLACE;
    return hly_post(comm, HALAY_REDUCE_SCATTER, &call, &c, how, request);
}

static int scan(halay_collective_t collective, const void *in, void *out, size_t count,
                halay_type_t type, halay_op_t op, halay_comm_t *comm, enum hly_post how,
                halay_request_t **request)
{
    int rc;
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    const struct hly_call_desc desc = hly_desc_of(comm, collective, in, count, type, op, 0);
    if (hly_repeat(comm, &desc, in, out, how, request, &rc))
        return rc;
    struct hly_check c = {0};
    struct hly_call call = call_of(in, out, count, type, op);
    hly_check_type(&c, count, 1, type);
    hly_check_op(&c, type, op);
    if (op == HALAY_AVERAGE)
        hly_wrong(&c, "a scan takes no average: each rank would divide by another number");
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    bool none = collective == HALAY_EXSCAN && comm->rank == 0 && in != HALAY_IN_PLACE;
    hly_check_buffers(&c, in, bytes, out, none ? 0 : bytes);
    return hly_post(comm, collective, &call, &c, how, request);
}

static int post_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                     halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    return scan(HALAY_SCAN, in, out, count, type, op, comm, how, request);
}

static int post_exscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                       halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    return scan(HALAY_EXSCAN, in, out, count, type, op, comm, how, request);
}

/* ---------------------------------------------------------------- the public forms */

int halay_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm)
{
    return post_allreduce(in, out, count, type, op, comm, HLY_WAIT, NULL);
}

int halay_iallreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                     halay_comm_t *comm, halay_request_t **request)
{
    return post_allreduce(in, out, count, type, op, comm, HLY_GO, request);
}

int halay_allreduce_init(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm, halay_request_t **request)
{
    return post_allreduce(in, out, count, type, op, comm, HLY_MAKE, request);
}

int halay_reduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                 int root, halay_comm_t *comm)
{
    return post_reduce(in, out, count, type, op, root, comm, HLY_WAIT, NULL);
}

int halay_ireduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                  int root, halay_comm_t *comm, halay_request_t **request)
{
    return post_reduce(in, out, count, type, op, root, comm, HLY_GO, request);
}

int halay_reduce_init(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                      int root, halay_comm_t *comm, halay_request_t **request)
{
    return post_reduce(in, out, count, type, op, root, comm, HLY_MAKE, request);
}

int halay_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm)
{
    return post_reduce_scatter(in, out, count, type, op, comm, HLY_WAIT, NULL);
}

int halay_ireduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                          halay_comm_t *comm, halay_request_t **request)
{
    return post_reduce_scatter(in, out, count, type, op, comm, HLY_GO, request);
}

int halay_reduce_scatter_init(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm, halay_request_t **request)
{
    return post_reduce_scatter(in, out, count, type, op, comm, HLY_MAKE, request);
}

int halay_reduce_scatterv(const void *in, void *out, const size_t counts[], halay_type_t type,
                          halay_op_t op, halay_comm_t *comm)
{
    return post_reduce_scatterv(in, out, counts, type, op, comm, HLY_WAIT, NULL);
}

int halay_ireduce_scatterv(const void *in, void *out, const size_t counts[], halay_type_t type,
                           halay_op_t op, halay_comm_t *comm, halay_request_t **request)
{
    return post_reduce_scatterv(in, out, counts, type, op, comm, HLY_GO, request);
}

int halay_reduce_scatterv_init(const void *in, void *out, const size_t counts[], halay_type_t type,
                               halay_op_t op, halay_comm_t *comm, halay_request_t **request)
{
    return post_reduce_scatterv(in, out, counts, type, op, comm, HLY_MAKE, request);
}

int halay_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
               halay_comm_t *comm)
{
    return post_scan(in, out, count, type, op, comm, HLY_WAIT, NULL);
}

int halay_iscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                halay_comm_t *comm, halay_request_t **request)
{
    return post_scan(in, out, count, type, op, comm, HLY_GO, request);
}

int halay_scan_init(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm, halay_request_t **request)
{
    return post_scan(in, out, count, type, op, comm, HLY_MAKE, request);
}

int halay_exscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                 halay_comm_t *comm)
{
    return post_exscan(in, out, count, type, op, comm, HLY_WAIT, NULL);
}

int halay_iexscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                  halay_comm_t *comm, halay_request_t **request)
{
    return post_exscan(in, out, count, type, op, comm, HLY_GO, request);
}

int halay_exscan_init(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                      halay_comm_t *comm, halay_request_t **request)
{
    return post_exscan(in, out, count, type, op, comm, HLY_MAKE, request);
}
