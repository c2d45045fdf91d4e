/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c - send and receive, in all modes and forms.
 *
 * Data of a dense type are sent from where they are; others are packed first, and unpacked when
 * they have come. Halay compares the types of both ends as numbers: integers of a size, signed or
 * not, are one type, and bytes, characters, and what it does not know, match all.
 */
#include "message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kept { /* of a request: what it sends or receives */
    struct hly_mpi_end end;
    char *packed; /* NULL: the buffer itself */
    halay_message_t *taken;
};

/* ---------------------------------------------------------------- arguments */

int hly_mpi_rank_of(const struct hly_mpi_comm *comm, int rank)
{
    if (rank == MPI_ANY_SOURCE)
        return HALAY_ANY_SOURCE;
    return comm->remote ? comm->remote_first + rank : rank;
}

static int check_rank(const struct hly_mpi_end *e)
{
    const int n = e->comm->remote ? e->comm->remote->size : e->comm->size;
    if (e->rank == MPI_PROC_NULL || (!e->sends && e->rank == MPI_ANY_SOURCE) ||
        (e->rank >= 0 && e->rank < n))
        return MPI_SUCCESS;
    if (e->rank == MPI_ANY_SOURCE)
        return hly_mpi_fail(MPI_ERR_RANK, "%s: MPI_ANY_SOURCE is for receives", e->function);
    return hly_mpi_fail(MPI_ERR_RANK, "%s: rank %d: the communicator has ranks 0 to %d",
                        e->function, e->rank, n - 1);
}

int hly_mpi_end_check(const struct hly_mpi_end *e)
{
    int rc = hly_mpi_check_comm(e->function, e->comm);
    rc = rc ? rc : check_rank(e);
    if (!rc && e->sends && e->tag == MPI_ANY_TAG)
        rc = hly_mpi_fail(MPI_ERR_TAG, "%s: MPI_ANY_TAG is for receives", e->function);
    if (!rc && e->tag < 0 && e->tag != MPI_ANY_TAG)
        rc = hly_mpi_fail(MPI_ERR_TAG, "%s: tag %d: a tag is 0 or more", e->function, e->tag);
    if (!rc && e->buffer == MPI_IN_PLACE)
        rc = hly_mpi_fail(MPI_ERR_BUFFER, "%s: MPI_IN_PLACE is for collectives", e->function);
    rc = rc ? rc : hly_mpi_check_data(e->function, e->buffer, e->count, e->type);
    if (!rc && !e->sends && e->count && e->type->size > e->type->true_extent)
        rc = hly_mpi_fail(MPI_ERR_TYPE,
                          "%s: the datatype has %lld bytes in a space of %lld, so some stand there "
                          "twice: it is not for receives",
                          e->function, (long long)e->type->size, (long long)e->type->true_extent);
    return rc;
}

/* Do both ends of an exchange use the same memory? */
static int check_apart(const struct hly_mpi_end *out, const struct hly_mpi_end *in)
{
    const uintptr_t a = (uintptr_t)out->buffer, b = (uintptr_t)in->buffer;
    if (out->rank == MPI_PROC_NULL || in->rank == MPI_PROC_NULL || !out->type->dense ||
        !in->type->dense)
        return MPI_SUCCESS;
    if (a >= b + (uintptr_t)(in->count * in->type->size) ||
        b >= a + (uintptr_t)(out->count * out->type->size))
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_BUFFER,
                        "%s: sendbuf and recvbuf overlap: use MPI_Sendrecv_replace for one buffer",
                        out->function);
}

halay_type_t hly_mpi_type_compared(const struct hly_mpi_type *type)
{
    switch (type->halay) {
    case HALAY_INT16:
    case HALAY_UINT16:
        return HALAY_INT16;
    case HALAY_INT32:
    case HALAY_UINT32:
        return HALAY_INT32;
    case HALAY_INT64:
    case HALAY_UINT64:
        return HALAY_INT64;
    case HALAY_FLOAT32:
        return HALAY_FLOAT32;
    case HALAY_FLOAT64:
        return HALAY_FLOAT64;
    default:
        return HALAY_UINT8;
    }
}

