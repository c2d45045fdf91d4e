/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recursive_doubling.c - all data in every round, fewest rounds: for few bytes.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, IJHPCA
 * 19(1), 2005. With q the largest power of two in p, the first p-q pairs of ranks (0,1), (2,3) ...
 * fold: the odd rank hands its input to the even one and gets the result at the end. The q ranks
 * left exchange with the number that differs in bit 0, then 1, 2 ... Whoever is lower gives the
 * left operand, so all ranks evaluate the same tree, over the ranks in their order: operations need
 * not commute.
 *
 * One block. What is received lands in slots 0 and 1 by turns; the running sum moves between slot 2
 * and OUT so that a round's sum does not wait for that round's send. Where a round
 * overwrites the sum that the round before has sent, its receive follows that send.
 */
#include "builder.h"

enum { SUM_SLOT = 2 };

static uint32_t number_to_rank(uint32_t number, uint32_t folded)
{
    return number < folded ? 2 * number : number + folded;
}

static void folded_away(struct hly_builder *b)
{
    uint32_t even = b->params.rank - 1;
    uint32_t sent = hly_send(b, even, 0, hly_in(0, 1), HLY_NONE, HLY_NONE);

    hly_recv(b, even, 0, hly_out(0, 1), b->params.in_place ? sent : HLY_NONE, HLY_NONE);
}

void hly_recursive_doubling_allreduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, q = 1, rounds = 0;
    for (; q <= p / 2; q *= 2) {
        rounds++;
    }
    uint32_t folded = p - q, folds = r < 2 * folded;
    b->blocks = 1;
    if (folds && r % 2 == 1) {
        folded_away(b);
        return;
    }
    uint32_t number = folds ? r / 2 : r - folded, all = rounds + folds;
    uint32_t sent = HLY_NONE,
             sums[2] = {HLY_NONE, HLY_NONE}; /* of the round before last, and last */
    uint32_t in_memory = b->params.in_place ? HALAY_BUFFER_OUT : HALAY_BUFFER_IN;
    uint32_t sent_from = HALAY_BUFFER_IN; /* whose memory the last send reads */
    halay_operand_t sum = hly_in(0, 1);

    for (uint32_t round = 0; round < all; round++) {
        uint32_t bit = round - folds, fold = folds && round == 0;
        uint32_t other = fold ? 0 : number ^ (1u << bit), left = fold || number < other;
        uint32_t peer = fold ? r + 1 : number_to_rank(other, folded), edge = fold ? 0 : bit + 1;
        uint32_t to_out = (all - round) % 2;
        halay_operand_t got = hly_scratch(0, 1, round % 2);
        halay_operand_t next = to_out ? hly_out(0, 1) : hly_scratch(0, 1, SUM_SLOT);

        uint32_t before = next.buffer == sent_from ? sent : HLY_NONE;
        if (!fold) {
            sent = hly_send(b, peer, edge, sum, sums[1], HLY_NONE);
            sent_from = sum.buffer == HALAY_BUFFER_IN ? in_memory : sum.buffer;
        }
        uint32_t landed = hly_recv(b, peer, edge, got, sums[0], before);
        uint32_t reader = round == 0 && !fold && next.buffer == sent_from ? sent : sums[1];
        sums[0] = sums[1];
        sums[1] = hly_reduce(b, next, left ? sum : got, left ? got : sum, landed, reader);
        sum = next;
    }
    if (folds) {
        hly_send(b, r + 1, 0, hly_out(0, 1), sums[1], HLY_NONE);
    }
    if (p == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
}
