/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c - the CUDA device: opening and closing of a GPU, and the table. Opening the device loads
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

#define LINE        64
#define QUIET_TRIES 1000 /* of 100 us, for alarms to ring */

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

static int attribute(const struct hly_gpu *gpu, int which)
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
    const int capability =
        10 * attribute(gpu, HLY_CU_CAPABILITY_MAJOR) + attribute(gpu, HLY_CU_CAPABILITY_MINOR);
    const bool unified = attribute(gpu, HLY_CU_UNIFIED_ADDRESSING);
    if (capability < HLY_CU_CAPABILITY_LEAST || !unified) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "GPU %d has compute capability %d.%d%s, and 7.5 with unified addressing is "
                 "needed: pass memory of the host",
                 ordinal, capability / 10, capability % 10,
                 unified ? "" : " without unified addressing");
        return HALAY_EUNSUPPORTED;
    }
    gpu->nmultiprocessors = (uint32_t)attribute(gpu, HLY_CU_MULTIPROCESSORS);
    if (!d->cuStreamWriteValue64_v2 || !d->cuStreamWaitValue64_v2 ||
        !attribute(gpu, HLY_CU_WORDS_64))
        gpu->no_words = true;
    gpu->node = hly_gpu_node_of("/sys", attribute(gpu, HLY_CU_PCI_DOMAIN),
                                attribute(gpu, HLY_CU_PCI_BUS), attribute(gpu, HLY_CU_PCI_DEVICE));
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

static void streams_free(struct hly_gpu *gpu)
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
        streams_free(gpu);
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
        streams_free(gpu);
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
        rc = rc == HALAY_EUNSUPPORTED ? HALAY_EDEVICE : rc; /* it is a GPU's, and of no use */
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
    *place = 1 + ((uint64_t)(uint32_t)attribute(gpu, HLY_CU_PCI_DOMAIN) << 24 |
                  (uint64_t)(uint8_t)attribute(gpu, HLY_CU_PCI_BUS) << 8 |
                  (uint8_t)attribute(gpu, HLY_CU_PCI_DEVICE));
    return HALAY_OK;
}

bool hly_device_cuda_mps(halay_device_t *device)
{
    const struct hly_gpu *gpu = (const struct hly_gpu *)device;
    return gpu->ordinal >= 0 && attribute(gpu, HLY_CU_MPS) == 1;
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

static int cuda_stop(halay_device_t *device, uint64_t cookie, uint64_t patience_ns)
{
    return hly_gpu_stop((struct hly_gpu *)device, cookie, patience_ns);
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
