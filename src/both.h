/* SPDX-License-Identifier: Apache-2.0 */
/*
 * both.h - a large allreduce of two ranks of a node whose memory each can reach: of every tile each
 * of them reduces one half, into both results. docs/decisions/0044 says why, and why nobody writes
 * after an error.
 *
 *   ROOM    at the start of the call: my result lies here
 *   promise in the header of a tile's message: I have your ROOM, and do my half for both of us
 *   FILLED  at its end: I write there no more
 *
 * Invariant: a tile is shared if both have promised it, which each knows before it reduces it: its
 * own promise has gone with its message, the other's has come with the other's. Who has promised a
 * tile promises all whole ones after it, and who shares one ends its call when FILLED has come.
 */
#ifndef HLY_BOTH_H
#define HLY_BOTH_H

#include <stdbool.h>
#include <stdint.h>

#include <halay/halay.h>

#include "wire.h"

#define HLY_PROMISE (UINT64_C(1) << 63) /* in the offset of an eager message */

/* In a slot: what the peer has said of the call with this sequence. */
struct hly_room {
    uint32_t sequence;
    bool there, filled;
    struct hly_ready ready; /* as if it were of the whole result */
};

/* In a request: of this call. */
struct hly_both {
    bool offered, told, failed; /* ROOM and FILLED have gone; its memory could not be reached */
    uint32_t whole;             /* tiles, of which all lies in what is offered */
    uint32_t mine, theirs;      /* 1 + the first tile that is promised; 0: none */
};

/* The call starts. */
void hly_both_begin(halay_request_t *request);
/* For the header of this tile's message that goes ahead; and it has gone. */
uint64_t hly_both_promise(halay_request_t *request, uint32_t tile);
void hly_both_promised(halay_request_t *request, uint32_t tile);
/* The same for a message that does not go ahead; and what the other's has to show. */
uint64_t hly_both_mine(const halay_request_t *request);
uint64_t hly_both_theirs(const halay_request_t *request);
/* Before a message is compared with what it has to be: is it the first that promises? */
void hly_both_look(halay_request_t *request, const struct hly_header *header);
/* ROOM and FILLED. */
void hly_both_heard(halay_comm_t *comm, const struct hly_header *header, const void *data,
                    size_t bytes);
/* Is the tile that is laid out shared? Then: my half of it, `data` being what has come. */
bool hly_both_shares(const halay_request_t *request);
bool hly_both_reduce(halay_request_t *request, uint32_t step, uint32_t reduction, const void *data);
/* The tile's reduction is done for this rank alone: if it is shared, the call cannot end well. */
void hly_both_missed(halay_request_t *request);
/* All tiles are done: says so, once. Is there nothing to wait for? */
bool hly_both_end(halay_request_t *request);
/* Has it waited for that in vain so far? */
bool hly_both_waits(const halay_request_t *request);
/* The call has failed: whoever may still write into its result does so elsewhere from now on. */
void hly_both_withdraw(halay_request_t *request);

#endif
