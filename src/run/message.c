/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c - messages with tags: the calls that move the bytes of long ones, errors, deadlines
 * (wire/message.h).
 *
 * The receiver numbers the calls between both ranks when it takes an offer, and its sender makes
 * them in that order. So both make the same calls in the same order, whatever is taken first.
 */
#include <stdio.h>
#include <stdlib.h>

#include "exec/exec.h"
#include "fault/deadlock.h"
#include "fault/fault.h"
#include "fault/stall.h"
#include "run/pair.h"
#include "run/run.h"
#include "wire/news.h"

#define ASK_NS   UINT64_C(500000000)
#define ASK_MOST 8 /* ranks each time */

halay_request_t *hly_message_request(halay_comm_t *comm, enum hly_message_is is, void *buffer,
                                     uint64_t bytes, uint8_t type)
{
    halay_request_t *r = hly_request_bare(comm);
    if (!r)
        return NULL;
    r->message = (struct hly_message){.is = (uint8_t)is,
                                      .type = type,
                                      .buffer = buffer,
                                      .bytes = bytes,
                                      .came_from = HLY_ANY,
                                      .came_tag = HLY_ANY};
    hly_link_init(&r->message.at.near);
    hly_link_init(&r->message.at.all);
    r->deadline_ns = 0;
    return r;
}

/* ---------------------------------------------------------------- errors */

static void what_text(const halay_request_t *r, char *text, size_t bytes)
{
    const bool sends = r->message.is == HLY_MESSAGE_SEND;
    const struct hly_tag *at = &r->message.at;
    char rank[24] = "any rank", tag[24] = "any tag";
    if (at->source != HLY_ANY)
        snprintf(rank, sizeof(rank), "rank %d", at->source);
    if (at->tag != HLY_ANY)
        snprintf(tag, sizeof(tag), "tag %d", at->tag);
    snprintf(text, bytes, "a message of %llu bytes %s %s with %s",
             (unsigned long long)r->message.bytes, sends ? "to" : "from", rank, tag);
}

/* Ends the request with an error that no call of the communicator has. */
static void fail_with(halay_request_t *r, const struct hly_verdict_wire *v)
{
    char text[600];
    r->failure = malloc(sizeof(*r->failure));
    if (r->failure) {
        hly_failure_init(r->failure, r->comm, 0, v);
        r->failure->alone = true;
        hly_failure_text(r->failure, text, sizeof(text));
        hly_log(r->context, HLY_WARN, "%s", text);
    }
    hly_message_complete(r, v->code);
}

/* With one of this rank alone. */
static void fail(halay_request_t *r, int code, const char *why)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_LOCAL, code, r->comm->rank);
    snprintf(v.detail, sizeof(v.detail), "%.255s", why);
    fail_with(r, &v);
}

int hly_message_refused(halay_comm_t *comm)
{
    if (comm->broken.is) {
        hly_failure_init(&comm->last, comm,
                         (uint32_t)(comm->broken.by.of ? comm->broken.by.of - 1 : 0),
                         &comm->broken.by);
        comm->failed = true;
        return comm->broken.by.code;
    }
    return comm->context->lost ? hly_fault_alone(comm, HALAY_ETRANSPORT, HLY_LOST_TEXT) : HALAY_OK;
}

static void fail_broken(halay_request_t *r)
{
    const int rc = hly_message_refused(r->comm);
    r->failure = malloc(sizeof(*r->failure));
    if (r->failure)
        *r->failure = r->comm->last;
    hly_message_complete(r, rc);
}

/* ---------------------------------------------------------------- the bytes of an offer */

/* Makes the call that moves them. */
static void move(halay_request_t *r, int from, int to, uint64_t bytes)
{
    halay_comm_t *pair;
    halay_request_t *call;
    struct hly_check c = {0};
    struct hly_call desc =
        hly_call_of(HALAY_BROADCAST, NULL, r->message.buffer, (size_t)bytes, HALAY_UINT8);
    int rc = hly_pair_get(r->comm, HLY_PAIR_MESSAGES, from, to, &pair);
    if (!rc) {
        desc.desc.flags = HLY_CALL_PAIR;
        hly_describe(&desc, &c, pair);
        hly_sign(&desc, pair);
        rc = hly_exec_make(pair, &desc, c.code, c.text, &call);
    }
    if (!rc && (rc = hly_news_reserve(r->context))) {
        call->state = HLY_COMPLETE;
        hly_request_release(call);
    }
    if (rc) {
        fail(r, rc, "no memory to send or receive a message");
        return;
    }
    call->reports = true;
    call->message.other = r;
    r->message.other = call;
    hly_exec_go(call);
}

