/* SPDX-License-Identifier: Apache-2.0 */
/* life.c - allows one open at a time, by the rank's own process, and counts epochs. */
#include "life.h"

#include <assert.h>
#include <stdatomic.h>
#include <unistd.h>

enum phase { CLOSED = 0, BUSY, OPEN };

int hly_boot_life_begin(struct hly_boot_life *life, const struct hly_boot_log *log, int rank,
                        const halay_boot_info_t *info, halay_boot_t *const *boot)
{
    int idle = CLOSED, pid = (int)getpid(), owner = atomic_load(&life->owner);
    if (!info || !boot || info->size < sizeof *info)
        return HALAY_EINVAL;
    if (owner && owner != pid)
        return hly_boot_error(log, HALAY_ESTATE,
                              "this process (pid %d) was forked from rank %d (pid %d) of the job "
                              "and is no rank itself: only the rank may open Halay",
                              pid, rank, owner);
    if (!atomic_compare_exchange_strong(&life->phase, &idle, BUSY))
        return hly_boot_error(log, HALAY_ESTATE,
                              "initialised twice: this process holds the job open already; "
                              "finalize the first context before making another");
    return HALAY_OK;
}

void hly_boot_life_opened(struct hly_boot_life *life)
{
    life->epoch++;
    atomic_store(&life->owner, (int)getpid());
    atomic_store(&life->phase, OPEN);
}

void hly_boot_life_failed(struct hly_boot_life *life)
{
    atomic_store(&life->phase, CLOSED);
}

void hly_boot_life_closed(struct hly_boot_life *life)
{
    int open = OPEN;
    int closed = atomic_compare_exchange_strong(&life->phase, &open, CLOSED);
    assert(closed);
    (void)closed;
}

void hly_boot_life_unclaim(struct hly_boot_life *life)
{
    if (life->claim_fd >= 0)
        close(life->claim_fd);
    life->claim_fd = -1;
}

void hly_boot_life_forked(struct hly_boot_life *life, int *listen_fd)
{
    hly_boot_life_unclaim(life);
    if (*listen_fd >= 0)
        close(*listen_fd);
    *listen_fd = -1;
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
