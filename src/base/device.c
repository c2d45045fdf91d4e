/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - which device memory belongs to. The first device is that of the host, which takes what
 * no other one claims: so where it is the only one, nobody is asked.
 */
#include "base/context.h"

static int kind_of(const halay_context_t *ctx, const void *address, size_t bytes, uint32_t *kind)
{
    for (int i = 1; i < ctx->ndevices; i++) {
        const struct hly_device *device = &ctx->devices[i];
        halay_memory_t memory = {.size = sizeof(memory)};
        const int rc = device->ops->query(device->handle, address, bytes, &memory);
        *kind = memory.kind;
        if (rc != HALAY_EUNSUPPORTED)
            return rc;
    }
    *kind = ctx->devices[0].memory;
    return HALAY_OK;
}

int hly_memory_kind(const halay_context_t *ctx, const void *const at[2], const size_t bytes[2],
                    uint32_t *kind)
{
    const bool none = !bytes[0] && !bytes[1];
    bool found = false;
    *kind = ctx->devices[0].memory;
    for (int i = 0; i < 2 && ctx->ndevices > 1; i++) {
        uint32_t other;
        if (!at[i] || at[i] == HALAY_IN_PLACE || (!bytes[i] && !none))
            continue;
        const int rc = kind_of(ctx, at[i], bytes[i], &other);
        if (rc || (found && other != *kind))
            return rc ? rc : HALAY_EINVAL;
        *kind = other;
        found = true;
    }
    return HALAY_OK;
}

struct hly_device *hly_device_of(halay_context_t *ctx, uint32_t kind)
{
    int i = ctx->ndevices - 1;
    while (i > 0 && ctx->devices[i].memory != kind)
        i--;
    return &ctx->devices[i];
}
