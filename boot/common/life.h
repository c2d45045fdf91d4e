/* SPDX-License-Identifier: Apache-2.0 */
/* life.h - the process-wide object that each bootstrap has one of: who this process is, open once
 * at a time, by the rank's own process. Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_LIFE_H
#define HALAY_BOOT_LIFE_H

#include "meet.h"

/* A thread takes the phase by compare-and-swap; the phase guards the rest of the object. */
struct halay_boot {
    _Atomic int phase;
    _Atomic int owner; /* pid of the process that has opened it; 0 before the first open */
    int claim_fd;      /* -1: none */
    bool heeds_fork;
    struct hly_boot_identity id;
};
#define HLY_BOOT_CLOSED                                                                            \
    {                                                                                              \
        .claim_fd = -1, .id.listen_fd = -1                                                         \
    }

/*
 * The caller owns the object until it calls _end. HALAY_ESTATE, logged: the object is open, or this
 * process was forked from the rank, which owns it. HALAY_EINVAL: an argument is not valid.
 */
int hly_boot_life_begin(halay_boot_t *self, const struct hly_boot_log *log, uint64_t deadline_ns,
                        const halay_boot_info_t *info, halay_boot_t *const *boot);
/* rc is 0: the object is open, and fills in *info and *boot. Else it is closed. Returns rc. */
int hly_boot_life_end(halay_boot_t *self, int rc, const char *launcher, halay_boot_info_t *info,
                      halay_boot_t **boot);

/* From now on a forked child calls this function. HALAY_ENOMEM, logged. */
int hly_boot_life_heeds_fork(halay_boot_t *self, const struct hly_boot_log *log,
                             void (*forked)(void));
/* In a forked child: closes the claim and the listening socket. The child is no rank and may
 * outlive its parent, so no peer may connect to it instead of the rank. */
void hly_boot_life_forked(halay_boot_t *self);
/* Gives up the claim of a rank that did not join. */
void hly_boot_life_unclaim(halay_boot_t *self);

/* Members of halay_boot_ops_t; the last three for jobs that always have the same ranks. */
int hly_boot_get(const halay_boot_t *boot, int rank, halay_place_t *place);
void hly_boot_close(halay_boot_t *boot);
void hly_boot_ignores_lost(halay_boot_t *boot, int rank);
int hly_boot_has_no_newcomers(halay_boot_t *boot, int *count);
void hly_boot_leaves_at_once(halay_boot_t *boot);

#endif
