/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.c - copies of staged buffers, to the host and back.
 *
 * Down is from the device to the host, up is back. Invariants: a slice is copied down into a slot
 * once the slot's earlier slice has been copied up, and no message is sent from there any more. The
 * plan runs on a slice that is down whole. The slice is copied up once plan, division and scaling
 * are done with it. So while the plan runs on one slice, the next one comes down and the last one
 * goes up. Copies are launched in order of slices, and may end in any order. Only input that the
 * call reads comes down, and only output that it writes goes up.
 */
#include "exec/staging.h"

#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/work.h"
#include "plan/collective.h"
#include "wire/news.h"

#define SLICE_BYTES ((size_t)1 << 20) /* of a vector, or of the blocks of all ranks */
#define BLOCK_LEAST ((size_t)64 << 10)
#define SLOT_ALIGN  64

/* ---------------------------------------------------------------- what is read and written */

/* The part of IN that this rank reads: nothing of the root's own block in a gather in place, nor in
 * a scatter in place. */
static enum hly_part read_part(const halay_request_t *r)
{
    const struct hly_access *in = &hly_collectives[r->call.desc.collective].in;
    if (in->part == HLY_OWN && r->call.local_in_place)
        return HLY_NOTHING;
    return hly_access_at(in, (uint32_t)r->comm->rank, r->call.desc.root);
}

static enum hly_part written_part(const halay_request_t *r)
{
    const struct hly_access *out = &hly_collectives[r->call.desc.collective].out;
    if (out->part == HLY_OWN && r->call.local_in_place)
        return HLY_NOTHING;
    return hly_access_at(out, (uint32_t)r->comm->rank, r->call.desc.root);
}

/* Does the plan read its input from OUT? */
static bool reads_out(const halay_request_t *r)
{
    return hly_call_in_place(&r->call) || r->call.staged ||
           hly_collective_is_from_root(r->call.desc.collective);
}

/* The block of this rank stays where it is. */
static bool keeps_own(const halay_request_t *r)
{
    return hly_call_in_place(&r->call) && r->call.desc.collective != HALAY_REDUCE_SCATTER;
}

static size_t element_of(const halay_request_t *r)
{
    return halay_type_bytes((halay_type_t)r->call.desc.type);
}

/* Where a block begins: in a slot (host_offset), and in the program's buffer (program_offset). */
static size_t host_offset(const halay_request_t *r, bool out, uint32_t block)
{
    return r->layout.tables ? r->layout.block[out].offset[block]
                            : block * r->staging->count * element_of(r);
}

static size_t program_offset(const halay_request_t *r, bool out, uint32_t block)
{
    return r->layout.tables ? r->staging->places[out][block]
                            : block * r->call.desc.count * element_of(r);
}

/* Bytes of a block, or of the vector, in a slice. */
static size_t bytes_of(const halay_request_t *r, bool out, enum hly_part part, uint32_t slice,
                       uint32_t block)
{
    const struct hly_staging *s = r->staging;
    const uint64_t left = r->call.desc.count - slice * s->count;
    if (part != HLY_VECTOR && r->layout.tables)
        return r->layout.block[out].bytes[block];
    return (left < s->count ? left : s->count) * element_of(r);
}

/* ---------------------------------------------------------------- one copy */

struct copy {
    char *host, *program;
    size_t bytes;
};

/* Describes the copy of one block. 0 bytes: the block is not copied. */
static struct copy copy_of(const halay_request_t *r, bool up, enum hly_part part, uint32_t slice,
                           uint32_t block)
{
    const struct hly_staging *s = r->staging;
    const struct hly_call *c = &r->call;
    const bool own = block == (uint32_t)r->comm->rank;
    const bool out = up || reads_out(r);
    const bool given = c->in && c->in != HALAY_IN_PLACE;
    const bool among =
        part == HLY_EACH || (part == HLY_OWN && !up && out); /* other blocks lie there, too */
    const bool table = part == HLY_EACH ? up : out;
    if ((part == HLY_OWN && !own) || (part == HLY_EACH && own && keeps_own(r)))
        return (struct copy){0};
    char *host = r->layout.scratch + s->slots_at + slice % s->nslots * s->slot_bytes;
    char *program = up || !given ? c->out : (char *)(uintptr_t)c->in;
    return (struct copy){host + (out ? s->out_at : 0) + (among ? host_offset(r, table, block) : 0),
                         program + slice * s->count * element_of(r) +
                             (among ? program_offset(r, table, block) : 0),
                         bytes_of(r, up, part, slice, block)};
}

