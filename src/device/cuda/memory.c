/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - whose memory it is; memory of the GPU and pinned memory of the host, kept for the next
 * who asks, because to give it back waits for all that runs there; and chunks of pinned memory,
 * through which copies go whose host memory is not pinned.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/gpu.h"

#define ALIGNMENT  256 /* of all that the driver gives */
#define CACHED_MAX (64u << 20)
#define BLOCKS_MAX 4096
#define RANGES_MAX 1024 /* of one buffer that lies in several allocations */

struct hly_gpu_block {
    struct hly_gpu_block *next;
    uint64_t base, at;
    size_t capacity, bytes; /* bytes 0: free */
    bool pinned;            /* memory of the host */
};

/* ------------------------------------------------------------------ whose it is */

struct range {
    bool is_device, is_managed;
    int ordinal;
    uint64_t end;
    unsigned long long id;
};

/* What the driver knows of the byte. HALAY_EUNSUPPORTED: nothing, or it is host memory. */
static int range_of(struct hly_gpu *gpu, uint64_t at, unsigned *type, struct range *range)
{
    unsigned managed = 0;
    int ordinal = -1;
    uint64_t start = 0;
    size_t bytes = 0;
    int which[] = {HLY_CU_MEMORY_TYPE, HLY_CU_IS_MANAGED, HLY_CU_DEVICE_ORDINAL,
                   HLY_CU_RANGE_START, HLY_CU_RANGE_SIZE, HLY_CU_BUFFER_ID};
    void *values[] = {type, &managed, &ordinal, &start, &bytes, &range->id};
    *type = 0;
    *range = (struct range){.ordinal = -1, .end = at + 1};
    const int rc = gpu->driver.cuPointerGetAttributes(6, which, values, at);
    if (rc == HLY_CU_NOT_INITIALIZED) /* the program has not used CUDA */
        *type = 0;
    else if (rc)
        return hly_gpu_failed(gpu, "cuPointerGetAttributes", rc);
    range->is_device = *type == HLY_CU_MEMORY_DEVICE || (*type && managed);
    range->is_managed = managed;
    range->ordinal = ordinal;
    range->end = start + bytes > at ? start + bytes : at + 1;
    return range->is_device ? HALAY_OK : HALAY_EUNSUPPORTED;
}

static bool overlaps(uint64_t a, size_t a_bytes, uint64_t b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static int in_part(struct hly_gpu *gpu, size_t bytes)
{
    snprintf(
        gpu->why, sizeof(gpu->why),
        "a buffer of %zu bytes lies only in part in one GPU's memory: its allocation is shorter"
        ", or begins after it. Is the count right?",
        bytes);
    return HALAY_EINVAL;
}

/* As far as alloc's blocks know: HALAY_EAGAIN if it is none of them. */
static int memory_of_blocks(const struct hly_gpu *gpu, uint64_t at, size_t bytes)
{
    int rc = HALAY_EAGAIN;
    for (const struct hly_gpu_block *b = gpu->blocks; b; b = b->next) {
        if (b->pinned)
            continue;
        if (b->bytes && overlaps(at, bytes, b->at, b->bytes))
            return at >= b->at && bytes <= b->bytes - (at - b->at) ? HALAY_OK : HALAY_EINVAL;
        if (overlaps(at, bytes, b->base, b->capacity))
            rc = at >= b->base && bytes <= b->capacity - (at - b->base) ? HALAY_EUNSUPPORTED
                                                                        : HALAY_EINVAL;
    }
    return rc;
}

int hly_gpu_memory(struct hly_gpu *gpu, const void *address, size_t bytes, int *ordinal,
                   uint64_t *id)
{
    const uint64_t at = (uint64_t)(uintptr_t)address;
    struct range range;
    unsigned type;
    bytes += !bytes;
    *ordinal = gpu->ordinal;
    *id = 0;
    int rc = memory_of_blocks(gpu, at, bytes);
    if (rc != HALAY_EAGAIN)
        return rc == HALAY_EINVAL ? in_part(gpu, bytes) : rc;
    rc = hly_cuda_driver_open(&gpu->driver, true, gpu->why, sizeof(gpu->why));
    if (rc)
        return hly_cuda_driver_refused(&gpu->driver, at) ? HALAY_EDEVICE : rc;
    rc = range_of(gpu, at, &type, &range);
    if (rc == HALAY_EUNSUPPORTED && bytes > 1) { /* it may begin before */
        rc = range_of(gpu, at + bytes - 1, &type, &range);
        return rc ? rc : in_part(gpu, bytes);
    }
    *ordinal = range.is_managed && gpu->ordinal >= 0 ? gpu->ordinal : range.ordinal;
    *id = range.id;
    for (int n = 0; !rc && range.end < at + bytes; n++) {
        const int first = range.ordinal;
        rc = n < RANGES_MAX ? range_of(gpu, range.end, &type, &range) : HALAY_EINVAL;
        if (rc == HALAY_EUNSUPPORTED || rc == HALAY_EINVAL || range.ordinal != first)
            rc = in_part(gpu, bytes);
    }
    return rc;
}

bool hly_gpu_is_pinned(struct hly_gpu *gpu, const void *address, size_t bytes)
{
    const uint64_t at = (uint64_t)(uintptr_t)address;
    struct range range;
    unsigned type;
    range_of(gpu, at, &type, &range);
    return type == HLY_CU_MEMORY_HOST && range.end >= at + bytes;
}

/* ------------------------------------------------------------------ memory of the GPU */

/* Gives back what is free, which waits: so only while nothing of ours is in flight. */
static void trim(struct hly_gpu *gpu)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    struct hly_gpu_block **at = &gpu->blocks;
    while (*at) {
        struct hly_gpu_block *b = *at;
        if (b->bytes) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        gpu->cached -= b->capacity;
        if (b->pinned)
            d->cuMemFreeHost((void *)(uintptr_t)b->base);
        else
            d->cuMemFree_v2(b->base);
        free(b);
    }
}

