/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_pmix.c - the bootstrap over PMIx: the table, and the one process-wide object of Halay.
 *
 * Invariant: a process has at most one PMIx life. The rank of this process does not change while it
 * lives, so this asks once and kept; opens after the first are new epochs of the same identity
 * and talk to no one. The phase (life.h) guards all else here.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../boot/common/life.h"
#include "../common/job.h"
#include "../common/keys.h"
#include "identity.h"

static struct halay_boot self = HLY_BOOT_CLOSED;
static int joined; /* 1 after the PMIx life, -1 if it failed */
static bool stays; /* the PMIx life is not over */

static void forked(void)
{
    hly_boot_life_forked(&self);
}

static void at_exit(void)
{
    if (stays && atomic_load(&self.owner) == (int)getpid())
        hly_pmix_leave();
    stays = false;
}

const char *hly_pmix_server(void)
{
    static const char *const names[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
                                        "PMIX_SERVER_URI21", "PMIX_SERVER_URI2", "PMIX_SERVER_URI"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return value;
    }
    return NULL;
}

static int number(const char *value)
{
    char *end;
    if (!value || !*value)
        return 0;
    long n = strtol(value, &end, 10);
    return *end || n < 1 || n > HLY_PMIX_RANKS_MAX ? 0 : (int)n;
}

/* The launcher of this process, as its environment has it. NULL: some other PMIx server. */
static const char *launcher(int *nranks)
{
    static const struct {
        const char *size, *also, *name;
    } rows[] = {{"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "slurm"},
                {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_SIZE", "jsrun"},
                {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "mpirun"},
                {"PMI_SIZE", "PMI_SIZE", "pmi"}};
    char ranks[16];
    if (hly_job_has("ranks", ranks, sizeof ranks) && (*nranks = number(ranks)))
        return "halayrun";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int n = number(getenv(rows[i].size));
        if (n && getenv(rows[i].also)) {
            *nranks = n;
            return rows[i].name;
        }
    }
    *nranks = 1;
    return NULL;
}

/* HALAY_JOB=none: a program that a rank starts, and that is to run alone. */
static int pmix_probe(int *announced)
{
    *announced = 1;
    if (hly_job_none())
        return 0;
    launcher(announced);
    return getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK") && hly_pmix_server();
}

/* Whoever can ask the PMIx server may know what the ranks put there: what they have in common
 * besides is mixed in. */
static void secret_mix(uint8_t secret[16])
{
    const struct hly_piece pieces[2] = {{"halay pmix", 10}, {secret, 16}};
    uint8_t key[32], mac[32];
    if (!hly_boot_secret(key))
        return;
    hly_mac(key, pieces, 2, mac);
    memcpy(secret, mac, 16);
}

/* The first open: claims the identity, then asks for it. Only one thread is in here. */
static int first_open(const struct hly_boot_log *log, uint64_t deadline_ns,
                      const halay_boot_info_t *info)
{
    int announced;
    if (!pmix_probe(&announced))
        return hly_boot_error(
            log, HALAY_EBOOT,
            "no PMIx server is announced in the environment (PMIX_NAMESPACE, PMIX_RANK, "
            "PMIX_SERVER_URI*): start the program with halayrun, or with srun --mpi=pmix");
    if (joined < 0)
        return hly_boot_error(log, HALAY_EBOOT,
                              "joining the job has failed before in this process, and is tried "
                              "once only: start the job again");
    const char *rank = getenv("PMIX_RANK");
    const char *names[3] = {getenv("PMIX_NAMESPACE"), rank, hly_pmix_server()};
    int rc = hly_boot_life_heeds_fork(&self, log, forked);
    rc = rc ? rc : hly_boot_claim(log, names, 3, rank, &self.claim_fd);
    if (rc)
        return rc;
    rc = hly_pmix_join(log, deadline_ns, info, &self.id, &stays);
    if (!rc && stays && atexit(at_exit)) {
        hly_pmix_leave();
        stays = false;
    }
    if (!rc)
        secret_mix(self.id.secret);
    joined = rc ? -1 : 1;
    if (rc)
        hly_boot_life_unclaim(&self);
    return rc;
}

static int pmix_open(void *arg, halay_log_fn fn, void *log_arg, uint64_t deadline_ns,
                     halay_boot_info_t *info, halay_boot_t **boot)
{
    struct hly_boot_log log = {fn, log_arg};
    int announced;
    const char *by = launcher(&announced);
    char name[32] = "pmix";
    (void)arg;
    int rc = hly_boot_life_begin(&self, &log, deadline_ns, info, boot);
    if (rc)
        return rc;
    if (joined == 1)
        self.id.alike = 0; /* nothing was exchanged */
    else
        rc = first_open(&log, deadline_ns, info);
    self.id.epoch += !rc;
    if (by)
        snprintf(name, sizeof name, "pmix (%s)", by);
    return hly_boot_life_end(&self, rc, name, info, boot);
}

HALAY_API extern const halay_boot_ops_t halay_boot_v4_pmix;
const halay_boot_ops_t halay_boot_v4_pmix = {
    .size = sizeof(halay_boot_ops_t),
    .name = "pmix",
    .probe = pmix_probe,
    .open = pmix_open,
    .get = hly_boot_get,
    .lost = hly_boot_ignores_lost,
    .newcomers = hly_boot_has_no_newcomers,
    .close = hly_boot_close,
    .leave = hly_boot_leaves_at_once,
};
