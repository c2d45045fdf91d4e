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

#include <halay/device.h>

/* dst = left OP right. */
typedef void hly_combine_fn(void *dst, const void *left, const void *right, size_t count);
/* dst = src / divisor, which is not 0. */
typedef void hly_divide_fn(void *dst, const void *src, uint32_t divisor, size_t count);
/* dst = src[0] OP src[1] ..., divided by divisor if that is more than 1, rounded once at
 * the end. */
typedef void hly_reduce_fn(void *dst, const void *const src[], uint32_t nsrc, uint32_t divisor,
                           size_t count);

/* Whole lines, of which dst begins one where it goes past the caches. */
typedef void hly_lines_fn(void *dst, const void *src, size_t bytes);

/* dst = left + right in whole lines, past the caches; dst begins one. */
typedef void hly_sum_lines_fn(void *dst, const void *left, const void *right, size_t bytes);

/* NULL where the operation does not take the type. */
struct hly_kernels {
    const char *isa;
    /* The sum, the product and the average of the half types: all at once, because of the
     * rounding. */
    hly_reduce_fn *reduce[HALAY_TYPE_COUNT][HALAY_OP_COUNT];
    /* All others: step by step. */
    hly_combine_fn *combine[HALAY_TYPE_COUNT][HALAY_OP_COUNT];
    hly_divide_fn *divide[HALAY_TYPE_COUNT];
    hly_lines_fn *stream;                          /* past the caches; hly_stream_end() */
    hly_sum_lines_fn *sum_lines[HALAY_TYPE_COUNT]; /* the same; NULL: in blocks */
};

extern const struct hly_kernels hly_kernels_scalar;
#if defined(__x86_64__)
extern const struct hly_kernels hly_kernels_avx2;
extern const struct hly_kernels hly_kernels_avx512;
#endif

#endif
