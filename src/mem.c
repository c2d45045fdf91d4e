/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c - memory that stays registered with the transports that put: what the program names, what
 * it was given, and the scratch of requests; and what peers of the node map, which the transport
 * there makes. docs/decisions/0028-registered-memory.md, 0034 and 0040 say why.
 *
 * An entry lives until its owner takes it back. Its registration may be absent, where the transport
 * has refused it, or where its key had to die before that; then transfers register what they need,
 * as for all other memory. Places of the table never move, so that landings can point to them.
 */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core.h"
#include "lend.h"

#define PLACES     (HLY_RANGES_MAX + HLY_SCRATCHES_MAX)
#define HUGE_BYTES ((size_t)2 << 20)

/* ---------------------------------------------------------------- registering */

static bool registers(const struct hly_way *way)
{
    return way->attr.capabilities & HALAY_CAN_PUT;
}

static void key_die(halay_context_t *ctx, struct hly_range *range, int w)
{
    const struct hly_way *way = &ctx->ways[w];
    if (range->mem[w])
        way->ops->deregister_mem(way->transport, range->mem[w]);
    range->mem[w] = NULL;
}

static void place_free(halay_context_t *ctx, struct hly_range *range)
{
    for (int w = 0; w < ctx->nways; w++)
        key_die(ctx, range, w);
    *range = (struct hly_range){.generation = range->generation};
}

static bool lies_in(const struct hly_range *range, const void *address)
{
    return (uintptr_t)address - (uintptr_t)range->address < range->bytes;
}

static bool holds(const struct hly_range *range, const struct hly_segment *seg)
{
    return lies_in(range, seg->address) &&
           seg->bytes <= range->bytes - (size_t)(seg->address - range->address);
}

/* A call that is under way was given memory in it, or moves some. */
static bool in_use(const halay_context_t *ctx, const struct hly_range *range)
{
    if (range->landings)
        return true;
    for (const struct hly_link *l = ctx->posted.next; l != &ctx->posted; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, posted);
        if (r->state == HLY_IDLE || r->state == HLY_COMPLETE)
            continue;
        if (lies_in(range, r->call.in) || lies_in(range, r->call.out) ||
            (r->scratch && lies_in(range, r->scratch)))
            return true;
        for (const struct hly_link *f = r->flying.next; f != &r->flying; f = f->next)
            if (lies_in(range, HLY_OF(f, struct hly_out, link)->segment[0].address))
                return true;
    }
    return false;
}

/* Memory for registrations has run out: that of idle scratch is worth less than what asks now. */
static bool scratches_give_up(halay_context_t *ctx)
{
    bool any = false;
    ctx->scratch_refused = true;
    for (uint32_t i = 0; i < ctx->places; i++) {
        struct hly_range *range = &ctx->ranges[i];
        if (range->bytes && range->scratch && range != ctx->shared && !in_use(ctx, range)) {
            place_free(ctx, range);
            any = true;
        }
    }
    return any;
}

int hly_mem_register(halay_context_t *ctx, const struct hly_way *way, void *address, size_t bytes,
                     halay_mem_t **mem)
{
    int rc = way->ops->register_mem(way->transport, &address, bytes, mem);
    if (rc == HALAY_ENOMEM && scratches_give_up(ctx))
        rc = way->ops->register_mem(way->transport, &address, bytes, mem);
    return rc;
}

/* The transport says why not, once. */
static bool enlist(halay_context_t *ctx, struct hly_range *range, int w)
{
    if (!range->mem[w] && !range->refused[w])
        range->refused[w] =
            hly_mem_register(ctx, &ctx->ways[w], range->address, range->bytes, &range->mem[w]) != 0;
    return range->mem[w] != NULL;
}

/* ---------------------------------------------------------------- the table */

/* Of `most` places of that kind. NULL: all are taken, or there is no memory. */
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
        if (i >= ctx->places && found)
            break;
    }
    if (!found || !most)
        return NULL;
    uint32_t end = (uint32_t)(found - ctx->ranges) + 1;
    ctx->places = end > ctx->places ? end : ctx->places;
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

static struct hly_range *scratch_keep(const halay_request_t *r, const struct hly_segment *seg)
{
    halay_context_t *ctx = r->context;
    const struct hly_range whole = {.address = r->own_scratch, .bytes = r->scratch_bytes};
    if (ctx->scratch_refused || !r->own_scratch || !holds(&whole, seg))
        return NULL;
    return place_fill(ctx, r->own_scratch, r->scratch_bytes, true);
}

