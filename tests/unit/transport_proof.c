/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_proof.c - strangers between the ends: wrong keys, hellos that were recorded or are sent
 * back, who says less or slowly, who answers in another's place; and a flood of them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "net_rank.h"

int stranger_connect(const rank_t *rank)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_port = rank->address.port;
    memcpy(&to.sin_addr, rank->address.ip, 4);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0, "connect");
    return fd;
}

/* What there is on a socket of this test, while the rank is polled. */
static void take_polled(rank_t *rank, int fd, uint8_t *data, size_t bytes)
{
    uint64_t until = clock_ns() + 20000 * MS;
    halay_event_t event;
    for (size_t got = 0; got < bytes;) {
        ssize_t n = recv(fd, data + got, bytes - got, MSG_DONTWAIT);
        CHECK(n > 0 || (n < 0 && errno == EAGAIN), "it hung up after %zu bytes", got);
        got += n > 0 ? (size_t)n : 0;
        CHECK(rank_wait(rank, MS, &event) == 0 && clock_ns() < until, "kind %d", event.kind);
    }
}

int stranger_greeted(rank_t *rank, uint8_t greeting[GREETING])
{
    int fd = stranger_connect(rank);
    take_polled(rank, fd, greeting, GREETING);
    return fd;
}

void stranger_dropped(rank_t *rank, int fd, unsigned wait_ms)
{
    uint64_t until = clock_ns() + wait_ms * MS;
    halay_event_t event;
    char bytes[64];
    ssize_t n;
    size_t said = 0;
    while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0 || (n < 0 && errno == EAGAIN)) {
        said += n > 0 ? (size_t)n : 0;
        CHECK(said <= GREETING, "it was answered");
        CHECK(clock_ns() < until, "it may stay");
        CHECK(rank_wait(rank, 10 * MS, &event) == 0, "kind %d", event.kind);
    }
    close(fd);
}

/* Does it stay? It is parked then. */
static void stays(rank_t *rank, int fd)
{
    halay_event_t event;
    char byte;
    CHECK(rank_wait(rank, 100 * MS, &event) == 0, "kind %d", event.kind);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "it was dropped");
}

/* A hello with one byte changed, of another key, cut short, or said byte by byte. */
void proof_guest(void)
{
    rank_t a = {0};
    uint8_t greeting[GREETING], hello[HELLO_MOST];
    rank_open(&a, 1, 20000 * MS);
    int fd = stranger_greeted(&a, greeting);
    size_t bytes = hello_make("between us", 2, 3, greeting, hello);
    give(fd, hello, bytes);
    stays(&a, fd);
    close(fd);
    for (size_t i = 0; i < bytes; i += i < 8 || i > 60 ? 1 : 5) {
        fd = stranger_greeted(&a, greeting);
        bytes = hello_make("between us", 2, 3, greeting, hello);
        hello[i] ^= 0x10;
        give(fd, hello, bytes);
        if (i >= 12 && i < 16) /* it may be of another length then */
            shutdown(fd, SHUT_WR);
        stranger_dropped(&a, fd, 4000);
    }
    fd = stranger_greeted(&a, greeting);
    give(fd, hello, hello_make("between uS", 2, 1, greeting, hello));
    stranger_dropped(&a, fd, 4000);
    fd = stranger_greeted(&a, greeting);
    give(fd, hello, hello_make("between us", 2, 1, greeting, hello) - 1);
    shutdown(fd, SHUT_WR);
    stranger_dropped(&a, fd, 1000);
    fd = stranger_greeted(&a, greeting);
    bytes = hello_make("between us", 2, 1, greeting, hello);
    uint64_t begun = clock_ns();
    halay_event_t event;
    for (size_t i = 0; i + 1 < bytes && send(fd, hello + i, 1, MSG_NOSIGNAL) == 1; i++)
        CHECK(rank_wait(&a, 50 * MS, &event) == 0, "kind %d", event.kind);
    stranger_dropped(&a, fd, 4000);
    CHECK(clock_ns() - begun > 1900 * MS, "%llu ms", (clock_ns() - begun) / MS);
    CHECK(a.failed + a.errors == 0 && a.warnings == 1, "%s", a.log);
    net->close(a.transport);
}

