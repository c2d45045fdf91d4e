/* SPDX-License-Identifier: Apache-2.0 */
/* face_mpich.c - what libmpi.so.12 has beside the standard's functions: data, Fortran handles,
 * functions that MPI has removed. */
#include <string.h>

#include "face.h"

/* ---------------------------------------------------------------- numbers inside of results */

void out_attribute(int keyval, void *value)
{
    /* The numbers themselves never change, except for the last used code, which only grows. */
    static int io, host, last_used;
    static int flavors[] = {1, 2, 3, 4}, models[] = {2, 1}; /* of MPI_WIN_FLAVOR_CREATE, ... */
    int **pointer = value;
    switch (in_keyval(keyval)) {
    case MPI_IO:
        io = out_rank(**pointer);
        *pointer = &io;
        break;
    case MPI_HOST:
        host = out_rank(**pointer);
        *pointer = &host;
        break;
    case MPI_LASTUSEDCODE:
        last_used = out_error(**pointer);
        *pointer = &last_used;
        break;
    case MPI_WIN_CREATE_FLAVOR:
        *pointer = &flavors[(**pointer - MPI_WIN_FLAVOR_CREATE) & 3];
        break;
    case MPI_WIN_MODEL:
        *pointer = &models[(**pointer - MPI_WIN_UNIFIED) & 1];
        break;
    default:
        break;
    }
}

void out_integers(struct hly_mpi_type *type, int integers[], int64_t max)
{
    int64_t n = 0, addresses, large, types;
    int combiner = MPI_UNDEFINED;
    if (hly_mpi_type_get_envelope_c(type, &n, &addresses, &large, &types, &combiner) || n > max)
        return;
    if (combiner != MPI_COMBINER_SUBARRAY && combiner != MPI_COMBINER_DARRAY)
        return;
    integers[n - 1] = out_order(integers[n - 1]);
    if (combiner == MPI_COMBINER_SUBARRAY)
        return;
    /* size, rank, ndims; sizes, if they are not large counts; distributions, their arguments, ...
     */
    int64_t ndims = integers[2], first = large ? 3 : 3 + ndims;
    for (int64_t i = first; i < first + 2 * ndims && i < n; i++)
        integers[i] = out_distribution(integers[i]);
}

/* ---------------------------------------------------------------- data */

FACE_API extern MPI_Fint *MPI_F_STATUS_IGNORE, *MPI_F_STATUSES_IGNORE;
FACE_API extern MPI_Status *MPI_F08_STATUS_IGNORE, *MPI_F08_STATUSES_IGNORE;
FACE_API extern int *const MPI_UNWEIGHTED_data __asm__("MPI_UNWEIGHTED");
FACE_API extern int *const MPI_WEIGHTS_EMPTY_data __asm__("MPI_WEIGHTS_EMPTY");
FACE_API extern void *const MPI_T_PVAR_ALL_HANDLES;

static MPI_Fint ignored[5];
static MPI_Status ignored_f08;
MPI_Fint *MPI_F_STATUS_IGNORE = ignored, *MPI_F_STATUSES_IGNORE = ignored;
MPI_Status *MPI_F08_STATUS_IGNORE = &ignored_f08, *MPI_F08_STATUSES_IGNORE = &ignored_f08;
/* The same as in the standard's ABI, so that they need no translation. */
int *const MPI_UNWEIGHTED_data = MPI_UNWEIGHTED;
int *const MPI_WEIGHTS_EMPTY_data = MPI_WEIGHTS_EMPTY;
void *const MPI_T_PVAR_ALL_HANDLES = (void *)1;

int MPIR_Dup_fn(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    memcpy(copy, &value, sizeof value);
    *flag = 1;
    return 0;
}

/* ---------------------------------------------------------------- handles and statuses in Fortran
 */

