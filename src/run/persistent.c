/* SPDX-License-Identifier: Apache-2.0 */
/*
 * persistent.c - requests that are made once and started many times. An init call is the
 * non-blocking call without its start: arguments are checked, the plan is made, operands get their
 * addresses. A start only takes the next place in the communicator's sequence. To the other ranks a
 * start is the call itself. So a request in a GPU's memory begins to use NCCL at the same start at
 * which a call would. From then on another request, with another plan, runs instead of it.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "run/group.h"
#include "run/group_library.h"
#include "run/run.h"
#include "wire/register.h"

static void settle(halay_request_t *r)
{
    r->persistent = true;
    if (r->plan && !r->layout.works) /* if this allocation fails the request is only slower */
        r->layout.works = calloc(r->plan->nsteps + 1, sizeof(*r->layout.works));
}

/* ---------------------------------------------------------------- its memory */

static int look(const halay_request_t *r, struct hly_memory_seen *seen, char *text, size_t bytes)
{
    const void *const at[2] = {r->call.in, r->call.out};
    return hly_memory_look(r->context, at, r->kept.bytes, seen, text, bytes);
}

/* Keeps what is known of the buffers' memory, for check_memory() at the next start. */
static void keep(halay_request_t *r, const size_t bytes[2])
{
    struct hly_memory_seen seen;
    memcpy(r->kept.bytes, bytes, sizeof(r->kept.bytes));
    if (!look(r, &seen, NULL, 0))
        memcpy(r->kept.id, seen.id, sizeof(r->kept.id));
}

/* Checks that a device's memory was not freed since the last start. Host memory is not checked. */
static int check_memory(const halay_request_t *r, char *text, size_t bytes)
{
    struct hly_memory_seen seen;
    const int rc = look(r, &seen, text, bytes);
    if (rc)
        return rc;
    const bool other = seen.kind != r->call.desc.memory;
    if (!other && !memcmp(seen.id, r->kept.id, sizeof(seen.id)))
        return HALAY_OK;
    snprintf(text, bytes,
             "its memory was freed since the request was made, and %s lies there now: free the "
             "request before its memory",
             other ? "memory of another kind" : "another allocation");
    return HALAY_EINVAL;
}

/* ---------------------------------------------------------------- made */

int hly_persistent_make(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c,
                        halay_request_t **request)
{
    if (c->code == HALAY_ESTATE && comm->freed) {
        return hly_comm_refuse(comm, HALAY_ESTATE, c->text);
    }
    int rc = hly_exec_make(comm, call, c->code, c->text, request);
    if (!rc) {
        settle(*request);
        comm->npersistent++;
    }
    if (!rc && call->desc.memory != HALAY_MEMORY_HOST)
        keep(*request, c->bytes);
    return rc;
}

/* ---------------------------------------------------------------- started */

/* As hly_request_lock(), for a persistent request that is not started. */
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

/* Makes the request that runs in place of this one, once calls use NCCL. */
static int make_instead(halay_request_t **request)
{
    halay_request_t *r = *request, *instead;
    struct hly_call call = r->call;
    call.grouped = false;
    hly_sign_grouped(&call);
    const int rc = hly_exec_make(r->comm, &call, HALAY_OK, "", &instead);
    if (rc)
        return rc;
    settle(instead);
    instead->kept = r->kept;
    r->instead = *request = instead;
    hly_scratch_free(r);
    r->bound = r->layout.laid_out = false;
    return HALAY_OK;
}

/*
 * Before a start in a device's memory: gives the request that runs. If that request cannot be made,
 * the start fails on all ranks. Returns an error if there is no memory even for that.
 */
static int prepare(halay_request_t **request)
{
    struct hly_check c = {0};
    halay_request_t *r = *request;
    struct hly_call call = r->call;
    if (r->refused)
        return HALAY_OK;
    call.awaited = 0;
    c.code = check_memory(r, c.text, sizeof(c.text));
    if (!c.code && !call.grouped && call.desc.memory == HALAY_MEMORY_CUDA)
        hly_nccl_turn(r->comm, &call, &c);
    if (c.code) {
        r->call.awaited = call.awaited;
        return hly_exec_refuse_as(r, c.code, hly_exec_cause(&call, c.code), c.text);
    }
    return call.grouped && !r->call.grouped ? make_instead(request) : HALAY_OK;
}

int halay_request_start(halay_request_t *handle)
{
    halay_request_t *r;
    int rc = lock_idle(handle, "request_start", &r);
    if (rc)
        return rc;
    if (hly_comm_known(r->comm)->group_open) {
        char text[192];
        hly_group_refuse(hly_comm_known(r->comm), false, text, sizeof(text));
        return hly_request_refuse(r, HALAY_ESTATE, text);
    }
    if (r->call.desc.memory != HALAY_MEMORY_HOST && (rc = prepare(&r)))
        return hly_request_refuse(r, rc, "request_start: no memory for a persistent request");
    hly_go(r);
    hly_unlock(r->context);
    return HALAY_OK;
}

static void give_back(halay_request_t *r)
{
    r->persistent = false;
    r->state = HLY_COMPLETE;
    hly_request_release(r);
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
