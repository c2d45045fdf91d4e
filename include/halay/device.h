/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - contract of a memory kind: who gives memory of it, and who reduces and copies there.
 * Work is asynchronous: `launch` starts a piece of it, `poll` tells which pieces are done. The host
 * does its work in `launch`; a test device finishes late and in random order, on request in memory
 * that the processor cannot touch; the CUDA device has work done by a GPU. Calls in memory that the
 * processor cannot touch are staged through the host's.
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

/* A part of every call but v forms: all ranks must pass memory of the same kind. */
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
    uint64_t id; /* of the allocation: one made later at its address has another; 0: not known */
} halay_memory_t;

/* Where a device gives memory: of its kind; or of the host's, which the processor may touch and
 * which its copies are fast with (pinned, on the device's node). Where its kind is the host's, both
 * are the same. */
enum { HALAY_PLACE_OWN = 0, HALAY_PLACE_HOST };

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
 * stream not NULL: a stream of the program that follow has found to be captured into a graph. The
 * work is put there, and is HALAY_OK once it is recorded; it runs whenever the graph does.
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
    const halay_stream_t *stream; /* NULL, except for work within the device's memory */
    /* opens_at not 0: a gate (gate_word) that the device may open behind the work, before poll
     * tells of it. */
    uint64_t opens_at, opens_value;
} halay_work_t;

/* A part of a list: dst = src where the factor is 1, or factor * src as by halay_scale(). dst is
 * src, or overlaps no part's. */
typedef struct halay_part {
    void *dst;
    const void *src;
    size_t count; /* elements; 0: nothing is moved, and the addresses may be NULL */
    double factor;
} halay_part_t;

typedef struct halay_device halay_device_t;

/* Work that has ended. status: 0, or a negative code; then dst may hold anything. Either way the
 * device is off its buffers. */
typedef struct halay_done {
    uint64_t cookie;
    int status;
} halay_done_t;

/* What others than the processor and the device need, to read and write memory of the device. */
typedef struct halay_export {
    size_t size;      /* of this struct, set by the caller */
    void *address;    /* of the allocation in which it lies, */
    size_t bytes;     /* and how long that is */
    uint64_t id;      /* of the allocation: one that is made later at its address has another */
    int dmabuf;       /* the caller's, who closes it. -1: none was asked for, or why says why not */
    uint32_t flushes; /* what others write is there for later work only after flush */
    uint64_t offset;  /* of the allocation in the dma-buf */
} halay_export_t;

