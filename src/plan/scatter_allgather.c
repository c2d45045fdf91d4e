/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter_allgather.c - broadcast as a scatter and an allgather: many bytes or ranks.
 *
 * van de Geijn's algorithm (Barnett, Gupta, Payne, Shuler, van de Geijn, Watts: Interprocessor
 * collective communication library, SHPCC 1994), with the gather phase of circulant.c, for any
 * number of ranks. p blocks. The scatter follows the binomial tree, counted from the root: a rank
 * gets the run of blocks of all that are below it, its own first. The gather phase then gives every
 * rank every block, some for the second time; those are received after they were passed on. It is
 * also how all hear from all.
 *
 * Before it has anything to pass on, each rank tells its neighbour below that it has called: else
 * ranks of which each takes another one for the root would only listen.
 */
#include "builder.h"

enum { TREE_EDGE = 0 };

void hly_scatter_allgather_broadcast(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, bit = 1, got = HLY_NONE, sent = HLY_NONE;
    uint32_t number = hly_down(b, b->params.root);
    struct hly_circulant c;

    hly_circulant_init(&c, p);
    b->blocks = p;
    if (p > 1) {
        hly_send(b, hly_down(b, 1), 2 * c.rounds, hly_nothing(), HLY_NONE, HLY_NONE);
    }
    while (bit < p && !(number & bit)) {
        bit *= 2;
    }
    if (number != 0) {
        uint32_t below = p - number < bit ? p - number : bit;
        got = hly_recv(b, hly_down(b, bit), TREE_EDGE, hly_out(r, below), HLY_NONE, HLY_NONE);
    }
    while (bit /= 2) {
        if (number + bit < p) {
            uint32_t left = p - number - bit, below = left < bit ? left : bit;
            uint32_t step = hly_send(b, hly_up(b, bit), TREE_EDGE, hly_out(hly_up(b, bit), below),
                                     got, HLY_NONE);
            sent = hly_after(b, sent, step);
        }
    }
    if (p > 1) {
        hly_recv(b, hly_up(b, 1), 2 * c.rounds, hly_nothing(), HLY_NONE, HLY_NONE);
    }
    for (uint32_t k = 0; k < c.rounds; k++) {
        c.sent[k] = sent;
    }
    hly_circulant_gather(b, &c, got);
}