/* Gives the next copy of a slice, from *block on: all blocks that are contiguous on both sides. */
static bool next_copy(const halay_request_t *r, bool up, uint32_t slice, uint32_t *block,
                      struct copy *copy)
{
    const enum hly_part part = up ? written_part(r) : read_part(r);
    const uint32_t n = part == HLY_NOTHING ? 0 : part == HLY_VECTOR ? 1 : (uint32_t)r->comm->nranks;
    *copy = (struct copy){0};
    if (part == HLY_OWN && *block < (uint32_t)r->comm->rank)
        *block = (uint32_t)r->comm->rank;
    for (; *block < n; ++*block) {
        const struct copy c = copy_of(r, up, part, slice, *block);
        if (!copy->bytes)
            *copy = c;
        else if (c.bytes && c.host == copy->host + copy->bytes &&
                 c.program == copy->program + copy->bytes)
            copy->bytes += c.bytes;
        else if (c.bytes)
            return true;
    }
    return copy->bytes > 0;
}

/* ---------------------------------------------------------------- launching */

/* Launches the copies of the next slice. HALAY_EAGAIN: not all of them. */
static int copy_slice(halay_request_t *r, bool up)
{
    struct hly_staging *s = r->staging;
    struct hly_staging_way *way = &s->way[up];
    const uint32_t slot = way->slice % s->nslots;
    uint32_t block = way->block;
    struct copy c;
    while (next_copy(r, up, way->slice, &block, &c)) {
        halay_work_t work = {.size = sizeof(work),
                             .dst = up ? c.program : c.host,
                             .src = {up ? c.host : c.program},
                             .count = c.bytes,
                             .type = HALAY_UINT8,
                             .nsrc = 1,
                             .direction = up ? HALAY_FROM_HOST : HALAY_TO_HOST};
        const int rc =
            hly_work_launch(r, s->device, HALAY_STEP_NONE, (uint8_t)(1 + 2 * slot + up), &work);
        if (rc < 0 && rc != HALAY_EAGAIN)
            hly_news_fail(r, rc, "the device %.32s could not copy its memory %s the host's: %.160s",
                          s->device->ops->name, up ? "from" : "to",
                          s->device->ops->why(s->device->handle));
        if (rc < 0)
            return rc;
        way->left[slot] += rc == HALAY_INPROGRESS;
        way->block = block;
    }
    way->slice++;
    way->block = 0;
    return HALAY_OK;
}

/* Does a message still leave from this slot? */
static bool is_sent_from(const halay_request_t *r, uint32_t slot)
{
    const struct hly_staging *s = r->staging;
    const char *at = r->layout.scratch + s->slots_at + slot * s->slot_bytes;
    for (const struct hly_link *l = r->flying.next; l != &r->flying; l = l->next) {
        const struct hly_send *send = HLY_OF(l, struct hly_send, link);
        if (send->kind != HLY_SEND_DEVICE &&
            (uintptr_t)send->extent[0].address - (uintptr_t)at < s->slot_bytes)
            return true;
    }
    return false;
}

/* May the next slice come down into its slot? */
static bool has_room(const halay_request_t *r)
{
    const struct hly_staging *s = r->staging;
    const uint32_t slice = s->way[0].slice, slot = slice % s->nslots;
    return slice < s->nslots ||
           (s->way[1].slice + s->nslots > slice && !s->way[1].left[slot] && !is_sent_from(r, slot));
}

/* Launches what can come down now. */
static int descend(halay_request_t *r)
{
    struct hly_staging *s = r->staging;
    int rc = HALAY_OK;
    while (!rc && s->way[0].slice < s->nslices && has_room(r))
        rc = copy_slice(r, false);
    return rc;
}

int hly_staging_down(halay_request_t *r)
{
    struct hly_staging *s = r->staging;
    const uint32_t slice = hly_staging_slice(r);
    if (r->run.before & HLY_BEFORE_FIRST)
        memset(s->way, 0, sizeof(s->way));
    r->run.before &= (uint8_t)~HLY_BEFORE_FIRST;
    const int rc = descend(r);
    if (rc < 0 && rc != HALAY_EAGAIN)
        return rc;
    if (s->way[0].slice <= slice || s->way[0].left[slice % s->nslots])
        return HALAY_INPROGRESS;
    r->run.before &= (uint8_t)~HLY_BEFORE_DOWN;
    return HALAY_OK;
}

int hly_staging_up(halay_request_t *r)
{
    const struct hly_staging *s = r->staging;
    const uint32_t slice = hly_staging_slice(r);
    const int rc = s->way[1].slice == slice ? copy_slice(r, true) : HALAY_OK;
    if (rc)
        return rc;
    if (slice + 1 < s->nslices)
        return HALAY_INPROGRESS;
    for (uint32_t slot = 0; slot < s->nslots; slot++)
        if (s->way[1].left[slot])
            return HALAY_INPROGRESS;
    return HALAY_OK;
}

