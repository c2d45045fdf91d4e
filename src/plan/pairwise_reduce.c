/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairwise_reduce.c - reduce-scatter with every input sent straight to where it is summed.
 *
 * Pairwise exchange (Thakur, Rabenseifner, Gropp: Optimization of collective communication
 * operations in MPICH, IJHPCA 19(1), 2005). In round s rank r sends block r+s of its input to rank
 * r+s and gets its own from r-s. No partial sum travels, so blocks may lie anywhere, and nothing is
 * rounded on the way.
 *
 * Ranks come in falling order from r-1 on, and after 0 from p-1 on: each goes to the left end of
 * one of two sums, of the ranks up to r and of those above, three at a time. The two are added
 * last: all in the order of ranks, so operations need not commute. The lower sum is made in OUT, in
 * place in the own block of IN, which nobody else wants; the other in slot 0. Groups of three land
 * in slots 1-3 and 4-6 alternately.
 */
#include "builder.h"

enum { HIGH_SLOT = 0, FIRST_SLOT = 1, GROUP = 3, WINDOW = 2 * GROUP };

struct progress {
    uint32_t round, groups;
    uint32_t read[2];      /* who reads the slots of the last groups */
    uint32_t sent[WINDOW]; /* sends of the last rounds: a round waits for the one WINDOW before */
    uint32_t sent_block_0; /* reads the memory that the result goes to in place */
};

/* The send and the receive of the next round; returns the receive. */
static uint32_t exchange(struct hly_builder *b, struct progress *at, uint32_t slot, uint32_t after)
{
    uint32_t s = ++at->round, to = hly_up(b, s), r = b->params.rank;
    uint32_t *sent = &at->sent[s % WINDOW];

    *sent = hly_send(b, to, 0, hly_in(to, 1), *sent, HLY_NONE);
    at->sent_block_0 = to == 0 ? *sent : at->sent_block_0;
    return hly_recv(b, hly_down(b, s), 0, hly_scratch(r, 1, slot), after, HLY_NONE);
}

/* Puts the next n inputs left of *sum, which is complete after `summed`, and has it in `to` then.
 */
static uint32_t prepend(struct hly_builder *b, struct progress *at, uint32_t n,
                        halay_operand_t *sum, uint32_t summed, halay_operand_t to)
{
    while (n > 0) {
        uint32_t now = n < GROUP ? n : GROUP, turn = at->groups++ % 2, got = HLY_NONE;
        halay_operand_t sources[GROUP + 1];

        for (uint32_t i = 0; i < now; i++) {
            uint32_t slot = FIRST_SLOT + turn * GROUP + i;
            sources[now - 1 - i] = hly_scratch(b->params.rank, 1, slot);
            got = hly_after(b, got, exchange(b, at, slot, at->read[turn]));
        }
        sources[now] = *sum;
        *sum = to;
        summed = hly_reduce_many(b, to, sources, now + 1, got, summed);
        at->read[turn] = summed;
        n -= now;
    }
    return summed;
}

void hly_pairwise_reduce_scatter(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, above = p - 1 - r;
    halay_operand_t low = hly_in(r, 1), high = hly_scratch(r, 1, HIGH_SLOT), out = hly_out(r, 1);
    struct progress at = {.read = {HLY_NONE, HLY_NONE}, .sent_block_0 = HLY_NONE};

    b->blocks = p;
    for (uint32_t i = 0; i < WINDOW; i++) {
        at.sent[i] = HLY_NONE;
    }
    uint32_t summed = prepend(b, &at, r, &low, HLY_NONE, b->params.in_place ? low : out);
    if (above > 0) {
        uint32_t summed_high = exchange(b, &at, HIGH_SLOT, HLY_NONE);
        summed_high = prepend(b, &at, above - 1, &high, summed_high, high);
        summed = hly_after(b, summed, summed_high);
        hly_reduce(b, out, low, high, summed, b->params.in_place ? at.sent_block_0 : HLY_NONE);
    } else if (b->params.in_place ? p > 1 : p == 1) {
        hly_copy(b, out, low, summed, at.sent_block_0);
    }
}
