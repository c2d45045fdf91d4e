/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.c - halay_local_*: a device's memory, moves in it that belong to no call, and marks in the
 * program's streams. Whoever moves waits, and makes progress for all of the context meanwhile. And
 * what stands in a call's place.
 */
#include <stdio.h>

#include "api/api.h"
#include "exec/work.h"
#include "halay/local.h"

static int device_enter(halay_context_t *ctx, uint32_t kind, struct hly_device **device)
{
    int rc = hly_context_enter(ctx);
    if (rc)
        return rc;
    hly_devices_look(ctx);
    *device = hly_device_of(ctx, kind);
    if ((*device)->memory == kind)
        return HALAY_OK;
    hly_unlock(ctx);
    return HALAY_EUNSUPPORTED;
}

int halay_local_alloc(halay_context_t *context, uint32_t kind, size_t bytes, void **address)
{
    struct hly_device *device;
    if (!address)
        return HALAY_EINVAL;
    int rc = device_enter(context, kind, &device);
    if (rc)
        return rc;
    rc = device->lost
             ? HALAY_EDEVICE
             : device->ops->alloc(device->handle, HALAY_PLACE_OWN, bytes ? bytes : 1, 64, address);
    hly_unlock(context);
    return rc;
}

int halay_local_free(halay_context_t *context, uint32_t kind, void *address)
{
    struct hly_device *device;
    int rc = device_enter(context, kind, &device);
    if (rc)
        return rc;
    if (!device->runs_on) /* it may still write there */
        device->ops->free(device->handle, HALAY_PLACE_OWN, address);
    hly_unlock(context);
    return HALAY_OK;
}

/* The device has taken the piece whose cookie is the address of the next hly_send. */
static void note(halay_context_t *ctx, struct hly_device *device, struct hly_local *local,
                 uint8_t lane)
{
    struct hly_send *send = hly_send_new(ctx, HLY_SEND_DEVICE, NULL);
    send->device = device;
    send->local = local;
    send->lane = lane;
    send->flying = 1;
    send->accepted = true;
    send->since_ns = hly_about_now_ns();
    hly_link_append(&local->flying, &send->link);
    local->nflying++;
    device->works++;
}

static int move_launch(halay_context_t *ctx, struct hly_device *device, struct hly_local *local,
                       const halay_move_t *move)
{
    const struct hly_send *send = hly_send_next(ctx);
    const halay_work_t work = {.size = sizeof(work),
                               .dst = move->dst,
                               .src = {move->src},
                               .count = move->count,
                               .type = move->type,
                               .nsrc = 1,
                               .factor = move->factor,
                               .scales = move->factor != 1,
                               .direction = move->direction,
                               .cookie = (uint64_t)(uintptr_t)send};
    if (!send)
        return HALAY_ENOMEM;
    if (device->lost)
        return HALAY_EDEVICE;
    if (!move->count)
        return HALAY_OK;
    const int rc = device->ops->launch(device->handle, &work);
    if (rc == HALAY_INPROGRESS) {
        note(ctx, device, local, 0);
        hly_wake_leader(ctx); /* to arm this device, too */
    }
    return rc;
}

/* How many moves, from the first on, are one launch. */
static uint32_t together(const halay_move_t moves[], size_t nmoves)
{
    uint32_t n = 0;
    while (n < nmoves && n < HALAY_LIST_PARTS && moves[n].type == moves[0].type &&
           moves[n].direction == HALAY_WITHIN)
        n++;
    return n ? n : 1;
}

