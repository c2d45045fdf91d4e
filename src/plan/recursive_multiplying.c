/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recursive_multiplying.c - all data in every round, four ranks together: for few bytes.
 *
 * Recursive doubling with larger groups (Ruefenacht, Bull, Booth: Generalisation of recursive
 * doubling for AllReduce, Parallel Computing 69, 2017). q is the largest number up to p that is a
 * power of four, or two or three times one. The first p-q pairs of ranks fold as in recursive
 * doubling. The q ranks left are numbered in their order; in a round those that differ in one digit
 * (radix four; the last may be two or three) exchange all they have, and each sums in the order of
 * that digit. So all evaluate one tree over the ranks in their order: operations need not commute.
 *
 * One block. No slot is used twice: three a round, and the sum takes the place of the first. OUT is
 * written once, and in place after the sends of the first round, which read the same memory.
 */
#include "builder.h"

enum { RADIX = 4, FOLD_EDGE = 0, FIRST_EDGE = 1 };

/* The most ranks, up to p, that the rounds can take. */
static uint32_t largest(uint32_t p)
{
    uint32_t power = 1;

    while (power <= p / RADIX) {
        power *= RADIX;
    }
    return p / power * power;
}

/* The rounds of this number among q, from `sum` to OUT; returns the last step. */
static uint32_t multiply(struct hly_builder *b, uint32_t number, uint32_t q, halay_operand_t sum,
                         uint32_t summed, uint32_t slot)
{
    uint32_t folded = b->params.nranks - q, round = 0, read = HLY_NONE;

    for (uint32_t unit = 1; unit < q; unit *= RADIX, round++, slot += RADIX - 1) {
        uint32_t radix = q / unit < RADIX ? q / unit : RADIX, digit = number / unit % radix;
        uint32_t first = number - digit * unit, got = summed, edge = FIRST_EDGE + round;
        halay_operand_t sources[RADIX], landing = hly_scratch(0, 1, slot);
        int last = unit * radix == q, from_out = sum.buffer == HALAY_BUFFER_IN;

        for (uint32_t i = 1; i < radix; i++) {
            uint32_t peer = hly_unfolded(first + (digit + i) % radix * unit, folded);
            uint32_t sent = hly_send(b, peer, edge, sum, summed, HLY_NONE);
            read = b->params.in_place && from_out ? hly_after(b, read, sent) : read;
        }
        sources[digit] = sum;
        for (uint32_t i = 0, n = 0; i < radix; i++) {
            if (i != digit) {
                uint32_t peer = hly_unfolded(first + i * unit, folded);
                sources[i] = hly_scratch(0, 1, slot + n++);
                got = hly_after(b, got, hly_recv(b, peer, edge, sources[i], HLY_NONE, HLY_NONE));
            }
        }
        sum = last ? hly_out(0, 1) : landing;
        summed = hly_reduce_many(b, sum, sources, radix, got, last ? read : HLY_NONE);
    }
    return summed;
}

void hly_recursive_multiplying_allreduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, q = largest(p), folded = p - q;
    uint32_t summed = HLY_NONE;
    halay_operand_t sum = hly_in(0, 1);

    b->blocks = 1;
    if (p == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), sum, HLY_NONE, HLY_NONE);
    }
    if (r >= 2 * folded) {
        multiply(b, r - folded, q, sum, HLY_NONE, 0);
        return;
    }
    if (r % 2 == 1) {
        uint32_t sent = hly_send(b, r - 1, FOLD_EDGE, sum, HLY_NONE, HLY_NONE);
        hly_recv(b, r - 1, FOLD_EDGE, hly_out(0, 1), b->params.in_place ? sent : HLY_NONE,
                 HLY_NONE);
        return;
    }
    halay_operand_t landing = hly_scratch(0, 1, 0);
    uint32_t got = hly_recv(b, r + 1, FOLD_EDGE, landing, HLY_NONE, HLY_NONE);
    summed = hly_reduce(b, landing, sum, landing, got, HLY_NONE);
    summed = multiply(b, r / 2, q, landing, summed, 1);
    hly_send(b, r + 1, FOLD_EDGE, hly_out(0, 1), summed, HLY_NONE);
}
