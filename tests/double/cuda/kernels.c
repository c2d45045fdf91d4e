/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the kernels of one module, for a processor: a loop over all threads of a grid. */
#include <stdbool.h>
#include <stddef.h>

#include "run.h"

#define ENTRY(name, arg)                                                                           \
    static void hly_##name(struct arg p);                                                          \
    static void run_##name(const void *at)                                                         \
    {                                                                                              \
        hly_##name(*(const struct arg *)at);                                                       \
    }                                                                                              \
    __attribute__((constructor)) static void add_##name(void)                                      \
    {                                                                                              \
        kernel_add("hly_" #name, run_##name, sizeof(struct arg));                                  \
    }                                                                                              \
    static void hly_##name(struct arg p)
#define THREAD                 thread_number
#define THREADS                thread_count
#define GLOBAL(address, bytes) kernel_at(address, bytes)
#define ALIGNED(bytes)         __attribute__((aligned(bytes), may_alias))
#define ROLLED

#include "device/cuda/kernels.inc"
