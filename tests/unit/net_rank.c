/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_rank.c - see net_rank.h
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "net_rank.h"

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

size_t hello_keyed(const char *secret, uint64_t from, uint64_t to, const uint8_t greeting[GREETING],
                   const void *tells, size_t ntells, uint8_t hello[HELLO_MOST],
                   hly_meet_keys_t *keys)
{
    hly_meet_message_t message = {.magic = net_magic,
                                  .kind = MEET_HELLO,
                                  .tells = (uint32_t)ntells,
                                  .from = {7, from},
                                  .to = {7, to},
                                  .nonce = "some"};
    hly_meet_greeting_t said;
    uint8_t secret16[16] = {0};
    memcpy(secret16, secret, strnlen(secret, sizeof(secret16)));
    memcpy(&said, greeting, sizeof(said));
    hly_meet_keys_make(secret16, &said, message.nonce, message.from, message.to, 0, keys);
    hly_meet_prove(keys->out, &message, offsetof(hly_meet_message_t, mac), tells, ntells,
                   message.mac);
    memcpy(hello, &message, sizeof(message));
    memcpy(hello + sizeof(message), tells, ntells);
    return sizeof(message) + ntells;
}

size_t hello_make(const char *secret, uint64_t from, uint64_t to, const uint8_t greeting[GREETING],
                  uint8_t hello[HELLO_MOST])
{
    const uint8_t zeros[HELLO_MOST - sizeof(hly_meet_message_t)] = {0};
    hly_meet_keys_t keys;
    return hello_keyed(secret, from, to, greeting, zeros, net_tells, hello, &keys);
}

static void on_log(void *arg, int level, const char *text)
{
    rank_t *rank = arg;
    rank->errors += level == 0;
    rank->warnings += level == 1;
    snprintf(rank->log, sizeof(rank->log), "%s", text);
}

int rank_try(rank_t *rank, uint64_t id, uint64_t deadline_ns, const char *options)
{
    halay_transport_params_t params = {.size = sizeof(params),
                                       .self = {7, id},
                                       .secret = "between us",
                                       .deadline_ns = deadline_ns,
                                       .options = options,
                                       .listen_fd = rank->listen_fd,
                                       .listen_address = rank->listen_address,
                                       .log = on_log,
                                       .log_arg = rank};
    return net->open(&params, &rank->transport);
}

void rank_open(rank_t *rank, uint64_t id, uint64_t deadline_ns)
{
    size_t bytes = sizeof(rank->address);
    int rc = rank_try(rank, id, deadline_ns, NULL);
    CHECK(rc == 0, "%d: %s", rc, rank->log);
    rc = net->address(rank->transport, &rank->address, &bytes);
    CHECK(rc == 0 && bytes == sizeof(rank->address), "%d, %zu", rc, bytes);
}

halay_ep_t *rank_connect(rank_t *rank, uint64_t id, const halay_address_t *address)
{
    halay_ep_t *ep = NULL;
    int rc =
        net->connect(rank->transport, (halay_peer_id_t){7, id}, address, sizeof(*address), &ep);
    CHECK(rc == 0 && ep, "%d: %s", rc, rank->log);
    return ep;
}

int rank_wait(rank_t *rank, uint64_t wait_ns, halay_event_t *event)
{
    uint64_t until = clock_ns() + wait_ns, now;
    struct pollfd nap = {.events = POLLIN};
    int n;
    while ((n = net->poll(rank->transport, event, 1)) == 0) {
        if ((now = clock_ns()) >= until)
            return 0;
        if (net->arm(rank->transport, &nap.fd) == 0)
            poll(&nap, 1, (int)((until - now) / MS) + 1);
    }
    CHECK(n == 1, "poll: %d: %s", n, rank->log);
    rank->sent += event->kind == HALAY_EVENT_SENT;
    if (event->kind == HALAY_EVENT_LANDED) {
        rank->landed++;
        rank->landed_bytes = event->bytes;
        rank->landed_status = event->status;
    }
    if (event->kind == HALAY_EVENT_FAILED) {
        rank->failed++;
        snprintf(rank->text, sizeof(rank->text), "%s", event->text);
    }
    return event->kind;
}

void rank_expect(rank_t *rank, int kind, uint64_t wait_ns, halay_event_t *event)
{
    int got;
    while ((got = rank_wait(rank, wait_ns, event)) == HALAY_EVENT_SENT && kind != got)
        ;
    CHECK(got == kind, "kind %d, not %d %s%s", got, kind, rank->text, rank->log);
}

void rank_expect_failed(rank_t *rank, uint64_t wait_ns, const char *text)
{
    halay_event_t event;
    rank_expect(rank, HALAY_EVENT_FAILED, wait_ns, &event);
    CHECK(strstr(rank->text, text), "'%s' is not in '%s'", text, rank->text);
    CHECK(rank_wait(rank, 50 * MS, &event) == 0, "kind %d after FAILED", event.kind);
}

int send_now(rank_t *rank, halay_ep_t *ep, uint64_t tag, const void *payload, size_t bytes)
{
    uint64_t until = clock_ns() + 20000 * MS;
    halay_event_t event;
    int rc;
    while ((rc = net->send(rank->transport, ep, tag, NULL, 0, payload, bytes, 5)) == HALAY_EAGAIN) {
        CHECK(clock_ns() < until, "it stays full");
        int kind = rank_wait(rank, 1 * MS, &event);
        CHECK(kind == 0 || kind == HALAY_EVENT_SENT, "kind %d %s", kind, rank->text);
    }
    return rc;
}

/* ------------------------------------------------------------------ processes */

int parent_end, child_end;

pid_t process_start(void (*body)(void))
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    parent_end = pair[0];
    child_end = pair[1];
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body();
        _exit(0);
    }
    return pid;
}

void process_join(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: %x", (int)pid,
          (unsigned)status);
}

void give(int fd, const void *data, size_t bytes)
{
    CHECK(write(fd, data, bytes) == (ssize_t)bytes, "write");
}

void take(int fd, void *data, size_t bytes)
{
    CHECK(recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes, "the other process is gone");
}

void rank_meet(rank_t *rank, uint64_t id, halay_address_t *other)
{
    int fd = id == 1 ? parent_end : child_end;
    rank_open(rank, id, 20000 * MS);
    give(fd, &rank->address, sizeof(*other));
    take(fd, other, sizeof(*other));
}
