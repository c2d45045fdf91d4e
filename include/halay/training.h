/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training.h - named tensors, as Horovod's: each rank submits tensors by name, from any thread, in
 * any order, and all ranks execute them in one agreed order. halay.torch and the other Python
 * packages use this.
 */
#ifndef HALAY_TRAINING_H
#define HALAY_TRAINING_H

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct halay_trainer halay_trainer_t;
/* A submitted tensor; 0 is never one. */
typedef uint64_t halay_ticket_t;

#define HALAY_TENSOR_NAME_MAX 256 /* bytes, with the final zero */

#define HALAY_GROUP_MAX 32768 /* tensors in one group */

#define HALAY_DIMS_MAX 7

typedef struct halay_dims {
    int ndims; /* 0: one element */
    size_t dims[HALAY_DIMS_MAX];
} halay_dims_t;

/*
 * Makes a trainer over the ranks of comm (it makes communicators of its own) and starts its one
 * thread, which sleeps unless there is work. Collective. comm must outlive it. Its tensors wait no
 * longer than comm's deadline as it is now.
 */
HALAY_API int halay_trainer_create(halay_context_t *context, halay_comm_t *comm,
                                   halay_trainer_t **trainer);
/* Ends the thread. Tensors that are not done end with HALAY_ESTATE. Takes NULL. */
HALAY_API void halay_trainer_destroy(halay_trainer_t *trainer);

/*
 * Submits a tensor. name: different from those of this rank's tensors that are not done (else
 * HALAY_EINVAL, and nothing is submitted). A name "noname.7", or one that ends in ".noname.7", is a
 * generated one. The program uses it once, and the next number next time; so Halay can replay
 * unnamed tensors, too. The buffers belong to the trainer until a wait for the ticket ends. They
 * are in memory of one kind, the same on all ranks (halay_mem_kind()). A result that the trainer
 * allocates is of that kind, too; no work of the program's streams uses that memory. The operation
 * runs once every rank has submitted the name with the same type, count, operation and root; if
 * they differ, it ends on all ranks with HALAY_EMISMATCH and a text that prints both sides.
 * allreduce: out = postscale * (sum over ranks of prescale * in), for SUM; scales must be finite,
 * and 1 for other operations and for integer types AVERAGE truncates as halay_allreduce does. in ==
 * out is in place.
 */
HALAY_API int halay_trainer_allreduce(halay_trainer_t *trainer, const char *name, const void *in,
                                      void *out, size_t count, halay_type_t type, halay_op_t op,
                                      double prescale, double postscale, halay_ticket_t *ticket);
HALAY_API int halay_trainer_broadcast(halay_trainer_t *trainer, const char *name, void *buffer,
                                      size_t count, halay_type_t type, int root,
                                      halay_ticket_t *ticket);
/*
 * in: rows of row_count elements, nrows of them, which may differ between ranks; row_count may not.
 * The result is allocated by the trainer: halay_trainer_result() tells where and how many elements
 * it has, and rows[r] of each rank; it lives until the ticket is released.
 */
HALAY_API int halay_trainer_allgather(halay_trainer_t *trainer, const char *name, const void *in,
                                      size_t nrows, size_t row_count, halay_type_t type,
                                      halay_ticket_t *ticket);
/*
 * As the functions without _shaped, with a shape instead of the count. The shape has to be the same
 * on all ranks, except for the first dimension of an allgather, which must have one. A tensor with
 * a shape does not match one without.
 */
HALAY_API int halay_trainer_allreduce_shaped(halay_trainer_t *trainer, const char *name,
                                             const void *in, void *out, const halay_dims_t *shape,
                                             halay_type_t type, halay_op_t op, double prescale,
                                             double postscale, halay_ticket_t *ticket);
HALAY_API int halay_trainer_broadcast_shaped(halay_trainer_t *trainer, const char *name,
                                             void *buffer, const halay_dims_t *shape,
                                             halay_type_t type, int root, halay_ticket_t *ticket);
HALAY_API int halay_trainer_allgather_shaped(halay_trainer_t *trainer, const char *name,
                                             const void *in, const halay_dims_t *shape,
                                             halay_type_t type, halay_ticket_t *ticket);
