/* SPDX-License-Identifier: Apache-2.0 */
/*
 * register.c - the registration cache: memory that stays registered with the transports that put.
 * It is named by the program, or was made for it, or is scratch of requests. Some of it was made by
 * a transport, so that peers of the node can read it. Why:
 * docs/decisions/transports.md#0028, docs/decisions/shared-memory.md#0032.
 *
 * An entry lives until its owner takes it back. It may lack a registration: the transport has
 * refused it, or its key was revoked. Transfers then register what they need, as for all other
 * memory. Entries of the table never move, so that targets can point to them.
 */
#include "wire/register.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACES (HLY_RANGES_MAX + HLY_SCRATCHES_MAX)

/* ---------------------------------------------------------------- registering */

static bool registers(const struct hly_transport *transport)
{
    return transport->attr.capabilities & HALAY_CAN_PUT;
}

static void key_die(halay_context_t *ctx, struct hly_range *range, int w)
{
    const struct hly_transport *transport = &ctx->transports[w];
    if (range->mem[w])
        transport->ops->deregister_mem(transport->handle, range->mem[w]);
    range->mem[w] = NULL;
}

static void place_free(halay_context_t *ctx, struct hly_range *range)
{
    for (int w = 0; w < ctx->ntransports; w++)
        key_die(ctx, range, w);
    *range = (struct hly_range){.generation = range->generation};
}

static bool lies_in(const struct hly_range *range, const void *address)
{
    return (uintptr_t)address - (uintptr_t)range->address < range->bytes;
}

static bool holds(const struct hly_range *range, const struct hly_extent *ext)
{
    return lies_in(range, ext->address) &&
           ext->bytes <= range->bytes - (size_t)(ext->address - range->address);
}

/* Work of devices and group steps have the call's memory alone. */
static bool reads(const struct hly_send *send, const struct hly_range *range)
{
    return send->kind != HLY_SEND_DEVICE && send->kind != HLY_SEND_GROUP &&
           lies_in(range, send->extent[0].address);
}

/* Has a call that is under way memory in it? */
static bool in_use(const halay_context_t *ctx, const struct hly_range *range)
{
    if (range->targets)
        return true;
    for (const struct hly_link *l = ctx->posted.next; l != &ctx->posted; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, posted);
        if (r->state == HLY_IDLE || r->state == HLY_COMPLETE)
            continue;
        if (lies_in(range, r->call.in) || lies_in(range, r->call.out) ||
            (r->layout.scratch && lies_in(range, r->layout.scratch)))
            return true;
        for (const struct hly_link *f = r->flying.next; f != &r->flying; f = f->next)
            if (reads(HLY_OF(f, struct hly_send, link), range))
                return true;
    }
    return false;
}

/* Memory for registrations has run out: takes back those of idle scratch. Did that free any? */
static bool scratches_give_up(halay_context_t *ctx)
{
    bool any = false;
    ctx->scratch_refused = true;
    for (uint32_t i = 0; i < ctx->nranges; i++) {
        struct hly_range *range = &ctx->ranges[i];
        if (range->bytes && range->scratch && !in_use(ctx, range)) {
            place_free(ctx, range);
            any = true;
        }
    }
    return any;
}

int hly_mem_register(halay_context_t *ctx, const struct hly_transport *transport, void *address,
                     size_t bytes, halay_mem_t **mem)
{
    const halay_mem_params_t params = {
        .size = sizeof(params), .address = address, .bytes = bytes, .dmabuf = -1};
    int rc = transport->ops->register_mem(transport->handle, &params, mem);
    if (rc == HALAY_ENOMEM && scratches_give_up(ctx))
        rc = transport->ops->register_mem(transport->handle, &params, mem);
    return rc;
}

/* Registers it, if it is not yet. What was refused once is not tried again: the transport has said
 * why. */
static bool enlist(halay_context_t *ctx, struct hly_range *range, int w)
{
    if (!range->mem[w] && !range->refused[w])
        range->refused[w] = hly_mem_register(ctx, &ctx->transports[w], range->address, range->bytes,
                                             &range->mem[w]) != 0;
    return range->mem[w] != NULL;
}

/* ---------------------------------------------------------------- the table */

