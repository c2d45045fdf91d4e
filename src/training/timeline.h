/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.h - records of what a trainer did, and the ring that hands them to the thread that
 * writes them; docs/decisions/0021. Whoever holds `lock` puts records in, so there is one at a
 * time; the writer takes them out without it. Several trainers of a rank may share a timeline. A
 * trainer's mutex is taken before the lock.
 */
#ifndef HLY_TIMELINE_H
#define HLY_TIMELINE_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "halay/training.h"
#include "trainer.h"

enum {
    HLY_TIMELINE_RECORDS = 65536, /* in the ring; a power of two */
    HLY_TIMELINE_ROWS = 65536,    /* names with a row of their own; the others share the last */
    HLY_TIMELINE_KNOWN = 4096,
    HLY_TIMELINE_BUFFER = 65536,
    HLY_TIMELINE_EVENT = 2048 /* bytes that one record may become, its names apart */
};

enum hly_record_kind {
    HLY_RECORD_TENSOR = 1, /* times: submitted, agreed on (0: replayed), started, ended */
    HLY_RECORD_FUSED,      /* times: packing, packed, reduced, unpacked */
    HLY_RECORD_VOTE,       /* times: from, to */
    HLY_RECORD_ROUND,      /* times: from, to */
    HLY_RECORD_CYCLE,      /* time */
    HLY_RECORD_VOID,       /* time */
    HLY_RECORD_SPAN        /* times: from, to; name: of the program */
};

struct hly_timed {
    uint8_t kind, what; /* what: an hly_kind */
    uint16_t buffer;    /* fused: which, else HLY_SLOTS */
    uint32_t row;       /* tensor */
    uint64_t ns[4];
    uint64_t bytes;
    char *name; /* the first of a row: the writer frees it */
    int32_t code;
    uint32_t count; /* tensors, or entries */
};
static_assert(sizeof(struct hly_timed) == 64, "a record is a cache line");

struct hly_row {
    struct hly_node node; /* first */
    uint32_t number;
};

struct hly_known {
    uint64_t hash;
    uint64_t row;
};

struct hly_timeline {
    struct hly_timed *ring;
    _Atomic uint64_t head, tail; /* put in, taken out; the stores are releases */
    int mark_cycles;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint64_t lost, recorded; /* lock, as all up to `writer` */
    struct hly_map rows;
    struct hly_known
        known[HLY_TIMELINE_KNOWN]; /* before the map: one cache line instead of three */
    uint32_t nrows;
    int stop, refs;

    /* writer */
    int fd, error, rank;
    int64_t offset_ns;
    int others; /* the last row has its name */
    uint64_t written, stopped_ns;
    char buffer[HLY_TIMELINE_BUFFER];
    size_t used;
};

/* timeline_write.c */
void hly_timeline_begin(struct hly_timeline *timeline, const char *host, uint64_t error_ns);
void hly_timeline_drain(struct hly_timeline *timeline);
/* What is lost is said in the file. */
void hly_timeline_end(struct hly_timeline *timeline);

#endif
