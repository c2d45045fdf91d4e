/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halay.h - all that a program needs: MPI-like collectives over RDMA, shared memory and threads.
 *
 * Conventions, for every function here unless it says otherwise:
 *  - It returns 0 (HALAY_OK) or a negative HALAY_E* code; objects come back through the last
 *    parameter, which is set only on success.
 *  - Counts are elements, not bytes. Buffers belong to the caller and must stay valid and, for the
 *    non-blocking forms, untouched until the request is complete. Nothing is kept after that, and
 *    after an error return no byte of them changes any more.
 *  - Collectives are called by every rank of the communicator, in the same order, with the same
 *    count, type, operation and root. A call that differs on one rank ends with the same error on
 *    all of them; halay_comm_verdict() then says who, where, what and what to do.
 *  - When the ranks have agreed that a call has failed, a rank that is still in the call, or enters
 *    it later, gets that error too: same code, same rank at fault, same text. A rank on which the
 *    call had already succeeded gets the error from its next call on that communicator, or else
 *    from halay_finalize(). No call that succeeds waits for this.
 *  - A death, a missed deadline, different settings, or an error in a call that had succeeded on
 *    some rank break the communicator. Every later call on it fails at once, with the same error.
 *    Only halay_comm_shrink() and the other calls for after failures still work.
 *  - Every call returns by the communicator's deadline (30 min unless set otherwise), or up to 2 s
 *    later, in which the ranks agree why it failed; 4 s if a peer has stopped during a transfer.
 *  - Every function may be called from any thread. Calls on one communicator have to be ordered by
 *    the program; different communicators may be used by different threads at the same time.
 *  - A forked child (a data loader, say) may not call Halay: it gets HALAY_EFORKED.
 */
#ifndef HALAY_HALAY_H
#define HALAY_HALAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HALAY_VERSION_MAJOR 0
#define HALAY_VERSION_MINOR 1
#define HALAY_VERSION_PATCH 0

#if defined(__GNUC__)
#define HALAY_API __attribute__((visibility("default")))
#else
#define HALAY_API
#endif

/* ------------------------------------------------------------------ results */

/* The numbers are stable: they are part of the ABI and never reused. */
enum {
    HALAY_OK = 0,
    HALAY_INPROGRESS = 1,    /* no error: an event will follow (plug-ins), or not done yet (test) */
    HALAY_EINVAL = -1,       /* an argument no call could accept */
    HALAY_ENOMEM = -2,       /* memory, descriptors or address space ran out */
    HALAY_EUNSUPPORTED = -3, /* valid, but not available here */
    HALAY_ESTATE = -4,       /* freed, finalized, initialized twice, or in use */
    HALAY_EMISMATCH = -5,    /* ranks called different collectives, or with different arguments */
    HALAY_ETIMEOUT = -6,     /* the deadline passed; the verdict names who was missing */
    HALAY_EPEER = -7,        /* a rank died, or cannot be reached any more */
    HALAY_ETRANSPORT = -8,   /* a transport failed */
    HALAY_EBOOT = -9,        /* a launcher announced ranks, and they could not be found */
    HALAY_EFORKED = -10,     /* called in a forked child */
    HALAY_EPLAN = -11,       /* a plan without a valid certificate: refused */
    HALAY_EAGAIN = -12,      /* full for now: try again (plug-ins only) */
    HALAY_EINTERNAL = -13,   /* a bug in Halay */
    HALAY_EDEVICE = -14,     /* a device failed; memory may still change if the verdict says so */
    HALAY_EREVOKED = -15,    /* a rank has revoked the communicator */
    HALAY_EOVER = -16        /* the job ends, and this process has come too late to join it */
};

/* A short fixed English text for a code ("HALAY_EMISMATCH: ..."). Never NULL. */
HALAY_API const char *halay_strerror(int code);

/* "0.1.0", the version of the library that is loaded. */
HALAY_API const char *halay_version(void);

/* ------------------------------------------------------------------ types and operations */

typedef enum halay_type {
    HALAY_INT8 = 0,
    HALAY_UINT8,
    HALAY_INT16,
    HALAY_UINT16,
    HALAY_INT32,
    HALAY_UINT32,
    HALAY_INT64,
    HALAY_UINT64,
    HALAY_BOOL,     /* one byte; any non-zero byte is true, results are 0 or 1 */
    HALAY_FLOAT16,  /* IEEE binary16; summed in float32, rounded once per reduce step */
    HALAY_BFLOAT16, /* as FLOAT16, with bfloat16's format */
    HALAY_FLOAT32,
    HALAY_FLOAT64,
    HALAY_COMPLEX64,  /* two float32: real, imaginary */
    HALAY_COMPLEX128, /* two float64 */
    /* A value and its index, for MINLOC and MAXLOC: the structs below. */
    HALAY_FLOAT32_INT32,
    HALAY_FLOAT64_INT64,
    HALAY_INT32_INT32,
    HALAY_INT64_INT64,
    HALAY_TYPE_COUNT
} halay_type_t;

