/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c - every input straight to the rank that sums it, every sum straight to all: two rounds,
 * for ranks that share memory, and perhaps processors: whoever runs does all of its work.
 *
 * p blocks, of which rank r sums block r: its own input, then those of r-1, r-2 and so on, after 0
 * those of p-1 and down. All is sent from scratch: memory that is used again and again, and that a
 * transport could lend to peers (docs/decisions/0036), so that the sum is not copied for each.
 * Each input that comes has a slot of its own, so that no message waits for a place.
 */
#include "builder.h"

/* The plan over every `slices`-th part of the data: more messages of one size a round. Slots of a
 * slice: the sum, p-1 inputs for others, p-1 that come. */
struct slice {
    uint32_t first; /* block */
    uint32_t slot;
    uint32_t edge;   /* of the inputs; the sums have the one after it */
    uint32_t posted; /* the step that copies the first input; a send, and the others follow */
};

enum { POST_STEPS = 2 };

static void post_input(struct hly_builder *b, uint32_t to, uint32_t block, uint32_t edge,
                       uint32_t slot)
{
    halay_operand_t post = hly_scratch(block, 1, slot);
    uint32_t posted = hly_copy(b, post, hly_in(block, 1), HLY_NONE, HLY_NONE);
    hly_send(b, to, edge, post, posted, HLY_NONE);
}

static void post_inputs(struct hly_builder *b, const struct slice *slice)
{
    for (uint32_t up = 1; up < b->params.nranks; up++) {
        uint32_t to = hly_up(b, up);
        post_input(b, to, slice->first + to, slice->edge, slice->slot + up);
    }
}

static void sum_own(struct hly_builder *b, const struct slice *slice)
{
    uint32_t p = b->params.nranks, own = slice->first + b->params.rank, summed = HLY_NONE;
    halay_operand_t sum = hly_scratch(own, 1, slice->slot), left = hly_in(own, 1);

    for (uint32_t down = 1; down < p; down++) {
        halay_operand_t landing = hly_scratch(own, 1, slice->slot + p - 1 + down);
        uint32_t got = hly_recv(b, hly_down(b, down), slice->edge, landing, HLY_NONE, HLY_NONE);
        summed = hly_reduce(b, sum, left, landing, got, summed);
        left = sum;
    }
    for (uint32_t up = 1; up < p; up++) {
        hly_send(b, hly_up(b, up), slice->edge + 1, sum, summed, HLY_NONE);
    }
    hly_copy(b, hly_out(own, 1), sum, summed, HLY_NONE);
}

/* In place a sum comes to where the input for its rank was. */
static void take_sums(struct hly_builder *b, const struct slice *slice)
{
    for (uint32_t up = 1; up < b->params.nranks; up++) {
        uint32_t from = hly_up(b, up), posted = slice->posted + (up - 1) * POST_STEPS;
        hly_recv(b, from, slice->edge + 1, hly_out(slice->first + from, 1),
                 b->params.in_place ? posted : HLY_NONE, HLY_NONE);
    }
}

static void direct(struct hly_builder *b, uint32_t nslices)
{
    struct slice slices[HALAY_PLAN_SLICES_MAX];
    uint32_t p = b->params.nranks;

    b->blocks = nslices * p;
    if (p == 1) {
        if (!b->params.in_place) {
            hly_copy(b, hly_out(0, b->blocks), hly_in(0, b->blocks), HLY_NONE, HLY_NONE);
        }
        return;
    }
    for (uint32_t i = 0; i < nslices; i++) {
        slices[i] = (struct slice){
            .first = i * p, .slot = i * (2 * p - 1), .edge = 2 * i, .posted = b->nsteps};
        post_inputs(b, &slices[i]);
    }
    for (uint32_t i = 0; i < nslices; i++) {
        sum_own(b, &slices[i]);
    }
    for (uint32_t i = 0; i < nslices; i++) {
        take_sums(b, &slices[i]);
    }
}

void hly_direct_allreduce(struct hly_builder *b)
{
    direct(b, 1);
}

/* So many slices that few ranks' segments are nearly as long as those of many. */
void hly_sliced_direct_allreduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks;
    direct(b, p <= 4 ? 2 : 1);
}

/* One block for each rank. In place the result goes to where the input for rank 0 was. */
void hly_direct_reduce_scatter(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, summed = HLY_NONE, read = HLY_NONE;
    halay_operand_t out = hly_out(r, 1), left = hly_in(r, 1);
    halay_operand_t sum = b->params.in_place ? hly_scratch(r, 1, 0) : out;

    b->blocks = p;
    if (p == 1 && !b->params.in_place) {
        hly_copy(b, out, left, HLY_NONE, HLY_NONE);
    }
    for (uint32_t up = 1; up < p; up++) {
        uint32_t to = hly_up(b, up);
        read = to == 0 && b->params.in_place ? b->nsteps : read;
        post_input(b, to, to, 0, up);
    }
    for (uint32_t down = 1; down < p; down++) {
        halay_operand_t landing = hly_scratch(r, 1, p - 1 + down);
        uint32_t got = hly_recv(b, hly_down(b, down), 0, landing, HLY_NONE, HLY_NONE);
        if (down + 1 == p) {
            summed = hly_after(b, summed, read);
            sum = out;
        }
        summed = hly_reduce(b, sum, left, landing, got, summed);
        left = sum;
    }
}
