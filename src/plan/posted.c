/* SPDX-License-Identifier: Apache-2.0 */
/*
 * posted.c - what goes to all is written once into scratch, and sent from there
 * (docs/decisions/0036): for long blocks of ranks that share a node.
 *
 * Of a broadcast the root posts slices; the last of them when it has heard from all, so that all
 * have when they have that. The others do not wait: two that both take themselves for the root hear
 * of one another.
 *
 * Of an alltoall nothing goes to two, but there too what is written is memory that is used again
 * and again, and all that is written has been before anything has to come.
 */
#include "builder.h"

enum { POST_STEPS = 2 }; /* a copy and a send */
/* So many messages, each an eager one: with more ranks those are shorter. */
enum { SLICES = 4, SLICES_OF_FEW = 15, SLICES_OF_MANY = 16, FEW = 8 };

void hly_posted_allgather(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank;
    halay_operand_t post = hly_scratch(r, 1, 0);

    b->blocks = p;
    uint32_t posted = p > 1 ? hly_copy(b, post, hly_in(r, 1), HLY_NONE, HLY_NONE) : HLY_NONE;
    for (uint32_t up = 1; up < p; up++) {
        hly_send(b, hly_up(b, up), 0, post, posted, HLY_NONE);
    }
    for (uint32_t up = 1; up < p; up++) {
        uint32_t from = hly_up(b, up);
        hly_recv(b, from, 0, hly_out(from, 1), HLY_NONE, HLY_NONE);
    }
    if (!b->params.in_place) {
        hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
    }
}

/* In place a block comes to where the one for its rank was. */
void hly_posted_alltoall(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, first = b->nsteps;

    b->blocks = p;
    for (uint32_t up = 1; up < p; up++) {
        uint32_t to = hly_up(b, up);
        halay_operand_t post = hly_scratch(to, 1, up - 1);
        uint32_t posted = hly_copy(b, post, hly_in(to, 1), HLY_NONE, HLY_NONE);
        hly_send(b, to, 0, post, posted, HLY_NONE);
    }
    for (uint32_t down = 1; down < p; down++) {
        uint32_t from = hly_down(b, down), posted = first + (p - down - 1) * POST_STEPS;
        hly_recv(b, from, 0, hly_out(from, 1), b->params.in_place ? posted : HLY_NONE, HLY_NONE);
    }
    if (!b->params.in_place) {
        hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
    }
}

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