/* Elements of the pair types: value first, no padding, 8 or 16 bytes. */
typedef struct halay_float32_int32 {
    float value;
    int32_t index;
} halay_float32_int32_t;
typedef struct halay_float64_int64 {
    double value;
    int64_t index;
} halay_float64_int64_t;
typedef struct halay_int32_int32 {
    int32_t value, index;
} halay_int32_int32_t;
typedef struct halay_int64_int64 {
    int64_t value, index;
} halay_int64_int64_t;

/*
 * Which operation takes which type: SUM, PROD, AVERAGE all but BOOL and the pairs; MIN, MAX those
 * except for the complex types; LAND, LOR, LXOR, BAND, BOR, BXOR integers and BOOL; MINLOC, MAXLOC
 * the pairs; a user-defined one all types. Floating point: a NaN result is always the positive
 * quiet NaN without payload; MIN and MAX return NaN if any operand is one, and order -0 before +0.
 * Integers wrap. AVERAGE is the sum, then one true division in the accumulation type; integers
 * truncate toward zero. MINLOC and MAXLOC give the least or greatest value, in the order of MIN and
 * MAX, with its index; of equal ones (also of several NaNs, which win over all numbers) the lowest
 * index, as a signed number.
 */
typedef enum halay_op {
    HALAY_SUM = 0,
    HALAY_PROD,
    HALAY_MIN,
    HALAY_MAX,
    HALAY_AVERAGE,
    HALAY_LAND,
    HALAY_LOR,
    HALAY_LXOR,
    HALAY_BAND,
    HALAY_BOR,
    HALAY_BXOR,
    HALAY_MINLOC,
    HALAY_MAXLOC,
    HALAY_OP_COUNT,
    HALAY_OP_USER = 0x10000, /* user-defined ones: from here .. */
    HALAY_OP_USER_LAST = 0x3fffffff
} halay_op_t;

/* Bytes of one element, or 0 for a type that does not exist. */
HALAY_API size_t halay_type_bytes(halay_type_t type);
/* "float32", "sum"; "?" for one that does not exist. */
HALAY_API const char *halay_type_name(halay_type_t type);
HALAY_API const char *halay_op_name(halay_op_t op);
/* 1 if the operation takes the type, else 0. */
HALAY_API int halay_op_takes(halay_op_t op, halay_type_t type);

/*
 * out[i] = factor * in[i], as prescale and postscale of halay_allreduce_scaled do; out may be in.
 * Local. The half types through float32, rounded once; all floating types but those of float64 with
 * the factor rounded to float32. Integers: the product in float64 (so integers beyond 2^53 are
 * rounded to one first), truncated toward zero, and what does not fit is the nearest that does.
 * HALAY_EINVAL: BOOL and the pairs, or a factor that is not finite.
 */
HALAY_API int halay_scale(void *out, const void *in, size_t count, halay_type_t type,
                          double factor);

/*
 * Passed as `in`: the input is in `out` already (see each collective). Passed as `out` at the root
 * of a scatter, as in MPI: its block stays in `in`. For any other buffer: HALAY_EINVAL on all
 * ranks.
 */
#define HALAY_IN_PLACE ((const void *)-1)

/* ------------------------------------------------------------------ context */

typedef struct halay_context halay_context_t;
typedef struct halay_comm halay_comm_t;
typedef struct halay_request halay_request_t;

struct halay_boot_ops;
struct halay_transport_ops;
struct halay_device_ops;
struct halay_group_ops;

/*
 * The arguments of halay_init(). Most programs pass NULL, or HALAY_CONFIG_INIT unchanged: Halay
 * finds the job through PMIx, and chooses everything else. Zero and NULL always mean "choose".
 * Members that an older program's struct lacks are chosen, too. HALAY_EINVAL: the struct is newer
 * than the library, and sets a member that the library does not know.
 *
 * boot_arg means one of three things:
 *   boot NULL, boot_arg NULL      Halay finds the job
 *   boot NULL, boot_arg not NULL  a halay_boot_rank_t (boot.h): the program gives its rank
 *   boot not NULL                 boot->open gets it; the transport has it as params.arg, too
 *
 * The tables of functions here, and those of plug-ins, follow one rule: every member is set, none
 * is NULL. A function that an implementation does not offer returns HALAY_EUNSUPPORTED; a void one
 * does nothing. A table that is shorter than its header's is of an older ABI.
 */
