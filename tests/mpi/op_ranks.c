/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_ranks.c - operations in collectives, on any number of ranks: predefined ones on all types, and
 * functions of the program on types with and without gaps. Each result is compared with a serial
 * one. Run by halayrun, or alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bindings/mpi/type.h"

#define ROOM (1 << 20)

static int rank, nranks, failures;
static int64_t elements; /* of a check */
static halay_comm_t *comm;
static char own[ROOM], want[ROOM], next[ROOM], got[ROOM], packed[ROOM], result[ROOM];

static void wrong(const char *what, const char *of)
{
    printf("rank %d: %s: %s\n", rank, of, what);
    failures++;
}

static struct hly_mpi_type *named(uint32_t number)
{
    return hly_mpi_predefined(HLY_MPI_TYPE, number);
}

/* ---------------------------------------------------------------- functions of the program */

static struct hly_mpi_type *called_with;

/* 2 x 2 matrices of uint32_t; the type says how far apart: its extent. */
static void multiply(const void *in, void *inout, int64_t count, const struct hly_mpi_type *type)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t *a = (const uint32_t *)((uintptr_t)in + (uintptr_t)(i * type->extent));
        uint32_t *b = (uint32_t *)((uintptr_t)inout + (uintptr_t)(i * type->extent)), c[4];
        c[0] = a[0] * b[0] + a[1] * b[2];
        c[1] = a[0] * b[1] + a[1] * b[3];
        c[2] = a[2] * b[0] + a[3] * b[2];
        c[3] = a[2] * b[1] + a[3] * b[3];
        memcpy(b, c, sizeof(c));
    }
}

/* A double at 8 and a short at 2: what lies between them stays. */
static void gaps(const void *in, void *inout, int64_t count, const struct hly_mpi_type *type)
{
    for (int64_t i = 0; i < count; i++) {
        const char *a = (const char *)((uintptr_t)in + (uintptr_t)(i * type->extent));
        char *b = (char *)((uintptr_t)inout + (uintptr_t)(i * type->extent));
        short s, t;
        *(double *)(b + 8) += *(const double *)(a + 8);
        memcpy(&s, a + 2, 2);
        memcpy(&t, b + 2, 2);
        t = s ? s : t; /* the first that is not 0: not commutative */
        memcpy(b + 2, &t, 2);
    }
}

/* 512 longs, one in each 64 bytes. */
static void sparse(const void *in, void *inout, int64_t count, const struct hly_mpi_type *type)
{
    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < 512; j++) {
            const long *a =
                (const long *)((uintptr_t)in + (uintptr_t)(i * type->extent) + 64u * (unsigned)j);
            long *b =
                (long *)((uintptr_t)inout + (uintptr_t)(i * type->extent) + 64u * (unsigned)j);
            *b = *a ? *a : *b;
        }
    }
}

static void call_op(hly_mpi_fn *fn, bool large, const void *in, void *inout, int64_t count,
                    struct hly_mpi_type *type)
{
    called_with = type;
    if (large)
        count += 0;
    ((void (*)(const void *, void *, int64_t, const struct hly_mpi_type *))(void (*)(void))fn)(
        in, inout, count, type);
}
static const struct hly_mpi_face face = {.name = "test", .call_op = call_op};

/* ---------------------------------------------------------------- comparison */

/* What a rank has: small numbers of the type's basic types; in the pairs, too. */
struct filling {
    uint64_t state;
    char *base;
};

static bool fill_run(void *arg, int basic, char *at, int64_t bytes)
{
    struct filling *filling = arg;
    const struct hly_mpi_named *is = &hly_mpi_named[basic];
    int parts = is->of_class == HLY_MPI_COMPLEX_NUMBER ? 2 : 1, size = is->size / parts,
        format = is->format >= HLY_MPI_C16 ? is->format - HLY_MPI_C16 + HLY_MPI_F16 : is->format;
    for (int64_t i = 0; i < bytes; i += size, at += size) {
        int number;
        filling->state = filling->state * 6364136223846793005ull + 1442695040888963407ull;
        number = (int)(filling->state >> 33) % 3;
        memset(at, 0, (size_t)size);
        if (format == HLY_MPI_F16) {
            uint16_t half[] = {0x0000, 0x3c00, 0xc000};
            memcpy(at, &half[number], 2);
        } else if (format == HLY_MPI_F32) {
            *(float *)at = (float)number;
        } else if (format == HLY_MPI_F64) {
            *(double *)at = number;
        } else if (format == HLY_MPI_FLONG) {
            long double f = number;
            memcpy(at, &f, 10);
        } else if (format == HLY_MPI_F128) {
            *(__float128 *)at = number;
        } else {
            at[0] = (char)number;
        }
    }
    return true;
}

