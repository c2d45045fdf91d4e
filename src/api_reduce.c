/* SPDX-License-Identifier: Apache-2.0 */
/* api_reduce.c - the calls that reduce. */
#include "api.h"

static struct hly_call call_of(const void *in, void *out, size_t count, halay_type_t type,
                               halay_op_t op)
{
    struct hly_call call = {.in = in, .out = out};
    call.brief.count = count;
    call.brief.type = hly_brief_byte(type);
    call.brief.op = hly_brief_byte(op);
    return call;
}

int halay_iallreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                     halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c;
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, count, type, op);
    if (hly_check_begin(&c, &call, HALAY_ALLREDUCE, comm)) {
        hly_check_type(&c, count, 1, type);
        hly_check_op(&c, type, op);
        size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
        hly_check_buffers(&c, in, bytes, out, bytes);
    }
    return hly_post(comm, HALAY_ALLREDUCE, &call, &c, request);
}

int halay_ireduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                  int root, halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    hly_check_type(&c, count, 1, type);
    hly_check_op(&c, type, op);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    struct hly_call call = call_of(in, out, count, type, op);
    hly_check_gathering(&c, &call, bytes, bytes, root, comm);
    return hly_post(comm, HALAY_REDUCE, &call, &c, request);
}

int halay_ireduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                          halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c;
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    struct hly_call call = call_of(in, out, count, type, op);
    if (hly_check_begin(&c, &call, HALAY_REDUCE_SCATTER, comm)) {
        hly_check_type(&c, count, n, type);
        hly_check_op(&c, type, op);
        size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
        hly_check_buffers(&c, in, bytes * n, out, bytes);
    }
    return hly_post(comm, HALAY_REDUCE_SCATTER, &call, &c, request);
}

int halay_ireduce_scatterv(const void *in, void *out, const size_t counts[], halay_type_t type,
                           halay_op_t op, halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type, op);
    size_t all = hly_check_counts(&c, &call, HALAY_BUFFER_IN, counts, NULL, type, comm);
    hly_check_op(&c, type, op);
    hly_check_buffers(&c, in, all, out, c.code ? 0 : counts[comm->rank] * halay_type_bytes(type));
    call.aside = in == HALAY_IN_PLACE;
    return hly_post(comm, HALAY_REDUCE_SCATTER, &call, &c, request);
}

static int scan(halay_collective_t collective, const void *in, void *out, size_t count,
                halay_type_t type, halay_op_t op, halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c;
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, count, type, op);
    if (hly_check_begin(&c, &call, collective, comm)) {
        hly_check_type(&c, count, 1, type);
        hly_check_op(&c, type, op);
        if (op == HALAY_AVERAGE)
            hly_wrong(&c, "a scan takes no average: each rank would divide by another number");
        size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
        bool none = collective == HALAY_EXSCAN && comm->rank == 0; /* gets nothing */
        hly_check_buffers(&c, in, bytes, out, none ? 0 : bytes);
    }
    return hly_post(comm, collective, &call, &c, request);
}

int halay_iscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                halay_comm_t *comm, halay_request_t **request)
{
    return scan(HALAY_SCAN, in, out, count, type, op, comm, request);
}

int halay_iexscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                  halay_comm_t *comm, halay_request_t **request)
{
    return scan(HALAY_EXSCAN, in, out, count, type, op, comm, request);
}

/* ---------------------------------------------------------------- the blocking forms */

int halay_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm)
{
    int rc;
    if (hly_again(comm, HALAY_ALLREDUCE, in, out, count, type, op, 0, &rc))
        return rc;
    return halay_iallreduce(in, out, count, type, op, comm, hly_blocking(comm));
}

int halay_reduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                 int root, halay_comm_t *comm)
{
    void *own = comm && comm->rank == root ? out : NULL; /* hly_check_gathering */
    int rc;
    if (hly_again(comm, HALAY_REDUCE, in, own, count, type, op, root, &rc))
        return rc;
    return halay_ireduce(in, out, count, type, op, root, comm, hly_blocking(comm));
}

int halay_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm)
{
    int rc;
    if (hly_again(comm, HALAY_REDUCE_SCATTER, in, out, count, type, op, 0, &rc))
        return rc;
    return halay_ireduce_scatter(in, out, count, type, op, comm, hly_blocking(comm));
}

int halay_reduce_scatterv(const void *in, void *out, const size_t counts[], halay_type_t type,
                          halay_op_t op, halay_comm_t *comm)
{
    return halay_ireduce_scatterv(in, out, counts, type, op, comm, hly_blocking(comm));
}

int halay_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
               halay_comm_t *comm)
{
    int rc;
    if (hly_again(comm, HALAY_SCAN, in, out, count, type, op, 0, &rc))
        return rc;
    return halay_iscan(in, out, count, type, op, comm, hly_blocking(comm));
}

int halay_exscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                 halay_comm_t *comm)
{
    int rc;
    if (hly_again(comm, HALAY_EXSCAN, in, out, count, type, op, 0, &rc))
        return rc;
    return halay_iexscan(in, out, count, type, op, comm, hly_blocking(comm));
}
