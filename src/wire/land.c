/* SPDX-License-Identifier: Apache-2.0 */
/*
 * land.c - takes in what has come, into host memory: calls on other memory are staged there. A
 * payload is copied to its place, or, if one reduction alone reads it and waits for nothing else,
 * reduced where it lies: in the transport's memory, or in the sender's that it has lent.
 */
#include <string.h>

#include "device/device_builtin.h"
#include "wire/expected.h"
#include "wire/watch.h"

bool hly_lent_release(halay_context_t *ctx)
{
    const struct hly_transport *transport = ctx->lender;
    ctx->lender = NULL;
    return !transport || transport->ops->give_back(transport->handle) == HALAY_OK;
}

static void host_copy(void *to, const void *from, size_t bytes, bool streams)
{
    if (streams)
        hly_stream(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

/* Copies into an operand of up to two extents. */
static void scatter(const struct hly_extent *ext, uint64_t offset, const char *data, size_t bytes,
                    bool streams)
{
    if (offset < ext[0].bytes) {
        size_t n = ext[0].bytes - offset < bytes ? ext[0].bytes - offset : bytes;
        host_copy(ext[0].address + offset, data, n, streams);
        data += n;
        bytes -= n;
        offset += n;
    }
    if (bytes)
        host_copy(ext[1].address + (offset - ext[0].bytes), data, bytes, streams);
}

static uint32_t reader_of(const halay_request_t *r, uint32_t step)
{
    if (!r->plan->uses.reader || !r->layout.works)
        return HALAY_STEP_NONE;
    const uint16_t found = r->plan->uses.reader[step];
    return found < HLY_READ_BY_MORE && r->layout.works[found].nsrc ? found : HALAY_STEP_NONE;
}

/* Which source of the reduction lies at `place`? false: none. */
static bool source_of(const halay_work_t *work, const char *place, uint32_t *source)
{
    uint32_t i = 0;
    while (i < work->nsrc && work->src[i] != place)
        i++;
    *source = i;
    return i < work->nsrc;
}

/* What else this reduction waits for. The step is one of the two: reader() of plan/uses.c. */
static uint32_t other_of(const halay_request_t *r, uint32_t step, uint32_t reduction)
{
    const uint32_t *dep = hly_step(r, reduction)->dep;
    return dep[dep[0] == step];
}

/* Does the reduction with these bytes, if it waits for nothing else. */
static inline bool reduce(halay_request_t *r, uint32_t other, uint32_t reduction, uint32_t source,
                          const void *data)
{
    halay_work_t *work = &r->layout.works[reduction];
    struct hly_device *device = r->plan->stages ? &r->context->devices[0] : r->device;
    if (!hly_step_is_done(r, other) || device->lost)
        return false;
    const void *place = work->src[source];
    work->src[source] = data;
    work->at_once = 1;
    const int rc = device->ops->launch(device->handle, work);
    work->at_once = 0;
    work->src[source] = place;
    return rc == HALAY_OK;
}

enum hly_landed hly_land_expected(halay_request_t *r, const struct hly_transport *transport,
                                  const halay_event_t *event)
{
    halay_context_t *ctx = r->context;
    const struct hly_expected *e = &r->expected;
    const bool lent = event->kind == HALAY_EVENT_LENT;
    const void *data = lent ? event->payload : (const char *)event->data + sizeof(e->header);
    const bool reduced =
        e->reduction != HALAY_STEP_NONE && reduce(r, e->other, e->reduction, e->source, data);
    if (e->bytes && !reduced && !HLY_SEEDED(DROP_LANDED, r, e->step))
        host_copy(e->place, data, e->bytes, hly_step_streams(r, e->step));
    ctx->counters.received_messages++;
    ctx->counters.received_bytes += e->bytes;
    if (lent) {
        ctx->lender = transport;
        if (!hly_lent_release(ctx))
            return HLY_LANDED_NOTHING;
    }
    hly_saw_bytes(r, HLY_SAW_LANDED, e->step, hly_operand_extents(r, hly_step(r, e->step)->operand),
                  0, e->bytes, 0);
    return reduced ? HLY_LANDED_REDUCED : HLY_LANDED_ALL;
}

enum hly_landed hly_land(halay_request_t *r, uint32_t step, uint64_t offset, const void *data,
                         size_t bytes)
{
    struct hly_step_run *run = &r->run.step[step];
    const struct hly_extent *ext = hly_operand_extents(r, hly_step(r, step)->operand);
    const size_t total = ext[0].bytes + ext[1].bytes;
    if (offset > total || bytes > total - offset || bytes > total - run->arrived) {
        hly_peer_nonsense(r->context, r->plan->peers[step], "bytes beyond the end of a message");
        return HLY_LANDED_PART;
    }
    const uint32_t reduction = reader_of(r, step);
    const bool dropped = bytes && HLY_SEEDED(DROP_LANDED, r, step);
    uint32_t source;
    const bool reduced = bytes && bytes == total && !run->target && !dropped &&
                         reduction != HALAY_STEP_NONE &&
                         source_of(&r->layout.works[reduction], ext->address, &source) &&
                         reduce(r, other_of(r, step, reduction), reduction, source, data);
    if (bytes && !dropped && !reduced)
        scatter(ext, offset, data, bytes, hly_step_streams(r, step));
    if (!hly_lent_release(r->context))
        return HLY_LANDED_NOTHING;
    if (bytes && !dropped)
        hly_saw_bytes(r, HLY_SAW_LANDED, step, ext, offset, bytes, 0);
    run->arrived += bytes;
    if (run->arrived < total && !HLY_SEEDED(RECV_EARLY, r, step))
        return HLY_LANDED_PART;
    return reduced ? HLY_LANDED_REDUCED : HLY_LANDED_ALL;
}

/* What does not differ from call to call. false: this message cannot be the expected one. */
__attribute__((noinline)) static bool expect_anew(halay_request_t *r, uint32_t step)
{
    struct hly_expected *e = &r->expected;
    const halay_step_t *s = hly_step(r, step);
    const struct hly_extent *ext = hly_operand_extents(r, s->operand);
    e->kept = HALAY_STEP_NONE;
    if (ext[1].bytes)
        return false; /* it wraps: its message is matched as any other */
    e->header = r->header;
    e->header.from = s->peer;
    e->header.cookie = e->bytes = ext->bytes;
    e->header.offset = 0;
    e->from = r->plan->peers[step]->id;
    e->transport = r->plan->peers[step]->transport;
    e->place = ext->address;
    const uint32_t reduction = e->bytes ? reader_of(r, step) : HALAY_STEP_NONE;
    e->reduction = HALAY_STEP_NONE;
    if (reduction != HALAY_STEP_NONE &&
        source_of(&r->layout.works[reduction], e->place, &e->source)) {
        e->other = other_of(r, step, reduction);
        e->reduction = reduction;
    }
    e->kept = step;
    return true;
}

void hly_expect(halay_request_t *r, uint32_t step)
{
    struct hly_expected *e = &r->expected;
    /* Without a reduction: its work is laid out by its first launch. */
    if ((e->kept != step || e->reduction == HALAY_STEP_NONE) && !expect_anew(r, step))
        return;
    e->header.segment = (uint16_t)r->segments.number;
    hly_header_number(&e->header, r->sequence, hly_step(r, step)->edge);
    e->step = step;
}
