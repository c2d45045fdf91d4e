/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dmabuf.c - a double of ibv_reg_dmabuf_mr() for LD_PRELOAD: it registers the pages of a memfd, as
 * the double of CUDA gives for a dma-buf. An adapter without that call, as Soft-RoCE is, then reads
 * and writes memory that the processor cannot touch at its address. What a kernel does with a real
 * dma-buf it does not show.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((visibility("default"))) struct ibv_mr *
ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                  int access)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = offset % page;
    if (fd < 0) {
        errno = EBADF;
        return NULL;
    }
    char *pages =
        mmap(NULL, length + skip, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - skip));
    if (pages == MAP_FAILED)
        return NULL;
    struct ibv_mr *mr = ibv_reg_mr_iova(pd, pages + skip, length, iova, access);
    const int error = errno;
    munmap(pages, length + skip); /* the registration keeps the pages */
    fprintf(stderr, "dmabuf double: %zu bytes at %llx: %s\n", length, (unsigned long long)iova,
            mr ? "registered" : "refused");
    errno = error;
    return mr;
}
