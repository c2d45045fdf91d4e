/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - progress: polling, and handing news on. docs/threads.md. Any thread that waits makes
 * progress for all of its context, one at a time, under the mutex.
 */
#include <stdlib.h>

#include "exec/device_comm.h"
#include "exec/exec.h"
#include "exec/listen.h"
#include "exec/record.h"
#include "exec/relaxed.h"
#include "exec/work.h"
#include "fault/fault.h"
#include "fault/stall.h"
#include "fault/survivors.h"
#include "run/group.h"
#include "run/group_library.h"
#include "run/pair.h"
#include "run/run.h"
#include "run/take.h"
#include "wire/match.h"
#include "wire/news.h"

#define LISTEN_POLLS 16          /* in a row without an event: all was read */
#define LISTEN_MOST  4096        /* polls in all */
#define TIMER_NS     1000000ull  /* how often deadlines are checked */
#define RECORD_NS    10000000ull /* calls under way for so long are recorded then */

/* ---------------------------------------------------------------- news */

/* A call has failed here: the agreement on its verdict begins. */
static void hand_failure(const struct hly_news *n)
{
    halay_request_t *r = n->request;
    if (r->state != HLY_STOPPED)
        return; /* the call fails already, by a message from another rank */
    switch (n->kind) {
    case HLY_NEWS_REFUSED:
        hly_fault_begin(r);
        return;
    case HLY_NEWS_MISMATCH:
        hly_fault_mismatch(r, &n->header);
        return;
    case HLY_NEWS_MISFIT:
        hly_fault_misfit(r, n->step, &n->header, (uint64_t)n->value, n->other);
        return;
    default:
        hly_fault_local(r, (int)n->value, n->text);
    }
}

static void hand_call(const struct hly_news *n)
{
    halay_request_t *r = n->request;
    const bool runs = r->state == HLY_RUNNING;
    if (n->kind == HLY_NEWS_LANDED && runs)
        hly_exec_landed(r, n->step, n->value);
    else if (n->kind == HLY_NEWS_SENT && runs)
        hly_exec_step_done(r, n->step);
    else if (n->kind <= HLY_NEWS_SENT && r->state == HLY_FAILING)
        r->run.state[n->step] = HLY_DONE; /* its peer may end now: fault/events.c */
    else if (n->kind == HLY_NEWS_BACK && runs)
        hly_exec_advance(r);
    else if (n->kind == HLY_NEWS_QUIET && r->state == HLY_FAILING)
        hly_fault_progress(r->comm, r->slot);
    else if (n->kind >= HLY_NEWS_REFUSED && n->kind <= HLY_NEWS_MISFIT)
        hand_failure(n);
    else if (n->kind == HLY_NEWS_UNPLANNED)
        hly_nccl_plan(r);
    if (n->kind != HLY_NEWS_COMPLETE)
        return;
    if (r->explained)
        hly_explain_done(r);
    if (r->group.member_of)
        hly_group_part_done(r);
    if (r->comm->asks_for)
        hly_nccl_answered(r);
    if (r->message.other)
        hly_message_moved(r);
}

/* Messages had come before this rank made the communicator. */
static void match_orphans(halay_comm_t *comm)
{
    struct hly_unexpected *m;
    while ((m = hly_orphan_take(comm))) {
        hly_orphan_match(comm, m);
        free(m);
    }
}

static void hand(halay_context_t *context, const struct hly_news *n)
{
    switch (n->kind) {
    case HLY_NEWS_LEAVE:
        hly_relaxed_leave(n->comm, &n->header);
        return;
    case HLY_NEWS_INVITE:
        hly_device_comm_invited(n->comm, &n->header, &n->invitation);
        return;
    case HLY_NEWS_UNKEPT:
        hly_fault_unkept(n->comm, n->sequence);
        return;
    case HLY_NEWS_VERDICT:
        hly_fault_verdict(n->comm, &n->header, &n->verdict);
        return;
    case HLY_NEWS_CONSENSUS:
        hly_consensus_heard(n->comm, &n->header, &n->consensus);
        return;
    case HLY_NEWS_HELLO:
        hly_fault_hello(context, (int)n->header.from, &n->hello, n->value);
        return;
    case HLY_NEWS_ASKED:
        if (n->comm)
            hly_stall_asked(n->comm, &n->header, n->blocked, (uint32_t)n->value);
        else
            hly_stall_asked_early(context, &n->header, n->peer);
        return;
    case HLY_NEWS_MADE:
        match_orphans(n->comm);
        return;
    case HLY_NEWS_MATCHED:
        hly_message_matched(n->request);
        return;
    case HLY_NEWS_TAKEN:
        hly_message_taken(n->comm, &n->header);
        return;
    case HLY_NEWS_LOST:
        hly_fault_lost(context, n->peer);
        return;
    case HLY_NEWS_TRANSPORT_LOST:
        hly_fault_transport_lost(context, n->text);
        return;
    default:
        if (n->request->sequence == n->sequence)
            hand_call(n);
    }
}

