/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transports.c - which transports a rank opens: one for the ranks of its node, one for all others,
 * and none that nobody needs. HALAY_TRANSPORT names both ("shm+ucx"), or one that serves for both;
 * so does the program.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/proc.h"
#include "select/between.h"
#include "start/start.h"
#include <hly_build.h>

/* Fills the first message to each peer. Its settings must be equal on both ends. */
static void hello_make(const halay_context_t *ctx, struct hly_transport *transport)
{
    const struct hly_settings *s = &ctx->settings;
    struct hly_hello *hello = &transport->hello;
    const size_t rows = strlen(s->rows);
    const char *group = ""; /* all ranks choose by it: select/select.c */
    for (int i = 0; i < ctx->ndevices; i++)
        group = ctx->devices[i].library.ops ? ctx->devices[i].library.name : group;
    static_assert(sizeof(HLY_BUILD) <= sizeof(hello->build), "with its end");
    hly_proc_self(&hello->process);
    strcpy(hello->build, hly_build());
    snprintf(hello->settings, sizeof(hello->settings),
             "algorithm %.60s, selection %s, rules %08x, version %s, %s eager %zu%s%s%s",
             *s->algorithm ? s->algorithm : "(chosen)",
             rows           ? s->rows + (rows > 40 ? rows - 40 : 0)
             : s->kept.used ? "(calibrated)"
                            : "(built in)",
             (unsigned)(halay_selection_hash(s->selection) >> 32), halay_version(),
             transport->ops->name, transport->unannounced_bytes, *group ? ", group " : "", group,
             s->gpudirect ? ", gpudirect" : "");
    uint64_t h =
        hly_hash(halay_selection_hash(s->selection), halay_version(), strlen(halay_version()));
    h = hly_hash(h, transport->ops->name, strlen(transport->ops->name));
    h = hly_hash(h, group, strlen(group));
    h = hly_hash(h, &s->gpudirect, sizeof(s->gpudirect));
    hello->settings_hash =
        hly_hash(h, &transport->unannounced_bytes, sizeof(transport->unannounced_bytes));
}

static int open_one(halay_context_t *ctx, const halay_config_t *config,
                    const halay_transport_ops_t *ops, char *why, size_t why_bytes)
{
    struct hly_transport *transport = &ctx->transports[ctx->ntransports];
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
                                  .link_timeout_ns = ctx->settings.link_timeout_ns};
    memcpy(p.job, ctx->info.job, sizeof(p.job));
    memcpy(p.secret, ctx->info.secret, sizeof(p.secret));
    assert(ctx->ntransports < HLY_TRANSPORTS);
    int rc = ops->open(&p, &transport->handle);
    if (rc) {
        snprintf(why, why_bytes, "the transport %s could not be opened: %s", ops->name,
                 halay_strerror(rc));
        return rc;
    }
    transport->ops = ops;
    transport->attr.size = sizeof(transport->attr);
    transport->traffic.size = sizeof(transport->traffic);
    snprintf(transport->traffic.transport, sizeof(transport->traffic.transport), "%s", ops->name);
    ctx->ntransports++;
    rc = ops->query(transport->handle, &transport->attr);
    assert(rc || transport->attr.message_bytes >=
                     sizeof(struct hly_header) + sizeof(struct hly_verdict_wire));
    size_t most = transport->attr.message_bytes - sizeof(struct hly_header);
    bool several = transport->attr.eager_bytes > transport->attr.message_bytes;
    transport->unannounced_bytes = transport->attr.eager_bytes;
    if (transport->attr.eager_bytes > most)
        transport->attr.eager_bytes = most;
    if (!several)
        transport->unannounced_bytes = transport->attr.eager_bytes;
    if (transport->attr.piece_bytes > most)
        transport->attr.piece_bytes = most;
    hello_make(ctx, transport);
    return rc;
}

static int load_one(halay_context_t *ctx, const halay_config_t *config, const char *name, char *why,
                    size_t why_bytes)
{
    const void *table;
    const char *set = ctx->settings.transport;
    size_t said = 0;
    if (*set)
        said = (size_t)snprintf(why, why_bytes, "HALAY_TRANSPORT is '%s': ", set);
    if (said >= why_bytes)
        said = 0;
    int rc = hly_plugin_load(ctx, "transport", name, "halay_transport_v7_", &table, why + said,
                             why_bytes - said);
    return rc ? rc : open_one(ctx, config, table, why, why_bytes);
}

int hly_transports_open(halay_context_t *ctx, const halay_config_t *config, char *why,
                        size_t why_bytes)
{
    const halay_boot_info_t *i = &ctx->info;
    char near[sizeof(ctx->settings.transport)];
    int rc = HALAY_OK;
    if (i->nranks == 1)
        return HALAY_OK;
    ctx->transports = calloc(HLY_TRANSPORTS, sizeof(*ctx->transports));
    if (!ctx->transports)
        return HALAY_ENOMEM;
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

void hly_transports_close(halay_context_t *ctx)
{
    while (ctx->ntransports) {
        struct hly_transport *transport = &ctx->transports[--ctx->ntransports];
        transport->ops->close(transport->handle);
    }
    free(ctx->transports);
    ctx->transports = NULL;
}

void hly_transports_text(const halay_context_t *ctx, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s%s", ctx->ntransports ? ctx->transports[0].ops->name : "none",
             ctx->ntransports > 1 ? "+" : "",
             ctx->ntransports > 1 ? ctx->transports[1].ops->name : "");
}

int halay_context_traffic(halay_context_t *context, int transport, halay_traffic_t *traffic)
{
    int rc = traffic ? hly_context_enter(context) : HALAY_EINVAL;
    if (rc)
        return rc;
    rc = transport >= 0 && transport < context->ntransports ? HALAY_OK : HALAY_EINVAL;
    if (!rc) {
        const struct hly_transport *t = &context->transports[transport];
        halay_transport_attr_t now = {.size = sizeof(now)};
        halay_traffic_t all = t->traffic;
        rc = t->ops->query(t->handle, &now);
        all.queues = now.queues;
        if (!rc && !hly_struct_give(traffic, &all, sizeof(all)))
            rc = HALAY_EINVAL;
    }
    hly_unlock(context);
    return rc;
}
