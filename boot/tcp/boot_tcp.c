/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_tcp.c - the bootstrap from variables and over TCP: the table, and its process-wide object.
 *
 * Invariant: by variables, who this process is does not change while it lives, so the others are
 * met once, and opens after the first are new epochs of the same identity and talk to no one. Where
 * the program says who it is (halay_boot_rank_t), every open meets. Its life (life.h) guards
 * everything else in `self`.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../common/proc.h"
#include "../common/life.h"
#include "tcp.h"
#include <hly_build.h>

struct halay_boot {
    struct hly_boot_life life;
    bool joined, heeds_fork;
    struct hly_boot_identity id;
};

static struct halay_boot self = {.life.claim_fd = -1, .id.listen_fd = -1};

static void forked(void)
{
    hly_boot_life_forked(&self.life, &self.id.listen_fd);
}

static int meet(const struct hly_boot_log *log, const struct hly_tcp_variables *v,
                uint64_t deadline_ns, const halay_boot_info_t *info, struct hly_boot_identity *id)
{
    char name[24];
    struct hly_tcp tcp = {.log = log, .v = v, .begin_ns = hly_boot_now_ns(), .listen_fd = -1};
    memset(id, 0, sizeof *id);
    tcp.end_ns = tcp.begin_ns + deadline_ns;
    tcp.self.rank = (uint32_t)v->rank;
    tcp.self.nranks = (uint32_t)v->nranks;
    snprintf(name, sizeof name, "rank %d", v->rank);
    hly_boot_describe(name, info, &tcp.self);
    int rc = v->rank == 0 ? hly_tcp_host(&tcp, id) : hly_tcp_guest(&tcp, id);
    if (rc && tcp.listen_fd >= 0)
        close(tcp.listen_fd);
    id->listen_fd = rc ? -1 : tcp.listen_fd;
    if (!rc)
        self.life.epoch = 0; /* it is a new job, also where this process has met before */
    return rc;
}

/* The first open: claims the identity, then meets the others. Only one thread is in here. */
static int first_open(const struct hly_boot_log *log, uint64_t deadline_ns,
                      const halay_boot_info_t *info)
{
    struct hly_tcp_variables v;
    int announced;
    if (!hly_tcp_announced(&announced))
        return hly_boot_error(
            log, HALAY_EBOOT,
            "neither RANK nor WORLD_SIZE is in the environment: start the program with torchrun or "
            "halayrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    int rc = hly_tcp_variables(log, &v);
    if (rc)
        return rc;
    const char *names[3] = {"tcp", v.claim, v.rank_text};
    rc = hly_boot_claim(log, names, 3, v.rank_text, &self.life.claim_fd);
    if (rc)
        return rc;
    self.heeds_fork = self.heeds_fork || !pthread_atfork(NULL, NULL, forked);
    if (self.heeds_fork) {
        rc = meet(log, &v, deadline_ns, info, &self.id);
    } else {
        hly_boot_say(log, 0, "out of memory for the rendezvous");
        rc = HALAY_ENOMEM;
    }
    explicit_bzero(&v, sizeof v);
    self.joined = rc == HALAY_OK;
    if (rc)
        hly_boot_life_unclaim(&self.life);
    return rc;
}

/* The program says who it is, and this time only. */
static int open_given(const struct hly_boot_log *log, const halay_boot_rank_t *given,
                      uint64_t deadline_ns, const halay_boot_info_t *info)
{
    struct hly_tcp_variables v;
    struct hly_boot_identity id;
    const uint64_t end_ns = hly_boot_now_ns() + deadline_ns;
    self.heeds_fork = self.heeds_fork || !pthread_atfork(NULL, NULL, forked);
    if (!self.heeds_fork)
        return hly_boot_error(log, HALAY_ENOMEM, "out of memory for the rendezvous");
    int rc = hly_tcp_given(log, given, deadline_ns, &v);
    const uint64_t now = hly_boot_now_ns();
    if (!rc)
        rc = meet(log, &v, now < end_ns ? end_ns - now : 1, info, &id);
    if (v.door_fd >= 0)
        close(v.door_fd);
    explicit_bzero(&v, sizeof v);
    if (rc)
        return rc;
    if (self.id.listen_fd >= 0)
        close(self.id.listen_fd);
    hly_boot_identity_finish(&self.id);
    self.id = id;
    self.joined = false; /* by variables */
    return HALAY_OK;
}

static void fill(const struct halay_boot *boot, halay_boot_info_t *info)
{
    const struct hly_boot_identity *id = &boot->id;
    info->rank = id->rank;
    info->epoch = boot->life.epoch;
    info->kept_alike = boot->life.epoch == 1 ? id->alike : 0; /* later ones do not meet */
    memcpy(info->job, id->job, sizeof info->job);
    memcpy(info->secret, id->secret, sizeof info->secret);
    hly_boot_places_info(&id->places, info);
    info->listen_fd = id->listen_fd;
    snprintf(info->launcher, sizeof info->launcher,
             getenv("TORCHELASTIC_RUN_ID") ? "tcp (torchrun)" : "tcp");
}

static int tcp_open(void *arg, halay_log_fn fn, void *log_arg, uint64_t deadline_ns,
                    halay_boot_info_t *info, halay_boot_t **boot)
{
    struct hly_boot_log log = {fn, log_arg};
    if (!deadline_ns)
        return HALAY_EINVAL;
    int rc = hly_boot_life_begin(&self.life, &log, self.id.rank, info, boot);
    if (rc)
        return rc;
    if (arg)
        rc = open_given(&log, arg, deadline_ns, info);
    else if (!self.joined)
        rc = first_open(&log, deadline_ns, info);
    if (rc) {
        hly_boot_life_failed(&self.life);
        return rc;
    }
    *boot = &self;
    hly_boot_life_opened(&self.life);
    fill(&self, info);
    return HALAY_OK;
}

static int tcp_get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    return hly_boot_places_get(&boot->id.places, rank, place);
}

static void tcp_close(halay_boot_t *boot)
{
    assert(!boot || boot == &self);
    if (boot)
        hly_boot_life_closed(&boot->life);
}

HALAY_API extern const halay_boot_ops_t halay_boot_v4_tcp;
const halay_boot_ops_t halay_boot_v4_tcp = {
    .size = sizeof(halay_boot_ops_t),
    .name = "tcp",
    .probe = hly_tcp_announced,
    .open = tcp_open,
    .get = tcp_get,
    .lost = hly_boot_ignores_lost,
    .newcomers = hly_boot_has_no_newcomers,
    .close = tcp_close,
    .leave = hly_boot_leaves_at_once,
};
