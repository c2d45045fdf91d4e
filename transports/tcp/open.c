/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - an endpoint comes and goes. A forked child may close the copy that it inherited: it lets
 * its descriptors and memory go, and says nothing on connections, which are its parent's.
 */
#define _GNU_SOURCE
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tcp.h"

/* ------------------------------------------------------------------ open */

static int pools_make(halay_transport_t *t)
{
    t->parts = calloc(HLY_TCP_PARTS, sizeof(*t->parts));
    t->landings = calloc(HLY_TCP_LANDINGS, sizeof(*t->landings)); /* touched only where used */
    if (!t->parts || !t->landings)
        return HALAY_ENOMEM;
    for (size_t i = HLY_TCP_PARTS; i-- > 0;) {
        t->parts[i].next = t->free_part;
        t->free_part = &t->parts[i];
    }
    t->nfree = HLY_TCP_PARTS;
    t->sent_end = &t->sent;
    t->landed_end = &t->landed;
    return HALAY_OK;
}

static void let_go(halay_transport_t *t)
{
    while (t->nopen)
        hly_tcp_link_free(t, t->open[t->nopen - 1]);
    hly_meet_close(&t->meet);
    for (hly_meet_peer_t *peer; (peer = t->meet.peers) != NULL; free(peer))
        hly_meet_peer_forget(&t->meet, peer);
    free(t->open);
    free(t->parts);
    free(t->landings);
    free(t);
}

/* It has none. */
static int options_read(const halay_transport_t *t, const char *options)
{
    if (!options || !*options)
        return HALAY_OK;
    return hly_meet_error(&t->meet, HALAY_EINVAL,
                          "the transport option '%s' is not understood: tcp has none; "
                          "HALAY_INTERFACE chooses the network",
                          options);
}

int hly_tcp_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    static const hly_meet_ops_t ops = {.name = "tcp",
                                       .magic = HLY_TCP_MAGIC,
                                       .make = hly_tcp_peer_make,
                                       .tell = hly_tcp_peer_tell,
                                       .meet = hly_tcp_peer_meet,
                                       .take = hly_tcp_peer_take};
    /* Where the bootstrap does not listen: for the processes of this host. */
    const halay_address_t where = {.family = AF_INET, .ip = {127, 0, 0, 1}};
    if (!hly_meet_params_well(params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    hly_meet_init(&t->meet, &ops, t, params, &where);
    t->local_rank = params->local_rank;
    int rc = options_read(t, params->options);
    if (rc == 0 && hly_tcp_seal_read(getenv("HALAY_TCP_SEAL"), &t->seal))
        rc =
            hly_meet_error(&t->meet, HALAY_EINVAL, "HALAY_TCP_SEAL is headers or payload, not '%s'",
                           getenv("HALAY_TCP_SEAL"));
    if (rc == 0)
        rc = pools_make(t);
    if (rc == 0)
        rc = hly_meet_open(&t->meet, -1);
    if (rc)
        let_go(t);
    else
        *out = t;
    return rc;
}

/* ------------------------------------------------------------------ close */

/* Has all that was said on it reached the other host? */
static int heard(const hly_tcp_link_t *link)
{
    int bytes = 0;
    return link->broken || (!link->first && ioctl(link->fd, SIOCOUTQ, &bytes) == 0 && bytes == 0);
}

/* Where the answer has not come yet: the other end may have counted this one in. */
static void goodbyes_ahead(const halay_transport_t *t)
{
    for (const hly_meet_link_t *link = t->meet.links; link; link = link->next) {
        hly_tcp_seal_t seal;
        if (link->state != LINK_GREETED)
            continue;
        hly_tcp_seal_make(link->keys.out, &seal);
        const hly_tcp_frame_t frame = hly_tcp_frame(&seal, FRAME_GOODBYE, 0, 0, 0);
        (void)send(link->fd, &frame, sizeof(frame), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Says goodbye on every link; returns how many it still has to wait for. */
static int goodbyes_say(halay_transport_t *t)
{
    int pending = 0;
    for (int i = 0; i < t->nopen; i++) {
        hly_tcp_link_t *link = t->open[i];
        if (link->peer->base.state != PEER_WELL || link->ended)
            continue;
        if (!link->said_goodbye)
            link->said_goodbye = hly_tcp_say(t, link, FRAME_GOODBYE) == 0;
        pending += !link->said_goodbye || !heard(link);
    }
    return pending;
}

/* Reads, so that nothing unread is left when a connection is closed: that would reset it. */
static void links_drain(halay_transport_t *t)
{
    halay_event_t events[16];
    for (int i = 0; i < t->nopen; i++) {
        for (int k = 0; k < HLY_MEET_ROUNDS && hly_tcp_collect(t, t->open[i], events, 16); k++)
            ;
        hly_tcp_flush(t, t->open[i]);
    }
}

static void farewell(halay_transport_t *t, uint64_t until)
{
    halay_event_t events[16];
    hly_meet_leave(&t->meet);
    goodbyes_ahead(t);
    for (;;) {
        struct pollfd nap = {.fd = t->meet.epoll_fd, .events = POLLIN};
        links_drain(t);
        hly_tcp_attend(t);
        while (hly_tcp_failures_give(t, events, 16) == 16)
            ;
        int pending = goodbyes_say(t);
        if (pending == 0 || hly_meet_now_ns() >= until)
            return;
        poll(&nap, 1, 1);
    }
}

void hly_tcp_close(halay_transport_t *t)
{
    if (!t)
        return;
    if (getpid() == t->meet.pid) {
        farewell(t, hly_meet_now_ns() + HLY_MEET_CLOSE_NS);
        links_drain(t);
    }
    let_go(t);
}
