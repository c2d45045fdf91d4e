/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level.h - what the two-level planners share: who is where.
 *
 * The local ranks of every node are cut into `lanes` runs of consecutive ones, as equal as can be;
 * there are as many lanes as the smallest node has ranks, so no run is empty. The first rank of a
 * run leads the lane on its node. Leaders of one lane talk to one another, over all nodes; apart
 * from them a rank talks to ranks of its own node only.
 */
#ifndef HALAY_PLAN_TWO_LEVEL_H
#define HALAY_PLAN_TWO_LEVEL_H

#include "builder.h"

/* This rank in its node. */
struct hly_place {
    const halay_shape_t *shape;
    const uint32_t *member; /* ranks of the node */
    uint32_t node, n, me;   /* member[me] is this rank */
};

struct hly_place hly_place_of(const struct hly_builder *b);

static inline uint32_t hly_node_ranks(const halay_shape_t *s, uint32_t node)
{
    return s->first[node + 1] - s->first[node];
}

/* Where in a node of n ranks the run of a lane begins; lane may be `lanes`: where the last ends. */
static inline uint32_t hly_run_begin(uint32_t n, uint32_t lanes, uint32_t lane)
{
    return (uint32_t)((uint64_t)n * lane / lanes);
}

/* The lane in whose run the local rank `me` stands. */
static inline uint32_t hly_lane_of(uint32_t n, uint32_t lanes, uint32_t me)
{
    return (uint32_t)((((uint64_t)me + 1) * lanes - 1) / n);
}

static inline uint32_t hly_leader(const halay_shape_t *s, uint32_t lanes, uint32_t node,
                                  uint32_t lane)
{
    return s->member[s->first[node] + hly_run_begin(hly_node_ranks(s, node), lanes, lane)];
}

/* The leaders of a lane; `me` is the one of this rank's node. */
static inline struct hly_team hly_leaders(const struct hly_place *at, uint32_t lanes, uint32_t lane)
{
    return (struct hly_team){at->shape->nnodes, at->node, at->shape, lanes, lane};
}

/*
 * A tree of radix 4 in the node, in local order: member 0 has gathered from all after the step
 * returned. With data, block 0 of IN is summed to *sum on the way, in scratch slots below
 * hly_fan_slots(); without, the messages are empty. hly_fan_out() spreads block 0 of OUT (or empty
 * messages) from member 0, where it starts after `start`; `sent` is what fan_in has sent upwards.
 */
uint32_t hly_fan_in(struct hly_builder *b, const struct hly_place *at, int data, uint32_t edge,
                    halay_operand_t *sum);
uint32_t hly_fan_out(struct hly_builder *b, const struct hly_place *at, int data, uint32_t edge,
                     uint32_t start);
uint32_t hly_fan_slots(const struct hly_place *at);

/* Empty messages with edges 0 and 1: after the step returned this rank has heard from all of its
 * node. */
uint32_t hly_hear_node(struct hly_builder *b, const struct hly_place *at);

/*
 * Between the leaders of a lane, whose blocks are those from `base` on, one a node: sums what is in
 * OUT after `start`. Returns the step after which OUT has the sum; after *sent nobody reads it. The
 * edges are 2 and up, the slots 0 and up.
 */
uint32_t hly_lane_allreduce(struct hly_builder *b, const struct hly_team *team, uint32_t base,
                            uint32_t start, uint32_t *sent);

/* Zero-byte messages after which every rank has heard from all: in, between leaders, out. */
void hly_two_level_hear(struct hly_builder *b, uint32_t edge);

#endif
