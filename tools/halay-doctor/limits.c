/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c - what a process may have, and how the kernel was set up. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "doctor.h"

#define MEMLOCK_LEAST (64ull << 20) /* buffers of the transport, and large messages under way */
#define FILES_LEAST   4096
#define SHM_LEAST     (1ull << 30)
#define CAP_IPC_LOCK  14

/* The soft limit in a line of /proc/self/limits; UINT64_MAX: unlimited. */
static bool limit_read(const char *limits, const char *name, uint64_t *limit)
{
    char value[128];
    if (!hly_line(limits, name, value, sizeof value) || !*value)
        return false;
    *limit = *value == 'u' ? UINT64_MAX : strtoull(value, NULL, 10);
    return true;
}

static bool may_lock_all(const struct hly_probe *p)
{
    char status[4096], value[64];
    hly_read(p, status, sizeof status, "/proc/self/status");
    return hly_line(status, "CapEff", value, sizeof value) &&
           strtoull(value, NULL, 16) >> CAP_IPC_LOCK & 1;
}

static void tell_memlock(const struct hly_probe *p, const char *limits)
{
    uint64_t limit;
    char text[32], least[32];
    if (!limit_read(limits, "Max locked memory", &limit))
        return;
    hly_bytes_text(limit, text);
    if (limit >= MEMLOCK_LEAST || may_lock_all(p)) {
        hly_find(p->report, HLY_GOOD, "limit.memlock", "", "%s%s",
                 limit == UINT64_MAX ? "unlimited" : text,
                 limit < MEMLOCK_LEAST ? ", and this process may go beyond it (CAP_IPC_LOCK)" : "");
        return;
    }
    struct hly_finding *f =
        hly_find(p->report, hly_has_rdma(p) ? HLY_ERROR : HLY_NOTE, "limit.memlock", "",
                 "a process may lock %s of memory; RDMA takes %s and more", text,
                 hly_bytes_text(MEMLOCK_LEAST, least));
    hly_advise(f,
               "RDMA reads and writes memory that is locked (registered); beyond the limit "
               "registration fails.",
               "ulimit -l unlimited; for good: \"* - memlock unlimited\" in "
               "/etc/security/limits.conf; Slurm: LimitMEMLOCK=infinity for slurmd and "
               "PropagateResourceLimitsExcept=MEMLOCK; containers: --ulimit memlock=-1");
}

static void tell_files(const struct hly_probe *p, const char *limits)
{
    uint64_t limit;
    if (!limit_read(limits, "Max open files", &limit))
        return;
    if (limit >= FILES_LEAST) {
        hly_find(p->report, HLY_GOOD, "limit.files", "", "%llu open files",
                 (unsigned long long)limit);
        return;
    }
    struct hly_finding *f = hly_find(p->report, limit < 256 ? HLY_WARNING : HLY_NOTE, "limit.files",
                                     "", "%llu open files", (unsigned long long)limit);
    hly_advise(f, "A rank takes some descriptors for each peer that it talks to.",
               "ulimit -n %d; for good: \"* - nofile\" in /etc/security/limits.conf", FILES_LEAST);
}

/* ---------------------------------------------------------------- /dev/shm */

/* Of /proc/mounts: the size that it was mounted with; half of the memory if none was given. */
static uint64_t shm_bytes(const struct hly_probe *p)
{
    static const char units[] = "kmg";
    char mounts[65536];
    hly_read(p, mounts, sizeof mounts, "/proc/mounts");
    const char *line = NULL, *at = mounts;
    while ((at = strstr(at, " /dev/shm "))) /* the last one lies on top */
        line = at++;
    if (!line)
        return 0;
    const char *size = strstr(line, "size="), *end = strchr(line, '\n');
    if (size && (!end || size < end)) {
        char *unit;
        uint64_t bytes = strtoull(size + 5, &unit, 10);
        const char *found = *unit ? strchr(units, *unit) : NULL;
        return found ? bytes << 10 * (found - units + 1) : bytes;
    }
    return hly_memory_bytes(p) / 2;
}