typedef struct halay_device_ops {
    size_t size; /* of this struct */
    const char *name;

    /* isa: "scalar", "avx2", "avx512", or NULL for the best one. HALAY_EUNSUPPORTED: not here. */
    int (*open)(void *arg, const char *isa, halay_device_t **device);

    /*
     * Is this memory of the device's kind, and what is it? HALAY_OK: all of it. HALAY_EUNSUPPORTED:
     * none of it. HALAY_EINVAL: a part of it. HALAY_EDEVICE or HALAY_ENOMEM: it is, but the device
     * is unusable, or cannot tell any more; `why` says why. bytes 0: the byte at the address.
     * address NULL: HALAY_OK, and what memory of its kind is. The host's device says yes to all,
     * and is asked last.
     */
    int (*query)(halay_device_t *device, const void *address, size_t bytes, halay_memory_t *memory);

    /* Memory in this place, a byte of it at least; alignment: a power of two, a page at most. */
    int (*alloc)(halay_device_t *device, uint32_t place, size_t bytes, size_t alignment,
                 void **address);
    /* Takes NULL. All that was given is given back before close, except for what work may still
     * write that could not be stopped. */
    void (*free)(halay_device_t *device, uint32_t place, void *address);

    /*
     * Starts the work; never blocks on other work. HALAY_OK: it is done already, its cookie will
     * not be polled. HALAY_INPROGRESS: poll will return the cookie, once; buffers belong to the
     * device until then. HALAY_EAGAIN: full, poll first.
     */
    int (*launch)(halay_device_t *device, const halay_work_t *work);

    /*
     * For work that is launched again and again, as it is: checks it once, and leaves in
     * work->bound how it is done, so that launch need not look at the rest. HALAY_EUNSUPPORTED: no
     * short cut to this work; launch it. Addresses and count may change afterwards; whoever changes
     * anything else sets bound to NULL.
     */
    int (*bind)(halay_device_t *device, halay_work_t *work);

    /* Finished work, at most max. Does not block. Returns how many, or an error: then the device is
     * lost, and what is in flight ends by stop. */
    int (*poll)(halay_device_t *device, halay_done_t done[], int max);

    /*
     * Prepares to sleep: *fd becomes readable when poll would return something of what is in
     * flight. HALAY_EAGAIN: poll first, there is something already. The descriptor belongs to the
     * device and stays the same. HALAY_EUNSUPPORTED, now and always: it has none, and is polled.
     * Spurious wake-ups are allowed.
     */
    int (*arm)(halay_device_t *device, int *fd);

    /*
     * Takes back work that is in flight, in patience_ns at most. Its cookie will not be polled any
     * more. HALAY_OK: the device touches none of its buffers any more; the work may be done or not.
     * HALAY_EDEVICE: it still may; nothing more is launched on this device.
     */
    int (*stop)(halay_device_t *device, uint64_t cookie, uint64_t patience_ns);

    /*
     * Marks where the program's stream ends now. HALAY_INPROGRESS: poll will return the cookie,
     * once, when all that stands before the mark has been done; an error in it is the status.
     * HALAY_OK: nothing stands there. HALAY_EAGAIN: full, poll first. HALAY_EINVAL: it is no stream
     * of this device; HALAY_EUNSUPPORTED: it is one, and is being captured into a graph, or cannot
     * be followed at all; `why` says so.
     * cookie 0: says which of these it would be, and marks nothing. The mark holds no buffer, adds
     * nothing that the stream could wait for, and stop drops it at once. arm does not regard marks:
     * they are polled.
     */
    int (*follow)(halay_device_t *device, const halay_stream_t *stream, uint64_t cookie);

    /* What was wrong when a member, or the work that poll told of last, has failed, and what to do:
     * a short text, "" if there is nothing to say. Stays until the next call. */
    const char *(*why)(halay_device_t *device);

    /* Takes NULL. Nothing may be in flight but what could not be stopped. */
    void (*close)(halay_device_t *device);

    /* Lets network adapters reach memory of the device's kind. opens: with a dma-buf, if there is
     * one. HALAY_EUNSUPPORTED: they cannot; why says why not. */
    int (*export_mem)(halay_device_t *device, const void *address, size_t bytes, uint32_t opens,
                      halay_export_t *exported);

    /* All that adapters have written to the device's memory is there for work that is launched from
     * now on. May take microseconds. HALAY_EUNSUPPORTED: never needed. */
    int (*flush)(halay_device_t *device);

    /*
     * Puts a gate into the program's stream: what is enqueued there later waits until gate_open.
     * HALAY_EAGAIN: too many are shut. HALAY_EUNSUPPORTED: there are none; why says why not. gate
     * NULL: says which of these it would be. Each gate is opened once, by gate_open, which never
     * fails or blocks, also on a device that is lost, and may be sooner than the stream is there.
     */
    int (*gate)(halay_device_t *device, const halay_stream_t *stream, uint32_t *gate);
    void (*gate_open)(halay_device_t *device, uint32_t gate);

    /*
     * What opens a gate too, where the device itself writes it: this value, to the address at which
     * the device has the word. gate_open follows all the same, but not before that write has been
     * made, or it is certain that it will not be. HALAY_EUNSUPPORTED: nothing else opens it.
     */
    int (*gate_word)(halay_device_t *device, uint32_t gate, uint64_t *at, uint64_t *value);

    /*
     * Starts the parts of a list, of one type, in any order, as one piece of work: as launch. The
     * parts are the caller's again when this returns. All are in memory of the device's kind.
     * HALAY_EUNSUPPORTED: it has no lists, or not of these; launch them one by one.
     */
    int (*launch_list)(halay_device_t *device, const halay_part_t parts[], uint32_t nparts,
                       halay_type_t type, uint64_t cookie);
} halay_device_ops_t;

#ifdef __cplusplus
}
#endif
#endif