static size_t elements_of(const struct hly_mpi_end *e)
{
    return (size_t)(e->count * e->type->size) / halay_type_bytes(hly_mpi_type_compared(e->type));
}

/* ---------------------------------------------------------------- statuses */

void hly_mpi_status_none(struct hly_mpi_status *status, int source)
{
    if (status)
        *status = (struct hly_mpi_status){.source = source, .tag = MPI_ANY_TAG};
}

void hly_mpi_status_fill(struct hly_mpi_status *status, const struct hly_mpi_comm *comm,
                         const halay_envelope_t *e)
{
    if (!status)
        return;
    hly_mpi_status_none(status, MPI_ANY_SOURCE);
    status->cancelled = e->cancelled;
    if (e->source < 0)
        return;
    status->source = comm->remote ? e->source - comm->remote_first : e->source;
    status->tag = e->tag;
    status->bytes = (int64_t)e->bytes;
}

/* ---------------------------------------------------------------- requests */

static void kept_end(struct hly_mpi_request *r)
{
    struct kept *k = r->kept;
    if (k->packed)
        free(k->packed);
    hly_mpi_object_release(k->end.type);
}

static int kept_then(struct hly_mpi_request *r)
{
    const struct kept *k = r->kept;
    const struct hly_mpi_end *e = &k->end;
    const int64_t bytes = r->status.bytes;
    if (!k->packed || e->sends || r->status.cancelled)
        return MPI_SUCCESS;
    if (e->type->halay >= 0 && bytes % (int64_t)halay_type_bytes((halay_type_t)e->type->halay))
        return hly_mpi_fail(MPI_ERR_TYPE,
                            "%s: the message has %lld bytes, which are no whole elements of the "
                            "receive's type",
                            e->function, (long long)bytes);
    hly_mpi_unpack_range(e->buffer, e->count, e->type, 0, bytes, k->packed);
    return MPI_SUCCESS;
}

void hly_mpi_request_text(const struct hly_mpi_request *r, char *text, size_t bytes)
{
    const bool message = r->is == HLY_MPI_IS_SEND || r->is == HLY_MPI_IS_RECV;
    const struct hly_mpi_end *e = message ? &((const struct kept *)r->kept)->end : NULL;
    char rank[32] = "any rank", tag[32] = "any tag";
    if (e && e->rank != MPI_ANY_SOURCE)
        snprintf(rank, sizeof(rank), "rank %d", e->rank);
    if (e && e->tag != MPI_ANY_TAG)
        snprintf(tag, sizeof(tag), "tag %d", e->tag);
    snprintf(text, bytes, e ? "%s %s %s with %s" : "%s", r->function, e && e->sends ? "to" : "from",
             rank, tag);
}

static int kept_start(struct hly_mpi_request *r)
{
    struct kept *k = r->kept;
    const struct hly_mpi_end *e = &k->end;
    const int tag = e->tag == MPI_ANY_TAG ? HALAY_ANY_TAG : e->tag;
    const halay_type_t type = hly_mpi_type_compared(e->type);
    const size_t n = elements_of(e);
    void *at = k->packed ? k->packed : e->buffer;
    int rc;
    r->halay = NULL;
    hly_mpi_status_none(&r->status, MPI_ANY_SOURCE);
    if (e->rank == MPI_PROC_NULL) {
        hly_mpi_status_none(&r->status, MPI_PROC_NULL);
        return MPI_SUCCESS;
    }
    if (k->packed && e->sends)
        hly_mpi_pack_range(e->buffer, e->count, e->type, 0, e->count * e->type->size, k->packed);
    if (e->sends)
        rc = halay_message_isend(at, n, type, hly_mpi_rank_of(e->comm, e->rank), tag,
                                 e->synchronous ? HALAY_SEND_SYNCHRONOUS : HALAY_SEND_STANDARD,
                                 e->comm->halay, &r->halay);
    else if (k->taken)
        rc = halay_message_irecv_taken(at, n, type, k->taken, &r->halay);
    else
        rc = halay_message_irecv(at, n, type, hly_mpi_rank_of(e->comm, e->rank), tag,
                                 e->comm->halay, &r->halay);
    k->taken = NULL;
    return hly_mpi_result(rc, e->comm, e->function);
}

