/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level_alltoall.c - alltoall with one message between nodes where pairwise has one a rank.
 *
 * Traeff, Rougier: MPI collectives and datatypes for hierarchical all-to-all communication,
 * EuroMPI/ASIA 2014, has the two steps. The ranks of a node share the destinations on other nodes
 * between them: the local rank i holds those whose place in their own node is i, modulo the ranks
 * of this node. In the node every rank gives each holder the blocks for its destinations. Then a
 * holder sends each of its destinations the blocks of the whole node in one message. So a rank of N
 * nodes of k ranks sends N-1 messages between nodes, not (N-1)k, and each block moves twice.
 *
 * Holders keep a destination's blocks in local order in one run of slots (HALAY_PLANNER_EQUAL);
 * they land in OUT in one piece where the ranks of the node are consecutive, else beside it. In
 * place nothing lands in OUT before all of IN has been given away.
 *
 * On one node a device can do it, in one group step after all ranks have been heard.
 */
#include "two_level.h"

struct exchange {
    struct hly_builder *b;
    struct hly_place at;
    uint32_t given; /* the step after which IN is read no more; HLY_NONE: not in place */
    uint32_t slots; /* given out so far */
};

static uint32_t holder_of(const struct exchange *x, uint32_t place)
{
    return x->at.member[place % x->at.n];
}

/* Every block of IN to the rank of the node that holds its destination, or is it. */
static void give(struct exchange *x)
{
    const halay_shape_t *s = x->at.shape;
    struct hly_builder *b = x->b;
    uint32_t r = b->params.rank;

    for (uint32_t k = 1; k <= s->nnodes; k++) {
        uint32_t node = (x->at.node + k) % s->nnodes;
        for (uint32_t i = 0; i < hly_node_ranks(s, node); i++) {
            uint32_t to = s->member[s->first[node] + i];
            uint32_t holder = node == x->at.node ? to : holder_of(x, i), sent;

            if (holder != r) {
                sent = hly_send(b, holder, to, hly_in(to, 1), HLY_NONE, HLY_NONE);
                x->given = b->params.in_place ? hly_after(b, x->given, sent) : HLY_NONE;
            }
        }
    }
}

/* What the ranks of the node have for a destination that this rank holds, and the message to it. */
static void forward(struct exchange *x, uint32_t to)
{
    struct hly_builder *b = x->b;
    uint32_t slot = x->slots, ready = HLY_NONE, got;

    x->slots += x->at.n;
    for (uint32_t i = 1; i <= x->at.n; i++) {
        uint32_t place = (x->at.me + i) % x->at.n;
        halay_operand_t into = hly_scratch(to, 1, slot + place);

        if (place != x->at.me) {
            got = hly_recv(b, x->at.member[place], to, into, HLY_NONE, HLY_NONE);
        } else {
            got = hly_copy(b, into, hly_in(to, 1), HLY_NONE, HLY_NONE);
            x->given = b->params.in_place ? hly_after(b, x->given, got) : HLY_NONE;
        }
        ready = hly_after(b, ready, got);
    }
    hly_send(b, to, 0, hly_scratch(0, x->at.n, slot), ready, HLY_NONE);
}

/* n blocks from one rank: those of ranks[]. */
static void take(struct exchange *x, uint32_t from, uint32_t edge, const uint32_t ranks[],
                 uint32_t n)
{
    struct hly_builder *b = x->b;

    if (ranks[n - 1] - ranks[0] == n - 1 && !(b->params.in_place && n == 1)) {
        hly_recv(b, from, edge, hly_out(ranks[0], n), x->given, HLY_NONE);
        return;
    }
    uint32_t got = hly_recv(b, from, edge, hly_scratch(0, n, x->slots), HLY_NONE, HLY_NONE);
    for (uint32_t i = 0; i < n; i++) {
        hly_copy(b, hly_out(ranks[i], 1), hly_scratch(ranks[i], 1, x->slots + i), got, x->given);
    }
    x->slots += n;
}

void hly_two_level_alltoall(struct hly_builder *b)
{
    struct exchange x = {.b = b, .at = hly_place_of(b), .given = HLY_NONE};
    const halay_shape_t *s = x.at.shape;
    uint32_t r = b->params.rank;

    b->blocks = b->params.nranks;
    give(&x);
    for (uint32_t k = 1; k < s->nnodes; k++) {
        uint32_t node = (x.at.node + k) % s->nnodes;
        for (uint32_t i = x.at.me; i < hly_node_ranks(s, node); i += x.at.n) {
            forward(&x, s->member[s->first[node] + i]);
        }
    }
    for (uint32_t i = 1; i < x.at.n; i++) {
        uint32_t from = x.at.member[(x.at.me + x.at.n - i) % x.at.n];
        take(&x, from, r, &from, 1);
    }
    for (uint32_t k = 1; k < s->nnodes; k++) {
        uint32_t node = (x.at.node + s->nnodes - k) % s->nnodes, n = hly_node_ranks(s, node);
        const uint32_t *ranks = s->member + s->first[node];
        take(&x, ranks[x.at.me % n], 0, ranks, n);
    }
    if (!b->params.in_place) {
        hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
    }
}

/* One group step on one node. In place what is given moves aside before: a device that wrote OUT
 * while it reads IN would need as much. */
void hly_two_level_group_alltoall(struct hly_builder *b)
{
    struct hly_place at = hly_place_of(b);
    uint32_t n = b->params.nranks, copied = HLY_NONE;
    halay_operand_t from = hly_in(0, n);

    if (at.shape->nnodes > 1 || n == 1) {
        hly_two_level_alltoall(b);
        return;
    }
    b->blocks = n;
    if (b->params.in_place) {
        from = hly_scratch(0, n, 0);
        copied = hly_copy(b, from, hly_in(0, n), HLY_NONE, HLY_NONE);
    }
    uint32_t group = hly_group(b, HALAY_GROUP_ALLTOALL, n), heard = hly_hear_node(b, &at);
    halay_member_t *member = hly_group_members(b, group);
    for (uint32_t i = 0; member && i < n; i++) {
        member[i] = (halay_member_t){.rank = i, .first = i, .count = 1};
    }
    hly_group_step(b, group, 0, hly_out(0, n), from, heard, copied);
}
