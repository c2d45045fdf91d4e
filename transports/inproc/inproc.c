/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc.c - the transport between threads of one process: its table, and the checks of arguments.
 * What it injects must be legal under the contract: a core that fails here is wrong everywhere.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "hub.h"

static void lock(halay_transport_t *transport)
{
    pthread_mutex_lock(&transport->hub->lock);
}

static void unlock(halay_transport_t *transport)
{
    pthread_mutex_unlock(&transport->hub->lock);
}

static uint32_t capabilities(const halay_transport_t *transport)
{
    const halay_inproc_faults_t *faults = &transport->hub->faults;
    const uint32_t puts = HALAY_CAN_PUT | HALAY_CAN_DEVICE, hidden = faults->hide_capabilities;
    return ((HALAY_CAN_LAND | HALAY_CAN_SLEEP | (hidden & HALAY_CAN_PUT ? 0 : puts)) & ~hidden) |
           (faults->cache ? HALAY_CAN_CACHE : 0) | (faults->lend_bytes ? HALAY_CAN_LEND : 0);
}

static int invalid(const halay_transport_t *transport, const char *what)
{
    hly_inproc_log(transport, 0, "inproc: %s; this is a mistake of the caller", what);
    return HALAY_EINVAL;
}

static halay_transport_t *make(const halay_transport_params_t *params,
                               const struct halay_inproc_rank *rank)
{
    halay_transport_t *made = calloc(1, sizeof(*made));

    if (!made) {
        return NULL;
    }
    /* A timer is an event descriptor too, and also ends the sleep when a connection's time
     * is up. */
    made->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (made->fd < 0) {
        free(made);
        return NULL;
    }
    made->hub = rank->hub;
    made->rank = rank->rank;
    made->self = params->self;
    memcpy(made->job, params->job, sizeof(made->job));
    memcpy(made->secret, params->secret, sizeof(made->secret));
    made->deadline_ns = params->deadline_ns;
    made->log = params->log;
    made->log_arg = params->log_arg;
    TAILQ_INIT(&made->inbox);
    TAILQ_INIT(&made->outbox);
    return made;
}

/* Enters the hub, and wakes those who wait for this id. */
static const char *enter(halay_transport_t *transport)
{
    halay_inproc_hub_t *hub = transport->hub;
    halay_transport_t *other;
    const halay_ep_t *ep;

    if (hub->ranks[transport->rank].killed) {
        return "this rank was killed by the test";
    }
    for (other = hub->transports; other; other = other->next) {
        if (hly_inproc_same(other->self, transport->self)) {
            return "this process id is open already";
        }
    }
    transport->rng = hly_inproc_mix(hub->faults.seed + hly_inproc_mix(++hub->serial)) +
                     hly_inproc_mix((uint64_t)transport->rank + 1);
    transport->next = hub->transports;
    hub->transports = transport;
    for (other = hub->transports; other; other = other->next) {
        for (ep = other->ways; ep; ep = ep->next) {
            if (ep->state == WAY_PENDING && hly_inproc_same(ep->peer->id, transport->self)) {
                hly_inproc_wake(other);
            }
        }
    }
    return NULL;
}

static int inproc_open(const halay_transport_params_t *params, halay_transport_t **transport)
{
    const struct halay_inproc_rank *rank = params->arg;
    halay_transport_t *made;
    const char *trouble;

    if (params->size < sizeof(*params)) {
        return HALAY_EINVAL;
    }
    if (!rank || !rank->hub || rank->rank < 0 || rank->rank >= rank->hub->nranks ||
        (params->options && params->options[0])) {
        if (params->log) {
            params->log(params->log_arg, 0,
                        rank ? "inproc: no such rank, or an option: it has none"
                             : "inproc: is for tests only; params.arg must name a rank of a hub");
        }
        return HALAY_EINVAL;
    }
    made = make(params, rank);
    if (!made) {
        if (params->log) {
            params->log(params->log_arg, 0,
                        "inproc: no memory or descriptor for an endpoint; raise ulimit -n");
        }
        return HALAY_ENOMEM;
    }
    lock(made);
    trouble = enter(made);
    unlock(made);
    if (trouble) {
        hly_inproc_log(made, 0, "inproc: %s; close it first", trouble);
        close(made->fd);
        free(made);
        return HALAY_ETRANSPORT;
    }
    *transport = made;
    return HALAY_OK;
}

