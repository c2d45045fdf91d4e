/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - MPI over halay.h: the objects of an MPI program, and the rules by which the two faces
 * (the standard's ABI, and MPICH's) call what stands here. docs/decisions/mpi.md.
 *
 * MPI_Xxx_yyy is hly_mpi_xxx_yyy(), with the same parameters in the same order, in these types:
 *   MPI_Comm, MPI_Datatype, ...    struct hly_mpi_comm *, ...; NULL: the null handle
 *   their addresses                struct hly_mpi_comm **; NULL is written back as the null handle
 *   arrays of requests             struct hly_mpi_request **, written back
 *   int or MPI_Count count         int64_t
 *   their addresses                int64_t *; what does not fit an int becomes MPI_UNDEFINED
 *   const int[], const MPI_Count[], const MPI_Aint[] (counts, displacements) struct hly_mpi_ints
 *   MPI_Aint, MPI_Offset           int64_t
 *   MPI_Status *, []               struct hly_mpi_status *; NULL: ignored
 *   functions of the program       hly_mpi_fn *, and its object keeps the face that calls it
 *   all else                       as it is
 * Numbers (MPI_ANY_SOURCE, MPI_UNDEFINED, error classes, ...) are those of the standard's ABI: the
 * other face translates. Each returns MPI_SUCCESS or what hly_mpi_fail() returns.
 */
#ifndef HLY_MPI_CORE_H
#define HLY_MPI_CORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/halay.h>

#include "numbers.h"

typedef void hly_mpi_fn(void);

struct hly_mpi_face;
struct hly_mpi_status;
struct hly_mpi_comm;
struct hly_mpi_type;
struct hly_mpi_made;
struct hly_mpi_attributes;
struct hly_mpi_topology;
struct hly_mpi_info;
struct hly_mpi_errhandler;
struct hly_mpi_request;

/* The function of MPI in which this thread of the program is, for notices; or NULL. */
extern _Thread_local const char *hly_mpi_called __attribute__((tls_model("initial-exec")));

/* A thread of this library begins to send messages while the program waits, or has ended: so ranks
 * may wait for each other, and go on all the same. */
void hly_mpi_job_serves(bool does);

/* ---------------------------------------------------------------- objects and handles */

enum hly_mpi_kind {
    HLY_MPI_COMM = 1,
    HLY_MPI_GROUP,
    HLY_MPI_TYPE,
    HLY_MPI_OP,
    HLY_MPI_REQUEST,
    HLY_MPI_ERRHANDLER,
    HLY_MPI_INFO,
    HLY_MPI_MESSAGE,
    HLY_MPI_WIN,
    HLY_MPI_FILE,
    HLY_MPI_SESSION,
    HLY_MPI_KINDS
};

/* The first member of each object. A handle is a kind, a generation and an index, so that one which
 * was freed, or is of another library, is recognised; 0: none. */
struct hly_mpi_head {
    uint32_t handle;
    int32_t refs;                    /* users of the object: the program's handle is one */
    const struct hly_mpi_face *face; /* whose program made it */
};

/* handle.c. hly_mpi_object_new() gives zeroed memory with one user; NULL: no memory. _release()
 * ends one use, and frees the object with the last one, by `end` of its kind. */
void *hly_mpi_object_new(enum hly_mpi_kind kind, size_t bytes);
void *hly_mpi_object_of(enum hly_mpi_kind kind, uint32_t handle);
void hly_mpi_object_hold(void *object);
void hly_mpi_object_release(void *object);
/* The program has freed it, and the library still uses it: the handle is not valid any more. */
void hly_mpi_object_hide(void *object);
/* The next object of the kind that the program can name, from *at on, which begins with 0; NULL:
 * there is none. Only while no other thread makes or frees objects. */
void *hly_mpi_object_next(enum hly_mpi_kind kind, uint32_t *at);
void hly_mpi_object_ends(enum hly_mpi_kind kind, void (*end)(void *object));

/* MPICH's MPIX_C_FLOAT16, which the standard's ABI does not have. */
#define HLY_MPI_FLOAT16 0x3f0

/* The predefined object of a kind that stands for this number of the standard's ABI (0x101:
 * MPI_COMM_WORLD). NULL: there is none. */
