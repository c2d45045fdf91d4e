/* SPDX-License-Identifier: Apache-2.0 */
/*
 * post.c - send, recv and put: what is posted takes a slot of its way and goes to the target's
 * inbox; where nothing delays it, it arrives at once.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hub.h"

static bool refused(halay_transport_t *transport)
{
    uint32_t percent = transport->hub->faults.again_percent;

    if (percent == 0 || hly_inproc_random(transport, 99) >= percent) {
        return false;
    }
    transport->nudged = true;
    hly_inproc_wake(transport);
    return true;
}

/* May something be posted on this way now? */
static int room(halay_transport_t *transport, halay_ep_t *ep)
{
    if (ep->state == WAY_FAILED) {
        return HALAY_EPEER;
    }
    if (ep->state == WAY_PENDING || ep->slots >= transport->hub->faults.queue_slots) {
        ep->wanted = true;
        return HALAY_EAGAIN;
    }
    return refused(transport) ? HALAY_EAGAIN : HALAY_OK;
}

static struct item *make_item(halay_transport_t *transport, halay_ep_t *ep, enum item_kind kind,
                              size_t data_bytes)
{
    const halay_inproc_faults_t *faults = &transport->hub->faults;
    struct item *item = calloc(1, sizeof(*item));

    if (!item) {
        return NULL;
    }
    if (kind != ITEM_PUT) {
        item->data = malloc(sizeof(*item->data) + data_bytes);
        if (!item->data) {
            free(item);
            return NULL;
        }
    }
    item->kind = kind;
    item->source = transport;
    item->target = ep->target;
    item->way = ep;
    item->from = transport->self;
    item->to = ep->peer->id;
    item->delay = hly_inproc_random(transport, faults->delay_polls_max);
    item->late = hly_inproc_random(transport, faults->late_put_polls);
    return item;
}

/* On its way. `notify`: the source wants a completion. */
static void launch(halay_transport_t *transport, struct item *item, bool notify)
{
    halay_transport_t *target = item->target;

    item->way->slots++;
    if (notify) {
        item->in_outbox = true;
        TAILQ_INSERT_TAIL(&transport->outbox, item, out_entry);
    }
    item->in_inbox = target != NULL;
    if (target) {
        TAILQ_INSERT_TAIL(&target->inbox, item, in_entry);
    }
    if (!target || hly_inproc_is_cut(transport, target)) {
        if (target) {
            hly_inproc_leave_inbox(item); /* a put stays in the outbox, for ever under way */
        }
        return;
    }
    hly_inproc_wake(target);
    if (notify) {
        hly_inproc_wake(transport);
    }
    if (item->delay == 0) {
        hly_inproc_advance(item, transport);
    }
}

static int lend(halay_transport_t *transport, halay_ep_t *ep, const void *header,
                size_t header_bytes, const uint8_t *lent, halay_mem_t *mem, size_t bytes,
                uint64_t cookie)
{
    struct item *item = make_item(transport, ep, ITEM_MESSAGE, header_bytes);

    if (!item) {
        return HALAY_ENOMEM;
    }
    item->cookie = cookie;
    item->header_bytes = header_bytes;
    item->bytes = header_bytes + bytes;
    item->lent = lent;
    item->mem_lent = mem;
    memcpy(item->data->bytes, header, header_bytes);
    launch(transport, item, true);
    return HALAY_INPROGRESS;
}