struct hly_range *hly_range_of(const halay_request_t *r, const struct hly_way *way,
                               const struct hly_segment *seg)
{
    halay_context_t *ctx = r->context;
    const int w = (int)(way - ctx->ways);
    if (!registers(way))
        return NULL;
    for (uint32_t i = 0; i < ctx->places; i++) {
        struct hly_range *range = &ctx->ranges[i];
        if (!holds(range, seg))
            continue;
        if (enlist(ctx, range, w))
            return range;
        if (range->scratch)
            return NULL;
    }
    struct hly_range *kept = scratch_keep(r, seg);
    return kept && enlist(ctx, kept, w) ? kept : NULL;
}

void hly_range_revoke(halay_context_t *ctx, struct hly_range *range, const struct hly_way *way)
{
    key_die(ctx, range, (int)(way - ctx->ways));
}

/* ---------------------------------------------------------------- scratch */

#define LENT_LEAST ((size_t)16 << 10) /* an eager message is a little less than twice that */

struct hly_lent {
    halay_mem_t *mem; /* NULL: it is not */
    int way;
};

/* Of a transport whose peers can map it; NULL: any other memory does. */
static void *pages_lent(halay_context_t *ctx, size_t bytes, struct hly_lent *lent)
{
    void *pages = NULL;
    *lent = (struct hly_lent){0};
    for (int w = 0; w < ctx->nways && !ctx->lost; w++) {
        const struct hly_way *way = &ctx->ways[w];
        if (way->attr.capabilities & HALAY_CAN_LEND &&
            !way->ops->register_mem(way->transport, &pages, bytes, &lent->mem)) {
            lent->way = w;
            return pages;
        }
    }
    return NULL;
}

/* What pages_lent gave, or any other pages. */
static void pages_drop(halay_context_t *ctx, void *pages, size_t bytes, struct hly_lent lent)
{
    if (lent.mem)
        ctx->ways[lent.way].ops->deregister_mem(ctx->ways[lent.way].transport, lent.mem);
    munmap(pages, bytes);
}

static void range_lend(struct hly_range *range, struct hly_lent lent)
{
    range->mem[lent.way] = lent.mem;
    range->lent[lent.way] = lent.mem != NULL;
}

/* Of this context's; 0: none of its transports lends. */
static size_t lend_bytes(const halay_context_t *ctx)
{
    for (int w = 0; w < ctx->nways; w++)
        if (ctx->ways[w].attr.capabilities & HALAY_CAN_LEND)
            return ctx->ways[w].attr.lend_bytes;
    return 0;
}

/* Is it what the plan sends from, to many? */
static bool is_told(const halay_request_t *r, size_t bytes)
{
    const halay_plan_t *p = r->plan->plan;
    return halay_planner_get(p->planner)->restrictions & HALAY_PLANNER_ROUNDS &&
           r->comm->nnodes < 2 && p->params.nranks > 2 && !r->call.aside && bytes >= LENT_LEAST &&
           bytes <= lend_bytes(r->context);
}

/* A call was given up: peers map it no more (hly_range_recall). */
static bool is_dead(const struct hly_range *range)
{
    for (int w = 0; w < HLY_WAYS; w++)
        if (range->lent[w] && range->mem[w])
            return false;
    return true;
}

static void shared_drop(halay_context_t *ctx)
{
    struct hly_range *range = ctx->shared;
    ctx->shared = NULL;
    if (!range)
        return;
    char *pages = range->address;
    const size_t bytes = range->bytes;
    place_free(ctx, range);
    munmap(pages, bytes);
}

/* All that the context may have, once: whoever runs has it, one after the other. */
static bool shared_make(halay_context_t *ctx)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = lend_bytes(ctx) / page * page;
    struct hly_lent lent;
    if (ctx->shared && !is_dead(ctx->shared))
        return true;
    shared_drop(ctx);
    char *pages = ctx->shared_refused ? NULL : pages_lent(ctx, bytes, &lent);
    ctx->shared = pages ? place_fill(ctx, pages, bytes, true) : NULL;
    if (ctx->shared)
        range_lend(ctx->shared, lent);
    else if (pages)
        pages_drop(ctx, pages, bytes, lent);
    ctx->shared_refused = !ctx->shared;
    return ctx->shared != NULL;
}

static bool is_idle(const halay_request_t *r)
{
    return r->state == HLY_IDLE || r->state == HLY_COMPLETE;
}

bool hly_scratch_take(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    const halay_request_t *user = ctx->shared_user;
    char *before = r->scratch;
    if (!r->told)
        return false;
    r->scratch = r->own_scratch;
    if ((!user || user == r || is_idle(user)) && shared_make(ctx)) {
        ctx->shared_user = r;
        r->scratch = ctx->shared->address;
    }
    return r->scratch != before;
}

/* Where it may be registered its pages are its own: on kernels before 5.12 a forked child lacks
 * what is registered. */
