/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level.c - an allreduce that crosses the network once for each node, by many leaders.
 *
 * Bayatpour et al.: Scalable reduction collectives with data partitioning-based multi-leader
 * design, SC 2017. m lanes (two_level.h) of N blocks each, N nodes; lane l is blocks l*N on.
 *  - In the node the leader of a lane receives it from each local rank, and sums it into OUT: its
 *    own first, then those before it in local order, up to three at a time.
 *  - Between nodes the leaders of a lane run the two phases of circulant.c on its N blocks, with
 *    the partial sums in OUT. A run that wraps at the end of its lane is two messages, since what
 *    lies in one piece can go straight from memory to memory.
 *  - In the node again the leader sends its lane to each local rank.
 * Nobody sums what another has summed, so all have the same bits. Lanes do not wait for each other.
 */
#include "two_level.h"

enum { GIVE_EDGE = 0, SPREAD_EDGE = 1, BETWEEN_EDGE = 2, LANDINGS = 3 };

struct lane {
    const struct hly_place *at;
    struct hly_team team; /* its leaders */
    struct hly_circulant graph;
    uint32_t base;     /* first block */
    uint32_t landings; /* slots that the node's part takes */
    uint32_t *sent;    /* if not NULL: a step after the sends of the gather phase */
};

/* Blocks of pieces [piece, piece + n), counted from the node's own: in one run, or in two. */
static uint32_t spans(const struct lane *lane, uint32_t piece, uint32_t n, uint32_t first[2],
                      uint32_t count[2])
{
    uint32_t at = (lane->team.me + piece) % lane->team.n, room = lane->team.n - at;

    first[0] = lane->base + at;
    count[0] = n <= room ? n : room;
    first[1] = lane->base;
    count[1] = n - count[0];
    return count[1] ? 2 : 1;
}

/* Sums the lane over the node into OUT; returns the last step. */
static uint32_t sum_in_node(struct hly_builder *b, const struct lane *lane)
{
    const struct hly_place *at = lane->at;
    uint32_t n = lane->team.n, last = HLY_NONE;
    halay_operand_t sources[1 + LANDINGS] = {hly_in(lane->base, n)};

    if (at->n == 1 && !b->params.in_place) {
        return hly_copy(b, hly_out(lane->base, n), sources[0], HLY_NONE, HLY_NONE);
    }
    for (uint32_t i = 1; i < at->n; i += LANDINGS) {
        uint32_t k = at->n - i < LANDINGS ? at->n - i : LANDINGS, got = HLY_NONE;

        for (uint32_t j = 0; j < k; j++) {
            sources[1 + j] = hly_scratch(lane->base, n, j * n);
            got = hly_after(b, got,
                            hly_recv(b, at->member[(at->me + at->n - i - j) % at->n], GIVE_EDGE,
                                     sources[1 + j], last, HLY_NONE));
        }
        last = hly_reduce_many(b, hly_out(lane->base, n), sources, 1 + k, got, last);
        sources[0] = hly_out(lane->base, n);
    }
    return last;
}

/* The scatter phase between nodes, from the node's sums after `last`. */
static uint32_t scatter(struct hly_builder *b, struct lane *lane, uint32_t last)
{
    struct hly_circulant *c = &lane->graph;
    const struct hly_team *team = &lane->team;
    uint32_t sums[HLY_ROUNDS_MAX], first[2], count[2];

    for (uint32_t k = 0; k < c->rounds; k++) {
        uint32_t s = c->skip[k + 1], n = c->skip[k] - s, edge = BETWEEN_EDGE + 2 * k;
        uint32_t slot = lane->landings + (k % 2 ? team->n / 2 : 0), sum = HLY_NONE;

        uint32_t parts = spans(lane, s, n, first, count);
        for (uint32_t i = 0; i < parts; i++) {
            c->sent[k] = hly_after(b, c->sent[k],
                                   hly_send(b, hly_team_rank(team, team->me + s), edge + i,
                                            hly_out(first[i], count[i]), last, HLY_NONE));
        }
        parts = spans(lane, 0, n, first, count);
        for (uint32_t i = 0; i < parts; i++) {
            halay_operand_t to = hly_out(first[i], count[i]);
            halay_operand_t landing = hly_scratch(first[i], count[i], slot + i * count[0]);
            uint32_t got = hly_recv(b, hly_team_rank(team, team->me + team->n - s), edge + i,
                                    landing, k < 2 ? HLY_NONE : sums[k - 2], HLY_NONE);
            sum = hly_after(b, sum, hly_reduce(b, to, to, landing, got, last));
        }
        last = sums[k] = sum;
    }
    return last;
}

