/* SPDX-License-Identifier: Apache-2.0 */
/*
 * circulant.c - log2 p rounds and each byte sent (p-1)/p times a phase, for any p.
 *
 * J. L. Traeff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, arXiv 2407.18004,
 * 2024. The skips are p, ceil(p/2), ceil(p/4) ... 1. p blocks; rank r counts them from its own: its
 * piece i is block r+i modulo p.
 *  - Scatter phase: in round k, with skip s and the one before it s', rank r sends its partial sums
 * of pieces s..s'-1 to r+s, and adds what comes from r-s to its pieces 0..s'-s-1 (own left,
 * received right). At the end piece 0 is complete.
 *  - Gather phase: the same rounds and runs backwards, received instead of sent.
 * Each phase has ceil(log2 p) rounds (where the skips end in 3, 2, 1 two of them overlap), one
 * message a round where the partial sums may live in memory that all blocks share: OUT of an
 * allreduce, IN of a reduce-scatter in place. Otherwise they live in SCRATCH, which can be read
 * only as it was written, and a message carries one block.
 */
#include <assert.h>

#include "builder.h"

void hly_circulant_init(struct hly_circulant *c, uint32_t n)
{
    c->rounds = 0;
    c->skip[0] = n;
    while (c->skip[c->rounds] > 1) {
        c->sent[c->rounds] = HLY_NONE;
        c->skip[c->rounds + 1] = (c->skip[c->rounds] + 1) / 2;
        c->rounds++;
    }
}

/* The send that reads block 0, for a result that goes to the same memory. */
static uint32_t reader_of_block_0(const struct hly_builder *b, const struct hly_circulant *c)
{
    uint32_t piece = b->params.nranks - b->params.rank, k = 0;

    if (b->params.rank == 0) {
        return HLY_NONE; /* piece 0 itself */
    }
    while (piece < c->skip[k + 1]) {
        k++;
        assert(k < c->rounds);
    }
    return c->sent[k];
}

/*
 * Scatter phase with the partial sums in the full buffer `home`. Returns the step that completes
 * piece 0, which goes to OUT. Round 0 takes its inputs straight from IN.
 */
static uint32_t scatter_runs(struct hly_builder *b, struct hly_circulant *c, uint32_t home)
{
    uint32_t r = b->params.rank, p = b->params.nranks;
    uint32_t sums[HLY_ROUNDS_MAX], copied = HLY_NONE, last = HLY_NONE;

    for (uint32_t k = 0; k < c->rounds; k++) {
        uint32_t s = c->skip[k + 1], n = c->skip[k] - s;
        uint32_t from = k == 0 ? HALAY_BUFFER_IN : home;
        /* Round k-1 left alone what is sent now if only one piece was left over (3 to 2 to 1). */
        int untouched = k > 0 && s >= c->skip[k - 1] - c->skip[k];
        uint32_t summed = !untouched ? last : k > 1 ? sums[k - 2] : HLY_NONE;
        halay_operand_t landing = hly_scratch(r, n, k % 2 ? p / 2 : 0);
        halay_operand_t to = k + 1 == c->rounds ? hly_out(r, 1) : hly_run(home, r, n);

        c->sent[k] = hly_send(b, hly_up(b, s), k, hly_run(from, hly_up(b, s), n), summed, copied);
        uint32_t got =
            hly_recv(b, hly_down(b, s), k, landing, k < 2 ? HLY_NONE : sums[k - 2], HLY_NONE);
        if (k + 1 == c->rounds && home == HALAY_BUFFER_IN) {
            last = hly_after(b, last, reader_of_block_0(b, c));
        }
        last = hly_reduce(b, to, hly_run(from, r, n), landing, got, last);
        sums[k] = last;
        copied = HLY_NONE;
        if (k == 0 && p % 2 == 1 && !b->params.in_place) {
            /* An odd p leaves one piece that nobody adds to in round 0 and that round 1 sends. */
            copied =
                hly_copy(b, hly_out(hly_up(b, n), 1), hly_in(hly_up(b, n), 1), HLY_NONE, HLY_NONE);
        }
    }
    return last;
}

/* Gather phase. Block r is in OUT after step `own`; `from_in`: it may be sent from IN
 * before that. */
static void gather_runs(struct hly_builder *b, const struct hly_circulant *c, uint32_t own,
                        int from_in)
{
    uint32_t r = b->params.rank, ready = own, got = HLY_NONE;

    for (uint32_t k = c->rounds; k-- > 0;) {
        uint32_t s = c->skip[k + 1], n = c->skip[k] - s, edge = c->rounds + k;

        if (from_in && k + 1 == c->rounds) {
            hly_send(b, hly_down(b, s), edge, hly_in(r, 1), HLY_NONE, HLY_NONE);
        } else {
            int uses_got = k + 1 < c->rounds && n > c->skip[k + 2];
            hly_send(b, hly_down(b, s), edge, hly_out(r, n), ready, uses_got ? got : HLY_NONE);
        }
        if (k > 0) {
            ready = hly_after(b, ready, got);
        }
        got = hly_recv(b, hly_up(b, s), edge, hly_out(hly_up(b, s), n), c->sent[k], HLY_NONE);
    }
}

void hly_circulant_gather(struct hly_builder *b, const struct hly_circulant *c, uint32_t own)
{
    gather_runs(b, c, own, 0);
}

