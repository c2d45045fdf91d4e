/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binomial.c - broadcast in ceil(log2 p) rounds, all data in each: for few bytes or few ranks.
 *
 * The classical tree (Chan, Heimlich, Purkayastha, van de Geijn: Collective communication, CCPE 19,
 * 2007). Ranks are counted from the root; number n receives from n without its lowest bit, and
 * sends to n plus each smaller power of two, the largest subtree first. Beside the tree, and not
 * waiting for it, zero-byte messages spread what each rank knows to all, so that no rank returns
 * before it has heard from every other.
 */
#include "builder.h"

enum { TREE_EDGE = 0, HEAR_EDGE = 1 };

void hly_binomial_broadcast(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, root = b->params.root;
    uint32_t number = (b->params.rank + p - root) % p, bit = 1, got = HLY_NONE, done[2];
    struct hly_team all = hly_team_of_all(b);

    b->blocks = 1;
    while (bit < p && !(number & bit)) {
        bit *= 2;
    }
    if (number != 0) {
        got = hly_recv(b, (number - bit + root) % p, TREE_EDGE, hly_out(0, 1), HLY_NONE, HLY_NONE);
    }
    while (bit /= 2) {
        if (number + bit < p) {
            hly_send(b, (number + bit + root) % p, TREE_EDGE, hly_out(0, 1), got, HLY_NONE);
        }
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}
