/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terms.h - what a block can hold. Equal numbers are equal expressions, and only those: every
 * expression is stored once, with its operands in order.
 */
#ifndef HLY_TERMS_H
#define HLY_TERMS_H

#include "program.h"

enum { HLY_TERM_NONE = 0, HLY_TERM_GARBAGE = 1, HLY_TERM_FIRST = 2 };
enum { HLY_TERMS_MAX = 1 << 16, HLY_TERM_OPERANDS_MAX = 4, HLY_TERM_DEVICE = 5 };

#define HLY_BLOCK_MIXED UINT32_MAX

typedef struct hly_term {
    uint32_t block;     /* of all its leaves, or HLY_BLOCK_MIXED */
    uint32_t noperands; /* 0: a leaf; HLY_TERM_DEVICE: two, and which event put them together */
    uint32_t operands[HLY_TERM_OPERANDS_MAX];
    uint32_t next;                        /* in its bucket */
    uint16_t first, last;                 /* rank of its leftmost and rightmost leaf */
    uint8_t in_order;                     /* its leaves stand in the order of ranks */
    uint8_t times[HLY_PROGRAM_RANKS_MAX]; /* each rank's input is in it; sticks at 255 */
} hly_term_t;

typedef struct hly_terms {
    hly_term_t *nodes;
    uint32_t *buckets;
    uint32_t count;
    uint32_t full; /* 1: an expression found no room; the oracle then gives no verdict */
} hly_terms_t;

int hly_terms_init(hly_terms_t *terms);
void hly_terms_finish(hly_terms_t *terms);
/* The input of a rank: operands[0] is the rank, operands[1] the block. */
uint32_t hly_terms_leaf(hly_terms_t *terms, uint32_t rank, uint32_t block);
/* operands[0] OP operands[1] OP ...; one operand is that operand. Garbage in, garbage out. */
uint32_t hly_terms_reduce(hly_terms_t *terms, const uint32_t *operands, uint32_t noperands);
/*
 * The same by a device, in an order that it alone knows: other values than any other event gives.
 * Any number of operands.
 */
uint32_t hly_terms_group(hly_terms_t *terms, uint32_t event, const uint32_t *operands,
                         uint32_t noperands);
/* 1 if the value is block `block` with the inputs of the first n ranks in it once, and no others.
 */
int hly_terms_is_sum(const hly_terms_t *terms, uint32_t value, uint32_t block, uint32_t n);

/* 1 if it adds up its inputs in the order of ranks. */
int hly_terms_in_order(const hly_terms_t *terms, uint32_t value);

#endif
