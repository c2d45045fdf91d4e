/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_blocks.c - reduce-scatter, allgather and broadcast whose part in the node a device does.
 *
 * As two_level_group.c: the ranks of a node first hear from one another by empty messages, and each
 * lane (two_level.h) has a leader on each node. The blocks of a node's ranks are a part of the
 * whole; the part of a lane in it is the blocks of the lane's run of ranks. Where a node's ranks
 * are not consecutive, its part is several pieces, with a group step for each, in rising order.
 *  - reduce_scatter: for each node, its own last, a group reduce_scatter sums the parts of the
 * lanes to their leaders, which send them to the leaders there while the next one is under way.
 *  - allgather: a group allgather in the node, then leaders send their lane's part to all others; a
 *    group allgather for each other node spreads what came from there.
 *  - broadcast: a group broadcast in the root's node; binomial trees over nodes, one for each lane;
 *    a group allgather of the lanes in each other node. In slices, each with its own steps.
 */
#include "two_level.h"

enum { DATA_EDGE = 2, SLICES = 4 };
enum { FIRST_CHANNEL = 0, SECOND_CHANNEL = 1 };

/* A run of consecutive ranks of one node: their blocks lie together. */
struct piece {
    uint32_t first, count, local; /* local: of the first, in its node */
};

/* The piece that begins at local rank `local` of a node; count 0: there is none. */
static struct piece piece_from(const halay_shape_t *s, uint32_t node, uint32_t local)
{
    uint32_t n = hly_node_ranks(s, node);
    const uint32_t *member = s->member + s->first[node];
    struct piece p = {local < n ? member[local] : 0, 0, local};

    while (local + p.count < n && member[local + p.count] == p.first + p.count) {
        p.count++;
    }
    return p;
}

/* What a lane's run has of a piece. */
static struct piece lane_of_piece(const halay_shape_t *s, uint32_t node, uint32_t lane,
                                  const struct piece *p)
{
    uint32_t n = hly_node_ranks(s, node), end = p->local + p->count;
    uint32_t from = hly_run_begin(n, s->smallest, lane);
    uint32_t to = hly_run_begin(n, s->smallest, lane + 1);

    from = from < p->local ? p->local : from > end ? end : from;
    to = to > end ? end : to < from ? from : to;
    return (struct piece){p->first + (from - p->local), to - from, from};
}

/* The node's members, with what each lane has of a piece of `node` as its leader's run here. */
static uint32_t lanes_group(struct hly_builder *b, const struct hly_place *at, uint32_t kind,
                            uint32_t node, const struct piece *p)
{
    uint32_t group = hly_group(b, kind, at->n), lanes = at->shape->smallest, at_block = p->first;
    halay_member_t *member = hly_group_members(b, group);

    for (uint32_t i = 0, lane = 0; member && i < at->n; i++) {
        int leads = lane < lanes && i == hly_run_begin(at->n, lanes, lane);
        struct piece own = {0};

        if (leads) {
            own = lane_of_piece(at->shape, node, lane++, p);
        }
        member[i].rank = at->member[i];
        member[i].first = at_block % b->blocks;
        member[i].count = own.count;
        at_block += own.count;
    }
    return group;
}

/* The same with a block of a piece of this node for each of its ranks. */
static uint32_t ranks_group(struct hly_builder *b, const struct hly_place *at, uint32_t kind,
                            const struct piece *p)
{
    uint32_t group = hly_group(b, kind, at->n);
    halay_member_t *member = hly_group_members(b, group);

    for (uint32_t i = 0; member && i < at->n; i++) {
        uint32_t before = i < p->local ? 0 : i - p->local;

        member[i].rank = at->member[i];
        member[i].first = (p->first + (before < p->count ? before : p->count)) % b->blocks;
        member[i].count = i >= p->local && i < p->local + p->count;
    }
    return group;
}

struct blocks {
    struct hly_builder *b;
    struct hly_place at;
    struct hly_team team; /* leaders of this rank's lane */
    uint32_t leads;
    uint32_t slots;  /* given out so far */
    uint32_t last;   /* group step on the channel */
    uint32_t stages; /* 1: messages carry the stage alone */
    uint32_t stage;  /* its slots given out so far */
};

