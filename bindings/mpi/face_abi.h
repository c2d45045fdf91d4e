/* SPDX-License-Identifier: Apache-2.0 */
/* face_abi.h - types of the standard's ABI. Its numbers are those of core.h. */
#ifndef HLY_MPI_FACE_ABI_H
#define HLY_MPI_FACE_ABI_H

typedef struct hly_abi_comm *MPI_Comm;
typedef struct hly_abi_group *MPI_Group;
typedef struct hly_abi_datatype *MPI_Datatype;
typedef struct hly_abi_op *MPI_Op;
typedef struct hly_abi_request *MPI_Request;
typedef struct hly_abi_errhandler *MPI_Errhandler;
typedef struct hly_abi_info *MPI_Info;
typedef struct hly_abi_message *MPI_Message;
typedef struct hly_abi_win *MPI_Win;
typedef struct hly_abi_file *MPI_File;
typedef struct hly_abi_session *MPI_Session;

#define FACE_ABI_HANDLE(kind, Name)                                                                \
    static inline uintptr_t face_value_##kind(MPI_##Name handle)                                   \
    {                                                                                              \
        return (uintptr_t)handle;                                                                  \
    }                                                                                              \
    static inline MPI_##Name face_handle_##kind(uint32_t value)                                    \
    {                                                                                              \
        return (MPI_##Name)(uintptr_t)value;                                                       \
    }
FACE_ABI_HANDLE(comm, Comm)
FACE_ABI_HANDLE(group, Group)
FACE_ABI_HANDLE(type, Datatype)
FACE_ABI_HANDLE(op, Op)
FACE_ABI_HANDLE(request, Request)
FACE_ABI_HANDLE(errhandler, Errhandler)
FACE_ABI_HANDLE(info, Info)
FACE_ABI_HANDLE(message, Message)
FACE_ABI_HANDLE(win, Win)
FACE_ABI_HANDLE(file, File)
FACE_ABI_HANDLE(session, Session)

/* internal: the bytes of the message (two ints), and whether it was cancelled. */
typedef struct {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR, internal[5];
} MPI_Status;
#define FACE_STATUS_IGNORE ((MPI_Status *)0)

static inline void in_status(const MPI_Status *status, struct hly_mpi_status *to)
{
    *to = (struct hly_mpi_status){
        status->MPI_SOURCE, status->MPI_TAG, status->MPI_ERROR, status->internal[2] & 1,
        (int64_t)((uint64_t)(uint32_t)status->internal[1] << 32 | (uint32_t)status->internal[0])};
}
/* All but MPI_ERROR, which only some functions set. */
static inline void out_status(MPI_Status *status, const struct hly_mpi_status *from)
{
    status->MPI_SOURCE = from->source;
    status->MPI_TAG = from->tag;
    status->internal[0] = (int)(uint32_t)from->bytes;
    status->internal[1] = (int)(uint32_t)((uint64_t)from->bytes >> 32);
    status->internal[2] = from->cancelled;
    if (from->source == MPI_ANY_SOURCE) /* an empty one, all of which is set */
        status->MPI_ERROR = MPI_SUCCESS;
}

#define in_buffer(pointer) (pointer)
#define in_copy_fn(fn)     ((hly_mpi_fn *)(fn))
#define in_offset(n)       (n)
#define out_attribute(keyval, value)
#define out_integers(type, integers, max)

#define FACE_SAME(kind)                                                                            \
    static inline int in_##kind(int n)                                                             \
    {                                                                                              \
        return n;                                                                                  \
    }                                                                                              \
    static inline int out_##kind(int n)                                                            \
    {                                                                                              \
        return n;                                                                                  \
    }
FACE_SAME(rank)
FACE_SAME(tag)
FACE_SAME(error)
FACE_SAME(keyval)
FACE_SAME(thread)
FACE_SAME(compare)
FACE_SAME(combiner)
FACE_SAME(topo)
FACE_SAME(split)
FACE_SAME(lock)
FACE_SAME(whence)
FACE_SAME(amode)
FACE_SAME(assert)
FACE_SAME(typeclass)
FACE_SAME(order)
FACE_SAME(distribution)
FACE_SAME(verbosity)
FACE_SAME(bind)
FACE_SAME(scope)
FACE_SAME(pvarclass)
FACE_SAME(safety)
FACE_SAME(ordering)

#endif
