/* SPDX-License-Identifier: Apache-2.0 */
/* collective.h - what collectives are, besides what plan.h says. */
#ifndef HLY_PLAN_COLLECTIVE_H
#define HLY_PLAN_COLLECTIVE_H

#include <stdbool.h>

#include <halay/plan.h>

/* The count is that of a vector, which a planner cuts into blocks; else that of one block. */
static inline bool hly_collective_is_vector(uint32_t collective)
{
    return collective == HALAY_ALLREDUCE || collective == HALAY_BROADCAST ||
           collective == HALAY_REDUCE || collective == HALAY_SCAN || collective == HALAY_EXSCAN;
}

#endif
