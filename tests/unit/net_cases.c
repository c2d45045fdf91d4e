/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_cases.c - what all transports between nodes have to pass, by loopback: the contract with
 * threads (transport_body), then real processes: large landings, deaths, strangers, bad addresses.
 * Each case runs in a process of its own.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net_rank.h"
#include "transport_body.h"

/* ------------------------------------------------------------------ large landings */

enum { LARGE = NET_LARGE, TIMES = 4 };

static uint8_t large_byte(size_t i, int time)
{
    return (uint8_t)(i * 31 + (i >> 11) + (size_t)time);
}

static void large_child(void)
{
    rank_t rank = {0};
    halay_event_t event;
    halay_address_t other;
    uint8_t *bytes = malloc(LARGE);
    rank_meet(&rank, 2, &other);
    halay_ep_t *ep = rank_connect(&rank, 1, &other);
    for (int time = 0; time < TIMES; time++) {
        rank_expect(&rank, HALAY_EVENT_MESSAGE, 20000 * MS, &event);
        for (size_t i = 0; i < LARGE; i++)
            bytes[i] = large_byte(i, time);
        rank.sent = 0;
        if (send_now(&rank, ep, 77, bytes, LARGE) == HALAY_INPROGRESS && rank.sent == 0)
            rank_expect(&rank, HALAY_EVENT_SENT, 20000 * MS, &event);
    }
    rank_expect_failed(&rank, 20000 * MS, "closed its end");
    net->close(rank.transport);
    free(bytes);
}

static void large(void)
{
    rank_t rank = {0};
    halay_event_t event;
    halay_address_t other;
    uint8_t *bytes = malloc(LARGE + 8);
    pid_t pid = process_start(large_child);
    rank_meet(&rank, 1, &other);
    halay_ep_t *ep = rank_connect(&rank, 2, &other);
    for (int time = 0; time < TIMES; time++) {
        memset(bytes, 0xa5, LARGE + 8);
        CHECK(net->recv(rank.transport, 77, bytes, LARGE, 9) == 0, "recv");
        CHECK(send_now(&rank, ep, 0, "go", 2) == 0, "go");
        rank_expect(&rank, HALAY_EVENT_LANDED, 20000 * MS, &event);
        CHECK(event.cookie == 9 && event.status == 0 && event.bytes == LARGE, "%d, %zu bytes",
              event.status, event.bytes);
        for (size_t i = 0; i < LARGE; i++)
            CHECK(bytes[i] == large_byte(i, time), "byte %zu", i);
        CHECK(bytes[LARGE] == 0xa5, "beside");
    }
    net->close(rank.transport);
    process_join(pid);
    free(bytes);
}

/* ------------------------------------------------------------------ death */

static size_t doomed_bytes;

/* Sends without end, untagged and to landing buffers. */
static void doomed(void)
{
    rank_t rank = {0};
    halay_event_t event;
    halay_address_t other;
    uint8_t *bytes = calloc(1, LARGE);
    rank_meet(&rank, 2, &other);
    halay_ep_t *ep = rank_connect(&rank, 1, &other);
    CHECK(send_now(&rank, ep, 0, "one", 3) == 0, "one");
    rank_expect(&rank, HALAY_EVENT_MESSAGE, 20000 * MS, &event);
    send_now(&rank, ep, 77, bytes, doomed_bytes);
    for (;;)
        rank_wait(&rank, 1000 * MS, &event);
}

const char *net_killed_once(int polls, size_t size)
{
    doomed_bytes = size;
    const char *fate = "landed";
    rank_t rank = {0};
    halay_event_t event;
    halay_address_t other;
    uint8_t *bytes = calloc(1, size);
    pid_t pid = process_start(doomed);
    rank_meet(&rank, 1, &other);
    halay_ep_t *ep = rank_connect(&rank, 2, &other);
    rank_expect(&rank, HALAY_EVENT_MESSAGE, 20000 * MS, &event);
    CHECK(net->recv(rank.transport, 77, bytes, size, 9) == 0, "recv");
    CHECK(send_now(&rank, ep, 0, "go", 2) == 0, "go");
    for (int i = 0; i < polls; i++)
        rank_wait(&rank, 100000, &event);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "kill");
    uint64_t begun = clock_ns();
    int posted = rank.landed == 0;
    while (rank.failed == 0 && clock_ns() - begun < 5000 * MS)
        rank_wait(&rank, 100 * MS, &event);
    CHECK(rank.failed == 1 && clock_ns() - begun < 1000 * MS, "%d after %llu ms", rank.failed,
          (clock_ns() - begun) / MS);
    CHECK(strstr(rank.text, "127.0.0.1:"), "'%s'", rank.text);
    CHECK(net->send(rank.transport, ep, 0, NULL, 0, "x", 1, 0) == HALAY_EPEER, "send");
    rank_wait(&rank, 100 * MS, &event);
    if (posted && rank.landed == 0) {
        int rc = net->withdraw(rank.transport, 77);
        CHECK(rc == 0 || rc == HALAY_INPROGRESS, "withdraw: %d", rc);
        fate = "withdrawn";
        if (rc == HALAY_INPROGRESS)
            rank_expect(&rank, HALAY_EVENT_LANDED, 2000 * MS, &event);
    }
    if (rank.landed && rank.landed_status)
        fate = "cut";
    CHECK(rank.failed == 1, "%d", rank.failed);
    net->disconnect(rank.transport, ep);
    net->close(rank.transport);
    close(parent_end);
    close(child_end);
    free(bytes);
    return fate;
}

