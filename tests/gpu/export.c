/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.c - the dma-buf of memory of the first GPU: that it is given, how long it is, and that it
 * outlives the memory's own number. Exit status 77: this GPU or driver has none.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "device/cuda/driver.h"

static struct hly_cuda_driver d;

static void export(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    uint64_t at;
    int fd = -1;
    MUST(!d.cuMemAlloc_v2(&at, bytes));
    CHECK(at % page == 0, "%zu bytes are not at a page", bytes);
    const int rc = d.cuMemGetHandleForAddressRange(&fd, at, whole, HLY_CU_RANGE_DMABUF, 0);
    CHECK(!rc && fd >= 0, "%zu bytes: cuMemGetHandleForAddressRange answers %d", bytes, rc);
    const off_t length = lseek(fd, 0, SEEK_END);
    CHECK(length >= (off_t)whole, "%zu bytes: the dma-buf has %lld", bytes, (long long)length);
    MUST(!d.cuMemFree_v2(at)); /* adapters may still have it */
    MUST(lseek(fd, 0, SEEK_END) == length);
    MUST(!close(fd));
}

int main(void)
{
    char why[256] = "";
    void *context;
    int device, has = 0, ordering = -1, version = 0;
    CHECK(!hly_cuda_driver_open(&d, false, why, sizeof(why)), "%s", why);
    MUST(!d.cuInit(0) && !d.cuDeviceGet(&device, 0) && !d.cuDriverGetVersion(&version));
    MUST(!d.cuDevicePrimaryCtxRetain(&context, device) && !d.cuCtxPushCurrent_v2(context));
    MUST(!d.cuDeviceGetAttribute(&ordering, HLY_CU_RDMA_ORDERING, device));
    if (!d.cuMemGetHandleForAddressRange || d.cuDeviceGetAttribute(&has, HLY_CU_DMABUF, device) ||
        !has) {
        printf("export: no dma-bufs: %s\n", d.cuMemGetHandleForAddressRange
                                                ? "DMA_BUF_SUPPORTED is 0"
                                                : "the driver lacks the call");
        return 77;
    }
    static const size_t sizes[] = {4096, 65536, 100000, (2u << 20), (5u << 20) + 12345, 64u << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        export(sizes[i]);
    printf("export: dma-bufs of %zu sizes, driver %d, writes' ordering %d\n",
           sizeof(sizes) / sizeof(sizes[0]), version, ordering);
    return 0;
}