void hly_message_moved(halay_request_t *call)
{
    halay_request_t *r = call->message.other;
    const int result = call->result;
    call->message.other = r->message.other = NULL;
    r->failure = call->failure;
    call->failure = NULL;
    hly_request_release(call);
    hly_message_complete(r, result);
}

/* The message does not fit its receive. */
static void misfit(halay_request_t *r, const struct hly_early *e)
{
    char text[256];
    if (e->bytes > r->message.bytes)
        snprintf(text, sizeof(text),
                 "the message from rank %d with tag %d has %llu bytes, and the receive has room "
                 "for %llu",
                 e->at.source, e->at.tag, (unsigned long long)e->bytes,
                 (unsigned long long)r->message.bytes);
    else
        snprintf(text, sizeof(text),
                 "the message from rank %d with tag %d has elements of type %s, and the receive "
                 "wants %s",
                 e->at.source, e->at.tag, halay_type_name((halay_type_t)e->type),
                 halay_type_name((halay_type_t)r->message.type));
    fail(r, HALAY_EMISMATCH, text);
}

static void match_itself(halay_request_t *r, const struct hly_early *e, bool wrong)
{
    if (!wrong && e->bytes)
        memcpy(r->message.buffer, e->itself->message.buffer, e->bytes);
    hly_message_complete(e->itself, HALAY_OK);
    if (!wrong)
        hly_message_complete(r, HALAY_OK);
}

void hly_message_matched(halay_request_t *r)
{
    struct hly_early *e = r->message.found;
    halay_comm_t *comm = r->comm;
    struct hly_message_peer *p;
    if (!e)
        return;
    r->message.found = NULL;
    if (r->message.waits) /* there was no memory for the news */
        hly_tags_remove(&r->message.at);
    r->message.waits = false;
    const bool wrong = !hly_message_fits(r, e->bytes, e->type);
    if (wrong)
        misfit(r, e);
    if (e->itself) {
        match_itself(r, e, wrong);
    } else if (!e->id) {
        hly_message_credit(comm->messages, e->at.source, e->bytes);
    } else if (wrong || !e->bytes || hly_message_peer_get(comm->messages, e->at.source, &p)) {
        hly_control_send(comm, e->at.source, HLY_MESSAGE, 0, HLY_DROP, e->id, NULL, NULL, 0);
        if (!wrong)
            hly_message_complete(r, HALAY_OK);
    } else {
        hly_control_send(comm, e->at.source, HLY_MESSAGE, p->taken++, HLY_TAKE, e->id, NULL, NULL,
                         0);
        move(r, e->at.source, comm->rank, e->bytes);
    }
    free(e);
}

static halay_request_t *offer_of(const struct hly_messages *m, int to, uint64_t id, uint32_t turn)
{
    for (struct hly_link *l = m->offers.next; l != &m->offers; l = l->next) {
        halay_request_t *r = HLY_OF(HLY_OF(l, struct hly_tag, all), halay_request_t, message.at);
        if (r->message.at.source == to && r->message.id &&
            (id ? r->message.id == id : r->message.turn == turn))
            return r;
    }
    return NULL;
}

void hly_message_taken(halay_comm_t *comm, const struct hly_header *h)
{
    struct hly_message_peer *p;
    const int to = (int)h->from;
    halay_request_t *r = offer_of(comm->messages, to, h->cookie, 0);
    if (hly_message_peer_get(comm->messages, to, &p) || !r)
        return;
    if (h->edge == HLY_DROP) {
        hly_message_complete(r, HALAY_OK);
        return;
    }
    r->message.turn = h->sequence + 1;
    while ((r = offer_of(comm->messages, to, 0, p->given + 1))) {
        p->given++;
        hly_tags_remove(&r->message.at);
        r->message.waits = false;
        move(r, comm->rank, to, r->message.bytes);
    }
}

/* ---------------------------------------------------------------- deadlines, lost ranks */