void *hly_mpi_predefined(enum hly_mpi_kind kind, uint32_t number);
/* Made predefined by the file that owns the kind, at MPI_Init or before. */
void hly_mpi_predefine(enum hly_mpi_kind kind, uint32_t number, void *object);

/* What a face does for a program of its own: it calls its functions with its handles. */
struct hly_mpi_face {
    const char *name; /* "MPI ABI 1.0", "MPICH ABI" */
    void (*call_op)(hly_mpi_fn *fn, bool large, const void *in, void *inout, int64_t count,
                    struct hly_mpi_type *type);
    int (*call_copy)(hly_mpi_fn *fn, enum hly_mpi_kind kind, void *object, int keyval, void *extra,
                     void *value, void *out, int *flag);
    int (*call_delete)(hly_mpi_fn *fn, enum hly_mpi_kind kind, void *object, int keyval,
                       void *value, void *extra);
    void (*call_error)(hly_mpi_fn *fn, enum hly_mpi_kind kind, void *object, int *code);
    int (*error_number)(int abi_class); /* of this face */
    int (*call_query)(hly_mpi_fn *fn, bool fortran, void *extra, struct hly_mpi_status *status);
    int (*error_class)(int number); /* of the standard's ABI, for one of this face */
    void *automatic;                /* MPI_BUFFER_AUTOMATIC of this face */
};

/* ---------------------------------------------------------------- arguments */

struct hly_mpi_ints { /* an array of int, or of MPI_Count or MPI_Aint */
    const void *at;
    bool wide;
};
static inline int64_t hly_mpi_int(struct hly_mpi_ints ints, int64_t i)
{
    return ints.wide ? ((const int64_t *)ints.at)[i] : ((const int *)ints.at)[i];
}

struct hly_mpi_status {
    int source, tag, error;
    bool cancelled;
    int64_t bytes; /* of the message */
};

/* ---------------------------------------------------------------- errors: error.c */

