/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_rank.h - for the tests of transports/shm: ranks that are processes, and messages whose
 * content tells their number and length. A check that fails ends the process that made it, and the
 * test.
 */
#ifndef HALAY_TESTS_SHM_RANK_H
#define HALAY_TESTS_SHM_RANK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <halay/transport.h>

#define CHECK_FAILED _exit(1) /* of any of the processes */
#include "../check.h"

#define MS 1000000ull

extern const halay_transport_ops_t halay_transport_v7_shm;
extern const halay_transport_ops_t *const shm; /* the same */

typedef struct rank {
    halay_transport_t *transport;
    const char *options;
    const char *secret;
    uint64_t deadline_ns;
    int asleep; /* waits in arm and poll(2), not in a loop */
    int logged[4];
    char log[512]; /* the last text */
    int failed;
    int status; /* of the last FAILED */
    char text[256];
    uint64_t failed_id;
} rank_t;

uint64_t clock_ns(void);
void pause_ms(unsigned ms);
int sanitized(void);

/* Ranks of one case have one job; each case draws a new one before it starts processes. */
void job_draw(void);
void rank_params(rank_t *rank, uint64_t id, halay_transport_params_t *params);
void rank_open(rank_t *rank, uint64_t id);
void rank_close(rank_t *rank);
halay_ep_t *rank_connect(rank_t *rank, uint64_t id);

/* Message `number` of `bytes` bytes, at least 8: one try, or until it is taken (polls; nothing may
 * come). */
int message_try(rank_t *rank, halay_ep_t *ep, uint32_t number, size_t bytes);
void message_send(rank_t *rank, halay_ep_t *ep, uint32_t number, size_t bytes);
/* Checks content and length; its number. */
uint32_t message_check(const halay_event_t *event);

/*
 * One event, or none (0) within so long. FAILED is written down in the rank, and is returned too:
 * the event's kind.
 */
int rank_wait(rank_t *rank, uint64_t wait_ns, halay_event_t *event);
/* Sleeps if arm lets it (1), and must be woken. */
int rank_doze(rank_t *rank);
/* The next event must be message `number`; FAILED. */
void rank_expect(rank_t *rank, uint32_t number);
void rank_expect_failed(rank_t *rank, uint64_t wait_ns, uint64_t id, const char *text);
/* No event at all comes for so long. */
void rank_quiet(rank_t *rank, unsigned ms);

/* A process that runs body(arg) and ends with 0; it dies with this one. */
pid_t process_start(void (*body)(void *arg), void *arg);
void process_join(pid_t pid);
void process_kill(pid_t pid);
int descriptors(void);
long resident_kib(void);

typedef struct shm_case {
    const char *name;
    void (*run)(void);
} shm_case_t;

extern const shm_case_t shm_fault_cases[]; /* ended by one without a name */
extern const shm_case_t shm_death_cases[];

#endif
