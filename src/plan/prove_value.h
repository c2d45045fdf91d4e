/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove_value.h - what a cell holds, symbolically, and who a step has heard from.
 *
 * A value is a fingerprint of which inputs are in it (the sum, modulo the prime 2^61-1, of a random
 * number for each input: an input left out or counted twice gives another sum, except for one
 * chance in about 2^60), and a hash of the tree of operations that made it, which takes the order
 * of operands into account. Equal hashes: the same operations on the same operands in the same
 * order, so the same bits. Where the planner promises that operations need not commute, a random
 * map x -> scale x + shift for each input is kept too: composing maps is associative but does not
 * commute, so it shows the order of the ranks however they are bracketed.
 *
 * A group step sums in an order that only its device knows: its hash is of the operands and of the
 * step itself, so that no other step gives the same, and it is in no order of ranks.
 */
#ifndef HALAY_PLAN_PROVE_VALUE_H
#define HALAY_PLAN_PROVE_VALUE_H

#include "prove.h"

struct hly_cell_state {
    uint64_t sum;
    uint64_t tree;               /* 0: nothing was put here yet */
    uint64_t scale, shift;       /* the composed map; 0 unless in_order */
    uint32_t depth;              /* reduce steps on the longest path to it */
    uint32_t first, count, slot; /* of the SCRATCH operand that wrote it */
};

struct hly_values {
    struct hly_prover *v;
    int in_order;              /* inputs must be combined in the order of ranks */
    int sized;                 /* an alltoall whose blocks may differ in size */
    int equal;                 /* blocks do not differ in size: a slot is one */
    struct hly_memory *memory; /* of a rank */
    uint64_t *base;            /* first cell of a rank; nranks + 1 */
    struct hly_cell_state *cells;
};

int hly_values_init(struct hly_values *s, struct hly_prover *v);
void hly_values_finish(struct hly_values *s);
/* Runs a COPY or REDUCE, or with `send` (else HLY_NONE) the SEND together with its RECV
 * `number`. */
int hly_values_step(struct hly_values *s, uint32_t number, uint32_t send);
/* Runs a GROUP: the steps of its n members, in their order. */
int hly_values_group(struct hly_values *s, const uint32_t *steps, uint32_t n);
/* After all steps: is the result what the collective promises? Fills proof.reduce_depth. */
int hly_values_check(struct hly_values *s);

/* Sets of ranks, counted by reference. Set 0 is empty and never freed. */
struct hly_sets {
    uint32_t words;             /* of a set */
    uint32_t room, used, spare; /* spare: first of the list of free sets, 0 at its end */
    uint64_t *bits;
    uint32_t *references; /* of a free set: the next free one */
};

int hly_sets_init(struct hly_sets *sets, uint32_t nranks);
void hly_sets_finish(struct hly_sets *sets);
/* A new empty set with one reference, 0 if there is no memory. */
uint32_t hly_sets_make(struct hly_sets *sets);
void hly_sets_add(struct hly_sets *sets, uint32_t to, uint32_t from);
void hly_sets_put(struct hly_sets *sets, uint32_t set);

static inline uint64_t *hly_set(const struct hly_sets *sets, uint32_t set)
{
    return sets->bits + (size_t)set * sets->words;
}

#endif