typedef struct halay_config {
    size_t size;                                 /* of this struct, for growth */
    const struct halay_boot_ops *boot;           /* how to find the peers (boot.h) */
    void *boot_arg;                              /* see above */
    const struct halay_transport_ops *transport; /* the only transport to use (transport.h) */
    const char *transport_options;               /* options of that transport */
    const struct halay_device_ops *device;       /* reduces and copies (device.h) */
    void *device_arg;                            /* passed to device->open */
    uint64_t deadline_ns;                        /* of the world communicator; HALAY_DEADLINE */
    const char *algorithm;                       /* "allreduce=ring,..."; HALAY_ALGORITHM */
    const char *isa;                             /* "scalar", "avx2", "avx512"; NULL: the best */
    char *error;                                 /* gets the reason if halay_init() fails */
    size_t error_bytes;
    const struct halay_group_ops *group; /* does device collectives (group.h) */
    void *group_arg;                     /* passed to its functions */
} halay_config_t;

#define HALAY_CONFIG_INIT                                                                          \
    {                                                                                              \
        sizeof(halay_config_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                              \
    }

/*
 * Finds the job and makes a context. Without a launcher the job has one rank. If a launcher has
 * announced more than one rank, and Halay cannot find them, it fails (HALAY_EBOOT), and the text
 * has a remedy. A process may hold one context of a job at a time (HALAY_ESTATE otherwise), and may
 * make a new one after halay_finalize(), any number of times. The reason for a failure goes to
 * config->error and to standard error.
 */
HALAY_API int halay_init(const halay_config_t *config, halay_context_t **context);
/* Gives the process's existing context (the oldest that has not ended), to share it; if there is
 * none, as halay_init(). Each user calls halay_finalize(); the last call ends the context. */
HALAY_API int halay_init_shared(const halay_config_t *config, halay_context_t **context);
/*
 * Gives the number of processes that wait to be ranks of this job, on rank 0; other ranks get 0.
 * They join when all ranks have called halay_finalize() and halay_init(). Does not block.
 * HALAY_EUNSUPPORTED: the launcher always starts the same number of ranks.
 */
HALAY_API int halay_newcomers(halay_context_t *context, int *count);

/*
 * Ends the context and frees it with all its communicators and requests; takes NULL. Not
 * collective: peers that still wait for this rank get an error that names it. Requests still in
 * flight end with an error, here and on all ranks that still wait. Then it frees the context all
 * the same, and returns HALAY_ESTATE. If the last calls were relaxed broadcasts it waits until all
 * ranks have them, by the deadline. If a call has succeeded here and failed on other ranks, and no
 * later call has returned that error, it returns its code.
 */
HALAY_API int halay_finalize(halay_context_t *context);
/* The same, for a process that will not call halay_init() again in this job. If ranks may change,
 * the others go on without it at once, and do not wait for the end of the process. */
HALAY_API int halay_leave(halay_context_t *context);

/*
 * Ranks, nodes and transports of the job, as this rank sees them. This struct and others with a
 * size may be from an older or a newer header: Halay fills the members that both have, and sets
 * size accordingly.
 */
typedef struct halay_topology {
    size_t size; /* of this struct, set by the caller */
    int rank, nranks;
    int local_rank, local_nranks; /* among the ranks of this node */
    int node, nnodes; /* the node's number: also the rank among ranks of equal local rank */
    char host[64];
    char launcher[32];  /* "pmix", "alone", ... */
    char transport[32]; /* "shm", "shm+ucx" (in the node, between nodes), "none" (one rank) */
    int oversubscribed; /* 0: no, or there are several nodes; 1: the node has fewer processors than
                           ranks; 2: the same, and it has only one processor */
} halay_topology_t;

HALAY_API int halay_context_topology(const halay_context_t *context, halay_topology_t *topology);

/* What this rank has done since halay_init(); counters only grow. */
typedef struct halay_counters {
    size_t size; /* of this struct, set by the caller */
    /* Over all transports: bytes of the program's data without headers, and messages with those
     * that carry no data. */
    uint64_t sent_bytes, sent_messages, received_bytes, received_messages;
    /* calls that have ended, also with an error: collectives, sends, receives */
    uint64_t operations;
    uint64_t errors;      /* of the operations, those that have failed */
    uint64_t connections; /* connections to other ranks that were made */
    uint64_t sleeps;      /* times that a thread has slept in the kernel to wait for progress */
    /* plans that were made: a repeated call uses the plan of the first one */
    uint64_t plans_made;
    uint64_t plans_proved; /* proofs that were made: equal plans share one */
    uint64_t repeated;     /* of the operations, those found in their communicator's call cache */
} halay_counters_t;

HALAY_API int halay_context_counters(halay_context_t *context, halay_counters_t *counters);

/*
 * Makes progress on everything in the context; where there is nothing to do, sleeps until something
 * arrives, halay_context_wake() is called, or timeout_ns have passed (0: does not sleep).
 */
HALAY_API int halay_context_progress(halay_context_t *context, uint64_t timeout_ns);
/* Wakes every thread that sleeps in halay_context_progress(). */
HALAY_API void halay_context_wake(halay_context_t *context);

/* ------------------------------------------------------------------ communicators */

/* All ranks of the job. Belongs to the context; must not be freed. */
HALAY_API int halay_comm_world(halay_context_t *context, halay_comm_t **comm);

/* This process's rank in the communicator, 0 to size - 1. Local, also in a forked child. */
HALAY_API int halay_comm_rank(const halay_comm_t *comm, int *rank);
/* How many ranks the communicator has, with those that have failed. Local, as halay_comm_rank(). */
HALAY_API int halay_comm_size(const halay_comm_t *comm, int *nranks);

/*
 * Makes a communicator of the same ranks, with messages of its own. Collective, but sends nothing.
 * All ranks must make the communicators of one parent in the same order; split and from_ranks
 * compare the order (HALAY_EMISMATCH).
 */
HALAY_API int halay_comm_dup(halay_comm_t *comm, halay_comm_t **dup);

/*
 * One communicator for each colour, ranked by key, then by old rank. A negative colour takes part
 * and gets NULL. Collective: gathers one (colour, key) pair from each rank.
 */
HALAY_API int halay_comm_split(halay_comm_t *comm, int colour, int key, halay_comm_t **split);

/*
 * One communicator for each node: of the ranks that share memory, in their old order. Collective,
 * but sends nothing.
 */
HALAY_API int halay_comm_split_node(halay_comm_t *comm, halay_comm_t **split);

/*
 * A communicator of n ranks of the old one, in the order of the list: ranks[i] becomes rank i.
 * Collective over the OLD communicator, as halay_comm_dup() is, and a barrier of it, in which the
 * lists are compared: all ranks pass the same list. Those that are not in it get NULL.
 */
HALAY_API int halay_comm_from_ranks(halay_comm_t *comm, const int ranks[], int n,
                                    halay_comm_t **subset);

/*
 * The same, but only the listed ranks have to call, and it sends nothing; other ranks get NULL if
 * they call. Two communicators of one parent and one list need different tags, also if the first
 * was freed. If a rank passes another list or tag, the first call on the new one ends with
 * HALAY_ETIMEOUT. HALAY_EINVAL: the list or the tag is wrong on this rank.
 */
HALAY_API int halay_comm_create_group(halay_comm_t *comm, const int ranks[], int n, uint64_t tag,
                                      halay_comm_t **made);

/* Frees it; takes NULL. Local. HALAY_ESTATE while requests are in flight, and for the world. */
HALAY_API int halay_comm_free(halay_comm_t *comm);

/* Sets how long later calls on the communicator may take before they end with HALAY_ETIMEOUT. 0 is
 * an error; more than 73 years is 73 years. */
HALAY_API int halay_comm_set_deadline(halay_comm_t *comm, uint64_t deadline_ns);
/* The deadline that later calls on it have now: that of the parent, unless it was set. Local. */
HALAY_API int halay_comm_deadline(halay_comm_t *comm, uint64_t *deadline_ns);

/* Properties of a communicator that change what its calls promise. All are off at first. */
typedef enum halay_hint {
    /*
     * 1: relaxed broadcasts; 0: none. In a series of equal broadcasts, if all ranks are on one
     * node, only the first and then every 32nd returns after all ranks have called. In the others
     * the root does not wait. An error in one is then returned by one of the next 32 calls, or by
     * halay_finalize, on every rank. If the call had succeeded on some rank, the communicator is
     * broken from then on. Persistent broadcasts and those in groups are never relaxed: starting
     * one on some ranks, while others make a relaxed call, is a mismatch.
     */
    HALAY_HINT_RELAXED_BROADCAST = 1,
    /*
     * A planner (halay_planner_find; the first one is 0), or -1: none. Halay uses it for all calls
     * of its collective, also in groups, that it can serve. Only one planner at a time.
     */
    HALAY_HINT_PLANNER = 2
} halay_hint_t;

/*
 * Sets a hint to one of its values. All ranks must set the same hints between the same two calls;
 * if not, the first call in which they differ is a mismatch. HALAY_ESTATE: calls are under way; or
 * relaxed ones are not confirmed by all ranks yet; or (PLANNER) there are persistent requests,
 * which have their plans already. Local.
 */
HALAY_API int halay_comm_set_hint(halay_comm_t *comm, halay_hint_t hint, int value);

/*
 * A verdict: why a call has failed. halay_comm_verdict() gives that of the last error that the
 * program has got on this communicator. A blocking call, wait or test has returned it, or a
 * function with an error on this rank alone. The verdict of a collective is the same on every rank.
 * If no call has failed, and the communicator was revoked, it gives the revocation. Each failed
 * request has a verdict of its own.
 */
typedef struct halay_verdict {
    size_t size;       /* of this struct, set by the caller */
    int code;          /* HALAY_E*, 0 if no call has failed */
    int rank;          /* the rank at fault, in this communicator; -1: no single one */
    int other;         /* the other side of a mismatch, or of a link that is cut; or -1 */
    uint32_t sequence; /* number of the call on this communicator */
    char host[64];     /* of the rank at fault */
    char text[512];    /* the whole message: call, rank, host, evidence, remedy */
} halay_verdict_t;

HALAY_API int halay_comm_verdict(const halay_comm_t *comm, halay_verdict_t *verdict);

/* ------------------------------------------------------------------ after failures */

/* The program may call these four functions on a broken or revoked communicator.
 * halay_comm_revoke() ends all calls on it, under way and later, on all ranks, with HALAY_EREVOKED.
 * A verdict that all ranks have agreed on before stays. Not collective: one rank calls it, and
 * returns at once. */
HALAY_API int halay_comm_revoke(halay_comm_t *comm);
/*
 * Collective over the survivors: *flag becomes the AND of the flags of all, the same on all, also
 * if ranks fail meanwhile. A rank that does not call by the deadline counts as failed from then on,
 * and gets HALAY_EPEER later. Takes a deadline at most for each rank that hangs. HALAY_EMISMATCH:
 * some have called halay_comm_shrink. HALAY_EUNSUPPORTED: with more than 1,536 ranks, the failed
 * ones form more than 48 ranges of consecutive ranks, for which a message has no room.
 */
HALAY_API int halay_comm_agree(halay_comm_t *comm, int *flag);
/* The same, and makes a communicator of all ranks, in order, except for those that some survivor
 * knows to have failed. A rank that fails meanwhile may be in it: then calls on it fail, and the
 * program can shrink it in turn. */
HALAY_API int halay_comm_shrink(halay_comm_t *comm, halay_comm_t **survivors);
/* Gives the ranks that this rank knows to have failed, in order; with those that agree or shrink
 * have found. *n: the size of `ranks` before the call, the number of failed ranks after it. ranks
 * NULL: only the number. Local. */
HALAY_API int halay_comm_failed(halay_comm_t *comm, int ranks[], int *n);

/* ------------------------------------------------------------------ operations of the user */

/*
 * dst[i] = left[i] OP right[i], where left comes from the lower ranks; count is a multiple of the
 * operation's group. dst overlaps neither of them. It may be called in any thread that makes
 * progress, many times for one collective, each time for some of its elements; it must not call
 * Halay, and its result may depend on nothing but its operands. It must be associative: plans put
 * parentheses as they like, the same on all ranks.
 */
typedef void halay_op_fn(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                         const void *right);

/* Bytes of one group at most. */
#define HALAY_OP_GROUP_BYTES_MAX 4096

/*
 * Makes an operation of fn, for every type: a number from HALAY_OP_USER on, valid for reductions on
 * the context's communicators. All ranks must make their operations in the same order: each call
 * compares the numbers. group: how many elements belong together (4 for matrices of 2 x 2; 24 of
 * HALAY_UINT8 for a struct of 24 bytes). The count of a call must be a multiple of it, and fn gets
 * whole groups. commutative 0: only algorithms that keep the ranks' order serve it. Local.
 * HALAY_ENOMEM: there are 128 operations already, or 65,536 were made.
 */
HALAY_API int halay_op_create(halay_context_t *context, halay_op_fn *fn, void *arg, size_t group,
                              int commutative, halay_op_t *op);
/* Local. HALAY_ESTATE: freed before, or a request that uses it is not freed yet. */
HALAY_API int halay_op_free(halay_context_t *context, halay_op_t op);

/* ------------------------------------------------------------------ collectives */

/*
 * Errors of every collective, blocking or not, on all ranks alike unless said otherwise:
 *   HALAY_EINVAL        on this rank alone: comm is no communicator, or request is NULL. On all
 *                       ranks: on one of them an argument does not exist (type, op, root, a count
 *                       beyond the address space), op does not take the type, a buffer or counts
 *                       that is needed is NULL, buffers overlap, IN_PLACE stands where the
 *                       collective has none, or one call has memory of two kinds
 *   HALAY_EMISMATCH     ranks have called different collectives, or with different arguments: each
 *                       collective below says which it compares, besides the kind of memory; or
 *                       the ranks have different settings
 *   HALAY_ETIMEOUT      a rank has not called by the deadline
 *   HALAY_EPEER         a rank has died, has finalized, or cannot be reached
 *   HALAY_ETRANSPORT    a transport has failed
 *   HALAY_EDEVICE       a device has failed, or its stream did not come to the call in time
 *   HALAY_EUNSUPPORTED  a rank's stream is being captured into a graph that cannot hold the call
 *   HALAY_EREVOKED      a rank has revoked the communicator
 *   HALAY_ESTATE        the communicator was freed, or a rank has finalized with the call in flight
 *   HALAY_ENOMEM        memory or descriptors ran out on a rank
 *   HALAY_EFORKED       on this rank alone: it is a forked child
 */

/*
 * out[i] = in[i] of rank 0 OP in[i] of rank 1 ..., count elements on every rank. The result has the
 * same bits on all ranks. IN_PLACE: the input is out. in and out must otherwise not overlap.
 * HALAY_EMISMATCH: count, type or op.
 */
HALAY_API int halay_allreduce(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm);

/*
 * out[i] = postscale * (prescale * in[i] of rank 0 OP prescale * in[i] of rank 1 ...), each product
 * as halay_scale() makes it; SUM, PROD, MIN, MAX and AVERAGE (divided before it is scaled). The
 * factors must be finite, and equal on all ranks; a factor of 1 costs nothing.
 * HALAY_EMISMATCH: count, type, op or a factor. HALAY_EINVAL: a factor that is not finite, or one
 * other than 1 for a type or op that takes none.
 */
HALAY_API int halay_allreduce_scaled(const void *in, void *out, size_t count, halay_type_t type,
                                     halay_op_t op, double prescale, double postscale,
                                     halay_comm_t *comm);

/*
 * buffer of rank `root` to all; count elements. Returns when all ranks are known to have called
 * (but see HALAY_HINT_RELAXED_BROADCAST). HALAY_EMISMATCH: count, type or root. HALAY_EINVAL:
 * IN_PLACE.
 */
HALAY_API int halay_broadcast(void *buffer, size_t count, halay_type_t type, int root,
                              halay_comm_t *comm);

/*
 * out = in of rank 0, then of rank 1, ...; count elements from each rank, so out has room for
 * nranks * count. IN_PLACE: this rank's input stands at out + rank * count already.
 * HALAY_EMISMATCH: count or type.
 */
HALAY_API int halay_allgather(const void *in, void *out, size_t count, halay_type_t type,
                              halay_comm_t *comm);

/*
 * As halay_allgather, with counts[r] elements from rank r, put at out + displs[r] elements. counts
 * and displs (nranks each, the same counts on all ranks) are read before the call returns, displs
 * may be NULL: one after the other. HALAY_EMISMATCH: counts or type. HALAY_EINVAL: blocks overlap,
 * as in each output of a v form.
 */
HALAY_API int halay_allgatherv(const void *in, void *out, const size_t counts[],
                               const size_t displs[], halay_type_t type, halay_comm_t *comm);

/*
 * in has nranks * count elements; out gets the reduced block number `rank` of count elements.
 * IN_PLACE: the input is out (nranks * count elements), the result stands in its first count; what
 * follows those is undefined. HALAY_EMISMATCH: count, type or op.
 */
HALAY_API int halay_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                                   halay_op_t op, halay_comm_t *comm);

