/* SPDX-License-Identifier: Apache-2.0 */
/* share.h - checks whether this process can share memory with others at all. Inside boot/ and pmix/
 * only. */
#ifndef HALAY_BOOT_SHARE_H
#define HALAY_BOOT_SHARE_H

#include <stdbool.h>

enum { HLY_SHARE_WHY = 160 };

/*
 * Tries what shared memory needs: pidfds, memfds, and 64 KiB in one. False, with the reason in why,
 * if a container's seccomp filter or a limit forbids that; else why is empty. Such a rank is a node
 * of its own (docs/decisions/bootstraps.md#0035).
 */
bool hly_share_probe(char why[HLY_SHARE_WHY]);

#endif