/* The arguments of an allreduce, apart from its buffers. */
typedef struct halay_reduction {
    size_t size; /* of this struct, set by the caller */
    const char *name;
    halay_dims_t shape;
    halay_type_t type;
    halay_op_t op;
    double prescale, postscale;
} halay_reduction_t;
/*
 * Several allreduces, all or nothing: if one is refused, none is submitted. If one differs between
 * ranks, or a rank does not submit all of them in time, all end with that error. All ranks pass the
 * same tensors in the same order, at most HALAY_GROUP_MAX; all says[].size are equal. tickets: one
 * for each tensor.
 */
HALAY_API int halay_trainer_allreduce_group(halay_trainer_t *trainer, size_t ntensors,
                                            const halay_reduction_t says[], const void *const in[],
                                            void *const out[], halay_ticket_t tickets[]);
/*
 * halay_trainer_allreduce_shaped(), halay_trainer_wait() and halay_trainer_release() in one call,
 * which needs no other thread: the result is that of the wait, or why nothing was submitted.
 */
HALAY_API int halay_trainer_allreduce_wait(halay_trainer_t *trainer, const halay_reduction_t *says,
                                           const void *in, void *out, char *text,
                                           size_t text_bytes);
/*
 * Reduces as an allreduce does, and gives each rank its rows of the result. The rows (the first
 * dimension, which must exist) are divided in order; the first ranks get one more if they do not
 * divide evenly. in: the shape, the same on all ranks; out: this rank's rows.
 */
HALAY_API int halay_trainer_reduce_scatter(halay_trainer_t *trainer, const char *name,
                                           const void *in, void *out, const halay_dims_t *shape,
                                           halay_type_t type, halay_op_t op, double prescale,
                                           double postscale, halay_ticket_t *ticket);
/*
 * Sends the first rows[0] rows of in (its first dimension, which must exist) to rank 0, the next
 * rows[1] to rank 1, and so on. No rank gets the remaining rows. The result is as an allgather's:
 * the rows that the ranks have sent to this one. A row has the same shape on all ranks; rows is
 * read before the call returns, may differ between ranks, and change from time to time.
 */
HALAY_API int halay_trainer_alltoall(halay_trainer_t *trainer, const char *name, const void *in,
                                     const size_t rows[], const halay_dims_t *shape,
                                     halay_type_t type, halay_ticket_t *ticket);
HALAY_API int halay_trainer_barrier(halay_trainer_t *trainer, const char *name,
                                    halay_ticket_t *ticket);

/*
 * This rank has no more data. Until all ranks have joined it gives zeros to the allreduces that it
 * does not submit, with SUM and AVERAGE, and counts in the divisor; it need not submit barriers
 * either; all else ends on the others with HALAY_EUNSUPPORTED. The ticket is done when all have
 * joined, or with HALAY_ETIMEOUT when nothing was agreed on for the deadline; the count of its
 * result is the rank that joined last. Only one join at a time; its name is "join".
 */
HALAY_API int halay_trainer_join(halay_trainer_t *trainer, halay_ticket_t *ticket);

/*
 * Tells the trainer where the program submits this name, as file:line, for notices about ranks that
 * have not submitted it. Call it before the first submission. lasting: 0 for a name that will be
 * used once. The trainer keeps the first 65,536 lasting places, and the last 256 others.
 */
HALAY_API int halay_trainer_place(halay_trainer_t *trainer, const char *name, const char *place,
                                  int lasting);

/*
 * Makes the next submission of this name wait for all work that is in the stream now. Halay does
 * not touch the buffers before. This blocks neither the caller nor the stream. For a group pass the
 * name of its first tensor; then all of them wait. Work that is enqueued later must not touch the
 * buffers before the ticket is done. To other ranks the tensor counts as submitted when that work
 * is done. If the work fails, the tensor fails on all ranks; if it is not done by the deadline, the
 * tensor ends with HALAY_ETIMEOUT. The stream has to exist until then. HALAY_EINVAL: no stream of
 * the context's device. HALAY_EUNSUPPORTED: the device has no streams, or this one is being
 * captured into a graph. Then the next submission waits for no stream.
 */
HALAY_API int halay_trainer_after(halay_trainer_t *trainer, const char *name,
                                  const halay_stream_t *stream);

