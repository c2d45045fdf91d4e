/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - gives the operands of a plan their addresses for one call.
 *
 * Blocks are of equal size; where a vector is cut, the first few are an element longer. In the v
 * forms two tables give sizes and displacements, one for IN and one for OUT; they differ in
 * alltoallv only. A request computes its spans once for a count and type. Each call binds the
 * addresses, and each segment moves them on.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/staging.h"
#include "exec/work.h"
#include "plan/collective.h"
#include "wire/register.h"
#include "wire/watch.h"

#define SLOT_ALIGN       64
#define SEGMENT_ALIGN    16           /* elements */
#define SEGMENT_MESSAGES 16           /* eager messages of one segment, in a plan of many blocks */
#define SEGMENT_BYTES    (512u << 10) /* at most, of such a segment: a ring of 1 MiB holds it */

static size_t block_offset(const halay_request_t *r, uint32_t buffer, uint32_t block)
{
    if (r->layout.tables)
        return r->layout.block[buffer].offset[block];
    uint32_t longer = block < r->layout.long_blocks ? block : r->layout.long_blocks;
    return block * r->segments.stride_bytes + longer * r->layout.element_bytes;
}

/* Bytes of blocks [first, first + count), which do not wrap. */
static size_t run_bytes(const halay_request_t *r, uint32_t buffer, uint32_t first, uint32_t count)
{
    size_t bytes = 0;
    if (!r->layout.tables && first < r->layout.long_blocks)
        bytes = (first + count < r->layout.long_blocks ? count : r->layout.long_blocks - first) *
                r->layout.element_bytes;
    if (!r->layout.tables)
        return bytes + count * r->layout.unit_bytes;
    for (uint32_t b = first; b < first + count; b++)
        bytes += r->layout.block[buffer].bytes[b];
    return bytes;
}

size_t hly_layout_bytes(const halay_request_t *r, uint32_t first, uint32_t count)
{
    assert(!r->layout.tables);
    return run_bytes(r, HALAY_BUFFER_IN, first, count);
}

bool hly_operand_on_stage(const halay_request_t *r, uint32_t operand)
{
    const halay_operand_t *o = &r->plan->plan->operands[operand];
    return r->plan->stages && o->buffer == HALAY_BUFFER_SCRATCH &&
           o->slot >= r->plan->plan->device_slots;
}

bool hly_operand_wraps(const halay_plan_t *plan, const halay_operand_t *o)
{
    return o->first + o->count > plan->blocks;
}

/* Does this buffer hold the block of this rank alone (plan.h)? */
static bool lies_own(uint32_t collective, uint32_t buffer)
{
    const struct hly_collective *c = &hly_collectives[collective];
    return (buffer == HALAY_BUFFER_IN ? c->in.part : c->out.part) == HLY_OWN;
}

/*
 * Computes where an operand lies. In scratch, and in a buffer of one block, a run of blocks is
 * contiguous wherever it begins. In v forms each operand is a single block, since selection picks
 * no other planner.
 */
static void measure(const halay_request_t *r, const halay_operand_t *o, struct hly_span *span)
{
    const halay_plan_t *plan = r->plan->plan;
    bool scratch = o->buffer == HALAY_BUFFER_SCRATCH;
    bool own = scratch || lies_own(plan->params.collective, o->buffer);
    uint32_t buffer = o->buffer == HALAY_BUFFER_OUT; /* scratch: sizes as in IN */
    size_t *bytes = &span->extent[0].bytes, *tail = &span->extent[1].bytes;
    *span = (struct hly_span){0};
    if (!o->count)
        return;
    assert(scratch || !r->layout.tables || o->count == 1);
    uint32_t run = hly_operand_wraps(plan, o) ? plan->blocks - o->first : o->count;
    *bytes = run_bytes(r, buffer, o->first, run);
    *tail = run < o->count ? run_bytes(r, buffer, 0, o->count - run) : 0;
    const uint32_t before = scratch && o->slot >= plan->device_slots ? plan->device_slots : 0;
    span->offset = scratch ? (o->slot - before) * r->layout.slot_bytes
                   : own   ? 0
                           : block_offset(r, buffer, o->first);
    if (own) {
        *bytes += *tail;
        *tail = 0;
    }
    if (*bytes && HLY_SEEDED(WRONG_OFFSET, r, HALAY_STEP_NONE))
        span->offset += r->layout.element_bytes;
    if (scratch && o->slot && *bytes && HLY_SEEDED(WRONG_SLOT, r, HALAY_STEP_NONE))
        span->offset = 0;
    if (*tail && HLY_SEEDED(LOSE_TAIL, r, HALAY_STEP_NONE))
        *tail = 0;
}

