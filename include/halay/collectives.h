/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.h - a part of halay.h, which includes it: the user's operations, collectives, send
 * and receive. */
#ifndef HALAY_COLLECTIVES_H
#define HALAY_COLLECTIVES_H

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ operations of the user */

/*
 * dst[i] = left[i] OP right[i], where left comes from the lower ranks; count is a multiple of the
 * operation's group. dst overlaps neither of them. It may be called in any thread that makes
 * progress, many times for one collective, each time for some of its elements; it must not call
 * Halay, and its result may depend on nothing but its operands. It must be associative: plans put
 * parentheses as they like, the same on all ranks.
 */
typedef void halay_op_fn(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                         const void *right);

/* Bytes of one group at most. */
#define HALAY_OP_GROUP_BYTES_MAX 4096

/* Properties of an operation. LOCAL: the ranks may make it at any time, in any order, and have to
 * agree on what it computes; calls compare the group and COMMUTATIVE, not the number. */
enum {
    HALAY_OP_COMMUTATIVE = 1, /* without it only algorithms that keep the ranks' order serve it */
    HALAY_OP_LOCAL = 2
};

/*
 * Makes an operation of fn, for every type: a number from HALAY_OP_USER on, valid for reductions on
 * the context's communicators. All ranks must make their operations in the same order, since each
 * call compares the numbers, unless they are HALAY_OP_LOCAL. group: how many elements belong
 * together (4 for matrices of 2 x 2; 24 of HALAY_UINT8 for a struct of 24 bytes). The count of a
 * call must be a multiple of it, and fn gets whole groups. properties: HALAY_OP_* joined by |, or
 * 0. Local. HALAY_ENOMEM: there are 128 operations already, or 65,536 were made.
 */
HALAY_API int halay_op_create(halay_context_t *context, halay_op_fn *fn, void *arg, size_t group,
                              int properties, halay_op_t *op);
/* Local. HALAY_ESTATE: freed before, or a request that uses it is not freed yet. */
HALAY_API int halay_op_free(halay_context_t *context, halay_op_t op);

/* ------------------------------------------------------------------ collectives */

/*
 * Errors of every collective, blocking or not, on all ranks alike unless said otherwise:
 *   HALAY_EINVAL        on this rank alone: comm is no communicator, or request is NULL. On all
 *                       ranks: on one of them an argument does not exist (type, op, root, a count
 *                       beyond the address space), op does not take the type, a buffer or counts
 *                       that is needed is NULL, buffers overlap, IN_PLACE stands where the
 *                       collective has none, or one call has memory of two kinds
 *   HALAY_EMISMATCH     ranks have called different collectives, or with different arguments: each
 *                       collective below says which it compares, besides the kind of memory; or
 *                       the ranks have different settings
 *   HALAY_ETIMEOUT      a rank has not called by the deadline
 *   HALAY_EPEER         a rank has died, has finalized, or cannot be reached
 *   HALAY_ETRANSPORT    a transport has failed
 *   HALAY_EDEVICE       a device has failed, or its stream did not come to the call in time
 *   HALAY_EUNSUPPORTED  a rank's stream is being captured into a graph that cannot hold the call
 *   HALAY_EREVOKED      a rank has revoked the communicator
 *   HALAY_ESTATE        the communicator was freed, or a rank has finalized with the call in flight
 *   HALAY_ENOMEM        memory or descriptors ran out on a rank
 *   HALAY_EFORKED       on this rank alone: it is a forked child
 */

/*
 * out[i] = in[i] of rank 0 OP in[i] of rank 1 ..., count elements on every rank. The result has the
 * same bits on all ranks. IN_PLACE: the input is out. in and out must otherwise not overlap.
 * HALAY_EMISMATCH: count, type or op.
 */
HALAY_API int halay_allreduce(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm);

/*
 * out[i] = postscale * (prescale * in[i] of rank 0 OP prescale * in[i] of rank 1 ...), each product
 * as halay_scale() makes it; SUM, PROD, MIN, MAX and AVERAGE (divided before it is scaled). The
 * factors must be finite, and equal on all ranks; a factor of 1 costs nothing.
 * HALAY_EMISMATCH: count, type, op or a factor. HALAY_EINVAL: a factor that is not finite, or one
 * other than 1 for a type or op that takes none.
 */
HALAY_API int halay_allreduce_scaled(const void *in, void *out, size_t count, halay_type_t type,
                                     halay_op_t op, double prescale, double postscale,
                                     halay_comm_t *comm);

/*
 * buffer of rank `root` to all; count elements. Returns when all ranks are known to have called
 * (but see HALAY_HINT_RELAXED_BROADCAST). HALAY_EMISMATCH: count, type or root. HALAY_EINVAL:
 * IN_PLACE.
 */
HALAY_API int halay_broadcast(void *buffer, size_t count, halay_type_t type, int root,
                              halay_comm_t *comm);

/*
 * out = in of rank 0, then of rank 1, ...; count elements from each rank, so out has room for
 * nranks * count. IN_PLACE: this rank's input stands at out + rank * count already.
 * HALAY_EMISMATCH: count or type.
 */
HALAY_API int halay_allgather(const void *in, void *out, size_t count, halay_type_t type,
                              halay_comm_t *comm);