typedef void (*halay_ticket_done_t)(void *arg, halay_ticket_t ticket);
/*
 * Sets a callback: calls done(arg, ticket) once, when the ticket is done (also with an error). The
 * call comes from the thread that completes the ticket, which may be the trainer's, or from this
 * one before halay_trainer_on_done() returns. The program need not wait or poll. done may submit,
 * poll, release the ticket and take its result; it must not wait for another ticket, nor destroy
 * the trainer. A wait for the ticket, or its release, also waits until done was called.
 * halay_trainer_destroy() returns after all were called. HALAY_EINVAL: there is no such
 * ticket, or it has a callback.
 */
HALAY_API int halay_trainer_on_done(halay_trainer_t *trainer, halay_ticket_t ticket,
                                    halay_ticket_done_t done, void *arg);

/* 1 done (also with an error), 0 not yet, HALAY_EINVAL: there is no such ticket. Never blocks. */
HALAY_API int halay_trainer_poll(halay_trainer_t *trainer, halay_ticket_t ticket);

/*
 * Waits until it is done (making progress in the caller's thread) and returns its result. The
 * ticket stays valid until halay_trainer_release(). text (may be NULL) gets the reason for an
 * error.
 */
HALAY_API int halay_trainer_wait(halay_trainer_t *trainer, halay_ticket_t ticket, char *text,
                                 size_t text_bytes);
HALAY_API int halay_trainer_result(halay_trainer_t *trainer, halay_ticket_t ticket,
                                   const void **data, size_t *count, const size_t **rows);
/* Takes 0. If the ticket is not done, waits for it first. */
HALAY_API void halay_trainer_release(halay_trainer_t *trainer, halay_ticket_t ticket);

/*
 * What a trainer has done so far; counters only grow. In rounds ranks negotiate tensors that they
 * have not agreed on. The agreed order of a step, a programme, is replayed without rounds.
 */
typedef struct halay_trainer_counters {
    size_t size; /* of this struct, set by the caller */
    /* rounds, and the bytes that this rank has sent in them */
    uint64_t control_rounds, control_bytes;
    uint64_t calls;         /* collectives that carried tensors */
    uint64_t votes;         /* small calls before those whose tensors cannot carry a mark */
    uint64_t fused_calls;   /* calls that used a fusion buffer */
    uint64_t fused_tensors; /* in them */
    uint64_t copied_bytes;  /* into and out of fusion buffers */
    uint64_t programmes;    /* programmes that were made */
    uint64_t cycles;        /* steps that were replayed from end to end */
    uint64_t voids;         /* replays that ended because a rank lacked a tensor */
    uint64_t deals;         /* exchanges of row counts before alltoalls */
} halay_trainer_counters_t;
HALAY_API int halay_trainer_counters(halay_trainer_t *trainer, halay_trainer_counters_t *counters);

/*
 * Starts a timeline: records what the trainer does from now on into a file in Chrome's trace
 * format; a thread of its own writes the file. docs/timeline.md has its events. HALAY_EINVAL: the
 * file cannot be made (see errno). HALAY_ESTATE: a timeline is on already. mark_cycles: also a mark
 * where a round or a programme begins.
 */
HALAY_API int halay_trainer_timeline_start(halay_trainer_t *trainer, const char *path,
                                           int mark_cycles);
/* Records into the same file as another trainer of the same context (`of`). label, up to 31 bytes,
 * precedes the names. */
HALAY_API int halay_trainer_timeline_share(halay_trainer_t *trainer, halay_trainer_t *of,
                                           const char *label);
/* Adds what the program did, in a row of its own; times are CLOCK_MONOTONIC. Does nothing if no
 * timeline is on. */
HALAY_API int halay_trainer_timeline_span(halay_trainer_t *trainer, const char *name,
                                          uint64_t begin_ns, uint64_t end_ns);
typedef struct halay_timeline_result {
    size_t size;             /* of this struct, set by the caller */
    uint64_t recorded, lost; /* events; lost: those that came while 65,536 were not written yet */
    int error;               /* errno of the file, or 0 */
} halay_timeline_result_t;
/*
 * The last trainer that stops ends the file. result may be NULL. HALAY_ESTATE: no timeline is on.
 * halay_trainer_destroy() stops it too.
 */
HALAY_API int halay_trainer_timeline_stop(halay_trainer_t *trainer,
                                          halay_timeline_result_t *result);

#ifdef __cplusplus
}
#endif
#endif
