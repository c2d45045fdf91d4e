/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_move.c - the collectives that move data, against what each rank can compute alone: all
 * forms, types with and without gaps, other types on the receiving side, in place, any root, on
 * several communicators. A program of MPI: any library can run it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYOUTS = 5, ROOM = 1 << 15, BASE = 64, GAP = -77 };

static struct layout {
    MPI_Datatype type;
    int n, at[3], extent; /* its ints, and where they are; the next element */
} layouts[LAYOUTS] = {
    {.n = 1, .at = {0}, .extent = 1},     {.n = 3, .at = {0, 1, 2}, .extent = 3},
    {.n = 2, .at = {0, 2}, .extent = 5},  {.n = 3, .at = {3, 1, 0}, .extent = 4},
    {.n = 2, .at = {-2, 1}, .extent = 4},
};
static int failures, rank, size, form, checks;
static MPI_Comm comm;
static const char *what = "";
static int sent[ROOM], got[ROOM];

static void fail(const char *why, int at, int is, int should)
{
    if (failures++ < 20)
        printf("rank %d of %d, %s, form %d: %s: [%d] is %d, and not %d\n", rank, size, what, form,
               why, at, is, should);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const int rc_ = (call);                                                                    \
        if (rc_)                                                                                   \
            fail(#call, 0, rc_, 0);                                                                \
    } while (0)

/* Makes the call in the form that is tried. A persistent one is started twice, where it gives the
 * same result again. */
#define RUN(Name, name, again, ...)                                                                \
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
            if (again) {                                                                           \
                TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));                                        \
                TRY(MPI_Start(&request));                                                          \
            }                                                                                      \
        }                                                                                          \
        TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));                                                \
        if (form == 2)                                                                             \
            TRY(MPI_Request_free(&request));                                                       \
    } while (0)

static int value(int from, int to, int k)
{
    return from * 1000003 + to * 10007 + k * 7 + 1;
}

static void clear(int *buffer)
{
    for (int i = 0; i < ROOM; i++)
        buffer[i] = GAP;
}

/* Where the k-th int of a block is. */
static int place(const struct layout *l, int first, int k)
{
    return first + k / l->n * l->extent + l->at[k % l->n];
}

static void put(int *buffer, const struct layout *l, int first, int n, int from, int to)
{
    for (int k = 0; k < n; k++)
        buffer[place(l, first, k)] = value(from, to, k);
}

/* Is a block there? Takes it away, so that check_rest() finds what was written beside. */
static void take(int *buffer, const struct layout *l, int first, int n, int from, int to)
{
    for (int k = 0; k < n; k++, checks++) {
        int *at = &buffer[place(l, first, k)];
        if (*at != value(from, to, k))
            fail("a block", k, *at, value(from, to, k));
        *at = GAP;
    }
}

static void check_rest(const int *buffer)
{
    for (int i = 0; i < ROOM; i++)
        if (buffer[i] != GAP)
            fail("beside the blocks", i, buffer[i], GAP);
}

/* ---------------------------------------------------------------- blocks of one size */

static void try_bcast(int root, const struct layout *a, const struct layout *b, int n)
{
    const struct layout *l = rank == root ? a : b;
    clear(got);
    if (rank == root)
        put(got, l, BASE, n, root, 5);
    RUN(Bcast, bcast, 1, got + BASE, n / l->n, l->type, root, comm);
    take(got, l, BASE, n, root, 5);
    check_rest(got);
}

static void try_gather(int root, const struct layout *a, const struct layout *b, int n,
                       int in_place)
{
    const int block = n / b->n * b->extent, keeps = in_place && rank == root;
    clear(sent);
    clear(got);
    put(sent, a, BASE, n, rank, root);
    if (keeps)
        put(got, b, BASE + rank * block, n, rank, root);
    RUN(Gather, gather, 1, keeps ? MPI_IN_PLACE : (void *)(sent + BASE), keeps ? -5 : n / a->n,
        keeps ? MPI_DATATYPE_NULL : a->type, rank == root ? got + BASE : NULL,
        rank == root ? n / b->n : -1, rank == root ? b->type : MPI_DATATYPE_NULL, root, comm);
    for (int r = 0; rank == root && r < size; r++)
        take(got, b, BASE + r * block, n, r, root);
    check_rest(got);
}

