/* SPDX-License-Identifier: Apache-2.0 */
/*
 * absent.h - what is known of ranks of this node that have not come to its meeting. Inside pmix/
 * only.
 *
 * The processes of a rank have its name in their environment, also before they call Halay and
 * whoever has started them.
 */
#ifndef HALAY_PMIX_ABSENT_H
#define HALAY_PMIX_ABSENT_H

#include "../src/waits/text.h"
#include "node.h"

struct hly_absent {
    bool missing; /* it has not come, or cannot go on, as far as this rank can know */
    bool entered; /* it is in halay_init */
    bool here;    /* all its processes are in this network namespace; false: none is seen */
    char state;   /* proc(5), of */
    int64_t pid;  /* its oldest process; 0: none is seen */
    uint64_t born;
};

/* Which ranks of the node are in halay_init. A rank that has been there is not missing, even if it
 * has given up since. */
void hly_absent_note(struct hly_node *node);
/* Looks at the node's ranks, in the order of node->local; to be freed. NULL: no memory. met: all
 * have come, as far as this rank can know, and those that are stopped are missing. *n: how many
 * are. */
struct hly_absent *hly_absent_look(const struct hly_node *node, bool met, int *n);
/* "rank 0 (pid 7: stopped; not in halay_init), rank 3 (no process of it is seen)" */
void hly_absent_text(const struct hly_node *node, const struct hly_absent *all,
                     struct hly_line *line);
/* Is this the lowest of the node's ranks that are in halay_init, except for a first one that is
 * stopped? */
bool hly_absent_speaks(const struct hly_node *node);

/* The level at which it says what other ranks of the node find, too: one of them says it. */
static inline int hly_absent_level(const struct hly_node *node)
{
    return hly_absent_speaks(node) ? 0 : HALAY_LOG_TOLD;
}

#endif
