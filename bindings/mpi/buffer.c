/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffer.c - buffered sends, and the buffers that a program attaches for them.
 *
 * A buffered send makes a copy of its data and sends that; it is done at once. The copy is in
 * memory of the library: the attached buffer only says how many bytes may be pending. The buffer is
 * that of the communicator, or else that of its session, or else that of the process.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "message.h"

/* For each message, beside its data: not more than MPI_BSEND_OVERHEAD of either ABI. */
#define OVERHEAD 96

struct sent {
    struct hly_mpi_request *request;
    int64_t bytes;
    struct sent *next;
};

struct hly_mpi_buffer {
    void *at;
    int64_t size, used;
    bool attached;
    struct sent *first;
};

static struct hly_mpi_buffer of_process; /* an MPI process is one job */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---------------------------------------------------------------- pending messages */

/* Ends what is done; with the lock. A lost receiver is reported by a later call to it. */
static void reap(struct hly_mpi_buffer *b)
{
    for (struct sent **at = &b->first; *at;) {
        struct sent *s = *at;
        if (!hly_mpi_request_is_done(s->request)) {
            at = &s->next;
            continue;
        }
        hly_mpi_request_end(&s->request, NULL);
        b->used -= s->bytes;
        *at = s->next;
        free(s);
    }
}

static bool is_empty(struct hly_mpi_buffer *b)
{
    pthread_mutex_lock(&lock);
    if (b->first)
        reap(b);
    const bool empty = !b->first;
    pthread_mutex_unlock(&lock);
    return empty;
}

static void flush(struct hly_mpi_buffer *b)
{
    while (b && !is_empty(b))
        hly_mpi_progress();
}

void hly_mpi_buffers_leave(void)
{
    flush(&of_process);
}

void hly_mpi_buffer_free(struct hly_mpi_buffer *b)
{
    flush(b);
    free(b);
}

/* ---------------------------------------------------------------- attach, detach, flush */

static int attach(const char *function, struct hly_mpi_buffer **at, void *buffer, int64_t size)
{
    int rc = MPI_SUCCESS;
    if (size < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the size is %lld: it has to be 0 or more", function,
                            (long long)size);
    pthread_mutex_lock(&lock);
    struct hly_mpi_buffer *b = *at ? *at : calloc(1, sizeof(*b));
    if (!b) {
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory", function);
    } else if (b->attached) {
        rc = hly_mpi_fail(MPI_ERR_BUFFER, "%s: a buffer is attached: detach it first", function);
    } else {
        b->at = buffer;
        b->size = size;
        b->attached = true;
        *at = b;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static int detach(const char *function, struct hly_mpi_buffer *b, void *buffer_addr, int64_t *size)
{
    if (!buffer_addr || !size)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the address of a result is NULL", function);
    if (!b || !b->attached)
        return hly_mpi_fail(MPI_ERR_BUFFER, "%s: no buffer is attached", function);
    flush(b);
    void *at = b->at == MPI_BUFFER_AUTOMATIC ? hly_mpi_this_face.automatic : b->at;
    memcpy(buffer_addr, &at, sizeof(at));
    *size = b->size;
    b->attached = false;
    return MPI_SUCCESS;
}

static bool iflush_is_done(struct hly_mpi_request *r)
{
    struct hly_mpi_buffer *const *b = r->kept;
    return is_empty(*b);
}

/* A request that is done when nothing is pending. It may also wait for what is sent after it. */
static int iflush(const char *function, struct hly_mpi_comm *comm, struct hly_mpi_buffer *b,
                  struct hly_mpi_request **request)
{
    int rc = hly_mpi_request_make(function, comm, sizeof(struct hly_mpi_buffer *), request);
    if (rc)
        return rc;
    if (b) {
        *(struct hly_mpi_buffer **)(*request)->kept = b;
        (*request)->is_done = iflush_is_done;
    }
    return MPI_SUCCESS;
}

int hly_mpi_buffer_attach(void *buffer, int64_t size)
{
    struct hly_mpi_buffer *b = &of_process;
    return attach("MPI_Buffer_attach", &b, buffer, size);
}

int hly_mpi_buffer_detach(void *buffer_addr, int64_t *size)
{
    return detach("MPI_Buffer_detach", &of_process, buffer_addr, size);
}

int hly_mpi_buffer_flush(void)
{
    flush(&of_process);
    return MPI_SUCCESS;
}

int hly_mpi_buffer_iflush(struct hly_mpi_request **request)
{
    return iflush("MPI_Buffer_iflush", NULL, &of_process, request);
}

int hly_mpi_comm_attach_buffer(struct hly_mpi_comm *comm, void *buffer, int64_t size)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_attach_buffer", comm);
    return rc ? rc : attach("MPI_Comm_attach_buffer", &comm->buffer, buffer, size);
}

int hly_mpi_comm_detach_buffer(struct hly_mpi_comm *comm, void *buffer_addr, int64_t *size)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_detach_buffer", comm);
    return rc ? rc : detach("MPI_Comm_detach_buffer", comm->buffer, buffer_addr, size);
}

int hly_mpi_comm_flush_buffer(struct hly_mpi_comm *comm)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_flush_buffer", comm);
    if (!rc)
        flush(comm->buffer);
    return rc;
}

int hly_mpi_comm_iflush_buffer(struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_iflush_buffer", comm);
    return rc ? rc : iflush("MPI_Comm_iflush_buffer", comm, comm->buffer, request);
}