static void try_scatter(int root, const struct layout *a, const struct layout *b, int n,
                        int in_place)
{
    const int block = n / a->n * a->extent, keeps = in_place && rank == root;
    clear(sent);
    clear(got);
    for (int r = 0; rank == root && r < size; r++)
        put(sent, a, BASE + r * block, n, root, r);
    RUN(Scatter, scatter, 1, rank == root ? sent + BASE : NULL, rank == root ? n / a->n : -1,
        rank == root ? a->type : MPI_DATATYPE_NULL, keeps ? MPI_IN_PLACE : (void *)(got + BASE),
        keeps ? -5 : n / b->n, keeps ? MPI_DATATYPE_NULL : b->type, root, comm);
    if (!keeps)
        take(got, b, BASE, n, root, rank);
    check_rest(got);
    for (int r = 0; rank == root && r < size; r++)
        take(sent, a, BASE + r * block, n, root, r);
    check_rest(sent);
}

static void try_allgather(const struct layout *a, const struct layout *b, int n, int in_place)
{
    const int block = n / b->n * b->extent;
    clear(sent);
    clear(got);
    put(sent, a, BASE, n, rank, 1);
    if (in_place)
        put(got, b, BASE + rank * block, n, rank, 1);
    RUN(Allgather, allgather, 1, in_place ? MPI_IN_PLACE : (void *)(sent + BASE),
        in_place ? -3 : n / a->n, in_place ? MPI_DATATYPE_NULL : a->type, got + BASE, n / b->n,
        b->type, comm);
    for (int r = 0; r < size; r++)
        take(got, b, BASE + r * block, n, r, 1);
    check_rest(got);
}

static void try_alltoall(const struct layout *a, const struct layout *b, int n, int in_place)
{
    const int from = n / a->n * a->extent, to = n / b->n * b->extent;
    clear(sent);
    clear(got);
    for (int r = 0; r < size; r++) {
        put(sent, a, BASE + r * from, n, rank, r);
        if (in_place)
            put(got, b, BASE + r * to, n, rank, r);
    }
    RUN(Alltoall, alltoall, !in_place, in_place ? MPI_IN_PLACE : (void *)(sent + BASE),
        in_place ? -3 : n / a->n, in_place ? MPI_DATATYPE_NULL : a->type, got + BASE, n / b->n,
        b->type, comm);
    for (int r = 0; r < size; r++)
        take(got, b, BASE + r * to, n, r, rank);
    check_rest(got);
}

/* ---------------------------------------------------------------- blocks of any size */

enum { RANKS = 64 };

/* Ints between two ranks: a multiple of 6, so that all layouts fit. */
static int ints(int from, int to)
{
    return 6 * ((from * 3 + to * 5 + 1) % 4);
}

/* Places of blocks of these many ints, in reverse order, with room between; in elements. */
static void lay_out(const struct layout *l, const int n[], int counts[], int displs[])
{
    int next = 1;
    for (int r = size - 1; r >= 0; r--) {
        counts[r] = n[r] / l->n;
        displs[r] = next;
        next += counts[r] + 1;
    }
}

static void try_gatherv(int root, const struct layout *a, const struct layout *b, int in_place)
{
    int n[RANKS] = {0}, counts[RANKS], displs[RANKS];
    const int keeps = in_place && rank == root;
    for (int r = 0; r < size; r++)
        n[r] = ints(r, root);
    lay_out(b, n, counts, displs);
    clear(sent);
    clear(got);
    put(sent, a, BASE, n[rank], rank, root);
    if (keeps)
        put(got, b, BASE + displs[rank] * b->extent, n[rank], rank, root);
    RUN(Gatherv, gatherv, 1, keeps ? MPI_IN_PLACE : (void *)(sent + BASE),
        keeps ? 0 : n[rank] / a->n, keeps ? MPI_DATATYPE_NULL : a->type,
        rank == root ? got + BASE : NULL, rank == root ? counts : NULL,
        rank == root ? displs : NULL, rank == root ? b->type : MPI_DATATYPE_NULL, root, comm);
    for (int r = 0; rank == root && r < size; r++)
        take(got, b, BASE + displs[r] * b->extent, n[r], r, root);
    check_rest(got);
}

