/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - multiplies by a factor. float16 and bfloat16 through float32, rounded once; all but
 * float64 with the factor rounded to float32, as Horovod does. A NaN becomes the one that
 * halay_op_t promises.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "trainer.h"

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

static void scale_half(uint16_t *out, const uint16_t *in, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        out[i] = half_of_float(float_of_half(in[i]) * factor);
}

static void scale_bfloat(uint16_t *out, const uint16_t *in, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        out[i] = bfloat_of_float(float_of_bits((uint32_t)in[i] << 16) * factor);
}

static void scale_float(float *out, const float *in, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++) {
        float product = in[i] * factor;
        out[i] = product == product ? product : (float)NAN;
    }
}

static void scale_double(double *out, const double *in, size_t count, double factor)
{
    for (size_t i = 0; i < count; i++) {
        double product = in[i] * factor;
        out[i] = product == product ? product : (double)NAN;
    }
}

void hly_tensor_scale(void *out, const void *in, size_t count, halay_type_t type, double factor)
{
    switch (type) {
    case HALAY_FLOAT16:
        scale_half(out, in, count, (float)factor);
        break;
    case HALAY_BFLOAT16:
        scale_bfloat(out, in, count, (float)factor);
        break;
    case HALAY_FLOAT32:
        scale_float(out, in, count, (float)factor);
        break;
    case HALAY_COMPLEX64:
        scale_float(out, in, count * 2, (float)factor);
        break;
    case HALAY_FLOAT64:
        scale_double(out, in, count, factor);
        break;
    case HALAY_COMPLEX128:
        scale_double(out, in, count * 2, factor);
        break;
    default:
        assert(!"an integer is never scaled");
    }
}
