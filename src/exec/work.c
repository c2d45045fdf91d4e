/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c - the work that a device does for a call. That is the reductions and copies of its plan.
 * Before the plan it scales the input; after it, it divides, scales or copies the result. A device
 * may finish late, so all work is asynchronous.
 *
 * A call ends only when no device touches its memory. So Halay stops overdue work, which takes a
 * bounded time. A device that cannot stop is lost: Halay launches nothing more on it, and does not
 * free scratch that it may still write.
 */
#include <assert.h>
#include <stdio.h>

#include "exec/exec.h"
#include "exec/staging.h"
#include "exec/work.h"
#include "wire/news.h"
#include "wire/watch.h"

#define TIMEOUT_NS 100000000ull /* how long a device may take to stop a call's work */

/* The device has taken the piece whose cookie is the address of the next hly_send. */
static void note(halay_request_t *r, struct hly_device *device, uint32_t step, uint8_t lane)
{
    halay_context_t *ctx = r->context;
    struct hly_send *send = hly_send_new(ctx, HLY_SEND_DEVICE, NULL);
    send->request = r;
    send->local = NULL;
    send->device = device;
    send->step = step;
    send->lane = lane;
    send->flying = 1;
    send->accepted = true;
    send->since_ns = hly_about_now_ns();
    hly_link_append(&r->flying, &send->link);
    device->works++;
    hly_wake_leader(ctx); /* to arm this device, too */
}

int hly_work_launch(halay_request_t *r, struct hly_device *device, uint32_t step, uint8_t lane,
                    halay_work_t *work)
{
    const struct hly_send *send = hly_send_next(r->context);
    if (device->lost)
        return HALAY_EDEVICE;
    if (!send)
        return HALAY_ENOMEM;
    work->cookie = (uint64_t)(uintptr_t)send;
    int rc = device->ops->launch(device->handle, work);
    if (!lane)
        hly_saw_work(r, step, work, rc);
    if (rc == HALAY_INPROGRESS)
        note(r, device, step, lane);
    return rc;
}

int hly_work_follow(halay_request_t *r, struct hly_device *device, uint8_t lane,
                    const halay_stream_t *stream)
{
    const struct hly_send *send = hly_send_next(r->context);
    if (device->lost)
        return HALAY_EDEVICE;
    if (!send)
        return HALAY_ENOMEM;
    const int rc = device->ops->follow(device->handle, stream, (uint64_t)(uintptr_t)send);
    if (rc == HALAY_INPROGRESS) {
        note(r, device, HALAY_STEP_NONE, lane);
        device->marks++;
    }
    return rc;
}

static int launch(halay_request_t *r, uint32_t step, halay_work_t *work)
{
    return hly_work_launch(r, r->device, step, 0, work);
}

/* ---------------------------------------------------------------- steps of the plan */

/* The device that does a step. In a plan with a stage the host does the work there, and the call's
 * device does the copies from and to the stage. */
static struct hly_device *device_of(const halay_request_t *r, uint32_t step, uint32_t *direction)
{
    const halay_step_t *s = hly_step(r, step);
    *direction = HALAY_WITHIN;
    if (!r->plan->stages)
        return r->device;
    const bool to = hly_operand_on_stage(r, s->operand);
    const bool from = hly_operand_on_stage(r, s->operand + 1);
    if (to != from)
        *direction = to ? HALAY_TO_HOST : HALAY_FROM_HOST;
    return to && from ? &r->context->devices[0] : r->device;
}

/* Byte `at` of an operand in up to two extents. */
static char *address_of(const struct hly_extent *ext, size_t at)
{
    return at < ext[0].bytes ? ext[0].address + at : ext[1].address + (at - ext[0].bytes);
}

/* The work for bytes [from, *to) of a step. Shrinks *to to the end of the contiguous part of all
 * operands. */
