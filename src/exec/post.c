/* SPDX-License-Identifier: Apache-2.0 */
/*
 * post.c - requests: made and bound, kept, refused, given back. execute.c runs them.
 *
 * A request is IDLE until it goes, QUEUED until the window has room, then RUNNING, then COMPLETE. A
 * persistent or cached one is IDLE again after it was waited for. A failure makes it STOPPED: no
 * step is started any more. Then fault/ makes it FAILING, until what is under way has been drained
 * and the ranks agree; then it is COMPLETE. hly_exec_finish() is reached once.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/relaxed.h"
#include "select/select.h"
#include "wire/match.h"
#include "wire/news.h"
#include "wire/register.h"
#include "wire/watch.h"

/* ---------------------------------------------------------------- requests */

/* What it has of the device before is of no use. */
static void change_device(halay_request_t *r, struct hly_device *device)
{
    hly_scratch_free(r);
    if (r->device && r->layout.works)
        memset(r->layout.works, 0, (r->plan->nsteps + 1) * sizeof(*r->layout.works));
    r->device = device;
}

static halay_request_t *request_new(halay_comm_t *comm, struct hly_plan *plan, uint32_t memory)
{
    struct hly_device *device = hly_device_of(comm->context, memory);
    halay_request_t *r = plan ? plan->spare : NULL;
    if (r) {
        plan->spare = r->next;
    } else {
        r = hly_request_memory(comm->context);
        if (!r)
            return NULL;
        uint32_t n = plan ? plan->nsteps : 0;
        r->run.step = calloc(n + 1, sizeof(*r->run.step));
        r->run.state = calloc(n + HLY_STATES_LEAST, 1);
        r->layout.spans = calloc(plan ? plan->plan->noperands + 1 : 1, sizeof(*r->layout.spans));
        if (n <= HLY_FUSED_MAX)
            r->layout.works = calloc(n + 1, sizeof(*r->layout.works));
        if (!r->run.step || !r->run.state || !r->layout.spans) {
            hly_request_destroy(r);
            return NULL;
        }
        hly_link_init(&r->flying);
        hly_link_init(&r->link);
        hly_expected_forget(r);
    }
    r->comm = comm;
    r->next = NULL;
    r->plan = plan;
    if (r->device != device)
        change_device(r, device);
    r->state = HLY_IDLE;
    r->targets = 0;
    r->persistent = r->refused = r->cached = false;
    r->member_of = r->group = NULL;
    r->explained = NULL;
    r->result = HALAY_OK;
    hly_link_init(&r->posted);
    hly_link_append(&comm->context->posted, &r->posted);
    return r;
}

halay_request_t *hly_request_bare(halay_comm_t *comm)
{
    return request_new(comm, NULL, HALAY_MEMORY_HOST);
}

void hly_request_spare(halay_request_t *r)
{
    r->next = r->plan->spare;
    r->plan->spare = r;
}

void hly_request_release(halay_request_t *r)
{
    assert(r->state == HLY_COMPLETE && hly_link_empty(&r->flying) && !r->targets);
    hly_request_retire(r);
    free(r->failure);
    r->failure = NULL;
    if (r->cached) {
        r->state = HLY_IDLE;
        return;
    }
    hly_link_remove(&r->posted);
    hly_layout_forget(r);
    free(r->refusal);
    r->refusal = NULL;
    if (r->call.user)
        r->call.user->users--;
    if (r->plan)
        hly_request_spare(r);
    else
        hly_request_destroy(r);
}

void hly_request_drop(halay_request_t *r)
{
    hly_link_remove(&r->posted);
    hly_link_remove(&r->link);
    while (!hly_link_empty(&r->flying)) {
        struct hly_send *send = HLY_OF(r->flying.next, struct hly_send, link);
        hly_link_remove(&send->link);
        hly_link_append(&r->context->sends_flying, &send->link);
    }
    if (r->cached) { /* its entry goes with the plans */
        r->state = HLY_IDLE;
        return;
    }
    hly_request_destroy(r);
}

/* ---------------------------------------------------------------- making one */

/* Selects and admits the call's plan. An error makes the call fail before it is compared. */
static int find_plan(halay_comm_t *comm, const struct hly_call *call, struct hly_plan **plan,
                     char *reason, size_t reason_bytes)
{
    uint32_t planner;
    const struct hly_device *device = hly_device_of(comm->context, call->desc.memory);
    *plan = NULL;
    if (!device->touchable && comm->nranks > 1) {
        snprintf(reason, reason_bytes,
                 "its buffers lie in memory of the device %.32s, which messages cannot carry: copy "
                 "them to host memory first",
                 device->ops->name);
        return HALAY_EUNSUPPORTED;
    }
    int rc = hly_select(comm, call, &planner, reason, reason_bytes);
    return rc ? rc : hly_plan_admit(comm, planner, call, plan, reason, reason_bytes);
}

