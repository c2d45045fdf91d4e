/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - an endpoint comes and goes. A forked child may close the copy that it inherited: it lets
 * its descriptors and memory go, and neither says nor shuts down anything.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

uint64_t hly_shm_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void hly_shm_log(const halay_transport_t *t, int level, const char *format, ...)
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

/*
 * What a core has just read is slow to overwrite from another one, so a ring is larger than what a
 * second-level cache keeps of it (0032), where they are few.
 */
static size_t ring_default(int others)
{
    size_t bytes = HLY_SHM_RING_FEW;
    while (bytes > HLY_SHM_RING_MIN && (size_t)others * (HLY_SHM_HEAD + bytes) > HLY_SHM_REST_BYTES)
        bytes /= 2;
    return bytes;
}

/* How long an eager message is must be the same on all ranks of the node. */
static void ring_sizes(halay_transport_t *t, const halay_transport_params_t *params)
{
    const int n = params->local_nranks, others = n > 1 ? n - 1 : HLY_SHM_RANKS_UNKNOWN - 1;
    t->eager_bytes = n > 2 && n <= HLY_SHM_FEW ? HLY_SHM_EAGER_FEW : HLY_SHM_EAGER;
    t->ring_bytes = t->least_bytes = ring_default(others);
    assert((size_t)others * (HLY_SHM_HEAD + t->ring_bytes) <= HLY_SHM_REST_BYTES ||
           others >= HLY_SHM_ALL);
    if (t->least_bytes > HLY_SHM_RING_DEFAULT)
        t->least_bytes = HLY_SHM_RING_DEFAULT;
}

/* "ring=BYTES", rounded up to a power of two. */
static int options_read(halay_transport_t *t, const char *options)
{
    char *end = NULL;
    if (!options || !*options)
        return HALAY_OK;
    unsigned long long bytes = 0;
    if (strncmp(options, "ring=", 5) == 0 && options[5] >= '0' && options[5] <= '9')
        bytes = strtoull(options + 5, &end, 10);
    if (!end || *end || bytes > HLY_SHM_RING_MAX) {
        hly_shm_log(t, 0, "shm: the option '%s' is not understood; ring=BYTES is (at most %u)",
                    options, HLY_SHM_RING_MAX);
        return HALAY_EINVAL;
    }
    t->ring_bytes = HLY_SHM_RING_MIN;
    while (t->ring_bytes < bytes)
        t->ring_bytes *= 2;
    t->least_bytes = t->ring_bytes;
    return HALAY_OK;
}

/* Rings no larger than files may be: slower, but it goes on. One rank of the node says so. */
static void ring_fit(halay_transport_t *t, int says)
{
    struct rlimit limit;
    const size_t wanted = t->ring_bytes;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return;
    while (t->ring_bytes > HLY_SHM_RING_MIN && HLY_SHM_HEAD + t->ring_bytes > limit.rlim_cur)
        t->ring_bytes /= 2;
    if (t->least_bytes > t->ring_bytes)
        t->least_bytes = t->ring_bytes;
    if (t->ring_bytes < wanted && t->ring_bytes < HLY_SHM_RING_DEFAULT && says)
        hly_shm_log(t, 1,
                    "shm: rings of %zu bytes instead of %zu, which is slower: the limit on file "
                    "size (ulimit -f) is %llu bytes",
                    t->ring_bytes, wanted, (unsigned long long)limit.rlim_cur);
}

