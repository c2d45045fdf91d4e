/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level_short.c - few bytes or none: one leader a node, trees in the nodes.
 *
 * Luo et al.: HAN, a hierarchical autotuned collective communication framework, CLUSTER 2020. The
 * tree in a node has radix 4, because a reduce takes four sources: on level t, local rank a that is
 * a multiple of 4^(t+1) gathers from a + 4^t, a + 2*4^t and a + 3*4^t, each of which has gathered
 * what follows it. So operands stand in local order, and between nodes (recursive_doubling.c) in
 * the order of nodes: in the order of ranks wherever each node's ranks are consecutive.
 */
#include "two_level.h"

#include <assert.h>

enum { RADIX = 4, IN_EDGE = 0, OUT_EDGE = 1, BETWEEN_EDGE = 2 };

struct hly_place hly_place_of(const struct hly_builder *b)
{
    const halay_shape_t *s = b->params.shape;
    uint32_t node = s->node[b->params.rank];
    struct hly_place at = {.shape = s, .node = node, .n = hly_node_ranks(s, node)};

    at.member = s->member + s->first[node];
    uint32_t low = 0, high = at.n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (at.member[middle] <= b->params.rank) {
            low = middle;
        } else {
            high = middle;
        }
    }
    assert(at.member[low] == b->params.rank);
    at.me = low;
    return at;
}

/* Levels of the tree on which this rank gathers; *unit is 4 to that. */
static uint32_t levels_of(const struct hly_place *at, uint64_t *unit)
{
    uint32_t levels = 0;

    for (*unit = 1; *unit < at->n && at->me % (RADIX * *unit) == 0; *unit *= RADIX) {
        levels++;
    }
    return levels;
}

uint32_t hly_fan_slots(const struct hly_place *at)
{
    uint64_t unit;

    return levels_of(at, &unit) * (RADIX - 1);
}

uint32_t hly_fan_in(struct hly_builder *b, const struct hly_place *at, int data, uint32_t edge,
                    halay_operand_t *sum)
{
    uint64_t top, unit = 1;
    uint32_t levels = levels_of(at, &top), last = HLY_NONE;

    *sum = data ? hly_in(0, 1) : hly_nothing();
    for (uint32_t level = 0; level < levels; level++, unit *= RADIX) {
        halay_operand_t sources[RADIX] = {*sum};
        uint32_t n = 1, got = HLY_NONE;

        for (; n < RADIX && at->me + n * unit < at->n; n++) {
            uint32_t slot = level * (RADIX - 1) + n - 1;
            sources[n] = data ? hly_scratch(0, 1, slot) : hly_nothing();
            got = hly_after(
                b, got,
                hly_recv(b, at->member[at->me + n * unit], edge, sources[n], HLY_NONE, HLY_NONE));
        }
        if (!data || n == 1) {
            last = hly_after(b, last, got);
            continue;
        }
        last = hly_reduce_many(b, hly_out(0, 1), sources, n, got, last);
        *sum = hly_out(0, 1);
    }
    if (at->me != 0) {
        return hly_send(b, at->member[at->me - at->me % (RADIX * top)], edge, *sum, last, HLY_NONE);
    }
    return last;
}

uint32_t hly_fan_out(struct hly_builder *b, const struct hly_place *at, int data, uint32_t edge,
                     uint32_t start)
{
    halay_operand_t out = data ? hly_out(0, 1) : hly_nothing();
    uint64_t unit;

    levels_of(at, &unit);
    if (at->me != 0) {
        start =
            hly_recv(b, at->member[at->me - at->me % (RADIX * unit)], edge, out, start, HLY_NONE);
    }
    while (unit /= RADIX) {
        for (uint32_t n = 1; n < RADIX && at->me + n * unit < at->n; n++) {
            hly_send(b, at->member[at->me + n * unit], edge, out, start, HLY_NONE);
        }
    }
    return start;
}

void hly_two_level_short_allreduce(struct hly_builder *b)
{
    struct hly_place at = hly_place_of(b);
    halay_operand_t sum;

    b->blocks = 1;
    uint32_t done = hly_fan_in(b, &at, 1, IN_EDGE, &sum);
    if (at.me != 0) {
        /* What went up was read from the memory that the result goes to, but from IN apart. */
        int same = b->params.in_place || sum.buffer == HALAY_BUFFER_OUT;
        hly_fan_out(b, &at, 1, OUT_EDGE, same ? done : HLY_NONE);
        return;
    }
    struct hly_team team = hly_leaders(&at, 1, 0);
    done = hly_doubling(b, &team, sum, done, BETWEEN_EDGE, hly_fan_slots(&at));
    if (b->params.nranks == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    hly_fan_out(b, &at, 1, OUT_EDGE, done);
}

void hly_two_level_hear(struct hly_builder *b, uint32_t edge)
{
    struct hly_place at = hly_place_of(b);
    struct hly_team team = hly_leaders(&at, 1, 0);
    uint32_t done[2];
    halay_operand_t nothing;

    uint32_t last = hly_fan_in(b, &at, 0, edge + IN_EDGE, &nothing);
    if (at.me == 0) {
        hly_hear_team(b, &team, last, edge + BETWEEN_EDGE, done);
        last = hly_after(b, done[0], done[1]);
    }
    hly_fan_out(b, &at, 0, edge + OUT_EDGE, at.me == 0 ? last : HLY_NONE);
}

void hly_two_level_barrier(struct hly_builder *b)
{
    b->blocks = 0;
    hly_two_level_hear(b, 0);
}
