/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h - the calls of libcuda that are used, declared here, so that nothing of CUDA is needed
 * to build. The library is opened when it is needed, or only if the program has opened it. Handles
 * are void *, addresses of a GPU uint64_t, results int.
 */
#ifndef HLY_CUDA_DRIVER_H
#define HLY_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { /* results */
       HLY_CU_OK = 0,
       HLY_CU_OUT_OF_MEMORY = 2,
       HLY_CU_NOT_INITIALIZED = 3,
       HLY_CU_DEINITIALIZED = 4,
       HLY_CU_STUB_LIBRARY = 34,
       HLY_CU_DEVICE_UNAVAILABLE = 46,
       HLY_CU_NO_DEVICE = 100,
       HLY_CU_INVALID_IMAGE = 200,
       HLY_CU_INVALID_CONTEXT = 201,
       HLY_CU_NO_BINARY = 209,
       HLY_CU_ECC_UNCORRECTABLE = 214,
       HLY_CU_INVALID_PTX = 218,
       HLY_CU_JIT_FIRST = 221, /* no compiler, PTX too new, compiling switched off */
       HLY_CU_JIT_LAST = 223,
       HLY_CU_INVALID_HANDLE = 400,
       HLY_CU_NOT_READY = 600,
       HLY_CU_STICKY_FIRST = 700, /* of the context, which is unusable then */
       HLY_CU_CONTEXT_DESTROYED = 709,
       HLY_CU_STICKY_LAST = 719,
       HLY_CU_SYSTEM_NOT_READY = 802,
       HLY_CU_DRIVER_MISMATCH = 803,
       HLY_CU_CAPTURE_FIRST = 900,
       HLY_CU_CAPTURE_LAST = 908
};

enum { /* of a device */
       HLY_CU_MULTIPROCESSORS = 16,
       HLY_CU_PCI_BUS = 33,
       HLY_CU_PCI_DEVICE = 34,
       HLY_CU_UNIFIED_ADDRESSING = 41,
       HLY_CU_PCI_DOMAIN = 50,
       HLY_CU_CAPABILITY_MAJOR = 75,
       HLY_CU_CAPABILITY_MINOR = 76,
       HLY_CU_RDMA = 116,
       HLY_CU_RDMA_FLUSH = 117,    /* bit 0: the host may have it done */
       HLY_CU_RDMA_ORDERING = 118, /* from 100 on the GPU itself needs no flush */
       HLY_CU_WORDS_64 = 122,      /* cuStreamWriteValue64 and its like */
       HLY_CU_DMABUF = 124,
       HLY_CU_MPS = 133
};

enum { /* of a pointer */
       HLY_CU_MEMORY_TYPE = 2,
       HLY_CU_SYNC_MEMOPS = 6,
       HLY_CU_BUFFER_ID = 7,
       HLY_CU_IS_MANAGED = 8,
       HLY_CU_DEVICE_ORDINAL = 9,
       HLY_CU_RANGE_START = 11,
       HLY_CU_RANGE_SIZE = 12
};

enum { HLY_CU_MEMORY_HOST = 1, HLY_CU_MEMORY_DEVICE = 2 };
enum { HLY_CU_PORTABLE = 1, HLY_CU_DEVICEMAP = 2 }; /* pinned memory */
enum { HLY_CU_NON_BLOCKING = 1 };                   /* a stream */
enum { HLY_CU_DISABLE_TIMING = 2 };                 /* an event */
enum { HLY_CU_RANGE_DMABUF = 1, HLY_CU_FLUSH_CURRENT = 0, HLY_CU_FLUSH_TO_OWNER = 100 };
enum { HLY_CU_IPC_LAZY_PEER = 1 };   /* also where the memory is another GPU's, if they are peers */
enum { HLY_CU_CAPTURE_RELAXED = 2 }; /* a thread's calls do not disturb captures of others */
enum { HLY_CU_DRIVER_LEAST = 11000, HLY_CU_CAPABILITY_LEAST = 75 };

typedef void hly_cu_host_fn(void *arg);
struct hly_cu_ipc_handle {
    char bytes[64];
};

