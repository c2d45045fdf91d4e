/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - what all bootstraps need: saying, hashing, and holding one's rank. Inside boot/ and
 * pmix/ only. */
#ifndef HALAY_BOOT_CLAIM_H
#define HALAY_BOOT_CLAIM_H

#include <stdint.h>

#include <halay/boot.h>

struct hly_boot_log {
    halay_log_fn fn; /* may be NULL */
    void *arg;
};

void hly_boot_say(const struct hly_boot_log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Two independent 64-bit hashes of n strings, each with its end. Not cryptographic. */
void hly_boot_hash(const char *const strings[], int n, uint8_t hash[16]);

/*
 * Claims rank `rank` of the job that the n strings `names` name (the rank among them); *fd holds
 * the claim until it is closed. HALAY_ESTATE, logged, if a living process of this node has it.
 */
int hly_boot_claim(const struct hly_boot_log *log, const char *const names[], int n,
                   const char *rank, int *fd);

#endif
