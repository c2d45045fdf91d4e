/* SPDX-License-Identifier: Apache-2.0 */
/* take.h - handles an event of a transport; inline, for progress.c and waiting.c. */
#ifndef HLY_TAKE_H
#define HLY_TAKE_H

#include "exec/exec.h"
#include "run/run.h"
#include "wire/match.h"
#include "wire/news.h"

/* Handles an event. r: the call that waits for this message next, or NULL. */
static inline void hly_take(halay_context_t *context, const struct hly_transport *transport,
                            halay_request_t *r, const halay_event_t *event)
{
    if (!r) {
        hly_wire_take(context, transport, event);
    } else {
        const uint32_t step = r->expected.step;
        const enum hly_landed landed = hly_land_expected(r, transport, event);
        if (landed >= HLY_LANDED_ALL)
            hly_exec_landed(r, step, landed == HLY_LANDED_REDUCED);
    }
    if (hly_news_any(context))
        hly_hand_on(context);
}

#endif
