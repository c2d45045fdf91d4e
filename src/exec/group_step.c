/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_step.c - launches group steps in one order on all ranks, and completes those that have
 * ended.
 *
 * A step that has started is a struct hly_send in request->flying; its device communicator is NULL
 * while it waits. It is launched when that is open, and all earlier calls of the Halay communicator
 * have launched what they have on its channel, or are over. So all ranks launch in one order, which
 * is that of the calls and, within one, of the plan.
 *
 * A call that has failed launches nothing more. Its launches may wait for a member that never
 * launches; so after a while Halay aborts the device communicator. It waits with that while an
 * earlier call still has a launch there, which can end.
 */
#include <assert.h>
#include <stdio.h>

#include "exec/device_comm.h"
#include "exec/exec.h"
#include "exec/work.h"
#include "wire/news.h"
#include "wire/watch.h"

#define ALL_CHANNELS ((1u << HALAY_PLAN_CHANNELS_MAX) - 1)

static halay_request_t *call_of(const halay_comm_t *comm, uint32_t sequence)
{
    return comm->slots[sequence % HLY_SLOTS].request;
}

static uint32_t *launched_of(struct hly_device_comms *c, uint32_t sequence)
{
    const uint32_t at = sequence % HLY_SLOTS;
    if (c->call[at].sequence != sequence) {
        c->call[at].sequence = sequence;
        for (uint32_t i = 0; i < HALAY_PLAN_CHANNELS_MAX; i++)
            c->call[at].launched[i] = 0;
    }
    return c->call[at].launched;
}

static void count(struct hly_device *device, int steps)
{
    device->works += (uint32_t)steps;
    device->group_steps += (uint32_t)steps;
}

static const char *name_of(const halay_request_t *r)
{
    return hly_comm_group_library(r->comm, r->device)->name;
}

static struct hly_send *as_group(struct hly_link *l)
{
    struct hly_send *send = HLY_OF(l, struct hly_send, link);
    return send->kind == HLY_SEND_GROUP ? send : NULL;
}

/* Drops a step that has ended, or was given up. */
static void drop(halay_request_t *r, struct hly_send *send)
{
    count(r->device, -1);
    if (send->dcomm)
        send->dcomm->flying--;
    else
        r->comm->dcomms->waiting--;
    HLY_SAW(LEFT, r, send->step);
    hly_send_free(r->context, send);
}

/* ---------------------------------------------------------------- launching */

/* Fills the members' counts; returns their kind. */
static uint32_t fill_counts(const halay_request_t *r, const halay_step_t *s, size_t *counts)
{
    const halay_plan_t *plan = r->plan->plan;
    const halay_group_t *group = &plan->groups[s->peer];
    const size_t element = r->layout.element_bytes;
    for (uint32_t i = 0; i < group->nmembers; i++) {
        const halay_member_t *m = &plan->members[group->member + i];
        counts[i] = m->count ? hly_layout_bytes(r, m->first, m->count) / element : 0;
    }
    return group->kind;
}

/* A graph will wait for any member, also for one that this rank has no connection to. A
 * question makes the connection, so that this rank notices the member's death. */
static void watch_members(const halay_request_t *r, struct hly_device_comm *dcomm)
{
    dcomm->captured = true;
    for (uint32_t i = 0; i < dcomm->n; i++)
        if (i != dcomm->me)
            hly_control_send(r->comm, (int)dcomm->rank[i], HLY_QUERY, r->sequence, 0,
                             hly_cookie_about((int)dcomm->rank[i], 0), NULL, NULL, 0);
}

/* True if this step is the only one left, and no division, scaling or copy follows the plan. */
static bool is_last(const halay_request_t *r)
{
    return r->run.ndone + 1 == r->plan->nsteps && !r->run.after &&
           r->segments.number + 1 == r->segments.n;
}

