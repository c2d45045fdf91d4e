/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - the calls that move blocks, and the barrier. */
#include "api/api.h"

static struct hly_call call_of(const void *in, void *out, size_t count, halay_type_t type)
{
    struct hly_call call = {.in = in, .out = out};
    call.desc.count = count;
    call.desc.type = hly_desc_byte(type);
    return call;
}

static int post_broadcast(void *buffer, size_t count, halay_type_t type, int root,
                          halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    int rc;
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    const struct hly_call_desc desc =
        hly_desc_of(comm, HALAY_BROADCAST, NULL, count, type, 0, root);
    if (hly_repeat(comm, &desc, NULL, buffer, how, request, &rc))
        return rc;
    struct hly_check c = {0};
    struct hly_call call = call_of(NULL, buffer, count, type);
    call.desc.root = (uint32_t)root;
    hly_check_type(&c, count, 1, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    hly_check_buffers(&c, HALAY_IN_PLACE, 0, buffer, bytes);
    hly_check_root(&c, root, comm);
    return hly_post(comm, HALAY_BROADCAST, &call, &c, how, request);
}

static int post_allgather(const void *in, void *out, size_t count, halay_type_t type,
                          halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    int rc;
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    const struct hly_call_desc desc = hly_desc_of(comm, HALAY_ALLGATHER, in, count, type, 0, 0);
    if (hly_repeat(comm, &desc, in, out, how, request, &rc))
        return rc;
    struct hly_check c = {0};
    size_t n = (size_t)comm->nranks;
    struct hly_call call = call_of(in, out, count, type);
    hly_check_type(&c, count, n, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    hly_check_buffers(&c, in, bytes, out, bytes * n);
    return hly_post(comm, HALAY_ALLGATHER, &call, &c, how, request);
}

static int post_allgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                           halay_type_t type, halay_comm_t *comm, enum hly_post how,
                           halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type);
    size_t all = hly_check_counts(&c, &call, HALAY_BUFFER_OUT, counts, displs, type, comm);
    size_t own = c.code ? 0 : counts[comm->rank] * halay_type_bytes(type);
    hly_check_buffers(&c, in, own, out, all);
    return hly_post(comm, HALAY_ALLGATHER, &call, &c, how, request);
}

static int post_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                       halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    hly_check_type(&c, count, n, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    struct hly_call call = call_of(in, out, count, type);
    hly_check_gathering(&c, &call, bytes, bytes * n, root, comm);
    return hly_post(comm, HALAY_GATHER, &call, &c, how, request);
}

static int post_gatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                        halay_type_t type, int root, halay_comm_t *comm, enum hly_post how,
                        halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type);
    size_t all = hly_check_counts(&c, &call, HALAY_BUFFER_OUT, counts,
                                  root == comm->rank ? displs : NULL, type, comm);
    size_t own = c.code ? 0 : counts[comm->rank] * halay_type_bytes(type);
    hly_check_gathering(&c, &call, own, all, root, comm);
    return hly_post(comm, HALAY_GATHER, &call, &c, how, request);
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
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    hly_check_type(&c, count, n, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    struct hly_call call = call_of(in, out, count, type);
    check_scattering(&c, &call, bytes * n, bytes, root, comm);
    return hly_post(comm, HALAY_SCATTER, &call, &c, how, request);
}

static int post_scatterv(const void *in, void *out, const size_t counts[], const size_t displs[],
                         halay_type_t type, int root, halay_comm_t *comm, enum hly_post how,
                         halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type);
    size_t all = hly_check_counts(&c, &call, HALAY_BUFFER_IN, counts,
                                  root == comm->rank ? displs : NULL, type, comm);
    size_t own = c.code ? 0 : counts[comm->rank] * halay_type_bytes(type);
    check_scattering(&c, &call, all, own, root, comm);
    return hly_post(comm, HALAY_SCATTER, &call, &c, how, request);
}

