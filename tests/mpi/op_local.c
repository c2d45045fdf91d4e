/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_local.c - MPI_Reduce_local: each predefined operation on each named type, against arithmetic
 * in the widest types, bit by bit; which of them are refused; and a function of the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bindings/mpi/type.h"

#define COUNT 301

static uint64_t state = 1;
static int failures;

static uint64_t pick(void)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return state >> 20;
}

static void wrong(const char *what, uint32_t op, const char *type)
{
    printf("op %#x of %s: %s\n", op, type, what);
    failures++;
}

enum { SUM = 0x21, MIN, MAX, PROD, BAND = 0x28, BOR, BXOR, LAND = 0x30, LOR, LXOR, MINLOC = 0x38 };

static __int128 integer(uint32_t op, __int128 a, __int128 b)
{
    switch (op) {
    case SUM:
        return (__int128)((unsigned __int128)a + (unsigned __int128)b);
    case PROD:
        return (__int128)((unsigned __int128)a * (unsigned __int128)b);
    case MIN:
        return b < a ? b : a;
    case MAX:
        return b > a ? b : a;
    case BAND:
        return a & b;
    case BOR:
        return a | b;
    case BXOR:
        return a ^ b;
    case LAND:
        return a != 0 && b != 0;
    case LOR:
        return a != 0 || b != 0;
    default:
        return (a != 0) != (b != 0);
    }
}

static long double floating(uint32_t op, long double a, long double b)
{
    switch (op) {
    case SUM:
        return a + b;
    case PROD:
        return a * b;
    case MIN:
        return b < a ? b : a;
    default:
        return b > a ? b : a;
    }
}

/* Of a format without complex numbers: a number of `bytes` at an address, as the widest type. */
static __int128 load_integer(const void *at, int bytes, bool is_signed)
{
    unsigned __int128 bits = 0;
    memcpy(&bits, at, (size_t)bytes);
    if (is_signed && bytes < 16 && bits >> (8 * bytes - 1))
        bits |= ~(unsigned __int128)0 << 8 * bytes;
    return (__int128)bits;
}

static float half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float number = exponent ? (float)(fraction + 1024) : (float)fraction;
    for (int i = exponent ? exponent : 1; i > 25; i--)
        number *= 2;
    for (int i = exponent ? exponent : 1; i < 25; i++)
        number /= 2;
    return bits >> 15 ? -number : number;
}

/* All halves that are not infinite are tried: the nearest one, of two the even one. */
static uint16_t nearest(float number)
{
    uint16_t best = __builtin_signbit(number) ? 0x8000 : 0;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float far, least;
        if ((bits & 0x7c00) == 0x7c00)
            continue;
        far = half((uint16_t)bits) - number;
        least = half(best) - number;
        far = far < 0 ? -far : far;
        least = least < 0 ? -least : least;
        if (far < least || (far == least && bits % 2 == 0 && best % 2))
            best = (uint16_t)bits;
    }
    return best;
}

static long double load_float(const void *at, int format)
{
    uint16_t h;
    float f;
    double d;
    long double l;
    __float128 q;
    switch (format) {
    case HLY_MPI_F16:
        memcpy(&h, at, 2);
        return half(h);
    case HLY_MPI_F32:
        memcpy(&f, at, 4);
        return f;
    case HLY_MPI_F64:
        memcpy(&d, at, 8);
        return d;
    case HLY_MPI_F128:
        memcpy(&q, at, 16);
        return (long double)q;
    default:
        memcpy(&l, at, sizeof(l));
        return l;
    }
}

static void store_float(void *at, int format, long double number)
{
    uint16_t h;
    float f = (float)number;
    double d = (double)number;
    __float128 q = number;
    switch (format) {
    case HLY_MPI_F16:
        h = nearest(f);
        memcpy(at, &h, 2);
        break;
    case HLY_MPI_F32:
        memcpy(at, &f, 4);
        break;
    case HLY_MPI_F64:
        memcpy(at, &d, 8);
        break;
    case HLY_MPI_F128:
        memcpy(at, &q, 16);
        break;
    default:
        memcpy(at, &number, 10);
    }
}

static bool is_float(int format)
{
    return format >= HLY_MPI_F16 && format <= HLY_MPI_F128;
}

