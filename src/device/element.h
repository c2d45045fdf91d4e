/* SPDX-License-Identifier: Apache-2.0 */
/*
 * element.h - what an operation does to one element. The host's loops (kernels.inc, scale.c) and
 * those of a GPU (cuda/kernels.inc) are made of these functions, so that their bits are the same:
 * every NaN that is computed is one and the same, minimum and maximum compare integer keys in which
 * -0 stands below +0, and nothing is contracted. In C and in CUDA's C++.
 */
#ifndef HLY_DEVICE_ELEMENT_H
#define HLY_DEVICE_ELEMENT_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define ELEMENT static __device__ __forceinline__
#else
#define ELEMENT static inline
_Static_assert(FLT_EVAL_METHOD == 0, "float arithmetic must be done in float");
#endif

/* ------------------------------------------------------------------ bits and values */

ELEMENT float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

ELEMENT uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

ELEMENT double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

ELEMENT uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

ELEMENT float one_nan_f32(float value)
{
    return value != value ? float_of_bits(0x7fc00000u) : value;
}

ELEMENT double one_nan_f64(double value)
{
    return value != value ? double_of_bits(0x7ff8000000000000u) : value;
}

ELEMENT float float_of_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0)
        return float_of_bits(bits_of_float((float)fraction * 0x1p-24f) | sign);
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000u | fraction << 13);
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* To nearest, ties to even. */
ELEMENT uint16_t f16_of_float(float value)
{
    const uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u;
    uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return 0x7e00u;
    if (size >= 0x47800000u) /* 65536 and more */
        return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) { /* below 2^-14: 0.5 + value has the last place of a subnormal half */
        const uint32_t sum = bits_of_float(float_of_bits(size) + 0.5f);
        return (uint16_t)(sign | (sum - bits_of_float(0.5f)));
    }
    size -= 112u << 23;
    return (uint16_t)(sign | (size + 0xfffu + (size >> 13 & 1u)) >> 13);
}

ELEMENT float float_of_bf16(uint16_t half)
{
    return float_of_bits((uint32_t)half << 16);
}

