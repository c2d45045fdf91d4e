/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - neighbours only, each byte sent (p-1)/p times a phase: for many bytes.
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC
 * 69(2), 2009. p ranks, p blocks. Rank r sends to r+1 and receives from r-1.
 *  - Scatter phase, p-1 rounds: in round s rank r sends the partial sum of block r-s-1 and receives
 *    that of block r-s-2, to which it adds its own. Block b is summed along the ring from b+1 on,
 * the partial sum left, the rank's own right, and is complete on rank b.
 *  - Gather phase, p-1 rounds: in round s rank r sends the complete block r-s and receives r-s-1.
 * Received partial sums land in two scratch slots alternately.
 */
#include "builder.h"

/* The steps of one round of a scatter phase, which begins with step 0. */
enum { SEND = 0, RECV = 1, REDUCE = 2, ROUND_STEPS = 3 };

static uint32_t step_of(uint32_t round, uint32_t which)
{
    return round * ROUND_STEPS + which;
}

/* The ring over every `slices`-th part of the data, p blocks each; the slices do not wait for one
 * another, so that one is summed while the next is under way. */
static void allreduce_slice(struct hly_builder *b, uint32_t slice)
{
    uint32_t p = b->params.nranks, r = b->params.rank, base = slice * p;
    uint32_t first_step = b->nsteps, edge = slice * 2 * (p - 1), slot = slice * 2;

    for (uint32_t s = 0; s + 1 < p; s++) {
        uint32_t mine = base + hly_down(b, s + 1), theirs = base + hly_down(b, s + 2);
        halay_operand_t landing = hly_scratch(theirs, 1, slot + s % 2);

        hly_send(b, hly_up(b, 1), edge + s, s == 0 ? hly_in(mine, 1) : hly_out(mine, 1),
                 s == 0 ? HLY_NONE : first_step + step_of(s - 1, REDUCE), HLY_NONE);
        hly_recv(b, hly_down(b, 1), edge + s, landing,
                 s < 2 ? HLY_NONE : first_step + step_of(s - 2, REDUCE), HLY_NONE);
        hly_reduce(b, hly_out(theirs, 1), landing, hly_in(theirs, 1), first_step + step_of(s, RECV),
                   HLY_NONE);
    }
    uint32_t complete = p == 1 ? HLY_NONE : first_step + step_of(p - 2, REDUCE);
    edge += p - 1;
    for (uint32_t s = 0; s + 1 < p; s++) {
        /* The block that comes in was sent from the same memory in round s of the scatter phase. */
        uint32_t reader = s == 0 && !b->params.in_place ? HLY_NONE : first_step + step_of(s, SEND);

        hly_send(b, hly_up(b, 1), edge + s, hly_out(base + (r + p - s) % p, 1), complete, HLY_NONE);
        complete = hly_recv(b, hly_down(b, 1), edge + s, hly_out(base + hly_down(b, s + 1), 1),
                            reader, HLY_NONE);
    }
}

static void allreduce_slices(struct hly_builder *b, uint32_t slices)
{
    b->blocks = slices * b->params.nranks;
    if (b->params.nranks == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, b->blocks), hly_in(0, b->blocks), HLY_NONE, HLY_NONE);
    }
    for (uint32_t slice = 0; slice < slices; slice++) {
        allreduce_slice(b, slice);
    }
}

void hly_ring_allreduce(struct hly_builder *b)
{
    allreduce_slices(b, 1);
}

void hly_sliced_ring_allreduce(struct hly_builder *b)
{
    allreduce_slices(b, 4);
}

void hly_ring_allgather(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, got = HLY_NONE;

    b->blocks = p;
    for (uint32_t s = 0; s + 1 < p; s++) {
        hly_send(b, hly_up(b, 1), s, s == 0 ? hly_in(r, 1) : hly_out(hly_down(b, s), 1), got,
                 HLY_NONE);
        got = hly_recv(b, hly_down(b, 1), s, hly_out(hly_down(b, s + 1), 1), HLY_NONE, HLY_NONE);
    }
    if (!b->params.in_place) {
        hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
    }
}

void hly_ring_reduce_scatter(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, reader = HLY_NONE;

    b->blocks = p;
    if (p == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    if (b->params.in_place && r != 0) {
        /* The result replaces block 0, which one earlier step reads: the only one that waits. */
        reader = r == 1 ? step_of(0, SEND) : step_of(r - 2, REDUCE);
    }
    for (uint32_t s = 0; s + 1 < p; s++) {
        uint32_t mine = hly_down(b, s + 1), theirs = hly_down(b, s + 2);
        halay_operand_t landing = hly_scratch(theirs, 1, s % 2);
        int last = s + 2 == p;

        hly_send(b, hly_up(b, 1), s, s == 0 ? hly_in(mine, 1) : hly_scratch(mine, 1, (s - 1) % 2),
                 s == 0 ? HLY_NONE : step_of(s - 1, REDUCE), HLY_NONE);
        hly_recv(b, hly_down(b, 1), s, landing, s < 2 ? HLY_NONE : step_of(s - 1, SEND), HLY_NONE);
        hly_reduce(b, last ? hly_out(r, 1) : landing, landing, hly_in(theirs, 1), step_of(s, RECV),
                   last ? reader : HLY_NONE);
    }
}
