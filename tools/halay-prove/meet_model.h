/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet_model.h - the processes of a job that meet (boot/common/world.h), their launcher, and all
 * that can happen to them: docs/explored.md has the assumptions.
 */
#ifndef HALAY_PROVE_MEET_MODEL_H
#define HALAY_PROVE_MEET_MODEL_H

#include "../../boot/common/world.h"
#include "explore.h"

enum { HLY_MODEL_PLACES = 4, HLY_MODEL_EVENTS = 64 };

/* The functions of boot/common/world.c that are tried, each without its hly_. */
/* clang-format off */
#define HLY_WORLDS_EACH(X) \
    X(worlds_init) X(worlds_start) X(worlds_end) X(worlds_hello) X(worlds_differ) X(worlds_left) \
    X(worlds_seen) X(worlds_failed) X(worlds_next) X(worlds_refused) X(worlds_joined) \
    X(worlds_due_ns) X(worlds_condemned)
/* clang-format on */

typedef struct hly_worlds_ops { /* those, or of a damaged copy */
    const char *name;           /* what is damaged */
    HLY_WORLDS_EACH(HLY_OP)
} hly_worlds_ops_t;

typedef struct hly_model_limits {
    uint8_t places, least; /* least 0: always as many ranks */
    uint8_t once;          /* rank 0 holds the only meeting; it asks at once, and lives */
    uint8_t late;          /* the last places, whose processes start at any time, or never */
    uint8_t again;         /* how often one process asks */
    uint8_t deaths, stops, hangs, wrong, twins, starts, fails, follow, agents;
    uint8_t tenths; /* of a second: its time to ask; 0: 9 of them */
    uint8_t over;   /* that has ended */
    uint8_t odd;    /* the places whose processes run another build */
    uint8_t list;   /* a list is made, and closed when half of the time is over */
    uint8_t hidden; /* the places whose processes the holder cannot see */
} hly_model_limits_t;

enum hly_process_state { HLY_NOBODY, HLY_RUNS, HLY_ASKS_NOW, HLY_IS_IN, HLY_REFUSED };

typedef struct hly_process {
    uint8_t state, number, asked, epoch, rank;
    bool dead, well; /* which its launcher may not know yet */
    bool connected;  /* the end of its connection is still to be seen */
    bool leaves, failed, stopped;
    bool excused;        /* was stopped, or called lost, or late: the others may go on without it */
    uint64_t end_ns;     /* of its own time, while it asks */
    uint64_t stopped_ns; /* since when it is stopped */
} hly_process_t;

typedef struct hly_model {
    hly_common_t common;
    hly_model_limits_t limits; /* what of it is left */
    uint64_t now;
    bool twin;   /* a second process has asked in a place */
    bool done;   /* one has ended well */
    bool listed; /* the list is closed */
    hly_process_t process[HLY_MODEL_PLACES];
    uint64_t room[(sizeof(struct hly_worlds) + HLY_MODEL_PLACES * sizeof(struct hly_place)) / 8];
} hly_model_t;

void hly_model_init(void *world, const uint8_t limits[]);
void hly_model_copy(void *copy, const void *world);
uint32_t hly_model_events(const void *world, hly_happens_t events[]);
void hly_model_apply(void *world, const hly_happens_t *e);
void hly_model_finish(void *world);
uint64_t hly_model_hash(const void *world);

extern const void *const hly_damaged_meeting[];

#endif
