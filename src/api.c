/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.c - checks of arguments, posting, waiting. A wrong argument still takes its place in the
 * communicator's sequence, so that it ends the call on all ranks instead of leaving them waiting.
 */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "straight.h"

bool hly_check_begin(struct hly_check *c, struct hly_call *call, halay_collective_t collective,
                     const halay_comm_t *comm)
{
    const struct hly_checked *was = &comm->checked;
    c->code = HALAY_OK;
    c->op = HALAY_SUM;
    c->text[0] = 0;
    call->brief.collective = (uint8_t)collective;
    if (call->in == HALAY_IN_PLACE)
        call->brief.flags |= HLY_BRIEF_IN_PLACE;
    c->again = was->in == call->in && was->out == call->out && was->signature &&
               hly_brief_equal(&was->brief, &call->brief);
    return !c->again;
}

bool hly_recalls(halay_comm_t *comm, halay_collective_t collective, const void *in, const void *out,
                 size_t count, halay_type_t type, halay_op_t op, int root)
{
    struct hly_habit *h = NULL;
    for (int i = 0; i < HLY_HABITS && !h; i++)
        if (hly_is_checked(&comm->habits[i].checked, collective, in, out, count, type, op, root))
            h = &comm->habits[i];
    if (!h || hly_forked(comm->context))
        return false;
    hly_lock(comm->context);
    const struct hly_habit last = {comm->checked, comm->last_brief, comm->last_plan,
                                   comm->last_series};
    comm->checked = h->checked;
    comm->last_brief = h->brief;
    comm->last_plan = h->plan;
    comm->last_series = h->series;
    *h = last;
    hly_unlock(comm->context);
    return true;
}

/* What ranks compare; call->signature is that of what is not in the brief, or 0. */
static void sign(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c)
{
    struct hly_checked *was = &comm->checked;
    bool plain = !call->signature && !c->code && !call->user;
    if (c->again || (plain && was->signature && hly_brief_equal(&was->brief, &call->brief))) {
        call->signature = was->signature;
    } else {
        uint64_t s = hly_hash(call->signature, &call->brief, sizeof(call->brief));
        call->signature = s ? s : 1;
    }
    if (!plain || c->again)
        return;
    if (was->signature)
        comm->habits[comm->habit++ % HLY_HABITS] =
            (struct hly_habit){*was, comm->last_brief, comm->last_plan, comm->last_series};
    *was = (struct hly_checked){call->brief, call->in, call->out, call->signature, ++comm->checks};
}

void hly_wrong(struct hly_check *c, const char *text)
{
    if (c->code)
        return;
    c->code = HALAY_EINVAL;
    snprintf(c->text, sizeof(c->text), "%s", text);
}

void hly_check_type(struct hly_check *c, size_t count, size_t nblocks, halay_type_t type)
{
    size_t bytes = halay_type_bytes(type);
    if (!bytes) {
        char text[64];
        snprintf(text, sizeof(text), "there is no type %d", (int)type);
        hly_wrong(c, text);
    } else if (count > (size_t)PTRDIFF_MAX / bytes / nblocks) {
        hly_wrong(c, "the count is larger than the address space (a negative number?)");
    }
}

void hly_check_op(struct hly_check *c, halay_type_t type, halay_op_t op)
{
    char text[96];
    c->op = op;
    if (op >= HALAY_OP_USER && op <= HALAY_OP_USER_LAST)
        return; /* hly_op_resolve() */
    if ((unsigned)op >= HALAY_OP_COUNT) {
        snprintf(text, sizeof(text), "there is no operation %d", (int)op);
        hly_wrong(c, text);
    } else if (!c->code && !halay_op_takes(op, type)) {
        snprintf(text, sizeof(text), "operation %s does not take type %s", halay_op_name(op),
                 halay_type_name(type));
        hly_wrong(c, text);
    }
}

void hly_check_root(struct hly_check *c, int root, const halay_comm_t *comm)
{
    char text[96];
    if (root >= 0 && root < comm->nranks)
        return;
    snprintf(text, sizeof(text), "root %d is not a rank of a communicator of %d", root,
             comm->nranks);
    hly_wrong(c, text);
}

void hly_check_buffers(struct hly_check *c, const void *in, size_t in_bytes, const void *out,
                       size_t out_bytes)
{
    if (c->code)
        return;
    if (out_bytes && !out)
        hly_wrong(c, "the output buffer is NULL");
    if (in == HALAY_IN_PLACE)
        return;
    if (in_bytes && !in)
        hly_wrong(c, "the input buffer is NULL");
    uintptr_t i = (uintptr_t)in, o = (uintptr_t)out;
    if (in_bytes && out_bytes && i < o + out_bytes && o < i + in_bytes)
        hly_wrong(c, "input and output overlap; pass HALAY_IN_PLACE as input instead");
}

