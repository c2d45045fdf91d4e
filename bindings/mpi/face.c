/* SPDX-License-Identifier: Apache-2.0 */
/* face.c - what wrappers.c needs, and the functions that no table describes. Compiled once for each
 * ABI, as face.h says. */
#include "face.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---------------------------------------------------------------- arrays */

void *face_array(int64_t n, size_t bytes, void *room, int *bad)
{
    if (n <= 0)
        return NULL;
    if (n <= FACE_ROOM) {
        memset(room, 0, (size_t)n * bytes);
        return room;
    }
    void *array = calloc((size_t)n, bytes);
    if (!array)
        *bad = -1;
    return array;
}

#define FACE_HANDLES(kind, Name)                                                                   \
    struct hly_mpi_##kind **face_##kind##s(const MPI_##Name handles[], int64_t n, void *room[],    \
                                           int *bad)                                               \
    {                                                                                              \
        struct hly_mpi_##kind **objects =                                                          \
            handles ? face_array(n, sizeof *objects, room, bad) : NULL;                            \
        for (int64_t i = 0; objects && i < n; i++)                                                 \
            objects[i] = in_##kind(handles[i], bad);                                               \
        return objects;                                                                            \
    }
FACE_HANDLES(request, Request)
FACE_HANDLES(type, Datatype)
FACE_HANDLES(info, Info)

struct hly_mpi_type **face_types_out(int64_t n, void *room[], int *bad)
{
    return face_array(n, sizeof(struct hly_mpi_type *), room, bad);
}

int *face_ints(const int from[], int64_t n, int (*convert)(int), int room[], int *bad)
{
    int *ints = from ? face_array(n, sizeof *ints, room, bad) : NULL;
    for (int64_t i = 0; ints && i < n; i++)
        ints[i] = convert(from[i]);
    return ints;
}

int64_t face_peers(struct hly_mpi_comm *comm, bool neighbours, bool in)
{
    int topology = MPI_UNDEFINED, sources = 0, targets = 0, weighted;
    if (!comm)
        return 0;
    if (!neighbours)
        return comm->remote ? comm->remote->size : comm->size;
    if (hly_mpi_topo_test(comm, &topology))
        return 0;
    if (topology == MPI_CART && !hly_mpi_cartdim_get(comm, &sources))
        return 2 * (int64_t)sources;
    if (topology == MPI_GRAPH && !hly_mpi_graph_neighbors_count(comm, comm->rank, &sources))
        return sources;
    if (topology == MPI_DIST_GRAPH &&
        !hly_mpi_dist_graph_neighbors_count(comm, &sources, &targets, &weighted))
        return in ? sources : targets;
    return 0;
}

void face_statuses_out(MPI_Status statuses[], const struct hly_mpi_status from[], int64_t n,
                       bool with_errors)
{
    for (int64_t i = 0; i < n; i++) {
        out_status(&statuses[i], &from[i]);
        if (with_errors)
            statuses[i].MPI_ERROR = out_error(from[i].error);
    }
}

/* ---------------------------------------------------------------- errors */

int face_bad(const char *function, int bad)
{
    static const struct {
        int code;
        const char *noun;
    } kinds[HLY_MPI_KINDS] = {
        [HLY_MPI_COMM] = {MPI_ERR_COMM, "a communicator"},
        [HLY_MPI_GROUP] = {MPI_ERR_GROUP, "a group"},
        [HLY_MPI_TYPE] = {MPI_ERR_TYPE, "a datatype"},
        [HLY_MPI_OP] = {MPI_ERR_OP, "an operation"},
        [HLY_MPI_REQUEST] = {MPI_ERR_REQUEST, "a request"},
        [HLY_MPI_ERRHANDLER] = {MPI_ERR_ERRHANDLER, "an error handler"},
        [HLY_MPI_INFO] = {MPI_ERR_INFO, "an info object"},
        [HLY_MPI_MESSAGE] = {MPI_ERR_REQUEST, "a message"},
        [HLY_MPI_WIN] = {MPI_ERR_WIN, "a window"},
        [HLY_MPI_FILE] = {MPI_ERR_FILE, "a file"},
        [HLY_MPI_SESSION] = {MPI_ERR_SESSION, "a session"},
    };
    if (bad == -1)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a copy of an array", function);
    if (bad == -2)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the address of a result is NULL", function);
    if (bad == -3)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the status is NULL or MPI_STATUS_IGNORE", function);
    if (!hly_mpi_job.context && kinds[bad].code != MPI_ERR_INFO)
        return hly_mpi_fail(kinds[bad].code, "%s: the %s does not exist %s", function,
                            strchr(kinds[bad].noun, ' ') + 1,
                            hly_mpi_job.finalized ? "after MPI_Finalize" : "before MPI_Init");
    return hly_mpi_fail(kinds[bad].code,
                        "%s: the handle of %s is not valid: it was freed, never made, or is of "
                        "another kind",
                        function, kinds[bad].noun);
}

