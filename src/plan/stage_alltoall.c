/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_alltoall.c - alltoall in memory that messages cannot carry: in the node by a device,
 * between nodes over the stage, so that a node's own blocks never leave its devices.
 *
 * The ranks of a node hear from one another by empty messages, then exchange their blocks in one
 * group step. Where they are not consecutive, or in place, their blocks move aside to slots of the
 * device's memory before, and where they are not consecutive to their places after it.
 *
 * Between nodes the rounds are those of pairwise.c in place: in round k those ranks are partners
 * whose sum is k modulo p, so each pair meets once, and what lands in place of a block lands when
 * that has been read. A block is copied to a slot of the stage and sent from there, or received in
 * one and copied from there. WINDOW slots each way serve the rounds in turn, so copies down,
 * messages and copies up of different rounds overlap.
 */
#include "two_level.h"

enum { WINDOW = 4 };

/* The node's group step, of the blocks from that of `from` on. */
static uint32_t exchange(struct hly_builder *b, const struct hly_place *at, halay_operand_t to,
                         halay_operand_t from, uint32_t ready)
{
    uint32_t group = hly_group(b, HALAY_GROUP_ALLTOALL, at->n), heard = hly_hear_node(b, at);
    halay_member_t *member = hly_group_members(b, group);

    for (uint32_t i = 0; member && i < at->n; i++) {
        member[i] = (halay_member_t){.rank = at->member[i], .first = from.first + i, .count = 1};
    }
    return hly_group_step(b, group, 0, to, from, heard, ready);
}

/* The blocks of this node's ranks. */
static void in_node(struct hly_builder *b, const struct hly_place *at)
{
    uint32_t n = at->n, first = at->member[0], read = HLY_NONE;
    int together = at->member[n - 1] - first == n - 1;

    if (n == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(first, 1), hly_in(first, 1), HLY_NONE, HLY_NONE);
    }
    if (n == 1) {
        return;
    }
    if (together && !b->params.in_place) {
        exchange(b, at, hly_out(first, n), hly_in(first, n), HLY_NONE);
        return;
    }
    if (together) {
        halay_operand_t aside = hly_scratch(first, n, 0);
        read = hly_copy(b, aside, hly_in(first, n), HLY_NONE, HLY_NONE);
        exchange(b, at, hly_out(first, n), aside, read);
        b->device_slots = n;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t copied =
            hly_copy(b, hly_scratch(i, 1, i), hly_in(at->member[i], 1), HLY_NONE, HLY_NONE);
        read = hly_after(b, read, copied);
    }
    uint32_t done = exchange(b, at, hly_scratch(0, n, n), hly_scratch(0, n, 0), read);
    for (uint32_t i = 0; i < n; i++) {
        hly_copy(b, hly_out(at->member[i], 1), hly_scratch(i, 1, n + i), done, HLY_NONE);
    }
    b->device_slots = 2 * n;
}

static void between_nodes(struct hly_builder *b, const struct hly_place *at)
{
    uint32_t p = b->params.nranks, far = p - at->n, window = far < WINDOW ? far : WINDOW;
    uint32_t sent[WINDOW], taken[WINDOW], n = 0;

    for (uint32_t i = 0; i < WINDOW; i++) {
        sent[i] = taken[i] = HLY_NONE;
    }
    for (uint32_t k = 0; k < p; k++) {
        uint32_t other = (k + p - b->params.rank) % p;

        if (at->shape->node[other] == at->node) {
            continue;
        }
        uint32_t i = n++ % window;
        halay_operand_t leaves = hly_scratch(other, 1, b->device_slots + i);
        halay_operand_t lands = hly_scratch(other, 1, b->device_slots + window + i);
        uint32_t read = hly_copy(b, leaves, hly_in(other, 1), sent[i], HLY_NONE);
        sent[i] = hly_send(b, other, 0, leaves, read, HLY_NONE);
        uint32_t got = hly_recv(b, other, 0, lands, taken[i], HLY_NONE);
        taken[i] = hly_copy(b, hly_out(other, 1), lands, got, b->params.in_place ? read : HLY_NONE);
    }
}

void hly_two_level_stage_alltoall(struct hly_builder *b)
{
    struct hly_place at = hly_place_of(b);

    b->blocks = b->params.nranks;
    in_node(b, &at);
    between_nodes(b, &at);
}
