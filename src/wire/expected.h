/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expected.h - the expected message: the eager one that a call waits for next. It is known bit for
 * bit before it comes, so that comparing one cache line takes the place of matching.
 */
#ifndef HLY_EXPECTED_H
#define HLY_EXPECTED_H

#include "wire/endpoint.h"

/* Is this its header and its sender? All of them with a single branch. */
static inline bool hly_expected_is(const struct hly_expected *e, halay_peer_id_t from,
                                   const void *header)
{
    uint64_t other = 0;
#pragma GCC unroll 8
    for (size_t at = 0; at < sizeof(e->header); at += sizeof(uint64_t)) {
        uint64_t came, mine;
        memcpy(&came, (const char *)header + at, sizeof(came));
        memcpy(&mine, (const char *)&e->header + at, sizeof(mine));
        other |= came ^ mine;
    }
    other |= (from.lo ^ e->from.lo) | (from.hi ^ e->from.hi);
    return !other;
}

/* Is this event the expected message, of which there is one? */
static inline bool hly_expected_came(const struct hly_expected *e, const halay_event_t *event)
{
    return (event->kind == HALAY_EVENT_MESSAGE || event->kind == HALAY_EVENT_LENT) &&
           event->bytes == e->bytes + sizeof(e->header) &&
           hly_expected_is(e, event->peer, event->data);
}

/* The eager message of this RECV step, which has started, becomes the expected one. */
void hly_expect(halay_request_t *request, uint32_t step);
/* No message is expected, and what is kept for the next one is not valid. */
static inline void hly_expected_forget(halay_request_t *r)
{
    r->expected.step = r->expected.kept = HALAY_STEP_NONE;
}

/* What has become of bytes that came: */
enum hly_landed {
    HLY_LANDED_NOTHING, /* they were lent and recalled: the call has failed at their sender */
    HLY_LANDED_PART,    /* more are to come */
    HLY_LANDED_ALL,
    HLY_LANDED_REDUCED /* all, and the reduction that alone reads them is done too */
};

/* Takes in the payload of the message that is expected. */
enum hly_landed hly_land_expected(halay_request_t *request, const struct hly_transport *transport,
                                  const halay_event_t *event);
/* Takes in some bytes of a STARTED step's message, eager or staged. */
enum hly_landed hly_land(halay_request_t *request, uint32_t step, uint64_t offset, const void *data,
                         size_t bytes);
/* Gives the payload of a LENT event back, after it was read in the sender's memory. false: the
 * sender had recalled it, so what was read must not be used. */
bool hly_lent_release(halay_context_t *context);

#endif