int hly_mpi_session_attach_buffer(struct hly_mpi_session *session, void *buffer, int64_t size)
{
    const int rc = hly_mpi_check_session("MPI_Session_attach_buffer", session);
    return rc ? rc : attach("MPI_Session_attach_buffer", &session->buffer, buffer, size);
}

int hly_mpi_session_detach_buffer(struct hly_mpi_session *session, void *buffer_addr, int64_t *size)
{
    const int rc = hly_mpi_check_session("MPI_Session_detach_buffer", session);
    return rc ? rc : detach("MPI_Session_detach_buffer", session->buffer, buffer_addr, size);
}

int hly_mpi_session_flush_buffer(struct hly_mpi_session *session)
{
    const int rc = hly_mpi_check_session("MPI_Session_flush_buffer", session);
    if (!rc)
        flush(session->buffer);
    return rc;
}

int hly_mpi_session_iflush_buffer(struct hly_mpi_session *session, struct hly_mpi_request **request)
{
    const int rc = hly_mpi_check_session("MPI_Session_iflush_buffer", session);
    return rc ? rc : iflush("MPI_Session_iflush_buffer", NULL, session->buffer, request);
}

/* ---------------------------------------------------------------- sends */

static struct hly_mpi_buffer *buffer_of(const struct hly_mpi_comm *comm)
{
    if (comm->buffer && comm->buffer->attached)
        return comm->buffer;
    const struct hly_mpi_session *session =
        comm->group->session ? hly_mpi_object_of(HLY_MPI_SESSION, comm->group->session) : NULL;
    if (session && session->buffer && session->buffer->attached)
        return session->buffer;
    return &of_process;
}

/* With the lock. */
static int send_copy(const struct hly_mpi_end *e, struct hly_mpi_buffer *b)
{
    const int64_t bytes = e->count * e->type->size + OVERHEAD;
    reap(b);
    if (!b->attached)
        return hly_mpi_fail(MPI_ERR_BUFFER,
                            "%s: no buffer is attached: call MPI_Buffer_attach first", e->function);
    if (b->at != MPI_BUFFER_AUTOMATIC && b->used + bytes > b->size)
        return hly_mpi_fail(MPI_ERR_BUFFER,
                            "%s: the message needs %lld bytes of the attached buffer, and %lld of "
                            "%lld are free: attach a larger one",
                            e->function, (long long)bytes, (long long)(b->size - b->used),
                            (long long)b->size);
    struct sent *s = calloc(1, sizeof(*s));
    int rc = s ? hly_mpi_end_begin(e, false, &s->request)
               : hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory", e->function);
    if (rc) {
        free(s);
        return rc;
    }
    s->bytes = bytes;
    s->next = b->first;
    b->first = s;
    b->used += bytes;
    return MPI_SUCCESS;
}

static int send_buffered(const struct hly_mpi_end *e)
{
    int rc = hly_mpi_end_check(e);
    if (rc || e->rank == MPI_PROC_NULL)
        return rc;
    struct hly_mpi_buffer *b = buffer_of(e->comm);
    pthread_mutex_lock(&lock);
    rc = send_copy(e, b);
    if (rc == MPI_ERR_BUFFER && b->used) { /* what is pending may have come by now */
        pthread_mutex_unlock(&lock);
        hly_mpi_progress();
        pthread_mutex_lock(&lock);
        rc = send_copy(e, b);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int hly_mpi_bsend(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest, int tag,
                  struct hly_mpi_comm *comm)
{
    const struct hly_mpi_end e = {.function = "MPI_Bsend",
                                  .buffer = (void *)(uintptr_t)buf,
                                  .count = count,
                                  .type = datatype,
                                  .rank = dest,
                                  .tag = tag,
                                  .comm = comm,
                                  .sends = true,
                                  .copied = true};
    return send_buffered(&e);
}

int hly_mpi_ibsend(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest, int tag,
                   struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    const struct hly_mpi_end e = {.function = "MPI_Ibsend",
                                  .buffer = (void *)(uintptr_t)buf,
                                  .count = count,
                                  .type = datatype,
                                  .rank = dest,
                                  .tag = tag,
                                  .comm = comm,
                                  .sends = true,
                                  .copied = true};
    int rc = send_buffered(&e);
    return rc ? rc : hly_mpi_request_make(e.function, comm, 0, request);
}

static int start(struct hly_mpi_request *r)
{
    return send_buffered(r->kept);
}

static void end(struct hly_mpi_request *r)
{
    hly_mpi_object_release(((struct hly_mpi_end *)r->kept)->type);
}

int hly_mpi_bsend_init(const void *buf, int64_t count, struct hly_mpi_type *datatype, int dest,
                       int tag, struct hly_mpi_comm *comm, struct hly_mpi_request **request)
{
    const struct hly_mpi_end e = {.function = "MPI_Bsend_init",
                                  .buffer = (void *)(uintptr_t)buf,
                                  .count = count,
                                  .type = datatype,
                                  .rank = dest,
                                  .tag = tag,
                                  .comm = comm,
                                  .sends = true,
                                  .copied = true};
    int rc = hly_mpi_end_check(&e);
    rc = rc ? rc : hly_mpi_request_make(e.function, comm, sizeof(e), request);
    if (rc)
        return rc;
    struct hly_mpi_request *r = *request;
    memcpy(r->kept, &e, sizeof(e));
    hly_mpi_object_hold(datatype);
    r->start = start;
    r->end = end;
    r->persistent = true;
    r->active = false;
    return MPI_SUCCESS;
}
