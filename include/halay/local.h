/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.h - memory of a device's kind, what is moved and scaled in it, and marks in the program's
 * streams, without other ranks: for a program that packs buffers before a call and unpacks them
 * after it; or finds that it cannot make the call.
 */
#ifndef HALAY_LOCAL_H
#define HALAY_LOCAL_H

#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of this kind, on the device that this context works with. HALAY_EUNSUPPORTED: the context
 * has no device of the kind, or the device has not seen memory of a GPU yet. */
HALAY_API int halay_local_alloc(halay_context_t *context, uint32_t kind, size_t bytes,
                                void **address);
/* Takes NULL. Before halay_finalize(). */
HALAY_API int halay_local_free(halay_context_t *context, uint32_t kind, void *address);

/* dst = factor * src as halay_scale() makes it, or dst = src where the factor is 1. direction:
 * HALAY_WITHIN, HALAY_TO_HOST, HALAY_FROM_HOST of device.h; the latter two only copy. dst is src,
 * or does not overlap it. */
typedef struct halay_move {
    void *dst;
    const void *src;
    size_t count; /* elements; 0: nothing is moved, and the addresses may be NULL */
    halay_type_t type;
    uint32_t direction;
    double factor; /* moves of one type are launched together */
} halay_move_t;

/*
 * Has the device do so many moves, in any order, and waits for all, no longer than patience_ns.
 * After an error dst holds anything. HALAY_EDEVICE: the device has failed, or has not come to an
 * end in time. No move is under way when this returns, unless the device could not be stopped:
 * then no call can use it any more. Other calls of the context make progress meanwhile.
 */
HALAY_API int halay_local_moves(halay_context_t *context, uint32_t kind, const halay_move_t moves[],
                                size_t nmoves, uint64_t patience_ns);

/* Where a stream of the program was. It stays where it is in memory while it is out. */
typedef struct halay_mark {
    void *state[8];
} halay_mark_t;

/*
 * Marks where the stream ends now; nothing blocks, neither here nor in the stream. The mark is out
 * until halay_local_unmark(). HALAY_EAGAIN: too many are out. HALAY_EINVAL: it is no stream of the
 * context's device; HALAY_EUNSUPPORTED: the device has no streams, or this one is being captured.
 * After an error no mark is out.
 */
HALAY_API int halay_local_mark(halay_context_t *context, const halay_stream_t *stream,
                               halay_mark_t *mark);
/*
 * HALAY_OK: all that stands before the mark is done. HALAY_INPROGRESS: not yet, as known from the
 * context's progress, for which patience_ns is waited at most; 0 only asks. HALAY_EDEVICE: what
 * stands there, or the device, has failed.
 */
HALAY_API int halay_local_marked(halay_context_t *context, halay_mark_t *mark,
                                 uint64_t patience_ns);
/* Takes a mark that is out, and is then no more. */
HALAY_API void halay_local_unmark(halay_context_t *context, halay_mark_t *mark);

/*
 * In place of a call that this rank cannot make, and the others make: takes its place in the
 * sequence, and has it fail on all ranks with this code and text. Non-blocking; the program
 * waits for the request as for any.
 */
HALAY_API int halay_local_refuse(halay_comm_t *comm, int code, const char *text,
                                 halay_request_t **request);

/*
 * Has ask(arg) called ten times a second by the process's first thread while that waits for a call
 * or a ticket: a language whose handlers of signals run in that thread runs them there. It may make
 * calls, and must not end the context. If it returns another number than 0 the wait ends: the
 * communicator is revoked, and the verdict says that this rank was interrupted. NULL: nobody is
 * asked any more.
 */
HALAY_API int halay_local_on_wait(halay_context_t *context, int (*ask)(void *arg), void *arg);
/* Asks now, for a wait that is not the library's. 1: it is to end; who asks revokes. */
HALAY_API int halay_local_ask(halay_context_t *context);

#ifdef __cplusplus
}
#endif
#endif
