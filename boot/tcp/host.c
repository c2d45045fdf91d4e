/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - rank 0: listens, hears all ranks, and answers all at once.
 *
 * Invariant: no rank is told anything before the verdict stands, and after that all are told the
 * same: the table, or one text. A guest is anyone connected; it becomes a rank with a hello that
 * proves the secret. Only ranks count: what others do costs a slot for some seconds, no more.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp.h"

#define MS 1000000ull
#define S  1000000000ull

enum { STRANGERS_MAX = 64, TICK_MS = 100 };
/* A stranger's time, the time for late ranks to come and hear that there is no job, and the time
 * for ranks to take a table before the connection is left to the kernel. */
#define STRANGER_NS (10 * S)
#define LATE_NS     (5 * S)
#define TAKEN_NS    (1 * S)

struct guest {
    int fd; /* -1: the slot is free */
    bool rank, answering;
    size_t got, sent;
    uint64_t since_ns;
    struct hly_piece body[2]; /* the table, and its part; or a text */
    struct hly_tcp_greeting greeting;
    struct hly_tcp_hello hello;
    struct hly_tcp_answer answer;
};

struct host {
    struct hly_tcp *tcp;
    struct hly_tcp_door door;
    int listen_fd, epoll_fd, port;
    int nslots, cursor; /* where to look for a free slot first */
    int nranks_here;    /* guests that are ranks and still connected */
    struct guest *guests;
    struct hly_tcp_hello *hellos; /* of the ranks that came; magic is 0 where none did */
    bool *told_to;                /* by rank: told the verdict, or gone without waiting for it */
    int came, told;
    enum { WAITING, JOINED, FAILED } verdict;
    uint64_t decide_ns, verdict_ns;
    uint64_t notice_ns; /* between the last notice of who is missing and the next */
    uint64_t notice_at_ns;
    bool missing; /* the verdict is that ranks are missing: no more will come */
    struct hly_tcp_answer answer;
    struct hly_tcp_table table;
    char text[HLY_TCP_TEXT_BYTES], note[320];
    const char *refusal, *late;
    struct hly_sha sha; /* of what all ranks are told */
};

/* ---------------------------------------------------------------- guests */

static void count_told(struct host *h, const struct guest *g)
{
    if (g->rank && g->hello.rank < (uint32_t)h->tcp->v->nranks && !h->told_to[g->hello.rank]) {
        h->told_to[g->hello.rank] = true;
        h->told++;
    }
}

static void leave(struct host *h, struct guest *g)
{
    close(g->fd);
    g->fd = -1;
    h->nranks_here -= g->rank;
}

static void flush(struct host *h, struct guest *g)
{
    const struct hly_piece pieces[3] = {{&g->answer, sizeof g->answer}, g->body[0], g->body[1]};
    const size_t all = sizeof g->answer + g->answer.bytes;
    while (g->sent < all) {
        size_t at = g->sent;
        const struct hly_piece *p = pieces;
        for (; p < &pieces[2] && at >= p->bytes; p++)
            at -= p->bytes;
        ssize_t n = send(g->fd, (const char *)p->data + at, p->bytes - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            leave(h, g);
            return;
        }
        if (n < 0)
            break;
        g->sent += (size_t)n;
    }
    struct epoll_event event = {.events = EPOLLIN | (g->sent < all ? EPOLLOUT : 0), .data.ptr = g};
    epoll_ctl(h->epoll_fd, EPOLL_CTL_MOD, g->fd, &event);
}

static void answer(struct host *h, struct guest *g, const struct hly_tcp_answer *a,
                   const char *payload, const struct hly_sha *payload_sha)
{
    struct hly_sha sha = *payload_sha;
    uint8_t digest[32];
    assert(!g->answering);
    g->answering = true;
    g->answer = *a;
    g->body[0] = (struct hly_piece){payload, a->bytes};
    if (a->joined) {
        g->body[1] = hly_tcp_table_part(&h->table, g->hello.rank, &g->answer);
        hly_sha_add(&sha, g->body[1].data, g->body[1].bytes);
    }
    hly_sha_end(&sha, digest);
    g->since_ns = hly_tcp_now_ns();
    hly_tcp_answer_mac(h->tcp->v, &g->greeting, &g->hello, &g->answer, digest, g->answer.mac);
    count_told(h, g);
    flush(h, g);
}

