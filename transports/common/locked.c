/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locked.c - memory that an RDMA device reads and writes is locked; how much of it one may have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "meet.h"

/* CAP_IPC_LOCK: a process that has it has no limit. */
static int may_lock_all(void)
{
    char line[128];
    uint64_t effective = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "CapEff:", 7) == 0)
            effective = strtoull(line + 7, NULL, 16);
    }
    if (file)
        fclose(file);
    return (effective >> 14 & 1) != 0;
}

uint64_t hly_locked_limit(void)
{
    struct rlimit limit;
    if (may_lock_all() || getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}