/* A free entry, of `most` of that kind. NULL: all are taken, or there is no memory. */
static struct hly_range *place_take(halay_context_t *ctx, bool scratch, uint32_t most)
{
    struct hly_range *found = NULL;
    if (!ctx->ranges)
        ctx->ranges = calloc(PLACES, sizeof(*ctx->ranges));
    for (uint32_t i = 0; ctx->ranges && i < PLACES; i++) {
        struct hly_range *range = &ctx->ranges[i];
        if (!range->bytes && !found)
            found = range;
        most -= range->bytes && range->scratch == scratch;
        if (i >= ctx->nranges && found)
            break;
    }
    if (!found || !most)
        return NULL;
    uint32_t end = (uint32_t)(found - ctx->ranges) + 1;
    ctx->nranges = end > ctx->nranges ? end : ctx->nranges;
    found->generation++;
    found->scratch = scratch;
    return found;
}

static struct hly_range *place_fill(halay_context_t *ctx, void *address, size_t bytes, bool scratch)
{
    struct hly_range *range =
        place_take(ctx, scratch, scratch ? HLY_SCRATCHES_MAX : HLY_RANGES_MAX);
    if (!range)
        return NULL;
    range->address = address;
    range->bytes = bytes;
    return range;
}

static struct hly_range *scratch_keep(const halay_request_t *r, const struct hly_extent *ext)
{
    halay_context_t *ctx = r->context;
    const struct hly_range whole = {.address = r->layout.scratch, .bytes = r->layout.scratch_bytes};
    if (ctx->scratch_refused || !r->layout.scratch || !holds(&whole, ext))
        return NULL;
    return place_fill(ctx, r->layout.scratch, r->layout.scratch_bytes, true);
}

struct hly_range *hly_range_of(const halay_request_t *r, const struct hly_transport *transport,
                               const struct hly_extent *ext)
{
    halay_context_t *ctx = r->context;
    const int w = (int)(transport - ctx->transports);
    if (!registers(transport))
        return NULL;
    for (uint32_t i = 0; i < ctx->nranges; i++) {
        struct hly_range *range = &ctx->ranges[i];
        if (range->direct || !holds(range, ext))
            continue;
        if (enlist(ctx, range, w))
            return range;
        if (range->scratch)
            return NULL;
    }
    struct hly_range *kept = scratch_keep(r, ext);
    return kept && enlist(ctx, kept, w) ? kept : NULL;
}

void hly_range_revoke(halay_context_t *ctx, struct hly_range *range,
                      const struct hly_transport *transport)
{
    key_die(ctx, range, (int)(transport - ctx->transports));
}

/* ---------------------------------------------------------------- memory of devices */

/* Does a transport read it, or a peer write there? */
static bool is_read_or_written(const halay_context_t *ctx, const struct hly_range *range)
{
    if (range->targets)
        return true;
    for (const struct hly_link *l = ctx->posted.next; l != &ctx->posted; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, posted);
        for (const struct hly_link *f = r->flying.next; f != &r->flying; f = f->next)
            if (HLY_OF(f, struct hly_send, link)->kind == HLY_SEND_PUT &&
                lies_in(range, HLY_OF(f, struct hly_send, link)->extent[0].address))
                return true;
    }
    return false;
}

/* The entry of this allocation. One of another that was at its address goes. */
static struct hly_range *direct_find(halay_context_t *ctx, const halay_export_t *e)
{
    struct hly_range *found = NULL;
    for (uint32_t i = 0; i < ctx->nranges; i++) {
        struct hly_range *range = &ctx->ranges[i];
        if (!range->direct || (!lies_in(range, e->address) &&
                               (uintptr_t)range->address - (uintptr_t)e->address >= e->bytes))
            continue;
        if (range->id == e->id && range->address == e->address && range->bytes == e->bytes)
            found = range;
        else if (!is_read_or_written(ctx, range))
            place_free(ctx, range);
    }
    return found;
}

