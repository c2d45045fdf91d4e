/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - the stream of the program that calls wait for: docs/decisions/streams.md#0056. */
#include <stdio.h>

#include "api/api.h"
#include "exec/exec.h"
#include "fault/fault.h"
#include "run/returned.h"

/* The device of this kind; NULL: there is none but the host's. */
static struct hly_device *device_of(halay_context_t *ctx, uint32_t kind)
{
    hly_devices_look(ctx);
    struct hly_device *device = hly_device_of(ctx, kind);
    return device->memory == kind && !device->touchable ? device : NULL;
}

static int check(halay_context_t *ctx, const halay_stream_t *stream, struct hly_device **device,
                 char *text, size_t bytes)
{
    const bool returns = stream->flags & HALAY_STREAM_RETURNS;
    if (stream->flags & ~(uint64_t)HALAY_STREAM_RETURNS) {
        snprintf(text, bytes, "comm_stream: the stream has flags that are not known here");
        return HALAY_EINVAL;
    }
    *device = device_of(ctx, stream->kind);
    if (!*device) {
        snprintf(text, bytes,
                 "comm_stream: there is no device with memory of kind %u: halay_mem_kind() tells "
                 "the kind",
                 stream->kind);
        return HALAY_EINVAL;
    }
    int rc = (*device)->ops->follow((*device)->handle, stream, 0);
    if (rc >= 0 && returns)
        rc = (*device)->ops->gate((*device)->handle, stream, NULL);
    if (rc < 0)
        snprintf(text, bytes, "comm_stream: the device %.32s cannot %.24s this stream: %.150s",
                 (*device)->ops->name, returns ? "return before the end in" : "follow",
                 (*device)->ops->why((*device)->handle));
    return rc < 0 ? rc : HALAY_OK;
}

/* stream NULL: none. With the mutex. */
static int set(halay_comm_t *comm, const halay_stream_t *stream)
{
    halay_context_t *ctx = comm->context;
    struct hly_device *device = NULL;
    halay_stream_t known = {.size = sizeof(known)};
    char text[256] = "comm_stream: calls are under way, or there are persistent requests";
    int rc = hly_comm_in_use(comm) ? HALAY_ESTATE : HALAY_OK;
    if (!rc && stream && !hly_struct_take(&known, sizeof(known), stream)) {
        snprintf(text, sizeof(text),
                 "comm_stream: the stream's size is %zu: set it to sizeof(halay_stream_t), and all "
                 "behind the %zu bytes that are known here to 0",
                 stream->size, sizeof(known));
        rc = HALAY_EINVAL;
    }
    if (!rc && stream)
        rc = check(ctx, &known, &device, text, sizeof(text));
    if (!rc && known.flags && (rc = hly_returned_start(ctx)))
        snprintf(text, sizeof(text), "comm_stream: no thread could be made to end its calls");
    if (rc) {
        hly_log(ctx, HLY_ERROR, "%s", text);
        return hly_fault_alone(comm, rc, text);
    }
    comm->follows = device;
    comm->stream = known;
    hly_cache_forget(comm, NULL); /* calls of one rank are staged now, or no more */
    if (comm->inner)
        hly_cache_forget(comm->inner, NULL);
    return HALAY_OK;
}

int halay_comm_stream(halay_comm_t *handle, const halay_stream_t *stream)
{
    halay_comm_t *comm;
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    rc = hly_returned_await(comm);
    if (!rc)
        rc = set(comm, stream);
    hly_unlock(comm->context);
    return rc;
}
