/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - contract of a memory kind: who reduces and copies. Both are asynchronous: `launch`
 * starts a piece of work, `poll` tells which pieces are done. The host does its work in `launch`;
 * a test device finishes late and in random order; a GPU will stand here later.
 */
#ifndef HALAY_DEVICE_H
#define HALAY_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HALAY_DEVICE_ABI     3
#define HALAY_REDUCE_SOURCES 4 /* at most, for one reduce */

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
    const void *bound; /* NULL, or what the device's bind left here */
    uint32_t streams;  /* dst is large, and nobody reads it soon: it may go past the caches */
} halay_work_t;

typedef struct halay_device halay_device_t;

typedef struct halay_device_ops {
    size_t size; /* of this struct */
    const char *name;

    /* isa: "scalar", "avx2", "avx512", or NULL for the best one. HALAY_EUNSUPPORTED: not here. */
    int (*open)(void *arg, const char *isa, halay_device_t **device);

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

    /* Cookies of finished work, at most max. Does not block. Returns how many, or an error. */
    int (*poll)(halay_device_t *device, uint64_t cookies[], int max);

    /* Takes NULL. Nothing may be in flight. */
    void (*close)(halay_device_t *device);
} halay_device_ops_t;

#ifdef __cplusplus
}
#endif
#endif
