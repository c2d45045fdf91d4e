/* SPDX-License-Identifier: Apache-2.0 */
/* collective.h - what collectives are, besides what plan.h says: what each reads and writes. */
#ifndef HLY_PLAN_COLLECTIVE_H
#define HLY_PLAN_COLLECTIVE_H

#include <stdbool.h>

#include <halay/plan.h>

enum hly_part { /* of a buffer */
                HLY_NOTHING,
                HLY_VECTOR, /* it is one vector, which a planner cuts into blocks; `count` is its
                               length */
                HLY_OWN,    /* the block of this rank; `count` is a block's length */
                HLY_EACH    /* a block of each rank */
};

enum hly_who { HLY_AT_ALL, HLY_AT_ROOT, HLY_AT_OTHERS, HLY_NOT_AT_0 };

struct hly_collective {
    struct hly_access {
        enum hly_part part;
        enum hly_who who; /* has it; the other ranks have nothing */
    } in, out;
};

extern const struct hly_collective hly_collectives[HALAY_COLLECTIVE_COUNT];

/* What this rank reads, or writes. */
static inline enum hly_part hly_access_at(const struct hly_access *a, uint32_t rank, uint32_t root)
{
    const bool has = a->who == HLY_AT_ALL || (a->who == HLY_AT_ROOT && rank == root) ||
                     (a->who == HLY_AT_OTHERS && rank != root) || (a->who == HLY_NOT_AT_0 && rank);
    return has ? a->part : HLY_NOTHING;
}

static inline bool hly_collective_is_vector(uint32_t collective)
{
    return hly_collectives[collective].in.part == HLY_VECTOR;
}
/* Each rank has a block for each. */
static inline bool hly_collective_is_exchange(uint32_t collective)
{
    const struct hly_collective *c = &hly_collectives[collective];
    return c->in.part == HLY_EACH && c->out.part == HLY_EACH;
}
/* The root has a vector, and all others get it. */
static inline bool hly_collective_is_from_root(uint32_t collective)
{
    return hly_collectives[collective].out.who == HLY_AT_OTHERS;
}

#endif
