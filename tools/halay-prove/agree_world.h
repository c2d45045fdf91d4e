/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree_world.h - a group of ranks in one agreement (src/agree), with the messages between them,
 * and all that can happen to it: docs/explored.md has the assumptions.
 */
#ifndef HALAY_PROVE_AGREE_WORLD_H
#define HALAY_PROVE_AGREE_WORLD_H

#include "../../src/agree/agree.h"
#include "explore.h"

enum { HLY_WORLD_RANKS = 64, HLY_WORLD_FLIGHTS = 16384, HLY_WORLD_EVENTS = 32768 };

/* The functions of src/agree/agree.c, or those of a damaged copy. */
typedef struct hly_agreement_ops {
    const char *name; /* what is damaged */
    bool (*refuses)(const struct hly_agreement *, int);
    void (*enter)(struct hly_agreement *, int, int32_t);
    void (*note)(struct hly_agreement *, int, bool);
    void (*go_on)(struct hly_agreement *, const struct hly_agreement_sink *);
    void (*heard)(struct hly_agreement *, int, const struct hly_agreement_message *,
                  const struct hly_agreement_sink *);
    void (*ask)(const struct hly_agreement *, const struct hly_agreement_sink *);
    void (*late)(struct hly_agreement *, const struct hly_agreement_sink *);
} hly_agreement_ops_t;

extern const hly_agreement_ops_t hly_sound;

typedef enum hly_happening {
    HLY_CALLS = 'c',     /* rank a calls */
    HLY_HEARS = 'h',     /* rank a hears the next message of rank b */
    HLY_OVERTAKES = 'o', /* or a later one: the b / 64-th of rank b modulo 64 */
    HLY_DIES = 'd',      /* rank a dies */
    HLY_FINDS = 'f',     /* rank a finds rank b dead; what was under way from there is lost */
    HLY_ASKS = 'a',      /* rank a, who coordinates, asks again */
    HLY_CLOCK = 't'      /* the timer of rank a is due */
} hly_happening_t;

typedef struct hly_limits { /* of what may go wrong */
    uint32_t deaths, slow, away;
} hly_limits_t;

typedef struct hly_flight { /* a message under way */
    uint8_t from, to, what, call;
    int32_t flag, code;
    uint32_t ballot;
    uint64_t failed, without;
} hly_flight_t;

typedef struct hly_world {
    const hly_agreement_ops_t *ops;
    hly_limits_t limits;
    uint32_t nranks, nflights;
    uint64_t dead;
    uint64_t slow;        /* lives, and was found silent in the agreement: stopped, or slow */
    uint64_t away;        /* and one that had not called */
    uint64_t calls_other; /* they call another function than the others */
    uint64_t known[HLY_WORLD_RANKS]; /* the dead that each rank knows of */
    uint64_t room[HLY_WORLD_RANKS][14];
    bool quiet;            /* prints nothing */
    const char *complaint; /* what has gone wrong, or NULL */
    hly_flight_t flights[HLY_WORLD_FLIGHTS];
} hly_world_t;

void hly_world_init(hly_world_t *w, const hly_agreement_ops_t *ops, uint32_t nranks,
                    const hly_limits_t *limits);
/* Copies no more than is in use. */
void hly_world_copy(void *copy, const void *world);
/* All that can happen; returns how many. */
uint32_t hly_world_events(const void *world, hly_happens_t events[]);
bool hly_world_can(const void *world, const hly_happens_t *event);
void hly_world_apply(void *world, const hly_happens_t *event);
/* Nothing has to happen any more: complains if a rank still waits. */
void hly_world_finish(void *world);
uint64_t hly_world_hash(const void *world);
const struct hly_agreement *hly_world_rank(const hly_world_t *w, uint32_t rank);

#endif
