/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - what all bootstraps need: saying, names, and holding one's rank. Inside boot/ and
 * pmix/ only. */
#ifndef HALAY_BOOT_CLAIM_H
#define HALAY_BOOT_CLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/boot.h>

struct hly_boot_log {
    halay_log_fn fn; /* may be NULL */
    void *arg;
};

void hly_boot_say(const struct hly_boot_log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum { HLY_BOOT_NAME = 256 };
/* -1: it is no number from 0 to max; text may be NULL. */
int hly_boot_number(const char *text, int max);
/* "host:port" or "[::1]:port". */
bool hly_boot_split(const char *text, char host[HLY_BOOT_NAME], int *port);

/* What to do about this errno, to be put behind its text; else "". */
const char *hly_boot_remedy(int error);

/* Two independent 64-bit hashes of n strings, each with its end. Not cryptographic. */
void hly_boot_hash(const char *const strings[], int n, uint8_t hash[16]);

/* The key that HALAY_SECRET makes, which only this job's processes know; false: it is not set, and
 * everybody can make it. */
bool hly_boot_secret(uint8_t key[32]);
/* A rank that has joined leaves no secret in its environment, but this: its children are no ranks
 * of its job, and what a child starts has none, or draws its own. The key is kept. */
#define HLY_BOOT_HIDDEN "*"
void hly_boot_secret_hide(void);
/* HALAY_ESTATE, logged, in a child of rank `rank` that has hidden its secret. */
int hly_boot_secret_lacks(const struct hly_boot_log *log, const char *rank);
/* The same of another secret; NULL or "": there is none. */
bool hly_boot_secret_of(const char *secret, uint8_t key[32]);
/* As hly_boot_hash, for names that others see: without the secret they can neither be guessed, nor
 * tell anything of it. */
void hly_boot_name(const char *const strings[], int n, uint8_t hash[16]);

/* "process 7 of this node": who listens on an abstract name that is taken; and what to do, if that
 * is another user's. */
enum { HLY_BOOT_WHO = 256 };
struct sockaddr_un;
const char *hly_boot_holder(const struct sockaddr_un *name, size_t bytes, char who[HLY_BOOT_WHO]);

/*
 * Claims rank `rank` of the job that the n strings `names` name (the rank among them); *fd holds
 * the claim until it is closed. HALAY_ESTATE, logged, if a living process of this user has it here.
 * Where another user holds the name there is no claim (-1), and that is logged.
 */
int hly_boot_claim(const struct hly_boot_log *log, const char *const names[], int n,
                   const char *rank, int *fd);

/* Whether a living process of this node has claimed that. */
bool hly_boot_claimed(const char *const names[], int n);

#endif
