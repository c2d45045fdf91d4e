/* SPDX-License-Identifier: Apache-2.0 */
/* uses.h - what an executor has to know of a plan: who waits for a step, who reads what it writes,
 * and which step a message belongs to. */
#ifndef HLY_PLAN_USES_H
#define HLY_PLAN_USES_H

#include <halay/plan.h>

#define HLY_FUSED_MAX                                                                              \
    320 /* plans of more steps have no readers; only persistent calls keep their work */

/* In hly_plan_uses.reader[], besides a step's number. */
enum { HLY_READ_BY_MORE = 0xfffe, HLY_READ_BY_NONE = 0xffff };

struct hly_plan_uses {
    uint32_t *successors; /* of step i: successor_first[i] .. [i + 1] */
    uint32_t *successor_first;
    /* The reduction right behind a step that alone reads what it writes, or HLY_READ_BY_*. NULL:
     * too many steps. */
    uint16_t *reader;
    uint32_t *edges; /* hash table: (kind, peer, edge) -> step */
    uint32_t edge_mask;
};

/* Fills the first two, of 2 * nsteps and nsteps + 2 zeros. */
void hly_plan_successors(const halay_plan_t *plan, uint32_t *successors, uint32_t *first);
int hly_plan_uses(const halay_plan_t *plan, struct hly_plan_uses *uses);
/* The SEND or RECV step with this peer and edge; HALAY_STEP_NONE: the plan has none. */
uint32_t hly_plan_step(const halay_plan_t *plan, const struct hly_plan_uses *uses, uint32_t kind,
                       uint32_t peer, uint32_t edge);
/* Also after an error of hly_plan_uses(). */
void hly_plan_uses_free(struct hly_plan_uses *uses);

#endif