/* A new entry; if there are many, in the place of the one that was used the longest ago. */
static struct hly_range *direct_make(halay_context_t *ctx, const halay_export_t *e)
{
    struct hly_range *oldest = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < ctx->nranges; i++) {
        struct hly_range *range = &ctx->ranges[i];
        n += range->direct;
        if (range->direct && !in_use(ctx, range) && (!oldest || range->used < oldest->used))
            oldest = range;
    }
    if (n >= HLY_DIRECTS_MAX && oldest)
        place_free(ctx, oldest);
    struct hly_range *range = place_fill(ctx, e->address, e->bytes, false);
    if (range) {
        range->direct = true;
        range->flushes = e->flushes;
        range->id = e->id;
    }
    return range;
}

/* With the dma-buf of the allocation, if there is one. */
static int direct_register(const struct hly_device *device, const struct hly_transport *transport,
                           const struct hly_extent *ext, halay_mem_t **mem)
{
    halay_export_t e = {.size = sizeof(e), .dmabuf = -1};
    int rc = device->ops->export_mem(device->handle, ext->address, ext->bytes, 1, &e);
    if (rc)
        return rc;
    const halay_mem_params_t params = {.size = sizeof(params),
                                       .address = e.address,
                                       .bytes = e.bytes,
                                       .kind = device->memory,
                                       .dmabuf = e.dmabuf,
                                       .offset = e.offset};
    rc = transport->ops->register_mem(transport->handle, &params, mem);
    if (e.dmabuf >= 0)
        close(e.dmabuf);
    return rc;
}

struct hly_range *hly_range_direct(const halay_request_t *r, const struct hly_transport *transport,
                                   const struct hly_extent *ext, char *why, size_t why_bytes)
{
    halay_context_t *ctx = r->context;
    const int w = (int)(transport - ctx->transports);
    const struct hly_device *device = r->device;
    halay_export_t e = {.size = sizeof(e), .dmabuf = -1};
    if (!(transport->attr.capabilities & HALAY_CAN_DEVICE)) {
        snprintf(why, why_bytes, "it has neither dma-bufs nor nvidia_peermem here");
        return NULL;
    }
    if (device->ops->export_mem(device->handle, ext->address, ext->bytes, 0, &e)) {
        snprintf(why, why_bytes, "%s", device->ops->why(device->handle));
        return NULL;
    }
    struct hly_range *range = direct_find(ctx, &e);
    if (!range)
        range = direct_make(ctx, &e);
    if (range && !range->mem[w] && direct_register(device, transport, ext, &range->mem[w])) {
        range->mem[w] = NULL;
        snprintf(why, why_bytes, "its registration was refused; see the log above");
        return NULL;
    }
    if (range)
        range->used = ++ctx->ranges_used;
    else
        snprintf(why, why_bytes, "a context has %d ranges at most", HLY_RANGES_MAX);
    return range;
}

/* ---------------------------------------------------------------- memory that peers read */

void *hly_lent_make(halay_context_t *ctx, size_t bytes, struct hly_lent *lent)
{
    void *pages = NULL;
    *lent = (struct hly_lent){0};
    for (int w = 0; w < ctx->ntransports && !ctx->lost; w++) {
        const struct hly_transport *transport = &ctx->transports[w];
        if (transport->attr.capabilities & HALAY_CAN_LEND &&
            !transport->ops->alloc_mem(transport->handle, bytes, &pages, &lent->mem)) {
            lent->transport = w;
            return pages;
        }
    }
    return NULL;
}

void hly_lent_drop(halay_context_t *ctx, void *pages, size_t bytes, struct hly_lent lent)
{
    if (lent.mem) {
        const struct hly_transport *transport = &ctx->transports[lent.transport];
        transport->ops->deregister_mem(transport->handle, lent.mem);
    }
    munmap(pages, bytes);
}

