/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - writes how far the calls under way are into the flight record. A thread does this when
 * it is about to sleep or checks deadlines, never while a call makes progress. */
#include "exec/record.h"

#include <stdlib.h>

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

/* ---------------------------------------------------------------- where the program waits */

static void record_place(halay_context_t *context, const struct hly_waited *w, uint64_t ended_ns)
{
    const halay_request_t *r = w->request;
    halay_record_place_t place = {.comm = w->comm->id,
                                  .began_ns = w->since_ns,
                                  .ended_ns = ended_ns,
                                  .in = HALAY_RECORD_IN_PROBE,
                                  .rank = w->from,
                                  .tag = w->tag};
    if (r && !r->message.is) {
        place.in = HALAY_RECORD_IN_CALL;
        place.call = r->recorded / 2;
        place.rank = -1;
    } else if (r) {
        place.in = r->message.is == HLY_MESSAGE_SEND ? HALAY_RECORD_IN_SEND : HALAY_RECORD_IN_RECV;
        place.bytes = r->message.bytes;
    }
    place.peer = place.rank < 0 ? -1 : hly_comm_world_rank(w->comm, place.rank);
    if (w->name)
        memcpy(place.name, w->name, strnlen(w->name, sizeof(place.name)));
    hly_record_place(context, &place, w->number);
}

void hly_waited_begin(halay_context_t *context, struct hly_waited *w)
{
    struct hly_waited **end = &context->waiters.waited;
    const halay_request_t *r = w->request;
    if (r) {
        w->comm = r->comm;
        w->from = r->message.is ? r->message.at.source : HLY_ANY;
        w->tag = r->message.is ? r->message.at.tag : HLY_ANY;
        w->deadline_ns = r->deadline_ns;
    }
    w->next = NULL;
    w->why = NULL;
    w->since_ns = hly_about_now_ns();
    w->name = context->waiters.name ? context->waiters.name() : NULL;
    context->waiters.waits += context->waiters.waits == UINT32_MAX ? 2 : 1;
    w->number = context->waiters.waits;
    while (*end)
        end = &(*end)->next;
    *end = w;
    record_place(context, w, 0);
}

void hly_waited_end(halay_context_t *context, struct hly_waited *w)
{
    struct hly_waited **at = &context->waiters.waited;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    free(w->why);
    record_place(context, w, hly_about_now_ns());
}

halay_record_stack_t *hly_record_sleep(halay_context_t *context)
{
    const uint64_t now_ns = hly_about_now_ns();
    bool long_since = false;
    hly_record_waits(context, 0, 0);
    hly_record_sleeps(&context->record, 1);
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = l->next)
        long_since |= now_ns - HLY_OF(l, halay_request_t, link)->started_ns >= STACK_NS;
    if (context->waiters.waited) /* a message is in no list of requests */
        long_since |= now_ns >= context->waiters.waited->since_ns + STACK_NS;
    return long_since ? hly_record_stack(&context->record) : NULL;
}

void hly_record_woken(halay_context_t *context, halay_record_stack_t *stack)
{
    hly_record_sleeps(&context->record, -1);
    if (stack && stack->thread == hly_thread_id()) /* else another thread uses the slot now */
        __atomic_store_n(&stack->over, 1, __ATOMIC_RELAXED);
}
