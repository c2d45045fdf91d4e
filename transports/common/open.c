/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - sockets and descriptors come and go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "meet.h"

uint64_t hly_meet_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void say(const hly_meet_t *m, int level, const char *format, va_list list)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "%s: ", m->ops->name);
    vsnprintf(text + n, sizeof(text) - (size_t)n, format, list);
    if (m->log)
        m->log(m->log_arg, level, text);
}

void hly_meet_log(const hly_meet_t *m, int level, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(m, level, format, list);
    va_end(list);
}

int hly_meet_error(const hly_meet_t *m, int rc, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(m, 0, format, list);
    va_end(list);
    return rc;
}

void hly_meet_init(hly_meet_t *m, const hly_meet_ops_t *ops, halay_transport_t *t,
                   const halay_transport_params_t *params, const halay_address_t *where)
{
    m->ops = ops;
    m->transport = t;
    m->slow_fd = m->epoll_fd = m->listen_fd = m->timer_fd = -1;
    m->listen_watch = WATCH_LISTEN;
    m->timer_watch = WATCH_TIMER;
    m->pid = getpid();
    m->self = params->self;
    memcpy(m->secret, params->secret, sizeof(m->secret));
    m->deadline_ns = params->deadline_ns ? params->deadline_ns : HLY_MEET_DEADLINE_NS;
    m->timeout_ns = params->link_timeout_ns ? params->link_timeout_ns : HLY_MEET_LINK_NS;
    m->timeout_ns = m->timeout_ns < INT64_MAX / 2 ? m->timeout_ns : INT64_MAX / 2;
    if (m->deadline_ns > INT64_MAX / 2)
        m->deadline_ns = INT64_MAX / 2; /* it is added to the time */
    m->listen_shared = params->listen_address.family != 0;
    if (m->listen_shared)
        m->listen_fd = params->listen_fd;
    m->where = m->listen_shared ? params->listen_address : *where;
    m->log = params->log;
    m->log_arg = params->log_arg;
}

/* A socket of our own, where the bootstrap has none. */
static int listen_open(hly_meet_t *m, const char **what)
{
    struct sockaddr_storage address;
    socklen_t length = hly_meet_where_socket(&m->where, &address);
    *what = "socket";
    m->listen_fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->listen_fd < 0)
        return -errno;
    *what = "bind";
    if (bind(m->listen_fd, (struct sockaddr *)&address, length))
        return -errno;
    *what = "listen";
    if (listen(m->listen_fd, SOMAXCONN))
        return -errno;
    *what = "getsockname";
    length = sizeof(address);
    if (getsockname(m->listen_fd, (struct sockaddr *)&address, &length))
        return -errno;
    return hly_meet_where_from(&address, &m->where);
}

/* Each step says what it was, for the message. */
static int descriptors_open(hly_meet_t *m, int own_fd, const char **what)
{
    *what = "epoll_create1";
    if ((m->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        (m->slow_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return -errno;
    *what = "timerfd_create";
    if ((m->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0)
        return -errno;
    int rc = m->listen_shared ? 0 : listen_open(m, what);
    if (rc)
        return rc;
    hly_meet_where_name(&m->where, m->name);
    *what = "epoll_ctl";
    rc = hly_meet_watch(m->slow_fd, m->listen_fd, EPOLLIN, &m->listen_watch);
    if (rc == 0)
        rc = hly_meet_watch(m->slow_fd, m->timer_fd, EPOLLIN, &m->timer_watch);
    if (rc == 0)
        rc = hly_meet_watch(m->epoll_fd, m->slow_fd, EPOLLIN, NULL);
    return rc || own_fd < 0 ? rc : hly_meet_watch(m->epoll_fd, own_fd, EPOLLIN, NULL);
}

int hly_meet_open(hly_meet_t *m, int own_fd)
{
    const char *what;
    int rc = descriptors_open(m, own_fd, &what);
    if (rc == 0)
        return HALAY_OK;
    hly_meet_log(m, 0, "cannot listen: %s: %s; check the limit on open files (ulimit -n)", what,
                 strerror(-rc));
    return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ? HALAY_ENOMEM : HALAY_ETRANSPORT;
}

int hly_meet_address(const halay_transport_t *t, void *address, size_t *bytes)
{
    const hly_meet_t *m = (const hly_meet_t *)t;
    if (!bytes || *bytes < sizeof(m->where))
        return HALAY_EINVAL;
    memcpy(address, &m->where, sizeof(m->where));
    *bytes = sizeof(m->where);
    return HALAY_OK;
}

int hly_meet_error_take(hly_meet_t *m)
{
    int error = m->error;
    m->error = 0;
    return error;
}

void hly_meet_leave(hly_meet_t *m)
{
    m->closing = 1;
    epoll_ctl(m->slow_fd, EPOLL_CTL_DEL, m->listen_fd, NULL);
}

static void close_one(int fd)
{
    if (fd >= 0)
        close(fd);
}

void hly_meet_close(hly_meet_t *m)
{
    int slow_fd = m->slow_fd;
    if (getpid() != m->pid)
        m->slow_fd = -1; /* nothing is taken out or shut down: it is the parent's */
    while (m->links)
        hly_meet_link_free(m, m->links);
    close_one(slow_fd);
    close_one(m->epoll_fd);
    if (!m->listen_shared)
        close_one(m->listen_fd);
    close_one(m->timer_fd);
}
