/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - a part of halay.h, which includes it: messages with tags, between two ranks. */
#ifndef HALAY_MESSAGE_H
#define HALAY_MESSAGE_H

#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ messages with tags */

/*
 * A message goes from one rank to another, or to itself, with a tag from 0 to INT_MAX. A receive
 * takes the first message, in the order in which its sender has sent them, that has its source and
 * tag. These may be HALAY_ANY_SOURCE and HALAY_ANY_TAG. If several receives fit a message, the
 * first one that was posted gets it. Messages are in no order with collectives, and with
 * halay_send() and halay_recv(). Buffers are in host memory (HALAY_EUNSUPPORTED).
 *
 * A message has at most as many bytes as its receive has room for, and the same type, unless one of
 * the two is HALAY_UINT8: HALAY_EMISMATCH on the receiver, which has taken the message then.
 *
 * An error is that of this rank alone: HALAY_EPEER (the other rank is lost; from any source: some
 * rank is), HALAY_ETIMEOUT (nobody has sent or received it by the communicator's deadline, or ranks
 * that have none wait for each other, and none can go on), or that of a broken or revoked
 * communicator.
 */
#define HALAY_ANY_SOURCE (-1)
#define HALAY_ANY_TAG    (-1)

/* What has come, or what a probe has found. */
typedef struct halay_envelope {
    size_t size;     /* of this struct, set by the caller */
    int source, tag; /* -1: of a request that receives no message */
    int cancelled;   /* 1: by halay_message_cancel() */
    uint64_t bytes;  /* of the message */
} halay_envelope_t;

typedef enum halay_send_mode {
    HALAY_SEND_STANDARD = 0,   /* may end before the message is received */
    HALAY_SEND_SYNCHRONOUS = 1 /* ends when its receive has begun */
} halay_send_mode_t;

/* Sends count elements to rank `to`. buffer is in use until the request is done. */
HALAY_API int halay_message_isend(const void *buffer, size_t count, halay_type_t type, int to,
                                  int tag, halay_send_mode_t mode, halay_comm_t *comm,
                                  halay_request_t **request);
/* Receives at most count elements. halay_message_wait() says how many, from whom. */
HALAY_API int halay_message_irecv(void *buffer, size_t count, halay_type_t type, int from, int tag,
                                  halay_comm_t *comm, halay_request_t **request);
/* The same two, and wait. envelope: what has come; or NULL. */
HALAY_API int halay_message_send(const void *buffer, size_t count, halay_type_t type, int to,
                                 int tag, halay_send_mode_t mode, halay_comm_t *comm);
HALAY_API int halay_message_recv(void *buffer, size_t count, halay_type_t type, int from, int tag,
                                 halay_comm_t *comm, halay_envelope_t *envelope);

/* As halay_request_wait() and halay_request_test(), for any request. envelope: or NULL. */
HALAY_API int halay_message_wait(halay_request_t *request, halay_envelope_t *envelope);
HALAY_API int halay_message_test(halay_request_t *request, halay_envelope_t *envelope);
/* Is the request done, so that a wait returns at once? 1 or 0. Makes no progress, frees nothing. */
HALAY_API int halay_message_is_done(halay_request_t *request);

/* Is there a message that such a receive would take? *found: 1 or 0. The message stays. Makes
 * progress once; found NULL: waits until there is one, by the deadline. envelope may be NULL. */
HALAY_API int halay_message_probe(int from, int tag, halay_comm_t *comm, int *found,
                                  halay_envelope_t *envelope);
/* The same, and takes the message, so that only halay_message_irecv_taken() can receive it. */
typedef struct halay_message halay_message_t;
HALAY_API int halay_message_take(int from, int tag, halay_comm_t *comm, int *found,
                                 halay_message_t **message, halay_envelope_t *envelope);
/* Receives a taken message, which is freed. */
HALAY_API int halay_message_irecv_taken(void *buffer, size_t count, halay_type_t type,
                                        halay_message_t *message, halay_request_t **request);

/* Cancels a receive that has no message yet: its wait returns HALAY_OK, and the envelope says that
 * it was cancelled. Does nothing to another request. */
HALAY_API int halay_message_cancel(halay_request_t *request);

#ifdef __cplusplus
}
#endif

#endif
