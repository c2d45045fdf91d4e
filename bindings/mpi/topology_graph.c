/* SPDX-License-Identifier: Apache-2.0 */
/* topology_graph.c - graphs that each rank knows as a whole, or only its own neighbours of. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "collective.h"

/* ---------------------------------------------------------------- graphs */

static int check_graph(const char *function, const struct hly_mpi_comm *comm, int nnodes,
                       const int indx[], const int edges[])
{
    if (nnodes < 0 || nnodes > comm->size)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: nnodes is %d: it has to be from 0 to %d", function,
                            nnodes, comm->size);
    if (nnodes && !indx)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: index is NULL", function);
    for (int i = 0; i < nnodes; i++)
        if (indx[i] < (i ? indx[i - 1] : 0))
            return hly_mpi_fail(MPI_ERR_ARG, "%s: index[%d] is %d: it has to be %d or more",
                                function, i, indx[i], i ? indx[i - 1] : 0);
    for (int i = 0; nnodes && i < indx[nnodes - 1]; i++)
        if (edges[i] < 0 || edges[i] >= nnodes)
            return hly_mpi_fail(MPI_ERR_ARG, "%s: edges[%d] is %d: it has to be from 0 to %d",
                                function, i, edges[i], nnodes - 1);
    return MPI_SUCCESS;
}

static int check_old(const char *function, const struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_check_comm(function, comm);
    if (rc || !comm->remote)
        return rc;
    return hly_mpi_fail(MPI_ERR_COMM, "%s: an intercommunicator can have no topology", function);
}

int hly_mpi_graph_create(struct hly_mpi_comm *comm_old, int nnodes, const int indx[],
                         const int edges[], int reorder, struct hly_mpi_comm **comm_graph)
{
    int rc = check_old("MPI_Graph_create", comm_old);
    (void)reorder;
    if (rc)
        return rc;
    rc = check_graph("MPI_Graph_create", comm_old, nnodes, indx, edges);
    if (rc)
        return hly_mpi_topology_refuse("MPI_Graph_create", comm_old, rc);
    const int m = nnodes ? indx[nnodes - 1] : 0;
    struct hly_mpi_topology *t =
        hly_mpi_topology_new(MPI_GRAPH, nnodes, m, (size_t)nnodes + (size_t)m);
    if (t && nnodes)
        memcpy(t->at, indx, (size_t)nnodes * sizeof(int));
    if (t && m)
        memcpy(t->at + nnodes, edges, (size_t)m * sizeof(int));
    return hly_mpi_topology_attach("MPI_Graph_create", comm_old, nnodes, t, comm_graph);
}

int hly_mpi_graph_map(struct hly_mpi_comm *comm, int nnodes, const int indx[], const int edges[],
                      int *newrank)
{
    int rc = check_old("MPI_Graph_map", comm);
    if (!rc)
        rc = check_graph("MPI_Graph_map", comm, nnodes, indx, edges);
    if (!rc)
        *newrank = comm->rank < nnodes ? comm->rank : MPI_UNDEFINED;
    return rc;
}

int hly_mpi_graphdims_get(struct hly_mpi_comm *comm, int *nnodes, int *nedges)
{
    const struct hly_mpi_topology *t = NULL;
    const int rc = hly_mpi_topology_of("MPI_Graphdims_get", comm, MPI_GRAPH, &t);
    if (rc)
        return rc;
    *nnodes = t->n;
    *nedges = t->m;
    return MPI_SUCCESS;
}

int hly_mpi_graph_get(struct hly_mpi_comm *comm, int maxindex, int maxedges, int indx[],
                      int edges[])
{
    const struct hly_mpi_topology *t = NULL;
    const int rc = hly_mpi_topology_of("MPI_Graph_get", comm, MPI_GRAPH, &t);
    for (int i = 0; !rc && i < t->n && i < maxindex; i++)
        indx[i] = t->at[i];
    for (int i = 0; !rc && i < t->m && i < maxedges; i++)
        edges[i] = t->at[t->n + i];
    return rc;
}

/* The neighbours of a rank: *first of the edges, and how many. */
static int edges_of(const char *function, const struct hly_mpi_comm *comm, int rank,
                    const int **first, int *n)
{
    const struct hly_mpi_topology *t = NULL;
    const int rc = hly_mpi_topology_of(function, comm, MPI_GRAPH, &t);
    if (rc)
        return rc;
    if (rank < 0 || rank >= t->n)
        return hly_mpi_fail(MPI_ERR_RANK, "%s: rank %d is not in a graph of %d nodes", function,
                            rank, t->n);
    const int begin = rank ? t->at[rank - 1] : 0;
    *first = t->at + t->n + begin;
    *n = t->at[rank] - begin;
    return MPI_SUCCESS;
}

int hly_mpi_graph_neighbors_count(struct hly_mpi_comm *comm, int rank, int *nneighbors)
{
    const int *first = NULL;
    return edges_of("MPI_Graph_neighbors_count", comm, rank, &first, nneighbors);
}

