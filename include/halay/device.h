/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - contract of a memory kind: who gives memory of it, and who reduces and copies there.
 * Work is asynchronous: `launch` starts a piece of it, `poll` tells which pieces are done. The host
 * does its work in `launch`; a test device finishes late and in random order, on request in memory
 * that the processor cannot touch; a GPU will stand here later.
 *
 * A context holds its mutex while it calls a device. All members are there, none is NULL.
 */
#ifndef HALAY_DEVICE_H
#define HALAY_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HALAY_DEVICE_ABI     4
#define HALAY_REDUCE_SOURCES 4 /* at most, for one reduce */

/* A part of every call: all ranks must pass memory of the same kind. */
enum {
    HALAY_MEMORY_HOST = 0,
    HALAY_MEMORY_TEST = 7, /* the late test device's own */
    HALAY_MEMORY_KINDS = 8
};

typedef struct halay_memory {
    size_t size;        /* of this struct, set by the caller */
    uint32_t kind;      /* HALAY_MEMORY_*, or another one below HALAY_MEMORY_KINDS */
    uint32_t touchable; /* the processor may read and write it */
} halay_memory_t;

/* A piece of work is in memory of its device's kind; but a copy may be from there or to there. */
enum { HALAY_WITHIN = 0, HALAY_TO_HOST, HALAY_FROM_HOST };

/*
 * dst = src[0] OP src[1] OP ..., in this order (nsrc >= 2), or dst = src[0] (nsrc == 1, op
 * ignored). The half types are summed in float32 over all sources and rounded once. dst may be
 * equal to one of the sources; it must not overlap them in any other way. divisor > 1 (AVERAGE
 * only): the result is divided by it, once, before it is rounded.
 * From HALAY_OP_USER on `fn` combines, left to right: whole groups, and never with dst over one of
 * its operands. A device that cannot call it says HALAY_EUNSUPPORTED.
 * scales not 0: nsrc is 1, and dst = factor * src[0] as by halay_scale().
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
    uint32_t streams;   /* dst is large, and nobody reads it soon: it may go past the caches */
    uint32_t at_once;   /* a source is gone when launch returns: HALAY_OK, or HALAY_EUNSUPPORTED */
} halay_work_t;

typedef struct halay_device halay_device_t;

/* Work that has ended. status: 0, or a negative code; then dst may hold anything. Either way the
 * device is off its buffers. */
typedef struct halay_done {
    uint64_t cookie;
    int status;
} halay_done_t;

typedef struct halay_device_ops {
    size_t size; /* of this struct */
    const char *name;

    /* isa: "scalar", "avx2", "avx512", or NULL for the best one. HALAY_EUNSUPPORTED: not here. */
    int (*open)(void *arg, const char *isa, halay_device_t **device);

    /*
     * Is this memory of the device's kind, and what is it? HALAY_OK: all of it. HALAY_EUNSUPPORTED:
     * none of it. HALAY_EINVAL: a part of it. bytes 0: the byte at the address. address NULL:
     * HALAY_OK, and what memory of its kind is. The host's device says yes to all, and is asked
     * last.
     */
    int (*query)(halay_device_t *device, const void *address, size_t bytes, halay_memory_t *memory);

    /* Memory of its kind, a byte of it at least; alignment: a power of two, a page at most. */
    int (*alloc)(halay_device_t *device, size_t bytes, size_t alignment, void **address);
    /* Takes NULL. All that was given is given back before close, but for what work may still write
     * that could not be stopped. */
    void (*free)(halay_device_t *device, void *address);

    /*
     * Starts the work; never blocks on other work. HALAY_OK: it is done already, its cookie will
     * not be polled. HALAY_INPROGRESS: poll will return the cookie, once; buffers belong to the
     * device till then. HALAY_EAGAIN: full, poll first.
     */
    int (*launch)(halay_device_t *device, const halay_work_t *work);

    /*
     * For work that is launched again and again, as it is: checks it once, and leaves in
     * work->bound how it is done, so that launch need not look at the rest. HALAY_EUNSUPPORTED: no
     * short cut to this work; launch it. Whoever changes it sets bound to NULL.
     */
    int (*bind)(halay_device_t *device, halay_work_t *work);

    /* Finished work, at most max. Does not block. Returns how many, or an error: then the device is
     * lost, and what is in flight ends by stop. */
    int (*poll)(halay_device_t *device, halay_done_t done[], int max);

    /*
     * Prepares to sleep: *fd becomes readable when poll would return something of what is in
     * flight. HALAY_EAGAIN: poll first, there is something already. The descriptor belongs to the
     * device and stays the same. HALAY_EUNSUPPORTED, now and always: it has none, and is polled.
     */
    int (*arm)(halay_device_t *device, int *fd);

    /*
     * Takes back work that is in flight, in patience_ns at most. Its cookie will not be polled any
     * more. HALAY_OK: the device touches none of its buffers any more. HALAY_EDEVICE: it still may;
     * nothing more is launched on this device.
     */
    int (*stop)(halay_device_t *device, uint64_t cookie, uint64_t patience_ns);

    /* Takes NULL. Nothing may be in flight but what could not be stopped. */
    void (*close)(halay_device_t *device);
} halay_device_ops_t;

#ifdef __cplusplus
}
#endif
#endif
