/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - contract of a device: it allocates memory of one kind, and reduces and copies there.
 * Work is asynchronous: `launch` starts a piece of it, `poll` returns the pieces that are done. The
 * host's device does its work in `launch`. A test device finishes late and in random order, on
 * request in memory that the processor cannot touch. The CUDA device has a GPU do the work. Halay
 * stages calls in memory that the processor cannot touch through host memory.
 *
 * A context holds its mutex while it calls a device. All members are set (halay_config_t).
 */
#ifndef HALAY_DEVICE_H
#define HALAY_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HALAY_DEVICE_ABI     9
#define HALAY_REDUCE_SOURCES 4   /* at most, for one reduce */
#define HALAY_LIST_PARTS     112 /* at most, of one list */

/* Ranks compare the kind in every call except for v forms: all must pass memory of the same
 * kind. */
enum {
    HALAY_MEMORY_HOST = 0,
    HALAY_MEMORY_CUDA = 1, /* of a GPU, and managed memory; pinned memory is the host's */
    HALAY_MEMORY_TEST = 7, /* the late test device's own */
    HALAY_MEMORY_KINDS = 8
};

typedef struct halay_memory {
    size_t size;        /* of this struct, set by the caller */
    uint32_t kind;      /* HALAY_MEMORY_*, or another one below HALAY_MEMORY_KINDS */
    uint32_t touchable; /* the processor may read and write it */
    /* of the allocation: a later one at the same address has another id; 0: not known */
    uint64_t id;
} halay_memory_t;

/* Where a device allocates. OWN: in memory of its kind. HOST: in host memory with which its copies
 * are fast (pinned, near the device). For the host's device both are the same. */
enum { HALAY_PLACE_OWN = 0, HALAY_PLACE_HOST };

/* Work is within memory of the device's kind; or it is a copy from there to host memory, or
 * back. */
enum { HALAY_WITHIN = 0, HALAY_TO_HOST, HALAY_FROM_HOST };

/*
 * dst = src[0] OP src[1] OP ..., in this order (nsrc >= 2), or dst = src[0] (nsrc == 1, op
 * ignored). The half types are summed in float32 over all sources and rounded once. dst may be
 * equal to one of the sources; it must not overlap them in any other way. divisor > 1 (AVERAGE
 * only): the result is divided by it, once, before it is rounded.
 * From HALAY_OP_USER on `fn` combines, left to right, whole groups, and dst overlaps no operand of
 * it. A device that cannot call fn returns HALAY_EUNSUPPORTED.
 * scales not 0: nsrc is 1, and dst = factor * src[0] as by halay_scale().
 * stream not NULL: a stream of the program that is being captured into a graph, as `follow` has
 * found. The device records the work there and returns HALAY_OK; the work runs whenever the graph
 * does.
 */
typedef struct halay_work {
    size_t size; /* of this struct */
    void *dst;
    const void *src[HALAY_REDUCE_SOURCES];
    size_t count; /* elements */
    halay_type_t type;
    halay_op_t op;
    uint32_t nsrc;
    uint32_t divisor;
    uint64_t cookie;
    halay_op_fn *fn; /* user-defined operations only */
    void *fn_arg;
    size_t group; /* elements that fn takes together */
    double factor;
    uint32_t scales;
    uint32_t direction; /* HALAY_WITHIN; else the work is a copy */
    const void *bound;  /* NULL, or what the device's bind left here */
    uint32_t streams;   /* dst is large and not read soon: stores may bypass the caches */
    /* a source is valid in launch only: return HALAY_OK or HALAY_EUNSUPPORTED */
    uint32_t at_once;
    const halay_stream_t *stream; /* NULL, except for work within the device's memory */
    /* opens_at not 0: a gate (gate_word) that the device may open after the work, before poll
     * returns it. */
    uint64_t opens_at, opens_value;
} halay_work_t;

/* A part of a list: dst = src if the factor is 1, else dst = factor * src as by halay_scale(). dst
 * is src, or overlaps no memory of any part. */
typedef struct halay_part {
    void *dst;
    const void *src;
    size_t count; /* elements; 0: nothing is moved, and the addresses may be NULL */
    double factor;
} halay_part_t;

typedef struct halay_device halay_device_t;

/* Work that has ended. status: 0, or a negative code; then dst may hold anything. In both cases the
 * device does not touch the work's buffers any more. */
typedef struct halay_done {
    uint64_t cookie;
    int status;
} halay_done_t;

/* What a network adapter needs to read and write memory of the device. */
typedef struct halay_export {
    size_t size;   /* of this struct, set by the caller */
    void *address; /* of the allocation in which it lies, */
    size_t bytes;  /* and how long that is */
    uint64_t id;   /* of the allocation: a later one at the same address has another id */
    /* the caller closes it. -1: none was asked for, or there is none (why says why) */
    int dmabuf;
    uint32_t flushes; /* the adapter's writes are visible to later work only after flush */
    uint64_t offset;  /* of the allocation in the dma-buf */
} halay_export_t;