static int begin(const struct hly_mpi_end *e, halay_message_t *taken, bool persistent,
                 struct hly_mpi_request **request)
{
    struct hly_mpi_request *r = hly_mpi_object_new(HLY_MPI_REQUEST, sizeof(*r));
    struct kept *k = calloc(1, sizeof(*k));
    const size_t bytes = (size_t)(e->count * e->type->size);
    if (r && k && (e->copied || !e->type->dense) && bytes && !(k->packed = malloc(bytes))) {
        free(k);
        k = NULL;
    }
    if (!r || !k) {
        if (r)
            hly_mpi_object_release(r);
        free(k);
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a message of %zu bytes", e->function,
                            bytes);
    }
    k->end = *e;
    k->taken = taken;
    hly_mpi_object_hold(e->type);
    hly_mpi_object_hold(e->comm);
    r->is = e->sends ? HLY_MPI_IS_SEND : HLY_MPI_IS_RECV;
    r->function = e->function;
    r->comm = e->comm;
    r->kept = k;
    r->end = kept_end;
    r->then = kept_then;
    r->start = kept_start;
    r->persistent = persistent;
    int rc = persistent ? MPI_SUCCESS : kept_start(r);
    if (rc) {
        hly_mpi_request_drop(r);
        return rc;
    }
    r->active = !persistent;
    *request = r;
    return MPI_SUCCESS;
}

int hly_mpi_end_begin(const struct hly_mpi_end *e, bool persistent,
                      struct hly_mpi_request **request)
{
    int rc = hly_mpi_end_check(e);
    return rc ? rc : begin(e, NULL, persistent, request);
}

int hly_mpi_end_begin_taken(const struct hly_mpi_end *e, halay_message_t *taken,
                            struct hly_mpi_request **request)
{
    int rc = hly_mpi_check_data(e->function, e->buffer, e->count, e->type);
    return rc ? rc : begin(e, taken, false, request);
}

/* ---------------------------------------------------------------- blocking */

static int begin_and_end(const struct hly_mpi_end *e, struct hly_mpi_status *status)
{
    struct hly_mpi_request *r;
    int rc = begin(e, NULL, false, &r);
    return rc ? rc : hly_mpi_request_end(&r, status);
}

static int send_now(const struct hly_mpi_end *e)
{
    int rc = hly_mpi_end_check(e);
    if (rc || e->rank == MPI_PROC_NULL)
        return rc;
    if (!e->type->dense)
        return begin_and_end(e, NULL);
    rc = halay_message_send(e->buffer, elements_of(e), hly_mpi_type_compared(e->type),
                            hly_mpi_rank_of(e->comm, e->rank), e->tag,
                            e->synchronous ? HALAY_SEND_SYNCHRONOUS : HALAY_SEND_STANDARD,
                            e->comm->halay);
    return hly_mpi_result(rc, e->comm, e->function);
}

/* The error of a receive. */
static int receive_result(const struct hly_mpi_end *e, int code, const halay_envelope_t *came)
{
    const int64_t room = e->count * e->type->size;
    if (code == HALAY_EMISMATCH && (int64_t)came->bytes > room)
        return hly_mpi_fail(MPI_ERR_TRUNCATE,
                            "%s: the message from rank %d with tag %d has %lld bytes, and the "
                            "receive has room for %lld",
                            e->function, came->source, came->tag, (long long)came->bytes,
                            (long long)room);
    const int rc = hly_mpi_result(code, e->comm, e->function);
    return code == HALAY_EMISMATCH ? hly_mpi_fail_again(MPI_ERR_TYPE, NULL) : rc;
}

