/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - each device has a range of addresses, which nobody can touch, and the same pages at
 * another place for the double itself. Blocks are given out round and round, so that an address
 * comes back late.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inside.h"

#define BLOCKS_MAX 4096
#define PAGE       4096u
#define GAP        PAGE              /* between blocks, which belongs to nobody */
#define FILL_BYTES ((size_t)4 << 20) /* of new memory, with what nobody has written */

struct block {
    char *at, *inside;
    size_t bytes;
    int fd;      /* a memfd that is all of it; -1: it lies in the arena's */
    uint64_t id; /* no other block has it */
    int device;  /* whose context it was made in */
    bool opened; /* another process's */
    enum { UNUSED, DEVICE, PINNED, MANAGED, REGISTERED } kind;
};

static struct block blocks[BLOCKS_MAX];
static struct arena {
    char *at, *inside;
    size_t bytes, used, next;
} arenas[DEVICES_MAX];

static uint64_t last_id;

static int arena_make(struct arena *a)
{
    const int fd = memfd_create("gpu", MFD_CLOEXEC);
    a->bytes = 4 * settings.bytes; /* of addresses */
    if (fd < 0 || ftruncate(fd, (off_t)a->bytes))
        return HLY_CU_OUT_OF_MEMORY;
    a->at = mmap(NULL, a->bytes, PROT_NONE, MAP_SHARED, fd, 0);
    a->inside = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (a->at == MAP_FAILED || a->inside == MAP_FAILED)
        abort();
    return 0;
}

static bool has(const struct block *b, const char *at, size_t bytes)
{
    return b->kind && at >= b->at && bytes <= b->bytes && (size_t)(at - b->at) <= b->bytes - bytes;
}

static struct block *block_of(const void *at, size_t bytes)
{
    for (int i = 0; i < BLOCKS_MAX; i++)
        if (has(&blocks[i], at, bytes))
            return &blocks[i];
    return NULL;
}

static struct block *block_new(void)
{
    int i = 0;
    while (i < BLOCKS_MAX && blocks[i].kind)
        i++;
    return i < BLOCKS_MAX ? &blocks[i] : NULL;
}

void *inside(uint64_t at, size_t bytes, int device)
{
    char *p = (char *)(uintptr_t)at;
    const struct block *b = block_of(p, bytes);
    if (!b || (b->kind == DEVICE && device >= 0 && b->device != device))
        return NULL;
    return b->inside + (p - b->at);
}

bool is_pinned(const void *at, size_t bytes)
{
    const struct block *b = block_of(at, bytes);
    return b && b->kind != DEVICE;
}

bool is_device(const void *at)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        if (arenas[i].at && (const char *)at >= arenas[i].at &&
            (const char *)at < arenas[i].at + arenas[i].bytes)
            return true;
    return false;
}

void *cuda_double_inside(uint64_t at, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    void *p = inside(at, bytes, -1);
    pthread_mutex_unlock(&mutex);
    return p;
}

/* A place in the addresses that no block has, from the last one on. */
static char *place(struct arena *a, size_t bytes)
{
    const size_t span = (bytes + PAGE - 1) / PAGE * PAGE + GAP;
    for (int i = 0; i <= BLOCKS_MAX; i++) {
        struct block *in_way = NULL;
        if (a->next + span > a->bytes)
            a->next = 0;
        for (int b = 0; b < BLOCKS_MAX && !in_way; b++)
            if (blocks[b].kind == DEVICE && blocks[b].at < a->at + a->next + span &&
                a->at + a->next < blocks[b].at + blocks[b].bytes + GAP)
                in_way = &blocks[b];
        if (!in_way) {
            a->next += span;
            return a->at + a->next - span;
        }
        a->next = (size_t)(in_way->at - a->at) + (in_way->bytes + PAGE - 1) / PAGE * PAGE + GAP;
    }
    return NULL;
}

