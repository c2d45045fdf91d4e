/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.c - one GPU: its opening, its streams, and what every call of the driver begins and ends
 * with.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/gpu.h"

#define LINE 64

/* What to do about it. */
static const char *remedy(int result)
{
    static const struct {
        int first, last;
        const char *text;
    } remedies[] = {
        {HLY_CU_OUT_OF_MEMORY, HLY_CU_OUT_OF_MEMORY, ". nvidia-smi shows who has its memory"},
        {HLY_CU_NOT_INITIALIZED, HLY_CU_NOT_INITIALIZED,
         ". A forked child cannot use CUDA: start it with fork and exec"},
        {HLY_CU_DEINITIALIZED, HLY_CU_DEINITIALIZED, ". The process is ending"},
        {HLY_CU_STUB_LIBRARY, HLY_CU_STUB_LIBRARY,
         ". It is the toolkit's stub: see LD_LIBRARY_PATH"},
        {HLY_CU_DEVICE_UNAVAILABLE, HLY_CU_DEVICE_UNAVAILABLE,
         ". Another process has it for itself: one process a GPU, or nvidia-smi -c DEFAULT"},
        {HLY_CU_NO_DEVICE, HLY_CU_NO_DEVICE, ". See CUDA_VISIBLE_DEVICES"},
        {HLY_CU_NO_BINARY, HLY_CU_NO_BINARY, ". See CUDA_DISABLE_PTX_JIT"},
        {HLY_CU_INVALID_PTX, HLY_CU_INVALID_PTX, ". The driver is too old for Halay's kernels"},
        {HLY_CU_JIT_FIRST, HLY_CU_JIT_LAST,
         ". Is the driver's libnvidia-ptxjitcompiler.so there? See CUDA_DISABLE_PTX_JIT"},
        {HLY_CU_STICKY_FIRST, HLY_CU_STICKY_LAST,
         ". This process cannot use it any more: end the job. Some kernel did it: "
         "CUDA_LAUNCH_BLOCKING=1 shows which"},
        {HLY_CU_ECC_UNCORRECTABLE, HLY_CU_ECC_UNCORRECTABLE,
         ". The GPU's memory has failed: end the job, see nvidia-smi -q -d ECC, drain the node"},
        {HLY_CU_SYSTEM_NOT_READY, HLY_CU_SYSTEM_NOT_READY, ". Does nvidia-fabricmanager run?"},
        {HLY_CU_DRIVER_MISMATCH, HLY_CU_DRIVER_MISMATCH,
         ". Driver and kernel module differ: restart the node"},
        {HLY_CU_CAPTURE_FIRST, HLY_CU_CAPTURE_LAST,
         ". A stream is being captured: make the call outside of the capture"},
    };
    for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++)
        if (result >= remedies[i].first && result <= remedies[i].last)
            return remedies[i].text;
    return ". nvidia-smi and dmesg (Xid) may say more";
}

int hly_gpu_failed(struct hly_gpu *gpu, const char *call, int result)
{
    const char *name = NULL;
    gpu->driver.cuGetErrorName(result, &name);
    snprintf(gpu->why, sizeof(gpu->why), "GPU %d: %s: %s (%d)%s", gpu->tried, call,
             name ? name : "an error of no name", result, remedy(result));
    return result == HLY_CU_OUT_OF_MEMORY ? HALAY_ENOMEM : HALAY_EDEVICE;
}

void hly_gpu_break(struct hly_gpu *gpu)
{
    if (!gpu->broken)
        snprintf(gpu->broken_why, sizeof(gpu->broken_why), "%s", gpu->why);
    gpu->broken = true;
}

/* Calls of ours must not spoil what the program captures meanwhile in streams of its own. */
int hly_gpu_enter(struct hly_gpu *gpu)
{
    void *was;
    int rc = gpu->driver.cuCtxPushCurrent_v2(gpu->context);
    assert(!gpu->inside);
    if (rc)
        return hly_gpu_failed(gpu, "cuCtxPushCurrent", rc);
    gpu->capture_mode = HLY_CU_CAPTURE_RELAXED;
    rc = gpu->driver.cuThreadExchangeStreamCaptureMode(&gpu->capture_mode);
    if (rc) {
        gpu->driver.cuCtxPopCurrent_v2(&was);
        return hly_gpu_failed(gpu, "cuThreadExchangeStreamCaptureMode", rc);
    }
    gpu->inside = true;
    return HALAY_OK;
}

void hly_gpu_leave(struct hly_gpu *gpu)
{
    void *was;
    assert(gpu->inside);
    gpu->inside = false;
    gpu->driver.cuThreadExchangeStreamCaptureMode(&gpu->capture_mode);
    gpu->driver.cuCtxPopCurrent_v2(&was);
}

/* ------------------------------------------------------------------ one GPU */

int hly_gpu_attribute(const struct hly_gpu *gpu, int which)
{
    int value = 0;
    return gpu->driver.cuDeviceGetAttribute(&value, which, gpu->device) ? 0 : value;
}

