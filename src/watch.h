/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - what a test may see of the engine, and the mistakes it may have it make (decision 22).
 * In the library all of this is nothing: HLY_WATCHED is defined where tests/ranks compiles
 * engine.c, straight.c, layout.c, channel.c and out.c once more, and the functions below are the
 * test's.
 */
#ifndef HLY_WATCH_H
#define HLY_WATCH_H

#include "core.h"

enum hly_saw {
    HLY_SAW_BOUND,   /* the call starts: its plan's symbols have addresses */
    HLY_SAW_STARTED, /* a step */
    HLY_SAW_BACK,    /* it could not be started: the device is full */
    HLY_SAW_WORK,    /* the device has taken a piece of a step */
    HLY_SAW_SENT,    /* the transport has taken bytes of a step */
    HLY_SAW_LEFT,    /* the transport or the device is through with a message or a piece */
    HLY_SAW_LANDED,  /* bytes are where a step wants them */
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
                   const struct hly_segment seg[2], uint64_t offset, uint64_t bytes, uint32_t edge);
void hly_saw_work(const halay_request_t *r, uint32_t step, const halay_work_t *work, int result);
/* The message of a step goes before its tile begins; from NULL: it did not. */
void hly_saw_ahead(const halay_request_t *r, uint32_t tile, uint32_t step, const void *from,
                   uint64_t bytes);
/* Is it now that this mistake is made? At most once. */
bool hly_seeded(enum hly_seed seed, const halay_request_t *r, uint32_t step);
bool hly_was_early(const halay_request_t *r, uint32_t step);
void hly_seed_dependencies(halay_request_t *r); /* SKIP_DEPENDENCY */
#define HLY_SAW(what, r, step)    hly_saw(r, HLY_SAW_##what, step)
#define HLY_SEEDED(seed, r, step) hly_seeded(HLY_SEED_##seed, r, step)
#else
#define HLY_SAW(what, r, step)                                 ((void)0)
#define hly_saw_bytes(r, what, step, seg, offset, bytes, edge) ((void)0)
#define hly_saw_work(r, step, work, result)                    ((void)0)
#define hly_saw_ahead(r, tile, step, from, bytes)              ((void)0)
#define HLY_SEEDED(seed, r, step)                              false
#define hly_was_early(r, step)                                 false
#define hly_seed_dependencies(r)                               ((void)0)
#endif

#endif
