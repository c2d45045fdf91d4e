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

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HALAY_VERSION_MAJOR 0
#define HALAY_VERSION_MINOR 1
#define HALAY_VERSION_PATCH 0

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

#ifdef __cplusplus
}
#endif

/* Parts of this header: collectives and requests, messages with tags, registered memory, streams of
 * a device, counters of transports. */
#include "collectives.h"
#include "memory.h"
#include "message.h"
#include "request.h"
#include "stats.h"
#include "stream.h"

#endif
