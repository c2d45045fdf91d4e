/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - N ranks as N threads of one process: the harness of tests/ranks. Each thread has a
 * context of its own over inproc (with faults) or shm (whose endpoints are objects too).
 */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <halay/device.h>
#include <halay/group.h>
#include <halay/halay.h>

#include "inproc.h"

#define RANKS_MAX 64

/* Prints where and why, and ends the process: a test has one way to fail. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: CHECK(%s) failed: ", __FILE__, __LINE__, #condition);          \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct ranks_options {
    int nranks;
    bool shm;                               /* else inproc */
    const halay_transport_ops_t *transport; /* instead, or NULL */
    const halay_inproc_faults_t *faults;
    const halay_device_ops_t *device; /* NULL: the host */
    void *device_arg;
    const halay_group_ops_t *group; /* NULL: none */
    void *const *group_args;        /* one a rank, or NULL */
    const char *algorithm;          /* as HALAY_ALGORITHM */
    const char *const *isa;         /* one a rank, or NULL */
    const char *const *algorithms;  /* one a rank, or NULL: `algorithm` for all */
    uint64_t deadline_ns;           /* 0: 20 s */
    const int *node_of_rank;        /* or NULL */
    bool keep;                      /* fn finalizes by itself */
};

struct rank { /* what fn of one rank gets */
    int rank, nranks;
    halay_context_t *context;
    halay_comm_t *world;
    halay_inproc_hub_t *hub;
    void *arg;
    uint64_t seed; /* of this rank */
};

/* Runs fn on every rank and joins them all. */
void ranks_run(const struct ranks_options *options, void (*fn)(struct rank *), void *arg);

/* Numbers of which no two are alike, and their sum over all ranks. */
static inline int64_t ranks_value(int rank, int round, int i)
{
    return (int64_t)rank * 1000003 + round * 7919 + i * 31 + 1;
}
int64_t ranks_sum(int nranks, int round, int i);

/*
 * Memory of the late device's own, whose pages crash who touches them. The test copies by itself,
 * without the device, so it can while calls are in flight.
 */
/* Is it this memory that the context's calls are to have? */
bool ranks_there(const halay_context_t *context);
void *ranks_there_take(halay_context_t *context, size_t bytes);
void ranks_there_drop(halay_context_t *context, void *there);
void ranks_there_put(void *there, const void *from, size_t bytes);
void ranks_there_get(void *to, void *there, size_t bytes);

/* Where all ranks write down what they were told, for one to compare. */
struct ranks_board {
    pthread_barrier_t barrier;
    int code[RANKS_MAX];
    char text[RANKS_MAX][512];
};

/* Late and disordered; long messages by one way only. */
extern const halay_inproc_faults_t ranks_put, ranks_tagged, ranks_staged;

uint64_t ranks_random(uint64_t *state);
uint64_t ranks_now_ns(void);
/* How many times longer a thread takes on this machine now: 1 up to two threads a processor. */
double ranks_busy(void);

#endif