static halay_work_t piece_of(const halay_request_t *r, uint32_t step, size_t from, size_t *to)
{
    const halay_step_t *s = hly_step(r, step);
    const struct hly_op *user = r->call.user;
    const size_t group = user ? user->group : 1;
    for (uint32_t i = 0; i < s->noperands; i++) {
        const size_t first = hly_operand_extents(r, s->operand + i)->bytes;
        if (first > from && first < *to)
            *to = first;
    }
    halay_work_t work = {.size = sizeof(work),
                         .dst = address_of(hly_operand_extents(r, s->operand), from),
                         .count = (*to - from) / r->layout.element_bytes * group,
                         .type = (halay_type_t)r->call.desc.type,
                         .op = user ? user->number : (halay_op_t)r->call.desc.op,
                         .nsrc = s->noperands - 1u,
                         .fn = user ? user->fn : NULL,
                         .fn_arg = user ? user->arg : NULL,
                         .group = group,
                         .streams = hly_step_streams(r, step)};
    for (uint32_t i = 1; i < s->noperands; i++)
        work.src[i - 1] = address_of(hly_operand_extents(r, s->operand + i), from);
    return work;
}

/*
 * Starts a step in pieces, cut where an operand wraps. HALAY_EAGAIN: the device is full; the next
 * call goes on with the first piece that it has not taken.
 */
static int start_pieces(halay_request_t *r, uint32_t step)
{
    struct hly_step_run *run = &r->run.step[step];
    halay_work_t *kept = r->layout.works ? &r->layout.works[step] : NULL;
    const size_t total = hly_operand_bytes(r, hly_step(r, step)->operand);
    uint32_t piece = 0, direction;
    struct hly_device *device = device_of(r, step, &direction);
    size_t to;
    if (!run->pieces)
        run->arrived = 1; /* so that it is not done before all pieces are launched */
    for (size_t from = 0; from < total; from = to, piece++) {
        to = total;
        halay_work_t work = piece_of(r, step, from, &to);
        work.direction = direction;
        if (piece < run->pieces)
            continue;
        if (kept && to - from == total) {
            *kept = work;
            device->ops->bind(device->handle, kept); /* if this fails, launch() does the same */
        }
        if (work.nsrc > 1 && HLY_SEEDED(SWAP_SOURCES, r, step))
            hly_swap_sources(&work);
        work.count -= HLY_SEEDED(SHORT_WORK, r, step);
        const int rc = hly_work_launch(r, device, step, 0, &work);
        if (rc < 0)
            return rc;
        run->pieces++;
        run->arrived += rc == HALAY_INPROGRESS;
    }
    run->pieces = 0;
    return --run->arrived ? HALAY_INPROGRESS : HALAY_OK;
}

int hly_work_start(halay_request_t *r, uint32_t step)
{
    halay_work_t *kept = r->layout.works ? &r->layout.works[step] : NULL;
    int rc;
    if (kept && kept->nsrc) {
        uint32_t direction;
        r->run.step[step].arrived = 1;
        rc = hly_work_launch(r, device_of(r, step, &direction), step, 0, kept);
    } else {
        rc = start_pieces(r, step);
    }
    if (rc == HALAY_OK && HLY_SEEDED(WORK_TWICE, r, step))
        rc = start_pieces(r, step);
    if (rc < 0 && rc != HALAY_EAGAIN)
        hly_news_fail(r, rc, "the device could not reduce or copy");
    return rc;
}

/* ---------------------------------------------------------------- before and after the plan */

/* Elements of the result; if buffers are staged, of the current slice. */
static size_t count_of(const halay_request_t *r)
{
    const size_t count = r->layout.result_bytes / halay_type_bytes((halay_type_t)r->call.desc.type);
    return r->staging ? hly_staging_count(r, count) : count;
}

static bool divides(const halay_request_t *r)
{
    return r->call.desc.op == HALAY_AVERAGE && r->comm->nranks > 1;
}

uint8_t hly_work_left(const halay_request_t *r)
{
    bool multiplied = r->call.desc.flags & HLY_CALL_SCALED && r->call.postscale != 1;
    uint8_t after = multiplied ? HLY_AFTER_MULTIPLY : 0;
    const uint8_t up = r->staging ? HLY_AFTER_UP : 0;
    if (!r->layout.result_bytes)
        return up;
    if (divides(r))
        after |= HLY_AFTER_DIVIDE;
    if (!after && r->layout.result != r->layout.out)
        after = HLY_AFTER_MOVE;
    return after | up;
}

void hly_work_gate(halay_request_t *r, uint64_t *at, uint64_t *value)
{
    const struct hly_device *device = hly_comm_ordered_by(r->comm)->follows;
    if (r->gate.stands)
        r->gate.opens = !device->ops->gate_word(device->handle, r->gate.number, at, value);
}