typedef struct halay_device_ops {
    size_t size; /* of this struct */
    const char *name;

    /* isa: "scalar", "avx2", "avx512", or NULL for the best one. HALAY_EUNSUPPORTED: not here. */
    int (*open)(void *arg, const char *isa, halay_device_t **device);

    /*
     * Is this memory of the device's kind, and what is it? HALAY_OK: all of it is.
     * HALAY_EUNSUPPORTED: none of it is. HALAY_EINVAL: a part of it is. HALAY_EDEVICE or
     * HALAY_ENOMEM: it is, but the device is unusable, or cannot tell any more; `why` says why.
     * bytes 0: looks at the byte at the address. address NULL: HALAY_OK, and *memory describes the
     * device's kind. The host's device accepts all memory; the core asks it last.
     */
    int (*query)(halay_device_t *device, const void *address, size_t bytes, halay_memory_t *memory);

    /* Allocates memory in this place (HALAY_PLACE_*), at least a byte; alignment: a power of two, a
     * page at most. */
    int (*alloc)(halay_device_t *device, uint32_t place, size_t bytes, size_t alignment,
                 void **address);
    /* Takes NULL. The core frees all memory before close, except for memory that unstoppable work
     * may still write. */
    void (*free)(halay_device_t *device, uint32_t place, void *address);

    /*
     * Starts the work; never blocks on other work. HALAY_OK: it is done already, its cookie will
     * not be polled. HALAY_INPROGRESS: poll will return the cookie, once; buffers belong to the
     * device until then. HALAY_EAGAIN: full, poll first.
     */
    int (*launch)(halay_device_t *device, const halay_work_t *work);

    /*
     * For work that is launched many times: checks it once, and leaves in work->bound how to do it,
     * so that launch need not look at the other members. HALAY_EUNSUPPORTED: there is no such short
     * cut for this work; launch it as it is. The caller may change addresses and count afterwards;
     * if it changes anything else it sets bound to NULL.
     */
    int (*bind)(halay_device_t *device, halay_work_t *work);

    /* Finished work, at most max. Does not block. Returns how many, or an error: then the device is
     * lost, and the core ends work in flight by stop. */
    int (*poll)(halay_device_t *device, halay_done_t done[], int max);

    /*
     * Prepares to sleep: *fd becomes readable when poll would return work that is in flight now.
     * HALAY_EAGAIN: some has ended already; poll first. The device owns the descriptor, which stays
     * the same. HALAY_EUNSUPPORTED, now and always: the device has none, and the core polls it.
     * Spurious wake-ups are allowed.
     */
    int (*arm)(halay_device_t *device, int *fd);

    /*
     * Stops work that is in flight, in timeout_ns at most. poll does not return its cookie any
     * more. HALAY_OK: the device touches none of its buffers any more; the work may be done or not.
     * HALAY_EDEVICE: it still may; nothing more is launched on this device.
     */
    int (*stop)(halay_device_t *device, uint64_t cookie, uint64_t timeout_ns);

    /*
     * Marks the present end of the program's stream, as an event does. HALAY_INPROGRESS: poll will
     * return the cookie, once, when all work before the mark has been done; the status is an error
     * of that work. HALAY_OK: the stream is empty. HALAY_EAGAIN: full, poll first. HALAY_EINVAL: it
     * is no stream of this device; HALAY_EUNSUPPORTED: the stream is being captured into a graph,
     * or cannot be followed at all; `why` says which. cookie 0: returns which of these it would be,
     * and marks nothing. A mark uses no buffer and never makes the stream wait; stop drops it at
     * once. arm ignores marks: the core polls for them.
     */
    int (*follow)(halay_device_t *device, const halay_stream_t *stream, uint64_t cookie);

    /* Why a member of this table, or the work that poll returned last, has failed, with a remedy: a
     * short text, or "". Valid until the next call. */
    const char *(*why)(halay_device_t *device);

    /* Takes NULL. No work is in flight, except for work that could not be stopped. */
    void (*close)(halay_device_t *device);

    /* Lets network adapters reach memory of the device's kind. opens: with a dma-buf, if there is
     * one. HALAY_EUNSUPPORTED: they cannot; why says why not. */
    int (*export_mem)(halay_device_t *device, const void *address, size_t bytes, uint32_t opens,
                      halay_export_t *exported);

    /* Makes all writes of adapters to the device's memory visible to work that is launched from now
     * on. May take microseconds. HALAY_EUNSUPPORTED: never needed. */
    int (*flush)(halay_device_t *device);

    /*
     * Puts a gate into the program's stream: work that is enqueued there later waits until
     * gate_open. HALAY_EAGAIN: too many gates are shut. HALAY_EUNSUPPORTED: the device has no
     * gates; why says why not. gate NULL: returns which of these it would be. The core opens each
     * gate once. gate_open never fails or blocks, also on a lost device, and may come before the
     * stream has reached the gate.
     */
    int (*gate)(halay_device_t *device, const halay_stream_t *stream, uint32_t *gate);
    void (*gate_open)(halay_device_t *device, uint32_t gate);

    /*
     * The device itself can open a gate, too: by writing *value to the device address *at. The core
     * calls gate_open all the same, but only after that write was made, or certainly will not be.
     * HALAY_EUNSUPPORTED: only gate_open opens gates.
     */
    int (*gate_word)(halay_device_t *device, uint32_t gate, uint64_t *at, uint64_t *value);

    /*
     * As launch, for all parts of a list, of one type, in any order, as one piece of work. The
     * caller may change parts[] when this returns. All memory is of the device's kind.
     * HALAY_EUNSUPPORTED: the device does no lists, or not this one; launch the parts one by one.
     */
    int (*launch_list)(halay_device_t *device, const halay_part_t parts[], uint32_t nparts,
                       halay_type_t type, uint64_t cookie);
} halay_device_ops_t;

#ifdef __cplusplus
}
#endif
#endif
