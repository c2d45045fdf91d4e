/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - from blocks to addresses: where the operands of a plan are for one call.
 *
 * Blocks are of equal size, the first few of them an element longer where a vector is cut; or, in
 * the v forms, as two tables say: one for IN, one for OUT (which is the same, but for alltoallv).
 * Spans are computed once for a count and type; addresses are bound at every call, and moved on
 * from tile to tile.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "lend.h"
#include "watch.h"

#define SLOT_ALIGN    64
#define TILE_ALIGN    16           /* elements */
#define TILE_MESSAGES 16           /* eager ones, of a plan of many blocks, */
#define TILE_BYTES    (512u << 10) /* but not more than this, so that a ring of 1 MiB holds it */

static size_t block_offset(const halay_request_t *r, uint32_t buffer, uint32_t block)
{
    if (r->tables)
        return r->block[buffer].offset[block];
    uint32_t longer = block < r->long_blocks ? block : r->long_blocks;
    return block * r->tiles.stride_bytes + longer * r->element_bytes;
}

/* Bytes of blocks [first, first + count), which do not wrap. */
static size_t run_bytes(const halay_request_t *r, uint32_t buffer, uint32_t first, uint32_t count)
{
    size_t bytes = 0;
    if (!r->tables && first < r->long_blocks)
        bytes =
            (first + count < r->long_blocks ? count : r->long_blocks - first) * r->element_bytes;
    if (!r->tables)
        return bytes + count * r->unit_bytes;
    for (uint32_t b = first; b < first + count; b++)
        bytes += r->block[buffer].bytes[b];
    return bytes;
}

bool hly_operand_wraps(const halay_plan_t *plan, const halay_operand_t *o)
{
    return o->first + o->count > plan->blocks;
}

/* plan.h: which buffer holds the block of this rank alone. */
static bool lies_own(uint32_t collective, uint32_t buffer)
{
    if (buffer == HALAY_BUFFER_IN)
        return collective == HALAY_ALLGATHER || collective == HALAY_GATHER;
    return collective == HALAY_REDUCE_SCATTER || collective == HALAY_SCATTER;
}

/*
 * In the OWN layout, and in scratch, a run lies together wherever it begins. Blocks that lie
 * anywhere (v forms) come one a run; selection sees to that.
 */
static void measure(const halay_request_t *r, const halay_operand_t *o, struct hly_span *span)
{
    const halay_plan_t *plan = r->plan->plan;
    bool scratch = o->buffer == HALAY_BUFFER_SCRATCH;
    bool own = scratch || lies_own(plan->params.collective, o->buffer);
    uint32_t buffer = o->buffer == HALAY_BUFFER_OUT; /* scratch: what comes from IN */
    size_t *bytes = &span->segment[0].bytes, *tail = &span->segment[1].bytes;
    *span = (struct hly_span){0};
    if (!o->count)
        return;
    assert(scratch || !r->tables || o->count == 1);
    uint32_t run = hly_operand_wraps(plan, o) ? plan->blocks - o->first : o->count;
    *bytes = run_bytes(r, buffer, o->first, run);
    *tail = run < o->count ? run_bytes(r, buffer, 0, o->count - run) : 0;
    span->offset = scratch ? o->slot * r->slot_bytes : own ? 0 : block_offset(r, buffer, o->first);
    if (own) {
        *bytes += *tail;
        *tail = 0;
    }
    if (*bytes && HLY_SEEDED(WRONG_OFFSET, r, HALAY_STEP_NONE))
        span->offset += r->element_bytes;
    if (scratch && o->slot && *bytes && HLY_SEEDED(WRONG_SLOT, r, HALAY_STEP_NONE))
        span->offset = 0;
    if (*tail && HLY_SEEDED(LOSE_TAIL, r, HALAY_STEP_NONE))
        *tail = 0;
}

