/* SPDX-License-Identifier: Apache-2.0 */
/*
 * knomial.c - broadcast in rounds of radix four, all data in each message: for few bytes.
 *
 * The binomial tree (binomial.c) with more children at a time, for networks on which starting three
 * messages costs less than a second round. Ranks are counted from the root, in base four; a number
 * receives from the one that has its lowest digit that is not 0 cleared, and sends to those that
 * have one more digit below that, the largest subtrees first. All hear from all by messages of
 * radix four.
 */
#include "builder.h"

enum { RADIX = 4, TREE_EDGE = 0, HEAR_EDGE = 1 };

void hly_knomial_broadcast(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, number = hly_down(b, b->params.root), got = HLY_NONE;
    uint64_t unit = 1;

    b->blocks = 1;
    while (unit < p && number / unit % RADIX == 0) {
        unit *= RADIX;
    }
    if (number != 0) {
        uint32_t down = (uint32_t)(number / unit % RADIX * unit);
        got = hly_recv(b, hly_down(b, down), TREE_EDGE, hly_out(0, 1), HLY_NONE, HLY_NONE);
    }
    while (unit /= RADIX) {
        for (uint64_t up = unit; up < RADIX * unit && number + up < p; up += unit) {
            hly_send(b, hly_up(b, (uint32_t)up), TREE_EDGE, hly_out(0, 1), got, HLY_NONE);
        }
    }
    hly_hear_all_by_four(b, HEAR_EDGE);
}
