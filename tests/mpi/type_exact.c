/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_exact.c - datatypes, one property at a time: how they were made, "external32" byte by byte,
 * large ones whose description is short, equal signatures, and what is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../bindings/mpi/type.h"

static int failures;
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: not so: %s\n", __LINE__, #condition);                                 \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static struct hly_mpi_type *named(uint32_t number)
{
    return hly_mpi_predefined(HLY_MPI_TYPE, number);
}
static struct hly_mpi_ints ints(const int *at)
{
    return (struct hly_mpi_ints){at, false};
}
static struct hly_mpi_ints wide(const int64_t *at)
{
    return (struct hly_mpi_ints){at, true};
}

enum { SHORT = 0x208, INT, LONG, FLOAT = 0x210, DOUBLE = 0x214, BYTE = 0x247, WCHAR = 0x23c };

/* What get_envelope and get_contents say, beside what they have to. */
static void check_contents(struct hly_mpi_type *type, int combiner, int nints, const int *is,
                           int naddresses, const int64_t *addresses, int ntypes)
{
    int ni, na, nd, made, got[32];
    int64_t got_addresses[32];
    struct hly_mpi_type *types[8] = {NULL};
    CHECK(!hly_mpi_type_get_envelope(type, &ni, &na, &nd, &made));
    CHECK(ni == nints && na == naddresses && nd == ntypes && made == combiner);
    CHECK(!hly_mpi_type_get_contents(type, 32, 32, 8, got, got_addresses, types));
    CHECK(!memcmp(got, is, (size_t)nints * sizeof(int)));
    CHECK(!memcmp(got_addresses, addresses, (size_t)naddresses * sizeof(int64_t)));
    for (int i = 0; i < nd; i++) {
        CHECK(types[i] != NULL);
        if (!types[i]->predefined)
            hly_mpi_type_free(&types[i]);
    }
    if (nints)
        CHECK(hly_mpi_type_get_contents(type, nints - 1, 32, 8, got, got_addresses, types) ==
              MPI_ERR_ARG);
}

