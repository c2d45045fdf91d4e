/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binomial_blocks.c - gather and scatter along a binomial tree: ceil(log2 p) rounds, for few bytes.
 *
 * The classical tree (Chan, Heimlich, Purkayastha, van de Geijn: Collective communication, CCPE 19,
 * 2007). Ranks are counted from the root; the tree below number n is n and the numbers after it, as
 * many as n's lowest bit says. So a subtree's blocks follow one another, round the end, and go
 * along each edge in one message. A rank on the way keeps them in SCRATCH, block by block in slots
 * of their size (HALAY_PLANNER_EQUAL), its own first. Beside the tree each rank hears from all.
 */
#include "builder.h"

enum { TREE_EDGE = 0, HEAR_EDGE = 1 };

/* A rank's place in the tree. */
struct place {
    uint32_t size; /* ranks below it and itself */
    uint32_t top;  /* first power of two that is no distance to a child */
    uint32_t parent;
};

static struct place place_of(const struct hly_builder *b)
{
    uint32_t p = b->params.nranks, number = hly_down(b, b->params.root), bit = 1;

    while (bit < p && !(number & bit)) {
        bit *= 2;
    }
    uint32_t left = p - number;
    return (struct place){bit < left ? bit : left, bit, hly_down(b, bit)};
}

static uint32_t below_child(const struct place *at, uint32_t bit)
{
    return bit < at->size - bit ? bit : at->size - bit;
}

/* The blocks of this rank's child at distance `bit`, in `full` at the root, else in SCRATCH. */
static halay_operand_t blocks_of(const struct hly_builder *b, const struct place *at, uint32_t bit,
                                 uint32_t full)
{
    uint32_t first = hly_up(b, bit), count = below_child(at, bit);

    return b->params.rank == b->params.root ? hly_run(full, first, count)
                                            : hly_scratch(first, count, bit);
}

void hly_binomial_gather(struct hly_builder *b)
{
    uint32_t r = b->params.rank, done[2];
    struct place at = place_of(b);
    struct hly_team all = hly_team_of_all(b);
    uint32_t have = HLY_NONE;
    int leaf = at.size == 1, is_root = r == b->params.root;

    b->blocks = b->params.nranks;
    if (is_root ? !b->params.in_place : !leaf) {
        have = hly_copy(b, is_root ? hly_out(r, 1) : hly_scratch(r, 1, 0), hly_in(r, 1), HLY_NONE,
                        HLY_NONE);
    }
    for (uint32_t bit = 1; bit < at.size && bit < at.top; bit *= 2) {
        uint32_t got = hly_recv(b, hly_up(b, bit), TREE_EDGE,
                                blocks_of(b, &at, bit, HALAY_BUFFER_OUT), HLY_NONE, HLY_NONE);
        have = is_root ? got : hly_after(b, have, got);
    }
    if (!is_root) {
        hly_send(b, at.parent, TREE_EDGE, leaf ? hly_in(r, 1) : hly_scratch(r, at.size, 0), have,
                 HLY_NONE);
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}

void hly_binomial_scatter(struct hly_builder *b)
{
    uint32_t r = b->params.rank, bit = 1, done[2];
    struct place at = place_of(b);
    struct hly_team all = hly_team_of_all(b);
    uint32_t have = HLY_NONE;
    int leaf = at.size == 1, is_root = r == b->params.root;

    b->blocks = b->params.nranks;
    if (!is_root) {
        have = hly_recv(b, at.parent, TREE_EDGE, leaf ? hly_out(r, 1) : hly_scratch(r, at.size, 0),
                        HLY_NONE, HLY_NONE);
    }
    while (bit < at.size && bit < at.top) {
        bit *= 2;
    }
    while (bit /= 2) {
        hly_send(b, hly_up(b, bit), TREE_EDGE, blocks_of(b, &at, bit, HALAY_BUFFER_IN), have,
                 HLY_NONE);
    }
    if (is_root ? !b->params.in_place : !leaf) {
        hly_copy(b, hly_out(r, 1), is_root ? hly_in(r, 1) : hly_scratch(r, 1, 0), have, HLY_NONE);
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}
