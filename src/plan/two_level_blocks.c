/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level_blocks.c - allgather and reduce-scatter by many leaders: each block enters a node once.
 *
 * The block of a rank belongs to the lane in whose run the rank stands (two_level.h); a lane is the
 * blocks of its runs on all nodes. Leaders of a lane run the phases of circulant.c, where piece i
 * is now the run on node `own + i`. Between the phases a block is taken in from, or handed out to,
 * the ranks of the node. Every message is one block, whose number is the edge: no two messages of
 * one rank to another are the same block, because the skips of a circulant graph differ. So the
 * ranks of a node may have any numbers, and blocks may lie anywhere.
 */
#include <stdlib.h>

#include "two_level.h"

enum { LANDINGS = 3, GROUPS = 4 };

struct blocks {
    struct hly_builder *b;
    struct hly_place at;
    struct hly_team team; /* leaders of this rank's lane */
    struct hly_circulant graph;
    uint32_t mine; /* lane in whose run this rank stands */
    uint32_t leads;
    uint32_t reader;     /* reduce-scatter: the step that reads block 0 of IN */
    uint32_t slots;      /* given out so far */
    struct state {       /* of a block of the own lane, by its rank */
        uint32_t step;   /* that put it where it is; HLY_NONE: it is input */
        uint32_t slot;   /* reduce-scatter: of its sum */
        uint32_t summed; /* 1: it is in that slot, 0: in IN */
    } * of;
};

/* The ranks whose blocks are piece i of a lane: *n of them. */
static const uint32_t *piece(const struct blocks *x, uint32_t lane, uint32_t i, uint32_t *n)
{
    const halay_shape_t *s = x->at.shape;
    uint32_t node = (x->at.node + i) % s->nnodes, ranks = hly_node_ranks(s, node);
    uint32_t begin = hly_run_begin(ranks, s->smallest, lane);

    *n = hly_run_begin(ranks, s->smallest, lane + 1) - begin;
    return s->member + s->first[node] + begin;
}

static int open_blocks(struct blocks *x, struct hly_builder *b)
{
    *x = (struct blocks){.b = b, .at = hly_place_of(b), .reader = HLY_NONE};
    b->blocks = b->params.nranks;
    x->mine = hly_lane_of(x->at.n, x->at.shape->smallest, x->at.me);
    x->team = hly_leaders(&x->at, x->at.shape->smallest, x->mine);
    x->leads = hly_team_rank(&x->team, x->at.node) == b->params.rank;
    hly_circulant_init(&x->graph, x->team.n);
    x->of = calloc(x->leads ? b->params.nranks : 1, sizeof(*x->of));
    if (!x->of) {
        b->error = HALAY_ENOMEM;
        return 0;
    }
    return 1;
}

static uint32_t leader_of(const struct blocks *x, uint32_t lane)
{
    return hly_leader(x->at.shape, x->at.shape->smallest, x->at.node, lane);
}

/* ------------------------------------------------------------------ allgather */

/* Block q is in OUT after `step`: hands it to the ranks of the node, but its own. */
static void hand_out(struct blocks *x, uint32_t q, uint32_t step)
{
    x->of[q].step = step;
    for (uint32_t i = 1; i < x->at.n; i++) {
        uint32_t to = x->at.member[(x->at.me + i) % x->at.n];
        if (to != q) {
            hly_send(x->b, to, q, hly_out(q, 1), step, HLY_NONE);
        }
    }
}

static void lead_gather(struct blocks *x, uint32_t own)
{
    const struct hly_circulant *c = &x->graph;
    uint32_t n, r = x->b->params.rank;
    const uint32_t *ranks = piece(x, x->mine, 0, &n);

    for (uint32_t i = 0; i < n; i++) {
        hand_out(x, ranks[i],
                 ranks[i] == r ? own
                               : hly_recv(x->b, ranks[i], ranks[i], hly_out(ranks[i], 1), HLY_NONE,
                                          HLY_NONE));
    }
    for (uint32_t k = c->rounds; k-- > 0;) {
        uint32_t s = c->skip[k + 1], pieces = c->skip[k] - s;
        uint32_t to = hly_team_rank(&x->team, x->team.me + x->team.n - s);
        uint32_t from = hly_team_rank(&x->team, x->team.me + s);

        for (uint32_t j = 0; j < pieces; j++) {
            ranks = piece(x, x->mine, j, &n);
            for (uint32_t i = 0; i < n; i++) {
                hly_send(x->b, to, ranks[i], hly_out(ranks[i], 1), x->of[ranks[i]].step, HLY_NONE);
            }
        }
        for (uint32_t j = s; j < s + pieces; j++) {
            ranks = piece(x, x->mine, j, &n);
            for (uint32_t i = 0; i < n; i++) {
                hand_out(x, ranks[i],
                         hly_recv(x->b, from, ranks[i], hly_out(ranks[i], 1), HLY_NONE, HLY_NONE));
            }
        }
    }
}