static void answer_text(struct host *h, struct guest *g, const char *text)
{
    struct hly_tcp_answer a = {.magic = HLY_TCP_MAGIC, .version = HLY_TCP_VERSION};
    a.said = text == h->text;
    struct hly_sha sha;
    a.bytes = (uint32_t)strlen(text);
    hly_sha_init(&sha);
    hly_sha_add(&sha, text, a.bytes);
    answer(h, g, &a, text, &sha);
}

/* The verdict stands: all ranks that are here are told. */
static void announce(struct host *h)
{
    const char *payload = h->verdict == JOINED ? h->table.bytes : h->text;
    h->verdict_ns = hly_tcp_now_ns();
    hly_sha_init(&h->sha);
    hly_sha_add(&h->sha, payload, h->answer.bytes);
    for (int i = 0; i < h->nslots; i++) {
        struct guest *g = &h->guests[i];
        if (g->fd >= 0 && g->rank && !g->answering)
            answer(h, g, &h->answer, payload, &h->sha);
    }
}

static void __attribute__((format(printf, 2, 3))) fail(struct host *h, const char *format, ...)
{
    va_list args;
    if (h->verdict != WAITING)
        return;
    va_start(args, format);
    vsnprintf(h->text, sizeof h->text, format, args);
    va_end(args);
    hly_boot_say(h->tcp->log, 0, "%s", h->text);
    h->verdict = FAILED;
    h->answer =
        (struct hly_tcp_answer){.magic = HLY_TCP_MAGIC, .version = HLY_TCP_VERSION, .said = 1};
    h->answer.bytes = (uint32_t)strlen(h->text);
    announce(h);
}

static void join_all(struct host *h)
{
    struct hly_tcp_answer *a = &h->answer;
    *a = (struct hly_tcp_answer){.magic = HLY_TCP_MAGIC, .version = HLY_TCP_VERSION, .joined = 1};
    if (hly_tcp_random(h->tcp->log, a->job, sizeof a->job) ||
        (!h->tcp->v->has_secret && hly_tcp_random(h->tcp->log, a->secret, sizeof a->secret)) ||
        hly_tcp_table_write(h->hellos, h->tcp->v->nranks, a, &h->table)) {
        fail(h, "rank 0 is out of memory or of random bytes");
        return;
    }
    h->verdict = JOINED;
    announce(h);
}

/* ---------------------------------------------------------------- what a guest says */

static void address_of(const struct guest *g, char *text, size_t bytes)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    if (getpeername(g->fd, (struct sockaddr *)&from, &n) ||
        getnameinfo((struct sockaddr *)&from, n, text, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST))
        snprintf(text, bytes, "?");
}

/* A hello that proves nothing cannot end the job; it is told, and remembered for the deadline. */
static void refuse(struct host *h, struct guest *g, const char *why)
{
    char from[64];
    address_of(g, from, sizeof from);
    snprintf(h->note, sizeof h->note,
             "; a process at %.63s that says it is rank %u (pid %u) was refused: %s", from,
             g->hello.rank, g->hello.pid, why);
    hly_boot_say(h->tcp->log, 1, "the rendezvous of rank 0 goes on%s", h->note);
    answer_text(h, g, h->refusal);
}

static void compare(struct host *h, struct guest *g)
{
    const struct hly_tcp_hello *me = &h->tcp->self, *it = &g->hello;
    char a[128], b[128], at[48];
    snprintf(at, sizeof at, "the rendezvous of rank 0 is at port %d", h->port);
    hly_tcp_who(me, a);
    hly_tcp_who(it, b);
    if (strcmp(it->library, me->library))
        fail(h, "%s runs Halay %s, but %s runs Halay %s: run the same version on all nodes (%s)", b,
             it->library, a, me->library, at);
    else if (it->nranks != me->nranks)
        fail(h, "%s has WORLD_SIZE=%u, but %s has WORLD_SIZE=%u: give all ranks the same (%s)", b,
             it->nranks, a, me->nranks, at);
    else if (it->rank >= me->nranks)
        fail(h, "%s is out of the range of WORLD_SIZE=%u (%s)", b, me->nranks, at);
    else if (h->hellos[it->rank].magic)
        fail(h,
             "two processes are the same rank: %s and %s: give each process a RANK of its own "
             "(%s)",
             hly_tcp_who(&h->hellos[it->rank], a), b, at);
    else
        return;
    assert(h->verdict == FAILED);
}

