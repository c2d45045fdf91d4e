/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - messages and requests of MPI over halay's messages with tags. */
#ifndef HLY_MPI_MESSAGE_H
#define HLY_MPI_MESSAGE_H

#include "core.h"
#include "error.h"

/* What one end of a message is. */
struct hly_mpi_end {
    const char *function;
    void *buffer;
    int64_t count;
    struct hly_mpi_type *type;
    int rank, tag; /* of the other end */
    struct hly_mpi_comm *comm;
    bool sends, synchronous;
    bool copied; /* sends: a copy, so that the buffer may change at once */
};

/* Makes what is predefined. */
void hly_mpi_messages_open(void);
/* Checks all arguments. */
int hly_mpi_end_check(const struct hly_mpi_end *end);
/* Begins it. *request: made, and active; or, `persistent`, not begun. */
int hly_mpi_end_begin(const struct hly_mpi_end *end, bool persistent,
                      struct hly_mpi_request **request);
/* Sends and receives, and waits for both. */
int hly_mpi_exchange_message(const struct hly_mpi_end *out, const struct hly_mpi_end *in,
                             struct hly_mpi_status *status);
/* Fills a status with what has come; halay's ranks become those of the communicator. */
void hly_mpi_status_fill(struct hly_mpi_status *status, const struct hly_mpi_comm *comm,
                         const halay_envelope_t *envelope);
void hly_mpi_status_none(struct hly_mpi_status *status, int source);
/* The rank in comm->halay of a rank that a message names. */
int hly_mpi_rank_of(const struct hly_mpi_comm *comm, int rank);

#define HLY_MPI_BYTE_NUMBER 0x247 /* MPI_BYTE's in the standard's ABI */

/* The error of a message whose call has returned this code. */
int hly_mpi_message_result(struct hly_mpi_request *request, int code, const halay_envelope_t *came);

/* probe.c: at MPI_Finalize, names a message that a matched probe has taken, and no receive. */
void hly_mpi_taken_tell(void);
/* At MPI_Finalize: waits for requests that were freed while they were active. */
void hly_mpi_requests_leave(void);
/* Frees one that is active: it ends later. */
int hly_mpi_request_free_active(struct hly_mpi_request *request);
/* The next of those that are left, from *at on, which begins with 0; or NULL. */
struct hly_mpi_request *hly_mpi_requests_freed(int *at);
/* "MPI_Irecv from rank 1 with tag 3", of a message; or the function. */
void hly_mpi_request_text(const struct hly_mpi_request *request, char *text, size_t bytes);
/* Ends those of them that are done. */
void hly_mpi_requests_reap(void);
/* Waits a moment for progress. */
void hly_mpi_progress(void);
/* request_made.c: an active request without a call of Halay's, and with so many bytes at `kept`. It
 * is done at once, unless it gets an is_done(). comm: or NULL. */
int hly_mpi_request_make(const char *function, struct hly_mpi_comm *comm, size_t kept,
                         struct hly_mpi_request **request);
/* buffer.c: at MPI_Finalize, waits for buffered sends. */
void hly_mpi_buffers_leave(void);
/* request.c: is it done? Then its status and its result are kept in it. */
bool hly_mpi_request_is_done(struct hly_mpi_request *request);
/* Waits for it, which may be NULL, and ends it: *request becomes NULL, unless it is persistent. */
int hly_mpi_request_end(struct hly_mpi_request **request, struct hly_mpi_status *status);
/* Ends the memory of a request that is not active. */
void hly_mpi_request_drop(struct hly_mpi_request *request);
/* The receive of a message that a matched probe has taken. */
int hly_mpi_end_begin_taken(const struct hly_mpi_end *end, halay_message_t *taken,
                            struct hly_mpi_request **request);

#endif
