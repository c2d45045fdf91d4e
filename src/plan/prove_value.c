/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove_value.c - cells, what steps do to them, and what they must hold in the end.
 * Relies on prove_hazard.c: in whatever order the steps run, a cell holds the same when it is read.
 */
#include "prove_value.h"

#include "group.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PRIME ((1ull << 61) - 1)

static uint64_t scramble(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum >= PRIME ? sum - PRIME : sum;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return add((uint64_t)product & PRIME, (uint64_t)(product >> 61));
}

/* The map of `state`, then that of `right`. */
static void compose(struct hly_cell_state *state, const struct hly_cell_state *right)
{
    state->shift = add(state->shift, multiply(state->scale, right->shift));
    state->scale = multiply(state->scale, right->scale);
}

/* The input of a rank for a block. */
static struct hly_cell_state leaf(const struct hly_values *s, uint32_t rank, uint32_t block)
{
    uint64_t x = scramble(0x9e3779b97f4a7c15u + ((uint64_t)rank << 32 | block));
    struct hly_cell_state state = {.sum = scramble(x ^ 0x2545f4914f6cdd1du) % PRIME};

    state.tree = scramble(x + 0x94d049bb133111ebu) | 1;
    if (s->in_order) {
        state.scale = scramble(x + 0x5851f42d4c957f2du) % (PRIME - 1) + 1;
        state.shift = scramble(x + 0xda942042e4dd58b5u) % PRIME;
    }
    return state;
}

static struct hly_cell_state *cell(struct hly_values *s, uint32_t rank, uint32_t local)
{
    return &s->cells[s->base[rank] + local];
}

static struct hly_cell_state *block_of(struct hly_values *s, uint32_t rank, uint32_t buffer,
                                       uint32_t block)
{
    halay_operand_t operand = {.buffer = buffer, .first = block, .count = 1};
    return cell(s, rank, hly_cell(&s->memory[rank], &operand, 0));
}

static void put_inputs(struct hly_values *s, uint32_t rank)
{
    const struct hly_prover *v = s->v;

    switch (v->params.collective) {
    case HALAY_BROADCAST:
        for (uint32_t block = 0; rank == v->params.root && block < v->blocks; block++) {
            *block_of(s, rank, HALAY_BUFFER_OUT, block) = leaf(s, rank, block);
        }
        break;
    default:
        if (s->memory[rank].own[HALAY_BUFFER_IN]) {
            *block_of(s, rank, HALAY_BUFFER_IN, rank) = leaf(s, rank, rank);
        } else if (!s->memory[rank].none[HALAY_BUFFER_IN]) {
            for (uint32_t block = 0; block < v->blocks; block++) {
                *block_of(s, rank, HALAY_BUFFER_IN, block) = leaf(s, rank, block);
            }
        }
        break;
    }
}

int hly_values_init(struct hly_values *s, struct hly_prover *v)
{
    halay_collective_t collective = (halay_collective_t)v->params.collective;
    const halay_planner_info_t *info = halay_planner_get(v->plans[0]->planner);

    s->v = v;
    s->in_order = halay_collective_reduces(collective) && !halay_plan_commutative(v->plans[0]);
    int cut = v->params.collective == HALAY_BROADCAST ||
              (halay_collective_reduces(collective) && collective != HALAY_REDUCE_SCATTER);

    s->equal = !cut && info && info->restrictions & HALAY_PLANNER_EQUAL;
    s->sized = collective == HALAY_ALLTOALL && !s->equal;
    s->cells = NULL;
    s->memory = malloc(v->nranks * sizeof(*s->memory));
    s->base = malloc(((size_t)v->nranks + 1) * sizeof(*s->base));
    if (!s->memory || !s->base) {
        goto fail;
    }
    s->base[0] = 0;
    for (uint32_t rank = 0; rank < v->nranks; rank++) {
        hly_memory_init(&s->memory[rank], v, rank);
        s->base[rank + 1] = s->base[rank] + s->memory[rank].cells;
    }
    s->cells = calloc(s->base[v->nranks] + 1, sizeof(*s->cells));
    if (!s->cells) {
        goto fail;
    }
    for (uint32_t rank = 0; rank < v->nranks; rank++) {
        put_inputs(s, rank);
    }
    return 0;
fail:
    hly_values_finish(s);
    return HALAY_ENOMEM;
}

void hly_values_finish(struct hly_values *s)
{
    free(s->cells);
    free(s->base);
    free(s->memory);
}

/*
 * The operand may be read: it has been written, and scratch by this very run of blocks, unless a
 * slot is a block.
 */