static size_t pages_of(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* These pages in the block's place. */
static void put_pages(const char *at, const char *inside_at, size_t bytes, int fd)
{
    const size_t whole = pages_of(bytes);
    if (mmap((void *)(uintptr_t)at, whole, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) ==
            MAP_FAILED ||
        mmap((void *)(uintptr_t)inside_at, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             fd, 0) == MAP_FAILED)
        abort();
}

/* Pages of its own in its place, which can be exported; an earlier block's stay with who has them.
 */
static int own_pages(const char *at, const char *inside_at, size_t bytes)
{
    const int fd = memfd_create("gpu-block", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)pages_of(bytes)))
        abort();
    put_pages(at, inside_at, bytes, fd);
    return fd;
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes)
{
    struct context *c = NULL;
    int rc = call_begin("cuMemAlloc_v2", NEEDS_CONTEXT, &c);
    if (rc)
        return call_end(rc);
    struct arena *a = &arenas[c->device];
    struct block *b = block_new();
    if (!bytes || !at)
        return call_end(misuse(INVALID_VALUE));
    if (!b || bytes > settings.bytes - a->used || (!a->at && arena_make(a)))
        return call_end(HLY_CU_OUT_OF_MEMORY);
    char *p = place(a, bytes);
    if (!p)
        return call_end(HLY_CU_OUT_OF_MEMORY);
    *b = (struct block){.at = p,
                        .inside = a->inside + (p - a->at),
                        .bytes = bytes,
                        .fd = -1,
                        .id = ++last_id,
                        .device = c->device,
                        .kind = DEVICE};
    if (settings.dmabuf)
        b->fd = own_pages(b->at, b->inside, bytes);
    memset(b->inside, 0xdb, bytes < FILL_BYTES ? bytes : FILL_BYTES);
    a->used += bytes;
    counts.allocations++;
    *at = (uint64_t)(uintptr_t)p;
    return call_end(0);
}

int cuMemFree_v2(uint64_t at)
{
    int rc = call_begin("cuMemFree_v2", NEEDS_CONTEXT, NULL);
    struct block *b = block_of((void *)(uintptr_t)at, 1);
    if (!rc && (!b || b->at != (char *)(uintptr_t)at || b->opened ||
                (b->kind != DEVICE && b->kind != MANAGED)))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    if (b->kind == DEVICE) {
        arenas[b->device].used -= b->bytes;
        if (settings.again)
            arenas[b->device].next = (size_t)(b->at - arenas[b->device].at);
        if (b->fd >= 0)
            close(b->fd);
    } else
        free(b->at);
    b->kind = UNUSED;
    counts.allocations--;
    counts.waited++;
    return call_end(0);
}

static int host_alloc(const char *name, void **at, size_t bytes, int kind)
{
    struct context *c = NULL;
    int rc = call_begin(name, NEEDS_CONTEXT, &c);
    struct block *b = block_new();
    if (rc)
        return call_end(rc);
    char *p = b && bytes ? aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE) : NULL;
    if (!p)
        return call_end(HLY_CU_OUT_OF_MEMORY);
    *b = (struct block){.at = p, .inside = p, .bytes = bytes, .device = c->device};
    b->kind = kind == PINNED ? PINNED : MANAGED;
    *at = p;
    counts.pinned += kind == PINNED;
    counts.allocations += kind == MANAGED;
    return call_end(0);
}

int cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    return host_alloc("cuMemHostAlloc", at, bytes, PINNED);
}

int cuMemAllocManaged(uint64_t *at, size_t bytes, unsigned flags)
{
    void *p;
    (void)flags;
    const int rc = host_alloc("cuMemAllocManaged", &p, bytes, MANAGED);
    *at = rc ? 0 : (uint64_t)(uintptr_t)p;
    return rc;
}

int cuMemFreeHost(void *at)
{
    int rc = call_begin("cuMemFreeHost", NEEDS_CONTEXT, NULL);
    struct block *b = block_of(at, 1);
    if (!rc && (!b || b->at != (char *)at || b->kind != PINNED))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    free(b->at);
    b->kind = UNUSED;
    counts.pinned--;
    counts.waited++;
    return call_end(0);
}

