/* SPDX-License-Identifier: Apache-2.0 */
/*
 * face_fortran.c - what MPICH's Fortran library (libmpifort.so.12, Debian's libmpichfort.so.12) of
 * versions 4 and 5.0 calls beside MPI's functions: attributes that are integers, and functions of a
 * program in Fortran, which it calls for us.
 */
#include "face.h"

enum attribute_type { ATTRIBUTE_POINTER = 0, ATTRIBUTE_ADDRESS = 1, ATTRIBUTE_INTEGER = 3 };
typedef int copy_caller(hly_mpi_fn *fn, int handle, int keyval, void *extra,
                        enum attribute_type type, void *value, void **copy, int *flag);
typedef int delete_caller(hly_mpi_fn *fn, int handle, int keyval, enum attribute_type type,
                          void *value, void *extra);
struct callers { /* the extra state of a keyval of a program in Fortran */
    copy_caller *copy;
    delete_caller *remove;
    struct hly_mpi_keyval_functions program;
};

static int call_copy(int handle, int keyval, void *extra, void *value, void **copy, int *flag)
{
    const struct callers *callers = extra;
    *flag = 0;
    if (!callers->program.copy)
        return MPI_SUCCESS;
    return callers->copy(callers->program.copy, handle, keyval, callers->program.extra,
                         ATTRIBUTE_ADDRESS, value, copy, flag);
}

static int call_delete(int handle, int keyval, void *value, void *extra)
{
    const struct callers *callers = extra;
    if (!callers->program.remove)
        return MPI_SUCCESS;
    return callers->remove(callers->program.remove, handle, keyval, ATTRIBUTE_ADDRESS, value,
                           callers->program.extra);
}

FACE_API void MPII_Keyval_set_proxy(int keyval, copy_caller *copy, delete_caller *remove);
void MPII_Keyval_set_proxy(int keyval, copy_caller *copy, delete_caller *remove)
{
    struct callers *callers = malloc(sizeof *callers);
    if (!callers) {
        (void)face_raise(HLY_MPI_COMM, NULL,
                         hly_mpi_fail(MPI_ERR_NO_MEM, "no memory for a keyval of Fortran"));
        return;
    }
    *callers = (struct callers){copy, remove, {NULL, NULL, NULL}};
    struct hly_mpi_keyval_functions functions = {(hly_mpi_fn *)call_copy, (hly_mpi_fn *)call_delete,
                                                 callers};
    if (hly_mpi_keyval_fortran(in_keyval(keyval), &functions))
        callers->program = functions;
    else
        free(callers);
}

FACE_API void MPII_Grequest_set_lang_f77(MPI_Request request);
void MPII_Grequest_set_lang_f77(MPI_Request request)
{
    int bad = 0;
    hly_mpi_grequest_fortran(in_request(request, &bad));
}

/* ---------------------------------------------------------------- attributes */

FACE_API int PMPI_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag);

#define FACE_ATTRIBUTE(Name, kind, KIND, Handle)                                                   \
    FACE_API int MPII_##Name##_set_attr(MPI_##Handle handle, int keyval, void *value,              \
                                        enum attribute_type type);                                 \
    int MPII_##Name##_set_attr(MPI_##Handle handle, int keyval, void *value,                       \
                               enum attribute_type type)                                           \
    {                                                                                              \
        int bad = 0;                                                                               \
        struct hly_mpi_##kind *object = in_##kind(handle, &bad);                                   \
        const char *function = "MPI_" #Name "_set_attr";                                           \
        int rc = bad ? face_bad(function, bad)                                                     \
                     : hly_mpi_fortran_set_attr(function, HLY_MPI_##KIND, object,                  \
                                                in_keyval(keyval), (intptr_t)value);               \
        return LIKELY(!rc) ? MPI_SUCCESS                                                           \
                           : face_raise(HLY_MPI_COMM, FACE_IS_COMM_##KIND ? object : NULL, rc);    \
    }                                                                                              \
    FACE_API int MPII_##Name##_get_attr(MPI_##Handle handle, int keyval, void *value, int *flag,   \
                                        enum attribute_type type);                                 \
    int MPII_##Name##_get_attr(MPI_##Handle handle, int keyval, void *value, int *flag,            \
                               enum attribute_type type)                                           \
    {                                                                                              \
        if (FACE_IS_COMM_##KIND && keyval >= PREDEFINED)                                           \
            return get_predefined((MPI_Comm)handle, keyval, value, flag);                          \
        int bad = 0;                                                                               \
        struct hly_mpi_##kind *object = in_##kind(handle, &bad);                                   \
        const char *function = "MPI_" #Name "_get_attr";                                           \
        int rc = bad ? face_bad(function, bad)                                                     \
                     : hly_mpi_fortran_get_attr(function, HLY_MPI_##KIND, object,                  \
                                                in_keyval(keyval), value, flag);                   \
        return LIKELY(!rc) ? MPI_SUCCESS                                                           \
                           : face_raise(HLY_MPI_COMM, FACE_IS_COMM_##KIND ? object : NULL, rc);    \
    }
#define FACE_IS_COMM_COMM 1
#define FACE_IS_COMM_TYPE 0

/* Fortran's number is C's and 1, which is odd. */
#define PREDEFINED 0x40000000
static int get_predefined(MPI_Comm comm, int keyval, intptr_t *value, int *flag)
{
    const int *at = NULL;
    int rc = PMPI_Comm_get_attr(comm, (keyval - 1) | 1, &at, flag);
    if (!rc && *flag)
        *value = *at;
    return rc;
}
FACE_ATTRIBUTE(Comm, comm, COMM, Comm)
FACE_ATTRIBUTE(Type, type, TYPE, Datatype)

#define FACE_ABSENT(Name, parameters)                                                              \
    FACE_API int MPII_##Name parameters;                                                           \
    int MPII_##Name parameters                                                                     \
    {                                                                                              \
        static bool told;                                                                          \
        return face_raise(HLY_MPI_COMM, NULL, face_absent("MPI_" #Name, &told));                   \
    }
FACE_ABSENT(Win_set_attr, (MPI_Win win, int keyval, void *value, enum attribute_type type))
FACE_ABSENT(Win_get_attr,
            (MPI_Win win, int keyval, void *value, int *flag, enum attribute_type type))
