/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

#include <string.h>

struct number { /* real and imaginary part */
    long long re, im;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185ull;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44dull;
    return x ^ (x >> 33);
}

static int is_complex(halay_type_t type)
{
    return type == HALAY_COMPLEX64 || type == HALAY_COMPLEX128;
}

static int is_float(halay_type_t type)
{
    return type == HALAY_FLOAT16 || type == HALAY_BFLOAT16 || type == HALAY_FLOAT32 ||
           type == HALAY_FLOAT64 || is_complex(type);
}

static struct number value(halay_type_t type, halay_op_t op, int rank, size_t i, uint64_t salt)
{
    uint64_t h = mix(salt * 1000003 + (uint64_t)rank * 7919 + i * 31 + 1);
    struct number n = {(long long)(h & 3), 0};
    if (type == HALAY_BOOL)
        n.re = (long long)(h & 1);
    else if (op == HALAY_PROD && is_float(type))
        n.re = 1 + (long long)(h & 1); /* a power of two is exact in every type */
    else if (!is_float(type) && op != HALAY_AVERAGE)
        n.re = (long long)(h >> 8); /* any bits: integers wrap */
    if (is_complex(type)) {
        n.re = (long long)(h & 1);
        n.im = (long long)(h >> 1 & 1);
    }
    return n;
}

static uint16_t bfloat16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* (re, im) / divisor in this type; floats are divided in the accumulation type, and rounded
 * once. */
static void encode(halay_type_t type, struct number n, int divisor, void *to)
{
    size_t bytes = halay_type_bytes(type);
    float f = (float)n.re / (float)divisor;
    double d = (double)n.re / divisor;
    if (type == HALAY_FLOAT16) {
        _Float16 h = (_Float16)f;
        memcpy(to, &h, sizeof(h));
    } else if (type == HALAY_BFLOAT16) {
        uint16_t b = bfloat16(f);
        memcpy(to, &b, sizeof(b));
    } else if (type == HALAY_FLOAT32) {
        memcpy(to, &f, sizeof(f));
    } else if (type == HALAY_FLOAT64) {
        memcpy(to, &d, sizeof(d));
    } else if (type == HALAY_COMPLEX64) {
        float c[2] = {f, (float)n.im / (float)divisor};
        memcpy(to, c, sizeof(c));
    } else if (type == HALAY_COMPLEX128) {
        double c[2] = {d, (double)n.im / divisor};
        memcpy(to, c, sizeof(c));
    } else {
        long long quotient = n.re / divisor;
        memcpy(to, &quotient, bytes); /* little endian: the low bytes */
    }
}

/* The integer that an element of this type would hold. */
static long long wrapped(halay_type_t type, long long x)
{
    switch (type) {
    case HALAY_INT8:
        return (int8_t)x;
    case HALAY_UINT8:
        return (uint8_t)x;
    case HALAY_INT16:
        return (int16_t)x;
    case HALAY_UINT16:
        return (uint16_t)x;
    case HALAY_INT32:
        return (int32_t)x;
    case HALAY_UINT32:
        return (uint32_t)x;
    default:
        return x;
    }
}

static int less(halay_type_t type, long long a, long long b)
{
    return type == HALAY_UINT64 ? (uint64_t)a < (uint64_t)b : a < b;
}

static struct number combine(halay_type_t type, halay_op_t op, struct number a, struct number b)
{
    struct number r = {0, 0};
    switch (op) {
    case HALAY_SUM:
    case HALAY_AVERAGE:
        r.re = (long long)((uint64_t)a.re + (uint64_t)b.re);
        r.im = a.im + b.im;
        break;
    case HALAY_PROD:
        r.re = (long long)((uint64_t)a.re * (uint64_t)b.re - (uint64_t)(a.im * b.im));
        r.im = is_complex(type) ? a.re * b.im + a.im * b.re : 0;
        break;
    case HALAY_MIN:
        r.re = less(type, a.re, b.re) ? a.re : b.re;
        break;
    case HALAY_MAX:
        r.re = less(type, a.re, b.re) ? b.re : a.re;
        break;
    case HALAY_LAND:
        r.re = a.re && b.re;
        break;
    case HALAY_LOR:
        r.re = a.re || b.re;
        break;
    case HALAY_LXOR:
        r.re = !a.re != !b.re;
        break;
    case HALAY_BAND:
        r.re = a.re & b.re;
        break;
    case HALAY_BOR:
        r.re = a.re | b.re;
        break;
    default:
        r.re = a.re ^ b.re;
        break;
    }
    if (!is_float(type))
        r.re = wrapped(type, r.re);
    return r;
}

static int is_pair(halay_type_t type)
{
    return type >= HALAY_FLOAT32_INT32 && type <= HALAY_INT64_INT64;
}

/* Few values, so that indices decide; the indices fall with the rank at every other element. */
static void pair_of(int rank, size_t i, uint64_t salt, long long *value, long long *index)
{
    uint64_t h = mix(salt * 1000003 + (uint64_t)rank * 7919 + i * 31 + 1);
    *value = (long long)(h % 3) - 1;
    *index = (long long)i * 100 + (i % 2 ? rank : -rank);
}

static void pair_put(halay_type_t type, long long value, long long index, void *to)
{
    if (type == HALAY_FLOAT32_INT32)
        memcpy(to, &(halay_float32_int32_t){(float)value, (int32_t)index}, 8);
    else if (type == HALAY_FLOAT64_INT64)
        memcpy(to, &(halay_float64_int64_t){(double)value, index}, 16);
    else if (type == HALAY_INT32_INT32)
        memcpy(to, &(halay_int32_int32_t){(int32_t)value, (int32_t)index}, 8);
    else
        memcpy(to, &(halay_int64_int64_t){value, index}, 16);
}

static void pair_result(halay_type_t type, halay_op_t op, int nranks, size_t i, uint64_t salt,
                        void *to)
{
    long long value = 0, index = 0;
    for (int r = 0; r < nranks; r++) {
        long long v, at;
        pair_of(r, i, salt, &v, &at);
        int better = op == HALAY_MINLOC ? v < value : v > value;
        if (r && !better && (v != value || at >= index))
            continue;
        value = v;
        index = at;
    }
    pair_put(type, value, index, to);
}

void reference_input(halay_type_t type, halay_op_t op, int rank, size_t i, uint64_t salt, void *to)
{
    if (is_pair(type)) {
        long long v, at;
        pair_of(rank, i, salt, &v, &at);
        pair_put(type, v, at, to);
        return;
    }
    encode(type, value(type, op, rank, i, salt), 1, to);
}

void reference_result(halay_type_t type, halay_op_t op, int nranks, size_t i, uint64_t salt,
                      void *to)
{
    if (is_pair(type)) {
        pair_result(type, op, nranks, i, salt, to);
        return;
    }
    struct number sum = value(type, op, 0, i, salt);
    if (!is_float(type))
        sum.re = wrapped(type, sum.re);
    for (int r = 1; r < nranks; r++) {
        struct number next = value(type, op, r, i, salt);
        if (!is_float(type))
            next.re = wrapped(type, next.re);
        sum = combine(type, op, sum, next);
    }
    encode(type, sum, op == HALAY_AVERAGE ? nranks : 1, to);
}
