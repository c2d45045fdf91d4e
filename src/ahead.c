/* SPDX-License-Identifier: Apache-2.0 */
/* ahead.c - sends what a tile begins with before the tile is there. */
#include "ahead.h"

#include <assert.h>
#include <string.h>

#include "both.h"
#include "lend.h"
#include "readers.h"
#include "watch.h"

/* The next message: a place in the transport's memory, and what is still to be copied there; or
 * what is lent, where it lies. */
struct ahead {
    struct hly_beside copy;
    uint32_t tile;
    bool lent;
};

/*
 * Only between two ranks, and only if each sends one message: of more, what comes too early would
 * have to be kept aside, since messages are taken in the order in which they were sent. Only what
 * needs nothing before it, so that it reads what no tile writes but its own; and only if the peer
 * answers: else nothing would bound who is how far ahead.
 */
void hly_ahead_find(struct hly_plan *p)
{
    const halay_plan_t *plan = p->plan;
    uint32_t nsends = 0, nrecvs = 0, found = HALAY_STEP_NONE;
    p->ahead = HALAY_STEP_NONE;
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *s = &plan->steps[i];
        nrecvs += s->kind == HALAY_STEP_RECV;
        if (s->kind != HALAY_STEP_SEND)
            continue;
        nsends++;
        if (s->dep[0] == HALAY_STEP_NONE && s->dep[1] == HALAY_STEP_NONE)
            found = i;
    }
    if (plan->params.nranks == 2 && p->straight && nsends == 1 && nrecvs == 1)
        p->ahead = found;
}

/* Whole tiles lie as the one that is laid out. */
static bool is_whole(const halay_request_t *r, uint32_t tile)
{
    return (tile + 1) * r->tiles.count <= r->call.brief.count;
}

bool hly_ahead_holds(const halay_request_t *r, uint32_t step)
{
    const halay_plan_t *plan = r->plan->plan;
    return r->tiles.n > 1 && step == r->plan->ahead && !plan->params.in_place &&
           plan->operands[plan->steps[step].operand].buffer == HALAY_BUFFER_IN;
}

/* Is there one that can go now? */
static bool next_ahead(halay_request_t *r, struct ahead *ahead)
{
    struct hly_tiles *t = &r->tiles;
    const uint32_t step = r->plan->ahead, tile = t->sent;
    if (step == HALAY_STEP_NONE || tile <= t->number || tile > t->number + HLY_AHEAD ||
        tile >= t->n || !is_whole(r, tile))
        return false;
    const struct hly_segment *seg = hly_operand_segments(r, r->plan->plan->steps[step].operand);
    const struct hly_peer *peer = r->plan->peers[step];
    const size_t tile_bytes = t->count * halay_type_bytes((halay_type_t)r->call.brief.type);
    if (seg[1].bytes || !seg->bytes || !hly_out_can(r, step))
        return false;
    char *from = seg->address + (tile - t->number) * tile_bytes;
    void *place = NULL;
    ahead->lent = hly_ahead_holds(r, step) && hly_range_lends(r->context, peer->way, from);
    if (!ahead->lent && peer->way->ops->place(peer->way->transport, peer->ep, sizeof(r->header),
                                              seg->bytes, &place))
        return false;
    ahead->copy = (struct hly_beside){ahead->lent ? from : place, from, seg->bytes};
    ahead->tile = tile;
    return true;
}

static void send_ahead(halay_request_t *r, const struct ahead *ahead)
{
    const uint32_t step = r->plan->ahead;
    const struct hly_beside *copy = &ahead->copy;
    r->header.tile = (uint16_t)ahead->tile;
    r->header.offset = hly_both_promise(r, ahead->tile);
    hly_header_number(&r->header, r->sequence, r->plan->plan->steps[step].edge);
    r->header.cookie = copy->bytes;
    hly_saw_ahead(r, ahead->tile, step, copy->from, copy->bytes);
    if (hly_out_ahead(r, step, (struct hly_segment){copy->to, copy->bytes}) == HALAY_OK)
        r->tiles.sent = ahead->tile + 1;
    else
        hly_saw_ahead(r, ahead->tile, step, NULL, 0);
    if (r->header.offset && r->tiles.sent > ahead->tile)
        hly_both_promised(r, ahead->tile);
    r->header.tile = (uint16_t)r->tiles.number;
    r->header.offset = hly_both_mine(r);
}

void hly_ahead_fill(halay_request_t *r)
{
    struct ahead ahead;
    while (r->tiles.sent < r->tiles.number + HLY_AHEAD && next_ahead(r, &ahead)) {
        const uint32_t sent = r->tiles.sent;
        if (!ahead.lent)
            memcpy(ahead.copy.to, ahead.copy.from, ahead.copy.bytes);
        send_ahead(r, &ahead);
        if (r->tiles.sent == sent)
            return;
    }
}

bool hly_ahead_reduce(halay_request_t *r, uint32_t step, uint32_t reduction, const void *data)
{
    struct ahead ahead;
    const bool any = r->tiles.n > 1 && next_ahead(r, &ahead);
    if (any && ahead.lent)
        send_ahead(r, &ahead);
    if (hly_both_shares(r) && hly_both_reduce(r, step, reduction, data))
        return true;
    if (!any || ahead.lent)
        return hly_reduce_lying(r, step, reduction, data, NULL);
    const bool reduced = hly_reduce_lying(r, step, reduction, data, &ahead.copy);
    if (reduced)
        send_ahead(r, &ahead);
    return reduced;
}
