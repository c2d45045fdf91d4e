/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lend.h - messages whose payload stays in their sender's memory, which the receiver reads:
 * docs/decisions/0034.
 */
#ifndef HLY_LEND_H
#define HLY_LEND_H

#include <stdbool.h>

#include <halay/halay.h>

struct hly_way;
struct hly_ready;

/*
 * What lies in a peer's memory has been read: before anything is made of that, it is given back.
 * false: it may be anything, and whoever sent it has given its call up. Of all else, true.
 */
bool hly_channel_give_back(halay_context_t *context);
/* Is what lies there, of the program, lent by this transport, and not copied? */
bool hly_range_lends(const halay_context_t *context, const struct hly_way *way,
                     const void *address);
/* The key, in `ready`, of what lies there for ready->bytes. false: peers cannot reach it. */
bool hly_range_name(const halay_context_t *context, const struct hly_way *way, void *address,
                    struct hly_ready *ready);
/* New pages, whole ones, for what peers can reach there; they keep the old ones. */
void hly_range_part(halay_context_t *context, void *address, size_t bytes);
/* Decides what a call that starts has for scratch; true: not what it had. */
bool hly_scratch_take(halay_request_t *request);
/* What lies there was lent by this transport: no more, and all messages that lend it end. */
bool hly_range_recall(halay_context_t *context, const struct hly_way *way, const void *address);

#endif