int face_raise(enum hly_mpi_kind kind, void *object, int code)
{
    return out_error(hly_mpi_raise(kind, object, code));
}

int face_raise_at(uint32_t comm, int code)
{
    void *object =
        comm < HLY_MPI_NUMBERS ? hly_mpi_fixed[comm] : hly_mpi_handle_object(HLY_MPI_COMM, comm);
    return face_raise(HLY_MPI_COMM, object, code);
}

int face_absent(const char *function, bool *told)
{
    if (!__atomic_exchange_n(told, true, __ATOMIC_RELAXED))
        fprintf(stderr, "%s: this MPI (Halay) does not have it\n", function);
    int code = strncmp(function, "MPI_T_", 6) ? MPI_ERR_UNSUPPORTED_OPERATION : 1004;
    return hly_mpi_fail(code, "%s: this MPI (Halay) does not have it", function);
}

/* ---------------------------------------------------------------- functions of the program */

static void call_op(hly_mpi_fn *fn, bool large, const void *in, void *inout, int64_t count,
                    struct hly_mpi_type *type)
{
    MPI_Datatype handle = out_type(type);
    if (large) {
        MPI_Count all = count;
        ((void (*)(void *, void *, MPI_Count *, MPI_Datatype *))fn)((void *)(uintptr_t)in, inout,
                                                                    &all, &handle);
        return;
    }
    for (int64_t from = 0; from < count;) {
        int part = count - from > INT_MAX ? INT_MAX : (int)(count - from);
        ((void (*)(void *, void *, int *, MPI_Datatype *))fn)(
            (char *)(uintptr_t)in + from * type->extent, (char *)inout + from * type->extent, &part,
            &handle);
        from += part;
    }
}

static int call_copy(hly_mpi_fn *fn, enum hly_mpi_kind kind, void *object, int keyval, void *extra,
                     void *value, void *out, int *flag)
{
    int key = out_keyval(keyval), code;
    if (kind == HLY_MPI_COMM)
        code = ((int (*)(MPI_Comm, int, void *, void *, void *, int *))fn)(out_comm(object), key,
                                                                           extra, value, out, flag);
    else if (kind == HLY_MPI_TYPE)
        code = ((int (*)(MPI_Datatype, int, void *, void *, void *, int *))fn)(
            out_type(object), key, extra, value, out, flag);
    else
        code = ((int (*)(MPI_Win, int, void *, void *, void *, int *))fn)(out_win(object), key,
                                                                          extra, value, out, flag);
    return in_error(code);
}

static int call_delete(hly_mpi_fn *fn, enum hly_mpi_kind kind, void *object, int keyval,
                       void *value, void *extra)
{
    int key = out_keyval(keyval), code;
    if (kind == HLY_MPI_COMM)
        code = ((int (*)(MPI_Comm, int, void *, void *))fn)(out_comm(object), key, value, extra);
    else if (kind == HLY_MPI_TYPE)
        code =
            ((int (*)(MPI_Datatype, int, void *, void *))fn)(out_type(object), key, value, extra);
    else
        code = ((int (*)(MPI_Win, int, void *, void *))fn)(out_win(object), key, value, extra);
    return in_error(code);
}

