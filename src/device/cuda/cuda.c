/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c - the CUDA device: the closing of a GPU, and the table. Opening the device loads
 * nothing: it is there in every process, and looks for libcuda only where the program has loaded
 * it.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda/gpu.h"

#define QUIET_TRIES 1000 /* of 100 us, for alarms to ring */

/* Have all alarms rung? They write to the descriptor. */
static bool is_quiet(const struct hly_gpu *gpu)
{
    const struct timespec pause = {.tv_nsec = 100000};
    for (int i = 0; i < HLY_GPU_STREAMS; i++) {
        int rc = HLY_CU_NOT_READY;
        for (int n = 0; rc == HLY_CU_NOT_READY && n < QUIET_TRIES; n++) {
            rc = gpu->driver.cuStreamQuery(gpu->streams[i].alarm);
            if (rc == HLY_CU_NOT_READY)
                nanosleep(&pause, NULL);
        }
        if (rc == HLY_CU_NOT_READY)
            return false;
    }
    return true;
}

/* What may still be used by work that could not be stopped stays. */
static void gpu_close(struct hly_gpu *gpu)
{
    if (!gpu->context)
        return;
    const bool inside = !hly_gpu_enter(gpu);
    gpu->lost = gpu->lost || !is_quiet(gpu); /* why is not asked for any more */
    hly_gpu_memory_close(gpu);
    if (!gpu->lost) {
        for (int i = 0; i < HLY_GPU_MODULES; i++)
            if (gpu->modules[i])
                gpu->driver.cuModuleUnload(gpu->modules[i]);
        hly_gpu_marks_free(gpu);
        hly_gpu_gates_free(gpu);
        hly_gpu_streams_free(gpu);
    }
    if (inside)
        hly_gpu_leave(gpu);
    if (!gpu->lost)
        gpu->driver.cuDevicePrimaryCtxRelease_v2(gpu->device);
}

/* ------------------------------------------------------------------ the table */

static int cuda_open(void *arg, const char *isa, halay_device_t **device)
{
    static const char *const isas[] = {"scalar", "avx2", "avx512"}; /* the host's: all one here */
    const struct hly_device_cuda_arg *a = arg;
    bool known = !isa;
    int rc = HALAY_OK;
    for (size_t i = 0; isa && i < sizeof(isas) / sizeof(isas[0]); i++)
        known = known || !strcmp(isa, isas[i]);
    if (!device || !known)
        return device ? HALAY_EUNSUPPORTED : HALAY_EINVAL;
    struct hly_gpu *gpu = calloc(1, sizeof(*gpu));
    if (!gpu)
        return HALAY_ENOMEM;
    gpu->ordinal = -1;
    gpu->no_words = a && a->no_words;
    gpu->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (gpu->wake < 0) {
        rc = HALAY_ENOMEM;
        goto free_gpu;
    }
    if (a && a->ordinal > 0)
        rc = hly_gpu_open(gpu, a->ordinal - 1);
    if (rc)
        goto close_wake;
    *device = (halay_device_t *)gpu;
    return HALAY_OK;

close_wake:
    close(gpu->wake);
    hly_cuda_driver_close(&gpu->driver);
free_gpu:
    free(gpu);
    return rc;
}

static int cuda_query(halay_device_t *device, const void *address, size_t bytes,
                      halay_memory_t *memory)
{
    struct hly_gpu *gpu = (struct hly_gpu *)device;
    int ordinal = -1;
    if (!memory || memory->size < sizeof(*memory))
        return HALAY_EINVAL;
    uint64_t id = 0;
    int rc = address ? hly_gpu_memory(gpu, address, bytes, &ordinal, &id) : HALAY_OK;
    if (!rc && address && gpu->ordinal >= 0 && ordinal != gpu->ordinal) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "memory of GPU %d, but this context works on GPU %d: use one context a GPU",
                 ordinal, gpu->ordinal);
        rc = HALAY_EINVAL;
    }
    if (!rc && address && gpu->ordinal < 0) {
        rc = hly_gpu_open(gpu, ordinal);
        rc = rc == HALAY_EUNSUPPORTED ? HALAY_EDEVICE : rc; /* it is a GPU's, and unusable */
    }
    if (rc)
        return rc;
    memory->kind = HALAY_MEMORY_CUDA;
    memory->touchable = 0;
    memory->id = id;
    return HALAY_OK;
}

int hly_device_cuda_gpu(halay_device_t *device, int *ordinal, uint64_t *place)
{
    const struct hly_gpu *gpu = (const struct hly_gpu *)device;
    if (gpu->ordinal < 0)
        return HALAY_EUNSUPPORTED;
    *ordinal = gpu->ordinal;
    *place = 1 + ((uint64_t)(uint32_t)hly_gpu_attribute(gpu, HLY_CU_PCI_DOMAIN) << 24 |
                  (uint64_t)(uint8_t)hly_gpu_attribute(gpu, HLY_CU_PCI_BUS) << 8 |
                  (uint8_t)hly_gpu_attribute(gpu, HLY_CU_PCI_DEVICE));
    return HALAY_OK;
}

