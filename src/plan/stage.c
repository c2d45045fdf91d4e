/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.c - an allreduce in memory that messages cannot carry: in the node a device does it, and
 * between nodes the stage of host memory (plan.h) carries it.
 *
 * As two_level_group.c, with the same lanes, in slices of lanes * N blocks, N nodes. Of each slice:
 *  - A group reduce_scatter sums each lane into OUT of its leader.
 *  - The leader copies its lane to the stage, a slot for each block, and runs the phases of
 *    circulant.c there, a message for each block: slots are read as they were written.
 *  - It copies the lane back to OUT, and a group allgather spreads all lanes in the node.
 * Slices depend on one another only by the order of a channel, and by slots of the stage, which
 * come round after STAGES of them. So one slice is summed in the node while the one before is
 * between nodes, and the one before that is spread.
 */
#include <assert.h>
#include <stdlib.h>

#include "two_level.h"

enum { FIRST_EDGE = 2, SLICES = 4, STAGES = 3, SCATTER_CHANNEL = 0, GATHER_CHANNEL = 1 };

struct stage {
    struct hly_builder *b;
    struct hly_team team; /* leaders of the own lane */
    struct hly_circulant graph;
    uint32_t first; /* block of the slice's own lane, one for each node */
    uint32_t slot, edge;
    uint32_t *last; /* of each node's block: the step after which its slot is what it is */
    uint32_t *sent; /* its message in the scatter phase has left */
    uint32_t ended; /* a step after all that touch the slots */
};

static uint32_t number(const struct stage *x, uint32_t piece)
{
    assert(x->team.n > 0);
    return (x->team.me + piece) % x->team.n;
}

/* The slot of a piece's block; pieces count from the own node's. */
static halay_operand_t home(const struct stage *x, uint32_t piece)
{
    uint32_t j = number(x, piece);
    return hly_scratch(x->first + j, 1, x->slot + j);
}

static void scatter(struct stage *x)
{
    const struct hly_circulant *c = &x->graph;
    uint32_t n = x->team.n;

    for (uint32_t k = 0; k < c->rounds; k++) {
        uint32_t s = c->skip[k + 1], pieces = c->skip[k] - s;

        for (uint32_t i = s; i < s + pieces; i++) {
            uint32_t j = number(x, i);
            x->sent[j] = hly_send(x->b, hly_team_rank(&x->team, x->team.me + s), x->edge + j,
                                  home(x, i), x->last[j], HLY_NONE);
        }
        for (uint32_t i = 0; i < pieces; i++) {
            uint32_t j = number(x, i);
            halay_operand_t landing =
                hly_scratch(x->first + j, 1, x->slot + n + (n - c->skip[k]) + i);
            uint32_t got = hly_recv(x->b, hly_team_rank(&x->team, x->team.me + n - s), x->edge + j,
                                    landing, x->ended, HLY_NONE);
            x->last[j] = hly_reduce(x->b, home(x, i), home(x, i), landing, got, x->last[j]);
        }
    }
}

static void gather(struct stage *x, uint32_t *sent)
{
    const struct hly_circulant *c = &x->graph;
    uint32_t n = x->team.n, edge = x->edge + n;

    for (uint32_t k = c->rounds; k-- > 0;) {
        uint32_t s = c->skip[k + 1], pieces = c->skip[k] - s;

        for (uint32_t i = 0; i < pieces; i++) {
            uint32_t j = number(x, i);
            *sent = hly_after(x->b, *sent,
                              hly_send(x->b, hly_team_rank(&x->team, x->team.me + n - s), edge + j,
                                       home(x, i), x->last[j], HLY_NONE));
        }
        for (uint32_t i = s; i < s + pieces; i++) {
            uint32_t j = number(x, i);
            x->last[j] = hly_recv(x->b, hly_team_rank(&x->team, x->team.me + s), edge + j,
                                  home(x, i), x->sent[j], HLY_NONE);
        }
    }
}

/* Sums the lane over the nodes, from `from` after step `ready`, to OUT; returns the step after
 * which it is there. */
