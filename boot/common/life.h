/* SPDX-License-Identifier: Apache-2.0 */
/* life.h - one open at a time, by the rank itself, and epochs: what the process-wide objects of the
 * bootstraps have in common. Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_LIFE_H
#define HALAY_BOOT_LIFE_H

#include "claim.h"

/* The phase is taken by compare-and-swap, and guards all else that belongs to the object. */
struct hly_boot_life {
    _Atomic int phase;
    _Atomic int owner; /* the process that the object is true for; 0 before the first open */
    uint64_t epoch;
    int claim_fd; /* -1: none */
};

/*
 * The object is this caller's alone until _opened or _failed. HALAY_ESTATE, logged: it is open, or
 * this process was forked from rank `rank` that has it; HALAY_EINVAL: info or boot are no places.
 */
int hly_boot_life_begin(struct hly_boot_life *life, const struct hly_boot_log *log, int rank,
                        const halay_boot_info_t *info, halay_boot_t *const *boot);
void hly_boot_life_opened(struct hly_boot_life *life); /* in the next epoch */
void hly_boot_life_failed(struct hly_boot_life *life);
void hly_boot_life_closed(struct hly_boot_life *life);

/* In a forked child: it is no rank, and may outlive its parent, so no one may connect to it in the
 * rank's place. */
void hly_boot_life_forked(struct hly_boot_life *life, int *listen_fd);
/* The claim was for nothing. */
void hly_boot_life_unclaim(struct hly_boot_life *life);

/* Members of halay_boot_ops_t where a job always has the same ranks. */
void hly_boot_ignores_lost(halay_boot_t *boot, int rank);
int hly_boot_has_no_newcomers(halay_boot_t *boot, int *count);
void hly_boot_leaves_at_once(halay_boot_t *boot);

#endif
