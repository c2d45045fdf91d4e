/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - group steps by NCCL: group.h over communicators of NCCL that do not block. A device
 * communicator has a stream of its own on the GPU. Each launch is followed by an event; it has
 * ended when the event has. While NCCL says that a launch is in progress its event is not recorded
 * and no further launch is taken.
 */
#ifndef HLY_NCCL_H
#define HLY_NCCL_H

#include <halay/group.h>

/* One for each context: the `arg` of the table. */
struct hly_nccl;

/* ordinal: of the GPU; -1: the one that the thread that first opens a device communicator works on.
 * library: a name, or NULL. version: 22105 is 2.21.5; 0: there is none. HALAY_EUNSUPPORTED: there
 * is no NCCL, or it is too old, or no driver here, and `why` says so. */
int hly_nccl_open(const char *library, int ordinal, struct hly_nccl **nccl, int *version, char *why,
                  size_t why_bytes);
/* Takes NULL. All device communicators are closed. */
void hly_nccl_close(struct hly_nccl *nccl);

/* What was wrong last, in NCCL's own words where it has some; "" if nothing was. */
const char *hly_nccl_why(const struct hly_nccl *nccl);

extern const halay_group_ops_t hly_group_nccl;

#endif
