/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level_group.c - an allreduce whose part in the node a device does.
 *
 * As two_level.c, with the same lanes, but:
 *  - The ranks of a node first hear from one another by empty messages, so that no device waits for
 *    a rank whose call differs or never comes.
 *  - A group reduce_scatter sums each lane into OUT of its leader; who leads none has an empty run.
 *  - The leaders of a lane run the phases of circulant.c between nodes, on OUT.
 *  - A group allgather spreads all lanes in the node.
 * On one node that is a single group allreduce. The two group steps have a channel each, so that
 * the first one of a call need not wait for the second one of the call before.
 */
#include "two_level.h"

enum { IN_EDGE = 0, OUT_EDGE = 1, SCATTER_CHANNEL = 0, GATHER_CHANNEL = 1 };

uint32_t hly_hear_node(struct hly_builder *b, const struct hly_place *at)
{
    halay_operand_t nothing;
    uint32_t last = hly_fan_in(b, at, 0, IN_EDGE, &nothing);

    return hly_fan_out(b, at, 0, OUT_EDGE, last);
}

/* The group of the node: lanes of n blocks, or all blocks to each in an allreduce. */
static uint32_t node_group(struct hly_builder *b, const struct hly_place *at, uint32_t kind,
                           uint32_t lanes, uint32_t n)
{
    uint32_t group = hly_group(b, kind, at->n);
    halay_member_t *member = hly_group_members(b, group);

    for (uint32_t i = 0, lane = 0; member && i < at->n; i++) {
        int all = kind == HALAY_GROUP_ALLREDUCE;
        int leads = !all && lane < lanes && i == hly_run_begin(at->n, lanes, lane);

        member[i].rank = at->member[i];
        member[i].first = all ? 0 : lane * n % b->blocks;
        member[i].count = all ? b->blocks : leads ? n : 0;
        lane += (uint32_t)leads;
    }
    return group;
}

static void one_node(struct hly_builder *b, const struct hly_place *at)
{
    b->blocks = 1;
    if (at->n > 1) {
        uint32_t heard = hly_hear_node(b, at);
        uint32_t group = node_group(b, at, HALAY_GROUP_ALLREDUCE, 1, 1);
        hly_group_step(b, group, SCATTER_CHANNEL, hly_out(0, 1), hly_in(0, 1), heard, HLY_NONE);
    } else if (!b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
}

void hly_two_level_group_allreduce(struct hly_builder *b)
{
    struct hly_place at = hly_place_of(b);
    uint32_t lanes = at.shape->smallest, n = at.shape->nnodes, ready = HLY_NONE, sent = HLY_NONE;

    if (n == 1) {
        one_node(b, &at);
        return;
    }
    b->blocks = lanes * n;
    uint32_t mine = hly_lane_of(at.n, lanes, at.me);
    struct hly_team team = hly_leaders(&at, lanes, mine);
    int leads = hly_team_rank(&team, at.node) == b->params.rank;
    halay_operand_t lane = leads ? hly_out(mine * n, n) : hly_nothing();

    if (at.n > 1) {
        uint32_t group = node_group(b, &at, HALAY_GROUP_REDUCE_SCATTER, lanes, n);
        ready = hly_group_step(b, group, SCATTER_CHANNEL, lane, hly_in(0, b->blocks),
                               hly_hear_node(b, &at), HLY_NONE);
    } else if (!b->params.in_place) {
        ready = hly_copy(b, lane, hly_in(0, b->blocks), HLY_NONE, HLY_NONE);
    }
    if (leads) {
        ready = hly_lane_allreduce(b, &team, mine * n, ready, &sent);
    }
    if (at.n > 1) {
        uint32_t group = node_group(b, &at, HALAY_GROUP_ALLGATHER, lanes, n);
        hly_group_step(b, group, GATHER_CHANNEL, hly_out(0, b->blocks), lane, ready, sent);
    }
}
