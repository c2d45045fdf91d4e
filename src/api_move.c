/* SPDX-License-Identifier: Apache-2.0 */
/* api_move.c - the calls that move blocks, and the barrier. */
#include "api.h"

int halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm,
                     halay_request_t **request)
{
    struct hly_check c = {0, "", 0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    hly_check_type(&c, count, 1, type);
    hly_check_buffers(&c, HALAY_IN_PLACE, 0, buffer, count * halay_type_bytes(type));
    hly_check_root(&c, root, comm);
    struct hly_call call = {.out = buffer};
    call.brief.count = count;
    call.brief.type = (uint8_t)type;
    call.brief.root = (uint32_t)root;
    return hly_post(comm, HALAY_BROADCAST, &call, &c, request);
}

int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm,
                     halay_request_t **request)
{
    struct hly_check c = {0, "", 0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    hly_check_type(&c, count, n, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    hly_check_buffers(&c, in, bytes, out, bytes * n);
    struct hly_call call = {.in = in, .out = out};
    call.brief.count = count;
    call.brief.type = (uint8_t)type;
    return hly_post(comm, HALAY_ALLGATHER, &call, &c, request);
}

/* Elements from the start of out to the end of its last block. */
static size_t extent_of(struct hly_check *c, const size_t counts[], const size_t displs[], size_t n,
                        halay_type_t type)
{
    size_t extent = 0, next = 0;
    for (size_t i = 0; i < n && !c->code; i++) {
        size_t at = displs ? displs[i] : next;
        hly_check_type(c, counts[i], 1, type);
        hly_check_type(c, at, 1, type);
        next += counts[i];
        if (at + counts[i] > extent)
            extent = at + counts[i];
    }
    hly_check_type(c, extent, 1, type);
    return c->code ? 0 : extent;
}

int halay_iallgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                      halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0, "", 0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks, total = 0;
    struct hly_call call = {.in = in, .out = out, .vector[1] = {counts, displs}};
    call.brief.type = (uint8_t)type;
    call.brief.flags = HLY_BRIEF_VECTOR;
    hly_check_type(&c, 0, 1, type);
    if (!counts) {
        hly_wrong(&c, "counts is NULL");
    } else {
        size_t bytes = halay_type_bytes(type), extent = extent_of(&c, counts, displs, n, type);
        size_t own = c.code ? 0 : counts[comm->rank] * bytes;
        hly_check_buffers(&c, in, own, out, extent * bytes);
        for (size_t i = 0; i < n; i++)
            total += counts[i];
        call.signature = hly_hash(0, counts, n * sizeof(*counts));
    }
    call.brief.count = total;
    return hly_post(comm, HALAY_ALLGATHER, &call, &c, request);
}

int halay_ibarrier(halay_comm_t *comm, halay_request_t **request)
{
    struct hly_check c = {0, "", 0};
    if (!hly_usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = {0};
    return hly_post(comm, HALAY_BARRIER, &call, &c, request);
}

int halay_broadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_ibroadcast(buffer, count, type, root, comm, &request);
    return hly_complete(rc, request);
}

int halay_allgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_iallgather(in, out, count, type, comm, &request);
    return hly_complete(rc, request);
}

int halay_allgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                     halay_type_t type, halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_iallgatherv(in, out, counts, displs, type, comm, &request);
    return hly_complete(rc, request);
}

int halay_barrier(halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_ibarrier(comm, &request);
    return hly_complete(rc, request);
}