static void test_contents(void)
{
    struct hly_mpi_type *t, *u;
    int lengths[3] = {2, 0, 1}, at[3] = {5, 9, 1}, none = 0;
    int64_t far[3] = {40, 0, -16}, bounds[2] = {-4, 24}, stride = 100, nothing = 0;
    hly_mpi_type_contiguous(3, named(INT), &t);
    check_contents(t, MPI_COMBINER_CONTIGUOUS, 1, (int[]){3}, 0, &nothing, 1);
    hly_mpi_type_dup(t, &u);
    check_contents(u, MPI_COMBINER_DUP, 0, &none, 0, &nothing, 1);
    hly_mpi_type_free(&t);
    hly_mpi_type_free(&u);
    hly_mpi_type_vector(3, 2, -4, named(INT), &t);
    check_contents(t, MPI_COMBINER_VECTOR, 3, (int[]){3, 2, -4}, 0, &nothing, 1);
    hly_mpi_type_create_hvector(3, 2, stride, t, &u);
    check_contents(u, MPI_COMBINER_HVECTOR, 2, (int[]){3, 2}, 1, &stride, 1);
    hly_mpi_type_free(&t);
    hly_mpi_type_free(&u);
    hly_mpi_type_indexed(3, ints(lengths), ints(at), named(INT), &t);
    check_contents(t, MPI_COMBINER_INDEXED, 7, (int[]){3, 2, 0, 1, 5, 9, 1}, 0, &nothing, 1);
    hly_mpi_type_free(&t);
    hly_mpi_type_create_hindexed(3, ints(lengths), wide(far), named(INT), &t);
    check_contents(t, MPI_COMBINER_HINDEXED, 4, (int[]){3, 2, 0, 1}, 3, far, 1);
    hly_mpi_type_free(&t);
    hly_mpi_type_create_indexed_block(3, 2, ints(at), named(INT), &t);
    check_contents(t, MPI_COMBINER_INDEXED_BLOCK, 5, (int[]){3, 2, 5, 9, 1}, 0, &nothing, 1);
    hly_mpi_type_free(&t);
    hly_mpi_type_create_hindexed_block(3, 2, wide(far), named(INT), &t);
    check_contents(t, MPI_COMBINER_HINDEXED_BLOCK, 2, (int[]){3, 2}, 3, far, 1);
    hly_mpi_type_free(&t);
    struct hly_mpi_type *types[3] = {named(INT), named(DOUBLE), named(SHORT)};
    hly_mpi_type_create_struct(3, ints(lengths), wide(far), types, &t);
    check_contents(t, MPI_COMBINER_STRUCT, 4, (int[]){3, 2, 0, 1}, 3, far, 3);
    hly_mpi_type_create_resized(t, -4, 24, &u);
    check_contents(u, MPI_COMBINER_RESIZED, 0, &none, 2, bounds, 1);
    hly_mpi_type_free(&t);
    hly_mpi_type_free(&u);
    int sizes[2] = {4, 5}, subsizes[2] = {2, 3}, starts[2] = {1, 2};
    hly_mpi_type_create_subarray(2, ints(sizes), ints(subsizes), ints(starts), MPI_ORDER_FORTRAN,
                                 named(INT), &t);
    check_contents(t, MPI_COMBINER_SUBARRAY, 8, (int[]){2, 4, 5, 2, 3, 1, 2, MPI_ORDER_FORTRAN}, 0,
                   &nothing, 1);
    hly_mpi_type_free(&t);
    int dist[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK}, darg[2] = {2, 3}, p[2] = {2, 2};
    hly_mpi_type_create_darray(4, 3, 2, ints(sizes), dist, darg, p, MPI_ORDER_C, named(INT), &t);
    check_contents(t, MPI_COMBINER_DARRAY, 12,
                   (int[]){4, 3, 2, 4, 5, dist[0], dist[1], 2, 3, 2, 2, MPI_ORDER_C}, 0, &nothing,
                   1);
    hly_mpi_type_free(&t);
    hly_mpi_type_create_f90_real(10, MPI_UNDEFINED, &t);
    hly_mpi_type_create_f90_real(10, MPI_UNDEFINED, &u);
    CHECK(t == u && t->size == 8 && hly_mpi_type_free(&u) == MPI_ERR_TYPE);
    check_contents(t, MPI_COMBINER_F90_REAL, 2, (int[]){10, MPI_UNDEFINED}, 0, &nothing, 0);
    hly_mpi_type_create_f90_integer(12, &t);
    CHECK(t->size == 8);
    check_contents(t, MPI_COMBINER_F90_INTEGER, 1, (int[]){12}, 0, &nothing, 0);
    hly_mpi_type_create_f90_complex(MPI_UNDEFINED, 20, &t);
    CHECK(t->size == 8);
    CHECK(hly_mpi_type_get_contents(named(INT), 0, 0, 0, NULL, NULL, NULL) == MPI_ERR_TYPE);
}