bool hly_staging_leave(halay_request_t *r)
{
    const struct hly_staging *s = r->staging;
    const uint32_t slice = hly_staging_slice(r);
    if ((r->segments.number + 1) % s->nsegments)
        return true;
    hly_work_result(r);
    if (s->way[1].slice <= slice)
        return false;
    r->run.before = r->layout.before & (uint8_t) ~(HLY_BEFORE_FIRST | HLY_BEFORE_MARK);
    r->run.after = r->layout.after;
    return true;
}

void hly_staging_landed(halay_request_t *r, uint8_t lane)
{
    struct hly_staging_way *way = &r->staging->way[(lane - 1) & 1];
    way->left[(lane - 1) >> 1]--;
    descend(r);
}

/* ---------------------------------------------------------------- which calls */

bool hly_is_direct(const halay_comm_t *comm, const halay_plan_t *plan, const struct hly_call *call,
                   const struct hly_device *device)
{
    return comm->context->settings.gpudirect && !device->touchable && !call->user &&
           !(call->desc.flags & HLY_CALL_SCALED) &&
           !halay_planner_indirect(plan->planner, (uint32_t)comm->nranks, comm->nnodes,
                                   comm->uneven);
}

/* ---------------------------------------------------------------- laying out */

int hly_staging_set(halay_request_t *r, struct hly_device *device)
{
    free(r->staging);
    r->staging = device ? calloc(1, sizeof(*r->staging)) : NULL;
    if (!device)
        return HALAY_OK;
    if (!r->staging)
        return HALAY_ENOMEM;
    r->staging->device = device;
    return HALAY_OK;
}

/* All ranks cut alike: the counts, the plan's blocks and the number of ranks are the same. */
void hly_staging_cut(halay_request_t *r, bool can)
{
    struct hly_segments *t = &r->segments;
    struct hly_staging *s = r->staging;
    const bool vector = hly_collective_is_vector(r->call.desc.collective);
    const size_t block = SLICE_BYTES / (vector ? 1 : (size_t)r->comm->nranks);
    const uint64_t count = r->call.desc.count;
    uint64_t most = (block > BLOCK_LEAST ? block : BLOCK_LEAST) / element_of(r);
    if (can && t->n == 1 && count > most && count / most < UINT32_MAX) {
        t->count = most;
        t->n = (uint32_t)((count - 1) / most) + 1;
    }
    s->nsegments = t->n == 1 || most < t->count ? 1 : (uint32_t)(most / t->count);
    s->nslices = (t->n - 1) / s->nsegments + 1;
    s->count = s->nslices == 1 ? count : s->nsegments * t->count;
    s->nslots = s->nslices < HLY_STAGING_SLOTS ? s->nslices : HLY_STAGING_SLOTS;
}

void hly_staging_pack(halay_request_t *r, size_t *places)
{
    const size_t n = (size_t)r->comm->nranks;
    for (int i = 0; i < 2; i++) {
        size_t next = 0;
        struct hly_blocks *b = &r->layout.block[i];
        memcpy(places + (size_t)i * n, b->offset, n * sizeof(*places));
        r->staging->places[i] = places + (size_t)i * n;
        for (size_t k = 0; k < n; k++) {
            b->offset[k] = next;
            next += b->bytes[k];
        }
    }
}

/* Bytes from the start of the buffer to the end of what is copied. */
static size_t extent_of(const halay_request_t *r, bool up)
{
    const enum hly_part part = up ? written_part(r) : read_part(r);
    const bool out = up || reads_out(r);
    const uint32_t me = (uint32_t)r->comm->rank, last = (uint32_t)r->comm->nranks - 1;
    if (part == HLY_NOTHING)
        return 0;
    if (part == HLY_EACH)
        return host_offset(r, up, last) + bytes_of(r, up, part, 0, last);
    return (part == HLY_OWN && !up && out ? host_offset(r, true, me) : 0) +
           bytes_of(r, up, part, 0, me);
}

static size_t round_up(size_t bytes)
{
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

size_t hly_staging_lay(halay_request_t *r, size_t at)
{
    struct hly_staging *s = r->staging;
    const size_t in = extent_of(r, false), out = extent_of(r, true);
    s->slots_at = at;
    s->out_at = reads_out(r) ? 0 : round_up(in);
    s->slot_bytes = s->out_at + round_up(s->out_at || out > in ? out : in);
    return s->nslots * s->slot_bytes;
}