/*
 * As halay_reduce_scatter, with counts[r] elements for rank r (nranks counts, the same on all
 * ranks, read before the call returns): in has their sum. IN_PLACE: the result stands at the start
 * of out. HALAY_EMISMATCH: counts, type or op.
 */
HALAY_API int halay_reduce_scatterv(const void *in, void *out, const size_t counts[],
                                    halay_type_t type, halay_op_t op, halay_comm_t *comm);

/*
 * As halay_allreduce, with the result on rank `root` alone: elsewhere out is not used, and may be
 * NULL. IN_PLACE, at the root alone: the input is out. HALAY_EMISMATCH: count, type, op or root.
 */
HALAY_API int halay_reduce(const void *in, void *out, size_t count, halay_type_t type,
                           halay_op_t op, int root, halay_comm_t *comm);

/*
 * out on rank r = in of rank 0 OP ... OP in of rank r (scan), or of rank r - 1 (exscan: then rank
 * 0's out is not used). IN_PLACE: the input is out. HALAY_EMISMATCH: count, type or op.
 * HALAY_EINVAL: AVERAGE.
 */
HALAY_API int halay_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm);
HALAY_API int halay_exscan(const void *in, void *out, size_t count, halay_type_t type,
                           halay_op_t op, halay_comm_t *comm);

