/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binomial_reduce.c - reduce in ceil(log2 p) rounds, in the order of ranks, for any root.
 *
 * The classical tree (Chan, Heimlich, Purkayastha, van de Geijn: Collective communication, CCPE 19,
 * 2007) counts ranks from the root, round the end, and so mixes their order. Here the root cuts the
 * ranks in two sides, those above and those below it, each with a tree of its own: member i stands
 * at distance i from the side's head, and the members i to i+2^k-1 that it has summed after k
 * rounds are consecutive ranks. The root heads the larger side; the other side's head, its
 * neighbour, sends it the other sum last. The smaller side has at most (p-1)/2 ranks, so that this
 * costs no further round. Beside the tree each rank hears from all (dissemination.c).
 *
 * What arrives lands in slots 0 and 1 alternately; the sum is in slot 2, at the root in OUT.
 */
#include "builder.h"

enum { TREE_EDGE = 0, HEAR_EDGE = 1, SUM_SLOT = 2 };

/* The ranks on one side of the root, counted away from it. */
struct side {
    uint32_t head, n;
    int upper; /* ranks above the head, else below */
};

struct sum {
    halay_operand_t at;
    uint32_t steps[2]; /* that made the sum before the last one, and the last */
    uint32_t received;
};

static uint32_t member(const struct side *side, uint32_t i)
{
    return side->upper ? side->head + i : side->head - i;
}

/* Adds what `peer` sends: ranks that stand above or below those already in the sum. */
static void add_from(struct hly_builder *b, struct sum *sum, uint32_t peer, int above)
{
    int at_root = b->params.rank == b->params.root;
    halay_operand_t got = hly_scratch(0, 1, sum->received % 2);
    halay_operand_t to = at_root ? hly_out(0, 1) : hly_scratch(0, 1, SUM_SLOT);
    uint32_t landed = hly_recv(b, peer, TREE_EDGE, got, sum->steps[0], HLY_NONE);

    sum->steps[0] = sum->steps[1];
    sum->steps[1] =
        hly_reduce(b, to, above ? sum->at : got, above ? got : sum->at, landed, sum->steps[1]);
    sum->at = to;
    sum->received++;
}

void hly_binomial_reduce(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, root = b->params.root, done[2];
    int root_above = p - root > root; /* the root heads the upper side */
    struct side upper = {.head = root + !root_above, .n = p - root - !root_above, .upper = 1};
    struct side lower = {.head = root - root_above, .n = root + !root_above};
    const struct side *mine = r > root || (r == root && root_above) ? &upper : &lower;
    const struct side *other = root_above ? &lower : &upper;
    struct sum sum = {.at = hly_in(0, 1), .steps = {HLY_NONE, HLY_NONE}};
    struct hly_team all = hly_team_of_all(b);
    uint32_t i = mine->upper ? r - mine->head : mine->head - r, bit = 1;

    b->blocks = 1;
    for (; bit < mine->n && !(i & bit); bit *= 2) {
        if (i + bit < mine->n) {
            add_from(b, &sum, member(mine, i + bit), mine->upper);
        }
    }
    if (r != root) {
        hly_send(b, i == 0 ? root : member(mine, i - bit), TREE_EDGE, sum.at, sum.steps[1],
                 HLY_NONE);
    } else if (other->n > 0) {
        add_from(b, &sum, other->head, other->upper);
    } else if (p == 1 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}
