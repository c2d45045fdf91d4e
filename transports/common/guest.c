/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest.c - who may say hello, what is answered, what other messages do; and the slow path.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "meet.h"

static void warn_stranger(hly_meet_t *m, int fd, const char *why)
{
    halay_address_t where = {0};
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    char name[HLY_MEET_NAME] = "somebody";
    if (m->warned & WARNED_STRANGER)
        return;
    m->warned |= WARNED_STRANGER;
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
        hly_meet_where_from(&address, &where) == 0)
        hly_meet_where_name(&where, name);
    hly_meet_log(m, 1, "%s connected to %s and was dropped: %s; this is logged once", name, m->name,
                 why);
}

static void guest_drop(hly_meet_t *m, hly_meet_link_t *link, const char *why)
{
    warn_stranger(m, link->fd, why);
    hly_meet_link_free(m, link);
}

/* Where all places are taken, the one who has been silent for longest has to go. */
static void place_free(hly_meet_t *m)
{
    hly_meet_link_t *oldest = NULL;
    for (hly_meet_link_t *link = m->links; link; link = link->next) {
        if (link->state == LINK_GUEST && (!oldest || link->since_ns < oldest->since_ns))
            oldest = link;
    }
    assert(oldest != NULL); /* all places are taken */
    guest_drop(m, oldest, "too many connect and say nothing");
}

static void guests_accept(hly_meet_t *m)
{
    for (int i = 0; i < HLY_MEET_ROUNDS && m->gate.open_ns <= m->attended_ns; i++) {
        hly_meet_link_t *link;
        int fd = accept4(m->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno == EAGAIN)
            return;
        int rc = fd < 0 ? -errno : 0;
        if (rc == 0 && m->nguests == HLY_MEET_GUESTS)
            place_free(m);
        if (rc == 0)
            rc = hly_meet_link_add(m, fd, LINK_GUEST, NULL, &link);
        if (rc == 0 && hly_meet_greet(fd, m->ops->magic, &link->greeting))
            hly_meet_link_free(m, link); /* it has gone already */
        if (rc == 0)
            continue;
        m->error = hly_meet_is_closed(-rc) ? HALAY_ESTATE : HALAY_ENOMEM;
        if (m->error == HALAY_ENOMEM && !(m->warned & WARNED_DESCRIPTORS))
            hly_meet_log(m, 0,
                         "a connection could not be accepted: %s; raise the limits on open "
                         "files and memory (ulimit -n, -v)",
                         strerror(-rc));
        m->warned |= WARNED_DESCRIPTORS;
        return;
    }
}

/* ------------------------------------------------------------------ messages */

/* Whom it is for is another question. */
static int message_is_right(const hly_meet_link_t *link, const hly_meet_message_t *message,
                            uint32_t kind)
{
    int secret = hly_meet_proved(link->keys.in, message, offsetof(hly_meet_message_t, mac),
                                 link->in + sizeof(*message), message->tells, message->mac);
    int tells =
        kind == MEET_HELLO || kind == MEET_ANSWER ? message->tells > 0 : message->tells == 0;
    return secret && message->kind == kind && tells;
}

/* Where all places are taken, the caller has to try again later. 0: goes on. 1: the link is gone.
 */
static int park(hly_meet_t *m, hly_meet_link_t *link)
{
    if (m->nparked == HLY_MEET_PARKED) {
        hly_meet_link_free(m, link);
        return 1;
    }
    link->state = LINK_PARKED;
    m->nguests--;
    m->nparked++;
    return 0;
}

/* Where both call, it is told twice, and the same. */
static void met(hly_meet_t *m, hly_meet_link_t *link, const hly_meet_message_t *message)
{
    hly_meet_peer_t *peer = link->peer;
    if (!peer->met && peer->state == PEER_WELL) {
        peer->met = 1;
        m->ops->meet(m->transport, peer, link->in + sizeof(*message), message->tells);
    }
    m->attention = 1; /* who could not send yet tries again before it sleeps */
    if (peer->heard || !m->ops->both)
        hly_meet_call_settled(m, peer);
}

/* 1: the link's socket is the transport's now. */
static int take(hly_meet_t *m, hly_meet_link_t *link, int called)
{
    hly_meet_peer_t *peer = link->peer;
    if (!m->ops->take || peer->state != PEER_WELL)
        return 0;
    int rc = m->ops->take(m->transport, peer, link, called);
    if (rc == 0)
        epoll_ctl(m->slow_fd, EPOLL_CTL_DEL, link->fd, NULL);
    else
        hly_meet_peer_fail(
            m, peer, HALAY_ENOMEM,
            "the connection to %s cannot be used: %s; raise the limits on open files "
            "and memory (ulimit -n, -v)",
            peer->name, strerror(-rc));
    return rc == 0;
}

