/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.h - messages of tiles that have not begun: what a rank sends first, it sends some tiles
 * before it is there, so that nobody waits for the other, and what is copied into the transport's
 * memory for a later tile is read while this one's result is written. docs/decisions/0038.
 *
 * Invariant: tiles.sent is at most HLY_AHEAD beyond tiles.number + 1, and the messages of `ahead`
 * of all tiles in between have gone.
 */
#ifndef HLY_AHEAD_H
#define HLY_AHEAD_H

#include "core.h"
#include "device/device_builtin.h"

#define HLY_AHEAD 2 /* tiles */
/* A message may be of so many tiles after the receiver's: a rank that has sent HLY_AHEAD ahead lets
 * its peer end these, so that it is in the one behind them, and has sent ahead itself. */
#define HLY_AHEAD_SEEN (2 * HLY_AHEAD + 1)

/* Which step that is; in the order of straight.c, which has been found. */
void hly_ahead_find(struct hly_plan *plan);

/* As hly_reduce_lying(); the next message that can go ahead is copied meanwhile, and goes. */
bool hly_ahead_reduce(halay_request_t *request, uint32_t step, uint32_t reduction,
                      const void *data);
/* What should have gone before this tile's first message is waited for. */
void hly_ahead_fill(halay_request_t *request);
/* Has this step's message gone before its tile began? */
static inline bool hly_ahead_sent(const halay_request_t *r, uint32_t step)
{
    return step == r->plan->ahead && r->tiles.sent > r->tiles.number;
}
/* Is what this step lends not written before the call ends? Then the step need not wait for it. */
bool hly_ahead_holds(const halay_request_t *request, uint32_t step);
/* Is a message with these low bits of a tile's number of this tile, or of one not far after it? */
static inline uint32_t hly_ahead_of(const halay_request_t *r, uint16_t tile)
{
    return (uint16_t)(tile - r->tiles.number);
}

#endif