int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    struct context *c = NULL;
    int rc = call_begin("cuMemHostRegister_v2", NEEDS_CONTEXT, &c);
    struct block *b = block_new();
    if (!rc && (!bytes || flags & ~3u || !b || is_device(at) || block_of(at, 1)))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    *b = (struct block){.at = at, .inside = at, .bytes = bytes, .device = c->device};
    b->kind = REGISTERED;
    counts.pinned++;
    return call_end(0);
}

int cuMemHostUnregister(void *at)
{
    int rc = call_begin("cuMemHostUnregister", NEEDS_CONTEXT, NULL);
    struct block *b = block_of(at, 1);
    if (!rc && (!b || b->at != (char *)at || b->kind != REGISTERED))
        rc = misuse(INVALID_VALUE);
    if (!rc) {
        b->kind = UNUSED;
        counts.pinned--;
    }
    return call_end(rc);
}

int cuMemHostGetDevicePointer_v2(uint64_t *at, void *host, unsigned flags)
{
    int rc = call_begin("cuMemHostGetDevicePointer_v2", NEEDS_CONTEXT, NULL);
    if (!rc && (flags || !is_pinned(host, 1)))
        rc = misuse(INVALID_VALUE);
    *at = (uint64_t)(uintptr_t)host;
    return call_end(rc);
}

static void attribute(const struct block *b, int which, void *value)
{
    const bool managed = b && b->kind == MANAGED;
    const bool host = b && (b->kind == PINNED || b->kind == REGISTERED);
    const unsigned type = !b ? 0 : host ? HLY_CU_MEMORY_HOST : HLY_CU_MEMORY_DEVICE;
    if (which == HLY_CU_MEMORY_TYPE)
        *(unsigned *)value = type;
    else if (which == HLY_CU_IS_MANAGED)
        *(unsigned *)value = managed;
    else if (which == HLY_CU_DEVICE_ORDINAL)
        *(int *)value = b ? b->device : -2;
    else if (which == HLY_CU_BUFFER_ID)
        *(unsigned long long *)value = b ? b->id : 0;
    else if (which == HLY_CU_RANGE_START)
        *(uint64_t *)value = b ? (uint64_t)(uintptr_t)b->at : 0;
    else
        *(size_t *)value = b ? b->bytes : 0;
}

int cuPointerGetAttributes(unsigned n, int *which, void **values, uint64_t at)
{
    int rc = call_begin("cuPointerGetAttributes", NO_CONTEXT, NULL);
    const struct block *b = block_of((void *)(uintptr_t)at, 1);
    rc = rc ? rc : broken;
    for (unsigned i = 0; !rc && i < n; i++)
        attribute(b, which[i], values[i]);
    return call_end(rc);
}

int cuPointerSetAttribute(const void *value, int which, uint64_t at)
{
    int rc = call_begin("cuPointerSetAttribute", NEEDS_CONTEXT, NULL);
    if (!rc && (which != HLY_CU_SYNC_MEMOPS || !*(const unsigned *)value ||
                !block_of((void *)(uintptr_t)at, 1)))
        rc = misuse(INVALID_VALUE);
    return call_end(rc);
}

int cuMemGetHandleForAddressRange(void *handle, uint64_t at, size_t bytes, int type,
                                  unsigned long long flags)
{
    int rc = call_begin("cuMemGetHandleForAddressRange", NEEDS_CONTEXT, NULL);
    const struct block *b = block_of((void *)(uintptr_t)at, 1);
    if (!rc && (type != HLY_CU_RANGE_DMABUF || flags || at % PAGE || bytes % PAGE || !b ||
                b->kind != DEVICE || b->at != (char *)(uintptr_t)at ||
                bytes != (b->bytes + PAGE - 1) / PAGE * PAGE))
        rc = misuse(INVALID_VALUE);
    if (!rc && b->fd < 0)
        rc = NOT_SUPPORTED;
    const int fd = rc ? -1 : dup(b->fd);
    if (!rc && fd < 0)
        rc = HLY_CU_OUT_OF_MEMORY;
    if (!rc)
        *(int *)handle = fd;
    counts.exports += !rc;
    return call_end(rc);
}

