/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_shot.c - everybody sends everything to everybody, in one round: for few ranks, few bytes.
 *
 * The simplest of all. Each rank sums for itself, all in the order of ranks and with the same
 * groups of operands, so all get the same bits and operations need not commute.
 *
 * One block. What rank q sent lands in slot q, or q-1 above the own rank. The running sum stays in
 * the first slot that is summed; only the last step writes OUT, and in place waits for the sends.
 */
#include "builder.h"

enum { SOURCES = 4 };

static halay_operand_t from_rank(const struct hly_builder *b, uint32_t rank)
{
    uint32_t me = b->params.rank;
    return rank == me ? hly_in(0, 1) : hly_scratch(0, 1, rank < me ? rank : rank - 1);
}

void hly_one_shot_allreduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, sent = HLY_NONE;
    uint32_t sum_after = HLY_NONE, next = 1;
    halay_operand_t sum = from_rank(b, 0);

    b->blocks = 1;
    if (p == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    uint32_t first_recv = b->nsteps; /* by slot */
    for (uint32_t rank = 0; rank < p; rank++) {
        if (rank != r) {
            hly_recv(b, rank, 0, from_rank(b, rank), HLY_NONE, HLY_NONE);
        }
    }
    for (uint32_t up = 1; up < p; up++) {
        uint32_t send = hly_send(b, hly_up(b, up), 0, hly_in(0, 1), HLY_NONE, HLY_NONE);
        sent = b->params.in_place ? hly_after(b, sent, send) : HLY_NONE;
    }
    while (next < p) {
        halay_operand_t sources[SOURCES] = {sum};
        uint32_t n = 1, got = next == 1 && r != 0 ? first_recv : HLY_NONE;

        for (; n < SOURCES && next < p; n++, next++) {
            sources[n] = from_rank(b, next);
            if (next != r) {
                got = hly_after(b, got, first_recv + sources[n].slot);
            }
        }
        if (next == p) {
            got = hly_after(b, got, sum_after);
            hly_reduce_many(b, hly_out(0, 1), sources, n, got, sent);
        } else {
            sum = sum.buffer == HALAY_BUFFER_IN ? sources[1] : sum;
            sum_after = hly_reduce_many(b, sum, sources, n, got, sum_after);
        }
    }
}
