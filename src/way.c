/* SPDX-License-Identifier: Apache-2.0 */
/*
 * way.c - which transports a rank opens: one for the ranks of its node, one for all others, and
 * none that nobody needs. HALAY_TRANSPORT names both ("shm+ucx"), or one that serves for both; so
 * does the program.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core.h"
#include "straight.h"

/* What a rank says first on a way; its settings must be equal on both ends. */
static void hello_make(const halay_context_t *ctx, struct hly_way *way)
{
    const struct hly_settings *s = &ctx->settings;
    struct hly_hello *hello = &way->hello;
    size_t rows = strlen(s->rows), model = strlen(s->model);
    hello->version = HALAY_VERSION_MAJOR << 16 | HALAY_VERSION_MINOR << 8 | HALAY_VERSION_PATCH;
    hello->rank = (uint32_t)ctx->info.rank;
    snprintf(hello->settings, sizeof(hello->settings),
             "algorithm %.60s, selection %s, model %s, rules %08x, version %s, %s eager %zu",
             *s->algorithm ? s->algorithm : "(chosen)",
             rows ? s->rows + (rows > 40 ? rows - 40 : 0) : "(built in)",
             model ? s->model + (model > 40 ? model - 40 : 0) : "(built in)",
             (unsigned)(halay_selection_hash(s->selection) >> 32), halay_version(), way->ops->name,
             way->unannounced_bytes);
    uint64_t h =
        hly_hash(halay_selection_hash(s->selection), halay_version(), strlen(halay_version()));
    h = hly_hash(h, way->ops->name, strlen(way->ops->name));
    hello->settings_hash = hly_hash(h, &way->unannounced_bytes, sizeof(way->unannounced_bytes));
}

static int open_one(halay_context_t *ctx, const halay_config_t *config,
                    const halay_transport_ops_t *ops, char *why, size_t why_bytes)
{
    struct hly_way *way = &ctx->ways[ctx->nways];
    const bool whole = config->transport && ctx->info.nnodes > 1; /* it reaches all nodes' ranks */
    halay_transport_params_t p = {.size = sizeof(p),
                                  .self = hly_peer_id(ctx, ctx->info.rank),
                                  .deadline_ns = ctx->settings.deadline_ns,
                                  .options = config->transport_options,
                                  .log = hly_log_text,
                                  .log_arg = ctx,
                                  .arg = config->boot_arg,
                                  .listen_fd = ctx->info.listen_fd,
                                  .listen_address = ctx->info.address,
                                  .local_rank = ctx->info.local_rank,
                                  .local_nranks = whole ? 0 : ctx->info.local_nranks,
                                  .crowded = hly_crowded(ctx)};
    memcpy(p.job, ctx->info.job, sizeof(p.job));
    memcpy(p.secret, ctx->info.secret, sizeof(p.secret));
    assert(ctx->nways < HLY_WAYS);
    int rc = ops->open(&p, &way->transport);
    if (rc) {
        snprintf(why, why_bytes, "the transport %s could not be opened: %s", ops->name,
                 halay_strerror(rc));
        return rc;
    }
    way->ops = ops;
    way->attr.size = sizeof(way->attr);
    way->traffic.size = sizeof(way->traffic);
    snprintf(way->traffic.transport, sizeof(way->traffic.transport), "%s", ops->name);
    ctx->nways++;
    rc = ops->query(way->transport, &way->attr);
    assert(rc ||
           way->attr.message_bytes >= sizeof(struct hly_header) + sizeof(struct hly_verdict_wire));
    size_t most = way->attr.message_bytes - sizeof(struct hly_header);
    bool several = way->attr.eager_bytes > way->attr.message_bytes;
    way->unannounced_bytes = way->attr.eager_bytes;
    if (way->attr.eager_bytes > most)
        way->attr.eager_bytes = most;
    if (!several)
        way->unannounced_bytes = way->attr.eager_bytes;
    if (way->attr.piece_bytes > most)
        way->attr.piece_bytes = most;
    hello_make(ctx, way);
    return rc;
}

