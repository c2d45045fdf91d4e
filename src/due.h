/* SPDX-License-Identifier: Apache-2.0 */
/*
 * due.h - the message that a straight call waits for: what it has to be, bit for bit, and what
 * comes of it.
 */
#ifndef HLY_DUE_H
#define HLY_DUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <halay/device.h>
#include <halay/plan.h>
#include <halay/transport.h>

#include "wire.h"

struct hly_due {
    struct hly_header header;
    halay_peer_id_t from;
    size_t bytes; /* without the header */
    char *place;
    uint32_t step, reduction; /* that alone reads what comes, and can be done then; or none */
    const halay_work_t *work; /* it can be done by hly_host_combine(); or NULL */
    bool left;                /* it is its left operand */
};

/* Without a branch a field. */
static inline bool hly_due_is(const struct hly_due *due, halay_peer_id_t from, const void *header,
                              size_t bytes)
{
    uint64_t other = bytes ^ due->bytes;
#pragma GCC unroll 8
    for (size_t at = 0; at < sizeof(due->header); at += sizeof(uint64_t)) {
        uint64_t came, mine;
        memcpy(&came, (const char *)header + at, sizeof(came));
        memcpy(&mine, (const char *)&due->header + at, sizeof(mine));
        other |= came ^ mine;
    }
    other |= (from.lo ^ due->from.lo) | (from.hi ^ due->from.hi);
    return !other;
}

static inline bool hly_due_came(const struct hly_due *due, const halay_event_t *e)
{
    const size_t header = sizeof(struct hly_header);
    return (e->kind == HALAY_EVENT_MESSAGE || e->kind == HALAY_EVENT_LENT) && e->bytes >= header &&
           hly_due_is(due, e->peer, e->data, e->bytes - header);
}

/* Nothing of what is kept holds any more. */
static inline void hly_due_forget(struct hly_due *due)
{
    due->step = HALAY_STEP_NONE;
}

#endif
