/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.c - the root tells all, and hears from nobody: the fewest messages of a broadcast.
 *
 * For a relaxed call only (HALAY_PLANNER_RELAXED): the root may be done before the others have
 * called, so an error of theirs reaches it in a later call. docs/decisions/plans.md#0046.
 */
#include "builder.h"

void hly_flat_broadcast(struct hly_builder *b)
{
    uint32_t p = b->params.nranks, root = b->params.root;

    b->blocks = 1;
    if (b->params.rank != root) {
        hly_recv(b, root, 0, hly_out(0, 1), HLY_NONE, HLY_NONE);
        return;
    }
    for (uint32_t up = 1; up < p; up++) {
        hly_send(b, hly_up(b, up), 0, hly_out(0, 1), HLY_NONE, HLY_NONE);
    }
}
