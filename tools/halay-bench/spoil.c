/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spoil.c - for the test that wrong data are noticed: stands between halay-bench's loop and the
 * library, and spoils the last byte of each result. halay-bench's own agreements are left alone:
 * those are of int32 and float64.
 */
#undef halay_allreduce
#undef halay_broadcast
#undef halay_allgather
#undef halay_reduce_scatter
#undef halay_reduce
#undef halay_gather
#undef halay_scatter
#undef halay_alltoall
#undef halay_scan
#undef halay_exscan
#include <halay/halay.h>

int hly_spoilt_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm);
int hly_spoilt_broadcast(void *buffer, size_t count, halay_type_t type, int root,
                         halay_comm_t *comm);
int hly_spoilt_allgather(const void *in, void *out, size_t count, halay_type_t type,
                         halay_comm_t *comm);
int hly_spoilt_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm);

int hly_spoilt_reduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                      int root, halay_comm_t *comm);
int hly_spoilt_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                      halay_comm_t *comm);
int hly_spoilt_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                       halay_comm_t *comm);
int hly_spoilt_alltoall(const void *in, void *out, size_t count, halay_type_t type,
                        halay_comm_t *comm);
int hly_spoilt_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm);
int hly_spoilt_exscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                      halay_comm_t *comm);

static size_t ranks(halay_comm_t *comm)
{
    int nranks = 1;
    halay_comm_size(comm, &nranks);
    return (size_t)nranks;
}

static int spoil(int rc, void *out, size_t count, halay_type_t type)
{
    if (rc == HALAY_OK && type == HALAY_FLOAT32 && out)
        ((unsigned char *)out)[count * sizeof(float) - 1] ^= 1;
    return rc;
}

int hly_spoilt_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm)
{
    return spoil(halay_allreduce(in, out, count, type, op, comm), out, count, type);
}

int hly_spoilt_broadcast(void *buffer, size_t count, halay_type_t type, int root,
                         halay_comm_t *comm)
{
    return spoil(halay_broadcast(buffer, count, type, root, comm), buffer, count, type);
}

int hly_spoilt_allgather(const void *in, void *out, size_t count, halay_type_t type,
                         halay_comm_t *comm)
{
    return spoil(halay_allgather(in, out, count, type, comm), out, count * ranks(comm), type);
}

int hly_spoilt_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm)
{
    return spoil(halay_reduce_scatter(in, out, count, type, op, comm), out, count, type);
}

int hly_spoilt_reduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                      int root, halay_comm_t *comm)
{
    return spoil(halay_reduce(in, out, count, type, op, root, comm), out, count, type);
}

int hly_spoilt_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                      halay_comm_t *comm)
{
    return spoil(halay_gather(in, out, count, type, root, comm), out, count * ranks(comm), type);
}

int hly_spoilt_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                       halay_comm_t *comm)
{
    return spoil(halay_scatter(in, out, count, type, root, comm), out, count, type);
}

int hly_spoilt_alltoall(const void *in, void *out, size_t count, halay_type_t type,
                        halay_comm_t *comm)
{
    return spoil(halay_alltoall(in, out, count, type, comm), out, count * ranks(comm), type);
}

int hly_spoilt_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm)
{
    return spoil(halay_scan(in, out, count, type, op, comm), out, count, type);
}

int hly_spoilt_exscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                      halay_comm_t *comm)
{
    return spoil(halay_exscan(in, out, count, type, op, comm), out, count, type);
}
