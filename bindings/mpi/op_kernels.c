/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_kernels.c - the predefined operations on arrays of packed elements, for each format.
 *
 * MPI_Reduce_local uses them all; collectives use those for which Halay has no operation. They give
 * what Halay's give: integers wrap, the least and the greatest are NaN if an operand is, -0 is
 * below +0, and of equal values the lowest index wins. Operands are read before the result is
 * written, so dst may be one of them.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "type.h"

/* The packed form, and the buffers of Halay, need not be aligned. */
#define LOOSE __attribute__((aligned(1), may_alias))
typedef int8_t LOOSE i8;
typedef uint8_t LOOSE u8;
typedef int16_t LOOSE i16;
typedef uint16_t LOOSE u16;
typedef int32_t LOOSE i32;
typedef uint32_t LOOSE u32;
typedef int64_t LOOSE i64;
typedef uint64_t LOOSE u64;
typedef __int128 LOOSE i128;
typedef float LOOSE f32;
typedef double LOOSE f64;
typedef long double LOOSE flong;
#if LDBL_MANT_DIG == 113
typedef long double LOOSE f128;
#define HAS_F128 1
#elif defined(__SIZEOF_FLOAT128__)
typedef __float128 LOOSE f128;
#define HAS_F128 1
#else
typedef long double LOOSE f128;
#define HAS_F128 0
#endif

/* ---------------------------------------------------------------- binary16 */

