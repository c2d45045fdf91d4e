/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - what all bootstraps need: logging, hashed names, the secret, and the claim of a rank.
 * Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_CLAIM_H
#define HALAY_BOOT_CLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <halay/boot.h>

struct hly_boot_log {
    halay_log_fn fn; /* may be NULL */
    void *arg;
};

void hly_boot_say(const struct hly_boot_log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Logs an error. Its value is the error's code. */
#define hly_boot_error(log, code, ...) (hly_boot_say(log, 0, __VA_ARGS__), (code))
/* Logs "TEXT: what this errno means, and a remedy". Returns HALAY_ENOMEM or HALAY_EBOOT. */
int hly_boot_errno(const struct hly_boot_log *log, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum { HLY_BOOT_NAME = 256 };
/* Parses a number from 0 to max; -1: text is none. text may be NULL. */
int hly_boot_number(const char *text, int max);
/* Splits "host:port" or "[::1]:port". */
bool hly_boot_split(const char *text, char host[HLY_BOOT_NAME], int *port);

/* A remedy for this errno, to be appended to its text; "": none. */
const char *hly_boot_remedy(int error);

/* Of n strings with their final zeros. Whoever can guess them can make it. */
void hly_boot_hash(const char *const strings[], int n, uint8_t hash[16]);

/* Derives the key from HALAY_SECRET, so only this job's processes know it. False: HALAY_SECRET is
 * not set, and every process can derive the key. */
bool hly_boot_secret(uint8_t key[32]);
/* Once a rank has joined, it replaces HALAY_SECRET in its environment by this text, and keeps the
 * key in memory. So its children, which are no ranks of the job, do not inherit the secret. */
#define HLY_BOOT_HIDDEN "*"
void hly_boot_secret_hide(void);
/* HALAY_ESTATE, logged, if this process is a child of rank `rank`, which has hidden its secret. */
int hly_boot_secret_lacks(const struct hly_boot_log *log, const char *rank);
/* As hly_boot_secret(), from this text instead of HALAY_SECRET; NULL or "": there is none. */
bool hly_boot_secret_of(const char *secret, uint8_t key[32]);
/* As hly_boot_hash, for names that other users see: without the secret nobody can guess them, and
 * they do not reveal it. */
void hly_boot_name(const char *const strings[], int n, uint8_t hash[16]);

/* The abstract name "halay-KIND-HASH", or "halay-KIND-HASH-K" if k is not -1. Returns the size of
 * *name. */
struct sockaddr_un;
socklen_t hly_boot_abstract(const char *kind, const uint8_t hash[16], int k,
                            struct sockaddr_un *name);

/* Describes the process that listens on a taken abstract name: "process 7 of this node". If it is
 * another user's, adds a remedy. */
enum { HLY_BOOT_WHO = 256 };
const char *hly_boot_holder(const struct sockaddr_un *name, size_t bytes, char who[HLY_BOOT_WHO]);

/*
 * Claims rank `rank` of the job. The n strings `names` identify both job and rank; *fd holds the
 * claim until it is closed. HALAY_ESTATE, logged, if a living process of this user has it here.
 * Where another user holds the name there is no claim (-1), and that is logged.
 */
int hly_boot_claim(const struct hly_boot_log *log, const char *const names[], int n,
                   const char *rank, int *fd);

/* Has a living process of this node claimed that rank? */
bool hly_boot_claimed(const char *const names[], int n);

#endif
