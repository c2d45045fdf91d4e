/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - posting a call, and waiting for it. */
#include <stdio.h>

#include "exec/exec.h"
#include "exec/work.h"
#include "fault/fault.h"
#include "run/group.h"
#include "run/group_library.h"
#include "run/pair.h"
#include "run/returned.h"
#include "run/run.h"

static inline int end(halay_request_t *request)
{
    if (request->result || request->given || !request->cached)
        return hly_end(request);
    request->state = HLY_IDLE;
    return HALAY_OK;
}

static int wait_for(halay_request_t *request)
{
    hly_wait(request);
    return end(request);
}

/* ---------------------------------------------------------------- posting */

/* Send and receive cannot be in a group, since not all ranks make them. */
static bool is_groupable(const halay_comm_t *comm, const struct hly_call *call, enum hly_post how)
{
    return !comm->parent && how != HLY_MAKE && !(call->desc.flags & HLY_CALL_LIST);
}

/* The call could not get memory. Only this rank learns of this error. */
static void not_begun(halay_comm_t *comm, int rc)
{
    char text[160];
    snprintf(text, sizeof(text), "a call could not be begun: %s", halay_strerror(rc));
    hly_comm_refuse(comm, rc, text);
}

/* Posts a call that is not in the call cache. *request becomes NULL if the call was wrong and
 * belongs to a group; then the group will fail. */
static int post_new(halay_comm_t *comm, struct hly_call *call, struct hly_check *c,
                    enum hly_post how, halay_request_t **request)
{
    halay_comm_t *named = hly_comm_known(comm);
    hly_op_resolve(comm, call, c);
    hly_sign(call, comm);
    hly_check_freed(c, comm);
    if (named->group_open)
        return hly_group_add(named, call, c, is_groupable(comm, call, how), request);
    if (how == HLY_MAKE)
        return hly_persistent_make(comm, call, c, request);
    int rc = hly_exec_prepare(comm, call, c->code, c->text, request);
    if (!rc)
        hly_go(*request);
    return rc;
}

/* Checks the stream that calls in this kind of memory wait for. HALAY_EUNSUPPORTED: the stream is
 * being captured into a graph. Other errors: the stream is unusable. */
static int look_at_stream(const halay_comm_t *named, uint32_t memory)
{
    const struct hly_device *device = named->follows;
    return device && device->memory == memory
               ? device->ops->follow(device->handle, &named->stream, 0)
               : HALAY_OK;
}

static void capture(const halay_comm_t *named, struct hly_call *call, struct hly_check *c,
                    enum hly_post how)
{
    const struct hly_device *device = named->follows;
    if (how == HLY_MAKE || named->group_open || c->code)
        return;
    const int rc = look_at_stream(named, call->desc.memory);
    call->captured = rc == HALAY_EUNSUPPORTED;
    if (rc >= 0 || (call->captured && how == HLY_WAIT))
        return;
    c->code = rc;
    if (call->captured)
        snprintf(c->text, sizeof(c->text),
                 "its stream is being captured into a graph, where only blocking calls have a "
                 "place: make that one");
    else
        snprintf(c->text, sizeof(c->text),
                 "the device %.32s could not follow the program's stream: %.140s",
                 device->ops->name, device->ops->why(device->handle));
}

int hly_post(halay_comm_t *comm, struct hly_call *call, struct hly_check *c, enum hly_post how,
             halay_request_t **request)
{
    halay_context_t *ctx = comm->context;
    if (hly_forked(ctx))
        return HALAY_EFORKED;
    halay_comm_t *named = hly_comm_known(comm);
    hly_lock(ctx);
    halay_request_t *r;
    if (comm->broken.is)
        hly_progress(ctx); /* its calls end at once: this alone answers peers */
    hly_describe(call, c, comm);
    if (call->desc.memory == HALAY_MEMORY_CUDA)
        hly_nccl_ask(comm, call, c);
    if (named->follows)
        capture(named, call, c, how);
    const bool returns = how == HLY_WAIT && !named->group_open && !call->captured &&
                         hly_comm_returns(named, call->desc.memory);
    if (returns)
        hly_returned_room(comm);
    int rc = post_new(comm, call, c, how, &r);
    if (!rc && how != HLY_WAIT)
        *request = r ? hly_request_handle(r) : NULL;
    else if (!rc && r)
        rc = returns ? hly_returned_add(r) : wait_for(r);
    else if (rc && c->text[0])
        hly_fault_alone(named, rc, c->text);
    else if (rc)
        not_begun(named, rc);
    if (!rc && call->captured)
        hly_returned_watch(ctx);
    if (rc) /* there is no call that they precede */
        hly_work_unprecede(comm);
    hly_unlock(ctx);
    return rc;
}

