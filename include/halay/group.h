/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - contract of a library of device collectives, as NCCL is one, which does the GROUP steps
 * of plans (plan.h). An implementation works in one kind of memory, that of a device (device.h). A
 * *device communicator* is the library's communicator (an ncclComm_t): some ranks that do such
 * steps together. Its type and constants have an older name, circle. The core makes one for each
 * Halay communicator, channel and set of members, when a plan needs it.
 *
 * What the core promises:
 *  - All members launch on a device communicator the same collectives in the same order, each with
 *    the same kind, counts, type and operation. A member launches only after it has heard from all
 *    other members in the same call; so a member that others wait for has made that call.
 *  - Launches of two device communicators have no common order.
 *  - It holds its mutex while it calls, so a device communicator is never entered twice at once.
 *    Ranks may be threads of one process, and the context of each has device communicators of its
 *    own.
 *
 * Only `abort` and `close` block, for a bounded time. All members are set (halay_config_t). The
 * contract names no device: an implementation has its own streams, events and libraries, and gets
 * them through `arg`.
 */
#ifndef HALAY_GROUP_H
#define HALAY_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "halay.h"
#include "plan.h"

/* The oldest NCCL that a context opens by itself, as ncclGetVersion() says it, and in words. */
#define HALAY_NCCL_LEAST      21800
#define HALAY_NCCL_LEAST_TEXT "2.18"

#ifdef __cplusplus
extern "C" {
#endif

#define HALAY_GROUP_ABI       4
#define HALAY_CIRCLE_ID_BYTES 128
#define HALAY_CIRCLE_OPENED   0 /* the cookie that reports the end of `open` */

typedef struct halay_circle halay_circle_t; /* this rank's handle of a device communicator */

/* Describes an implementation. Ranks compare it when they connect: it has to be the same on all. */
typedef struct halay_group_attr {
    size_t size;       /* of this struct, set by the caller */
    char name[32];     /* "nccl 2.28.9": with the version, if others are incompatible */
    uint32_t memory;   /* HALAY_MEMORY_*: the kind in which it works */
    uint32_t captures; /* its launches may have a stream; else it is NULL */
} halay_group_attr_t;

/*
 * One collective of all members, numbered by rising rank. count[i] is the run of member i, in
 * elements; the runs lie one after the other, and all of them are the whole. In an allreduce each
 * run is the whole. In a reduce or broadcast the root's run is the whole, and all others are 0.
 *   reduce_scatter, reduce, allreduce   out: own run    in: the whole
 *   allgather, broadcast                out: the whole  in: own run
 *   alltoall                            out: the whole  in: the whole
 * In an alltoall all runs are of one length: run i of `in` goes to member i, and run i of `out`
 * comes from it; `in` and `out` do not overlap. In the others they do not overlap either, or each
 * shared address is the same element of the data in both. If the own run is empty its address is
 * unused. The implementation chooses the order in which it combines the members' data. All members
 * that get an element get the same bits.
 */
typedef struct halay_group_launch {
    size_t size;   /* of this struct */
    uint32_t kind; /* HALAY_GROUP_* */
    halay_type_t type;
    halay_op_t op; /* for kinds that reduce. Not user-defined, nor AVERAGE, for which it is SUM */
    uint32_t n;    /* members */
    const size_t *count; /* valid until launch returns */
    void *out;
    const void *in;
    uint64_t order;  /* number of this launch there, from 0; for checks and traces */
    uint64_t cookie; /* not HALAY_CIRCLE_OPENED */
    /* NULL; else the program's stream, which is being captured into a graph. The implementation
     * records the collective there, and poll then reports it as ended. It may run whenever the
     * graph does, until the device communicator is closed or aborted. */
    const halay_stream_t *stream;
    /* opens_at not 0: a gate that the collective may open (gate_word of device.h): the device
     * writes the value there after the collective, before poll reports it. If it does not, the core
     * opens the gate when poll has reported the end. */
    uint64_t opens_at, opens_value;
} halay_group_launch_t;

/* A collective that has ended. status: 0, or a negative code; then `out` may hold anything. */
typedef struct halay_group_done {
    uint64_t cookie;
    int status;
} halay_group_done_t;

typedef struct halay_group_ops {
    size_t size; /* of this struct */

    /* Describes the implementation. HALAY_EUNSUPPORTED: not available on this machine. */
    int (*about)(void *arg, halay_group_attr_t *attr);

    /*
     * Does the implementation offer this kind with this type and operation? HALAY_OK, or
     * HALAY_EUNSUPPORTED. The answer never changes, and is the same on all ranks whose attributes
     * are equal. For kinds that only move data the core passes HALAY_SUM.
     */
    int (*query)(void *arg, uint32_t kind, halay_type_t type, halay_op_t op);

    /* Makes the id of a new device communicator, as ncclGetUniqueId() does. The core calls this on
     * the first member, and sends the id to the others over authenticated connections.
     * HALAY_EDEVICE: the library or device fails. */
    int (*invite)(void *arg, unsigned char id[HALAY_CIRCLE_ID_BYTES]);

    /*
     * Opens the device communicator on this rank, as member `me` of n. Does not wait for the
     * others. HALAY_OK: it is open; HALAY_INPROGRESS: poll will return HALAY_CIRCLE_OPENED, once,
     * and the core launches nothing before that. In both cases the caller owns *dcomm until close.
     * HALAY_EDEVICE, HALAY_ENOMEM: *dcomm is not set.
     */
    int (*open)(void *arg, const unsigned char id[HALAY_CIRCLE_ID_BYTES], uint32_t me, uint32_t n,
                halay_circle_t **dcomm);

    /*
     * Starts a collective after those that were launched before. HALAY_INPROGRESS: poll will return
     * the cookie, once; `in` and `out` belong to the device communicator until then. HALAY_EAGAIN:
     * full, poll first. Other errors: this rank has started nothing; the device communicator is
     * unusable, since other members may have started the collective.
     */
    int (*launch)(halay_circle_t *dcomm, const halay_group_launch_t *launch);

    /*
     * Gives collectives that have ended, at most max, in the order of launches. One has ended when
     * its operands may be touched; not before all members from which data come have begun it.
     * Returns how many, or an error: then the device communicator is lost, and the core ends its
     * launches by abort.
     */
    int (*poll)(halay_circle_t *dcomm, halay_group_done_t done[], int max);

    /*
     * Ends an opening and all launches that are in flight, in timeout_ns at most, without help of
     * other members. The core does not poll any more, and calls close next. HALAY_OK: nothing of
     * this device communicator touches this rank's memory any more, gates included. HALAY_EDEVICE:
     * something still may.
     */
    int (*abort)(halay_circle_t *dcomm, uint64_t timeout_ns);

    /*
     * Frees the device communicator; takes NULL. This rank has no launch in flight, but other
     * members' launches may still read its data: waits for them, timeout_ns at most. It is no
     * error if they take longer. HALAY_EDEVICE: the device communicator did not end by itself, for
     * example because graphs of the program run on it, and was aborted.
     */
    int (*close)(halay_circle_t *dcomm, uint64_t timeout_ns);

    /* The text of the last error, with a remedy. Valid until the next call of this table. "": there
     * was no error, or its cause is unknown. */
    const char *(*why)(void *arg);
} halay_group_ops_t;

#ifdef __cplusplus
}
#endif
#endif