/* HALAY_EUNSUPPORTED: it has to be launched one by one. */
static int list_launch(halay_context_t *ctx, struct hly_device *device, struct hly_local *local,
                       const halay_move_t moves[], uint32_t nmoves)
{
    halay_part_t parts[HALAY_LIST_PARTS];
    const struct hly_send *send = hly_send_next(ctx);
    if (!send)
        return HALAY_ENOMEM;
    if (device->lost)
        return HALAY_EDEVICE;
    for (uint32_t i = 0; i < nmoves; i++)
        parts[i] = (halay_part_t){moves[i].dst, moves[i].src, moves[i].count, moves[i].factor};
    const int rc = device->ops->launch_list(device->handle, parts, nmoves, moves[0].type,
                                            (uint64_t)(uintptr_t)send);
    if (rc == HALAY_INPROGRESS) {
        note(ctx, device, local, 0);
        hly_wake_leader(ctx);
    }
    return rc;
}

/* Launches the first moves; *n is how many. */
static int moves_launch(halay_context_t *ctx, struct hly_device *device, struct hly_local *local,
                        const halay_move_t moves[], uint32_t *n)
{
    const int rc = *n > 1 ? list_launch(ctx, device, local, moves, *n) : HALAY_EUNSUPPORTED;
    if (rc != HALAY_EUNSUPPORTED)
        return rc;
    *n = 1;
    return move_launch(ctx, device, local, moves);
}

/* A wait for a device's work that belongs to no call. */
struct await {
    const struct hly_device *device;
    const struct hly_local *local;
    uint64_t end_ns;
};

static bool is_over(void *arg)
{
    const struct await *a = arg;
    return !a->local->nflying || a->device->lost || hly_now_ns() >= a->end_ns;
}

static void await(halay_context_t *ctx, const struct hly_device *device,
                  const struct hly_local *local, uint64_t end_ns)
{
    struct await a = {device, local, end_ns};
    hly_wait_until(ctx, is_over, &a);
}

/* Launches all moves, for which it waits only where the device is full. The first error. */
static int moves_begin(halay_context_t *ctx, struct hly_device *device, struct hly_local *local,
                       const halay_move_t moves[], size_t nmoves, uint64_t end_ns)
{
    uint32_t n;
    int rc = HALAY_OK;
    for (size_t i = 0; i < nmoves && rc >= 0; i += n) {
        n = together(&moves[i], nmoves - i);
        while ((rc = moves_launch(ctx, device, local, &moves[i], &n)) == HALAY_EAGAIN &&
               hly_now_ns() < end_ns)
            hly_wait_once(ctx);
    }
    return rc == HALAY_EAGAIN ? HALAY_EDEVICE : rc < 0 ? rc : HALAY_OK;
}

int halay_local_moves(halay_context_t *context, uint32_t kind, const halay_move_t moves[],
                      size_t nmoves, uint64_t timeout_ns)
{
    struct hly_device *device;
    struct hly_local local = {.status = HALAY_OK};
    int rc = device_enter(context, kind, &device);
    if (rc)
        return rc;
    hly_link_init(&local.flying);
    const uint64_t end = hly_now_ns() + timeout_ns;
    rc = moves_begin(context, device, &local, moves, nmoves, end);
    await(context, device, &local, end);
    hly_work_local_stop(context, &local);
    hly_unlock(context);
    return rc ? rc : local.status;
}

int halay_local_precede(halay_comm_t *handle, uint32_t kind, const halay_move_t moves[],
                        size_t nmoves)
{
    halay_comm_t *comm = hly_comm_of(handle);
    struct hly_device *device;
    int rc = comm ? device_enter(comm->context, kind, &device) : HALAY_EINVAL;
    if (rc)
        return rc;
    if (comm->group_open) {
        rc = HALAY_ESTATE;
    } else {
        comm->preceded = true;
        rc = moves_begin(comm->context, device, &comm->moves, moves, nmoves,
                         hly_now_ns() + comm->deadline_ns / 4);
    }
    hly_unlock(comm->context);
    return rc;
}

/* ---------------------------------------------------------------- marks */

struct mark {
    struct hly_local local;
    struct hly_device *device;
    uint64_t end_ns; /* of moves that are still under way then, the device is lost; 0: none */
};
_Static_assert(sizeof(struct mark) <= sizeof(halay_mark_t), "a mark has room");
_Static_assert(_Alignof(struct mark) <= _Alignof(halay_mark_t), "and is aligned");

