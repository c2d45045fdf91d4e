/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c - the collectives and messages that JAX's CPU client makes, on any thread. */
#include <stdlib.h>

#include "shim.h"

/* ---------------------------------------------------------------- collectives */

int MPIABI_Allreduce(const void *in, void *out, int count, word datatype, word op, word handle)
{
    const struct comm *comm = comm_of(handle);
    halay_type_t type;
    halay_op_t how;
    int rc = check_type("MPI_Allreduce", count, datatype, &type);
    if (!rc)
        rc = check_op("MPI_Allreduce", op, &how);
    if (!rc)
        rc = call_begin(comm);
    if (rc)
        return rc;
    return result(comm, halay_allreduce(in == out ? HALAY_IN_PLACE : in, out, (size_t)count, type,
                                        how, comm->halay));
}

int MPIABI_Allgather(const void *in, int in_count, word in_type, void *out, int count,
                     word datatype, word handle)
{
    const struct comm *comm = comm_of(handle);
    halay_type_t type;
    int rc = check_type("MPI_Allgather", count, datatype, &type);
    if (!rc && in != HALAY_IN_PLACE && (in_count != count || in_type != datatype))
        rc =
            fail(HALAY_EUNSUPPORTED, "MPI_Allgather: both sides must have the same count and type");
    if (!rc)
        rc = call_begin(comm);
    if (rc)
        return rc;
    return result(comm, halay_allgather(in, out, (size_t)count, type, comm->halay));
}

int MPIABI_Reduce_scatter(const void *in, void *out, const int counts[], word datatype, word op,
                          word handle)
{
    const struct comm *comm = comm_of(handle);
    halay_type_t type;
    halay_op_t how;
    int rc = check_type("MPI_Reduce_scatter", counts[0], datatype, &type);
    for (int r = 1; r < comm->size && !rc; r++)
        rc = check_type("MPI_Reduce_scatter", counts[r], datatype, &type);
    if (!rc)
        rc = check_op("MPI_Reduce_scatter", op, &how);
    if (rc)
        return rc;
    const void *from = in == out ? HALAY_IN_PLACE : in;
    bool same = true;
    for (int r = 1; r < comm->size; r++)
        same = same && counts[r] == counts[0];
    size_t *each = same ? NULL : malloc((size_t)comm->size * sizeof(*each));
    if (!same && !each)
        return fail(HALAY_ENOMEM, "MPI_Reduce_scatter: no memory");
    for (int r = 0; r < comm->size && each; r++)
        each[r] = (size_t)counts[r];
    rc = call_begin(comm);
    if (!rc)
        rc = result(comm, each ? halay_reduce_scatterv(from, out, each, type, how, comm->halay)
                               : halay_reduce_scatter(from, out, (size_t)counts[0], type, how,
                                                      comm->halay));
    free(each);
    return rc;
}

/* ---------------------------------------------------------------- messages */

struct message { /* what a request is */
    halay_request_t *request;
    const struct comm *comm;
    int peer;
};

/* Messages have no tags here: the n-th that is sent meets the n-th that is received. */
static int check_peer(const char *function, int peer, int tag, const struct comm *comm)
{
    if (peer < 0 || peer >= comm->size)
        return fail(HALAY_EINVAL, "%s: there is no rank %d", function, peer);
    if (tag && tag != MPI_ANY_TAG)
        return fail(HALAY_EUNSUPPORTED, "%s: tag %d: Halay offers tag 0 only", function, tag);
    if (peer == comm->rank)
        return fail(HALAY_EUNSUPPORTED, "%s: Halay sends nothing to the rank itself", function);
    return MPI_SUCCESS;
}

static int begin(const char *function, const void *from, void *to, int count, word datatype,
                 int peer, int tag, word handle, word *request)
{
    const struct comm *comm = comm_of(handle);
    halay_type_t type;
    *request = NONE;
    int rc = check(comm);
    if (!rc && peer == MPI_PROC_NULL)
        return MPI_SUCCESS;
    if (!rc)
        rc = check_type(function, count, datatype, &type);
    if (!rc)
        rc = check_peer(function, peer, tag, comm);
    if (rc)
        return rc;
    struct message *m = malloc(sizeof(*m));
    if (!m)
        return fail(HALAY_ENOMEM, "%s: no memory", function);
    *m = (struct message){.comm = comm, .peer = peer};
    rc = call_begin(comm);
    if (rc) {
        free(m);
        return rc;
    }
    rc = to ? halay_irecv(to, (size_t)count, type, peer, comm->halay, &m->request)
            : halay_isend(from, (size_t)count, type, peer, comm->halay, &m->request);
    if (rc)
        free(m);
    else
        *request = (word)m;
    return result(comm, rc);
}

int MPIABI_Isend(const void *buffer, int count, word datatype, int peer, int tag, word comm,
                 word *request)
{
    return begin("MPI_Isend", buffer, NULL, count, datatype, peer, tag, comm, request);
}

int MPIABI_Irecv(void *buffer, int count, word datatype, int peer, int tag, word comm,
                 word *request)
{
    return begin("MPI_Irecv", NULL, buffer, count, datatype, peer, tag, comm, request);
}

int MPIABI_Wait(word *request, struct status *status)
{
    struct message *m = (struct message *)*request; // NOLINT(performance-no-int-to-ptr)
    if (status)
        *status = (struct status){.source = m ? m->peer : MPI_PROC_NULL};
    if (!m)
        return MPI_SUCCESS;
    int rc = call_begin(m->comm);
    if (!rc)
        rc = result(m->comm, halay_request_wait(m->request));
    free(m);
    *request = NONE;
    return rc;
}

int MPIABI_Sendrecv(const void *in, int in_count, word in_type, int to, int in_tag, void *out,
                    int out_count, word out_type, int from, int out_tag, word comm,
                    struct status *status)
{
    word received, sent = NONE;
    int rc = begin("MPI_Sendrecv", NULL, out, out_count, out_type, from, out_tag, comm, &received);
    if (!rc)
        rc = begin("MPI_Sendrecv", in, NULL, in_count, in_type, to, in_tag, comm, &sent);
    const int second = MPIABI_Wait(&sent, NULL), first = MPIABI_Wait(&received, status);
    return rc ? rc : first ? first : second;
}
