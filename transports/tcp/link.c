/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - peers, and the connections to them: taken from where they met (transports/common), one
 * of two retired, ended. An end that leaves says goodbye on each, after all that it has sent there,
 * and stays, for a while, until that has reached the other host.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tcp.h"

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 /* Linux 6.15 */
#endif
#define AGAIN_TIMES 12 /* of the 15 have the longest pause between them */

/* ------------------------------------------------------------------ meeting */

hly_meet_peer_t *hly_tcp_peer_make(halay_transport_t *t)
{
    hly_tcp_peer_t *peer = calloc(1, sizeof(*peer));
    (void)t;
    return peer ? &peer->base : NULL;
}

size_t hly_tcp_peer_tell(halay_transport_t *t, hly_meet_peer_t *peer, uint8_t *tells)
{
    const hly_tcp_tell_t seal = (hly_tcp_tell_t)t->seal;
    (void)peer;
    memcpy(tells, &seal, sizeof(seal));
    return sizeof(seal);
}

void hly_tcp_peer_meet(halay_transport_t *t, hly_meet_peer_t *peer, const uint8_t *tells,
                       size_t bytes)
{
    static const char *const names[] = {"headers", "payload"};
    const hly_tcp_tell_t seal = (hly_tcp_tell_t)t->seal;
    if (bytes != sizeof(seal) || memcmp(tells, &seal, sizeof(seal)) != 0)
        hly_meet_peer_fail(&t->meet, peer, HALAY_ETRANSPORT,
                           "%s has HALAY_TCP_SEAL=%s, and this rank %s: give all ranks the same",
                           peer->name, names[t->seal == SEAL_HEADERS], names[t->seal]);
}

/*
 * A host that is gone without a word is noticed after the timeout with a link: by keepalive, where
 * nothing is under way, else by watch.c. Not by TCP_USER_TIMEOUT: that ends a connection also when
 * the other process just does not read for so long. Where a link is back, the kernel sends again
 * within a few seconds, or, if it is older, after up to as long as the link was cut. It gives up
 * after 15 times (tcp_retries2), which have to last for longer than the timeout.
 */
static void socket_set(const halay_transport_t *t, int fd)
{
    const uint64_t most_ms = t->meet.timeout_ns / 1000000 / AGAIN_TIMES + 1;
    const int again_ms = most_ms < 1000 ? 1000 : most_ms > 120000 ? 120000 : (int)most_ms;
    const int never = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof(never));
    setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &again_ms, sizeof(again_ms));
}

static int open_grow(halay_transport_t *t)
{
    int n = t->open_room ? t->open_room * 2 : 16;
    if (t->nopen < t->open_room)
        return 0;
    hly_tcp_link_t **open = realloc(t->open, (size_t)n * sizeof(hly_tcp_link_t *));
    if (!open)
        return -ENOMEM;
    t->open = open;
    t->open_room = n;
    return 0;
}

int hly_tcp_peer_take(halay_transport_t *t, hly_meet_peer_t *base, const hly_meet_link_t *met,
                      int called)
{
    hly_tcp_peer_t *peer = (hly_tcp_peer_t *)base;
    int rc = peer->nlinks < HLY_TCP_LINKS_PEER ? open_grow(t) : -EMLINK;
    if (rc)
        return rc;
    hly_tcp_link_t *link = calloc(1, sizeof(*link));
    uint8_t *buffer = malloc(HLY_TCP_IN + HLY_TCP_OUT); /* touched only where used */
    rc = link && buffer ? hly_meet_watch(t->meet.epoll_fd, met->fd, EPOLLIN, link) : -ENOMEM;
    if (rc) {
        free(link);
        free(buffer);
        return rc;
    }
    link->fd = met->fd;
    link->called = called;
    link->peer = peer;
    link->buffer = buffer;
    link->out = buffer + HLY_TCP_IN;
    hly_tcp_seal_make(met->keys.in, &link->in_seal);
    hly_tcp_seal_make(met->keys.out, &link->out_seal);
    link->said_goodbye = t->meet.closing; /* open.c: while the answer was awaited */
    link->out_seal.count = (uint64_t)link->said_goodbye;
    socket_set(t, link->fd);
    t->open[t->nopen++] = link;
    peer->nlinks++;
    if (!peer->out)
        peer->out = link;
    t->changed = 1; /* one may have to be retired, behind the answer */
    return 0;
}

