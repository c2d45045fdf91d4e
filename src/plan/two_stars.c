/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_stars.c - ranks of even and of odd number each tell one, these two tell one another, and then
 * each its own: as many messages as a star has, and half of the work for either centre.
 *
 * For ranks that share two processors and were dealt out to them in turn, as halayrun does: then
 * each star is of one processor, only the two centres wait for another one, and that for as long as
 * it is behind. On others it is a tree of three rounds. Ranks 0 and 1 are the centres.
 */
#include "builder.h"

/* Edges: 0, and between the centres HALF, and of a reduce WORD. */
enum { SOURCES = 4, CENTRES = 2, HALF = 1, WORD = 2 };

static uint32_t centre_of(uint32_t rank)
{
    return rank % CENTRES;
}

void hly_two_stars_barrier(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, heard = HLY_NONE;

    b->blocks = 0;
    if (r >= CENTRES) {
        hly_send(b, centre_of(r), 0, hly_nothing(), HLY_NONE, HLY_NONE);
        hly_recv(b, centre_of(r), 0, hly_nothing(), HLY_NONE, HLY_NONE);
        return;
    }
    for (uint32_t from = r + CENTRES; from < p; from += CENTRES) {
        heard = hly_after(b, heard, hly_recv(b, from, 0, hly_nothing(), HLY_NONE, HLY_NONE));
    }
    if (p > 1) {
        hly_send(b, 1 - r, HALF, hly_nothing(), heard, HLY_NONE);
        heard = hly_after(b, heard, hly_recv(b, 1 - r, HALF, hly_nothing(), HLY_NONE, HLY_NONE));
    }
    for (uint32_t to = r + CENTRES; to < p; to += CENTRES) {
        hly_send(b, to, 0, hly_nothing(), heard, HLY_NONE);
    }
}

/* What this centre's ranks send comes to slots from 1 on; the sum of its half stays in the first of
 * them, or is its input, if it has none. */
static halay_operand_t sum_half(struct hly_builder *b, uint32_t *after)
{
    uint32_t r = b->params.rank, others = (b->params.nranks - 1 - r) / CENTRES, next = 0;
    halay_operand_t sum = hly_in(0, 1);

    for (uint32_t i = 1; i <= others; i++) {
        uint32_t from = r + i * CENTRES;
        uint32_t got = hly_recv(b, from, 0, hly_scratch(0, 1, i), HLY_NONE, HLY_NONE);
        *after = hly_after(b, *after, got);
    }
    while (next < others) {
        halay_operand_t sources[SOURCES] = {sum};
        uint32_t n = 1;

        for (; n < SOURCES && next < others; n++, next++) {
            sources[n] = hly_scratch(0, 1, 1 + next);
        }
        sum = hly_scratch(0, 1, 1);
        *after = hly_reduce_many(b, sum, sources, n, *after, HLY_NONE);
    }
    return sum;
}

/* The other centre's half is in slot 0. All sum in one order: even, odd. */
static void meet(struct hly_builder *b, halay_operand_t mine, uint32_t after)
{
    uint32_t p = b->params.nranks, r = b->params.rank;
    halay_operand_t other = hly_scratch(0, 1, 0);

    uint32_t sent = hly_send(b, 1 - r, HALF, mine, after, HLY_NONE);
    uint32_t got = hly_recv(b, 1 - r, HALF, other, HLY_NONE, HLY_NONE);
    got = hly_after(b, got, after);
    sent = mine.buffer == HALAY_BUFFER_IN && b->params.in_place ? sent : HLY_NONE;
    uint32_t all = hly_reduce(b, hly_out(0, 1), r ? other : mine, r ? mine : other, got, sent);
    for (uint32_t to = r + CENTRES; to < p; to += CENTRES) {
        hly_send(b, to, 0, hly_out(0, 1), all, HLY_NONE);
    }
}

/*
 * The half that the root is not of goes to the other centre; nothing but word of it comes back. The
 * root gets the sum, the others of both stars hear of it. Two centres that each take the other's
 * half for the root's would both only send: so word goes ahead.
 */
static void meet_for(struct hly_builder *b, halay_operand_t mine, uint32_t heard)
{
    uint32_t p = b->params.nranks, r = b->params.rank, root = b->params.root;
    uint32_t others = (p - 1 - r) / CENTRES, all;
    halay_operand_t other = hly_scratch(0, 1, 0), sum = hly_scratch(0, 1, 1 + others);

    if (centre_of(root) == r) {
        sum = root == r ? hly_out(0, 1) : sum;
        hly_send(b, 1 - r, HALF, hly_nothing(), heard, HLY_NONE);
        hly_recv(b, 1 - r, WORD, hly_nothing(), HLY_NONE, HLY_NONE);
        uint32_t got = hly_recv(b, 1 - r, HALF, other, HLY_NONE, HLY_NONE);
        all = hly_reduce(b, sum, r ? other : mine, r ? mine : other, got, heard);
    } else {
        hly_send(b, 1 - r, WORD, hly_nothing(), HLY_NONE, HLY_NONE);
        hly_send(b, 1 - r, HALF, mine, heard, HLY_NONE);
        all = hly_recv(b, 1 - r, HALF, hly_nothing(), HLY_NONE, HLY_NONE);
        all = hly_after(b, all, heard);
    }
    for (uint32_t to = r + CENTRES; to < p; to += CENTRES) {
        hly_send(b, to, 0, to == root ? sum : hly_nothing(), all, HLY_NONE);
    }
}

/* gets: this rank has the sum in the end. */
static void two_stars(struct hly_builder *b, int gets,
                      void (*centres_meet)(struct hly_builder *, halay_operand_t, uint32_t))
{
    uint32_t r = b->params.rank, heard = HLY_NONE;

    b->blocks = 1;
    if (r >= CENTRES) {
        uint32_t sent = hly_send(b, centre_of(r), 0, hly_in(0, 1), HLY_NONE, HLY_NONE);
        hly_recv(b, centre_of(r), 0, gets ? hly_out(0, 1) : hly_nothing(),
                 gets && b->params.in_place ? sent : HLY_NONE, HLY_NONE);
        return;
    }
    if (b->params.nranks == 1) {
        if (!b->params.in_place) {
            hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
        }
        return;
    }
    halay_operand_t half = sum_half(b, &heard);
    centres_meet(b, half, heard);
}

void hly_two_stars_allreduce(struct hly_builder *b)
{
    two_stars(b, 1, meet);
}

void hly_two_stars_reduce(struct hly_builder *b)
{
    two_stars(b, b->params.rank == b->params.root, meet_for);
}