static float widen(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31,
             fraction = half & 1023, bits;
    float number;
    if (exponent == 31)
        bits = sign | 0x7f800000 | fraction << 13;
    else if (exponent)
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    else /* 2^-24 for each unit, exactly */
        return (half & 0x8000 ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    memcpy(&number, &bits, 4);
    return number;
}

/* To the nearest, of two the even one. */
static uint16_t narrow(float number)
{
    uint32_t bits, sign, rest;
    memcpy(&bits, &number, 4);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return 0x7e00;
    if (bits >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) { /* below the least normal one: units of 2^-24 */
        float units = fabsf(number) * 0x1p24f;
        uint32_t whole = (uint32_t)units;
        float over = units - (float)whole;
        whole += over > 0.5f || (over == 0.5f && whole % 2);
        return (uint16_t)(sign | whole);
    }
    rest = bits & 0x1fff;
    bits = (bits - 0x38000000) >> 13;
    bits += rest > 0x1000 || (rest == 0x1000 && bits % 2);
    return (uint16_t)(sign | bits);
}

/* ---------------------------------------------------------------- numbers */

#define KERNEL(name, type, expression)                                                             \
    static void name(void *dst, const void *left, const void *right, size_t count)                 \
    {                                                                                              \
        type *d = dst;                                                                             \
        const type *l = left, *r = right;                                                          \
        for (size_t i = 0; i < count; i++) {                                                       \
            __typeof__(*l + 0) a = l[i], b = r[i];                                                 \
            d[i] = (type)(expression);                                                             \
        }                                                                                          \
    }

/* Sums and products of the unsigned type: they wrap. */
#define INTEGER_KERNELS(type, wide)                                                                \
    KERNEL(sum_##type, type, (wide)a + (wide)b)                                                    \
    KERNEL(prod_##type, type, (wide)a *(wide)b)                                                    \
    KERNEL(min_##type, type, a < b ? a : b)                                                        \
    KERNEL(max_##type, type, a > b ? a : b)                                                        \
    KERNEL(land_##type, type, a &&b)                                                               \
    KERNEL(lor_##type, type, a || b)                                                               \
    KERNEL(lxor_##type, type, !a != !b)                                                            \
    KERNEL(band_##type, type, a &b)                                                                \
    KERNEL(bor_##type, type, a | b)                                                                \
    KERNEL(bxor_##type, type, a ^ b)

/* -0 is below +0. */
#define NEGATIVE(a)     (__builtin_signbit((double)(a)) != 0)
#define BELOW(a, b)     ((a) < (b) || ((a) == (b) && NEGATIVE(a) && !NEGATIVE(b)))
#define NOT_A_NUMBER(a) ((a) != (a))

#define FLOAT_KERNELS(type)                                                                        \
    KERNEL(sum_##type, type, a + b)                                                                \
    KERNEL(prod_##type, type, a *b)                                                                \
    KERNEL(min_##type, type,                                                                       \
           NOT_A_NUMBER(a) || NOT_A_NUMBER(b) ? (__typeof__(a))NAN                                 \
           : BELOW(b, a)                      ? b                                                  \
                                              : a)                                                                      \
    KERNEL(max_##type, type,                                                                       \
           NOT_A_NUMBER(a) || NOT_A_NUMBER(b) ? (__typeof__(a))NAN                                 \
           : BELOW(a, b)                      ? b                                                  \
                                              : a)

INTEGER_KERNELS(i8, uint32_t) // NOLINT(bugprone-signed-char-misuse): numbers, no characters
INTEGER_KERNELS(u8, uint32_t)
INTEGER_KERNELS(i16, uint32_t)
INTEGER_KERNELS(u16, uint32_t)
INTEGER_KERNELS(i32, uint32_t)
INTEGER_KERNELS(u32, uint32_t)
INTEGER_KERNELS(i64, uint64_t)
INTEGER_KERNELS(u64, uint64_t)
INTEGER_KERNELS(i128, unsigned __int128)
FLOAT_KERNELS(f32)
FLOAT_KERNELS(f64)
FLOAT_KERNELS(flong)
FLOAT_KERNELS(f128)

#define HALF_KERNEL(name, expression)                                                              \
    static void name(void *dst, const void *left, const void *right, size_t count)                 \
    {                                                                                              \
        u16 *d = dst;                                                                              \
        const u16 *l = left, *r = right;                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            float a = widen(l[i]), b = widen(r[i]);                                                \
            d[i] = narrow(expression);                                                             \
        }                                                                                          \
    }
HALF_KERNEL(sum_f16, a + b)
HALF_KERNEL(prod_f16, a *b)
HALF_KERNEL(min_f16, NOT_A_NUMBER(a) || NOT_A_NUMBER(b) ? NAN : BELOW(b, a) ? b : a)
HALF_KERNEL(max_f16, NOT_A_NUMBER(a) || NOT_A_NUMBER(b) ? NAN : BELOW(a, b) ? b : a)

/* ---------------------------------------------------------------- complex numbers */

#define COMPLEX_KERNELS(type, part)                                                                \
    static void sum_##type(void *dst, const void *left, const void *right, size_t count)           \
    {                                                                                              \
        sum_##part(dst, left, right, 2 * count);                                                   \
    }                                                                                              \
    static void prod_##type(void *dst, const void *left, const void *right, size_t count)          \
    {                                                                                              \
        part *d = dst;                                                                             \
        const part *l = left, *r = right;                                                          \
        for (size_t i = 0; i < 2 * count; i += 2) {                                                \
            __typeof__(*l + 0) a = l[i], ai = l[i + 1], b = r[i], bi = r[i + 1];                   \
            d[i] = a * b - ai * bi;                                                                \
            d[i + 1] = a * bi + ai * b;                                                            \
        }                                                                                          \
    }
COMPLEX_KERNELS(c32, f32)
COMPLEX_KERNELS(c64, f64)
COMPLEX_KERNELS(clong, flong)
COMPLEX_KERNELS(c128, f128)

static void sum_c16(void *dst, const void *left, const void *right, size_t count)
{
    sum_f16(dst, left, right, 2 * count);
}

static void prod_c16(void *dst, const void *left, const void *right, size_t count)
{
    u16 *d = dst;
    const u16 *l = left, *r = right;
    for (size_t i = 0; i < 2 * count; i += 2) {
        float a = widen(l[i]), ai = widen(l[i + 1]), b = widen(r[i]), bi = widen(r[i + 1]);
        d[i] = narrow(a * b - ai * bi);
        d[i + 1] = narrow(a * bi + ai * b);
    }
}

/* ---------------------------------------------------------------- a value and its index */

/* Does a's value win, does b's? A NaN wins over all numbers. */
#define PAIR_KERNEL(name, value_type, index_type, a_wins, b_wins)                                  \
    static void name(void *dst, const void *left, const void *right, size_t count)                 \
    {                                                                                              \
        struct __attribute__((packed, may_alias)) pair {                                           \
            value_type value;                                                                      \
            index_type index;                                                                      \
        } *d = dst;                                                                                \
        const struct pair *l = left, *r = right;                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            const struct pair x = l[i], y = r[i];                                                  \
            const value_type a = x.value, b = y.value;                                             \
            const bool not_a = NOT_A_NUMBER(a), not_b = NOT_A_NUMBER(b);                           \
            const bool first = not_a ? !not_b : !not_b && (a_wins);                                \
            const bool second = not_b ? !not_a : !not_a && (b_wins);                               \
            d[i] = first || (!second && x.index <= y.index) ? x : y;                               \
        }                                                                                          \
    }
#define PAIR_KERNELS(pair, value_type, index_type)                                                 \
    PAIR_KERNEL(minloc_##pair, value_type, index_type, BELOW(a, b), BELOW(b, a))                   \
    PAIR_KERNEL(maxloc_##pair, value_type, index_type, BELOW(b, a), BELOW(a, b))

PAIR_KERNELS(float_int, float, int32_t)
PAIR_KERNELS(double_int, double, int32_t)
PAIR_KERNELS(long_int, long, int32_t)
PAIR_KERNELS(2int, int32_t, int32_t)
PAIR_KERNELS(short_int, int16_t, int32_t)
PAIR_KERNELS(long_double_int, long double, int32_t)
PAIR_KERNELS(2real, float, float)
PAIR_KERNELS(2double, double, double)

/* ---------------------------------------------------------------- the tables */

/* Numbers of the standard's ABI. */
enum {
    SUM = 0x21,
    MIN,
    MAX,
    PROD,
    BAND = 0x28,
    BOR,
    BXOR,
    LAND = 0x30,
    LOR,
    LXOR,
    MINLOC = 0x38,
    MAXLOC,
    OPS = MAXLOC + 1
};

#define NUMBERS(format, type)                                                                      \
    [SUM][format] = sum_##type, [PROD][format] = prod_##type, [MIN][format] = min_##type,          \
    [MAX][format] = max_##type
#define INTEGERS(format, type)                                                                     \
    NUMBERS(format, type), [LAND][format] = land_##type, [LOR][format] = lor_##type,               \
                           [LXOR][format] = lxor_##type, [BAND][format] = band_##type,             \
                           [BOR][format] = bor_##type, [BXOR][format] = bxor_##type
#define COMPLEXES(format, type) [SUM][format] = sum_##type, [PROD][format] = prod_##type

static hly_mpi_kernel *const kernels[OPS][HLY_MPI_FORMATS] = {
    INTEGERS(HLY_MPI_I8, i8),      INTEGERS(HLY_MPI_U8, u8),        INTEGERS(HLY_MPI_I16, i16),
    INTEGERS(HLY_MPI_U16, u16),    INTEGERS(HLY_MPI_I32, i32),      INTEGERS(HLY_MPI_U32, u32),
    INTEGERS(HLY_MPI_I64, i64),    INTEGERS(HLY_MPI_U64, u64),      INTEGERS(HLY_MPI_I128, i128),
    NUMBERS(HLY_MPI_F16, f16),     NUMBERS(HLY_MPI_F32, f32),       NUMBERS(HLY_MPI_F64, f64),
    NUMBERS(HLY_MPI_FLONG, flong), COMPLEXES(HLY_MPI_C16, c16),     COMPLEXES(HLY_MPI_C32, c32),
    COMPLEXES(HLY_MPI_C64, c64),   COMPLEXES(HLY_MPI_CLONG, clong),
#if HAS_F128
    NUMBERS(HLY_MPI_F128, f128),   COMPLEXES(HLY_MPI_C128, c128),
#endif
};

static const struct {
    uint32_t number;
    hly_mpi_kernel *minloc, *maxloc;
} pairs[] = {
    {0x228, minloc_float_int, maxloc_float_int},
    {0x229, minloc_double_int, maxloc_double_int},
    {0x22a, minloc_long_int, maxloc_long_int},
    {0x22b, minloc_2int, maxloc_2int},
    {0x22c, minloc_short_int, maxloc_short_int},
    {0x22d, minloc_long_double_int, maxloc_long_double_int},
    {0x230, minloc_2real, maxloc_2real},
    {0x231, minloc_2double, maxloc_2double},
    {0x232, minloc_2int, maxloc_2int},
};

/* MPI-5.0, 6.9.2; and logical operations on all integers, which other libraries allow. */
static bool is_allowed(uint32_t op, const struct hly_mpi_named *named)
{
    bool bitwise = op >= BAND && op <= BXOR, logical = op >= LAND && op <= LXOR;
    switch (named->of_class) {
    case HLY_MPI_C_INTEGER:
    case HLY_MPI_FORTRAN_INTEGER:
    case HLY_MPI_MULTI:
        return op <= LXOR;
    case HLY_MPI_FLOATING:
        return op <= PROD;
    case HLY_MPI_COMPLEX_NUMBER:
        return op == SUM || op == PROD;
    case HLY_MPI_LOGIC:
        return logical;
    case HLY_MPI_BYTES:
        return bitwise && named->number != 0x207; /* MPI_PACKED */
    default:
        return false;
    }
}

hly_mpi_kernel *hly_mpi_op_kernel(uint32_t op, int place)
{
    const struct hly_mpi_named *named = &hly_mpi_named[place];
    if (op < SUM || op >= OPS)
        return NULL;
    if (named->of_class != HLY_MPI_PAIR)
        return is_allowed(op, named) ? kernels[op][named->format] : NULL;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (pairs[i].number == named->number)
            return op == MINLOC ? pairs[i].minloc : op == MAXLOC ? pairs[i].maxloc : NULL;
    }
    return NULL;
}
