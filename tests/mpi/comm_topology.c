/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_topology.c - grids, graphs and neighbourhood collectives: each block that arrives names its
 * sender, its receiver and its place. A program of MPI: any library can run it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };
static int failures, rank, size;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            printf("rank %d of %d: line %d: %s\n", rank, size, __LINE__, #condition);              \
        }                                                                                          \
    } while (0)
#define TRY(call) CHECK((call) == MPI_SUCCESS)

/* ---------------------------------------------------------------- neighbourhoods */

/* nin neighbours, and which block of theirs is the one from them; the same for those it sends to.
 */
struct hood {
    int nin, nout, in[MOST], block[MOST], out[MOST];
};

static int word(int from, int block, int k)
{
    return from * 10000 + block * 100 + k;
}

static void finish(int form, MPI_Request *request)
{
    if (form == 2) {
        TRY(MPI_Start(request));
        TRY(MPI_Wait(request, MPI_STATUS_IGNORE));
        TRY(MPI_Start(request));
    }
    TRY(MPI_Wait(request, MPI_STATUS_IGNORE));
    if (form == 2)
        TRY(MPI_Request_free(request));
}

#define RUN(form, name, ...)                                                                       \
    do {                                                                                           \
        MPI_Request request = MPI_REQUEST_NULL;                                                    \
        if (form == 0)                                                                             \
            TRY(MPI_N##name(__VA_ARGS__));                                                         \
        if (form == 1)                                                                             \
            TRY(MPI_In##name(__VA_ARGS__, &request));                                              \
        if (form == 2)                                                                             \
            TRY(MPI_N##name##_init(__VA_ARGS__, MPI_INFO_NULL, &request));                         \
        finish(form, &request);                                                                    \
    } while (0)

enum { LONGEST = 4 };

static void try_equal(MPI_Comm comm, const struct hood *h, int form)
{
    int sent[MOST * 2], got[MOST * 2];
    memset(got, -1, sizeof(got));
    for (int i = 0; i < 2; i++)
        sent[i] = word(rank, 0, i);
    RUN(form, eighbor_allgather, sent, 2, MPI_INT, got, 2, MPI_INT, comm);
    for (int i = 0; i < h->nin; i++)
        for (int k = 0; k < 2; k++)
            CHECK(got[2 * i + k] == (h->in[i] < 0 ? -1 : word(h->in[i], 0, k)));
    CHECK(got[2 * h->nin] == -1);
    memset(got, -1, sizeof(got));
    for (int i = 0; i < h->nout; i++)
        for (int k = 0; k < 2; k++)
            sent[2 * i + k] = word(rank, i, k);
    RUN(form, eighbor_alltoall, sent, 2, MPI_INT, got, 2, MPI_INT, comm);
    for (int i = 0; i < h->nin; i++)
        for (int k = 0; k < 2; k++)
            CHECK(got[2 * i + k] == (h->in[i] < 0 ? -1 : word(h->in[i], h->block[i], k)));
    CHECK(got[2 * h->nin] == -1);
}

/* How long a block between two ranks is. */
static int length(int from, int to)
{
    return 1 + (from + 2 * to) % (LONGEST - 1);
}

static void try_vectors(MPI_Comm comm, const struct hood *h, int form)
{
    int sent[MOST * LONGEST], got[MOST * LONGEST], counts[MOST], displs[MOST], rcounts[MOST],
        rdispls[MOST];
    MPI_Datatype types[MOST];
    MPI_Aint bytes[MOST], rbytes[MOST];
    for (int i = 0; i < h->nout; i++) {
        counts[i] = h->out[i] < 0 ? 1 : length(rank, h->out[i]);
        displs[i] = (h->nout - 1 - i) * LONGEST;
        bytes[i] = displs[i] * (MPI_Aint)sizeof(int);
        for (int k = 0; k < LONGEST; k++)
            sent[displs[i] + k] = word(rank, i, k);
    }
    for (int i = 0; i < h->nin; i++) {
        rcounts[i] = h->in[i] < 0 ? 1 : length(h->in[i], rank);
        rdispls[i] = (h->nin - 1 - i) * LONGEST;
        rbytes[i] = rdispls[i] * (MPI_Aint)sizeof(int);
    }
    for (int i = 0; i < MOST; i++)
        types[i] = MPI_INT;
    for (int w = 0; w < 2; w++) {
        memset(got, -1, sizeof(got));
        if (w)
            RUN(form, eighbor_alltoallw, sent, counts, bytes, types, got, rcounts, rbytes, types,
                comm);
        else
            RUN(form, eighbor_alltoallv, sent, counts, displs, MPI_INT, got, rcounts, rdispls,
                MPI_INT, comm);
        for (int i = 0; i < h->nin; i++)
            for (int k = 0; k < LONGEST; k++)
                CHECK(got[rdispls[i] + k] ==
                      (h->in[i] < 0 || k >= rcounts[i] ? -1 : word(h->in[i], h->block[i], k)));
    }
    /* Each rank sends 2 ints to all its neighbours. */
    for (int i = 0; i < h->nin; i++)
        rcounts[i] = 2;
    memset(got, -1, sizeof(got));
    RUN(form, eighbor_allgatherv, sent, 2, MPI_INT, got, rcounts, rdispls, MPI_INT, comm);
    int first[2] = {sent[0], sent[1]}, all[2 * MOST];
    TRY(MPI_Allgather(first, 2, MPI_INT, all, 2, MPI_INT, comm));
    for (int i = 0; i < h->nin; i++)
        for (int k = 0; k < 2; k++)
            CHECK(got[rdispls[i] + k] == (h->in[i] < 0 ? -1 : all[2 * h->in[i] + k]));
}

static void try_hood(MPI_Comm comm, const struct hood *h)
{
    TRY(MPI_Comm_rank(comm, &rank));
    for (int form = 0; form < 3; form++) {
        try_equal(comm, h, form);
        if (h->nout)
            try_vectors(comm, h, form);
    }
    TRY(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
}

/* ---------------------------------------------------------------- grids */

static void try_grid(int ndims, const int dims[], const int periods[])
{
    MPI_Comm cart, sub;
    int n = 1, status, got[3][4], at, back, coords[4], world = rank;
    struct hood h = {0};
    for (int i = 0; i < ndims; i++)
        n *= dims[i];
    TRY(MPI_Cart_map(MPI_COMM_WORLD, ndims, dims, periods, &at));
    CHECK((at == MPI_UNDEFINED) == (rank >= n));
    TRY(MPI_Cart_create(MPI_COMM_WORLD, ndims, dims, periods, 0, &cart));
    CHECK((cart == MPI_COMM_NULL) == (rank >= n));
    if (cart == MPI_COMM_NULL)
        return;
    TRY(MPI_Topo_test(cart, &status));
    CHECK(status == MPI_CART);
    TRY(MPI_Cartdim_get(cart, &status));
    CHECK(status == ndims);
    TRY(MPI_Cart_get(cart, ndims, got[0], got[1], got[2]));
    for (int r = 0; r < n; r++) {
        TRY(MPI_Cart_coords(cart, r, ndims, coords));
        TRY(MPI_Cart_rank(cart, coords, &back));
        CHECK(back == r);
    }
    TRY(MPI_Cart_coords(cart, world, ndims, coords));
    for (int i = 0; i < ndims; i++) {
        CHECK(got[0][i] == dims[i] && !got[1][i] == !periods[i] && got[2][i] == coords[i]);
        TRY(MPI_Cart_shift(cart, i, 1, &h.in[2 * i], &h.in[2 * i + 1]));
        /* What comes from below was sent upwards. */
        h.block[2 * i] = 2 * i + 1;
        h.block[2 * i + 1] = 2 * i;
        h.out[2 * i] = h.in[2 * i];
        h.out[2 * i + 1] = h.in[2 * i + 1];
        if (periods[i]) {
            coords[i] += dims[i];
            TRY(MPI_Cart_rank(cart, coords, &back));
            CHECK(back == world);
            coords[i] -= dims[i];
        }
    }
    h.nin = h.nout = 2 * ndims;
    try_hood(cart, &h);
    for (int keep = 1; keep < 1 << ndims; keep++) {
        int remain[4], left = 0, expected = 1;
        for (int i = 0; i < ndims; i++) {
            remain[i] = keep >> i & 1;
            left += remain[i];
            expected *= remain[i] ? dims[i] : 1;
        }
        TRY(MPI_Cart_sub(cart, remain, &sub));
        TRY(MPI_Comm_size(sub, &status));
        CHECK(status == expected);
        TRY(MPI_Cartdim_get(sub, &status));
        CHECK(status == left);
        TRY(MPI_Comm_free(&sub));
    }
    TRY(MPI_Comm_dup(cart, &sub));
    TRY(MPI_Topo_test(sub, &status));
    CHECK(status == MPI_CART);
    TRY(MPI_Comm_free(&sub));
    TRY(MPI_Comm_free(&cart));
}

static void try_dims(void)
{
    const struct {
        int n, ndims, given[3], result[3];
    } cases[] = {
        {6, 2, {0, 0}, {3, 2}},        {7, 2, {0, 0}, {7, 1}},        {6, 3, {0, 3, 0}, {2, 3, 1}},
        {12, 2, {0, 0}, {4, 3}},       {60, 3, {0, 0, 0}, {5, 4, 3}}, {1, 3, {0, 0, 0}, {1, 1, 1}},
        {64, 3, {0, 0, 0}, {4, 4, 4}}, {36, 2, {0, 0}, {6, 6}},       {24, 3, {0, 0, 0}, {4, 3, 2}},
        {30, 3, {0, 5, 0}, {3, 5, 2}}, {72, 3, {0, 0, 0}, {6, 4, 3}}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int dims[3];
        memcpy(dims, cases[i].given, sizeof(dims));
        TRY(MPI_Dims_create(cases[i].n, cases[i].ndims, dims));
        for (int k = 0; k < cases[i].ndims; k++)
            CHECK(dims[k] == cases[i].result[k]);
    }
    int dims[2] = {4, 0};
    CHECK(MPI_Dims_create(6, 2, dims) != MPI_SUCCESS);
}

/* ---------------------------------------------------------------- graphs */

/* A ring with a chord from each rank to itself. */
static void try_graph(void)
{
    MPI_Comm graph;
    int indx[MOST], edges[4 * MOST], n, m, got[4 * MOST], status;
    struct hood h = {.nin = 3, .nout = 3};
    for (int r = 0; r < size; r++) {
        indx[r] = 3 * (r + 1);
        edges[3 * r] = (r + size - 1) % size;
        edges[3 * r + 1] = (r + 1) % size;
        edges[3 * r + 2] = r;
    }
    TRY(MPI_Graph_create(MPI_COMM_WORLD, size, indx, edges, 0, &graph));
    TRY(MPI_Topo_test(graph, &status));
    CHECK(status == MPI_GRAPH);
    TRY(MPI_Graphdims_get(graph, &n, &m));
    CHECK(n == size && m == 3 * size);
    TRY(MPI_Graph_get(graph, size, 3 * size, got, got + size));
    for (int i = 0; i < size; i++)
        CHECK(got[i] == indx[i]);
    for (int i = 0; i < 3 * size; i++)
        CHECK(got[size + i] == edges[i]);
    TRY(MPI_Graph_neighbors_count(graph, rank, &n));
    CHECK(n == 3);
    TRY(MPI_Graph_neighbors(graph, rank, 3, got));
    for (int i = 0; i < 3; i++)
        h.in[i] = h.out[i] = got[i];
    /* With three ranks or more each pair has one edge a direction. */
    h.block[0] = 1;
    h.block[1] = 0;
    h.block[2] = 2;
    if (size > 2)
        try_hood(graph, &h);
    TRY(MPI_Comm_free(&graph));
}

/* Each rank sends to the next one twice, and to rank 0. */
static void try_adjacent(void)
{
    MPI_Comm graph;
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int in[MOST], win[MOST], out[3] = {next, 0, next}, wout[3], nin = 0;
    int a, b, weighted, sources[MOST], w1[MOST], targets[MOST], w2[MOST], status;
    struct hood h = {.nout = 3};
    memcpy(h.out, out, sizeof(out));
    in[nin++] =
        before; /* rank 0 gets `before`'s other one in the middle of its list, as it was sent */
    h.block[0] = 0;
    if (rank == 0) {
        h.block[nin] = 1;
        in[nin++] = before;
    }
    h.block[nin] = 2;
    in[nin++] = before;
    for (int r = 0; rank == 0 && r < size; r++)
        if (r != before) {
            h.block[nin] = 1;
            in[nin++] = r;
        }
    memcpy(h.in, in, sizeof(in));
    h.nin = nin;
    for (int i = 0; i < nin; i++)
        win[i] = in[i] * 100 + rank;
    for (int i = 0; i < 3; i++)
        wout[i] = rank * 100 + out[i];
    TRY(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, nin, in, win, 3, out, wout, MPI_INFO_NULL, 0,
                                       &graph));
    TRY(MPI_Topo_test(graph, &status));
    CHECK(status == MPI_DIST_GRAPH);
    TRY(MPI_Dist_graph_neighbors_count(graph, &a, &b, &weighted));
    CHECK(a == nin && b == 3 && weighted);
    TRY(MPI_Dist_graph_neighbors(graph, a, sources, w1, b, targets, w2));
    CHECK(!memcmp(sources, in, (size_t)nin * sizeof(int)) && !memcmp(targets, out, sizeof(out)));
    CHECK(!memcmp(w1, win, (size_t)nin * sizeof(int)) && !memcmp(w2, wout, sizeof(wout)));
    try_hood(graph, &h);
    TRY(MPI_Comm_free(&graph));
}

/* Rank 0 alone tells all edges, of a ring; then each rank the edge that begins two ranks further.
 */
static void try_distributed(void)
{
    for (int way = 0; way < 2; way++) {
        MPI_Comm graph;
        int from[MOST], degrees[MOST], to[MOST], weights[MOST], n = way ? 1 : rank ? 0 : size;
        int a, b, weighted, source, w1, target, w2;
        struct hood h = {.nin = 1, .nout = 1};
        for (int i = 0; i < n; i++) {
            from[i] = way ? (rank + 2) % size : i;
            degrees[i] = 1;
            to[i] = (from[i] + 1) % size;
            weights[i] = from[i] + 50;
        }
        TRY(MPI_Dist_graph_create(MPI_COMM_WORLD, n, from, degrees, to,
                                  way ? MPI_UNWEIGHTED
                                  : n ? weights
                                      : MPI_WEIGHTS_EMPTY,
                                  MPI_INFO_NULL, 0, &graph));
        TRY(MPI_Dist_graph_neighbors_count(graph, &a, &b, &weighted));
        CHECK(a == 1 && b == 1 && weighted == !way);
        TRY(MPI_Dist_graph_neighbors(graph, 1, &source, way ? MPI_UNWEIGHTED : &w1, 1, &target,
                                     way ? MPI_UNWEIGHTED : &w2));
        CHECK(source == (rank + size - 1) % size && target == (rank + 1) % size);
        CHECK(way || (w1 == source + 50 && w2 == rank + 50));
        h.in[0] = source;
        h.out[0] = target;
        try_hood(graph, &h);
        TRY(MPI_Comm_free(&graph));
    }
}

int main(int argc, char **argv)
{
    int all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    const int yes[3] = {1, 1, 1}, no[3] = {0, 0, 0}, mixed[3] = {1, 0, 1};
    const int line[1] = {size}, half[2] = {size > 1 ? size / 2 : 1, size > 1 ? 2 : 1};
    const int flat[3] = {1, size, 1};
    try_grid(1, line, yes);
    try_grid(1, line, no);
    try_grid(2, half, yes);
    try_grid(2, half, no);
    try_grid(2, half, mixed);
    try_grid(3, flat, mixed);
    try_grid(3, flat, yes);
    try_grid(0, line, yes);
    try_dims();
    try_graph();
    try_adjacent();
    try_distributed();
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("topologies: %d failures on all ranks\n", all);
    MPI_Finalize();
    return all != 0;
}
