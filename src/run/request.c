/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - starts a request, finds it by its handle, ends it; for calls of every kind. */
#include "exec/exec.h"
#include "fault/fault.h"
#include "run/group.h"
#include "run/run.h"
#include "wire/news.h"

static void trace(const halay_request_t *r)
{
    char text[96];
    hly_desc_text(&r->call.desc, text, sizeof(text));
    hly_log(r->context, HLY_TRACE, "communicator %016llx, call %u: %s",
            (unsigned long long)r->comm->id, r->sequence, text);
}

void hly_go(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    uint64_t exact_ns = 0;
    if (ctx->settings.explain && r->plan && !r->refused)
        exact_ns = hly_explain_call(r);
    hly_exec_go(r);
    if (exact_ns)
        r->started_ns = exact_ns;
    if (ctx->settings.level >= HLY_TRACE)
        trace(r);
    if (hly_news_any(ctx))
        hly_hand_on(ctx);
}

int hly_end(halay_request_t *request)
{
    const int rc = request->result;
    if (rc)
        hly_fault_read(request);
    if (request->persistent) {
        request->state = HLY_IDLE;
        return rc;
    }
    if (request->group.stands_for)
        hly_group_release(request);
    hly_request_release(request);
    return rc;
}

int hly_request_lock(halay_request_t *handle, halay_request_t **request)
{
    int rc = hly_request_of(handle, request);
    if (rc)
        return rc;
    halay_request_t *r = *request;
    hly_lock(r->context);
    if (hly_request_is_current(r, handle))
        return HALAY_OK;
    hly_comm_refuse(r->context->world, HALAY_ESTATE,
                    "wait or test of a request that had ended already");
    hly_unlock(r->context);
    return HALAY_ESTATE;
}

int hly_comm_refuse(halay_comm_t *comm, int code, const char *text)
{
    hly_log(comm->context, HLY_ERROR, "%s", text);
    return hly_fault_alone(comm, code, text);
}

int hly_comm_reject(halay_comm_t *comm, int code, const char *text)
{
    const int rc = comm ? hly_context_enter(comm->context) : HALAY_EINVAL;
    if (rc)
        return rc;
    hly_comm_refuse(comm, code, text);
    hly_unlock(comm->context);
    return code;
}

int hly_context_reject(halay_context_t *context, int code, const char *text)
{
    const bool is = context && context->magic == HLY_CONTEXT_MAGIC;
    return hly_comm_reject(is ? context->world : NULL, code, text);
}

int hly_comm_enter(const halay_comm_t *handle, halay_comm_t **out)
{
    halay_comm_t *comm = *out = hly_comm_of(handle);
    if (comm && comm->freed)
        return hly_comm_reject(comm, HALAY_ESTATE, "the communicator was freed on this rank");
    return comm ? hly_context_enter(comm->context) : HALAY_EINVAL;
}

int hly_request_refuse(const halay_request_t *r, int rc, const char *what)
{
    hly_log(r->context, HLY_ERROR, "%s", what);
    hly_fault_alone(hly_comm_known(r->comm), rc, what);
    hly_unlock(r->context);
    return rc;
}
