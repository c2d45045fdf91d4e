/* SPDX-License-Identifier: Apache-2.0 */
/* share.h - whether this process can share memory at all. Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_SHARE_H
#define HALAY_BOOT_SHARE_H

#include <stdbool.h>

enum { HLY_SHARE_WHY = 160 };

/*
 * Tries what shared memory between processes needs: descriptors of processes and of memory without
 * a name, and 64 KiB of it. false, and why, where a container's filter or a limit forbids that
 * (else why is empty); such a rank is a node of its own (docs/decisions/bootstraps.md#0035).
 */
bool hly_share_probe(char why[HLY_SHARE_WHY]);

#endif
