/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - items move only when an endpoint polls; all bytes are copied under the hub's lock,
 * so that none is written after deregister_mem, withdrawal, close or kill has returned, and what an
 * event announces is visible to who polled it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hub.h"

static void release(struct item *item)
{
    halay_ep_t *way = item->way;

    if (item->in_inbox || item->in_outbox) {
        return;
    }
    if (way) {
        assert(way->slots > 0 && item->source);
        way->slots--;
        if (way->wanted) {
            way->wanted = false;
            item->source->nudged = true;
            hly_inproc_wake(item->source);
        }
    }
    free(item->landing);
    free(item->data);
    free(item);
}

void hly_inproc_leave_inbox(struct item *item)
{
    assert(item->in_inbox);
    TAILQ_REMOVE(&item->target->inbox, item, in_entry);
    item->in_inbox = false;
    item->target = NULL;
    release(item);
}

void hly_inproc_leave_outbox(struct item *item)
{
    assert(item->in_outbox);
    TAILQ_REMOVE(&item->source->outbox, item, out_entry);
    item->in_outbox = false;
    release(item);
}

void hly_inproc_finish(struct item *item, int status)
{
    assert(!item->done);
    item->done = true;
    item->status = status;
    item->payload = NULL;
    if (item->in_outbox) {
        hly_inproc_wake(item->source);
    }
}

static void arrive(struct item *item)
{
    item->arrived = true;
    hly_inproc_wake(item->target);
    if (!item->lent) {
        hly_inproc_finish(item, HALAY_OK);
    }
}

/* False: no such memory (any more), or not so large. The put fails at its source. */
static bool put_target(const struct item *item, uint8_t **to)
{
    const halay_mem_t *mem = item->target->mems;

    while (mem && mem->id != item->mem) {
        mem = mem->next;
    }
    if (!mem || item->offset > mem->bytes || item->bytes > mem->bytes - item->offset) {
        return false;
    }
    *to = item->bytes ? (mem->inside ? mem->inside : mem->address) + item->offset : NULL;
    return true;
}

/* The item takes the posted landing for its own; from then on it cannot be withdrawn. */
static void claim_landing(struct item *item)
{
    struct landing **link = &item->target->landings;

    while (*link && (*link)->tag != item->tag) {
        link = &(*link)->next;
    }
    if (*link) {
        item->landing = *link;
        *link = item->landing->next;
        item->target->nlandings--;
    }
}

/* Where the bytes go. False: they go nowhere, and the item is over. */
static bool destination(struct item *item, uint8_t **to)
{
    *to = NULL;
    switch (item->kind) {
    case ITEM_MESSAGE:
        *to = item->data->bytes + item->header_bytes;
        return true;
    case ITEM_PUT:
        if (item->mem != 0 && !put_target(item, to)) {
            hly_inproc_finish(item, HALAY_ETRANSPORT);
            hly_inproc_leave_inbox(item);
            return false;
        }
        return true;
    case ITEM_LANDING:
        if (!item->landing) {
            claim_landing(item);
        }
        if (!item->landing) { /* withdrawn */
            hly_inproc_finish(item, HALAY_OK);
            hly_inproc_leave_inbox(item);
            return false;
        }
        if (item->landing->bytes < item->bytes) {
            item->landed = HALAY_ETRANSPORT;
            arrive(item);
            return false;
        }
        *to = item->landing->buffer;
        return true;
    }
    return false;
}

static void copy(struct item *item, uint8_t *to, size_t bytes, bool from_the_end)
{
    if (from_the_end) {
        item->high -= bytes;
    }
    if (bytes > 0) {
        size_t at = from_the_end ? item->high : item->low;

        assert(to != NULL);
        memcpy(to + at, item->payload + at, bytes);
    }
    if (!from_the_end) {
        item->low += bytes;
    }
}

