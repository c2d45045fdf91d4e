/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.c - Cartesian grids. Ranks keep their order: reorder is a permission that Halay does not
 * use, since its plans know the nodes. The last dimension counts fastest, as MPI says.
 */
#include <stdlib.h>
#include <string.h>

#include "collective.h"

struct hly_mpi_topology *hly_mpi_topology_new(int kind, int n, int m, size_t ints)
{
    const size_t bytes = sizeof(struct hly_mpi_topology) + (ints + 1) * sizeof(int);
    struct hly_mpi_topology *t = calloc(1, bytes);
    if (!t)
        return NULL;
    t->kind = kind;
    t->bytes = bytes;
    t->n = n;
    t->m = m;
    return t;
}

struct hly_mpi_topology *hly_mpi_topology_copy(const struct hly_mpi_topology *topology)
{
    struct hly_mpi_topology *t = malloc(topology->bytes);
    if (t)
        memcpy(t, topology, topology->bytes);
    return t;
}

int hly_mpi_topology_of(const char *function, const struct hly_mpi_comm *comm, int kind,
                        const struct hly_mpi_topology **topology)
{
    const int rc = hly_mpi_check_comm(function, comm);
    if (rc)
        return rc;
    if (!comm->topology || comm->topology->kind != kind)
        return hly_mpi_fail(MPI_ERR_TOPOLOGY, "%s: the communicator has no %s", function,
                            kind == MPI_CART    ? "grid: MPI_Cart_create makes one with it"
                            : kind == MPI_GRAPH ? "graph: MPI_Graph_create makes one with it"
                                                : "distributed graph");
    *topology = comm->topology;
    return MPI_SUCCESS;
}

int hly_mpi_topology_refuse(const char *function, struct hly_mpi_comm *comm, int rc)
{
    struct hly_mpi_collect call = {.how = HLY_MPI_HOW_NOW(function), .comm = comm};
    return hly_mpi_collect_refuse(&call, rc);
}