/* Does the plan cut a vector into blocks? Otherwise each block has `count` elements. */
static bool is_cut(const halay_plan_t *plan)
{
    return plan->blocks > 1 && hly_collective_is_vector(plan->params.collective);
}

static size_t round_up(size_t bytes)
{
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

static size_t largest_block(const halay_request_t *r)
{
    size_t most = r->layout.unit_bytes + (r->layout.long_blocks ? r->layout.element_bytes : 0);
    if (!r->layout.tables)
        return most;
    most = 0;
    for (int i = 0; i < 2; i++)
        for (int b = 0; b < r->comm->nranks; b++)
            if (r->layout.block[i].bytes[b] > most)
                most = r->layout.block[i].bytes[b];
    return most;
}

/* Elements that a user-defined operation takes together: a cut never separates them. */
static size_t group_of(const struct hly_call *call)
{
    return call->user ? call->user->group : 1;
}

/* Bytes of the result that this rank gets. */
static size_t result_bytes(const halay_request_t *r)
{
    const halay_plan_params_t *p = &r->plan->plan->params;
    const struct hly_access *out = &hly_collectives[p->collective].out;
    if (out->who == HLY_AT_ROOT && p->rank != p->root)
        return 0;
    if (out->part == HLY_OWN && r->layout.tables)
        return run_bytes(r, HALAY_BUFFER_OUT, p->rank, 1);
    return r->call.desc.count * halay_type_bytes((halay_type_t)r->call.desc.type);
}

/* Elements of the segment that is laid out. */
static uint64_t segment_count(const halay_request_t *r)
{
    const struct hly_segments *t = &r->segments;
    uint64_t from = t->number * t->count, all = r->call.desc.count;
    return all - from < t->count ? all - from : t->count;
}

static void lay_out(halay_request_t *r)
{
    const halay_plan_t *plan = r->plan->plan;
    const struct hly_call *c = &r->call;
    bool cut = is_cut(plan);
    size_t element = halay_type_bytes((halay_type_t)c->desc.type);
    size_t group = group_of(c), count = segment_count(r) / group;
    r->layout.element_bytes = element ? group * element : 1; /* a barrier */
    r->layout.unit_bytes = (cut ? count / plan->blocks : count) * r->layout.element_bytes;
    r->layout.long_blocks = cut ? (uint32_t)(count % plan->blocks) : 0;
    const uint64_t blocks = r->staging ? r->staging->count : c->desc.count;
    r->segments.stride_bytes =
        cut ? r->layout.unit_bytes : blocks / group * r->layout.element_bytes;
    const halay_planner_info_t *info = halay_planner_get(plan->planner);
    r->layout.slot_bytes = largest_block(r);
    if (cut || !(info->restrictions & HALAY_PLANNER_EQUAL))
        r->layout.slot_bytes =
            round_up(r->layout.slot_bytes); /* else slots are as large as blocks (plan.h) */
    r->layout.places = (struct hly_places){0};
    for (uint32_t i = 0; i < plan->noperands; i++)
        measure(r, &plan->operands[i], &r->layout.spans[i]);
    r->layout.result_bytes = result_bytes(r);
    r->layout.laid_count = c->desc.count;
    r->layout.laid_segment = segment_count(r);
    r->layout.laid_type = c->desc.type;
    r->layout.laid_group = group;
    r->layout.laid_out = !r->layout.tables;
}

static void place(halay_request_t *r)
{
    const struct hly_call *c = &r->call;
    const halay_plan_params_t *p = &r->plan->plan->params;
    r->layout.out = c->out;
    r->layout.in = (char *)(uintptr_t)c->in;
    if (r->staging) {
        r->layout.in = r->layout.scratch + r->staging->slots_at;
        r->layout.out = r->layout.in + r->staging->out_at;
    }
    if (!hly_call_in_place(c) && !c->staged)
        return;
    r->layout.in = r->layout.out;
    const struct hly_collective *k = &hly_collectives[p->collective];
    if (k->in.part == HLY_OWN)
        r->layout.in += block_offset(r, HALAY_BUFFER_OUT, p->rank);
    else if (k->in.who == HLY_AT_ROOT && k->out.part == HLY_OWN)
        r->layout.out += block_offset(r, HALAY_BUFFER_IN, p->rank);
}

/* Updates the addresses in the step's bound device work; drops it if an operand is not contiguous
 * any more. */
static void work_rebind(const halay_request_t *r, uint32_t step)
{
    const halay_step_t *s = &r->plan->steps[step];
    const struct hly_extent *to = hly_operand_extents(r, s->operand);
    halay_work_t *work = &r->layout.works[step];
    const size_t bytes = hly_operand_bytes(r, s->operand);
    bool whole = to->bytes == bytes;
    work->dst = to->address;
    work->count = bytes / r->layout.element_bytes * work->group;
    for (uint32_t i = 0; i < work->nsrc; i++) {
        const struct hly_extent *from = hly_operand_extents(r, s->operand + 1 + i);
        whole = whole && from->bytes == bytes;
        work->src[i] = from->address;
    }
    if (!whole)
        *work = (halay_work_t){0};
}

/* The offset of the segment in the buffers; in staged calls, in a slot. */
static size_t moved_bytes(const halay_request_t *r)
{
    const struct hly_segments *t = &r->segments;
    const uint64_t before = r->staging ? t->number % r->staging->nsegments : t->number;
    return before * t->count * halay_type_bytes((halay_type_t)r->call.desc.type) +
           (r->staging ? hly_staging_offset(r) : 0);
}

/* Gives all operands, and the bound device work, their addresses; does nothing if they have
 * them. */
static void address(halay_request_t *r)
{
    const halay_plan_t *plan = r->plan->plan;
    const size_t moved = moved_bytes(r);
    char *const base[] = {r->layout.in + moved, r->layout.out + moved, r->layout.scratch};
    const struct hly_places now = {base[0], base[1], base[2], r->call.desc.op};
    if (!r->call.user && r->layout.laid_out && memcmp(&now, &r->layout.places, sizeof(now)) == 0)
        return;
    hly_expected_forget(r);
    for (uint32_t i = 0; i < plan->noperands; i++) {
        struct hly_span *span = &r->layout.spans[i];
        span->extent[1].address = r->plan->stages && plan->operands[i].slot < plan->device_slots &&
                                          plan->operands[i].buffer == HALAY_BUFFER_SCRATCH
                                      ? r->layout.own
                                      : base[plan->operands[i].buffer];
        span->extent[0].address = span->extent[1].address + span->offset;
    }
    for (uint32_t i = 0; r->layout.works && i < plan->nsteps; i++)
        if (r->layout.works[i].nsrc)
            work_rebind(r, i);
    r->layout.places = now;
}

/* May the call be cut into segments? It is one vector, or the plan names its blocks one at a time.
 */
static bool can_cut(const halay_request_t *r)
{
    const halay_plan_t *plan = r->plan->plan;
    if (r->comm->nranks < 2 || r->layout.tables || r->call.user || r->call.staged ||
        !plan->blocks || plan->ngroups || !halay_type_bytes((halay_type_t)r->call.desc.type))
        return false;
    const struct hly_collective *c = &hly_collectives[plan->params.collective];
    if (c->in.part == HLY_VECTOR || c->in.part == HLY_NOTHING)
        return true;
    return c->in.who == HLY_AT_ALL && c->out.who == HLY_AT_ALL &&
           !(halay_planner_get(plan->planner)->restrictions & HALAY_PLANNER_RUNS);
}

static size_t segment_bytes(const halay_transport_attr_t *near)
{
    const size_t most = near->eager_bytes * SEGMENT_MESSAGES;
    return most < SEGMENT_BYTES ? most : SEGMENT_BYTES;
}

/* Is it faster to cut the call? It is if the call stays on a node, over a transport with
 * HALAY_CAN_CACHE. */
static bool should_cut(const halay_request_t *r)
{
    const uint32_t can = r->context->transports[0].attr.capabilities;
    return can & HALAY_CAN_CACHE && !(can & (HALAY_CAN_PUT | HALAY_CAN_LAND)) &&
           r->comm->nnodes < 2;
}

/*
 * Cuts the call into segments, on all ranks alike. With one or two blocks, or few rounds, no
 * message exceeds the eager limit. With more blocks a segment is larger: then ranks that share a
 * processor switch less often.
 */
static void cut_by_cache(halay_request_t *r)
{
    const halay_plan_t *plan = r->plan->plan;
    const uint32_t blocks = plan->blocks;
    const bool rounds = halay_planner_get(plan->planner)->restrictions & HALAY_PLANNER_ROUNDS;
    const uint64_t count = r->call.desc.count;
    struct hly_segments *t = &r->segments;
    const halay_transport_attr_t *near = &r->context->transports[0].attr;
    size_t most = near->eager_bytes; /* bytes of a block */
    if (blocks > 2 && !rounds)
        most = segment_bytes(near) / blocks;
    size_t part = most / halay_type_bytes((halay_type_t)r->call.desc.type);
    part -= part > SEGMENT_ALIGN ? part % SEGMENT_ALIGN : 0;
    part = (part ? part : 1) * (is_cut(plan) ? blocks : 1);
    if (part >= count || (count - 1) / part >= UINT32_MAX)
        return;
    t->count = part;
    t->n = (uint32_t)((count - 1) / part) + 1;
}

static void cut(halay_request_t *r)
{
    const bool can = can_cut(r);
    r->segments.n = 1;
    r->segments.count = r->call.desc.count;
    if (can && should_cut(r))
        cut_by_cache(r);
    if (r->staging)
        hly_staging_cut(r, can);
}

static bool is_laid(const halay_request_t *r)
{
    const struct hly_call_desc *b = &r->call.desc;
    return r->layout.laid_type == b->type && r->layout.laid_group == group_of(&r->call) &&
           r->layout.laid_count == b->count && r->layout.laid_segment == segment_count(r);
}

/* Do the data of all ranks of the node exceed the last-level cache? */
static bool is_large(const halay_request_t *r)
{
    const struct hly_call_desc *b = &r->call.desc;
    size_t bytes = b->count * halay_type_bytes((halay_type_t)b->type);
    size_t ranks = (size_t)r->context->info.local_nranks;
    if (!is_cut(r->plan->plan) && r->plan->plan->blocks > 1)
        bytes *= (size_t)r->comm->nranks;
    return bytes > r->context->cache_bytes / 2 / (ranks ? ranks : 1);
}

/* Lays out the first segment, unless the spans are still those of the call before. */
static void lay_first(halay_request_t *r)
{
    r->segments.number = 0;
    cut(r);
    r->layout.large = is_large(r);
    bool laid = r->layout.laid_out && !r->layout.tables && is_laid(r);
    if (r->layout.works && (!laid || r->layout.places.op != r->call.desc.op || r->call.user))
        memset(r->layout.works, 0, (r->plan->nsteps + 1) * sizeof(*r->layout.works));
    if (!r->layout.laid_out || r->layout.tables ||
        (!laid && !HLY_SEEDED(STALE_LAYOUT, r, HALAY_STEP_NONE)))
        lay_out(r);
}

int hly_layout_bind(halay_request_t *r)
{
    const struct hly_call *c = &r->call;
    lay_first(r);
    const uint32_t own = r->plan->plan->device_slots;
    size_t slots = round_up(r->layout.slot_bytes * (r->plan->plan->scratch_slots - own));
    size_t need = slots + (c->staged ? round_up(r->layout.slot_bytes) : 0);
    if (r->staging)
        need += hly_staging_lay(r, need);
    int rc = hly_scratch_alloc(r, need, SLOT_ALIGN);
    if (!rc && own)
        rc = hly_scratch_own(r, own * r->layout.slot_bytes, SLOT_ALIGN);
    if (rc)
        return rc;
    place(r);
    if (HLY_SEEDED(WRONG_INPUT, r, HALAY_STEP_NONE))
        r->layout.in = r->layout.out;
    r->layout.result = r->layout.out;
    if (c->staged)
        r->layout.out = r->layout.scratch + slots;
    const bool scaled = c->desc.flags & HLY_CALL_SCALED && c->prescale != 1;
    r->layout.before = scaled ? HLY_BEFORE_DUE : HLY_BEFORE_NOTHING;
    if (r->staging)
        r->layout.before |= HLY_BEFORE_DOWN | HLY_BEFORE_FIRST;
    if (hly_request_follows(r) && !c->captured) /* a captured call is in the stream itself */
        r->layout.before |= HLY_BEFORE_MARK;
    r->layout.after = hly_work_left(r);
    address(r);
    return HALAY_OK;
}

void hly_layout_segment(halay_request_t *r, uint32_t segment)
{
    assert(segment < r->segments.n);
    if (r->segments.number == segment)
        return;
    r->segments.number = segment;
    if (r->layout.laid_segment != segment_count(r))
        lay_out(r);
    address(r);
}

/* Fills one table of a v form. Without displacements the blocks are contiguous. */
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
    size_t n = (size_t)r->comm->nranks, element = halay_type_bytes((halay_type_t)call->desc.type);
    r->layout.tables = calloc((r->staging ? 6 : 4) * n, sizeof(size_t));
    if (!r->layout.tables)
        return HALAY_ENOMEM;
    for (size_t i = 0; i < 2; i++) {
        r->layout.block[i] =
            (struct hly_blocks){r->layout.tables + 2 * i * n, r->layout.tables + (2 * i + 1) * n};
        fill(&r->layout.block[i], v[i].counts ? &v[i] : &v[1 - i], n, element);
    }
    if (r->staging)
        hly_staging_pack(r, r->layout.tables + 4 * n);
    return HALAY_OK;
}

void hly_layout_forget(halay_request_t *r)
{
    free(r->layout.tables);
    r->layout.tables = NULL;
}