static void tell_shm(const struct hly_probe *p)
{
    char size[32], room[32], rest[64] = "";
    struct statvfs fs;
    uint64_t bytes = shm_bytes(p), left = bytes;
    hly_bytes_text(bytes, size);
    if (!*p->root && !statvfs("/dev/shm", &fs)) {
        left = (uint64_t)fs.f_bavail * fs.f_frsize;
        snprintf(rest, sizeof rest, ", %s free", hly_bytes_text(left, room));
    }
    uint64_t memory = hly_memory_bytes(p), least = memory / 4 < SHM_LEAST ? memory / 4 : SHM_LEAST;
    if (bytes && bytes >= least && left >= least / 4) {
        hly_find(p->report, HLY_GOOD, "shm", "/dev/shm", "%s%s", size, rest);
        return;
    }
    struct hly_finding *f = hly_find(p->report, HLY_WARNING, "shm", "/dev/shm", "%s%s",
                                     bytes ? size : "is not mounted", rest);
    hly_advise(f,
               "Halay puts nothing there; PyTorch's data loaders, UCX, PMIx and other MPIs do, and "
               "end with a bus error where it is full.",
               "mount -o remount,size=8G /dev/shm; containers: --shm-size=8g or --ipc=host; and "
               "remove what was left there");
}

/* ---------------------------------------------------------------- the kernel */

static void tell_huge_pages(const struct hly_probe *p)
{
    char memory[4096], total[32], size[32], transparent[64];
    hly_read(p, memory, sizeof memory, "/proc/meminfo");
    hly_line(memory, "HugePages_Total", total, sizeof total);
    hly_line(memory, "Hugepagesize", size, sizeof size);
    hly_read(p, transparent, sizeof transparent, "/sys/kernel/mm/transparent_hugepage/enabled");
    bool reserved = strtoul(total, NULL, 10) > 0, never = strstr(transparent, "[never]") != NULL;
    const char *open = strchr(transparent, '[');
    char mode[32] = "not offered";
    if (open)
        snprintf(mode, sizeof mode, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
    if (reserved || (open && !never)) {
        hly_find(p->report, HLY_GOOD, "hugepages", "", "transparent: %s; reserved: %s of %s", mode,
                 *total ? total : "0", *size ? size : "?");
        return;
    }
    struct hly_finding *f =
        hly_find(p->report, HLY_NOTE, "hugepages", "", "none are reserved; transparent: %s", mode);
    hly_advise(f, "Registering large buffers for RDMA takes longer, a page at a time.",
               "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled, or reserve some: sysctl "
               "vm.nr_hugepages=512");
}

static void tell_ptrace(const struct hly_probe *p)
{
    char scope[16];
    if (!hly_read(p, scope, sizeof scope, "/proc/sys/kernel/yama/ptrace_scope") ||
        !strcmp(scope, "0")) {
        hly_find(p->report, HLY_GOOD, "ptrace", "",
                 "processes of one user may read each other's memory");
        return;
    }
    struct hly_finding *f =
        hly_find(p->report, HLY_NOTE, "ptrace", "", "kernel.yama.ptrace_scope is %s", scope);
    hly_advise(
        f,
        "Ranks of a node may not read each other's memory (process_vm_readv). Halay's shared "
        "memory does not need it; UCX and Open MPI (cma) do, and debuggers.",
        "sysctl kernel.yama.ptrace_scope=0");
}

void hly_probe_limits(const struct hly_probe *p)
{
    char limits[8192];
    hly_read(p, limits, sizeof limits, "/proc/self/limits");
    tell_memlock(p, limits);
    tell_files(p, limits);
    tell_shm(p);
}

void hly_probe_kernel(const struct hly_probe *p)
{
    tell_huge_pages(p);
    tell_ptrace(p);
}