static void test_large(void)
{
    struct hly_mpi_type *t, *u, *type;
    int combiner, ni, na, nd, got[8];
    int64_t i, a, c, d, lengths[2] = {1, 2}, at[2] = {0, 8}, counts[8], none[1], count = 5;
    hly_mpi_type_create_hindexed(2, wide(lengths), wide(at), named(INT), &t);
    CHECK(!hly_mpi_type_get_envelope_c(t, &i, &a, &c, &d, &combiner));
    CHECK(i == 0 && a == 0 && c == 5 && d == 1 && combiner == MPI_COMBINER_HINDEXED);
    CHECK(!hly_mpi_type_get_contents_c(t, 0, 0, 5, 1, got, none, counts, &type));
    CHECK(counts[0] == 2 && counts[1] == 1 && counts[2] == 2 && counts[3] == 0 && counts[4] == 8);
    CHECK(hly_mpi_type_get_envelope(t, &ni, &na, &nd, &combiner) == MPI_ERR_TYPE);
    hly_mpi_type_free(&t);
    hly_mpi_type_contiguous(count, named(INT), &t);
    hly_mpi_type_made_large(t);
    hly_mpi_type_get_envelope_c(t, &i, &a, &c, &d, &combiner);
    CHECK(i == 0 && c == 1);
    hly_mpi_type_free(&t);
    /* 2^40 pairs of shorts, 2^43 bytes apart in all: the description is a few loops. */
    hly_mpi_type_vector(1ll << 40, 2, 4, named(SHORT), &t);
    hly_mpi_type_get_envelope_c(t, &i, &a, &c, &d, &combiner);
    CHECK(c == 3 && t->size == 1ll << 42 && t->true_extent == (1ll << 43) - 4);
    CHECK(t->made->shape.basics == 1ll << 41 && t->elements == 1ll << 41);
    CHECK(!hly_mpi_type_contiguous(1 << 20, t, &u));
    hly_mpi_type_free(&u);
    CHECK(hly_mpi_type_contiguous(1 << 21, t, &u) == MPI_ERR_ARG);
    hly_mpi_type_free(&t);
}

/* A byte far inside a long type is found at once, also below lists. */
static void test_seek(void)
{
    enum { N = 200000 };
    struct hly_mpi_type *t, *column, *rows;
    int *at = malloc(N * sizeof(int)), lengths[2] = {1, 1};
    int64_t far[2] = {0, 1ll << 45};
    char byte, *base = (char *)1024; /* never read, but where the data are */
    static char data[8192];
    clock_t start = clock();
    for (int i = 0; i < N; i++)
        at[i] = i * 3 + i % 2;
    hly_mpi_type_create_indexed_block(N, 1, ints(at), named(DOUBLE), &t);
    hly_mpi_type_create_hvector(1ll << 22, 1, 1ll << 23, t, &column);
    struct hly_mpi_type *types[2] = {named(INT), column};
    hly_mpi_type_create_struct(2, ints(lengths), wide(far), types, &rows);
    for (int64_t i = 0; i < 100000; i++) {
        int64_t element = i * 777777 % ((1ll << 22) * N), row = element / N, in = element % N;
        uintptr_t place =
            (1ull << 45) + (uint64_t)row * (1ull << 23) + (uint64_t)at[in] * 8 + (uint64_t)(i % 8);
        data[i % 4096] = (char)i;
        base = (char *)((uintptr_t)&data[i % 4096] - place);
        hly_mpi_pack_range(base, 1, rows, 4 + element * 8 + i % 8, 1, &byte);
        if (byte != (char)i)
            failures++;
    }
    CHECK(failures == 0);
    CHECK((double)(clock() - start) / CLOCKS_PER_SEC < 5);
    hly_mpi_type_free(&t);
    hly_mpi_type_free(&column);
    hly_mpi_type_free(&rows);
    free(at);
}

