/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.c - does autotuning find the best size of fused groups? In each round a training step of
 * tensors of several sizes is timed with each size of groups, set by HALAY_AUTOTUNE, and then
 * by a trainer that tunes itself (HALAY_AUTOTUNE). A cost can be added to each message: then
 * another size is the best one. Prints the tuned step's time as a part of the best one's.
 *
 *   cc -O2 -Iinclude bench/tune.c -o tune -Lbuild/lib -lhalay -ldl
 *   LD_LIBRARY_PATH=build/lib build/bin/halayrun -np 2 ./tune [rounds [us a message [us a MiB]]]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <halay/halay.h>
#include <halay/training.h>
#include <halay/transport.h>

#define TENSORS     60
#define STEPS       40 /* that are timed */
#define TUNED_STEPS 450
#define SETTINGS    7
#define ROUNDS_MAX  99

static const char *const settings[SETTINGS] = {"",       "0",       "32768",   "131072",
                                               "524288", "2097152", "16777216"};

static halay_transport_ops_t slow; /* of shm, with a cost */
static const halay_transport_ops_t *fast;
static double message_us, mib_us;

static void must(int rc, const char *what)
{
    if (rc) {
        fprintf(stderr, "%s: %s\n", what, halay_strerror(rc));
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void cost(size_t bytes)
{
    const double until = now_us() + message_us + mib_us * (double)bytes / (1 << 20);
    while (now_us() < until)
        ;
}

static int slow_send(halay_transport_t *transport, halay_ep_t *ep, uint64_t tag, const void *header,
                     size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    const int rc = fast->send(transport, ep, tag, header, header_bytes, payload, bytes, cookie);
    if (rc == HALAY_OK || rc == HALAY_INPROGRESS)
        cost(bytes);
    return rc;
}

/* ------------------------------------------------------------------ steps */

static float *tensors[TENSORS];

/* A small one, as of biases and norms, and one in three of 16 to 256 KiB. */
static size_t count_of(size_t t)
{
    return t % 3 ? 64 + t : (size_t)4096 << (t / 3 % 5);
}

static void step(halay_trainer_t *trainer)
{
    halay_ticket_t tickets[TENSORS];
    char name[32], why[512];
    for (size_t t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof(name), "layer.%zu", t);
        must(halay_trainer_allreduce(trainer, name, tensors[t], tensors[t], count_of(t),
                                     HALAY_FLOAT32, HALAY_AVERAGE, 1, 1, &tickets[t]),
             name);
    }
    for (size_t t = 0; t < TENSORS; t++) {
        int rc = halay_trainer_wait(trainer, tickets[t], why, sizeof(why));
        must(rc, why);
        halay_trainer_release(trainer, tickets[t]);
    }
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median_step(halay_trainer_t *trainer)
{
    double us[STEPS];
    for (int i = 0; i < STEPS; i++) {
        const double start = now_us();
        step(trainer);
        us[i] = now_us() - start;
    }
    qsort(us, STEPS, sizeof(us[0]), compare);
    return us[STEPS / 2];
}

/* setting: bytes of a group, or "" for the default; NULL: it tunes itself. */
static double measure(halay_context_t *context, halay_comm_t *world, const char *setting)
{
    halay_trainer_t *trainer;
    char text[64];
    snprintf(text, sizeof(text), "group:%s", setting ? setting : "");
    setenv("HALAY_AUTOTUNE", !setting ? "again,warmup:1" : *setting ? text : "0", 1);
    must(halay_trainer_create(context, world, &trainer), "trainer");
    for (int i = 0; i < (setting ? 10 : TUNED_STEPS); i++)
        step(trainer);
    double us = median_step(trainer);
    must(halay_allreduce(HALAY_IN_PLACE, &us, 1, HALAY_FLOAT64, HALAY_MAX, world), "times");
    halay_trainer_destroy(trainer);
    return us;
}

static const halay_transport_ops_t *load(void)
{
    char path[1024];
    Dl_info info;
    snprintf(path, sizeof(path), "%s", dladdr((void *)halay_init, &info) ? info.dli_fname : "");
    char *name = strrchr(path, '/');
    snprintf(name ? name : path, 64, "/halay/halay-transport-shm.so");
    void *plugin = dlopen(path, RTLD_NOW);
    fast = plugin ? dlsym(plugin, "halay_transport_v7_shm") : NULL;
    if (!fast) {
        fprintf(stderr, "tune: %s\n", dlerror());
        exit(1);
    }
    slow = *fast;
    slow.send = slow_send;
    slow.name = "slow";
    return &slow;
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 9;
    halay_config_t config = HALAY_CONFIG_INIT;
    halay_context_t *context;
    halay_comm_t *world;
    double us[SETTINGS + 1], part[ROUNDS_MAX], over[ROUNDS_MAX];
    int rank;
    message_us = argc > 2 ? atof(argv[2]) : 0;
    mib_us = argc > 3 ? atof(argv[3]) : 0;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    setenv("HALAY_CALIBRATION", "off", 1);
    config.transport = message_us > 0 || mib_us > 0 ? load() : NULL;
    must(halay_init(&config, &context), "halay_init");
    must(halay_comm_world(context, &world), "world");
    must(halay_comm_rank(world, &rank), "rank");
    for (size_t t = 0; t < TENSORS; t++)
        tensors[t] = calloc(count_of(t), sizeof(float));
    if (rank == 0)
        printf("us a step: default 0 32K 128K 512K 2M 16M | tuned | of the best, of the default\n");
    for (int r = 0; r < rounds; r++) {
        double best = 1e300;
        for (int s = 0; s < SETTINGS; s++) {
            us[s] = measure(context, world, settings[s]);
            best = us[s] < best ? us[s] : best;
        }
        us[SETTINGS] = measure(context, world, NULL);
        part[r] = us[SETTINGS] / best;
        over[r] = us[SETTINGS] / us[0];
        for (int s = 0; s <= SETTINGS && rank == 0; s++)
            printf("%s%.0f", s == SETTINGS ? " | " : " ", us[s]);
        if (rank == 0)
            printf(" | %.3f %.3f\n", part[r], over[r]);
        fflush(stdout);
    }
    qsort(part, (size_t)rounds, sizeof(part[0]), compare);
    qsort(over, (size_t)rounds, sizeof(over[0]), compare);
    if (rank == 0)
        printf("median of %d: %.3f of the best setting (%.3f to %.3f), %.3f of the default\n",
               rounds, part[rounds / 2], part[0], part[rounds - 1], over[rounds / 2]);
    return halay_finalize(context) ? 1 : 0;
}
