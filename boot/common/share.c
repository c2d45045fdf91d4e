/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - checks whether this process can share memory with others at all. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { LEAST_BYTES = 64 << 10 };

/* Gives the system call that is refused; NULL: none is. A lack of memory or descriptors does not
 * count here: it becomes an error when they are needed. */
static const char *refused(void)
{
    int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (process < 0)
        return errno == EMFILE || errno == ENFILE ? NULL : "pidfd_open";
    close(process);
    int memory = memfd_create("halay-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? NULL : "memfd_create";
    const char *what = NULL;
    if (fallocate(memory, 0, 0, LEAST_BYTES) && errno != ENOMEM && errno != ENOSPC)
        what = "fallocate";
    else if (fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
        what = "sealing";
    int error = errno;
    close(memory);
    errno = error;
    return what;
}

/* pidfd_open came with 5.3, the rest before. */
static bool kernel_is_old(void)
{
    struct utsname system;
    int major = 0, minor = 0;
    /* NOLINTNEXTLINE(cert-err34-c): numbers of any size only choose the words */
    return !uname(&system) && sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
           (major < 5 || (major == 5 && minor < 3));
}

bool hly_share_probe(char why[HLY_SHARE_WHY])
{
    struct rlimit limit;
    why[0] = 0;
    /* Beyond the limit the kernel also sends SIGXFSZ, so check the limit first. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < LEAST_BYTES) {
        snprintf(why, HLY_SHARE_WHY,
                 "the limit on file size (ulimit -f) is %llu bytes, %d are needed",
                 (unsigned long long)limit.rlim_cur, LEAST_BYTES);
        return false;
    }
    const char *what = refused();
    if (what)
        snprintf(why, HLY_SHARE_WHY, "%s is refused: %s (%s)", what, strerror(errno),
                 kernel_is_old() ? "Linux 5.3 or newer is needed"
                                 : "a seccomp filter of the container?");
    return !what;
}