/* Small numbers, so that all is exact; halves of halves too. */
static void fill(const struct hly_mpi_named *named, char *at)
{
    int parts = named->of_class == HLY_MPI_COMPLEX_NUMBER ? 2 : 1, bytes = named->size / parts,
        format = named->format >= HLY_MPI_C16 ? named->format - HLY_MPI_C16 + HLY_MPI_F16
                                              : named->format;
    for (int p = 0; p < parts; p++, at += bytes) {
        if (is_float(format)) {
            store_float(at, format, ((long double)(pick() % 41) - 20) / 4);
            continue;
        }
        for (int b = 0; b < bytes; b++)
            at[b] = (char)(pick() % 3 ? pick() : 0);
        if (pick() % 3 == 0)
            memset(at, 0, (size_t)bytes);
    }
}

static void expect(uint32_t op, const struct hly_mpi_named *named, const char *a, const char *b,
                   char *out)
{
    int format = named->format;
    if (named->of_class == HLY_MPI_COMPLEX_NUMBER) {
        int f = format - HLY_MPI_C16 + HLY_MPI_F16, n = named->size / 2;
        long double ar = load_float(a, f), ai = load_float(a + n, f), br = load_float(b, f),
                    bi = load_float(b + n, f);
        store_float(out, f, op == SUM ? ar + br : ar * br - ai * bi);
        store_float(out + n, f, op == SUM ? ai + bi : ar * bi + ai * br);
    } else if (is_float(format)) {
        store_float(out, format, floating(op, load_float(a, format), load_float(b, format)));
    } else {
        bool is_signed = format % 2 == 0;
        __int128 number = integer(op, load_integer(a, named->size, is_signed),
                                  load_integer(b, named->size, is_signed));
        memcpy(out, &number, named->size);
    }
}

static void check(struct hly_mpi_op *op, uint32_t number, int place)
{
    static char in[COUNT * 32 + 1], inout[COUNT * 32 + 1], want[COUNT * 32 + 1];
    const struct hly_mpi_named *named = &hly_mpi_named[place];
    struct hly_mpi_type *type = hly_mpi_predefined(HLY_MPI_TYPE, named->number);
    int size = named->size, tell = named->format == HLY_MPI_FLONG ? 10 : size;
    int count = named->format == HLY_MPI_F16 || named->format == HLY_MPI_C16 ? 20 : COUNT;
    bool odd = pick() % 2;
    for (int i = 0; i < count; i++) {
        fill(named, in + odd + i * size);
        fill(named, inout + odd + i * size);
    }
    memcpy(want, inout, sizeof(want));
    for (int i = 0; i < count; i++)
        expect(number, named, in + odd + i * size, inout + odd + i * size, want + odd + i * size);
    if (hly_mpi_reduce_local(in + odd, inout + odd, count, type, op)) {
        wrong("refused", number, named->name);
        return;
    }
    for (int i = 0; i < count; i++) {
        const char *got = inout + odd + i * size, *right = want + odd + i * size;
        bool equal = !memcmp(got, right, (size_t)tell);
        if (named->format == HLY_MPI_CLONG)
            equal = !memcmp(got, right, 10) && !memcmp(got + 16, right + 16, 10);
        if (!equal && named->of_class != HLY_MPI_COMPLEX_NUMBER && is_float(named->format))
            equal = load_float(got, named->format) == 0 && load_float(right, named->format) == 0;
        if (!equal) {
            wrong("another result", number, named->name);
            return;
        }
    }
}

/* By the words of the standard, and logical operations on all integers. */
static bool allowed(uint32_t op, const struct hly_mpi_named *named)
{
    switch (named->of_class) {
    case HLY_MPI_FLOATING:
        return op <= PROD;
    case HLY_MPI_COMPLEX_NUMBER:
        return op == SUM || op == PROD;
    case HLY_MPI_LOGIC:
        return op >= LAND && op <= LXOR;
    case HLY_MPI_BYTES:
        return op >= BAND && op <= BXOR && strcmp(named->name, "MPI_BYTE") == 0;
    case HLY_MPI_PAIR:
        return op >= MINLOC && op <= MINLOC + 1;
    case HLY_MPI_TEXT:
        return false;
    default:
        return op <= LXOR;
    }
}

struct double_int {
    double value;
    int index;
};
struct short_int {
    short value;
    int index;
};
struct long_double_int {
    long double value;
    int index;
};

