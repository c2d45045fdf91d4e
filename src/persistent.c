/* SPDX-License-Identifier: Apache-2.0 */
/*
 * persistent.c - requests that are made once and started many times. An init call is the
 * non-blocking call, told to stop before the request is begun: all that depends on the arguments
 * (checks, signature, plan, where operands lie) is done then, and a start only takes the next place
 * in the communicator's sequence. To the other ranks a start is the call itself.
 */
#include <stdlib.h>

#include "api.h"

/* Calls on one communicator are ordered by the program, so the mark meets the right one. */
static halay_comm_t *begin(halay_comm_t *comm)
{
    if (hly_usable(comm, comm) && !hly_forked(comm->context))
        comm->persists = true;
    return comm;
}

static int end(halay_comm_t *comm, int rc)
{
    if (hly_usable(comm, comm))
        comm->persists = false;
    return rc;
}

int hly_persistent_make(halay_comm_t *comm, struct hly_call *call, const struct hly_check *c,
                        halay_request_t **request)
{
    if (c->code == HALAY_ESTATE && comm->magic == HLY_COMM_FREED) {
        hly_log(comm->context, HLY_ERROR, "init of a persistent request: %s", c->text);
        return HALAY_ESTATE;
    }
    int rc = hly_engine_make(comm, call, c->code, c->text, request);
    if (!rc) {
        halay_request_t *r = *request;
        r->persistent = true;
        if (r->plan) /* without the memory it is only slower */
            r->works = r->works ? r->works : calloc(r->plan->plan->nsteps + 1, sizeof(*r->works));
        comm->npersistent++;
    }
    return rc;
}

static int refuse(halay_context_t *context, int rc, const char *what)
{
    hly_log(context, HLY_ERROR, "%s", what);
    hly_unlock(context);
    return rc;
}

int halay_request_start(halay_request_t *handle)
{
    halay_request_t *r;
    int rc = hly_request_lock(handle, &r);
    if (rc)
        return rc;
    halay_context_t *ctx = r->context;
    if (!r->persistent)
        return refuse(ctx, HALAY_EINVAL, "request_start: the request is not persistent");
    if (r->state != HLY_IDLE)
        return refuse(ctx, HALAY_ESTATE, "request_start: it was started, and not waited for");
    hly_engine_go(r);
    hly_unlock(ctx);
    return HALAY_OK;
}

int halay_request_free(halay_request_t *handle)
{
    halay_request_t *r;
    if (!handle)
        return HALAY_OK;
    int rc = hly_request_lock(handle, &r);
    if (rc)
        return rc;
    halay_context_t *ctx = r->context;
    if (!r->persistent)
        return refuse(ctx, HALAY_EINVAL, "request_free: the request is not persistent");
    if (r->state != HLY_IDLE)
        return refuse(ctx, HALAY_ESTATE, "request_free: it was started, and not waited for");
    r->comm->npersistent--;
    r->persistent = false;
    r->state = HLY_COMPLETE;
    hly_request_release(r);
    hly_unlock(ctx);
    return HALAY_OK;
}

/* ---------------------------------------------------------------- one for each collective */

int halay_allreduce_init(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_iallreduce(in, out, count, type, op, begin(comm), request));
}

int halay_allreduce_scaled_init(const void *in, void *out, size_t count, halay_type_t type,
                                halay_op_t op, double prescale, double postscale,
                                halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_iallreduce_scaled(in, out, count, type, op, prescale, postscale,
                                             begin(comm), request));
}

int halay_broadcast_init(void *buffer, size_t count, halay_type_t type, int root,
                         halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_ibroadcast(buffer, count, type, root, begin(comm), request));
}

int halay_allgather_init(const void *in, void *out, size_t count, halay_type_t type,
                         halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_iallgather(in, out, count, type, begin(comm), request));
}

int halay_allgatherv_init(const void *in, void *out, const size_t counts[], const size_t displs[],
                          halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_iallgatherv(in, out, counts, displs, type, begin(comm), request));
}

int halay_reduce_scatter_init(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_ireduce_scatter(in, out, count, type, op, begin(comm), request));
}

int halay_reduce_scatterv_init(const void *in, void *out, const size_t counts[], halay_type_t type,
                               halay_op_t op, halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_ireduce_scatterv(in, out, counts, type, op, begin(comm), request));
}

int halay_reduce_init(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                      int root, halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_ireduce(in, out, count, type, op, root, begin(comm), request));
}

int halay_scan_init(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                    halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_iscan(in, out, count, type, op, begin(comm), request));
}

int halay_exscan_init(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                      halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_iexscan(in, out, count, type, op, begin(comm), request));
}

int halay_gather_init(const void *in, void *out, size_t count, halay_type_t type, int root,
                      halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_igather(in, out, count, type, root, begin(comm), request));
}

int halay_gatherv_init(const void *in, void *out, const size_t counts[], const size_t displs[],
                       halay_type_t type, int root, halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_igatherv(in, out, counts, displs, type, root, begin(comm), request));
}

int halay_scatter_init(const void *in, void *out, size_t count, halay_type_t type, int root,
                       halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_iscatter(in, out, count, type, root, begin(comm), request));
}

int halay_scatterv_init(const void *in, void *out, const size_t counts[], const size_t displs[],
                        halay_type_t type, int root, halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_iscatterv(in, out, counts, displs, type, root, begin(comm), request));
}

int halay_alltoall_init(const void *in, void *out, size_t count, halay_type_t type,
                        halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_ialltoall(in, out, count, type, begin(comm), request));
}

int halay_alltoallv_init(const void *in, const size_t in_counts[], const size_t in_displs[],
                         void *out, const size_t out_counts[], const size_t out_displs[],
                         halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_ialltoallv(in, in_counts, in_displs, out, out_counts, out_displs, type,
                                      begin(comm), request));
}

int halay_barrier_init(halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_ibarrier(begin(comm), request));
}

int halay_send_init(const void *buffer, size_t count, halay_type_t type, int peer,
                    halay_comm_t *comm, halay_request_t **request)
{
    return end(comm, halay_isend(buffer, count, type, peer, begin(comm), request));
}

int halay_recv_init(void *buffer, size_t count, halay_type_t type, int peer, halay_comm_t *comm,
                    halay_request_t **request)
{
    return end(comm, halay_irecv(buffer, count, type, peer, begin(comm), request));
}
