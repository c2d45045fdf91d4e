/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub.c - what the threads share: who is there, who is dead, which two are cut off.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "hub.h"

#define RANKS_MAX 4096

uint64_t hly_inproc_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The finalizer of MurmurHash3 (Appleby): a bijection, zero only for zero. */
uint64_t hly_inproc_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

uint32_t hly_inproc_random(halay_transport_t *transport, uint32_t below)
{
    transport->rng += 0x9e3779b97f4a7c15u;
    return (uint32_t)(hly_inproc_mix(transport->rng) % ((uint64_t)below + 1));
}

void hly_inproc_log(const halay_transport_t *transport, int level, const char *format, ...)
{
    char text[256];
    va_list arguments;

    if (!transport->log) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    transport->log(transport->log_arg, level, text);
}

bool hly_inproc_same(halay_peer_id_t a, halay_peer_id_t b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

bool hly_inproc_is_cut(const halay_transport_t *a, const halay_transport_t *b)
{
    return a->hub->cut[a->rank * a->hub->nranks + b->rank];
}

/* As on a network, an endpoint with another secret does not answer. */
halay_transport_t *hly_inproc_find(const halay_transport_t *seeker, halay_peer_id_t id)
{
    halay_transport_t *found;

    for (found = seeker->hub->transports; found; found = found->next) {
        if (hly_inproc_same(found->self, id) && !memcmp(found->job, seeker->job, 16) &&
            !memcmp(found->secret, seeker->secret, 16)) {
            break;
        }
    }
    return found;
}

bool hly_inproc_has_closed(const halay_transport_t *seeker, halay_peer_id_t id)
{
    const halay_inproc_hub_t *hub = seeker->hub;
    int r = 0;

    while (r < hub->nranks && !hly_inproc_same(hub->ranks[r].closed, id)) {
        r++;
    }
    return r < hub->nranks && !hub->cut[seeker->rank * hub->nranks + r];
}

void hly_inproc_wake(halay_transport_t *transport)
{
    const struct itimerspec at_once = {.it_value = {.tv_nsec = 1}};

    atomic_store_explicit(&transport->busy, true, memory_order_release);
    if (transport->armed) {
        transport->armed = false;
        transport->timed = true;
        timerfd_settime(transport->fd, 0, &at_once, NULL);
    }
}

struct peer *hly_inproc_peer(halay_transport_t *transport, halay_peer_id_t id, bool make)
{
    struct peer *peer;

    for (peer = transport->peers; peer; peer = peer->next) {
        if (hly_inproc_same(peer->id, id)) {
            return peer;
        }
    }
    if (!make || transport->npeers == INPROC_PEERS_MAX || !(peer = calloc(1, sizeof(*peer)))) {
        return NULL;
    }
    peer->id = id;
    peer->next = transport->peers;
    transport->peers = peer;
    transport->npeers++;
    return peer;
}

void hly_inproc_fail(halay_transport_t *transport, struct peer *peer, const char *text)
{
    halay_ep_t *ep;

    for (ep = transport->ways; ep; ep = ep->next) {
        if (ep->peer == peer) {
            ep->state = WAY_FAILED;
            ep->target = NULL;
        }
    }
    if (!peer->failed) {
        peer->failed = peer->failing = true;
        peer->text = text;
        hly_inproc_wake(transport);
    }
}

/* The source leaves with this in its outbox. The memory of a dead one is not read any more. */
static void leave_outgoing(struct item *item, bool killed)
{
    bool landing = item->kind == ITEM_LANDING && item->landing;

    if (!item->in_inbox || item->arrived) {
        hly_inproc_leave_outbox(item);
    } else if (!killed && item->kind != ITEM_PUT) {
        hly_inproc_flush(item);
        hly_inproc_leave_outbox(item);
    } else if (landing) {
        item->landed = HALAY_EPEER;
        item->arrived = true;
        hly_inproc_wake(item->target);
        hly_inproc_leave_outbox(item);
    } else {
        hly_inproc_leave_outbox(item);
        hly_inproc_leave_inbox(item);
    }
}

/* What has begun to land ends with an error, what has arrived stays, the rest is lost. */
static void sever_incoming(halay_transport_t *from, halay_transport_t *to)
{
    struct item *item, *next;

    for (item = TAILQ_FIRST(&to->inbox); item; item = next) {
        next = TAILQ_NEXT(item, in_entry);
        if (item->source != from || item->arrived) {
            continue;
        }
        if (!item->done) {
            hly_inproc_finish(item, HALAY_EPEER);
        }
        if (item->landing) {
            item->landed = HALAY_EPEER;
            item->arrived = true;
            hly_inproc_wake(to);
        } else {
            hly_inproc_leave_inbox(item);
        }
    }
}

/* What was lost behind a cut has no target to be found with. */
static void sever_outgoing(halay_transport_t *transport, const struct peer *peer)
{
    halay_ep_t *ep;
    struct item *item;

    for (ep = transport->ways; ep; ep = ep->next) {
        if (ep->peer == peer) {
            hly_inproc_recall(transport, NULL, ep, HALAY_EPEER);
        }
    }
    TAILQ_FOREACH(item, &transport->outbox, out_entry)
    {
        if (!item->done && !item->in_inbox && hly_inproc_same(item->to, peer->id)) {
            hly_inproc_finish(item, HALAY_EPEER);
        }
    }
}

void hly_inproc_sever(halay_transport_t *transport, struct peer *peer)
{
    halay_transport_t *other = hly_inproc_find(transport, peer->id);
    struct peer *back = other ? hly_inproc_peer(other, transport->self, false) : NULL;

    sever_outgoing(transport, peer);
    if (other) {
        sever_incoming(transport, other);
        sever_incoming(other, transport);
    }
    hly_inproc_fail(transport, peer, "this end has given it up");
    if (back && !other->killed && !hly_inproc_is_cut(transport, other)) {
        sever_outgoing(other, back);
        hly_inproc_fail(other, back, "peer has given this end up");
    }
}

/* The source has left; what it had sent to `to` remains, or a part of it. */
static void leave_incoming(halay_transport_t *source, halay_transport_t *to, bool killed)
{
    struct item *item, *next;

    for (item = TAILQ_FIRST(&to->inbox); item; item = next) {
        next = TAILQ_NEXT(item, in_entry);
        if (item->source != source) {
            continue;
        }
        assert(!item->in_outbox);
        if (killed && !item->landing && item != to->borrowed && hly_inproc_random(source, 1)) {
            hly_inproc_leave_inbox(item);
            continue;
        }
        item->source = NULL;
        item->way = NULL;
    }
}

static void tell(halay_transport_t *transport, halay_transport_t *gone, bool killed)
{
    struct peer *peer = hly_inproc_peer(transport, gone->self, false);
    halay_ep_t *ep;

    if (transport->killed || hly_inproc_is_cut(transport, gone)) {
        for (ep = transport->ways; ep; ep = ep->next) {
            ep->target = ep->target == gone ? NULL : ep->target;
        }
    } else if (peer) {
        peer->gone = true;
        peer->text = killed ? "rank thread was killed by the test" : "peer closed";
        if (peer->to || (killed && peer->from)) {
            hly_inproc_fail(transport, peer, peer->text);
        }
    }
}

void hly_inproc_leave(halay_transport_t *transport, bool killed)
{
    halay_transport_t *other;
    struct item *item, *next;

    transport->hub->ranks[transport->rank].closed = transport->self;
    hly_inproc_recall(transport, NULL, NULL, HALAY_EPEER);
    for (item = TAILQ_FIRST(&transport->inbox); item; item = next) {
        next = TAILQ_NEXT(item, in_entry);
        if (item == transport->borrowed) {
            continue; /* its reader gives it back */
        }
        if (!item->done) {
            hly_inproc_finish(item, HALAY_EPEER);
        }
        hly_inproc_leave_inbox(item);
    }
    for (item = TAILQ_FIRST(&transport->outbox); item; item = next) {
        next = TAILQ_NEXT(item, out_entry);
        leave_outgoing(item, killed);
    }
    for (other = transport->hub->transports; other; other = other->next) {
        leave_incoming(transport, other, killed);
        if (other != transport) {
            tell(other, transport, killed);
        }
    }
}

void hly_inproc_free(halay_transport_t *transport)
{
    halay_transport_t **link = &transport->hub->transports;
    struct landing *landing;
    struct peer *peer;
    halay_mem_t *mem;

    if (transport->borrowed) {
        hly_inproc_give_back(transport);
    }
    assert(TAILQ_EMPTY(&transport->inbox) && TAILQ_EMPTY(&transport->outbox));
    while (transport->ways) {
        hly_inproc_way_drop(transport, transport->ways);
    }
    while ((peer = transport->peers)) {
        transport->peers = peer->next;
        free(peer);
    }
    while ((mem = transport->mems)) {
        transport->mems = mem->next;
        hly_inproc_mem_free(mem);
    }
    while ((landing = transport->landings)) {
        transport->landings = landing->next;
        free(landing);
    }
    while (*link != transport) {
        link = &(*link)->next;
    }
    *link = transport->next;
    close(transport->fd);
    hly_inproc_free_held(transport);
    free(transport);
}

static bool faults_ok(const halay_inproc_faults_t *faults)
{
    return faults->delay_polls_max <= 100000 && faults->late_put_polls <= 100000 &&
           faults->connect_polls <= 100000 && faults->queue_slots <= 65536 &&
           faults->again_percent <= 90 && faults->message_bytes >= 1024 &&
           faults->message_bytes <= 1u << 30 && faults->eager_bytes <= 1u << 30 &&
           faults->piece_bytes > 0 && faults->piece_bytes <= faults->message_bytes;
}

int halay_inproc_hub_create(int nranks, const halay_inproc_faults_t *faults,
                            halay_inproc_hub_t **hub)
{
    halay_inproc_hub_t *made;

    if (nranks < 1 || nranks > RANKS_MAX || !hub) {
        return HALAY_EINVAL;
    }
    made = calloc(1, sizeof(*made));
    if (!made) {
        return HALAY_ENOMEM;
    }
    if (faults) {
        made->faults = *faults;
    }
    made->job =
        made->faults.seed + hly_inproc_mix((uint64_t)getpid()) + hly_inproc_mix(hly_inproc_now());
    made->faults.queue_slots += made->faults.queue_slots ? 0 : 64;
    made->faults.eager_bytes += made->faults.eager_bytes ? 0 : 2048;
    made->faults.message_bytes += made->faults.message_bytes ? 0 : 16384;
    made->faults.piece_bytes += made->faults.piece_bytes ? 0 : 8192;
    if (!faults_ok(&made->faults)) {
        free(made);
        return HALAY_EINVAL;
    }
    made->nranks = nranks;
    made->nnodes = 1;
    made->ranks = calloc((size_t)nranks, sizeof(*made->ranks));
    made->cut = calloc((size_t)nranks, (size_t)nranks);
    if (!made->ranks || !made->cut || pthread_mutex_init(&made->lock, NULL)) {
        free(made->cut);
        free(made->ranks);
        free(made);
        return HALAY_ENOMEM;
    }
    *hub = made;
    return HALAY_OK;
}

void halay_inproc_hub_destroy(halay_inproc_hub_t *hub)
{
    if (!hub) {
        return;
    }
    while (hub->transports) {
        assert(hub->transports->killed); /* a living rank has not closed */
        hly_inproc_free(hub->transports);
    }
    pthread_mutex_destroy(&hub->lock);
    free(hub->cut);
    free(hub->ranks);
    free(hub);
}

int halay_inproc_hub_nodes(halay_inproc_hub_t *hub, const int node_of_rank[])
{
    int nnodes = 0;

    if (!hub || !node_of_rank) {
        return HALAY_EINVAL;
    }
    for (int r = 0; r < hub->nranks; r++) {
        if (node_of_rank[r] < 0 || node_of_rank[r] >= hub->nranks) {
            return HALAY_EINVAL;
        }
        nnodes = node_of_rank[r] >= nnodes ? node_of_rank[r] + 1 : nnodes;
    }
    for (int node = 0; node < nnodes; node++) {
        int r = 0;

        while (r < hub->nranks && node_of_rank[r] != node) {
            r++;
        }
        if (r == hub->nranks) {
            return HALAY_EINVAL;
        }
    }
    pthread_mutex_lock(&hub->lock);
    for (int r = 0; r < hub->nranks; r++) {
        hub->ranks[r].node = node_of_rank[r];
    }
    hub->nnodes = nnodes;
    pthread_mutex_unlock(&hub->lock);
    return HALAY_OK;
}

void halay_inproc_kill(halay_inproc_hub_t *hub, int rank)
{
    halay_transport_t *transport;

    assert(rank >= 0 && rank < hub->nranks);
    pthread_mutex_lock(&hub->lock);
    hub->ranks[rank].killed = true;
    for (transport = hub->transports; transport; transport = transport->next) {
        if (transport->rank == rank && !transport->killed) {
            transport->killed = true;
            hly_inproc_leave(transport, true);
            hly_inproc_wake(transport);
        }
    }
    pthread_mutex_unlock(&hub->lock);
}

/* What is under way between the two is lost, except for what has begun to land. */
static void cut_inbox(halay_transport_t *transport, int rank)
{
    struct item *item, *next;

    for (item = TAILQ_FIRST(&transport->inbox); item; item = next) {
        next = TAILQ_NEXT(item, in_entry);
        if (item->source && item->source->rank == rank && !item->arrived && !item->landing) {
            hly_inproc_leave_inbox(item);
        }
    }
}

void halay_inproc_cut(halay_inproc_hub_t *hub, int a, int b)
{
    halay_transport_t *transport;

    assert(a >= 0 && a < hub->nranks && b >= 0 && b < hub->nranks && a != b);
    pthread_mutex_lock(&hub->lock);
    hub->cut[a * hub->nranks + b] = hub->cut[b * hub->nranks + a] = 1;
    for (transport = hub->transports; transport; transport = transport->next) {
        if (transport->rank == a || transport->rank == b) {
            cut_inbox(transport, a + b - transport->rank);
        }
    }
    pthread_mutex_unlock(&hub->lock);
}
