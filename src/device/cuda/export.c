/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.c - memory of the GPU for network adapters: its dma-buf, the allocation's number, and the
 * flush of what they have written. A whole allocation is exported, since its number tells whether
 * it is still the same one.
 */
#include <stdio.h>
#include <unistd.h>

#include "device/cuda/gpu.h"

void hly_gpu_export_look(struct hly_gpu *gpu)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    gpu->rdma = hly_gpu_attribute(gpu, HLY_CU_RDMA) || hly_gpu_attribute(gpu, HLY_CU_DMABUF);
    gpu->dmabuf = hly_gpu_attribute(gpu, HLY_CU_DMABUF) && d->cuMemGetHandleForAddressRange;
    gpu->flushes = hly_gpu_attribute(gpu, HLY_CU_RDMA_ORDERING) < HLY_CU_FLUSH_TO_OWNER;
    gpu->cannot_flush = gpu->flushes && (!d->cuFlushGPUDirectRDMAWrites ||
                                         !(hly_gpu_attribute(gpu, HLY_CU_RDMA_FLUSH) & 1));
}

/* In the GPU's context. The range that is exported is of whole pages of the host's. */
static void dmabuf_open(struct hly_gpu *gpu, halay_export_t *e)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uint64_t)(uintptr_t)e->address;
    const uint64_t from = at / page * page, to = (at + e->bytes + page - 1) / page * page;
    int fd = -1;
    const int rc =
        gpu->driver.cuMemGetHandleForAddressRange(&fd, from, to - from, HLY_CU_RANGE_DMABUF, 0);
    if (rc) {
        hly_gpu_failed(gpu, "cuMemGetHandleForAddressRange", rc);
        return;
    }
    e->dmabuf = fd;
    e->offset = at - from;
}

/* Copies that the program's calls wait for are then there when these return, for adapters too. */
static void memops_order(const struct hly_gpu *gpu, uint64_t at)
{
    const unsigned yes = 1;
    if (gpu->driver.cuPointerSetAttribute)
        gpu->driver.cuPointerSetAttribute(&yes, HLY_CU_SYNC_MEMOPS, at);
}

static int unsupported(struct hly_gpu *gpu, const char *what)
{
    snprintf(gpu->why, sizeof(gpu->why), "GPU %d: %s", gpu->ordinal, what);
    return HALAY_EUNSUPPORTED;
}

int hly_gpu_export(struct hly_gpu *gpu, const void *address, size_t bytes, uint32_t opens,
                   halay_export_t *e)
{
    const uint64_t at = (uint64_t)(uintptr_t)address;
    unsigned type = 0, managed = 0;
    unsigned long long id = 0;
    uint64_t start = 0;
    size_t range = 0;
    int which[] = {HLY_CU_MEMORY_TYPE, HLY_CU_IS_MANAGED, HLY_CU_BUFFER_ID, HLY_CU_RANGE_START,
                   HLY_CU_RANGE_SIZE};
    void *values[] = {&type, &managed, &id, &start, &range};
    if (gpu->ordinal < 0 || gpu->lost || gpu->broken)
        return gpu->ordinal < 0 ? HALAY_EUNSUPPORTED : HALAY_EDEVICE;
    if (!gpu->rdma)
        return unsupported(gpu, "it does not offer GPUDirect RDMA");
    if (gpu->cannot_flush)
        return unsupported(gpu, "it needs flushes of GPUDirect RDMA, and cannot be asked for them");
    int rc = gpu->driver.cuPointerGetAttributes(5, which, values, at);
    if (rc)
        return hly_gpu_failed(gpu, "cuPointerGetAttributes", rc);
    if (type != HLY_CU_MEMORY_DEVICE || managed || !id)
        return unsupported(gpu, "this memory is managed, or not a GPU's");
    if (at < start || bytes > range || at - start > range - bytes)
        return unsupported(gpu, "this memory is of several allocations");
    e->address = (void *)(uintptr_t)start;
    e->bytes = range;
    e->id = id;
    e->dmabuf = -1;
    e->offset = 0;
    e->flushes = gpu->flushes;
    rc = opens ? hly_gpu_enter(gpu) : HALAY_OK;
    if (rc || !opens)
        return rc;
    memops_order(gpu, at);
    if (gpu->dmabuf)
        dmabuf_open(gpu, e);
    hly_gpu_leave(gpu);
    return HALAY_OK;
}

int hly_gpu_flush(struct hly_gpu *gpu)
{
    if (!gpu->flushes)
        return HALAY_EUNSUPPORTED;
    if (gpu->lost || gpu->broken || gpu->cannot_flush)
        return HALAY_EDEVICE;
    int rc = hly_gpu_enter(gpu);
    if (rc)
        return rc;
    rc = gpu->driver.cuFlushGPUDirectRDMAWrites(HLY_CU_FLUSH_CURRENT, HLY_CU_FLUSH_TO_OWNER);
    if (rc)
        rc = hly_gpu_failed(gpu, "cuFlushGPUDirectRDMAWrites", rc);
    hly_gpu_leave(gpu);
    return rc;
}
