/* SPDX-License-Identifier: Apache-2.0 */
/* watch_log.h - what watch.c writes and replay.c reads: each rank's calls, each call's events. */
#ifndef TESTS_WATCH_LOG_H
#define TESTS_WATCH_LOG_H

#include "ranks.h"
#include "replay.h"

struct watch_event {
    enum hly_saw what;
    uint32_t step;
    uint64_t clock;
    const char *at[1 + HALAY_REDUCE_SOURCES]; /* destination and sources, or the message's bytes */
    uint64_t bytes;                           /* of each */
    uint64_t offset;                          /* in the message */
    uint32_t edge, nsrc, divisor;
    halay_op_t op;
    halay_type_t type;
    int result;
};

struct watch_run { /* one call, or one segment of it, on one rank */
    const halay_request_t *request;
    uint64_t comm;
    uint32_t sequence;
    uint32_t segment, nsegments;
    size_t segment_count; /* elements of each but the last */
    halay_plan_t *plan;
    uint64_t certified;
    struct hly_call call;
    const char *in, *out, *scratch, *home; /* home: where the result goes in the end */
    size_t slot_bytes, scratch_bytes;
    size_t *laid;                /* bytes of each operand, as the engine has it */
    struct hly_blocks blocks[2]; /* IN's and OUT's where they lie anywhere; else NULL */
    struct watch_event *events;
    uint32_t nevents, room;
};

struct watch_rank { /* written under its context's mutex */
    struct watch_run **runs;
    uint32_t nruns, room;
};

struct watch_rank *watch_ranks(void); /* RANKS_MAX of them */

#endif
