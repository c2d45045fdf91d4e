/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - TCP connections come and go; words of greeting go out whole, and come in whole. Nothing
 * here decides what a word means (meet.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tcp.h"

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 /* Linux 6.15 */
#endif
#define AGAIN_TIMES 12 /* of the 15 have the longest pause between them */

/*
 * A host that is gone without a word is noticed after the patience with a link: by these, where
 * nothing is under way, else by watch.c. Not by TCP_USER_TIMEOUT: that ends a connection also when
 * the other process just does not read for so long. Where a link is back, the kernel sends again
 * within a few seconds, or, if it is older, after up to as long as the link was cut. It gives up
 * after 15 times (tcp_retries2), which have to last for longer than the patience.
 */
static void socket_set(const halay_transport_t *t, int fd)
{
    const uint64_t most_ms = t->patience_ns / 1000000 / AGAIN_TIMES + 1;
    const int again_ms = most_ms < 1000 ? 1000 : most_ms > 120000 ? 120000 : (int)most_ms;
    hly_meet_socket_set(fd, t->patience_ns);
    setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &again_ms, sizeof(again_ms));
}

/* Takes fd over, also on failure: 0 or a negative errno. */
int hly_tcp_link_add(halay_transport_t *t, int fd, int state, hly_tcp_peer_t *peer,
                     hly_tcp_link_t **out)
{
    hly_tcp_link_t *link = calloc(1, sizeof(*link));
    if (!link) {
        close(fd);
        return -ENOMEM;
    }
    link->watch = WATCH_LINK;
    link->state = state;
    link->called = state == LINK_CALLING;
    link->fd = fd;
    link->peer = peer;
    link->since_ns = hly_tcp_now_ns();
    socket_set(t, fd);
    int rc = hly_tcp_watch_add(t->slow_fd, fd, link->called ? EPOLLOUT : EPOLLIN, &link->watch);
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

static void link_unopen(halay_transport_t *t, hly_tcp_link_t *link)
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
    free(link->buffer);
}

/* shutdown, because a forked child may hold the socket, and the other end shall see the end. */
void hly_tcp_link_free(halay_transport_t *t, hly_tcp_link_t *link)
{
    hly_tcp_link_t **at = &t->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    t->nguests -= link->state == LINK_GUEST;
    if (link->state == LINK_GUEST)
        hly_meet_gate_charge(&t->gate, hly_tcp_now_ns());
    t->nparked -= link->state == LINK_PARKED;
    if (link->state == LINK_OPEN)
        link_unopen(t, link);
    if (t->slow_fd >= 0) {
        epoll_ctl(link->state == LINK_OPEN ? t->epoll_fd : t->slow_fd, EPOLL_CTL_DEL, link->fd,
                  NULL);
        shutdown(link->fd, SHUT_RDWR);
    }
    close(link->fd);
    free(link);
}

int hly_tcp_link_open(halay_transport_t *t, hly_tcp_link_t *link, hly_tcp_peer_t *peer)
{
    if (t->nopen == t->open_room) {
        int n = t->open_room ? t->open_room * 2 : 16;
        hly_tcp_link_t **open = realloc(t->open, (size_t)n * sizeof(hly_tcp_link_t *));
        if (!open)
            return -ENOMEM;
        t->open = open;
        t->open_room = n;
    }
    uint8_t *buffer = malloc(HLY_TCP_IN + HLY_TCP_OUT); /* touched only where used */
    if (!buffer)
        return -ENOMEM;
    int rc = hly_tcp_watch_add(t->epoll_fd, link->fd, EPOLLIN, &link->watch);
    if (rc) {
        free(buffer);
        return rc;
    }
    epoll_ctl(t->slow_fd, EPOLL_CTL_DEL, link->fd, NULL);
    t->nguests -= link->state == LINK_GUEST;
    link->state = LINK_OPEN;
    link->buffer = buffer;
    link->out = buffer + HLY_TCP_IN;
    link->peer = peer;
    peer->nlinks++;
    t->open[t->nopen++] = link;
    return 0;
}

/* ------------------------------------------------------------------ words */

/* Only a greeting was written here before, so there is room for it. */
int hly_tcp_word_say(const halay_transport_t *t, hly_tcp_link_t *link, uint32_t kind,
                     halay_peer_id_t to)
{
    hly_tcp_word_t word = {.magic = HLY_TCP_MAGIC,
                           .kind = kind,
                           .seal = (uint32_t)t->seal,
                           .from = t->self,
                           .to = to,
                           .where = t->where};
    if (kind == WORD_HELLO) {
        int rc = hly_meet_nonce(word.nonce);
        if (rc)
            return rc;
        hly_tcp_seals_make(t, link, word.nonce, t->self, to, 0);
    }
    hly_meet_prove(link->keys.out, &word, offsetof(hly_tcp_word_t, mac), NULL, 0, word.mac);
    ssize_t n = send(link->fd, &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return -errno;
    return n == (ssize_t)sizeof(word) ? 0 : -EMSGSIZE;
}

int hly_tcp_word_read(hly_tcp_link_t *link)
{
    int hears = link->state == LINK_HEARING;
    int rc = hly_meet_take(link->fd, HLY_TCP_MAGIC,
                           hears ? (void *)&link->greeting : (void *)&link->word,
                           hears ? sizeof(link->greeting) : sizeof(link->word), &link->read);
    if (rc > 0)
        link->read = 0;
    return rc;
}
