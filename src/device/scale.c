/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - multiplies by a factor. float16 and bfloat16 through float32, rounded once; all
 * floating types but those of float64 with the factor rounded to float32, integers in float64, as
 * Horovod does. A NaN becomes the one that halay_op_t promises.
 */
#include <math.h>
#include <string.h>

#include <halay/halay.h>

#include "device/fp.h"

/* Elements in the caller's memory: of any alignment, and of whatever type he uses. */
#define ANY __attribute__((aligned(1), may_alias))
typedef uint16_t u16_any ANY;
typedef float f32_any ANY;
typedef double f64_any ANY;

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0)
        return float_of_bits(bits_of_float((float)fraction * 0x1p-24f) | sign);
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000u | fraction << 13);
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* To nearest, ties to even. */
static uint16_t half_of_float(float value)
{
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u;
    uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return 0x7e00u;
    if (size >= 0x47800000u) /* 65536 and more */
        return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) { /* below 2^-14: 0.5 + value has the last place of a subnormal half */
        uint32_t sum = bits_of_float(float_of_bits(size) + 0.5f);
        return (uint16_t)(sign | (sum - bits_of_float(0.5f)));
    }
    size -= 112u << 23;
    return (uint16_t)(sign | (size + 0xfffu + (size >> 13 & 1u)) >> 13);
}

static uint16_t bfloat_of_float(float value)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0u;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#define SCALE(name, any, factor_t, product)                                                        \
    static void scale_##name(void *out, const void *in, size_t count, factor_t factor)             \
    {                                                                                              \
        any *o = out;                                                                              \
        const any *a = in;                                                                         \
        for (size_t i = 0; i < count; i++)                                                         \
            o[i] = product;                                                                        \
    }

static inline float one_nan_float(float value)
{
    return value == value ? value : (float)NAN;
}

static inline double one_nan_double(double value)
{
    return value == value ? value : (double)NAN;
}

SCALE(half, u16_any, float, half_of_float(float_of_half(a[i]) * factor))
SCALE(bfloat, u16_any, float, bfloat_of_float(float_of_bits((uint32_t)a[i] << 16) * factor))
SCALE(float, f32_any, float, one_nan_float(a[i] * factor))
SCALE(double, f64_any, double, one_nan_double(a[i] * factor))

/* end: the power of two after max, so that all between truncate to what fits. */
#define SCALE_INTEGER(name, type, min, max, end)                                                   \
    typedef type name##_any ANY;                                                                   \
    static inline type fit_##name(double product)                                                  \
    {                                                                                              \
        return product >= (end) ? (max) : product <= (double)(min) ? (min) : (type)product;        \
    }                                                                                              \
    SCALE(name, name##_any, double, fit_##name((double)a[i] * factor))

SCALE_INTEGER(int8, int8_t, INT8_MIN, INT8_MAX, 0x1p7)
SCALE_INTEGER(uint8, uint8_t, 0, UINT8_MAX, 0x1p8)
SCALE_INTEGER(int16, int16_t, INT16_MIN, INT16_MAX, 0x1p15)
SCALE_INTEGER(uint16, uint16_t, 0, UINT16_MAX, 0x1p16)
SCALE_INTEGER(int32, int32_t, INT32_MIN, INT32_MAX, 0x1p31)
SCALE_INTEGER(uint32, uint32_t, 0, UINT32_MAX, 0x1p32)
SCALE_INTEGER(int64, int64_t, INT64_MIN, INT64_MAX, 0x1p63)
SCALE_INTEGER(uint64, uint64_t, 0, UINT64_MAX, 0x1p64)

typedef void scale_fn(void *out, const void *in, size_t count, double factor);

#define BY_FLOAT(name)                                                                             \
    static void by_##name(void *out, const void *in, size_t count, double factor)                  \
    {                                                                                              \
        scale_##name(out, in, count, (float)factor);                                               \
    }
BY_FLOAT(half)
BY_FLOAT(bfloat)
BY_FLOAT(float)

static const struct {
    scale_fn *scale;
    size_t parts; /* of an element */
} kinds[HALAY_TYPE_COUNT] = {
    [HALAY_INT8] = {scale_int8, 1},    [HALAY_UINT8] = {scale_uint8, 1},
    [HALAY_INT16] = {scale_int16, 1},  [HALAY_UINT16] = {scale_uint16, 1},
    [HALAY_INT32] = {scale_int32, 1},  [HALAY_UINT32] = {scale_uint32, 1},
    [HALAY_INT64] = {scale_int64, 1},  [HALAY_UINT64] = {scale_uint64, 1},
    [HALAY_FLOAT16] = {by_half, 1},    [HALAY_BFLOAT16] = {by_bfloat, 1},
    [HALAY_FLOAT32] = {by_float, 1},   [HALAY_FLOAT64] = {scale_double, 1},
    [HALAY_COMPLEX64] = {by_float, 2}, [HALAY_COMPLEX128] = {scale_double, 2},
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