static int post_alltoall(const void *in, void *out, size_t count, halay_type_t type,
                         halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    int rc;
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    const struct hly_call_desc desc = hly_desc_of(comm, HALAY_ALLTOALL, in, count, type, 0, 0);
    if (hly_repeat(comm, &desc, in, out, how, request, &rc))
        return rc;
    struct hly_check c = {0};
    size_t n = (size_t)comm->nranks;
    struct hly_call call = call_of(in, out, count, type);
    hly_check_type(&c, count, n, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type) * n;
    hly_check_buffers(&c, in, bytes, out, bytes);
    return hly_post(comm, HALAY_ALLTOALL, &call, &c, how, request);
}

static int post_alltoallv(const void *in, const size_t in_counts[], const size_t in_displs[],
                          void *out, const size_t out_counts[], const size_t out_displs[],
                          halay_type_t type, halay_comm_t *comm, enum hly_post how,
                          halay_request_t **request)
{
    struct hly_check c = {0};
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    struct hly_call call = call_of(in, out, 0, type);
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
    return hly_post(comm, HALAY_ALLTOALL, &call, &c, how, request);
}

static int post_barrier(halay_comm_t *comm, enum hly_post how, halay_request_t **request)
{
    int rc;
    if (!hly_usable(comm, how, request))
        return HALAY_EINVAL;
    const struct hly_call_desc desc = hly_desc_of(comm, HALAY_BARRIER, NULL, 0, 0, 0, 0);
    if (hly_repeat(comm, &desc, NULL, NULL, how, request, &rc))
        return rc;
    struct hly_check c = {0};
    struct hly_call call = {0};
    return hly_post(comm, HALAY_BARRIER, &call, &c, how, request);
}

/* ---------------------------------------------------------------- the public forms */

int halay_broadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm)
{
    return post_broadcast(buffer, count, type, root, comm, HLY_WAIT, NULL);
}

int halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm,
                     halay_request_t **request)
{
    return post_broadcast(buffer, count, type, root, comm, HLY_GO, request);
}

int halay_broadcast_init(void *buffer, size_t count, halay_type_t type, int root,
                         halay_comm_t *comm, halay_request_t **request)
{
    return post_broadcast(buffer, count, type, root, comm, HLY_MAKE, request);
}

int halay_allgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm)
{
    return post_allgather(in, out, count, type, comm, HLY_WAIT, NULL);
}

int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm,
                     halay_request_t **request)
{
    return post_allgather(in, out, count, type, comm, HLY_GO, request);
}

int halay_allgather_init(const void *in, void *out, size_t count, halay_type_t type,
                         halay_comm_t *comm, halay_request_t **request)
{
    return post_allgather(in, out, count, type, comm, HLY_MAKE, request);
}

int halay_allgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                     halay_type_t type, halay_comm_t *comm)
{
    return post_allgatherv(in, out, counts, displs, type, comm, HLY_WAIT, NULL);
}

int halay_iallgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                      halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    return post_allgatherv(in, out, counts, displs, type, comm, HLY_GO, request);
}

int halay_allgatherv_init(const void *in, void *out, const size_t counts[], const size_t displs[],
                          halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    return post_allgatherv(in, out, counts, displs, type, comm, HLY_MAKE, request);
}

int halay_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                 halay_comm_t *comm)
{
    return post_gather(in, out, count, type, root, comm, HLY_WAIT, NULL);
}

int halay_igather(const void *in, void *out, size_t count, halay_type_t type, int root,
                  halay_comm_t *comm, halay_request_t **request)
{
    return post_gather(in, out, count, type, root, comm, HLY_GO, request);
}

int halay_gather_init(const void *in, void *out, size_t count, halay_type_t type, int root,
                      halay_comm_t *comm, halay_request_t **request)
{
    return post_gather(in, out, count, type, root, comm, HLY_MAKE, request);
}

int halay_gatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                  halay_type_t type, int root, halay_comm_t *comm)
{
    return post_gatherv(in, out, counts, displs, type, root, comm, HLY_WAIT, NULL);
}