static int load_one(halay_context_t *ctx, const halay_config_t *config, const char *name, char *why,
                    size_t why_bytes)
{
    const void *table;
    int rc = hly_plugin_load(ctx, "transport", name, "halay_transport_v4_", &table, why, why_bytes);
    return rc ? rc : open_one(ctx, config, table, why, why_bytes);
}

int hly_ways_open(halay_context_t *ctx, const halay_config_t *config, char *why, size_t why_bytes)
{
    const halay_boot_info_t *i = &ctx->info;
    char near[sizeof(ctx->settings.transport)];
    int rc = HALAY_OK;
    if (i->nranks == 1)
        return HALAY_OK;
    if (config->transport)
        return open_one(ctx, config, config->transport, why, why_bytes);
    if (config->transport_options) {
        snprintf(why, why_bytes,
                 "transport_options are those of the transport in config->transport, "
                 "and there is none");
        return HALAY_EINVAL;
    }
    if (*ctx->settings.transport)
        snprintf(near, sizeof(near), "%s", ctx->settings.transport);
    else
        snprintf(near, sizeof(near), "shm+%s", i->nnodes > 1 ? hly_between(ctx) : "tcp");
    char *far = strchr(near, '+');
    if (!far && strcmp(near, "shm"))
        return load_one(ctx, config, near, why, why_bytes);
    if (!far && i->nnodes > 1) {
        snprintf(why, why_bytes,
                 "HALAY_TRANSPORT is shm, which reaches the ranks of one node, and there are %d: "
                 "take it away, or name one between nodes too, as in shm+tcp",
                 i->nnodes);
        return HALAY_EUNSUPPORTED;
    }
    if (far)
        *far++ = 0;
    if (i->local_nranks > 1)
        rc = load_one(ctx, config, near, why, why_bytes);
    if (!rc && i->nnodes > 1)
        rc = load_one(ctx, config, far, why, why_bytes);
    if (!rc && !*ctx->settings.transport)
        hly_between_warn(ctx);
    return rc;
}

void hly_ways_close(halay_context_t *ctx)
{
    while (ctx->nways) {
        struct hly_way *way = &ctx->ways[--ctx->nways];
        way->ops->close(way->transport);
    }
}

struct hly_way *hly_way_of(halay_context_t *ctx, int world_rank, halay_address_t *address)
{
    halay_place_t place = {.size = sizeof(place)};
    int rc = ctx->boot_ops->get(ctx->boot, world_rank, &place);
    assert(!rc && ctx->nways);
    (void)rc;
    if (address)
        *address = place.address;
    return &ctx->ways[place.node == ctx->info.node ? 0 : ctx->nways - 1];
}

void hly_ways_text(const halay_context_t *ctx, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s%s", ctx->nways ? ctx->ways[0].ops->name : "none",
             ctx->nways > 1 ? "+" : "", ctx->nways > 1 ? ctx->ways[1].ops->name : "");
}

int halay_context_traffic(halay_context_t *context, int transport, halay_traffic_t *traffic)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !traffic ||
        traffic->size < offsetof(halay_traffic_t, queues))
        return HALAY_EINVAL;
    if (hly_forked(context))
        return HALAY_EFORKED;
    hly_lock(context);
    int rc = transport >= 0 && transport < context->nways ? HALAY_OK : HALAY_EINVAL;
    if (!rc) {
        const struct hly_way *way = &context->ways[transport];
        halay_transport_attr_t now = {.size = sizeof(now)};
        halay_traffic_t all = way->traffic;
        rc = way->ops->query(way->transport, &now);
        all.queues = now.queues;
        all.size = traffic->size < sizeof(all) ? traffic->size : sizeof(all);
        memcpy(traffic, &all, all.size);
    }
    hly_unlock(context);
    return rc;
}
