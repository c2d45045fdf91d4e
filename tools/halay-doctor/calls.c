/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c - which system calls a filter (seccomp, as containers have it) forbids: the filter itself
 * cannot be read, so they are called.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "doctor.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static int close_it(int fd)
{
    return fd < 0 ? errno : close(fd);
}

static int try_memfd(void)
{
    return close_it(memfd_create("halay-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

static int try_pidfd(void)
{
    return close_it((int)syscall(SYS_pidfd_open, getpid(), 0));
}

static int try_read(void)
{
    char from = 1, to = 0;
    struct iovec local = {&to, 1}, remote = {&from, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 && to == from ? 0 : errno;
}

void hly_probe_calls(const struct hly_probe *p)
{
    static const struct {
        const char *name, *why;
        int (*try)(void);
        enum hly_severity severity;
    } calls[] = {
        {"memfd_create", "The ranks of a node share memory that is made by it: they cannot start.",
         try_memfd, HLY_ERROR},
        {"pidfd_open",
         "The shared memory transport notices the death of a rank by it: it refuses to "
         "open.",
         try_pidfd, HLY_ERROR},
        {"process_vm_readv",
         "Ranks of a node may not read each other's memory. Halay's shared memory "
         "does not need it; UCX and Open MPI (cma) do.",
         try_read, HLY_NOTE},
    };
    char status[4096], mode[16];
    int refused = 0;
    if (*p->root)
        return;
    hly_read(p, status, sizeof status, "/proc/self/status");
    hly_line(status, "Seccomp", mode, sizeof mode);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        int error = calls[i].try();
        if (!error)
            continue;
        refused++;
        struct hly_finding *f =
            hly_find(p->report, calls[i].severity, "seccomp", calls[i].name, "refused: %s%s",
                     strerror(error), *mode == '2' ? " (a seccomp filter is active)" : "");
        hly_advise(f, calls[i].why,
                   "containers: --security-opt seccomp=unconfined, or a profile that allows %s; "
                   "without a filter: a newer kernel",
                   calls[i].name);
    }
    if (!refused)
        hly_find(p->report, HLY_GOOD, "seccomp", "", "%s; all system calls that are needed answer",
                 *mode == '2' ? "a filter is active" : "no filter");
}
