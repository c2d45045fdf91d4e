/* SPDX-License-Identifier: Apache-2.0 */
/* drops.h - hosts whose places nobody gets, since a process has failed there (--blacklist hosts).
 * Names and times only. */
#ifndef HALAYRUN_DROPS_H
#define HALAYRUN_DROPS_H

#include <stdint.h>

enum { HLY_DROPS_HOSTS = 1024 };

struct hly_drops;

/* A host is dropped for first_ms, twice that the next time, and so on up to most_ms; first_ms 0:
 * for good. NULL: no memory. */
struct hly_drops *hly_drops_create(int64_t first_ms, int64_t most_ms);
void hly_drops_destroy(struct hly_drops *drops); /* takes NULL */

/* The number of a host, from 1 on; 0: there are too many, said once. */
int hly_drops_number(struct hly_drops *drops, const char *name);
int hly_drops_count(const struct hly_drops *drops); /* the last number */
const char *hly_drops_name(const struct hly_drops *drops, int number);

/* Drops it, unless it is. */
void hly_drops_add(struct hly_drops *drops, int number, int64_t now_ms);
int hly_drops_has(const struct hly_drops *drops, int number);
/* For how many ms it was dropped the last time; 0: for good. */
int64_t hly_drops_ms(const struct hly_drops *drops, int number);
/* 1 if the time of one is over, which is dropped no more then. */
int hly_drops_over(struct hly_drops *drops, int64_t now_ms);
/* When there will be one; 0: never. */
int64_t hly_drops_next_ms(const struct hly_drops *drops);

#endif
