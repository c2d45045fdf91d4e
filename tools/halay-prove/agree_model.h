/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree_model.h - a group of ranks in one agreement (src/agree), with the messages between them,
 * and all that can happen to it: docs/explored.md has the assumptions.
 */
#ifndef HALAY_PROVE_AGREE_MODEL_H
#define HALAY_PROVE_AGREE_MODEL_H

#include "../../src/agree/agree.h"
#include "explore.h"

enum { HLY_WORLD_RANKS = 64, HLY_WORLD_FLIGHTS = 16384, HLY_WORLD_EVENTS = 32768 };

/* The functions of src/agree/agree.c that are tried, each without its hly_. */
/* clang-format off */
#define HLY_AGREEMENT_EACH(X) \
    X(agreement_refuses) X(agreement_enter) X(agreement_note) X(agreement_go_on) \
    X(agreement_heard) X(agreement_ask) X(agreement_late)
/* clang-format on */

typedef struct hly_agreement_ops { /* those, or of a damaged copy */
    const char *name;              /* what is damaged */
    HLY_AGREEMENT_EACH(HLY_OP)
} hly_agreement_ops_t;

typedef struct hly_limits { /* of what may go wrong */
    uint8_t ranks, die, slow, away;
    uint8_t other; /* 1 + the rank that calls another function than the others */
} hly_limits_t;

typedef struct hly_flight { /* a message under way */
    uint8_t from, to, what, call;
    int32_t flag, code;
    uint32_t ballot;
    uint64_t failed, without;
} hly_flight_t;

typedef struct hly_world {
    hly_common_t common;
    hly_limits_t limits;
    uint32_t nflights;
    uint64_t dead;
    uint64_t slow; /* lives, and was found silent in the agreement: stopped, or slow */
    uint64_t away; /* and one that had not called */
    uint64_t known[HLY_WORLD_RANKS]; /* the dead that each rank knows of */
    uint64_t room[HLY_WORLD_RANKS][14];
    hly_flight_t flights[HLY_WORLD_FLIGHTS];
} hly_world_t;

extern const void *const hly_damaged_agreement[];

#endif
