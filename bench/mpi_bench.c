/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_bench.c - halay-bench over MPI: linked with halay-bench's own files it makes a program that
 * measures and checks MPI's collectives in the same loop, with the same options and the same table.
 * What halay-bench calls to communicate stands here and goes to MPI; what it asks about types and
 * collectives comes from libhalay. bench/peers.py compiles it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halay/halay.h>

int hly_bench_calibrate(const char *path);

static MPI_Datatype type_of(halay_type_t type)
{
    switch (type) {
    case HALAY_FLOAT32:
        return MPI_FLOAT;
    case HALAY_FLOAT64:
        return MPI_DOUBLE;
    case HALAY_INT32:
        return MPI_INT32_T;
    case HALAY_INT64:
        return MPI_INT64_T;
    default:
        return MPI_DATATYPE_NULL; /* which MPI refuses */
    }
}

static MPI_Op op_of(halay_op_t op)
{
    return op == HALAY_SUM ? MPI_SUM : op == HALAY_MIN ? MPI_MIN : MPI_MAX;
}

static const void *input_of(const void *in)
{
    return in == HALAY_IN_PLACE ? MPI_IN_PLACE : in;
}

/* Errors end the job, as is MPI's way. */
int halay_init(const halay_config_t *config, halay_context_t **context)
{
    (void)config;
    *context = NULL;
    return MPI_Init(NULL, NULL) ? HALAY_EINTERNAL : HALAY_OK;
}

int halay_finalize(halay_context_t *context)
{
    (void)context;
    return MPI_Finalize() ? HALAY_EINTERNAL : HALAY_OK;
}

int halay_comm_world(halay_context_t *context, halay_comm_t **comm)
{
    (void)context;
    *comm = NULL;
    return HALAY_OK;
}

int halay_context_topology(const halay_context_t *context, halay_topology_t *topology)
{
    (void)context;
    MPI_Comm_rank(MPI_COMM_WORLD, &topology->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &topology->nranks);
    topology->nnodes = 1;
    strcpy(topology->transport, "MPI");
    return HALAY_OK;
}

int halay_comm_verdict(const halay_comm_t *comm, halay_verdict_t *verdict)
{
    (void)comm, (void)verdict;
    return HALAY_OK;
}

int halay_mem_alloc(halay_context_t *context, size_t bytes, void **address)
{
    (void)context, (void)bytes, (void)address;
    fprintf(stderr, "mpi_bench: there is no registered memory here\n");
    return HALAY_EUNSUPPORTED;
}

int halay_mem_free(halay_context_t *context, void *address)
{
    (void)context, (void)address;
    return HALAY_OK;
}

int hly_bench_calibrate(const char *path)
{
    fprintf(stderr, "mpi_bench: calibrate, for %s, is not for MPI\n", path);
    return 2;
}

int halay_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm)
{
    (void)comm;
    return MPI_Allreduce(input_of(in), out, (int)count, type_of(type), op_of(op), MPI_COMM_WORLD);
}

int halay_broadcast(void *buffer, size_t count, halay_type_t type, int root, halay_comm_t *comm)
{
    (void)comm;
    return MPI_Bcast(buffer, (int)count, type_of(type), root, MPI_COMM_WORLD);
}

int halay_allgather(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm)
{
    const MPI_Datatype t = type_of(type);
    (void)comm;
    return MPI_Allgather(input_of(in), (int)count, t, out, (int)count, t, MPI_COMM_WORLD);
}

int halay_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm)
{
    (void)comm;
    return MPI_Reduce_scatter_block(input_of(in), out, (int)count, type_of(type), op_of(op),
                                    MPI_COMM_WORLD);
}

int halay_alltoall(const void *in, void *out, size_t count, halay_type_t type, halay_comm_t *comm)
{
    const MPI_Datatype t = type_of(type);
    (void)comm;
    return MPI_Alltoall(input_of(in), (int)count, t, out, (int)count, t, MPI_COMM_WORLD);
}

int halay_barrier(halay_comm_t *comm)
{
    (void)comm;
    return MPI_Barrier(MPI_COMM_WORLD);
}

int halay_reduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                 int root, halay_comm_t *comm)
{
    (void)comm;
    return MPI_Reduce(input_of(in), out, (int)count, type_of(type), op_of(op), root,
                      MPI_COMM_WORLD);
}

int halay_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                 halay_comm_t *comm)
{
    const MPI_Datatype t = type_of(type);
    (void)comm;
    return MPI_Gather(input_of(in), (int)count, t, out, (int)count, t, root, MPI_COMM_WORLD);
}

int halay_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
               halay_comm_t *comm)
{
    (void)comm;
    return MPI_Scan(input_of(in), out, (int)count, type_of(type), op_of(op), MPI_COMM_WORLD);
}

int halay_exscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                 halay_comm_t *comm)
{
    (void)comm;
    return MPI_Exscan(input_of(in), out, (int)count, type_of(type), op_of(op), MPI_COMM_WORLD);
}

/* In place the root's block stays in `out`, which is MPI's input there. */
int halay_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                  halay_comm_t *comm)
{
    const MPI_Datatype t = type_of(type);
    const int here = in == HALAY_IN_PLACE;
    (void)comm;
    return MPI_Scatter(here ? out : in, (int)count, t, here ? MPI_IN_PLACE : out, (int)count, t,
                       root, MPI_COMM_WORLD);
}
