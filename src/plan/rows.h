/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - a row: which calls a planner serves. Measured, a table of them is in rows.c. */
#ifndef HLY_PLAN_ROWS_H
#define HLY_PLAN_ROWS_H

#include <stdbool.h>

#include <halay/plan.h>

/* Where the ranks are of the communicators that a row serves. */
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

/* The same, its planner looked up. */
struct hly_row {
    uint32_t collective;
    uint32_t min_ranks, max_ranks;
    uint32_t nodes; /* 0: any number */
    uint64_t min_bytes, max_bytes;
    uint32_t planner;
    enum hly_where where;
    uint32_t number; /* in the table, from 1; or the line of the file */
    bool given;      /* by a file */
    bool kept;       /* of halay-bench calibrate: for calls like those that it has measured */
};

/* The table; how many rows it has. */
uint32_t hly_plan_rows(const struct hly_plan_row **rows);

/* ---------------------------------------------------------------- rows_text.c */

struct hly_row_reader {
    char *error; /* gets what is wrong; or NULL */
    size_t error_bytes;
    const char *path; /* of the rows */
    uint32_t line;    /* that is read */
    bool kept;        /* the rows are those of halay-bench calibrate */
};

/* Writes the error; returns HALAY_EINVAL. */
int hly_row_wrong(const struct hly_row_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "COLLECTIVE=ALGORITHM", which is changed: sets this collective's planner. */
int hly_row_choice(const struct hly_row_reader *reader, char *choice, uint32_t forced[]);
/* "COLLECTIVE RANKS BYTES WHERE ALGORITHM", which is changed, or an empty line. Ranks and bytes are
 * "MOST" or "LEAST-MOST"; behind the ranks "/NODES" where there are to be so many. */
int hly_row_read(const struct hly_row_reader *reader, char *line, struct hly_row *row, bool *empty);

#endif
