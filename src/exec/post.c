/* SPDX-License-Identifier: Apache-2.0 */
/*
 * post.c - makes requests, binds, keeps, refuses and releases them. execute.c runs them.
 *
 * A request is IDLE until it goes, QUEUED until the window has room, then RUNNING, then COMPLETE.
 * One whose plan depends on an agreement of the ranks is UNPLANNED before it is RUNNING. A
 * persistent or cached one is IDLE again after its wait. A failure makes it STOPPED: it starts no
 * further step. Then fault/ makes it FAILING, until its transfers have ended and the ranks agree on
 * a verdict; then it is COMPLETE. hly_exec_finish() runs once for each call.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/relaxed.h"
#include "exec/staging.h"
#include "select/select.h"
#include "wire/match.h"
#include "wire/news.h"
#include "wire/register.h"
#include "wire/watch.h"

/* ---------------------------------------------------------------- requests */

/* Drops scratch and bound work of the devices that the request used before. */
static int change_devices(halay_request_t *r, struct hly_device *device, struct hly_device *from)
{
    hly_scratch_free(r);
    if (r->device && r->layout.works)
        memset(r->layout.works, 0, (r->plan->nsteps + 1) * sizeof(*r->layout.works));
    r->device = device;
    r->layout.scratch_from = from;
    r->layout.laid_out = r->bound = false;
    return hly_staging_set(r, device == from ? NULL : from);
}

/* Makes room for the steps of this plan. */
static int make_room(halay_request_t *r, const struct hly_plan *plan)
{
    const uint32_t n = plan->nsteps;
    r->run.step = calloc(n + 1, sizeof(*r->run.step));
    r->run.state = calloc(n + HLY_STATES_LEAST, 1);
    r->layout.spans = calloc(plan->plan->noperands + 1, sizeof(*r->layout.spans));
    if (n <= HLY_FUSED_MAX || r->persistent) /* without memory it is only slower */
        r->layout.works = calloc(n + 1, sizeof(*r->layout.works));
    if (r->run.step && r->run.state && r->layout.spans)
        return HALAY_OK;
    free(r->run.step);
    free(r->run.state);
    free(r->layout.spans);
    free(r->layout.works);
    r->run.step = NULL;
    r->run.state = NULL;
    r->layout.spans = NULL;
    r->layout.works = NULL;
    return HALAY_ENOMEM;
}

/* The request gets this plan, and the device that works for it. NULL: it has none, or not yet. */
static int set_plan(halay_request_t *r, struct hly_plan *plan, const struct hly_call *call)
{
    struct hly_device *from =
        hly_device_of(r->context, call ? call->desc.memory : HALAY_MEMORY_HOST);
    r->direct = plan && hly_is_direct(r->comm, plan->plan, call, from);
    struct hly_device *device = plan && !r->direct && hly_is_staged(r->comm, call, plan, from)
                                    ? &r->context->devices[0]
                                    : from;
    if (plan && !r->run.step && make_room(r, plan))
        return HALAY_ENOMEM;
    r->plan = plan;
    r->plan_hash = plan ? plan->hash : 0;
    r->layout.stages = plan && plan->stages;
    return r->device != device || r->layout.scratch_from != from ? change_devices(r, device, from)
                                                                 : HALAY_OK;
}

/* call NULL: the request is that of a group of calls. */
static halay_request_t *request_new(halay_comm_t *comm, struct hly_plan *plan,
                                    const struct hly_call *call)
{
    halay_request_t *r = plan ? plan->spare : NULL;
    if (r) {
        plan->spare = r->next;
    } else {
        r = hly_request_memory(comm->context);
        if (!r)
            return NULL;
        hly_link_init(&r->flying);
        hly_link_init(&r->link);
        hly_expected_forget(r);
    }
    r->comm = comm;
    r->next = NULL;
    r->persistent = r->refused = r->cached = r->reports = false;
    if (set_plan(r, plan, call)) {
        hly_request_destroy(r);
        return NULL;
    }
    r->state = HLY_IDLE;
    r->targets = 0;
    r->group = (struct hly_in_group){NULL};
    r->explained = NULL;
    r->result = HALAY_OK;
    hly_link_init(&r->posted);
    hly_link_append(&comm->context->posted, &r->posted);
    return r;
}

halay_request_t *hly_request_bare(halay_comm_t *comm)
{
    return request_new(comm, NULL, NULL);
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
    if (r->cached) { /* its cache entry ends with the plans */
        r->state = HLY_IDLE;
        return;
    }
    hly_request_destroy(r);
}

/* ---------------------------------------------------------------- making one */

/* Selects and admits the call's plan. An error makes the call fail before ranks compare it. */
static int find_plan(halay_comm_t *comm, const struct hly_call *call, struct hly_plan **plan,
                     char *reason, size_t reason_bytes)
{
    uint32_t planner;
    *plan = NULL;
    int rc = hly_select(comm, call, &planner, reason, reason_bytes);
    return rc ? rc : hly_plan_admit(comm, planner, call, plan, reason, reason_bytes);
}

/* Is the request bound to an equal call already? */
static bool repeats(const halay_request_t *r, const struct hly_call *call)
{
    const struct hly_call *was = &r->call;
    return r->bound && was->signature == call->signature && was->in == call->in &&
           was->out == call->out && was->local_in_place == call->local_in_place &&
           was->staged == call->staged && hly_desc_equal(&was->desc, &call->desc) &&
           !(r->layout.before & HLY_BEFORE_MARK) == !hly_request_follows(r);
}

