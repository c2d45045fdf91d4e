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
    uint32_t p = b->params.nranks, skip = 1;
    uint32_t heard[HLY_ROUNDS_MAX + 1] = {HLY_NONE}; /* the step after which 2^i ranks are heard */

    for (uint32_t round = 0; skip < p; round++, skip *= 2) {
        uint32_t needed = round, last = 2 * skip >= p;

        /* The last round need not tell all if fewer ranks are left. */
        while (needed > 0 && (1u << (needed - 1)) >= p - skip) {
            needed--;
        }
        hly_send(b, hly_up(b, skip), edge + round, hly_nothing(), heard[needed], HLY_NONE);
        heard[round + 1] = hly_recv(b, hly_down(b, skip), edge + round, hly_nothing(),
                                    last ? HLY_NONE : heard[round], HLY_NONE);
    }
}

void hly_dissemination_barrier(struct hly_builder *b)
{
    b->blocks = 0;
    hly_hear_all(b, 0);
}