#define FACE_FORTRAN(Name, Handle)                                                                 \
    FACE_BOTH(MPI_Fint, Name##_c2f, (MPI_##Handle handle))                                         \
    {                                                                                              \
        return (MPI_Fint)(intptr_t)handle;                                                         \
    }                                                                                              \
    FACE_BOTH(MPI_##Handle, Name##_f2c, (MPI_Fint handle))                                         \
    {                                                                                              \
        return (MPI_##Handle)(intptr_t)handle;                                                     \
    }
FACE_FORTRAN(Comm, Comm)
FACE_FORTRAN(Errhandler, Errhandler)
FACE_FORTRAN(File, File)
FACE_FORTRAN(Group, Group)
FACE_FORTRAN(Info, Info)
FACE_FORTRAN(Message, Message)
FACE_FORTRAN(Op, Op)
FACE_FORTRAN(Request, Request)
FACE_FORTRAN(Session, Session)
FACE_FORTRAN(Type, Datatype)
FACE_FORTRAN(Win, Win)

/* All three forms of a status are the same five integers. */
#define FACE_STATUS(Name)                                                                          \
    FACE_BOTH(int, Name, (const void *from, void *to))                                             \
    {                                                                                              \
        if (from == FACE_STATUS_IGNORE || from == ignored || from == &ignored_f08 || !from || !to) \
            return face_raise(HLY_MPI_COMM, NULL, face_bad("MPI_" #Name, -3));                     \
        memcpy(to, from, sizeof(MPI_Status));                                                      \
        return MPI_SUCCESS;                                                                        \
    }
FACE_STATUS(Status_c2f)
FACE_STATUS(Status_f2c)
FACE_STATUS(Status_c2f08)
FACE_STATUS(Status_f082c)
FACE_STATUS(Status_f082f)
FACE_STATUS(Status_f2f08)

/* ---------------------------------------------------------------- removed by MPI 3.0 */

#define FACE_OTHER_NAME(Name, Now, parameters, arguments)                                          \
    FACE_API int PMPI_##Now parameters;                                                            \
    FACE_BOTH(int, Name, parameters)                                                               \
    {                                                                                              \
        return PMPI_##Now arguments;                                                               \
    }
FACE_OTHER_NAME(Address, Get_address, (const void *location, MPI_Aint *address),
                (location, address))
FACE_OTHER_NAME(Errhandler_create, Comm_create_errhandler,
                (hly_mpi_fn * fn, MPI_Errhandler *errhandler), (fn, errhandler))
FACE_OTHER_NAME(Errhandler_get, Comm_get_errhandler, (MPI_Comm comm, MPI_Errhandler *errhandler),
                (comm, errhandler))
FACE_OTHER_NAME(Errhandler_set, Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler errhandler),
                (comm, errhandler))
FACE_OTHER_NAME(Type_hindexed, Type_create_hindexed,
                (int count, const int lengths[], const MPI_Aint displacements[],
                 MPI_Datatype oldtype, MPI_Datatype *newtype),
                (count, lengths, displacements, oldtype, newtype))
FACE_OTHER_NAME(Type_hvector, Type_create_hvector,
                (int count, int length, MPI_Aint stride, MPI_Datatype oldtype,
                 MPI_Datatype *newtype),
                (count, length, stride, oldtype, newtype))
FACE_OTHER_NAME(Type_struct, Type_create_struct,
                (int count, const int lengths[], const MPI_Aint displacements[],
                 const MPI_Datatype types[], MPI_Datatype *newtype),
                (count, lengths, displacements, types, newtype))

FACE_API int PMPI_Type_get_extent(MPI_Datatype datatype, MPI_Aint *lb, MPI_Aint *extent);

FACE_BOTH(int, Type_extent, (MPI_Datatype datatype, MPI_Aint *extent))
{
    MPI_Aint lb;
    return PMPI_Type_get_extent(datatype, &lb, extent);
}

FACE_BOTH(int, Type_lb, (MPI_Datatype datatype, MPI_Aint *lb))
{
    MPI_Aint extent;
    return PMPI_Type_get_extent(datatype, lb, &extent);
}

FACE_BOTH(int, Type_ub, (MPI_Datatype datatype, MPI_Aint *ub))
{
    MPI_Aint lb;
    int rc = PMPI_Type_get_extent(datatype, &lb, ub);
    if (!rc)
        *ub += lb;
    return rc;
}