int hly_mpi_topology_attach(const char *function, struct hly_mpi_comm *comm, int nnodes,
                            struct hly_mpi_topology *topology, struct hly_mpi_comm **made)
{
    struct hly_mpi_comm *copy = NULL;
    int rc = MPI_SUCCESS;
    if (!topology)
        rc = hly_mpi_topology_refuse(
            function, comm, hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a topology", function));
    else if (nnodes == comm->size)
        rc = hly_mpi_comm_copy(function, comm, &copy);
    else
        rc = hly_mpi_comm_divide(function, comm, comm->rank < nnodes ? 0 : -1, comm->rank, &copy);
    if (rc || !copy) {
        free(topology);
    } else {
        copy->topology = topology;
    }
    if (!rc)
        *made = copy;
    return rc;
}

int hly_mpi_topo_test(struct hly_mpi_comm *comm, int *status)
{
    const int rc = hly_mpi_check_comm("MPI_Topo_test", comm);
    if (!rc)
        *status = comm->topology ? comm->topology->kind : MPI_UNDEFINED;
    return rc;
}

/* ---------------------------------------------------------------- making grids */

/* How many nodes a grid has: not more than there are ranks. */
static int count_nodes(const char *function, int size, int ndims, const int dims[], int *nnodes)
{
    int64_t n = 1;
    if (ndims < 0)
        return hly_mpi_fail(MPI_ERR_DIMS, "%s: ndims is %d: it has to be 0 or more", function,
                            ndims);
    if (ndims && !dims)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: dims is NULL", function);
    for (int i = 0; i < ndims; i++) {
        if (dims[i] <= 0)
            return hly_mpi_fail(MPI_ERR_DIMS, "%s: dims[%d] is %d: it has to be 1 or more",
                                function, i, dims[i]);
        n *= dims[i];
        if (n > size)
            return hly_mpi_fail(MPI_ERR_DIMS,
                                "%s: the grid is larger than the communicator of %d ranks",
                                function, size);
    }
    *nnodes = (int)n;
    return MPI_SUCCESS;
}

static void coords_of(int rank, int ndims, const int dims[], int coords[])
{
    for (int i = ndims - 1; i >= 0; i--) {
        coords[i] = rank % dims[i];
        rank /= dims[i];
    }
}

static int check_old(const char *function, const struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_check_comm(function, comm);
    if (rc || !comm->remote)
        return rc;
    return hly_mpi_fail(MPI_ERR_COMM, "%s: an intercommunicator can have no topology", function);
}

int hly_mpi_cart_create(struct hly_mpi_comm *comm_old, int ndims, const int dims[],
                        const int periods[], int reorder, struct hly_mpi_comm **comm_cart)
{
    int nnodes = 0, rc = check_old("MPI_Cart_create", comm_old);
    (void)reorder;
    if (rc)
        return rc;
    rc = count_nodes("MPI_Cart_create", comm_old->size, ndims, dims, &nnodes);
    if (!rc && ndims && !periods)
        rc = hly_mpi_fail(MPI_ERR_ARG, "MPI_Cart_create: periods is NULL");
    if (rc)
        return hly_mpi_topology_refuse("MPI_Cart_create", comm_old, rc);
    struct hly_mpi_topology *t = hly_mpi_topology_new(MPI_CART, ndims, 0, 3 * (size_t)ndims);
    for (int i = 0; t && i < ndims; i++) {
        t->at[i] = dims[i];
        t->at[ndims + i] = periods[i] != 0;
    }
    if (t)
        coords_of(comm_old->rank, ndims, t->at, t->at + 2 * ndims);
    return hly_mpi_topology_attach("MPI_Cart_create", comm_old, nnodes, t, comm_cart);
}

int hly_mpi_cart_map(struct hly_mpi_comm *comm, int ndims, const int dims[], const int periods[],
                     int *newrank)
{
    int nnodes = 0, rc = check_old("MPI_Cart_map", comm);
    (void)periods;
    if (!rc)
        rc = count_nodes("MPI_Cart_map", comm->size, ndims, dims, &nnodes);
    if (!rc)
        *newrank = comm->rank < nnodes ? comm->rank : MPI_UNDEFINED;
    return rc;
}

int hly_mpi_cart_sub(struct hly_mpi_comm *comm, const int remain_dims[],
                     struct hly_mpi_comm **newcomm)
{
    const struct hly_mpi_topology *t = NULL;
    struct hly_mpi_comm *made = NULL;
    int rc = hly_mpi_topology_of("MPI_Cart_sub", comm, MPI_CART, &t), kept = 0, colour = 0, key = 0;
    if (rc)
        return rc;
    for (int i = 0; i < t->n; i++) {
        int *at = remain_dims[i] ? &key : &colour;
        *at = *at * t->at[i] + t->at[2 * t->n + i];
        kept += remain_dims[i] != 0;
    }
    struct hly_mpi_topology *sub = hly_mpi_topology_new(MPI_CART, kept, 0, 3 * (size_t)kept);
    if (!sub)
        return hly_mpi_topology_refuse("MPI_Cart_sub", comm,
                                       hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Cart_sub: no memory"));
    for (int i = 0, k = 0; i < t->n; i++)
        if (remain_dims[i]) {
            for (int part = 0; part < 3; part++)
                sub->at[part * kept + k] = t->at[part * t->n + i];
            k++;
        }
    rc = hly_mpi_comm_divide("MPI_Cart_sub", comm, colour, key, &made);
    if (rc) {
        free(sub);
        return rc;
    }
    made->topology = sub;
    *newcomm = made;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- questions about grids */

int hly_mpi_cartdim_get(struct hly_mpi_comm *comm, int *ndims)
{
    const struct hly_mpi_topology *t = NULL;
    const int rc = hly_mpi_topology_of("MPI_Cartdim_get", comm, MPI_CART, &t);
    if (!rc)
        *ndims = t->n;
    return rc;
}

static int check_room(const char *function, int room, int needed)
{
    if (room >= needed)
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_ARG, "%s: the arrays have %d places, and %d are needed", function,
                        room, needed);
}

int hly_mpi_cart_get(struct hly_mpi_comm *comm, int maxdims, int dims[], int periods[],
                     int coords[])
{
    const struct hly_mpi_topology *t = NULL;
    int rc = hly_mpi_topology_of("MPI_Cart_get", comm, MPI_CART, &t);
    if (!rc)
        rc = check_room("MPI_Cart_get", maxdims, t->n);
    for (int i = 0; !rc && i < t->n; i++) {
        dims[i] = t->at[i];
        periods[i] = t->at[t->n + i];
        coords[i] = t->at[2 * t->n + i];
    }
    return rc;
}

int hly_mpi_cart_rank(struct hly_mpi_comm *comm, const int coords[], int *rank)
{
    const struct hly_mpi_topology *t = NULL;
    int found = 0;
    const int rc = hly_mpi_topology_of("MPI_Cart_rank", comm, MPI_CART, &t);
    for (int i = 0; !rc && i < t->n; i++) {
        const int dim = t->at[i];
        int at = coords[i];
        if (t->at[t->n + i])
            at = (at % dim + dim) % dim;
        else if (at < 0 || at >= dim)
            return hly_mpi_fail(MPI_ERR_ARG,
                                "MPI_Cart_rank: coords[%d] is %d: it has to be from 0 to %d, since "
                                "the dimension is not periodic",
                                i, at, dim - 1);
        found = found * dim + at;
    }
    if (!rc)
        *rank = found;
    return rc;
}

int hly_mpi_cart_coords(struct hly_mpi_comm *comm, int rank, int maxdims, int coords[])
{
    const struct hly_mpi_topology *t = NULL;
    int rc = hly_mpi_topology_of("MPI_Cart_coords", comm, MPI_CART, &t);
    if (!rc)
        rc = check_room("MPI_Cart_coords", maxdims, t->n);
    if (!rc && (rank < 0 || rank >= comm->size))
        rc = hly_mpi_fail(MPI_ERR_RANK, "MPI_Cart_coords: rank %d is not in a communicator of %d",
                          rank, comm->size);
    if (!rc)
        coords_of(rank, t->n, t->at, coords);
    return rc;
}

/* The rank that is `disp` away in a dimension, or MPI_PROC_NULL. */
static int rank_at(const struct hly_mpi_comm *comm, int direction, int64_t disp)
{
    const struct hly_mpi_topology *t = comm->topology;
    const int64_t dim = t->at[direction];
    const int here = t->at[2 * t->n + direction];
    int64_t there = here + disp;
    int step = 1;
    if (t->at[t->n + direction])
        there = (there % dim + dim) % dim;
    else if (there < 0 || there >= dim)
        return MPI_PROC_NULL;
    for (int i = t->n - 1; i > direction; i--)
        step *= t->at[i];
    return comm->rank + (int)(there - here) * step;
}

int hly_mpi_cart_shift(struct hly_mpi_comm *comm, int direction, int disp, int *rank_source,
                       int *rank_dest)
{
    const struct hly_mpi_topology *t = NULL;
    const int rc = hly_mpi_topology_of("MPI_Cart_shift", comm, MPI_CART, &t);
    if (rc)
        return rc;
    if (direction < 0 || direction >= t->n)
        return hly_mpi_fail(MPI_ERR_ARG,
                            "MPI_Cart_shift: direction is %d: it has to be from 0 to %d", direction,
                            t->n - 1);
    *rank_source = rank_at(comm, direction, -(int64_t)disp);
    *rank_dest = rank_at(comm, direction, disp);
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- dimensions */

/*
 * Gives n as `left` factors, none larger than `most`, the largest first and as small as can be:
 * `best` gets the first product that is found, since factors are tried in that order.
 */
static bool factor(int n, int left, int most, int best[])
{
    if (left == 1) {
        best[0] = n;
        return n <= most;
    }
    int least = 1; /* the largest factor is at least the root of n */
    for (;; least++) {
        int64_t power = 1;
        for (int i = 0; i < left && power < n; i++)
            power *= least;
        if (power >= n)
            break;
    }
    for (int f = least; f <= most && f <= n; f++) {
        if (n % f)
            continue;
        best[0] = f;
        if (factor(n / f, left - 1, f, best + 1))
            return true;
    }
    return false;
}

int hly_mpi_dims_create(int nnodes, int ndims, int dims[])
{
    int64_t given = 1;
    int left = 0, best[32];
    int rc = hly_mpi_check_job("MPI_Dims_create");
    if (rc)
        return rc;
    if (nnodes <= 0)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Dims_create: nnodes is %d: it has to be 1 or more",
                            nnodes);
    if (ndims < 0)
        return hly_mpi_fail(MPI_ERR_DIMS, "MPI_Dims_create: ndims is %d: it has to be 0 or more",
                            ndims);
    for (int i = 0; i < ndims; i++) {
        if (dims[i] < 0)
            return hly_mpi_fail(MPI_ERR_DIMS,
                                "MPI_Dims_create: dims[%d] is %d: it has to be 0 or more", i,
                                dims[i]);
        left += !dims[i];
        given *= dims[i] && given <= nnodes ? dims[i] : 1;
    }
    if (nnodes % given || (!left && given != nnodes && ndims))
        return hly_mpi_fail(MPI_ERR_DIMS,
                            "MPI_Dims_create: the dimensions that are set do not divide %d nodes",
                            nnodes);
    if (!left)
        return MPI_SUCCESS;
    const int rest = nnodes / (int)given, some = left < 32 ? left : 32; /* 2^31 has 31 factors */
    factor(rest, some, rest, best);
    for (int i = 0, k = 0; i < ndims; i++)
        if (!dims[i]) {
            dims[i] = k < some ? best[k] : 1;
            k++;
        }
    return MPI_SUCCESS;
}
