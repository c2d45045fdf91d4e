/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ours.h - group steps of our own: group.h over the CUDA device's kernels, which read the other
 * members' memory, and shared host memory, in which members say how far they are. For ranks that
 * NCCL does not serve: threads of one process on one GPU. All types and built-in operations.
 */
#ifndef HLY_OURS_H
#define HLY_OURS_H

#include <halay/group.h>

#define HLY_OURS_FLIGHTS 8 /* launches in flight on a circle */

/* One for each context: the `arg` of the table. */
struct hly_ours;

/* For this GPU, which is opened for the first circle. HALAY_ENOMEM. */
int hly_ours_open(int ordinal, struct hly_ours **ours);
/* Takes NULL. All circles are closed. */
void hly_ours_close(struct hly_ours *ours);

/* Two ranks of a node can be members of one circle if they have the same word. 0: this one cannot.
 */
uint64_t hly_ours_reach(int ordinal);

extern const halay_group_ops_t hly_group_ours;

#endif
