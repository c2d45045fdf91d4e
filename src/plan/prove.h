/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove.h - what the parts of the prover share.
 *
 * The parts run in this order, and each may rely on those before it:
 *   form     every number of every plan is in range, so no later part checks an index
 *   match    each send has its one receive, each group step its other members
 *   hazard   steps of one rank that touch the same memory are ordered, so any order gives one
 * result run      all plans together, symbolically: deadlock, values, who has heard from whom A
 * step's number counts over all ranks: base[rank] + its index.
 */
#ifndef HALAY_PLAN_PROVE_H
#define HALAY_PLAN_PROVE_H

#include <halay/plan.h>

#define HLY_NONE HALAY_STEP_NONE

/* Bounds on what one proof may cost; larger plans are refused. */
#define HLY_PROVE_STEPS_MAX  (1u << 28) /* of all ranks */
#define HLY_PROVE_CELLS_MAX  (1u << 26) /* blocks of buffers, all ranks */
#define HLY_PROVE_BLOCKS_MAX (1u << 30) /* touched by all steps */
#define HLY_PROVE_SEARCH_MAX (1u << 26) /* steps visited to order those of one rank */

struct hly_prover {
    const halay_plan_t *const *plans;
    uint32_t nranks;
    halay_plan_params_t params; /* of rank 0 */
    uint32_t blocks;
    uint32_t nsteps;   /* of all ranks */
    uint32_t *base;    /* nranks + 1 */
    uint32_t *rank_of; /* of a step */
    uint32_t *partner; /* of a SEND its RECV, and the reverse; of a GROUP that of the next
                          member, in a circle; HLY_NONE for other steps */
    halay_proof_t proof;
};

/* The memory of one rank as cells: a cell is a block of IN or OUT, or a slot of SCRATCH. */
struct hly_memory {
    uint32_t blocks;
    uint32_t base[3]; /* first cell of IN, OUT, SCRATCH */
    uint32_t own[3];  /* 1 if it has the one block of this rank only */
    uint32_t none[3]; /* 1 if this rank has no such buffer */
    uint32_t cells;
};

int hly_prove_form(struct hly_prover *v);
int hly_prove_match(struct hly_prover *v);
int hly_prove_hazard(struct hly_prover *v);
int hly_prove_run(struct hly_prover *v);
/* The same of one rank alone, whose steps are then numbered from 0. */
int hly_prove_form_of(struct hly_prover *v, uint32_t rank);
int hly_prove_hazard_of(struct hly_prover *v, uint32_t rank);

/* Writes the reason; index may be HLY_NONE (the plan as a whole). Returns HALAY_EPLAN. */
__attribute__((format(printf, 4, 5))) int hly_refuse(struct hly_prover *v, uint32_t rank,
                                                     uint32_t index, const char *format, ...);

void hly_memory_init(struct hly_memory *memory, const struct hly_prover *v, uint32_t rank);

static inline const halay_step_t *hly_step(const struct hly_prover *v, uint32_t number)
{
    uint32_t rank = v->rank_of[number];
    return &v->plans[rank]->steps[number - v->base[rank]];
}

/* The cell of an operand's block number i, counted from its first. */
static inline uint32_t hly_cell(const struct hly_memory *memory, const halay_operand_t *operand,
                                uint32_t i)
{
    if (operand->buffer == HALAY_BUFFER_SCRATCH) {
        return memory->base[HALAY_BUFFER_SCRATCH] + operand->slot + i;
    }
    if (memory->own[operand->buffer]) {
        return memory->base[operand->buffer];
    }
    uint32_t block = operand->first + i;
    return memory->base[operand->buffer] +
           (block < memory->blocks ? block : block - memory->blocks);
}

#endif
