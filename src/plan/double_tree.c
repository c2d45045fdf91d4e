/* SPDX-License-Identifier: Apache-2.0 */
/*
 * double_tree.c - two trees, each for half of the data: many bytes in few rounds.
 *
 * Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
 * Parallel Computing 35(12), 2009. Every rank is inside one of the trees and a leaf of the other,
 * so all send and sum as much. The data of a tree go up and down in pieces, one after the other.
 *
 * The first tree: node 0 is the root, and all others are below it; a node whose lowest bit is 2^i
 * has those below 2^i away on either side under it. Odd nodes are leaves. The second is the first
 * one on the ranks from 1 on, as nodes 0, 1 ...; rank 0 hangs left of its root, which has nobody
 * there. In both the ranks of a left subtree are lower and those of a right one higher, so sums are
 * in the order of ranks and operations need not commute.
 *
 * What children send lands in WINDOW sets of slots in turn; the sum is made in OUT, sent up, and
 * replaced by what comes down.
 */
#include "builder.h"

enum { TREES = 2, UP = 0, DOWN = 1, WINDOW = 4, LEFT = 0, RIGHT = 1 };

/* One rank in one tree; HLY_NONE where there is nobody. */
struct place {
    uint32_t parent, child[2];
};

/* Node 0 ... n-1 in the first tree of n nodes. */
static struct place place_of_node(uint32_t node, uint32_t n)
{
    struct place at = {HLY_NONE, {HLY_NONE, HLY_NONE}};
    uint32_t bit = 1, below;

    while (bit < n && !(node & bit)) {
        bit *= 2;
    }
    if (node != 0) {
        uint32_t up = (node ^ bit) | bit << 1;
        at.parent = up < n ? up : node ^ bit;
        at.child[LEFT] = bit > 1 ? node - bit / 2 : HLY_NONE;
    }
    for (below = bit / 2; below > 0 && node + below >= n;) {
        below /= 2;
    }
    at.child[RIGHT] = below > 0 ? node + below : HLY_NONE;
    return at;
}

static uint32_t one_up(uint32_t node)
{
    return node == HLY_NONE ? HLY_NONE : node + 1;
}

static struct place place_in(uint32_t tree, uint32_t rank, uint32_t p)
{
    if (tree == 0) {
        return place_of_node(rank, p);
    }
    if (rank == 0) {
        return (struct place){p > 1 ? 1 : HLY_NONE, {HLY_NONE, HLY_NONE}};
    }
    struct place at = place_of_node(rank - 1, p - 1);
    at.parent = one_up(at.parent);
    at.child[LEFT] = rank == 1 ? 0 : one_up(at.child[LEFT]);
    at.child[RIGHT] = one_up(at.child[RIGHT]);
    return at;
}

static uint32_t edge_of(uint32_t block, uint32_t way)
{
    return 2 * block + way;
}

/*
 * Sums what the children send, if there are any; *summed is who read the slots before, and then the
 * sum's step. Returns that, or HLY_NONE.
 */
static uint32_t sum_children(struct hly_builder *b, const struct place *at, uint32_t block,
                             uint32_t turn, uint32_t *summed)
{
    halay_operand_t sources[3];
    uint32_t n = 0, got = HLY_NONE, children[2] = {at->child[LEFT], at->child[RIGHT]};
    uint32_t slot = turn * ((children[LEFT] != HLY_NONE) + (children[RIGHT] != HLY_NONE));

    for (uint32_t side = LEFT; side <= RIGHT; side++) {
        if (children[side] != HLY_NONE) {
            sources[n] = hly_scratch(block, 1, slot++);
            uint32_t landed =
                hly_recv(b, children[side], edge_of(block, UP), sources[n++], *summed, HLY_NONE);
            got = hly_after(b, got, landed);
        }
        if (side == LEFT) {
            sources[n++] = hly_in(block, 1);
        }
    }
    if (n == 1) {
        return HLY_NONE;
    }
    *summed = hly_reduce_many(b, hly_out(block, 1), sources, n, got, HLY_NONE);
    return *summed;
}

/* A piece on its way through this rank. */
static void move_piece(struct hly_builder *b, const struct place *at, uint32_t block, uint32_t turn,
                       uint32_t *summed)
{
    uint32_t ready = sum_children(b, at, block, turn, summed);
    int leaf = ready == HLY_NONE;

    if (at->parent != HLY_NONE) {
        uint32_t sent = hly_send(b, at->parent, edge_of(block, UP),
                                 leaf ? hly_in(block, 1) : hly_out(block, 1), ready, HLY_NONE);
        ready = hly_recv(b, at->parent, edge_of(block, DOWN), hly_out(block, 1),
                         leaf && !b->params.in_place ? HLY_NONE : sent, HLY_NONE);
    }
    for (uint32_t side = LEFT; side <= RIGHT; side++) {
        if (at->child[side] != HLY_NONE) {
            hly_send(b, at->child[side], edge_of(block, DOWN), hly_out(block, 1), ready, HLY_NONE);
        }
    }
}

void hly_double_tree_allreduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, pieces = 4, summed[WINDOW];
    struct place at[TREES] = {place_in(0, r, p), place_in(1, r, p)};

    /* So many, 4 log2 p, that filling the trees costs half as much again as the pieces. */
    for (uint64_t n = 2; n < p; n *= 2) {
        pieces += 4;
    }
    b->blocks = TREES * pieces;
    if (p == 1) {
        if (!b->params.in_place) {
            hly_copy(b, hly_out(0, b->blocks), hly_in(0, b->blocks), HLY_NONE, HLY_NONE);
        }
        return;
    }
    for (uint32_t i = 0; i < WINDOW; i++) {
        summed[i] = HLY_NONE;
    }
    for (uint32_t i = 0; i < pieces; i++) {
        for (uint32_t tree = 0; tree < TREES; tree++) {
            move_piece(b, &at[tree], tree * pieces + i, i % WINDOW, &summed[i % WINDOW]);
        }
    }
}