void hly_circulant_allreduce(struct hly_builder *b)
{
    struct hly_circulant c;

    hly_circulant_init(&c, b->params.nranks);
    b->blocks = b->params.nranks;
    if (b->params.nranks == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    uint32_t own = scatter_runs(b, &c, HALAY_BUFFER_OUT);
    if (!b->params.in_place) {
        c.sent[0] = HLY_NONE; /* round 0 sent from IN */
    }
    gather_runs(b, &c, own, 0);
}

void hly_circulant_allgather(struct hly_builder *b)
{
    uint32_t r = b->params.rank, own = HLY_NONE;
    struct hly_circulant c;

    hly_circulant_init(&c, b->params.nranks);
    b->blocks = b->params.nranks;
    if (!b->params.in_place) {
        own = hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
    }
    gather_runs(b, &c, own, 1);
}

/* Where piece i is before round k, and the step that put it there (HLY_NONE: it is input). */
static halay_operand_t piece_before(const struct hly_builder *b, const struct hly_circulant *c,
                                    const uint32_t sums[], uint32_t k, uint32_t i, uint32_t *after)
{
    while (k-- > 0) {
        if (i < c->skip[k] - c->skip[k + 1]) {
            *after = sums[k] + 2 * i;
            return hly_scratch(hly_up(b, i), 1, b->params.nranks - c->skip[k] + i);
        }
    }
    *after = HLY_NONE;
    return hly_in(hly_up(b, i), 1);
}

/*
 * Scatter phase with the partial sums where they were received: in slots, a block each; piece 0
 * ends in `result`, after the last step. sums[]: the first of a round's reduce steps; each second
 * step is one.
 */
static void scatter_blocks(struct hly_builder *b, const struct hly_circulant *c,
                           halay_operand_t result, uint32_t sums[HLY_ROUNDS_MAX])
{
    uint32_t after;

    for (uint32_t k = 0; k < c->rounds; k++) {
        uint32_t s = c->skip[k + 1], n = c->skip[k] - s;

        for (uint32_t i = s; i < s + n; i++) {
            halay_operand_t piece = piece_before(b, c, sums, k, i, &after);
            hly_send(b, hly_up(b, s), i, piece, after, HLY_NONE);
        }
        sums[k] = b->nsteps + 1;
        for (uint32_t i = 0; i < n; i++) {
            halay_operand_t piece = piece_before(b, c, sums, k, i, &after);
            halay_operand_t landing =
                hly_scratch(hly_up(b, i), 1, b->params.nranks - c->skip[k] + i);
            halay_operand_t to = k + 1 == c->rounds ? result : landing;
            uint32_t got = hly_recv(b, hly_down(b, s), s + i, landing, HLY_NONE, HLY_NONE);
            hly_reduce(b, to, piece, landing, got, after);
        }
    }
}

/* The step that reads piece i of IN: the only one, unless it is piece 0. */
static uint32_t reader_of_input(const struct hly_circulant *c, const uint32_t sums[], uint32_t i)
{
    uint32_t k = 0;

    while (i >= c->skip[k] - c->skip[k + 1] && i < c->skip[k + 1]) {
        k++; /* left alone: p is odd, and this is the middle one */
    }
    uint32_t s = c->skip[k + 1], n = c->skip[k] - s;
    return i < n ? sums[k] + 2 * i : sums[k] - 1 - n + (i - s);
}

/*
 * Scatter phase, then each rank sends the root its sum. (Rabenseifner's scheme; Thakur,
 * Rabenseifner, Gropp, IJHPCA 19, 2005, on this graph.) In place the sums replace the root's inputs
 * when those have been read.
 */
void hly_circulant_reduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, sums[HLY_ROUNDS_MAX] = {0}, done[2];
    int is_root = r == b->params.root;
    struct hly_team all = hly_team_of_all(b);
    struct hly_circulant c;

    hly_circulant_init(&c, p);
    b->blocks = p;
    if (p == 1) {
        if (!b->params.in_place) {
            hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
        }
        return;
    }
    halay_operand_t sum = is_root ? hly_out(r, 1) : hly_scratch(r, 1, p - c.skip[c.rounds - 1]);
    scatter_blocks(b, &c, sum, sums);
    if (!is_root) {
        hly_send(b, b->params.root, p, sum, b->nsteps - 1, HLY_NONE);
    }
    for (uint32_t i = 1; is_root && i < p; i++) {
        uint32_t from = hly_up(b, i), reader = reader_of_input(&c, sums, i);
        hly_recv(b, from, p, hly_out(from, 1), b->params.in_place ? reader : HLY_NONE, HLY_NONE);
    }
    hly_hear_team(b, &all, HLY_NONE, p + 1, done);
}

void hly_circulant_reduce_scatter(struct hly_builder *b)
{
    struct hly_circulant c;
    uint32_t sums[HLY_ROUNDS_MAX] = {0};

    hly_circulant_init(&c, b->params.nranks);
    b->blocks = b->params.nranks;
    if (b->params.in_place) {
        scatter_runs(b, &c, HALAY_BUFFER_IN);
    } else if (b->params.nranks == 1) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    } else {
        scatter_blocks(b, &c, hly_out(b->params.rank, 1), sums);
    }
}
