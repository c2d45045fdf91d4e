/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the inner loops of the host device: one table for each instruction set. All tables
 * give the same bits. Pointers need no alignment; dst may be equal to a source, and must not
 * overlap one in any other way. The floating-point environment must be the default one.
 */
#ifndef HLY_DEVICE_KERNELS_H
#define HLY_DEVICE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <halay/halay.h>

/* dst = left OP right. */
typedef void hly_combine_fn(void *dst, const void *left, const void *right, size_t count);
/* dst = src / divisor, which is not 0. */
typedef void hly_divide_fn(void *dst, const void *src, uint32_t divisor, size_t count);
/* To float32 and back. A NaN that is narrowed must be the one of the float32 kernels. */
typedef void hly_widen_fn(float *dst, const void *src, size_t count);
typedef void hly_narrow_fn(void *dst, const float *src, size_t count);

struct hly_kernels {
    const char *isa;
    /*
     * NULL where the operation does not take the type, and for the sum and the product of the half
     * types: those are widened, combined and divided as float32, and narrowed.
     */
    hly_combine_fn *combine[HALAY_TYPE_COUNT][HALAY_OP_COUNT];
    hly_divide_fn *divide[HALAY_TYPE_COUNT];
    hly_widen_fn *widen[HALAY_TYPE_COUNT];
    hly_narrow_fn *narrow[HALAY_TYPE_COUNT];
};

extern const struct hly_kernels hly_kernels_scalar;
#if defined(__x86_64__)
extern const struct hly_kernels hly_kernels_avx2;
extern const struct hly_kernels hly_kernels_avx512;
#endif

#endif
