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

/* The functions of boot/common/world.c, or those of a damaged copy. */
typedef struct hly_worlds_ops {
    const char *name; /* what is damaged */
    void (*init)(struct hly_worlds *, int, int, int *);
    void (*start)(struct hly_worlds *, int);
    void (*end)(struct hly_worlds *, int, bool);
    enum hly_hello (*hello)(struct hly_worlds *, int, const struct hly_worlds_hello *, uint64_t);
    int (*differ)(struct hly_worlds *, int, int);
    void (*left)(struct hly_worlds *, int);
    void (*seen)(struct hly_worlds *, int, bool);
    void (*failed)(struct hly_worlds *, int);
    bool (*next)(struct hly_worlds *, uint64_t, struct hly_worlds_action *);
    void (*refused)(struct hly_worlds *);
    void (*joined)(struct hly_worlds *);
    uint64_t (*due)(const struct hly_worlds *);
    bool (*condemned)(struct hly_worlds *, int *);
} hly_worlds_ops_t;

extern const hly_worlds_ops_t hly_worlds_sound;

typedef enum hly_occurrence {
    HLY_STARTS = 'S',      /* the launcher starts a process at the place */
    HLY_ASKS_ALL = 'a',    /* its hello arrives: it calls lost whom it knows to have died */
    HLY_ASKS_ONE = 'b',    /* and, wrongly, another one, too */
    HLY_TWIN_ASKS = 'T',   /* a second process says hello in its place, while it asks */
    HLY_SAYS_LEAVES = 'l', /* it says that it leaves the world that it is in */
    HLY_HANGS_UP = 'h',    /* it asks no more */
    HLY_KILLED = 'x',      /* it dies; */
    HLY_CUT = 'c',         /* the end of its connection is seen; */
    HLY_TOLD_END = 'e',    /* the launcher sees its end */
    HLY_ENDS_WELL = 'w',   /* it ends with status 0, as one that is in the last world may */
    HLY_STOPS = 's',       /* it is stopped, */
    HLY_CONTINUES = 'g',   /* and goes on */
    HLY_INIT_FAILS = 'f',  /* its halay_init fails before it could ask, and it lives */
    HLY_FOLLOWED = 'n',    /* it has died; the next program of the same script runs at its place */
    HLY_AGENT_LOST = 'L',  /* the last two places are lost with their agent */
    HLY_ALL_MET = 'F',     /* those on the list, and of it all others, have what they wait for */
    HLY_TIME = 't'         /* the time that is due comes */
} hly_occurrence_t;

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
    const hly_worlds_ops_t *ops;
    hly_model_limits_t limits; /* what of it is left */
    uint64_t now;
    bool twin;   /* a second process has asked in a place */
    bool done;   /* one has ended well */
    bool listed; /* the list is closed */
    bool quiet;
    const char *complaint;
    hly_process_t process[HLY_MODEL_PLACES];
    uint64_t room[(sizeof(struct hly_worlds) + HLY_MODEL_PLACES * sizeof(struct hly_place)) / 8];
} hly_model_t;

void hly_model_init(hly_model_t *m, const hly_worlds_ops_t *ops, const hly_model_limits_t *limits);
void hly_model_copy(void *copy, const void *world);
uint32_t hly_model_events(const void *world, hly_happens_t events[]);
void hly_model_apply(void *world, const hly_happens_t *event);
/* Nothing has to happen any more: complains if a process still waits. */
void hly_model_finish(void *world);
uint64_t hly_model_hash(const void *world);

#endif