/* A vector that the plan cuts into blocks of its own choice; otherwise a block has `count`. */
static bool is_cut(const halay_plan_t *plan)
{
    switch (plan->params.collective) {
    case HALAY_ALLREDUCE:
    case HALAY_BROADCAST:
    case HALAY_REDUCE:
    case HALAY_SCAN:
    case HALAY_EXSCAN:
        return plan->blocks > 1;
    default:
        return false;
    }
}

static size_t round_up(size_t bytes)
{
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

static size_t largest_block(const halay_request_t *r)
{
    size_t most = r->unit_bytes + (r->long_blocks ? r->element_bytes : 0);
    if (!r->tables)
        return most;
    most = 0;
    for (int i = 0; i < 2; i++)
        for (int b = 0; b < r->comm->nranks; b++)
            if (r->block[i].bytes[b] > most)
                most = r->block[i].bytes[b];
    return most;
}

/* Elements that are never parted. */
static size_t group_of(const struct hly_call *call)
{
    return call->user ? call->user->group : 1;
}

/* Bytes of the result that this rank gets, where one is computed. */
static size_t result_bytes(const halay_request_t *r)
{
    const halay_plan_params_t *p = &r->plan->plan->params;
    if (p->collective == HALAY_REDUCE && p->rank != p->root)
        return 0;
    if (p->collective == HALAY_REDUCE_SCATTER && r->tables)
        return run_bytes(r, HALAY_BUFFER_OUT, p->rank, 1);
    return r->call.brief.count * halay_type_bytes((halay_type_t)r->call.brief.type);
}

/* Elements of the tile that is laid out. */
static uint64_t tile_count(const halay_request_t *r)
{
    const struct hly_tiles *t = &r->tiles;
    uint64_t from = t->number * t->count, all = r->call.brief.count;
    return all - from < t->count ? all - from : t->count;
}

static void lay_out(halay_request_t *r)
{
    const halay_plan_t *plan = r->plan->plan;
    const struct hly_call *c = &r->call;
    bool cut = is_cut(plan);
    size_t element = halay_type_bytes((halay_type_t)c->brief.type);
    size_t group = group_of(c), count = tile_count(r) / group;
    r->element_bytes = element ? group * element : 1; /* a barrier */
    r->unit_bytes = (cut ? count / plan->blocks : count) * r->element_bytes;
    r->long_blocks = cut ? (uint32_t)(count % plan->blocks) : 0;
    r->tiles.stride_bytes = cut ? r->unit_bytes : c->brief.count / group * r->element_bytes;
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    r->slot_bytes = largest_block(r);
    if (cut || !(info->restrictions & HALAY_PLANNER_EQUAL))
        r->slot_bytes = round_up(r->slot_bytes); /* else a slot is a block (plan.h) */
    r->places = (struct hly_places){0};
    for (uint32_t i = 0; i < plan->noperands; i++)
        measure(r, &plan->operands[i], &r->spans[i]);
    r->result_bytes = result_bytes(r);
    r->laid_count = c->brief.count;
    r->laid_tile = tile_count(r);
    r->laid_type = c->brief.type;
    r->laid_group = group;
    r->laid_out = !r->tables;
}

static void place(halay_request_t *r)
{
    const struct hly_call *c = &r->call;
    const halay_plan_params_t *p = &r->plan->plan->params;
    r->out = c->out;
    r->in = (char *)(uintptr_t)c->in;
    if (!hly_call_in_place(c) && !c->aside)
        return;
    r->in = r->out;
    if (p->collective == HALAY_ALLGATHER || p->collective == HALAY_GATHER)
        r->in += block_offset(r, HALAY_BUFFER_OUT, p->rank);
    else if (p->collective == HALAY_SCATTER)
        r->out += block_offset(r, HALAY_BUFFER_IN, p->rank);
}

/* What a step had the device do, with the operands as they are now; if it is still one piece. */
static void aim(const halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = &r->plan->plan->steps[step];
    const struct hly_segment *to = hly_operand_segments(r, s->operand);
    halay_work_t *work = &r->works[step];
    const size_t bytes = hly_operand_bytes(r, s->operand);
    bool whole = to->bytes == bytes;
    work->dst = to->address;
    work->count = bytes / r->element_bytes * work->group;
    for (uint32_t i = 0; i < work->nsrc; i++) {
        const struct hly_segment *from = hly_operand_segments(r, s->operand + 1 + i);
        whole = whole && from->bytes == bytes;
        work->src[i] = from->address;
    }
    if (!whole)
        *work = (halay_work_t){0};
}

/* Addresses, and what the steps have the device do, are kept for the next call with the same
 * memory. */
static void address(halay_request_t *r)
{
    const halay_plan_t *plan = r->plan->plan;
    const size_t moved =
        r->tiles.number * r->tiles.count * halay_type_bytes((halay_type_t)r->call.brief.type);
    char *const base[] = {r->in + moved, r->out + moved, r->scratch};
    const struct hly_places now = {base[0], base[1], base[2], r->call.brief.op};
    if (!r->call.user && r->laid_out && memcmp(&now, &r->places, sizeof(now)) == 0)
        return;
    hly_due_forget(&r->due);
    for (uint32_t i = 0; i < plan->noperands; i++) {
        struct hly_span *span = &r->spans[i];
        span->segment[1].address = base[plan->operands[i].buffer];
        span->segment[0].address = span->segment[1].address + span->offset;
    }
    for (uint32_t i = 0; r->works && i < plan->nsteps; i++)
        if (r->works[i].nsrc)
            aim(r, i);
    r->places = now;
}

/* One vector, or blocks that the plan names one at a time. */
static bool can_cut(const halay_request_t *r, uint32_t can)
{
    const halay_plan_t *plan = r->plan->plan;
    if (!(can & HALAY_CAN_CACHE) || can & (HALAY_CAN_PUT | HALAY_CAN_LAND) || r->comm->nnodes > 1 ||
        r->tables || r->call.user || r->call.aside || !plan->blocks ||
        !halay_type_bytes((halay_type_t)r->call.brief.type))
        return false;
    switch (plan->params.collective) {
    case HALAY_ALLGATHER:
    case HALAY_REDUCE_SCATTER:
    case HALAY_ALLTOALL:
        return !(halay_planner_get(plan->planner)->restrictions & HALAY_PLANNER_RUNS);
    case HALAY_GATHER:
    case HALAY_SCATTER:
        return false;
    default:
        return true;
    }
}

static size_t tile_bytes(const halay_transport_attr_t *near)
{
    const size_t most = near->eager_bytes * TILE_MESSAGES;
    return most < TILE_BYTES ? most : TILE_BYTES;
}

/*
 * Into tiles, on all ranks alike. Where a plan has one or two blocks, or few rounds, no message is
 * longer than an eager one; where it has more, and the ranks perhaps no processor each, a tile is
 * larger, so that they change places less often.
 */
static void cut(halay_request_t *r)
{
    const halay_comm_t *comm = r->comm;
    const halay_plan_t *plan = r->plan->plan;
    const uint32_t blocks = plan->blocks;
    const bool rounds = halay_planner_get(plan->planner)->restrictions & HALAY_PLANNER_ROUNDS;
    const uint64_t count = r->call.brief.count;
    struct hly_tiles *t = &r->tiles;
    t->n = 1;
    t->count = count;
    if (comm->nranks < 2)
        return;
    const halay_transport_attr_t *near = &r->context->ways[0].attr;
    if (!can_cut(r, near->capabilities))
        return;
    size_t most = near->eager_bytes; /* of a block */
    if (blocks > 2 && !rounds)
        most = tile_bytes(near) / blocks;
    size_t part = most / halay_type_bytes((halay_type_t)r->call.brief.type);
    part -= part > TILE_ALIGN ? part % TILE_ALIGN : 0;
    part = (part ? part : 1) * (is_cut(plan) ? blocks : 1);
    if (part >= count || (count - 1) / part >= UINT32_MAX)
        return;
    t->count = part;
    t->n = (uint32_t)((count - 1) / part) + 1;
}

static bool is_laid(const halay_request_t *r)
{
    const struct hly_brief *b = &r->call.brief;
    return r->laid_type == b->type && r->laid_group == group_of(&r->call) &&
           r->laid_count == b->count && r->laid_tile == tile_count(r);
}

/* What all ranks of the node read and write, in all. */
static bool is_large(const halay_request_t *r)
{
    const struct hly_brief *b = &r->call.brief;
    size_t bytes = b->count * halay_type_bytes((halay_type_t)b->type);
    size_t ranks = (size_t)r->context->info.local_nranks;
    if (!is_cut(r->plan->plan) && r->plan->plan->blocks > 1)
        bytes *= (size_t)r->comm->nranks;
    return bytes > r->context->cache_bytes / 2 / (ranks ? ranks : 1);
}

/* The spans of the first tile, where they are not those of the call before. */
static void lay_first(halay_request_t *r)
{
    r->tiles.number = 0;
    r->both = (struct hly_both){0};
    cut(r);
    r->large = is_large(r);
    bool laid = r->laid_out && !r->tables && is_laid(r);
    if (r->works && (!laid || r->places.op != r->call.brief.op || r->call.user))
        memset(r->works, 0, (r->plan->plan->nsteps + 1) * sizeof(*r->works));
    if (!r->laid_out || r->tables || (!laid && !HLY_SEEDED(STALE_LAYOUT, r, HALAY_STEP_NONE)))
        lay_out(r);
}

int hly_layout_bind(halay_request_t *r)
{
    const struct hly_call *c = &r->call;
    lay_first(r);
    place(r);
    if (HLY_SEEDED(WRONG_INPUT, r, HALAY_STEP_NONE))
        r->in = r->out;
    r->home = r->out;
    size_t slots = round_up(r->slot_bytes * r->plan->plan->scratch_slots);
    size_t need = slots + (c->aside ? round_up(r->slot_bytes) : 0);
    if (hly_scratch_alloc(r, need, SLOT_ALIGN))
        return HALAY_ENOMEM;
    if (c->aside)
        r->out = r->scratch + slots;
    address(r);
    return HALAY_OK;
}

void hly_layout_tile(halay_request_t *r, uint32_t tile)
{
    assert(tile < r->tiles.n);
    if (r->tiles.number == tile)
        return;
    r->tiles.number = tile;
    if (r->laid_tile != tile_count(r))
        lay_out(r);
    address(r);
}

void hly_layout_begin(halay_request_t *r)
{
    const bool moved = hly_scratch_take(r);
    if (r->tiles.number)
        hly_layout_tile(r, 0);
    else if (moved)
        address(r);
}

/* One table. Nothing between the blocks where no displacements are given. */
static void fill(struct hly_blocks *to, const struct hly_vector *from, size_t n, size_t element)
{
    size_t next = 0;
    for (size_t i = 0; i < n; i++) {
        to->offset[i] = (from->displs ? from->displs[i] : next) * element;
        to->bytes[i] = from->counts[i] * element;
        next += from->counts[i];
    }
}

int hly_layout_tables(halay_request_t *r, const struct hly_call *call)
{
    const struct hly_vector *v = call->vector;
    if (!v[0].counts && !v[1].counts)
        return HALAY_OK;
    size_t n = (size_t)r->comm->nranks, element = halay_type_bytes((halay_type_t)call->brief.type);
    r->tables = calloc(4 * n, sizeof(size_t));
    if (!r->tables)
        return HALAY_ENOMEM;
    for (size_t i = 0; i < 2; i++) {
        r->block[i] = (struct hly_blocks){r->tables + 2 * i * n, r->tables + (2 * i + 1) * n};
        fill(&r->block[i], v[i].counts ? &v[i] : &v[1 - i], n, element);
    }
    return HALAY_OK;
}

void hly_layout_forget(halay_request_t *r)
{
    free(r->tables);
    r->tables = NULL;
}