/* ------------------------------------------------------------------ going */

static void transfers_end(halay_transport_t *t, hly_tcp_link_t *link)
{
    hly_tcp_parts_end(t, link, HALAY_EPEER);
    if (link->landing)
        hly_tcp_landing_done(t, link->landing, HALAY_EPEER);
    link->landing = NULL;
}

void hly_tcp_link_sever(halay_transport_t *t, hly_tcp_link_t *link)
{
    transfers_end(t, link);
    link->ended = 1;
    link->broken = link->error = ECONNABORTED;
}

/* shutdown, because a forked child may hold the socket, and the other end shall see the end; but
 * not in that child. */
void hly_tcp_link_free(halay_transport_t *t, hly_tcp_link_t *link)
{
    int i = 0;
    while (t->open[i] != link)
        i++;
    t->open[i] = t->open[--t->nopen];
    transfers_end(t, link);
    t->nmore -= link->more;
    t->asked -= link->asked;
    link->peer->nlinks--;
    link->peer->goodbyes -= link->goodbye;
    if (link->peer->out == link)
        link->peer->out = NULL;
    if (getpid() == t->meet.pid) {
        epoll_ctl(t->meet.epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
        shutdown(link->fd, SHUT_RDWR);
    }
    close(link->fd);
    free(link->buffer);
    free(link);
}

/* The one of two connections stays that the lower id called. All messages on the other are sent
 * before this end retires it. */
static void one_retire(halay_transport_t *t, hly_tcp_peer_t *peer)
{
    const halay_peer_id_t a = t->meet.self, b = peer->base.id;
    int lower = hly_meet_lower_id(a, b), calls = 0;
    for (int i = 0; i < t->nopen; i++) {
        if (t->open[i]->peer == peer && !t->open[i]->said_retired)
            calls |= t->open[i]->called ? 1 : 2;
    }
    if (calls != 3 || hly_meet_same_id(a, b))
        return;
    for (int i = 0; i < t->nopen; i++) {
        hly_tcp_link_t *link = t->open[i];
        if (link->peer != peer || link->said_retired)
            continue;
        if (link->called == lower)
            peer->out = link;
        else if (hly_tcp_say(t, link, FRAME_RETIRE) == 0)
            link->said_retired = 1;
    }
}

/* One link of a peer that is well has ended, or is over. */
static void end_look(halay_transport_t *t, hly_tcp_link_t *link)
{
    hly_meet_peer_t *peer = &link->peer->base;
    if (link->goodbye)
        return; /* with the others, if they have heard it too */
    if (link->ended && link->error == EPROTO)
        hly_meet_peer_fail(
            &t->meet, peer, HALAY_ETRANSPORT,
            "what came from %s makes no sense: the connection carries something else", peer->name);
    else if (link->ended && link->error == EBADMSG)
        hly_meet_peer_fail(
            &t->meet, peer, HALAY_ETRANSPORT,
            "what came from %s lacks its seal: on the way something was put in, changed, repeated "
            "or left out; look for those who can reach this network, or for a device in it that "
            "damages "
            "data",
            peer->name);
    else if (link->ended && !link->over)
        hly_meet_peer_lost(&t->meet, peer, link->error);
}

void hly_tcp_links_look(halay_transport_t *t)
{
    t->changed = 0;
    for (int i = t->nopen - 1; i >= 0; i--) {
        hly_tcp_link_t *link = t->open[i];
        hly_tcp_peer_t *peer = link->peer;
        if (peer->base.state != PEER_WELL)
            continue;
        if (peer->nlinks > 1) /* also where there was no room when it was due */
            one_retire(t, peer);
        link->over = link->retired && link->said_retired && !link->first;
        t->changed |= link->retired && !link->over;
        end_look(t, link);
        if (link->over && peer->base.state == PEER_WELL && !link->goodbye)
            hly_tcp_link_free(t, link); /* the last takes its place */
        if (peer->goodbyes > 0 && peer->goodbyes == peer->nlinks)
            hly_meet_peer_fail(&t->meet, &peer->base, HALAY_EPEER, "%s closed its end",
                               peer->base.name);
    }
}