void hly_inproc_advance(struct item *item, halay_transport_t *by)
{
    uint8_t *to;

    assert(item->in_inbox);
    if (item->arrived) {
        return;
    }
    if (item->delay > 0) {
        item->delay--;
        return;
    }
    if (!destination(item, &to)) {
        return;
    }
    if (item->late > 0 && item->low < item->high) {
        size_t left = item->high - item->low;
        size_t chunk = 1 + hly_inproc_random(by, left < UINT32_MAX ? (uint32_t)left - 1 : 1u << 31);

        item->late--;
        copy(item, to, chunk, hly_inproc_random(by, 1));
        if (item->low < item->high) {
            return;
        }
    }
    copy(item, to, item->high - item->low, false);
    arrive(item);
}

void hly_inproc_flush(struct item *item)
{
    item->delay = 0;
    item->late = 0;
    hly_inproc_advance(item, item->source);
}

bool hly_inproc_pending(const halay_transport_t *transport)
{
    const struct item *item;
    const struct peer *peer;

    if (transport->killed || !TAILQ_EMPTY(&transport->inbox)) {
        return true;
    }
    TAILQ_FOREACH(item, &transport->outbox, out_entry)
    {
        if (item->done || item->in_inbox) {
            return true;
        }
    }
    for (peer = transport->peers; peer; peer = peer->next) {
        if (peer->failing) {
            return true;
        }
    }
    return false;
}

void hly_inproc_free_held(halay_transport_t *transport)
{
    struct buffer *buffer;

    while ((buffer = transport->held)) {
        transport->held = buffer->next;
        free(buffer);
    }
}

static void tick(halay_transport_t *transport)
{
    struct item *item, *next;
    halay_ep_t *ep;

    for (item = TAILQ_FIRST(&transport->inbox); item; item = next) {
        next = TAILQ_NEXT(item, in_entry);
        hly_inproc_advance(item, transport);
    }
    for (item = TAILQ_FIRST(&transport->outbox); item; item = next) {
        next = TAILQ_NEXT(item, out_entry);
        if (item->in_inbox && item->target != transport) {
            hly_inproc_advance(item, transport);
        }
    }
    for (ep = transport->ways; ep; ep = ep->next) {
        if (ep->state == WAY_PENDING) {
            hly_inproc_way_try(transport, ep);
        }
    }
}

static void deliver(halay_transport_t *transport, struct item *item, halay_event_t *event)
{
    event->peer = item->from;
    switch (item->kind) {
    case ITEM_MESSAGE:
        event->kind = HALAY_EVENT_MESSAGE;
        event->data = item->data->bytes;
        event->bytes = item->bytes;
        item->data->next = transport->held;
        transport->held = item->data;
        item->data = NULL;
        if (item->lent) {
            hly_inproc_borrow(transport, item, event);
            return;
        }
        break;
    case ITEM_PUT:
        event->kind = HALAY_EVENT_IMMEDIATE;
        event->immediate = item->immediate;
        break;
    case ITEM_LANDING:
        event->kind = HALAY_EVENT_LANDED;
        event->status = item->landed;
        event->cookie = item->landing->cookie;
        event->bytes = item->landed ? 0 : item->bytes;
        break;
    }
    hly_inproc_leave_inbox(item);
}

static void complete(struct item *item, halay_event_t *event)
{
    event->kind = item->kind == ITEM_PUT ? HALAY_EVENT_PUT : HALAY_EVENT_SENT;
    event->status = item->status;
    event->peer = item->to;
    event->cookie = item->cookie;
    hly_inproc_leave_outbox(item);
}

/* What came from the peer before comes first. */
static bool may_fail(const halay_transport_t *transport, const struct peer *peer)
{
    const struct item *item;

    if (!peer->failing) {
        return false;
    }
    TAILQ_FOREACH(item, &transport->inbox, in_entry)
    {
        if (hly_inproc_same(item->from, peer->id)) {
            return false;
        }
    }
    TAILQ_FOREACH(item, &transport->outbox, out_entry)
    {
        if (item->lent && item->done && hly_inproc_same(item->to, peer->id)) {
            return false; /* that it has read it comes first, too */
        }
    }
    return true;
}