#define CHECK_PAIR(number, c_type)                                                                 \
    do {                                                                                           \
        c_type in[COUNT], inout[COUNT], had[COUNT];                                                \
        struct hly_mpi_type *type = hly_mpi_predefined(HLY_MPI_TYPE, number);                      \
        for (int most = 0; most < 2; most++) {                                                     \
            memset(inout, 0x77, sizeof(inout));                                                    \
            for (int i = 0; i < COUNT; i++) {                                                      \
                in[i].value = (short)(pick() % 5) - 2;                                             \
                in[i].index = (int)(pick() % 100) - 50;                                            \
                inout[i].value = (short)(pick() % 5) - 2;                                          \
                inout[i].index = (int)(pick() % 100) - 50;                                         \
            }                                                                                      \
            memcpy(had, inout, sizeof(had));                                                       \
            if (type->extent != sizeof(c_type) ||                                                  \
                hly_mpi_reduce_local(in, inout, COUNT, type,                                       \
                                     hly_mpi_predefined(HLY_MPI_OP, MINLOC + (unsigned)most)))     \
                wrong("refused, or another extent", MINLOC, #c_type);                              \
            for (int i = 0; i < COUNT; i++) {                                                      \
                bool first = most ? in[i].value > had[i].value : in[i].value < had[i].value;       \
                bool equal = in[i].value == had[i].value;                                          \
                c_type right = first || (equal && in[i].index < had[i].index) ? in[i] : had[i];    \
                if (inout[i].value != right.value || inout[i].index != right.index)                \
                    wrong("another pair", MINLOC + (unsigned)most, #c_type);                       \
            }                                                                                      \
        }                                                                                          \
    } while (0)

struct float_int {
    float value;
    int index;
};
struct long_int {
    long value;
    int index;
};
struct two_int {
    int value, index;
};
struct two_real {
    float value, index;
};
struct two_double {
    double value, index;
};

static void check_pairs(void)
{
    CHECK_PAIR(0x228, struct float_int);
    CHECK_PAIR(0x229, struct double_int);
    CHECK_PAIR(0x22a, struct long_int);
    CHECK_PAIR(0x22b, struct two_int);
    CHECK_PAIR(0x22c, struct short_int);
    CHECK_PAIR(0x22d, struct long_double_int);
    CHECK_PAIR(0x230, struct two_real);
    CHECK_PAIR(0x231, struct two_double);
    CHECK_PAIR(0x232, struct two_int);
}

static void check_nan(void)
{
    double nan = __builtin_nan(""), in[4] = {nan, 1, -0.0, 0.0}, out[4] = {1, nan, 0.0, -0.0};
    struct hly_mpi_type *type = hly_mpi_predefined(HLY_MPI_TYPE, 0x214);
    hly_mpi_reduce_local(in, out, 4, type, hly_mpi_predefined(HLY_MPI_OP, MIN));
    if (out[0] == out[0] || out[1] == out[1] || !__builtin_signbit(out[2]) ||
        !__builtin_signbit(out[3]))
        wrong("NaN or -0", MIN, "MPI_DOUBLE");
    hly_mpi_reduce_local(in, out, 4, type, hly_mpi_predefined(HLY_MPI_OP, MAX));
    if (out[0] == out[0] || out[1] == out[1] || __builtin_signbit(out[3]))
        wrong("NaN or -0", MAX, "MPI_DOUBLE");
}

int main(void)
{
    if (hly_mpi_types_open() || hly_mpi_ops_open())
        return 1;
    for (uint32_t number = SUM; number <= MINLOC + 5; number++) {
        struct hly_mpi_op *op = hly_mpi_predefined(HLY_MPI_OP, number);
        int commutes;
        if (!op)
            continue;
        if (hly_mpi_op_commutative(op, &commutes) || commutes != (number < 0x3c))
            wrong("commutative", number, "");
        for (int place = 0; place < hly_mpi_named_count; place++) {
            const struct hly_mpi_named *named = &hly_mpi_named[place];
            char in[64] = {0}, inout[64] = {0};
            if (number < 0x3c && allowed(number, named) && named->of_class != HLY_MPI_PAIR) {
                for (int i = 0; i < 5; i++)
                    check(op, number, place);
            } else if ((number >= 0x3c || !allowed(number, named)) &&
                       hly_mpi_reduce_local(in, inout, 1,
                                            hly_mpi_predefined(HLY_MPI_TYPE, named->number),
                                            op) != MPI_ERR_OP) {
                wrong("not refused", number, named->name);
            }
        }
    }
    check_pairs();
    check_nan();
    printf("%d failures\n", failures);
    return failures != 0;
}
