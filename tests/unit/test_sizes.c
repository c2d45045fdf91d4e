/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sizes.c - structs of a program that was built with an older or a newer header. Older: what
 * fits is filled, what is missing is as by default. Newer: what this library does not know is left
 * alone in what it fills, and refused in what it reads if it is set.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/halay.h>
#include <halay/training.h>

#include "check.h"

#define ROOM   4096
#define POISON 0xd6

static halay_context_t *context;
static halay_comm_t *world;
static halay_trainer_t *trainer;

static int topology(void *at)
{
    return halay_context_topology(context, at);
}

static int counters(void *at)
{
    return halay_context_counters(context, at);
}

static int verdict(void *at)
{
    return halay_comm_verdict(world, at);
}

static int trained(void *at)
{
    return halay_trainer_counters(trainer, at);
}

static int timeline(void *at)
{
    char path[] = "/tmp/halay-sizes-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && !close(fd), "%s", path);
    CHECK(!halay_trainer_timeline_start(trainer, path, 0), "timeline_start");
    int rc = halay_trainer_timeline_stop(trainer, at);
    if (rc)
        CHECK(!halay_trainer_timeline_stop(trainer, NULL), "timeline_stop");
    unlink(path);
    return rc;
}

/* Like `want` for as much as it has of it, and no byte beyond was written. */
static void outputs(const char *name, int (*fill)(void *), size_t whole)
{
    unsigned char want[ROOM] = {0}, got[ROOM];
    memcpy(want, &whole, sizeof(whole));
    CHECK(!fill(want), "%s", name);
    for (size_t size = 0; size < whole + 64; size++) {
        const size_t filled = size < whole ? size : whole;
        memset(got, POISON, sizeof(got));
        memcpy(got, &size, sizeof(size));
        int rc = fill(got);
        CHECK(rc == (!size || size % 8 ? HALAY_EINVAL : 0), "%s of %zu: %s", name, size,
              halay_strerror(rc));
        if (rc)
            continue;
        CHECK(!memcmp(got, &filled, sizeof(filled)), "%s of %zu says another size", name, size);
        CHECK(!memcmp(got + 8, want + 8, filled - 8), "%s of %zu differs", name, size);
        for (size_t i = filled; i < sizeof(got); i++)
            CHECK(got[i] == POISON, "%s of %zu: byte %zu was written", name, size, i);
    }
}

static void config(void)
{
    unsigned char raw[ROOM];
    char why[256] = "";
    halay_config_t wanted = HALAY_CONFIG_INIT;
    halay_context_t *other = NULL;
    wanted.deadline_ns = 5000000000ull;
    memset(raw, POISON, sizeof(raw));
    memcpy(raw, &wanted, sizeof(wanted));
    size_t size = offsetof(halay_config_t, algorithm); /* what follows is no pointer */
    memset(raw + size, POISON, sizeof(raw) - size);
    memcpy(raw, &size, sizeof(size));
    CHECK(!halay_init((halay_config_t *)raw, &other) && !halay_finalize(other), "an older config");

    wanted.error = why;
    wanted.error_bytes = sizeof(why);
    memset(raw, 0, sizeof(raw));
    memcpy(raw, &wanted, sizeof(wanted));
    size = sizeof(wanted) + 40;
    memcpy(raw, &size, sizeof(size));
    CHECK(!halay_init((halay_config_t *)raw, &other) && !halay_finalize(other), "a newer config");
    raw[sizeof(wanted) + 39] = 1;
    CHECK(halay_init((halay_config_t *)raw, &other) == HALAY_EINVAL, "set what is not known");
    CHECK(strstr(why, "does not have"), "%s", why);
    size = 0;
    memcpy(raw, &size, sizeof(size));
    CHECK(halay_init((halay_config_t *)raw, &other) == HALAY_EINVAL, "no size");
}

static void reduction(void)
{
    unsigned char raw[ROOM] = {0};
    char why[256] = "";
    float in[2] = {3, 4}, out[2] = {0, 0};
    halay_reduction_t says = {.size = offsetof(halay_reduction_t, prescale),
                              .name = "older",
                              .shape = {1, {2}},
                              .type = HALAY_FLOAT32,
                              .op = HALAY_SUM,
                              .prescale = 7,
                              .postscale = 7};
    CHECK(!halay_trainer_allreduce_wait(trainer, &says, in, out, why, sizeof(why)), "%s", why);
    CHECK(out[0] == 3 && out[1] == 4, "%g and %g: scaled by what is not there", out[0], out[1]);
    says.name = "newer";
    says.size = sizeof(says) + 8;
    memcpy(raw, &says, sizeof(says));
    const halay_reduction_t *newer = (const halay_reduction_t *)raw;
    CHECK(!halay_trainer_allreduce_wait(trainer, newer, in, out, why, sizeof(why)), "%s", why);
    CHECK(out[0] == 147, "%g", out[0]);
    raw[sizeof(says) + 7] = 1;
    CHECK(halay_trainer_allreduce_wait(trainer, newer, in, out, why, sizeof(why)) == HALAY_EINVAL &&
              strstr(why, "does not know"),
          "%s", why);
    CHECK(halay_trainer_allreduce_wait(trainer, NULL, in, out, why, sizeof(why)) == HALAY_EINVAL,
          "none");
    says.size = sizeof(says.size);
    CHECK(halay_trainer_allreduce_wait(trainer, &says, in, out, why, sizeof(why)) == HALAY_EINVAL,
          "without a name");
}

int main(void)
{
    config();
    CHECK(!halay_init(NULL, &context) && !halay_comm_world(context, &world), "init");
    CHECK(!halay_trainer_create(context, world, &trainer), "trainer");
    CHECK(halay_allreduce(NULL, NULL, 1, HALAY_INT32, HALAY_SUM, world) == HALAY_EINVAL, "wrong");
    reduction();
    outputs("halay_topology_t", topology, sizeof(halay_topology_t));
    outputs("halay_verdict_t", verdict, sizeof(halay_verdict_t));
    outputs("halay_timeline_result_t", timeline, sizeof(halay_timeline_result_t));
    outputs("halay_trainer_counters_t", trained, sizeof(halay_trainer_counters_t));
    halay_trainer_destroy(trainer);
    outputs("halay_counters_t", counters, sizeof(halay_counters_t));
    CHECK(!halay_finalize(context), "finalize");
    return 0;
}
