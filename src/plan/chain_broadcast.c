/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain_broadcast.c - broadcast from each rank to the next, in pieces: many bytes, not many ranks.
 *
 * Watts, van de Geijn: A pipelined broadcast for multidimensional meshes, Parallel Processing
 * Letters 5(2), 1995; on a mesh of one dimension. Ranks are counted from the root. A rank passes a
 * piece on as soon as it has it, so with many more pieces than ranks all bytes go over each link
 * once, and all links are busy. Zero-byte messages beside it let every rank hear from all, as in
 * binomial.c.
 */
#include "builder.h"

enum { PIECES_LEAST = 16, PIECES_MOST = 128, HEAR_EDGE = PIECES_MOST };

void hly_chain_broadcast(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, number = hly_down(b, b->params.root);

    b->blocks = p < PIECES_LEAST / 4 ? PIECES_LEAST : p < PIECES_MOST / 4 ? 4 * p : PIECES_MOST;
    for (uint32_t piece = 0; piece < b->blocks; piece++) {
        uint32_t got = HLY_NONE;

        if (number != 0) {
            got = hly_recv(b, hly_down(b, 1), piece, hly_out(piece, 1), HLY_NONE, HLY_NONE);
        }
        if (number + 1 < p) {
            hly_send(b, hly_up(b, 1), piece, hly_out(piece, 1), got, HLY_NONE);
        }
    }
    hly_hear_all_by_four(b, HEAR_EDGE);
}
