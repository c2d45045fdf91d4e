/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest.c - a rank other than 0: finds rank 0's rendezvous, says hello, and takes the answer.
 *
 * Which of the ports rank 0 could bind is not known, so all are tried in order, again and again
 * with longer pauses, until one greets as this job's. Whoever else listens there is sent nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "../../src/waits/text.h"
#include "../../src/waits/waits.h"
#include "tcp.h"

#define MS 1000000ull

enum {
    WHY_BYTES = 200,
    PAUSE_MIN_MS = 20,
    PAUSE_MAX_MS = 500,
    KNOCK_MIN_MS = 1000,
    KNOCK_MAX_MS = 8000
};

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

static int call(const struct addrinfo *at, int port, uint64_t until_ns, int *error)
{
    char number[8];
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *to;
    char host[NI_MAXHOST];
    snprintf(number, sizeof number, "%d", port);
    *error = EADDRNOTAVAIL;
    if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST) ||
        getaddrinfo(host, number, &hints, &to))
        return -1;
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t bytes = sizeof *error;
    *error = fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen) ? errno : 0;
    freeaddrinfo(to);
    if (fd >= 0 && *error == EINPROGRESS) {
        if (!hly_boot_wait(fd, POLLOUT, until_ns))
            *error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, error, &bytes))
            *error = errno;
    }
    if (!*error && is_self(fd)) {
        struct linger now = {.l_onoff = 1}; /* leaves no TIME_WAIT on rank 0's port */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        *error = ECONNREFUSED;
    }
    if (!*error)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int hly_tcp_knock(const struct hly_tcp *tcp, const struct addrinfo *at, int port, uint64_t until_ns,
                  struct hly_boot_greeting *greeting, char *why)
{
    char host[NI_MAXHOST] = "?";
    int error;
    getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    int fd = call(at, port, until_ns, &error);
    if (fd < 0) {
        snprintf(why, WHY_BYTES, "%.64s port %d: %s%s", host, port, strerror(error),
                 hly_boot_remedy(error));
        return -1;
    }
    const char *who;
    if (hly_boot_visit_greeted(&tcp->v->key, fd, until_ns, greeting, &who))
        return fd;
    snprintf(why, WHY_BYTES, "%.64s port %d: %s answers there", host, port, who);
    close(fd);
    return -1;
}

static bool is_this_machine(const char *name)
{
    struct utsname here;
    return !uname(&here) && !strcasecmp(here.nodename, name);
}

/* NULL: no memory. */
static struct addrinfo *loopback(void)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *at = NULL;
    return getaddrinfo("127.0.0.1", NULL, &hints, &at) ? NULL : at;
}

/* What there is where the name leads to, at any of the ports. A lookup that takes longer goes on.
 */
static int search(struct hly_tcp *tcp, struct hly_lookup *name, uint64_t timeout_ns,
                  struct hly_boot_greeting *greeting, int *port, char *why)
{
    const struct addrinfo *found;
    const struct hly_tcp_variables *v = tcp->v;
    int fd = -1;
    if (!name ||
        !hly_lookup_wait(name, sooner(hly_boot_now_ns() + PAUSE_MAX_MS * MS, tcp->end_ns))) {
        snprintf(why, WHY_BYTES,
                 name ? "the name does not resolve: no resolver has answered yet"
                      : "out of memory to look the name up");
        return -1;
    }
    int rc = hly_lookup_found(name, &found);
    struct addrinfo *near = rc && is_this_machine(v->address) ? loopback() : NULL;
    if (near) {
        found = near;
        rc = 0;
    }
    if (rc)
        snprintf(why, WHY_BYTES, "the name does not resolve: %s", gai_strerror(rc));
    for (int k = 0; !rc && k < v->nports && fd < 0; k++) {
        int tries = 8;
        for (const struct addrinfo *at = found; at && tries-- && fd < 0; at = at->ai_next) {
            uint64_t now = hly_boot_now_ns();
            if (now >= tcp->end_ns)
                break;
            *port = v->ports[k];
            fd =
                hly_tcp_knock(tcp, at, *port, sooner(now + timeout_ns, tcp->end_ns), greeting, why);
        }
    }
    if (near)
        freeaddrinfo(near);
    return fd;
}