static void test_external(void)
{
    struct {
        long a;
        double b;
        short c;
        long double d;
        int wide;
    } had = {-2, 1.5, 0x1234, -2.5L, 0xabcd}, back;
    static const unsigned char right[] = {0xff, 0xff, 0xff, 0xfe,             /* -2 */
                                          0x3f, 0xf8, 0,    0,    0, 0, 0, 0, /* 1.5 */
                                          0x12, 0x34,                         /* short */
                                          0xc0, 0x00, 0x40, 0,    0, 0, 0, 0,
                                          0,    0,    0,    0,    0, 0, 0, 0, /* -2.5 */
                                          0xab, 0xcd};                        /* wchar */
    int lengths[5] = {1, 1, 1, 1, 1};
    int64_t at[5] = {(char *)&had.a - (char *)&had, (char *)&had.b - (char *)&had,
                     (char *)&had.c - (char *)&had, (char *)&had.d - (char *)&had,
                     (char *)&had.wide - (char *)&had},
            size, position = 1;
    struct hly_mpi_type *types[5] = {named(LONG), named(DOUBLE), named(SHORT), named(0x220),
                                     named(WCHAR)},
                        *t;
    unsigned char packed[64] = {0};
    hly_mpi_type_create_struct(5, ints(lengths), wide(at), types, &t);
    hly_mpi_type_commit(&t);
    CHECK(!hly_mpi_pack_external_size("external32", 1, t, &size) && size == sizeof(right));
    CHECK(!hly_mpi_pack_external("external32", &had, 1, t, packed, 64, &position));
    CHECK(position == size + 1 && !memcmp(packed + 1, right, sizeof(right)));
    memset(&back, 0, sizeof(back));
    position = 1;
    CHECK(!hly_mpi_unpack_external("external32", packed, 64, &position, &back, 1, t));
    CHECK(back.a == had.a && back.b == had.b && back.c == had.c && back.d == had.d &&
          back.wide == had.wide && position == size + 1);
    position = 60;
    CHECK(hly_mpi_pack_external("external32", &had, 1, t, packed, 64, &position) ==
          MPI_ERR_TRUNCATE);
    position = 0;
    had.a = 1l << 31;
    CHECK(hly_mpi_pack_external("external32", &had, 1, t, packed, 64, &position) ==
          MPI_ERR_CONVERSION);
    CHECK(hly_mpi_pack_external("native", &had, 1, t, packed, 64, &position) == MPI_ERR_ARG);
    hly_mpi_type_free(&t);
}

static void test_signature(void)
{
    struct hly_mpi_type *pairs, *records, *vector, *t, *types[2] = {named(INT), named(DOUBLE)};
    int one[2] = {1, 1}, three[3] = {3, 1, 2}, at[3] = {0, 9, 4};
    int64_t far[2] = {8, 0};
    hly_mpi_type_create_struct(2, ints(one), wide(far), types, &records);
    hly_mpi_type_contiguous(2, records, &pairs);
    CHECK(hly_mpi_signature(6, records) == hly_mpi_signature(3, pairs));
    CHECK(hly_mpi_signature(5, records) != hly_mpi_signature(3, pairs));
    hly_mpi_type_vector(2, 3, 5, named(INT), &vector);
    hly_mpi_type_indexed(3, ints(three), ints(at), named(0x250), &t);
    CHECK(vector->signature == t->signature && t->signature == hly_mpi_signature(6, named(INT)));
    CHECK(t->signature != hly_mpi_signature(6, named(FLOAT)));
    CHECK(named(INT)->signature == named(0x20d)->signature);
    CHECK(named(LONG)->signature != named(INT)->signature);
    CHECK(records->signature != hly_mpi_signature(1, named(0x229))); /* double, then int */
    CHECK(hly_mpi_signature(0, t) == hly_mpi_signature(0, records));
    CHECK(hly_mpi_signature(1ll << 60, named(INT)) != hly_mpi_signature(1ll << 59, named(INT)));
    CHECK(hly_mpi_type_untyped(named(BYTE)) && !hly_mpi_type_untyped(t));
    CHECK(t->halay == HALAY_INT32 && t->elements == 6 && !t->dense);
    CHECK(records->halay == -1 && records->elements == 2);
    hly_mpi_type_free(&pairs);
    hly_mpi_type_free(&records);
    hly_mpi_type_free(&vector);
    hly_mpi_type_free(&t);
}

static void test_bottom(void)
{
    int a = 3, length = 1, out;
    double b = 4;
    int64_t at[2];
    struct hly_mpi_type *t, *types[2] = {named(INT), named(DOUBLE)};
    int lengths[2] = {length, length};
    char packed[12];
    hly_mpi_get_address(&a, &at[0]);
    hly_mpi_get_address(&b, &at[1]);
    hly_mpi_type_create_struct(2, ints(lengths), wide(at), types, &t);
    CHECK(hly_mpi_check_data("test", MPI_BOTTOM, 1, t) == MPI_ERR_TYPE); /* not committed */
    hly_mpi_type_commit(&t);
    CHECK(!hly_mpi_check_data("test", MPI_BOTTOM, 1, t));
    CHECK(hly_mpi_check_data("test", NULL, 1, named(INT)) == MPI_ERR_BUFFER);
    CHECK(!hly_mpi_check_data("test", NULL, 0, named(INT)));
    CHECK(hly_mpi_check_data("test", &a, -1, named(INT)) == MPI_ERR_COUNT);
    CHECK(hly_mpi_check_data("test", &a, 1, NULL) == MPI_ERR_TYPE);
    hly_mpi_pack_range(MPI_BOTTOM, 1, t, 0, 12, packed);
    memcpy(&out, packed, 4);
    CHECK(out == 3);
    hly_mpi_type_free(&t);
    CHECK(t == NULL);
}

