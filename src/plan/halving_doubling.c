/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halving_doubling.c - many bytes, in the order of ranks: for operations that do not commute.
 *
 * Rabenseifner's algorithm (Thakur, Rabenseifner, Gropp: Optimization of collective communication
 * operations in MPICH, IJHPCA 19(1), 2005) with the nearest ranks first, so that every partial sum
 * is of consecutive ranks. q is the largest power of two in p; the first p-q pairs of ranks fold,
 * as in recursive doubling, with all data. The q ranks left are numbered in their order, and the
 * data are q blocks.
 *  - Scatter phase: in round i, number and number ^ 2^i halve the run of blocks that both have: who
 * has the 0 keeps the lower half, gives the other away, and adds what it gets on the right.
 *  - Gather phase: the same rounds backwards; who gave a half away gets its sum back.
 * Partial sums live in OUT. What is received has slots of its own in each round; the first round's
 * are also those of the fold.
 */
#include "builder.h"

enum { FOLD_EDGE = 0, FIRST_EDGE = 1 };

/* What one number keeps and gives away in a round. */
struct halves {
    uint32_t peer, edge, keep, give, count;
    int lower;
    uint32_t sent;
};

static uint32_t cut_in_halves(struct halves halves[], uint32_t number, uint32_t q, uint32_t folded)
{
    uint32_t rounds = 0, first = 0;

    for (uint32_t bit = 1; bit < q; bit *= 2, rounds++) {
        struct halves *h = &halves[rounds];
        h->lower = !(number & bit);
        h->count = q / bit / 2;
        h->keep = first + (h->lower ? 0 : h->count);
        h->give = first + (h->lower ? h->count : 0);
        h->peer = hly_unfolded(number ^ bit, folded);
        h->edge = FIRST_EDGE + 2 * rounds;
        first = h->keep;
    }
    return rounds;
}

/* Both phases of one number, whose data are in `from` after step `ready`; returns the last steps
 * in done[]. */
static void halve_and_double(struct hly_builder *b, uint32_t number, uint32_t q, uint32_t from,
                             uint32_t ready, uint32_t done[2])
{
    struct halves halves[HLY_ROUNDS_MAX];
    uint32_t rounds = cut_in_halves(halves, number, q, b->params.nranks - q), slot = 0;
    uint32_t folded = ready;

    for (uint32_t i = 0; i < rounds; i++) {
        struct halves *h = &halves[i];
        halay_operand_t own = hly_run(from, h->keep, h->count);
        halay_operand_t got = hly_scratch(h->keep, h->count, slot);
        int same = from == HALAY_BUFFER_OUT || b->params.in_place;

        uint32_t sent =
            hly_send(b, h->peer, h->edge, hly_run(from, h->give, h->count), ready, HLY_NONE);
        uint32_t landed = hly_recv(b, h->peer, h->edge, got, folded, HLY_NONE);
        h->sent = same ? sent : HLY_NONE;
        ready = hly_reduce(b, hly_out(h->keep, h->count), h->lower ? own : got,
                           h->lower ? got : own, landed, ready);
        from = HALAY_BUFFER_OUT;
        slot += h->count;
    }
    uint32_t got = HLY_NONE;
    for (uint32_t i = rounds; i-- > 0;) {
        const struct halves *h = &halves[i];

        ready = hly_after(b, ready, got);
        hly_send(b, h->peer, h->edge + 1, hly_out(h->keep, h->count), ready, HLY_NONE);
        got = hly_recv(b, h->peer, h->edge + 1, hly_out(h->give, h->count), h->sent, HLY_NONE);
    }
    done[0] = ready;
    done[1] = got;
}

void hly_halving_doubling_allreduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, q = 1, done[2];

    while (q <= p / 2) {
        q *= 2;
    }
    uint32_t folded = p - q;
    b->blocks = q;
    if (p == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    if (r >= 2 * folded) {
        halve_and_double(b, r - folded, q, HALAY_BUFFER_IN, HLY_NONE, done);
        return;
    }
    if (r % 2 == 1) {
        uint32_t sent = hly_send(b, r - 1, FOLD_EDGE, hly_in(0, q), HLY_NONE, HLY_NONE);
        hly_recv(b, r - 1, FOLD_EDGE, hly_out(0, q), b->params.in_place ? sent : HLY_NONE,
                 HLY_NONE);
        return;
    }
    halay_operand_t landing = hly_scratch(0, q, 0);
    uint32_t got = hly_recv(b, r + 1, FOLD_EDGE, landing, HLY_NONE, HLY_NONE);
    uint32_t summed = hly_reduce(b, hly_out(0, q), hly_in(0, q), landing, got, HLY_NONE);
    halve_and_double(b, r / 2, q, HALAY_BUFFER_OUT, summed, done);
    hly_send(b, r + 1, FOLD_EDGE, hly_out(0, q), done[0], done[1]);
}
