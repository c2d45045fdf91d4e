/* SPDX-License-Identifier: Apache-2.0 */
/*
 * face.h - how arguments of a program become those of core.h, and results the program's. It and
 * wrappers.c are compiled twice: for the standard's ABI, and with HLY_MPI_MPICH for MPICH's. A name
 * in_x() is for what comes in, out_x() for what goes out.
 */
#ifndef HLY_MPI_FACE_H
#define HLY_MPI_FACE_H

#include <limits.h>
#include <stdlib.h>

#include "error.h"
#include "handle.h"

typedef int64_t MPI_Count, MPI_Offset;
typedef intptr_t MPI_Aint;
typedef void *MPI_T_enum, *MPI_T_cvar_handle, *MPI_T_pvar_handle, *MPI_T_pvar_session,
    *MPI_T_event_registration, *MPI_T_event_instance;
typedef int MPI_T_cb_safety, MPI_T_source_order;

#define FACE_API  __attribute__((visibility("default")))
#define FACE_REST __attribute__((noinline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
/* A function by both its names. */
#define FACE_BOTH(result, Name, parameters)                                                        \
    FACE_API result PMPI_##Name parameters;                                                        \
    FACE_API result MPI_##Name parameters __attribute__((weak, alias("PMPI_" #Name)));             \
    result PMPI_##Name parameters

#ifdef HLY_MPI_MPICH
#include "face_mpich.h"
#else
#include "face_abi.h"
#endif

/* ---------------------------------------------------------------- handles */

/* The predefined object of a kind; NULL: the handle is another one. */
static inline __attribute__((always_inline)) void *face_fixed(uintptr_t null, uintptr_t last,
                                                              uintptr_t value)
{
    return LIKELY(value - null - 1 < last - null)
               ? __atomic_load_n(&hly_mpi_fixed[value], __ATOMIC_ACQUIRE)
               : NULL;
}

/* *bad becomes the kind of a handle that is none. The null handle is no object, and not bad. */
static inline __attribute__((always_inline)) void *
face_object(enum hly_mpi_kind kind, uintptr_t null, uintptr_t last, uintptr_t value, int *bad)
{
    void *object = face_fixed(null, last, value);
    if (LIKELY(object) || value == null)
        return object;
    if (value >= HLY_MPI_NUMBERS && value <= UINT32_MAX)
        object = hly_mpi_handle_object(kind, (uint32_t)value);
    if (!object)
        *bad = (int)kind;
    return object;
}

/* The numbers of the standard's ABI for each kind: its null handle, and the last one it may have.
 */
