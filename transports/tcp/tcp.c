/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.c - the transport between nodes over TCP, by sockets of our own: the table and the fast path.
 *
 * Invariant: what a poll gave away stays as it is until the next one begins: links and their
 * buffers change only there, before anything new is given away.
 */
#include "tcp.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

extern HALAY_API const halay_transport_ops_t halay_transport_v7_tcp;

/* ------------------------------------------------------------------ small answers */

static int tcp_query(const halay_transport_t *t, halay_transport_attr_t *attr)
{
    (void)t;
    if (!attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    attr->capabilities = HALAY_CAN_LAND | HALAY_CAN_SLEEP;
    attr->message_bytes = HLY_TCP_MESSAGE;
    attr->eager_bytes = HLY_TCP_EAGER;
    attr->piece_bytes = HLY_TCP_PIECE;
    return HALAY_OK;
}

static int tcp_register(halay_transport_t *t, const halay_mem_params_t *params, halay_mem_t **mem)
{
    (void)t, (void)params, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static int tcp_alloc(halay_transport_t *t, size_t bytes, void **address, halay_mem_t **mem)
{
    (void)t, (void)bytes, (void)address, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static int tcp_give_back(halay_transport_t *t)
{
    (void)t;
    return HALAY_EUNSUPPORTED;
}

static void tcp_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    (void)t, (void)mem;
}

static int tcp_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes)
{
    (void)t, (void)mem, (void)key, (void)bytes;
    return HALAY_EUNSUPPORTED;
}

static int tcp_put(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                   const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                   uint64_t cookie)
{
    (void)t, (void)ep, (void)payload, (void)bytes, (void)key, (void)key_bytes;
    (void)offset, (void)immediate, (void)cookie;
    return HALAY_EUNSUPPORTED;
}

/* ------------------------------------------------------------------ ways */

/*
 * What its links hold ends here. They go with the failure, in the next poll: what the last one gave
 * away may lie in their buffers.
 */
static void tcp_sever(halay_transport_t *t, halay_ep_t *ep)
{
    hly_meet_sever(t, ep);
    for (int i = 0; i < t->nopen; i++) {
        if (t->open[i]->peer == ep)
            hly_tcp_link_sever(t, t->open[i]);
    }
}

/* ------------------------------------------------------------------ send, recv */

static int tcp_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                    size_t header_bytes, const void *payload, size_t payload_bytes, uint64_t cookie)
{
    if (tag ? header_bytes > 0 || payload_bytes > HLY_TCP_BYTES_MAX
            : header_bytes > HLY_TCP_MESSAGE || payload_bytes > HLY_TCP_MESSAGE - header_bytes)
        return HALAY_EINVAL;
    if (ep->base.state != PEER_WELL)
        return HALAY_EPEER;
    if (!ep->out)
        return HALAY_EAGAIN;
    if (ep->out->broken || ep->out->ended)
        return HALAY_EPEER;
    return hly_tcp_put(t, ep->out, tag, header, header_bytes, payload, payload_bytes, cookie);
}

static int tcp_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes, uint64_t cookie)
{
    if (tag == 0)
        return HALAY_EINVAL;
    return hly_tcp_landing_post(t, tag, buffer, bytes, cookie);
}

/* ------------------------------------------------------------------ poll, arm */

/* What is done: sends, and what has landed. */
static int done_give(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0;
    for (hly_tcp_part_t *part; n < max && (part = t->sent) != NULL; n++) {
        events[n] = (halay_event_t){.kind = HALAY_EVENT_SENT,
                                    .status = part->status,
                                    .peer = part->peer,
                                    .cookie = part->cookie};
        t->sent = part->next;
        part->next = t->free_part;
        t->free_part = part;
        t->nfree++;
    }
    for (hly_tcp_landing_t *landing; n < max && (landing = t->landed) != NULL; n++) {
        events[n] = (halay_event_t){.kind = HALAY_EVENT_LANDED,
                                    .status = landing->status,
                                    .peer = landing->peer,
                                    .cookie = landing->cookie,
                                    .bytes = landing->status ? 0 : landing->bytes};
        t->landed = landing->next;
        hly_tcp_landing_free(t, landing);
    }
    if (!t->sent)
        t->sent_end = &t->sent;
    if (!t->landed)
        t->landed_end = &t->landed;
    return n;
}