int hly_inproc_send(halay_transport_t *transport, halay_ep_t *ep, uint64_t tag, const void *header,
                    size_t header_bytes, const void *payload, size_t payload_bytes, uint64_t cookie)
{
    const halay_inproc_faults_t *faults = &transport->hub->faults;
    enum item_kind kind = tag ? ITEM_LANDING : ITEM_MESSAGE;
    struct item *item;
    halay_mem_t *mem = NULL;
    const uint8_t *lent = tag ? NULL : hly_inproc_lendable(transport, payload, payload_bytes, &mem);
    int result = room(transport, ep);
    bool defer;

    if (result) {
        return result;
    }
    if (lent && payload_bytes >= faults->lend_bytes) {
        return lend(transport, ep, header, header_bytes, lent, mem, payload_bytes, cookie);
    }
    defer = !lent && payload_bytes > 0 &&
            ((faults->late_put_polls && hly_inproc_random(transport, 1)) ||
             payload_bytes > faults->message_bytes);
    item = make_item(transport, ep, kind,
                     header_bytes + (defer && kind == ITEM_LANDING ? 0 : payload_bytes));
    if (!item) {
        return HALAY_ENOMEM;
    }
    item->tag = tag;
    item->cookie = cookie;
    item->header_bytes = header_bytes;
    item->bytes = header_bytes + payload_bytes;
    item->payload = payload;
    item->high = payload_bytes;
    if (header_bytes > 0) {
        memcpy(item->data->bytes, header, header_bytes);
    }
    if (!defer && payload_bytes > 0) {
        memcpy(item->data->bytes + header_bytes, payload, payload_bytes);
        item->payload = item->data->bytes;
        item->high = kind == ITEM_LANDING ? payload_bytes : 0;
    }
    launch(transport, item, defer);
    return defer ? HALAY_INPROGRESS : HALAY_OK;
}

int hly_inproc_withdraw(halay_transport_t *transport, uint64_t tag)
{
    struct landing **link = &transport->landings, *landing;
    const struct item *item;

    for (; (landing = *link); link = &landing->next) {
        if (landing->tag == tag) {
            *link = landing->next;
            free(landing);
            transport->nlandings--;
            return HALAY_OK;
        }
    }
    TAILQ_FOREACH(item, &transport->inbox, in_entry)
    {
        if (item->landing && item->landing->tag == tag) {
            return HALAY_INPROGRESS;
        }
    }
    return HALAY_OK;
}

int hly_inproc_recv(halay_transport_t *transport, uint64_t tag, void *buffer, size_t bytes,
                    uint64_t cookie)
{
    struct landing *landing;

    for (landing = transport->landings; landing; landing = landing->next) {
        if (landing->tag == tag) {
            return HALAY_ESTATE;
        }
    }
    if (transport->nlandings == INPROC_LANDINGS_MAX || refused(transport)) {
        return HALAY_EAGAIN;
    }
    landing = malloc(sizeof(*landing));
    if (!landing) {
        return HALAY_ENOMEM;
    }
    *landing = (struct landing){transport->landings, tag, cookie, buffer, bytes};
    transport->landings = landing;
    transport->nlandings++;
    return HALAY_OK;
}

/* Where a payload that may lie in a device's memory is for us. */
static const void *of_device(const halay_transport_t *transport, const void *payload, size_t bytes)
{
    for (const halay_mem_t *mem = transport->mems; mem; mem = mem->next) {
        const size_t at = (uintptr_t)payload - (uintptr_t)mem->address;

        if (mem->inside && at < mem->bytes && bytes <= mem->bytes - at) {
            return mem->inside + at;
        }
    }
    return payload;
}

int hly_inproc_put(halay_transport_t *transport, halay_ep_t *ep, const void *payload, size_t bytes,
                   uint64_t mem, uint64_t offset, uint32_t immediate, uint64_t cookie)
{
    struct item *item;
    int result = room(transport, ep);

    if (result) {
        return result;
    }
    item = make_item(transport, ep, ITEM_PUT, 0);
    if (!item) {
        return HALAY_ENOMEM;
    }
    item->payload = of_device(transport, payload, bytes);
    item->bytes = item->high = bytes;
    item->mem = mem;
    item->offset = offset;
    item->immediate = immediate;
    item->cookie = cookie;
    launch(transport, item, true);
    return HALAY_INPROGRESS;
}
