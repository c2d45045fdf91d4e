/* SPDX-License-Identifier: Apache-2.0 */
/* request_made.c - requests that are no call of Halay's: generalised ones, which the program
 * completes, and those of a send and a receive in one. */
#include <stdlib.h>

#include "comm.h"
#include "message.h"

int hly_mpi_request_make(const char *function, struct hly_mpi_comm *comm, size_t kept,
                         struct hly_mpi_request **request)
{
    struct hly_mpi_request *r = hly_mpi_object_new(HLY_MPI_REQUEST, sizeof(*r));
    if (r && kept && !(r->kept = calloc(1, kept))) {
        hly_mpi_object_release(r);
        r = NULL;
    }
    if (!r)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a request", function);
    if (comm)
        hly_mpi_object_hold(comm);
    r->is = HLY_MPI_IS_DONE;
    r->function = function;
    r->comm = comm;
    r->active = true;
    hly_mpi_status_none(&r->status, MPI_ANY_SOURCE);
    *request = r;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- generalised */

struct general {
    hly_mpi_fn *query, *end, *cancel;
    void *extra;
    int complete;
    bool fortran; /* its functions get pointers, and set their code */
};

static bool general_is_done(struct hly_mpi_request *r)
{
    const struct general *g = r->kept;
    return __atomic_load_n(&g->complete, __ATOMIC_ACQUIRE);
}

static int general_then(struct hly_mpi_request *r)
{
    const struct general *g = r->kept;
    return g->query ? r->head.face->call_query(g->query, g->fortran, g->extra, &r->status)
                    : MPI_SUCCESS;
}

static int general_free(struct hly_mpi_request *r)
{
    const struct general *g = r->kept;
    int code = MPI_SUCCESS;
    if (g->end && g->fortran)
        ((void (*)(void *, int *))g->end)(g->extra, &code);
    else if (g->end)
        code = ((int (*)(void *))g->end)(g->extra);
    return r->head.face->error_class(code);
}

static int general_cancel(struct hly_mpi_request *r)
{
    const struct general *g = r->kept;
    if (!g->cancel)
        return MPI_SUCCESS;
    int complete = general_is_done(r), code = MPI_SUCCESS;
    if (g->fortran)
        ((void (*)(void *, int *, int *))g->cancel)(g->extra, &complete, &code);
    else
        code = ((int (*)(void *, int))g->cancel)(g->extra, complete);
    return r->head.face->error_class(code);
}

int hly_mpi_grequest_start(hly_mpi_fn *query_fn, hly_mpi_fn *free_fn, hly_mpi_fn *cancel_fn,
                           void *extra_state, struct hly_mpi_request **request)
{
    int rc = hly_mpi_check_job("MPI_Grequest_start");
    rc =
        rc ? rc : hly_mpi_request_make("MPI_Grequest_start", NULL, sizeof(struct general), request);
    if (rc)
        return rc;
    struct hly_mpi_request *r = *request;
    *(struct general *)r->kept =
        (struct general){query_fn, free_fn, cancel_fn, extra_state, 0, false};
    r->is_done = general_is_done;
    r->then = general_then;
    r->given = general_free;
    r->cancel = general_cancel;
    return MPI_SUCCESS;
}

void hly_mpi_grequest_fortran(struct hly_mpi_request *request)
{
    if (request && request->is_done == general_is_done)
        ((struct general *)request->kept)->fortran = true;
}

int hly_mpi_grequest_complete(struct hly_mpi_request *request)
{
    if (!request || request->is_done != general_is_done)
        return hly_mpi_fail(MPI_ERR_REQUEST,
                            "MPI_Grequest_complete: the request is not of MPI_Grequest_start");
    __atomic_store_n(&((struct general *)request->kept)->complete, 1, __ATOMIC_RELEASE);
    hly_mpi_requests_reap(); /* it may have been freed before */
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- a send and a receive */

struct both {
    struct hly_mpi_request *send, *receive;
};

static bool both_is_done(struct hly_mpi_request *r)
{
    const struct both *b = r->kept;
    return hly_mpi_request_is_done(b->receive) && hly_mpi_request_is_done(b->send);
}

static int both_then(struct hly_mpi_request *r)
{
    struct both *b = r->kept;
    const int first = hly_mpi_request_end(&b->receive, &r->status);
    const int second = hly_mpi_request_end(&b->send, NULL);
    return first ? first : second;
}

static int begin_both(const struct hly_mpi_end *out, const struct hly_mpi_end *in,
                      struct hly_mpi_request **request)
{
    struct hly_mpi_request *r = NULL;
    int rc = hly_mpi_end_check(out);
    rc = rc ? rc : hly_mpi_end_check(in);
    rc = rc ? rc : hly_mpi_request_make(out->function, out->comm, sizeof(struct both), &r);
    struct both *b = rc ? NULL : r->kept;
    /* The send first: its data are copied before a message that is there already replaces them. */
    rc = rc ? rc : hly_mpi_end_begin(out, false, &b->send);
    if (!rc && (rc = hly_mpi_end_begin(in, false, &b->receive)))
        hly_mpi_request_free(&b->send);
    if (rc) {
        if (r)
            hly_mpi_request_drop(r);
        return rc;
    }
    r->is_done = both_is_done;
    r->then = both_then;
    *request = r;
    return MPI_SUCCESS;
}

int hly_mpi_isendrecv(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                      int dest, int sendtag, void *recvbuf, int64_t recvcount,
                      struct hly_mpi_type *recvtype, int source, int recvtag,
                      struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    const struct hly_mpi_end out = {.function = "MPI_Isendrecv",
                                    .buffer = (void *)(uintptr_t)sendbuf,
                                    .count = sendcount,
                                    .type = sendtype,
                                    .rank = dest,
                                    .tag = sendtag,
                                    .comm = comm,
                                    .sends = true};
    const struct hly_mpi_end in = {.function = "MPI_Isendrecv",
                                   .buffer = recvbuf,
                                   .count = recvcount,
                                   .type = recvtype,
                                   .rank = source,
                                   .tag = recvtag,
                                   .comm = comm};
    return begin_both(&out, &in, request);
}

int hly_mpi_isendrecv_replace(void *buf, int64_t count, struct hly_mpi_type *datatype, int dest,
                              int sendtag, int source, int recvtag, struct hly_mpi_comm *comm,
                              struct hly_mpi_request **request)
{
    const struct hly_mpi_end out = {.function = "MPI_Isendrecv_replace",
                                    .buffer = buf,
                                    .count = count,
                                    .type = datatype,
                                    .rank = dest,
                                    .tag = sendtag,
                                    .comm = comm,
                                    .sends = true,
                                    .copied = true};
    struct hly_mpi_end in = out;
    in.rank = source;
    in.tag = recvtag;
    in.sends = in.copied = false;
    return begin_both(&out, &in, request);
}