static void test_refused(void)
{
    struct hly_mpi_type *t = NULL, *deep = named(INT), *next;
    int minus = -1, zero = 0, size = 4, sub = 5, length;
    char name[MPI_MAX_OBJECT_NAME];
    CHECK(hly_mpi_type_contiguous(-1, named(INT), &t) == MPI_ERR_COUNT);
    CHECK(hly_mpi_type_contiguous(1, NULL, &t) == MPI_ERR_TYPE);
    CHECK(hly_mpi_type_indexed(1, ints(&minus), ints(&zero), named(INT), &t) == MPI_ERR_ARG);
    CHECK(hly_mpi_type_indexed(1, ints(NULL), ints(&zero), named(INT), &t) == MPI_ERR_ARG);
    CHECK(hly_mpi_type_create_subarray(1, ints(&size), ints(&sub), ints(&zero), MPI_ORDER_C,
                                       named(INT), &t) == MPI_ERR_ARG);
    CHECK(hly_mpi_type_create_subarray(1, ints(&size), ints(&size), ints(&zero), 3, named(INT),
                                       &t) == MPI_ERR_ARG);
    CHECK(hly_mpi_type_match_size(MPI_TYPECLASS_REAL, 3, &t) == MPI_ERR_ARG);
    CHECK(!hly_mpi_type_match_size(MPI_TYPECLASS_INTEGER, 8, &t) && t == named(0x2d9));
    CHECK(!hly_mpi_type_get_value_index(named(DOUBLE), named(INT), &t) && t == named(0x229));
    CHECK(!hly_mpi_type_get_value_index(named(INT), named(DOUBLE), &t) && t == NULL);
    CHECK(hly_mpi_type_free(&t) == MPI_ERR_TYPE);
    t = named(INT);
    CHECK(hly_mpi_type_free(&t) == MPI_ERR_TYPE);
    CHECK(!hly_mpi_type_get_name(named(INT), name, &length) && !strcmp(name, "MPI_INT"));
    /* Loops in loops, each with a gap of its own, until it is too deep. */
    int rc = MPI_SUCCESS, depth = 0;
    for (; !rc && depth < 5000; depth++) {
        rc = hly_mpi_type_create_resized(deep, 0,
                                         deep->true_extent < 1 << 20 ? deep->extent + 4 : 8, &t);
        if (!rc)
            rc = hly_mpi_type_vector(depth < 20 ? 2 : 1, 1, 1, t, &next);
        if (!deep->predefined)
            hly_mpi_type_free(&deep);
        hly_mpi_type_free(&t);
        deep = next;
        if (depth >= 20) {
            int one[2] = {1, 1};
            int64_t at[2] = {0, 1 << 22};
            struct hly_mpi_type *types[2] = {deep, named(SHORT)};
            rc = hly_mpi_type_create_struct(2, ints(one), wide(at), types, &next);
            if (!rc) {
                hly_mpi_type_free(&deep);
                deep = next;
            }
        }
    }
    CHECK(rc == MPI_ERR_TYPE && depth > 900);
    hly_mpi_type_free(&deep);
}

int main(void)
{
    if (hly_mpi_types_open() || hly_mpi_types_open())
        return 1;
    test_contents();
    test_large();
    test_seek();
    test_external();
    test_signature();
    test_bottom();
    test_refused();
    printf("%d failures\n", failures);
    return failures != 0;
}