static void open_blocks(struct blocks *x, struct hly_builder *b, uint32_t stages)
{
    *x = (struct blocks){.b = b, .at = hly_place_of(b), .last = HLY_NONE, .stages = stages};
    b->blocks = b->params.nranks;
    x->team = hly_leaders(&x->at, x->at.shape->smallest,
                          hly_lane_of(x->at.n, x->at.shape->smallest, x->at.me));
    x->leads = hly_team_rank(&x->team, x->at.node) == b->params.rank;
}

static struct piece own_part(const struct blocks *x, uint32_t node, const struct piece *p)
{
    return x->leads ? lane_of_piece(x->at.shape, node, x->team.lane, p) : (struct piece){0};
}

/* Where a message with such a run has it: there, or in slots of the stage. */
static halay_operand_t carried(struct blocks *x, halay_operand_t run)
{
    if (!x->stages || !run.count) {
        return run;
    }
    x->stage += run.count;
    return hly_scratch(run.first, run.count, x->stage - run.count);
}

/* Copies a run to or from where messages have it, if that is elsewhere; `ready` or the step after
 * it. */
static uint32_t moved(struct blocks *x, halay_operand_t to, halay_operand_t from, uint32_t ready)
{
    return x->stages && to.count ? hly_copy(x->b, to, from, ready, HLY_NONE) : ready;
}

/* ------------------------------------------------------------------ reduce-scatter */

/* Where the sum of this lane's part of a piece goes: `slot` on; on one node to OUT at once. */
static halay_operand_t place_of(const struct blocks *x, uint32_t node, const struct piece *p,
                                uint32_t slot)
{
    struct piece own = own_part(x, node, p);

    if (own.count == 0) {
        return hly_nothing();
    }
    if (x->at.n == 1) {
        return hly_in(own.first, own.count);
    }
    return x->team.n == 1 && !x->b->params.in_place && own.count == 1
               ? hly_out(own.first, 1)
               : hly_scratch(own.first, own.count, slot);
}

/* Sums it over the node; it is there after x->last. */
static halay_operand_t sum_in_node(struct blocks *x, uint32_t node, const struct piece *p)
{
    halay_operand_t to = place_of(x, node, p, x->slots);

    if (x->at.n > 1) {
        uint32_t group = lanes_group(x->b, &x->at, HALAY_GROUP_REDUCE_SCATTER, node, p);
        x->last = hly_group_step(x->b, group, FIRST_CHANNEL, to, hly_in(p->first, p->count),
                                 x->last, HLY_NONE);
        x->slots += to.count;
    }
    return to;
}

/* Each block of the lane's sum goes to its rank, after `added`. */
static void hand_out(struct blocks *x, const struct piece *p, halay_operand_t sum, uint32_t added)
{
    struct hly_builder *b = x->b;
    uint32_t r = b->params.rank;

    for (uint32_t i = 0; i < sum.count && sum.buffer != HALAY_BUFFER_OUT; i++) {
        halay_operand_t block = sum;
        block.first += i;
        block.slot += sum.buffer == HALAY_BUFFER_SCRATCH ? i : 0;
        block.count = 1;
        if (block.first != r) {
            hly_send(b, block.first, DATA_EDGE + p->local, block, added, HLY_NONE);
        } else if (!(b->params.in_place && block.buffer == HALAY_BUFFER_IN)) {
            hly_copy(b, hly_out(r, 1), block, added, HLY_NONE);
        }
    }
}

/* This rank's block of the sum, from the leader of its lane. */
static void receive(struct blocks *x, const struct piece *p)
{
    uint32_t r = x->b->params.rank;
    halay_operand_t landing = carried(x, hly_out(r, 1));
    uint32_t free = x->b->params.in_place ? x->last : HLY_NONE;
    uint32_t got = hly_recv(x->b, hly_team_rank(&x->team, x->at.node), DATA_EDGE + p->local,
                            landing, free, HLY_NONE);

    moved(x, hly_out(r, 1), landing, got);
}