static void hear(struct host *h, struct guest *g)
{
    struct hly_tcp_hello *it = &g->hello;
    const struct hly_tcp_variables *v = h->tcp->v;
    uint8_t mac[32];
    hly_tcp_hello_mac(v, &g->greeting, it, mac);
    bool proved = hly_mac_equal(mac, it->mac);
    it->host[sizeof it->host - 1] = it->library[sizeof it->library - 1] = '\0';
    it->machine[sizeof it->machine - 1] = '\0';
    if (it->version != HLY_TCP_VERSION || it->bytes != sizeof *it) {
        refuse(h, g, "it runs another version of Halay: run the same on all nodes");
        return;
    }
    if (memcmp(it->key, v->key, sizeof it->key)) {
        leave(h, g);
        return;
    }
    if (!proved) {
        refuse(h, g, "its HALAY_SECRET is not that of rank 0");
        return;
    }
    g->rank = true;
    h->nranks_here++;
    if (h->verdict == WAITING)
        compare(h, g);
    if (h->verdict != WAITING) {
        if (!g->answering) /* it came late, or a second time */
            answer_text(h, g, h->verdict == FAILED ? h->text : h->late);
        return;
    }
    uint64_t now = hly_tcp_now_ns(), left = it->left_ns,
             spare = left / 5 < 2 * S ? left / 5 : 2 * S;
    if (left < 2000000000 * S && now + left - spare < h->decide_ns)
        h->decide_ns = now + left - spare; /* it is to hear the verdict before it gives up */
    h->hellos[it->rank] = *it;
    if (++h->came == v->nranks)
        join_all(h);
}

static void lose(struct host *h, struct guest *g)
{
    char who[128];
    bool early = g->rank && !g->answering;
    if (early)
        hly_tcp_who(&g->hello, who);
    if (early)
        count_told(h, g);
    leave(h, g);
    if (early)
        fail(h,
             "%s has left while rank 0 waited for other ranks (port %d): it has died, or its own "
             "deadline was over; see what it says",
             who, h->port);
}

static void guest_event(struct host *h, struct guest *g, uint32_t events)
{
    char extra[64];
    if (g->answering && events & EPOLLOUT) {
        flush(h, g);
        return;
    }
    for (;;) {
        bool hello = g->got < sizeof g->hello;
        ssize_t n = hello ? recv(g->fd, (char *)&g->hello + g->got, sizeof g->hello - g->got, 0)
                          : recv(g->fd, extra, sizeof extra, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || !hello) { /* a rank says one hello and no more */
            lose(h, g);
            return;
        }
        g->got += (size_t)n;
        if (g->got >= sizeof g->hello.magic && g->hello.magic != HLY_TCP_MAGIC) {
            leave(h, g);
            return;
        }
        if (g->got == sizeof g->hello) {
            hear(h, g);
            return;
        }
    }
}

/* ---------------------------------------------------------------- the door */

/* A free slot; the oldest stranger makes room. NULL: all are ranks, some of them twice. */
static struct guest *slot(struct host *h)
{
    struct guest *oldest = NULL;
    for (int i = 0; i < h->nslots; i++) {
        struct guest *g = &h->guests[h->cursor];
        if (g->fd < 0)
            return g;
        h->cursor = (h->cursor + 1) % h->nslots;
        if (!g->rank && (!oldest || g->since_ns < oldest->since_ns))
            oldest = g;
    }
    if (oldest)
        leave(h, oldest);
    return oldest;
}

/* At most some guests a call, so that the others are heard between. */
static void let_in(struct host *h)
{
    for (int i = 0; i < 64; i++) {
        int fd = accept4(h->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                fail(h,
                     "rank 0 has no file descriptors left for the rendezvous of %d ranks, one for "
                     "each: raise the limit on its host (ulimit -n)",
                     h->tcp->v->nranks);
            return;
        }
        struct guest *g = slot(h);
        if (!g) {
            close(fd);
            continue;
        }
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = g};
        memset(g, 0, sizeof *g);
        g->fd = fd;
        g->since_ns = hly_tcp_now_ns();
        g->greeting = (struct hly_tcp_greeting){.magic = HLY_TCP_MAGIC,
                                                .version = HLY_TCP_VERSION,
                                                .has_secret = h->tcp->v->has_secret,
                                                .local = h->door.local};
        memcpy(g->greeting.key, h->tcp->v->key, sizeof g->greeting.key);
        if (hly_tcp_random(h->tcp->log, g->greeting.challenge, sizeof g->greeting.challenge) ||
            send(fd, &g->greeting, sizeof g->greeting, MSG_NOSIGNAL) != sizeof g->greeting ||
            epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &event))
            leave(h, g);
    }
}