static void try_scatterv(int root, const struct layout *a, const struct layout *b, int in_place)
{
    int n[RANKS] = {0}, counts[RANKS], displs[RANKS];
    const int keeps = in_place && rank == root;
    for (int r = 0; r < size; r++)
        n[r] = ints(root, r);
    lay_out(a, n, counts, displs);
    clear(sent);
    clear(got);
    for (int r = 0; rank == root && r < size; r++)
        put(sent, a, BASE + displs[r] * a->extent, n[r], root, r);
    RUN(Scatterv, scatterv, 1, rank == root ? sent + BASE : NULL, rank == root ? counts : NULL,
        rank == root ? displs : NULL, rank == root ? a->type : MPI_DATATYPE_NULL,
        keeps ? MPI_IN_PLACE : (void *)(got + BASE), keeps ? 0 : n[rank] / b->n,
        keeps ? MPI_DATATYPE_NULL : b->type, root, comm);
    if (!keeps)
        take(got, b, BASE, n[rank], root, rank);
    check_rest(got);
}

static void try_allgatherv(const struct layout *a, const struct layout *b, int in_place)
{
    int n[RANKS] = {0}, counts[RANKS], displs[RANKS];
    for (int r = 0; r < size; r++)
        n[r] = ints(r, 2);
    lay_out(b, n, counts, displs);
    clear(sent);
    clear(got);
    put(sent, a, BASE, n[rank], rank, 2);
    if (in_place)
        put(got, b, BASE + displs[rank] * b->extent, n[rank], rank, 2);
    RUN(Allgatherv, allgatherv, 1, in_place ? MPI_IN_PLACE : (void *)(sent + BASE),
        in_place ? 0 : n[rank] / a->n, in_place ? MPI_DATATYPE_NULL : a->type, got + BASE, counts,
        displs, b->type, comm);
    for (int r = 0; r < size; r++)
        take(got, b, BASE + displs[r] * b->extent, n[r], r, 2);
    check_rest(got);
}

static void try_alltoallv(const struct layout *a, const struct layout *b, int in_place)
{
    int n[RANKS] = {0}, m[RANKS] = {0}, counts[RANKS], displs[RANKS], rcounts[RANKS],
        rdispls[RANKS];
    for (int r = 0; r < size; r++) {
        m[r] = in_place ? ints(r < rank ? r : rank, r < rank ? rank : r) : ints(r, rank);
        n[r] = in_place ? m[r] : ints(rank, r);
    }
    lay_out(a, n, counts, displs);
    lay_out(b, m, rcounts, rdispls);
    clear(sent);
    clear(got);
    for (int r = 0; r < size; r++) {
        put(sent, a, BASE + displs[r] * a->extent, n[r], rank, r);
        if (in_place)
            put(got, b, BASE + rdispls[r] * b->extent, m[r], rank, r);
    }
    RUN(Alltoallv, alltoallv, !in_place, in_place ? MPI_IN_PLACE : (void *)(sent + BASE),
        in_place ? NULL : counts, in_place ? NULL : displs, in_place ? MPI_DATATYPE_NULL : a->type,
        got + BASE, rcounts, rdispls, b->type, comm);
    for (int r = 0; r < size; r++)
        take(got, b, BASE + rdispls[r] * b->extent, m[r], r, rank);
    check_rest(got);
}