/* Finds the GPU, without a context on it. */
static int find(struct hly_gpu *gpu, int ordinal)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    int count = 0;
    int rc = d->cuInit(0);
    if (!rc)
        rc = d->cuDeviceGetCount(&count);
    if (rc) {
        hly_gpu_failed(gpu, "cuInit", rc);
        return HALAY_EUNSUPPORTED;
    }
    if (ordinal < 0 || ordinal >= count) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "there is no GPU %d: this process sees %d. See CUDA_VISIBLE_DEVICES", ordinal,
                 count);
        return HALAY_EUNSUPPORTED;
    }
    rc = d->cuDeviceGet(&gpu->device, ordinal);
    if (rc)
        return hly_gpu_failed(gpu, "cuDeviceGet", rc);
    const int capability = 10 * hly_gpu_attribute(gpu, HLY_CU_CAPABILITY_MAJOR) +
                           hly_gpu_attribute(gpu, HLY_CU_CAPABILITY_MINOR);
    const bool unified = hly_gpu_attribute(gpu, HLY_CU_UNIFIED_ADDRESSING);
    if (capability < HLY_CU_CAPABILITY_LEAST || !unified) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "GPU %d has compute capability %d.%d%s, and 7.5 with unified addressing is "
                 "needed: pass memory of the host",
                 ordinal, capability / 10, capability % 10,
                 unified ? "" : " without unified addressing");
        return HALAY_EUNSUPPORTED;
    }
    gpu->nmultiprocessors = (uint32_t)hly_gpu_attribute(gpu, HLY_CU_MULTIPROCESSORS);
    if (!d->cuStreamWriteValue64_v2 || !d->cuStreamWaitValue64_v2 ||
        !hly_gpu_attribute(gpu, HLY_CU_WORDS_64))
        gpu->no_words = true;
    gpu->node = hly_gpu_node_of("/sys", hly_gpu_attribute(gpu, HLY_CU_PCI_DOMAIN),
                                hly_gpu_attribute(gpu, HLY_CU_PCI_BUS),
                                hly_gpu_attribute(gpu, HLY_CU_PCI_DEVICE));
    hly_gpu_export_look(gpu);
    return HALAY_OK;
}

int hly_gpu_words_make(struct hly_gpu *gpu, size_t bytes, uint64_t **words, uint64_t *at)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    void *made = NULL;
    int rc = hly_gpu_pin(gpu, &made, bytes, HLY_CU_PORTABLE | HLY_CU_DEVICEMAP);
    if (rc)
        return hly_gpu_failed(gpu, "cuMemHostAlloc", rc);
    rc = d->cuMemHostGetDevicePointer_v2(at, made, 0);
    if (rc) {
        d->cuMemFreeHost(made);
        return hly_gpu_failed(gpu, "cuMemHostGetDevicePointer", rc);
    }
    memset(made, 0, bytes);
    *words = made;
    return HALAY_OK;
}

static int stream_make(struct hly_gpu *gpu, struct hly_gpu_stream *s)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    int rc = d->cuStreamCreate(&s->handle, HLY_CU_NON_BLOCKING);
    if (!rc)
        rc = d->cuStreamCreate(&s->alarm, HLY_CU_NON_BLOCKING);
    for (int i = 0; !rc && gpu->no_words && i < HLY_GPU_FLIGHTS; i++)
        rc = d->cuEventCreate(&s->events[i], HLY_CU_DISABLE_TIMING);
    return rc ? hly_gpu_failed(gpu, "cuStreamCreate or cuEventCreate", rc) : HALAY_OK;
}

/* Whatever of it was made. */
static void stream_free(const struct hly_gpu *gpu, struct hly_gpu_stream *s)
{
    for (int i = 0; i < HLY_GPU_FLIGHTS; i++)
        if (s->events[i])
            gpu->driver.cuEventDestroy_v2(s->events[i]);
    if (s->alarm)
        gpu->driver.cuStreamDestroy_v2(s->alarm);
    if (s->handle)
        gpu->driver.cuStreamDestroy_v2(s->handle);
    memset(s, 0, sizeof(*s));
}

void hly_gpu_streams_free(struct hly_gpu *gpu)
{
    for (int i = 0; i < HLY_GPU_STREAMS; i++)
        stream_free(gpu, &gpu->streams[i]);
    if (gpu->words)
        gpu->driver.cuMemFreeHost(gpu->words);
    gpu->words = NULL;
}

static int streams_make(struct hly_gpu *gpu)
{
    int rc = gpu->no_words ? HALAY_OK
                           : hly_gpu_words_make(gpu, (size_t)HLY_GPU_STREAMS * LINE, &gpu->words,
                                                &gpu->words_at);
    for (int i = 0; !rc && i < HLY_GPU_STREAMS; i++)
        rc = stream_make(gpu, &gpu->streams[i]);
    if (rc)
        hly_gpu_streams_free(gpu);
    return rc;
}

int hly_gpu_open(struct hly_gpu *gpu, int ordinal)
{
    int rc;
    if (gpu->context)
        return HALAY_OK;
    rc = hly_cuda_driver_open(&gpu->driver, false, gpu->why, sizeof(gpu->why));
    if (rc)
        return rc;
    gpu->tried = ordinal;
    rc = find(gpu, ordinal);
    if (rc)
        return rc;
    rc = gpu->driver.cuDevicePrimaryCtxRetain(&gpu->context, gpu->device);
    if (rc) {
        gpu->context = NULL;
        return hly_gpu_failed(gpu, "cuDevicePrimaryCtxRetain", rc);
    }
    rc = hly_gpu_enter(gpu);
    if (rc)
        goto release_context;
    rc = streams_make(gpu);
    hly_gpu_leave(gpu);
    if (rc)
        goto release_context;
    gpu->ordinal = ordinal;
    return HALAY_OK;

release_context:
    gpu->driver.cuDevicePrimaryCtxRelease_v2(gpu->device);
    gpu->context = NULL;
    return rc;
}