static int receive_now(const struct hly_mpi_end *e, struct hly_mpi_status *status)
{
    halay_envelope_t came = {.size = sizeof(came)};
    int rc = hly_mpi_end_check(e);
    if (!rc && e->rank == MPI_PROC_NULL)
        hly_mpi_status_none(status, MPI_PROC_NULL);
    if (rc || e->rank == MPI_PROC_NULL)
        return rc;
    if (!e->type->dense)
        return begin_and_end(e, status);
    const int code =
        halay_message_recv(e->buffer, elements_of(e), hly_mpi_type_compared(e->type),
                           hly_mpi_rank_of(e->comm, e->rank),
                           e->tag == MPI_ANY_TAG ? HALAY_ANY_TAG : e->tag, e->comm->halay, &came);
    hly_mpi_status_fill(status, e->comm, &came);
    return code ? receive_result(e, code, &came) : MPI_SUCCESS;
}

int hly_mpi_message_result(struct hly_mpi_request *r, int code, const halay_envelope_t *came)
{
    const struct kept *k = r->kept;
    if (r->is == HLY_MPI_IS_RECV)
        return receive_result(&k->end, code, came);
    return hly_mpi_result(code, r->comm, r->function);
}

/* ---------------------------------------------------------------- the functions */

/* What goes to or comes from MPI_PROC_NULL needs no type. */
static struct hly_mpi_type *type_with(struct hly_mpi_type *type, int rank)
{
    return type || rank != MPI_PROC_NULL ? type
                                         : hly_mpi_predefined(HLY_MPI_TYPE, HLY_MPI_BYTE_NUMBER);
}

static int send_with(const char *function, const void *buf, int64_t count,
                     struct hly_mpi_type *datatype, int dest, int tag, struct hly_mpi_comm *comm,
                     bool synchronous)
{
    const struct hly_mpi_end e = {function,    (void *)(uintptr_t)buf,
                                  count,       type_with(datatype, dest),
                                  dest,        tag,
                                  comm,        true,
                                  synchronous, false};
    return send_now(&e);
}

int hly_mpi_send(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest, int tag,
                 struct hly_mpi_comm *comm)
{
    return send_with("MPI_Send", buf, count, datatype, dest, tag, comm, false);
}

int hly_mpi_rsend(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest, int tag,
                  struct hly_mpi_comm *comm)
{
    return send_with("MPI_Rsend", buf, count, datatype, dest, tag, comm, false);
}

int hly_mpi_ssend(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest, int tag,
                  struct hly_mpi_comm *comm)
{
    return send_with("MPI_Ssend", buf, count, datatype, dest, tag, comm, true);
}

static int send_later(const char *function, const void *buf, int64_t count,
                      struct hly_mpi_type *datatype, int dest, int tag, struct hly_mpi_comm *comm,
                      bool synchronous, bool persistent, struct hly_mpi_request **request)
{
    const struct hly_mpi_end e = {function,    (void *)(uintptr_t)buf,
                                  count,       type_with(datatype, dest),
                                  dest,        tag,
                                  comm,        true,
                                  synchronous, false};
    return hly_mpi_end_begin(&e, persistent, request);
}

int hly_mpi_isend(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest, int tag,
                  struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return send_later("MPI_Isend", buf, count, datatype, dest, tag, comm, false, false, request);
}

int hly_mpi_irsend(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest, int tag,
                   struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return send_later("MPI_Irsend", buf, count, datatype, dest, tag, comm, false, false, request);
}

int hly_mpi_issend(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest, int tag,
                   struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return send_later("MPI_Issend", buf, count, datatype, dest, tag, comm, true, false, request);
}

int hly_mpi_send_init(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest,
                      int tag, struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return send_later("MPI_Send_init", buf, count, datatype, dest, tag, comm, false, true, request);
}

int hly_mpi_rsend_init(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest,
                       int tag, struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return send_later("MPI_Rsend_init", buf, count, datatype, dest, tag, comm, false, true,
                      request);
}

int hly_mpi_ssend_init(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest,
                       int tag, struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    return send_later("MPI_Ssend_init", buf, count, datatype, dest, tag, comm, true, true, request);
}

