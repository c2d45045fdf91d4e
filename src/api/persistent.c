/* SPDX-License-Identifier: Apache-2.0 */
/*
 * persistent.c - requests that are made once and started many times. An init call is the
 * non-blocking call without its start: arguments are checked, the plan is made, operands get their
 * addresses. A start only takes the next place in the communicator's sequence. To the other ranks a
 * start is the call itself. So a request in a GPU's memory uses NCCL from the same start on as a
 * call in its place would: another request, with another plan, runs instead of it then.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/agree_nccl.h"
#include "api/api.h"
#include "exec/exec.h"
#include "wire/register.h"

static void settle(halay_request_t *r)
{
    r->persistent = true;
    if (r->plan && !r->layout.works) /* without that memory it is only slower */
        r->layout.works = calloc(r->plan->nsteps + 1, sizeof(*r->layout.works));
}

int hly_persistent_make(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c,
                        halay_request_t **request)
{
    if (c->code == HALAY_ESTATE && comm->freed) {
        hly_log(comm->context, HLY_ERROR, "init of a persistent request: %s", c->text);
        return HALAY_ESTATE;
    }
    int rc = hly_exec_make(comm, call, c->code, c->text, request);
    if (!rc) {
        settle(*request);
        comm->npersistent++;
    }
    return rc;
}

/* hly_request_lock() for one that is persistent and not started. */
static int lock_idle(halay_request_t *handle, const char *call, halay_request_t **request)
{
    int rc = hly_request_lock(handle, request);
    if (rc || ((*request)->persistent && (*request)->state == HLY_IDLE))
        return rc;
    const bool persistent = (*request)->persistent;
    char text[96];
    snprintf(text, sizeof(text), "%s: the request %s", call,
             persistent ? "was started, and not waited for" : "is not persistent");
    return hly_request_refuse(*request, persistent ? HALAY_ESTATE : HALAY_EINVAL, text);
}

/* Before a start: the request that runs. What cannot be made fails the start on all ranks. */
static halay_request_t *turn(halay_request_t *r)
{
    struct hly_check c = {0};
    struct hly_call call = r->call;
    halay_request_t *instead;
    int rc = HALAY_OK;
    if (r->refused || call.grouped || call.desc.memory != HALAY_MEMORY_CUDA)
        return r;
    call.grouped = false;
    hly_nccl_turn(r->comm, &call, &c);
    if (c.code) {
        r->call.awaited = call.awaited;
        hly_exec_refuse_as(r, c.code, hly_exec_cause(&call, c.code), c.text);
        return r;
    }
    if (!call.grouped)
        return r;
    call.grouped = false;
    hly_sign_grouped(&call);
    rc = hly_exec_make(r->comm, &call, HALAY_OK, "", &instead);
    if (rc) {
        hly_exec_refuse_as(r, rc, HLY_CAUSE_LOCAL, "no memory for a persistent request");
        return r;
    }
    settle(instead);
    r->instead = instead;
    hly_scratch_free(r);
    r->bound = r->layout.laid_out = false;
    return instead;
}

int halay_request_start(halay_request_t *handle)
{
    halay_request_t *r;
    int rc = lock_idle(handle, "request_start", &r);
    if (rc)
        return rc;
    hly_go(turn(r));
    hly_unlock(r->context);
    return HALAY_OK;
}

static void give_back(halay_request_t *r)
{
    r->persistent = false;
    r->state = HLY_COMPLETE;
    hly_release(r);
}

int halay_request_free(halay_request_t *handle)
{
    halay_request_t *r, *runs;
    int rc = handle ? lock_idle(handle, "request_free", &runs) : HALAY_OK;
    if (rc || !handle)
        return rc;
    halay_context_t *ctx = runs->context;
    rc = hly_request_of(handle, &r);
    assert(!rc);
    r->comm->npersistent--;
    if (r != runs)
        give_back(runs);
    r->instead = NULL;
    give_back(r);
    hly_unlock(ctx);
    return HALAY_OK;
}