bool hly_range_recall(halay_context_t *ctx, const struct hly_transport *transport,
                      const void *address)
{
    const int w = (int)(transport - ctx->transports);
    for (uint32_t i = 0; i < ctx->nranges; i++) {
        struct hly_range *range = &ctx->ranges[i];
        if (range->lent[w] && lies_in(range, address)) {
            key_die(ctx, range, w);
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------- scratch */

static uint32_t place_of_scratch(const halay_request_t *r)
{
    return r->layout.scratch_from == r->device && !r->layout.stages ? HALAY_PLACE_OWN
                                                                    : HALAY_PLACE_HOST;
}

/* What may be registered has pages of its own: on kernels before 5.12 a forked child lacks
 * registered pages. */
int hly_scratch_alloc(halay_request_t *r, size_t bytes, size_t alignment)
{
    const halay_context_t *ctx = r->context;
    if (bytes <= r->layout.scratch_bytes)
        return HALAY_OK;
    hly_scratch_free(r);
    for (int w = 0; w < ctx->ntransports; w++)
        if (registers(&ctx->transports[w]) && bytes > ctx->transports[w].unannounced_bytes)
            alignment = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + alignment - 1) / alignment * alignment;
    void *scratch;
    const struct hly_device *from = r->layout.scratch_from;
    int rc = from->ops->alloc(from->handle, place_of_scratch(r), bytes, alignment, &scratch);
    if (rc)
        return rc;
    r->layout.scratch = scratch;
    r->layout.scratch_bytes = bytes;
    return HALAY_OK;
}

static void own_free(halay_request_t *r)
{
    const struct hly_device *from = r->layout.scratch_from;
    if (r->layout.own && !from->runs_on)
        from->ops->free(from->handle, HALAY_PLACE_OWN, r->layout.own);
    r->layout.own = NULL;
    r->layout.own_bytes = 0;
}

void hly_scratch_free(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    own_free(r);
    for (uint32_t i = 0; r->layout.scratch && i < ctx->nranges; i++)
        if (ctx->ranges[i].bytes && ctx->ranges[i].address == r->layout.scratch)
            place_free(ctx, &ctx->ranges[i]);
    const struct hly_device *from = r->layout.scratch_from;
    if (r->layout.scratch && !from->runs_on && !r->device->runs_on) /* else it may be written yet */
        from->ops->free(from->handle, place_of_scratch(r), r->layout.scratch);
    r->layout.scratch = NULL;
    r->layout.scratch_bytes = 0;
}

int hly_scratch_own(halay_request_t *r, size_t bytes, size_t alignment)
{
    void *own;
    const struct hly_device *from = r->layout.scratch_from;
    if (bytes <= r->layout.own_bytes)
        return HALAY_OK;
    own_free(r);
    int rc = from->ops->alloc(from->handle, HALAY_PLACE_OWN, bytes, alignment, &own);
    if (rc)
        return rc;
    r->layout.own = own;
    r->layout.own_bytes = bytes;
    return HALAY_OK;
}

/* ---------------------------------------------------------------- the context goes */

/* No message is under way any more. Memory of halay_mem_alloc stays mapped, for transports may
 * still read some of it. */
void hly_ranges_withdraw(halay_context_t *ctx)
{
    for (uint32_t i = 0; i < ctx->nranges; i++)
        for (int w = 0; w < ctx->ntransports; w++)
            key_die(ctx, &ctx->ranges[i], w);
}

void hly_ranges_free(halay_context_t *ctx)
{
    for (uint32_t i = 0; i < ctx->nranges; i++)
        if (ctx->ranges[i].mapped)
            munmap(ctx->ranges[i].address, ctx->ranges[i].mapped);
    free(ctx->ranges);
}

/* ---------------------------------------------------------------- what the program says */

int hly_range_enter(halay_context_t *ctx, void *address, size_t bytes, size_t mapped,
                    struct hly_lent lent, struct hly_range **out)
{
    struct hly_range *range = place_fill(ctx, address, bytes, false);
    if (!range)
        return HALAY_ENOMEM;
    range->mapped = mapped;
    range->mem[lent.transport] = lent.mem;
    range->lent[lent.transport] = lent.mem != NULL;
    for (int w = 0; w < ctx->ntransports; w++)
        if (registers(&ctx->transports[w]))
            enlist(ctx, range, w);
    *out = range;
    return HALAY_OK;
}

int hly_range_leave(halay_context_t *ctx, struct hly_range *range)
{
    if (in_use(ctx, range))
        return HALAY_ESTATE;
    char *address = range->address;
    size_t mapped = range->mapped;
    place_free(ctx, range);
    if (mapped)
        munmap(address, mapped);
    return HALAY_OK;
}
