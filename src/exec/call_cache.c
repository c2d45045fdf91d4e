/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call_cache.c - keeps the last few calls of a communicator. Each entry has a request that is bound
 * to a plan and to memory, so the same call made again needs neither checks nor layout.
 *
 * The cache does not keep a call with much scratch, since each entry holds its scratch.
 *
 * Invariant: a cached request is IDLE or under way, on context->posted, and on no spare list. When
 * its entry is replaced it goes back to its plan's spare list.
 */
#include "exec/exec.h"

#define SCRATCH_MOST ((size_t)64 << 10)

void hly_request_spare(halay_request_t *r)
{
    r->next = r->plan->spare;
    r->plan->spare = r;
}

static void forget(struct hly_cached_call *c)
{
    halay_request_t *r = c->request;
    *c = (struct hly_cached_call){0};
    if (!r)
        return;
    r->cached = false; /* if the call is under way the request is released at its end */
    if (r->state != HLY_IDLE)
        return;
    hly_link_remove(&r->posted);
    hly_request_spare(r);
}

static uint64_t key_of(const struct hly_call_desc *d)
{
    return hly_call_key(d->collective, d->type, d->op, d->root, d->flags);
}

halay_request_t *hly_cache_relaxed(const halay_comm_t *comm, const struct hly_call *call)
{
    halay_request_t *r =
        hly_cache_find(comm, key_of(&call->desc), call->desc.count, call->in, call->out);
    const bool fits =
        r && r->state == HLY_IDLE && r->call.desc.memory == call->desc.memory && !comm->broken.is;
    return fits ? r : NULL;
}

void hly_cache_keep(halay_request_t *r)
{
    halay_comm_t *comm = r->comm;
    const struct hly_call *call = &r->call;
    const struct hly_call_desc *d = &call->desc;
    const uint64_t key = key_of(d);
    if (!r->bound || r->layout.scratch_bytes > SCRATCH_MOST || r->refused || r->persistent ||
        r->group.member_of || call->captured || hly_comm_returns(hly_comm_known(comm), d->memory) ||
        call->local_in_place || call->staged ||
        d->flags & ~(HLY_CALL_IN_PLACE | HLY_CALL_RELAXED) ||
        hly_cache_find(comm, key, d->count, call->in, call->out))
        return;
    struct hly_cached_call *c = &comm->calls[comm->next_call];
    forget(c);
    *c = (struct hly_cached_call){key, d->count, call->in, call->out, r};
    r->cached = true;
    comm->next_call = (comm->next_call + 1) % HLY_CACHED_CALLS;
}

void hly_cache_forget(halay_comm_t *comm, const struct hly_plan *plan)
{
    for (uint32_t i = 0; i < HLY_CACHED_CALLS; i++)
        if (comm->calls[i].request && (!plan || comm->calls[i].request->plan == plan))
            forget(&comm->calls[i]);
}