int hly_mpi_recv(void *buf, int64_t count, struct hly_mpi_type *datatype, int source, int tag,
                 struct hly_mpi_comm *comm, struct hly_mpi_status *status)
{
    const struct hly_mpi_end e = {"MPI_Recv", buf,  count, type_with(datatype, source),
                                  source,     tag,  comm,  false,
                                  false,      false};
    return receive_now(&e, status);
}

int hly_mpi_irecv(void *buf, int64_t count, struct hly_mpi_type *datatype, int source, int tag,
                  struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    const struct hly_mpi_end e = {"MPI_Irecv", buf,  count, type_with(datatype, source),
                                  source,      tag,  comm,  false,
                                  false,       false};
    return hly_mpi_end_begin(&e, false, request);
}

int hly_mpi_recv_init(void *buf, int64_t count, struct hly_mpi_type *datatype, int source, int tag,
                      struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    const struct hly_mpi_end e = {
        "MPI_Recv_init", buf, count, type_with(datatype, source), source, tag, comm, false, false};
    return hly_mpi_end_begin(&e, true, request);
}

int hly_mpi_sendrecv(const void *sendbuf, int64_t sendcount, struct hly_mpi_type *sendtype,
                     int dest, int sendtag, void *recvbuf, int64_t recvcount,
                     struct hly_mpi_type *recvtype, int source, int recvtag,
                     struct hly_mpi_comm *comm, struct hly_mpi_status *status)
{
    const struct hly_mpi_end out = {"MPI_Sendrecv", (void *)(uintptr_t)sendbuf,
                                    sendcount,      sendtype,
                                    dest,           sendtag,
                                    comm,           true,
                                    false,          false};
    const struct hly_mpi_end in = {"MPI_Sendrecv", recvbuf, recvcount, recvtype, source,
                                   recvtag,        comm,    false,     false,    false};
    return hly_mpi_exchange_message(&out, &in, status);
}

int hly_mpi_exchange_message(const struct hly_mpi_end *out_end, const struct hly_mpi_end *in_end,
                             struct hly_mpi_status *status)
{
    const struct hly_mpi_end out = *out_end, in = *in_end;
    struct hly_mpi_request *receive, *send;
    int rc = hly_mpi_end_check(&out);
    rc = rc ? rc : hly_mpi_end_check(&in);
    rc = rc ? rc : check_apart(&out, &in);
    rc = rc ? rc : hly_mpi_end_begin(&in, false, &receive);
    if (rc)
        return rc;
    const int sent = begin(&out, NULL, false, &send);
    if (sent) { /* the receive cannot be taken back without a chance that it has its message */
        hly_mpi_cancel(&receive);
        hly_mpi_request_end(&receive, NULL);
        return sent;
    }
    const int first = hly_mpi_request_end(&receive, status);
    const int second = hly_mpi_request_end(&send, NULL);
    return first ? first : second;
}

int hly_mpi_sendrecv_replace(void *buf, int64_t count, struct hly_mpi_type *datatype, int dest,
                             int sendtag, int source, int recvtag, struct hly_mpi_comm *comm,
                             struct hly_mpi_status *status)
{
    const struct hly_mpi_end e = {
        "MPI_Sendrecv_replace", buf, count, datatype, dest, sendtag, comm, true, false, false};
    int rc = hly_mpi_end_check(&e);
    if (rc)
        return rc;
    const size_t bytes = (size_t)(count * datatype->size);
    char *copy = malloc(bytes + 1);
    if (!copy)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Sendrecv_replace: no memory for %zu bytes", bytes);
    hly_mpi_pack_range(buf, count, datatype, 0, (int64_t)bytes, copy);
    struct hly_mpi_type *byte = hly_mpi_predefined(HLY_MPI_TYPE, HLY_MPI_BYTE_NUMBER);
    rc = hly_mpi_sendrecv(copy, (int64_t)bytes, byte, dest, sendtag, buf, count, datatype, source,
                          recvtag, comm, status);
    free(copy);
    return rc;
}