static int check_readable(struct hly_values *s, uint32_t number, const halay_operand_t *operand)
{
    static const char *const names[] = {"in", "out", "scratch"};
    uint32_t rank = s->v->rank_of[number], index = number - s->v->base[rank];
    int scratch = operand->buffer == HALAY_BUFFER_SCRATCH;

    for (uint32_t i = 0; i < operand->count; i++) {
        const struct hly_cell_state *state = cell(s, rank, hly_cell(&s->memory[rank], operand, i));

        if (state->tree == 0) {
            return hly_refuse(s->v, rank, index, "reads %s %u of %s before anything was put there",
                              scratch ? "slot" : "block",
                              scratch ? operand->slot + i : (operand->first + i) % s->v->blocks,
                              names[operand->buffer]);
        }
        if (scratch && !s->equal &&
            (state->first != operand->first || state->count != operand->count ||
             state->slot != operand->slot)) {
            return hly_refuse(s->v, rank, index,
                              "reads scratch as blocks %u+%u at slot %u, written as %u+%u at %u",
                              operand->first, operand->count, operand->slot, state->first,
                              state->count, state->slot);
        }
    }
    return 0;
}

static void write_cell(struct hly_values *s, uint32_t rank, const halay_operand_t *to, uint32_t i,
                       struct hly_cell_state state)
{
    state.first = to->first;
    state.count = to->count;
    state.slot = to->slot;
    *cell(s, rank, hly_cell(&s->memory[rank], to, i)) = state;
}

static struct hly_cell_state combine(struct hly_values *s, uint32_t rank,
                                     const halay_operand_t *sources, uint32_t nsources, uint32_t i)
{
    struct hly_cell_state made = {.tree = nsources, .scale = (uint64_t)s->in_order};

    for (uint32_t j = 0; j < nsources; j++) {
        const struct hly_cell_state *state =
            cell(s, rank, hly_cell(&s->memory[rank], &sources[j], i));
        made.sum = add(made.sum, state->sum);
        made.tree = scramble(made.tree * 0x9e3779b97f4a7c15u + state->tree);
        if (s->in_order) {
            compose(&made, state);
        }
        made.depth = state->depth > made.depth ? state->depth : made.depth;
    }
    made.tree |= 1;
    made.depth++;
    return made;
}

static int same_value(const struct hly_cell_state *a, const struct hly_cell_state *b)
{
    return a->sum == b->sum && a->tree == b->tree;
}

/*
 * What rank s sends to rank d has a size of its own. OUT block b of rank r is as large as what b
 * sends to r, and what may be put there is that alone. In place it is also as large as what r sends
 * to b, and so is a slot of that number; else a slot has no size.
 */
static int check_size(struct hly_values *s, uint32_t rank, uint32_t index,
                      const halay_operand_t *to, uint32_t i)
{
    uint32_t block = (to->first + i) % s->v->blocks;
    const struct hly_cell_state *got = cell(s, rank, hly_cell(&s->memory[rank], to, i));
    struct hly_cell_state arrives = leaf(s, block, rank), leaves = leaf(s, rank, block);
    int slot = to->buffer == HALAY_BUFFER_SCRATCH, in_place = s->v->params.in_place != 0;

    if ((same_value(got, &arrives) && (!slot || in_place)) ||
        (same_value(got, &leaves) && in_place)) {
        return 0;
    }
    return hly_refuse(s->v, rank, index, "puts %s %u what may be larger, as its planner says",
                      slot ? "in the slot of block" : "in out block", block);
}

static const halay_operand_t *operands_of(const struct hly_values *s, uint32_t number)
{
    return &s->v->plans[s->v->rank_of[number]]->operands[hly_step(s->v, number)->operand];
}

int hly_values_step(struct hly_values *s, uint32_t number, uint32_t send)
{
    const halay_step_t *step = hly_step(s->v, number);
    const halay_operand_t *to = operands_of(s, number), *from = to + 1;
    uint32_t rank = s->v->rank_of[number], reader = number, nsources = step->noperands - 1u;
    uint32_t source_rank = rank;

    if (send != HLY_NONE) {
        from = operands_of(s, send);
        reader = send;
        source_rank = s->v->rank_of[send];
        nsources = 1;
    }
    for (uint32_t j = 0; j < nsources; j++) {
        int result = check_readable(s, reader, &from[j]);
        if (result < 0) {
            return result;
        }
    }
    for (uint32_t i = 0; i < to->count; i++) {
        if (step->kind == HALAY_STEP_REDUCE) {
            write_cell(s, rank, to, i, combine(s, rank, from, nsources, i));
        } else {
            uint32_t local = hly_cell(&s->memory[source_rank], from, i);
            write_cell(s, rank, to, i, *cell(s, source_rank, local));
        }
        if (s->sized) {
            int result = check_size(s, rank, number - s->v->base[rank], to, i);
            if (result < 0) {
                return result;
            }
        }
    }
    return 0;
}

