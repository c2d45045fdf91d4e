/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doubling_scan.c - scan and exscan in ceil(log2 p) rounds, all data in each: for few bytes.
 *
 * Hillis, Steele: Data parallel algorithms, CACM 29(12), 1986. Before round k rank r has summed its
 * input and those of the 2^k - 1 ranks below it, as far as there are so many. It sends this sum to
 * r+2^k, and what comes from r-2^k goes on the left: operations need not commute. Beside that each
 * rank hears from all (dissemination.c), as data only move upwards.
 *
 * scan: the sum moves between OUT and slot 2 so that it ends in OUT and a round need not wait for
 * its own send. exscan: the sum with the own input is for sending only and moves between slots 1
 * and 3; the one without it is OUT. What arrives lands in two slots alternately.
 */
#include "builder.h"

enum { SUM_SLOT = 2, HEAR_EDGE = HLY_ROUNDS_MAX };

static uint32_t rounds_below(uint32_t rank)
{
    uint32_t rounds = 0;

    while (rounds < HLY_ROUNDS_MAX - 1 && 1u << rounds <= rank) {
        rounds++;
    }
    return rounds;
}

void hly_doubling_scan(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, all = rounds_below(r), done[2];
    uint32_t sums[2] = {HLY_NONE, HLY_NONE}; /* of the round before last, and last */
    uint32_t sent = HLY_NONE;
    halay_operand_t sum = hly_in(0, 1);
    struct hly_team team = hly_team_of_all(b);

    b->blocks = 1;
    if (r == 0 && !b->params.in_place) {
        hly_copy(b, hly_out(0, 1), hly_in(0, 1), HLY_NONE, HLY_NONE);
    }
    for (uint32_t k = 0; 1u << k < p; k++) {
        halay_operand_t got = hly_scratch(0, 1, k % 2);
        uint32_t to_out = (all - k) % 2, before = sent;

        sent = HLY_NONE;
        if (p - r > 1u << k) {
            sent = hly_send(b, r + (1u << k), k, sum, sums[1], HLY_NONE);
        }
        if (k >= all) {
            continue;
        }
        /* The next sum goes where that of the round before was, which must have left. */
        uint32_t landed = hly_recv(b, r - (1u << k), k, got, sums[0], k > 0 ? before : HLY_NONE);
        uint32_t replaced = k == 0 && to_out && b->params.in_place ? sent : sums[1];
        sum = to_out ? hly_out(0, 1) : hly_scratch(0, 1, SUM_SLOT);
        halay_operand_t own = k == 0   ? hly_in(0, 1)
                              : to_out ? hly_scratch(0, 1, SUM_SLOT)
                                       : hly_out(0, 1);
        sums[0] = sums[1];
        sums[1] = hly_reduce(b, sum, got, own, landed, replaced);
    }
    hly_hear_team(b, &team, HLY_NONE, HEAR_EDGE, done);
}

/* Round 0 of an exscan, where the sum without the own input is what arrives. Returns the step. */
static uint32_t first_exscan(struct hly_builder *b, uint32_t sent, int sends_again,
                             halay_operand_t next, uint32_t *summed)
{
    uint32_t r = b->params.rank, in_place = b->params.in_place;
    halay_operand_t got = in_place ? hly_scratch(0, 1, 0) : hly_out(0, 1);
    uint32_t last = hly_recv(b, r - 1, 0, got, HLY_NONE, HLY_NONE);

    *summed = HLY_NONE;
    if (sends_again) {
        *summed = hly_reduce(b, next, got, hly_in(0, 1), last, HLY_NONE);
    }
    if (in_place) {
        last = hly_copy(b, hly_out(0, 1), got, sends_again ? *summed : last, sent);
    }
    return !in_place && sends_again ? *summed : last;
}

void hly_doubling_exscan(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, all = rounds_below(r), done[2];
    uint32_t result[2] = {HLY_NONE, HLY_NONE}; /* OUT in the round before last, and last */
    uint32_t summed = HLY_NONE, sent = HLY_NONE;
    halay_operand_t sum = hly_in(0, 1);
    struct hly_team team = hly_team_of_all(b);

    b->blocks = 1;
    for (uint32_t k = 0; 1u << k < p; k++) {
        uint32_t before = sent;
        int sends_again = p - r > 2u << k;
        halay_operand_t got = hly_scratch(0, 1, b->params.in_place == k % 2 ? 2 : 0);
        halay_operand_t next = hly_scratch(0, 1, k % 2 ? 3 : 1);

        sent = HLY_NONE;
        if (p - r > 1u << k) {
            sent = hly_send(b, r + (1u << k), k, sum, summed, HLY_NONE);
        }
        if (k >= all) {
            continue;
        }
        if (k == 0) {
            result[1] = first_exscan(b, sent, sends_again, next, &summed);
        } else {
            uint32_t landed = hly_recv(b, r - (1u << k), k, got, result[0], before);
            if (sends_again) {
                summed = landed = hly_reduce(b, next, got, sum, landed, summed);
            }
            result[0] = result[1];
            result[1] = hly_reduce(b, hly_out(0, 1), got, hly_out(0, 1), landed, result[1]);
        }
        sum = next;
    }
    hly_hear_team(b, &team, HLY_NONE, HEAR_EDGE, done);
}
