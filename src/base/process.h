/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - which process a rank is, and what another process of its node sees of it. */
#ifndef HLY_PROCESS_H
#define HLY_PROCESS_H

#include <stdint.h>

/* A pid is of a namespace, and the kernel gives it to another process later. */
struct hly_process {
    uint64_t space; /* inode of the pid namespace; 0: not known */
    uint64_t born;  /* clock ticks after boot */
    int64_t pid;
};

enum hly_doing {
    HLY_DOING_UNKNOWN,
    HLY_DOING_RUNS,
    HLY_DOING_SLEEPS,
    HLY_DOING_DISK, /* waits for a device, and cannot be interrupted */
    HLY_DOING_STOPPED
};

void hly_process_self(struct hly_process *process);
/* UNKNOWN too: it is in another namespace, it has ended, or /proc does not show it. */
enum hly_doing hly_process_look(const struct hly_process *process);

#endif