/* A send is given up: what its receiver may do about it later fails there. */
static void withdraw(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    struct hly_send *sending = r->message.sending;
    const int to = r->message.at.source;
    halay_comm_t *pair;
    if (r->message.is != HLY_MESSAGE_SEND || to == r->comm->rank)
        return;
    if (sending && sending->flying) /* the transport reads the buffer: until it is off that peer */
        hly_peer_sever(ctx, sending->peer, "a message to it was given up in the middle");
    else if (sending)
        hly_send_cancel(ctx, sending);
    else if (!hly_pair_get(r->comm, HLY_PAIR_MESSAGES, r->comm->rank, to, &pair))
        hly_fault_revoke(pair);
}

static void late(const struct hly_waited *w)
{
    halay_request_t *r = w->request;
    char what[160], text[420], other[160];
    what_text(r, what, sizeof(what));
    hly_deadlock_other(w, other, sizeof(other));
    snprintf(text, sizeof(text), "%s was not %s by the deadline of %.1f s (HALAY_DEADLINE)%s", what,
             r->message.is == HLY_MESSAGE_SEND ? "received" : "sent",
             (double)r->comm->deadline_ns * 1e-9, other);
    withdraw(r);
    if (r->state == HLY_RUNNING && !r->message.sending)
        fail(r, HALAY_ETIMEOUT, text);
}

/*
 * The program has waited for long to receive from any rank. One that has sent nothing yet may have
 * no connection to this one, and its end would not be seen: so this rank sends the next ones, each
 * time, a message that means nothing. fault/stall.c asks the source of other receives.
 */
static void ask(halay_request_t *r, uint64_t now)
{
    struct hly_messages *m = r->comm->messages;
    r->started_ns = now;
    for (int i = 0; i < ASK_MOST && i < r->comm->nranks; i++) {
        const int whom = m->asked = (m->asked + 1) % r->comm->nranks;
        if (whom != r->comm->rank && !hly_peer_is_dead(r->comm, whom))
            hly_control_send(r->comm, whom, HLY_MESSAGE, 0, HLY_CREDIT, 0, NULL, NULL, 0);
    }
}

/* Ranks wait for each other, each in this way: none of them can go on. */
static void deadlocked(halay_request_t *r, const char *detail)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, r->comm, HLY_CAUSE_DEADLOCK, HALAY_ETIMEOUT, -1);
    snprintf(v.detail, sizeof(v.detail), "%.255s", detail);
    withdraw(r);
    if (r->state == HLY_RUNNING)
        fail_with(r, &v);
}

/* What keeps any message of the communicator from coming, or needs no wait of the program. */
static void look(halay_request_t *r)
{
    if (r->message.found)
        hly_message_matched(r);
    else if ((r->comm->broken.is || r->context->lost) && !r->message.sending)
        fail_broken(r);
    else if (r->message.lost)
        fail(r, HALAY_EPEER, "the message could not be sent: its receiver is lost");
}

static void look_at(const struct hly_link *list)
{
    for (struct hly_link *l = list->next; l != list;) {
        halay_request_t *r = HLY_OF(HLY_OF(l, struct hly_tag, all), halay_request_t, message.at);
        l = l->next;
        look(r);
    }
}

/* A thread of the program waits for a message. */
static void look_at_wait(struct hly_waited *w, uint64_t now)
{
    halay_request_t *r = w->request;
    const bool ended = r && r->state != HLY_RUNNING;
    if (!ended && !w->why)
        hly_stall_look_message(w, now);
    if (!r || ended || !r->message.waits)
        return;
    if (w->why)
        deadlocked(r, w->why);
    else if (now >= w->deadline_ns)
        late(w);
    else if (r->message.is == HLY_MESSAGE_RECV && r->message.at.source == HLY_ANY &&
             now - r->started_ns >= ASK_NS)
        ask(r, now);
}

void hly_message_timers(halay_context_t *context)
{
    for (struct hly_link *l = context->messages.next; l != &context->messages; l = l->next) {
        struct hly_messages *m = HLY_OF(l, struct hly_messages, link);
        const bool over = m->comm->broken.is || context->lost;
        if (over)
            look_at(&m->tags.all_receives);
        if (over || m->look)
            look_at(&m->offers);
        m->look = false;
    }
    for (struct hly_waited *w = context->waiters.waited; w; w = w->next)
        if (!w->request || w->request->message.is)
            look_at_wait(w, context->now_ns);
}
