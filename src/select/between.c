/* SPDX-License-Identifier: Apache-2.0 */
/*
 * between.c - which transport serves between nodes: the first row all of whose needs every node
 * has. All ranks know what all nodes have, from the bootstrap, so they choose alike
 * (docs/decisions/transports.md#0030).
 */
#include "select/between.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *transport;
    uint8_t needs;
} rows[] = {{"verbs", HALAY_FABRIC_RDMA | HALAY_FABRIC_VERBS},
            {"ucx", HALAY_FABRIC_RDMA | HALAY_FABRIC_UCX},
            {"tcp", 0}};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* The first rank whose node lacks something, and what it lacks; -1: no node does. */
static int lacks(const halay_context_t *ctx, uint8_t needs, halay_place_t *place, uint8_t *missing)
{
    for (int r = 0; needs && r < ctx->info.nranks; r++) {
        *missing = needs;
        if (!ctx->boot_ops->get(ctx->boot, r, place))
            *missing &= (uint8_t)~place->address.fabrics;
        if (*missing)
            return r;
    }
    return -1;
}

static size_t choose(const halay_context_t *ctx, char *why, size_t bytes)
{
    halay_place_t place = {.size = sizeof(place)};
    uint8_t missing;
    size_t row = 0, used = 0;
    for (; row + 1 < ROWS && lacks(ctx, rows[row].needs, &place, &missing) >= 0; row++) {
        used += (size_t)snprintf(why + used, bytes - used, "; not %s: %.40s (node %d) has no %s%s",
                                 rows[row].transport, place.host, place.node,
                                 missing & HALAY_FABRIC_RDMA ? "RDMA device with an active port"
                                                             : "plug-in ",
                                 missing & HALAY_FABRIC_RDMA ? "" : rows[row].transport);
        if (used >= bytes)
            used = bytes - 1;
    }
    return row;
}

const char *hly_between(const halay_context_t *ctx)
{
    char why[HLY_BETWEEN_BYTES];
    return rows[choose(ctx, why, sizeof(why))].transport;
}

void hly_between_text(const halay_context_t *ctx, const char *name, const char *over, char *text,
                      size_t bytes)
{
    char missing[HLY_BETWEEN_BYTES] = "; every node has what it needs";
    char why[HLY_BETWEEN_BYTES + 32];
    size_t row = choose(ctx, missing, sizeof(missing));
    if (*ctx->settings.transport || strcmp(name, rows[row].transport))
        snprintf(why, sizeof(why), "it was asked for by name");
    else
        snprintf(why, sizeof(why), "row %zu of %d%s", row + 1, (int)ROWS, missing);
    snprintf(text, bytes, "between nodes %s: %s%s%s", name, why, *over ? "; over " : "", over);
}

void hly_between_warn(halay_context_t *ctx)
{
    halay_place_t place = {.size = sizeof(place)}, without = {.size = sizeof(without)};
    uint8_t missing;
    bool some = false;
    if (ctx->info.rank != 0 || lacks(ctx, HALAY_FABRIC_RDMA, &without, &missing) < 0)
        return;
    for (int r = 0; r < ctx->info.nranks && !some; r++)
        some =
            !ctx->boot_ops->get(ctx->boot, r, &place) && place.address.fabrics & HALAY_FABRIC_RDMA;
    if (some)
        hly_log(ctx, HLY_WARN,
                "no RDMA between nodes, though some could: node %d (%s) has no RDMA device with an "
                "active port. rdma link and ibv_devinfo there show what it has; "
                "HALAY_TRANSPORT=shm+tcp says that this is meant",
                without.node, without.host);
}

void hly_between_rows(char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t row = 0; row < ROWS && used < bytes; row++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%zu %s%s", row ? ", " : "", row + 1,
                                 rows[row].transport,
                                 rows[row].needs ? " (each node has RDMA and the plug-in)" : "");
}
