/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allgather_doubling.c - allgather in ceil(log2 p) rounds, for any number of ranks: for small
 * blocks.
 *
 * Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications in
 * multiport message-passing systems, IEEE TPDS 8(11), 1997. With w blocks from its own on, a rank
 * sends them to the rank w below and gets the next w from the one w above. A run of blocks wraps at
 * the end of OUT, so nothing has to be turned round in the end.
 *
 * recursive doubling, for a power of two: the rank that differs in one bit gets all that one has.
 * Runs never wrap, and partners are the same both ways.
 */
#include "builder.h"

/* The own block: sent from IN, and copied to OUT apart from that. Returns who puts it there. */
static uint32_t own_block(struct hly_builder *b)
{
    uint32_t r = b->params.rank;

    b->blocks = b->params.nranks;
    return b->params.in_place ? HLY_NONE
                              : hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
}

void hly_bruck_allgather(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, ready = own_block(b), n;

    for (uint32_t have = 1, round = 0; have < p; have += n, round++) {
        int first = have == 1;
        n = have < p - have ? have : p - have;
        hly_send(b, hly_down(b, have), round, first ? hly_in(r, 1) : hly_out(r, n),
                 first ? HLY_NONE : ready, HLY_NONE);
        uint32_t got =
            hly_recv(b, hly_up(b, have), round, hly_out(hly_up(b, have), n), HLY_NONE, HLY_NONE);
        ready = hly_after(b, ready, got);
    }
}

void hly_recursive_doubling_allgather(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, ready = own_block(b);

    for (uint32_t have = 1; have < p; have *= 2) {
        uint32_t peer = r ^ have, mine = r - r % have, theirs = peer - peer % have;
        int first = have == 1;

        hly_send(b, peer, 0, first ? hly_in(r, 1) : hly_out(mine, have), first ? HLY_NONE : ready,
                 HLY_NONE);
        uint32_t got = hly_recv(b, peer, 0, hly_out(theirs, have), HLY_NONE, HLY_NONE);
        ready = hly_after(b, ready, got);
    }
}
