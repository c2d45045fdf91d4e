/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instructions.c - 8-byte allreduces of two ranks that one thread plays: it starts the call of
 * both, then waits for both. So nobody polls in vain, and the instructions of a call can be
 * counted. instructions CALLS BYTES [persistent]
 */
#define _GNU_SOURCE
#include <stdbool.h>
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
    fprintf(stderr, "instructions: system call %ld is new here\n", number);
    abort();
}

struct boot_arg {
    int rank;
};

static int probe(int *announced)
{
    *announced = RANKS;
    return 1;
}

static int open_boot(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                     halay_boot_info_t *info, halay_boot_t **boot)
{
    const struct boot_arg *self = arg;
    (void)log;
    (void)log_arg;
    (void)deadline_ns;
    (void)boot;
    *info = (halay_boot_info_t){.size = sizeof *info,
                                .rank = self->rank,
                                .nranks = RANKS,
                                .local_rank = self->rank,
                                .local_nranks = RANKS,
                                .nnodes = 1,
                                .epoch = 1};
    memset(info->job, 0x5a, sizeof info->job);
    memset(info->secret, 0xa5, sizeof info->secret);
    snprintf(info->host, sizeof info->host, "here");
    snprintf(info->launcher, sizeof info->launcher, "one thread");
    return HALAY_OK;
}

static int get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    (void)boot, (void)rank;
    *place = (halay_place_t){.size = sizeof(*place)};
    return HALAY_OK;
}

static int join(halay_boot_t *boot, const char *address)
{
    (void)boot;
    (void)address;
    return HALAY_EUNSUPPORTED;
}

static void close_boot(halay_boot_t *boot)
{
    (void)boot;
}

static void check(int rc, const char *what)
{
    if (rc == HALAY_OK)
        return;
    fprintf(stderr, "instructions: %s: %s\n", what, halay_strerror(rc));
    exit(1);
}

static halay_request_t *persistent[RANKS]; /* NULL: the ordinary call */

static void call(halay_comm_t *comm[], char *in[], char *out[], size_t count)
{
    halay_request_t *request[RANKS];
    for (int r = 0; r < RANKS; r++) {
        request[r] = persistent[r];
        if (request[r])
            check(halay_request_start(request[r]), "halay_request_start");
        else
            check(halay_iallreduce(in[r], out[r], count, HALAY_FLOAT32, HALAY_SUM, comm[r],
                                   &request[r]),
                  "halay_iallreduce");
    }
    for (int r = 0, left = RANKS; left; r = (r + 1) % RANKS) {
        int rc = request[r] ? halay_request_test(request[r]) : HALAY_INPROGRESS;
        if (rc == HALAY_INPROGRESS)
            continue;
        check(rc, "halay_request_test");
        request[r] = NULL;
        left--;
    }
}

int main(int argc, char **argv)
{
    static const halay_boot_ops_t ops = {sizeof ops, "here", probe,     open_boot,
                                         get,        join,   close_boot};
    struct boot_arg self[RANKS];
    halay_context_t *context[RANKS];
    halay_comm_t *comm[RANKS];
    char *in[RANKS], *out[RANKS];
    const bool persists = argc == 4 && !strcmp(argv[3], "persistent");
    const int calls = argc == 3 || persists ? atoi(argv[1]) : 0;
    const size_t count = calls ? strtoull(argv[2], NULL, 10) / sizeof(float) : 0;
    if (calls <= 0 || !count) {
        fprintf(stderr, "usage: instructions CALLS BYTES [persistent]\n");
        return 2;
    }
    for (int r = 0; r < RANKS; r++) {
        halay_config_t config = HALAY_CONFIG_INIT;
        self[r].rank = r;
        config.boot = &ops;
        config.boot_arg = &self[r];
        check(halay_init(&config, &context[r]), "halay_init");
        check(halay_comm_world(context[r], &comm[r]), "halay_comm_world");
        in[r] = calloc(count, sizeof(float));
        out[r] = calloc(count, sizeof(float));
        if (!in[r] || !out[r])
            check(HALAY_ENOMEM, "the buffers");
        ((float *)in[r])[count - 1] = (float)(r + 1);
    }
    for (int r = 0; persists && r < RANKS; r++)
        check(halay_allreduce_init(in[r], out[r], count, HALAY_FLOAT32, HALAY_SUM, comm[r],
                                   &persistent[r]),
              "halay_allreduce_init");
    for (int i = 0; i < calls; i++)
        call(comm, in, out, count);
    int wrong = 0;
    for (int r = 0; r < RANKS; r++) {
        wrong |= ((float *)out[r])[count - 1] != 3.0f;
        free(in[r]);
        free(out[r]);
        halay_finalize(context[r]);
    }
    if (wrong)
        fprintf(stderr, "instructions: wrong data\n");
    return wrong;
}
