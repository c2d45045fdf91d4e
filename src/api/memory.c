/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - memory that the program registers, or has made for it: halay_mem_*. */
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
        return HALAY_EINVAL;
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

int halay_mem_register(halay_context_t *context, void *address, size_t bytes, halay_range_t *range)
{
    if (!address || !bytes || !range || bytes > UINTPTR_MAX - (uintptr_t)address)
        return HALAY_EINVAL;
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    struct hly_range *entered;
    rc = check_host(context, address, bytes);
    rc = rc ? rc : hly_range_enter(context, address, bytes, 0, (struct hly_lent){0}, &entered);
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
    rc = HALAY_EINVAL;
    if (index < context->nranges && generation && generation <= context->ranges[index].generation) {
        struct hly_range *range = &context->ranges[index];
        rc = HALAY_ESTATE;
        if (range->bytes && range->generation == generation && !range->mapped && !range->scratch)
            rc = hly_range_leave(context, range, "halay_mem_deregister");
    }
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
    struct hly_lent lent;
    struct hly_range *range;
    void *pages = hly_lent_make(ctx, bytes, &lent);
    if (!pages)
        pages = pages_map(bytes);
    if (!pages)
        return HALAY_ENOMEM;
    int rc = hly_range_enter(ctx, pages, bytes, bytes, lent, &range);
    if (!rc) {
        *address = pages;
        return HALAY_OK;
    }
    hly_lent_drop(ctx, pages, bytes, lent);
    return rc;
}

int halay_mem_alloc(halay_context_t *context, size_t bytes, void **address)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!bytes || !address)
        return HALAY_EINVAL;
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    rc = HALAY_ENOMEM;
    if (bytes <= SIZE_MAX / 2)
        rc = take_pages(context, (bytes + page - 1) / page * page, address);
    hly_unlock(context);
    return rc;
}

int halay_mem_free(halay_context_t *context, void *address)
{
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    rc = address ? HALAY_EINVAL : HALAY_OK;
    for (uint32_t i = 0; address && rc && i < context->nranges; i++) {
        struct hly_range *range = &context->ranges[i];
        if (range->mapped && range->address == address) {
            rc = hly_range_leave(context, range, "halay_mem_free");
            break;
        }
    }
    hly_unlock(context);
    return rc;
}
