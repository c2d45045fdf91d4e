/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - TCP connections of our own: words go out whole, and come in whole. Nothing here decides
 * what a word means (meet.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ucx.h"

/* A host that is gone without a word is noticed within 5 s. */
static void keepalive_set(int fd)
{
    int one = 1, probes = 3, timeout_ms = 5000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* Takes fd over, also on failure: 0 or a negative errno. */
int hly_ucx_link_add(halay_transport_t *t, int fd, int state, hly_ucx_peer_t *peer,
                     hly_ucx_link_t **out)
{
    hly_ucx_link_t *link = calloc(1, sizeof(*link));
    if (!link) {
        close(fd);
        return -ENOMEM;
    }
    link->watch = WATCH_LINK;
    link->state = state;
    link->fd = fd;
    link->peer = peer;
    link->since_ns = hly_ucx_now_ns();
    link->events = state == LINK_CALLING ? EPOLLOUT : EPOLLIN;
    keepalive_set(fd);
    int rc = hly_ucx_watch_add(t->slow_fd, fd, link->events, &link->watch);
    if (rc) {
        close(fd);
        free(link);
        return rc;
    }
    link->next = t->links;
    t->links = link;
    t->nguests += state == LINK_GUEST;
    *out = link;
    return 0;
}

/* shutdown, because a forked child may hold the socket, and the other end shall see the end. */
void hly_ucx_link_free(halay_transport_t *t, hly_ucx_link_t *link)
{
    hly_ucx_link_t **at = &t->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    t->nguests -= link->state == LINK_GUEST;
    t->nparked -= link->state == LINK_PARKED;
    if (t->slow_fd >= 0) {
        epoll_ctl(t->slow_fd, EPOLL_CTL_DEL, link->fd, NULL);
        shutdown(link->fd, SHUT_RDWR);
    }
    close(link->fd);
    free(link);
}

hly_ucx_link_t *hly_ucx_link_of(const halay_transport_t *t, const hly_ucx_peer_t *peer)
{
    for (hly_ucx_link_t *link = t->links; link; link = link->next) {
        if (link->peer == peer && link->state == LINK_OPEN)
            return link;
    }
    return NULL;
}

/* At most three words: hello or answer, goodbye, seen; room for all. */
void hly_ucx_link_say(halay_transport_t *t, hly_ucx_link_t *link, uint32_t kind, uint64_t count)
{
    hly_ucx_word_t word = {.magic = HLY_UCX_MAGIC,
                           .kind = kind,
                           .from = t->self,
                           .to = link->peer->id,
                           .token = link->peer->token,
                           .count = count,
                           .where = t->where};
    memcpy(word.secret, t->secret, sizeof(word.secret));
    if (kind == WORD_HELLO || kind == WORD_ANSWER)
        word.address_bytes = (uint32_t)t->worker_address_bytes;
    assert(link->to_write + sizeof(word) + word.address_bytes <= sizeof(link->out));
    memcpy(link->out + link->to_write, &word, sizeof(word));
    link->to_write += sizeof(word);
    if (word.address_bytes)
        memcpy(link->out + link->to_write, t->worker_address, word.address_bytes);
    link->to_write += word.address_bytes;
}

int hly_ucx_link_write(halay_transport_t *t, hly_ucx_link_t *link)
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
    if (events != link->events && epoll_ctl(t->slow_fd, EPOLL_CTL_MOD, link->fd, &event))
        return -errno;
    link->events = events;
    return 0;
}

int hly_ucx_link_read(hly_ucx_link_t *link)
{
    const uint64_t magic = HLY_UCX_MAGIC;
    for (;;) {
        hly_ucx_word_t word = {0};
        size_t whole = sizeof(word), start = link->read < 8 ? link->read : 8;
        if (memcmp(link->in, &magic, start) != 0)
            return -EPROTO;
        if (link->read >= sizeof(word)) {
            memcpy(&word, link->in, sizeof(word));
            if (word.address_bytes > HLY_UCX_ADDRESS)
                return -EPROTO;
            whole += word.address_bytes;
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
