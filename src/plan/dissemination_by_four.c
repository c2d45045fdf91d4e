/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dissemination_by_four.c - a barrier of ceil(log4 p) rounds of zero-byte messages.
 *
 * n-way dissemination (Hoefler, Mehlan, Mietke, Rehm: Fast barrier synchronization for InfiniBand,
 * IPDPS 2006): in round k rank r tells r + 4^k, r + 2*4^k and r + 3*4^k what it has heard so far,
 * and hears from as far below. After round k it has heard from 4^(k+1)-1 ranks below it.
 */
#include "builder.h"

enum { RADIX = 4 };

uint32_t hly_hear_all_by_four(struct hly_builder *b, uint32_t edge)
{
    uint32_t p = b->params.nranks, heard = HLY_NONE;

    for (uint64_t unit = 1; unit < p; unit *= RADIX, edge++) {
        uint32_t got = heard;

        for (uint64_t far = unit; far < RADIX * unit && far < p; far += unit) {
            hly_send(b, hly_up(b, (uint32_t)far), edge, hly_nothing(), heard, HLY_NONE);
        }
        for (uint64_t far = unit; far < RADIX * unit && far < p; far += unit) {
            uint32_t from = hly_down(b, (uint32_t)far);
            got = hly_after(b, got, hly_recv(b, from, edge, hly_nothing(), HLY_NONE, HLY_NONE));
        }
        heard = got;
    }
    return heard;
}

void hly_dissemination_by_four_barrier(struct hly_builder *b)
{
    b->blocks = 0;
    hly_hear_all_by_four(b, 0);
}
