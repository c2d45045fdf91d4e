/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.h - local helpers, without other ranks: memory of a device, copies and scaling in it, and
 * marks in the program's streams. They are for a program that packs buffers before a call and
 * unpacks them after it, or that finds that it cannot make a call.
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

/* Allocates memory of this kind, on the context's device. HALAY_EUNSUPPORTED: the context has no
 * device of the kind, or the device has not seen memory of a GPU yet. */
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
 * Has the device do the moves, in any order, and waits for all, timeout_ns at most. After an error
 * dst may hold anything. HALAY_EDEVICE: the device has failed, or has not finished in time. No move
 * is under way when this returns, unless the device could not be stopped: then no call can use the
 * device any more. Other calls of the context make progress meanwhile.
 */
HALAY_API int halay_local_moves(halay_context_t *context, uint32_t kind, const halay_move_t moves[],
                                size_t nmoves, uint64_t timeout_ns);

/*
 * The next call on the communicator begins with these moves, and its other work follows them. This
 * starts them, and does not wait for them; only where the device has no room it waits for room. If
 * they fail the call fails, on all ranks. After an error of this function the next call begins with
 * the moves that were started. It may be called several times before the call, which is in no
 * group; if that cannot be made they are stopped. HALAY_ESTATE: a group of calls is open.
 */
HALAY_API int halay_local_precede(halay_comm_t *comm, uint32_t kind, const halay_move_t moves[],
                                  size_t nmoves);

/* A mark in a stream of the program, as a recorded event is; or moves that were started. The struct
 * must stay at its address until halay_local_unmark(). */
typedef struct halay_mark {
    void *state[8];
} halay_mark_t;

/*
 * As halay_local_moves(), but starts the moves only: halay_local_marked() tells whether they have
 * ended, and says HALAY_EDEVICE if they have not timeout_ns after this. The mark is all zero, or
 * in use for such moves: then it stands for all of them. It is in use until halay_local_unmark(),
 * which stops what is under way; also after an error.
 */
HALAY_API int halay_local_start(halay_context_t *context, uint32_t kind, const halay_move_t moves[],
                                size_t nmoves, uint64_t timeout_ns, halay_mark_t *mark);

/*
 * Marks the present end of the stream; blocks neither the caller nor the stream. The mark is in use
 * until halay_local_unmark(). HALAY_EAGAIN: too many marks are in use. HALAY_EINVAL: it is no
 * stream of the context's device; HALAY_EUNSUPPORTED: the device has no streams, or this one is
 * being captured. After an error there is no mark.
 */
HALAY_API int halay_local_mark(halay_context_t *context, const halay_stream_t *stream,
                               halay_mark_t *mark);
/*
 * Waits for the mark, making progress, timeout_ns at most; 0: does not wait. HALAY_OK: all work
 * before the mark is done. HALAY_INPROGRESS: not yet. HALAY_EDEVICE: that work, or the device, has
 * failed.
 */
HALAY_API int halay_local_marked(halay_context_t *context, halay_mark_t *mark, uint64_t timeout_ns);
/* Ends a mark that is in use. */
HALAY_API void halay_local_unmark(halay_context_t *context, halay_mark_t *mark);

/*
 * A rank calls this instead of a call that it cannot make, and the others make. It takes that
 * call's place in the sequence, and makes it fail on all ranks with this code and text.
 * Non-blocking; the program waits for the request as for any other.
 */
HALAY_API int halay_local_refuse(halay_comm_t *comm, int code, const char *text,
                                 halay_request_t **request);

/*
 * The process's first thread calls ask(arg) ten times a second while it waits for a call or a
 * ticket. So a language that handles signals in that thread (Python) can do so there. ask may make
 * calls, and must not end the context. If it returns another number than 0 the wait ends: Halay
 * revokes the communicator, and the verdict says that this rank was interrupted. NULL: no such
 * calls any more.
 */
HALAY_API int halay_local_on_wait(halay_context_t *context, int (*ask)(void *arg), void *arg);
/* Calls ask(arg) now, for a wait outside the library. 1: the wait has to end, and the caller
 * revokes. */
HALAY_API int halay_local_ask(halay_context_t *context);

/*
 * For a binding: what a notice or verdict calls a wait. name() is called in the thread that waits,
 * when the wait has taken some milliseconds, and must not call Halay. It returns the name of the
 * function that the program has called, which stays valid, or NULL. one_at_a_time: while a call
 * with a name waits, no other thread makes calls on the binding's communicators, as MPI has it
 * below MPI_THREAD_MULTIPLE. Then ranks that wait for each other's messages without a deadline get
 * an error. name may be NULL.
 */
HALAY_API int halay_local_on_name(halay_context_t *context, const char *(*name)(void),
                                  int one_at_a_time);

#ifdef __cplusplus
}
#endif
#endif