int hly_mpi_graph_neighbors(struct hly_mpi_comm *comm, int rank, int maxneighbors, int neighbors[])
{
    const int *first = NULL;
    int n = 0;
    const int rc = edges_of("MPI_Graph_neighbors", comm, rank, &first, &n);
    for (int i = 0; !rc && i < n && i < maxneighbors; i++)
        neighbors[i] = first[i];
    return rc;
}

/* ---------------------------------------------------------------- distributed graphs */

static int check_ranks(const char *function, const char *name, int n, const int ranks[], int size)
{
    if (n < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the number of %s is %d: it has to be 0 or more",
                            function, name, n);
    if (n && !ranks)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: %s is NULL", function, name);
    for (int i = 0; i < n; i++)
        if (ranks[i] < 0 || ranks[i] >= size)
            return hly_mpi_fail(MPI_ERR_RANK, "%s: %s[%d] is %d: it has to be from 0 to %d",
                                function, name, i, ranks[i], size - 1);
    return MPI_SUCCESS;
}

static bool has_weights(const int weights[])
{
    return weights != MPI_UNWEIGHTED && weights != MPI_WEIGHTS_EMPTY && weights;
}

int hly_mpi_dist_graph_create_adjacent(struct hly_mpi_comm *comm_old, int indegree,
                                       const int sources[], const int sourceweights[],
                                       int outdegree, const int destinations[],
                                       const int destweights[], struct hly_mpi_info *info,
                                       int reorder, struct hly_mpi_comm **comm_dist_graph)
{
    const char *function = "MPI_Dist_graph_create_adjacent";
    int rc = check_old(function, comm_old);
    (void)info, (void)reorder;
    if (rc)
        return rc;
    rc = check_ranks(function, "sources", indegree, sources, comm_old->size);
    if (!rc)
        rc = check_ranks(function, "destinations", outdegree, destinations, comm_old->size);
    if (rc)
        return hly_mpi_topology_refuse(function, comm_old, rc);
    struct hly_mpi_topology *t = hly_mpi_topology_new(MPI_DIST_GRAPH, indegree, outdegree,
                                                      2 * ((size_t)indegree + (size_t)outdegree));
    for (int i = 0; t && i < indegree; i++) {
        t->at[i] = sources[i];
        t->at[indegree + i] = has_weights(sourceweights) ? sourceweights[i] : 1;
    }
    for (int i = 0; t && i < outdegree; i++) {
        t->at[2 * indegree + i] = destinations[i];
        t->at[2 * indegree + outdegree + i] = has_weights(destweights) ? destweights[i] : 1;
    }
    if (t)
        t->weighted = sourceweights != MPI_UNWEIGHTED;
    return hly_mpi_topology_attach(function, comm_old, comm_old->size, t, comm_dist_graph);
}

/* An edge, for a rank at one of its ends. */
struct end {
    int incoming, other, weight;
};

/* Sends each rank the ends that it has: ends[at[r]] to ends[at[r + 1] - 1] go to rank r. */
static int exchange_ends(struct hly_mpi_comm *comm, const struct end *ends, const size_t *at,
                         struct end **received, size_t *nreceived)
{
    const size_t n = (size_t)comm->size;
    size_t *counts = calloc(4 * n, sizeof(*counts)), total = 0;
    size_t *displs = counts + n, *out_counts = counts + 2 * n, *out_displs = counts + 3 * n;
    int code = counts ? HALAY_OK : HALAY_ENOMEM;
    for (size_t r = 0; !code && r < n; r++) {
        counts[r] = 3 * (at[r + 1] - at[r]);
        displs[r] = 3 * at[r];
    }
    if (!code)
        code = halay_alltoall(counts, out_counts, 1, HALAY_UINT64, comm->halay);
    for (size_t r = 0; !code && r < n; r++) {
        out_displs[r] = total;
        total += out_counts[r];
    }
    struct end *all = code ? NULL : malloc((total + 3) * sizeof(int));
    if (!code)
        code = all ? halay_alltoallv(ends, counts, displs, all, out_counts, out_displs, HALAY_INT32,
                                     comm->halay)
                   : HALAY_ENOMEM;
    free(counts);
    if (code) {
        free(all);
        return hly_mpi_result(code, comm, "MPI_Dist_graph_create");
    }
    *received = all;
    *nreceived = total / 3;
    return MPI_SUCCESS;
}