/* Products of complex numbers may be -0 or +0, as the parentheses stand. */
static bool plain_run(void *arg, int basic, char *at, int64_t bytes)
{
    const struct hly_mpi_named *is = &hly_mpi_named[basic];
    int size = is->size / 2;
    (void)arg;
    for (int64_t i = 0; is->of_class == HLY_MPI_COMPLEX_NUMBER && i < bytes; i += size) {
        bool zero = is->format != HLY_MPI_CLONG || !(at[i + 9] & 0x7f);
        int last = is->format == HLY_MPI_CLONG ? 9 : size - 1;
        for (int b = 0; b < last; b++)
            zero = zero && !at[i + b];
        if (zero && !(at[i + last] & 0x7f))
            at[i + last] = 0;
    }
    return true;
}

static void fill(char *memory, const struct hly_mpi_type *type, int of_rank, char *base)
{
    struct filling filling = {(uint64_t)of_rank * 977 + (uint64_t)type->size, memory};
    memset(memory, 0, ROOM);
    hly_mpi_type_walk(type, (uintptr_t)base, elements, fill_run, &filling);
}

static void check(const char *name, struct hly_mpi_op *op, struct hly_mpi_type *type)
{
    int64_t middle = ROOM / 2, each, bytes;
    halay_op_t found;
    halay_type_t as;
    int rc;
    elements = type->extent > 4096 ? 9 : 301;
    bytes = elements * type->size;
    /* The ranks' elements in order, by MPI_Reduce_local: in op inout, into the right one. */
    fill(want, type, 0, want + middle);
    for (int r = 1; r < nranks; r++) {
        fill(next, type, r, next + middle);
        if (hly_mpi_reduce_local(want + middle, next + middle, elements, type, op))
            wrong("MPI_Reduce_local", name);
        memcpy(want, next, ROOM);
    }
    fill(own, type, rank, own + middle);
    memset(got, 0, ROOM);
    rc = hly_mpi_op_find("MPI_Allreduce", op, type, &found, &as, &each);
    if (rc) {
        wrong("hly_mpi_op_find", name);
        return;
    }
    hly_mpi_pack_range(own + middle, elements, type, 0, bytes, packed);
    rc = halay_allreduce(packed, result, (size_t)(elements * each), as, found, comm);
    hly_mpi_op_done(found);
    if (rc) {
        halay_verdict_t verdict = {.size = sizeof(verdict)};
        halay_comm_verdict(comm, &verdict);
        wrong(verdict.text, name);
        return;
    }
    hly_mpi_unpack_range(got + middle, elements, type, 0, bytes, result);
    /* long double has 6 bytes that mean nothing */
    if (type->made->shape.unit >= 0 &&
        strstr(hly_mpi_named[type->made->shape.unit].name, "LONG_DOUBLE")) {
        for (int64_t i = 0; i < elements * type->extent; i++) {
            if (i % 16 >= 10)
                got[middle + i] = want[middle + i] = 0;
        }
    }
    hly_mpi_type_walk(type, (uintptr_t)(got + middle), elements, plain_run, NULL);
    hly_mpi_type_walk(type, (uintptr_t)(want + middle), elements, plain_run, NULL);
    if (memcmp(got, want, ROOM))
        wrong("another result", name);
}

static void check_predefined(void)
{
    for (uint32_t number = 0x21; number < 0x3a; number++) {
        struct hly_mpi_op *op = hly_mpi_predefined(HLY_MPI_OP, number);
        for (int place = 0; op && place < hly_mpi_named_count; place++) {
            char name[80];
            snprintf(name, sizeof(name), "op %#x of %s", number, hly_mpi_named[place].name);
            if (hly_mpi_op_kernel(number, place))
                check(name, op, named(hly_mpi_named[place].number));
        }
    }
}

static struct hly_mpi_op *user(void (*fn)(const void *, void *, int64_t,
                                          const struct hly_mpi_type *),
                               int commute, bool large)
{
    struct hly_mpi_op *op = NULL;
    int rc = large ? hly_mpi_op_create_c((hly_mpi_fn *)(void (*)(void))fn, commute, &op)
                   : hly_mpi_op_create((hly_mpi_fn *)(void (*)(void))fn, commute, &op);
    if (rc)
        exit(1);
    op->head.face = &face;
    return op;
}