static void call_error(hly_mpi_fn *fn, enum hly_mpi_kind kind, void *object, int *code)
{
    int number = out_error(*code);
    if (kind == HLY_MPI_COMM) {
        MPI_Comm comm = out_comm(object);
        ((void (*)(MPI_Comm *, int *, ...))fn)(&comm, &number);
    } else if (kind == HLY_MPI_SESSION) {
        MPI_Session session = out_session(object);
        ((void (*)(MPI_Session *, int *, ...))fn)(&session, &number);
    } else if (kind == HLY_MPI_FILE) {
        MPI_File file = out_file(object);
        ((void (*)(MPI_File *, int *, ...))fn)(&file, &number);
    } else {
        MPI_Win win = out_win(object);
        ((void (*)(MPI_Win *, int *, ...))fn)(&win, &number);
    }
    *code = in_error(number);
}

static int call_query(hly_mpi_fn *fn, bool fortran, void *extra, struct hly_mpi_status *status)
{
    MPI_Status out;
    memset(&out, 0, sizeof out);
    out_status(&out, status);
    int code = MPI_SUCCESS;
    if (fortran)
        ((void (*)(void *, MPI_Status *, int *))fn)(extra, &out, &code);
    else
        code = ((int (*)(void *, MPI_Status *))fn)(extra, &out);
    in_status(&out, status);
    status->error = in_error(out.MPI_ERROR);
    return in_error(code);
}

static int error_number(int abi_class)
{
    return out_error(abi_class);
}

static int error_class(int number)
{
    return in_error(number);
}

const struct hly_mpi_face hly_mpi_this_face = {
#ifdef HLY_MPI_MPICH
    .name = "MPICH ABI",
    .automatic = (void *)(intptr_t)-2,
#else
    .name = "MPI ABI 1.0",
    .automatic = MPI_BUFFER_AUTOMATIC,
#endif
    .call_op = call_op,
    .call_copy = call_copy,
    .call_delete = call_delete,
    .call_error = call_error,
    .error_number = error_number,
    .call_query = call_query,
    .error_class = error_class,
};

/* MPICH's programs are not of the standard's ABI: for them it has no version. */
int hly_mpi_abi_get_version(int *abi_major, int *abi_minor)
{
#ifdef HLY_MPI_MPICH
    const int version[2] = {-1, -1};
#else
    const int version[2] = {1, 0};
#endif
    if (!abi_major || !abi_minor)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Abi_get_version: the address of a result is NULL");
    *abi_major = version[0];
    *abi_minor = version[1];
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- what returns no error code */

FACE_BOTH(double, Wtime, (void))
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

FACE_BOTH(double, Wtick, (void))
{
    return 1e-9;
}

FACE_BOTH(MPI_Aint, Aint_add, (MPI_Aint base, MPI_Aint disp))
{
    return (MPI_Aint)((uintptr_t)base + (uintptr_t)disp);
}

FACE_BOTH(MPI_Aint, Aint_diff, (MPI_Aint addr1, MPI_Aint addr2))
{
    return (MPI_Aint)((uintptr_t)addr1 - (uintptr_t)addr2);
}

/* There is nothing to control. */
FACE_BOTH(int, Pcontrol, (const int level, ...))
{
    (void)level;
    return MPI_SUCCESS;
}

#define FACE_INTS(Name, Handle)                                                                    \
    FACE_BOTH(MPI_##Handle, Name##_fromint, (int number))                                          \
    {                                                                                              \
        return (MPI_##Handle)(intptr_t)number;                                                     \
    }                                                                                              \
    FACE_BOTH(int, Name##_toint, (MPI_##Handle handle))                                            \
    {                                                                                              \
        return (int)(intptr_t)handle;                                                              \
    }
FACE_INTS(Comm, Comm)
FACE_INTS(Errhandler, Errhandler)
FACE_INTS(File, File)
FACE_INTS(Group, Group)
FACE_INTS(Info, Info)
FACE_INTS(Message, Message)
FACE_INTS(Op, Op)
FACE_INTS(Request, Request)
FACE_INTS(Session, Session)
FACE_INTS(Type, Datatype)
FACE_INTS(Win, Win)
