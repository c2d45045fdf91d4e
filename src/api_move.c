/* SPDX-License-Identifier: Apache-2.0 */
/* api_move.c - the calls that move blocks, and the barrier. */
#include "api.h"

static struct hly_call call_of(const void *in, void *out, size_t count, halay_type_t type)
{
    struct hly_call call = {.in = in, .out = out};
    call.brief.count = count;
    call.brief.type = hly_brief_byte(type);
    return call;
}

int halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm,
                     halay_request_t **request)
{
    struct hly_check c;
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(NULL, buffer, count, type);
    call.brief.root = (uint32_t)root;
    if (hly_check_begin(&c, &call, HALAY_BROADCAST, comm)) {
        hly_check_type(&c, count, 1, type);
        size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
        hly_check_buffers(&c, HALAY_IN_PLACE, 0, buffer, bytes);
        hly_check_root(&c, root, comm);
    }
    return hly_post(comm, HALAY_BROADCAST, &call, &c, request);
}

int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm,
                     halay_request_t **request)
{
    struct hly_check c;
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    struct hly_call call = call_of(in, out, count, type);
    if (hly_check_begin(&c, &call, HALAY_ALLGATHER, comm)) {
        hly_check_type(&c, count, n, type);
        size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
        hly_check_buffers(&c, in, bytes, out, bytes * n);
    }
    return hly_post(comm, HALAY_ALLGATHER, &call, &c, request);
}

int halay_iallgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                      halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type);
    size_t all = hly_check_counts(&c, &call, HALAY_BUFFER_OUT, counts, displs, type, comm);
    size_t own = c.code ? 0 : counts[comm->rank] * halay_type_bytes(type);
    hly_check_buffers(&c, in, own, out, all);
    return hly_post(comm, HALAY_ALLGATHER, &call, &c, request);
}

int halay_igather(const void *in, void *out, size_t count, halay_type_t type, int root,
                  halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    hly_check_type(&c, count, n, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    struct hly_call call = call_of(in, out, count, type);
    hly_check_gathering(&c, &call, bytes, bytes * n, root, comm);
    return hly_post(comm, HALAY_GATHER, &call, &c, request);
}

int halay_igatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                   halay_type_t type, int root, halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type);
    size_t all = hly_check_counts(&c, &call, HALAY_BUFFER_OUT, counts,
                                  root == comm->rank ? displs : NULL, type, comm);
    size_t own = c.code ? 0 : counts[comm->rank] * halay_type_bytes(type);
    hly_check_gathering(&c, &call, own, all, root, comm);
    return hly_post(comm, HALAY_GATHER, &call, &c, request);
}

/* `in` is the root's, and may be its `out` too. */
static void check_scattering(struct hly_check *c, struct hly_call *call, size_t in_bytes,
                             size_t out_bytes, int root, const halay_comm_t *comm)
{
    hly_check_root(c, root, comm);
    call->brief.root = (uint32_t)root;
    if (root != comm->rank)
        call->in = NULL;
    call->local_in_place = call->in == HALAY_IN_PLACE;
    if (call->local_in_place)
        hly_check_buffers(c, HALAY_IN_PLACE, 0, call->out, in_bytes);
    else
        hly_check_buffers(c, call->in, root == comm->rank ? in_bytes : 0, call->out, out_bytes);
    if (call->local_in_place)
        call->in = NULL;
}

int halay_iscatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                   halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    hly_check_type(&c, count, n, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    struct hly_call call = call_of(in, out, count, type);
    check_scattering(&c, &call, bytes * n, bytes, root, comm);
    return hly_post(comm, HALAY_SCATTER, &call, &c, request);
}

int halay_iscatterv(const void *in, void *out, const size_t counts[], const size_t displs[],
                    halay_type_t type, int root, halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type);
    size_t all = hly_check_counts(&c, &call, HALAY_BUFFER_IN, counts,
                                  root == comm->rank ? displs : NULL, type, comm);
    size_t own = c.code ? 0 : counts[comm->rank] * halay_type_bytes(type);
    check_scattering(&c, &call, all, own, root, comm);
    return hly_post(comm, HALAY_SCATTER, &call, &c, request);
}

