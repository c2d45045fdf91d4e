/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rendezvous.h - messages longer than the eager limit: the receiver announces a target, and the
 * message goes there. And how a target is withdrawn.
 */
#ifndef HLY_RENDEZVOUS_H
#define HLY_RENDEZVOUS_H

#include "wire/endpoint.h"

#define HLY_TARGETS_MAX 65536

/* Where an announced message goes. Its index and generation travel as cookie and as immediate. */
struct hly_target {
    halay_request_t *request; /* NULL: free */
    struct hly_peer *peer;
    uint32_t step;
    uint16_t generation;
    uint8_t mode;            /* enum hly_mode */
    bool revoking;           /* the call has failed; REVOKE is sent, REVOKED has not come */
    bool tag_posted;         /* TAGGED: the buffer is posted with the transport */
    bool sent;               /* REVOKED has come; TAGGED: but the bytes may still be coming */
    halay_mem_t *mem;        /* registered for it alone */
    struct hly_range *range; /* or the entry of the registration cache that it lies in */
    uint32_t next_free;
};

/* hly_step_send(), where the transport cannot take the message as it is. request->header is that of
 * its message. */
int hly_rendezvous_send(halay_request_t *request, uint32_t step);
/* Starts a RECV step: tells its sender where the message goes. */
void hly_rendezvous_announce(halay_request_t *request, uint32_t step);
/* Its receiver has announced the message of a SEND step. */
void hly_rendezvous_announced(halay_request_t *request, uint32_t step,
                              const struct hly_header *header, const struct hly_ready *ready);

/* Something has come for a target: a piece of a staged message (false: its target is closed); a
 * put; bytes in a posted buffer. */
bool hly_target_piece(halay_context_t *context, const struct hly_header *header, const void *data,
                      size_t bytes, const struct hly_peer *peer);
void hly_target_put(halay_context_t *context, uint32_t immediate, halay_peer_id_t peer);
void hly_target_landed(halay_context_t *context, uint64_t cookie, int status, size_t bytes);

/* ---------------------------------------------------------------- withdrawing */

/* The call has failed: cancels messages that the transport does not hold, and revokes targets. */
void hly_rendezvous_withdraw(halay_request_t *request, const struct hly_verdict_wire *verdict);
/* The same without asking anyone, when the time for asking is over. */
void hly_rendezvous_force(halay_request_t *request);
/* Answers a REVOKE, now or when the transport is off the memory. request: NULL if it has ended. */
void hly_rendezvous_revoke(halay_comm_t *comm, halay_request_t *request,
                           const struct hly_header *header);
/* A REVOKED has come. */
void hly_rendezvous_revoked(halay_context_t *context, const struct hly_header *header,
                            const struct hly_peer *peer);
void hly_targets_peer_lost(halay_context_t *context, const struct hly_peer *peer);

/* Does the receiver of so many bytes announce itself? In a device's memory always, so that they are
 * put. */
static inline bool hly_is_announced(const halay_request_t *r, uint32_t step, size_t bytes)
{
    return bytes > r->plan->peers[step]->transport->unannounced_bytes || (r->direct && bytes);
}

#endif