/* The gather phase: the own block is complete after `ready`; returns when the lane is. */
static uint32_t gather(struct hly_builder *b, struct lane *lane, uint32_t ready)
{
    const struct hly_circulant *c = &lane->graph;
    const struct hly_team *team = &lane->team;
    uint32_t first[2], count[2];

    for (uint32_t k = c->rounds; k-- > 0;) {
        uint32_t s = c->skip[k + 1], n = c->skip[k] - s;
        uint32_t edge = BETWEEN_EDGE + 2 * (c->rounds + k), got = HLY_NONE;

        uint32_t parts = spans(lane, 0, n, first, count);
        for (uint32_t i = 0; i < parts; i++) {
            uint32_t send = hly_send(b, hly_team_rank(team, team->me + team->n - s), edge + i,
                                     hly_out(first[i], count[i]), ready, HLY_NONE);
            if (lane->sent) {
                *lane->sent = hly_after(b, *lane->sent, send);
            }
        }
        parts = spans(lane, s, n, first, count);
        for (uint32_t i = 0; i < parts; i++) {
            got = hly_after(b, got,
                            hly_recv(b, hly_team_rank(team, team->me + s), edge + i,
                                     hly_out(first[i], count[i]), c->sent[k], HLY_NONE));
        }
        ready = hly_after(b, ready, got);
    }
    return ready;
}

static void lead(struct hly_builder *b, struct lane *lane)
{
    const struct hly_place *at = lane->at;

    hly_circulant_init(&lane->graph, lane->team.n);
    lane->landings = (at->n <= LANDINGS ? at->n - 1 : LANDINGS) * lane->team.n;
    uint32_t ready = gather(b, lane, scatter(b, lane, sum_in_node(b, lane)));
    for (uint32_t i = 1; i < at->n; i++) {
        hly_send(b, at->member[(at->me + i) % at->n], SPREAD_EDGE,
                 hly_out(lane->base, lane->team.n), ready, HLY_NONE);
    }
}

uint32_t hly_lane_allreduce(struct hly_builder *b, const struct hly_team *team, uint32_t base,
                            uint32_t start, uint32_t *sent)
{
    struct lane lane = {.team = *team, .base = base, .sent = sent};

    *sent = HLY_NONE;
    hly_circulant_init(&lane.graph, team->n);
    return gather(b, &lane, scatter(b, &lane, start));
}

void hly_two_level_allreduce(struct hly_builder *b)
{
    struct hly_place at = hly_place_of(b);
    uint32_t lanes = at.shape->smallest, n = at.shape->nnodes;
    uint32_t mine = hly_lane_of(at.n, lanes, at.me), leads = 0;

    b->blocks = lanes * n;
    for (uint32_t i = 1; i <= lanes; i++) {
        struct lane lane = {.at = &at};
        lane.team = hly_leaders(&at, lanes, (mine + i) % lanes);
        lane.base = lane.team.lane * n;
        uint32_t leader = hly_team_rank(&lane.team, at.node);

        if (leader == b->params.rank) {
            leads = 1;
            continue; /* last, below */
        }
        uint32_t sent = hly_send(b, leader, GIVE_EDGE, hly_in(lane.base, n), HLY_NONE, HLY_NONE);
        hly_recv(b, leader, SPREAD_EDGE, hly_out(lane.base, n),
                 b->params.in_place ? sent : HLY_NONE, HLY_NONE);
    }
    if (leads) {
        struct lane lane = {.at = &at, .base = mine * n};
        lane.team = hly_leaders(&at, lanes, mine);
        lead(b, &lane);
    }
}