static void check_user(void)
{
    struct hly_mpi_op *product = user(multiply, 0, false), *mixed = user(gaps, 0, true),
                      *minus = user(sparse, 0, false);
    struct hly_mpi_type *matrix, *apart, *record, *far, *reversed, *big;
    int one[2] = {1, 1};
    int64_t at[2] = {2, 8};
    struct hly_mpi_type *types[2] = {named(0x208), named(0x214)};
    halay_op_t found;
    halay_type_t as;
    int64_t each;
    hly_mpi_type_contiguous(4, named(0x251), &matrix);
    hly_mpi_type_create_resized(matrix, 0, 48, &apart);
    hly_mpi_type_create_resized(matrix, 0, -32, &reversed);
    hly_mpi_type_create_struct(2, (struct hly_mpi_ints){one, false},
                               (struct hly_mpi_ints){at, true}, types, &record);
    hly_mpi_type_create_hvector(512, 1, 64, named(0x20a), &far);
    hly_mpi_type_contiguous(513, named(0x20a), &big);
    struct hly_mpi_type *all[] = {matrix, apart, reversed, record, far, big};
    for (int i = 0; i < 6; i++)
        hly_mpi_type_commit(&all[i]);
    check("matrices", product, matrix);
    check("matrices with gaps", product, apart);
    check("matrices that go down", product, reversed);
    check("records", mixed, record);
    if (nranks > 1 && called_with != record)
        wrong("called with another type", "records");
    check("long elements", minus, far);
    if (hly_mpi_op_find("MPI_Allreduce", product, big, &found, &as, &each) != MPI_ERR_OP)
        wrong("an element of more than 4096 bytes was not refused", "big");
    if (hly_mpi_op_find_alone("MPI_Allreduce", product, big, &found, &as, &each) ||
        halay_type_bytes(as) * (size_t)each != (size_t)big->size ||
        hly_mpi_op_find_alone("MPI_Allreduce", hly_mpi_predefined(HLY_MPI_OP, 0x21), matrix, &found,
                              &as, &each) != MPI_ERR_OP)
        wrong("hly_mpi_op_find_alone", "big");
    hly_mpi_op_free(&product);
    hly_mpi_op_free(&mixed);
    hly_mpi_op_free(&minus);
    for (int i = 0; i < 6; i++)
        hly_mpi_type_free(&all[i]);
}

/* A program that makes and frees operations and types for ever uses the same few of Halay's. */
static void check_many(void)
{
    for (int i = 0; i < 300; i++) {
        struct hly_mpi_op *op = user(multiply, i % 2 ? 0 : 1, false);
        struct hly_mpi_type *matrix;
        halay_op_t found;
        halay_type_t as;
        int64_t each;
        hly_mpi_type_contiguous(4 * (1 + i % 250), named(0x251), &matrix);
        hly_mpi_type_commit(&matrix);
        if (hly_mpi_op_find("MPI_Allreduce", op, matrix, &found, &as, &each))
            wrong("hly_mpi_op_find", "many operations");
        else
            hly_mpi_op_done(found);
        hly_mpi_type_free(&matrix);
        hly_mpi_op_free(&op);
    }
    for (int i = 0; i < 3000; i++) {
        struct hly_mpi_op *op = user(multiply, 0, false);
        struct hly_mpi_type *matrix;
        hly_mpi_type_contiguous(4, named(0x251), &matrix);
        hly_mpi_type_commit(&matrix);
        if (i % 100 == 0)
            check("many operations", op, matrix);
        hly_mpi_type_free(&matrix);
        hly_mpi_op_free(&op);
    }
}

/* Each rank makes and uses its operations in an order of its own: some alone, some together. */
static void check_orders(void)
{
    struct hly_mpi_op *ops[4];
    struct hly_mpi_type *matrix;
    halay_comm_t *own_comm, *world = comm;
    const int ranks = nranks, me = rank;
    hly_mpi_type_contiguous(4, named(0x251), &matrix);
    hly_mpi_type_commit(&matrix);
    if (halay_comm_split(world, rank, 0, &own_comm)) {
        wrong("halay_comm_split", "orders");
        return;
    }
    for (int i = 0; i < 4; i++)
        ops[(i + rank) % 4] = user(multiply, 0, false);
    comm = own_comm;
    nranks = 1;
    rank = 0;
    for (int i = 0; i <= me % 4; i++)
        check("alone", ops[3 - i], matrix);
    comm = world;
    rank = me;
    nranks = ranks;
    for (int i = 0; i < 4; i++)
        check("together", ops[i], matrix);
    for (int i = 0; i < 4; i++)
        hly_mpi_op_free(&ops[i]);
    hly_mpi_type_free(&matrix);
    halay_comm_free(own_comm);
}

int main(void)
{
    int all;
    if (hly_mpi_types_open() || hly_mpi_ops_open() || halay_init(NULL, &hly_mpi_job.context) ||
        halay_comm_world(hly_mpi_job.context, &comm))
        return 1;
    halay_comm_rank(comm, &rank);
    halay_comm_size(comm, &nranks);
    check_user();
    check_predefined();
    check_user();
    check_many();
    check_orders();
    all = failures;
    if (halay_allreduce(&failures, &all, 1, HALAY_INT32, HALAY_MAX, comm))
        all = 1;
    hly_mpi_ops_leave();
    halay_finalize(hly_mpi_job.context);
    if (rank == 0)
        printf("%d ranks, %d failures\n", nranks, all);
    return all != 0;
}
