/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - TCP connections of our own: messages go out whole, and come in whole. Nothing here
 * decides what a message means (guest.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "meet.h"

/* A host that is gone without a goodbye is noticed after the timeout with a link. */
static void keepalive_set(const hly_meet_t *m, int fd)
{
    const uint64_t ms = m->timeout_ns / 1000000;
    const int timeout_ms = ms < INT_MAX ? (int)ms : INT_MAX;
    hly_meet_socket_set(fd, m->timeout_ns);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

int hly_meet_watch(int epoll_fd, int fd, uint32_t events, void *watch)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Takes fd over, also on failure: 0 or a negative errno. */
int hly_meet_link_add(hly_meet_t *m, int fd, int state, hly_meet_peer_t *peer,
                      hly_meet_link_t **out)
{
    hly_meet_link_t *link = calloc(1, sizeof(*link));
    if (!link) {
        close(fd);
        return -ENOMEM;
    }
    link->watch = WATCH_LINK;
    link->state = state;
    link->fd = fd;
    link->peer = peer;
    link->since_ns = hly_meet_now_ns();
    link->events = state == LINK_CALLING ? EPOLLOUT : EPOLLIN;
    keepalive_set(m, fd);
    int rc = hly_meet_watch(m->slow_fd, fd, link->events, &link->watch);
    if (rc) {
        close(fd);
        free(link);
        return rc;
    }
    link->next = m->links;
    m->links = link;
    m->nguests += state == LINK_GUEST;
    *out = link;
    return 0;
}

/* shutdown, because a forked child may hold the socket, and the other end shall see the end. Not
 * if the transport has taken it: then fd is -1. */
void hly_meet_link_free(hly_meet_t *m, hly_meet_link_t *link)
{
    hly_meet_link_t **at = &m->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    m->nguests -= link->state == LINK_GUEST;
    if (link->state == LINK_GUEST)
        hly_meet_gate_charge(&m->gate, hly_meet_now_ns());
    m->nparked -= link->state == LINK_PARKED;
    if (m->slow_fd >= 0 && link->fd >= 0) {
        epoll_ctl(m->slow_fd, EPOLL_CTL_DEL, link->fd, NULL);
        shutdown(link->fd, SHUT_RDWR);
    }
    if (link->fd >= 0)
        close(link->fd);
    free(link);
}

hly_meet_link_t *hly_meet_link_of(const hly_meet_t *m, const hly_meet_peer_t *peer)
{
    for (hly_meet_link_t *link = m->links; link; link = link->next) {
        if (link->peer == peer && link->state == LINK_OPEN)
            return link;
    }
    return NULL;
}

/* At most three messages: hello or answer, goodbye, seen; room for all. */
int hly_meet_link_say(hly_meet_t *m, hly_meet_link_t *link, uint32_t kind, uint64_t count)
{
    hly_meet_message_t message = {.magic = m->ops->magic,
                                  .kind = kind,
                                  .from = m->self,
                                  .to = link->peer->id,
                                  .count = count,
                                  .where = m->where};
    uint8_t *tells = link->out + link->to_write + sizeof(message);
    if (kind == MEET_HELLO) {
        int rc = hly_meet_nonce(message.nonce);
        if (rc)
            return rc;
        hly_meet_keys_make(m->secret, &link->greeting, message.nonce, message.from, message.to, 0,
                           &link->keys);
    }
    assert(link->to_write + sizeof(message) <= sizeof(link->out));
    if (kind == MEET_HELLO || kind == MEET_ANSWER) {
        assert(link->to_write == 0);
        message.tells = (uint32_t)m->ops->tell(m->transport, link->peer, tells);
        assert(message.tells > 0 && message.tells <= HLY_MEET_TELLS);
    }
    hly_meet_prove(link->keys.out, &message, offsetof(hly_meet_message_t, mac), tells,
                   message.tells, message.mac);
    memcpy(link->out + link->to_write, &message, sizeof(message));
    link->to_write += sizeof(message) + message.tells;
    return 0;
}

int hly_meet_link_write(hly_meet_t *m, hly_meet_link_t *link)
{
    while (link->written < link->to_write) {
        ssize_t n = send(link->fd, link->out + link->written, link->to_write - link->written,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (n < 0 && errno == EAGAIN)
            break;
        link->written += n > 0 ? (size_t)n : 0;
    }
    uint32_t events = EPOLLIN | (link->written < link->to_write ? EPOLLOUT : 0);
    struct epoll_event event = {.events = events, .data.ptr = &link->watch};
    if (events != link->events && epoll_ctl(m->slow_fd, EPOLL_CTL_MOD, link->fd, &event))
        return -errno;
    link->events = events;
    return 0;
}

int hly_meet_link_read(const hly_meet_t *m, hly_meet_link_t *link)
{
    const uint64_t magic = m->ops->magic;
    for (;;) {
        hly_meet_message_t message = {0};
        size_t whole = sizeof(message), start = link->read < 8 ? link->read : 8;
        if (memcmp(link->in, &magic, start) != 0)
            return -EPROTO;
        if (link->read >= sizeof(message)) {
            memcpy(&message, link->in, sizeof(message));
            if (message.tells > HLY_MEET_TELLS)
                return -EPROTO;
            whole += message.tells;
            if (link->read == whole)
                return 1;
        }
        ssize_t n = recv(link->fd, link->in + link->read, whole - link->read, MSG_DONTWAIT);
        if (n == 0)
            return -ENODATA;
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN ? 0 : -errno;
        link->read += n > 0 ? (size_t)n : 0;
    }
}
