/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_epochs.c - the socket belongs to the bootstrap and outlives the transport: who
 * is in its next epoch already waits for the others, who is late ends by its deadline, and nobody
 * is taken for a stranger. The id of a rank in an epoch is 100 * epoch + rank here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net_rank.h"

static void listen_make(rank_t *rank)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(name);
    rank->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(rank->listen_fd >= 0 && bind(rank->listen_fd, (struct sockaddr *)&name, bytes) == 0 &&
              listen(rank->listen_fd, 128) == 0 &&
              getsockname(rank->listen_fd, (struct sockaddr *)&name, &bytes) == 0,
          "%s", strerror(errno));
    rank->listen_address = (halay_address_t){.family = AF_INET, .port = name.sin_port};
    memcpy(rank->listen_address.ip, &name.sin_addr, sizeof(name.sin_addr));
}

/* The socket is still there after close, listens, and nobody watches it any more. */
static void rank_close(rank_t *rank)
{
    int on = 0;
    socklen_t bytes = sizeof(on);
    net->close(rank->transport);
    rank->transport = NULL;
    CHECK(getsockopt(rank->listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &bytes) == 0 && on,
          "the bootstrap's socket is closed");
    CHECK(rank->warnings + rank->errors == 0, "%s", rank->log);
}

static void rank_open_at(rank_t *rank, uint64_t epoch, uint64_t number, uint64_t deadline_ns)
{
    rank_open(rank, 100 * epoch + number, deadline_ns);
    CHECK(memcmp(&rank->address, &rank->listen_address, sizeof(rank->address)) == 0,
          "it listens elsewhere");
}

/* Until what a sends has come to b; both are polled. Returns the time it took. */
static uint64_t message_pass(rank_t *a, halay_ep_t *ep, rank_t *b)
{
    uint64_t begun = clock_ns();
    halay_event_t event;
    int rc;
    while ((rc = net->send(a->transport, ep, 0, NULL, 0, "hi", 2, 0)) == HALAY_EAGAIN) {
        CHECK(rank_wait(a, MS / 2, &event) == 0 && rank_wait(b, MS / 2, &event) == 0, "%s%s",
              a->text, b->text);
        CHECK(clock_ns() - begun < 5000 * MS, "no way");
    }
    CHECK(rc == 0, "send: %d", rc);
    while (rank_wait(b, MS / 2, &event) == 0)
        CHECK(rank_wait(a, MS / 2, &event) == 0 && clock_ns() - begun < 5000 * MS, "%s", a->text);
    CHECK(event.kind == HALAY_EVENT_MESSAGE && event.bytes == 2, "kind %d", event.kind);
    return clock_ns() - begun;
}

/* b is in epoch 2 and calls a, which is in epoch 1 for half a second more, then between the two. */
void epoch_later(void)
{
    rank_t a = {0}, b = {0};
    halay_event_t event;
    listen_make(&a);
    listen_make(&b);
    rank_open_at(&a, 1, 1, 20000 * MS);
    rank_open_at(&b, 2, 2, 20000 * MS);
    halay_ep_t *ep = rank_connect(&b, 201, &a.address);
    for (int i = 0; i < 50; i++)
        CHECK(rank_wait(&a, 5 * MS, &event) == 0 && rank_wait(&b, 5 * MS, &event) == 0, "%s%s",
              a.text, b.text);
    CHECK(net->send(b.transport, ep, 0, NULL, 0, "hi", 2, 0) == HALAY_EAGAIN, "it was met");
    rank_close(&a);
    for (int i = 0; i < 10; i++)
        CHECK(rank_wait(&b, 10 * MS, &event) == 0, "%s", b.text);
    rank_open_at(&a, 2, 1, 20000 * MS);
    uint64_t took = message_pass(&b, ep, &a);
    printf("the next epoch after %llu us\n", (unsigned long long)took / 1000);
    CHECK(took < 1000 * MS, "%llu ms", (unsigned long long)(took / MS));
    rank_close(&b);
    rank_expect_failed(&a, 1000 * MS, "closed its end");
    rank_close(&a);
}

/* c is late in epoch 1 and calls a, which is in epoch 2: it ends by its deadline, a does not care.
 */
void epoch_earlier(void)
{
    rank_t a = {0}, b = {0}, c = {0};
    halay_event_t event;
    listen_make(&a);
    listen_make(&b);
    listen_make(&c);
    rank_open_at(&c, 1, 3, 300 * MS);
    rank_open_at(&a, 2, 1, 20000 * MS);
    rank_open_at(&b, 2, 2, 20000 * MS);
    uint64_t begun = clock_ns();
    rank_connect(&c, 101, &a.address);
    while (c.failed == 0 && clock_ns() - begun < 3000 * MS)
        CHECK(rank_wait(&a, 5 * MS, &event) == 0 && rank_wait(&c, 5 * MS, &event) >= 0, "a");
    CHECK(c.failed == 1 && clock_ns() - begun >= 300 * MS && clock_ns() - begun < 600 * MS,
          "%d FAILED", c.failed);
    CHECK(strstr(c.text, "127.0.0.1:") && strstr(c.text, "has ended this run"), "%s", c.text);
    message_pass(&b, rank_connect(&b, 201, &a.address), &a);
    rank_close(&c);
    rank_close(&b);
    rank_expect_failed(&a, 1000 * MS, "closed its end");
    rank_close(&a);
}

