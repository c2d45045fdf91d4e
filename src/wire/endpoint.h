/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endpoint.h - transports, peers, and what is sent to them.
 *
 * wire/ calls nobody above it. What concerns the executor or the agreement on errors it leaves as
 * news (news.h), which hly_hand_on() of run/ hands on.
 */
#ifndef HLY_ENDPOINT_H
#define HLY_ENDPOINT_H

#include <halay/transport.h>

#include "wire/request.h"

static_assert(sizeof(struct hly_consensus_wire) <= sizeof(struct hly_verdict_wire),
              "control messages have room for it");

#define HLY_TRANSPORTS 2 /* inside the node, between nodes */

/* An open transport. The bootstrap's node table decides which one reaches a rank, so both ends of a
 * pair take the same. */
struct hly_transport {
    const halay_transport_ops_t *ops;
    halay_transport_t *handle;
    halay_transport_attr_t attr; /* as queried; eager_bytes: at most one message's payload */
    size_t unannounced_bytes;    /* eager limit: in one message or several */
    halay_traffic_t traffic;
    struct hly_hello hello; /* the first message to each peer */
};

struct hly_peer { /* another process; lives as long as the context */
    struct hly_peer *hash_next;
    halay_peer_id_t id;
    int world_rank;
    struct hly_transport *transport; /* the one that reaches it. Constant */
    halay_ep_t *ep;                  /* on that transport; NULL: severed */
    bool greeted;                    /* the hello was sent, and it is not dead */
    bool dead;
    bool explained;          /* it has said why it leaves: evidence, fault/leave.h */
    bool refused;            /* dead, since this rank has no memory for its connection */
    bool cut;                /* dead, since its host acknowledges nothing any more */
    bool left_out;           /* alive perhaps, but its communicators have gone on without it */
    uint64_t alarm;          /* context->alarms when it was last told of a failure */
    struct hly_link queue;   /* hly_send that the transport has not taken yet */
    struct hly_link waiting; /* in context->busy_peers while queue is not empty */
    char evidence[256];      /* why it is dead */
    halay_process_t process; /* as the bootstrap or its hello says; space 0: not known */
};

enum hly_send_kind {
    HLY_SEND_CONTROL,
    HLY_SEND_EAGER,
    HLY_SEND_STAGED,
    HLY_SEND_PUT,
    HLY_SEND_TAGGED,
    HLY_SEND_DEVICE,
    HLY_SEND_GROUP
};

/* A message that the transport has not taken or not finished yet; or a piece of work of a device,
 * or a group step. */
struct hly_send {
    struct hly_link link; /* peer->queue, request->flying, context->sends_flying or _unused */
    enum hly_send_kind kind;
    struct hly_peer *peer;
    halay_request_t *request; /* NULL: control */
    uint32_t step;
    struct hly_header header;
    struct hly_extent extent[2];
    uint64_t sent_bytes; /* STAGED, EAGER: taken so far */
    uint32_t flying;     /* transport completions to come */
    int status;          /* of a completion that was an error */
    uint64_t since_ns;   /* DEVICE: when it was launched; GROUP: or when its step was started */
    struct hly_device *device;
    struct hly_local *local;       /* DEVICE: whose it is, if it is no call's */
    halay_request_t *message;      /* EAGER: of a message with a tag; request is NULL then */
    struct hly_device_comm *dcomm; /* GROUP: on which it was launched; NULL: it waits */
    uint8_t lane;  /* DEVICE: which copy of staged buffers, + 1: exec/staging.h; 0: none */
    bool accepted; /* the transport has taken all of it */
    bool held;     /* its step is done: only the end of the call waits for it */
    bool revoke;   /* PUT, TAGGED: answer REVOKED when it is complete */
    uint64_t revoke_cookie;
    struct hly_ready ready; /* PUT, TAGGED */
    uint32_t payload_bytes; /* CONTROL: of the payload that follows in `payload` */
    unsigned char payload[sizeof(struct hly_verdict_wire)];
};

/* ---------------------------------------------------------------- peer.c */

halay_peer_id_t hly_peer_id(const halay_context_t *context, int world_rank);
struct hly_peer *hly_peer_find(const halay_context_t *context, halay_peer_id_t id);
/* The peer of this rank; connects to it at first. */
int hly_peer_get(halay_context_t *context, int world_rank, struct hly_peer **peer);
/* The transport has lost a peer, which may have called without being known here. Leaves LOST, once
 * a peer. HALAY_ENOMEM: it was this end that had no memory for it; HALAY_ETIMEOUT: the link is cut.
 */
void hly_peer_failed(halay_context_t *context, halay_peer_id_t id, int status, const char *text);
/* Gives the peer up: all messages to and from it end with the next polls. Leaves LOST. */
void hly_peer_sever(halay_context_t *context, struct hly_peer *peer, const char *text);
/* If it is dead: what its transport has kept for it. */
void hly_peer_give_back(halay_context_t *context, int world_rank);
/* It has sent what no rank of this build sends: it is lost from now on, and its verdict says so. */
void hly_peer_nonsense(halay_context_t *context, struct hly_peer *peer, const char *what);
bool hly_peer_is_dead(const halay_comm_t *comm, int rank);
/* The transport that reaches this world rank; *place: where that is. place may be NULL. */
struct hly_transport *hly_transport_of(const halay_context_t *context, int world_rank,
                                       halay_place_t *place);

/* ---------------------------------------------------------------- send.c */

/* The one that hly_send_new() will give next, so that its address can serve as cookie before it is
 * needed. NULL: no memory. */
struct hly_send *hly_send_next(halay_context_t *context);
struct hly_send *hly_send_new(halay_context_t *context, enum hly_send_kind kind,
                              struct hly_peer *peer);
void hly_send_free(halay_context_t *context, struct hly_send *send);
/* Takes it off its peer's queue. If some of it is with the transport it ends when that has come
 * back. */
void hly_send_cancel(halay_context_t *context, struct hly_send *send);
/* Hands it to the transport, or queues it. HALAY_OK: it is complete; HALAY_INPROGRESS: news will
 * tell. */
int hly_send_submit(halay_context_t *context, struct hly_send *send);
/* Its last completion has come. */
void hly_send_complete(halay_context_t *context, struct hly_send *send, int status);
/* Hands queued messages to their transports, as far as these take them. */
void hly_send_flush(halay_context_t *context);
/* Starts a SEND step. HALAY_OK: it is done; HALAY_INPROGRESS: news will tell, also of failure. */
int hly_step_send(halay_request_t *request, uint32_t step);
void hly_header_fill(struct hly_header *header, const halay_comm_t *comm, enum hly_kind kind,
                     uint32_t sequence, uint32_t edge, const struct hly_call *call);
/* Sends a message without data of the user; payload is copied. It is queued if need be; what cannot
 * be sent is logged: HALAY_ENOMEM, or what connecting the peer says. */
int hly_control_send(halay_comm_t *comm, int to, enum hly_kind kind, uint32_t sequence,
                     uint32_t edge, uint64_t cookie, const struct hly_call *call,
                     const void *payload, size_t payload_bytes);
/* Answers a QUERY of a communicator that this rank has not made. */
void hly_control_reply(halay_context_t *context, struct hly_peer *to,
                       const struct hly_header *query, uint32_t edge, uint64_t cookie,
                       const void *payload, size_t payload_bytes);

#endif
