/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - writes how far the calls under way are into the flight record. A thread does this when
 * it is about to sleep or checks deadlines, never while a call makes progress. */
#include "exec/record.h"

#include "../../common/thread.h"

#define STACK_NS 200000000ull /* after so long a wait the thread's stack is recorded */

/* Records a step that has started, and the rank that it waits for. */
static void note_edge(const halay_request_t *r, uint32_t step, halay_record_wait_t *w)
{
    const halay_step_t *s = hly_step(r, step);
    const bool message = s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV;
    if (w->nedges == HALAY_RECORD_EDGES)
        return;
    w->edges[w->nedges++] = (halay_record_edge_t){
        step, s->kind, message ? hly_comm_world_rank(r->comm, (int)s->peer) : -1,
        message ? s->peer : HALAY_STEP_NONE, s->edge};
}

/* Does the slot have this state of the call already? Then its time is that of the first record. */
static bool is_noted(const halay_request_t *r, const halay_record_wait_t *slot)
{
    return slot->call == r->recorded / 2 && slot->ndone == r->run.ndone &&
           slot->segment == r->segments.number && slot->failed == (r->state != HLY_RUNNING);
}

void hly_record_wait(halay_request_t *r)
{
    struct hly_record *record = &r->context->record;
    halay_record_wait_t *slot = &record->map->waits[r->recorded / 2 % HALAY_RECORD_WAITS];
    const struct hly_plan *p = r->plan;
    if (!p || !r->run.ran || is_noted(r, slot))
        return;
    halay_record_wait_t w = {.call = r->recorded / 2,
                             .comm = r->comm->id,
                             .plan = p->hash,
                             .seen_ns = hly_about_now_ns(),
                             .sequence = r->sequence,
                             .planner = p->planner,
                             .root = p->root,
                             .in_place = p->in_place,
                             .nsteps = p->nsteps,
                             .ndone = r->run.ndone,
                             .segment = r->segments.number,
                             .nsegments = r->segments.n,
                             .failed = r->state != HLY_RUNNING};
    static_assert(HLY_STARTED == (int)HALAY_RECORD_STARTED && HLY_DONE == (int)HALAY_RECORD_DONE,
                  "they are two bits each");
    static_assert((int)HLY_CALL_IN_PLACE == HALAY_RECORD_IN_PLACE &&
                      (int)HLY_CALL_VECTOR == HALAY_RECORD_VECTOR &&
                      (int)HLY_CALL_PAIR == HALAY_RECORD_PAIR &&
                      (int)HLY_CALL_LIST == HALAY_RECORD_LIST &&
                      (int)HLY_CALL_GROUP == HALAY_RECORD_GROUP,
                  "tools read them");
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const uint8_t state = r->run.state[i];
        if (state == HLY_STARTED)
            note_edge(r, i, &w);
        if (i < HALAY_RECORD_STEPS && state >= HLY_STARTED)
            w.steps[i / 4] |= (uint8_t)(state << i % 4 * 2);
    }
    halay_record_write(slot, &w, sizeof(w), ++record->nwaits);
}

void hly_record_waits(halay_context_t *context, uint64_t now_ns, uint64_t least_ns)
{
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = l->next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        if (r->state == HLY_RUNNING && now_ns - r->started_ns >= least_ns)
            hly_record_wait(r);
    }
}

halay_record_stack_t *hly_record_sleep(halay_context_t *context)
{
    const uint64_t now_ns = hly_about_now_ns();
    bool long_since = false;
    hly_record_waits(context, 0, 0);
    hly_record_sleeps(&context->record, 1);
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = l->next)
        long_since |= now_ns - HLY_OF(l, halay_request_t, link)->started_ns >= STACK_NS;
    return long_since ? hly_record_stack(&context->record) : NULL;
}

void hly_record_woken(halay_context_t *context, halay_record_stack_t *stack)
{
    hly_record_sleeps(&context->record, -1);
    if (stack && stack->thread == hly_thread_id()) /* else another thread uses the slot now */
        __atomic_store_n(&stack->over, 1, __ATOMIC_RELAXED);
}
