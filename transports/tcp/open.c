/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - an endpoint comes and goes. A forked child may close the copy that it inherited: it lets
 * its descriptors and memory go, and says nothing on connections, which are its parent's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "tcp.h"

uint64_t hly_tcp_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void hly_tcp_log(const halay_transport_t *t, int level, const char *format, ...)
{
    char text[512];
    va_list list;
    if (!t->log)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    t->log(t->log_arg, level, text);
}

/* ------------------------------------------------------------------ open */

/* A socket of our own, where the bootstrap has none: for the processes of this host. */
static int listen_open(halay_transport_t *t, const char **what)
{
    const halay_address_t loopback = {.family = AF_INET, .ip = {127, 0, 0, 1}};
    struct sockaddr_storage address;
    socklen_t length = hly_meet_where_socket(&loopback, &address);
    *what = "socket";
    t->listen_fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listen_fd < 0)
        return -errno;
    *what = "bind";
    if (bind(t->listen_fd, (struct sockaddr *)&address, length))
        return -errno;
    *what = "listen";
    if (listen(t->listen_fd, SOMAXCONN))
        return -errno;
    *what = "getsockname";
    length = sizeof(address);
    if (getsockname(t->listen_fd, (struct sockaddr *)&address, &length))
        return -errno;
    return hly_meet_where_from(&address, &t->where);
}

