/* SPDX-License-Identifier: Apache-2.0 */
/* both.c - each of two ranks reduces one half of a tile, into the results of both. */
#include "both.h"

#include <string.h>
#include <unistd.h>

#include "ahead.h"
#include "core.h"
#include "device/device_builtin.h"
#include "lend.h"
#include "readers.h"

#define LINE 64

static struct hly_room *room_of(const halay_request_t *r)
{
    struct hly_room *room = &hly_request_slot(r)->room;
    return room->sequence == r->sequence ? room : NULL;
}

static size_t tile_bytes(const halay_request_t *r)
{
    return r->tiles.count * halay_type_bytes((halay_type_t)r->call.brief.type);
}

/* Of OUT, which begins with one, so that what lies behind it stays where it is. */
static size_t whole_pages(const halay_request_t *r)
{
    const size_t bytes = r->call.brief.count * halay_type_bytes((halay_type_t)r->call.brief.type);
    return bytes - bytes % (size_t)sysconf(_SC_PAGESIZE);
}

/* A plan of one message each way and one reduction, of IN and what comes, into OUT. */
static bool is_simple(const halay_request_t *r)
{
    const struct hly_plan *p = r->plan;
    const halay_plan_t *plan = p->plan;
    bool reduces = false;
    for (uint32_t i = 0; i < plan->nsteps; i++)
        reduces |= plan->steps[i].kind == HALAY_STEP_REDUCE && hly_step_streams(r, i);
    return plan->params.collective == HALAY_ALLREDUCE && plan->params.nranks == 2 &&
           plan->nsteps == 3 && plan->blocks == 1 && reduces;
}

/* Does its memory allow it on this rank? */
static bool can_offer(const halay_request_t *r)
{
    const halay_context_t *ctx = r->context;
    const uint32_t step = r->plan->ahead;
    if (r->tiles.n < 2 || step == HALAY_STEP_NONE || !r->large || ctx->nways != 1 ||
        !(ctx->ways[0].attr.capabilities & HALAY_CAN_REACH) || !hly_ahead_holds(r, step) ||
        r->call.brief.flags & HLY_BRIEF_SCALED || r->home != r->out ||
        ctx->device_ops != &hly_device_host)
        return false;
    return (uintptr_t)r->out % (size_t)sysconf(_SC_PAGESIZE) == 0 &&
           hly_range_lends(ctx, &ctx->ways[0], r->in) && is_simple(r);
}

void hly_both_begin(halay_request_t *r)
{
    r->both = (struct hly_both){0};
    r->header.offset = 0;
    if (!can_offer(r))
        return;
    const halay_step_t *s = &r->plan->plan->steps[r->plan->ahead];
    struct hly_ready ready;
    memset(&ready, 0, sizeof(ready));
    ready.bytes = whole_pages(r);
    if (!hly_range_name(r->context, &r->context->ways[0], r->out, &ready))
        return;
    r->both.offered = true;
    r->both.whole = (uint32_t)(ready.bytes / tile_bytes(r));
    hly_control_send(r->comm, (int)s->peer, HLY_ROOM, r->sequence, s->edge, 0, &r->call, &ready,
                     sizeof(ready));
}

void hly_both_heard(halay_comm_t *comm, const struct hly_header *h, const void *data, size_t bytes)
{
    struct hly_slot *slot = hly_comm_slot(comm, h->sequence);
    if (!slot || slot->complete)
        return;
    struct hly_room *room = &slot->room;
    if (room->sequence != h->sequence || !(room->there || room->filled))
        *room = (struct hly_room){.sequence = h->sequence};
    if (h->kind == HLY_ROOM && bytes == sizeof(room->ready)) {
        memcpy(&room->ready, data, bytes);
        room->there = room->ready.key_bytes <= sizeof(room->ready.key);
    }
    room->filled |= h->kind == HLY_FILLED;
    if (room->filled && slot->request && slot->request->state == HLY_RUNNING)
        hly_engine_run(slot->request);
}

