/* SPDX-License-Identifier: Apache-2.0 */
/*
 * star.c - all tell one, which tells all: as few messages as it takes for all to hear from all.
 *
 * 2(p-1) messages: with one less somebody would not have heard of somebody (nearly: the gossip
 * problem, Baker, Shostak, Discrete Mathematics 2, 1972, needs 2p-4). One rank does most of the
 * work and there are two rounds; for ranks that share processors, where a message costs more than
 * it takes on its way: each has to run once a call, whoever comes first.
 *
 * The centre is rank 0, which no call can name otherwise: so two ranks never wait for one another.
 * In a broadcast it is the root, which therefore tells rank 0 that it takes itself for that, before
 * it waits for the others. So of two that both do, one hears of the other.
 */
#include "builder.h"

enum { SOURCES = 4 };

void hly_star_barrier(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, heard = HLY_NONE;

    b->blocks = 0;
    if (r != 0) {
        hly_send(b, 0, 0, hly_nothing(), HLY_NONE, HLY_NONE);
        hly_recv(b, 0, 0, hly_nothing(), HLY_NONE, HLY_NONE);
        return;
    }
    for (uint32_t from = 1; from < p; from++) {
        uint32_t got = hly_recv(b, from, 0, hly_nothing(), HLY_NONE, HLY_NONE);
        heard = hly_after(b, heard, got);
    }
    for (uint32_t to = 1; to < p; to++) {
        hly_send(b, to, 0, hly_nothing(), heard, HLY_NONE);
    }
}

/*
 * What the others sent is in slots, in the order of ranks after the centre's own, which is rank 0:
 * operations need not commute.
 */
static void sum_up(struct hly_builder *b, uint32_t heard)
{
    uint32_t p = b->params.nranks, next = 1, after = heard;
    halay_operand_t sum = hly_in(0, 1);

    while (next < p) {
        halay_operand_t sources[SOURCES] = {sum};
        uint32_t n = 1;

        for (; n < SOURCES && next < p; n++, next++) {
            sources[n] = hly_scratch(0, 1, next - 1);
        }
        sum = next == p ? hly_out(0, 1) : next == SOURCES ? sources[1] : sum;
        after = hly_reduce_many(b, sum, sources, n, after, HLY_NONE);
    }
    for (uint32_t up = 1; up < p; up++) {
        hly_send(b, up, 0, hly_out(0, 1), after, HLY_NONE);
    }
}

void hly_star_allreduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, heard = HLY_NONE;

    b->blocks = 1;
    if (r != 0) {
        uint32_t sent = hly_send(b, 0, 0, hly_in(0, 1), HLY_NONE, HLY_NONE);
        hly_recv(b, 0, 0, hly_out(0, 1), b->params.in_place ? sent : HLY_NONE, HLY_NONE);
        return;
    }
    if (p == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    for (uint32_t from = 1; from < p; from++) {
        uint32_t got = hly_recv(b, from, 0, hly_scratch(0, 1, from - 1), HLY_NONE, HLY_NONE);
        heard = hly_after(b, heard, got);
    }
    sum_up(b, heard);
}

void hly_star_allgather(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, heard = HLY_NONE;

    b->blocks = p;
    if (r != 0) {
        uint32_t sent = hly_send(b, 0, 0, hly_in(r, 1), HLY_NONE, HLY_NONE);
        hly_recv(b, 0, 0, hly_out(0, p), b->params.in_place ? sent : HLY_NONE, HLY_NONE);
        return;
    }
    if (!b->params.in_place) {
        heard = hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    for (uint32_t from = 1; from < p; from++) {
        uint32_t got = hly_recv(b, from, 0, hly_out(from, 1), HLY_NONE, HLY_NONE);
        heard = hly_after(b, heard, got);
    }
    for (uint32_t up = 1; up < p; up++) {
        hly_send(b, up, 0, hly_out(0, p), heard, HLY_NONE);
    }
}

void hly_star_broadcast(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, root = b->params.root, heard = HLY_NONE;

    b->blocks = 1;
    if (r != root) {
        hly_send(b, root, 0, hly_nothing(), HLY_NONE, HLY_NONE);
        if (r == 0) {
            hly_recv(b, root, 1, hly_nothing(), HLY_NONE, HLY_NONE);
        }
        hly_recv(b, root, 0, hly_out(0, 1), HLY_NONE, HLY_NONE);
        return;
    }
    if (r != 0) {
        hly_send(b, 0, 1, hly_nothing(), HLY_NONE, HLY_NONE);
    }
    for (uint32_t up = 1; up < p; up++) {
        uint32_t got = hly_recv(b, hly_up(b, up), 0, hly_nothing(), HLY_NONE, HLY_NONE);
        heard = hly_after(b, heard, got);
    }
    for (uint32_t up = 1; up < p; up++) {
        hly_send(b, hly_up(b, up), 0, hly_out(0, 1), heard, HLY_NONE);
    }
}