static uint32_t between(struct stage *x, uint32_t from, uint32_t ready)
{
    uint32_t sent = HLY_NONE, up = HLY_NONE;

    for (uint32_t i = 0; i < x->team.n; i++) {
        uint32_t j = number(x, i);
        x->last[j] = hly_copy(x->b, home(x, i), hly_run(from, x->first + j, 1), ready, x->ended);
    }
    scatter(x);
    gather(x, &sent);
    for (uint32_t i = 0; i < x->team.n; i++) {
        uint32_t j = number(x, i);
        up = hly_after(x->b, up,
                       hly_copy(x->b, hly_out(x->first + j, 1), home(x, i), x->last[j], HLY_NONE));
    }
    x->ended = hly_after(x->b, up, sent);
    return up;
}

/* The group of a slice in the node: n blocks from `first` on for each lane. */
static uint32_t lanes_group(struct hly_builder *b, const struct hly_place *at, uint32_t kind,
                            uint32_t first)
{
    uint32_t group = hly_group(b, kind, at->n), lanes = at->shape->smallest;
    halay_member_t *member = hly_group_members(b, group);

    for (uint32_t i = 0, lane = 0; member && i < at->n; i++) {
        int leads = lane < lanes && i == hly_run_begin(at->n, lanes, lane);

        member[i].rank = at->member[i];
        member[i].first = (first + lane * at->shape->nnodes) % b->blocks;
        member[i].count = leads ? at->shape->nnodes : 0;
        lane += (uint32_t)leads;
    }
    return group;
}

static void slices(struct stage *x, const struct hly_place *at, uint32_t n)
{
    struct hly_builder *b = x->b;
    uint32_t lanes = at->shape->smallest, nodes = at->shape->nnodes, all = lanes * nodes;
    uint32_t scattered = at->n > 1 ? hly_hear_node(b, at) : HLY_NONE, gathered = HLY_NONE;
    uint32_t ended[STAGES] = {HLY_NONE, HLY_NONE, HLY_NONE};
    int leads = hly_team_rank(&x->team, at->node) == b->params.rank;

    b->blocks = all * n;
    for (uint32_t s = 0; s < n; s++) {
        uint32_t first = s * all, ready = HLY_NONE, from = HALAY_BUFFER_IN;
        x->first = first + x->team.lane * nodes;
        x->slot = s % STAGES * (2 * nodes - 1);
        x->edge = FIRST_EDGE + s * 2 * nodes;
        x->ended = ended[s % STAGES];
        halay_operand_t lane = leads ? hly_out(x->first, nodes) : hly_nothing();

        if (at->n > 1) {
            uint32_t group = lanes_group(b, at, HALAY_GROUP_REDUCE_SCATTER, first);
            ready = scattered = hly_group_step(b, group, SCATTER_CHANNEL, lane, hly_in(first, all),
                                               scattered, HLY_NONE);
            from = HALAY_BUFFER_OUT;
        }
        if (leads) {
            ready = between(x, from, ready);
        }
        ended[s % STAGES] = x->ended;
        if (at->n > 1) {
            uint32_t group = lanes_group(b, at, HALAY_GROUP_ALLGATHER, first);
            gathered = hly_group_step(b, group, GATHER_CHANNEL, hly_out(first, all), lane, ready,
                                      gathered);
        }
    }
}

static void staged(struct hly_builder *b, uint32_t n)
{
    struct hly_place at = hly_place_of(b);
    uint32_t lanes = at.shape->smallest, nodes = at.shape->nnodes;
    struct stage x = {.b = b, .team = hly_leaders(&at, lanes, hly_lane_of(at.n, lanes, at.me))};

    if (nodes == 1) {
        hly_two_level_group_allreduce(b);
        return;
    }
    hly_circulant_init(&x.graph, nodes);
    x.last = calloc(2 * (size_t)nodes, sizeof(*x.last));
    if (!x.last) {
        b->error = HALAY_ENOMEM;
        return;
    }
    x.sent = x.last + nodes;
    slices(&x, &at, n);
    free(x.last);
}

void hly_two_level_stage_allreduce(struct hly_builder *b)
{
    staged(b, 1);
}

void hly_sliced_stage_allreduce(struct hly_builder *b)
{
    staged(b, SLICES);
}
