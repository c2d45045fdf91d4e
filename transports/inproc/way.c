/* SPDX-License-Identifier: Apache-2.0 */
/*
 * way.c - ways are made, and go. A way is PENDING until its peer is there and connect_polls have
 * passed, UP until either side leaves, then FAILED. UP without a target: the peer left behind a
 * cut, so that nobody here can know.
 */
#include <assert.h>
#include <stdlib.h>

#include "hub.h"

static halay_transport_t *reachable(const halay_transport_t *transport, const halay_ep_t *ep)
{
    halay_transport_t *target = hly_inproc_find(transport, ep->peer->id);

    return target && !hly_inproc_is_cut(transport, target) ? target : NULL;
}

void hly_inproc_way_try(halay_transport_t *transport, halay_ep_t *ep)
{
    halay_transport_t *target = reachable(transport, ep);
    struct peer *back;

    assert(ep->state == WAY_PENDING);
    if (target && target->killed) {
        ep->peer->gone = true;
        ep->peer->text = "rank thread was killed by the test";
    }
    if (!target && !ep->peer->gone && hly_inproc_has_closed(transport, ep->peer->id)) {
        ep->peer->gone = true;
        ep->peer->text = "peer closed";
    }
    if (ep->peer->gone) {
        hly_inproc_fail(transport, ep->peer, ep->peer->text);
        return;
    }
    if (target && ep->connect_polls > 0) {
        ep->connect_polls--;
        return;
    }
    back = target ? hly_inproc_peer(target, transport->self, true) : NULL;
    if (back) {
        back->from++;
        ep->target = target;
        ep->state = WAY_UP;
        if (ep->wanted) {
            ep->wanted = false;
            transport->nudged = true;
            hly_inproc_wake(transport);
        }
    } else if (hly_inproc_now() >= ep->deadline_ns) {
        hly_inproc_fail(transport, ep->peer, "no such process was there before the deadline");
    }
}

void hly_inproc_way_drop(halay_transport_t *transport, halay_ep_t *ep)
{
    halay_ep_t **link = &transport->ways;
    struct item *item, *next;

    hly_inproc_recall(transport, NULL, ep, HALAY_EPEER);
    for (item = TAILQ_FIRST(&transport->outbox); item; item = next) {
        next = TAILQ_NEXT(item, out_entry);
        if (item->way == ep) {
            item->way = NULL;
            if (!item->in_inbox && !item->done) {
                hly_inproc_finish(item, HALAY_EPEER); /* lost behind a cut */
            }
        }
    }
    if (ep->target) {
        struct peer *back = hly_inproc_peer(ep->target, transport->self, false);

        assert(ep->state == WAY_UP && back && back->from > 0);
        back->from--;
        TAILQ_FOREACH(item, &ep->target->inbox, in_entry)
        {
            item->way = item->way == ep ? NULL : item->way;
        }
    }
    assert(ep->peer->to > 0);
    ep->peer->to--;
    while (*link != ep) {
        link = &(*link)->next;
    }
    *link = ep->next;
    free(ep);
}

bool hly_inproc_connecting(const halay_transport_t *transport, uint64_t *deadline_ns)
{
    const halay_ep_t *ep;

    *deadline_ns = 0;
    for (ep = transport->ways; ep; ep = ep->next) {
        if (ep->state != WAY_PENDING) {
            continue;
        }
        if (reachable(transport, ep)) {
            return true;
        }
        if (*deadline_ns == 0 || ep->deadline_ns < *deadline_ns) {
            *deadline_ns = ep->deadline_ns;
        }
    }
    return false;
}