/* Block number i of the whole, summed over the members. */
static struct hly_cell_state sum_in_group(struct hly_values *s, const uint32_t *steps, uint32_t n,
                                          uint32_t i)
{
    struct hly_cell_state made = {.tree = scramble(0x67726f7570ull + ((uint64_t)steps[0] << 8))};

    for (uint32_t m = 0; m < n; m++) {
        uint32_t rank = s->v->rank_of[steps[m]];
        const halay_operand_t *from = operands_of(s, steps[m]) + 1;
        const struct hly_cell_state *state = cell(s, rank, hly_cell(&s->memory[rank], from, i));

        if (n == 1) {
            return *state;
        }
        made.sum = add(made.sum, state->sum);
        made.tree = scramble(made.tree * 0x9e3779b97f4a7c15u + state->tree);
        made.depth = state->depth > made.depth ? state->depth : made.depth;
    }
    made.tree |= 1;
    made.depth += n - 1;
    return made;
}

/* The whole, as the group makes it. */
static void make_whole(struct hly_values *s, const uint32_t *steps, uint32_t n,
                       const halay_group_t *group, const halay_operand_t *whole,
                       struct hly_cell_state *made)
{
    const halay_plan_t *plan = s->v->plans[s->v->rank_of[steps[0]]];
    uint32_t at = 0;

    for (uint32_t i = 0; hly_group_reduces(group) && i < whole->count; i++) {
        made[i] = sum_in_group(s, steps, n, i);
    }
    for (uint32_t m = 0; !hly_group_reduces(group) && m < n; m++) {
        uint32_t rank = s->v->rank_of[steps[m]];
        const halay_operand_t *from = operands_of(s, steps[m]) + 1;
        for (uint32_t i = 0; i < plan->members[group->member + m].count; i++) {
            made[at++] = *cell(s, rank, hly_cell(&s->memory[rank], from, i));
        }
    }
}

/* Each member has a run for each. All are read before one is written. */
static int exchange(struct hly_values *s, const uint32_t *steps, uint32_t n)
{
    assert(n > 0);
    const uint32_t all = operands_of(s, steps[0])->count, run = all / n;
    struct hly_cell_state *made = malloc((size_t)n * all * sizeof(*made));

    if (!made) {
        return HALAY_ENOMEM;
    }
    for (uint32_t m = 0; m < n; m++) {
        uint32_t rank = s->v->rank_of[steps[m]];
        const halay_operand_t *from = operands_of(s, steps[m]) + 1;
        for (uint32_t i = 0; i < all; i++) { /* to member i / run, as its run m */
            made[(size_t)(i / run) * all + m * run + i % run] =
                *cell(s, rank, hly_cell(&s->memory[rank], from, i));
        }
    }
    for (uint32_t m = 0; m < n; m++) {
        for (uint32_t i = 0; i < all; i++) {
            write_cell(s, s->v->rank_of[steps[m]], operands_of(s, steps[m]), i,
                       made[(size_t)m * all + i]);
        }
    }
    free(made);
    return 0;
}

int hly_values_group(struct hly_values *s, const uint32_t *steps, uint32_t n)
{
    const halay_plan_t *plan = s->v->plans[s->v->rank_of[steps[0]]];
    const halay_step_t *step = hly_step(s->v, steps[0]);
    const halay_group_t *group = hly_group_of(plan, step);
    const halay_operand_t *whole = hly_group_whole(plan, step);
    int result = 0;
    uint32_t at = 0;

    for (uint32_t m = 0; result == 0 && m < n; m++) {
        result = check_readable(s, steps[m], operands_of(s, steps[m]) + 1);
    }
    if (result < 0) {
        return result;
    }
    if (group->kind == HALAY_GROUP_ALLTOALL) {
        return exchange(s, steps, n);
    }
    struct hly_cell_state *made = malloc(whole->count * sizeof(*made));
    if (!made) {
        return HALAY_ENOMEM;
    }
    make_whole(s, steps, n, group, whole, made);
    for (uint32_t m = 0; m < n; m++) {
        const halay_operand_t *to = operands_of(s, steps[m]);
        for (uint32_t i = 0; i < to->count; i++) {
            write_cell(s, s->v->rank_of[steps[m]], to, i, made[at + i]);
        }
        if (hly_group_reduces(group) && group->kind != HALAY_GROUP_ALLREDUCE) {
            at += to->count;
        }
    }
    free(made);
    return 0;
}

