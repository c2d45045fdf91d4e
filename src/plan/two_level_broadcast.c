/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level_broadcast.c - binomial trees (binomial.c): over one leader a node, then in each node.
 *
 * The root leads its node, the lowest rank any other. Nodes are counted from the root's, local
 * ranks from their leader. A leader sends to other nodes first. As in binomial.c, zero-byte
 * messages that wait for no data let every rank hear from all.
 */
#include "two_level.h"

enum { TREE_EDGE = 0, HEAR_EDGE = 1 };

/* The members of one tree: nodes (their leaders), or the ranks of a node; counted from `zero`.
 */
struct circle {
    const struct hly_place *at;
    uint32_t n, zero, root;
    int nodes;
};

static uint32_t rank_of(const struct circle *c, uint32_t number)
{
    const halay_shape_t *s = c->at->shape;
    uint32_t i = (number + c->zero) % c->n;

    if (!c->nodes) {
        return c->at->member[i];
    }
    return number == 0 ? c->root : s->member[s->first[i]];
}

/* Receives from the parent, except for number 0, which has it after `got`; sends to the children.
 */
static uint32_t relay(struct hly_builder *b, const struct circle *c, uint32_t me, uint32_t got)
{
    uint32_t number = (me + c->n - c->zero) % c->n, bit = 1;

    while (bit < c->n && !(number & bit)) {
        bit *= 2;
    }
    if (number != 0) {
        got = hly_recv(b, rank_of(c, number - bit), TREE_EDGE, hly_out(0, 1), HLY_NONE, HLY_NONE);
    }
    while (bit /= 2) {
        if (number + bit < c->n) {
            hly_send(b, rank_of(c, number + bit), TREE_EDGE, hly_out(0, 1), got, HLY_NONE);
        }
    }
    return got;
}

void hly_two_level_broadcast(struct hly_builder *b)
{
    struct hly_place at = hly_place_of(b);
    uint32_t root = b->params.root, got = HLY_NONE;
    struct circle nodes = {&at, at.shape->nnodes, at.shape->node[root], root, 1};
    struct circle locals = {.at = &at, .n = at.n};

    while (at.node == nodes.zero && at.member[locals.zero] != root) {
        locals.zero++;
    }
    b->blocks = 1;
    if (at.me == locals.zero) {
        got = relay(b, &nodes, at.node, HLY_NONE);
    }
    relay(b, &locals, at.me, got);
    hly_two_level_hear(b, HEAR_EDGE);
}
