/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - memory that the program registers, or has made for it: halay_mem_*. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/api.h"
#include "wire/register.h"

#define HUGE_BYTES ((size_t)2 << 20)

static uint64_t handle_of(const halay_context_t *ctx, const struct hly_range *range)
{
    return (uint64_t)range->generation << 32 | (uint64_t)(range - ctx->ranges + 1);
}

int halay_mem_kind(halay_context_t *context, const void *address, size_t bytes, uint32_t *kind)
{
    struct hly_memory_seen seen;
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !address || !kind)
        return hly_context_reject(context, HALAY_EINVAL, "mem_kind: address or kind is NULL");
    *kind = HALAY_MEMORY_HOST;
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    hly_devices_look(context);
    char text[224];
    rc = hly_memory_look(context, (const void *const[2]){address, NULL},
                         (const size_t[2]){bytes, 0}, &seen, text, sizeof(text));
    if (!rc)
        *kind = seen.kind;
    else
        hly_comm_refuse(context->world, rc, text);
    hly_unlock(context);
    return rc;
}

/* Is it the host's, all of it? Only that is registered with transports. */
static int check_host(halay_context_t *ctx, const void *address, size_t bytes)
{
    struct hly_memory_seen seen;
    hly_devices_look(ctx);
    if (!hly_memory_look(ctx, (const void *const[2]){address, NULL}, (const size_t[2]){bytes, 0},
                         &seen, NULL, 0) &&
        hly_device_of(ctx, seen.kind)->touchable)
        return HALAY_OK;
    return hly_comm_refuse(
        ctx->world, HALAY_EUNSUPPORTED,
        "the memory is not the host's (or not all of it); calls in a device's memory "
        "need no registration");
}

/* As hly_range_enter(), but that it says why not. */
static int enter(halay_context_t *ctx, void *address, size_t bytes, size_t mapped,
                 struct hly_lent lent, struct hly_range **range)
{
    char text[192];
    const int rc = hly_range_enter(ctx, address, bytes, mapped, lent, range);
    if (!rc)
        return HALAY_OK;
    snprintf(text, sizeof(text),
             "no room for %zu more bytes of registered memory: there are %d ranges at most; "
             "deregister some, or make them larger",
             bytes, HLY_RANGES_MAX);
    return hly_comm_refuse(ctx->world, rc, text);
}

static int leave(halay_context_t *ctx, struct hly_range *range)
{
    const int rc = hly_range_leave(ctx, range);
    return rc ? hly_comm_refuse(ctx->world, rc,
                                "a call that is under way uses the memory; wait for it first")
              : HALAY_OK;
}

int halay_mem_register(halay_context_t *context, void *address, size_t bytes, halay_range_t *range)
{
    if (!range)
        return hly_context_reject(context, HALAY_EINVAL, "mem_register: range is NULL");
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    struct hly_range *entered;
    if (!address || !bytes || bytes > UINTPTR_MAX - (uintptr_t)address)
        rc = hly_comm_refuse(context->world, HALAY_EINVAL,
                             "memory to be registered has an address, and at least one byte");
    rc = rc ? rc : check_host(context, address, bytes);
    rc = rc ? rc : enter(context, address, bytes, 0, (struct hly_lent){0}, &entered);
    if (!rc)
        *range = handle_of(context, entered);
    hly_unlock(context);
    return rc;
}

int halay_mem_deregister(halay_context_t *context, halay_range_t handle)
{
    const uint32_t index = (uint32_t)handle - 1, generation = (uint32_t)(handle >> 32);
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    struct hly_range *range = index < context->nranges ? &context->ranges[index] : NULL;
    if (!range || !generation || generation > range->generation)
        rc = hly_comm_refuse(context->world, HALAY_EINVAL, "this is no range of registered memory");
    else if (!range->bytes || range->generation != generation || range->mapped || range->scratch)
        rc = hly_comm_refuse(context->world, HALAY_ESTATE, "the memory is not registered any more");
    else
        rc = leave(context, range);
    hly_unlock(context);
    return rc;
}

/* Pages that a forked child does not have; large ones where the kernel gives them unasked for. */
static char *pages_map(size_t bytes)
{
    const size_t spare = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    if (spare > SIZE_MAX - bytes)
        return NULL;
    char *all =
        mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    const size_t before = spare ? -(uintptr_t)all % HUGE_BYTES : 0;
    if (before)
        munmap(all, before);
    if (spare - before)
        munmap(all + before + bytes, spare - before);
    char *pages = all + before;
    if (spare)
        madvise(pages, bytes, MADV_HUGEPAGE); /* a kernel without them says no: no harm */
    if (madvise(pages, bytes, MADV_DONTFORK) == 0)
        return pages;
    munmap(pages, bytes);
    return NULL;
}

static int take_pages(halay_context_t *ctx, size_t bytes, void **address)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = bytes > SIZE_MAX / 2 ? 0 : (bytes + page - 1) / page * page;
    struct hly_lent lent;
    struct hly_range *range;
    void *pages = whole ? hly_lent_make(ctx, whole, &lent) : NULL;
    if (whole && !pages)
        pages = pages_map(whole);
    if (!pages) {
        char text[64];
        snprintf(text, sizeof(text), "there are no %zu bytes of memory", bytes);
        return hly_comm_refuse(ctx->world, HALAY_ENOMEM, text);
    }
    int rc = enter(ctx, pages, whole, whole, lent, &range);
    if (!rc) {
        *address = pages;
        return HALAY_OK;
    }
    hly_lent_drop(ctx, pages, whole, lent);
    return rc;
}

int halay_mem_alloc(halay_context_t *context, size_t bytes, void **address)
{
    if (!bytes || !address)
        return hly_context_reject(context, HALAY_EINVAL, "mem_alloc: no bytes, or address is NULL");
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    rc = take_pages(context, bytes, address);
    hly_unlock(context);
    return rc;
}

int halay_mem_free(halay_context_t *context, void *address)
{
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    struct hly_range *range = NULL;
    for (uint32_t i = 0; address && !range && i < context->nranges; i++)
        if (context->ranges[i].mapped && context->ranges[i].address == address)
            range = &context->ranges[i];
    if (range)
        rc = leave(context, range);
    else if (address)
        rc =
            hly_comm_refuse(context->world, HALAY_EINVAL, "the memory is not of halay_mem_alloc()");
    hly_unlock(context);
    return rc;
}
