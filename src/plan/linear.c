/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.c - gather and scatter straight from and to the root: each byte moves once, the root has
 * p-1 messages. For long blocks, few ranks, and blocks that lie anywhere.
 *
 * Chan, Heimlich, Purkayastha, van de Geijn: Collective communication, CCPE 19, 2007. The root
 * waits for nobody between its messages. Beside them each rank hears from all (dissemination.c).
 */
#include "builder.h"

enum { DATA_EDGE = 0, HEAR_EDGE = 1 };

void hly_linear_gather(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, done[2];
    struct hly_team all = hly_team_of_all(b);

    b->blocks = p;
    if (r != b->params.root) {
        hly_send(b, b->params.root, DATA_EDGE, hly_in(r, 1), HLY_NONE, HLY_NONE);
    } else {
        for (uint32_t up = 1; up < p; up++) {
            uint32_t from = hly_up(b, up);
            hly_recv(b, from, DATA_EDGE, hly_out(from, 1), HLY_NONE, HLY_NONE);
        }
        if (!b->params.in_place) {
            hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
        }
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}

void hly_linear_scatter(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, r = b->params.rank, done[2];
    struct hly_team all = hly_team_of_all(b);

    b->blocks = p;
    if (r != b->params.root) {
        hly_recv(b, b->params.root, DATA_EDGE, hly_out(r, 1), HLY_NONE, HLY_NONE);
    } else {
        for (uint32_t up = 1; up < p; up++) {
            uint32_t to = hly_up(b, up);
            hly_send(b, to, DATA_EDGE, hly_in(to, 1), HLY_NONE, HLY_NONE);
        }
        if (!b->params.in_place) {
            hly_copy(b, hly_out(r, 1), hly_in(r, 1), HLY_NONE, HLY_NONE);
        }
    }
    hly_hear_team(b, &all, HLY_NONE, HEAR_EDGE, done);
}
