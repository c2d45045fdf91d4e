/* SPDX-License-Identifier: Apache-2.0 */
/* errhandler.c - error handlers of communicators, sessions, windows and files. An object without
 * one of its own has the default: errors are fatal; of files: they are returned. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "error.h"
#include "window.h"

struct hly_mpi_errhandler hly_mpi_errors_are_fatal = {
    .head = {.handle = 0x141, .refs = 1, .face = &hly_mpi_this_face}};
struct hly_mpi_errhandler hly_mpi_errors_abort = {
    .head = {.handle = 0x142, .refs = 1, .face = &hly_mpi_this_face}};
struct hly_mpi_errhandler hly_mpi_errors_return = {
    .head = {.handle = 0x143, .refs = 1, .face = &hly_mpi_this_face}};

/* Guards the member errhandler of all objects, and the default of files. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hly_mpi_errhandler *of_files; /* NULL: MPI_ERRORS_RETURN */

static const char *const kinds[HLY_MPI_KINDS] = {[HLY_MPI_COMM] = "communicators",
                                                 [HLY_MPI_WIN] = "windows",
                                                 [HLY_MPI_FILE] = "files",
                                                 [HLY_MPI_SESSION] = "sessions"};

/* Where the object keeps its handler; NULL: this kind has none. */
static struct hly_mpi_errhandler **place(enum hly_mpi_kind kind, void *object)
{
    switch (kind) {
    case HLY_MPI_COMM:
        return object ? &((struct hly_mpi_comm *)object)->errhandler : NULL;
    case HLY_MPI_SESSION:
        return object ? &((struct hly_mpi_session *)object)->errhandler : NULL;
    case HLY_MPI_WIN:
        return object ? &((struct hly_mpi_win *)object)->errhandler : NULL;
    case HLY_MPI_FILE: /* of MPI_FILE_NULL */
        return &of_files;
    default:
        return NULL;
    }
}

static struct hly_mpi_errhandler *handler_of(enum hly_mpi_kind kind, void *object)
{
    pthread_mutex_lock(&lock);
    struct hly_mpi_errhandler **at = place(kind, object), *handler = at ? *at : NULL;
    if (!handler)
        handler = kind == HLY_MPI_FILE ? &hly_mpi_errors_return : &hly_mpi_errors_are_fatal;
    hly_mpi_object_hold(handler);
    pthread_mutex_unlock(&lock);
    return handler;
}

static int call(struct hly_mpi_errhandler *handler, enum hly_mpi_kind kind, void *object, int code)
{
    if (handler == &hly_mpi_errors_return)
        return code;
    if (handler->fn) {
        handler->head.face->call_error(handler->fn, kind, object, &code);
        return code;
    }
    if (hly_mpi_job.size)
        fprintf(stderr, "rank %d: %s\n", hly_mpi_job.rank, hly_mpi_error_text(code));
    else /* before MPI_Init */
        fprintf(stderr, "process %d: %s\n", (int)getpid(), hly_mpi_error_text(code));
    if (code != MPI_ERR_PROC_ABORTED) /* another rank's mistake */
        hly_mpi_place_tell();
    hly_mpi_job_end(code);
}

/* The communicator that gets errors of no object: MPI_COMM_SELF since MPI 4.0, MPI_COMM_WORLD
 * before. Programs of both times set a handler; the one that is not set is fatal. */
static struct hly_mpi_comm *receiver(void)
{
    struct hly_mpi_comm *self = hly_mpi_job.self;
    const struct hly_mpi_errhandler *handler = self ? self->errhandler : NULL;
    return handler && handler != &hly_mpi_errors_are_fatal ? self : hly_mpi_job.world;
}

int hly_mpi_raise(enum hly_mpi_kind kind, void *object, int code)
{
    if (!object && kind != HLY_MPI_FILE) {
        kind = HLY_MPI_COMM;
        object = receiver();
    }
    struct hly_mpi_errhandler *handler = handler_of(kind, object);
    code = call(handler, kind, object, code);
    hly_mpi_object_release(handler);
    return code;
}

/* ---------------------------------------------------------------- what is the same for all kinds
 */

static int create(const char *function, enum hly_mpi_kind of, hly_mpi_fn *fn,
                  struct hly_mpi_errhandler **made)
{
    if (!fn)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the function is NULL", function);
    struct hly_mpi_errhandler *handler = hly_mpi_object_new(HLY_MPI_ERRHANDLER, sizeof *handler);
    if (!handler)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for an error handler", function);
    handler->of = of;
    handler->fn = fn;
    *made = handler;
    return MPI_SUCCESS;
}

static int wrong(const char *function, enum hly_mpi_kind kind)
{
    static const int classes[HLY_MPI_KINDS] = {[HLY_MPI_COMM] = MPI_ERR_COMM,
                                               [HLY_MPI_WIN] = MPI_ERR_WIN,
                                               [HLY_MPI_FILE] = MPI_ERR_FILE,
                                               [HLY_MPI_SESSION] = MPI_ERR_SESSION};
    return hly_mpi_fail(classes[kind], "%s: the handle is the null handle", function);
}