/*
 * As halay_allgather and halay_allgatherv, to rank `root` alone: elsewhere out and displs are not
 * used, and may be NULL; counts are the same on all ranks. IN_PLACE, at the root alone: its block
 * stands in out already. HALAY_EMISMATCH: count or counts, type or root.
 */
HALAY_API int halay_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                           halay_comm_t *comm);
HALAY_API int halay_gatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                            halay_type_t type, int root, halay_comm_t *comm);

/*
 * The reverse of gather: block r of the root's in, of count elements, or counts[r] at displs[r],
 * goes to out on rank r. Elsewhere in and displs are not used, and may be NULL; counts are the same
 * on all ranks. IN_PLACE, at the root alone: the blocks are in out, where the root's own stays; or,
 * passed as out: the blocks are in in, and the root's own stays there. HALAY_EMISMATCH: count or
 * counts, type or root.
 */
HALAY_API int halay_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                            halay_comm_t *comm);
HALAY_API int halay_scatterv(const void *in, void *out, const size_t counts[],
                             const size_t displs[], halay_type_t type, int root,
                             halay_comm_t *comm);

/*
 * in and out have a block of count elements for each rank. Block d of in goes to rank d, where it
 * becomes the out block with this rank's number. IN_PLACE: the input is out. HALAY_EMISMATCH: count
 * or type.
 */
