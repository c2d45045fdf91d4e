/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairwise.c - alltoall straight from each rank to each: every byte moves once, p-1 messages.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, IJHPCA
 * 19(1), 2005. In round k rank r sends to r+k and receives from r-k. In place the two that swap
 * blocks must be partners: in round k those whose sum is k modulo p, so each pair meets once; what
 * arrives lands in a slot and is copied when the block it replaces has left. Rounds are not in
 * lockstep: WINDOW of them may be under way. Each rank hears from each directly.
 *
 * "checked" adds a dissemination after the last receive. In an alltoallv only the receiver knows
 * that a message has not the length it should have; without it, others would have returned by then.
 */
#include "builder.h"

enum { WINDOW = 4 };

/* Returns in last[] the ends of the WINDOW chains of steps, HLY_NONE where there are fewer. */
static void swap_blocks(struct hly_builder *b, uint32_t last[WINDOW])
{
    uint32_t p = b->params.nranks, r = b->params.rank, n = 0;

    for (uint32_t k = 0; k < p; k++) {
        uint32_t other = (k + p - r) % p, i = n % WINDOW;

        if (other == r) {
            continue;
        }
        halay_operand_t landing = hly_scratch(other, 1, i);
        uint32_t sent = hly_send(b, other, 0, hly_out(other, 1), last[i], HLY_NONE);
        uint32_t got = hly_recv(b, other, 0, landing, last[i], HLY_NONE);
        last[i] = hly_copy(b, hly_out(other, 1), landing, sent, got);
        n++;
    }
}

/* The same of the chains of receives. */
static void exchange(struct hly_builder *b, uint32_t last[WINDOW])
{
    uint32_t p = b->params.nranks, r = b->params.rank, sent[WINDOW];

    b->blocks = p;
    for (uint32_t i = 0; i < WINDOW; i++) {
        last[i] = sent[i] = HLY_NONE;
    }
    if (b->params.in_place) {
        swap_blocks(b, last);
        return;
    }
    for (uint32_t k = 1; k < p; k++) {
        uint32_t to = hly_up(b, k), from = hly_down(b, k), i = k % WINDOW;

        sent[i] = hly_send(b, to, 0, hly_in(to, 1), sent[i], HLY_NONE);
        last[i] = hly_recv(b, from, 0, hly_out(from, 1), last[i], HLY_NONE);
    }
    hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
}

void hly_pairwise_alltoall(struct hly_builder *b)
{
    uint32_t last[WINDOW];

    exchange(b, last);
}

void hly_checked_alltoall(struct hly_builder *b)
{
    struct hly_team all = hly_team_of_all(b);
    uint32_t last[WINDOW], done[2];

    exchange(b, last);
    for (uint32_t i = 1; i < WINDOW; i++) {
        last[0] = hly_after(b, last[0], last[i]);
    }
    hly_hear_team(b, &all, last[0], 1, done);
}
