/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.c - a guest finds the holder of its meeting (meet.h).
 *
 * Which of the ports the holder could bind is not known, so all are tried in order, again and again
 * with longer pauses, until one greets as this job's. Whoever else listens there is sent nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "lookup.h"
#include "meet.h"

#define MS 1000000ull

enum { PAUSE_MIN_MS = 20, PAUSE_MAX_MS = 500, TIMEOUT_MAX_MS = 8000, ADDRESSES = 8 };

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The kernel may choose the port that is called as the caller's own: then it has called itself. */
static bool is_self(int fd)
{
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t na = sizeof a, nb = sizeof b;
    return !getsockname(fd, (struct sockaddr *)&a, &na) &&
           !getpeername(fd, (struct sockaddr *)&b, &nb) && na == nb && !memcmp(&a, &b, na);
}

static int call(const struct sockaddr *to, socklen_t bytes, int port, uint64_t until_ns, int *error)
{
    struct sockaddr_storage at = {0};
    socklen_t error_bytes = sizeof *error;
    memcpy(&at, to, bytes < sizeof at ? bytes : sizeof at);
    if (port) /* at the same place in both families */
        ((struct sockaddr_in6 *)&at)->sin6_port = htons((uint16_t)port);
    const int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *error = fd < 0 || connect(fd, (struct sockaddr *)&at, bytes) ? errno : 0;
    if (fd >= 0 && *error == EINPROGRESS) {
        if (!hly_boot_wait(fd, POLLOUT, until_ns))
            *error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, error, &error_bytes))
            *error = errno;
    }
    if (port && !*error && is_self(fd)) {
        struct linger now = {.l_onoff = 1}; /* leaves no TIME_WAIT on the holder's port */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        *error = ECONNREFUSED;
    }
    if (!*error)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int hly_boot_knock(const struct hly_boot_key *key, const struct sockaddr *to, socklen_t bytes,
                   int port, uint64_t until_ns, struct hly_boot_greeting *greeting,
                   char why[HLY_BOOT_WHY])
{
    char host[NI_MAXHOST] = "?", where[96] = "";
    const char *who;
    int error;
    getnameinfo(to, bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    if (port)
        snprintf(where, sizeof where, "%.64s port %d: ", host, port);
    const int fd = call(to, bytes, port, until_ns, &error);
    if (fd < 0) {
        snprintf(why, HLY_BOOT_WHY, "%s%s%s", where, strerror(error), hly_boot_remedy(error));
        errno = error;
        return -1;
    }
    if (hly_boot_visit_greeted(key, fd, until_ns, greeting, &who))
        return fd;
    snprintf(why, HLY_BOOT_WHY, "%s%s", where, who);
    close(fd);
    errno = greeting->magic ? EPROTO : EAGAIN;
    return -1;
}

/* NULL: no memory. */
static struct addrinfo *loopback_of(const char *name)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct utsname here;
    struct addrinfo *at = NULL;
    if (uname(&here) || strcasecmp(here.nodename, name) != 0)
        return NULL;
    return getaddrinfo("127.0.0.1", NULL, &hints, &at) ? NULL : at;
}

/* What there is where the name leads to, at any of the ports. A lookup that takes longer goes
 * on. */
static int search(struct hly_boot_search *s, struct hly_lookup *name, uint64_t timeout_ns,
                  struct hly_boot_greeting *greeting)
{
    const struct addrinfo *found;
    int fd = -1;
    if (!name || !hly_lookup_wait(name, sooner(hly_boot_now_ns() + PAUSE_MAX_MS * MS, s->end_ns))) {
        snprintf(s->why, sizeof s->why,
                 name ? "the name does not resolve: no resolver has answered yet"
                      : "out of memory to look the name up");
        return -1;
    }
    const int rc = hly_lookup_found(name, &found);
    struct addrinfo *near = rc ? loopback_of(s->name) : NULL;
    found = near ? near : found;
    if (rc && !near)
        snprintf(s->why, sizeof s->why, "the name does not resolve: %s", gai_strerror(rc));
    for (int k = 0; (!rc || near) && k < s->nports && fd < 0; k++) {
        int tries = ADDRESSES;
        for (const struct addrinfo *at = found; at && tries-- && fd < 0; at = at->ai_next) {
            const uint64_t now = hly_boot_now_ns();
            if (now >= s->end_ns)
                break;
            s->port = s->ports[k];
            fd = hly_boot_knock(s->key, at->ai_addr, at->ai_addrlen, s->port,
                                sooner(now + timeout_ns, s->end_ns), greeting, s->why);
        }
    }
    if (near)
        freeaddrinfo(near);
    return fd;
}

int hly_boot_find(struct hly_boot_search *s, struct hly_boot_greeting *greeting)
{
    uint64_t pause = PAUSE_MIN_MS * MS, timeout = s->timeout_ns;
    struct hly_lookup *name = NULL;
    bool again = true;
    int fd = -1;
    snprintf(s->why, sizeof s->why, "there was no time to look");
    while (again && hly_boot_now_ns() < s->end_ns) {
        if (s->near) {
            fd = hly_boot_knock(s->key, (const struct sockaddr *)s->near, sizeof *s->near, 0,
                                s->end_ns, greeting, s->why);
            again = errno == EAGAIN;
        } else {
            name = name ? name : hly_lookup_start(s->name);
            fd = search(s, name, timeout, greeting);
        }
        if (fd >= 0 || !again)
            break;
        if (name && hly_lookup_wait(name, 0)) { /* the next search looks anew */
            hly_lookup_end(name);
            name = NULL;
        }
        const uint64_t now = hly_boot_now_ns();
        const uint64_t nap = now < s->end_ns ? sooner(pause, s->end_ns - now) : 0;
        if (nap && hly_notices_give(&s->notices, now))
            hly_boot_remind(s->log, s->notices.since_ns, s->end_ns, s->who, ": %s (last: %s)",
                            s->looks, s->why);
        nanosleep(&(struct timespec){(time_t)(nap / 1000000000u), (long)(nap % 1000000000u)}, NULL);
        pause = sooner(pause * 2, PAUSE_MAX_MS * MS);
        timeout = sooner(timeout * 2, TIMEOUT_MAX_MS * MS);
    }
    hly_lookup_end(name);
    return fd;
}