/* Keeps the text for MPI_Error_string of this thread, and returns the class (MPI_ERR_*). */
int hly_mpi_fail(int mpi_class, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same of a HALAY_E* code that a call on this communicator has returned, with its verdict's
 * text; 0: MPI_SUCCESS. comm may be NULL. */
int hly_mpi_result(int code, const struct hly_mpi_comm *comm, const char *function);

int hly_mpi_result_at(int code, halay_comm_t *comm, const char *function);
/* The last error gets this class, and the text, if it is not NULL. MPI_ERR_IN_STATUS: the class
 * that it had keeps the text, too. Returns the class. */
int hly_mpi_fail_again(int mpi_class, const char *text);
/* The text of the thread's last error, if it has this class; or NULL. */
const char *hly_mpi_last_text(int mpi_class);

/* ---------------------------------------------------------------- the job: job.c */

struct hly_mpi_job {
    halay_context_t *context; /* NULL: before MPI_Init, or after MPI_Finalize */
    struct hly_mpi_comm *world, *self;
    int initialized, finalized, thread_level;
    halay_comm_t *base;                /* of all ranks, for the library's own calls */
    int rank, size;                    /* in it, which is as MPI_COMM_WORLD */
    struct hly_mpi_op_slots *op_slots; /* of the context: op_user.c */
};
extern struct hly_mpi_job hly_mpi_job;
/* Ends this process with the code, and so the job. */
_Noreturn void hly_mpi_job_end(int code);
/* left.c: at MPI_Finalize, says what the program has not ended: requests, messages; and, with
 * HALAY_DEBUG=info, communicators. */
void hly_mpi_left_tell(void);

/* ---------------------------------------------------------------- datatypes: type.c, pack.c */

struct hly_mpi_type {
    struct hly_mpi_head head;
    int64_t size;       /* bytes of data in an element */
    int64_t lb, extent; /* and where the next one begins */
    int64_t true_lb, true_extent;
    bool committed, predefined;
    bool dense; /* the data are one block of `size` bytes at lb 0, and the extent is the size */
    int halay;  /* halay_type_t of all its data, if they are of one; -1: no such */
    int number; /* 1 + halay_type_t of a number of C, on whose operations Halay and MPI agree; or 0
                 */
    int64_t elements;          /* of that type in one of this; also of basic types in it */
    uint64_t signature;        /* hash of the sequence of its basic types */
    struct hly_mpi_made *made; /* how it was made: type.c */
    struct hly_mpi_attributes *attributes;
    char name[128];
};

/* Hash of the sequence of basic types in count elements: equal for equal sequences, however made.
 * Types that hold the same numbers are equal in it: type_shape.c. */
uint64_t hly_mpi_signature(int64_t count, const struct hly_mpi_type *type);
/* Has it data of MPI_BYTE or MPI_PACKED alone? Such data match all. */
bool hly_mpi_type_untyped(const struct hly_mpi_type *type);
/* The type by which Halay compares the data of ranks: that of the numbers that it has, signed;
 * HALAY_UINT8 for bytes, characters, and what Halay has no type for. message.c. */
halay_type_t hly_mpi_type_compared(const struct hly_mpi_type *type);
/* A face says so of a type that one of the large-count constructors, MPI_Type_..._c, has made. */
void hly_mpi_type_made_large(struct hly_mpi_type *type);

/* Copies count elements to or from packed bytes [from, from + bytes). */
void hly_mpi_pack_range(const void *buffer, int64_t count, const struct hly_mpi_type *type,
                        int64_t from, int64_t bytes, void *packed);
void hly_mpi_unpack_range(void *buffer, int64_t count, const struct hly_mpi_type *type,
                          int64_t from, int64_t bytes, const void *packed);
/* Is the type predefined or committed, and the count not negative? MPI_SUCCESS or the error. */
int hly_mpi_check_data(const char *function, const void *buffer, int64_t count,
                       const struct hly_mpi_type *type);

/* ---------------------------------------------------------------- operations: op.c */

struct hly_mpi_op {
    struct hly_mpi_head head;
    int halay; /* halay_op_t, of a predefined one; -1: it has none */
    bool predefined, commutative, large;
    hly_mpi_fn *fn;
};
/*
 * The halay operation by which this one reduces elements of this type, as elements of *as, *each of
 * them for one of the type. MPI_ERR_OP: it does not take the type. hly_mpi_op_done() after the call
 * (it may free what was made for it).
 */
int hly_mpi_op_find(const char *function, struct hly_mpi_op *op, struct hly_mpi_type *type,
                    halay_op_t *found, halay_type_t *as, int64_t *each);
/* The same for a communicator of one rank, where nothing is combined: it makes no operation of
 * Halay's, whose number other ranks would have to count, too. */
int hly_mpi_op_find_alone(const char *function, const struct hly_mpi_op *op,
                          const struct hly_mpi_type *type, halay_op_t *found, halay_type_t *as,
                          int64_t *each);
/* "MPI_SUM". */
const char *hly_mpi_op_name(const struct hly_mpi_op *op);
/* Once for each hly_mpi_op_find() that has succeeded. */
void hly_mpi_op_done(halay_op_t found);
/* hly_mpi_result() of an allreduce of the named type by the predefined operation. */
int hly_mpi_allreduce_error(int code, const struct hly_mpi_type *type, const struct hly_mpi_op *op,
                            const struct hly_mpi_comm *comm);

/* ---------------------------------------------------------------- communicators: comm.c, ... */

struct hly_mpi_comm {
    struct hly_mpi_head head;
    halay_comm_t *halay; /* NULL: MPI_COMM_SELF without a job, or an intercommunicator's part */
    int rank, size;
    struct hly_mpi_group *group, *remote; /* remote: of an intercommunicator */
    /* An intercommunicator's `halay` has the ranks of both groups: here each begins in it. */
    int local_first, remote_first;
    struct hly_mpi_errhandler *errhandler;
    struct hly_mpi_attributes *attributes;
    struct hly_mpi_topology *topology;
    struct hly_mpi_info *info;
    struct hly_mpi_tags *tags;     /* of MPI_Comm_create_group: comm_make.c */
    struct hly_mpi_buffer *buffer; /* for MPI_Bsend: buffer.c; NULL: none */
    bool freed;                    /* by the program; requests still use it */
    char name[128];
};
struct hly_mpi_group {
    struct hly_mpi_head head;
    int size, rank;   /* rank of this process, or MPI_UNDEFINED */
    uint32_t session; /* handle of the session that it comes from; 0: none */
    int world[];      /* the ranks in MPI_COMM_WORLD */
};
/* Is it a communicator of this job? Before MPI_Init and after MPI_Finalize: MPI_ERR_OTHER. */
int hly_mpi_check_comm(const char *function, const struct hly_mpi_comm *comm);

/* The value of MPI_LASTUSEDCODE: error.c. */
int *hly_mpi_error_last_used(void);

struct hly_mpi_session {
    struct hly_mpi_head head;
    struct hly_mpi_errhandler *errhandler;
    struct hly_mpi_info *info;
    struct hly_mpi_buffer *buffer;
};

/* attribute.c. _copy(): those of an object's list whose copy functions want it, for its duplicate.
 * _free(): calls the delete functions, the last attribute first. Both return what a function of
 * the program has returned, or MPI_SUCCESS. */
int hly_mpi_attributes_copy(enum hly_mpi_kind kind, void *from, struct hly_mpi_attributes *list,
                            struct hly_mpi_attributes **copy);
int hly_mpi_attributes_free(enum hly_mpi_kind kind, void *object, struct hly_mpi_attributes **list);

/* attribute.c, for Fortran, whose attributes are integers: C gets pointers to them. _fortran()
 * exchanges a keyval's functions and their extra state for others; that state is from malloc(), and
 * goes with the keyval. False: there is no such keyval, or it is Fortran's already. */
struct hly_mpi_keyval_functions {
    hly_mpi_fn *copy, *remove;
    void *extra;
};
bool hly_mpi_keyval_fortran(int keyval, struct hly_mpi_keyval_functions *functions);
int hly_mpi_fortran_set_attr(const char *function, enum hly_mpi_kind kind, void *object, int keyval,
                             intptr_t value);
int hly_mpi_fortran_get_attr(const char *function, enum hly_mpi_kind kind, void *object, int keyval,
                             intptr_t *value, int *flag);
/* request_made.c: a generalised request's functions are Fortran's. */
void hly_mpi_grequest_fortran(struct hly_mpi_request *request);

/* Called once, by the first MPI_Init or MPI_Session_init: they make what is predefined. */
int hly_mpi_types_open(void);
int hly_mpi_ops_open(void);
/* Before the context ends: frees the operations that were made for it. */
void hly_mpi_ops_leave(void);

/* ---------------------------------------------------------------- requests: request.c */

enum hly_mpi_request_is { HLY_MPI_IS_CALL, HLY_MPI_IS_SEND, HLY_MPI_IS_RECV, HLY_MPI_IS_DONE };
struct hly_mpi_request {
    struct hly_mpi_head head;
    enum hly_mpi_request_is is;
    bool persistent, active;
    bool freed; /* by the program, while it was active: a generalised one has to be completed still
                 */
    bool done;  /* result and status are kept here, for the program */
    int result;
    char *why;                 /* text of the result, if it is an error; or NULL */
    halay_request_t *halay;    /* NULL: it is done already */
    struct hly_mpi_comm *comm; /* held: released when the request is freed, after `halay` was */
    const char *function;      /* "MPI_Irecv", for messages */
    struct hly_mpi_status status;
    /* When it is done: unpacks, frees what the call needed. Called once. */
    int (*then)(struct hly_mpi_request *request);
    int (*start)(struct hly_mpi_request *request); /* of a persistent one */
    /* NULL, or, of a request without `halay`: is it done? It makes no progress. */
    bool (*is_done)(struct hly_mpi_request *request);
    /* Or NULL: called when the program has got the result, which it may make an error. */
    int (*given)(struct hly_mpi_request *request);
    int (*cancel)(struct hly_mpi_request *request); /* or NULL */
    /* Or NULL: releases what then and start use (types, packed data), before the request is freed.
     */
    void (*end)(struct hly_mpi_request *request);
    void *kept; /* of then and start: freed with the request, by free() */
};
/* Waits for one that is not the program's (then frees it). */
int hly_mpi_request_finish(struct hly_mpi_request *request, struct hly_mpi_status *status);

/* Prototypes of all hly_mpi_xxx_yyy() for MPI_Xxx_yyy: made by generate.py. */
#include <calls.h> /* made by generate.py */

#endif