/* Adds the sums of the other nodes to this one's, which is complete after x->last. */
static void take_in(struct blocks *x, const struct piece *p, halay_operand_t sum)
{
    struct hly_builder *b = x->b;
    uint32_t nnodes = x->team.n;
    halay_operand_t from_device = sum;

    sum = carried(x, sum);
    uint32_t added = moved(x, sum, from_device, x->last);
    for (uint32_t j = 1; j < nnodes && sum.count; j++) {
        uint32_t from = hly_team_rank(&x->team, x->at.node + nnodes - j);
        uint32_t *slots = x->stages ? &x->stage : &x->slots;
        halay_operand_t to = sum, landed = hly_scratch(sum.first, sum.count, *slots);

        *slots += sum.count;
        uint32_t got = hly_recv(b, from, DATA_EDGE + p->local, landed, HLY_NONE, HLY_NONE);
        if (j + 1 == nnodes && sum.count == 1 && sum.first == b->params.rank && !x->stages) {
            to = hly_out(sum.first, 1);
        } else if (sum.buffer == HALAY_BUFFER_IN) {
            to = hly_scratch(sum.first, sum.count, *slots);
            *slots += sum.count;
        }
        added = hly_reduce(b, to, sum, landed, added, got);
        sum = to;
    }
    hand_out(x, p, sum, added);
}

/* Sums what other nodes get, and sends it to them. */
static void sum_for_others(struct blocks *x)
{
    const halay_shape_t *s = x->at.shape;

    for (uint32_t j = 1; j < s->nnodes; j++) {
        uint32_t node = (x->at.node + j) % s->nnodes;

        for (struct piece p = piece_from(s, node, 0); p.count;
             p = piece_from(s, node, p.local + p.count)) {
            halay_operand_t sum = sum_in_node(x, node, &p), from = carried(x, sum);
            if (sum.count == 0) {
                continue;
            }
            uint32_t read = moved(x, from, sum, x->last);
            uint32_t sent = hly_send(x->b, hly_team_rank(&x->team, node), DATA_EDGE + p.local, from,
                                     read, HLY_NONE);
            if (x->at.n == 1) { /* IN, where the result may go, is read */
                x->last = hly_after(x->b, x->last, x->stages ? read : sent);
            }
        }
    }
}

static void reduce_scatter(struct blocks *x)
{
    struct hly_builder *b = x->b;
    const halay_shape_t *s = x->at.shape;
    uint32_t me = x->at.node, r = b->params.rank;

    x->last = x->at.n > 1 ? hly_hear_node(b, &x->at) : HLY_NONE;
    sum_for_others(x);
    uint32_t slot = x->slots;
    for (struct piece p = piece_from(s, me, 0); p.count; p = piece_from(s, me, p.local + p.count)) {
        sum_in_node(x, me, &p);
    }
    /* Only now, since a result may go where IN is. */
    for (struct piece p = piece_from(s, me, 0); p.count; p = piece_from(s, me, p.local + p.count)) {
        halay_operand_t sum = place_of(x, me, &p, slot);
        slot += sum.count;
        take_in(x, &p, sum);
        if (!x->leads && r >= p.first && r < p.first + p.count) {
            receive(x, &p);
        }
    }
}

void hly_two_level_group_reduce_scatter(struct hly_builder *b)
{
    struct blocks x;

    open_blocks(&x, b, 0);
    reduce_scatter(&x);
}

void hly_two_level_stage_reduce_scatter(struct hly_builder *b)
{
    struct blocks x;

    open_blocks(&x, b, 1);
    if (x.team.n == 1) { /* nothing is sent, and all slots are the device's */
        hly_two_level_group_reduce_scatter(b);
        b->device_slots = b->scratch_slots;
        return;
    }
    for (uint32_t node = 0; x.at.n > 1 && x.leads && node < x.team.n; node++) {
        uint32_t n = hly_node_ranks(x.at.shape, node), lane = x.team.lane, lanes = x.team.lanes;
        b->device_slots += hly_run_begin(n, lanes, lane + 1) - hly_run_begin(n, lanes, lane);
    }
    x.stage = b->device_slots;
    reduce_scatter(&x);
}