/*
 * As halay_allgather, with counts[r] elements from rank r, put at out + displs[r] elements. counts
 * and displs (nranks each, the same counts on all ranks) are read before the call returns, displs
 * may be NULL: one after the other. HALAY_EMISMATCH: counts or type. HALAY_EINVAL: blocks overlap,
 * as in each output of a v form.
 */
HALAY_API int halay_allgatherv(const void *in, void *out, const size_t counts[],
                               const size_t displs[], halay_type_t type, halay_comm_t *comm);

/*
 * in has nranks * count elements; out gets the reduced block number `rank` of count elements.
 * IN_PLACE: the input is out (nranks * count elements), the result stands in its first count; what
 * follows those is undefined. HALAY_EMISMATCH: count, type or op.
 */
HALAY_API int halay_reduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                                   halay_op_t op, halay_comm_t *comm);

/*
 * As halay_reduce_scatter, with counts[r] elements for rank r (nranks counts, the same on all
 * ranks, read before the call returns): in has their sum. IN_PLACE: the result stands at the start
 * of out. HALAY_EMISMATCH: counts, type or op.
 */
HALAY_API int halay_reduce_scatterv(const void *in, void *out, const size_t counts[],
                                    halay_type_t type, halay_op_t op, halay_comm_t *comm);

/*
 * As halay_allreduce, with the result on rank `root` alone: elsewhere out is not used, and may be
 * NULL. IN_PLACE, at the root alone: the input is out. HALAY_EMISMATCH: count, type, op or root.
 */
HALAY_API int halay_reduce(const void *in, void *out, size_t count, halay_type_t type,
                           halay_op_t op, int root, halay_comm_t *comm);

/*
 * out on rank r = in of rank 0 OP ... OP in of rank r (scan), or of rank r - 1 (exscan: then rank
 * 0's out is not used). IN_PLACE: the input is out. HALAY_EMISMATCH: count, type or op.
 * HALAY_EINVAL: AVERAGE.
 */
HALAY_API int halay_scan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                         halay_comm_t *comm);
HALAY_API int halay_exscan(const void *in, void *out, size_t count, halay_type_t type,
                           halay_op_t op, halay_comm_t *comm);

/*
 * As halay_allgather and halay_allgatherv, to rank `root` alone: elsewhere out and displs are not
 * used, and may be NULL; counts are the same on all ranks. IN_PLACE, at the root alone: its block
 * stands in out already. HALAY_EMISMATCH: count or counts, type or root.
 */
HALAY_API int halay_gather(const void *in, void *out, size_t count, halay_type_t type, int root,
                           halay_comm_t *comm);
HALAY_API int halay_gatherv(const void *in, void *out, const size_t counts[], const size_t displs[],
                            halay_type_t type, int root, halay_comm_t *comm);

/*
 * The reverse of gather: block r of the root's in, of count elements, or counts[r] at displs[r],
 * goes to out on rank r. Elsewhere in and displs are not used, and may be NULL; counts are the same
 * on all ranks. IN_PLACE, at the root alone: the blocks are in out, where the root's own stays; or,
 * passed as out: the blocks are in in, and the root's own stays there. HALAY_EMISMATCH: count or
 * counts, type or root.
 */
HALAY_API int halay_scatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                            halay_comm_t *comm);
HALAY_API int halay_scatterv(const void *in, void *out, const size_t counts[],
                             const size_t displs[], halay_type_t type, int root,
                             halay_comm_t *comm);

/*
 * in and out have a block of count elements for each rank. Block d of in goes to rank d, where it
 * becomes the out block with this rank's number. IN_PLACE: the input is out. HALAY_EMISMATCH: count
 * or type.
 */
HALAY_API int halay_alltoall(const void *in, void *out, size_t count, halay_type_t type,
                             halay_comm_t *comm);

/*
 * The same with blocks of any sizes: in_counts[d] elements at in + in_displs[d] go to rank d, and
 * out_counts[s] from rank s to out + out_displs[s]. displs may be NULL: one after the other. All
 * four are read before the call returns. IN_PLACE: the input is out, so in_counts and in_displs are
 * not used. HALAY_EMISMATCH: type; or a rank sends another count than its peer expects: the text
 * names both. HALAY_EINVAL: a rank's two counts for itself differ.
 */
HALAY_API int halay_alltoallv(const void *in, const size_t in_counts[], const size_t in_displs[],
                              void *out, const size_t out_counts[], const size_t out_displs[],
                              halay_type_t type, halay_comm_t *comm);

/* Returns when all ranks have called. It has no errors of its own. */
HALAY_API int halay_barrier(halay_comm_t *comm);

/* ------------------------------------------------------------------ between two ranks */

/*
 * count elements from one rank of the communicator to another, `peer`. The n-th send of a rank to
 * another matches the n-th receive there from it, with the same count and type; there are no tags.
 * Apart from that order, sends and receives are independent of all other calls. A send returns when
 * the receive was called and the data are on their way, as MPI_Ssend does. So two ranks that both
 * send first and then receive would wait until the deadline; use the non-blocking forms. No rank
 * sends to itself. Errors are those of collectives, on these two ranks. HALAY_EMISMATCH: count or
 * type. HALAY_EINVAL, on this rank alone: peer is not another rank.
 */
HALAY_API int halay_send(const void *buffer, size_t count, halay_type_t type, int peer,
                         halay_comm_t *comm);
HALAY_API int halay_recv(void *buffer, size_t count, halay_type_t type, int peer,
                         halay_comm_t *comm);

#ifdef __cplusplus
}
#endif

#endif
