/* SPDX-License-Identifier: Apache-2.0 */
/*
 * posted.c - a broadcast in slices, each copied once into scratch and sent from there to all
 * (docs/decisions/shared-memory.md#0036): for long data of ranks that share processors.
 *
 * The root sends the last slice when it has heard from all, so that all have when they have that.
 * The others do not wait: two that both take themselves for the root hear of one another.
 */
#include "builder.h"

/* So many messages, each an eager one: with more ranks those are shorter. */
enum { SLICES = 4, SLICES_OF_FEW = 15, SLICES_OF_MANY = 16, FEW = 8 };

static void post(struct hly_builder *b, uint32_t slices)
{
    uint32_t p = b->params.nranks, root = b->params.root, heard = HLY_NONE;

    b->blocks = slices;
    if (b->params.rank != root) {
        hly_send(b, root, 0, hly_nothing(), HLY_NONE, HLY_NONE);
        for (uint32_t i = 0; i < slices; i++) {
            hly_recv(b, root, i, hly_out(i, 1), HLY_NONE, HLY_NONE);
        }
        return;
    }
    for (uint32_t up = 1; up < p; up++) {
        heard =
            hly_after(b, heard, hly_recv(b, hly_up(b, up), 0, hly_nothing(), HLY_NONE, HLY_NONE));
    }
    for (uint32_t i = 0; p > 1 && i < slices; i++) {
        uint32_t posted = hly_copy(b, hly_scratch(i, 1, i), hly_out(i, 1), HLY_NONE, HLY_NONE);
        for (uint32_t up = 1; up < p; up++) {
            hly_send(b, hly_up(b, up), i, hly_scratch(i, 1, i), posted,
                     i + 1 == slices ? heard : HLY_NONE);
        }
    }
}

void hly_posted_broadcast(struct hly_builder *b)
{
    post(b, SLICES);
}

void hly_sliced_posted_broadcast(struct hly_builder *b)
{
    post(b, b->params.nranks > FEW ? SLICES_OF_MANY : SLICES_OF_FEW);
}
