/* SPDX-License-Identifier: Apache-2.0 */
/* series.c - broadcasts whose root does not wait: series.h. */
#include "series.h"

#include "core.h"

#define RANKS_MOST 64 /* bits of `told` */
#define SLEEP_NS   1000000

static bool can(const halay_comm_t *comm, const struct hly_brief *brief)
{
    return brief->collective == HALAY_BROADCAST && !(brief->flags & HLY_BRIEF_PAIR) &&
           comm->nnodes < 2 && comm->nranks > 1 && comm->nranks <= RANKS_MOST;
}

void hly_series_count(halay_comm_t *comm, const struct hly_brief *brief, uint64_t signature)
{
    struct hly_series *s = &comm->series;
    if (!can(comm, brief))
        return;
    if (s->next != comm->next_sequence)
        s->first = comm->next_sequence;
    s->n = hly_series_goes_on(s, comm->next_sequence, signature) ? s->n + 1 : 0;
    s->signature = signature;
    s->next = comm->next_sequence + 1;
}

static bool is_last(const halay_comm_t *comm, const struct hly_call *call)
{
    struct hly_brief plain = call->brief;
    plain.flags &= (uint8_t)~HLY_BRIEF_SERIES;
    return comm->last_plan && hly_brief_equal(&plain, &comm->last_brief);
}

/* Does the planner of such a call make use of it? */
static bool has_plan(halay_comm_t *comm, const struct hly_call *call)
{
    char reason[192];
    uint32_t planner;
    bool last = is_last(comm, call);
    if (last && comm->last_series)
        return comm->last_series != comm->last_plan;
    bool has = !hly_select(comm, call, &planner, reason, sizeof(reason)) &&
               halay_planner_get(planner)->restrictions & HALAY_PLANNER_SERIES;
    if (!has && last)
        comm->last_series = comm->last_plan;
    return has;
}

void hly_series_post(halay_comm_t *comm, struct hly_call *call, bool wrong)
{
    if (wrong) {
        comm->series.signature = 0;
        return;
    }
    const uint64_t signature = call->signature;
    const bool next = hly_series_next(&comm->series, comm->next_sequence, signature);
    hly_series_count(comm, &call->brief, signature);
    if (!next)
        return;
    call->brief.flags |= HLY_BRIEF_SERIES;
    if (has_plan(comm, call))
        call->signature ^= HLY_SERIES_SIGN;
    else
        call->brief.flags &= (uint8_t)~HLY_BRIEF_SERIES;
}

int hly_series_plan(halay_comm_t *comm, const struct hly_call *call, struct hly_plan **plan,
                    char *reason, size_t reason_bytes)
{
    uint32_t planner;
    const bool last = is_last(comm, call);
    *plan = last ? comm->last_series : NULL;
    if (*plan)
        return HALAY_OK;
    int rc = hly_select(comm, call, &planner, reason, reason_bytes);
    if (!rc)
        rc = hly_plan_admit(comm, planner, call, plan, reason, reason_bytes);
    if (last && comm->last_plan) /* it may have been forgotten for this one */
        comm->last_series = *plan;
    return rc;
}

/* ---------------------------------------------------------------- failures, and the end */

bool hly_series_follows(const halay_comm_t *comm, uint32_t sequence)
{
    const struct hly_series *s = &comm->series;
    return (int32_t)(sequence - s->first) > 0 && (int32_t)(sequence - s->next) <= 0;
}

void hly_series_doubt(halay_request_t *r)
{
    if (!(r->call.brief.flags & HLY_BRIEF_SERIES) || r->doubts || r->state != HLY_RUNNING)
        return;
    r->doubts = true;
    for (uint32_t i = 0; i < r->plan->plan->nsteps; i++) {
        const halay_step_t *s = &r->plan->plan->steps[i];
        if (s->kind == HALAY_STEP_RECV && r->run[i].state == HLY_STARTED)
            hly_control_send(r->comm, (int)s->peer, HLY_DOUBT, r->sequence, 0, 0, &r->call, NULL,
                             0);
    }
}

void hly_series_failed(halay_comm_t *comm, uint32_t sequence, struct hly_verdict_wire *v)
{
    if (!v->of)
        v->of = (uint64_t)sequence + 1;
    if (comm->broken)
        return;
    comm->broken = true;
    comm->broken_by = *v;
    comm->series.late = true;
    hly_fault_tell(comm, sequence, v, HLY_WARN);
    for (uint32_t s = comm->oldest; s != comm->started; s++)
        if (comm->slots[s % HLY_SLOTS].request)
            hly_fault_raise(comm, s, v);
}

/* All calls have ended here, but perhaps not everywhere. */
static bool is_open(const halay_comm_t *comm)
{
    return comm->heard != comm->oldest && comm->oldest == comm->next_sequence && !comm->broken;
}

static void say(halay_comm_t *comm, uint32_t to, bool answer)
{
    hly_control_send(comm, (int)to, HLY_LEAVE, comm->next_sequence - 1, answer, 0, NULL, NULL, 0);
}

void hly_series_answer(halay_comm_t *comm)
{
    struct hly_series *s = &comm->series;
    if ((int32_t)(comm->oldest - s->last) <= 0)
        return;
    for (; s->asks; s->asks &= s->asks - 1)
        say(comm, (uint32_t)__builtin_ctzll(s->asks), true);
}

void hly_series_leave(halay_comm_t *comm, const struct hly_header *h)
{
    if (h->edge) {
        comm->series.told |= UINT64_C(1) << h->from % RANKS_MOST;
        return;
    }
    comm->series.asks |= UINT64_C(1) << h->from % RANKS_MOST;
    comm->series.last = h->sequence;
    hly_series_answer(comm);
}

void hly_series_free(halay_comm_t *comm)
{
    for (int r = 0; is_open(comm) && r < comm->nranks; r++)
        if (r != comm->rank)
            say(comm, (uint32_t)r, true);
}

static bool is_waited_for(const halay_comm_t *comm, int rank)
{
    return rank != comm->rank && !(comm->series.told >> rank & 1) && !hly_fault_is_dead(comm, rank);
}

static int next_waited_for(const halay_comm_t *comm)
{
    int rank = 0;
    while (rank < comm->nranks && !is_waited_for(comm, rank))
        rank++;
    return rank;
}

static void await(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    const uint64_t until = hly_now_ns() + comm->deadline_ns;
    while (is_open(comm) && next_waited_for(comm) < comm->nranks && !ctx->lost &&
           hly_now_ns() < until)
        if (hly_progress(ctx) == 0)
            hly_sleep(ctx, SLEEP_NS);
    if (is_open(comm) && next_waited_for(comm) < comm->nranks)
        hly_log(ctx, HLY_WARN,
                "halay_finalize: rank %d has not ended call %u on a communicator, a broadcast, by "
                "the deadline; this rank leaves all the same",
                next_waited_for(comm), comm->next_sequence - 1);
}

int hly_series_end(halay_context_t *context)
{
    struct hly_link *const lists[2] = {&context->comms, &context->freed_comms};
    int rc = HALAY_OK;
    for (int i = 0; i < 2; i++)
        for (struct hly_link *l = lists[i]->next; l != lists[i]; l = l->next) {
            halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
            for (int r = 0; is_open(comm) && r < comm->nranks; r++)
                if (is_waited_for(comm, r))
                    say(comm, (uint32_t)r, false);
        }
    for (int i = 0; i < 2; i++)
        for (struct hly_link *l = lists[i]->next; l != lists[i]; l = l->next) {
            halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
            await(comm);
            if (comm->series.late && !rc)
                rc = comm->broken_by.code;
        }
    return rc;
}