/* ------------------------------------------------------------------ allgather */

/* Gathers this node's blocks; x->last is after that. */
static void gather_own(struct blocks *x)
{
    struct hly_builder *b = x->b;
    const halay_shape_t *s = x->at.shape;
    uint32_t me = x->at.node, r = b->params.rank;

    if (x->at.n == 1) {
        if (!b->params.in_place) {
            x->last = hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
        }
        return;
    }
    x->last = hly_hear_node(b, &x->at);
    for (struct piece p = piece_from(s, me, 0); p.count; p = piece_from(s, me, p.local + p.count)) {
        int mine = r >= p.first && r < p.first + p.count;
        uint32_t group = ranks_group(b, &x->at, HALAY_GROUP_ALLGATHER, &p);
        x->last = hly_group_step(b, group, FIRST_CHANNEL, hly_out(p.first, p.count),
                                 mine ? hly_in(r, 1) : hly_nothing(), x->last, HLY_NONE);
    }
}

/* A leader sends its lane's part of this node to those of all others. */
static void send_own(struct blocks *x)
{
    const halay_shape_t *s = x->at.shape;
    uint32_t me = x->at.node;

    for (struct piece p = piece_from(s, me, 0); p.count && s->nnodes > 1;
         p = piece_from(s, me, p.local + p.count)) {
        struct piece own = own_part(x, me, &p);
        int input = own.count == 1 && own.first == x->b->params.rank && !x->b->params.in_place;
        halay_operand_t run = hly_run(input ? HALAY_BUFFER_IN : HALAY_BUFFER_OUT,
                                      own.count ? own.first : 0, own.count);
        halay_operand_t from = carried(x, run);
        uint32_t read = moved(x, from, run, input ? HLY_NONE : x->last);

        for (uint32_t j = 1; j < s->nnodes && own.count; j++) {
            hly_send(x->b, hly_team_rank(&x->team, me + j), DATA_EDGE + p.local, from, read,
                     HLY_NONE);
        }
    }
}

/* The lane's part of a piece of another node; returns the step after which it is in *part. */
static uint32_t receive_part(struct blocks *x, uint32_t node, const struct piece *p,
                             halay_operand_t *part)
{
    struct piece own = own_part(x, node, p);

    *part = own.count ? hly_out(own.first, own.count) : hly_nothing();
    if (!own.count) {
        return HLY_NONE;
    }
    halay_operand_t landing = carried(x, *part);
    uint32_t got = hly_recv(x->b, hly_team_rank(&x->team, node), DATA_EDGE + p->local, landing,
                            HLY_NONE, HLY_NONE);
    return moved(x, *part, landing, got);
}

static void allgather(struct hly_builder *b, uint32_t stages)
{
    struct blocks x;

    open_blocks(&x, b, stages);
    const halay_shape_t *s = x.at.shape;
    gather_own(&x);
    send_own(&x);
    for (uint32_t j = 1; j < s->nnodes; j++) {
        uint32_t node = (x.at.node + s->nnodes - j) % s->nnodes;

        for (struct piece p = piece_from(s, node, 0); p.count;
             p = piece_from(s, node, p.local + p.count)) {
            halay_operand_t part;
            uint32_t got = receive_part(&x, node, &p, &part);

            if (x.at.n > 1) {
                uint32_t group = lanes_group(b, &x.at, HALAY_GROUP_ALLGATHER, node, &p);
                x.last = hly_group_step(b, group, SECOND_CHANNEL, hly_out(p.first, p.count), part,
                                        x.last, got);
            }
        }
    }
}

void hly_two_level_group_allgather(struct hly_builder *b)
{
    allgather(b, 0);
}

void hly_two_level_stage_allgather(struct hly_builder *b)
{
    allgather(b, 1);
}

/* ------------------------------------------------------------------ broadcast */

