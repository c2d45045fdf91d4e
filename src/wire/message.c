/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - messages with tags: what is sent, kept and matched (message.h). */
#include "wire/message.h"

#include <stdlib.h>

#include "wire/expected.h"
#include "wire/news.h"
#include "wire/rendezvous.h"

#define PEERS_LEAST 8

static halay_request_t *request_at(struct hly_tag *at)
{
    return HLY_OF(at, halay_request_t, message.at);
}

static struct hly_early *early_at(struct hly_tag *at)
{
    return HLY_OF(at, struct hly_early, at);
}

/* ---------------------------------------------------------------- of a communicator */

static uint32_t window_of(uint32_t nranks)
{
    const uint32_t bytes = HLY_MESSAGE_WINDOW_ALL / nranks;
    return bytes > HLY_MESSAGE_WINDOW_MOST    ? HLY_MESSAGE_WINDOW_MOST
           : bytes < HLY_MESSAGE_WINDOW_LEAST ? HLY_MESSAGE_WINDOW_LEAST
                                              : bytes;
}

int hly_messages_make(halay_comm_t *comm)
{
    if (comm->messages)
        return HALAY_OK;
    struct hly_messages *m = calloc(1, sizeof(*m));
    struct hly_message_peer **peers = calloc(PEERS_LEAST, sizeof(struct hly_message_peer *));
    if (!m || !peers) {
        free(m);
        free(peers);
        return HALAY_ENOMEM;
    }
    m->comm = comm;
    m->window = window_of((uint32_t)comm->nranks);
    m->peers = peers;
    m->mask = PEERS_LEAST - 1;
    hly_tags_init(&m->tags);
    hly_link_init(&m->offers);
    hly_link_init(&m->taken);
    hly_link_append(&comm->context->messages, &m->link);
    comm->messages = m;
    return HALAY_OK;
}

static void free_early(struct hly_link *list, bool near)
{
    while (!hly_link_empty(list)) {
        struct hly_tag *at = near ? HLY_OF(list->next, struct hly_tag, near)
                                  : HLY_OF(list->next, struct hly_tag, all);
        hly_tags_remove(at);
        free(early_at(at));
    }
}

void hly_messages_free(halay_comm_t *comm)
{
    struct hly_messages *m = comm->messages;
    if (!m)
        return;
    for (uint32_t i = 0; i <= m->mask; i++)
        while (m->peers[i]) {
            struct hly_message_peer *p = m->peers[i];
            m->peers[i] = p->next;
            free_early(&p->ahead, true);
            free(p);
        }
    free_early(&m->tags.all_messages, false);
    free_early(&m->taken, false);
    hly_link_remove(&m->link);
    free(m->peers);
    free(m);
    comm->messages = NULL;
}

static void grow(struct hly_messages *m)
{
    const uint32_t mask = 2 * m->mask + 1;
    struct hly_message_peer **peers = calloc(mask + 1, sizeof(struct hly_message_peer *));
    if (!peers)
        return; /* the chains get longer */
    for (uint32_t i = 0; i <= m->mask; i++)
        while (m->peers[i]) {
            struct hly_message_peer *p = m->peers[i];
            m->peers[i] = p->next;
            p->next = peers[(uint32_t)p->rank & mask];
            peers[(uint32_t)p->rank & mask] = p;
        }
    free(m->peers);
    m->peers = peers;
    m->mask = mask;
}

static struct hly_message_peer *find(const struct hly_messages *m, int rank)
{
    struct hly_message_peer *p = m->peers[(uint32_t)rank & m->mask];
    while (p && p->rank != rank)
        p = p->next;
    return p;
}

int hly_message_peer_get(struct hly_messages *m, int rank, struct hly_message_peer **peer)
{
    struct hly_message_peer *p = find(m, rank);
    if (p) {
        *peer = p;
        return HALAY_OK;
    }
    p = calloc(1, sizeof(*p));
    if (!p)
        return HALAY_ENOMEM;
    if (++m->npeers > m->mask)
        grow(m);
    p->rank = rank;
    hly_link_init(&p->ahead);
    p->next = m->peers[(uint32_t)rank & m->mask];
    m->peers[(uint32_t)rank & m->mask] = p;
    *peer = p;
    return HALAY_OK;
}

uint32_t hly_message_sent(const struct hly_messages *m, int rank)
{
    const struct hly_message_peer *p = m ? find(m, rank) : NULL;
    return p ? p->sent : 0;
}