/* X(name, arguments): what a driver of version 11.0 has. Y: what an older one may lack. */
#define HLY_CUDA_CALLS(X, Y)                                                                       \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDriverGetVersion, (int *version))                                                          \
    X(cuGetErrorName, (int result, const char **name))                                             \
    X(cuDeviceGetCount, (int *count))                                                              \
    X(cuDeviceGet, (int *device, int ordinal))                                                     \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                               \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                      \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                                                  \
    X(cuCtxPushCurrent_v2, (void *context))                                                        \
    X(cuCtxPopCurrent_v2, (void **context))                                                        \
    X(cuCtxGetDevice, (int *device))                                                               \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                              \
    X(cuPointerGetAttributes, (unsigned n, int *which, void **values, uint64_t at))                \
    X(cuMemAlloc_v2, (uint64_t * at, size_t bytes))                                                \
    X(cuMemFree_v2, (uint64_t at))                                                                 \
    X(cuMemHostAlloc, (void **at, size_t bytes, unsigned flags))                                   \
    X(cuMemFreeHost, (void *at))                                                                   \
    X(cuMemHostGetDevicePointer_v2, (uint64_t * at, void *host, unsigned flags))                   \
    X(cuMemcpyHtoDAsync_v2, (uint64_t dst, const void *src, size_t bytes, void *stream))           \
    X(cuMemcpyDtoHAsync_v2, (void *dst, uint64_t src, size_t bytes, void *stream))                 \
    X(cuStreamCreate, (void **stream, unsigned flags))                                             \
    X(cuStreamDestroy_v2, (void *stream))                                                          \
    X(cuStreamQuery, (void *stream))                                                               \
    X(cuStreamGetCtx, (void *stream, void **context))                                              \
    X(cuStreamIsCapturing, (void *stream, int *status))                                            \
    X(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                              \
    X(cuEventCreate, (void **event, unsigned flags))                                               \
    X(cuEventDestroy_v2, (void *event))                                                            \
    X(cuEventRecord, (void *event, void *stream))                                                  \
    X(cuEventQuery, (void *event))                                                                 \
    X(cuModuleLoadData, (void **module, const void *image))                                        \
    X(cuModuleUnload, (void *module))                                                              \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                      \
    X(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,          \
                       unsigned block_x, unsigned block_y, unsigned block_z,                       \
                       unsigned shared_bytes, void *stream, void **args, void **extra))            \
    X(cuLaunchHostFunc, (void *stream, hly_cu_host_fn *fn, void *arg))                             \
    Y(cuStreamWriteValue64_v2, (void *stream, uint64_t at, uint64_t value, unsigned flags))        \
    Y(cuStreamWaitValue64_v2, (void *stream, uint64_t at, uint64_t value, unsigned flags))         \
    Y(cuPointerSetAttribute, (const void *value, int which, uint64_t at))                          \
    Y(cuMemGetHandleForAddressRange,                                                               \
      (void *handle, uint64_t at, size_t bytes, int type, unsigned long long flags))               \
    Y(cuFlushGPUDirectRDMAWrites, (int target, int scope))                                         \
    Y(cuDeviceGetUuid_v2, (unsigned char *uuid, int device))                                       \
    Y(cuIpcGetMemHandle, (struct hly_cu_ipc_handle * handle, uint64_t at))                         \
    Y(cuIpcOpenMemHandle_v2, (uint64_t * at, struct hly_cu_ipc_handle handle, unsigned flags))     \
    Y(cuIpcCloseMemHandle, (uint64_t at))

#define HLY_CUDA_POINTER(name, arguments) int(*name) arguments;
struct hly_cuda_driver {
    void *library; /* NULL: not opened yet */
    HLY_CUDA_CALLS(HLY_CUDA_POINTER, HLY_CUDA_POINTER)
};

/* Opens it; if_loaded: only if it is in the process already. HALAY_EUNSUPPORTED: it is not there,
 * or too old for us, and `why` says so. Nothing is done if it is open. */
int hly_cuda_driver_open(struct hly_cuda_driver *driver, bool if_loaded, char *why,
                         size_t why_bytes);

/* Is the address a GPU's, as far as a driver knows that was refused because it is too old? */
bool hly_cuda_driver_refused(const struct hly_cuda_driver *driver, uint64_t at);

/* The library stays in the process. */
void hly_cuda_driver_close(struct hly_cuda_driver *driver);

#endif