/* What the leader of a lane hands out. */
static void follow_gather(struct blocks *x, uint32_t lane)
{
    for (uint32_t j = 0; j < x->team.n; j++) {
        uint32_t n;
        const uint32_t *ranks = piece(x, lane, j, &n);

        for (uint32_t i = 0; i < n; i++) {
            if (ranks[i] != x->b->params.rank) {
                hly_recv(x->b, leader_of(x, lane), ranks[i], hly_out(ranks[i], 1), HLY_NONE,
                         HLY_NONE);
            }
        }
    }
}

void hly_two_level_allgather(struct hly_builder *b)
{
    uint32_t r = b->params.rank, own = HLY_NONE;
    struct blocks x;

    if (!open_blocks(&x, b)) {
        return;
    }
    if (!x.leads) {
        hly_send(b, leader_of(&x, x.mine), r, hly_in(r, 1), HLY_NONE, HLY_NONE);
    }
    if (!b->params.in_place) {
        own = hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
    }
    for (uint32_t lane = 0; lane < x.team.lanes; lane++) {
        if (!x.leads || lane != x.mine) {
            follow_gather(&x, lane);
        }
    }
    if (x.leads) {
        lead_gather(&x, own);
    }
    free(x.of);
}

/* ------------------------------------------------------------------ reduce-scatter */

static halay_operand_t sum_of(const struct blocks *x, uint32_t q)
{
    return x->of[q].summed ? hly_scratch(q, 1, x->of[q].slot) : hly_in(q, 1);
}

/* Some step reads block q of IN. */
static void note_reader(struct blocks *x, uint32_t q, uint32_t step)
{
    if (q == 0) {
        x->reader = step;
    }
}

/* Adds what has landed to the sum of block q; to OUT where that is this rank's result. */
static uint32_t add(struct blocks *x, uint32_t q, const halay_operand_t *landed, uint32_t n,
                    uint32_t got, int last)
{
    struct state *of = &x->of[q];
    halay_operand_t sources[1 + LANDINGS] = {sum_of(x, q)};
    uint32_t result = last && q == x->b->params.rank, before = of->step, reads_in = !of->summed;

    for (uint32_t i = 0; i < n; i++) {
        sources[1 + i] = landed[i];
    }
    if (result && x->b->params.in_place && !(q == 0 && reads_in)) {
        before = hly_after(x->b, before, x->reader); /* the result replaces block 0 of IN */
    }
    if (!result && !of->summed) {
        of->slot = x->slots++;
    }
    halay_operand_t to = result ? hly_out(q, 1) : hly_scratch(q, 1, of->slot);
    of->step = hly_reduce_many(x->b, to, sources, 1 + n, got, before);
    if (reads_in) {
        note_reader(x, q, of->step);
    }
    of->summed = 1;
    return of->step;
}

/* Slots for what comes from a node's ranks, used again by one block after another. */
struct landing {
    uint32_t first, used; /* used 0: not given out yet */
    uint32_t freed;       /* the step after which they are free */
};

