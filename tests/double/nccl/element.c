/* SPDX-License-Identifier: Apache-2.0 */
/* element.c - NCCL's types and operations. The half types are tested with values that are exact. */
#include <string.h>

#include "inside.h"

size_t element_bytes(int type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < 10 ? bytes[type] : 0;
}

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* Normal numbers and 0 only. */
static float half_read(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    return h & 0x7fffu ? of_bits(sign | (((h & 0x7fffu) + 0x1c000u) << 13)) : of_bits(sign);
}

static uint16_t half_write(float f)
{
    const uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000u;
    return (uint16_t)(bits << 1 ? sign | (((bits & 0x7fffffffu) >> 13) - 0x1c000u) : sign);
}

static float bfloat_read(uint16_t b)
{
    return of_bits((uint32_t)b << 16);
}

static uint16_t bfloat_write(float f)
{
    return (uint16_t)(bits_of(f) >> 16);
}

#define COMBINED(op, a, b)                                                                         \
    ((op) == 0 ? (a) + (b) : (op) == 1 ? (a) * (b) : ((op) == 2) == ((a) > (b)) ? (a) : (b))

/* U: what T is summed and multiplied in, so that it wraps. */
#define LOOP(T, U)                                                                                 \
    for (size_t i = 0; i < count; i++) {                                                           \
        const T a = ((T *)into)[i], b = ((const T *)with)[i];                                      \
        ((T *)into)[i] = op < 2 ? (T)COMBINED(op, (U)a, (U)b) : (T)COMBINED(op, a, b);             \
    }                                                                                              \
    break
#define LOOP_HALF(kind)                                                                            \
    for (size_t i = 0; i < count; i++) {                                                           \
        const float a = kind##_read(((uint16_t *)into)[i]),                                        \
                    b = kind##_read(((const uint16_t *)with)[i]);                                  \
        ((uint16_t *)into)[i] = kind##_write(COMBINED(op, a, b));                                  \
    }                                                                                              \
    break

void combine(void *into, const void *with, size_t count, int type, int op)
{
    switch (type) {
    case 0:
        LOOP(int8_t, uint32_t);
    case 1:
        LOOP(uint8_t, uint32_t);
    case 2:
        LOOP(int32_t, uint32_t);
    case 3:
        LOOP(uint32_t, uint32_t);
    case 4:
        LOOP(int64_t, uint64_t);
    case 5:
        LOOP(uint64_t, uint64_t);
    case 6:
        LOOP_HALF(half);
    case 7:
        LOOP(float, float);
    case 8:
        LOOP(double, double);
    case 9:
        LOOP_HALF(bfloat);
    default:
        break;
    }
}
