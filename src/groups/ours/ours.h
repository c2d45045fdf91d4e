/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ours.h - group steps of our own: group.h over the CUDA device's kernels. Members put their data
 * into slabs of the GPU's memory that all of them can read, and tell one another in shared host
 * memory how far they are. For ranks that NCCL does not serve since they share a GPU: threads and
 * processes. All types and built-in operations.
 */
#ifndef HLY_OURS_H
#define HLY_OURS_H

#include <halay/device.h>
#include <halay/group.h>

#define HLY_OURS_FLIGHTS  8            /* launches in flight on a device communicator */
#define HLY_OURS_CLOSE_NS 100000000ull /* at the end: for others that read a slab */

/* One for each context: the `arg` of the table. */
struct hly_ours;

/* For this GPU, which is opened for the first device communicator. half_bytes: of a slab, which has
 * two. 0: choose. HALAY_ENOMEM. */
int hly_ours_open(int ordinal, size_t half_bytes, struct hly_ours **ours);
/* Takes NULL. All device communicators are closed. */
void hly_ours_close(struct hly_ours *ours);

/* Two ranks of a node can be members of one device communicator if they have the same word. 0: this
 * one cannot. The device works on the GPU. */
uint64_t hly_ours_reach(halay_device_t *device);

/* Calls of fewer bytes are faster staged, as was measured: docs/gpu.md. */
uint64_t hly_ours_least(halay_device_t *device);

extern const halay_group_ops_t hly_group_ours;

#endif