static bool pick_in(halay_transport_t *transport, uint32_t *nth, halay_event_t *event)
{
    struct item *item;

    TAILQ_FOREACH(item, &transport->inbox, in_entry)
    {
        if (item->arrived && (*nth)-- == 0) {
            deliver(transport, item, event);
            return true;
        }
    }
    return false;
}

static bool pick_out(halay_transport_t *transport, uint32_t *nth, halay_event_t *event)
{
    struct item *item;
    struct peer *peer;

    TAILQ_FOREACH(item, &transport->outbox, out_entry)
    {
        if (item->done && (*nth)-- == 0) {
            complete(item, event);
            return true;
        }
    }
    for (peer = transport->peers; peer; peer = peer->next) {
        if (may_fail(transport, peer) && (*nth)-- == 0) {
            peer->failing = false;
            event->kind = HALAY_EVENT_FAILED;
            event->status = HALAY_EPEER;
            event->peer = peer->id;
            event->text = peer->text;
            return true;
        }
    }
    return false;
}

/* The next event: the oldest, from the boxes in turn, or any. */
static bool pick(halay_transport_t *transport, halay_event_t *event)
{
    uint32_t nth = 0;

    *event = (halay_event_t){0};
    if (transport->hub->faults.reorder) {
        const struct item *item;

        TAILQ_FOREACH(item, &transport->inbox, in_entry)
        {
            nth += item->arrived;
        }
        TAILQ_FOREACH(item, &transport->outbox, out_entry)
        {
            nth += item->done;
        }
        nth = nth ? hly_inproc_random(transport, nth - 1) : 0;
        return pick_in(transport, &nth, event) || pick_out(transport, &nth, event);
    }
    transport->turn = !transport->turn;
    if (transport->turn) {
        return pick_in(transport, &nth, event) || pick_out(transport, &nth, event);
    }
    return pick_out(transport, &nth, event) || pick_in(transport, &nth, event);
}

/* Errors that are found here, told once, without the lock. */
static void log_events(const halay_transport_t *transport, const halay_event_t events[], int n)
{
    for (int i = 0; i < n; i++) {
        if (events[i].status != HALAY_ETRANSPORT) {
            continue;
        }
        if (events[i].kind == HALAY_EVENT_PUT) {
            hly_inproc_log(transport, 1,
                           "inproc: a put failed: its target is not registered any more, or is "
                           "smaller; withdraw the key from the peer before deregistering");
        } else if (events[i].kind == HALAY_EVENT_LANDED) {
            hly_inproc_log(transport, 0,
                           "inproc: a message is larger than the buffer posted for its tag; post "
                           "as many bytes as the peer sends");
        }
    }
}

int hly_inproc_poll(halay_transport_t *transport, halay_event_t events[], int max)
{
    uint64_t deadline_ns;
    bool busy;
    int n = 0;

    hly_inproc_free_held(transport);
    if (transport->borrowed) {
        pthread_mutex_lock(&transport->hub->lock);
        hly_inproc_give_back(transport);
        pthread_mutex_unlock(&transport->hub->lock);
    }
    if (!atomic_load_explicit(&transport->busy, memory_order_acquire)) {
        return 0; /* pairs with the release in wake; missed once, it is seen by the next poll */
    }
    pthread_mutex_lock(&transport->hub->lock);
    if (transport->killed) {
        pthread_mutex_unlock(&transport->hub->lock);
        return HALAY_ETRANSPORT;
    }
    tick(transport);
    while (n < max && !transport->borrowed && pick(transport, &events[n])) {
        n++;
    }
    busy = hly_inproc_pending(transport) || hly_inproc_connecting(transport, &deadline_ns) ||
           deadline_ns != 0;
    atomic_store_explicit(&transport->busy, busy, memory_order_release);
    pthread_mutex_unlock(&transport->hub->lock);
    log_events(transport, events, n);
    return n;
}
