/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_node.c - the NUMA node of a GPU, from trees of files that stand for /sys; pinned memory
 * is asked for under that node's policy, and under no other one afterwards.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../check.h"
#include "device/cuda/gpu.h"

#define DEVICE "bus/pci/devices/0001:af:00.0"

static char root[64] = "/tmp/halay-node-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = strchr(path + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    MUST(file && fputs(text, file) >= 0 && !fclose(file));
}

static int node(void)
{
    return hly_gpu_node_of(root, 1, 0xaf, 0);
}

static int policy(void)
{
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) ? -1 : mode;
}

static int seen;

static int host_alloc(void **at, size_t bytes, unsigned flags)
{
    MUST(bytes == 5 && flags == HLY_CU_PORTABLE);
    seen = policy();
    *at = root;
    return 2;
}

static void files(void)
{
    MUST(node() == -1); /* no such files */
    put("devices/system/node/online", "0-1\n");
    MUST(node() == -1);
    put(DEVICE "/numa_node", "1\n");
    MUST(node() == 1);
    MUST(hly_gpu_node_of(root, 1, 0xae, 0) == -1 && hly_gpu_node_of(root, 0, 0xaf, 0) == -1);
    put("devices/system/node/online", "0,8\n");
    put(DEVICE "/numa_node", "8\n");
    MUST(node() == 8);
    static const char *const none[] = {"-1\n", "", "far\n", "1024\n"}; /* -1: nobody has said it */
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        put(DEVICE "/numa_node", none[i]);
        CHECK(node() == -1, "%s", none[i]);
    }
    put("devices/system/node/online", "0\n");
    put(DEVICE "/numa_node", "0\n");
    MUST(node() == -1); /* the only one */
}

static void policies(void)
{
    struct hly_gpu gpu = {.node = 0, .driver.cuMemHostAlloc = host_alloc};
    void *at = NULL;
    if (policy() || !hly_gpu_node_enter(0)) { /* a container's filter, or numactl */
        printf("the policy of memory cannot be set here\n");
        MUST(hly_gpu_pin(&gpu, &at, 5, HLY_CU_PORTABLE) == 2 && at == root && seen == policy());
        return;
    }
    MUST(policy() == 1 && !hly_gpu_node_enter(0)); /* it is the program's own, as it were */
    hly_gpu_node_leave(true);
    MUST(!policy());
    MUST(hly_gpu_pin(&gpu, &at, 5, HLY_CU_PORTABLE) == 2 && at == root && seen == 1 && !policy());
    gpu.node = -1;
    MUST(hly_gpu_pin(&gpu, &at, 5, HLY_CU_PORTABLE) == 2 && seen == 0);
    gpu.node = 1000; /* there is none */
    MUST(hly_gpu_pin(&gpu, &at, 5, HLY_CU_PORTABLE) == 2 && seen == 0);
    MUST(!hly_gpu_node_enter(-1) && !hly_gpu_node_enter(1024) && !policy());
}

int main(void)
{
    char command[128];
    MUST(mkdtemp(root));
    files();
    policies();
    snprintf(command, sizeof(command), "rm -r %s", root);
    MUST(!system(command));
    return 0;
}
