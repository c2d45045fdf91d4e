/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c - reduce, scan and exscan from neighbour to neighbour, block after block: for many bytes
 * and few ranks. Each rank sends and receives the vector at most once and sums it at most once (the
 * root of a reduce twice), all of them at the same time except for the way along the chain.
 *
 * The classical pipeline (Chan, Heimlich, Purkayastha, van de Geijn: Collective communication, CCPE
 * 19, 2007). Ranks stand in their order, so operations need not commute. A reduce has two chains:
 * one up to the root, one down to it. Beside them each rank hears from all (dissemination.c).
 * What arrives lands in two slots alternately.
 */
#include "builder.h"

enum { BLOCKS = 8, HEAR_EDGE = BLOCKS };

/* Block j from the neighbour below (or above); what it lands in is free after `free`. */
static uint32_t land(struct hly_builder *b, int below, uint32_t j, halay_operand_t to,
                     uint32_t free)
{
    uint32_t r = b->params.rank;
    return hly_recv(b, below ? r - 1 : r + 1, j, to, free, HLY_NONE);
}

/*
 * The root: OUT = what comes from below OP own OP what comes from above. used[]: the last to use
 * the slots of even and of odd blocks.
 */
static void root_of_chains(struct hly_builder *b, uint32_t j, uint32_t used[2])
{
    uint32_t r = b->params.rank, last = r + 1 == b->params.nranks, n = 0;
    halay_operand_t sources[3], slots[2] = {hly_scratch(j, 1, j % 2), hly_scratch(j, 1, 2 + j % 2)};
    uint32_t got[2] = {HLY_NONE, HLY_NONE};

    if (r > 0) {
        got[0] = land(b, 1, j, slots[0], used[j % 2]);
        sources[n++] = slots[0];
    }
    sources[n++] = hly_in(j, 1);
    if (!last) {
        slots[1].slot = (r > 0 ? 2 : 0) + j % 2;
        got[1] = land(b, 0, j, slots[1], used[j % 2]);
        sources[n++] = slots[1];
    }
    if (n > 1) {
        used[j % 2] = hly_reduce_many(b, hly_out(j, 1), sources, n, got[0], got[1]);
    } else if (!b->params.in_place) {
        hly_copy(b, hly_out(j, 1), hly_in(j, 1), HLY_NONE, HLY_NONE);
    }
}

void hly_chain_reduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, root = b->params.root, done[2];
    int up = r < root, first = r == 0 || r + 1 == p; /* of its chain, if not the root */
    uint32_t to = up ? r + 1 : r - 1;
    uint32_t used[2] = {HLY_NONE, HLY_NONE};
    struct hly_team all = hly_team_of_all(b);

    b->blocks = BLOCKS;
    for (uint32_t j = 0; j < BLOCKS; j++) {
        halay_operand_t slot = hly_scratch(j, 1, j % 2), own = hly_in(j, 1);

        if (r == root) {
            root_of_chains(b, j, used);
        } else if (first) {
            hly_send(b, to, j, own, HLY_NONE, HLY_NONE);
        } else {
            uint32_t got = land(b, up, j, slot, used[j % 2]);
            uint32_t sum = hly_reduce(b, slot, up ? slot : own, up ? own : slot, got, HLY_NONE);
            used[j % 2] = hly_send(b, to, j, slot, sum, HLY_NONE);
        }
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}

void hly_chain_scan(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, done[2];
    uint32_t used[2] = {HLY_NONE, HLY_NONE};
    struct hly_team all = hly_team_of_all(b);

    b->blocks = BLOCKS;
    for (uint32_t j = 0; j < BLOCKS; j++) {
        halay_operand_t slot = hly_scratch(j, 1, j % 2);
        uint32_t sum = HLY_NONE;

        if (r > 0) {
            uint32_t got = land(b, 1, j, slot, used[j % 2]);
            sum = hly_reduce(b, hly_out(j, 1), slot, hly_in(j, 1), got, HLY_NONE);
            used[j % 2] = sum;
        } else if (!b->params.in_place) {
            hly_copy(b, hly_out(j, 1), hly_in(j, 1), HLY_NONE, HLY_NONE);
        }
        if (r + 1 < p) {
            hly_send(b, r + 1, j, r > 0 ? hly_out(j, 1) : hly_in(j, 1), sum, HLY_NONE);
        }
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}

/* Block j of a rank that is not the first: the sums without and with its input. */
static void link_of_exscan(struct hly_builder *b, uint32_t j, uint32_t used[2])
{
    uint32_t r = b->params.rank, sends = r + 1 < b->params.nranks, in_place = b->params.in_place;
    halay_operand_t sum = hly_scratch(j, 1, j % 2), out = hly_out(j, 1);
    halay_operand_t got = in_place && sends ? hly_scratch(j, 1, 2 + j % 2) : out;
    uint32_t landed = land(b, 1, j, got, in_place && sends ? used[j % 2] : HLY_NONE);

    if (!sends) {
        return;
    }
    landed = hly_reduce(b, sum, got, hly_in(j, 1), landed, in_place ? HLY_NONE : used[j % 2]);
    used[j % 2] = hly_send(b, r + 1, j, sum, landed, HLY_NONE);
    if (in_place) {
        landed = hly_copy(b, out, got, landed, HLY_NONE);
        used[j % 2] = hly_after(b, used[j % 2], landed);
    }
}

void hly_chain_exscan(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, done[2];
    uint32_t used[2] = {HLY_NONE, HLY_NONE};
    struct hly_team all = hly_team_of_all(b);

    b->blocks = BLOCKS;
    for (uint32_t j = 0; j < BLOCKS; j++) {
        if (r > 0) {
            link_of_exscan(b, j, used);
        } else if (p > 1) {
            hly_send(b, 1, j, hly_in(j, 1), HLY_NONE, HLY_NONE);
        }
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}
