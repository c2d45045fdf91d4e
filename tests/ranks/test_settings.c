/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks with different settings are told the difference at their first call, on every rank, with
 * both sides; and a wrong setting is refused at init with what it takes.
 */
#include <stddef.h>
#include <string.h>

#include "device/device_builtin.h"
#include "ranks.h"
#include "wire/endpoint.h"
#include <hly_build.h>

extern const halay_transport_ops_t halay_transport_v7_shm;

static const char *error_of(halay_config_t *config, const char *variable, const char *value)
{
    static char error[512];
    halay_context_t *context;
    config->error = error;
    config->error_bytes = sizeof(error);
    error[0] = 0;
    setenv(variable, value, 1);
    int rc = halay_init(config, &context);
    unsetenv(variable);
    CHECK(rc == HALAY_EINVAL || rc == HALAY_EUNSUPPORTED, "%s=%s: %s", variable, value,
          halay_strerror(rc));
    return error;
}

static void refused(const char *variable, const char *value, const char *must_say)
{
    halay_config_t config = HALAY_CONFIG_INIT;
    const char *error = error_of(&config, variable, value);
    CHECK(strstr(error, must_say) && strstr(error, variable), "%s=%s: '%s'", variable, value,
          error);
}

static void differ(struct rank *r)
{
    int32_t x = 1, sum = 0;
    halay_verdict_t v = {.size = sizeof(v)};
    uint64_t start = ranks_now_ns();
    int rc = 0;
    for (int i = 0; !rc && i < 3; i++) /* two ranks of one node may need a second call to meet */
        rc = halay_allreduce(&x, &sum, 1, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(rc == HALAY_EMISMATCH, "rank %d: %s", r->rank, halay_strerror(rc));
    CHECK(ranks_now_ns() - start < 5000000000ull, "rank %d of %d, %g s", r->rank, r->nranks,
          (double)(ranks_now_ns() - start) / 1e9);
    CHECK(!halay_comm_verdict(r->world, &v), "verdict");
    CHECK(strstr(v.text, "allreduce=ring") && strstr(v.text, "(chosen)") &&
              strstr(v.text, "rank 1"),
          "%s", v.text);
    rc = halay_barrier(r->world);
    CHECK(rc == HALAY_EMISMATCH, "later: %s", halay_strerror(rc));
}

static void same_on_all(struct rank *r, const char *when)
{
    struct ranks_board *board = r->arg;
    halay_verdict_t v = {.size = sizeof(v)};
    CHECK(!halay_comm_verdict(r->world, &v), "verdict");
    snprintf(board->text[r->rank], sizeof(board->text[0]), "%s", v.text);
    pthread_barrier_wait(&board->barrier);
    CHECK(!strcmp(board->text[0], v.text), "%s, rank %d: '%s', rank 0: '%s'", when, r->rank, v.text,
          board->text[0]);
    pthread_barrier_wait(&board->barrier);
}

/* Half of the ranks differ from the other half, so several pairs find out, at different times. */
static void halves(struct rank *r)
{
    int32_t x = 1, sum = 0;
    int rc = 0;
    for (int i = 0; !rc && i < 3; i++)
        rc = halay_allreduce(&x, &sum, 1, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(rc == HALAY_EMISMATCH, "rank %d: %s", r->rank, halay_strerror(rc));
    same_on_all(r, "first");
    CHECK(halay_alltoall(&x, &sum, 0, HALAY_INT32, r->world) == HALAY_EMISMATCH, "later");
    same_on_all(r, "later");
}

static void many_pairs(int nranks, const char *const *algorithms, bool shm)
{
    struct ranks_board board;
    struct ranks_options o = {.nranks = nranks, .shm = shm, .algorithms = algorithms};
    if (!shm)
        o.faults = &ranks_tagged;
    pthread_barrier_init(&board.barrier, NULL, (unsigned)nranks);
    for (int round = 0; round < 20; round++)
        ranks_run(&o, halves, &board);
    pthread_barrier_destroy(&board.barrier);
}

/* ------------------------------------------------------------------ two builds in one job */

#define OTHER   "0.2.0+0ddba11e"
#define SOON_NS 5000000000ull /* the deadline is 20 s */

static halay_transport_ops_t curt; /* says another hello, and other verdicts */
static const halay_transport_ops_t *under;
static _Thread_local bool is_curt;

static int curt_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                     size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    struct hly_header h;
    memcpy(&h, header, sizeof(h));
    if (is_curt && h.kind == HLY_HELLO)
        header_bytes -= 16;
    if (is_curt && h.kind == HLY_ALARM)
        bytes -= 8;
    return under->send(t, ep, tag, header, header_bytes, payload, bytes, cookie);
}

static void two_builds(struct rank *r)
{
    struct ranks_board *board = r->arg;
    const int other = r->nranks - 1;
    int32_t x = 1, sum = 0;
    halay_verdict_t v = {.size = sizeof(v)};
    char name[64];
    is_curt = r->rank == other;
    if (is_curt)
        strcpy(r->context->transports[0].hello.build, OTHER);
    const uint64_t start = ranks_now_ns();
    int rc = 0;
    for (int i = 0; !rc && i < 3; i++)
        rc = halay_allreduce(&x, &sum, 1, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(rc == HALAY_EMISMATCH, "rank %d: %s", r->rank, halay_strerror(rc));
    CHECK(ranks_now_ns() - start < SOON_NS, "by the deadline");
    CHECK(!halay_comm_verdict(r->world, &v), "verdict");
    snprintf(name, sizeof(name), "rank %d has " OTHER, other);
    CHECK(strstr(v.text, "has " HLY_BUILD) && strstr(v.text, name) &&
              strstr(v.text, "the same build"),
          "%s", v.text);
    CHECK(v.other == other || v.rank == other, "blames %d and %d", v.rank, v.other);
    CHECK(halay_barrier(r->world) == HALAY_EMISMATCH, "later");
    CHECK(ranks_now_ns() - start < SOON_NS, "later, by the deadline");
    pthread_barrier_wait(&board->barrier);
}

static void builds(int nranks, const halay_transport_ops_t *transport, bool is_odd)
{
    struct ranks_board board;
    under = transport;
    curt = *transport;
    if (is_odd)
        curt.send = curt_send;
    struct ranks_options o = {.nranks = nranks, .transport = &curt};
    pthread_barrier_init(&board.barrier, NULL, (unsigned)nranks);
    ranks_run(&o, two_builds, &board);
    pthread_barrier_destroy(&board.barrier);
}

/* ------------------------------------------------------------------ how long the start waits */

static int never_open(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                      halay_boot_info_t *info, halay_boot_t **boot)
{
    uint64_t *asked_ns = arg;
    *asked_ns = deadline_ns;
    (void)log, (void)log_arg, (void)info, (void)boot;
    return HALAY_EBOOT;
}

static int no_place(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    (void)boot, (void)rank, (void)place;
    return HALAY_EINVAL;
}

static void no_close(halay_boot_t *boot)
{
    (void)boot;
}

static void start_waits(const char *start, const char *call, uint64_t config_s, uint64_t expected_s)
{
    static const halay_boot_ops_t ops = {.size = sizeof(ops),
                                         .name = "never",
                                         .open = never_open,
                                         .get = no_place,
                                         .close = no_close};
    uint64_t asked_ns = 0;
    halay_config_t config = HALAY_CONFIG_INIT;
    halay_context_t *context;
    config.boot = &ops;
    config.boot_arg = &asked_ns;
    config.deadline_ns = config_s * 1000000000;
    if (start)
        setenv("HALAY_START_DEADLINE", start, 1);
    if (call)
        setenv("HALAY_DEADLINE", call, 1);
    int rc = halay_init(&config, &context);
    unsetenv("HALAY_START_DEADLINE");
    unsetenv("HALAY_DEADLINE");
    CHECK(rc == HALAY_EBOOT && asked_ns == expected_s * 1000000000, "%s: asked for %g s",
          halay_strerror(rc), (double)asked_ns / 1e9);
}

/* ------------------------------------------------------------------ the program's own tables */

static void refuses(halay_config_t *config, const char *first, const char *second)
{
    halay_context_t *context;
    char error[512] = "";
    config->error = error;
    config->error_bytes = sizeof(error);
    CHECK(halay_init(config, &context) == HALAY_EINVAL, "%s %s: it is taken", first, second);
    CHECK(strstr(error, first) && strstr(error, second), "not '%s' and '%s': %s", first, second,
          error);
}

/* Each member but the size is NULL in turn, or beyond the table's end. None is ever called: what is
 * there would crash. may: bits of members that may be NULL, from the one behind the size on. */
static void lacks(halay_config_t *config, const char *what, void *table, size_t bytes, unsigned may)
{
    char missing[64];
    snprintf(missing, sizeof(missing), "the table config.%s ", what);
    for (size_t at = sizeof(size_t); at < bytes; at += sizeof(void *), may >>= 1) {
        if (may & 1)
            continue;
        memset(table, 1, bytes);
        memcpy(table, &bytes, sizeof(bytes));
        memset((char *)table + at, 0, sizeof(void *));
        refuses(config, missing, " has NULL as its member '");
        memcpy(table, &at, sizeof(at));
        refuses(config, missing, " older ABI than ");
    }
}

static void tables(void)
{
    halay_config_t c[4] = {HALAY_CONFIG_INIT, HALAY_CONFIG_INIT, HALAY_CONFIG_INIT,
                           HALAY_CONFIG_INIT};
    halay_boot_ops_t boot;
    halay_transport_ops_t transport;
    halay_device_ops_t device;
    halay_group_ops_t group;
    c[0].boot = &boot;
    lacks(&c[0], "boot", &boot, sizeof(boot), 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7);
    c[1].transport = &transport;
    lacks(&c[1], "transport", &transport, sizeof(transport), 0);
    c[2].device = &device;
    lacks(&c[2], "device", &device, sizeof(device), 0);
    c[3].group = &group;
    lacks(&c[3], "group", &group, sizeof(group), 1 << 8);
}

int main(void)
{
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    unsetenv("HALAY_DEADLINE");
    start_waits(NULL, NULL, 0, 300);
    start_waits(NULL, "7", 0, 7);
    start_waits(NULL, "7", 8, 8);
    start_waits("9", "7", 8, 9);
    start_waits("9", NULL, 0, 9);
    tables();
    refused("HALAY_DEADLINE", "soon", "seconds");
    refused("HALAY_DEADLINE", "-1", "seconds");
    refused("HALAY_START_DEADLINE", "0", "seconds");
    refused("HALAY_DEBUG", "yes", "info");
    refused("HALAY_ALGORITHM", "allreduce=quick", "circulant");
    refused("HALAY_ALGORITHM", "teleport=ring", "exscan");
    refused("HALAY_EXPLAIN", "always", "takes 1");
    refused("HALAY_SELECTION", "/nowhere/rows", "'model'");
    refused("HALAY_SELECTION", "model:/nowhere/model", "No such file");
    refused("HALAY_SELECTION", "model:", "names no file");
    refused("HALAY_MODEL", "/nowhere/model", "set HALAY_SELECTION=model:FILE");
    setenv("HALAY_DEBUG", "error", 1);
    for (int n = 2; n <= 5; n++)
        for (int shm = 0; shm < 2; shm++) {
            const char *algorithm[RANKS_MAX] = {NULL, "allreduce=ring"};
            struct ranks_options o = {.nranks = n, .shm = shm, .algorithms = algorithm};
            ranks_run(&o, differ, NULL);
            const char *half[RANKS_MAX] = {[1] = "allreduce=ring", [3] = "allreduce=ring"};
            many_pairs(n, half, shm);
            builds(n, shm ? &halay_transport_v7_shm : &halay_transport_v7_inproc, false);
            if (n == 2 || n == 5) /* these wait */
                builds(n, shm ? &halay_transport_v7_shm : &halay_transport_v7_inproc, true);
        }
    return 0;
}
