/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - what a kernel of kernels.inc gets, and which kernels there are: modules, each of them
 * a text of PTX of its own, because a driver translates a whole module before it runs any of it.
 */
#ifndef HLY_CUDA_KERNELS_H
#define HLY_CUDA_KERNELS_H

#include <stdint.h>

/* The only argument of each kernel. Addresses are the GPU's; those of sources that are not there
 * are equal to the first one's. */
struct hly_cuda_args {
    uint64_t dst, src[4];
    uint64_t count; /* elements of the kernel's */
    double factor;
    uint32_t nsrc, divisor; /* divisor 0 or 1: none */
};

/*
 * The only argument of a list's kernel: copies, and scalings by factors other than 1. Teams of
 * threads take tiles; those of part i begin at tile first[i]. The table is the argument, because
 * that is copied by the launch: it needs no memory, and nobody waits before the next one.
 */
#define HLY_CUDA_LIST 112 /* parts: arguments have 4 KiB */
#define HLY_CUDA_TILE 1024
#define HLY_CUDA_TEAM 32
struct hly_cuda_list {
    uint64_t dst[HLY_CUDA_LIST], src[HLY_CUDA_LIST];
    uint64_t count[HLY_CUDA_LIST]; /* elements of the kernel's */
    double factor[HLY_CUDA_LIST];
    uint32_t first[HLY_CUDA_LIST];
    uint32_t nparts, ntiles;
};

/* X(module, number): the number is what HLY_CUDA_MODULE is while the module is compiled. */
#define HLY_CUDA_MODULES(X)                                                                        \
    X(copy, 0) X(i8, 1) X(i16, 2) X(i32, 3) X(i64, 4) X(f16, 5) X(bf16, 6) X(f32, 7) X(f64, 8)

#endif