int hly_work_result(halay_request_t *r)
{
    while (r->run.after) {
        uint8_t pass = r->run.after & (uint8_t)-r->run.after;
        if (pass == HLY_AFTER_UP)
            return hly_staging_up(r);
        bool again = pass == HLY_AFTER_MULTIPLY && divides(r); /* the result is there already */
        const size_t at = r->staging ? hly_staging_offset(r) : 0;
        halay_work_t work = {.size = sizeof(work),
                             .dst = r->layout.result + at,
                             .src = {(again ? r->layout.result : r->layout.out) + at},
                             .count = count_of(r),
                             .type = (halay_type_t)r->call.desc.type,
                             .op = (halay_op_t)r->call.desc.op,
                             .nsrc = 1,
                             .divisor = pass == HLY_AFTER_DIVIDE ? (uint32_t)r->comm->nranks : 0,
                             .factor = r->call.postscale,
                             .scales = pass == HLY_AFTER_MULTIPLY,
                             .stream =
                                 r->call.captured ? &hly_comm_ordered_by(r->comm)->stream : NULL};
        if (r->run.after == pass)
            hly_work_gate(r, &work.opens_at, &work.opens_value);
        const int rc = launch(r, HALAY_STEP_NONE, &work);
        if (rc == HALAY_EAGAIN)
            return rc;
        if (rc < 0) {
            hly_news_fail(r, rc, "the device could not scale or copy the result");
            return rc;
        }
        r->run.after &= (uint8_t)~pass;
        if (rc == HALAY_INPROGRESS)
            return rc;
    }
    return HALAY_OK;
}

/* Scales the input. In staged calls the input is in the slot. */
static int prescale(halay_request_t *r)
{
    if (r->run.before == HLY_BEFORE_FLYING)
        return HALAY_INPROGRESS;
    char *const to = r->layout.out + (r->staging ? hly_staging_offset(r) : 0);
    halay_work_t work = {.size = sizeof(work),
                         .dst = to,
                         .src = {r->staging || r->call.in == HALAY_IN_PLACE ? to : r->call.in},
                         .count = count_of(r),
                         .type = (halay_type_t)r->call.desc.type,
                         .nsrc = 1,
                         .factor = r->call.prescale,
                         .scales = 1};
    const int rc = work.count ? launch(r, HALAY_STEP_NONE, &work) : HALAY_OK;
    if (rc == HALAY_INPROGRESS)
        r->run.before = HLY_BEFORE_FLYING;
    else if (rc < 0 && rc != HALAY_EAGAIN)
        hly_news_fail(r, rc, "the device could not scale the input");
    else if (rc == HALAY_OK)
        r->run.before = HLY_BEFORE_NOTHING;
    return rc;
}

/* Marks the program's stream, which the call waits for. HALAY_OK: the stream has reached the
 * mark. */
static int follow(halay_request_t *r)
{
    const halay_comm_t *comm = hly_comm_ordered_by(r->comm);
    struct hly_device *device = r->layout.scratch_from; /* of the call's memory */
    int rc = HALAY_EINVAL;
    if (r->run.before & HLY_BEFORE_MARKED)
        return HALAY_INPROGRESS;
    if (comm->follows != device) {
        hly_news_fail(
            r, rc,
            "its stream is of the device %.32s, and its memory of the device %.32s: set a "
            "stream of that one, or none",
            comm->follows->ops->name, device->ops->name);
        return rc;
    }
    rc = hly_work_follow(r, device, HLY_LANE_MARK, &comm->stream);
    if (rc < 0 && rc != HALAY_EAGAIN)
        hly_news_fail(r, rc, "the device %.32s could not follow the program's stream: %.160s",
                      device->ops->name, device->ops->why(device->handle));
    if (rc == HALAY_INPROGRESS)
        r->run.before |= HLY_BEFORE_MARKED;
    else if (rc == HALAY_OK)
        r->run.before &= (uint8_t)~HLY_BEFORE_MARK;
    return rc;
}