/* A few links are all read, in turn. */
static int links_collect(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0, i = t->turn < t->nopen ? t->turn : 0;
    t->turn = i + 1;
    for (int seen = 0; seen < t->nopen && n < max; seen++) {
        n += hly_tcp_collect(t, t->open[i], events + n, max - n);
        if (++i == t->nopen)
            i = 0;
    }
    return n;
}

/* Of many, those that have something, with what is in the buffers first. */
static int links_ask(halay_transport_t *t, halay_event_t events[], int max)
{
    struct epoll_event ready[HLY_TCP_VECTOR];
    int n = 0;
    for (int i = 0; i < t->nopen && t->nmore > 0 && n < max; i++) {
        if (t->open[i]->more)
            n += hly_tcp_collect(t, t->open[i], events + n, max - n);
    }
    if (n > 0)
        return n;
    int found = epoll_wait(t->meet.epoll_fd, ready, HLY_TCP_VECTOR, 0);
    for (int i = 0; i < found && n < max; i++) {
        hly_tcp_link_t *link = ready[i].data.ptr;
        if (link)
            n += hly_tcp_collect(t, link, events + n, max - n);
        else /* one that is not open yet, or the timer */
            t->meet.attention = 1;
    }
    return n;
}

static void links_flush(halay_transport_t *t)
{
    for (int i = 0; i < t->nopen && t->waiting > 0; i++) {
        if (t->open[i]->first)
            hly_tcp_flush(t, t->open[i]);
    }
}

/* Behind what was done with the peer, or a call that is done would seem to need it still. */
static int failures_give(halay_transport_t *t, halay_event_t events[], int max)
{
    const int n = done_give(t, events, max);
    return n + (n < max ? hly_tcp_failures_give(t, events + n, max - n) : 0);
}

static int look(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = t->meet.failing ? failures_give(t, events, max) : 0;
    if (t->waiting > 0)
        links_flush(t);
    if (n < max)
        n += t->nopen <= HLY_TCP_DIRECT ? links_collect(t, events + n, max - n)
                                        : links_ask(t, events + n, max - n);
    if (n < max && (t->sent || t->landed))
        n += done_give(t, events + n, max - n);
    return n;
}

static void disarm(halay_transport_t *t)
{
    for (int i = 0; i < t->nopen && t->asked > 0; i++)
        hly_tcp_ask(t, t->open[i], 0);
}

static int tcp_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    assert(max > 0);
    if (t->asked > 0)
        disarm(t);
    if (++t->polls % HLY_TCP_TICK == 0 &&
        hly_meet_now_ns() - t->meet.attended_ns >= HLY_TCP_SLOW_NS)
        hly_tcp_attend(t);
    int n = look(t, events, max);
    if (n == 0 && t->meet.attention) {
        hly_tcp_attend(t);
        n = look(t, events, max);
    }
    return n == 0 ? hly_meet_error_take(&t->meet) : n;
}

/* Level-triggered: what comes after the last look makes the descriptor readable. */
static int tcp_arm(halay_transport_t *t, int *fd)
{
    if (t->meet.attention || t->meet.error || t->meet.failing || t->sent || t->landed ||
        t->nmore > 0)
        return HALAY_EAGAIN;
    for (int i = 0; i < t->nopen; i++) {
        hly_tcp_link_t *link = t->open[i];
        if (hly_tcp_ask(t, link, link->first || link->refused))
            return HALAY_ETRANSPORT;
        link->refused = 0;
    }
    t->meet.attention = 1; /* whatever wakes it, the first idle poll looks everywhere */
    int rc = hly_tcp_timer_set(t);
    if (rc)
        return rc;
    *fd = t->meet.epoll_fd;
    return HALAY_OK;
}

const halay_transport_ops_t halay_transport_v7_tcp = {
    .size = sizeof(halay_transport_ops_t),
    .name = "tcp",
    .open = hly_tcp_open,
    .close = hly_tcp_close,
    .query = tcp_query,
    .address = hly_meet_address,
    .connect = hly_meet_connect,
    .disconnect = hly_meet_disconnect,
    .sever = tcp_sever,
    .register_mem = tcp_register,
    .alloc_mem = tcp_alloc,
    .deregister_mem = tcp_deregister,
    .key = tcp_key,
    .send = tcp_send,
    .recv = tcp_recv,
    .withdraw = hly_tcp_landing_withdraw,
    .put = tcp_put,
    .poll = tcp_poll,
    .give_back = tcp_give_back,
    .arm = tcp_arm,
};