static int set(const char *function, enum hly_mpi_kind kind, void *object,
               struct hly_mpi_errhandler *handler)
{
    if (!place(kind, object))
        return wrong(function, kind);
    if (!handler)
        return hly_mpi_fail(MPI_ERR_ERRHANDLER, "%s: the error handler is MPI_ERRHANDLER_NULL",
                            function);
    if (handler->of && handler->of != kind)
        return hly_mpi_fail(MPI_ERR_ERRHANDLER, "%s: the error handler was made for %s, not for %s",
                            function, kinds[handler->of], kinds[kind]);
    hly_mpi_object_hold(handler);
    pthread_mutex_lock(&lock);
    struct hly_mpi_errhandler **at = place(kind, object), *old = *at;
    *at = handler;
    pthread_mutex_unlock(&lock);
    hly_mpi_object_release(old);
    return MPI_SUCCESS;
}

static int get(const char *function, enum hly_mpi_kind kind, void *object,
               struct hly_mpi_errhandler **handler)
{
    if (!place(kind, object))
        return wrong(function, kind);
    *handler = handler_of(kind, object);
    return MPI_SUCCESS;
}

/* MPI_Xxx_call_errhandler: succeeds also where the handler is MPI_ERRORS_RETURN. */
static int call_for(const char *function, enum hly_mpi_kind kind, void *object, int code)
{
    if (!place(kind, object))
        return wrong(function, kind);
    hly_mpi_raise(kind, object, code);
    return MPI_SUCCESS;
}

int hly_mpi_errhandler_free(struct hly_mpi_errhandler **errhandler)
{
    if (!*errhandler)
        return hly_mpi_fail(MPI_ERR_ERRHANDLER,
                            "MPI_Errhandler_free: the error handler is MPI_ERRHANDLER_NULL");
    hly_mpi_object_release(*errhandler);
    *errhandler = NULL;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- of each kind */

int hly_mpi_comm_create_errhandler(hly_mpi_fn *fn, struct hly_mpi_errhandler **errhandler)
{
    return create("MPI_Comm_create_errhandler", HLY_MPI_COMM, fn, errhandler);
}

int hly_mpi_comm_set_errhandler(struct hly_mpi_comm *comm, struct hly_mpi_errhandler *errhandler)
{
    return set("MPI_Comm_set_errhandler", HLY_MPI_COMM, comm, errhandler);
}

int hly_mpi_comm_get_errhandler(struct hly_mpi_comm *comm, struct hly_mpi_errhandler **errhandler)
{
    return get("MPI_Comm_get_errhandler", HLY_MPI_COMM, comm, errhandler);
}

int hly_mpi_comm_call_errhandler(struct hly_mpi_comm *comm, int errorcode)
{
    return call_for("MPI_Comm_call_errhandler", HLY_MPI_COMM, comm, errorcode);
}

int hly_mpi_session_create_errhandler(hly_mpi_fn *fn, struct hly_mpi_errhandler **errhandler)
{
    return create("MPI_Session_create_errhandler", HLY_MPI_SESSION, fn, errhandler);
}

int hly_mpi_session_set_errhandler(struct hly_mpi_session *session,
                                   struct hly_mpi_errhandler *errhandler)
{
    return set("MPI_Session_set_errhandler", HLY_MPI_SESSION, session, errhandler);
}

int hly_mpi_session_get_errhandler(struct hly_mpi_session *session,
                                   struct hly_mpi_errhandler **errhandler)
{
    return get("MPI_Session_get_errhandler", HLY_MPI_SESSION, session, errhandler);
}

int hly_mpi_session_call_errhandler(struct hly_mpi_session *session, int errorcode)
{
    return call_for("MPI_Session_call_errhandler", HLY_MPI_SESSION, session, errorcode);
}

int hly_mpi_win_create_errhandler(hly_mpi_fn *fn, struct hly_mpi_errhandler **errhandler)
{
    return create("MPI_Win_create_errhandler", HLY_MPI_WIN, fn, errhandler);
}

int hly_mpi_win_set_errhandler(struct hly_mpi_win *win, struct hly_mpi_errhandler *errhandler)
{
    return set("MPI_Win_set_errhandler", HLY_MPI_WIN, win, errhandler);
}

int hly_mpi_win_get_errhandler(struct hly_mpi_win *win, struct hly_mpi_errhandler **errhandler)
{
    return get("MPI_Win_get_errhandler", HLY_MPI_WIN, win, errhandler);
}

int hly_mpi_win_call_errhandler(struct hly_mpi_win *win, int errorcode)
{
    return call_for("MPI_Win_call_errhandler", HLY_MPI_WIN, win, errorcode);
}

int hly_mpi_file_create_errhandler(hly_mpi_fn *fn, struct hly_mpi_errhandler **errhandler)
{
    return create("MPI_File_create_errhandler", HLY_MPI_FILE, fn, errhandler);
}

int hly_mpi_file_set_errhandler(struct hly_mpi_file *file, struct hly_mpi_errhandler *errhandler)
{
    return set("MPI_File_set_errhandler", HLY_MPI_FILE, file, errhandler);
}

int hly_mpi_file_get_errhandler(struct hly_mpi_file *file, struct hly_mpi_errhandler **errhandler)
{
    return get("MPI_File_get_errhandler", HLY_MPI_FILE, file, errhandler);
}

int hly_mpi_file_call_errhandler(struct hly_mpi_file *file, int errorcode)
{
    return call_for("MPI_File_call_errhandler", HLY_MPI_FILE, file, errorcode);
}
