/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.c - calling a peer, again and again until the deadline; peers, and that they failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "meet.h"

/* ------------------------------------------------------------------ peers */

hly_meet_peer_t *hly_meet_peer_hold(hly_meet_t *m, halay_peer_id_t id)
{
    hly_meet_peer_t *peer;
    for (peer = m->peers; peer; peer = peer->next) {
        if (hly_meet_same_id(peer->id, id) && !hly_meet_peer_over(peer))
            return peer; /* one that is over goes soon, and the next starts anew */
    }
    peer = m->ops->make(m->transport);
    if (!peer)
        return NULL;
    peer->id = id;
    peer->next = m->peers;
    m->peers = peer;
    return peer;
}

void hly_meet_peer_forget(hly_meet_t *m, hly_meet_peer_t *peer)
{
    hly_meet_peer_t **at = &m->peers;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    m->over -= hly_meet_peer_over(peer);
}

int hly_meet_lost_status(int error)
{
    const int cut = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
    return cut ? HALAY_ETIMEOUT : HALAY_EPEER;
}

int hly_meet_is_closed(int error)
{
    return error == EBADF || error == ENOTSOCK;
}

int hly_meet_peer_fail(hly_meet_t *m, hly_meet_peer_t *peer, int status, const char *format, ...)
{
    va_list list;
    if (peer->state != PEER_WELL)
        return status;
    peer->state = PEER_FAILING;
    peer->status = status;
    va_start(list, format);
    vsnprintf(peer->text, sizeof(peer->text), format, list);
    va_end(list);
    hly_meet_call_settled(m, peer);
    m->failing++;
    m->attention = 1;
    return status;
}

void hly_meet_peer_lost(hly_meet_t *m, hly_meet_peer_t *peer, int error)
{
    const char *why = error && error != ECONNRESET && error != EPIPE ? strerror(error) : "";
    if (hly_meet_is_closed(error)) /* the peer is well */
        m->error = HALAY_ESTATE;
    else
        hly_meet_peer_fail(m, peer, hly_meet_lost_status(error), "the connection to %s ended%s%s",
                           peer->name, why[0] ? ": " : "", why);
}

hly_meet_peer_t *hly_meet_peer_failed(hly_meet_t *m, halay_event_t *event)
{
    hly_meet_link_t *next;
    hly_meet_peer_t *peer = m->failing ? m->peers : NULL;
    while (peer && peer->state != PEER_FAILING)
        peer = peer->next;
    if (!peer)
        return NULL;
    peer->state = PEER_FAILED;
    m->failing--;
    m->over += hly_meet_peer_over(peer);
    for (hly_meet_link_t *link = m->links; link; link = next) {
        next = link->next;
        if (link->peer == peer)
            hly_meet_link_free(m, link);
    }
    *event = (halay_event_t){
        .kind = HALAY_EVENT_FAILED, .status = peer->status, .peer = peer->id, .text = peer->text};
    return peer;
}

int hly_meet_peer_over(const hly_meet_peer_t *peer)
{
    return peer->state == PEER_FAILED && peer->refs == 0;
}

/* ------------------------------------------------------------------ calls */

void hly_meet_call_settled(hly_meet_t *m, hly_meet_peer_t *peer)
{
    m->unsettled -= peer->calls;
    peer->calls = 0;
}

static void call_failed(hly_meet_peer_t *peer, int error, uint64_t now)
{
    peer->called = 0;
    peer->calls_ended++;
    peer->error = error;
    peer->pause_ns *= 2;
    if (peer->pause_ns > HLY_MEET_PAUSE_MAX_NS)
        peer->pause_ns = HLY_MEET_PAUSE_MAX_NS;
    peer->again_ns = now + peer->pause_ns;
}

/*
 * A caller that was kept waiting for longer than any pause was parked: the one who hung up now goes
 * on to its next epoch, and pauses start anew. Whoever is turned away at once pauses for longer and
 * longer.
 */
void hly_meet_call_ended(hly_meet_peer_t *peer, const hly_meet_link_t *link, int error)
{
    uint64_t now = hly_meet_now_ns();
    if (link->state == LINK_GREETED && (error == ECONNRESET || error == EPIPE))
        error = 0; /* it hung up before it had read all */
    if (error == 0 && link->state == LINK_GREETED && now - link->since_ns > HLY_MEET_PAUSE_MAX_NS)
        peer->pause_ns = HLY_MEET_PAUSE_NS / 2;
    call_failed(peer, error, now);
}

static void call(hly_meet_t *m, hly_meet_peer_t *peer, uint64_t now)
{
    struct sockaddr_storage address;
    hly_meet_link_t *link;
    socklen_t length = hly_meet_where_socket(&peer->where, &address);
    if (length == 0) { /* no address was given: the peer may still call here */
        call_failed(peer, EDESTADDRREQ, now);
        return;
    }
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        call_failed(peer, errno, now);
        return;
    }
    if (connect(fd, (struct sockaddr *)&address, length) && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        call_failed(peer, error, now);
        return;
    }
    int rc = hly_meet_link_add(m, fd, LINK_CALLING, peer, &link);
    if (rc)
        call_failed(peer, -rc, now);
    peer->called = rc == 0;
    peer->called_ns = now;
}