/* What one connection was given does not fit another: not on this rank, not on the next. */
void proof_replayed(void)
{
    rank_t a = {0}, b = {0};
    uint8_t greeting[GREETING], other[GREETING], hello[HELLO_MOST];
    rank_open(&a, 1, 20000 * MS);
    rank_open(&b, 2, 20000 * MS);
    int fd = stranger_greeted(&a, greeting);
    size_t bytes = hello_make("between us", 9, 1, greeting, hello);
    for (int i = 0; i < 2; i++) {
        rank_t *rank = i ? &b : &a;
        int again = stranger_greeted(rank, other);
        CHECK(memcmp(greeting, other, GREETING) != 0, "a nonce comes twice");
        give(again, hello, bytes);
        stranger_dropped(rank, again, 1000);
        CHECK(rank->warnings == 1, "%s", rank->log);
    }
    hello_make("between us", 9, 8, greeting, hello);
    give(fd, hello, bytes);
    stays(&a, fd);
    close(fd);
    net->close(a.transport);
    net->close(b.transport);
}

static int listen_at(halay_address_t *where)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&name, bytes) == 0 && listen(fd, 8) == 0 &&
              getsockname(fd, (struct sockaddr *)&name, &bytes) == 0,
          "%s", strerror(errno));
    *where = (halay_address_t){.family = AF_INET, .port = name.sin_port, .ip = {127, 0, 0, 1}};
    return fd;
}

/* A hello as long as the one that came, however much the transport tells. */
static size_t take_hello(rank_t *rank, int fd, uint8_t *hello)
{
    halay_event_t event;
    uint32_t tells;
    take_polled(rank, fd, hello, 120);
    rank_wait(rank, 20 * MS, &event);
    ssize_t n = recv(fd, hello + 120, 8192 - 120, MSG_DONTWAIT);
    memcpy(&tells, hello + 12, sizeof(tells));
    return 120 + (n > 0 ? (size_t)n : 0);
}

/* a calls 2; who listens there gives it a greeting of a's own, and sends back what a says. */
void proof_reflected(void)
{
    static uint8_t hello[8192];
    rank_t a = {0};
    halay_address_t where;
    uint8_t greeting[GREETING];
    int listens = listen_at(&where);
    rank_open(&a, 1, 20000 * MS);
    rank_connect(&a, 2, &where);
    int called = accept(listens, NULL, NULL), back = stranger_greeted(&a, greeting);
    give(called, greeting, GREETING);
    size_t bytes = take_hello(&a, called, hello);
    give(back, hello, bytes);
    stranger_dropped(&a, back, 1000);
    CHECK(a.warnings == 1, "%s", a.log);
    give(called, hello, bytes); /* as an answer */
    rank_expect_failed(&a, 1000 * MS, "another secret");
    close(called);
    close(listens);
    net->close(a.transport);
}

/* Who listens in another's place knows no secret, whatever it has heard. */
void proof_impostor(void)
{
    static uint8_t said[8192];
    for (int how = 0; how < 3; how++) {
        rank_t a = {0};
        halay_address_t where;
        uint8_t greeting[GREETING];
        int listens = listen_at(&where);
        rank_open(&a, 1, how == 1 ? 20000 * MS : 600 * MS);
        close(stranger_greeted(&a, greeting)); /* for its magic number */
        rank_connect(&a, 2, &where);
        int called = accept(listens, NULL, NULL);
        if (how == 0) {
            memset(greeting, 'x', GREETING);
            give(called, greeting, GREETING);
            rank_expect_failed(&a, 5000 * MS, "");
        } else if (how == 1) { /* the words of its caller, turned around */
            give(called, greeting, GREETING);
            size_t bytes = take_hello(&a, called, said);
            uint8_t id[16];
            memcpy(id, said + 16, 16);
            memcpy(said + 16, said + 32, 16);
            memcpy(said + 32, id, 16);
            said[8] = 2;
            give(called, said, bytes);
            rank_expect_failed(&a, 1000 * MS, "another secret");
        } else { /* half a greeting, and silence: as long as it holds the connection */
            halay_event_t event;
            give(called, greeting, GREETING / 2);
            CHECK(!rank_wait(&a, 1200 * MS, &event), "%d", event.kind);
        }
        CHECK(a.errors == 0, "%s", a.log);
        close(called);
        close(listens);
        net->close(a.transport);
    }
}

/* ------------------------------------------------------------------ many */

/* Fifty connect, say something or nothing, and go. The last one stays: a socket that blocks. */
static int strangers_call(const struct sockaddr_in *to, unsigned *seed)
{
    uint8_t noise[200];
    for (int i = 0;; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (i < 50 ? SOCK_NONBLOCK : 0), 0);
        struct linger now = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        (void)!connect(fd, (const struct sockaddr *)to, sizeof(*to));
        for (size_t at = 0; at < sizeof(noise); at++)
            noise[at] = (uint8_t)rand_r(seed);
        size_t bytes = i < 50 ? (size_t)rand_r(seed) % sizeof(noise) : sizeof(noise);
        (void)!send(fd, noise, bytes, MSG_NOSIGNAL);
        if (i == 50)
            return fd;
        close(fd);
    }
}