/* A free one that is large enough, and not much larger. */
static struct hly_gpu_block *reuse(struct hly_gpu *gpu, bool pinned, size_t need, uint32_t *nblocks)
{
    struct hly_gpu_block *best = NULL;
    for (struct hly_gpu_block *b = gpu->blocks; b; b = b->next, ++*nblocks)
        if (!b->bytes && b->pinned == pinned && b->capacity >= need && b->capacity / 2 <= need &&
            (!best || b->capacity < best->capacity))
            best = b;
    if (best)
        gpu->cached -= best->capacity;
    return best;
}

static int block_fill(struct hly_gpu *gpu, struct hly_gpu_block *b)
{
    void *host = NULL;
    if (!b->pinned)
        return gpu->driver.cuMemAlloc_v2(&b->base, b->capacity);
    const int rc = hly_gpu_pin(gpu, &host, b->capacity, HLY_CU_PORTABLE);
    b->base = (uint64_t)(uintptr_t)host;
    return rc;
}

static int block_make(struct hly_gpu *gpu, bool pinned, size_t need, struct hly_gpu_block **block)
{
    struct hly_gpu_block *b = malloc(sizeof(*b));
    if (!b)
        return HALAY_ENOMEM;
    *b = (struct hly_gpu_block){.next = NULL, .capacity = need, .pinned = pinned};
    int rc = block_fill(gpu, b);
    if (rc == HLY_CU_OUT_OF_MEMORY && gpu->cached && !hly_gpu_flies(gpu)) {
        trim(gpu);
        rc = block_fill(gpu, b);
    }
    if (rc) {
        free(b);
        return hly_gpu_failed(gpu, pinned ? "cuMemHostAlloc" : "cuMemAlloc", rc);
    }
    b->next = gpu->blocks;
    gpu->blocks = b;
    *block = b;
    return HALAY_OK;
}

int hly_gpu_alloc(struct hly_gpu *gpu, bool pinned, size_t bytes, size_t alignment, void **address)
{
    const size_t more = alignment > ALIGNMENT ? alignment : 0;
    if (bytes > SIZE_MAX / 2)
        return HALAY_ENOMEM;
    const size_t need = (bytes + more + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    uint32_t nblocks = 0;
    struct hly_gpu_block *b = reuse(gpu, pinned, need, &nblocks);
    if (!b) {
        int rc = nblocks < BLOCKS_MAX ? hly_gpu_enter(gpu) : HALAY_ENOMEM;
        if (rc)
            return rc;
        rc = block_make(gpu, pinned, need, &b);
        hly_gpu_leave(gpu);
        if (rc)
            return rc;
    }
    assert(b);
    b->at = (b->base + alignment - 1) / alignment * alignment;
    b->bytes = bytes;
    *address = (void *)(uintptr_t)b->at;
    return HALAY_OK;
}

void hly_gpu_free(struct hly_gpu *gpu, void *address)
{
    struct hly_gpu_block *b = gpu->blocks;
    while (b && (!b->bytes || b->at != (uint64_t)(uintptr_t)address))
        b = b->next;
    assert(b);
    b->bytes = 0;
    gpu->cached += b->capacity;
    if (gpu->cached <= CACHED_MAX || hly_gpu_flies(gpu) || gpu->lost || hly_gpu_enter(gpu))
        return;
    trim(gpu);
    hly_gpu_leave(gpu);
}

void hly_gpu_memory_close(struct hly_gpu *gpu)
{
    if (!gpu->lost)
        trim(gpu);
    while (gpu->blocks) { /* work or a group that could not be stopped may write there */
        struct hly_gpu_block *b = gpu->blocks;
        gpu->blocks = b->next;
        free(b);
    }
    if (gpu->chunks && !gpu->lost)
        gpu->driver.cuMemFreeHost(gpu->chunks);
    gpu->chunks = NULL;
}

/* ------------------------------------------------------------------ pinned chunks */

int hly_gpu_chunk_take(struct hly_gpu *gpu)
{
    int chunk = 0;
    if (!gpu->chunks) {
        void *at = NULL;
        const int rc =
            hly_gpu_pin(gpu, &at, (size_t)HLY_GPU_CHUNKS * HLY_GPU_CHUNK, HLY_CU_PORTABLE);
        if (rc)
            return hly_gpu_failed(gpu, "cuMemHostAlloc", rc) - 1;
        gpu->chunks = at;
    }
    while (chunk < HLY_GPU_CHUNKS && gpu->chunks_taken >> chunk & 1)
        chunk++;
    if (chunk == HLY_GPU_CHUNKS)
        return -1;
    gpu->chunks_taken |= 1u << chunk;
    return chunk;
}

void hly_gpu_chunk_give(struct hly_gpu *gpu, int chunk)
{
    assert(gpu->chunks_taken >> chunk & 1);
    gpu->chunks_taken &= ~(1u << chunk);
}
