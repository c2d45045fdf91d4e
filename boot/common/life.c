/* SPDX-License-Identifier: Apache-2.0 */
/* life.c - allows one open at a time, by the rank's own process, and says who that is. */
#include "life.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum phase { CLOSED = 0, BUSY, OPEN };

int hly_boot_life_begin(halay_boot_t *self, const struct hly_boot_log *log, uint64_t deadline_ns,
                        const halay_boot_info_t *info, halay_boot_t *const *boot)
{
    int idle = CLOSED, pid = (int)getpid(), owner = atomic_load(&self->owner);
    if (!deadline_ns || !info || !boot || info->size < sizeof *info)
        return HALAY_EINVAL;
    if (owner && owner != pid)
        return hly_boot_error(log, HALAY_ESTATE,
                              "this process (pid %d) was forked from rank %d (pid %d) of the job "
                              "and is no rank itself: only the rank may open Halay",
                              pid, self->id.rank, owner);
    if (!atomic_compare_exchange_strong(&self->phase, &idle, BUSY))
        return hly_boot_error(log, HALAY_ESTATE,
                              "initialised twice: this process holds the job open already; "
                              "finalize the first context before making another");
    return HALAY_OK;
}

int hly_boot_life_end(halay_boot_t *self, int rc, const char *launcher, halay_boot_info_t *info,
                      halay_boot_t **boot)
{
    const struct hly_boot_identity *id = &self->id;
    if (rc) {
        atomic_store(&self->phase, CLOSED);
        return rc;
    }
    info->rank = id->rank;
    info->epoch = id->epoch;
    info->kept_alike = id->alike;
    memcpy(info->job, id->job, sizeof info->job);
    memcpy(info->secret, id->secret, sizeof info->secret);
    hly_boot_places_info(&id->places, info);
    info->listen_fd = id->listen_fd;
    snprintf(info->launcher, sizeof info->launcher, "%s", launcher);
    *boot = self;
    atomic_store(&self->owner, (int)getpid());
    atomic_store(&self->phase, OPEN);
    return HALAY_OK;
}

int hly_boot_life_heeds_fork(halay_boot_t *self, const struct hly_boot_log *log,
                             void (*forked)(void))
{
    self->heeds_fork = self->heeds_fork || !pthread_atfork(NULL, NULL, forked);
    return self->heeds_fork ? HALAY_OK
                            : hly_boot_error(log, HALAY_ENOMEM, "out of memory for the rendezvous");
}

void hly_boot_life_unclaim(halay_boot_t *self)
{
    if (self->claim_fd >= 0)
        close(self->claim_fd);
    self->claim_fd = -1;
}

void hly_boot_life_forked(halay_boot_t *self)
{
    hly_boot_life_unclaim(self);
    if (self->id.listen_fd >= 0)
        close(self->id.listen_fd);
    self->id.listen_fd = -1;
}

int hly_boot_get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    return hly_boot_places_get(&boot->id.places, rank, place);
}

void hly_boot_close(halay_boot_t *boot)
{
    if (boot) {
        const int was = atomic_exchange(&boot->phase, CLOSED);
        assert(was == OPEN);
        (void)was;
    }
}

void hly_boot_ignores_lost(halay_boot_t *boot, int rank)
{
    (void)boot, (void)rank;
}

int hly_boot_has_no_newcomers(halay_boot_t *boot, int *count)
{
    (void)boot, (void)count;
    return HALAY_EUNSUPPORTED;
}

void hly_boot_leaves_at_once(halay_boot_t *boot)
{
    (void)boot;
}