/*
 * Strangers call until this process is killed. There are never more than the socket's queue holds
 * (128 on old kernels): where it is full, the kernel drops who calls, stranger or peer. The queue
 * is served in order, so all fifty were let in when the last one is hung up on.
 */
static void flood(const rank_t *rank)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = rank->address.port};
    unsigned seed = (unsigned)getpid();
    memcpy(&to.sin_addr, rank->address.ip, 4);
    for (int before = strangers_call(&to, &seed);;) {
        int last = strangers_call(&to, &seed);
        char bytes[64];
        while (recv(before, bytes, sizeof(bytes), 0) > 0)
            continue;
        close(before);
        before = last;
    }
}

/* How many of them have been hung up on. */
static int dropped(const int fd[], int n)
{
    char bytes[64];
    int gone = 0;
    for (int i = 0; i < n; i++) {
        ssize_t got = recv(fd[i], bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0)
            got = recv(fd[i], bytes, sizeof(bytes), MSG_DONTWAIT);
        gone += got == 0 || (got < 0 && errno != EAGAIN);
    }
    return gone;
}

/* Many wait: each costs its time, so they are let in slowly, by a rank that sleeps meanwhile; all
 * of them at last. */
void proof_slowed(void)
{
    enum { MANY = 500, AT_ONCE = 140 };
    rank_t a = {0};
    halay_event_t event;
    static int fd[MANY];
    rank_open(&a, 1, 60000 * MS);
    for (int i = 0; i < MANY; i++) {
        fd[i] = stranger_connect(&a);
        give(fd[i], "GET / HTTP/1.1", 14);
    }
    uint64_t begun = clock_ns();
    for (int gone = 0; gone < MANY;) {
        CHECK(rank_wait(&a, 20 * MS, &event) == 0, "kind %d", event.kind);
        gone = dropped(fd, MANY);
        uint64_t passed = clock_ns() - begun;
        CHECK((uint64_t)gone <= AT_ONCE + passed / 500000, "%d after %llu us", gone,
              (unsigned long long)passed / 1000);
        CHECK(clock_ns() - begun < 20000 * MS, "only %d", gone);
    }
    CHECK(clock_ns() - begun >= (MANY - AT_ONCE) * 500000ull, "too fast");
    for (int i = 0; i < MANY; i++)
        close(fd[i]);
    CHECK(a.warnings == 1 && a.errors == 0, "%s", a.log);
    net->close(a.transport);
}

static void message_await(rank_t *to, rank_t *from, halay_event_t *event)
{
    uint64_t until = clock_ns() + 20000 * MS;
    while (rank_wait(to, MS / 2, event) == 0)
        CHECK(rank_wait(from, 0, event) == 0 && clock_ns() < until, "the message is lost");
    CHECK(event->kind == HALAY_EVENT_MESSAGE, "kind %d %s", event->kind, to->text);
}

/* Two talk, and a third comes in, while strangers call without end. */
void proof_flood(void)
{
    enum { ROUNDS = 2000 };
    rank_t a = {0}, b = {0}, c = {0};
    halay_event_t event;
    rank_open(&a, 1, 60000 * MS);
    rank_open(&b, 2, 60000 * MS);
    halay_ep_t *ep = rank_connect(&b, 1, &a.address);
    while (net->send(b.transport, ep, 0, NULL, 0, "hi", 2, 0) == HALAY_EAGAIN)
        CHECK(rank_wait(&a, MS, &event) + rank_wait(&b, MS, &event) == 0, "kind");
    message_await(&a, &b, &event);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        flood(&a);
    }
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(send_now(&b, ep, 0, &i, sizeof(i)) == 0, "send");
        message_await(&a, &b, &event);
        CHECK(event.bytes == sizeof(i) && memcmp(event.data, &i, sizeof(i)) == 0, "round %d", i);
    }
    rank_open(&c, 3, 60000 * MS);
    ep = rank_connect(&c, 1, &a.address);
    uint64_t begun = clock_ns();
    while (net->send(c.transport, ep, 0, NULL, 0, "hi", 2, 0) == HALAY_EAGAIN) {
        CHECK(rank_wait(&a, MS, &event) + rank_wait(&c, MS, &event) == 0, "kind");
        CHECK(clock_ns() - begun < 60000 * MS, "strangers keep a peer out");
    }
    message_await(&a, &c, &event);
    printf("a peer came in after %llu ms\n", (clock_ns() - begun) / MS);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(a.failed + b.failed + c.failed + a.errors + b.errors + c.errors == 0, "%s", a.log);
    net->close(c.transport);
    net->close(b.transport);
    net->close(a.transport);
}
