/* SPDX-License-Identifier: Apache-2.0 */
/* relaxed.c - relaxed broadcasts: relaxed.h. */
#include "exec/relaxed.h"

#include "exec/exec.h"
#include "select/select.h"

static bool can(const halay_comm_t *comm, const struct hly_call_desc *desc)
{
    return desc->collective == HALAY_BROADCAST && !(desc->flags & HLY_CALL_PAIR) &&
           comm->nnodes < 2 && comm->nranks > 1 && comm->nranks <= HLY_RELAXED_RANKS;
}

/* Is a call with this signature equal to the broadcast right before it? */
static bool goes_on(const halay_comm_t *comm, uint64_t signature)
{
    const struct hly_relaxed_state *s = &comm->relaxed;
    return s->signature == signature && s->next == comm->next_sequence;
}

static void count(halay_comm_t *comm, const struct hly_call_desc *desc, uint64_t signature)
{
    struct hly_relaxed_state *s = &comm->relaxed;
    if (!can(comm, desc))
        return;
    if (s->next != comm->next_sequence)
        s->first = comm->next_sequence;
    else if (comm->next_sequence - s->first >
             INT32_MAX / 2) /* sequence numbers wrap; keep it older than all */
        s->first = comm->next_sequence - HLY_SLOTS;
    s->n = goes_on(comm, signature) ? s->n + 1 : 0;
    s->asked &= s->n > 0;
    s->signature = signature;
    s->next = comm->next_sequence + 1;
}

/* Is there a plan for a relaxed call? Looks once in a series of equal calls. */
static bool has_plan(halay_comm_t *comm, const struct hly_call *call)
{
    struct hly_relaxed_state *s = &comm->relaxed;
    char reason[192];
    uint32_t planner;
    if (!s->asked)
        s->planned = !hly_select(comm, call, &planner, reason, sizeof(reason)) &&
                     halay_planner_get(planner)->restrictions & HALAY_PLANNER_RELAXED;
    s->asked = true;
    return s->planned;
}

void hly_relaxed_post(halay_comm_t *comm, struct hly_call *call, bool wrong)
{
    if (wrong) {
        comm->relaxed.signature = 0;
        return;
    }
    const uint64_t signature = call->signature;
    const bool next = goes_on(comm, signature) && (comm->relaxed.n + 1) % HLY_RELAXED_PERIOD;
    count(comm, &call->desc, signature);
    if (!next || (comm->nccl && call->desc.memory == HALAY_MEMORY_CUDA))
        return; /* who does group steps decides on a plan: not all ranks may know it yet */
    call->desc.flags |= HLY_CALL_RELAXED;
    if (has_plan(comm, call))
        call->signature ^= HLY_RELAXED_SIGN;
    else
        call->desc.flags &= (uint8_t)~HLY_CALL_RELAXED;
}

bool hly_relaxed_follows(const halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_relaxed_state *s = &comm->relaxed;
    return comm->relaxed_hint && (int32_t)(sequence - s->first) > 0 &&
           (int32_t)(sequence - s->next) <= 0;
}

/* ---------------------------------------------------------------- the end */

bool hly_relaxed_is_open(const halay_comm_t *comm)
{
    return comm->acked != comm->oldest && comm->oldest == comm->next_sequence && !comm->broken.is;
}

static void say(halay_comm_t *comm, int to, bool answer)
{
    hly_control_send(comm, to, HLY_LEAVE, comm->next_sequence - 1, answer, 0, NULL, NULL, 0);
}

void hly_relaxed_ask(halay_comm_t *comm, int rank)
{
    say(comm, rank, false);
}

void hly_relaxed_answer(halay_comm_t *comm)
{
    struct hly_relaxed_state *s = &comm->relaxed;
    if ((int32_t)(comm->oldest - s->last) <= 0)
        return;
    for (; s->asks; s->asks &= s->asks - 1)
        say(comm, __builtin_ctzll(s->asks), true);
}

void hly_relaxed_leave(halay_comm_t *comm, const struct hly_header *h)
{
    if (h->edge) {
        comm->relaxed.ended |= UINT64_C(1) << h->from % HLY_RELAXED_RANKS;
        return;
    }
    comm->relaxed.asks |= UINT64_C(1) << h->from % HLY_RELAXED_RANKS;
    comm->relaxed.last = h->sequence;
    hly_relaxed_answer(comm);
}

void hly_relaxed_free(halay_comm_t *comm)
{
    for (int r = 0; hly_relaxed_is_open(comm) && r < comm->nranks; r++)
        if (r != comm->rank)
            say(comm, r, true);
}

bool hly_relaxed_waits_for(const halay_comm_t *comm, int rank)
{
    return rank != comm->rank && !(comm->relaxed.ended >> rank & 1) &&
           !hly_peer_is_dead(comm, rank);
}