/* The same. The carry runs into the exponent, and to infinity, as it should. */
ELEMENT uint16_t bf16_of_float(float value)
{
    const uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0u;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* ------------------------------------------------------------------ operations */

#define ELEMENT_OP(name, type, result)                                                             \
    ELEMENT type element_##name(type a, type b)                                                    \
    {                                                                                              \
        return (type)(result);                                                                     \
    }

/* What does not care for the sign, with `mul` as a type whose product does not overflow. */
#define ELEMENT_UNSIGNED(t, type, mul)                                                             \
    ELEMENT_OP(sum_##t, type, a + b)                                                               \
    ELEMENT_OP(prod_##t, type, (mul)a *(mul)b)                                                     \
    ELEMENT_OP(land_##t, type, (a != 0) & (b != 0))                                                \
    ELEMENT_OP(lor_##t, type, (a | b) != 0)                                                        \
    ELEMENT_OP(lxor_##t, type, (a != 0) ^ (b != 0))                                                \
    ELEMENT_OP(band_##t, type, a &b)                                                               \
    ELEMENT_OP(bor_##t, type, a | b)                                                               \
    ELEMENT_OP(bxor_##t, type, a ^ b)

/*
 * What does. `wide` is the type to divide in: one that holds all values and divisors, or a floating
 * one with more bits of fraction than `type` has in all. The latter is exact once truncated: a/by
 * is a whole number or at least 1/by from the next, and rounding moves it by less than that. (A
 * divisor that float rounds is larger than any 16-bit value, rounded or not.)
 */
#define ELEMENT_ORDERED(t, type, wide)                                                             \
    ELEMENT_OP(min_##t, type, a < b ? a : b)                                                       \
    ELEMENT_OP(max_##t, type, a > b ? a : b)                                                       \
    typedef wide wide_##t;                                                                         \
    ELEMENT type element_div_##t(wide a, wide by)                                                  \
    {                                                                                              \
        return (type)(a / by);                                                                     \
    }

ELEMENT_UNSIGNED(u8, uint8_t, uint32_t)
ELEMENT_UNSIGNED(u16, uint16_t, uint32_t)
ELEMENT_UNSIGNED(u32, uint32_t, uint32_t)
ELEMENT_UNSIGNED(u64, uint64_t, uint64_t)
ELEMENT_ORDERED(u8, uint8_t, float)
ELEMENT_ORDERED(u16, uint16_t, float)
ELEMENT_ORDERED(u32, uint32_t, double)
ELEMENT_ORDERED(u64, uint64_t, uint64_t)
ELEMENT_ORDERED(i8, int8_t, float)
ELEMENT_ORDERED(i16, int16_t, float)
ELEMENT_ORDERED(i32, int32_t, double)
ELEMENT_ORDERED(i64, int64_t, int64_t)

#define ELEMENT_REAL(t, type)                                                                      \
    ELEMENT_OP(sum_##t, type, one_nan_##t(a + b))                                                  \
    ELEMENT_OP(prod_##t, type, one_nan_##t(a *b))                                                  \
    typedef type wide_##t;                                                                         \
    ELEMENT type element_div_##t(type a, type by)                                                  \
    {                                                                                              \
        return one_nan_##t(a / by);                                                                \
    }

ELEMENT_REAL(f32, float)
ELEMENT_REAL(f64, double)

/*
 * Minimum and maximum on the bits. The key of a value is its bits as a signed integer, with all but
 * the sign turned over below zero: keys are in the order of the values, and -0 comes before +0.
 * LEAST and GREATEST are macros because gcc makes better loops around them than around functions.
 */
#define LEAST(t, nan, a, b)    (any_nan_##t(a, b) ? (nan) : key_##t(a) < key_##t(b) ? (a) : (b))
#define GREATEST(t, nan, a, b) (any_nan_##t(a, b) ? (nan) : key_##t(a) > key_##t(b) ? (a) : (b))
#define ELEMENT_KEYS(t, bits_t, key_t, infinity, nan)                                              \
    ELEMENT key_t key_##t(bits_t bits)                                                             \
    {                                                                                              \
        bits_t below = (bits_t)((key_t)bits >> (8 * sizeof(key_t) - 1));                           \
        return (key_t)(bits ^ (bits_t)(below >> 1));                                               \
    }                                                                                              \
    ELEMENT int any_nan_##t(bits_t a, bits_t b)                                                    \
    {                                                                                              \
        const bits_t magnitude = (bits_t)((bits_t) ~(bits_t)0 >> 1);                               \
        return ((key_t)(a & magnitude) > (key_t)(infinity)) |                                      \
               ((key_t)(b & magnitude) > (key_t)(infinity));                                       \
    }                                                                                              \
    ELEMENT_OP(min_##t, bits_t, LEAST(t, nan, a, b))                                               \
    ELEMENT_OP(max_##t, bits_t, GREATEST(t, nan, a, b))

ELEMENT_KEYS(f16, uint16_t, int16_t, 0x7c00, 0x7e00)
ELEMENT_KEYS(bf16, uint16_t, int16_t, 0x7f80, 0x7fc0)
ELEMENT_KEYS(f32, uint32_t, int32_t, 0x7f800000, 0x7fc00000)
ELEMENT_KEYS(f64, uint64_t, int64_t, 0x7ff0000000000000, 0x7ff8000000000000)

/*
 * A value with its index. Keys are those of ELEMENT_KEYS, or the integers themselves, turned over
 * for the greatest, so that the least key wins; a NaN's is below all others. In equal pairs of keys
 * the lower index wins: a total order, so the result does not depend on how operands are grouped.
 */
#define ELEMENT_LOC(name, t, value_key)                                                            \
    ELEMENT int element_first_##name(struct pair_##t *a, struct pair_##t *b)                       \
    {                                                                                              \
        const index_##t x = value_key(&a->value), y = value_key(&b->value);                        \
        return x < y || (x == y && a->index <= b->index);                                          \
    }

#define ELEMENT_PAIR(t, bits_t, key_t)                                                             \
    typedef key_t index_##t;                                                                       \
    struct pair_##t {                                                                              \
        bits_t value;                                                                              \
        key_t index;                                                                               \
    };                                                                                             \
    ELEMENT_LOC(minloc_##t, t, least_##t)                                                          \
    ELEMENT_LOC(maxloc_##t, t, greatest_##t)

#define ELEMENT_LOC_INTEGER(t, bits_t, key_t)                                                      \
    ELEMENT key_t least_##t(bits_t *value)                                                         \
    {                                                                                              \
        return (key_t)*value;                                                                      \
    }                                                                                              \
    ELEMENT key_t greatest_##t(bits_t *value)                                                      \
    {                                                                                              \
        return (key_t) ~*value;                                                                    \
    }                                                                                              \
    ELEMENT_PAIR(t, bits_t, key_t)

#define ELEMENT_LOC_REAL(t, bits_t, key_t, nan, lowest)                                            \
    ELEMENT key_t least_##t(bits_t *value)                                                         \
    {                                                                                              \
        if (!any_nan_##t(*value, 0))                                                               \
            return key_##t(*value);                                                                \
        *value = (nan);                                                                            \
        return lowest;                                                                             \
    }                                                                                              \
    ELEMENT key_t greatest_##t(bits_t *value)                                                      \
    {                                                                                              \
        if (!any_nan_##t(*value, 0))                                                               \
            return (key_t) ~(bits_t)key_##t(*value);                                               \
        *value = (nan);                                                                            \
        return lowest;                                                                             \
    }                                                                                              \
    ELEMENT_PAIR(t, bits_t, key_t)

ELEMENT_LOC_INTEGER(i32, uint32_t, int32_t)
ELEMENT_LOC_INTEGER(i64, uint64_t, int64_t)
ELEMENT_LOC_REAL(f32, uint32_t, int32_t, 0x7fc00000, INT32_MIN)
ELEMENT_LOC_REAL(f64, uint64_t, int64_t, 0x7ff8000000000000, INT64_MIN)

/* ------------------------------------------------------------------ scaling */

/* end: the power of two after max, so that all between truncate to what fits. */
#define ELEMENT_FIT(t, type, min, max, end)                                                        \
    ELEMENT type element_fit_##t(double product)                                                   \
    {                                                                                              \
        return product >= (end) ? (max) : product <= (double)(min) ? (min) : (type)product;        \
    }

ELEMENT_FIT(i8, int8_t, INT8_MIN, INT8_MAX, 0x1p7)
ELEMENT_FIT(u8, uint8_t, 0, UINT8_MAX, 0x1p8)
ELEMENT_FIT(i16, int16_t, INT16_MIN, INT16_MAX, 0x1p15)
ELEMENT_FIT(u16, uint16_t, 0, UINT16_MAX, 0x1p16)
ELEMENT_FIT(i32, int32_t, INT32_MIN, INT32_MAX, 0x1p31)
ELEMENT_FIT(u32, uint32_t, 0, UINT32_MAX, 0x1p32)
ELEMENT_FIT(i64, int64_t, INT64_MIN, INT64_MAX, 0x1p63)
ELEMENT_FIT(u64, uint64_t, 0, UINT64_MAX, 0x1p64)

/* float16 and bfloat16 through float32, rounded once; integers in float64, as Horovod does. */
#define ELEMENT_SCALE(t, type, factor_t, product)                                                  \
    ELEMENT type element_scale_##t(type a, factor_t factor)                                        \
    {                                                                                              \
        return (product);                                                                          \
    }
#define ELEMENT_SCALE_INTEGER(t, type)                                                             \
    ELEMENT_SCALE(t, type, double, element_fit_##t((double)a *factor))

ELEMENT_SCALE_INTEGER(i8, int8_t)
ELEMENT_SCALE_INTEGER(u8, uint8_t)
ELEMENT_SCALE_INTEGER(i16, int16_t)
ELEMENT_SCALE_INTEGER(u16, uint16_t)
ELEMENT_SCALE_INTEGER(i32, int32_t)
ELEMENT_SCALE_INTEGER(u32, uint32_t)
ELEMENT_SCALE_INTEGER(i64, int64_t)
ELEMENT_SCALE_INTEGER(u64, uint64_t)
ELEMENT_SCALE(f16, uint16_t, float, f16_of_float(float_of_f16(a) * factor))
ELEMENT_SCALE(bf16, uint16_t, float, bf16_of_float(float_of_bf16(a) * factor))
ELEMENT_SCALE(f32, float, float, one_nan_f32(a *factor))
ELEMENT_SCALE(f64, double, double, one_nan_f64(a *factor))

#endif