/* All edges that this rank was given, as ends in the order of the ranks that have them. */
static int list_ends(struct hly_mpi_comm *comm, int n, const int sources[], const int degrees[],
                     const int destinations[], const int weights[], struct end **list, size_t **at)
{
    const size_t size = (size_t)comm->size;
    size_t nedges = 0, *first = calloc(size + 2, sizeof(*first));
    for (int i = 0; i < n; i++)
        nedges += (size_t)degrees[i];
    struct end *ends = first ? malloc((2 * nedges + 1) * sizeof(*ends)) : NULL;
    if (!ends) {
        free(first);
        return hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Dist_graph_create: no memory for %zu edges",
                            nedges);
    }
    /* first[r + 1] counts, and then moves on to where the next end of rank r goes. */
    size_t e = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < degrees[i]; k++, e++) {
            first[sources[i] + 2]++;
            first[destinations[e] + 2]++;
        }
    for (size_t r = 2; r < size + 2; r++)
        first[r] += first[r - 1];
    e = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < degrees[i]; k++, e++) {
            const int weight = has_weights(weights) ? weights[e] : 1;
            ends[first[sources[i] + 1]++] = (struct end){0, destinations[e], weight};
            ends[first[destinations[e] + 1]++] = (struct end){1, sources[i], weight};
        }
    *list = ends;
    *at = first;
    return MPI_SUCCESS;
}

static int check_edges(const struct hly_mpi_comm *comm, int n, const int sources[],
                       const int degrees[], const int destinations[])
{
    const char *function = "MPI_Dist_graph_create";
    int64_t total = 0;
    int rc = check_ranks(function, "sources", n, sources, comm->size);
    for (int i = 0; !rc && i < n; i++) {
        if (degrees[i] < 0)
            return hly_mpi_fail(MPI_ERR_ARG, "%s: degrees[%d] is %d: it has to be 0 or more",
                                function, i, degrees[i]);
        total += degrees[i];
    }
    if (!rc && total > INT_MAX)
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: there are more than 2147483647 edges", function);
    return rc ? rc : check_ranks(function, "destinations", (int)total, destinations, comm->size);
}

int hly_mpi_dist_graph_create(struct hly_mpi_comm *comm_old, int n, const int sources[],
                              const int degrees[], const int destinations[], const int weights[],
                              struct hly_mpi_info *info, int reorder,
                              struct hly_mpi_comm **comm_dist_graph)
{
    const char *function = "MPI_Dist_graph_create";
    struct end *ends = NULL, *mine = NULL;
    size_t *at = NULL, nmine = 0;
    int nin = 0, rc = check_old(function, comm_old);
    (void)info, (void)reorder;
    if (rc)
        return rc;
    rc = check_edges(comm_old, n, sources, degrees, destinations);
    if (!rc)
        rc = list_ends(comm_old, n, sources, degrees, destinations, weights, &ends, &at);
    if (rc)
        return hly_mpi_topology_refuse(function, comm_old, rc);
    rc = exchange_ends(comm_old, ends, at, &mine, &nmine);
    free(ends);
    free(at);
    if (rc)
        return rc;
    for (size_t i = 0; i < nmine; i++)
        nin += mine[i].incoming;
    const int nout = (int)nmine - nin;
    struct hly_mpi_topology *t = hly_mpi_topology_new(MPI_DIST_GRAPH, nin, nout, 2 * nmine);
    int *to[2] = {t ? t->at + 2 * nin : NULL, t ? t->at : NULL};
    for (size_t i = 0; t && i < nmine; i++) {
        int *place = to[mine[i].incoming]++;
        place[0] = mine[i].other;
        place[mine[i].incoming ? nin : nout] = mine[i].weight;
    }
    free(mine);
    if (t)
        t->weighted = weights != MPI_UNWEIGHTED;
    return hly_mpi_topology_attach(function, comm_old, comm_old->size, t, comm_dist_graph);
}

int hly_mpi_dist_graph_neighbors_count(struct hly_mpi_comm *comm, int *indegree, int *outdegree,
                                       int *weighted)
{
    const struct hly_mpi_topology *t = NULL;
    const int rc = hly_mpi_topology_of("MPI_Dist_graph_neighbors_count", comm, MPI_DIST_GRAPH, &t);
    if (rc)
        return rc;
    *indegree = t->n;
    *outdegree = t->m;
    *weighted = t->weighted;
    return MPI_SUCCESS;
}

static void give(int room, int n, const int at[], bool weighted, int ranks[], int weights[])
{
    for (int i = 0; i < n && i < room; i++) {
        ranks[i] = at[i];
        if (weighted && has_weights(weights))
            weights[i] = at[n + i];
    }
}

int hly_mpi_dist_graph_neighbors(struct hly_mpi_comm *comm, int maxindegree, int sources[],
                                 int sourceweights[], int maxoutdegree, int destinations[],
                                 int destweights[])
{
    const struct hly_mpi_topology *t = NULL;
    const int rc = hly_mpi_topology_of("MPI_Dist_graph_neighbors", comm, MPI_DIST_GRAPH, &t);
    if (rc)
        return rc;
    if (maxindegree < 0 || maxoutdegree < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Dist_graph_neighbors: a maximal degree is negative");
    give(maxindegree, t->n, t->at, t->weighted, sources, sourceweights);
    give(maxoutdegree, t->m, t->at + 2 * t->n, t->weighted, destinations, destweights);
    return MPI_SUCCESS;
}