void hly_check_gathering(struct hly_check *c, struct hly_call *call, size_t in_bytes,
                         size_t out_bytes, int root, const halay_comm_t *comm)
{
    hly_check_root(c, root, comm);
    call->brief.root = (uint32_t)root;
    if (root == comm->rank) {
        hly_check_buffers(c, call->in, in_bytes, call->out, out_bytes);
        call->local_in_place = call->in == HALAY_IN_PLACE;
    } else {
        if (call->in == HALAY_IN_PLACE)
            hly_wrong(c, "HALAY_IN_PLACE is for the root alone");
        hly_check_buffers(c, call->in, in_bytes, NULL, 0);
        call->out = NULL;
    }
    if (call->in == HALAY_IN_PLACE)
        call->in = NULL;
}

/* Elements from the start of the buffer to the end of its last block. */
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

size_t hly_check_counts(struct hly_check *c, struct hly_call *call, uint32_t buffer,
                        const size_t counts[], const size_t displs[], halay_type_t type,
                        const halay_comm_t *comm)
{
    size_t n = (size_t)comm->nranks, total = 0;
    call->brief.flags |= HLY_BRIEF_VECTOR;
    call->vector[buffer] = (struct hly_vector){counts, displs};
    hly_check_type(c, 0, 1, type);
    if (!counts) {
        hly_wrong(c, "counts is NULL");
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        total += counts[i];
    call->brief.count = total;
    call->signature = hly_hash(0, counts, n * sizeof(*counts));
    return extent_of(c, counts, displs, n, type) * halay_type_bytes(type);
}

/* Reads the result of a complete one. */
static int end(halay_request_t *request)
{
    int rc = request->result;
    if (request->persistent)
        request->state = HLY_IDLE;
    else
        hly_request_release(request);
    return rc;
}

static int wait_for(halay_request_t *request)
{
    hly_wait(request);
    return end(request);
}

/* A persistent request has its own start, and the two ranks of a message are not all. */
static bool is_groupable(const halay_comm_t *comm, const struct hly_call *call)
{
    return !comm->parent && !comm->persists && !(call->brief.flags & HLY_BRIEF_LIST);
}

bool hly_post_again(halay_comm_t *comm, int *result)
{
    halay_context_t *ctx = comm->context;
    halay_request_t *r;
    if (hly_forked(ctx))
        return false;
    hly_lock(ctx);
    bool posted = hly_straight_try(comm, &r);
    if (posted)
        *result = r ? wait_for(r) : HALAY_OK;
    hly_unlock(ctx);
    return posted;
}

int hly_post(halay_comm_t *comm, halay_collective_t collective, struct hly_call *call,
             struct hly_check *c, halay_request_t **request)
{
    halay_context_t *ctx = comm->context;
    if (hly_forked(ctx))
        return HALAY_EFORKED;
    call->brief.collective = (uint8_t)collective;
    if (call->in == HALAY_IN_PLACE)
        call->brief.flags |= HLY_BRIEF_IN_PLACE;
    halay_request_t *r;
    hly_lock(ctx);
    if (!c->again)
        hly_op_resolve(comm, call, c);
    sign(comm, call, c);
    if (comm->magic == HLY_COMM_FREED) {
        c->code = HALAY_ESTATE;
        snprintf(c->text, sizeof(c->text), "the communicator was freed on this rank");
    }
    halay_comm_t *named = comm->parent ? comm->parent : comm;
    int rc;
    if (named->bundle)
        rc = hly_group_add(named, call, c, is_groupable(comm, call), &r);
    else if (named->persists)
        rc = hly_persistent_make(comm, call, c, &r);
    else
        rc = hly_engine_post(comm, call, c->code, c->text, &r);
    if (!rc && request != &named->blocking) {
        *request = r ? hly_request_handle(r) : NULL;
    } else if (!rc && r) {
        rc = wait_for(r);
    }
    hly_unlock(ctx);
    return rc;
}

/* ---------------------------------------------------------------- waiting */

static int not_started(halay_context_t *context)
{
    hly_log(context, HLY_ERROR, "a persistent request was waited for that was not started");
    hly_unlock(context);
    return HALAY_ESTATE;
}

int halay_request_wait(halay_request_t *handle)
{
    halay_request_t *request;
    int rc = hly_request_lock(handle, &request);
    if (rc)
        return rc;
    halay_context_t *ctx = request->context;
    if (request->state == HLY_IDLE)
        return not_started(ctx);
    rc = wait_for(request);
    hly_unlock(ctx);
    return rc;
}

int halay_request_test(halay_request_t *handle)
{
    halay_request_t *request;
    int rc = hly_request_lock(handle, &request);
    if (rc)
        return rc;
    halay_context_t *ctx = request->context;
    if (request->state == HLY_IDLE)
        return not_started(ctx);
    if (request->state != HLY_COMPLETE)
        hly_progress(ctx);
    rc = HALAY_INPROGRESS;
    if (request->state == HLY_COMPLETE)
        rc = end(request);
    hly_unlock(ctx);
    return rc;
}
