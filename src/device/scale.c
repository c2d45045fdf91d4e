/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - multiplies by a factor. float16 and bfloat16 through float32, rounded once; all
 * floating types but those of float64 with the factor rounded to float32, integers in float64, as
 * Horovod does. A NaN becomes the one that halay_op_t promises.
 */
#include <math.h>

#include <halay/halay.h>

#include "device/element.h"
#include "device/fp.h"

/* Elements in the caller's memory: of any alignment, and of whatever type he uses. */
#define ANY __attribute__((aligned(1), may_alias))
typedef uint16_t half_any ANY;
typedef float f32_any ANY;
typedef double f64_any ANY;

#define SCALE(t, any, factor_t)                                                                    \
    static void scale_##t(void *out, const void *in, size_t count, double factor)                  \
    {                                                                                              \
        any *o = out;                                                                              \
        const any *a = in;                                                                         \
        const factor_t by = (factor_t)factor;                                                      \
        for (size_t i = 0; i < count; i++)                                                         \
            o[i] = element_scale_##t(a[i], by);                                                    \
    }
#define SCALE_INTEGER(t, type)                                                                     \
    typedef type t##_any ANY;                                                                      \
    SCALE(t, t##_any, double)

SCALE(f16, half_any, float)
SCALE(bf16, half_any, float)
SCALE(f32, f32_any, float)
SCALE(f64, f64_any, double)
SCALE_INTEGER(i8, int8_t)
SCALE_INTEGER(u8, uint8_t)
SCALE_INTEGER(i16, int16_t)
SCALE_INTEGER(u16, uint16_t)
SCALE_INTEGER(i32, int32_t)
SCALE_INTEGER(u32, uint32_t)
SCALE_INTEGER(i64, int64_t)
SCALE_INTEGER(u64, uint64_t)

typedef void scale_fn(void *out, const void *in, size_t count, double factor);

static const struct {
    scale_fn *scale;
    size_t parts; /* of an element */
} kinds[HALAY_TYPE_COUNT] = {
    [HALAY_INT8] = {scale_i8, 1},       [HALAY_UINT8] = {scale_u8, 1},
    [HALAY_INT16] = {scale_i16, 1},     [HALAY_UINT16] = {scale_u16, 1},
    [HALAY_INT32] = {scale_i32, 1},     [HALAY_UINT32] = {scale_u32, 1},
    [HALAY_INT64] = {scale_i64, 1},     [HALAY_UINT64] = {scale_u64, 1},
    [HALAY_FLOAT16] = {scale_f16, 1},   [HALAY_BFLOAT16] = {scale_bf16, 1},
    [HALAY_FLOAT32] = {scale_f32, 1},   [HALAY_FLOAT64] = {scale_f64, 1},
    [HALAY_COMPLEX64] = {scale_f32, 2}, [HALAY_COMPLEX128] = {scale_f64, 2},
};

int halay_scale(void *out, const void *in, size_t count, halay_type_t type, double factor)
{
    hly_fp_t state;
    if ((unsigned)type >= HALAY_TYPE_COUNT || !kinds[type].scale || !isfinite(factor))
        return HALAY_EINVAL;
    if (count && (!out || !in))
        return HALAY_EINVAL;
    const int changed = hly_fp_enter(&state);
    kinds[type].scale(out, in, count * kinds[type].parts, factor);
    if (changed)
        hly_fp_leave(&state);
    return HALAY_OK;
}
