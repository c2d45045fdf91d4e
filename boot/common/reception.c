/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reception.c - the holder of a meeting: accepts guests, reads their hellos, sends answers
 * (meet.h).
 *
 * A guest that does not prove the secret takes a slot for some seconds, and no more: the callbacks
 * get known guests only.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meet.h"

#define STRANGER_NS 10000000000ull
#define S           1000000000ull /* a second: a guest of the job sends its hello sooner */

void hly_boot_reception_dismiss(struct hly_boot_reception *r, struct hly_boot_guest *g)
{
    close(g->fd);
    g->fd = -1;
    r->nknown -= g->known;
}

/* The guest has closed the connection itself. */
static void lose(struct hly_boot_reception *r, struct hly_boot_guest *g)
{
    hly_boot_reception_dismiss(r, g);
    if (g->known)
        r->left(r->arg, g);
}

/* The guest did not get all of its answer. The owner learns this only of a guest that stays. */
static void drop(struct hly_boot_reception *r, struct hly_boot_guest *g)
{
    if (g->stays)
        lose(r, g);
    else
        hly_boot_reception_dismiss(r, g);
}

static size_t whole(const struct hly_boot_guest *g)
{
    return sizeof g->answer + g->answer.bytes;
}

static void flush(struct hly_boot_reception *r, struct hly_boot_guest *g)
{
    const struct hly_piece pieces[3] = {{&g->answer, sizeof g->answer}, g->body[0], g->body[1]};
    while (g->sent < whole(g)) {
        size_t at = g->sent;
        const struct hly_piece *p = pieces;
        for (; p < &pieces[2] && at >= p->bytes; p++)
            at -= p->bytes;
        ssize_t n = send(g->fd, (const char *)p->data + at, p->bytes - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            drop(r, g);
            return;
        }
        if (n < 0)
            break;
        g->sent += (size_t)n;
    }
    struct epoll_event event = {.events = EPOLLIN | (g->sent < whole(g) ? EPOLLOUT : 0),
                                .data.ptr = g};
    epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, g->fd, &event);
}

void hly_boot_reception_answer(struct hly_boot_reception *r, struct hly_boot_guest *g,
                               const struct hly_boot_answer *a, const char *payload,
                               const struct hly_sha *payload_sha, const struct hly_piece *part)
{
    struct hly_sha sha;
    uint8_t digest[32];
    assert(!g->answering);
    if (payload_sha) {
        sha = *payload_sha;
    } else {
        hly_sha_init(&sha);
        hly_sha_add(&sha, payload, a->bytes);
    }
    g->answering = true;
    g->answer = *a;
    g->answer.magic = HLY_BOOT_MAGIC;
    g->answer.version = HLY_BOOT_VERSION;
    g->body[0] = (struct hly_piece){payload, a->bytes - (part ? part->bytes : 0)};
    if (part) {
        g->body[1] = *part;
        hly_sha_add(&sha, part->data, part->bytes);
    }
    hly_sha_end(&sha, digest);
    g->since_ns = hly_boot_now_ns();
    hly_boot_answer_mac(r->key, &g->greeting, &g->hello, &g->answer, digest, g->answer.mac);
    flush(r, g);
}

void hly_boot_reception_text(struct hly_boot_reception *r, struct hly_boot_guest *g,
                             const char *text, uint32_t said)
{
    const struct hly_boot_answer a = {.said = said, .bytes = (uint32_t)strlen(text)};
    hly_boot_reception_answer(r, g, &a, text, NULL, NULL);
}