int halay_igatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                   halay_type_t type, int root, halay_comm_t *comm, halay_request_t **request)
{
    return post_gatherv(in, out, counts, displs, type, root, comm, HLY_GO, request);
}

int halay_gatherv_init(const void *in, void *out, const size_t counts[], const size_t displs[],
                       halay_type_t type, int root, halay_comm_t *comm, halay_request_t **request)
{
    return post_gatherv(in, out, counts, displs, type, root, comm, HLY_MAKE, request);
}

int halay_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                  halay_comm_t *comm)
{
    return post_scatter(in, out, count, type, root, comm, HLY_WAIT, NULL);
}

int halay_iscatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                   halay_comm_t *comm, halay_request_t **request)
{
    return post_scatter(in, out, count, type, root, comm, HLY_GO, request);
}

int halay_scatter_init(const void *in, void *out, size_t count, halay_type_t type, int root,
                       halay_comm_t *comm, halay_request_t **request)
{
    return post_scatter(in, out, count, type, root, comm, HLY_MAKE, request);
}

int halay_scatterv(const void *in, void *out, const size_t counts[], const size_t displs[],
                   halay_type_t type, int root, halay_comm_t *comm)
{
    return post_scatterv(in, out, counts, displs, type, root, comm, HLY_WAIT, NULL);
}

int halay_iscatterv(const void *in, void *out, const size_t counts[], const size_t displs[],
                    halay_type_t type, int root, halay_comm_t *comm, halay_request_t **request)
{
    return post_scatterv(in, out, counts, displs, type, root, comm, HLY_GO, request);
}

int halay_scatterv_init(const void *in, void *out, const size_t counts[], const size_t displs[],
                        halay_type_t type, int root, halay_comm_t *comm, halay_request_t **request)
{
    return post_scatterv(in, out, counts, displs, type, root, comm, HLY_MAKE, request);
}

int halay_alltoall(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm)
{
    return post_alltoall(in, out, count, type, comm, HLY_WAIT, NULL);
}

int halay_ialltoall(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm,
                    halay_request_t **request)
{
    return post_alltoall(in, out, count, type, comm, HLY_GO, request);
}

int halay_alltoall_init(const void *in, void *out, size_t count, halay_type_t type,
                        halay_comm_t *comm, halay_request_t **request)
{
    return post_alltoall(in, out, count, type, comm, HLY_MAKE, request);
}

int halay_alltoallv(const void *in, const size_t in_counts[], const size_t in_displs[], void *out,
                    const size_t out_counts[], const size_t out_displs[], halay_type_t type,
                    halay_comm_t *comm)
{
    return post_alltoallv(in, in_counts, in_displs, out, out_counts, out_displs, type, comm,
                          HLY_WAIT, NULL);
}

int halay_ialltoallv(const void *in, const size_t in_counts[], const size_t in_displs[], void *out,
                     const size_t out_counts[], const size_t out_displs[], halay_type_t type,
                     halay_comm_t *comm, halay_request_t **request)
{
    return post_alltoallv(in, in_counts, in_displs, out, out_counts, out_displs, type, comm, HLY_GO,
                          request);
}

int halay_alltoallv_init(const void *in, const size_t in_counts[], const size_t in_displs[],
                         void *out, const size_t out_counts[], const size_t out_displs[],
                         halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    return post_alltoallv(in, in_counts, in_displs, out, out_counts, out_displs, type, comm,
                          HLY_MAKE, request);
}

int halay_barrier(halay_comm_t *comm)
{
    return post_barrier(comm, HLY_WAIT, NULL);
}

int halay_ibarrier(halay_comm_t *comm, halay_request_t **request)
{
    return post_barrier(comm, HLY_GO, request);
}

int halay_barrier_init(halay_comm_t *comm, halay_request_t **request)
{
    return post_barrier(comm, HLY_MAKE, request);
}
