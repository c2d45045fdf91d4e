/* SPDX-License-Identifier: Apache-2.0 */
/*
 * persistent.c - requests that are made once and started many times. An init call is the
 * non-blocking call without its start: arguments are checked, the plan is made, operands get their
 * addresses. A start only takes the next place in the communicator's sequence. To the other ranks a
 * start is the call itself. What depends on an agreement of the ranks, as the plan in a GPU's
 * memory does, comes with the first start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "run/group.h"
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

/* Before a start in a device's memory. If that is gone the start fails on all ranks. HALAY_ENOMEM:
 * there is no memory even for that. */
static int prepare(halay_request_t *r)
{
    char text[224];
    const int rc = r->refused ? HALAY_OK : check_memory(r, text, sizeof(text));
    return rc ? hly_exec_refuse_as(r, rc, hly_exec_cause(rc), text) : HALAY_OK;
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
    if (r->call.desc.memory != HALAY_MEMORY_HOST && (rc = prepare(r)))
        return hly_request_refuse(r, rc, "request_start: no memory for a persistent request");
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
    hly_request_release(r);
    hly_unlock(ctx);
    return HALAY_OK;
}
