/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.h - records of what a trainer did, and the ring that hands them to the thread that
 * writes them; docs/decisions/training.md#0021. Whoever holds `lock` puts records in, so there is
 * one at a time; the writer takes them out, and never takes the lock: it may be without a processor
 * for long. Several trainers of a rank may share a timeline. A trainer's mutex is taken before the
 * lock.
 */
#ifndef HLT_TIMELINE_H
#define HLT_TIMELINE_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "halay/training.h"
#include "trainer.h"

enum {
    HLT_TIMELINE_CELLS = 65536, /* of the ring; a power of two */
    HLT_TIMELINE_ROWS = 65536,  /* names with a row of their own; the others share the last */
    HLT_TIMELINE_KNOWN = 4096,
    HLT_TIMELINE_BUFFER = 65536,
    HLT_TIMELINE_EVENT = 2048 /* bytes that one record may become, its names apart */
};

/* Each has a cell, and those that say so some more after it. */
enum hlt_record_kind {
    HLT_RECORD_TENSOR = 1, /* times: submitted, agreed on (0: replayed), started, ended */
    HLT_RECORD_FUSED,      /* times: packing, packed, reduced, unpacked; count; members if listed */
    HLT_RECORD_NAME,       /* of a row */
    HLT_RECORD_VOTE,       /* times: from, to */
    HLT_RECORD_ROUND,      /* times: from, to */
    HLT_RECORD_CYCLE,      /* time */
    HLT_RECORD_VOID,       /* time */
    HLT_RECORD_SPAN        /* times: from, to; count: bytes of the program's name for it; these */
};

struct hlt_timed {
    uint8_t kind, what; /* what: an hlt_kind */
    uint16_t buffer;    /* fused: which, else HLT_BUFFERS */
    uint32_t row;       /* tensor */
    uint64_t ns[4];
    uint64_t bytes;
    const char *name; /* the first of a row; lives as long as the timeline */
    int16_t code;
    uint16_t listed;
    uint32_t count; /* tensors, or entries */
};

/* A tensor of a replayed group: all else is as of the group. */
struct hlt_member {
    uint64_t submit_ns;
    uint32_t row;
    uint32_t bytes; /* a group has less than 4 GiB: 64 KiB times the ranks at most */
};

enum { HLT_CELL_BYTES = 64, HLT_CELL_MEMBERS = 4 };

union hlt_cell {
    struct hlt_timed timed;
    struct hlt_member members[HLT_CELL_MEMBERS];
    char text[HLT_CELL_BYTES];
};
static_assert(sizeof(union hlt_cell) == HLT_CELL_BYTES, "a cell is a cache line");

struct hlt_row {
    struct hlt_node node; /* first */
    uint32_t number;
    char name[];
};

struct hlt_known {
    uint64_t hash;
    uint64_t row;
};

struct hlt_timeline {
    union hlt_cell *ring;
    _Atomic uint64_t head, tail; /* put in, taken out; the stores are releases */
    int mark_cycles;

    pthread_t thread;
    pthread_mutex_t lock;
    uint64_t lost, recorded; /* lock, as all up to `ending` */
    uint64_t room;           /* as of `tail` when last looked at: head may go up to here */
    struct hlt_map rows;
    struct hlt_known
        known[HLT_TIMELINE_KNOWN]; /* before the map: one cache line instead of three */
    uint32_t nrows;
    int refs;

    pthread_mutex_t ending; /* for the sleep of the writer only */
    pthread_cond_t ended;
    _Atomic int stop;

    /* writer */
    int fd, error, rank;
    int64_t offset_ns;
    int others; /* the last row has its name */
    uint64_t written, stopped_ns;
    char buffer[HLT_TIMELINE_BUFFER];
    size_t used, from; /* from: where the last event begins */
    char pid[40];      /* what all events have between phase and row */
    size_t pid_bytes;
    char digits[1001][4]; /* of all numbers below 1000 */
    uint64_t second;      /* of the last time written, and its digits */
    char second_text[24];
    size_t second_bytes;
};

static inline union hlt_cell *hlt_timeline_cell(const struct hlt_timeline *timeline, uint64_t at)
{
    return &timeline->ring[at % HLT_TIMELINE_CELLS];
}

/* How many cells so many members, or so many bytes, need. */
static inline uint64_t hlt_cells(uint64_t count, uint64_t in_a_cell)
{
    return (count + in_a_cell - 1) / in_a_cell;
}

/* timeline_write.c */
void hlt_timeline_begin(struct hlt_timeline *timeline, const char *host, uint64_t error_ns);
/* All that has been put in; if_on: only until it is stopped. */
void hlt_timeline_drain(struct hlt_timeline *timeline, int if_on);
/* The file says what is lost. */
void hlt_timeline_end(struct hlt_timeline *timeline);

#endif