int hly_scratch_alloc(halay_request_t *r, size_t bytes, size_t alignment)
{
    const halay_context_t *ctx = r->context;
    r->told = is_told(r, bytes);
    if (bytes > r->scratch_bytes) {
        hly_scratch_free(r);
        for (int w = 0; w < ctx->nways; w++)
            if (registers(&ctx->ways[w]) && bytes > ctx->ways[w].unannounced_bytes)
                alignment = (size_t)sysconf(_SC_PAGESIZE);
        bytes = (bytes + alignment - 1) / alignment * alignment;
        r->own_scratch = aligned_alloc(alignment, bytes);
        r->scratch_bytes = r->own_scratch ? bytes : 0;
    }
    r->scratch = r->told && ctx->shared ? ctx->shared->address : r->own_scratch;
    return r->own_scratch || !bytes ? HALAY_OK : HALAY_ENOMEM;
}

void hly_scratch_free(halay_request_t *r)
{
    halay_context_t *ctx = r->context;
    for (uint32_t i = 0; r->own_scratch && i < ctx->places; i++)
        if (ctx->ranges[i].bytes && ctx->ranges[i].address == r->own_scratch)
            place_free(ctx, &ctx->ranges[i]);
    if (ctx->shared_user == r) {
        if (!is_idle(r)) /* peers may yet look at it */
            shared_drop(ctx);
        ctx->shared_user = NULL;
    }
    free(r->own_scratch);
    r->scratch = r->own_scratch = NULL;
    r->scratch_bytes = 0;
}

/* No message is under way any more. Memory of halay_mem_alloc stays, for the transports may read
 * some of it yet. */
void hly_ranges_withdraw(halay_context_t *ctx)
{
    for (uint32_t i = 0; i < ctx->places; i++)
        for (int w = 0; w < ctx->nways; w++)
            key_die(ctx, &ctx->ranges[i], w);
}

void hly_ranges_free(halay_context_t *ctx)
{
    shared_drop(ctx);
    for (uint32_t i = 0; i < ctx->places; i++)
        if (ctx->ranges[i].mapped)
            munmap(ctx->ranges[i].address, ctx->ranges[i].mapped);
    free(ctx->ranges);
}

bool hly_range_lends(const halay_context_t *ctx, const struct hly_way *way, const void *address)
{
    const int w = (int)(way - ctx->ways);
    for (uint32_t i = 0; i < ctx->places; i++)
        if (ctx->ranges[i].lent[w] && !ctx->ranges[i].scratch && lies_in(&ctx->ranges[i], address))
            return true;
    return false;
}

bool hly_range_recall(halay_context_t *ctx, const struct hly_way *way, const void *address)
{
    const int w = (int)(way - ctx->ways);
    for (uint32_t i = 0; i < ctx->places; i++) {
        struct hly_range *range = &ctx->ranges[i];
        if (range->lent[w] && lies_in(range, address)) {
            key_die(ctx, range, w);
            return true;
        }
    }
    return false;
}

bool hly_range_name(const halay_context_t *ctx, const struct hly_way *way, void *address,
                    struct hly_ready *ready)
{
    const int w = (int)(way - ctx->ways);
    const struct hly_segment seg = {address, ready->bytes};
    size_t bytes = sizeof(ready->key);
    for (uint32_t i = 0; i < ctx->places; i++) {
        const struct hly_range *range = &ctx->ranges[i];
        if (!range->lent[w] || !range->mem[w] || range->scratch || !holds(range, &seg) ||
            way->ops->key(way->transport, range->mem[w], ready->key, &bytes))
            continue;
        ready->key_bytes = (uint32_t)bytes;
        ready->offset = (uint64_t)((char *)address - range->address);
        return true;
    }
    return false;
}

void hly_range_part(halay_context_t *ctx, void *address, size_t bytes)
{
    for (uint32_t i = 0; i < ctx->places; i++)
        for (int w = 0; w < ctx->nways && lies_in(&ctx->ranges[i], address); w++)
            key_die(ctx, &ctx->ranges[i], w);
    if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED)
        hly_log(ctx, HLY_ERROR,
                "no new pages for the result of a call that has failed: a peer that hangs may yet "
                "change it (limits: vm.max_map_count, ulimit -v)");
    else
        madvise(address, bytes, MADV_DONTFORK);
}

/* ---------------------------------------------------------------- what the program says */

static uint64_t handle_of(const halay_context_t *ctx, const struct hly_range *range)
{
    return (uint64_t)range->generation << 32 | (uint64_t)(range - ctx->ranges + 1);
}