/* True if the buffers are still of the same kind of memory and the stream is not being captured. */
static bool is_same_memory(const halay_request_t *r)
{
    const void *const at[2] = {r->call.in, r->call.out};
    struct hly_memory_seen seen;
    return !hly_memory_look(r->context, at, (const size_t[2]){0, 0}, &seen, NULL, 0) &&
           seen.kind == r->call.desc.memory &&
           look_at_stream(hly_comm_known(r->comm), seen.kind) >= 0;
}

/* The cached request is under way, or does not fit the call: makes a new one. */
__attribute__((noinline)) static int post_again(const halay_request_t *r, halay_request_t **request)
{
    struct hly_check c = {0};
    struct hly_call call = {.desc = r->call.desc, .in = r->call.in, .out = r->call.out};
    return hly_post(r->comm, &call, &c, request ? HLY_GO : HLY_WAIT, request);
}

/* Gives the request for the next broadcast in a series of equal ones, most of which are relaxed. */
static int turn_of(halay_comm_t *comm, halay_request_t **r)
{
    struct hly_call call = (*r)->call;
    const int rc = hly_exec_prepare(comm, &call, HALAY_OK, "", r);
    if (rc)
        not_begun(comm, rc);
    return rc;
}

int hly_repeat(halay_request_t *r, halay_request_t **request)
{
    halay_comm_t *comm = r->comm;
    halay_context_t *ctx = comm->context;
    if (hly_forked(ctx) || comm->group_open)
        return post_again(r, request);
    hly_lock(ctx);
    if (r->state != HLY_IDLE || comm->broken.is || (ctx->ndevices > 1 && !is_same_memory(r))) {
        hly_unlock(ctx);
        return post_again(r, request);
    }
    int rc = HALAY_OK;
    if (comm->relaxed_hint && r->call.desc.collective == HALAY_BROADCAST)
        rc = turn_of(comm, &r);
    if (!rc) {
        ctx->counters.repeated += r->cached;
        hly_go(r);
        if (request)
            *request = hly_request_handle(r);
        else
            rc = wait_for(r);
    }
    hly_unlock(ctx);
    return rc;
}

/* ---------------------------------------------------------------- waiting */

/* As hly_request_lock(), for a request that was started. */
static int lock_started(halay_request_t *handle, halay_request_t **request)
{
    int rc = hly_request_lock(handle, request);
    if (rc || (*request)->state != HLY_IDLE)
        return rc;
    return hly_request_refuse(*request, HALAY_ESTATE,
                              "wait or test of a persistent request that was not started");
}

int halay_request_wait(halay_request_t *handle)
{
    halay_request_t *request;
    int rc = lock_started(handle, &request);
    if (rc)
        return rc;
    halay_context_t *ctx = request->context;
    ctx->now_ns = hly_about_now_ns(); /* for exec/listen.h: the call was made earlier */
    hly_message_await(request);
    rc = wait_for(request);
    hly_unlock(ctx);
    return rc;
}

int halay_request_test(halay_request_t *handle)
{
    halay_request_t *request;
    int rc = lock_started(handle, &request);
    if (rc)
        return rc;
    halay_context_t *ctx = request->context;
    if (request->state != HLY_COMPLETE)
        hly_progress(ctx);
    rc = request->state == HLY_COMPLETE ? end(request) : HALAY_INPROGRESS;
    hly_unlock(ctx);
    return rc;
}
