/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.h - before a call returns success: have other ranks ended it with an error meanwhile? A
 * rank that calls late, or was stopped, finds the data of all others in its queues, and after them
 * their NEWS that the call fails. So if a rank has read nothing for long, its call waits until
 * run/progress.c has read all messages that have come. docs/decisions/agreements.md#0005.
 */
#ifndef HLY_LISTEN_H
#define HLY_LISTEN_H

#include "base/context.h"

#define HLY_LISTEN_NS 100000000 /* shorter than any agreement that the clock ends */

/* Compares context->now_ns, which every call and every wait sets. */
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
