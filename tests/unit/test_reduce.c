/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reduce.c - every type, operation, number of sources and instruction set of the host device,
 * bit for bit against a reference that computes in another way: integers in 128 bits, floating
 * point in binary128 rounded after each step (113 >= 2 * 53 + 2 bits, so rounding twice does no
 * harm), the half types through a table of all their values.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE__)
#include <xmmintrin.h>
typedef __float128 wide_t;
#else
typedef long double wide_t;
#endif

#include "../check.h"
#include "device/device_builtin.h"

enum { NISA = 3, GUARD = 64, COUNT_MAX = 66000, BYTES_MAX = COUNT_MAX * 16 + 2 * GUARD };

static const char *const isa_names[NISA] = {"scalar", "avx2", "avx512"};
static halay_device_t *isas[NISA]; /* NULL: not on this processor */
static unsigned char *sources[HALAY_REDUCE_SOURCES], *output, *expected;
/* Of each pattern without sign; infinity stands for the power of two at which it begins. */
static double half_values[2][0x7f81];
static uint64_t random_state = 1;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1du;
}

/* ------------------------------------------------------------------ the reference: integers */

static int is_signed(halay_type_t type)
{
    return type == HALAY_INT8 || type == HALAY_INT16 || type == HALAY_INT32 || type == HALAY_INT64;
}

static int is_integer(halay_type_t type)
{
    return type <= HALAY_BOOL;
}

static int is_half(halay_type_t type)
{
    return type == HALAY_FLOAT16 || type == HALAY_BFLOAT16;
}

static __int128 integer_get(halay_type_t type, const unsigned char *from)
{
    const int bits = 8 * (int)halay_type_bytes(type);
    __int128 value = 0;
    for (int b = bits / 8 - 1; b >= 0; b--) /* little endian, as all of this test */
        value = value * 256 + from[b];
    if (is_signed(type) && value >= (__int128)1 << (bits - 1))
        value -= (__int128)1 << bits;
    return value;
}

static void integer_put(halay_type_t type, unsigned char *to, __int128 value)
{
    for (size_t b = 0; b < halay_type_bytes(type); b++)
        to[b] = (unsigned char)((unsigned __int128)value >> (8 * b));
}

static __int128 integer_apply(halay_type_t type, halay_op_t op, __int128 a, __int128 b)
{
    if (type == HALAY_BOOL && (op == HALAY_BAND || op == HALAY_BOR || op == HALAY_BXOR)) {
        a = a != 0;
        b = b != 0;
    }
    switch (op) {
    case HALAY_SUM:
    case HALAY_AVERAGE:
        return a + b;
    case HALAY_PROD:
        return (__int128)((unsigned __int128)a * (unsigned __int128)b);
    case HALAY_MIN:
        return b < a ? b : a;
    case HALAY_MAX:
        return b > a ? b : a;
    case HALAY_LAND:
        return a && b;
    case HALAY_LOR:
        return a || b;
    case HALAY_LXOR:
        return !a != !b;
    case HALAY_BAND:
        return a & b;
    case HALAY_BOR:
        return a | b;
    case HALAY_BXOR:
        return a ^ b;
    default:
        abort();
    }
}

static void integer_expect(const halay_work_t *w, size_t i, unsigned char *to)
{
    const size_t offset = i * halay_type_bytes(w->type);
    __int128 value = integer_get(w->type, (const unsigned char *)w->src[0] + offset);
    for (uint32_t s = 1; s < w->nsrc; s++) {
        __int128 next = integer_get(w->type, (const unsigned char *)w->src[s] + offset);
        integer_put(w->type, to, integer_apply(w->type, w->op, value, next));
        value = integer_get(w->type, to);
    }
    if (w->op == HALAY_AVERAGE && w->divisor > 1)
        value /= (__int128)w->divisor;
    integer_put(w->type, to, value);
}

/* ------------------------------------------------------------------ the reference:
 * floating point */

static void half_tables_make(void)
{
    for (int t = 0; t < 2; t++) {
        const int fraction = t ? 7 : 10, bias = t ? 127 : 15;
        for (int bits = 0; bits <= (t ? 0x7f80 : 0x7c00); bits++) {
            const int exponent = bits >> fraction, rest = bits & ((1 << fraction) - 1);
            half_values[t][bits] = exponent
                                       ? ldexp(rest + (1 << fraction), exponent - bias - fraction)
                                       : ldexp(rest, 1 - bias - fraction);
        }
    }
}

