/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bruck.c - alltoall in ceil(log2 p) rounds, each byte sent about log2(p)/2 times: for few bytes.
 *
 * Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications in
 * multiport message-passing systems, IEEE TPDS 8(11), 1997. Slot i holds a block that has to go i
 * ranks up: at first IN block r+i. In round k, with d = 2^k, the blocks whose distance has bit k go
 * to r+d, where they take the same slots. In the end slot i holds what rank r-i sent.
 *
 * The blocks of a round stand in groups of d slots. They are packed, sent in one message, received
 * beside and unpacked; those of the last round are one group and need neither. Slots are as large
 * as blocks (HALAY_PLANNER_EQUAL), and the numbers of blocks in them mean nothing. All of IN is
 * copied first, so that it makes no difference whether OUT is the same memory.
 */
#include "builder.h"

/* Blocks of a round: those of p distances that have bit d. */
static uint32_t blocks_with(uint32_t p, uint32_t d)
{
    uint32_t rest = p % (2 * d);

    return p / (2 * d) * d + (rest > d ? rest - d : 0);
}

/* Copies the groups with bit d to (pack) or from the slots from `packed` on, after `last`. */
static uint32_t copy_groups(struct hly_builder *b, uint32_t d, uint32_t packed, int pack,
                            uint32_t last, uint32_t last2)
{
    uint32_t p = b->params.nranks;

    for (uint32_t i = d; i < p; i += 2 * d) {
        uint32_t n = d < p - i ? d : p - i;
        halay_operand_t group = hly_scratch(i, n, i), beside = hly_scratch(i, n, packed);

        last = hly_copy(b, pack ? beside : group, pack ? group : beside, last, last2);
        last2 = HLY_NONE;
        packed += n;
    }
    return last;
}

void hly_bruck_alltoall(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, d = 1, round = 0;
    uint32_t packed = p, beside = p + p / 2, sent = HLY_NONE, own = HLY_NONE;

    b->blocks = p;
    if (p == 1) {
        if (!b->params.in_place) {
            hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
        }
        return;
    }
    uint32_t last = hly_copy(b, hly_scratch(0, p, 0), hly_in(r, p), HLY_NONE, HLY_NONE);
    uint32_t copied = last;
    for (; 2 * d < p; d *= 2, round++) {
        uint32_t n = blocks_with(p, d);

        uint32_t got = hly_recv(b, hly_down(b, d), round, hly_scratch(d, n, beside), own, HLY_NONE);
        last = copy_groups(b, d, packed, 1, last, sent);
        sent = hly_send(b, hly_up(b, d), round, hly_scratch(d, n, packed), last, HLY_NONE);
        own = last = copy_groups(b, d, beside, 0, last, got);
    }
    uint32_t got = hly_recv(b, hly_down(b, d), round, hly_scratch(d, p - d, beside), own, HLY_NONE);
    hly_send(b, hly_up(b, d), round, hly_scratch(d, p - d, d), last, HLY_NONE);
    for (uint32_t i = 0; i < p; i++) {
        uint32_t slot = i < d ? i : beside + i - d;
        hly_copy(b, hly_out(hly_down(b, i), 1), hly_scratch(i, 1, slot), i < d ? last : got,
                 copied);
    }
}
