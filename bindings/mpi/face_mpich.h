/* SPDX-License-Identifier: Apache-2.0 */
/* face_mpich.h - types and numbers of MPICH's ABI: handles are int, but a file is a pointer. */
#ifndef HLY_MPI_FACE_MPICH_H
#define HLY_MPI_FACE_MPICH_H

typedef int MPI_Comm, MPI_Group, MPI_Datatype, MPI_Op, MPI_Request, MPI_Errhandler, MPI_Info,
    MPI_Message, MPI_Win, MPI_Session, MPI_Fint;
typedef struct hly_mpich_file *MPI_File;

/* count: 63 bits; the lowest bit of the upper half: was it cancelled? */
typedef struct MPI_Status {
    int count_lo, count_hi_and_cancelled, MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;
#define FACE_STATUS_IGNORE ((MPI_Status *)1)

/* ---------------------------------------------------------------- numbers */

#define FACE_NO_NUMBER                                                                             \
    (-99999999) /* no constant of the standard's ABI, and no valid rank or tag                     \
                 */
#define FACE_LAST_CODE 0x3fffffff

/* What is in no table: the program's own keys and codes, MPI_UNDEFINED; or it is wrong. */
static inline int face_same(int n)
{
    return n;
}
static inline int face_wrong(int n)
{
    return n == MPI_UNDEFINED ? n : FACE_NO_NUMBER;
}
#define face_other_in_keyval        face_same
#define face_other_out_keyval       face_same
#define face_other_in_distribution  face_same
#define face_other_out_distribution face_same
#define face_other_in_thread        face_wrong
#define face_other_out_thread       face_same
#define face_other_in_compare       face_wrong
#define face_other_out_compare      face_same
#define face_other_in_combiner      face_wrong
#define face_other_out_combiner     face_same
#define face_other_in_topo          face_wrong
#define face_other_out_topo         face_same
#define face_other_in_split         face_wrong
#define face_other_out_split        face_same
#define face_other_in_lock          face_wrong
#define face_other_out_lock         face_same
#define face_other_in_whence        face_wrong
#define face_other_out_whence       face_same
#define face_other_in_typeclass     face_wrong
#define face_other_out_typeclass    face_same
#define face_other_in_order         face_wrong
#define face_other_out_order        face_same
#define face_other_in_verbosity     face_wrong
#define face_other_out_verbosity    face_same
#define face_other_in_bind          face_wrong
#define face_other_out_bind         face_same
#define face_other_in_scope         face_wrong
#define face_other_out_scope        face_same
#define face_other_in_pvarclass     face_wrong
#define face_other_out_pvarclass    face_same
#define face_other_in_safety        face_wrong
#define face_other_out_safety       face_same
#define face_other_in_ordering      face_wrong
#define face_other_out_ordering     face_same
static inline int face_other_in_error(int n)
{
    return n > FACE_LAST_CODE ? n - FACE_LAST_CODE + MPI_ERR_LASTCODE : n;
}
static inline int face_other_out_error(int n)
{
    return n > MPI_ERR_LASTCODE ? n - MPI_ERR_LASTCODE + FACE_LAST_CODE : n;
}

struct face_number {
    uint32_t mpich;
    uint32_t abi;
};
#include <numbers.inc>

static inline int in_rank(int n)
{
    if (LIKELY(n >= 0))
        return n;
    return n == -2 ? MPI_ANY_SOURCE : n == -1 ? MPI_PROC_NULL : n == -3 ? MPI_ROOT : face_wrong(n);
}
static inline int out_rank(int n)
{
    if (LIKELY(n >= 0))
        return n;
    return n == MPI_ANY_SOURCE ? -2 : n == MPI_PROC_NULL ? -1 : n == MPI_ROOT ? -3 : n;
}
static inline int in_tag(int n)
{
    return LIKELY(n >= 0) ? n : n == -1 ? MPI_ANY_TAG : FACE_NO_NUMBER;
}
static inline int out_tag(int n)
{
    return n == MPI_ANY_TAG ? -1 : n;
}

/* ---------------------------------------------------------------- handles */

#define FACE_FLOAT16 0x4c000246 /* MPIX_C_FLOAT16: only MPICH has it */

/* Predefined handles begin with 01 or 10, and their last 7 bits differ; ours begin with 00. */
static inline uintptr_t face_value(uintptr_t handle, uint32_t null, uint32_t abi_null,
                                   const struct face_number *table, size_t length)
{
    if (handle == null)
        return abi_null;
    size_t place = (handle & 0x7f) + (handle >> 31 << 7);
    if (place < length && table[place].mpich == handle && handle)
        return table[place].abi;
    if (handle == FACE_FLOAT16 && abi_null == 0x200)
        return HLY_MPI_FLOAT16;
    return handle >> 30 || handle < HLY_MPI_NUMBERS ? UINTPTR_MAX : handle;
}

#define FACE_MPICH_HANDLE(kind, Name, abi_null, as_int)                                            \
    static inline uintptr_t face_value_##kind(MPI_##Name handle)                                   \
    {                                                                                              \
        return face_value((uintptr_t)(as_int)handle, FACE_NULL_##kind, abi_null,                   \
                          face_##kind##s_in,                                                       \
                          sizeof face_##kind##s_in / sizeof face_##kind##s_in[0]);                 \
    }                                                                                              \
    static inline MPI_##Name face_handle_##kind(uint32_t value)                                    \
    {                                                                                              \
        return (MPI_##Name)(as_int)(value == (abi_null)        ? FACE_NULL_##kind                  \
                                    : value == HLY_MPI_FLOAT16 ? FACE_FLOAT16                      \
                                    : value < HLY_MPI_NUMBERS  ? face_numbers_out[value]           \
                                                               : value);                            \
    }
FACE_MPICH_HANDLE(comm, Comm, 0x100u, uint32_t)
FACE_MPICH_HANDLE(group, Group, 0x108u, uint32_t)
FACE_MPICH_HANDLE(type, Datatype, 0x200u, uint32_t)
FACE_MPICH_HANDLE(op, Op, 0x20u, uint32_t)
FACE_MPICH_HANDLE(request, Request, 0x180u, uint32_t)
FACE_MPICH_HANDLE(errhandler, Errhandler, 0x140u, uint32_t)
FACE_MPICH_HANDLE(info, Info, 0x130u, uint32_t)
FACE_MPICH_HANDLE(message, Message, 0x128u, uint32_t)
FACE_MPICH_HANDLE(win, Win, 0x110u, uint32_t)
FACE_MPICH_HANDLE(file, File, 0x118u, uintptr_t)
FACE_MPICH_HANDLE(session, Session, 0x120u, uint32_t)

/* ---------------------------------------------------------------- statuses, pointers */

static inline void in_status(const MPI_Status *status, struct hly_mpi_status *to)
{
    uint64_t upper = (uint32_t)status->count_hi_and_cancelled;
    *to = (struct hly_mpi_status){in_rank(status->MPI_SOURCE), in_tag(status->MPI_TAG),
                                  in_error(status->MPI_ERROR), upper & 1,
                                  (int64_t)(upper >> 1 << 32 | (uint32_t)status->count_lo)};
}
/* All but MPI_ERROR, which only some functions set. */
static inline void out_status(MPI_Status *status, const struct hly_mpi_status *from)
{
    uint64_t bytes = (uint64_t)from->bytes;
    status->count_lo = (int)(uint32_t)bytes;
    status->count_hi_and_cancelled = (int)(uint32_t)(bytes >> 32 << 1 | from->cancelled);
    status->MPI_SOURCE = out_rank(from->source);
    status->MPI_TAG = out_tag(from->tag);
    if (from->source == MPI_ANY_SOURCE) /* an empty one, all of which is set */
        status->MPI_ERROR = MPI_SUCCESS;
}

static inline void *in_buffer(const void *pointer)
{
    intptr_t value = (intptr_t)pointer;
    return LIKELY(value != -1 && value != -2) ? (void *)value
           : value == -1                      ? MPI_IN_PLACE
                                              : MPI_BUFFER_AUTOMATIC;
}

/* MPI_COMM_DUP_FN and the others. */
FACE_API int MPIR_Dup_fn(MPI_Comm comm, int keyval, void *extra, void *value, void *copy,
                         int *flag);
static inline hly_mpi_fn *face_copy_fn(hly_mpi_fn *fn)
{
    return fn == (hly_mpi_fn *)MPIR_Dup_fn ? (hly_mpi_fn *)(uintptr_t)1 : fn;
}
#define in_copy_fn(fn) face_copy_fn(fn)

/* The attribute's value is a number that differs between the ABIs. */
void out_attribute(int keyval, void *value);
/* Those of MPI_Type_get_contents. */
void out_integers(struct hly_mpi_type *type, int integers[], int64_t max);

#endif