/* 1: the link is gone. */
static int taken(hly_meet_t *m, hly_meet_link_t *link)
{
    link->fd = -1;
    hly_meet_link_free(m, link);
    return 1;
}

/* 0: goes on. 1: the link is gone. */
static int on_hello(hly_meet_t *m, hly_meet_link_t *link, const hly_meet_message_t *message)
{
    hly_meet_peer_t *peer;
    int own = hly_meet_same_id(message->from, m->self) && !hly_meet_same_id(message->to, m->self);
    hly_meet_keys_make(m->secret, &link->greeting, message->nonce, message->from, message->to, 1,
                       &link->keys);
    if (!message_is_right(link, message, MEET_HELLO) ||
        own) { /* own: what was said here is sent back */
        guest_drop(m, link, "it is of another job, or of another version of Halay");
        return 1;
    }
    if (!hly_meet_same_id(message->to, m->self))
        return park(m, link);
    peer = m->closing ? NULL : hly_meet_peer_hold(m, message->from);
    if (!peer || peer->state != PEER_WELL) {
        hly_meet_link_free(m, link);
        return 1;
    }
    peer->where = message->where;
    hly_meet_where_name(&peer->where, peer->name);
    link->peer = peer;
    link->state = LINK_OPEN;
    m->nguests--;
    met(m, link, message);
    int its = take(m, link, 0); /* before it is answered: from then on it is counted on */
    (void)hly_meet_link_say(m, link, MEET_ANSWER,
                            m->ops->mark ? m->ops->mark(m->transport, peer) : 0);
    if (!its)
        return 0;
    if (hly_meet_link_write(m, link) || link->written < link->to_write)
        shutdown(link->fd, SHUT_WR); /* what was said before its end is still read */
    return taken(m, link);
}

static int on_message(hly_meet_t *m, hly_meet_link_t *link)
{
    hly_meet_message_t message;
    hly_meet_peer_t *peer = link->peer;
    memcpy(&message, link->in, sizeof(message));
    link->read = 0;
    if (link->state == LINK_GUEST)
        return on_hello(m, link, &message);
    if (link->state == LINK_PARKED) { /* it has no more to say before it is answered */
        hly_meet_link_free(m, link);
        return 1;
    }
    int from = hly_meet_same_id(message.from, peer->id) && hly_meet_same_id(message.to, m->self);
    if (link->state == LINK_GREETED && from && message_is_right(link, &message, MEET_ANSWER)) {
        link->state = LINK_OPEN;
        peer->heard = 1;
        met(m, link, &message);
        if (m->ops->agree && peer->state == PEER_WELL)
            m->ops->agree(m->transport, peer, message.count);
        if (take(m, link, 1))
            return taken(m, link);
    } else if (link->state == LINK_OPEN && from && message_is_right(link, &message, MEET_GOODBYE)) {
        peer->goodbye = 1;
        peer->goodbye_count = message.count;
        peer->goodbye_ns = hly_meet_now_ns();
        m->attention = 1;
    } else if (link->state == LINK_OPEN && from && message_is_right(link, &message, MEET_SEEN)) {
        peer->seen = 1;
    } else {
        hly_meet_peer_fail(m, peer, HALAY_ETRANSPORT,
                           "%s does not speak this version's language, or has another secret",
                           peer->name);
    }
    return 0;
}

/* The end of a link. error 0: end of file. */
static void link_ended(hly_meet_t *m, hly_meet_link_t *link, int error)
{
    hly_meet_peer_t *peer = link->peer;
    if (link->state == LINK_GUEST) {
        if (error == EPROTO)
            warn_stranger(m, link->fd, "it speaks another language, or another version's");
    } else if (link->state <= LINK_GREETED) {
        if (error == EPROTO)
            hly_meet_peer_fail(m, peer, HALAY_ETRANSPORT,
                               "%s does not speak this version's language", peer->name);
        hly_meet_call_ended(peer, link, error);
    } else if (link->state == LINK_OPEN && !peer->goodbye) {
        hly_meet_peer_lost(m, peer, error);
    }
    peer = peer && m->closing ? peer : NULL;
    if (peer)
        peer->seen = 1; /* nobody is left to see anything */
    hly_meet_link_free(m, link);
}

