/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_inter.c - intercommunicators: made, split, duplicated, merged; collectives over two groups,
 * against what each rank can compute alone. A program of MPI: any library can run it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, BLOCK = 3 };
static int failures, world, form;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            printf("rank %d: form %d: line %d: %s\n", world, form, __LINE__, #condition);          \
        }                                                                                          \
    } while (0)
#define TRY(call) CHECK((call) == MPI_SUCCESS)
#define RUN(Name, name, ...)                                                                       \
    do {                                                                                           \
        MPI_Request request = MPI_REQUEST_NULL;                                                    \
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

static MPI_Comm comm;
static int rank, size, remote, side; /* side: 0 or 1, the group of this rank */
static int sent[MOST * BLOCK * 4], got[MOST * BLOCK * 4], counts[MOST], displs[MOST], rcounts[MOST],
    rdispls[MOST];
static MPI_Datatype types[MOST];

static int value(int of_side, int from, int to, int k)
{
    return of_side * 1000000 + from * 10000 + to * 100 + k;
}

static void clear(void)
{
    memset(got, -1, sizeof(got));
    memset(sent, -2, sizeof(sent));
}

/* The root is rank `root` of side `at`: what this rank passes. */
static int root_of(int at, int root)
{
    return side != at ? root : rank == root ? MPI_ROOT : MPI_PROC_NULL;
}

static void try_rooted(int at, int root)
{
    const int is_root = side == at && rank == root, far = side != at, n = BLOCK;
    clear();
    for (int k = 0; is_root && k < n; k++)
        sent[k] = value(at, root, 0, k);
    RUN(Bcast, bcast, is_root ? sent : got, n, MPI_INT, root_of(at, root), comm);
    for (int k = 0; k < n; k++)
        CHECK(got[k] == (far ? value(at, root, 0, k) : -1));
    clear();
    for (int k = 0; k < n; k++)
        sent[k] = value(side, rank, root, k);
    RUN(Gather, gather, sent, n, MPI_INT, got, n, MPI_INT, root_of(at, root), comm);
    for (int r = 0; is_root && r < remote; r++)
        for (int k = 0; k < n; k++)
            CHECK(got[r * n + k] == value(!side, r, root, k));
    CHECK(got[is_root ? remote * n : 0] == -1);
    clear();
    for (int r = 0; r < remote; r++) {
        counts[r] = r % 3;
        displs[r] = r * n + 1;
        for (int k = 0; k < n; k++)
            sent[r * n + k] = value(side, rank, r, k);
    }
    RUN(Scatter, scatter, sent, n, MPI_INT, got, n, MPI_INT, root_of(at, root), comm);
    for (int k = 0; k < n; k++)
        CHECK(got[k] == (far ? value(at, root, rank, k) : -1));
    clear();
    for (int k = 0; k < n; k++)
        sent[k] = value(side, rank, root, k);
    RUN(Gatherv, gatherv, sent, rank % 3, MPI_INT, got, counts, displs, MPI_INT, root_of(at, root),
        comm);
    for (int r = 0; is_root && r < remote; r++)
        for (int k = 0; k < r % 3; k++)
            CHECK(got[displs[r] + k] == value(!side, r, root, k));
    CHECK(got[0] == -1);
    clear();
    for (int r = 0; r < remote; r++)
        for (int k = 0; k < n; k++)
            sent[displs[r] + k] = value(side, rank, r, k);
    RUN(Scatterv, scatterv, sent, counts, displs, MPI_INT, got, rank % 3, MPI_INT,
        root_of(at, root), comm);
    for (int k = 0; k < n; k++)
        CHECK(got[k] == (far && k < rank % 3 ? value(at, root, rank, k) : -1));
    clear();
    int sum = 0;
    for (int r = 0; r < remote; r++)
        sum += value(!side, r, 0, 0);
    for (int k = 0; k < n; k++)
        sent[k] = value(side, rank, 0, 0) + k;
    RUN(Reduce, reduce, sent, got, n, MPI_INT, MPI_SUM, root_of(at, root), comm);
    for (int k = 0; k < n; k++)
        CHECK(got[k] == (is_root ? sum + remote * k : -1));
}

static void try_exchanges(void)
{
    const int n = BLOCK;
    clear();
    for (int k = 0; k < n; k++)
        sent[k] = value(side, rank, 0, k);
    RUN(Allgather, allgather, sent, n, MPI_INT, got, n, MPI_INT, comm);
    for (int r = 0; r < remote; r++)
        for (int k = 0; k < n; k++)
            CHECK(got[r * n + k] == value(!side, r, 0, k));
    CHECK(got[remote * n] == -1);
    clear();
    for (int r = 0; r < remote; r++) {
        counts[r] = (rank + r) % 3;
        displs[r] = (remote - 1 - r) * n;
        rcounts[r] = r % 3;
        rdispls[r] = r * n;
        types[r] = MPI_INT;
    }
    for (int k = 0; k < n; k++)
        sent[k] = value(side, rank, 0, k);
    RUN(Allgatherv, allgatherv, sent, rank % 3, MPI_INT, got, rcounts, displs, MPI_INT, comm);
    for (int r = 0; r < remote; r++)
        for (int k = 0; k < n; k++)
            CHECK(got[displs[r] + k] == (k < r % 3 ? value(!side, r, 0, k) : -1));
    clear();
    for (int r = 0; r < remote; r++)
        for (int k = 0; k < n; k++)
            sent[r * n + k] = value(side, rank, r, k);
    RUN(Alltoall, alltoall, sent, n, MPI_INT, got, n, MPI_INT, comm);
    for (int r = 0; r < remote; r++)
        for (int k = 0; k < n; k++)
            CHECK(got[r * n + k] == value(!side, r, rank, k));
    for (int w = 0; w < 2; w++) {
        clear();
        for (int r = 0; r < remote; r++) {
            for (int k = 0; k < n; k++)
                sent[(remote - 1 - r) * n + k] = value(side, rank, r, k);
            displs[r] = (remote - 1 - r) * n * (w ? (int)sizeof(int) : 1);
            rdispls[r] = r * n * (w ? (int)sizeof(int) : 1);
        }
        if (w)
            RUN(Alltoallw, alltoallw, sent, counts, displs, types, got, counts, rdispls, types,
                comm);
        else
            RUN(Alltoallv, alltoallv, sent, counts, displs, MPI_INT, got, counts, rdispls, MPI_INT,
                comm);
        for (int r = 0; r < remote; r++)
            for (int k = 0; k < n; k++)
                CHECK(got[r * n + k] == (k < (rank + r) % 3 ? value(!side, r, rank, k) : -1));
    }
}

static void try_reductions(void)
{
    const int n = BLOCK;
    int sum = 0;
    clear();
    for (int r = 0; r < remote; r++)
        sum += value(!side, r, 0, 0);
    for (int k = 0; k < n; k++)
        sent[k] = value(side, rank, 0, 0) + k;
    RUN(Allreduce, allreduce, sent, got, n, MPI_INT, MPI_SUM, comm);
    for (int k = 0; k < n; k++)
        CHECK(got[k] == sum + remote * k);
    /* Both groups have vectors of size * remote elements. */
    clear();
    for (int k = 0; k < size * remote; k++)
        sent[k] = value(side, rank, 0, 0) + k;
    RUN(Reduce_scatter_block, reduce_scatter_block, sent, got, remote, MPI_INT, MPI_SUM, comm);
    for (int k = 0; k < remote; k++)
        CHECK(got[k] == sum + remote * (rank * remote + k));
    clear();
    for (int k = 0; k < size * remote; k++)
        sent[k] = value(side, rank, 0, 0) + k;
    for (int r = 0; r < size; r++)
        counts[r] = r ? remote - 1 : remote + size - 1;
    RUN(Reduce_scatter, reduce_scatter, sent, got, counts, MPI_INT, MPI_SUM, comm);
    for (int k = 0; k < counts[rank]; k++)
        CHECK(got[k] ==
              sum + remote * (k + (rank ? size - 1 + remote + (rank - 1) * (remote - 1) : 0)));
    MPI_Request request;
    TRY(MPI_Barrier(comm));
    TRY(MPI_Ibarrier(comm, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void try_collectives(MPI_Comm on, int my_side)
{
    comm = on;
    side = my_side;
    TRY(MPI_Comm_rank(comm, &rank));
    TRY(MPI_Comm_size(comm, &size));
    TRY(MPI_Comm_remote_size(comm, &remote));
    for (form = 0; form < 3; form++) {
        for (int at = 0; at < 2; at++)
            for (int root = 0; root < (at == side ? size : remote); root++)
                try_rooted(at, root);
        try_exchanges();
        try_reductions();
    }
    form = 0;
}

/* The source of a message is a rank of the remote group. */
static void try_messages(MPI_Comm inter)
{
    int at, mine, far, out, in = -1;
    MPI_Status status;
    TRY(MPI_Comm_rank(inter, &at));
    TRY(MPI_Comm_size(inter, &mine));
    TRY(MPI_Comm_remote_size(inter, &far));
    out = world;
    if (at >= (mine < far ? mine : far))
        return;
    TRY(MPI_Sendrecv(&out, 1, MPI_INT, at, 3, &in, 1, MPI_INT, MPI_ANY_SOURCE, 3, inter, &status));
    CHECK(status.MPI_SOURCE == at && in >= 0 && in != world);
}

/* In the order of both groups, upper ones first if `reversed`. */
static void try_merge(MPI_Comm inter, int my_side, int reversed)
{
    MPI_Comm all;
    int n, at, mine, far;
    TRY(MPI_Comm_size(inter, &mine));
    TRY(MPI_Comm_rank(inter, &at));
    TRY(MPI_Comm_remote_size(inter, &far));
    TRY(MPI_Intercomm_merge(inter, my_side != reversed, &all));
    TRY(MPI_Comm_size(all, &n));
    CHECK(n == mine + far);
    TRY(MPI_Comm_rank(all, &n));
    CHECK(n == (my_side == reversed ? at : far + at));
    TRY(MPI_Barrier(all));
    TRY(MPI_Comm_free(&all));
}

int main(int argc, char **argv)
{
    MPI_Comm local, inter, other;
    MPI_Group group;
    int n, flag, all, result;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (n < 2) {
        printf("there are no two groups of one rank\n");
        MPI_Finalize();
        return 0;
    }
    /* The lower third, and the others in reverse order: their leader is rank 0, the world's last.
     */
    const int low = (n + 2) / 3, my_side = world >= low;
    TRY(MPI_Comm_split(MPI_COMM_WORLD, my_side, my_side ? -world : world, &local));
    TRY(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, my_side ? 0 : n - 1, 5, &inter));
    TRY(MPI_Comm_test_inter(inter, &flag));
    CHECK(flag);
    TRY(MPI_Comm_remote_size(inter, &flag));
    CHECK(flag == (my_side ? low : n - low));
    TRY(MPI_Comm_remote_group(inter, &group));
    TRY(MPI_Group_size(group, &flag));
    CHECK(flag == (my_side ? low : n - low));
    TRY(MPI_Group_free(&group));
    try_collectives(inter, my_side);
    try_messages(inter);
    try_merge(inter, my_side, 0);
    try_merge(inter, my_side, 1);
    TRY(MPI_Comm_dup(inter, &other));
    TRY(MPI_Comm_compare(inter, other, &result));
    CHECK(result == MPI_CONGRUENT);
    try_collectives(other, my_side);
    TRY(MPI_Comm_free(&other));
    /* Even and odd ranks of both groups. A colour that one group lacks gives nothing. */
    int at;
    TRY(MPI_Comm_rank(inter, &at));
    TRY(MPI_Comm_split(inter, at % 2, -at, &other));
    const int both = at % 2 == 0 || (low > 1 && n - low > 1);
    CHECK((other != MPI_COMM_NULL) == both);
    if (other != MPI_COMM_NULL) {
        try_collectives(other, my_side);
        TRY(MPI_Comm_free(&other));
    }
    /* The same leaders and tag again, while the first one lives. */
    TRY(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, my_side ? 0 : n - 1, 5, &other));
    TRY(MPI_Barrier(other));
    TRY(MPI_Comm_free(&other));
    TRY(MPI_Comm_free(&inter));
    TRY(MPI_Comm_free(&local));
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world == 0)
        printf("intercommunicators: %d failures on all ranks\n", all);
    MPI_Finalize();
    return all != 0;
}