/* Out block `block` of a rank has to be a rank's input, as it was. */
static int check_moved(struct hly_values *s, uint32_t rank, uint32_t block)
{
    const struct hly_cell_state *got = block_of(s, rank, HALAY_BUFFER_OUT, block);
    uint32_t collective = s->v->params.collective, owner = block;

    if (collective == HALAY_BROADCAST || collective == HALAY_SCATTER) {
        owner = s->v->params.root;
    }
    struct hly_cell_state wanted = leaf(s, owner, collective == HALAY_ALLTOALL ? rank : block);
    if (!same_value(got, &wanted)) {
        return hly_refuse(s->v, rank, HLY_NONE, "out block %u does not end with rank %u's input",
                          block, owner);
    }
    return 0;
}

static int check_all_moved(struct hly_values *s, uint32_t rank)
{
    const struct hly_memory *memory = &s->memory[rank];
    int result = 0;

    if (memory->none[HALAY_BUFFER_OUT]) {
        return 0;
    }
    if (memory->own[HALAY_BUFFER_OUT]) {
        return check_moved(s, rank, rank);
    }
    for (uint32_t block = 0; result == 0 && block < s->v->blocks; block++) {
        result = check_moved(s, rank, block);
    }
    return result;
}

static void add_input(struct hly_values *s, struct hly_cell_state *wanted, uint32_t rank,
                      uint32_t block)
{
    struct hly_cell_state input = leaf(s, rank, block);

    wanted->sum = add(wanted->sum, input.sum);
    if (s->in_order) {
        compose(wanted, &input);
    }
}

static int check_sum(struct hly_values *s, uint32_t rank, uint32_t block,
                     const struct hly_cell_state *wanted, uint32_t same_as)
{
    const struct hly_cell_state *got = block_of(s, rank, HALAY_BUFFER_OUT, block);

    if (got->sum != wanted->sum || got->tree == 0) {
        return hly_refuse(s->v, rank, HLY_NONE,
                          "out block %u does not end with each rank's input exactly once", block);
    }
    if (got->tree != block_of(s, same_as, HALAY_BUFFER_OUT, block)->tree) {
        return hly_refuse(s->v, rank, HLY_NONE,
                          "out block %u is not reduced in the same order as on rank %u", block,
                          same_as);
    }
    if (s->in_order && (got->scale != wanted->scale || got->shift != wanted->shift)) {
        return hly_refuse(s->v, rank, HLY_NONE,
                          "out block %u is not reduced in the order of ranks, as its planner says",
                          block);
    }
    if (got->depth > s->v->proof.reduce_depth) {
        s->v->proof.reduce_depth = got->depth;
    }
    return 0;
}

/* Every rank that promises this block has each input once, and all have it in one order. */
static int check_reduced(struct hly_values *s, uint32_t block, uint32_t from, uint32_t end)
{
    struct hly_cell_state wanted = {.scale = 1};
    int result = 0;

    for (uint32_t rank = 0; rank < s->v->nranks; rank++) {
        add_input(s, &wanted, rank, block);
    }
    for (uint32_t rank = from; result == 0 && rank < end; rank++) {
        result = check_sum(s, rank, block, &wanted, from);
    }
    return result;
}

/* Each rank has the inputs of those before it, a scan's its own too. Nobody promises the same. */
static int check_prefixes(struct hly_values *s, uint32_t block)
{
    struct hly_cell_state wanted = {.scale = 1};
    int result = 0, inclusive = s->v->params.collective == HALAY_SCAN;

    for (uint32_t rank = 0; result == 0 && rank < s->v->nranks; rank++) {
        if (inclusive) {
            add_input(s, &wanted, rank, block);
        }
        if (inclusive || rank > 0) {
            result = check_sum(s, rank, block, &wanted, rank);
        }
        if (!inclusive) {
            add_input(s, &wanted, rank, block);
        }
    }
    return result;
}

int hly_values_check(struct hly_values *s)
{
    uint32_t nranks = s->v->nranks, blocks = s->v->blocks, root = s->v->params.root;
    int result = 0;

    for (uint32_t block = 0; result == 0 && block < blocks; block++) {
        switch (s->v->params.collective) {
        case HALAY_ALLREDUCE:
            result = check_reduced(s, block, 0, nranks);
            break;
        case HALAY_REDUCE_SCATTER:
            result = check_reduced(s, block, block, block + 1);
            break;
        case HALAY_REDUCE:
            result = check_reduced(s, block, root, root + 1);
            break;
        case HALAY_SCAN:
        case HALAY_EXSCAN:
            result = check_prefixes(s, block);
            break;
        default:
            break;
        }
    }
    if (!halay_collective_reduces((halay_collective_t)s->v->params.collective)) {
        for (uint32_t rank = 0; result == 0 && rank < nranks; rank++) {
            result = check_all_moved(s, rank);
        }
    }
    return result;
}