#define FACE_KIND(kind, Name, KIND, null, last)                                                    \
    static inline struct hly_mpi_##kind *in_##kind(MPI_##Name handle, int *bad)                    \
    {                                                                                              \
        return face_object(HLY_MPI_##KIND, null, last, face_value_##kind(handle), bad);            \
    }                                                                                              \
    static inline struct hly_mpi_##kind *fixed_##kind(MPI_##Name handle)                           \
    {                                                                                              \
        return face_fixed(null, last, face_value_##kind(handle));                                  \
    }                                                                                              \
    static inline MPI_##Name out_##kind(const void *object)                                        \
    {                                                                                              \
        return face_handle_##kind(object ? ((const struct hly_mpi_head *)object)->handle : null);  \
    }
FACE_KIND(op, Op, OP, 0x20, 0x3f)
FACE_KIND(comm, Comm, COMM, 0x100, 0x107)
FACE_KIND(group, Group, GROUP, 0x108, 0x10f)
FACE_KIND(win, Win, WIN, 0x110, 0x117)
FACE_KIND(file, File, FILE, 0x118, 0x11f)
FACE_KIND(session, Session, SESSION, 0x120, 0x127)
FACE_KIND(message, Message, MESSAGE, 0x128, 0x12f)
FACE_KIND(info, Info, INFO, 0x130, 0x137)
FACE_KIND(errhandler, Errhandler, ERRHANDLER, 0x140, 0x147)
FACE_KIND(request, Request, REQUEST, 0x180, 0x187)
FACE_KIND(type, Datatype, TYPE, 0x200, 0x3ff)

/* Arrays: in `room` if there are few, else in memory for face_free(). Negative lengths, and what
 * the call does not need, give NULL. No memory: *bad is -1. */
#define FACE_ROOM 16
void *face_array(int64_t n, size_t bytes, void *room, int *bad);
struct hly_mpi_request **face_requests(const MPI_Request handles[], int64_t n, void *room[],
                                       int *bad);
struct hly_mpi_type **face_types(const MPI_Datatype handles[], int64_t n, void *room[], int *bad);
struct hly_mpi_type **face_types_out(int64_t n, void *room[], int *bad);
struct hly_mpi_info **face_infos(const MPI_Info handles[], int64_t n, void *room[], int *bad);
static inline void face_free(void *array, void *room)
{
    if (array != room)
        free(array);
}
/* How many ranks this one receives from, or sends to, in a collective of this communicator. */
int *face_ints(const int from[], int64_t n, int (*convert)(int), int room[], int *bad);
int64_t face_peers(struct hly_mpi_comm *comm, bool neighbours, bool in);

/* ---------------------------------------------------------------- results */

static inline int face_fit(int64_t value)
{
    return value < INT_MIN || value > INT_MAX ? MPI_UNDEFINED : (int)value;
}

static inline bool face_single_status_is_set(int rc)
{
    return rc == MPI_SUCCESS || rc == MPI_ERR_TRUNCATE;
}
void face_statuses_out(MPI_Status statuses[], const struct hly_mpi_status from[], int64_t n,
                       bool with_errors);

/* Handles for face_raise(), which may be of objects that the call frees. */
static inline uint32_t face_where(const struct hly_mpi_request *request)
{
    return request && request->comm ? request->comm->head.handle : 0;
}
static inline uint32_t face_where_first(struct hly_mpi_request *const requests[], int64_t n)
{
    for (int64_t i = 0; requests && i < n; i++)
        if (requests[i])
            return face_where(requests[i]);
    return 0;
}
/* The class of the error of a bad handle, array or pointer, with its text. */
int face_bad(const char *function, int bad);
/* Calls the error handler, and returns the code in the program's numbers. */
int face_raise(enum hly_mpi_kind kind, void *object, int code);
int face_raise_at(uint32_t comm, int code);
/* The error of a function that this library does not have. It says so once. */
int face_absent(const char *function, bool *told);

/* ---------------------------------------------------------------- the most frequent call */

/* MPI_Allreduce of numbers of C by MPI_SUM, MIN, MAX or PROD, on MPI_COMM_WORLD or MPI_COMM_SELF,
 * which programs make millions of times. false: it is another call, and nothing was done. Where
 * there is a communicator, MPI_Init has made these operations. */
static inline bool face_allreduce(const void *sendbuf, void *recvbuf, int64_t count,
                                  MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, int *rc)
{
    const struct hly_mpi_type *type = fixed_type(datatype);
    const uintptr_t sum = 0x21, number = face_value_op(op);
    struct hly_mpi_comm *on = fixed_comm(comm);
    recvbuf = in_buffer(recvbuf);
    if (!LIKELY(on && on->halay && number - sum < 4 && type && type->number && count >= 0 &&
                sendbuf != recvbuf && (uintptr_t)recvbuf > (uintptr_t)MPI_IN_PLACE))
        return false;
    const struct hly_mpi_op *by = __atomic_load_n(&hly_mpi_fixed[number], __ATOMIC_ACQUIRE);
    sendbuf = in_buffer(sendbuf) == MPI_IN_PLACE ? HALAY_IN_PLACE : sendbuf;
    hly_mpi_called = "MPI_Allreduce";
    *rc = halay_allreduce(sendbuf, recvbuf, (size_t)count, (halay_type_t)(type->number - 1),
                          (halay_op_t)by->halay, on->halay);
    hly_mpi_called = NULL;
    if (!LIKELY(!*rc))
        *rc = face_raise(HLY_MPI_COMM, on, hly_mpi_allreduce_error(*rc, type, by, on));
    return true;
}

#endif