/* The greeting; a hello answers it. */
static int hear(hly_meet_t *m, hly_meet_link_t *link)
{
    int rc = hly_meet_take(link->fd, m->ops->magic, &link->greeting, sizeof(link->greeting),
                           &link->read);
    if (rc <= 0)
        return rc;
    link->read = 0;
    link->state = LINK_GREETED;
    const uint64_t now = hly_meet_now_ns();
    if (now - link->since_ns > m->deadline_ns / 2)
        link->peer->begun_ns = now; /* it was late: it has the time to answer again */
    return m->closing ? -ENODATA : hly_meet_link_say(m, link, MEET_HELLO, 0);
}

static void link_look(hly_meet_t *m, hly_meet_link_t *link)
{
    int rc = 0;
    if (link->state == LINK_CALLING) {
        int error = 0;
        socklen_t bytes = sizeof(error);
        getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        rc = -error;
        link->state = LINK_HEARING;
    }
    if (rc == 0 && link->state == LINK_HEARING)
        rc = hear(m, link);
    if (rc == 0)
        rc = hly_meet_link_write(m, link);
    /* What can be read is read first, even if nothing can be written any more. */
    int read = rc;
    while (link->state > LINK_HEARING && (read = hly_meet_link_read(m, link)) > 0) {
        if (on_message(m, link))
            return;
        if (link->peer && link->peer->state != PEER_WELL)
            break; /* its links end when that is told; it may say more for ever */
    }
    if (rc == 0 && read >= 0 && link->written < link->to_write)
        rc = hly_meet_link_write(m, link);
    if (rc == 0)
        rc = read;
    if (rc < 0)
        link_ended(m, link, rc == -ENODATA ? 0 : -rc);
}

/* ------------------------------------------------------------------ the slow path */

/* One event is asked for at a time: what it points to is alive. */
static void descriptors_look(hly_meet_t *m)
{
    struct epoll_event event;
    uint64_t count;
    for (int i = 0; i < HLY_MEET_ROUNDS && !m->error; i++) {
        if (epoll_wait(m->slow_fd, &event, 1, 0) != 1)
            return;
        hly_meet_watch_t *watch = event.data.ptr;
        switch (*watch) {
        case WATCH_LISTEN:
            guests_accept(m);
            break;
        case WATCH_TIMER:
            if (read(m->timer_fd, &count, sizeof(count)) < 0 && hly_meet_is_closed(errno))
                m->error = HALAY_ESTATE;
            m->timer_ns = 0;
            break;
        case WATCH_LINK:
            link_look(m, (hly_meet_link_t *)watch);
            break;
        }
    }
    m->attention = 1;
}

void hly_meet_attend(hly_meet_t *m, uint64_t now)
{
    hly_meet_link_t *next;
    m->attended_ns = now;
    hly_meet_gate_set(&m->gate, now, m->slow_fd, m->listen_fd, &m->listen_watch);
    descriptors_look(m);
    for (hly_meet_link_t *link = m->nguests ? m->links : NULL; link; link = next) {
        next = link->next;
        if (link->state == LINK_GUEST && now >= link->since_ns + HLY_MEET_GUEST_NS)
            guest_drop(m, link, "it said nothing, or not enough");
    }
    hly_meet_gate_set(&m->gate, now, m->slow_fd, m->listen_fd, &m->listen_watch);
    for (hly_meet_peer_t *peer = m->unsettled ? m->peers : NULL; peer; peer = peer->next)
        hly_meet_call_tend(m, peer, now);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return b < a ? b : a;
}

int hly_meet_timer_set(hly_meet_t *m, uint64_t when)
{
    for (hly_meet_peer_t *peer = m->peers; peer; peer = peer->next) {
        if (peer->state != PEER_WELL)
            continue;
        if (peer->goodbye)
            when = earlier(when, peer->goodbye_ns + HLY_MEET_CLOSE_NS);
        if (peer->calls)
            when = earlier(when, hly_meet_call_ends_ns(m, peer));
        if (peer->calls && !peer->called)
            when = earlier(when, peer->again_ns);
        if (peer->look_ns)
            when = earlier(when, peer->look_ns);
    }
    for (hly_meet_link_t *link = m->nguests ? m->links : NULL; link; link = link->next) {
        if (link->state == LINK_GUEST)
            when = earlier(when, link->since_ns + HLY_MEET_GUEST_NS);
    }
    if (m->gate.shut)
        when = earlier(when, m->gate.open_ns);
    if (when == UINT64_MAX || when == m->timer_ns)
        return HALAY_OK;
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(when / 1000000000), .tv_nsec = (long)(when % 1000000000)}};
    m->timer_ns = when;
    return timerfd_settime(m->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) ? HALAY_ETRANSPORT
                                                                        : HALAY_OK;
}