static void expire(struct host *h, uint64_t now)
{
    for (int i = 0; i < h->nslots; i++) {
        struct guest *g = &h->guests[i];
        if (g->fd >= 0 && !g->rank && now - g->since_ns > STRANGER_NS)
            leave(h, g);
    }
}

/* "1, 3-5" */
static void list_missing(const struct host *h, char *text, size_t bytes)
{
    size_t used = 0;
    int n = h->tcp->v->nranks;
    text[0] = '\0';
    for (int r = 1; r < n; r++) {
        int last = r;
        if (h->hellos[r].magic)
            continue;
        while (last + 1 < n && !h->hellos[last + 1].magic)
            last++;
        if (used + 40 > bytes) {
            snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, last > r ? "%s%d-%d" : "%s%d",
                                 used ? ", " : "", r, last);
        r = last;
    }
}

static void give_up(struct host *h)
{
    const struct hly_tcp *tcp = h->tcp;
    char missing[300];
    list_missing(h, missing, sizeof missing);
    h->missing = true;
    fail(h,
         "%d of the %d ranks did not come to the rendezvous of rank 0 (%s port %d, MASTER_ADDR or "
         "HALAY_RENDEZVOUS is '%.80s') within %.1f s: rank %s; are they running, have they called "
         "halay_init, and do they reach this host? (see HALAY_START_DEADLINE)%s",
         tcp->v->nranks - h->came, tcp->v->nranks, tcp->self.host, h->port, tcp->v->address,
         (double)(hly_tcp_now_ns() - tcp->begin_ns) / 1e9, missing, h->note);
}

/* Who has not come yet: after a second, then each time after twice the time. */
static void remind(struct host *h, uint64_t now)
{
    char missing[300];
    if (h->verdict != WAITING || now < h->notice_at_ns)
        return;
    h->notice_at_ns = now + h->notice_ns;
    h->notice_ns *= 2;
    list_missing(h, missing, sizeof missing);
    hly_boot_say(h->tcp->log, 1,
                 "halay_init has waited for %.1f s for %d of %d ranks to come to rank 0 (%s port "
                 "%d): rank %s",
                 (double)(now - h->tcp->begin_ns) / 1e9, h->tcp->v->nranks - h->came,
                 h->tcp->v->nranks, h->tcp->self.host, h->port, missing);
}

static bool finished(const struct host *h, uint64_t now)
{
    if (h->verdict == WAITING)
        return false;
    if (now >= h->tcp->end_ns)
        return true;
    if (h->verdict == JOINED) {
        bool sent = true;
        for (int i = 0; i < h->nslots && sent; i++) {
            const struct guest *g = &h->guests[i];
            sent = g->fd < 0 || !g->rank || g->sent == sizeof g->answer + g->answer.bytes;
        }
        return h->nranks_here == 0 || (sent && now > h->verdict_ns + TAKEN_NS);
    }
    bool all = h->missing || h->told >= h->tcp->v->nranks - 1;
    return (all && h->nranks_here == 0) || now > h->verdict_ns + LATE_NS;
}

static int serve(struct host *h)
{
    struct epoll_event events[64];
    uint64_t tick = 0;
    for (;;) {
        uint64_t now = hly_tcp_now_ns();
        if (h->verdict == WAITING && now >= h->decide_ns)
            give_up(h);
        remind(h, now);
        if (finished(h, now))
            return h->verdict == JOINED ? HALAY_OK : HALAY_EBOOT;
        if (now - tick > S) {
            expire(h, now);
            tick = now;
        }
        int n = epoll_wait(h->epoll_fd, events, 64, h->verdict == WAITING ? TICK_MS : 10);
        for (int i = 0; i < n; i++) {
            struct guest *g = events[i].data.ptr;
            if (g && g->fd >= 0)
                guest_event(h, g, events[i].events);
        }
        for (int i = 0; i < n; i++) /* last: takes over slots that events may have freed */
            if (!events[i].data.ptr)
                let_in(h);
    }
}

/* ---------------------------------------------------------------- listening */

/* Someone has the port: if it is this job's rank 0, there are two. It is met, and refuses. */
static bool met_twin(struct host *h, int port, struct hly_tcp_identity *id)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    struct hly_tcp_greeting greeting;
    char why[200];
    if (getaddrinfo("localhost", NULL, &hints, &found))
        return false;
    int fd = -1;
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
        fd = hly_tcp_knock(h->tcp, at, port, hly_tcp_now_ns() + 500 * MS, &greeting, why);
    freeaddrinfo(found);
    return fd >= 0 && hly_tcp_meet(h->tcp, fd, port, &greeting, id) != HALAY_OK;
}

