/* SPDX-License-Identifier: Apache-2.0 */
/* match.h - which call a message belongs to; unexpected messages and orphans. */
#ifndef HLY_MATCH_H
#define HLY_MATCH_H

#include "wire/endpoint.h"
#include "wire/expected.h"

#define HLY_ORPHANS_MAX   65536
#define HLY_ORPHANS_BYTES (64u << 20)             /* all of them */
#define HLY_ORPHANS_SHARE (HLY_ORPHANS_BYTES / 4) /* those of one peer, once there are so many */

/* An unexpected message. */
struct hly_unexpected {
    struct hly_link link;
    halay_peer_id_t peer;
    struct hly_header header;
    uint64_t came_ns; /* of an orphan */
    size_t bytes;
    unsigned char data[] __attribute__((aligned(16)));
};

/* The call that waits for this message next, for hly_land_expected(); NULL: none does. */
halay_request_t *hly_expected_by(halay_context_t *context, const halay_event_t *event);
/* Handles one event of a transport, which is not such a message. */
void hly_wire_take(halay_context_t *context, const struct hly_transport *transport,
                   const halay_event_t *event);
/* A poll of the transport was an error. HALAY_ESTATE: the program has closed a descriptor, of the
 * transport or, where that is NULL, of some other part. */
void hly_wire_failed(halay_context_t *context, const struct hly_transport *transport, int rc);

/* The call starts: compares it with the messages that came before it, and delivers those that can
 * be used. false: the call has stopped. */
bool hly_unexpected_compare(halay_request_t *request);
/* The RECV step has started: takes in what of its message came before. */
enum hly_landed hly_unexpected_land(halay_request_t *request, uint32_t step);
void hly_unexpected_forget(struct hly_link *list);
/* The next orphan of a communicator that has just been made: match it, then free it. NULL: there
 * have ended. */
struct hly_unexpected *hly_orphan_take(halay_comm_t *comm);
void hly_orphan_match(halay_comm_t *comm, struct hly_unexpected *message);
/* The call of an orphan from this peer, which calls on a communicator that is not made here. NULL:
 * there is none. */
const struct hly_call_desc *hly_orphan_from(const halay_context_t *context, halay_peer_id_t peer);
/* Was an orphan of this communicator dropped for lack of room? */
bool hly_orphan_lost(const halay_context_t *context, uint64_t id);

#endif
