/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dissemination_broadcast.c - broadcast by the messages that let all ranks hear from all: for few
 * bytes, and for two ranks.
 *
 * The dissemination of radix four (dissemination_by_four.c: Hoefler et al., IPDPS 2006) with ranks
 * counted from the root. Before the round of distance `unit` the numbers below `unit` have the
 * data; those below 4 * unit get them in it, each in one of the messages that it receives anyway.
 * That of number n is from n modulo `unit`; nobody above has any. So there is no message beside
 * those of a barrier, and no round.
 */
#include "builder.h"

enum { RADIX = 4 };

/* What number `from` tells number `from + far` (which wraps): the data, or nothing. */
static halay_operand_t told(uint32_t from, uint64_t far, uint64_t unit, uint32_t p)
{
    return from < unit && from + far < p ? hly_out(0, 1) : hly_nothing();
}

void hly_dissemination_broadcast(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, number = hly_down(b, b->params.root), heard = HLY_NONE, edge = 0;

    b->blocks = 1;
    for (uint64_t unit = 1; unit < p; unit *= RADIX, edge++) {
        uint32_t got = heard;

        for (uint64_t far = unit; far < RADIX * unit && far < p; far += unit) {
            hly_send(b, hly_up(b, (uint32_t)far), edge, told(number, far, unit, p), heard,
                     HLY_NONE);
        }
        for (uint64_t far = unit; far < RADIX * unit && far < p; far += unit) {
            uint32_t down = (uint32_t)far, from = (number + p - down) % p;
            uint32_t recv =
                hly_recv(b, hly_down(b, down), edge, told(from, far, unit, p), HLY_NONE, HLY_NONE);
            got = hly_after(b, got, recv);
        }
        heard = got;
    }
}