static void inproc_close(halay_transport_t *transport)
{
    halay_inproc_hub_t *hub;

    if (!transport) {
        return;
    }
    hub = transport->hub;
    pthread_mutex_lock(&hub->lock);
    if (!transport->killed) {
        hly_inproc_leave(transport, false);
    }
    hly_inproc_free(transport);
    pthread_mutex_unlock(&hub->lock);
}

static int inproc_query(const halay_transport_t *transport, halay_transport_attr_t *attr)
{
    halay_transport_attr_t full = {
        .size = attr->size,
        .capabilities = capabilities(transport),
        .message_bytes = transport->hub->faults.message_bytes,
        .eager_bytes = transport->hub->faults.eager_bytes,
        .piece_bytes = transport->hub->faults.piece_bytes,
    };

    if (attr->size < sizeof(size_t)) {
        return HALAY_EINVAL;
    }
    memcpy(attr, &full, attr->size < sizeof(full) ? attr->size : sizeof(full));
    return HALAY_OK;
}

static int inproc_address(const halay_transport_t *transport, void *address, size_t *bytes)
{
    (void)transport;
    (void)address;
    *bytes = 0;
    return HALAY_OK;
}

static int inproc_connect(halay_transport_t *transport, halay_peer_id_t id, const void *address,
                          size_t bytes, halay_ep_t **ep)
{
    halay_ep_t *made;
    struct peer *peer;
    int result = HALAY_OK;

    (void)address;
    if (bytes != 0) {
        return invalid(transport, "connect with an address: it has none");
    }
    made = calloc(1, sizeof(*made));
    if (!made) {
        return HALAY_ENOMEM;
    }
    made->connect_polls = transport->hub->faults.connect_polls;
    made->deadline_ns = hly_inproc_now() + transport->deadline_ns;
    if (made->deadline_ns < transport->deadline_ns) {
        made->deadline_ns = UINT64_MAX;
    }
    lock(transport);
    peer = transport->killed ? NULL : hly_inproc_peer(transport, id, true);
    if (!peer) {
        result = transport->killed ? HALAY_ETRANSPORT : HALAY_ENOMEM;
        free(made);
    } else {
        made->peer = peer;
        made->next = transport->ways;
        transport->ways = made;
        peer->to++;
        peer->failed = peer->gone ? peer->failed : peer->failing; /* a new attempt */
        hly_inproc_way_try(transport, made);
        hly_inproc_wake(transport);
        *ep = made;
    }
    unlock(transport);
    return result;
}

static void inproc_disconnect(halay_transport_t *transport, halay_ep_t *ep)
{
    if (ep) {
        lock(transport);
        hly_inproc_way_drop(transport, ep);
        unlock(transport);
    }
}

static void inproc_sever(halay_transport_t *transport, halay_ep_t *ep)
{
    lock(transport);
    hly_inproc_sever(transport, ep->peer);
    unlock(transport);
}

/* HALAY_ENOMEM: there are too many. */
static int mem_enter(halay_transport_t *transport, halay_mem_t *mem)
{
    if (transport->killed) {
        return HALAY_ETRANSPORT;
    }
    if (transport->nmems == INPROC_MEMS_MAX) {
        return HALAY_ENOMEM;
    }
    mem->id = ++transport->hub->serial;
    mem->next = transport->mems;
    transport->mems = mem;
    transport->nmems++;
    return HALAY_OK;
}

/* Takes it over, also on failure. */
static int mem_show(halay_transport_t *transport, halay_mem_t *made, halay_mem_t **mem)
{
    int result;

    lock(transport);
    result = mem_enter(transport, made);
    unlock(transport);
    if (!result) {
        *mem = made;
        return HALAY_OK;
    }
    if (made->shown) {
        munmap(made->address, made->bytes);
    }
    hly_inproc_mem_free(made);
    if (result == HALAY_ENOMEM) {
        hly_inproc_log(transport, 0, "inproc: more than %d registrations; deregister some",
                       INPROC_MEMS_MAX);
    }
    return result;
}