bool hly_boot_reception_push(const struct hly_boot_guest *g, const void *bytes, size_t n)
{
    /* The bytes are few: a socket takes all of them, or none. */
    return g->fd >= 0 && g->answering && g->sent == whole(g) &&
           send(g->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

bool hly_boot_reception_sent(const struct hly_boot_reception *r)
{
    for (int i = 0; i < r->nslots; i++) {
        const struct hly_boot_guest *g = &r->guests[i];
        if (g->fd >= 0 && g->known && g->sent != whole(g))
            return false;
    }
    return true;
}

void hly_boot_reception_forget(struct hly_boot_reception *r)
{
    for (int i = 0; i < r->nslots; i++) {
        struct hly_boot_guest *g = &r->guests[i];
        if (g->fd >= 0 && g->answering && g->sent != whole(g))
            drop(r, g);
    }
}

/* ---------------------------------------------------------------- what a guest says */

static void address_of(const struct hly_boot_guest *g, char *text, size_t bytes)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    if (getpeername(g->fd, (struct sockaddr *)&from, &n) ||
        getnameinfo((struct sockaddr *)&from, n, text, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST))
        snprintf(text, bytes, "?");
}

/* A hello that does not prove the secret must not end the job. Answers it with the refusal, and
 * keeps a note for the error at the deadline. */
static void refuse(struct hly_boot_reception *r, struct hly_boot_guest *g, const char *why)
{
    const bool ranked = g->hello.rank != HLY_BOOT_NOBODY;
    const bool agent = g->hello.slot == HLY_BOOT_AGENT;
    char from[64];
    address_of(g, from, sizeof from);
    snprintf(r->note, sizeof r->note,
             "; a process at %.63s that says it is %s %u (pid %u) was refused: %s", from,
             ranked  ? "rank"
             : agent ? "an agent, of so many processes:"
                     : "process",
             ranked  ? g->hello.rank
             : agent ? g->hello.nranks
                     : g->hello.slot,
             g->hello.pid, why);
    const uint64_t now = hly_boot_now_ns();
    if (now >= r->say_ns) { /* again after 1 s, 2 s, 4 s, ...: there may be many */
        hly_boot_say(r->log, 1, "the rendezvous of %s goes on%s", r->holder, r->note);
        r->quiet_ns = r->quiet_ns ? 2 * r->quiet_ns : S;
        r->say_ns = now + r->quiet_ns;
    }
    hly_boot_reception_text(r, g, r->refusal, 0);
}

static void hear(struct hly_boot_reception *r, struct hly_boot_guest *g)
{
    struct hly_boot_hello *it = &g->hello;
    uint8_t mac[32];
    char why[80];
    hly_boot_hello_mac(r->key, &g->greeting, it, mac);
    bool proved = hly_mac_equal(mac, it->mac);
    it->host[sizeof it->host - 1] = it->library[sizeof it->library - 1] = '\0';
    it->machine[sizeof it->machine - 1] = it->alone[sizeof it->alone - 1] = '\0';
    if (it->version != HLY_BOOT_VERSION || it->bytes != sizeof *it) {
        r->other_version = true;
        refuse(r, g, "it runs another version of Halay: run the same on all nodes");
        return;
    }
    if (memcmp(it->key, r->key->job, sizeof it->key)) {
        hly_boot_reception_dismiss(r, g);
        return;
    }
    if (!proved) {
        snprintf(why, sizeof why, "its HALAY_SECRET is not that of %.30s", r->holder);
        refuse(r, g, why);
        return;
    }
    g->known = true;
    r->nknown++;
    r->heard(r->arg, g);
}

static void guest_event(struct hly_boot_reception *r, struct hly_boot_guest *g, uint32_t events)
{
    char extra[1024];
    if (g->answering && events & EPOLLOUT) {
        flush(r, g);
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
        if (n > 0 && !hello && g->stays && r->said && r->said(r->arg, g, extra, (size_t)n))
            continue;
        if (n <= 0 || !hello) { /* end of the connection, or bytes after the hello */
            lose(r, g);
            return;
        }
        g->got += (size_t)n;
        if (g->got >= sizeof g->hello.magic && g->hello.magic != HLY_BOOT_MAGIC) {
            hly_boot_reception_dismiss(r, g);
            return;
        }
        if (g->got == sizeof g->hello) {
            hear(r, g);
            return;
        }
    }
}

/* ---------------------------------------------------------------- the door */

static struct hly_boot_guest *oldest_stranger(struct hly_boot_reception *r)
{
    struct hly_boot_guest *oldest = NULL;
    for (int i = 0; i < r->nslots; i++) {
        struct hly_boot_guest *g = &r->guests[i];
        if (g->fd >= 0 && !g->known && (!oldest || g->since_ns < oldest->since_ns))
            oldest = g;
    }
    return oldest;
}

/* Gives a free slot; if there is none, disconnects the oldest stranger. NULL: all guests are known,
 * some with two connections. */
static struct hly_boot_guest *slot(struct hly_boot_reception *r)
{
    for (int i = 0; i < r->nslots; i++) {
        struct hly_boot_guest *g = &r->guests[r->cursor];
        if (g->fd < 0)
            return g;
        r->cursor = (r->cursor + 1) % r->nslots;
    }
    struct hly_boot_guest *oldest = oldest_stranger(r);
    if (oldest)
        hly_boot_reception_dismiss(r, oldest);
    return oldest;
}

/* No descriptor is left: disconnects an idle stranger. True: a descriptor is free now. */
static bool spare(struct hly_boot_reception *r)
{
    struct hly_boot_guest *oldest = oldest_stranger(r);
    if (!oldest)
        r->full(r->arg);
    const bool idle = oldest && hly_boot_now_ns() - oldest->since_ns > S;
    if (idle)
        hly_boot_reception_dismiss(r, oldest);
    return idle;
}

/* Accepts only some guests in a call, so that hellos of earlier ones are read in between. */
static void let_in(struct hly_boot_reception *r)
{
    for (int i = 0; i < 64; i++) {
        int fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && spare(r))
            continue;
        if (fd < 0)
            return;
        const bool stranger = r->address && !hly_boot_same_user(fd);
        struct hly_boot_guest *g = stranger ? NULL : slot(r);
        if (!g) {
            close(fd);
            continue;
        }
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = g};
        memset(g, 0, sizeof *g);
        g->fd = fd;
        g->since_ns = hly_boot_now_ns();
        g->greeting = (struct hly_boot_greeting){.magic = HLY_BOOT_MAGIC,
                                                 .version = HLY_BOOT_VERSION,
                                                 .has_secret = r->key->has_secret,
                                                 .local = r->local};
        memcpy(g->greeting.key, r->key->job, sizeof g->greeting.key);
        if (r->address) {
            g->greeting.address = *r->address;
            g->greeting.pid = (uint32_t)getpid();
        }
        if (hly_boot_random(r->log, g->greeting.challenge, sizeof g->greeting.challenge) ||
            send(fd, &g->greeting, sizeof g->greeting, MSG_NOSIGNAL) != sizeof g->greeting ||
            epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &event))
            hly_boot_reception_dismiss(r, g);
    }
}

