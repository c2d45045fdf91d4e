/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.c - the public calls: each checks its arguments, fills one struct hly_call and posts it. A
 * wrong argument still takes its place in the communicator's sequence, so that it ends the call on
 * all ranks instead of leaving them waiting.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

struct check { /* of one call's arguments: the first thing found wrong */
    int code;
    char text[128];
};

static void wrong(struct check *c, const char *text)
{
    if (c->code)
        return;
    c->code = HALAY_EINVAL;
    snprintf(c->text, sizeof(c->text), "%s", text);
}

/* count * nblocks elements of this type must be addressable. */
static void check_type(struct check *c, size_t count, size_t nblocks, halay_type_t type)
{
    size_t bytes = halay_type_bytes(type);
    if (!bytes) {
        char text[64];
        snprintf(text, sizeof(text), "there is no type %d", (int)type);
        wrong(c, text);
    } else if (count > (size_t)PTRDIFF_MAX / bytes / nblocks) {
        wrong(c, "the count is larger than the address space (a negative number?)");
    }
}

static void check_op(struct check *c, halay_type_t type, halay_op_t op)
{
    char text[96];
    if ((unsigned)op >= HALAY_OP_COUNT) {
        snprintf(text, sizeof(text), "there is no operation %d", (int)op);
        wrong(c, text);
    } else if (!c->code && !halay_op_takes(op, type)) {
        snprintf(text, sizeof(text), "operation %s does not take type %s", halay_op_name(op),
                 halay_type_name(type));
        wrong(c, text);
    }
}

static void check_buffers(struct check *c, const void *in, size_t in_bytes, const void *out,
                          size_t out_bytes)
{
    if (c->code)
        return;
    if (out_bytes && !out)
        wrong(c, "the output buffer is NULL");
    if (in == HALAY_IN_PLACE)
        return;
    if (in_bytes && !in)
        wrong(c, "the input buffer is NULL");
    uintptr_t i = (uintptr_t)in, o = (uintptr_t)out;
    if (in_bytes && out_bytes && i < o + out_bytes && o < i + in_bytes)
        wrong(c, "input and output overlap; pass HALAY_IN_PLACE as input instead");
}

static uint64_t signature(const struct hly_call *call, uint64_t seed)
{
    uint64_t s = hly_hash(seed, &call->brief, sizeof(call->brief));
    return s ? s : 1;
}

/* The part that all calls share. */
static int post(halay_comm_t *comm, halay_collective_t collective, struct hly_call *call,
                struct check *c, halay_request_t **request)
{
    halay_context_t *ctx = comm->context;
    if (hly_forked(ctx))
        return HALAY_EFORKED;
    call->brief.collective = (uint8_t)collective;
    if (call->in == HALAY_IN_PLACE)
        call->brief.flags |= HLY_BRIEF_IN_PLACE;
    call->signature = signature(call, call->signature);
    hly_lock(ctx);
    if (comm->magic == HLY_COMM_FREED) {
        c->code = HALAY_ESTATE;
        snprintf(c->text, sizeof(c->text), "the communicator was freed on this rank");
    }
    int rc = hly_engine_post(comm, call, c->code, c->text, request);
    hly_unlock(ctx);
    return rc;
}

static bool usable(const halay_comm_t *comm, const void *request)
{
    return comm && request && (comm->magic == HLY_COMM_MAGIC || comm->magic == HLY_COMM_FREED);
}

int halay_iallreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                     halay_comm_t *comm, halay_request_t **request)
{
    struct check c = {0, ""};
    if (!usable(comm, request))
        return HALAY_EINVAL;
    check_type(&c, count, 1, type);
    check_op(&c, type, op);
    size_t bytes = count * halay_type_bytes(type);
    check_buffers(&c, in, bytes, out, bytes);
    struct hly_call call = {.in = in, .out = out};
    call.brief.count = count;
    call.brief.type = (uint8_t)type;
    call.brief.op = (uint8_t)op;
    return post(comm, HALAY_ALLREDUCE, &call, &c, request);
}

int halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm,
                     halay_request_t **request)
{
    struct check c = {0, ""};
    if (!usable(comm, request))
        return HALAY_EINVAL;
    check_type(&c, count, 1, type);
    check_buffers(&c, HALAY_IN_PLACE, 0, buffer, count * halay_type_bytes(type));
    if (root < 0 || root >= comm->nranks) {
        char text[96];
        snprintf(text, sizeof(text), "root %d is not a rank of a communicator of %d", root,
                 comm->nranks);
        wrong(&c, text);
    }
    struct hly_call call = {.out = buffer};
    call.brief.count = count;
    call.brief.type = (uint8_t)type;
    call.brief.root = (uint32_t)root;
    return post(comm, HALAY_BROADCAST, &call, &c, request);
}

