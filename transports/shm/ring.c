/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - the memory of a ring, or of a region: a memfd without a name, all of it allocated before
 * it is mapped (a shortage is an error here, never SIGBUS later), sealed so that nobody can cut it,
 * absent from forked children. A large ring's pages are mapped with it. A node of many ranks has
 * small rings, of which most carry a few messages only: theirs are mapped as they are touched
 * (docs/decisions/shared-memory.md#0093).
 */
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
/* Rings up to this size are mapped as they are touched. */
#define TOUCHED_BYTES (256u << 10)

static int ring_attach(int fd, size_t bytes, hly_shm_ring_t *ring, const char **why)
{
    const int flags = MAP_SHARED | (bytes > TOUCHED_BYTES ? MAP_POPULATE : 0);
    *why = "mmap";
    void *at = mmap(NULL, HLY_SHM_HEAD + bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    *why = "madvise(MADV_DONTFORK)";
    if (madvise(at, HLY_SHM_HEAD + bytes, MADV_DONTFORK)) {
        int error = errno;
        munmap(at, HLY_SHM_HEAD + bytes);
        return -error;
    }
    memset(ring, 0, sizeof(*ring));
    ring->shared = at;
    ring->data = (uint8_t *)at + HLY_SHM_HEAD;
    ring->mask = bytes - 1;
    ring->most = hly_shm_ring_message(ring->mask) - HLY_SHM_LINE;
    return 0;
}

/* Beyond RLIMIT_FSIZE the kernel does not only refuse, it sends SIGXFSZ: so look first. */
static int memory_allocate(int fd, size_t bytes, const char **why)
{
    struct rlimit limit;
    *why = "the limit on file size (ulimit -f)";
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes)
        return -EFBIG;
    *why = "fallocate";
    int rc;
    do
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    while (rc && errno == EINTR);
    if (rc)
        return -errno;
    *why = "sealing";
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ? -errno : 0;
}

int hly_shm_memory_create(const char *name, size_t bytes, int *fd, const char **why)
{
    *why = "memfd_create";
    int memory = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (memory < 0 && errno == EINVAL) /* before Linux 6.3 */
        memory = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0)
        return -errno;
    int rc = memory_allocate(memory, bytes, why);
    if (rc)
        close(memory);
    else
        *fd = memory;
    return rc;
}

int hly_shm_memory_check(int fd, uint64_t bytes)
{
    struct stat stat;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && seals & F_SEAL_SHRINK && fstat(fd, &stat) == 0 &&
           (uint64_t)stat.st_size >= bytes;
}

int hly_shm_ring_create(size_t bytes, hly_shm_ring_t *ring, int *fd, const char **why)
{
    int memory = -1;
    assert(bytes >= HLY_SHM_RING_MIN && bytes <= HLY_SHM_RING_MAX && (bytes & (bytes - 1)) == 0);
    _Static_assert(sizeof(hly_shm_shared_t) <= HLY_SHM_HEAD, "the head has its page");
    int rc = hly_shm_memory_create("halay-ring", HLY_SHM_HEAD + bytes, &memory, why);
    if (rc)
        return rc;
    rc = ring_attach(memory, bytes, ring, why);
    if (rc) {
        close(memory);
        return rc;
    }
    ring->shared->bytes = bytes;
    ring->shared->magic = HLY_SHM_MAGIC;
    *fd = memory;
    return 0;
}

int hly_shm_ring_map(int fd, uint64_t bytes, hly_shm_ring_t *ring, const char **why)
{
    *why = "a ring of an impossible size";
    if (bytes < HLY_SHM_RING_MIN || bytes > HLY_SHM_RING_MAX || (bytes & (bytes - 1)) != 0)
        return -EINVAL;
    *why = "a ring that could shrink";
    if (!hly_shm_memory_check(fd, HLY_SHM_HEAD + bytes))
        return -EINVAL;
    int rc = ring_attach(fd, (size_t)bytes, ring, why);
    if (rc)
        return rc;
    if (ring->shared->magic != HLY_SHM_MAGIC || ring->shared->bytes != bytes) {
        *why = "a ring of another make";
        hly_shm_ring_unmap(ring);
        return -EINVAL;
    }
    return 0;
}

void hly_shm_ring_unmap(hly_shm_ring_t *ring)
{
    if (ring->shared)
        munmap(ring->shared, HLY_SHM_HEAD + ring->mask + 1);
    ring->shared = NULL;
}
