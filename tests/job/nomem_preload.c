/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nomem_preload.c - for LD_PRELOAD: the n-th allocation, descriptor or thread that Halay or one of
 * its plug-ins asks for fails; n is in NOMEM_AT, and 0 counts them only, to standard error.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t unit, size_t bytes);

static atomic_int counted;
static long fails_at = -1;

static int is_ours(const void *caller)
{
    Dl_info where;
    return dladdr(caller, &where) && where.dli_fname &&
           (strstr(where.dli_fname, "libhalay") || strstr(where.dli_fname, "/halay-"));
}

static int fails(const void *caller)
{
    if (fails_at < 0) {
        const char *at = getenv("NOMEM_AT");
        fails_at = at ? strtol(at, NULL, 10) : 0;
    }
    if (!is_ours(caller) || atomic_fetch_add(&counted, 1) + 1 != fails_at)
        return 0;
    errno = ENOMEM;
    return 1;
}

__attribute__((destructor)) static void tell(void)
{
    if (fails_at == 0)
        fprintf(stderr, "counted %d\n", atomic_load(&counted));
}

#define FAILS(type_, name_, wrong_, real_, parameters_, ...)                                       \
    type_ name_ parameters_;                                                                       \
    type_ name_ parameters_                                                                        \
    {                                                                                              \
        if (fails(__builtin_return_address(0)))                                                    \
            return wrong_;                                                                         \
        return real_(__VA_ARGS__);                                                                 \
    }
#define NEXT(type_, name_, wrong_, parameters_, ...)                                               \
    type_ name_ parameters_;                                                                       \
    type_ name_ parameters_                                                                        \
    {                                                                                              \
        type_(*real) parameters_;                                                                  \
        *(void **)&real = dlsym(RTLD_NEXT, #name_);                                                \
        return fails(__builtin_return_address(0)) ? (wrong_) : real(__VA_ARGS__);                  \
    }

FAILS(void *, malloc, NULL, __libc_malloc, (size_t bytes), bytes)
FAILS(void *, calloc, NULL, __libc_calloc, (size_t n, size_t bytes), n, bytes)
FAILS(void *, realloc, NULL, __libc_realloc, (void *old, size_t bytes), old, bytes)
FAILS(void *, aligned_alloc, NULL, __libc_memalign, (size_t unit, size_t bytes), unit, bytes)
NEXT(void *, mmap, MAP_FAILED, (void *at, size_t bytes, int prot, int flags, int fd, off_t offset),
     at, bytes, prot, flags, fd, offset)
NEXT(int, memfd_create, -1, (const char *name, unsigned flags), name, flags)
NEXT(int, socket, -1, (int family, int type, int protocol), family, type, protocol)
NEXT(int, epoll_create1, -1, (int flags), flags)
NEXT(int, eventfd, -1, (unsigned value, int flags), value, flags)
NEXT(int, timerfd_create, -1, (int clock, int flags), clock, flags)
NEXT(int, pthread_create, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg), thread,
     attr, run, arg)
