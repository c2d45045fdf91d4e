/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx_nomr_preload.c - for LD_PRELOAD: of the registrations of memory that a process asks an RDMA
 * device for, those from the NOMR_AT-th on fail, NOMR_TIMES of them. At the end it says to standard
 * error how many there were, and have failed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

static atomic_long asked, failed;

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

/* UCX calls no other one. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t bytes, uint64_t iova,
                                unsigned access)
{
    void *verbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD); /* not in RTLD_NEXT's sight */
    union {
        void *symbol;
        struct ibv_mr *(*call)(struct ibv_pd *, void *, size_t, uint64_t, unsigned);
    } real = {dlsym(verbs, "ibv_reg_mr_iova2")};
    const long first = number("NOMR_AT"), n = atomic_fetch_add(&asked, 1) + 1;
    if (n >= first && n < first + number("NOMR_TIMES")) {
        atomic_fetch_add(&failed, 1);
        errno = ENOMEM;
        return NULL;
    }
    return real.call(pd, at, bytes, iova, access);
}

__attribute__((destructor)) static void tell(void)
{
    fprintf(stderr, "registrations: %ld\nfailed: %ld\n", atomic_load(&asked), atomic_load(&failed));
}