HALAY_API int halay_alltoall(const void *in, void *out, size_t count, halay_type_t type,
                             halay_comm_t *comm);

/*
 * The same with blocks of any sizes: in_counts[d] elements at in + in_displs[d] go to rank d, and
 * out_counts[s] from rank s to out + out_displs[s]. displs may be NULL: one after the other. All
 * four are read before the call returns. IN_PLACE: the input is out, so in_counts and in_displs are
 * not used. HALAY_EMISMATCH: type; or a rank sends another count than its peer expects: the text
 * names both. HALAY_EINVAL: a rank's two counts for itself differ.
 */
HALAY_API int halay_alltoallv(const void *in, const size_t in_counts[], const size_t in_displs[],
                              void *out, const size_t out_counts[], const size_t out_displs[],
                              halay_type_t type, halay_comm_t *comm);

/* Returns when all ranks have called. It has no errors of its own. */
HALAY_API int halay_barrier(halay_comm_t *comm);

/* ------------------------------------------------------------------ between two ranks */

/*
 * count elements from one rank of the communicator to another, `peer`. The n-th send of a rank to
 * another matches the n-th receive there from it, with the same count and type; there are no tags.
 * Apart from that order, sends and receives are independent of all other calls. A send returns when
 * the receive was called and the data are on their way, as MPI_Ssend does. So two ranks that both
 * send first and then receive would wait until the deadline; use the non-blocking forms. No rank
 * sends to itself. Errors are those of collectives, on these two ranks. HALAY_EMISMATCH: count or
 * type. HALAY_EINVAL, on this rank alone: peer is not another rank.
 */
