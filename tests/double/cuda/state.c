/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - devices, contexts, faults on request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"

#define STACK_MAX 16

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
struct cuda_double_settings settings = {.devices = 2,
                                        .version = 13000,
                                        .words = 1,
                                        .ipc = 1,
                                        .dmabuf = 1,
                                        .ordered = 1,
                                        .capability = 90,
                                        .seed = 1,
                                        .delay_us = 30,
                                        .bytes = 256u << 20};
struct cuda_double_counts counts;
int broken, halted, capturing;
__thread bool in_host_fn;

static bool asked;
static pid_t initialized; /* the process that did it; a child of it has no CUDA */
static __thread int capture_mode;
static char failing[64];
static uint64_t failing_in;
static int failing_with;
static struct context contexts[DEVICES_MAX] = {{0, 0}, {1, 0}, {2, 0}, {3, 0},
                                               {4, 0}, {5, 0}, {6, 0}, {7, 0}};
static __thread struct context *stack[STACK_MAX];
static __thread int depth;

static void lock(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

/* A stream's thread may hold the mutex while another one forks: in the child nobody would give it
 * back. */
__attribute__((constructor)) static void fork_well(void)
{
    pthread_atfork(lock, unlock, unlock);
}

/* CUDA_VISIBLE_DEVICES: the GPUs that this process has; the first that there is not ends the list.
 */
static int visible[DEVICES_MAX];
static bool chosen;

static void ask_visible(void)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    for (chosen = at; at && n < DEVICES_MAX; at = strchr(at, ','), at = at ? at + 1 : NULL) {
        char *end;
        const long number = strtol(at, &end, 10);
        if (end == at || number < 0 || number >= settings.devices)
            break;
        visible[n++] = (int)number;
    }
    if (chosen)
        settings.devices = n;
}

static void ask_environment(void)
{
    char text[256], *rest = text, *word;
    const char *value = getenv("CUDA_DOUBLE");
    asked = true;
    snprintf(text, sizeof(text), "%s", value ? value : "");
    while ((word = strtok_r(rest, " ", &rest))) {
        const char *is = strchr(word, '=');
        const long long number = is ? atoll(is + 1) : 0;
        if (!strncmp(word, "devices=", 8))
            settings.devices = (int)number;
        else if (!strncmp(word, "seed=", 5))
            settings.seed = (uint64_t)number;
        else if (!strncmp(word, "delay_us=", 9))
            settings.delay_us = (unsigned)number;
        else if (!strncmp(word, "megabytes=", 10))
            settings.bytes = (size_t)number << 20;
        else if (!strncmp(word, "version=", 8))
            settings.version = (int)number;
        else if (!strncmp(word, "words=", 6))
            settings.words = (int)number;
        else if (!strncmp(word, "ipc=", 4))
            settings.ipc = (int)number;
        else if (!strncmp(word, "dmabuf=", 7))
            settings.dmabuf = (int)number;
        else if (!strncmp(word, "ordered=", 8))
            settings.ordered = (int)number;
        else {
            fprintf(stderr, "CUDA_DOUBLE: what is %s?\n", word);
            abort();
        }
    }
    ask_visible();
}

struct cuda_double_settings *cuda_double_settings(void)
{
    pthread_mutex_lock(&mutex);
    if (!asked)
        ask_environment();
    pthread_mutex_unlock(&mutex);
    return &settings;
}

struct cuda_double_counts cuda_double_counts(void)
{
    pthread_mutex_lock(&mutex);
    struct cuda_double_counts now = counts;
    now.pushed = depth;
    now.broken = broken;
    for (int i = 0; i < DEVICES_MAX; i++)
        now.retained += contexts[i].retained;
    pthread_mutex_unlock(&mutex);
    return now;
}

void cuda_double_fail(const char *name, uint64_t nth, int result)
{
    pthread_mutex_lock(&mutex);
    snprintf(failing, sizeof(failing), "%s", name ? name : "");
    failing_in = nth;
    failing_with = result;
    pthread_mutex_unlock(&mutex);
}

void cuda_double_break(int result)
{
    pthread_mutex_lock(&mutex);
    broken = result;
    pthread_cond_broadcast(&changed);
    if (broken)
        streams_drained();
    pthread_mutex_unlock(&mutex);
}