uint32_t hly_message_came_from(const struct hly_messages *m, int rank)
{
    const struct hly_message_peer *p = m ? find(m, rank) : NULL;
    return p ? p->came : 0;
}

static bool has_offer(const struct hly_link *list, int rank, uint64_t id)
{
    for (const struct hly_link *l = list->next; l != list; l = l->next) {
        const struct hly_early *e = HLY_OF(l, struct hly_early, at.all);
        if (e->id == id && e->at.source == rank)
            return true;
    }
    return false;
}

bool hly_message_is_offered(const struct hly_messages *m, int rank, uint64_t id)
{
    return m && (has_offer(&m->tags.all_messages, rank, id) || has_offer(&m->taken, rank, id));
}

/* ---------------------------------------------------------------- the end of a request */

void hly_message_complete(halay_request_t *r, int result)
{
    if (r->message.waits)
        hly_tags_remove(&r->message.at);
    r->message.waits = false;
    r->result = result;
    r->state = HLY_COMPLETE;
    r->context->counters.operations++;
    r->context->counters.errors += result != HALAY_OK;
    hly_wake_if_asleep(r->context);
}

void hly_message_left(halay_request_t *r, int status)
{
    r->message.sending = NULL;
    r->message.lost = status != HALAY_OK;
    r->comm->messages->look |= r->message.lost; /* the next look at the clock ends it */
    if (!status)
        hly_message_complete(r, HALAY_OK);
}

/* ---------------------------------------------------------------- sending */

static void header_of(const halay_request_t *r, enum hly_message_what what, int tag,
                      struct hly_header *h)
{
    hly_header_fill(h, r->comm, HLY_MESSAGE, 0, what, NULL);
    h->signature = (uint32_t)tag;
    h->cookie = r->message.bytes;
    h->call.type = r->message.type;
}

/* A short message whose payload has room in the memory of the hly_send. */
static void send_copy(halay_request_t *r, struct hly_send *send)
{
    send->payload_bytes = (uint32_t)r->message.bytes;
    if (r->message.bytes)
        memcpy(send->payload, r->message.buffer, r->message.bytes);
    hly_send_submit(r->context, send);
    hly_message_complete(r, HALAY_OK);
}

/* The request waits in the list of those that send. */
static void list_send(halay_request_t *r, int to, int tag)
{
    r->message.at.source = to;
    r->message.at.tag = tag;
    hly_link_init(&r->message.at.near);
    hly_link_append(&r->comm->messages->offers, &r->message.at.all);
    r->message.waits = true;
}

static void send_short(halay_request_t *r, struct hly_send *send, struct hly_message_peer *p,
                       int tag)
{
    header_of(r, HLY_SHORT, tag, &send->header);
    send->header.sequence = p->sent++;
    p->unreceived += (uint32_t)r->message.bytes + HLY_MESSAGE_ITSELF;
    if (r->message.bytes <= sizeof(send->payload)) {
        send_copy(r, send);
        return;
    }
    send->kind = HLY_SEND_EAGER;
    send->extent[0] = (struct hly_extent){r->message.buffer, r->message.bytes};
    send->extent[1] = (struct hly_extent){NULL, 0};
    send->message = r;
    r->message.sending = send;
    list_send(r, p->rank, tag);
    hly_send_submit(r->context, send);
}

static void send_offer(halay_request_t *r, struct hly_send *send, struct hly_message_peer *p,
                       int tag)
{
    struct hly_messages *m = r->comm->messages;
    header_of(r, HLY_OFFER, tag, &send->header);
    send->header.sequence = p->sent++;
    send->header.offset = r->message.id = ++m->ids;
    list_send(r, p->rank, tag);
    hly_send_submit(r->context, send);
}

int hly_message_send(halay_request_t *r, int to, int tag, bool synchronous)
{
    halay_context_t *ctx = r->context;
    struct hly_peer *peer;
    struct hly_message_peer *p;
    int rc = hly_message_peer_get(r->comm->messages, to, &p);
    rc = rc ? rc : hly_peer_get(ctx, hly_comm_world_rank(r->comm, to), &peer);
    if (rc)
        return rc;
    struct hly_send *send = hly_send_new(ctx, HLY_SEND_CONTROL, peer);
    if (!send)
        return HALAY_ENOMEM;
    const size_t most = peer->transport->attr.eager_bytes;
    const uint64_t bytes = r->message.bytes;
    r->state = HLY_RUNNING;
    if (!synchronous && bytes <= HLY_MESSAGE_SHORT &&
        (bytes <= most || bytes <= sizeof(send->payload)) &&
        p->unreceived + bytes + HLY_MESSAGE_ITSELF <= r->comm->messages->window)
        send_short(r, send, p, tag);
    else
        send_offer(r, send, p, tag);
    return HALAY_OK;
}