static void stopped_child(void)
{
    rank_t rank = {0};
    halay_address_t other;
    rank_meet(&rank, 2, &other);
    raise(SIGSTOP);
}

/* It listens, and does not answer: it may be late, so it fails only when it ends. */
static void stopped(void)
{
    rank_t rank = {0}, patient = {0};
    halay_address_t other;
    int status;
    pid_t pid = process_start(stopped_child);
    rank_meet(&patient, 1, &other);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "%x", (unsigned)status);
    halay_event_t event;
    rank_open(&rank, 3, 300 * MS);
    rank_connect(&rank, 2, &other);
    CHECK(!rank_wait(&rank, 1000 * MS, &event), "%d", event.kind);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    rank_expect_failed(&rank, 3000 * MS, "");
    net->close(rank.transport);
    net->close(patient.transport);
}

/* ------------------------------------------------------------------ wrong addresses and settings
 */

static void refused(void)
{
    rank_t rank = {0}, gone = {0};
    char name[64];
    rank_open(&gone, 2, 20000 * MS);
    net->close(gone.transport);
    rank_open(&rank, 1, 20000 * MS);
    rank_connect(&rank, 2, &gone.address);
    snprintf(name, sizeof(name), "nobody listens at 127.0.0.1:%u", ntohs(gone.address.port));
    rank_expect_failed(&rank, 1000 * MS, name); /* not at the deadline */
    CHECK(strstr(rank.text, "refused") && strstr(rank.text, "has ended"), "%s", rank.text);
    net->close(rank.transport);
}

static void wrong_settings(void)
{
    halay_ep_t *ep;
    rank_t rank = {0};
    size_t bytes = sizeof(rank.address) - 1;
    int rc = rank_try(&rank, 1, 0, "ring=8192");
    CHECK(rc == HALAY_EINVAL && strstr(rank.log, "'ring=8192' is not understood"), "%d", rc);
    rank.listen_address.family = AF_INET;
    rank.listen_fd = -1;
    CHECK(rank_try(&rank, 1, 0, NULL) == HALAY_EINVAL, "an address without a socket");
    rank.listen_address.family = 0;
    rank_open(&rank, 1, 300 * MS);
    CHECK(net->address(rank.transport, &rank.address, &bytes) == HALAY_EINVAL, "no room");
    CHECK(net->connect(rank.transport, (halay_peer_id_t){7, 2}, "short", 5, &ep) == 0, "connect");
    rank_expect_failed(&rank, 1000 * MS, "5 bytes instead of 20");
    CHECK(net->connect(rank.transport, (halay_peer_id_t){7, 3}, NULL, 0, &ep) == 0, "connect");
    rank_expect_failed(&rank, 3000 * MS, "its address is not known");
    net->close(rank.transport);
}

/* ------------------------------------------------------------------ strangers */