static int open_door(struct host *h, struct hly_tcp_identity *id)
{
    const struct hly_tcp_variables *v = h->tcp->v;
    int error = 0;
    for (int k = 0; k < v->nports && h->listen_fd < 0; k++) {
        h->port = v->ports[k];
        h->listen_fd = hly_tcp_door_open(&h->door, h->port);
        error = errno;
        if (h->listen_fd < 0 && error == EADDRINUSE && met_twin(h, h->port, id))
            return HALAY_EBOOT;
    }
    if (h->listen_fd >= 0)
        return HALAY_OK;
    hly_boot_say(
        h->tcp->log, 0,
        "rank 0 (pid %u on %s) can listen on none of the ports %d to %d (last: %s%s): free "
        "one, choose another MASTER_PORT, or set HALAY_RENDEZVOUS=host:port on all ranks",
        h->tcp->self.pid, h->tcp->self.host, v->ports[0], v->ports[v->nports - 1], strerror(error),
        hly_boot_remedy(error));
    return HALAY_EBOOT;
}

/* One descriptor a rank: the soft limit is lifted for the time of the rendezvous if need be. */
static bool lift_limit(int nslots, struct rlimit *old)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)nslots + 512;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need)
        return false;
    *old = limit;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int hold(struct host *h, struct hly_tcp_identity *id)
{
    struct epoll_event event = {.events = EPOLLIN};
    int rc = open_door(h, id);
    if (rc)
        return rc;
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll_fd < 0 || epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->listen_fd, &event)) {
        hly_boot_say(h->tcp->log, 0, "rank 0 cannot hold the rendezvous: %s%s", strerror(errno),
                     hly_boot_remedy(errno));
        return HALAY_EBOOT;
    }
    hly_boot_say(h->tcp->log, 2, "rank 0 awaits %d ranks at port %d", h->tcp->v->nranks - 1,
                 h->port);
    rc = serve(h);
    for (int i = 0; i < h->nslots; i++)
        if (h->guests[i].fd >= 0)
            leave(h, &h->guests[i]);
    return rc;
}

int hly_tcp_host(struct hly_tcp *tcp, struct hly_tcp_identity *id)
{
    int n = tcp->v->nranks;
    struct host h = {.tcp = tcp, .listen_fd = -1, .epoll_fd = -1, .nslots = n + STRANGERS_MAX};
    struct rlimit old;
    uint64_t all = tcp->end_ns - tcp->begin_ns;
    int rc = HALAY_ENOMEM;
    h.notice_ns = 1 * S;
    h.notice_at_ns = tcp->begin_ns + h.notice_ns;
    h.decide_ns = tcp->end_ns - (all / 5 < 2 * S ? all / 5 : 2 * S);
    h.refusal = "this process is not one of the ranks that rank 0 takes";
    h.late =
        "the job has begun, with another process as this rank: give each process a RANK of its own";
    h.guests = calloc((size_t)h.nslots, sizeof h.guests[0]);
    h.hellos = calloc((size_t)n, sizeof h.hellos[0]);
    h.told_to = calloc((size_t)n, sizeof h.told_to[0]);
    if (!h.guests || !h.hellos || !h.told_to) {
        hly_boot_say(tcp->log, 0, "out of memory for the rendezvous of %d ranks", n);
        goto out;
    }
    for (int i = 0; i < h.nslots; i++)
        h.guests[i].fd = -1;
    hly_tcp_door_place(tcp, &h.door);
    rc = hly_tcp_listen(tcp, &h.door.near);
    if (rc)
        goto out;
    bool lifted = lift_limit(h.nslots, &old);
    h.hellos[0] = tcp->self;
    h.came = 1;
    h.told_to[0] = true;
    if (n == 1)
        join_all(&h);
    rc = n == 1 ? (h.verdict == JOINED ? HALAY_OK : HALAY_EBOOT) : hold(&h, id);
    if (!rc) {
        hly_tcp_table_part(&h.table, 0, &h.answer);
        rc = hly_tcp_table_read(tcp->v, &h.answer, h.table.bytes, id);
    }
    if (lifted)
        setrlimit(RLIMIT_NOFILE, &old);
    if (h.epoll_fd >= 0)
        close(h.epoll_fd);
    if (h.listen_fd >= 0)
        close(h.listen_fd);
out:
    hly_tcp_table_finish(&h.table);
    free(h.told_to);
    free(h.hellos);
    free(h.guests);
    return rc;
}