void hly_work_preceded(halay_request_t *r)
{
    struct hly_local *moves = &r->comm->moves;
    while (!hly_link_empty(&moves->flying)) {
        struct hly_send *work = HLY_OF(moves->flying.next, struct hly_send, link);
        hly_link_remove(&work->link);
        hly_link_append(&r->flying, &work->link);
        work->request = r;
        work->local = NULL;
        work->lane = HLY_LANE_MOVE;
    }
    r->run.before |= HLY_BEFORE_MOVES | (moves->status ? HLY_BEFORE_FAILED : 0);
    moves->nflying = 0;
    moves->status = HALAY_OK;
    r->comm->preceded = false;
}

/* Have the moves that precede the call ended? */
static int moved(halay_request_t *r)
{
    if (r->run.before & HLY_BEFORE_FAILED) {
        hly_news_fail(r, HALAY_EDEVICE, "the device could not copy or scale the call's input");
        return HALAY_EDEVICE;
    }
    for (const struct hly_link *l = r->flying.next; l != &r->flying; l = l->next)
        if (HLY_OF(l, struct hly_send, link)->lane == HLY_LANE_MOVE)
            return HALAY_INPROGRESS;
    r->run.before &= (uint8_t)~HLY_BEFORE_MOVES;
    return HALAY_OK;
}

int hly_work_before(halay_request_t *r)
{
    if (r->run.before & HLY_BEFORE_MOVES) {
        const int rc = moved(r);
        if (rc)
            return rc;
    }
    if (r->run.before & HLY_BEFORE_MARK) {
        const int rc = follow(r);
        if (rc)
            return rc;
    }
    if (r->run.before & HLY_BEFORE_DOWN) {
        const int rc = hly_staging_down(r);
        if (rc)
            return rc;
    }
    return r->run.before ? prescale(r) : HALAY_OK;
}

/* ---------------------------------------------------------------- the device is through */

/* Fills text, for a verdict: how the device has failed. */
static void fault_text(const struct hly_device *device, const char *what, char *text, size_t bytes)
{
    snprintf(text, bytes, "its device %.16s %.150s%s", device->ops->name, what,
             device->runs_on
                 ? " and cannot be stopped: memory of the call may still change; end the job"
                 : "");
}

static void failed(halay_request_t *r, const struct hly_device *device, int status, const char *why)
{
    char what[160], text[256];
    snprintf(what, sizeof(what), "has failed in its work (%d)%s%.120s", status, *why ? ": " : "",
             why);
    fault_text(device, what, text, sizeof(text));
    hly_news_fail(r, HALAY_EDEVICE, "%s", text);
}

void hly_work_done(halay_context_t *ctx, struct hly_send *work, int status)
{
    halay_request_t *r = work->request;
    const struct hly_device *device = work->device;
    const uint32_t step = work->step;
    const uint8_t lane = work->lane;
    hly_link_remove(&work->link);
    work->device->marks -= lane == HLY_LANE_MARK;
    if (!r && work->local) {
        work->local->nflying--;
        work->local->status = status ? HALAY_EDEVICE : work->local->status;
        if (lane != HLY_LANE_MARK) /* nobody sleeps for a mark */
            hly_wake_if_asleep(ctx);
    }
    hly_send_free(ctx, work);
    if (!r)
        return;
    if (!lane)
        HLY_SAW(LEFT, r, step);
    if (lane == HLY_LANE_MOVE && status) /* the call may not have started */
        r->run.before |= HLY_BEFORE_FAILED;
    if (r->state == HLY_FAILING) {
        hly_news_leave(ctx, HLY_NEWS_QUIET, r);
    } else if (hly_request_runs(r) && status) {
        failed(r, device, status, device->ops->why(device->handle));
    } else if (hly_request_runs(r) && lane == HLY_LANE_MARK) {
        r->run.before &= (uint8_t) ~(HLY_BEFORE_MARK | HLY_BEFORE_MARKED);
        hly_exec_advance(r);
    } else if (hly_request_runs(r) && lane == HLY_LANE_MOVE) {
        hly_exec_advance(r);
    } else if (r->state == HLY_RUNNING && lane) {
        hly_staging_landed(r, lane);
        hly_exec_advance(r);
    } else if (r->state == HLY_RUNNING && step != HALAY_STEP_NONE) {
        if (--r->run.step[step].arrived == 0)
            hly_exec_step_done(r, step);
    } else if (r->state == HLY_RUNNING) {
        if (r->run.before == HLY_BEFORE_FLYING)
            r->run.before = HLY_BEFORE_NOTHING;
        hly_exec_advance(r);
    }
}