/* Each pair of ranks has its own types; displacements are bytes. */
static void try_alltoallw(int in_place)
{
    int counts[RANKS], displs[RANKS], rcounts[RANKS], rdispls[RANKS], next = 8, rnext = 8;
    MPI_Datatype types[RANKS], rtypes[RANKS];
    const struct layout *from[RANKS], *to[RANKS];
    clear(sent);
    clear(got);
    for (int r = 0; r < size; r++) {
        const int low = r < rank ? r : rank, high = r < rank ? rank : r;
        from[r] = &layouts[(rank + 2 * r) % LAYOUTS];
        to[r] = &layouts[in_place ? (low + high) % LAYOUTS : (r * 3 + rank) % LAYOUTS];
        const int n = ints(rank, r), m = in_place ? ints(low, high) : ints(r, rank);
        counts[r] = n / from[r]->n;
        displs[r] = next * (int)sizeof(int);
        types[r] = from[r]->type;
        next += counts[r] * from[r]->extent + 8;
        rcounts[r] = m / to[r]->n;
        rdispls[r] = rnext * (int)sizeof(int);
        rtypes[r] = to[r]->type;
        rnext += rcounts[r] * to[r]->extent + 8;
        put(sent, from[r], BASE + displs[r] / (int)sizeof(int), n, rank, r);
        if (in_place)
            put(got, to[r], BASE + rdispls[r] / (int)sizeof(int), m, rank, r);
    }
    RUN(Alltoallw, alltoallw, !in_place, in_place ? MPI_IN_PLACE : (void *)(sent + BASE),
        in_place ? NULL : counts, in_place ? NULL : displs, in_place ? NULL : types, got + BASE,
        rcounts, rdispls, rtypes, comm);
    for (int r = 0; r < size; r++)
        take(got, to[r], BASE + rdispls[r] / (int)sizeof(int), rcounts[r] * to[r]->n, r, rank);
    check_rest(got);
}

/* ---------------------------------------------------------------- all of them */

static void make_layouts(void)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct layout *l = &layouts[i];
        MPI_Aint at[3];
        const int ones[3] = {1, 1, 1};
        MPI_Datatype raw;
        for (int k = 0; k < l->n; k++)
            at[k] = l->at[k] * (MPI_Aint)sizeof(int);
        if (i == 0) {
            l->type = MPI_INT;
            continue;
        }
        TRY(MPI_Type_create_hindexed(l->n, ones, at, MPI_INT, &raw));
        TRY(MPI_Type_create_resized(raw, 0, l->extent * (MPI_Aint)sizeof(int), &l->type));
        TRY(MPI_Type_commit(&l->type));
        TRY(MPI_Type_free(&raw));
    }
}

static void try_pair(const struct layout *a, const struct layout *b)
{
    for (int n = 0; n <= 24; n += 6) {
        for (int in_place = 0; in_place < 2; in_place++) {
            try_allgather(a, b, n, in_place);
            try_alltoall(a, b, n, in_place);
            for (int root = 0; root < size; root += n == 6 ? 1 : 3) {
                try_gather(root, a, b, n, in_place);
                try_scatter(root, a, b, n, in_place);
            }
        }
        for (int root = 0; root < size; root++)
            try_bcast(root, a, b, n);
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        try_allgatherv(a, b, in_place);
        try_alltoallv(a, b, in_place);
        for (int root = 0; root < size; root++) {
            try_gatherv(root, a, b, in_place);
            try_scatterv(root, a, b, in_place);
        }
    }
}

static void try_all(MPI_Comm on)
{
    comm = on;
    TRY(MPI_Comm_rank(comm, &rank));
    TRY(MPI_Comm_size(comm, &size));
    for (form = 0; form < 3; form++) {
        MPI_Request request = MPI_REQUEST_NULL;
        for (int a = 0; a < LAYOUTS; a++)
            for (int b = 0; b < LAYOUTS; b++)
                try_pair(&layouts[a], &layouts[b]);
        try_alltoallw(0);
        try_alltoallw(1);
        what = "MPI_Barrier";
        if (form == 0)
            TRY(MPI_Barrier(comm));
        if (form == 1)
            TRY(MPI_Ibarrier(comm, &request));
        if (form == 2) {
            TRY(MPI_Barrier_init(comm, MPI_INFO_NULL, &request));
            TRY(MPI_Start(&request));
        }
        TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
        if (form == 2)
            TRY(MPI_Request_free(&request));
    }
}

int main(int argc, char **argv)
{
    MPI_Comm part;
    int world, all;
    MPI_Init(&argc, &argv);
    make_layouts();
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    try_all(MPI_COMM_WORLD);
    try_all(MPI_COMM_SELF);
    TRY(MPI_Comm_split(MPI_COMM_WORLD, world % 2, -world, &part));
    try_all(part);
    TRY(MPI_Comm_free(&part));
    for (int i = 1; i < LAYOUTS; i++)
        TRY(MPI_Type_free(&layouts[i].type));
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world == 0)
        printf("%d values checked on rank 0, %d failures on all ranks\n", checks, all);
    MPI_Finalize();
    return all != 0;
}
