/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call_cache.c - the last few calls of a communicator, each with its request, which is bound to a
 * plan and to memory. So the same call made again needs neither checks nor layout.
 *
 * A call with much scratch is not kept, since each entry would hold as much.
 *
 * Invariant: a cached request is IDLE or under way, and on no spare list. When its entry is
 * replaced it goes back to its plan's spare list.
 */
#include "exec/exec.h"

#define SCRATCH_MOST ((size_t)4 << 10)

struct hly_cached_call *hly_cache_find(halay_comm_t *comm, const struct hly_call_desc *desc,
                                       const void *in, const void *out)
{
    for (uint32_t i = 0; i < HLY_CACHED_CALLS; i++) {
        const uint32_t at = (comm->last_call + i) % HLY_CACHED_CALLS;
        struct hly_cached_call *c = &comm->calls[at];
        if (c->signature && c->in == in && c->out == out && hly_desc_equal(&c->desc, desc)) {
            comm->last_call = at;
            return c;
        }
    }
    return NULL;
}

static void forget(struct hly_cached_call *c)
{
    halay_request_t *r = c->request;
    c->signature = 0;
    c->request = NULL;
    if (!r)
        return;
    r->cached = false; /* if it is under way it is released later, as any other */
    if (r->state == HLY_IDLE)
        hly_request_spare(r);
}

void hly_cache_keep(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    const struct hly_call *call = &r->call;
    if (!r->bound || r->layout.scratch_bytes > SCRATCH_MOST || r->refused || r->persistent ||
        r->member_of || call->local_in_place || call->staged ||
        call->desc.flags & ~HLY_CALL_IN_PLACE ||
        hly_cache_find(comm, &call->desc, call->in, call->out))
        return;
    struct hly_cached_call *c = &comm->calls[comm->next_call];
    forget(c);
    *c = (struct hly_cached_call){call->desc, call->in, call->out, call->signature, r};
    r->cached = true;
    comm->last_call = comm->next_call;
    comm->next_call = (comm->next_call + 1) % HLY_CACHED_CALLS;
}

void hly_cache_forget(halay_comm_t *comm, const struct hly_plan *plan)
{
    for (uint32_t i = 0; i < HLY_CACHED_CALLS; i++)
        if (comm->calls[i].signature && (!plan || comm->calls[i].request->plan == plan))
            forget(&comm->calls[i]);
}
