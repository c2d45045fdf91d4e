/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - GPUs, and whether an RDMA adapter may read and write their memory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define DMABUF_DRIVER 515 /* the first open kernel modules of NVIDIA */

/* dmabuf: Linux 5.12 (ib_core knows it), and NVIDIA's open kernel modules. */
static bool dmabuf(const struct hly_probe *p, const char *driver)
{
    char release[96], *rest;
    hly_read(p, release, sizeof release, "/proc/sys/kernel/osrelease");
    long major = strtol(release, &rest, 10), minor = *rest ? strtol(rest + 1, NULL, 10) : 0;
    const char *open = strstr(driver, "Open Kernel Module");
    const char *number = open ? strstr(open, "  ") : NULL; /* "... Module for x86_64  570.1" */
    return (major > 5 || (major == 5 && minor >= 12)) && number &&
           strtol(number, NULL, 10) >= DMABUF_DRIVER;
}

static bool module_loaded(const struct hly_probe *p, const char *name)
{
    char text[16];
    struct hly_names files;
    return hly_read(p, text, sizeof text, "/sys/module/%s/refcnt", name) ||
           hly_list(p, &files, "/sys/module/%s", name) > 0;
}

static void tell_nvidia(const struct hly_probe *p, const char *driver, int gpus)
{
    bool peer = module_loaded(p, "nvidia_peermem") || module_loaded(p, "nv_peer_mem");
    bool buffers = dmabuf(p, driver);
    char line[200];
    hly_line(driver, "NVRM version", line, sizeof line);
    hly_find(p->report, HLY_GOOD, "gpu", "", "%d of NVIDIA; %s", gpus, *line ? line : "?");
    if (!hly_has_rdma(p))
        return;
    if (peer || buffers) {
        hly_find(p->report, HLY_GOOD, "gpu.peer", "", "RDMA may reach GPU memory: %s%s%s",
                 peer ? "nvidia_peermem" : "", peer && buffers ? ", " : "",
                 buffers ? "dmabuf" : "");
        return;
    }
    struct hly_finding *f = hly_find(p->report, HLY_WARNING, "gpu.peer", "",
                                     "neither nvidia_peermem is loaded, nor is dmabuf there");
    hly_advise(f,
               "The adapter cannot reach GPU memory: NCCL and UCX copy through the host's. (Halay "
               "itself takes no GPU memory yet.)",
               "modprobe nvidia_peermem; or NVIDIA's open kernel modules, version %d or newer, on "
               "Linux 5.12 or newer",
               DMABUF_DRIVER);
}

void hly_probe_gpu(const struct hly_probe *p)
{
    char driver[1024];
    struct hly_names names;
    if (hly_read(p, driver, sizeof driver, "/proc/driver/nvidia/version")) {
        tell_nvidia(p, driver, hly_list(p, &names, "/proc/driver/nvidia/gpus"));
        return;
    }
    int nodes = hly_list(p, &names, "/sys/class/kfd/kfd/topology/nodes");
    if (nodes)
        hly_find(p->report, HLY_GOOD, "gpu", "",
                 "AMD's driver (kfd) is there; RDMA reaches its "
                 "memory by dmabuf");
    else
        hly_find(p->report, HLY_GOOD, "gpu", "", "there is no GPU driver");
}
