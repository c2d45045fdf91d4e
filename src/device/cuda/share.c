/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c - memory of the GPU that other processes of the node use: CUDA's IPC. A handle is of a
 * whole allocation, so what is shared begins one.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/gpu.h"

static_assert(HLY_CUDA_HANDLE_BYTES == sizeof(struct hly_cu_ipc_handle), "as the driver has it");

static int unusable(struct hly_gpu *gpu)
{
    if (gpu->ordinal < 0 || gpu->lost || gpu->broken)
        return HALAY_EDEVICE;
    return gpu->driver.cuIpcGetMemHandle && gpu->driver.cuIpcOpenMemHandle_v2 &&
                   gpu->driver.cuIpcCloseMemHandle
               ? hly_gpu_enter(gpu)
               : HALAY_EUNSUPPORTED;
}

int hly_device_cuda_uuid(halay_device_t *device, unsigned char uuid[HLY_CUDA_UUID_BYTES])
{
    struct hly_gpu *gpu = (struct hly_gpu *)device;
    if (gpu->ordinal < 0 || !gpu->driver.cuDeviceGetUuid_v2)
        return HALAY_EUNSUPPORTED;
    const int rc = gpu->driver.cuDeviceGetUuid_v2(uuid, gpu->device);
    return rc ? hly_gpu_failed(gpu, "cuDeviceGetUuid", rc) : HALAY_OK;
}

int hly_device_cuda_share(halay_device_t *device, const void *address,
                          unsigned char handle[HLY_CUDA_HANDLE_BYTES])
{
    struct hly_gpu *gpu = (struct hly_gpu *)device;
    struct hly_cu_ipc_handle h;
    int rc = unusable(gpu);
    if (rc)
        return rc;
    rc = gpu->driver.cuIpcGetMemHandle(&h, (uint64_t)(uintptr_t)address);
    if (rc)
        rc = hly_gpu_failed(gpu, "cuIpcGetMemHandle", rc);
    else
        memcpy(handle, &h, sizeof(h));
    hly_gpu_leave(gpu);
    return rc;
}

int hly_device_cuda_open_shared(halay_device_t *device,
                                const unsigned char handle[HLY_CUDA_HANDLE_BYTES], void **address)
{
    struct hly_gpu *gpu = (struct hly_gpu *)device;
    struct hly_cu_ipc_handle h;
    uint64_t at = 0;
    int rc = unusable(gpu);
    if (rc)
        return rc;
    memcpy(&h, handle, sizeof(h));
    rc = gpu->driver.cuIpcOpenMemHandle_v2(&at, h, HLY_CU_IPC_LAZY_PEER);
    if (rc)
        rc = hly_gpu_failed(gpu, "cuIpcOpenMemHandle", rc);
    else
        *address = (void *)(uintptr_t)at;
    hly_gpu_leave(gpu);
    return rc;
}

void hly_device_cuda_close_shared(halay_device_t *device, void *address)
{
    struct hly_gpu *gpu = (struct hly_gpu *)device;
    if (unusable(gpu))
        return; /* the driver ends it with the process */
    gpu->driver.cuIpcCloseMemHandle((uint64_t)(uintptr_t)address);
    hly_gpu_leave(gpu);
}