bool hly_device_cuda_mps(halay_device_t *device)
{
    const struct hly_gpu *gpu = (const struct hly_gpu *)device;
    return gpu->ordinal >= 0 && hly_gpu_attribute(gpu, HLY_CU_MPS) == 1;
}

static int cuda_alloc(halay_device_t *device, uint32_t place, size_t bytes, size_t alignment,
                      void **address)
{
    struct hly_gpu *gpu = (struct hly_gpu *)device;
    int ordinal = -1;
    if (place > HALAY_PLACE_HOST || !address || !bytes || !alignment || alignment & (alignment - 1))
        return HALAY_EINVAL;
    if (gpu->lost || gpu->broken)
        return HALAY_EDEVICE;
    if (gpu->ordinal < 0) { /* the one that the program's thread works on */
        int rc = hly_cuda_driver_open(&gpu->driver, false, gpu->why, sizeof(gpu->why));
        if (!rc && gpu->driver.cuCtxGetDevice(&ordinal)) {
            snprintf(gpu->why, sizeof(gpu->why), "which GPU? None is in use on this thread");
            rc = HALAY_ESTATE;
        }
        rc = rc ? rc : hly_gpu_open(gpu, ordinal);
        if (rc)
            return rc;
    }
    return hly_gpu_alloc(gpu, place == HALAY_PLACE_HOST, bytes, alignment, address);
}

static void cuda_free(halay_device_t *device, uint32_t place, void *address)
{
    (void)place; /* no address is in both */
    if (address)
        hly_gpu_free((struct hly_gpu *)device, address);
}

static int cuda_launch(halay_device_t *device, const halay_work_t *work)
{
    return hly_gpu_launch((struct hly_gpu *)device, work);
}

/* Its checks are most of a launch, and they are of addresses, which may change. */
static int cuda_bind(halay_device_t *device, halay_work_t *work)
{
    (void)device;
    (void)work;
    return HALAY_EUNSUPPORTED;
}

static int cuda_poll(halay_device_t *device, halay_done_t done[], int max)
{
    return max < 0 || (max && !done) ? HALAY_EINVAL
                                     : hly_gpu_poll((struct hly_gpu *)device, done, max);
}

static int cuda_arm(halay_device_t *device, int *fd)
{
    return hly_gpu_arm((struct hly_gpu *)device, fd);
}

static int cuda_stop(halay_device_t *device, uint64_t cookie, uint64_t timeout_ns)
{
    return hly_gpu_stop((struct hly_gpu *)device, cookie, timeout_ns);
}

static int cuda_follow(halay_device_t *device, const halay_stream_t *stream, uint64_t cookie)
{
    return hly_gpu_follow((struct hly_gpu *)device, stream, cookie);
}

static int cuda_gate(halay_device_t *device, const halay_stream_t *stream, uint32_t *gate)
{
    return hly_gpu_gate((struct hly_gpu *)device, stream, gate);
}

static void cuda_gate_open(halay_device_t *device, uint32_t gate)
{
    hly_gpu_gate_open((struct hly_gpu *)device, gate);
}

static int cuda_gate_word(halay_device_t *device, uint32_t gate, uint64_t *at, uint64_t *value)
{
    hly_gpu_gate_word((const struct hly_gpu *)device, gate, at, value);
    return HALAY_OK;
}

static const char *cuda_why(halay_device_t *device)
{
    const struct hly_gpu *gpu = (const struct hly_gpu *)device;
    return gpu->broken || gpu->lost ? gpu->broken_why : gpu->why;
}

static void cuda_close(halay_device_t *device)
{
    struct hly_gpu *gpu = (struct hly_gpu *)device;
    if (!gpu)
        return;
    assert(!hly_gpu_flies(gpu) && !gpu->nmarks);
    gpu_close(gpu);
    hly_cuda_driver_close(&gpu->driver);
    if (!gpu->lost) /* an alarm may still ring */
        close(gpu->wake);
    free(gpu);
}

static int cuda_export(halay_device_t *device, const void *address, size_t bytes, uint32_t opens,
                       halay_export_t *exported)
{
    return exported && exported->size >= sizeof(*exported)
               ? hly_gpu_export((struct hly_gpu *)device, address, bytes, opens, exported)
               : HALAY_EINVAL;
}

static int cuda_flush(halay_device_t *device)
{
    return hly_gpu_flush((struct hly_gpu *)device);
}

static int cuda_launch_list(halay_device_t *device, const halay_part_t parts[], uint32_t nparts,
                            halay_type_t type, uint64_t cookie)
{
    return hly_gpu_launch_list((struct hly_gpu *)device, parts, nparts, type, cookie);
}

const halay_device_ops_t hly_device_cuda = {
    .size = sizeof(halay_device_ops_t),
    .name = "cuda",
    .open = cuda_open,
    .query = cuda_query,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .launch = cuda_launch,
    .bind = cuda_bind,
    .poll = cuda_poll,
    .arm = cuda_arm,
    .stop = cuda_stop,
    .follow = cuda_follow,
    .why = cuda_why,
    .close = cuda_close,
    .export_mem = cuda_export,
    .flush = cuda_flush,
    .gate = cuda_gate,
    .gate_open = cuda_gate_open,
    .gate_word = cuda_gate_word,
    .launch_list = cuda_launch_list,
};