int halay_ialltoall(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm,
                    halay_request_t **request)
{
    struct hly_check c;
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    struct hly_call call = call_of(in, out, count, type);
    if (hly_check_begin(&c, &call, HALAY_ALLTOALL, comm)) {
        hly_check_type(&c, count, n, type);
        size_t bytes = c.code ? 0 : count * halay_type_bytes(type) * n;
        hly_check_buffers(&c, in, bytes, out, bytes);
    }
    return hly_post(comm, HALAY_ALLTOALL, &call, &c, request);
}

int halay_ialltoallv(const void *in, const size_t in_counts[], const size_t in_displs[], void *out,
                     const size_t out_counts[], const size_t out_displs[], halay_type_t type,
                     halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type);
    if (in == HALAY_IN_PLACE) {
        in_counts = out_counts;
        in_displs = out_displs;
    }
    size_t from = hly_check_counts(&c, &call, HALAY_BUFFER_IN, in_counts, in_displs, type, comm);
    size_t to = hly_check_counts(&c, &call, HALAY_BUFFER_OUT, out_counts, out_displs, type, comm);
    call.signature = 0; /* each rank knows its own counts alone: the messages are compared */
    call.brief.count = 0;
    hly_check_buffers(&c, in, from, out, to);
    if (!c.code && in_counts[comm->rank] != out_counts[comm->rank])
        hly_wrong(&c, "what it sends to itself is not as much as it expects from itself");
    return hly_post(comm, HALAY_ALLTOALL, &call, &c, request);
}

int halay_ibarrier(halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c;
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = {0};
    hly_check_begin(&c, &call, HALAY_BARRIER, comm); /* there is nothing to be checked */
    return hly_post(comm, HALAY_BARRIER, &call, &c, request);
}

/* ---------------------------------------------------------------- the blocking forms */

int halay_broadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm)
{
    int rc;
    if (hly_again(comm, HALAY_BROADCAST, NULL, buffer, count, type, 0, root, &rc))
        return rc;
    return halay_ibroadcast(buffer, count, type, root, comm, hly_blocking(comm));
}

int halay_allgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm)
{
    int rc;
    if (hly_again(comm, HALAY_ALLGATHER, in, out, count, type, 0, 0, &rc))
        return rc;
    return halay_iallgather(in, out, count, type, comm, hly_blocking(comm));
}

int halay_allgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                     halay_type_t type, halay_comm_t *comm)
{
    return halay_iallgatherv(in, out, counts, displs, type, comm, hly_blocking(comm));
}

int halay_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                 halay_comm_t *comm)
{
    return halay_igather(in, out, count, type, root, comm, hly_blocking(comm));
}

int halay_gatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                  halay_type_t type, int root, halay_comm_t *comm)
{
    return halay_igatherv(in, out, counts, displs, type, root, comm, hly_blocking(comm));
}

int halay_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                  halay_comm_t *comm)
{
    return halay_iscatter(in, out, count, type, root, comm, hly_blocking(comm));
}

int halay_scatterv(const void *in, void *out, const size_t counts[], const size_t displs[],
                   halay_type_t type, int root, halay_comm_t *comm)
{
    return halay_iscatterv(in, out, counts, displs, type, root, comm, hly_blocking(comm));
}

int halay_alltoall(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm)
{
    int rc;
    if (hly_again(comm, HALAY_ALLTOALL, in, out, count, type, 0, 0, &rc))
        return rc;
    return halay_ialltoall(in, out, count, type, comm, hly_blocking(comm));
}

int halay_alltoallv(const void *in, const size_t in_counts[], const size_t in_displs[], void *out,
                    const size_t out_counts[], const size_t out_displs[], halay_type_t type,
                    halay_comm_t *comm)
{
    return halay_ialltoallv(in, in_counts, in_displs, out, out_counts, out_displs, type, comm,
                            hly_blocking(comm));
}

int halay_barrier(halay_comm_t *comm)
{
    int rc;
    if (hly_again(comm, HALAY_BARRIER, NULL, NULL, 0, 0, 0, 0, &rc))
        return rc;
    return halay_ibarrier(comm, hly_blocking(comm));
}
