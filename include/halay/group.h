/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - contract of device collectives: who does the GROUP steps of plans (plan.h). An
 * implementation works in one kind of memory, that of a device (device.h). A *circle* is some ranks
 * that do such steps together, as a communicator of NCCL or RCCL is. The core makes one for each
 * communicator, channel and set of members, when a plan needs it.
 *
 * What the core promises:
 *  - All members launch on a circle the same collectives in the same order, each with the same
 *    kind, counts, type and operation. Nothing is launched before all members have been heard in
 *    the call that it belongs to; so a member that others wait for has made the same call.
 *  - Launches of two circles have no common order.
 *  - It holds its mutex while it calls, so a circle is never entered twice at once; and the context
 *    of each rank, since ranks may be threads of one process, calls with circles of its own.
 *
 * Nothing here blocks but `abort` and `close`, which are bounded. All members are set
 * (halay_config_t). No device is named: streams, events and libraries are the implementation's
 * affair, and come to it through `arg`.
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
#define HALAY_CIRCLE_OPENED   0 /* as a cookie: not a launch's, but the end of `open` */

typedef struct halay_circle halay_circle_t; /* this rank's end of one */

/* What an implementation is, the same on all ranks: they compare it when they meet. */
typedef struct halay_group_attr {
    size_t size;       /* of this struct, set by the caller */
    char name[32];     /* "nccl 2.28.9": with the version, if others do not go with it */
    uint32_t memory;   /* HALAY_MEMORY_*: in which it works */
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
 * comes from it; `in` and `out` are apart. In the others `in` and `out` are apart, or each element
 * that they share is the same one of the data; where the own run has no elements its address means
 * nothing. The members' wholes are combined in an order that the implementation chooses. All who
 * get an element get the same bits.
 */
typedef struct halay_group_launch {
    size_t size;   /* of this struct */
    uint32_t kind; /* HALAY_GROUP_* */
    halay_type_t type;
    halay_op_t op; /* of those that reduce. No user-defined one, and not AVERAGE: that is SUM */
    uint32_t n;    /* members */
    const size_t *count; /* valid until launch returns */
    void *out;
    const void *in;
    uint64_t order;  /* 0, 1, ...: of the launches on this circle; for checks and traces */
    uint64_t cookie; /* not HALAY_CIRCLE_OPENED */
    /* NULL; else the program's stream, which is being captured into a graph: the collective is put
     * there, and has ended, for poll, once it is recorded. It may run whenever the graph does,
     * until the circle is closed or aborted. */
    const halay_stream_t *stream;
    /* opens_at not 0: a gate that the collective may open (gate_word of device.h). After it, and
     * before poll tells of it, the device writes the value there; or nobody does, and the core
     * opens the gate when it hears of the end. */
    uint64_t opens_at, opens_value;
} halay_group_launch_t;

/* What has ended. status: 0, or a negative code; then `out` may hold anything. */
typedef struct halay_group_done {
    uint64_t cookie;
    int status;
} halay_group_done_t;

typedef struct halay_group_ops {
    size_t size; /* of this struct */

    /* What it is. HALAY_EUNSUPPORTED: not available on this machine. */
    int (*about)(void *arg, halay_group_attr_t *attr);

    /*
     * Does it offer this kind with this type and operation? HALAY_OK, or HALAY_EUNSUPPORTED. The
     * same on all ranks whose attributes are equal, and for ever. Kinds that only move data are
     * asked with HALAY_SUM.
     */
    int (*query)(void *arg, uint32_t kind, halay_type_t type, halay_op_t op);

    /* Makes the id of a new circle; its first member asks, and the core carries it to the others
     * over authenticated connections. HALAY_EDEVICE: the library or device fails. */
    int (*invite)(void *arg, unsigned char id[HALAY_CIRCLE_ID_BYTES]);

    /*
     * Opens this rank's end: member `me` of n. Does not wait for the others. HALAY_OK: it is open;
     * HALAY_INPROGRESS: poll will return HALAY_CIRCLE_OPENED, once, and nothing is launched before
     * that. On both the caller owns *circle until close. HALAY_EDEVICE, HALAY_ENOMEM: there is
     * none.
     */
    int (*open)(void *arg, const unsigned char id[HALAY_CIRCLE_ID_BYTES], uint32_t me, uint32_t n,
                halay_circle_t **circle);

    /*
     * Starts a collective after those that were launched before. HALAY_INPROGRESS: poll will
     * return the cookie, once; `in` and `out` belong to the circle until then. HALAY_EAGAIN: full,
     * poll first. Other errors: nothing was started here; the circle is unusable, since the
     * others may have.
     */
    int (*launch)(halay_circle_t *circle, const halay_group_launch_t *launch);

    /*
     * What has ended, at most max: a collective when its operands may be touched, which is not
     * before all members from which data come have begun. In the order of launches. Returns how
     * many, or an error: the circle is lost, and what is in flight ends by abort.
     */
    int (*poll)(halay_circle_t *circle, halay_group_done_t done[], int max);

    /*
     * Ends the opening and all launches that are in flight, in patience_ns at most, without help of
     * other members. No cookie is polled any more, and close follows. HALAY_OK: nothing of this
     * circle touches this rank's memory any more, gates included. HALAY_EDEVICE: something still
     * may.
     */
    int (*abort)(halay_circle_t *circle, uint64_t patience_ns);

    /*
     * Frees it; takes NULL. Nothing is in flight here. In patience_ns at most it makes sure that
     * other members, whose launches may still read what this rank has given, can end theirs; it is
     * not an error if they do not by then. HALAY_EDEVICE: it did not end by itself, as where graphs
     * of the program run on it, and was aborted.
     */
    int (*close)(halay_circle_t *circle, uint64_t patience_ns);

    /* What was wrong last, with a remedy, for people: valid until the next call of this table. "":
     * nothing was, or it cannot tell. */
    const char *(*why)(void *arg);
} halay_group_ops_t;

#ifdef __cplusplus
}
#endif
#endif
