/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h - what the parts of the double share. One mutex guards all of it. */
#ifndef TESTS_DOUBLE_CUDA_INSIDE_H
#define TESTS_DOUBLE_CUDA_INSIDE_H

#include <pthread.h>
#include <stdbool.h>

#include "device/cuda/driver.h"
#include "double.h"

#pragma GCC visibility push(default)
#include "calls.h"
#pragma GCC visibility pop

enum { DEVICES_MAX = 8 };
enum { /* results */
       INVALID_VALUE = 1,
       DEVICE_UNAVAILABLE = 46,
       INVALID_DEVICE = 101,
       INVALID_CONTEXT = 201,
       INVALID_HANDLE = 400,
       NOT_FOUND = 500,
       ILLEGAL_ADDRESS = 700,
       NOT_PERMITTED = 800,
       NOT_SUPPORTED = 801,
       CAPTURE_UNSUPPORTED = 900,
       CAPTURE_INVALIDATED = 901,
       CAPTURE_ISOLATION = 905,
       CAPTURED_EVENT = 907
};

struct context {
    int device, retained;
};

/* The prototypes, so that a wrong one does not compile. */
#define PROTOTYPE(name, arguments) CUDA_DOUBLE int name arguments;
HLY_CUDA_CALLS(PROTOTYPE, PROTOTYPE)
CUDA_DOUBLE int cuStreamSynchronize(void *stream);
CUDA_DOUBLE int cuEventSynchronize(void *event);
CUDA_DOUBLE int cuCtxSynchronize(void);
CUDA_DOUBLE int cuMemAllocManaged(uint64_t *at, size_t bytes, unsigned flags);
CUDA_DOUBLE int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags);
CUDA_DOUBLE int cuMemHostUnregister(void *at);

extern pthread_mutex_t mutex;
extern pthread_cond_t changed; /* something was done, or the settings are others */
extern struct cuda_double_settings settings;
extern struct cuda_double_counts counts;
extern int broken, halted;
extern int capturing;      /* streams */
void captures_spoil(void); /* a call came that CUDA refuses while streams are captured */
extern __thread bool in_host_fn;

/* Takes the mutex. What the call has to answer, if not 0; or its context. */
enum { NO_CONTEXT, NEEDS_CONTEXT };
int call_begin(const char *name, int needs, struct context **context);
int call_end(int result); /* gives it back */
int misuse(int result);

/* With the mutex: after a context broke, till its streams have dropped what they had. */
void streams_drained(void);

/* Where the bytes really are, for work of this device; NULL: not its. -1: of any. */
void *inside(uint64_t at, size_t bytes, int device);
bool is_pinned(const void *at, size_t bytes);
bool is_device(const void *at);

/* Runs a kernel; false: it touched what is not there. */
struct launch {
    void *function;
    unsigned blocks, threads;
};
bool kernel_run(const struct launch *launch, const void *argument, int device);
size_t kernel_bytes(const void *function); /* of its argument; 0: it is none */

#endif