void cuda_double_halt(int now)
{
    pthread_mutex_lock(&mutex);
    halted = now;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

int misuse(int result)
{
    counts.misused++;
    return result;
}

/* Is it one that CUDA refuses while somebody captures a stream? */
static bool is_unsafe(const char *name)
{
    static const char *const names[] = {"cuMemAlloc_v2",  "cuMemAllocManaged", "cuMemFree_v2",
                                        "cuMemHostAlloc", "cuMemFreeHost",     "cuStreamQuery",
                                        "cuEventQuery",   "cuModuleLoadData",  "cuModuleUnload"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/*
 * What libcuda exports, too, under the names without a version: with the arguments of CUDA 3, or
 * without what came later. Nothing of ours may find these.
 */
#define OLD(name)                                                                                  \
    CUDA_DOUBLE int name(void);                                                                    \
    int name(void)                                                                                 \
    {                                                                                              \
        pthread_mutex_lock(&mutex);                                                                \
        misuse(NOT_SUPPORTED);                                                                     \
        pthread_mutex_unlock(&mutex);                                                              \
        return NOT_SUPPORTED;                                                                      \
    }
OLD(cuDevicePrimaryCtxRelease)
OLD(cuCtxPushCurrent)
OLD(cuCtxPopCurrent)
OLD(cuMemAlloc)
OLD(cuMemFree)
OLD(cuMemHostGetDevicePointer)
OLD(cuMemcpyHtoDAsync)
OLD(cuMemcpyDtoHAsync)
OLD(cuStreamDestroy)
OLD(cuEventDestroy)
OLD(cuStreamWriteValue64)
OLD(cuStreamWaitValue64)

int call_begin(const char *name, int needs, struct context **context)
{
    pthread_mutex_lock(&mutex);
    if (!asked)
        ask_environment();
    counts.calls++;
    if (in_host_fn)
        return misuse(NOT_PERMITTED);
    if (failing_in && (!failing[0] || !strcmp(failing, name)) && !--failing_in) {
        counts.failed = name;
        return failing_with;
    }
    if (initialized ? initialized != getpid()
                    : strcmp(name, "cuInit") && strcmp(name, "cuDriverGetVersion"))
        return HLY_CU_NOT_INITIALIZED;
    if (capturing && !capture_mode && is_unsafe(name)) {
        counts.spoiled++;
        captures_spoil();
        return CAPTURE_UNSUPPORTED;
    }
    if (needs == NEEDS_CONTEXT && (!depth || !stack[depth - 1]->retained))
        return misuse(INVALID_CONTEXT);
    if (context)
        *context = stack[depth - 1];
    return needs == NEEDS_CONTEXT ? broken : 0;
}

int call_end(int result)
{
    pthread_mutex_unlock(&mutex);
    return result;
}

int cuInit(unsigned flags)
{
    int rc = call_begin("cuInit", NO_CONTEXT, NULL);
    if (!rc && flags)
        rc = INVALID_VALUE;
    if (!rc && !settings.devices)
        rc = 100; /* CUDA_ERROR_NO_DEVICE */
    initialized = rc ? initialized : getpid();
    return call_end(rc);
}

int cuDriverGetVersion(int *version)
{
    const int rc = call_begin("cuDriverGetVersion", NO_CONTEXT, NULL);
    *version = rc ? 0 : settings.version;
    return call_end(rc);
}

int cuGetErrorName(int result, const char **name)
{
    *name = result == ILLEGAL_ADDRESS      ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == DEVICE_UNAVAILABLE ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
            : result == INVALID_HANDLE     ? "CUDA_ERROR_INVALID_HANDLE"
            : result                       ? "CUDA_ERROR_OF_THE_DOUBLE"
                                           : "CUDA_SUCCESS";
    return 0;
}

int cuDeviceGetCount(int *count)
{
    const int rc = call_begin("cuDeviceGetCount", NO_CONTEXT, NULL);
    if (!rc)
        *count = settings.devices;
    return call_end(rc);
}

static int device_check(int device)
{
    return device < 0 || device >= settings.devices || device >= DEVICES_MAX
               ? misuse(INVALID_DEVICE)
               : 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    int rc = call_begin("cuDeviceGet", NO_CONTEXT, NULL);
    rc = rc ? rc : device_check(ordinal);
    if (!rc)
        *device = ordinal;
    return call_end(rc);
}

/* Parts of one GPU have different ones. */
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    int rc = call_begin("cuDeviceGetUuid_v2", NO_CONTEXT, NULL);
    rc = rc ? rc : device_check(device);
    if (!rc) {
        memset(uuid, 0x5a, 16);
        uuid[0] = (unsigned char)(chosen ? visible[device] : device);
    }
    return call_end(rc);
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int rc = call_begin("cuDeviceGetAttribute", NO_CONTEXT, NULL);
    rc = rc ? rc : device_check(device);
    if (!rc)
        switch (attribute) {
        case HLY_CU_MULTIPROCESSORS:
            *value = 2;
            break;
        case HLY_CU_PCI_BUS:
            *value = settings.one_place ? 0 : chosen ? visible[device] : device;
            break;
        case HLY_CU_PCI_DEVICE:
        case HLY_CU_PCI_DOMAIN:
            *value = 0;
            break;
        case HLY_CU_UNIFIED_ADDRESSING:
            *value = !settings.split;
            break;
        case HLY_CU_CAPABILITY_MAJOR:
            *value = settings.capability / 10;
            break;
        case HLY_CU_CAPABILITY_MINOR:
            *value = settings.capability % 10;
            break;
        case HLY_CU_WORDS_64:
            *value = settings.words;
            break;
        case HLY_CU_RDMA:
        case HLY_CU_RDMA_FLUSH:
            *value = 1;
            break;
        case HLY_CU_RDMA_ORDERING:
            *value = settings.ordered ? HLY_CU_FLUSH_TO_OWNER : 0;
            break;
        case HLY_CU_DMABUF:
            *value = settings.dmabuf;
            break;
        default:
            rc = INVALID_VALUE;
        }
    return call_end(rc);
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int rc = call_begin("cuDevicePrimaryCtxRetain", NO_CONTEXT, NULL);
    rc = rc ? rc : broken ? broken : device_check(device);
    if (!rc && settings.taken >> device & 1)
        rc = DEVICE_UNAVAILABLE;
    if (!rc) {
        contexts[device].retained++;
        *context = &contexts[device];
    }
    return call_end(rc);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int rc = call_begin("cuDevicePrimaryCtxRelease_v2", NO_CONTEXT, NULL);
    rc = rc ? rc : device_check(device);
    if (!rc && !contexts[device].retained)
        rc = misuse(INVALID_CONTEXT);
    if (!rc)
        contexts[device].retained--;
    return call_end(rc);
}

int cuCtxPushCurrent_v2(void *context)
{
    struct context *c = context;
    int rc = call_begin("cuCtxPushCurrent_v2", NO_CONTEXT, NULL);
    if (!rc && (!c || c < contexts || c >= contexts + DEVICES_MAX || !c->retained))
        rc = misuse(INVALID_CONTEXT);
    if (!rc && depth == STACK_MAX)
        rc = misuse(INVALID_VALUE);
    if (!rc)
        stack[depth++] = c;
    return call_end(rc);
}

/* Is never failed on request: nobody could do anything about it. */
int cuCtxPopCurrent_v2(void **context)
{
    pthread_mutex_lock(&mutex);
    const int rc = depth ? 0 : misuse(INVALID_CONTEXT);
    if (!rc)
        *context = stack[--depth];
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* 0: as others; 1: calls of this thread may be refused only for captures of its own; 2: never. */
int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int rc = call_begin("cuThreadExchangeStreamCaptureMode", NO_CONTEXT, NULL);
    if (!rc && (!mode || *mode < 0 || *mode > 2))
        rc = misuse(INVALID_VALUE);
    if (!rc) {
        const int was = capture_mode;
        capture_mode = *mode;
        *mode = was;
    }
    return call_end(rc);
}

int cuCtxGetDevice(int *device)
{
    int rc = call_begin("cuCtxGetDevice", NO_CONTEXT, NULL);
    rc = rc ? rc : depth ? 0 : INVALID_CONTEXT;
    if (!rc)
        *device = stack[depth - 1]->device;
    return call_end(rc);
}