/* Is the request bound to such a call already? */
static bool repeats(const halay_request_t *r, const struct hly_call *call)
{
    const struct hly_call *was = &r->call;
    return r->bound && was->signature == call->signature && was->in == call->in &&
           was->out == call->out && was->local_in_place == call->local_in_place &&
           was->staged == call->staged && hly_desc_equal(&was->desc, &call->desc);
}

static int bind(halay_request_t *r, const struct hly_call *call)
{
    r->bound = false;
    hly_expected_forget(r);
    r->call = *call;
    memset(r->call.vector, 0, sizeof(r->call.vector)); /* the program may reuse its arrays */
    if (call->user)
        call->user->users++;
    hly_header_fill(&r->header, r->comm, HLY_EAGER, 0, 0, call);
    if (!r->plan)
        return HALAY_OK;
    int rc = hly_layout_tables(r, call);
    if (!rc)
        rc = hly_layout_bind(r);
    r->bound = !rc && !r->layout.tables && !call->user;
    return rc;
}

/* The request will fail as soon as the window lets it start. text NULL: with the verdict of its
 * broken communicator. */
static int refuse(halay_request_t *r, int code, enum hly_cause cause, const char *text)
{
    r->refusal = calloc(1, sizeof(*r->refusal));
    if (!r->refusal)
        return HALAY_ENOMEM;
    r->refusal->code = code;
    r->refusal->cause = cause;
    r->refusal->broken = !text;
    r->foreseen = !text;
    if (text)
        snprintf(r->refusal->text, sizeof(r->refusal->text), "%s", text);
    return HALAY_OK;
}

void hly_exec_refuse(halay_request_t *r)
{
    const halay_comm_t *comm = r->comm;
    const bool broken = comm->agreed ? hly_comm_is_over(comm, r->sequence) : comm->broken;
    if (!r->refused && (broken || comm->context->lost))
        refuse(r, HALAY_ETRANSPORT, HLY_CAUSE_LOCAL, broken ? NULL : "its transport has failed");
}

int hly_exec_make(halay_comm_t *comm, const struct hly_call *call, int argument_error,
                  const char *argument_text, halay_request_t **request)
{
    char reason[192] = "";
    struct hly_plan *plan = NULL;
    enum hly_cause cause = HLY_CAUSE_LOCAL;
    int rc = argument_error;
    if (comm->context->lost) {
        rc = HALAY_ETRANSPORT;
        snprintf(reason, sizeof(reason), "its transport has failed");
    } else if (rc) {
        cause = rc == HALAY_ESTATE ? HLY_CAUSE_STATE : HLY_CAUSE_ARGUMENT;
        snprintf(reason, sizeof(reason), "%s", argument_text);
    } else {
        rc = find_plan(comm, call, &plan, reason, sizeof(reason));
    }
    halay_request_t *r = request_new(comm, plan, call->desc.memory);
    if (!r)
        return HALAY_ENOMEM;
    int bound = HALAY_OK;
    if (rc || !repeats(r, call)) /* a spare one may be bound to this call already */
        bound = bind(r, call);
    if (!rc && (rc = bound))
        snprintf(reason, sizeof(reason), "no memory for a call of this size");
    r->refused = rc != HALAY_OK;
    if (rc && refuse(r, rc, cause, reason)) {
        r->state = HLY_COMPLETE;
        hly_request_release(r);
        return HALAY_ENOMEM;
    }
    *request = r;
    return HALAY_OK;
}

int hly_exec_prepare(halay_comm_t *comm, struct hly_call *call, int argument_error,
                     const char *argument_text, halay_request_t **request)
{
    if (comm->relaxed_hint && (argument_error || call->desc.collective == HALAY_BROADCAST))
        hly_relaxed_post(comm, call, argument_error);
    if (call->desc.flags & HLY_CALL_RELAXED && (*request = hly_cache_relaxed(comm, call)))
        return HALAY_OK;
    int rc = hly_exec_make(comm, call, argument_error, argument_text, request);
    if (!rc)
        hly_cache_keep(*request);
    return rc;
}
