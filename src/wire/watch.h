/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - what tests see of the executor, and mistakes that they have it make. In the library all
 * of this compiles to nothing. tests/ranks compiles the core once more with HLY_WATCHED, and has
 * the functions declared below.
 */
#ifndef HLY_WATCH_H
#define HLY_WATCH_H

#include "wire/request.h"

enum hly_saw {
    HLY_SAW_BOUND,   /* the call, or its next segment, is laid out */
    HLY_SAW_STARTED, /* a step */
    HLY_SAW_BACK,    /* a step could not be started: the device is full */
    HLY_SAW_WORK,    /* the device has taken a piece of a step */
    HLY_SAW_SENT,    /* the transport has taken bytes of a step */
    HLY_SAW_LEFT,    /* the transport or the device is off a message or a piece */
    HLY_SAW_LANDED,  /* bytes are in a step's operand */
    HLY_SAW_DONE,    /* a step */
    HLY_SAW_FINISHED
};

enum hly_seed {
    HLY_SEED_NONE,
    HLY_SEED_SKIP_DEPENDENCY,
    HLY_SEED_FORGET_SUCCESSOR,
    HLY_SEED_DONE_TWICE,
    HLY_SEED_WORK_TWICE,
    HLY_SEED_SWAP_SOURCES,
    HLY_SEED_SHORT_WORK,
    HLY_SEED_WRONG_OFFSET,
    HLY_SEED_WRONG_SLOT,
    HLY_SEED_LOSE_TAIL,
    HLY_SEED_STALE_LAYOUT,
    HLY_SEED_WRONG_INPUT,
    HLY_SEED_NO_DIVISION,
    HLY_SEED_FINISH_EARLY,
    HLY_SEED_WRONG_EDGE,
    HLY_SEED_RECV_EARLY,
    HLY_SEED_SEND_EARLY,
    HLY_SEED_DROP_LAST_PIECE,
    HLY_SEED_DROP_LANDED,
    HLY_SEED_COUNT
};

static inline void hly_swap_sources(halay_work_t *work)
{
    const void *left = work->src[0];
    work->src[0] = work->src[1];
    work->src[1] = left;
}

#ifdef HLY_WATCHED
void hly_saw(const halay_request_t *r, enum hly_saw what, uint32_t step);
void hly_saw_bytes(const halay_request_t *r, enum hly_saw what, uint32_t step,
                   const struct hly_extent ext[2], uint64_t offset, uint64_t bytes, uint32_t edge);
void hly_saw_work(const halay_request_t *r, uint32_t step, const halay_work_t *work, int result);
/* Is this mistake to be made here? At most once. */
bool hly_seeded(enum hly_seed seed, const halay_request_t *r, uint32_t step);
bool hly_was_early(const halay_request_t *r, uint32_t step);
#define HLY_SAW(what, r, step)    hly_saw(r, HLY_SAW_##what, step)
#define HLY_SEEDED(seed, r, step) hly_seeded(HLY_SEED_##seed, r, step)
#else
#define HLY_SAW(what, r, step)                                 ((void)0)
#define hly_saw_bytes(r, what, step, ext, offset, bytes, edge) ((void)0)
#define hly_saw_work(r, step, work, result)                    ((void)0)
#define HLY_SEEDED(seed, r, step)                              false
#define hly_was_early(r, step)                                 false
#endif

#endif
