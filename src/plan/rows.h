/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - a row: which calls a planner serves. Measured, a table of them is in rows.c. */
#ifndef HLY_PLAN_ROWS_H
#define HLY_PLAN_ROWS_H

#include <stdint.h>

/* Of the communicators that a row serves. */
enum hly_where {
    HLY_ANYWHERE = 0,
    HLY_SHARED,   /* several nodes, one of them with several ranks */
    HLY_APART,    /* each rank on a node of its own: a message costs more than the memory's work */
    HLY_TOGETHER, /* shared, and the ranks of each node follow one another */
    HLY_ONE,      /* all on one node */
    HLY_OVERSUBSCRIBED, /* one node that has more ranks than processors */
    HLY_SINGLE          /* and one processor */
};

struct hly_plan_row {
    uint32_t collective;
    uint32_t max_ranks; /* where a proof grows with the square of the ranks */
    uint64_t max_bytes; /* of one rank's vector, or of all blocks */
    const char *planner;
    enum hly_where where;
};

/* The table; how many rows it has. */
uint32_t hly_plan_rows(const struct hly_plan_row **rows);

#endif
