/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - GPUs, and whether an RDMA adapter may read and write their memory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include <halay/group.h>

#include "../common/nccl.h"
#include "../common/switch.h"
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

/* Why it is not by dmabuf, which needs no module of its own. */
static const char *no_dmabuf(const char *driver)
{
    return strstr(driver, "Open Kernel Module") ? "the kernel or the driver is too old for dmabuf"
                                                : "NVIDIA's closed kernel modules have no dmabuf";
}

static void tell_nvidia(const struct hly_probe *p, const char *driver, int gpus)
{
    const bool peer = module_loaded(p, "nvidia_peermem") || module_loaded(p, "nv_peer_mem"),
               buffers = dmabuf(p, driver), rdma = hly_has_rdma(p);
    char line[200];
    const bool wanted = hly_switch_read("HALAY_GPUDIRECT", line, sizeof line) == 1;
    hly_line(driver, "NVRM version", line, sizeof line);
    hly_find(p->report, HLY_GOOD, "gpu", "", "%d of NVIDIA; %s", gpus, *line ? line : "?");
    hly_fact(p->report, "GPUDirect", "%s", rdma && (peer || buffers) ? "possible" : "not possible");
    hly_fact(p->report, "HALAY_GPUDIRECT", "%s", wanted ? "1" : "not 1");
    if (rdma && (peer || buffers)) {
        hly_find(p->report, HLY_GOOD, "gpu.peer", "", "RDMA may reach GPU memory by %s%s%s; %s",
                 buffers ? peer ? "dmabuf, else nvidia_peermem" : "dmabuf" : "nvidia_peermem",
                 buffers ? "" : "; ", buffers ? "" : no_dmabuf(driver),
                 wanted ? "HALAY_GPUDIRECT=1: it does, where the call can"
                        : "HALAY_GPUDIRECT is not 1: it is copied through the host's");
        return;
    }
    if (!rdma && !wanted)
        return;
    if (!rdma) {
        hly_advise(hly_find(p->report, HLY_WARNING, "gpu.peer", "",
                            "HALAY_GPUDIRECT is 1, and there is no RDMA device"),
                   "Calls of several nodes in GPU memory fail.",
                   "take HALAY_GPUDIRECT away, or see the findings on RDMA");
        return;
    }
    hly_advise(hly_find(p->report, HLY_WARNING, "gpu.peer", "",
                        "neither nvidia_peermem is loaded, nor is dmabuf there: %s",
                        no_dmabuf(driver)),
               "The adapter cannot reach GPU memory: it is copied through the host's, and calls "
               "under HALAY_GPUDIRECT=1 fail.",
               "modprobe nvidia_peermem; or NVIDIA's open kernel modules, version %d or newer, on "
               "Linux 5.12 or newer",
               DMABUF_DRIVER);
}

/* NCCL is opened only for this. Without it, several GPUs of a node are slow. */
static void tell_nccl(const struct hly_probe *p, int gpus, const char *asked)
{
    char line[512];
    const enum hly_nccl_state state = hly_nccl_look(line, sizeof line);
    const bool wanted = gpus > 1 || (asked && *asked);
    const char *version = strstr(line, ": NCCL ");
    hly_fact(p->report, "NCCL", "%.*s", version ? (int)strcspn(version + 2, ",") : 4,
             version ? version + 2 : "none");
    if (state == HLY_NCCL_FOUND || state == HLY_NCCL_OFF || !wanted) {
        hly_find(p->report, HLY_GOOD, "gpu.nccl", "", "%s", line);
        return;
    }
    hly_advise(hly_find(p->report, HLY_WARNING, "gpu.nccl", "", "%s", line),
               "Calls between the GPUs of a node go through the host's memory.",
               "install NCCL " HALAY_NCCL_LEAST_TEXT
               " or newer, or name its file in HALAY_NCCL_LIBRARY");
}

/* Contexts refuse to start with it, on a host without a GPU too. */
static void tell_switch(const struct hly_probe *p)
{
    char wrong[200];
    if (hly_switch_read("HALAY_GPUDIRECT", wrong, sizeof wrong) < 0)
        hly_advise(hly_find(p->report, HLY_ERROR, "gpu.setting", "", "%s", wrong),
                   "halay_init fails on this rank, and the others wait for it.",
                   "set it to 1 or 0, the same on all ranks, or take it away");
}

void hly_probe_gpu(const struct hly_probe *p)
{
    char driver[1024];
    struct hly_names names;
    const char *asked = getenv("HALAY_NCCL_LIBRARY");
    tell_switch(p);
    if (hly_read(p, driver, sizeof driver, "/proc/driver/nvidia/version")) {
        const int gpus = hly_list(p, &names, "/proc/driver/nvidia/gpus");
        tell_nvidia(p, driver, gpus);
        tell_nccl(p, gpus, asked);
        return;
    }
    if (asked && *asked)
        tell_nccl(p, 0, asked);
    int nodes = hly_list(p, &names, "/sys/class/kfd/kfd/topology/nodes");
    if (nodes)
        hly_find(p->report, HLY_GOOD, "gpu", "",
                 "AMD's driver (kfd) is there; RDMA reaches its "
                 "memory by dmabuf");
    else
        hly_find(p->report, HLY_GOOD, "gpu", "", "there is no GPU driver");
}