int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm,
                     halay_request_t **request)
{
    struct check c = {0, ""};
    if (!usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    check_type(&c, count, n, type);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    check_buffers(&c, in, bytes, out, bytes * n);
    struct hly_call call = {.in = in, .out = out};
    call.brief.count = count;
    call.brief.type = (uint8_t)type;
    return post(comm, HALAY_ALLGATHER, &call, &c, request);
}

/* Elements from the start of out to the end of its last block. */
static size_t extent_of(struct check *c, const size_t counts[], const size_t displs[], size_t n,
                        halay_type_t type)
{
    size_t extent = 0, next = 0;
    for (size_t i = 0; i < n && !c->code; i++) {
        size_t at = displs ? displs[i] : next;
        check_type(c, counts[i], 1, type);
        check_type(c, at, 1, type);
        next += counts[i];
        if (at + counts[i] > extent)
            extent = at + counts[i];
    }
    check_type(c, extent, 1, type);
    return c->code ? 0 : extent;
}

int halay_iallgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                      halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    struct check c = {0, ""};
    if (!usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks, total = 0;
    struct hly_call call = {.in = in, .out = out, .counts = counts, .displs = displs};
    call.brief.type = (uint8_t)type;
    call.brief.flags = HLY_BRIEF_VECTOR;
    check_type(&c, 0, 1, type);
    if (!counts) {
        wrong(&c, "counts is NULL");
    } else {
        size_t bytes = halay_type_bytes(type), extent = extent_of(&c, counts, displs, n, type);
        size_t own = c.code ? 0 : counts[comm->rank] * bytes;
        check_buffers(&c, in, own, out, extent * bytes);
        for (size_t i = 0; i < n; i++)
            total += counts[i];
        call.signature = hly_hash(0, counts, n * sizeof(*counts));
    }
    call.brief.count = total;
    return post(comm, HALAY_ALLGATHER, &call, &c, request);
}

int halay_ireduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                          halay_comm_t *comm, halay_request_t **request)
{
    struct check c = {0, ""};
    if (!usable(comm, request))
        return HALAY_EINVAL;
    size_t n = (size_t)comm->nranks;
    check_type(&c, count, n, type);
    check_op(&c, type, op);
    size_t bytes = c.code ? 0 : count * halay_type_bytes(type);
    check_buffers(&c, in, bytes * n, out, bytes);
    struct hly_call call = {.in = in, .out = out};
    call.brief.count = count;
    call.brief.type = (uint8_t)type;
    call.brief.op = (uint8_t)op;
    return post(comm, HALAY_REDUCE_SCATTER, &call, &c, request);
}

int halay_ibarrier(halay_comm_t *comm, halay_request_t **request)
{
    struct check c = {0, ""};
    if (!usable(comm, request))
        return HALAY_EINVAL;
    struct hly_call call = {0};
    return post(comm, HALAY_BARRIER, &call, &c, request);
}

/* ---------------------------------------------------------------- waiting */

static int request_check(const halay_request_t *request)
{
    if (!request || request->magic != HLY_REQUEST_MAGIC)
        return HALAY_EINVAL;
    return hly_forked(request->context) ? HALAY_EFORKED : HALAY_OK;
}

int halay_request_wait(halay_request_t *request)
{
    int rc = request_check(request);
    if (rc)
        return rc;
    halay_context_t *ctx = request->context;
    hly_lock(ctx);
    hly_wait(request);
    rc = request->result;
    hly_request_release(request);
    hly_unlock(ctx);
    return rc;
}

int halay_request_test(halay_request_t *request)
{
    int rc = request_check(request);
    if (rc)
        return rc;
    halay_context_t *ctx = request->context;
    hly_lock(ctx);
    if (request->state != HLY_COMPLETE)
        hly_progress(ctx);
    rc = HALAY_INPROGRESS;
    if (request->state == HLY_COMPLETE) {
        rc = request->result;
        hly_request_release(request);
    }
    hly_unlock(ctx);
    return rc;
}

/* A blocking call is its non-blocking form and a wait. */
static int complete(int rc, halay_request_t *request)
{
    return rc ? rc : halay_request_wait(request);
}

int halay_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_iallreduce(in, out, count, type, op, comm, &request);
    return complete(rc, request);
}

int halay_broadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_ibroadcast(buffer, count, type, root, comm, &request);
    return complete(rc, request);
}

int halay_allgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_iallgather(in, out, count, type, comm, &request);
    return complete(rc, request);
}

int halay_allgatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                     halay_type_t type, halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_iallgatherv(in, out, counts, displs, type, comm, &request);
    return complete(rc, request);
}

int halay_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_ireduce_scatter(in, out, count, type, op, comm, &request);
    return complete(rc, request);
}

int halay_barrier(halay_comm_t *comm)
{
    halay_request_t *request = NULL;
    int rc = halay_ibarrier(comm, &request);
    return complete(rc, request);
}