static void expire(struct hly_boot_reception *r)
{
    const uint64_t now = hly_boot_now_ns();
    if (now < r->expire_ns)
        return;
    r->expire_ns = now + STRANGER_NS / 10;
    for (int i = 0; i < r->nslots; i++) {
        struct hly_boot_guest *g = &r->guests[i];
        if (g->fd >= 0 && !g->known && now - g->since_ns > STRANGER_NS)
            hly_boot_reception_dismiss(r, g);
    }
}

void hly_boot_reception_turn(struct hly_boot_reception *r, int timeout_ms)
{
    struct epoll_event events[64];
    expire(r);
    int n = epoll_wait(r->epoll_fd, events, 64, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct hly_boot_guest *g = events[i].data.ptr;
        if (g && g->fd >= 0)
            guest_event(r, g, events[i].events);
    }
    for (int i = 0; i < n; i++) /* last, since the events above may have freed slots */
        if (!events[i].data.ptr)
            let_in(r);
}

struct hly_worlds *hly_boot_worlds_new(int nplaces, int least)
{
    const size_t n = (size_t)nplaces;
    const size_t bytes = sizeof(struct hly_worlds) + n * sizeof(struct hly_place);
    struct hly_worlds *w = calloc(1, bytes + n * sizeof w->order[0]);
    if (w)
        hly_worlds_init(w, nplaces, least, (int *)(void *)((char *)w + bytes));
    return w;
}

int hly_boot_reception_open(struct hly_boot_reception *r, int nguests)
{
    struct epoll_event event = {.events = EPOLLIN};
    r->nslots = nguests + HLY_BOOT_STRANGERS;
    r->epoll_fd = -1;
    r->guests = calloc((size_t)r->nslots, sizeof r->guests[0]);
    if (!r->guests)
        return HALAY_ENOMEM;
    for (int i = 0; i < r->nslots; i++)
        r->guests[i].fd = -1;
    r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll_fd < 0 || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->listen_fd, &event))
        return HALAY_EBOOT;
    return HALAY_OK;
}

void hly_boot_reception_close(struct hly_boot_reception *r)
{
    for (int i = 0; r->guests && i < r->nslots; i++)
        if (r->guests[i].fd >= 0)
            hly_boot_reception_dismiss(r, &r->guests[i]);
    free(r->guests);
    r->guests = NULL;
    if (r->epoll_fd >= 0)
        close(r->epoll_fd);
    r->epoll_fd = -1;
}