/* The pages of a device that can be mapped, as those of a test device can. */
static int inside_map(halay_mem_t *made, const halay_mem_params_t *params)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = params->offset % page;
    void *pages;

    if (params->dmabuf < 0) {
        return HALAY_EUNSUPPORTED;
    }
    made->mapped = params->bytes + skip;
    pages = mmap(NULL, made->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, params->dmabuf,
                 (off_t)(params->offset - skip));
    if (pages == MAP_FAILED) {
        return HALAY_EUNSUPPORTED;
    }
    made->inside = (uint8_t *)pages + skip;
    return HALAY_OK;
}

static int inproc_register(halay_transport_t *transport, const halay_mem_params_t *params,
                           halay_mem_t **mem)
{
    const uint32_t able = capabilities(transport);
    halay_mem_t *made;
    int result = HALAY_OK;

    if (!(able & HALAY_CAN_PUT) ||
        (params->kind != HALAY_MEMORY_HOST && !(able & HALAY_CAN_DEVICE))) {
        return HALAY_EUNSUPPORTED;
    }
    made = calloc(1, sizeof(*made));
    if (!made) {
        return HALAY_ENOMEM;
    }
    made->address = params->address;
    made->bytes = params->bytes;
    if (params->kind != HALAY_MEMORY_HOST) {
        result = inside_map(made, params);
    }
    if (result) {
        free(made);
        return result;
    }
    return mem_show(transport, made, mem);
}

static int inproc_alloc(halay_transport_t *transport, size_t bytes, void **address,
                        halay_mem_t **mem)
{
    halay_mem_t *made;
    int result;

    if (!(capabilities(transport) & HALAY_CAN_LEND)) {
        return HALAY_EUNSUPPORTED;
    }
    made = calloc(1, sizeof(*made));
    if (!made || !hly_inproc_mem_make(made, bytes, transport->hub->faults.lend_most)) {
        free(made);
        return HALAY_ENOMEM;
    }
    result = mem_show(transport, made, mem);
    if (!result) {
        *address = made->address;
    }
    return result;
}

static void inproc_deregister(halay_transport_t *transport, halay_mem_t *mem)
{
    halay_mem_t **link = &transport->mems;

    if (!mem) {
        return;
    }
    lock(transport);
    while (*link != mem) {
        link = &(*link)->next;
    }
    *link = mem->next;
    transport->nmems--;
    hly_inproc_recall(transport, mem, NULL, HALAY_ETRANSPORT);
    hly_inproc_mem_free(mem);
    unlock(transport);
}

static int inproc_key(halay_transport_t *transport, const halay_mem_t *mem, void *key,
                      size_t *bytes)
{
    struct inproc_key made = {INPROC_MAGIC, mem ? mem->id : 0, transport->self};

    if (!(capabilities(transport) & HALAY_CAN_PUT)) {
        return HALAY_EUNSUPPORTED;
    }
    if (!mem || *bytes < sizeof(made)) {
        return invalid(transport, "key of no memory, or room for fewer than 32 bytes");
    }
    memcpy(key, &made, sizeof(made));
    *bytes = sizeof(made);
    return HALAY_OK;
}

static int inproc_send(halay_transport_t *transport, halay_ep_t *ep, uint64_t tag,
                       const void *header, size_t header_bytes, const void *payload,
                       size_t payload_bytes, uint64_t cookie)
{
    int result;

    if (tag && !(capabilities(transport) & HALAY_CAN_LAND)) {
        return HALAY_EUNSUPPORTED;
    }
    if ((!header && header_bytes) || (!payload && payload_bytes) || (tag && header_bytes)) {
        return invalid(transport, "send of NULL, or of a header with a tag");
    }
    if (!tag && (header_bytes > transport->hub->faults.message_bytes ||
                 payload_bytes > transport->hub->faults.message_bytes - header_bytes)) {
        return invalid(transport, "send of more than message_bytes");
    }
    lock(transport);
    result = transport->killed ? HALAY_ETRANSPORT
                               : hly_inproc_send(transport, ep, tag, header, header_bytes, payload,
                                                 payload_bytes, cookie);
    unlock(transport);
    return result;
}