/* HALAY_INPROGRESS: it is in flight. HALAY_EAGAIN: its device communicator is full. */
static int launch(halay_request_t *r, struct hly_send *send, struct hly_device_comm *dcomm)
{
    const halay_step_t *s = hly_step(r, send->step);
    const halay_op_t op = (halay_op_t)r->call.desc.op;
    halay_group_launch_t launch = {
        .size = sizeof(launch),
        .kind = fill_counts(r, s, dcomm->count),
        .type = (halay_type_t)r->call.desc.type,
        .op = op == HALAY_AVERAGE ? HALAY_SUM : op, /* Halay divides after the plan */
        .n = dcomm->n,
        .count = dcomm->count,
        .out = hly_operand_extents(r, s->operand)->address,
        .in = hly_operand_extents(r, s->operand + 1)->address,
        .order = dcomm->order,
        .cookie = (uint64_t)(uintptr_t)send,
        .stream = r->call.captured ? &hly_comm_ordered_by(r->comm)->stream : NULL};
    if (is_last(r))
        hly_work_gate(r, &launch.opens_at, &launch.opens_value);
    const int rc =
        dcomm->device->lost ? HALAY_EDEVICE : dcomm->library->ops->launch(dcomm->handle, &launch);
    if (rc != HALAY_INPROGRESS)
        return rc < 0 ? rc : HALAY_EINTERNAL;
    dcomm->order++;
    if (r->call.captured && !dcomm->captured)
        watch_members(r, dcomm);
    dcomm->flying++;
    r->comm->dcomms->waiting--;
    send->dcomm = dcomm;
    send->accepted = true;
    send->since_ns = hly_about_now_ns();
    launched_of(r->comm->dcomms, r->sequence)[s->edge]++;
    hly_wake_leader(r->context); /* to poll this device communicator, too */
    return rc;
}

static void try_launch(halay_request_t *r, struct hly_send *send)
{
    struct hly_device_comm *dcomm;
    char text[256];
    int rc = HALAY_OK;
    if (!r->call.captured)
        rc = hly_device_comm_get(r, send->step, &dcomm, text, sizeof(text));
    else if (!(dcomm = hly_device_comm_find(r, send->step)) || !dcomm->opened) {
        rc = HALAY_EDEVICE; /* opening a device communicator might invalidate the capture */
        snprintf(text, sizeof(text),
                 "its stream is being captured into a graph, and its group %.32s is not open yet: "
                 "make the call once before the capture, and wait for it",
                 name_of(r));
    }
    if (!rc && !dcomm->opened)
        return;
    if (!rc) {
        rc = launch(r, send, dcomm);
        if (rc >= 0 || rc == HALAY_EAGAIN)
            return;
        const struct hly_device *device = dcomm->device;
        hly_device_comm_note(dcomm);
        if (device->lost)
            snprintf(text, sizeof(text),
                     "the device of its group %.32s has failed: %.150s: end the job", name_of(r),
                     device->ops->why(device->handle));
        else
            snprintf(text, sizeof(text), "its group %.32s could not start a collective (%d)%.170s",
                     name_of(r), rc, dcomm->why);
    }
    if (rc < 0 && rc != HALAY_EAGAIN)
        hly_news_fail(r, rc == HALAY_ENOMEM ? rc : HALAY_EDEVICE, "%s", text);
}

/* Launches those steps of this call whose channel is not in `taken`. */
static void launch_call(halay_request_t *r, uint32_t taken)
{
    struct hly_link *next;
    for (struct hly_link *l = r->flying.next; l != &r->flying; l = next) {
        struct hly_send *send = as_group(l);
        next = l->next;
        if (send && !send->dcomm && r->state == HLY_RUNNING &&
            !(taken >> hly_step(r, send->step)->edge & 1))
            try_launch(r, send);
    }
}

/* The channels on which this call still has steps to launch. */
static uint32_t channels_of(struct hly_device_comms *c, const halay_request_t *r)
{
    const uint32_t *launched = launched_of(c, r->sequence);
    uint32_t channels = 0;
    if (r->state != HLY_RUNNING)
        return ALL_CHANNELS; /* until all ranks know that it has failed */
    for (uint32_t i = 0; i < HALAY_PLAN_CHANNELS_MAX; i++)
        channels |= (uint32_t)(launched[i] < r->plan->launches[i]) << i;
    return channels;
}

/* Keeps the program's order: group steps of a group's members are launched after those of the calls
 * before the group, and before those of the calls after it. */