/* ---------------------------------------------------------------- receiving */

void hly_message_credit(struct hly_messages *m, int rank, uint64_t bytes)
{
    struct hly_message_peer *p;
    if (rank == m->comm->rank || hly_message_peer_get(m, rank, &p))
        return; /* it is known since its first message */
    p->received += (uint32_t)bytes + HLY_MESSAGE_ITSELF;
    if (p->received < m->window / 2)
        return;
    hly_control_send(m->comm, rank, HLY_MESSAGE, 0, HLY_CREDIT, p->received, NULL, NULL, 0);
    p->received = 0;
}

bool hly_message_fits(const halay_request_t *r, uint64_t bytes, uint8_t type)
{
    return bytes <= r->message.bytes &&
           (type == r->message.type || type == HALAY_UINT8 || r->message.type == HALAY_UINT8);
}

/* Without memory for the news the request goes into a list that is looked at by the clock. */
static void leave_matched(halay_request_t *r)
{
    if (hly_news_leave(r->context, HLY_NEWS_MATCHED, r))
        return;
    hly_link_append(&r->comm->messages->offers, &r->message.at.all);
    r->message.waits = r->comm->messages->look = true;
}

static void note(halay_request_t *r, int from, int tag, uint64_t bytes)
{
    r->message.came_from = from;
    r->message.came_tag = tag;
    r->message.came_bytes = bytes;
}

void hly_message_match(halay_request_t *r, struct hly_early *e)
{
    struct hly_messages *m = r->comm->messages;
    note(r, e->at.source, e->at.tag, e->bytes);
    r->state = HLY_RUNNING;
    if (e->id || !hly_message_fits(r, e->bytes, e->type)) {
        r->message.found = e;
        leave_matched(r);
        return;
    }
    if (e->bytes)
        memcpy(r->message.buffer, e->data, e->bytes);
    hly_message_credit(m, e->at.source, e->bytes);
    free(e);
    hly_message_complete(r, HALAY_OK);
}

void hly_message_receive(halay_request_t *r, int from, int tag)
{
    struct hly_messages *m = r->comm->messages;
    struct hly_tag *at = hly_tags_message_for(&m->tags, from, tag);
    r->state = HLY_RUNNING;
    if (at) {
        hly_tags_remove(at);
        hly_message_match(r, early_at(at));
        return;
    }
    hly_tags_add_receive(&m->tags, &r->message.at, from, tag);
    r->message.waits = true;
}

/* The next message of its sender: a receive gets it, or it waits for one. */
static void enter(struct hly_messages *m, struct hly_early *e)
{
    struct hly_tag *at = hly_tags_receive_for(&m->tags, e->at.source, e->at.tag);
    if (!at) {
        hly_tags_add_message(&m->tags, &e->at, e->at.source, e->at.tag);
        return;
    }
    hly_tags_remove(at);
    request_at(at)->message.waits = false;
    hly_message_match(request_at(at), e);
}

static struct hly_early *early_new(uint64_t bytes, uint64_t here)
{
    struct hly_early *e = malloc(sizeof(*e) + here);
    if (!e)
        return NULL;
    *e = (struct hly_early){.bytes = bytes};
    hly_link_init(&e->at.near);
    hly_link_init(&e->at.all);
    return e;
}

int hly_message_send_itself(halay_request_t *r, int tag, bool synchronous)
{
    struct hly_messages *m = r->comm->messages;
    const bool here = !synchronous && r->message.bytes <= HLY_MESSAGE_SHORT;
    struct hly_early *e = early_new(r->message.bytes, here ? r->message.bytes : 0);
    if (!e)
        return HALAY_ENOMEM;
    e->at.source = r->comm->rank;
    e->at.tag = tag;
    e->type = r->message.type;
    r->state = HLY_RUNNING;
    if (here) {
        if (e->bytes)
            memcpy(e->data, r->message.buffer, e->bytes);
        hly_message_complete(r, HALAY_OK);
    } else {
        e->id = r->message.id = ++m->ids;
        e->itself = r;
        list_send(r, r->comm->rank, tag);
    }
    enter(m, e);
    return HALAY_OK;
}