static int inproc_recv(halay_transport_t *transport, uint64_t tag, void *buffer, size_t bytes,
                       uint64_t cookie)
{
    int result;

    if (!(capabilities(transport) & HALAY_CAN_LAND)) {
        return HALAY_EUNSUPPORTED;
    }
    if (!tag) {
        return invalid(transport, "recv without a tag");
    }
    lock(transport);
    result = transport->killed ? HALAY_ETRANSPORT
                               : hly_inproc_recv(transport, tag, buffer, bytes, cookie);
    unlock(transport);
    return result == HALAY_ESTATE ? invalid(transport, "recv of a tag that is posted already")
                                  : result;
}

static int inproc_withdraw(halay_transport_t *transport, uint64_t tag)
{
    int result;

    if (!(capabilities(transport) & HALAY_CAN_LAND)) {
        return HALAY_EUNSUPPORTED;
    }
    lock(transport);
    result = transport->killed ? HALAY_ETRANSPORT : hly_inproc_withdraw(transport, tag);
    unlock(transport);
    return result;
}

static int inproc_put(halay_transport_t *transport, halay_ep_t *ep, const void *payload,
                      size_t bytes, const void *key, size_t key_bytes, uint64_t offset,
                      uint32_t immediate, uint64_t cookie)
{
    struct inproc_key to = {0};
    int result;

    if (!(capabilities(transport) & HALAY_CAN_PUT)) {
        return HALAY_EUNSUPPORTED;
    }
    if (key_bytes == sizeof(to)) {
        memcpy(&to, key, sizeof(to));
    }
    if ((!payload && bytes) || ((bytes || key_bytes) && to.magic != INPROC_MAGIC)) {
        return invalid(transport, "put of NULL, or with something that is no key");
    }
    if (to.magic && !hly_inproc_same(to.owner, ep->peer->id)) {
        return invalid(transport, "put with the key of another peer's memory");
    }
    lock(transport);
    result = transport->killed
                 ? HALAY_ETRANSPORT
                 : hly_inproc_put(transport, ep, payload, bytes, to.mem, offset, immediate, cookie);
    unlock(transport);
    return result;
}

static int inproc_give_back(halay_transport_t *transport)
{
    int result = HALAY_OK;

    if (!(capabilities(transport) & HALAY_CAN_LEND)) {
        return HALAY_EUNSUPPORTED;
    }
    hly_inproc_free_held(transport);
    lock(transport);
    if (transport->borrowed) {
        result = hly_inproc_give_back(transport);
    }
    unlock(transport);
    return result;
}

/* HALAY_EAGAIN also where a post was refused and would succeed now. */
static int inproc_arm(halay_transport_t *transport, int *fd)
{
    struct itimerspec wake = {0};
    uint64_t deadline_ns;
    int result = HALAY_OK;

    if (!(capabilities(transport) & HALAY_CAN_SLEEP)) {
        return HALAY_EUNSUPPORTED;
    }
    lock(transport);
    if (transport->killed) {
        result = HALAY_ETRANSPORT;
    } else if (transport->nudged || hly_inproc_pending(transport) ||
               hly_inproc_connecting(transport, &deadline_ns)) {
        transport->nudged = false;
        result = HALAY_EAGAIN;
    } else {
        if (transport->timed || deadline_ns) {
            wake.it_value.tv_sec = (time_t)(deadline_ns / 1000000000u);
            wake.it_value.tv_nsec = (long)(deadline_ns % 1000000000u);
            timerfd_settime(transport->fd, TFD_TIMER_ABSTIME, &wake, NULL);
            transport->timed = deadline_ns != 0;
        }
        transport->armed = true;
        *fd = transport->fd;
    }
    unlock(transport);
    return result;
}

HALAY_API const halay_transport_ops_t halay_transport_v7_inproc = {
    .size = sizeof(halay_transport_ops_t),
    .name = "inproc",
    .open = inproc_open,
    .close = inproc_close,
    .query = inproc_query,
    .address = inproc_address,
    .connect = inproc_connect,
    .disconnect = inproc_disconnect,
    .sever = inproc_sever,
    .register_mem = inproc_register,
    .alloc_mem = inproc_alloc,
    .deregister_mem = inproc_deregister,
    .key = inproc_key,
    .send = inproc_send,
    .recv = inproc_recv,
    .withdraw = inproc_withdraw,
    .put = inproc_put,
    .poll = hly_inproc_poll,
    .give_back = inproc_give_back,
    .arm = inproc_arm,
};