static bool is_in_turn(const halay_request_t *r)
{
    const halay_comm_t *comm = r->comm, *outer = comm->outer;
    if (!hly_link_empty(&comm->grouped) && (int32_t)(r->sequence - comm->grouped_first) > 0)
        return false;
    if (!r->group.is_behind)
        return true;
    struct hly_device_comms *c = hly_device_comms_of(comm->outer);
    for (uint32_t s = outer->oldest; s != outer->started && (int32_t)(s - r->group.behind) < 0;
         s++) {
        const halay_request_t *before = call_of(outer, s);
        if (before && (!c || channels_of(c, before)))
            return false;
    }
    return true;
}

static void launch_ready(struct hly_device_comms *c)
{
    const halay_comm_t *comm = c->comm;
    uint32_t taken = 0;
    for (uint32_t s = comm->oldest; s != comm->started && taken != ALL_CHANNELS; s++) {
        halay_request_t *r = call_of(comm, s);
        if (!r)
            continue;
        if (r->state == HLY_RUNNING && is_in_turn(r))
            launch_call(r, taken);
        taken |= channels_of(c, r);
    }
}

int hly_group_step_start(halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = hly_step(r, step);
    struct hly_device_comms *c = hly_device_comms_of(r->comm);
    struct hly_send *send = c ? hly_send_new(r->context, HLY_SEND_GROUP, NULL) : NULL;
    if (!send) {
        hly_news_fail(r, HALAY_ENOMEM, "no memory for a group step");
        return HALAY_ENOMEM;
    }
    if (!hly_operand_bytes(r, s->operand) && !hly_operand_bytes(r, s->operand + 1) &&
        !r->call.desc.count) { /* empty on all ranks: counts as launched */
        launched_of(c, r->sequence)[s->edge]++;
        hly_send_free(r->context, send);
        return HALAY_OK;
    }
    send->request = r;
    send->step = step;
    send->dcomm = NULL;
    send->flying = 1;
    send->since_ns = hly_about_now_ns();
    hly_link_append(&r->flying, &send->link);
    c->waiting++;
    count(r->device, 1);
    hly_wake_leader(r->context);
    launch_ready(c);
    return HALAY_INPROGRESS;
}

/* ---------------------------------------------------------------- it has ended */

static const char *runs_on(const struct hly_device *device)
{
    return device->runs_on
               ? " and cannot be stopped: memory of the call may still change; end the job"
               : "";
}

static void ended(struct hly_send *send, int status)
{
    halay_request_t *r = send->request;
    const uint32_t step = send->step;
    drop(r, send);
    if (r->state == HLY_FAILING)
        hly_news_leave(r->context, HLY_NEWS_QUIET, r);
    else if (r->state == HLY_RUNNING && status)
        hly_news_fail(r, HALAY_EDEVICE, "its group %.32s has failed in a collective (%d)",
                      name_of(r), status);
    else if (r->state == HLY_RUNNING)
        hly_exec_step_done(r, step);
}

/* Aborts the device communicator. Calls with launches there fail, except for `except`, which fails
 * already or is about to. */
static void abort_all(struct hly_device_comm *dcomm, const halay_request_t *except, const char *why)
{
    const halay_comm_t *comm = dcomm->dcomms->comm;
    hly_device_comm_abort(dcomm);
    for (uint32_t s = comm->oldest; s != comm->started && dcomm->flying; s++) {
        halay_request_t *r = call_of(comm, s);
        struct hly_link *next, *list = r ? &r->flying : NULL;
        bool any = false;
        for (struct hly_link *l = r ? list->next : NULL; l && l != list; l = next) {
            struct hly_send *send = as_group(l);
            next = l->next;
            if (!send || send->dcomm != dcomm)
                continue;
            drop(r, send);
            any = true;
        }
        if (!any || r == except)
            continue;
        if (r->state == HLY_RUNNING)
            hly_news_fail(r, HALAY_EDEVICE, "its group %.32s %s%s", dcomm->library->name, why,
                          runs_on(dcomm->device));
        else if (r->state == HLY_FAILING)
            hly_news_leave(r->context, HLY_NEWS_QUIET, r);
    }
    assert(!dcomm->flying);
}