int halay_local_start(halay_context_t *context, uint32_t kind, const halay_move_t moves[],
                      size_t nmoves, uint64_t timeout_ns, halay_mark_t *out)
{
    struct mark *mark = (struct mark *)(void *)out;
    struct hly_device *device;
    int rc = mark ? device_enter(context, kind, &device) : HALAY_EINVAL;
    if (rc)
        return rc;
    if (!mark->device) {
        *mark = (struct mark){.device = device};
        hly_link_init(&mark->local.flying);
    }
    mark->end_ns = hly_now_ns() + timeout_ns;
    rc = moves_begin(context, device, &mark->local, moves, nmoves, mark->end_ns);
    hly_unlock(context);
    return rc;
}

/* Whoever sleeps is not woken: a mark that nobody asks for needs no look. */
int halay_local_mark(halay_context_t *context, const halay_stream_t *stream, halay_mark_t *out)
{
    struct mark *mark = (struct mark *)(void *)out;
    struct hly_device *device;
    if (!stream || stream->size < sizeof(*stream) || !out)
        return HALAY_EINVAL;
    int rc = device_enter(context, stream->kind, &device);
    if (rc)
        return rc;
    *mark = (struct mark){.local = {.status = HALAY_OK}, .device = device};
    hly_link_init(&mark->local.flying);
    const struct hly_send *send = hly_send_next(context);
    if (device->lost || !send)
        rc = device->lost ? HALAY_EDEVICE : HALAY_ENOMEM;
    else
        rc = device->ops->follow(device->handle, stream, (uint64_t)(uintptr_t)send);
    if (rc == HALAY_INPROGRESS) {
        note(context, device, &mark->local, HLY_LANE_MARK);
        device->marks++;
        rc = HALAY_OK;
    } else if (rc < 0 && rc != HALAY_EAGAIN) {
        hly_log(context, HLY_ERROR,
                "a stream of the program cannot be followed on the device %s: %s",
                device->ops->name, device->ops->why(device->handle));
    }
    hly_unlock(context);
    return rc;
}

int halay_local_marked(halay_context_t *context, halay_mark_t *out, uint64_t timeout_ns)
{
    struct mark *mark = (struct mark *)(void *)out;
    int rc = mark ? hly_context_enter(context) : HALAY_EINVAL;
    if (rc)
        return rc;
    const uint64_t end = timeout_ns ? hly_now_ns() + timeout_ns : 0;
    if (end)
        await(context, mark->device, &mark->local, end);
    if (mark->local.nflying &&
        (mark->device->lost || (mark->end_ns && hly_now_ns() >= mark->end_ns)))
        hly_work_local_stop(context, &mark->local);
    rc = mark->local.nflying ? HALAY_INPROGRESS : mark->local.status;
    hly_unlock(context);
    return rc;
}

void halay_local_unmark(halay_context_t *context, halay_mark_t *out)
{
    struct mark *mark = (struct mark *)(void *)out;
    if (!mark || hly_context_enter(context))
        return;
    if (mark->device)
        hly_work_local_stop(context, &mark->local);
    *mark = (struct mark){.device = NULL};
    hly_unlock(context);
}

/* ---------------------------------------------------------------- no call */

int halay_local_refuse(halay_comm_t *handle, int code, const char *text, halay_request_t **request)
{
    halay_comm_t *comm = hly_comm_of(handle);
    struct hly_check c = {.code = code};
    struct hly_call call = {.desc = {.collective = HALAY_BARRIER, .flags = HLY_CALL_REFUSED}};
    if (!comm || code >= 0 || !text || !request)
        return hly_comm_reject(comm, HALAY_EINVAL,
                               "local_refuse: the code is no error, or text or request is NULL");
    snprintf(c.text, sizeof(c.text), "%s", text);
    return hly_post(comm, &call, &c, HLY_GO, request);
}
