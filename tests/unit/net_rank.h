/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_rank.h - an end of a transport between nodes, and processes that have one: for the tests of
 * such transports.
 */
#ifndef HALAY_TESTS_NET_RANK_H
#define HALAY_TESTS_NET_RANK_H

#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "../../transports/common/meet.h"

#define CHECK_FAILED _exit(1) /* of any of the processes */
#include "../check.h"

#define MS 1000000ull

/* The transport that is tested, and what begins its messages. */
extern const halay_transport_ops_t *const net;
extern const uint64_t net_magic;
extern const size_t net_tells; /* it may tell so many zeros */
enum { GREETING = sizeof(hly_meet_greeting_t), HELLO_MOST = sizeof(hly_meet_message_t) + 32 };
/* Its hello, of {7, from}, for {7, to}, with this secret, as an answer to this greeting, with what
 * is told. Returns its bytes. */
size_t hello_keyed(const char *secret, uint64_t from, uint64_t to, const uint8_t greeting[GREETING],
                   const void *tells, size_t ntells, uint8_t hello[HELLO_MOST],
                   hly_meet_keys_t *keys);
/* The same, with zeros. */
size_t hello_make(const char *secret, uint64_t from, uint64_t to, const uint8_t greeting[GREETING],
                  uint8_t hello[HELLO_MOST]);

/* An end in a process. */
typedef struct rank {
    int listen_fd; /* of its bootstrap, if listen_address is set */
    halay_address_t listen_address;
    halay_transport_t *transport;
    halay_address_t address;
    int warnings, errors, failed;
    char log[512];  /* the last text */
    char text[256]; /* of the last FAILED */
    uint64_t landed, sent;
    size_t landed_bytes;
    int landed_status;
} rank_t;

uint64_t clock_ns(void);
/* Opens with id {7, id}; what it logs is counted and kept. */
int rank_try(rank_t *rank, uint64_t id, uint64_t deadline_ns, const char *options);
void rank_open(rank_t *rank, uint64_t id, uint64_t deadline_ns);
halay_ep_t *rank_connect(rank_t *rank, uint64_t id, const halay_address_t *address);
/* One event, or none (0) within so long: its kind. Sleeps in between. */
int rank_wait(rank_t *rank, uint64_t wait_ns, halay_event_t *event);
void rank_expect(rank_t *rank, int kind, uint64_t wait_ns, halay_event_t *event);
/* FAILED comes, once, with this text. */
void rank_expect_failed(rank_t *rank, uint64_t wait_ns, const char *text);
int send_now(rank_t *rank, halay_ep_t *ep, uint64_t tag, const void *payload, size_t bytes);

extern int parent_end, child_end; /* of a socket between the two processes of a case */
pid_t process_start(void (*body)(void));
void process_join(pid_t pid);
void give(int fd, const void *data, size_t bytes);
void take(int fd, void *data, size_t bytes);
/* Opens, and swaps addresses with the other process. */
void rank_meet(rank_t *rank, uint64_t id, halay_address_t *other);

/* net_cases.c: a transport's test is the cases that all share, and its own. The exit status. */
enum { NET_LARGE = 16 << 20 };
struct net_case {
    const char *name;
    void (*run)(void);
};
int net_cases_main(int argc, char **argv, const struct net_case own[], size_t nown);
/*
 * kill -9, before or in the middle of a landing of so many bytes (after so many polls): FAILED
 * within 1 s and once, sends are refused; a landing that had begun does not hang, its buffer can be
 * had back. Returns what became of the landing.
 */
const char *net_killed_once(int polls, size_t bytes);

/* A connection to it, and the greeting that it says; no event may come meanwhile. */
int stranger_connect(const rank_t *rank);
int stranger_greeted(rank_t *rank, uint8_t greeting[GREETING]);
/* The transport hangs up on it in time, and has said nothing but a greeting. */
void stranger_dropped(rank_t *rank, int fd, unsigned wait_ms);

/* transport_proof.c */
void proof_guest(void);
void proof_replayed(void);
void proof_reflected(void);
void proof_impostor(void);
void proof_slowed(void);
void proof_flood(void);

/* transport_epochs.c */
void epoch_later(void);
void epoch_earlier(void);
void epochs(void);
void parked(void);

#endif