static int take(struct hly_device_comm *dcomm)
{
    const halay_group_ops_t *ops = dcomm->library->ops;
    halay_group_done_t done[16];
    char why[sizeof(dcomm->why) + 16];
    const int n = ops->poll(dcomm->handle, done, 16);
    if (n < 0) {
        hly_device_comm_note(dcomm);
        snprintf(why, sizeof(why), "has failed%s", dcomm->why);
        abort_all(dcomm, NULL, why);
    }
    for (int i = 0; i < n; i++) {
        if (done[i].cookie != HALAY_CIRCLE_OPENED) {
            ended((struct hly_send *)(uintptr_t)done[i].cookie, done[i].status);
            continue;
        }
        dcomm->opened = !done[i].status;
        if (done[i].status) { /* launch_ready() says so */
            hly_device_comm_note(dcomm);
            hly_device_comm_abort(dcomm);
        }
    }
    return n < 0 ? 1 : n;
}

/* Does a running call before `upto` still need the device communicator? */
static bool is_needed(const struct hly_device_comm *dcomm)
{
    const halay_comm_t *comm = dcomm->dcomms->comm;
    for (uint32_t s = comm->oldest; s != comm->started && (int32_t)(s - dcomm->upto) < 0; s++) {
        const halay_request_t *r = call_of(comm, s);
        if (r && r->state == HLY_RUNNING)
            return true;
    }
    return false;
}

/* Ends a retired device communicator if it can. False: it was freed. */
static bool end_retired(struct hly_device_comm *dcomm)
{
    if (!dcomm->retired || is_needed(dcomm))
        return true;
    if (dcomm->captured && !dcomm->flying) /* graphs use it until the communicator is freed */
        return true;
    if (dcomm->flying && hly_about_now_ns() < dcomm->retired_ns + HLY_DEVICE_COMM_RETIRE_NS)
        return true;
    if (dcomm->flying)
        abort_all(dcomm, NULL, "was given up, since an earlier call has failed");
    hly_device_comm_free(dcomm);
    return false;
}

static bool has_lost_member(const halay_comm_t *comm, const struct hly_device_comm *dcomm)
{
    for (uint32_t i = 0; i < dcomm->n; i++)
        if (i != dcomm->me && hly_peer_is_dead(comm, (int)dcomm->rank[i]))
            return true;
    return false;
}

/* Aborts it if a member is lost: a graph that runs on it may wait for that member for ever. */
static void end_replays(struct hly_device_comm *dcomm)
{
    const halay_comm_t *comm = dcomm->dcomms->comm;
    if (!dcomm->handle || hly_now_ns() < dcomm->dcomms->lost_ns + HLY_DEVICE_COMM_RETIRE_NS ||
        !has_lost_member(comm, dcomm))
        return;
    hly_log(comm->context, HLY_ERROR,
            "a rank is lost: the group %.32s is aborted, of which graphs may still run; destroy "
            "them",
            dcomm->library->name);
    abort_all(dcomm, NULL, "was given up, since a rank is lost");
}

static int poll_comm(struct hly_device_comms *c)
{
    struct hly_link *next;
    int n = 0;
    for (struct hly_link *l = c->list.next; l != &c->list; l = next) {
        struct hly_device_comm *dcomm = HLY_OF(l, struct hly_device_comm, link);
        next = l->next;
        if (end_retired(dcomm) && dcomm->handle && (dcomm->flying || !dcomm->opened))
            n += take(dcomm);
    }
    if (c->waiting)
        launch_ready(c);
    return n;
}

void hly_group_steps_watch(halay_context_t *ctx)
{
    for (struct hly_link *l = ctx->dcomms.next; l != &ctx->dcomms; l = l->next) {
        struct hly_device_comms *c = HLY_OF(l, struct hly_device_comms, link);
        for (struct hly_link *k = c->list.next; c->lost_ns && k != &c->list; k = k->next) {
            struct hly_device_comm *dcomm = HLY_OF(k, struct hly_device_comm, link);
            if (dcomm->captured)
                end_replays(dcomm);
        }
    }
}

int hly_group_steps_poll(halay_context_t *ctx)
{
    int n = 0;
    for (struct hly_link *l = ctx->dcomms.next; l != &ctx->dcomms; l = l->next)
        n += poll_comm(HLY_OF(l, struct hly_device_comms, link));
    return n;
}

/* ---------------------------------------------------------------- calls that fail */

static void drop_waiting(halay_request_t *r)
{
    struct hly_link *next;
    for (struct hly_link *l = r->flying.next; l != &r->flying; l = next) {
        struct hly_send *send = as_group(l);
        next = l->next;
        if (send && !send->dcomm)
            drop(r, send);
    }
}

