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
#include <halay/halay.h>

int hly_spoilt_allreduce(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm);
int hly_spoilt_broadcast(void *buffer, size_t count, halay_type_t type, int root,
                         halay_comm_t *comm);
int hly_spoilt_allgather(const void *in, void *out, size_t count, halay_type_t type,
                         halay_comm_t *comm);
int hly_spoilt_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm);

static int spoil(int rc, void *out, size_t count, halay_type_t type)
{
    if (rc == HALAY_OK && type == HALAY_FLOAT32)
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
    int nranks = 1;
    halay_comm_size(comm, &nranks);
    return spoil(halay_allgather(in, out, count, type, comm), out, count * (size_t)nranks, type);
}

int hly_spoilt_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm)
{
    return spoil(halay_reduce_scatter(in, out, count, type, op, comm), out, count, type);
}
