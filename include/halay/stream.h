/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - a part of halay.h, which includes it: calls and a stream of a device (of a GPU). */
#ifndef HALAY_STREAM_H
#define HALAY_STREAM_H

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A communicator may have one stream of a device, which halay_comm_stream() sets: then its calls in
 * memory of that device wait for the stream, and the program need not. What begins after the call,
 * in any stream or on the host, may not touch the call's buffers before the call has ended.
 *
 *   who                                waits for
 *   a call's transfers                 what stands in the stream when the program makes the call
 *   those of a call in a group         what stands in the stream when the group begins the call
 *   a blocking call, a wait, a test    the call's end; then any stream may use the result
 *   a blocking call, STREAM_RETURNS    a free place, of 16 for a communicator, 32 for a context
 *   later work in the stream           nothing; with STREAM_RETURNS: the call's end
 *   work in other streams, the host    nothing: the program orders them
 *   a call in host memory              nothing: the stream does not concern it
 *   halay_comm_stream()                the end of all calls that have returned before it
 *
 * HALAY_STREAM_RETURNS is a flag of a stream: blocking calls return once they are enqueued on it,
 * as NCCL's do. The stream waits on the device for their results, and a thread of the context
 * completes them. If the device has no room for a call, the call returns at its end.
 *
 * Each call's deadline begins with the call. If such a call fails, the stream goes on, and the
 * call's buffers may hold anything. Each later such call on the communicator then returns the
 * error's code, but is made as any other, so that ranks stay in step. halay_comm_verdict() tells of
 * the first failure. halay_comm_stream() returns its code once and ends this state; if the program
 * does not call it, halay_finalize() returns the code. A send blocks the stream until the peer
 * receives.
 */
enum { HALAY_STREAM_RETURNS = 1 };

/* A queue of a device, made by the program and owned by it. */
typedef struct halay_stream {
    size_t size;   /* of this struct, set by the caller */
    uint32_t kind; /* of the device's memory, as halay_mem_kind() tells it */
    void *handle;  /* CUDA: a CUstream or cudaStream_t; NULL is the legacy stream */
    uint64_t flags;
} halay_stream_t;

/*
 * Sets the stream of the communicator: see the table above. Without the flag Halay puts nothing
 * into the stream but the record of an event, so no failure can block the stream. halay_send() and
 * halay_recv() are ordered as collectives are. NULL: no stream, as at first: data are ready at the
 * call. The stream has to exist until another one is set or the communicator is freed. New
 * communicators have none. Local; ranks may set different ones. After an error nothing has changed.
 *
 * HALAY_EINVAL: there is no such device, or the stream is of another GPU or context.
 * HALAY_EUNSUPPORTED: the device has no streams, or cannot do what the flag says, or this one is
 * being captured into a graph. HALAY_ESTATE: calls are under way, or there are persistent requests.
 * The code of a call that has returned early and failed: all ranks get it, so that programs that
 * want to go on have all ranks call this again.
 *
 * A later call ends with HALAY_EDEVICE, on all ranks, where a stream does not come to it by the
 * deadline; and with HALAY_EUNSUPPORTED where the stream is being captured, unless all its steps
 * are group steps (docs/gpu.md).
 */
HALAY_API int halay_comm_stream(halay_comm_t *comm, const halay_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