/* Has the call launched some of its steps, but not all? */
static bool is_begun(struct hly_device_comms *c, const halay_request_t *r)
{
    const uint32_t *launched = launched_of(c, r->sequence);
    uint32_t any = 0;
    for (uint32_t i = 0; i < HALAY_PLAN_CHANNELS_MAX; i++)
        any |= launched[i];
    return any && channels_of(c, r);
}

void hly_group_steps_fail(halay_request_t *r)
{
    const halay_comm_t *comm = r->comm;
    struct hly_device_comms *c = hly_device_comms_of(r->comm); /* NULL: later ones may fail, too */
    if (!c)
        return;
    drop_waiting(r);
    for (uint32_t s = r->sequence + 1; s != comm->started; s++) {
        halay_request_t *later = call_of(comm, s);
        if (later && later->state == HLY_RUNNING && is_begun(c, later))
            hly_news_fail(later, HALAY_EDEVICE,
                          "its group %.32s was given up between two collectives, since call %u "
                          "has failed",
                          name_of(later), r->sequence);
    }
    c->failed[c->nfailed++ % HLY_FAILED_MAX] = r->sequence;
    if (c->nfailed == 2 * HLY_FAILED_MAX)
        c->nfailed = HLY_FAILED_MAX;
    for (struct hly_link *l = c->list.next; l != &c->list; l = l->next) {
        struct hly_device_comm *dcomm = HLY_OF(l, struct hly_device_comm, link);
        const bool serves =
            dcomm->generation != hly_device_comm_generation(c, r->sequence + 1) &&
            !(dcomm->retired && (int32_t)(dcomm->upto - r->sequence) < 0) &&
            (!dcomm->generation || (int32_t)(dcomm->generation - 1 - r->sequence) < 0);
        if (serves && !dcomm->retired)
            dcomm->retired_ns = hly_about_now_ns();
        if (serves) {
            dcomm->retired = true;
            dcomm->upto = r->sequence;
        }
    }
}

void hly_group_steps_force(halay_request_t *r)
{
    struct hly_link *l = r->flying.next;
    while (l != &r->flying) {
        const struct hly_send *send = as_group(l);
        l = l->next;
        if (!send || !send->dcomm)
            continue;
        abort_all(send->dcomm, r, "was given up with an earlier call");
        l = r->flying.next;
    }
}

bool hly_group_steps_overdue(halay_request_t *r, char *text, size_t bytes)
{
    const uint64_t timeout = r->comm->deadline_ns / 4, now = r->context->now_ns;
    for (struct hly_link *l = r->flying.next; l != &r->flying; l = l->next) {
        const struct hly_send *send = as_group(l);
        const bool late = send && send->since_ns + timeout <= now;
        if (!send || !(late || r->state == HLY_FAILING))
            continue;
        const struct hly_device_comm *dcomm =
            send->dcomm ? NULL : hly_device_comm_find(r, send->step);
        if (send->dcomm) {
            abort_all(send->dcomm, r, "did not end a collective of another call in time");
            snprintf(
                text, bytes,
                "its group %.32s did not end a collective in time, here or on another member%s",
                name_of(r), runs_on(r->device));
            return late;
        }
        if (late && dcomm && !dcomm->opened) {
            snprintf(text, bytes, "its group %.32s of %u ranks was not opened in time%s",
                     name_of(r), dcomm->n,
                     dcomm->handle ? "" : ": its first member did not invite this rank");
            return true;
        }
    }
    return false;
}

bool hly_group_steps_orphaned(const halay_request_t *r)
{
    struct hly_device_comms *c = r->comm->dcomms;
    const uint64_t before = r->context->now_ns - HLY_DEVICE_COMM_RETIRE_NS;
    if (!c || !c->lost_ns || c->lost_ns > before)
        return false;
    for (struct hly_link *l = r->flying.next; l != &r->flying; l = l->next) {
        const struct hly_send *send = as_group(l);
        const struct hly_device_comm *dcomm = send ? send->dcomm : NULL;
        if (!send || send->since_ns > before)
            continue;
        if (!dcomm)
            dcomm = hly_device_comm_find(r, send->step);
        if (dcomm && (send->dcomm || !dcomm->opened) && has_lost_member(r->comm, dcomm))
            return ++c->orphaned > HLY_DEVICE_COMM_LOOKS;
    }
    return false;
}
