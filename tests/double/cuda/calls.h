/* SPDX-License-Identifier: Apache-2.0 */
/* calls.h - calls of CUDA's driver with which a test gets memory of a GPU, as a program does. */
#ifndef TESTS_DOUBLE_CUDA_CALLS_H
#define TESTS_DOUBLE_CUDA_CALLS_H

#include <stddef.h>
#include <stdint.h>

extern int cuInit(unsigned flags);
extern int cuDevicePrimaryCtxRetain(void **context, int device);
extern int cuDevicePrimaryCtxRelease_v2(int device);
extern int cuCtxPushCurrent_v2(void *context);
extern int cuCtxPopCurrent_v2(void **context);
extern int cuMemAlloc_v2(uint64_t *at, size_t bytes);
extern int cuMemFree_v2(uint64_t at);
extern int cuStreamBeginCapture_v2(void *stream, int mode);
extern int cuStreamEndCapture(void *stream, void **graph);
extern int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
extern int cuGraphLaunch(void *exec, void *stream);
extern int cuGraphExecDestroy(void *exec);
extern int cuGraphDestroy(void *graph);

#endif
