/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.h - before a call ends well: have others given it up meanwhile? A rank that comes late, or
 * was stopped, finds the messages of all others there, and after them their alarms. So if it has
 * read nothing for long, its call waits until run/progress.c has read all that came.
 * docs/decisions/agreements.md#0005.
 */
#ifndef HLY_LISTEN_H
#define HLY_LISTEN_H

#include "base/context.h"

#define HLY_LISTEN_NS 100000000 /* less than an agreement takes that ends by time */

/* Judged by context->now_ns, which every call and every wait sets. */
static inline bool hly_exec_has_to_listen(const halay_context_t *context)
{
    return (int64_t)(context->now_ns - context->listened_ns) > HLY_LISTEN_NS &&
           context->ntransports;
}

static inline void hly_exec_listen(halay_context_t *context)
{
    context->listening = true;
    hly_wake(context);
}

#endif
