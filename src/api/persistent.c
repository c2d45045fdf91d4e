/* SPDX-License-Identifier: Apache-2.0 */
/*
 * persistent.c - requests that are made once and started many times. An init call is the
 * non-blocking call without its start: arguments are checked, the plan is made, operands get their
 * addresses. A start only takes the next place in the communicator's sequence. To the other ranks a
 * start is the call itself.
 */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "exec/exec.h"

int hly_persistent_make(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c,
                        halay_request_t **request)
{
    if (c->code == HALAY_ESTATE && comm->magic == HLY_COMM_FREED) {
        hly_log(comm->context, HLY_ERROR, "init of a persistent request: %s", c->text);
        return HALAY_ESTATE;
    }
    int rc = hly_exec_make(comm, call, c->code, c->text, request);
    if (!rc) {
        halay_request_t *r = *request;
        r->persistent = true;
        if (r->plan) /* without that memory it is only slower */
            r->layout.works = r->layout.works
                                  ? r->layout.works
                                  : calloc(r->plan->nsteps + 1, sizeof(*r->layout.works));
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

int halay_request_start(halay_request_t *handle)
{
    halay_request_t *r;
    int rc = lock_idle(handle, "request_start", &r);
    if (rc)
        return rc;
    hly_go(r);
    hly_unlock(r->context);
    return HALAY_OK;
}

int halay_request_free(halay_request_t *handle)
{
    halay_request_t *r;
    int rc = handle ? lock_idle(handle, "request_free", &r) : HALAY_OK;
    if (rc || !handle)
        return rc;
    halay_context_t *ctx = r->context;
    r->comm->npersistent--;
    r->persistent = false;
    r->state = HLY_COMPLETE;
    hly_release(r);
    hly_unlock(ctx);
    return HALAY_OK;
}
