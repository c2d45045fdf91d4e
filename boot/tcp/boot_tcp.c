/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_tcp.c - the bootstrap from variables and over TCP: the table, and its process-wide object.
 *
 * Invariant: by variables, who this process is does not change while it lives, so the others are
 * met once, and opens after the first are new epochs of the same identity and talk to no one. Where
 * the program says who it is (halay_boot_rank_t), every open meets, and its job is a new one. The
 * phase (life.h) guards all else here.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/life.h"
#include "tcp.h"

static struct halay_boot self = HLY_BOOT_CLOSED;
static bool joined; /* by variables */

static void forked(void)
{
    hly_boot_life_forked(&self);
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
    if (!rc)
        rc = hly_boot_life_heeds_fork(&self, log, forked);
    const char *names[3] = {"tcp", v.claim, v.rank_text};
    if (!rc)
        rc = hly_boot_claim(log, names, 3, v.rank_text, &self.claim_fd);
    if (rc)
        return rc;
    rc = hly_tcp_join(log, &v, deadline_ns, info, &self.id);
    explicit_bzero(&v, sizeof v);
    joined = !rc;
    if (rc)
        hly_boot_life_unclaim(&self);
    return rc;
}

/* The program says who it is, and this time only. */
static int open_given(const struct hly_boot_log *log, const halay_boot_rank_t *given,
                      uint64_t deadline_ns, const halay_boot_info_t *info)
{
    struct hly_tcp_variables v;
    struct hly_boot_identity id;
    const uint64_t end_ns = hly_boot_now_ns() + deadline_ns;
    int rc = hly_boot_life_heeds_fork(&self, log, forked);
    if (rc)
        return rc;
    rc = hly_tcp_given(log, given, deadline_ns, &v);
    const uint64_t now = hly_boot_now_ns();
    if (!rc)
        rc = hly_tcp_join(log, &v, now < end_ns ? end_ns - now : 1, info, &id);
    if (v.door_fd >= 0)
        close(v.door_fd);
    explicit_bzero(&v, sizeof v);
    if (rc)
        return rc;
    if (self.id.listen_fd >= 0)
        close(self.id.listen_fd);
    hly_boot_identity_finish(&self.id);
    self.id = id;
    joined = false;
    return HALAY_OK;
}

static int tcp_open(void *arg, halay_log_fn fn, void *log_arg, uint64_t deadline_ns,
                    halay_boot_info_t *info, halay_boot_t **boot)
{
    struct hly_boot_log log = {fn, log_arg};
    int rc = hly_boot_life_begin(&self, &log, deadline_ns, info, boot);
    if (rc)
        return rc;
    if (arg)
        rc = open_given(&log, arg, deadline_ns, info);
    else if (!joined)
        rc = first_open(&log, deadline_ns, info);
    else
        self.id.alike = 0; /* nothing was compared */
    self.id.epoch += !rc;
    return hly_boot_life_end(&self, rc, getenv("TORCHELASTIC_RUN_ID") ? "tcp (torchrun)" : "tcp",
                             info, boot);
}

HALAY_API extern const halay_boot_ops_t halay_boot_v4_tcp;
const halay_boot_ops_t halay_boot_v4_tcp = {
    .size = sizeof(halay_boot_ops_t),
    .name = "tcp",
    .probe = hly_tcp_announced,
    .open = tcp_open,
    .get = hly_boot_get,
    .lost = hly_boot_ignores_lost,
    .newcomers = hly_boot_has_no_newcomers,
    .close = hly_boot_close,
    .leave = hly_boot_leaves_at_once,
};