static double half_get(halay_type_t type, const unsigned char *from)
{
    const int t = type == HALAY_BFLOAT16, bits = from[0] | (from[1] & 0x7f) << 8;
    const int infinity = t ? 0x7f80 : 0x7c00;
    const double value = bits > infinity    ? (double)NAN
                         : bits == infinity ? (double)INFINITY
                                            : half_values[t][bits];
    return from[1] & 0x80 ? -value : value;
}

static uint16_t half_round(halay_type_t type, double value)
{
    const int t = type == HALAY_BFLOAT16, infinity = t ? 0x7f80 : 0x7c00;
    const double magnitude = fabs(value);
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    int low = 0, high = infinity;
    if (isnan(value))
        return t ? 0x7fc0 : 0x7e00;
    if (magnitude >= half_values[t][infinity])
        return (uint16_t)(sign | infinity);
    while (high - low > 1) { /* value(low) <= magnitude < value(high) */
        int middle = (low + high) / 2;
        if (half_values[t][middle] <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double below = magnitude - half_values[t][low], above = half_values[t][high] - magnitude;
    return (uint16_t)(sign | (below < above || (below == above && low % 2 == 0) ? low : high));
}

/* The type that one real part is computed in. */
static halay_type_t part_type(halay_type_t type)
{
    if (type == HALAY_FLOAT64 || type == HALAY_COMPLEX128)
        return HALAY_FLOAT64;
    return HALAY_FLOAT32;
}

static wide_t part_get(halay_type_t type, const unsigned char *from)
{
    float f;
    double d;
    if (is_half(type))
        return half_get(type, from);
    if (part_type(type) == HALAY_FLOAT64) {
        memcpy(&d, from, sizeof d);
        return d;
    }
    memcpy(&f, from, sizeof f);
    return f;
}

static wide_t part_round(halay_type_t type, wide_t value)
{
    return part_type(type) == HALAY_FLOAT64 ? (wide_t)(double)value : (wide_t)(float)value;
}

static void part_put(halay_type_t type, unsigned char *to, wide_t value)
{
    const uint64_t nan64 = 0x7ff8000000000000u;
    const uint32_t nan32 = 0x7fc00000u;
    const double d = (double)value;
    const float f = (float)value;
    const uint16_t h = is_half(type) ? half_round(type, d) : 0;
    if (is_half(type))
        memcpy(to, &h, sizeof h);
    else if (part_type(type) == HALAY_FLOAT64)
        memcpy(to, isnan(d) ? (const void *)&nan64 : &d, sizeof d);
    else
        memcpy(to, isnan(f) ? (const void *)&nan32 : &f, sizeof f);
}

static wide_t real_apply(halay_type_t type, halay_op_t op, wide_t a, wide_t b)
{
    const double da = (double)a, db = (double)b;
    if (op == HALAY_SUM || op == HALAY_AVERAGE)
        return part_round(type, a + b);
    if (op == HALAY_PROD)
        return part_round(type, a * b);
    if (isnan(da) || isnan(db))
        return NAN;
    if (da == db)
        return (op == HALAY_MIN) == !!signbit(da) ? a : b;
    return (op == HALAY_MIN) == (da < db) ? a : b;
}

static void complex_prod(halay_type_t t, wide_t a[2], const wide_t b[2])
{
    wide_t ac = part_round(t, a[0] * b[0]), bd = part_round(t, a[1] * b[1]);
    wide_t ad = part_round(t, a[0] * b[1]), bc = part_round(t, a[1] * b[0]);
    a[0] = part_round(t, ac - bd);
    a[1] = part_round(t, ad + bc);
}

static void floating_expect(const halay_work_t *w, size_t i, unsigned char *to)
{
    const size_t bytes = halay_type_bytes(w->type);
    const int parts = w->type == HALAY_COMPLEX64 || w->type == HALAY_COMPLEX128 ? 2 : 1;
    const size_t part = bytes / (size_t)parts;
    wide_t value[2], next[2];
    for (uint32_t s = 0; s < w->nsrc; s++) {
        const unsigned char *from = (const unsigned char *)w->src[s] + i * bytes;
        for (int p = 0; p < parts; p++)
            next[p] = part_get(w->type, from + part * (size_t)p);
        if (s == 0)
            memcpy(value, next, sizeof value);
        else if (parts == 2 && w->op == HALAY_PROD)
            complex_prod(w->type, value, next);
        else
            for (int p = 0; p < parts; p++)
                value[p] = real_apply(w->type, w->op, value[p], next[p]);
    }
    for (int p = 0; p < parts; p++) {
        if (w->op == HALAY_AVERAGE && w->divisor > 1)
            value[p] = part_round(w->type, value[p] / part_round(w->type, (wide_t)w->divisor));
        part_put(w->type, to + part * (size_t)p, value[p]);
    }
}

/* ------------------------------------------------------------------ the reference: pairs */

static int is_pair(halay_type_t type)
{
    return type >= HALAY_FLOAT32_INT32 && type <= HALAY_INT64_INT64;
}

static halay_type_t value_type(halay_type_t type)
{
    static const halay_type_t types[] = {HALAY_FLOAT32, HALAY_FLOAT64, HALAY_INT32, HALAY_INT64};
    return types[type - HALAY_FLOAT32_INT32];
}

/* -1, 0, 1: a before b, equal, after b, as MIN and MAX order values. */
static int value_compare(halay_type_t type, const unsigned char *a, const unsigned char *b)
{
    if (is_integer(type)) {
        const __int128 x = integer_get(type, a), y = integer_get(type, b);
        return x < y ? -1 : x > y;
    }
    const double x = (double)part_get(type, a), y = (double)part_get(type, b);
    if (x == y)
        return !!signbit(y) - !!signbit(x);
    return x < y ? -1 : 1;
}

static int value_is_nan(halay_type_t type, const unsigned char *a)
{
    return !is_integer(type) && isnan((double)part_get(type, a));
}

static int pair_better(const halay_work_t *w, const unsigned char *a, const unsigned char *b)
{
    const halay_type_t type = value_type(w->type);
    const halay_type_t index = halay_type_bytes(type) == 4 ? HALAY_INT32 : HALAY_INT64;
    const size_t at = halay_type_bytes(type);
    const int an = value_is_nan(type, a), bn = value_is_nan(type, b);
    const int order = an || bn ? bn - an : value_compare(type, a, b);
    const int least = w->op == HALAY_MINLOC || an || bn;
    if (order != 0)
        return (order < 0) == least;
    return integer_get(index, a + at) <= integer_get(index, b + at);
}

static void pair_expect(const halay_work_t *w, size_t i, unsigned char *to)
{
    const halay_type_t type = value_type(w->type);
    const size_t bytes = halay_type_bytes(w->type);
    const unsigned char *best = (const unsigned char *)w->src[0] + i * bytes;
    for (uint32_t s = 1; s < w->nsrc; s++) {
        const unsigned char *next = (const unsigned char *)w->src[s] + i * bytes;
        best = pair_better(w, best, next) ? best : next;
    }
    memcpy(to, best, bytes);
    if (value_is_nan(type, best))
        part_put(type, to, (wide_t)NAN);
}

static void expect(const halay_work_t *w, unsigned char *to)
{
    const size_t bytes = halay_type_bytes(w->type);
    if (w->nsrc == 1 && !(w->op == HALAY_AVERAGE && w->divisor > 1)) {
        memcpy(to, w->src[0], w->count * bytes);
        return;
    }
    for (size_t i = 0; i < w->count; i++) {
        if (is_pair(w->type))
            pair_expect(w, i, to + i * bytes);
        else if (is_integer(w->type))
            integer_expect(w, i, to + i * bytes);
        else
            floating_expect(w, i, to + i * bytes);
    }
}

/* ------------------------------------------------------------------ data */

/* Whole numbers, what is special, random bits, and numbers of about the same size. */
static uint64_t real_bits(int fraction, int exponents)
{
    const uint64_t r = random_next(), sign = (r & 1) << (fraction + exponents);
    const uint64_t infinity = (((uint64_t)1 << exponents) - 1) << fraction;
    const uint64_t random = random_next(), rest = random & (((uint64_t)1 << fraction) - 1);
    const uint64_t bias = ((uint64_t)1 << (exponents - 1)) - 1;
    switch ((r >> 1) % 16) {
    case 0:
        return sign;
    case 1:
        return sign | infinity;
    case 2: /* NaNs with payloads, quiet and signalling */
        return sign | infinity | rest | 1;
    case 3: /* denormals */
        return sign | rest;
    case 4:
        return sign | 1;
    case 5: /* the largest */
        return sign | (infinity - 1);
    case 6: /* one */
        return sign | bias << fraction;
    case 7:
    case 8:
        return random >> (63 - fraction - exponents);
    default:
        return sign | (bias + (r >> 8) % 4) << fraction | rest;
    }
}

static void fill_real(halay_type_t type, unsigned char *to)
{
    const uint64_t bits = type == HALAY_FLOAT32 ? real_bits(23, 8) : real_bits(52, 11);
    memcpy(to, &bits, halay_type_bytes(type));
}

/* Few different values and indices, so that there are ties. */
static void fill_pairs(halay_type_t type, unsigned char *to, size_t count)
{
    const halay_type_t part = value_type(type);
    const size_t bytes = halay_type_bytes(part);
    for (size_t i = 0; i < count; i++, to += 2 * bytes) {
        const uint64_t r = random_next();
        const int64_t value = r % 8 == 0 ? (int64_t)random_next() : (int64_t)(r >> 8) % 3 - 1;
        const int64_t index = r % 7 == 0 ? (int64_t)random_next() : (int64_t)(r >> 20) % 4 - 2;
        memcpy(to, &value, bytes);
        memcpy(to + bytes, &index, bytes);
        if (!is_integer(part))
            fill_real(part, to);
    }
}

static void fill(halay_type_t type, unsigned char *to, size_t count)
{
    const size_t bytes = halay_type_bytes(type);
    if (is_pair(type)) {
        fill_pairs(type, to, count);
        return;
    }
    for (size_t i = 0; i < count; i++, to += bytes) {
        uint64_t parts[2] = {random_next(), 0};
        size_t part = bytes;
        if (type == HALAY_BOOL || (is_integer(type) && parts[0] % 4 == 0))
            parts[0] = (parts[0] >> 8) % 3;
        else if (type == HALAY_FLOAT16)
            parts[0] = real_bits(10, 5);
        else if (type == HALAY_BFLOAT16)
            parts[0] = real_bits(7, 8);
        else if (!is_integer(type) && part_type(type) == HALAY_FLOAT32)
            part = 4, parts[0] = real_bits(23, 8), parts[1] = real_bits(23, 8);
        else if (!is_integer(type))
            part = 8, parts[0] = real_bits(52, 11), parts[1] = real_bits(52, 11);
        memcpy(to, &parts[0], part);
        memcpy(to + part, &parts[1], bytes - part);
    }
}

/* ------------------------------------------------------------------ comparing */

static void compare(const halay_work_t *w, const unsigned char *want, const char *isa, int alias)
{
    const size_t bytes = halay_type_bytes(w->type);
    const unsigned char *got = w->dst;
    if (memcmp(got, want, w->count * bytes) == 0)
        return;
    for (size_t i = 0; i < w->count * bytes; i++) {
        if (got[i] == want[i])
            continue;
        fprintf(stderr, "%s %s %s nsrc %u divisor %u count %zu alias %d: element %zu\n", isa,
                halay_type_name(w->type), halay_op_name(w->op), w->nsrc, w->divisor, w->count,
                alias, i / bytes);
        i -= i % bytes;
        for (uint32_t s = 0; s <= w->nsrc + 1; s++) {
            const unsigned char *from = s < w->nsrc ? w->src[s] : s == w->nsrc ? got : want;
            fprintf(stderr, s < w->nsrc ? "  src " : s == w->nsrc ? "  got " : "  want");
            for (size_t b = bytes; b > 0; b--)
                fprintf(stderr, "%s%02x", b == bytes ? " " : "", from[i + b - 1]);
            fprintf(stderr, "\n");
        }
        exit(1);
    }
}

/*
 * Runs the work on all instruction sets, bound or not, streamed or not, or with dst in place
 * of src[alias] (-1: none), and looks at the bytes around dst, too.
 */
static void run(const halay_work_t *work, int alias)
{
    const size_t bytes = work->count * halay_type_bytes(work->type);
    expect(work, expected);
    for (int n = 0; n < NISA; n++) {
        halay_work_t w = *work;
        unsigned char *dst = w.dst;
        if (!isas[n])
            continue;
        memset(dst - GUARD, 0xa5, bytes + 2 * GUARD);
        if (alias >= 0) {
            memcpy(dst, w.src[alias], bytes);
            w.src[alias] = dst;
        }
        w.streams = random_next() % 2;
        if (random_next() % 2)
            CHECK(hly_device_host.bind(isas[n], &w) != HALAY_EINVAL, "%s", isa_names[n]);
        int rc = hly_device_host.launch(isas[n], &w);
        CHECK(rc == HALAY_OK, "%s", isa_names[n]);
        compare(&w, expected, isa_names[n], alias);
        for (size_t i = 0; i < GUARD; i++)
            CHECK(dst[-1 - (ptrdiff_t)i] == 0xa5 && dst[bytes + i] == 0xa5, "%s %s %s count %zu",
                  isa_names[n], halay_type_name(w.type), halay_op_name(w.op), w.count);
    }
}

static uint32_t divisor_draw(halay_op_t op)
{
    static const uint32_t divisors[] = {0, 1, 2, 3, 7, 100, 1000003, 16777217, 4294967295u};
    return op == HALAY_AVERAGE ? divisors[random_next() % (sizeof divisors / sizeof divisors[0])]
                               : 0;
}

static halay_work_t work_make(halay_type_t type, halay_op_t op, uint32_t nsrc, size_t count,
                              size_t misaligned)
{
    halay_work_t w = {.size = sizeof(w),
                      .dst = output + GUARD + misaligned,
                      .count = count,
                      .type = type,
                      .op = op,
                      .nsrc = nsrc,
                      .divisor = divisor_draw(op)};
    for (uint32_t s = 0; s < nsrc; s++)
        w.src[s] = sources[s] + (misaligned ? (misaligned * (s + 3)) % 64 : 0);
    return w;
}

/* ------------------------------------------------------------------ tests */

static void test_all_short(void)
{
    static const size_t misalignments[] = {0, 1, 16, 29};
    for (int t = 0; t < HALAY_TYPE_COUNT; t++) {
        for (int s = 0; s < HALAY_REDUCE_SOURCES; s++)
            fill((halay_type_t)t, sources[s], 256);
        for (int op = 0; op < HALAY_OP_COUNT; op++) {
            for (uint32_t nsrc = 1; nsrc <= HALAY_REDUCE_SOURCES; nsrc++) {
                if (!halay_op_takes((halay_op_t)op, (halay_type_t)t))
                    continue;
                for (size_t count = 0; count <= 67; count++) {
                    size_t m = misalignments[(count + (size_t)random_next()) % 4];
                    halay_work_t w = work_make((halay_type_t)t, (halay_op_t)op, nsrc, count, m);
                    /* A misaligned view of the data would be other data: put it there. */
                    for (uint32_t s = 0; s < nsrc; s++)
                        fill(w.type, (unsigned char *)(uintptr_t)w.src[s], count);
                    run(&w, (int)(random_next() % (nsrc + 1)) - 1);
                }
            }
        }
    }
}

/* Around the blocks that longer work is cut into, in place of each source in turn. */
static void test_all_long(void)
{
    static const size_t counts[] = {255, 257, 511, 513, 1023, 1025, 2049, 4097, 8195};
    for (int t = 0; t < HALAY_TYPE_COUNT; t++) {
        for (int op = 0; op < HALAY_OP_COUNT; op++) {
            for (uint32_t nsrc = 1; nsrc <= HALAY_REDUCE_SOURCES; nsrc++) {
                size_t count = counts[random_next() % 9];
                halay_work_t w;
                if (!halay_op_takes((halay_op_t)op, (halay_type_t)t))
                    continue;
                w = work_make((halay_type_t)t, (halay_op_t)op, nsrc, count, random_next() % 64);
                for (uint32_t s = 0; s < nsrc; s++)
                    fill(w.type, (unsigned char *)(uintptr_t)w.src[s], count);
                for (int alias = -1; alias < (int)nsrc; alias++)
                    run(&w, alias);
            }
        }
    }
}

/* dst equal to all sources at once. */
static void test_one_buffer(void)
{
    for (int n = 0; n < NISA; n++) {
        int32_t buffer[1500];
        halay_work_t w = {
            .size = sizeof(w), .dst = buffer, .count = 1500, .type = HALAY_INT32, .nsrc = 4};
        if (!isas[n])
            continue;
        for (int i = 0; i < 1500; i++)
            buffer[i] = i - 700;
        for (int s = 0; s < 4; s++)
            w.src[s] = buffer;
        CHECK(hly_device_host.launch(isas[n], &w) == HALAY_OK, "%s", isa_names[n]);
        for (int i = 0; i < 1500; i++)
            CHECK(buffer[i] == 4 * (i - 700), "%s %d", isa_names[n], i);
    }
}

/*
 * All values of a half type: plus -0, which changes nothing but NaNs; plus one other value of each
 * kind; divided; and copied, where even the NaNs stay.
 */
static void test_all_halves(halay_type_t type)
{
    enum { ALL = 65536, OTHERS = 24 };
    const uint16_t minus0 = 0x8000;
    uint16_t value;
    halay_work_t w = work_make(type, HALAY_SUM, 2, ALL, 0);
    _Static_assert((int)ALL < (int)COUNT_MAX, "the buffers hold all");
    for (size_t i = 0; i < ALL; i++) {
        value = (uint16_t)i;
        memcpy(sources[0] + 2 * i, &value, 2);
        memcpy(sources[1] + 2 * i, &minus0, 2);
    }
    run(&w, -1);
    for (size_t i = 0; i < ALL; i++) {
        const int nan = (i & 0x7fff) > (type == HALAY_FLOAT16 ? 0x7c00 : 0x7f80);
        memcpy(&value, output + GUARD + 2 * i, 2);
        CHECK(nan ? value == (type == HALAY_FLOAT16 ? 0x7e00 : 0x7fc0) : value == i, "%zx: %x", i,
              value);
    }
    for (int o = 0; o < OTHERS; o++) {
        fill(type, (unsigned char *)&value, 1);
        for (size_t i = 0; i < ALL; i++)
            memcpy(sources[1] + 2 * i, &value, 2);
        w.op = o % 4 == 3 ? HALAY_PROD : HALAY_SUM;
        run(&w, o % 3 - 1);
    }
    w.nsrc = 1;
    run(&w, -1);
    w.op = HALAY_AVERAGE;
    w.divisor = 3;
    run(&w, -1);
}

struct example {
    halay_type_t type;
    halay_op_t op;
    uint32_t nsrc, divisor;
    uint64_t src[HALAY_REDUCE_SOURCES], want;
};

/* Known answers, so that the reference does not stand alone. */
static const struct example examples[] = {
    /* 2048 + 1 + 1: rounded once it is 2050, rounded twice 2048. */
    {HALAY_FLOAT16, HALAY_SUM, 3, 0, {0x6800, 0x3c00, 0x3c00}, 0x6801},
    {HALAY_BFLOAT16, HALAY_SUM, 3, 0, {0x4380, 0x3f80, 0x3f80}, 0x4381},
    /* 2049 / 2, rounded once. */
    {HALAY_FLOAT16, HALAY_AVERAGE, 2, 2, {0x6800, 0x3c00}, 0x6400},
    /* 65504 + 16 is a tie with infinity, and goes there; 65504 + 8 does not. */
    {HALAY_FLOAT16, HALAY_SUM, 2, 0, {0x7bff, 0x4c00}, 0x7c00},
    {HALAY_FLOAT16, HALAY_SUM, 2, 0, {0x7bff, 0x4800}, 0x7bff},
    /* Through an overflow and back: float32 has room. */
    {HALAY_FLOAT16, HALAY_SUM, 3, 0, {0x7bff, 0x7bff, 0xfbff}, 0x7bff},
    /* The smallest: halves to even, three quarters up. */
    {HALAY_FLOAT16, HALAY_PROD, 2, 0, {0x0001, 0x3800}, 0x0000},
    {HALAY_FLOAT16, HALAY_PROD, 2, 0, {0x8001, 0x3a00}, 0x8001},
    {HALAY_FLOAT32, HALAY_SUM, 2, 0, {0xffc12345, 0x7fa00001}, 0x7fc00000},
    {HALAY_FLOAT32, HALAY_SUM, 2, 0, {0x7f800000, 0xff800000}, 0x7fc00000},
    {HALAY_FLOAT32, HALAY_SUM, 2, 0, {0x80000000, 0x80000000}, 0x80000000},
    {HALAY_FLOAT32, HALAY_SUM, 2, 0, {0x00000001, 0x00000002}, 0x00000003},
    {HALAY_FLOAT32, HALAY_PROD, 2, 0, {0x00800000, 0x3f000000}, 0x00400000},
    {HALAY_FLOAT32, HALAY_MIN, 2, 0, {0x00000000, 0x80000000}, 0x80000000},
    {HALAY_FLOAT32, HALAY_MIN, 2, 0, {0x80000000, 0x00000000}, 0x80000000},
    {HALAY_FLOAT32, HALAY_MAX, 2, 0, {0x80000000, 0x00000000}, 0x00000000},
    {HALAY_FLOAT32, HALAY_MAX, 2, 0, {0x00000000, 0x80000000}, 0x00000000},
    {HALAY_FLOAT32, HALAY_MIN, 2, 0, {0x3f800000, 0xff812345}, 0x7fc00000},
    {HALAY_FLOAT32, HALAY_MAX, 2, 0, {0xffffffff, 0x3f800000}, 0x7fc00000},
    {HALAY_FLOAT32, HALAY_AVERAGE, 2, 3, {0x3f800000, 0x3f800000}, 0x3f2aaaab},
    {HALAY_FLOAT32, HALAY_AVERAGE, 1, 2, {0xffc12345}, 0x7fc00000},
    {HALAY_FLOAT32, HALAY_AVERAGE, 1, 1, {0xffa12345}, 0xffa12345},
    {HALAY_FLOAT32, HALAY_SUM, 1, 5, {0xffa12345}, 0xffa12345},
    {HALAY_FLOAT64, HALAY_MAX, 2, 0, {0xfff0000000000001, 1}, 0x7ff8000000000000},
    {HALAY_COMPLEX64,
     HALAY_PROD,
     2,
     0,
     {0x3f80000000000000, 0x3f80000000000000},
     0x00000000bf800000},
    {HALAY_COMPLEX64, HALAY_AVERAGE, 1, 2, {0x4000000040800000}, 0x3f80000040000000},
    {HALAY_INT8, HALAY_SUM, 2, 0, {0x7f, 0x01}, 0x80},
    {HALAY_INT8, HALAY_AVERAGE, 2, 2, {0xff, 0xfe}, 0xff}, /* -3 / 2 = -1 */
    {HALAY_INT64, HALAY_AVERAGE, 1, 2, {0x8000000000000001}, 0xc000000000000001},
    {HALAY_UINT64, HALAY_AVERAGE, 1, 3, {0xffffffffffffffff}, 0x5555555555555555},
    {HALAY_UINT32, HALAY_AVERAGE, 1, 4294967295u, {0xffffffff}, 1},
    {HALAY_UINT32, HALAY_AVERAGE, 1, 4294967295u, {0xfffffffe}, 0},
    {HALAY_UINT16, HALAY_PROD, 2, 0, {0xffff, 0xffff}, 1},
    {HALAY_INT32, HALAY_MIN, 2, 0, {0x80000000, 0x7fffffff}, 0x80000000},
    {HALAY_UINT32, HALAY_MIN, 2, 0, {0x80000000, 0x7fffffff}, 0x7fffffff},
    {HALAY_INT32, HALAY_LAND, 2, 0, {2, 4}, 1},
    {HALAY_INT32, HALAY_BAND, 2, 0, {2, 4}, 0},
    {HALAY_BOOL, HALAY_BAND, 2, 0, {2, 4}, 1},
    {HALAY_BOOL, HALAY_BXOR, 2, 0, {2, 4}, 0},
    {HALAY_BOOL, HALAY_LXOR, 3, 0, {2, 4, 8}, 1},
    {HALAY_BOOL, HALAY_LOR, 1, 0, {6}, 6},
};

static void test_examples(void)
{
    for (size_t e = 0; e < sizeof examples / sizeof examples[0]; e++) {
        const struct example *x = &examples[e];
        const size_t bytes = halay_type_bytes(x->type);
        /* Alone, and in a row long enough for vectors. */
        for (size_t count = 1; count <= 131; count += 130) {
            halay_work_t w = work_make(x->type, x->op, x->nsrc, count, 3);
            w.divisor = x->divisor;
            for (uint32_t s = 0; s < x->nsrc; s++)
                for (size_t i = 0; i < count; i++)
                    memcpy((unsigned char *)(uintptr_t)w.src[s] + i * bytes, &x->src[s], bytes);
            run(&w, -1);
            for (size_t i = 0; i < count; i++) {
                uint64_t got = 0;
                memcpy(&got, (unsigned char *)w.dst + i * bytes, bytes);
                CHECK(got == x->want, "example %zu, element %zu: %llx, not %llx", e, i,
                      (unsigned long long)got, (unsigned long long)x->want);
            }
        }
    }
}

/* A thread that flushes denormals, rounds up and traps gets the same bits, and its settings
 * back. */
static void test_caller_settings(void)
{
#if defined(__SSE__)
    static const unsigned settings[] = {
        0x1f80 | 0x8000 | 0x0040,          /* flush to zero, denormals are zero */
        0x1f80 | 0x4000,                   /* up */
        0x1f80 | 0x6000 | 0x8040,          /* toward zero, and flush */
        (0x1f80 & ~0x0e80u) | 0x2000 | 0x1 /* traps; down; a sticky flag that was there before */
    };
    for (int t = HALAY_INT8; t < HALAY_TYPE_COUNT; t++) {
        for (int op = HALAY_SUM; op <= HALAY_AVERAGE; op++) {
            for (int n = 0; n < NISA; n++) {
                for (size_t m = 0; m < sizeof settings / sizeof settings[0]; m++) {
                    const unsigned before = _mm_getcsr();
                    halay_work_t w = work_make((halay_type_t)t, (halay_op_t)op, 2 + m % 3, 517, 0);
                    unsigned during;
                    int rc;
                    if (!isas[n] || !halay_op_takes(w.op, w.type))
                        continue;
                    for (uint32_t s = 0; s < w.nsrc; s++)
                        fill(w.type, sources[s], w.count);
                    expect(&w, expected);
                    _mm_setcsr(settings[m]);
                    rc = hly_device_host.launch(isas[n], &w);
                    during = _mm_getcsr();
                    _mm_setcsr(before);
                    CHECK(rc == HALAY_OK, "%d", rc);
                    CHECK(during == settings[m], "%x, not %x", during, settings[m]);
                    compare(&w, expected, isa_names[n], -1);
                }
            }
        }
    }
#endif
}

int main(void)
{
    half_tables_make();
    for (int n = 0; n < NISA; n++) {
        int rc = hly_device_host.open(NULL, isa_names[n], &isas[n]);
        CHECK(rc == HALAY_OK || (n > 0 && rc == HALAY_EUNSUPPORTED), "%s: %d", isa_names[n], rc);
        if (rc != HALAY_OK)
            printf("%s: not on this processor\n", isa_names[n]);
    }
    for (int s = 0; s < HALAY_REDUCE_SOURCES; s++)
        sources[s] = calloc(1, BYTES_MAX);
    output = calloc(1, BYTES_MAX);
    expected = calloc(1, BYTES_MAX);
    CHECK(sources[0] && sources[1] && sources[2] && sources[3] && output && expected, "memory");

    test_examples();
    test_all_short();
    test_all_long();
    test_one_buffer();
    test_all_halves(HALAY_FLOAT16);
    test_all_halves(HALAY_BFLOAT16);
    test_caller_settings();

    for (int s = 0; s < HALAY_REDUCE_SOURCES; s++)
        free(sources[s]);
    free(output);
    free(expected);
    for (int n = 0; n < NISA; n++)
        hly_device_host.close(isas[n]);
    return 0;
}
