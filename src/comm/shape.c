/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.c - which ranks of a communicator share a node, as the bootstrap says: the same on all
 * ranks. A communicator keeps only how many nodes there are, and whether ranks are consecutive.
 */
#include <stdlib.h>

#include "comm/comm.h"

int hly_comm_shape(const halay_comm_t *comm, halay_shape_t **shape)
{
    const halay_context_t *ctx = comm->context;
    size_t n = (size_t)comm->nranks;
    uint32_t *node = calloc(n, sizeof(*node));
    int rc = node ? HALAY_OK : HALAY_ENOMEM;
    for (int r = 0; !rc && ctx->boot && r < comm->nranks; r++) {
        halay_place_t place = {.size = sizeof(place)};
        rc = ctx->boot_ops->get(ctx->boot, hly_comm_world_rank(comm, r), &place);
        node[r] = (uint32_t)place.node;
    }
    if (!rc)
        rc = halay_shape_make(node, (uint32_t)n, shape);
    free(node);
    return rc;
}

int hly_comm_count_nodes(halay_comm_t *comm)
{
    halay_shape_t *shape;
    int rc = hly_comm_shape(comm, &shape);
    if (rc)
        return rc;
    comm->nnodes = shape->nnodes;
    comm->scattered = shape->hash & HALAY_SHAPE_SCATTERED;
    comm->uneven = shape->smallest != shape->largest;
    comm->oversubscribed = 0;
    if (shape->nnodes == 1 && comm->context->boot) {
        halay_place_t place = {.size = sizeof(place)};
        rc =
            comm->context->boot_ops->get(comm->context->boot, hly_comm_world_rank(comm, 0), &place);
        const uint8_t node = place.address.fabrics;
        if (!rc && node & HALAY_NODE_OVERSUBSCRIBED)
            comm->oversubscribed = node & HALAY_NODE_SINGLE ? 2 : 1;
    }
    halay_shape_free(shape);
    return rc;
}
