/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_reduce.c - reductions in all forms, against what each rank can compute alone: integers
 * and floating-point numbers that sum exactly, a program's operation that is not commutative, on
 * types with gaps, in place, counts of zero. A program of MPI: any library can run it.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096, BASE = 32, GAP = -77, RANKS = 64 };

static int failures, rank, size, form, checks;
static MPI_Comm comm;
static const char *what = "";
static MPI_Op affine;       /* of pairs (a, b): x -> a x + b, one function after the other */
static MPI_Datatype pair;   /* two ints */
static MPI_Datatype gapped; /* two ints with one between them, and one after */

static void fail(const char *why, int at, long long is, long long should)
{
    if (failures++ < 20)
        printf("rank %d of %d, %s, form %d: %s: [%d] is %lld, and not %lld\n", rank, size, what,
               form, why, at, is, should);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const int rc_ = (call);                                                                    \
        if (rc_)                                                                                   \
            fail(#call, 0, rc_, 0);                                                                \
    } while (0)

#define RUN(Name, name, ...)                                                                       \
    do {                                                                                           \
        MPI_Request request = MPI_REQUEST_NULL;                                                    \
        what = "MPI_" #Name;                                                                       \
        if (form == 0)                                                                             \
            TRY(MPI_##Name(__VA_ARGS__));                                                          \
        if (form == 1)                                                                             \
            TRY(MPI_I##name(__VA_ARGS__, &request));                                               \
        if (form == 2) {                                                                           \
            TRY(MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, &request));                          \
            TRY(MPI_Start(&request));                                                              \
        }                                                                                          \
        TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));                                                \
        if (form == 2)                                                                             \
            TRY(MPI_Request_free(&request));                                                       \
    } while (0)

/* One function after the other: left's ranks are lower, and act first. Wraps. */
static void compose(const uint32_t left[2], const uint32_t right[2], uint32_t out[2])
{
    out[1] = right[0] * left[1] + right[1];
    out[0] = right[0] * left[0];
}

static void affine_fn(void *in, void *inout, int *n, MPI_Datatype *type)
{
    uint32_t *left = in, *right = inout;
    MPI_Aint lb, extent;
    MPI_Type_get_extent(*type, &lb, &extent);
    const int step = (int)(extent / 4), second = step == 2 ? 1 : 2;
    for (int i = 0; i < *n; i++) {
        const uint32_t a[2] = {left[i * step], left[i * step + second]};
        const uint32_t b[2] = {right[i * step], right[i * step + second]};
        uint32_t out[2];
        compose(a, b, out);
        right[i * step] = out[0];
        right[i * step + second] = out[1];
    }
}

/* ---------------------------------------------------------------- inputs and results */

enum kind { INT_SUM, DOUBLE_SUM, INT_MAX_, SHORT_BXOR, PAIRS, GAPPED, KINDS };

static MPI_Datatype type_of(enum kind kind)
{
    const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_INT, MPI_SHORT, pair, gapped};
    return types[kind];
}

static MPI_Op op_of(enum kind kind)
{
    const MPI_Op ops[] = {MPI_SUM, MPI_SUM, MPI_MAX, MPI_BXOR, affine, affine};
    return ops[kind];
}

static int extent_of(enum kind kind)
{
    const int bytes[] = {4, 8, 4, 2, 8, 16};
    return bytes[kind];
}

static void element(int from, int k, uint32_t x[2])
{
    x[0] = (uint32_t)(2 * from + k) * 2654435761u + 1u;
    x[1] = (uint32_t)(from * 31 + k * 7);
}

static void put(enum kind kind, char *buffer, int k, const uint32_t x[2])
{
    char *at = buffer + k * extent_of(kind);
    const double d = (double)x[1];
    const int16_t s = (int16_t)x[0];
    switch (kind) {
    case DOUBLE_SUM:
        memcpy(at, &d, 8);
        break;
    case SHORT_BXOR:
        memcpy(at, &s, 2);
        break;
    case PAIRS:
        memcpy(at, x, 8);
        break;
    case GAPPED:
        memcpy(at, x, 4);
        memcpy(at + 8, x + 1, 4);
        break;
    default:
        memcpy(at, x + 1, 4);
    }
}

/* The result over the ranks first to last, as an element. */
static void result(enum kind kind, int first, int last, int k, uint32_t x[2])
{
    element(first, k, x);
    for (int r = first + 1; r <= last; r++) {
        uint32_t y[2], z[2];
        element(r, k, y);
        if (kind == PAIRS || kind == GAPPED) {
            compose(x, y, z);
        } else {
            z[0] = x[0] ^ y[0];
            z[1] = kind == INT_MAX_ ? (x[1] > y[1] ? x[1] : y[1]) : x[1] + y[1];
        }
        memcpy(x, z, sizeof(z));
    }
}

static char sent[ROOM], got[ROOM], should[ROOM];

static void check(void)
{
    checks++;
    for (int i = 0; i < ROOM; i++)
        if (got[i] != should[i]) {
            fail("byte", i, got[i], should[i]);
            return;
        }
}

