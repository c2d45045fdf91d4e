/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h - messages with tags. A short one travels with its header, at once (SHORT). For a
 * long one, and for one whose sender waits for its receive, the header alone is sent (OFFER). When
 * a receive has taken it, the receiver answers TAKE, and both ranks make a call on a hidden
 * communicator of the two (run/message.c), by which the bytes travel as those of any other call.
 *
 * Messages of one sender are numbered, and are matched in that order. So that short ones that
 * nobody receives cannot fill the receiver's memory, a sender has at most a window of bytes
 * of them there; beyond that it offers. What is offered needs memory for its header alone, and its
 * sender holds a request for it.
 */
#ifndef HLY_MESSAGE_H
#define HLY_MESSAGE_H

#include "wire/endpoint.h"

/* Bytes of a sender's window: of 64 short messages of any length, on small communicators; of all
 * senders together at most ALL, on large ones until the window is LEAST. */
#define HLY_MESSAGE_WINDOW_MOST  (2u << 20)
#define HLY_MESSAGE_WINDOW_ALL   (64u << 20)
#define HLY_MESSAGE_WINDOW_LEAST (64u << 10)
#define HLY_MESSAGE_SHORT        (32u << 10) /* no longer one is sent at once */
#define HLY_MESSAGE_ITSELF       128u        /* what its header counts in the window */

enum hly_message_what {            /* edge of a header of kind HLY_MESSAGE */
                        HLY_SHORT, /* sequence: its number; signature: the tag; cookie: bytes */
                        HLY_OFFER, /* the same; offset: the offer's id */
                        HLY_TAKE,  /* cookie: id; sequence: number of the call that moves the bytes
                                    */
                        HLY_DROP,  /* cookie: id; received, but no bytes of it are wanted */
                        HLY_CREDIT /* cookie: so many bytes of the window are free again */
};

struct hly_early { /* a message that no receive has taken yet */
    struct hly_tag at;
    uint64_t id, bytes;      /* id: of the offer; 0: the bytes are here */
    uint8_t type;            /* halay_type_t */
    halay_request_t *itself; /* sent by this rank to itself, and offered; or NULL */
    uint32_t number;
    unsigned char data[] __attribute__((aligned(16)));
};

struct hly_message_peer { /* another rank of the communicator */
    struct hly_message_peer *next;
    int rank;
    uint32_t sent, came;   /* messages: numbers of the next ones */
    uint32_t given, taken; /* calls that move bytes, to that rank and from it: the next ones */
    uint32_t unreceived;   /* bytes in its window */
    uint32_t received;     /* bytes of its messages, for which it has got no CREDIT yet */
    struct hly_link ahead; /* messages that came before an earlier one, by at.near */
};

struct hly_messages {     /* of a communicator */
    struct hly_link link; /* context->messages */
    halay_comm_t *comm;
    struct hly_tags tags;
    struct hly_link offers; /* requests that send and are not done, by message.at.all; and
                               receives whose news had no memory */
    struct hly_link taken;  /* by the program, and not received: struct hly_early, by at.all */
    uint64_t ids;
    int asked; /* the rank that was asked last for a receive of any source */
    bool look; /* the clock has to look at `offers`: one was lost, or had no memory for its news */
    uint32_t npeers, mask;
    uint32_t window;                 /* bytes */
    struct hly_message_peer **peers; /* hash of ranks */
};

/* Makes comm->messages, if it is not made. */
int hly_messages_make(halay_comm_t *comm);
void hly_messages_free(halay_comm_t *comm);
int hly_message_peer_get(struct hly_messages *messages, int rank, struct hly_message_peer **peer);
/* Sends, to another rank: the request is complete, or will be. An error: nothing was sent. */
int hly_message_send(halay_request_t *request, int to, int tag, bool synchronous);
/* The same to this rank itself. */
int hly_message_send_itself(halay_request_t *request, int tag, bool synchronous);
/* Receives: takes the message that has come, or waits for it. */
void hly_message_receive(halay_request_t *request, int from, int tag);
/* Do so many bytes have room in the receive, and does it take elements of this type? */
bool hly_message_fits(const halay_request_t *request, uint64_t bytes, uint8_t type);
/* This request gets that message, which is in no table any more. */
void hly_message_match(halay_request_t *request, struct hly_early *message);
/* The bytes of a message that was here are used up. */
void hly_message_credit(struct hly_messages *messages, int rank, uint64_t bytes);
void hly_message_complete(halay_request_t *request, int result);
/* The transport is off the memory of a short message. */
void hly_message_left(halay_request_t *request, int status);
/* How many messages this rank has sent to that one, and how many have come from there. */
uint32_t hly_message_sent(const struct hly_messages *messages, int rank);
uint32_t hly_message_came_from(const struct hly_messages *messages, int rank);
/* Has this offer of that rank come, and is it not received yet? */
bool hly_message_is_offered(const struct hly_messages *messages, int rank, uint64_t id);
/* A message of kind HLY_MESSAGE has come, from this rank. */
void hly_message_came(halay_comm_t *comm, const struct hly_header *header, const void *data,
                      size_t bytes);

#endif
