/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - a call: its description, which all ranks compare, and the ways it may fail. */
#ifndef HLY_CALL_H
#define HLY_CALL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <halay/device.h>

#include "agree/verdict.h"

static_assert(sizeof(struct hly_call_desc) == 16,
              "two words of a header, and no padding: it is hashed");
static_assert(HALAY_COLLECTIVE_COUNT <= 32, "five bits of a description");
static_assert(HALAY_MEMORY_KINDS <= 8, "three bits of a description");

enum {
    HLY_CALL_IN_PLACE = 1,
    HLY_CALL_VECTOR = 2,
    HLY_CALL_PAIR = 4,       /* send and receive: a broadcast of two ranks */
    HLY_CALL_LIST = 8,       /* comm_from_ranks: a barrier; comm_split: an allgather */
    HLY_CALL_RELAXED = 0x10, /* a repeated broadcast whose root does not wait: exec/relaxed.h */
    HLY_CALL_ORDERED = 0x20, /* the operation does not commute */
    HLY_CALL_SCALED = 0x40,
    HLY_CALL_GROUP = 0x80,                            /* the barrier before a group of calls */
    HLY_CALL_REFUSED = HLY_CALL_LIST | HLY_CALL_GROUP /* a barrier in place of another call */
};

/* Set in desc.op for a user-defined operation; the other bits are the low ones of its number. */
#define HLY_CALL_USER 0x80u
/* In desc.op: there is no such operation, and its number is negative or larger than this. */
#define HLY_CALL_UNKNOWN 0x7fu

/* What the call cache compares, besides count and buffers; never 0. */
static inline uint64_t hly_call_key(uint32_t collective, uint32_t type, uint32_t op, uint32_t root,
                                    uint32_t flags)
{
    return UINT64_C(1) << 63 | (uint64_t)flags << 56 | (uint64_t)op << 48 | (uint64_t)type << 40 |
           (uint64_t)collective << 32 | root;
}

static inline bool hly_desc_equal(const struct hly_call_desc *a, const struct hly_call_desc *b)
{
    return !memcmp(a, b, sizeof(*a));
}

struct hly_op { /* a user-defined operation, in context->user_ops */
    struct hly_op *next;
    halay_op_t number;
    halay_op_fn *fn;
    void *arg;
    size_t group;
    int properties; /* HALAY_OP_COMMUTATIVE, HALAY_OP_LOCAL */
    uint32_t users; /* requests that use it */
};

struct hly_vector { /* counts NULL: the blocks are as large as the other buffer's */
    const size_t *counts, *displs;
};

struct hly_call {
    struct hly_call_desc desc;
    uint64_t signature; /* hash of all that ranks compare */
    const void *in;
    void *out;
    struct hly_vector vector[2]; /* v forms, only while the call is made: of IN, of OUT */
    bool local_in_place;         /* at the root of reduce, gather, scatter; not compared */
    bool staged;                 /* OUT is written only after the input was read */
    bool captured;       /* its stream is being captured into a graph, where its group steps go */
    struct hly_op *user; /* user-defined operation, or NULL */
    double prescale, postscale; /* with HLY_CALL_SCALED */
};

#define HLY_CAPTURED_SIGN UINT64_C(0x6361707475726564) /* what its signature differs by */

/* Does the plan work in place? */
static inline bool hly_call_in_place(const struct hly_call *call)
{
    return (call->desc.flags & HLY_CALL_IN_PLACE && !call->staged) || call->local_in_place;
}

struct hly_failure { /* how one call has failed, for the program */
    struct hly_verdict_wire verdict;
    uint32_t sequence;
    int nranks;   /* of the communicator that the program has named */
    int world[2]; /* the verdict's rank and other, as the job numbers them; -1: nobody */
    /* Send and receive: the verdict's ranks 0 and 1 are pair[0] and pair[1] of that communicator.
     */
    bool paired;
    int pair[2];
    bool alone; /* an error of this rank alone, not of a call: verdict.detail says which */
};

/* Why a call fails as soon as it starts. */
struct hly_refusal {
    enum hly_cause cause;
    int code;
    bool broken; /* the communicator is broken, and its verdict counts */
    char text[256];
};

#endif