/* Each step says what it was, for the message. */
static int descriptors_open(halay_transport_t *t, const char **what)
{
    struct sockaddr_un address;
    *what = "epoll_create1";
    if ((t->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return -errno;
    *what = "eventfd";
    if ((t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return -errno;
    *what = "timerfd_create";
    if ((t->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0)
        return -errno;
    *what = "pidfd_open (Linux 5.3 or later is needed)";
    if ((t->process_fd = hly_shm_pidfd(t->pid)) < 0)
        return -errno;
    *what = "socket";
    t->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listen_fd < 0)
        return -errno;
    *what = "bind (does another process use this rank's identity?)";
    socklen_t length = hly_shm_name(t, t->self, &address);
    if (bind(t->listen_fd, (struct sockaddr *)&address, length))
        return -errno;
    *what = "listen";
    if (listen(t->listen_fd, SOMAXCONN))
        return -errno;
    *what = "epoll_ctl";
    int rc = hly_shm_watch_add(t, t->listen_fd, &t->listen_watch);
    if (rc == 0)
        rc = hly_shm_watch_add(t, t->wake_fd, &t->wake_watch);
    return rc ? rc : hly_shm_watch_add(t, t->timer_fd, &t->timer_watch);
}

static void close_one(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Everything that this process holds. Says and shuts down nothing: a forked child does this too. */
static void let_go(halay_transport_t *t)
{
    close_one(t->epoll_fd);
    t->epoll_fd = -1; /* from here on no entry is taken out: it is shared with a parent or child */
    while (t->ways)
        hly_shm_way_free(t, t->ways);
    while (t->nins > 0)
        hly_shm_in_remove(t, t->nins - 1);
    while (t->peers)
        hly_shm_peer_free(t, t->peers);
    hly_shm_guests_close(t);
    hly_shm_regions_free(t);
    close_one(t->listen_fd);
    close_one(t->process_fd);
    close_one(t->timer_fd);
    close_one(t->wake_fd);
    free(t->ins);
    free(t);
}

int hly_shm_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    const char *what;
    if (!params || params->size < sizeof(*params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    t->epoll_fd = t->wake_fd = t->timer_fd = t->process_fd = t->listen_fd = -1;
    for (int i = 0; i < HLY_SHM_GUESTS; i++) {
        t->guests[i].watch = WATCH_GUEST;
        t->guests[i].fd = -1;
    }
    t->listen_watch = WATCH_LISTEN;
    t->wake_watch = WATCH_WAKE;
    t->timer_watch = WATCH_TIMER;
    t->pid = getpid();
    t->self = params->self;
    memcpy(t->job, params->job, sizeof(t->job));
    memcpy(t->secret, params->secret, sizeof(t->secret));
    t->slow_ns = HLY_SHM_SLOW_NS;
    t->deadline_ns = params->deadline_ns ? params->deadline_ns : HLY_SHM_DEADLINE_NS;
    if (t->deadline_ns > INT64_MAX / 2)
        t->deadline_ns = INT64_MAX / 2; /* it is added to the time */
    t->soon_ns = t->timeout_ns = t->deadline_ns - t->deadline_ns / 8;
    if (params->link_timeout_ns && params->link_timeout_ns < t->timeout_ns)
        t->timeout_ns = params->link_timeout_ns;
    t->log = params->log;
    t->log_arg = params->log_arg;
    ring_sizes(t, params);
    int rc = options_read(t, params->options);
    if (rc)
        goto undo;
    ring_fit(t, params->local_rank == 0);
    int error = descriptors_open(t, &what);
    if (error) {
        hly_shm_log(
            t, 0,
            "shm: cannot open: %s: %s; check the limit on open files (ulimit -n) and what the "
            "container allows",
            what, strerror(-error));
        rc = error == -EMFILE || error == -ENFILE || error == -ENOMEM ? HALAY_ENOMEM
                                                                      : HALAY_ETRANSPORT;
        goto undo;
    }
    *out = t;
    return HALAY_OK;
undo:
    let_go(t);
    return rc;
}

void hly_shm_close(halay_transport_t *t)
{
    if (!t)
        return;
    if (getpid() != t->pid) { /* a forked child: the rings are not mapped here */
        for (halay_ep_t *ep = t->ways; ep; ep = ep->next)
            ep->ring.shared = NULL;
        for (int i = 0; i < t->nins; i++)
            t->ins[i]->ring.shared = NULL;
        let_go(t);
        return;
    }
    /* First "I send no more" everywhere, then "I read no more": who sees the second knows the
     * first. */
    for (halay_ep_t *ep = t->ways; ep; ep = ep->next)
        atomic_store(&ep->ring.shared->closed, HLY_SHM_LEFT);
    for (int i = 0; i < t->nins; i++)
        atomic_store(&t->ins[i]->ring.shared->left, HLY_SHM_LEFT);
    for (halay_ep_t *ep = t->ways; ep; ep = ep->next) {
        if (ep->state == WAY_GREETED)
            hly_shm_way_answer(t, ep, 0);
    }
    for (halay_ep_t *ep = t->ways; ep; ep = ep->next)
        hly_shm_recall(t, ep, HALAY_EPEER);
    for (hly_shm_peer_t *peer = t->peers; peer; peer = peer->next)
        hly_shm_peer_wake(peer);
    /* Those who wait for an answer see the end, even if a forked child holds the socket. */
    shutdown(t->listen_fd, SHUT_RDWR);
    for (int i = 0; i < HLY_SHM_GUESTS; i++) {
        if (t->guests[i].fd >= 0)
            shutdown(t->guests[i].fd, SHUT_RDWR);
    }
    for (int fd; (fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
        close(fd);
    let_go(t);
}
