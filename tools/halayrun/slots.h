/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h - which slots of a job have a process, and which are to get one. Numbers only: who
 * starts and ends processes is job.c. */
#ifndef HALAYRUN_SLOTS_H
#define HALAYRUN_SLOTS_H

#include <stdint.h>

struct hly_slots;

/* n slots, all of them free, without a place. One that fails is free again after first_ms, twice
 * that the next time, and so on up to most_ms. NULL: no memory. */
struct hly_slots *hly_slots_create(int n, int64_t first_ms, int64_t most_ms);
void hly_slots_destroy(struct hly_slots *slots); /* takes NULL */

/* `count` slots from `first` on: the first `places` of them have a place for a process. */
void hly_slots_place(struct hly_slots *slots, int first, int count, int places);
/* The row's places for a host: it keeps what slots it has, has fewer, or gets free ones. Returns
 * how many it has. */
int hly_slots_seat(struct hly_slots *slots, int first, int count, int host, int places);
int hly_slots_host(const struct hly_slots *slots, int slot); /* 0: none */
int hly_slots_places(const struct hly_slots *slots);         /* of all */
/* Somebody else has brought the row: what has been there before does not count. */
void hly_slots_renew(struct hly_slots *slots, int first, int count);

/* A slot in which a process is to be started now; -1: none. */
int hly_slots_vacant(const struct hly_slots *slots, int64_t now_ms);
/* When there may be one; 0: not by waiting. */
int64_t hly_slots_next_ms(const struct hly_slots *slots);
/* A slot without a place, whose process is to be told to leave; -1: none. Each once. */
int hly_slots_leaver(struct hly_slots *slots);
/* Its process has been told to leave. */
int hly_slots_leaves(const struct hly_slots *slots, int slot);

void hly_slots_started(struct hly_slots *slots, int slot, int64_t now_ms);
/* Its process has ended, and that was no failure: the slot is free. */
void hly_slots_left(struct hly_slots *slots, int slot);
/* It was one. Returns for how many ms the slot cools down; 0: another has no place there. */
int64_t hly_slots_failed(struct hly_slots *slots, int slot, int64_t now_ms);

/* Slots with a place, whose processes have not failed so many times, one after the other. */
int hly_slots_hopeful(const struct hly_slots *slots, int failures);

#endif