static void strangers(void)
{
    rank_t a = {0}, b = {0};
    halay_event_t event;
    const uint8_t greeting[GREETING] = {0};
    uint8_t hello[HELLO_MOST] = {0};
    uint64_t said[16] = {0};
    int fd[70];
    rank_open(&a, 1, 20000 * MS);
    fd[0] = stranger_connect(&a);
    give(fd[0], "GET / HTTP/1.1\r\n\r\n", 18);
    stranger_dropped(&a, fd[0], 1000);
    CHECK(a.warnings == 1 && strstr(a.log, "127.0.0.1"), "%d: %s", a.warnings, a.log);
    hello_make("", 2, 1, greeting, hello);
    memcpy(said, hello, sizeof(said[0]));
    fd[0] = stranger_connect(&a); /* an address of 4 GiB, or what must be zero is not */
    said[1] = 1 | UINT64_C(0xffffffff) << 32;
    give(fd[0], said, sizeof(said));
    stranger_dropped(&a, fd[0], 1000);
    fd[0] = stranger_connect(&a); /* no secret, no address */
    said[1] = 1;
    give(fd[0], said, sizeof(said));
    stranger_dropped(&a, fd[0], 1000);
    fd[0] = stranger_connect(&a); /* half a hello, and silence */
    give(fd[0], said, 40);
    stranger_dropped(&a, fd[0], 4000);
    /* More silent ones than there is room for: a peer gets through. */
    for (int i = 0; i < 70; i++)
        fd[i] = stranger_connect(&a);
    rank_open(&b, 2, 20000 * MS);
    halay_ep_t *ep = rank_connect(&b, 1, &a.address);
    uint64_t until = clock_ns() + 5000 * MS;
    while (net->send(b.transport, ep, 0, NULL, 0, "hi", 2, 0) == HALAY_EAGAIN) {
        CHECK(clock_ns() < until, "strangers keep a peer out");
        CHECK(rank_wait(&a, 1 * MS, &event) == 0 && rank_wait(&b, 1 * MS, &event) == 0, "kind");
    }
    while (rank_wait(&a, 1 * MS, &event) == 0)
        CHECK(rank_wait(&b, 1 * MS, &event) == 0 && clock_ns() < until, "the message is lost");
    CHECK(event.kind == HALAY_EVENT_MESSAGE && event.bytes == 2, "kind %d %s", event.kind, a.text);
    for (int i = 0; i < 70; i++)
        close(fd[i]);
    CHECK(a.warnings == 1 && a.errors == 0 && b.warnings + b.errors == 0, "%s%s", a.log, b.log);
    net->close(b.transport);
    rank_expect_failed(&a, 1000 * MS, "closed its end");
    net->close(a.transport);
}

/* A forked child gives up what it inherited: the parent does not notice. */
static void forked(void)
{
    rank_t a = {0}, b = {0};
    halay_event_t event;
    rank_open(&a, 1, 20000 * MS);
    rank_open(&b, 2, 20000 * MS);
    halay_ep_t *ep = rank_connect(&a, 2, &b.address);
    for (int round = 0; round < 2; round++) {
        while (net->send(a.transport, ep, 0, NULL, 0, "hi", 2, 0) == HALAY_EAGAIN)
            CHECK(rank_wait(&a, 1 * MS, &event) + rank_wait(&b, 1 * MS, &event) == 0, "kind");
        while (rank_wait(&b, 1 * MS, &event) == 0)
            CHECK(rank_wait(&a, 1 * MS, &event) == 0, "%s", a.text);
        CHECK(event.kind == HALAY_EVENT_MESSAGE, "kind %d %s", event.kind, b.text);
        pid_t pid = fork();
        if (pid == 0) {
            net->close(a.transport);
            net->close(b.transport);
            _exit(0);
        }
        process_join(pid);
    }
    net->close(a.transport);
    rank_expect_failed(&b, 1000 * MS, "closed its end");
    net->close(b.transport);
}

/* ------------------------------------------------------------------ all */

static void contract(int n)
{
    struct transport_body body = {.ops = net, .n = n, .flags = TRANSPORT_BODY_SECRET};
    CHECK(transport_body_run(&body, NULL) == 0, "%d ends", n);
}

static void contract_two(void)
{
    contract(2);
}

static void contract_three(void)
{
    contract(3);
}

static const struct net_case shared[] = {
    {"contract_two", contract_two},
    {"contract_three", contract_three},
    {"large", large},
    {"stopped", stopped},
    {"refused", refused},
    {"wrong_settings", wrong_settings},
    {"strangers", strangers},
    {"forked", forked},
    {"epoch_later", epoch_later},
    {"epoch_earlier", epoch_earlier},
    {"epochs", epochs},
    {"parked", parked},
    {"proof_guest", proof_guest},
    {"proof_replayed", proof_replayed},
    {"proof_reflected", proof_reflected},
    {"proof_impostor", proof_impostor},
    {"proof_slowed", proof_slowed},
    {"proof_flood", proof_flood},
};

/* 1 if it failed. */
static int run(const struct net_case *one)
{
    int status;
    uint64_t begun = clock_ns();
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        one->run();
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    printf("%s %s (%llu ms)\n", status ? "FAIL" : "ok  ", one->name, (clock_ns() - begun) / MS);
    return status != 0;
}

int net_cases_main(int argc, char **argv, const struct net_case own[], size_t nown)
{
    const size_t nshared = sizeof(shared) / sizeof(shared[0]);
    int bad = 0, ran = 0;
    for (size_t i = 0; i < nshared + nown; i++) {
        const struct net_case *one = i < nshared ? &shared[i] : &own[i - nshared];
        if (argc > 1 && strcmp(argv[1], one->name))
            continue;
        bad += run(one);
        ran++;
    }
    return bad || ran == 0;
}