HALAY_API int halay_send(const void *buffer, size_t count, halay_type_t type, int peer,
                         halay_comm_t *comm);
HALAY_API int halay_recv(void *buffer, size_t count, halay_type_t type, int peer,
                         halay_comm_t *comm);

/* ------------------------------------------------------------------ without waiting */

/*
 * The same, returning at once: the result is valid once halay_request_wait() or _test() says so.
 * Many may be in flight; they make progress in any call that waits and in halay_context_progress().
 * The wait returns an error in the arguments, as on all other ranks, unless there was no memory for
 * a request.
 */
HALAY_API int halay_iallreduce(const void *in, void *out, size_t count, halay_type_t type,
                               halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iallreduce_scaled(const void *in, void *out, size_t count, halay_type_t type,
                                      halay_op_t op, double prescale, double postscale,
                                      halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root,
                               halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type,
                               halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iallgatherv(const void *in, void *out, const size_t counts[],
                                const size_t displs[], halay_type_t type, halay_comm_t *comm,
                                halay_request_t **request);
HALAY_API int halay_ireduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                                    halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ireduce_scatterv(const void *in, void *out, const size_t counts[],
                                     halay_type_t type, halay_op_t op, halay_comm_t *comm,
                                     halay_request_t **request);
HALAY_API int halay_ireduce(const void *in, void *out, size_t count, halay_type_t type,
                            halay_op_t op, int root, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                          halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iexscan(const void *in, void *out, size_t count, halay_type_t type,
                            halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_igather(const void *in, void *out, size_t count, halay_type_t type, int root,
                            halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_igatherv(const void *in, void *out, const size_t counts[],
                             const size_t displs[], halay_type_t type, int root, halay_comm_t *comm,
                             halay_request_t **request);
HALAY_API int halay_iscatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                             halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iscatterv(const void *in, void *out, const size_t counts[],
                              const size_t displs[], halay_type_t type, int root,
                              halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ialltoall(const void *in, void *out, size_t count, halay_type_t type,
                              halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ialltoallv(const void *in, const size_t in_counts[], const size_t in_displs[],
                               void *out, const size_t out_counts[], const size_t out_displs[],
                               halay_type_t type, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ibarrier(halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_isend(const void *buffer, size_t count, halay_type_t type, int peer,
                          halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_irecv(void *buffer, size_t count, halay_type_t type, int peer,
                          halay_comm_t *comm, halay_request_t **request);

/*
 * Persistent: the same calls, made once and started many times. The request keeps the plan and
 * other results of the arguments, so a start costs less than the call. Buffers, counts and
 * operation stay those of the init call; only the contents of the buffers change. An init call is
 * local, sends nothing and begins nothing; each wait returns an error in the arguments, on all
 * ranks. HALAY_ESTATE: the communicator was freed. The communicator cannot be freed before the
 * request. To other ranks a start is the call itself. It takes its place in the order of calls, and
 * may match a call of another form.
 */
HALAY_API int halay_allreduce_init(const void *in, void *out, size_t count, halay_type_t type,
                                   halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_allreduce_scaled_init(const void *in, void *out, size_t count,
                                          halay_type_t type, halay_op_t op, double prescale,
                                          double postscale, halay_comm_t *comm,
                                          halay_request_t **request);
HALAY_API int halay_broadcast_init(void *buffer, size_t count, halay_type_t type, int root,
                                   halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_allgather_init(const void *in, void *out, size_t count, halay_type_t type,
                                   halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_allgatherv_init(const void *in, void *out, const size_t counts[],
                                    const size_t displs[], halay_type_t type, halay_comm_t *comm,
                                    halay_request_t **request);
HALAY_API int halay_reduce_scatter_init(const void *in, void *out, size_t count, halay_type_t type,
                                        halay_op_t op, halay_comm_t *comm,
                                        halay_request_t **request);
HALAY_API int halay_reduce_scatterv_init(const void *in, void *out, const size_t counts[],
                                         halay_type_t type, halay_op_t op, halay_comm_t *comm,
                                         halay_request_t **request);
HALAY_API int halay_reduce_init(const void *in, void *out, size_t count, halay_type_t type,
                                halay_op_t op, int root, halay_comm_t *comm,
                                halay_request_t **request);
HALAY_API int halay_scan_init(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_exscan_init(const void *in, void *out, size_t count, halay_type_t type,
                                halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_gather_init(const void *in, void *out, size_t count, halay_type_t type,
                                int root, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_gatherv_init(const void *in, void *out, const size_t counts[],
                                 const size_t displs[], halay_type_t type, int root,
                                 halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_scatter_init(const void *in, void *out, size_t count, halay_type_t type,
                                 int root, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_scatterv_init(const void *in, void *out, const size_t counts[],
                                  const size_t displs[], halay_type_t type, int root,
                                  halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_alltoall_init(const void *in, void *out, size_t count, halay_type_t type,
                                  halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_alltoallv_init(const void *in, const size_t in_counts[],
                                   const size_t in_displs[], void *out, const size_t out_counts[],
                                   const size_t out_displs[], halay_type_t type, halay_comm_t *comm,
                                   halay_request_t **request);
HALAY_API int halay_barrier_init(halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_send_init(const void *buffer, size_t count, halay_type_t type, int peer,
                              halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_recv_init(void *buffer, size_t count, halay_type_t type, int peer,
                              halay_comm_t *comm, halay_request_t **request);

/* Starts a persistent request. HALAY_ESTATE: it was started, and not waited for. HALAY_EINVAL: not
 * persistent. */
HALAY_API int halay_request_start(halay_request_t *request);
/* Frees a persistent one, which must not be under way (HALAY_ESTATE); takes NULL. Local. */
HALAY_API int halay_request_free(halay_request_t *request);

/*
 * Several collectives as one, all or nothing. Between begin and end Halay only collects the
 * blocking and non-blocking collectives on comm: *request becomes NULL, and a blocking one returns
 * at once. It reads counts and displacements, but no buffers. end starts them and gives one request
 * for all. The ranks compare the whole group first: where a rank has other calls in it, or a wrong
 * one, the group fails on all ranks with the same error, and no buffer was touched. A failure after
 * that (a rank dies) is the group's result, that of the first call that failed; then the contents
 * of all of its outputs are undefined. Results of a call are valid only after the whole group, so
 * no call may use another's result. A group is one call in the communicator's order. It has 65,536
 * calls at most. Not in a group: one more than these, send, receive, persistent requests
 * (HALAY_ESTATE, and the group fails), communicators made of comm.
 */
HALAY_API int halay_group_begin(halay_comm_t *comm);
/* HALAY_ESTATE: none was begun. */
HALAY_API int halay_group_end(halay_comm_t *comm, halay_request_t **request);

/*
 * Waits for the request, frees it (a persistent one can be started again instead) and returns its
 * result. HALAY_EINVAL: NULL. HALAY_ESTATE: the request was freed already, or was not started.
 */
HALAY_API int halay_request_wait(halay_request_t *request);
/*
 * Makes progress once. HALAY_INPROGRESS: the request is not done, and stays valid. Otherwise as
 * halay_request_wait(): the result, and the request is freed, or can be started again.
 */
HALAY_API int halay_request_test(halay_request_t *request);

#ifdef __cplusplus
}
#endif

/* Parts of this header: registered memory, streams of a device, counters of transports. */
#include "memory.h"
#include "stats.h"
#include "stream.h"

#endif