void hly_hand_on(halay_context_t *context)
{
    struct hly_news *n;
    if (context->handing) /* a caller up the stack is in the loop below */
        return;
    context->handing = true;
    while ((n = hly_news_take(context))) {
        hand(context, n);
        hly_news_done(context, n);
    }
    context->handing = false;
}

/* ---------------------------------------------------------------- progress */

/* Advances all calls: steps that found the device full are started again. */
static void advance_all(halay_context_t *context)
{
    struct hly_link *next;
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        next = l->next;
        hly_exec_advance(r);
    }
}

static int poll_device(halay_context_t *context, struct hly_device *device)
{
    halay_done_t done[16];
    int n = device->ops->poll(device->handle, done, 16);
    for (int i = 0; i < n; i++) {
        device->works--;
        hly_work_done(context, (struct hly_send *)(uintptr_t)done[i].cookie, done[i].status);
    }
    if (n < 0)
        hly_work_lost(context, device, n);
    n = n > 0 ? n : 0;
    if (device->group_steps)
        n += hly_group_steps_poll(context);
    if (n > 0)
        advance_all(context);
    return n;
}

static int poll_transport(halay_context_t *context, const struct hly_transport *transport)
{
    halay_event_t events[16];
    const int n = transport->ops->poll(transport->handle, events, 16);
    if (n <= 0) {
        if (n < 0)
            hly_wire_failed(context, transport, n);
        return 0;
    }
    /* for exec/listen.h: this process may have been stopped */
    context->now_ns = hly_about_now_ns();
    for (int i = 0; i < n; i++)
        hly_take(context, transport, hly_expected_by(context, &events[i]), &events[i]);
    return n;
}

static int poll_transports(halay_context_t *context)
{
    int n = 0;
    for (int i = 0; i < context->ntransports && !context->lost; i++)
        n += poll_transport(context, &context->transports[i]);
    return n;
}

static halay_request_t *next_listener(const halay_context_t *context)
{
    for (struct hly_link *l = context->requests.next; l != &context->requests; l = l->next) {
        halay_request_t *r = HLY_OF(l, halay_request_t, link);
        if (r->listens)
            return r;
    }
    return NULL;
}

/* Reads all messages that have come, then ends the calls that wait for this (exec/listen.h). */
static int read_all(halay_context_t *context)
{
    int n = 0, idle = 0;
    halay_request_t *r;
    for (int i = 0; idle < LISTEN_POLLS && i < LISTEN_MOST; i++) {
        const int came = poll_transports(context);
        n += came;
        idle = came ? 0 : idle + 1;
    }
    context->listening = false;
    context->listened_ns = context->now_ns = hly_about_now_ns();
    for (; (r = next_listener(context)); n++) {
        r->listens = false;
        if (!hly_broken_ends(&r->comm->broken, r->sequence)) /* else hly_fault_timers() ends it */
            hly_exec_advance(r);
    }
    return n;
}

void hly_look_at_clock(halay_context_t *context)
{
    context->polls = 0;
    context->now_ns = hly_now_ns();
    if (context->now_ns < context->timer_ns)
        return;
    context->timer_ns = context->now_ns + TIMER_NS;
    hly_record_waits(context, context->now_ns, RECORD_NS);
    hly_fault_timers(context);
    hly_message_timers(context);
    if (context->survivors)
        hly_consensus_timers(context);
    if (hly_news_any(context))
        hly_hand_on(context);
}

int hly_progress(halay_context_t *context)
{
    struct hly_waiters *w = &context->waiters;
    int n = 0;
    if (w->leader && !w->rearm) {
        w->rearm = true;
        hly_wake_leader(context);
    }
    if (!hly_link_empty(&context->busy_peers))
        hly_send_flush(context);
    n += poll_transports(context);
    for (int i = 0; i < context->ndevices; i++)
        if (context->devices[i].works)
            n += poll_device(context, &context->devices[i]);
    if (context->listening)
        n += read_all(context);
    if (++context->polls >= HLY_POLLS_BETWEEN_CLOCKS || !context->timer_ns)
        hly_look_at_clock(context);
    if (hly_news_any(context))
        hly_hand_on(context);
    return n;
}
