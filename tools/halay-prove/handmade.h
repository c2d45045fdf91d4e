/* SPDX-License-Identifier: Apache-2.0 */
/* handmade.h - small plans written by hand whose outcome is known, to test the oracle itself. */
#ifndef HALAY_PROVE_HANDMADE_H
#define HALAY_PROVE_HANDMADE_H

#include "oracle.h"

enum { HLY_HANDMADE_STEPS_MAX = 24 };

typedef struct hly_handmade_step {
    uint32_t rank; /* rows of a rank follow one another */
    uint16_t kind; /* 0: end of the case */
    uint32_t peer, edge;
    uint32_t dep[2];
    uint16_t noperands;
    halay_operand_t operands[4];
} hly_handmade_step_t;

typedef struct hly_handmade {
    const char *name;
    uint32_t collective, nranks, root, in_place, blocks, scratch_slots;
    hly_verdict_t zero, eager; /* what has to come out */
    hly_handmade_step_t steps[HLY_HANDMADE_STEPS_MAX];
    uint32_t in_order; /* 1: as if by a planner that takes operations that do not commute */
    uint32_t equal;    /* 1: as if by a planner for blocks of equal size */
    uint32_t series;   /* 1: as if by one for calls of a series */
    /* Not 0: as if by a planner with group steps, and the groups that steps name, of any rank. */
    uint32_t ngroups;
    halay_group_t groups[4];
    halay_member_t members[8];
} hly_handmade_t;

extern const hly_handmade_t hly_handmade[];
extern const uint32_t hly_handmade_count;

#endif