/* Inputs of n elements, in `sent`, or in place in `got`; `should` becomes what `got` is. */
static void begin(enum kind kind, int n, int in_place)
{
    memset(sent, GAP, ROOM);
    memset(got, GAP, ROOM);
    memset(should, GAP, ROOM);
    for (int k = 0; k < n; k++) {
        uint32_t x[2];
        element(rank, k, x);
        put(kind, in_place ? got + BASE : sent + BASE, k, x);
        if (in_place)
            put(kind, should + BASE, k, x);
    }
}

static void expect(enum kind kind, int n, int first, int last, int from_k)
{
    for (int k = 0; k < n; k++) {
        uint32_t x[2];
        result(kind, first, last, from_k + k, x);
        put(kind, should + BASE, k, x);
    }
}

/* ---------------------------------------------------------------- the collectives */

static void try_simple(enum kind kind, int n, int in_place)
{
    const MPI_Datatype type = type_of(kind);
    const MPI_Op op = op_of(kind);
    void *in = in_place ? MPI_IN_PLACE : sent + BASE;
    begin(kind, n, in_place);
    expect(kind, n, 0, size - 1, 0);
    RUN(Allreduce, allreduce, in, got + BASE, n, type, op, comm);
    check();
    begin(kind, n, in_place);
    expect(kind, n, 0, rank, 0);
    RUN(Scan, scan, in, got + BASE, n, type, op, comm);
    check();
    begin(kind, n, in_place);
    if (rank)
        expect(kind, n, 0, rank - 1, 0);
    RUN(Exscan, exscan, in, got + BASE, n, type, op, comm);
    if (rank)
        check();
    for (int root = 0; root < size; root++) {
        begin(kind, n, in_place && rank == root);
        if (rank == root)
            expect(kind, n, 0, size - 1, 0);
        RUN(Reduce, reduce, in_place && rank == root ? MPI_IN_PLACE : (void *)(sent + BASE),
            rank == root ? got + BASE : NULL, n, type, op, root, comm);
        check();
    }
}

/* In place, what follows the result is undefined: only the result is compared. */
static void forget(enum kind kind, int n)
{
    memcpy(got + BASE + n * extent_of(kind), should + BASE + n * extent_of(kind),
           (size_t)(ROOM - BASE - n * extent_of(kind)));
}

static void try_scatters(enum kind kind, int n, int in_place)
{
    const MPI_Datatype type = type_of(kind);
    const MPI_Op op = op_of(kind);
    void *in = in_place ? MPI_IN_PLACE : sent + BASE;
    int counts[RANKS] = {0}, all = 0, first = 0;
    begin(kind, n * size, in_place);
    expect(kind, n, 0, size - 1, n * rank);
    RUN(Reduce_scatter_block, reduce_scatter_block, in, got + BASE, n, type, op, comm);
    if (in_place)
        forget(kind, n);
    check();
    for (int r = 0; r < size; r++) {
        counts[r] = (r * 2 + n) % 5;
        first = r == rank ? all : first;
        all += counts[r];
    }
    begin(kind, all, in_place);
    expect(kind, counts[rank], 0, size - 1, first);
    RUN(Reduce_scatter, reduce_scatter, in, got + BASE, counts, type, op, comm);
    if (in_place)
        forget(kind, counts[rank]);
    check();
}

static void try_all(MPI_Comm on)
{
    comm = on;
    TRY(MPI_Comm_rank(comm, &rank));
    TRY(MPI_Comm_size(comm, &size));
    for (form = 0; form < 3; form++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int n = 0; n < 12; n += n < 2 ? 1 : 3)
                for (int in_place = 0; in_place < 2; in_place++) {
                    try_simple(kind, n, in_place);
                    try_scatters(kind, n, in_place);
                }
}

int main(int argc, char **argv)
{
    MPI_Comm part;
    MPI_Datatype raw;
    int world, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    TRY(MPI_Op_create(affine_fn, 0, &affine));
    TRY(MPI_Type_contiguous(2, MPI_INT, &pair));
    TRY(MPI_Type_commit(&pair));
    TRY(MPI_Type_vector(2, 1, 2, MPI_INT, &raw));
    TRY(MPI_Type_create_resized(raw, 0, 16, &gapped));
    TRY(MPI_Type_commit(&gapped));
    TRY(MPI_Type_free(&raw));
    try_all(MPI_COMM_WORLD);
    try_all(MPI_COMM_SELF);
    TRY(MPI_Comm_split(MPI_COMM_WORLD, world % 2, -world, &part));
    try_all(part);
    TRY(MPI_Comm_free(&part));
    TRY(MPI_Type_free(&pair));
    TRY(MPI_Type_free(&gapped));
    TRY(MPI_Op_free(&affine));
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world == 0)
        printf("%d results checked on rank 0, %d failures on all ranks\n", checks, all);
    MPI_Finalize();
    return all != 0;
}
