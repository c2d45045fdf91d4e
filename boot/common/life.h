/* SPDX-License-Identifier: Apache-2.0 */
/* life.h - what the process-wide objects of the bootstraps have in common: one open at a time, by
 * the rank's own process; and the count of epochs. Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_LIFE_H
#define HALAY_BOOT_LIFE_H

#include "claim.h"

/* A thread takes the phase by compare-and-swap; the phase guards the rest of the object. */
struct hly_boot_life {
    _Atomic int phase;
    _Atomic int owner; /* pid of the process that has opened it; 0 before the first open */
    uint64_t epoch;
    int claim_fd; /* -1: none */
};

/*
 * The caller owns the object until it calls _opened or _failed. HALAY_ESTATE, logged: the object is
 * open, or this process was forked from rank `rank`, which owns it. HALAY_EINVAL: info or boot is
 * not valid.
 */
int hly_boot_life_begin(struct hly_boot_life *life, const struct hly_boot_log *log, int rank,
                        const halay_boot_info_t *info, halay_boot_t *const *boot);
void hly_boot_life_opened(struct hly_boot_life *life); /* begins the next epoch */
void hly_boot_life_failed(struct hly_boot_life *life);
void hly_boot_life_closed(struct hly_boot_life *life);

/* In a forked child: closes the claim and the listening socket. The child is no rank and may
 * outlive its parent, so no peer may connect to it instead of the rank. */
void hly_boot_life_forked(struct hly_boot_life *life, int *listen_fd);
/* Gives up the claim of a rank that did not join. */
void hly_boot_life_unclaim(struct hly_boot_life *life);

/* Members of halay_boot_ops_t for jobs that always have the same ranks. */
void hly_boot_ignores_lost(halay_boot_t *boot, int rank);
int hly_boot_has_no_newcomers(halay_boot_t *boot, int *count);
void hly_boot_leaves_at_once(halay_boot_t *boot);

#endif
