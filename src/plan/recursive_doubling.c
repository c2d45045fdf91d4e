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
 * One block. What is received lands in slots 0 and 1 alternately; the running sum moves between
 * slot 2 and OUT so that a round's sum does not wait for that round's send. Where a round
 * overwrites the sum that the round before has sent, its receive follows that send.
 */
#include "builder.h"

enum { SUM_SLOT = 2 };

/* The memory that an operand is in, as one number for IN and OUT where they are the same. */
static uint32_t memory_of(const struct hly_builder *b, const halay_operand_t *operand)
{
    int same = b->params.in_place && operand->buffer == HALAY_BUFFER_IN;
    return same ? HALAY_BUFFER_OUT : operand->buffer;
}

static uint32_t folded_away(struct hly_builder *b, uint32_t even, halay_operand_t input,
                            uint32_t start, uint32_t edge)
{
    uint32_t sent = hly_send(b, even, edge, input, start, HLY_NONE);
    int same = memory_of(b, &input) == HALAY_BUFFER_OUT;

    return hly_recv(b, even, edge, hly_out(0, 1), same ? sent : HLY_NONE, HLY_NONE);
}

uint32_t hly_doubling(struct hly_builder *b, const struct hly_team *team, halay_operand_t input,
                      uint32_t start, uint32_t edge, uint32_t slot)
{
    uint32_t n = team->n, me = team->me, q = 1, rounds = 0;
    for (; q <= n / 2; q *= 2) {
        rounds++;
    }
    uint32_t folded = n - q, folds = me < 2 * folded;
    if (folds && me % 2 == 1) {
        return folded_away(b, hly_team_rank(team, me - 1), input, start, edge);
    }
    uint32_t number = folds ? me / 2 : me - folded, all = rounds + folds;
    uint32_t sent = HLY_NONE;
    uint32_t sums[2] = {HLY_NONE, start}; /* of the round before last, and last */
    uint32_t sent_from = HALAY_BUFFER_IN; /* whose memory the last send reads */
    halay_operand_t sum = input;

    for (uint32_t round = 0; round < all; round++) {
        uint32_t bit = round - folds, fold = folds && round == 0;
        uint32_t other = fold ? 0 : number ^ (1u << bit), left = fold || number < other;
        uint32_t peer = hly_team_rank(team, fold ? me + 1 : hly_unfolded(other, folded));
        uint32_t this_edge = edge + (fold ? 0 : bit + 1), to_out = (all - round) % 2;
        halay_operand_t got = hly_scratch(0, 1, slot + round % 2);
        halay_operand_t next = to_out ? hly_out(0, 1) : hly_scratch(0, 1, slot + SUM_SLOT);

        uint32_t before = next.buffer == sent_from ? sent : HLY_NONE;
        if (!fold) {
            sent = hly_send(b, peer, this_edge, sum, sums[1], HLY_NONE);
            sent_from = memory_of(b, &sum);
        }
        uint32_t landed = hly_recv(b, peer, this_edge, got, sums[0], before);
        uint32_t reader = round == 0 && !fold && next.buffer == sent_from ? sent : sums[1];
        sums[0] = round == 0 ? HLY_NONE : sums[1]; /* nobody reads what lands before round 0 */
        sums[1] = hly_reduce(b, next, left ? sum : got, left ? got : sum, landed, reader);
        sum = next;
    }
    if (folds) {
        hly_send(b, hly_team_rank(team, me + 1), edge, hly_out(0, 1), sums[1], HLY_NONE);
    }
    return sums[1];
}

void hly_recursive_doubling_allreduce(struct hly_builder *b)
{
    struct hly_team all = hly_team_of_all(b);

    b->blocks = 1;
    hly_doubling(b, &all, hly_in(0, 1), HLY_NONE, 0, 0);
    if (b->params.nranks == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
}