/* Without rank 0 nobody can choose one rank to say it: rank 1 does, and from 4 s on rank 2 as well,
 * if that one is not there either. */
static void remind(const struct hly_tcp *tcp, const char *why, struct hly_notices *notices)
{
    const struct hly_tcp_variables *v = tcp->v;
    const uint64_t now = hly_boot_now_ns();
    char text[400 + WHY_BYTES];
    struct hly_line line = hly_line(text, sizeof text);
    if (v->rank > 2 || !hly_notices_give(notices, now))
        return;
    hly_line_waited(&line, now - tcp->begin_ns, "halay_init");
    hly_line_put(&line, ": rank %d looks for rank 0 at '%.100s', ports %d to %d (last: %s)",
                 v->rank, v->address, v->ports[0], v->ports[v->nports - 1], why);
    hly_line_until(&line, HLY_ENDS, tcp->end_ns, now);
    hly_boot_say(tcp->log, 1, "%s", text);
}

static int find(struct hly_tcp *tcp, struct hly_boot_greeting *greeting, int *port)
{
    const struct hly_tcp_variables *v = tcp->v;
    char why[WHY_BYTES] = "there was no time to look";
    uint64_t pause = PAUSE_MIN_MS * MS, timeout = KNOCK_MIN_MS * MS;
    struct hly_notices notices = {tcp->begin_ns, (v->rank == 1 ? 1 : 4) * HLY_FIRST_NOTICE_NS, 0};
    struct hly_lookup *name = NULL;
    int fd = -1;
    while (hly_boot_now_ns() < tcp->end_ns) {
        name = name ? name : hly_lookup_start(v->address);
        fd = search(tcp, name, timeout, greeting, port, why);
        if (fd >= 0)
            break;
        if (name && hly_lookup_wait(name, 0)) { /* the next search looks anew */
            hly_lookup_end(name);
            name = NULL;
        }
        uint64_t now = hly_boot_now_ns();
        uint64_t nap = now < tcp->end_ns ? sooner(pause, tcp->end_ns - now) : 0;
        if (nap)
            remind(tcp, why, &notices);
        struct timespec t = {(time_t)(nap / 1000000000u), (long)(nap % 1000000000u)};
        nanosleep(&t, NULL);
        pause = sooner(pause * 2, PAUSE_MAX_MS * MS);
        timeout = sooner(timeout * 2, KNOCK_MAX_MS * MS);
    }
    hly_lookup_end(name);
    if (fd >= 0)
        return fd;
    hly_boot_say(tcp->log, 0,
                 "rank %d found no rendezvous of rank 0 at '%.100s', ports %d to %d, within %.1f s "
                 "(last: %s): is rank 0 running and has it called halay_init, is the address that "
                 "of its host, and are these ports open?%s",
                 v->rank, v->address, v->ports[0], v->ports[v->nports - 1],
                 (double)(tcp->end_ns - tcp->begin_ns) / 1e9, why,
                 v->given ? "" : " HALAY_RENDEZVOUS=host:port names another");
    return -1;
}

int hly_tcp_meet(struct hly_tcp *tcp, int fd, int port, const struct hly_boot_greeting *greeting,
                 struct hly_boot_identity *id)
{
    char guest[24], holder[320];
    const struct hly_boot_visit visit = {tcp->log,    &tcp->v->key, guest, holder,
                                         tcp->end_ns, NULL,         0};
    snprintf(guest, sizeof guest, "rank %d", tcp->v->rank);
    snprintf(holder, sizeof holder, "rank 0 at '%.100s' port %d", tcp->v->address, port);
    int rc = hly_tcp_listen_beside(tcp, fd, greeting);
    if (!rc)
        rc = hly_boot_visit(&visit, fd, greeting, &tcp->self, id);
    close(fd);
    return rc;
}

int hly_tcp_guest(struct hly_tcp *tcp, struct hly_boot_identity *id)
{
    struct hly_boot_greeting greeting;
    int port = 0, fd = find(tcp, &greeting, &port);
    return fd < 0 ? HALAY_EBOOT : hly_tcp_meet(tcp, fd, port, &greeting, id);
}
