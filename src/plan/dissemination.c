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

void hly_hear_team(struct hly_builder *b, const struct hly_team *team, uint32_t start,
                   uint32_t edge, uint32_t done[2])
{
    uint32_t n = team->n, skip = 1;
    uint32_t heard[HLY_ROUNDS_MAX + 1] = {start}; /* the step after which 2^i are heard */

    done[0] = done[1] = start;
    for (uint32_t round = 0; skip < n; round++, skip *= 2) {
        uint32_t needed = round, last = 2 * skip >= n;

        /* The last round need not tell all if fewer are left. */
        while (needed > 0 && (1u << (needed - 1)) >= n - skip) {
            needed--;
        }
        hly_send(b, hly_team_rank(team, team->me + skip), edge + round, hly_nothing(),
                 heard[needed], HLY_NONE);
        heard[round + 1] = hly_recv(b, hly_team_rank(team, team->me + n - skip), edge + round,
                                    hly_nothing(), last ? HLY_NONE : heard[round], HLY_NONE);
        done[0] = heard[round];
        done[1] = heard[round + 1];
    }
}

void hly_dissemination_barrier(struct hly_builder *b)
{
    struct hly_team all = hly_team_of_all(b);
    uint32_t done[2];

    b->blocks = 0;
    hly_hear_team(b, &all, HLY_NONE, 0, done);
}