/* ---------------------------------------------------------------- what comes */

/* The bytes go from the transport's memory into the receive's. false: they do not. */
static bool land(halay_comm_t *comm, const struct hly_header *h, const void *data)
{
    struct hly_messages *m = comm->messages;
    const int from = (int)h->from, tag = (int)h->signature;
    struct hly_tag *at = hly_tags_receive_for(&m->tags, from, tag);
    halay_request_t *r = at ? request_at(at) : NULL;
    if (!r || h->edge != HLY_SHORT || !hly_message_fits(r, h->cookie, h->call.type))
        return false;
    if (h->cookie)
        memcpy(r->message.buffer, data, h->cookie);
    if (!hly_lent_release(comm->context))
        return true; /* its sender has recalled it, and is lost with the next event */
    note(r, from, tag, h->cookie);
    hly_message_complete(r, HALAY_OK);
    hly_message_credit(m, from, h->cookie);
    return true;
}

static struct hly_early *keep(halay_comm_t *comm, const struct hly_header *h, const void *data)
{
    const uint64_t here = h->edge == HLY_SHORT ? h->cookie : 0;
    struct hly_early *e = early_new(h->cookie, here);
    if (!e) {
        hly_log(comm->context, HLY_ERROR, "no memory for a message of %llu bytes that came early",
                (unsigned long long)here);
        return NULL;
    }
    e->type = h->call.type;
    e->number = h->sequence;
    e->id = h->edge == HLY_OFFER ? h->offset : 0;
    e->at.source = (int)h->from;
    e->at.tag = (int)h->signature;
    if (here)
        memcpy(e->data, data, here);
    if (hly_lent_release(comm->context))
        return e;
    free(e);
    return NULL;
}

/* Enters the messages that had come before an earlier one, as far as it is their turn. */
static void enter_ahead(struct hly_messages *m, struct hly_message_peer *p)
{
    for (struct hly_link *l = p->ahead.next; l != &p->ahead;) {
        struct hly_early *e = early_at(HLY_OF(l, struct hly_tag, near));
        l = l->next;
        if (e->number != p->came)
            continue;
        hly_link_remove(&e->at.near);
        p->came++;
        enter(m, e);
        l = p->ahead.next;
    }
}

static void came(halay_comm_t *comm, const struct hly_header *h, const void *data)
{
    struct hly_messages *m = comm->messages;
    struct hly_message_peer *p;
    struct hly_early *e = NULL;
    if (hly_message_peer_get(m, (int)h->from, &p))
        return;
    if (h->sequence == p->came && land(comm, h, data)) {
        p->came++;
    } else if ((e = keep(comm, h, data))) {
        if (h->sequence == p->came) {
            p->came++;
            enter(m, e);
        } else {
            hly_link_append(&p->ahead, &e->at.near);
        }
    }
    if (!hly_link_empty(&p->ahead))
        enter_ahead(m, p);
}

static void taken(halay_comm_t *comm, const struct hly_header *h)
{
    struct hly_news *n = hly_news_leave(comm->context, HLY_NEWS_TAKEN, NULL);
    if (!n)
        return;
    n->comm = comm;
    n->header = *h;
}

void hly_message_came(halay_comm_t *comm, const struct hly_header *h, const void *data,
                      size_t bytes)
{
    struct hly_message_peer *p;
    const bool sound = h->edge <= HLY_CREDIT && h->signature <= INT32_MAX &&
                       (h->edge == HLY_SHORT ? bytes == h->cookie : !bytes);
    if (!sound || hly_messages_make(comm)) {
        hly_log(comm->context, HLY_ERROR, "a message from rank %u was dropped: %s", h->from,
                sound ? "no memory" : "it makes no sense");
        return;
    }
    switch ((enum hly_message_what)h->edge) {
    case HLY_SHORT:
    case HLY_OFFER:
        came(comm, h, data);
        return;
    case HLY_TAKE:
    case HLY_DROP:
        taken(comm, h);
        return;
    case HLY_CREDIT:
        if (!hly_message_peer_get(comm->messages, (int)h->from, &p))
            p->unreceived -= h->cookie < p->unreceived ? (uint32_t)h->cookie : p->unreceived;
    }
}
