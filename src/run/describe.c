/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - what ranks compare of a call: its description, and the hash of the rest. */
#include <stdio.h>

#include "exec/exec.h"
#include "run/run.h"
#include "wire/register.h"

void hly_wrong(struct hly_check *c, const char *text)
{
    if (c->code)
        return;
    c->code = HALAY_EINVAL;
    snprintf(c->text, sizeof(c->text), "%s", text);
}

void hly_check_freed(struct hly_check *c, const halay_comm_t *comm)
{
    if (!comm->freed)
        return;
    c->code = HALAY_ESTATE;
    snprintf(c->text, sizeof(c->text), "the communicator was freed on this rank");
}

/* True if the call moves no bytes on this rank, so that its kind of memory does not matter. With
 * GPUDirect all ranks of a v form need one kind: a rank that forwards messages does so in memory of
 * its own. */
static bool is_empty(const struct hly_call *call, const struct hly_check *c,
                     const halay_context_t *ctx)
{
    if (!(call->desc.flags & HLY_CALL_VECTOR))
        return !call->desc.count; /* on all ranks */
    return !c->bytes[0] && !c->bytes[1] && !ctx->settings.gpudirect;
}

/* The alignment that an element's address must have. */
static size_t alignment_of(halay_type_t type)
{
    const bool two = type == HALAY_COMPLEX64 || type == HALAY_COMPLEX128 ||
                     (type >= HALAY_FLOAT32_INT32 && type <= HALAY_INT64_INT64);
    return halay_type_bytes(type) / (two ? 2 : 1);
}

/* Checks the alignment of the buffers. A library of device collectives may hand an address on as it
 * is, and a GPU faults on an unaligned one. */
static int check_places(const void *const at[2], const size_t bytes[2], halay_type_t type,
                        char *text, size_t text_bytes)
{
    const size_t alignment = alignment_of(type);
    for (int i = 0; i < 2; i++) {
        if (!bytes[i] || at[i] == HALAY_IN_PLACE || (uintptr_t)at[i] % alignment == 0)
            continue;
        snprintf(text, text_bytes,
                 "its %s buffer at %p is in a GPU's memory, where the address of %s has to be a "
                 "multiple of %zu: pass one that is, or the elements as uint8 where nothing is "
                 "reduced",
                 i ? "output" : "input", at[i], halay_type_name(type), alignment);
        return HALAY_EINVAL;
    }
    return HALAY_OK;
}

/* Returns the kind of memory of the call's buffers; the host's if the call is wrong. */
static uint8_t memory_of(const struct hly_call *call, struct hly_check *c, halay_context_t *ctx)
{
    const void *const at[2] = {call->in, call->out};
    struct hly_memory_seen seen;
    char text[sizeof(c->text)];
    hly_devices_look(ctx);
    if (ctx->ndevices == 1 || c->code || is_empty(call, c, ctx))
        return ctx->devices[0].memory;
    int rc = hly_memory_look(ctx, at, c->bytes, &seen, text, sizeof(text));
    if (!rc && !hly_device_of(ctx, seen.kind)->touchable)
        rc = check_places(at, c->bytes, (halay_type_t)call->desc.type, text, sizeof(text));
    if (!rc)
        return (uint8_t)seen.kind;
    hly_wrong(c, text);
    c->code = rc;
    return ctx->devices[0].memory;
}

void hly_describe(struct hly_call *call, struct hly_check *c, const halay_comm_t *comm)
{
    if (call->in == HALAY_IN_PLACE)
        call->desc.flags |= HLY_CALL_IN_PLACE;
    if (call->desc.collective != HALAY_BARRIER)
        call->desc.memory = memory_of(call, c, comm->context) & 7;
}

void hly_sign(struct hly_call *call, const halay_comm_t *comm)
{
    struct hly_call_desc desc = call->desc;
    if (desc.flags & HLY_CALL_VECTOR && !comm->context->settings.gpudirect)
        desc.memory = HALAY_MEMORY_HOST;
    uint64_t s = hly_hash(call->signature, &desc, sizeof(desc));
    if (call->captured)
        s ^= HLY_CAPTURED_SIGN;
    if (comm->planner_hint)
        s = hly_hash(s, &comm->planner_hint, sizeof(comm->planner_hint));
    call->signature = s ? s : 1;
}
