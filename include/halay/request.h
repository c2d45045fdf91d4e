/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - a part of halay.h, which includes it: calls that return at once, persistent calls,
 * groups of calls. */
#ifndef HALAY_REQUEST_H
#define HALAY_REQUEST_H

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ without waiting */

/*
 * Collectives, sends and receives that return at once: the result is valid once
 * halay_request_wait() or _test() says so. Many may be in flight; they make progress in any call
 * that waits and in halay_context_progress(). The wait returns an error in the arguments, as on all
 * other ranks, unless there was no memory for a request.
 */
HALAY_API int halay_iallreduce(const void *in, void *out, size_t count, halay_type_t type,
                               halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iallreduce_scaled(const void *in, void *out, size_t count, halay_type_t type,
                                      halay_op_t op, double prescale, double postscale,
                                      halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root,
                               halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iallgather(const void *in, void *out, size_t count, halay_type_t type,
                               halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iallgatherv(const void *in, void *out, const size_t counts[],
                                const size_t displs[], halay_type_t type, halay_comm_t *comm,
                                halay_request_t **request);
HALAY_API int halay_ireduce_scatter(const void *in, void *out, size_t count, halay_type_t type,
                                    halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ireduce_scatterv(const void *in, void *out, const size_t counts[],
                                     halay_type_t type, halay_op_t op, halay_comm_t *comm,
                                     halay_request_t **request);
HALAY_API int halay_ireduce(const void *in, void *out, size_t count, halay_type_t type,
                            halay_op_t op, int root, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iscan(const void *in, void *out, size_t count, halay_type_t type, halay_op_t op,
                          halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iexscan(const void *in, void *out, size_t count, halay_type_t type,
                            halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_igather(const void *in, void *out, size_t count, halay_type_t type, int root,
                            halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_igatherv(const void *in, void *out, const size_t counts[],
                             const size_t displs[], halay_type_t type, int root, halay_comm_t *comm,
                             halay_request_t **request);
HALAY_API int halay_iscatter(const void *in, void *out, size_t count, halay_type_t type, int root,
                             halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_iscatterv(const void *in, void *out, const size_t counts[],
                              const size_t displs[], halay_type_t type, int root,
                              halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ialltoall(const void *in, void *out, size_t count, halay_type_t type,
                              halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ialltoallv(const void *in, const size_t in_counts[], const size_t in_displs[],
                               void *out, const size_t out_counts[], const size_t out_displs[],
                               halay_type_t type, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_ibarrier(halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_isend(const void *buffer, size_t count, halay_type_t type, int peer,
                          halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_irecv(void *buffer, size_t count, halay_type_t type, int peer,
                          halay_comm_t *comm, halay_request_t **request);

/*
 * Persistent: the same calls, made once and started many times. The request keeps the plan and
 * other results of the arguments, so a start costs less than the call. Buffers, counts and
 * operation stay those of the init call; only the contents of the buffers change. An init call is
 * local, sends nothing and begins nothing; each wait returns an error in the arguments, on all
 * ranks. HALAY_ESTATE: the communicator was freed. The communicator cannot be freed before the
 * request. To other ranks a start is the call itself. It takes its place in the order of calls, and
 * may match a call of another form.
 */
HALAY_API int halay_allreduce_init(const void *in, void *out, size_t count, halay_type_t type,
                                   halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_allreduce_scaled_init(const void *in, void *out, size_t count,
                                          halay_type_t type, halay_op_t op, double prescale,
                                          double postscale, halay_comm_t *comm,
                                          halay_request_t **request);
HALAY_API int halay_broadcast_init(void *buffer, size_t count, halay_type_t type, int root,
                                   halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_allgather_init(const void *in, void *out, size_t count, halay_type_t type,
                                   halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_allgatherv_init(const void *in, void *out, const size_t counts[],
                                    const size_t displs[], halay_type_t type, halay_comm_t *comm,
                                    halay_request_t **request);
HALAY_API int halay_reduce_scatter_init(const void *in, void *out, size_t count, halay_type_t type,
                                        halay_op_t op, halay_comm_t *comm,
                                        halay_request_t **request);
HALAY_API int halay_reduce_scatterv_init(const void *in, void *out, const size_t counts[],
                                         halay_type_t type, halay_op_t op, halay_comm_t *comm,
                                         halay_request_t **request);
HALAY_API int halay_reduce_init(const void *in, void *out, size_t count, halay_type_t type,
                                halay_op_t op, int root, halay_comm_t *comm,
                                halay_request_t **request);
HALAY_API int halay_scan_init(const void *in, void *out, size_t count, halay_type_t type,
                              halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_exscan_init(const void *in, void *out, size_t count, halay_type_t type,
                                halay_op_t op, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_gather_init(const void *in, void *out, size_t count, halay_type_t type,
                                int root, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_gatherv_init(const void *in, void *out, const size_t counts[],
                                 const size_t displs[], halay_type_t type, int root,
                                 halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_scatter_init(const void *in, void *out, size_t count, halay_type_t type,
                                 int root, halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_scatterv_init(const void *in, void *out, const size_t counts[],
                                  const size_t displs[], halay_type_t type, int root,
                                  halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_alltoall_init(const void *in, void *out, size_t count, halay_type_t type,
                                  halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_alltoallv_init(const void *in, const size_t in_counts[],
                                   const size_t in_displs[], void *out, const size_t out_counts[],
                                   const size_t out_displs[], halay_type_t type, halay_comm_t *comm,
                                   halay_request_t **request);
HALAY_API int halay_barrier_init(halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_send_init(const void *buffer, size_t count, halay_type_t type, int peer,
                              halay_comm_t *comm, halay_request_t **request);
HALAY_API int halay_recv_init(void *buffer, size_t count, halay_type_t type, int peer,
                              halay_comm_t *comm, halay_request_t **request);

/* Starts a persistent request. HALAY_ESTATE: it was started, and not waited for. HALAY_EINVAL: not
 * persistent. */
HALAY_API int halay_request_start(halay_request_t *request);
/* Frees a persistent one, which must not be under way (HALAY_ESTATE); takes NULL. Local. */
HALAY_API int halay_request_free(halay_request_t *request);

/*
 * Several collectives as one, all or nothing. Between begin and end Halay only collects the
 * blocking and non-blocking collectives on comm: *request becomes NULL, and a blocking one returns
 * at once. It reads counts and displacements, but no buffers. end starts them and gives one request
 * for all. The ranks compare the whole group first: where a rank has other calls in it, or a wrong
 * one, the group fails on all ranks with the same error, and no buffer was touched. A failure after
 * that (a rank dies) is the group's result, that of the first call that failed; then the contents
 * of all of its outputs are undefined. Results of a call are valid only after the whole group, so
 * no call may use another's result. A group is one call in the communicator's order. It has 65,536
 * calls at most. Not in a group: one more than these, send, receive, persistent requests
 * (HALAY_ESTATE, and the group fails), communicators made of comm.
 */
HALAY_API int halay_group_begin(halay_comm_t *comm);
/* HALAY_ESTATE: none was begun. */
HALAY_API int halay_group_end(halay_comm_t *comm, halay_request_t **request);

/*
 * Waits for the request, frees it (a persistent one can be started again instead) and returns its
 * result. HALAY_EINVAL: NULL. HALAY_ESTATE: the request was freed already, or was not started.
 */
HALAY_API int halay_request_wait(halay_request_t *request);
/*
 * Makes progress once. HALAY_INPROGRESS: the request is not done, and stays valid. Otherwise as
 * halay_request_wait(): the result, and the request is freed, or can be started again.
 */
HALAY_API int halay_request_test(halay_request_t *request);

#ifdef __cplusplus
}
#endif

#endif