/* Each step says what it was, for the message. */
static int descriptors_open(halay_transport_t *t, const char **what)
{
    *what = "epoll_create1";
    if ((t->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        (t->slow_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return -errno;
    *what = "timerfd_create";
    if ((t->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0)
        return -errno;
    int rc = t->listen_shared ? 0 : listen_open(t, what);
    if (rc)
        return rc;
    hly_meet_where_name(&t->where, t->name);
    *what = "epoll_ctl";
    rc = hly_tcp_watch_add(t->slow_fd, t->listen_fd, EPOLLIN, &t->listen_watch);
    if (rc == 0)
        rc = hly_tcp_watch_add(t->slow_fd, t->timer_fd, EPOLLIN, &t->timer_watch);
    return rc ? rc : hly_tcp_watch_add(t->epoll_fd, t->slow_fd, EPOLLIN, &t->slow_watch);
}

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

static void close_one(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void let_go(halay_transport_t *t)
{
    close_one(t->slow_fd);
    t->slow_fd = -1; /* from here on nothing is taken out or shut down: a parent may share it */
    while (t->links)
        hly_tcp_link_free(t, t->links);
    for (hly_tcp_peer_t *peer; (peer = t->peers) != NULL; free(peer))
        t->peers = peer->next;
    for (halay_ep_t *ep; (ep = t->ways) != NULL; free(ep))
        t->ways = ep->next;
    close_one(t->epoll_fd);
    if (!t->listen_shared)
        close_one(t->listen_fd);
    close_one(t->timer_fd);
    free(t->open);
    free(t->parts);
    free(t->landings);
    free(t);
}

static void params_take(halay_transport_t *t, const halay_transport_params_t *params)
{
    t->slow_fd = t->epoll_fd = t->listen_fd = t->timer_fd = -1;
    t->slow_watch = WATCH_SLOW;
    t->listen_watch = WATCH_LISTEN;
    t->timer_watch = WATCH_TIMER;
    t->pid = getpid();
    t->self = params->self;
    memcpy(t->secret, params->secret, sizeof(t->secret));
    t->deadline_ns = params->deadline_ns ? params->deadline_ns : HLY_TCP_DEADLINE_NS;
    if (t->deadline_ns > INT64_MAX / 2)
        t->deadline_ns = INT64_MAX / 2; /* it is added to the time */
    t->listen_shared = params->listen_address.family != 0;
    if (t->listen_shared) {
        t->listen_fd = params->listen_fd;
        t->where = params->listen_address;
    }
    t->log = params->log;
    t->log_arg = params->log_arg;
}

/* It has none. */
static int options_read(const halay_transport_t *t, const char *options)
{
    if (!options || !*options)
        return HALAY_OK;
    hly_tcp_log(t, 0,
                "tcp: the transport option '%s' is not understood: tcp has none; HALAY_INTERFACE "
                "chooses the network",
                options);
    return HALAY_EINVAL;
}

int hly_tcp_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    const char *what = "memory";
    if (!hly_meet_params_well(params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    params_take(t, params);
    int rc = options_read(t, params->options);
    if (rc == 0 && hly_tcp_seal_read(getenv("HALAY_TCP_SEAL"), &t->seal)) {
        hly_tcp_log(t, 0, "tcp: HALAY_TCP_SEAL is headers or payload, not '%s'",
                    getenv("HALAY_TCP_SEAL"));
        rc = HALAY_EINVAL;
    }
    if (rc == 0)
        rc = pools_make(t);
    if (rc)
        goto undo;
    rc = descriptors_open(t, &what);
    if (rc) {
        hly_tcp_log(t, 0, "tcp: cannot listen: %s: %s; check the limit on open files (ulimit -n)",
                    what, strerror(-rc));
        rc = rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ? HALAY_ENOMEM : HALAY_ETRANSPORT;
        goto undo;
    }
    *out = t;
    return HALAY_OK;
undo:
    let_go(t);
    return rc;
}

/* ------------------------------------------------------------------ close */

/* Has all that was said on it reached the other host? */
static int heard(const hly_tcp_link_t *link)
{
    int bytes = 0;
    return link->broken || (!link->first && ioctl(link->fd, SIOCOUTQ, &bytes) == 0 && bytes == 0);
}

/*
 * Says goodbye on every connection; returns how many links are still to be waited for. One on which
 * the answer has not come yet gets it too: the other end may have counted it in.
 */
static int goodbyes_say(halay_transport_t *t)
{
    int pending = 0;
    for (hly_tcp_link_t *link = t->links; link; link = link->next) {
        if (link->state == LINK_GREETED && !link->said_goodbye) {
            const hly_tcp_frame_t frame = hly_tcp_frame(link, FRAME_GOODBYE, 0, 0, 0);
            ssize_t n = send(link->fd, &frame, sizeof(frame), MSG_NOSIGNAL | MSG_DONTWAIT);
            link->said_goodbye = n == (ssize_t)sizeof(frame);
            link->out_seal.count += (uint64_t)link->said_goodbye;
        }
        if (link->state != LINK_OPEN || link->peer->state != PEER_WELL || link->ended)
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
        for (int k = 0; k < HLY_TCP_ROUNDS && hly_tcp_collect(t, t->open[i], events, 16); k++)
            ;
        hly_tcp_flush(t, t->open[i]);
    }
}

static void farewell(halay_transport_t *t, uint64_t until)
{
    halay_event_t events[16];
    t->closing = 1;
    /* Who calls from now on waits in the socket's queue, for the next epoch. */
    epoll_ctl(t->slow_fd, EPOLL_CTL_DEL, t->listen_fd, NULL);
    for (;;) {
        struct pollfd nap = {.fd = t->epoll_fd, .events = POLLIN};
        links_drain(t);
        hly_tcp_attend(t);
        while (hly_tcp_failures_give(t, events, 16) == 16)
            ;
        int pending = goodbyes_say(t);
        if (pending == 0 || hly_tcp_now_ns() >= until)
            return;
        poll(&nap, 1, 1);
    }
}

void hly_tcp_close(halay_transport_t *t)
{
    if (!t)
        return;
    if (getpid() == t->pid) {
        farewell(t, hly_tcp_now_ns() + HLY_TCP_CLOSE_NS);
        links_drain(t);
        while (t->links)
            hly_tcp_link_free(t, t->links);
    }
    let_go(t);
}