/* ---------------------------------------------------------------- or it is not */

/* device NULL: any. */
static bool has_work(const halay_request_t *r, const struct hly_device *device)
{
    for (const struct hly_link *l = r->flying.next; l != &r->flying; l = l->next) {
        const struct hly_send *work = HLY_OF(l, struct hly_send, link);
        if (work->kind == HLY_SEND_DEVICE && (!device || work->device == device))
            return true;
    }
    return false;
}

/* Finds work that a device has held for a quarter of the deadline or longer: then the device is at
 * fault. NULL: there is none. */
static const struct hly_send *overdue_work(const halay_request_t *r)
{
    for (const struct hly_link *l = r->flying.next; l != &r->flying; l = l->next) {
        const struct hly_send *work = HLY_OF(l, struct hly_send, link);
        if (work->kind == HLY_SEND_DEVICE &&
            work->since_ns + r->comm->deadline_ns / 4 <= r->context->now_ns)
            return work;
    }
    return NULL;
}

/* Has its device stop the work by then. A device that does not is lost. */
static void stop_until(const struct hly_send *work, uint64_t end_ns)
{
    struct hly_device *device = work->device;
    const uint64_t now = hly_now_ns();
    if (device->ops->stop(device->handle, (uint64_t)(uintptr_t)work,
                          now < end_ns ? end_ns - now : 0))
        device->runs_on = device->lost = true;
    device->works--;
    device->marks -= work->lane == HLY_LANE_MARK;
}

void hly_work_stop(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    const uint64_t end = hly_now_ns() + TIMEOUT_NS;
    struct hly_link *next;
    for (struct hly_link *l = r->flying.next; l != &r->flying; l = next) {
        struct hly_send *work = HLY_OF(l, struct hly_send, link);
        next = l->next;
        if (work->kind != HLY_SEND_DEVICE)
            continue;
        stop_until(work, end);
        if (!work->lane)
            HLY_SAW(LEFT, r, work->step);
        hly_send_free(ctx, work);
    }
}

void hly_work_local_stop(halay_context_t *ctx, struct hly_local *local)
{
    const uint64_t end = hly_now_ns() + TIMEOUT_NS;
    while (local->nflying) {
        struct hly_send *send = HLY_OF(local->flying.next, struct hly_send, link);
        stop_until(send, end);
        hly_link_remove(&send->link);
        hly_send_free(ctx, send);
        local->nflying--;
        local->status = HALAY_EDEVICE;
    }
}

void hly_work_unprecede(halay_comm_t *comm)
{
    hly_work_local_stop(comm->context, &comm->moves);
    comm->moves.status = HALAY_OK;
    comm->preceded = false;
}

bool hly_work_overdue(halay_request_t *r, char *text, size_t bytes)
{
    if (!has_work(r, NULL))
        return false;
    const struct hly_send *overdue = overdue_work(r);
    if (!overdue && r->state != HLY_FAILING)
        return false;
    const struct hly_device *device = overdue ? overdue->device : NULL;
    const bool marked = overdue && overdue->lane == HLY_LANE_MARK;
    hly_work_stop(r);
    if (marked)
        snprintf(text, bytes,
                 "its program's stream on the device %.32s did not come to the call in time: what "
                 "stands there does not end",
                 device->ops->name);
    else if (overdue)
        fault_text(device, "did not finish its work in time", text, bytes);
    return overdue != NULL;
}

void hly_work_lost(halay_context_t *ctx, struct hly_device *device, int status)
{
    if (!device->lost)
        hly_log(ctx, HLY_ERROR, "the device %s has failed (%d); no call can use it any more. %s",
                device->ops->name, status, device->ops->why(device->handle));
    device->lost = true;
    for (struct hly_link *l = ctx->requests.next; l != &ctx->requests; l = l->next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        if (!has_work(r, device))
            continue;
        hly_work_stop(r);
        if (hly_request_runs(r))
            failed(r, device, status, device->ops->why(device->handle));
        else
            hly_news_leave(ctx, HLY_NEWS_QUIET, r);
    }
}