/* The lanes of a slice on this node, a block each; or all of them are the root's. */
static uint32_t slice_group(struct hly_builder *b, const struct hly_place *at, uint32_t kind,
                            uint32_t base)
{
    uint32_t group = hly_group(b, kind, at->n), lanes = at->shape->smallest, next = base;
    halay_member_t *member = hly_group_members(b, group);

    for (uint32_t i = 0, lane = 0; member && i < at->n; i++) {
        int leads = lane < lanes && i == hly_run_begin(at->n, lanes, lane);
        int all = kind == HALAY_GROUP_BROADCAST && at->member[i] == b->params.root;

        lane += (uint32_t)leads;
        member[i].rank = at->member[i];
        member[i].first = next % b->blocks;
        member[i].count = kind == HALAY_GROUP_BROADCAST ? (all ? lanes : 0) : (uint32_t)leads;
        next += member[i].count;
    }
    return group;
}

/* A lane's block from leader to leader, over the nodes counted from the root's: binomial.c. It is
 * in OUT after the step that is returned, as it is after `got` in the root's node; *sent is after
 * all messages from there. */
static uint32_t relay(struct blocks *x, uint32_t zero, uint32_t block, uint32_t edge, uint32_t got,
                      uint32_t *sent)
{
    uint32_t n = x->team.n, number = (x->at.node + n - zero) % n, bit = 1;

    if (n == 1) {
        return got;
    }
    halay_operand_t there = hly_out(block, 1), at = carried(x, there);
    while (bit < n && !(number & bit)) {
        bit *= 2;
    }
    if (number != 0) {
        got = hly_recv(x->b, hly_team_rank(&x->team, zero + number - bit), edge, at, HLY_NONE,
                       HLY_NONE);
    } else {
        got = moved(x, at, there, got);
    }
    while (bit /= 2) {
        if (number + bit < n) {
            uint32_t sends = hly_send(x->b, hly_team_rank(&x->team, zero + number + bit), edge, at,
                                      got, HLY_NONE);
            *sent = x->stages ? HLY_NONE : hly_after(x->b, *sent, sends);
        }
    }
    return number != 0 ? moved(x, there, at, got) : got;
}

static void broadcast(struct hly_builder *b, uint32_t slices, uint32_t stages)
{
    struct blocks x;

    open_blocks(&x, b, stages);
    const halay_shape_t *s = x.at.shape;
    uint32_t lanes = s->smallest, zero = s->node[b->params.root], root = b->params.root;
    b->blocks = lanes * slices;
    x.last = x.at.n > 1 ? hly_hear_node(b, &x.at) : HLY_NONE;
    for (uint32_t slice = 0; slice < slices; slice++) {
        uint32_t base = slice * lanes, got = HLY_NONE, sent = HLY_NONE, block = base + x.team.lane;

        if (x.at.n > 1 && x.at.node == zero) {
            uint32_t group = slice_group(b, &x.at, HALAY_GROUP_BROADCAST, base);
            halay_operand_t from = b->params.rank == root ? hly_out(base, lanes) : hly_nothing();
            got = x.last = hly_group_step(b, group, FIRST_CHANNEL, hly_out(base, lanes), from,
                                          x.last, HLY_NONE);
        }
        if (x.leads) {
            got = relay(&x, zero, block, DATA_EDGE + slice, got, &sent);
        }
        if (x.at.n > 1 && x.at.node != zero) {
            uint32_t group = slice_group(b, &x.at, HALAY_GROUP_ALLGATHER, base);
            halay_operand_t from = x.leads ? hly_out(block, 1) : hly_nothing();
            x.last = hly_group_step(b, group, SECOND_CHANNEL, hly_out(base, lanes), from,
                                    hly_after(b, x.last, got), sent);
        }
    }
    hly_two_level_hear(b, DATA_EDGE + slices);
}

void hly_two_level_group_broadcast(struct hly_builder *b)
{
    broadcast(b, 1, 0);
}

void hly_sliced_group_broadcast(struct hly_builder *b)
{
    broadcast(b, SLICES, 0);
}

void hly_two_level_stage_broadcast(struct hly_builder *b)
{
    broadcast(b, 1, 1);
}

void hly_sliced_stage_broadcast(struct hly_builder *b)
{
    broadcast(b, SLICES, 1);
}
