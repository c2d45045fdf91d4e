/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c - pinned memory near the GPU: the driver takes pages by the memory policy of the thread
 * that asks, which is therefore the GPU's NUMA node in the meantime. By system calls, without
 * libnuma; a machine of one node, and a program that has a policy of its own, are left alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/cuda/gpu.h"

enum { POLICY_DEFAULT = 0, POLICY_PREFERRED = 1, NODES = 1024, WORD = 8 * sizeof(long) };

static bool read_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "re");
    const bool got = file && fgets(line, bytes, file);
    if (file)
        fclose(file);
    return got;
}

int hly_gpu_node_of(const char *sys, int domain, int bus, int device)
{
    char path[512], line[64];
    char *end;
    snprintf(path, sizeof(path), "%s/devices/system/node/online", sys);
    if (!read_line(path, line, sizeof(line)) || !strpbrk(line, ",-")) /* "0-1", "0,8" */
        return -1;
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%04x:%02x:%02x.0/numa_node", sys,
             (unsigned)domain, (unsigned)bus, (unsigned)device);
    if (!read_line(path, line, sizeof(line)))
        return -1;
    const long node = strtol(line, &end, 10); /* -1: the firmware does not say it */
    return end != line && node >= 0 && node < NODES ? (int)node : -1;
}

bool hly_gpu_node_enter(int node)
{
    unsigned long nodes[NODES / WORD] = {0};
    int policy = POLICY_DEFAULT;
    if (node < 0 || node >= NODES || syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0) ||
        policy != POLICY_DEFAULT)
        return false;
    nodes[(unsigned)node / WORD] = 1ul << (unsigned)node % WORD;
    return !syscall(SYS_set_mempolicy, POLICY_PREFERRED, nodes, NODES + 1);
}

void hly_gpu_node_leave(bool entered)
{
    if (entered)
        syscall(SYS_set_mempolicy, POLICY_DEFAULT, NULL, 0);
}

int hly_gpu_pin(const struct hly_gpu *gpu, void **at, size_t bytes, unsigned flags)
{
    const bool entered = hly_gpu_node_enter(gpu->node);
    const int rc = gpu->driver.cuMemHostAlloc(at, bytes, flags);
    hly_gpu_node_leave(entered);
    return rc;
}
