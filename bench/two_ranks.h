/* SPDX-License-Identifier: Apache-2.0 */
/* two_ranks.h - two ranks in one process, for counting instructions: a bootstrap and their setup.
 */
#ifndef BENCH_TWO_RANKS_H
#define BENCH_TWO_RANKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <halay/boot.h>

enum { RANKS = 2 };

/*
 * Stands before the C library's. Valgrind 3.19 does not know pidfd_open, with which the transport
 * watches over its peers' processes: a descriptor that never becomes readable is one that lives.
 */
long syscall(long number, ...)
{
    if (number == SYS_pidfd_open)
        return eventfd(0, EFD_CLOEXEC);
    fprintf(stderr, "system call %ld is new here\n", number);
    abort();
}

static int probe(int *announced)
{
    *announced = RANKS;
    return 1;
}

static int open_boot(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                     halay_boot_info_t *info, halay_boot_t **boot)
{
    const int *rank = arg;
    (void)log, (void)log_arg, (void)deadline_ns, (void)boot;
    *info = (halay_boot_info_t){.size = sizeof *info,
                                .rank = *rank,
                                .nranks = RANKS,
                                .local_rank = *rank,
                                .local_nranks = RANKS,
                                .nnodes = 1,
                                .epoch = 1};
    memset(info->job, 0x5a, sizeof info->job);
    memset(info->secret, 0xa5, sizeof info->secret);
    snprintf(info->host, sizeof info->host, "here");
    snprintf(info->launcher, sizeof info->launcher, "one process");
    return HALAY_OK;
}

static int get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    (void)boot, (void)rank;
    *place = (halay_place_t){.size = sizeof(*place)};
    return HALAY_OK;
}

static void close_boot(halay_boot_t *boot)
{
    (void)boot;
}

static void lost(halay_boot_t *boot, int rank)
{
    (void)boot, (void)rank;
}

static int newcomers(halay_boot_t *boot, int *count)
{
    (void)boot, (void)count;
    return HALAY_EUNSUPPORTED;
}

static void check(int rc, const char *what)
{
    if (rc == HALAY_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, halay_strerror(rc));
    exit(1);
}

static void two_ranks_init(halay_context_t *context[RANKS], halay_comm_t *comm[RANKS])
{
    static const halay_boot_ops_t ops = {.size = sizeof ops,
                                         .name = "here",
                                         .probe = probe,
                                         .open = open_boot,
                                         .get = get,
                                         .lost = lost,
                                         .newcomers = newcomers,
                                         .close = close_boot,
                                         .leave = close_boot};
    static int rank[RANKS] = {0, 1};
    for (int r = 0; r < RANKS; r++) {
        halay_config_t config = HALAY_CONFIG_INIT;
        config.boot = &ops;
        config.boot_arg = &rank[r];
        check(halay_init(&config, &context[r]), "halay_init");
        check(halay_comm_world(context[r], &comm[r]), "halay_comm_world");
    }
}

/* Plays both until both are over. */
static inline void two_ranks_wait(halay_request_t *request[RANKS])
{
    for (int r = 0, left = RANKS; left; r = !r) {
        int rc = request[r] ? halay_request_test(request[r]) : HALAY_INPROGRESS;
        if (rc == HALAY_INPROGRESS)
            continue;
        check(rc, "halay_request_test");
        request[r] = NULL;
        left--;
    }
}

#endif
