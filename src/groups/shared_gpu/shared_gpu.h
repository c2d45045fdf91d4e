/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_gpu.h - group steps of ranks that share a GPU, threads or processes, which NCCL does not
 * serve: group.h over the CUDA device's kernels. Members put their data into slabs of the GPU's
 * memory that all of them can read, and tell one another in shared host memory how far they are.
 * All types and built-in operations.
 */
#ifndef HLY_SHARED_GPU_H
#define HLY_SHARED_GPU_H

#include <halay/device.h>
#include <halay/group.h>

#define HLY_SHARED_GPU_FLIGHTS  8            /* launches in flight on a device communicator */
#define HLY_SHARED_GPU_CLOSE_NS 100000000ull /* at the end: for others that read a slab */

/* One for each context: the `arg` of the table. */
struct hly_shared_gpu;

/* For this GPU, which is opened for the first device communicator. half_bytes: of a slab, which has
 * two. 0: choose. HALAY_ENOMEM. */
int hly_shared_gpu_open(int ordinal, size_t half_bytes, struct hly_shared_gpu **library);
/* Takes NULL. All device communicators are closed. */
void hly_shared_gpu_close(struct hly_shared_gpu *library);

/* Two ranks of a node can be members of one device communicator if they have the same word. 0: this
 * one cannot. The device works on the GPU. */
uint64_t hly_shared_gpu_reach(halay_device_t *device);

/* Calls of fewer bytes are faster staged, as was measured: docs/gpu.md. */
uint64_t hly_shared_gpu_least(halay_device_t *device);

extern const halay_group_ops_t hly_group_shared_gpu;

#endif
