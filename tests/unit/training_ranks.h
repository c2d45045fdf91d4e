/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training_ranks.h - ranks as threads, each with a context and a trainer, for the tests of
 * src/training. A failed check ends the process and says where.
 */
#ifndef HALAY_TESTS_TRAINING_RANKS_H
#define HALAY_TESTS_TRAINING_RANKS_H

#include <inproc/inproc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <halay/halay.h>
#include <halay/training.h>

#define RANKS_MAX 8

#define CHECK_FAILED abort()
#include "../check.h"

/* Late, out of order, and with full queues now and then. */
static const halay_inproc_faults_t ranks_chaos = {.seed = 6,
                                                  .delay_polls_max = 6,
                                                  .reorder = 1,
                                                  .late_put_polls = 4,
                                                  .queue_slots = 4,
                                                  .again_percent = 20,
                                                  .connect_polls = 3};

struct ranks;

struct rank {
    int rank, nranks;
    uint64_t seed;
    halay_context_t *context;
    halay_comm_t *world;
    halay_trainer_t *trainer; /* a body that destroys it, or finalizes, leaves NULL behind */
    struct ranks *ranks;
    void (*body)(struct rank *rank);
};

/* What the ranks of one run share: the threads meet here without Halay's help. */
struct ranks {
    pthread_barrier_t meet;
    char texts[RANKS_MAX][1024];
    int codes[RANKS_MAX];
    struct rank rank[RANKS_MAX];
    struct halay_inproc_rank hub_rank[RANKS_MAX];
};

static inline void meet(struct rank *rank)
{
    pthread_barrier_wait(&rank->ranks->meet);
}

static inline uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static inline void shuffle(int values[], int count, uint64_t *seed)
{
    for (int i = 0; i < count; i++)
        values[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(draw(seed) % (uint64_t)(i + 1)), kept = values[i];
        values[i] = values[j];
        values[j] = kept;
    }
}

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline halay_trainer_counters_t counters(struct rank *rank)
{
    halay_trainer_counters_t now = {.size = sizeof(now)};
    CHECK(!halay_trainer_counters(rank->trainer, &now), "counters");
    return now;
}

/* Waits, releases, and wants this code. */
static inline void finish(struct rank *rank, halay_ticket_t ticket, int code)
{
    char text[1024];
    int rc = halay_trainer_wait(rank->trainer, ticket, text, sizeof(text));
    CHECK(rc == code, "rank %d: %d instead of %d: %s", rank->rank, rc, code, text);
    CHECK((rc == 0) == (text[0] == 0), "an error, and only an error, has a text: %d '%s'", rc,
          text);
    halay_trainer_release(rank->trainer, ticket);
}

/* Of the next run, else 0: the configuration's deadline, and one that is set on the world. */
static uint64_t hub_config_ns, hub_set_ns;

static inline void *rank_main(void *arg)
{
    struct rank *rank = arg;
    halay_config_t config = HALAY_CONFIG_INIT;
    config.boot = &halay_boot_v4_inproc;
    config.boot_arg = &rank->ranks->hub_rank[rank->rank];
    config.transport = &halay_transport_v7_inproc;
    config.deadline_ns = hub_config_ns;
    int rc = halay_init(&config, &rank->context);
    CHECK(!rc, "init: %s", halay_strerror(rc));
    CHECK(!halay_comm_world(rank->context, &rank->world), "no world");
    CHECK(!hub_set_ns || !halay_comm_set_deadline(rank->world, hub_set_ns), "deadline");
    rc = halay_trainer_create(rank->context, rank->world, &rank->trainer);
    CHECK(!rc, "trainer: %s", halay_strerror(rc));
    rank->body(rank);
    if (rank->trainer)
        meet(rank);
    halay_trainer_destroy(rank->trainer);
    halay_finalize(rank->context);
    return NULL;
}

/* What the hub of the next run injects; NULL: nothing. */
static const halay_inproc_faults_t *hub_faults;
/* Of each rank of the next run; NULL: all on one. */
static const int *hub_nodes;

static inline void run_ranks(int nranks, const char *deadline_s, void (*body)(struct rank *rank))
{
    struct ranks *ranks = calloc(1, sizeof(*ranks));
    halay_inproc_hub_t *hub;
    pthread_t threads[RANKS_MAX];
    setenv("HALAY_DEADLINE", deadline_s, 1);
    CHECK(ranks && !halay_inproc_hub_create(nranks, hub_faults, &hub), "no hub");
    CHECK(!hub_nodes || !halay_inproc_hub_nodes(hub, hub_nodes), "no nodes");
    pthread_barrier_init(&ranks->meet, NULL, (unsigned)nranks);
    for (int r = 0; r < nranks; r++) {
        ranks->hub_rank[r] = (struct halay_inproc_rank){.hub = hub, .rank = r};
        ranks->rank[r] = (struct rank){.rank = r,
                                       .nranks = nranks,
                                       .seed = 88172645463325252u + (uint64_t)r * 7919,
                                       .ranks = ranks,
                                       .body = body};
        CHECK(!pthread_create(&threads[r], NULL, rank_main, &ranks->rank[r]), "no thread");
    }
    for (int r = 0; r < nranks; r++)
        pthread_join(threads[r], NULL);
    halay_inproc_hub_destroy(hub);
    pthread_barrier_destroy(&ranks->meet);
    free(ranks);
}

struct test_case {
    const char *name;
    void (*body)(struct rank *rank);
    int sizes[4];           /* numbers of ranks; none: the usual ones */
    const char *deadline_s; /* NULL: 30 */
    const char *fusion;     /* HALAY_FUSION */
    const halay_inproc_faults_t *faults;
    uint64_t config_ns, set_ns; /* deadlines; 0: HALAY_DEADLINE */
};

static inline void run_case(const struct test_case *test)
{
#if defined(__SANITIZE_THREAD__)
    static const int usual[4] = {1, 3};
#elif defined(__SANITIZE_ADDRESS__)
    static const int usual[4] = {2, 5};
#else
    static const int usual[4] = {1, 2, 3, 5};
#endif
    const int *sizes = test->sizes[0] ? test->sizes : usual;
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    if (test->fusion)
        setenv("HALAY_FUSION", test->fusion, 1);
    else
        unsetenv("HALAY_FUSION");
    hub_faults = test->faults;
    hub_config_ns = test->config_ns;
    hub_set_ns = test->set_ns;
    printf("%s:", test->name);
    for (int s = 0; s < 4 && sizes[s]; s++) {
        run_ranks(sizes[s], test->deadline_s ? test->deadline_s : "30", test->body);
        printf(" %d,", sizes[s]);
    }
    printf(" %.2f s\n", (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * 1e-9);
    fflush(stdout);
}

/* All, or the one that is named. Ends with one that has no name. */
static inline int run_cases(const struct test_case *cases, int argc, char **argv)
{
    int count = 0;
    for (; cases->name; cases++) {
        if (argc > 1 && strcmp(argv[1], cases->name))
            continue;
        run_case(cases);
        count++;
    }
    CHECK(count, "no such case");
    return 0;
}

#endif