int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
    int rc = call_begin("cuFlushGPUDirectRDMAWrites", NEEDS_CONTEXT, NULL);
    if (!rc && (target != HLY_CU_FLUSH_CURRENT || scope != HLY_CU_FLUSH_TO_OWNER))
        rc = misuse(INVALID_VALUE);
    counts.flushes += !rc;
    return call_end(rc);
}

/* ------------------------------------------------------------------ IPC */

struct handle {
    int process, fd, device;
    size_t bytes;
    uint64_t id;
};

/* Pages of its own for a block that has none, with what is in it. */
static int pages_for(struct block *b)
{
    char *kept = b->fd < 0 ? malloc(b->bytes) : NULL;
    if (b->fd >= 0)
        return 0;
    if (!kept)
        return HLY_CU_OUT_OF_MEMORY;
    memcpy(kept, b->inside, b->bytes);
    b->fd = own_pages(b->at, b->inside, b->bytes);
    if (b->fd >= 0)
        memcpy(b->inside, kept, b->bytes);
    free(kept);
    return b->fd < 0 ? HLY_CU_OUT_OF_MEMORY : 0;
}

int cuIpcGetMemHandle(struct hly_cu_ipc_handle *handle, uint64_t at)
{
    int rc = call_begin("cuIpcGetMemHandle", NEEDS_CONTEXT, NULL);
    struct block *b = block_of((void *)(uintptr_t)at, 1);
    if (!rc && (!b || b->kind != DEVICE || b->opened))
        rc = misuse(INVALID_VALUE);
    if (!rc && !settings.ipc)
        rc = NOT_SUPPORTED;
    if (!rc)
        rc = pages_for(b);
    if (rc)
        return call_end(rc);
    const struct handle h = {(int)getpid(), b->fd, b->device, b->bytes, b->id};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &h, sizeof(h));
    counts.shared++;
    return call_end(0);
}

int cuIpcOpenMemHandle_v2(uint64_t *at, struct hly_cu_ipc_handle handle, unsigned flags)
{
    struct context *c = NULL;
    struct handle h;
    char path[64];
    int rc = call_begin("cuIpcOpenMemHandle_v2", NEEDS_CONTEXT, &c);
    struct block *b = block_new();
    memcpy(&h, &handle, sizeof(h));
    if (!rc && (flags > 1 || !h.bytes || h.process == getpid())) /* as CUDA refuses it */
        rc = misuse(INVALID_CONTEXT);
    if (!rc && (!b || (!arenas[c->device].at && arena_make(&arenas[c->device]))))
        rc = HLY_CU_OUT_OF_MEMORY;
    if (rc)
        return call_end(rc);
    struct arena *a = &arenas[c->device];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", h.process, h.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char *p = fd < 0 ? NULL : place(a, h.bytes);
    if (!p) {
        if (fd >= 0)
            close(fd);
        return call_end(fd < 0 ? INVALID_VALUE : HLY_CU_OUT_OF_MEMORY);
    }
    *b = (struct block){.at = p,
                        .inside = a->inside + (p - a->at),
                        .bytes = h.bytes,
                        .fd = fd,
                        .id = ++last_id,
                        .device = c->device,
                        .opened = true,
                        .kind = DEVICE};
    put_pages(b->at, b->inside, b->bytes, fd);
    counts.opened++;
    *at = (uint64_t)(uintptr_t)p;
    return call_end(0);
}

int cuIpcCloseMemHandle(uint64_t at)
{
    int rc = call_begin("cuIpcCloseMemHandle", NEEDS_CONTEXT, NULL);
    struct block *b = block_of((void *)(uintptr_t)at, 1);
    if (!rc && (!b || !b->opened || b->at != (char *)(uintptr_t)at))
        rc = misuse(INVALID_VALUE);
    if (rc)
        return call_end(rc);
    close(b->fd);
    b->fd = own_pages(b->at, b->inside, b->bytes); /* no longer the other's */
    if (b->fd >= 0)
        close(b->fd);
    b->kind = UNUSED;
    counts.opened--;
    return call_end(0);
}
