/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_shot_allgather.c - every block straight to every rank, in one round: for few ranks, and for
 * ranks that share a node, where no link is busy with what it hands on.
 *
 * Each block is read in IN, so that no message waits for another; each rank hears from each.
 */
#include "builder.h"

void hly_one_shot_allgather(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank;

    b->blocks = p;
    for (uint32_t up = 1; up < p; up++) {
        uint32_t from = hly_down(b, up);

        hly_send(b, hly_up(b, up), 0, hly_in(r, 1), HLY_NONE, HLY_NONE);
        hly_recv(b, from, 0, hly_out(from, 1), HLY_NONE, HLY_NONE);
    }
    if (!b->params.in_place) {
        hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
    }
}