/* Where `at` bytes into the peer's result are, for so many bytes; NULL: they cannot be reached. */
static void *reach(const halay_request_t *r, size_t at, size_t bytes)
{
    const struct hly_room *room = room_of(r);
    const struct hly_peer *peer = r->plan->peers[r->plan->ahead];
    if (!room || !room->there || at > room->ready.bytes || bytes > room->ready.bytes - at)
        return NULL;
    const halay_reach_t there = {room->ready.key, room->ready.key_bytes, room->ready.offset + at};
    void *place = (void *)(uintptr_t)&there;
    int rc = peer->way->ops->place(peer->way->transport, peer->ep, 0, bytes, &place);
    return rc == HALAY_OK ? place : NULL;
}

/* ---------------------------------------------------------------- what is promised */

static uint64_t promise(const halay_request_t *r, uint32_t first, uint32_t tile)
{
    return first && tile + 1 >= first && tile < r->both.whole ? HLY_PROMISE : 0;
}

uint64_t hly_both_mine(const halay_request_t *r)
{
    return promise(r, r->both.mine, r->tiles.number);
}

uint64_t hly_both_theirs(const halay_request_t *r)
{
    return promise(r, r->both.theirs, r->tiles.number);
}

uint64_t hly_both_promise(halay_request_t *r, uint32_t tile)
{
    const size_t bytes = tile_bytes(r);
    if (r->both.mine || !r->both.offered)
        return promise(r, r->both.mine, tile);
    return tile < r->both.whole && reach(r, tile * bytes, bytes) ? HLY_PROMISE : 0;
}

void hly_both_promised(halay_request_t *r, uint32_t tile)
{
    if (!r->both.mine)
        r->both.mine = tile + 1;
}

void hly_both_look(halay_request_t *r, const struct hly_header *h)
{
    const uint32_t tile = r->tiles.number;
    if (h->offset & HLY_PROMISE && !r->both.theirs && r->both.offered &&
        h->tile == (uint16_t)tile && tile < r->both.whole)
        r->both.theirs = tile + 1;
}

/* ---------------------------------------------------------------- what is done */

bool hly_both_shares(const halay_request_t *r)
{
    return hly_both_mine(r) & hly_both_theirs(r);
}

bool hly_both_reduce(halay_request_t *r, uint32_t step, uint32_t reduction, const void *data)
{
    const char *place = hly_operand_segments(r, r->plan->plan->steps[step].operand)->address;
    halay_work_t work = r->works[reduction];
    const size_t bytes = tile_bytes(r), half = bytes / 2 / LINE * LINE;
    /* by turns the first and the second half, so that what is read goes on where it ended */
    const bool second = (r->tiles.number ^ (uint32_t)r->comm->rank) & 1;
    const size_t from = second ? half : 0, n = second ? bytes - half : half;
    for (uint32_t i = 0; i < work.nsrc; i++)
        work.src[i] = (const char *)(work.src[i] == place ? data : work.src[i]) + from;
    work.dst = (char *)work.dst + from;
    work.count = n / halay_type_bytes(work.type);
    work.bound = NULL;
    void *other = reach(r, r->tiles.number * bytes + from, n);
    if (other && hly_host_twice(r->context->device, &work, other) == HALAY_OK)
        return true;
    hly_both_missed(r);
    return false;
}

void hly_both_missed(halay_request_t *r)
{
    if (hly_both_shares(r))
        r->both.failed = true;
}

static bool shared_any(const halay_request_t *r)
{
    const struct hly_both *b = &r->both;
    const uint32_t first = b->mine > b->theirs ? b->mine : b->theirs;
    return b->mine && b->theirs && first <= r->both.whole;
}

bool hly_both_waits(const halay_request_t *r)
{
    const struct hly_room *room = r->both.mine ? room_of(r) : NULL;
    return shared_any(r) && !(room && room->filled);
}

bool hly_both_end(halay_request_t *r)
{
    if (r->both.failed || !shared_any(r))
        return !r->both.failed;
    if (!r->both.told) {
        const halay_step_t *s = &r->plan->plan->steps[r->plan->ahead];
        r->both.told = true;
        hly_stream_end();
        hly_control_send(r->comm, (int)s->peer, HLY_FILLED, r->sequence, s->edge, 0, &r->call, NULL,
                         0);
    }
    return !hly_both_waits(r);
}

void hly_both_withdraw(halay_request_t *r)
{
    const struct hly_room *room = room_of(r);
    if (!r->both.offered || !r->both.mine || (room && room->filled))
        return;
    hly_range_part(r->context, r->out, whole_pages(r));
}