/* Sums block q over the node. */
static void take_in(struct blocks *x, uint32_t q, struct landing *landing)
{
    if (!landing->used) {
        *landing = (struct landing){x->slots, 1, HLY_NONE};
        x->slots += x->at.n <= LANDINGS ? x->at.n - 1 : LANDINGS;
    }
    for (uint32_t i = 1; i < x->at.n; i += LANDINGS) {
        uint32_t k = x->at.n - i < LANDINGS ? x->at.n - i : LANDINGS, got = HLY_NONE;
        halay_operand_t landed[LANDINGS];

        for (uint32_t j = 0; j < k; j++) {
            uint32_t from = x->at.member[(x->at.me + x->at.n - i - j) % x->at.n];
            landed[j] = hly_scratch(q, 1, landing->first + j);
            got =
                hly_after(x->b, got, hly_recv(x->b, from, q, landed[j], landing->freed, HLY_NONE));
        }
        landing->freed = add(x, q, landed, k, got, x->team.n == 1 && i + k == x->at.n);
    }
}

/* All blocks of the own lane, those first that are sent first. */
static void take_lane_in(struct blocks *x)
{
    struct landing landing[GROUPS] = {0};
    uint32_t group = 0, n;

    for (uint32_t j = x->team.n; j-- > 0;) {
        const uint32_t *ranks = piece(x, x->mine, j, &n);
        for (uint32_t i = 0; i < n; i++) {
            x->of[ranks[i]].step = HLY_NONE;
            take_in(x, ranks[i], &landing[group]);
            group = (group + 1) % GROUPS;
        }
    }
}

static void scatter_between(struct blocks *x)
{
    const struct hly_circulant *c = &x->graph;
    uint32_t n;

    for (uint32_t k = 0; k < c->rounds; k++) {
        uint32_t s = c->skip[k + 1], pieces = c->skip[k] - s;
        uint32_t to = hly_team_rank(&x->team, x->team.me + s);
        uint32_t from = hly_team_rank(&x->team, x->team.me + x->team.n - s);

        for (uint32_t j = s; j < s + pieces; j++) {
            const uint32_t *ranks = piece(x, x->mine, j, &n);
            for (uint32_t i = 0; i < n; i++) {
                halay_operand_t sum = sum_of(x, ranks[i]);
                uint32_t sent = hly_send(x->b, to, ranks[i], sum, x->of[ranks[i]].step, HLY_NONE);
                if (sum.buffer == HALAY_BUFFER_IN) {
                    note_reader(x, ranks[i], sent);
                }
            }
        }
        for (uint32_t j = 0; j < pieces; j++) {
            const uint32_t *ranks = piece(x, x->mine, j, &n);
            for (uint32_t i = 0; i < n; i++) {
                halay_operand_t landed = hly_scratch(ranks[i], 1, x->slots++);
                uint32_t got = hly_recv(x->b, from, ranks[i], landed, HLY_NONE, HLY_NONE);
                add(x, ranks[i], &landed, 1, got, j == 0 && k + 1 == c->rounds);
            }
        }
    }
}

static void lead_scatter(struct blocks *x)
{
    uint32_t n;

    take_lane_in(x);
    scatter_between(x);
    const uint32_t *ranks = piece(x, x->mine, 0, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t q = ranks[i];
        if (q != x->b->params.rank) {
            hly_send(x->b, q, q, sum_of(x, q), x->of[q].step, HLY_NONE);
        }
    }
}

/* Hands this rank's part of a lane to its leader. */
static void hand_in(struct blocks *x, uint32_t lane)
{
    for (uint32_t j = x->team.n; j-- > 0;) {
        uint32_t n;
        const uint32_t *ranks = piece(x, lane, j, &n);

        for (uint32_t i = 0; i < n; i++) {
            note_reader(x, ranks[i],
                        hly_send(x->b, leader_of(x, lane), ranks[i], hly_in(ranks[i], 1), HLY_NONE,
                                 HLY_NONE));
        }
    }
}

void hly_two_level_reduce_scatter(struct hly_builder *b)
{
    uint32_t r = b->params.rank;
    struct blocks x;

    if (!open_blocks(&x, b)) {
        return;
    }
    for (uint32_t i = 1; i <= x.team.lanes; i++) {
        uint32_t lane = (x.mine + i) % x.team.lanes;
        if (!x.leads || lane != x.mine) {
            hand_in(&x, lane);
        }
    }
    if (x.leads) {
        lead_scatter(&x);
    } else {
        hly_recv(b, leader_of(&x, x.mine), r, hly_out(r, 1),
                 b->params.in_place ? x.reader : HLY_NONE, HLY_NONE);
    }
    if (b->params.nranks == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    free(x.of);
}