/* Makes an entry, and registers it wherever that is of use and not done. */
static int enter(halay_context_t *ctx, void *address, size_t bytes, size_t mapped,
                 struct hly_lent lent, halay_range_t *handle)
{
    struct hly_range *range = place_fill(ctx, address, bytes, false);
    if (range) {
        range->mapped = mapped;
        range_lend(range, lent);
        for (int w = 0; w < ctx->nways; w++)
            if (registers(&ctx->ways[w]))
                enlist(ctx, range, w);
        *handle = handle_of(ctx, range);
    } else {
        hly_log(ctx, HLY_ERROR,
                "no room for %zu more bytes of registered memory: a context has %d ranges at most; "
                "deregister some, or make them larger",
                bytes, HLY_RANGES_MAX);
    }
    return range ? HALAY_OK : HALAY_ENOMEM;
}

/* Its owner takes it back. */
static int leave(halay_context_t *ctx, struct hly_range *range, const char *what)
{
    if (in_use(ctx, range)) {
        hly_log(ctx, HLY_ERROR, "%s: a call that is under way uses the memory; wait for it first",
                what);
        return HALAY_ESTATE;
    }
    char *address = range->address;
    size_t mapped = range->mapped;
    place_free(ctx, range);
    if (mapped)
        munmap(address, mapped);
    return HALAY_OK;
}

int halay_mem_register(halay_context_t *context, void *address, size_t bytes, halay_range_t *range)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !address || !bytes || !range ||
        bytes > UINTPTR_MAX - (uintptr_t)address)
        return HALAY_EINVAL;
    if (hly_forked(context))
        return HALAY_EFORKED;
    hly_lock(context);
    int rc = enter(context, address, bytes, 0, (struct hly_lent){0}, range);
    hly_unlock(context);
    return rc;
}

int halay_mem_deregister(halay_context_t *context, halay_range_t handle)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC)
        return HALAY_EINVAL;
    if (hly_forked(context))
        return HALAY_EFORKED;
    const uint32_t index = (uint32_t)handle - 1, generation = (uint32_t)(handle >> 32);
    int rc = HALAY_EINVAL;
    hly_lock(context);
    if (index < context->places && generation && generation <= context->ranges[index].generation) {
        struct hly_range *range = &context->ranges[index];
        rc = HALAY_ESTATE;
        if (range->bytes && range->generation == generation && !range->mapped && !range->scratch)
            rc = leave(context, range, "halay_mem_deregister");
    }
    hly_unlock(context);
    return rc;
}

/* Pages that a forked child does not have; large ones where the kernel gives them unasked for. */
static char *pages_map(size_t bytes)
{
    const size_t spare = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    if (spare > SIZE_MAX - bytes)
        return NULL;
    char *all =
        mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    const size_t before = spare ? -(uintptr_t)all % HUGE_BYTES : 0;
    if (before)
        munmap(all, before);
    if (spare - before)
        munmap(all + before + bytes, spare - before);
    char *pages = all + before;
    if (spare)
        madvise(pages, bytes, MADV_HUGEPAGE); /* a kernel without them says no: no harm */
    if (madvise(pages, bytes, MADV_DONTFORK) == 0)
        return pages;
    munmap(pages, bytes);
    return NULL;
}

static int take_pages(halay_context_t *ctx, size_t bytes, void **address)
{
    struct hly_lent lent;
    halay_range_t handle;
    void *pages = pages_lent(ctx, bytes, &lent);
    if (!pages)
        pages = pages_map(bytes);
    if (!pages)
        return HALAY_ENOMEM;
    int rc = enter(ctx, pages, bytes, bytes, lent, &handle);
    if (!rc) {
        *address = pages;
        return HALAY_OK;
    }
    pages_drop(ctx, pages, bytes, lent);
    return rc;
}

int halay_mem_alloc(halay_context_t *context, size_t bytes, void **address)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !bytes || !address)
        return HALAY_EINVAL;
    if (hly_forked(context))
        return HALAY_EFORKED;
    if (bytes > SIZE_MAX / 2)
        return HALAY_ENOMEM;
    const size_t whole = (bytes + page - 1) / page * page;
    hly_lock(context);
    int rc = take_pages(context, whole, address);
    hly_unlock(context);
    return rc;
}

int halay_mem_free(halay_context_t *context, void *address)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC)
        return HALAY_EINVAL;
    if (hly_forked(context))
        return HALAY_EFORKED;
    int rc = address ? HALAY_EINVAL : HALAY_OK;
    hly_lock(context);
    for (uint32_t i = 0; address && rc && i < context->places; i++) {
        struct hly_range *range = &context->ranges[i];
        if (range->mapped && range->address == address) {
            rc = leave(context, range, "halay_mem_free");
            break;
        }
    }
    hly_unlock(context);
    return rc;
}
