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
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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

static bool wait_for(int fd, short events, uint64_t until_ns)
{
    for (;;) {
        uint64_t now = hly_tcp_now_ns();
        struct pollfd p = {.fd = fd, .events = events};
        if (now >= until_ns)
            return false;
        int n = poll(&p, 1, (int)sooner((until_ns - now) / MS + 1, 60000));
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* All the bytes, or false: errno is 0 at the end of the stream, ETIMEDOUT, or what recv says. */
static bool take(int fd, void *to, size_t bytes, uint64_t until_ns)
{
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = recv(fd, (char *)to + got, bytes - got, 0);
        if (n > 0) {
            got += (size_t)n;
        } else if (n == 0) {
            errno = 0;
            return false;
        } else if (errno == EAGAIN) {
            if (!wait_for(fd, POLLIN, until_ns)) {
                errno = ETIMEDOUT;
                return false;
            }
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
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
        if (!wait_for(fd, POLLOUT, until_ns))
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
                  struct hly_tcp_greeting *greeting, char *why)
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
    memset(greeting, 0, sizeof *greeting);
    bool whole = take(fd, greeting, sizeof *greeting, until_ns);
    if (greeting->magic == HLY_TCP_MAGIC && whole &&
        !memcmp(greeting->key, tcp->v->key, sizeof greeting->key))
        return fd;
    snprintf(why, WHY_BYTES, "%.64s port %d: %s answers there", host, port,
             greeting->magic == HLY_TCP_MAGIC ? "the rendezvous of another job"
                                              : "something that is not Halay");
    close(fd);
    return -1;
}

/* What there is where the name leads to, at any of the ports. A lookup that takes longer goes on.
 */
static int search(struct hly_tcp *tcp, struct hly_lookup *name, uint64_t patience_ns,
                  struct hly_tcp_greeting *greeting, int *port, char *why)
{
    const struct addrinfo *found;
    const struct hly_tcp_variables *v = tcp->v;
    int fd = -1;
    if (!name ||
        !hly_lookup_wait(name, sooner(hly_tcp_now_ns() + PAUSE_MAX_MS * MS, tcp->end_ns))) {
        snprintf(why, WHY_BYTES,
                 name ? "the name does not resolve: no resolver has answered yet"
                      : "out of memory to look the name up");
        return -1;
    }
    int rc = hly_lookup_found(name, &found);
    if (rc)
        snprintf(why, WHY_BYTES, "the name does not resolve: %s", gai_strerror(rc));
    for (int k = 0; !rc && k < v->nports && fd < 0; k++) {
        int tries = 8;
        for (const struct addrinfo *at = found; at && tries-- && fd < 0; at = at->ai_next) {
            uint64_t now = hly_tcp_now_ns();
            if (now >= tcp->end_ns)
                break;
            *port = v->ports[k];
            fd = hly_tcp_knock(tcp, at, *port, sooner(now + patience_ns, tcp->end_ns), greeting,
                               why);
        }
    }
    return fd;
}

/* Without rank 0 nobody can choose one voice: rank 1 says it after 1 s, 2 s, 4 s, ..., and rank 2
 * after 4 s, ..., if that one is not there either. */
static void remind(const struct hly_tcp *tcp, const char *why, uint64_t *next_ns)
{
    const struct hly_tcp_variables *v = tcp->v;
    const uint64_t now = hly_tcp_now_ns();
    if (v->rank > 2 || now < tcp->begin_ns + *next_ns)
        return;
    hly_boot_say(tcp->log, 1,
                 "halay_init has waited for %.1f s: rank %d looks for rank 0 at '%.100s', ports %d "
                 "to %d (last: %s). If that stays so it ends with an error in %.0f s",
                 (double)(now - tcp->begin_ns) / 1e9, v->rank, v->address, v->ports[0],
                 v->ports[v->nports - 1], why, (double)(tcp->end_ns - now) / 1e9);
    *next_ns *= 2;
}

static int find(struct hly_tcp *tcp, struct hly_tcp_greeting *greeting, int *port)
{
    const struct hly_tcp_variables *v = tcp->v;
    char why[WHY_BYTES] = "there was no time to look";
    uint64_t pause = PAUSE_MIN_MS * MS, patience = KNOCK_MIN_MS * MS;
    uint64_t notice = (v->rank == 1 ? 1000 : 4000) * MS;
    struct hly_lookup *name = NULL;
    int fd = -1;
    while (hly_tcp_now_ns() < tcp->end_ns) {
        name = name ? name : hly_lookup_start(v->address);
        fd = search(tcp, name, patience, greeting, port, why);
        if (fd >= 0)
            break;
        if (name && hly_lookup_wait(name, 0)) { /* the next search looks anew */
            hly_lookup_end(name);
            name = NULL;
        }
        uint64_t now = hly_tcp_now_ns();
        uint64_t nap = now < tcp->end_ns ? sooner(pause, tcp->end_ns - now) : 0;
        if (nap)
            remind(tcp, why, &notice);
        struct timespec t = {(time_t)(nap / 1000000000u), (long)(nap % 1000000000u)};
        nanosleep(&t, NULL);
        pause = sooner(pause * 2, PAUSE_MAX_MS * MS);
        patience = sooner(patience * 2, KNOCK_MAX_MS * MS);
    }
    hly_lookup_end(name);
    if (fd >= 0)
        return fd;
    hly_boot_say(tcp->log, 0,
                 "rank %d found no rendezvous of rank 0 at '%.100s', ports %d to %d, within %.1f s "
                 "(last: %s): is rank 0 running and has it called halay_init, is the address that "
                 "of its host, and are these ports open? HALAY_RENDEZVOUS=host:port names another",
                 v->rank, v->address, v->ports[0], v->ports[v->nports - 1],
                 (double)(tcp->end_ns - tcp->begin_ns) / 1e9, why);
    return -1;
}

static int say_hello(struct hly_tcp *tcp, int fd, const struct hly_tcp_greeting *greeting,
                     struct hly_tcp_hello *hello)
{
    uint64_t now = hly_tcp_now_ns();
    *hello = tcp->self;
    hello->left_ns = now < tcp->end_ns ? tcp->end_ns - now : 0;
    int rc = hly_tcp_random(tcp->log, hello->challenge, sizeof hello->challenge);
    if (rc)
        return rc;
    hly_tcp_hello_mac(tcp->v, greeting, hello, hello->mac);
    /* An empty send buffer takes it at once. What is wrong with the connection is seen by recv. */
    (void)!send(fd, hello, sizeof *hello, MSG_NOSIGNAL);
    return HALAY_OK;
}

/* The answer and its payload, proved to come from one who knows the secret. */
static int take_answer(struct hly_tcp *tcp, int fd, int port,
                       const struct hly_tcp_greeting *greeting, const struct hly_tcp_hello *hello,
                       struct hly_tcp_answer *answer, char **payload)
{
    const struct hly_tcp_variables *v = tcp->v;
    size_t limit = (size_t)v->nranks * HLY_TCP_RANK_BYTES;
    struct hly_sha sha;
    uint8_t digest[32], mac[32];
    bool whole = take(fd, answer, sizeof *answer, tcp->end_ns);
    if (whole && (answer->magic != HLY_TCP_MAGIC || answer->bytes > limit + HLY_TCP_TEXT_BYTES)) {
        whole = false;
        errno = EPROTO;
    }
    if (whole) {
        *payload = calloc(1, (size_t)answer->bytes + 1);
        if (!*payload)
            return HALAY_ENOMEM;
        whole = take(fd, *payload, answer->bytes, tcp->end_ns);
    }
    if (!whole) {
        hly_boot_say(tcp->log, 0,
                     "rank %d said hello to rank 0 at '%.100s' port %d, but got no answer (%s): "
                     "see what rank 0 says; it may have died, or waited for other ranks",
                     v->rank, v->address, port,
                     errno ? strerror(errno) : "the connection was ended");
        return HALAY_EBOOT;
    }
    hly_sha_init(&sha);
    hly_sha_add(&sha, *payload, answer->bytes);
    hly_sha_end(&sha, digest);
    hly_tcp_answer_mac(v, greeting, hello, answer, digest, mac);
    if (hly_mac_equal(mac, answer->mac))
        return HALAY_OK;
    hly_boot_say(tcp->log, 0,
                 "rank %d and rank 0 at '%.100s' port %d do not have the same secret: HALAY_SECRET "
                 "is %s here and %s there; give all ranks the same, or none",
                 v->rank, v->address, port, v->has_secret ? "set" : "not set",
                 !greeting->has_secret ? "not set"
                 : v->has_secret       ? "another"
                                       : "set");
    return HALAY_EBOOT;
}

int hly_tcp_meet(struct hly_tcp *tcp, int fd, int port, const struct hly_tcp_greeting *greeting,
                 struct hly_tcp_identity *id)
{
    const struct hly_tcp_variables *v = tcp->v;
    struct hly_tcp_hello hello;
    struct hly_tcp_answer answer;
    char *payload = NULL;
    int rc = HALAY_EBOOT;
    if (greeting->version != HLY_TCP_VERSION)
        hly_boot_say(tcp->log, 0,
                     "rank 0 at '%.100s' port %d speaks version %u of the rendezvous, rank %d "
                     "version %d: run the same version of Halay on all nodes",
                     v->address, port, greeting->version, v->rank, HLY_TCP_VERSION);
    else
        rc = hly_tcp_listen_beside(tcp, fd, greeting);
    if (!rc)
        rc = say_hello(tcp, fd, greeting, &hello);
    if (!rc)
        rc = take_answer(tcp, fd, port, greeting, &hello, &answer, &payload);
    close(fd);
    if (!rc && !answer.joined) {
        hly_boot_say(tcp->log, answer.said ? HALAY_LOG_TOLD : 0,
                     "rank 0 at '%.100s' port %d refuses: %.600s", v->address, port, payload);
        rc = HALAY_EBOOT;
    } else if (!rc) {
        rc = hly_tcp_table_read(v, &answer, payload, id);
        if (rc)
            hly_boot_say(tcp->log, 0, "the table of nodes from rank 0 cannot be taken: %s",
                         rc == HALAY_ENOMEM ? "out of memory" : "it is not consistent");
    }
    free(payload);
    return rc;
}

int hly_tcp_guest(struct hly_tcp *tcp, struct hly_tcp_identity *id)
{
    struct hly_tcp_greeting greeting;
    int port = 0, fd = find(tcp, &greeting, &port);
    return fd < 0 ? HALAY_EBOOT : hly_tcp_meet(tcp, fd, port, &greeting, id);
}