static void give_up(hly_meet_t *m, hly_meet_peer_t *peer, uint64_t now)
{
    unsigned long long ms = (now - peer->begun_ns) / 1000000;
    /* What ended the calls before says more than one that has just begun. */
    if (peer->called && (peer->calls_ended == 0 || now - peer->called_ns > HLY_MEET_PAUSE_MAX_NS))
        hly_meet_peer_fail(
            m, peer, HALAY_EPEER,
            "%s did not answer within %llu ms: the process there has ended this run, or "
            "not begun it (all ranks initialize and finalize equally often), or its host is "
            "down, or a firewall drops what is sent there",
            peer->name, ms);
    else if (peer->error == 0)
        hly_meet_peer_fail(
            m, peer, HALAY_EPEER,
            "%s hung up on this rank for %llu ms: the process there has ended, or is "
            "of another job, or of another version of Halay",
            peer->name, ms);
    else if (peer->error == EDESTADDRREQ)
        hly_meet_peer_fail(m, peer, HALAY_EPEER,
                           "its address is not known, and it did not call within %llu ms", ms);
    else
        hly_meet_peer_fail(m, peer, hly_meet_lost_status(peer->error),
                           "%s could not be reached within %llu ms: %s; %s", peer->name, ms,
                           strerror(peer->error),
                           peer->error == EMFILE || peer->error == ENFILE
                               ? "raise the limit on open files (ulimit -n)"
                               : "does the network let this port through? (HALAY_INTERFACE chooses "
                                 "one)");
}

/*
 * This reports what is known to be wrong before the calls that wait for it reach their deadline. A
 * host that cannot be reached has the timeout of a link. A process that holds the connection, and
 * has not greeted, may be late: it is not given up here, or it could not learn that others have
 * gone on without it. The deadline of a call names it. A process that has greeted, and does not
 * answer, may never begin this epoch.
 */
uint64_t hly_meet_call_ends_ns(const hly_meet_t *m, const hly_meet_peer_t *peer)
{
    const uint64_t soon_ns = m->deadline_ns - m->deadline_ns / 8;
    const uint64_t away_ns = m->timeout_ns < soon_ns ? m->timeout_ns : soon_ns;
    for (const hly_meet_link_t *link = peer->called ? m->links : NULL; link; link = link->next)
        if (link->peer == peer && link->state <= LINK_HEARING)
            return link->state == LINK_CALLING ? link->since_ns + away_ns : UINT64_MAX;
    if (peer->error == EDESTADDRREQ || !peer->error)
        return peer->begun_ns + (peer->error ? soon_ns : m->deadline_ns);
    return peer->begun_ns + away_ns;
}

void hly_meet_call_tend(hly_meet_t *m, hly_meet_peer_t *peer, uint64_t now)
{
    if (!peer->calls || peer->state != PEER_WELL)
        return;
    if (now >= hly_meet_call_ends_ns(m, peer))
        give_up(m, peer, now);
    else if (!peer->called && peer->error == ECONNREFUSED) /* a process listens while it lives */
        hly_meet_peer_fail(m, peer, HALAY_EPEER,
                           "nobody listens at %s any more (connection refused): the process there "
                           "has ended",
                           peer->name);
    else if (!peer->called && now >= peer->again_ns)
        call(m, peer, now);
}

static void call_begin(hly_meet_t *m, hly_meet_peer_t *peer, const void *address, size_t bytes)
{
    peer->calls = 1;
    peer->pause_ns = HLY_MEET_PAUSE_NS / 2;
    peer->begun_ns = peer->again_ns = hly_meet_now_ns();
    m->unsettled++;
    if (bytes == sizeof(peer->where))
        memcpy(&peer->where, address, sizeof(peer->where));
    if (bytes != 0 && bytes != sizeof(peer->where)) {
        hly_meet_peer_fail(m, peer, HALAY_EINVAL, "its address has %zu bytes instead of %zu", bytes,
                           sizeof(peer->where));
        return;
    }
    hly_meet_where_name(&peer->where, peer->name);
    call(m, peer, peer->begun_ns);
}

int hly_meet_connect(halay_transport_t *t, halay_peer_id_t id, const void *address, size_t bytes,
                     halay_ep_t **ep)
{
    hly_meet_t *m = (hly_meet_t *)t;
    hly_meet_peer_t *peer = hly_meet_peer_hold(m, id);
    if (!peer)
        return HALAY_ENOMEM;
    peer->refs++;
    m->attention = 1;
    if (peer->state == PEER_WELL && !peer->calls && !(m->ops->both ? peer->heard : peer->met))
        call_begin(m, peer, address, bytes);
    *ep = (halay_ep_t *)peer;
    return HALAY_OK;
}

void hly_meet_disconnect(halay_transport_t *t, halay_ep_t *ep)
{
    hly_meet_t *m = (hly_meet_t *)t;
    hly_meet_peer_t *peer = (hly_meet_peer_t *)ep;
    if (!peer)
        return;
    assert(peer->refs > 0);
    peer->refs--;
    m->over += hly_meet_peer_over(peer);
    m->attention = 1; /* a peer that was told to have failed may go now */
}

void hly_meet_sever(halay_transport_t *t, halay_ep_t *ep)
{
    hly_meet_peer_t *peer = (hly_meet_peer_t *)ep;
    hly_meet_peer_fail((hly_meet_t *)t, peer, HALAY_EPEER, "this end has given %s up", peer->name);
}
