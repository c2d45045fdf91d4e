/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairwise.c - alltoall straight from each rank to each: every byte moves once, p-1 messages.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, IJHPCA
 * 19(1), 2005. In round k rank r sends to r+k and receives from r-k. In place the two that swap
 * blocks must be partners: in round k those whose sum is k modulo p, so each pair meets once; what
 * arrives lands in a slot and is copied when the block it replaces has left. Rounds are not in
 * lockstep: WINDOW of them may be under way. Each rank hears from each directly.
 */
#include "builder.h"

enum { WINDOW = 4 };

static void swap_blocks(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, n = 0;
    uint32_t copied[WINDOW];

    for (uint32_t k = 0; k < p; k++) {
        uint32_t other = (k + p - r) % p, i = n % WINDOW;

        if (other == r) {
            continue;
        }
        halay_operand_t landing = hly_scratch(other, 1, i);
        uint32_t before = n < WINDOW ? HLY_NONE : copied[i];
        uint32_t sent = hly_send(b, other, 0, hly_out(other, 1), before, HLY_NONE);
        uint32_t got = hly_recv(b, other, 0, landing, before, HLY_NONE);
        copied[i] = hly_copy(b, hly_out(other, 1), landing, sent, got);
        n++;
    }
}

void hly_pairwise_alltoall(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank;
    uint32_t sent[WINDOW], got[WINDOW];

    b->blocks = p;
    if (b->params.in_place) {
        swap_blocks(b);
        return;
    }
    for (uint32_t k = 1; k < p; k++) {
        uint32_t to = hly_up(b, k), from = hly_down(b, k), i = k % WINDOW, full = k > WINDOW;

        sent[i] = hly_send(b, to, 0, hly_in(to, 1), full ? sent[i] : HLY_NONE, HLY_NONE);
        got[i] = hly_recv(b, from, 0, hly_out(from, 1), full ? got[i] : HLY_NONE, HLY_NONE);
    }
    hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
}
