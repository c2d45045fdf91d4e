/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove_match.c - each send has one receive, and each receive one send, of the same blocks (in an
 * alltoall, of as many); each group step has that of each other member (group.c).
 * A table finds a send by (sender, receiver, edge): open addressing, at most half full.
 */
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "prove.h"

struct table {
    uint32_t *sends; /* numbers of steps */
    uint32_t mask;
};

/* The place of this message: where its send stands, or the free place where it would. */
static uint32_t *place(const struct hly_prover *v, const struct table *table, uint32_t sender,
                       uint32_t receiver, uint32_t edge)
{
    uint64_t h = ((uint64_t)sender << 32 | receiver) * 0x9e3779b97f4a7c15u;

    h = ((h ^ h >> 31) + edge) * 0xd6e8feb86659fd93u;
    for (uint32_t i = (uint32_t)(h >> 32);; i++) {
        uint32_t *entry = &table->sends[i & table->mask];
        if (*entry == HLY_NONE) {
            return entry;
        }
        const halay_step_t *step = hly_step(v, *entry);
        if (v->rank_of[*entry] == sender && step->peer == receiver && step->edge == edge) {
            return entry;
        }
    }
}

static int add_sends(struct hly_prover *v, struct table *table)
{
    for (uint32_t number = 0; number < v->nsteps; number++) {
        const halay_step_t *step = hly_step(v, number);
        uint32_t rank = v->rank_of[number];

        if (step->kind != HALAY_STEP_SEND) {
            continue;
        }
        uint32_t *entry = place(v, table, rank, step->peer, step->edge);
        if (*entry != HLY_NONE) {
            return hly_refuse(v, rank, number - v->base[rank],
                              "step %u is sent to the same rank on the same edge",
                              *entry - v->base[rank]);
        }
        *entry = number;
    }
    return 0;
}

static const halay_operand_t *operand_of(const struct hly_prover *v, uint32_t number)
{
    return &v->plans[v->rank_of[number]]->operands[hly_step(v, number)->operand];
}

static int match_recv(struct hly_prover *v, const struct table *table, uint32_t number)
{
    const halay_step_t *step = hly_step(v, number);
    uint32_t rank = v->rank_of[number], index = number - v->base[rank];
    uint32_t send = *place(v, table, step->peer, rank, step->edge);

    if (send == HLY_NONE) {
        return hly_refuse(v, rank, index, "nobody sends this message");
    }
    if (v->partner[send] != HLY_NONE) {
        return hly_refuse(v, rank, index, "step %u receives the same message",
                          v->partner[send] - v->base[rank]);
    }
    const halay_operand_t *from = operand_of(v, send), *to = operand_of(v, number);
    int renumbers = v->params.collective == HALAY_ALLTOALL;
    if (from->count != to->count || (to->count != 0 && from->first != to->first && !renumbers)) {
        return hly_refuse(v, rank, index,
                          "expects %u blocks from %u on, but is sent %u blocks from %u on",
                          to->count, to->first, from->count, from->first);
    }
    v->partner[send] = number;
    v->partner[number] = send;
    v->proof.messages++;
    return 0;
}

static int match_all(struct hly_prover *v, struct table *table)
{
    int result = add_sends(v, table);

    for (uint32_t number = 0; result == 0 && number < v->nsteps; number++) {
        if (hly_step(v, number)->kind == HALAY_STEP_RECV) {
            result = match_recv(v, table, number);
        }
    }
    for (uint32_t number = 0; result == 0 && number < v->nsteps; number++) {
        if (hly_step(v, number)->kind == HALAY_STEP_SEND && v->partner[number] == HLY_NONE) {
            uint32_t rank = v->rank_of[number];
            result = hly_refuse(v, rank, number - v->base[rank], "nobody receives this message");
        }
    }
    return result;
}

static int match_groups(struct hly_prover *v)
{
    struct hly_group_fault fault;
    int result = hly_group_link(v->plans, v->nranks, v->base, v->partner, &fault);

    if (result == HALAY_EPLAN) {
        return hly_refuse(v, fault.rank, fault.index, "rank %u, a member, %s", fault.other,
                          fault.why);
    }
    return result;
}

int hly_prove_match(struct hly_prover *v)
{
    uint32_t sends = 0, room = 1;

    for (uint32_t number = 0; number < v->nsteps; number++) {
        sends += hly_step(v, number)->kind == HALAY_STEP_SEND;
    }
    while (room <= 2 * sends) {
        room *= 2;
    }
    struct table table = {.sends = malloc(room * sizeof(uint32_t)), .mask = room - 1};
    if (!table.sends) {
        return HALAY_ENOMEM;
    }
    memset(table.sends, 0xff, room * sizeof(uint32_t));
    int result = match_all(v, &table);
    free(table.sends);
    return result == 0 ? match_groups(v) : result;
}