static int lay_out(halay_request_t *r, const struct hly_call *call)
{
    r->bound = false;
    hly_expected_forget(r);
    if (!r->plan)
        return HALAY_OK;
    int rc = hly_layout_tables(r, call);
    if (!rc)
        rc = hly_layout_bind(r);
    r->bound = !rc && !r->layout.tables && !call->user;
    return rc;
}

static int bind(halay_request_t *r, const struct hly_call *call)
{
    r->call = *call;
    memset(r->call.vector, 0, sizeof(r->call.vector)); /* the program may reuse its arrays */
    if (call->user)
        call->user->users++;
    hly_header_fill(&r->header, r->comm, HLY_EAGER, 0, 0, call);
    return lay_out(r, call);
}

enum hly_cause hly_exec_cause(int code)
{
    return code == HALAY_ESTATE ? HLY_CAUSE_STATE : HLY_CAUSE_ARGUMENT;
}

/* Why a graph cannot capture a call with this plan: all steps must be group steps in the program's
 * memory. NULL: it can. */
static const char *why_not_captured(const halay_comm_t *comm, const struct hly_plan *p,
                                    const struct hly_call *call)
{
    const halay_plan_t *plan = p->plan;
    if (p->stages)
        return "has messages between nodes";
    if (!(halay_planner_get(p->planner)->restrictions & HALAY_PLANNER_GROUP))
        return "has no group steps";
    if (!hly_comm_group_library(comm, hly_device_of(comm->context, call->desc.memory))->captures)
        return "has group steps of a library that needs the host in each of them";
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *s = &plan->steps[i];
        const bool message = s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV;
        if (message && plan->operands[s->operand].count)
            return "has messages";
        if (!message && s->kind != HALAY_STEP_GROUP && s->kind != HALAY_STEP_JOIN)
            return "has copies or reductions of its own";
    }
    if (plan->scratch_slots || call->staged)
        return "needs memory of Halay";
    return NULL;
}

static int check_captured(const halay_comm_t *comm, const struct hly_plan *p,
                          const struct hly_call *call, char *reason, size_t bytes)
{
    const char *why = why_not_captured(comm, p, call);
    if (why)
        snprintf(reason, bytes,
                 "its stream is being captured into a graph, and the plan %s %s: make the call "
                 "outside of the capture (HALAY_EXPLAIN=1 says why it has this plan)",
                 halay_planner_get(p->planner)->name, why);
    return why ? HALAY_EUNSUPPORTED : HALAY_OK;
}

/* Why the request could not be bound: no memory, or the device that gives it is lost. */
static void unbound_text(const halay_request_t *r, int rc, char *text, size_t bytes)
{
    const struct hly_device *from = r->layout.scratch_from;
    if (rc == HALAY_ENOMEM)
        snprintf(text, bytes, "no memory for a call of this size%s%.32s",
                 r->staging ? ": it is copied through host memory of the device " : "",
                 r->staging ? from->ops->name : "");
    else
        snprintf(text, bytes, "the device %.32s gives no memory for the call (%d): %.130s%s",
                 from->ops->name, rc, from->ops->why(from->handle),
                 from->lost ? ": end the job" : "");
}

int hly_exec_make(halay_comm_t *comm, const struct hly_call *call, int argument_error,
                  const char *argument_text, halay_request_t **request)
{
    char reason[224] = "";
    struct hly_plan *plan = NULL;
    enum hly_cause cause = HLY_CAUSE_LOCAL;
    int rc = argument_error;
    if (comm->context->lost) {
        rc = HALAY_ETRANSPORT;
        snprintf(reason, sizeof(reason), HLY_LOST_TEXT);
    } else if (rc) {
        cause = hly_exec_cause(rc);
        snprintf(reason, sizeof(reason), "%s", argument_text);
    } else if (!hly_comm_is_undecided(comm, &call->desc)) {
        rc = find_plan(comm, call, &plan, reason, sizeof(reason));
        if (!rc && call->captured)
            rc = check_captured(comm, plan, call, reason, sizeof(reason));
    } else if (call->captured) {
        rc = HALAY_EUNSUPPORTED;
        snprintf(reason, sizeof(reason),
                 "its stream is being captured into a graph, and the ranks have not agreed yet "
                 "who does group steps: make the call once before the capture, and wait for it");
    }
    halay_request_t *r = request_new(comm, plan, call);
    if (!r)
        return HALAY_ENOMEM;
    int bound = HALAY_OK;
    if (rc || !repeats(r, call)) /* a spare one may be bound to this call already */
        bound = bind(r, call);
    if (!rc && (rc = bound))
        unbound_text(r, rc, reason, sizeof(reason));
    r->refused = rc != HALAY_OK;
    if (rc && hly_exec_refuse_as(r, rc, cause, reason)) {
        r->state = HLY_COMPLETE;
        hly_request_release(r);
        return HALAY_ENOMEM;
    }
    *request = r;
    return HALAY_OK;
}

int hly_exec_plan(halay_request_t *r, int rc, const char *why)
{
    char reason[224];
    struct hly_plan *plan = NULL;
    snprintf(reason, sizeof(reason), "%s", why);
    if (!rc)
        rc = find_plan(r->comm, &r->call, &plan, reason, sizeof(reason));
    if (!rc && (set_plan(r, plan, &r->call) || (rc = lay_out(r, &r->call)))) {
        rc = rc ? rc : HALAY_ENOMEM;
        unbound_text(r, rc, reason, sizeof(reason));
    }
    if (!rc) {
        r->state = HLY_RUNNING;
        return HALAY_OK;
    }
    r->plan = NULL; /* a persistent request tries again at its next start */
    hly_news_fail(r, rc, "%s", reason);
    r->state = HLY_STOPPED;
    return rc;
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