/* ------------------------------------------------------------------ two processes */

enum { EPOCHS = 30 };

static void nap(unsigned *seed, unsigned most_us)
{
    usleep((useconds_t)((unsigned)rand_r(seed) % most_us));
}

/* One epoch after the other, with pauses where they hurt. Odd epochs: rank 2 calls first. */
static void epochs_run(uint64_t number, int fd)
{
    rank_t rank = {0};
    halay_event_t event;
    halay_address_t other;
    unsigned seed = (unsigned)number;
    listen_make(&rank);
    give(fd, &rank.listen_address, sizeof(other));
    take(fd, &other, sizeof(other));
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        nap(&seed, 20000);
        rank_open_at(&rank, epoch, number, 20000 * MS);
        nap(&seed, 5000);
        halay_ep_t *ep = rank_connect(&rank, 100 * epoch + 3 - number, &other);
        if (number == 1 + epoch % 2) {
            CHECK(send_now(&rank, ep, 0, "one", 3) == 0, "send");
            rank_expect(&rank, HALAY_EVENT_MESSAGE, 20000 * MS, &event);
        } else {
            rank_expect(&rank, HALAY_EVENT_MESSAGE, 20000 * MS, &event);
            CHECK(send_now(&rank, ep, 0, "two", 3) == 0, "send");
        }
        CHECK(rank.failed == 0, "%s", rank.text);
        rank_close(&rank);
    }
}

static void epochs_child(void)
{
    epochs_run(2, child_end);
}

void epochs(void)
{
    pid_t pid = process_start(epochs_child);
    uint64_t begun = clock_ns();
    epochs_run(1, parent_end);
    process_join(pid);
    printf("%d epochs in %llu ms\n", EPOCHS, (unsigned long long)((clock_ns() - begun) / MS));
}

/* ------------------------------------------------------------------ bounds */

/* A hello with this secret for somebody who is not here. */
static int hello_say(rank_t *rank, const char *secret)
{
    uint8_t greeting[GREETING], hello[HELLO_MOST];
    int fd = stranger_greeted(rank, greeting);
    give(fd, hello, hello_make(secret, 999, 998, greeting, hello));
    return fd;
}

/* More callers of another epoch than there is room for: some have to try again, a peer comes in. */
void parked(void)
{
    enum { CALLERS = 80, PARKED = 64 };
    rank_t a = {0}, b = {0};
    halay_event_t event;
    int fd[CALLERS], held = 0;
    char byte;
    listen_make(&a);
    listen_make(&b);
    rank_open_at(&a, 1, 1, 20000 * MS);
    rank_open_at(&b, 1, 2, 20000 * MS);
    for (int i = 0; i < CALLERS; i++) {
        fd[i] = hello_say(&a, "between us");
        CHECK(rank_wait(&a, MS, &event) == 0, "kind %d", event.kind);
    }
    CHECK(rank_wait(&a, 2500 * MS, &event) == 0, "kind %d", event.kind); /* a guest has to go */
    for (int i = 0; i < CALLERS; i++)
        held += recv(fd[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    CHECK(held == PARKED, "%d are parked", held);
    message_pass(&b, rank_connect(&b, 101, &a.address), &a);
    close(fd[0]); /* one goes: its place is free; one speaks out of turn: it has to go */
    give(fd[1], "hello?", 6);
    CHECK(rank_wait(&a, 50 * MS, &event) == 0, "kind %d", event.kind);
    CHECK(recv(fd[1], &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET, "it may talk");
    fd[0] = hello_say(&a, "between us");
    CHECK(rank_wait(&a, 50 * MS, &event) == 0, "kind %d", event.kind);
    CHECK(recv(fd[0], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "it was not parked");
    CHECK(a.warnings == 0, "%s", a.log);
    int stranger = hello_say(&a, "between them");
    CHECK(rank_wait(&a, 50 * MS, &event) == 0 && a.warnings == 1, "kind %d", event.kind);
    CHECK(strstr(a.log, "127.0.0.1") && recv(stranger, &byte, 1, MSG_DONTWAIT) <= 0, "%s", a.log);
    a.warnings = 0;
    close(stranger);
    rank_close(&b);
    rank_expect_failed(&a, 1000 * MS, "closed its end");
    rank_close(&a);
    CHECK(recv(fd[0], &byte, 1, MSG_DONTWAIT) == 0, "close does not hang up");
    for (int i = 0; i < CALLERS; i++)
        close(fd[i]);
}
