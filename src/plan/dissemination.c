/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dissemination.c - a barrier of ceil(log2 p) rounds of zero-byte messages.
 *
 * Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, IJPP 17(1), 1988. In round k
 * rank r tells r+2^k what it has heard so far and hears from r-2^k; after round k it has heard from
 * the 2^(k+1)-1 ranks below it. A receive follows the one before, so that a send that follows a
 * receive follows all earlier ones.
 */
#include "builder.h"

void hly_hear_all(struct hly_builder *b, uint32_t edge)
{
    uint32_t heard = HLY_NONE;

    for (uint32_t skip = 1; skip < b->params.nranks; skip *= 2, edge++) {
        hly_send(b, hly_up(b, skip), edge, hly_nothing(), heard, HLY_NONE);
        heard = hly_recv(b, hly_down(b, skip), edge, hly_nothing(), heard, HLY_NONE);
    }
}

void hly_dissemination_barrier(struct hly_builder *b)
{
    b->blocks = 0;
    hly_hear_all(b, 0);
}
