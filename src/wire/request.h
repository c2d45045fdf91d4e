/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - one call under way: its plan, where its operands lie, how far its steps are. exec/
 * moves it on; wire/ reads where its messages go, and counts what has come of them.
 */
#ifndef HLY_REQUEST_H
#define HLY_REQUEST_H

#include <halay/transport.h>

#include "comm/comm.h"
#include "plan/uses.h"
#include "wire/tags.h"
#include "wire/wire.h"

#define HLY_REQUEST_MAGIC 0x52455155u
#define HLY_STATES_LEAST  8 /* so many states are cleared at once, by one store */

struct hly_extent {
    char *address;
    size_t bytes;
};

/* Where an operand is: `offset` bytes into its buffer. What wraps around is in the second extent.
 */
struct hly_span {
    size_t offset;
    struct hly_extent extent[2];
};

/* ---------------------------------------------------------------- a compiled plan */

/* A plan admitted for one communicator: proved, compiled (exec/plan_cache.c), its peers looked up.
 */
struct hly_plan {
    struct hly_plan *next;
    uint32_t planner, root, in_place;
    halay_plan_t *plan;
    uint32_t nsteps; /* plan->nsteps and plan->steps, one load nearer */
    const halay_step_t *steps;
    uint64_t hash;           /* what the certificate says */
    struct hly_peer **peers; /* of each step; NULL: it has none */
    struct hly_plan_uses uses;
    uint32_t launches[HALAY_PLAN_CHANNELS_MAX]; /* group steps by channel */
    bool stages;                                /* its planner has HALAY_PLANNER_STAGE */
    halay_request_t *spare;                     /* free requests, made for this plan */
};

enum hly_step_state {                /* in hly_progress_of.state[] */
                      HLY_WAITS = 0, /* the cursor has not come to it */
                      HLY_SKIPPED,   /* the cursor has passed it: it waits for a step before it */
                      HLY_STARTED,
                      HLY_DONE
};

struct hly_step_run {
    /* RECV: bytes that have come. REDUCE, COPY: pieces that the device holds, and 1 more until it
     * has taken all of them. */
    uint64_t arrived;
    struct hly_send *send; /* SEND: its message, from the announcement until it has left; or NULL */
    uint32_t target;       /* RECV: its rendezvous target: index + 1; 0: none */
    uint32_t next;         /* in the list of ready steps: the next one, + 1 */
    uint8_t pieces;        /* REDUCE, COPY: pieces that the device has taken */
};

/* ---------------------------------------------------------------- its parts */

/* A long call runs its plan on one segment after the other. A segment is the same part of each
 * block. */
struct hly_segments {
    uint32_t n;      /* 1: the call is not cut */
    uint32_t number; /* of the segment that is laid out */
    uint64_t count;  /* elements of a segment (the last may have fewer): of the vector or block */
    size_t stride_bytes; /* from block to block in IN and OUT */
};

struct hly_blocks { /* of each rank's block, in bytes */
    size_t *offset, *bytes;
};

struct hly_places {
    const char *in, *out, *scratch;
    uint64_t op;
};

/* Where operands lie: exec/layout.c. */
struct hly_layout {
    char *in, *out, *scratch;
    char *result; /* the program's OUT; differs from `out` if the result is staged */
    struct hly_device *scratch_from; /* who gives scratch: in host memory, if not r->device */
    size_t scratch_bytes;
    bool stages; /* scratch is the plan's stage, in host memory of the device */
    char *own;   /* then: the other slots, in memory like the call's */
    size_t own_bytes;
    size_t slot_bytes, element_bytes, result_bytes;
    size_t unit_bytes; /* of a block; the first long_blocks have one element more */
    uint32_t long_blocks;
    bool large;     /* the call's data exceed the caches */
    uint8_t before; /* HLY_BEFORE_*: what is to be done before the plan */
    uint8_t after;  /* HLY_AFTER_*: what remains to be done when the plan is done */
    size_t *tables; /* v forms: memory that `block` points into; else NULL */
    struct hly_blocks block[2];
    struct hly_span *spans; /* one for each operand of the plan */
    halay_work_t *works;    /* each step's, kept once it was done in one piece; or NULL */
    /* What spans and works hold for: */
    struct hly_places places;
    uint64_t laid_count, laid_segment; /* elements: of the call, of the segment */
    size_t laid_group;
    uint8_t laid_type;
    bool laid_out;
};

/* How far the steps of the current segment are: exec/execute.c. */
struct hly_progress_of {
    uint8_t *state;            /* of each step: enum hly_step_state */
    struct hly_step_run *step; /* of each step: what else it needs */
    uint32_t cursor;           /* steps before it were started or skipped */
    uint32_t looked;           /* from this step on the next message to expect is sought */
    uint32_t ndone;
    uint32_t nskipped;
    uint32_t ready, last; /* list of skipped steps that can start now: ends, + 1 */
    bool ran;             /* state[] and step[] are of this call */
    uint8_t before;       /* HLY_BEFORE_*: scaling of the input, before any step */
    uint8_t after;        /* HLY_AFTER_*: what remains of layout.after */
};
/* The others are added: in a call that waits for the program's stream, until the stream comes
 * there; where buffers are staged, whose copy to the host comes next; and where moves precede the
 * call, until they have ended (FAILED: one of them with an error). */
enum {
    HLY_BEFORE_NOTHING = 0,
    HLY_BEFORE_DUE,
    HLY_BEFORE_FLYING,
    HLY_BEFORE_DOWN = 4,
    HLY_BEFORE_FIRST = 8,
    HLY_BEFORE_MARK = 16,
    HLY_BEFORE_MARKED = 32,
    HLY_BEFORE_MOVES = 64,
    HLY_BEFORE_FAILED = 128
};
enum { /* done in this order */
       HLY_AFTER_DIVIDE = 1,
       HLY_AFTER_MULTIPLY = 2,
       HLY_AFTER_MOVE = 4,
       HLY_AFTER_UP = 8 /* the staged result's copy to the device */
};

/* The expected message (expected.h), bit for bit, and where its payload goes. */
struct hly_expected {
    struct hly_header header;
    halay_peer_id_t from;
    size_t bytes; /* without the header */
    char *place;
    const struct hly_transport *transport; /* over which it comes */
    uint32_t step;                         /* HALAY_STEP_NONE: nothing is expected */
    uint32_t
        kept; /* step for which the rest is filled in, except for the sequence number; or none */
    uint32_t reduction; /* the one that alone reads the payload; or HALAY_STEP_NONE */
    uint32_t other;     /* what the reduction waits for besides; or HALAY_STEP_NONE */
    uint32_t source;    /* which source of the reduction it is */
};

/* ---------------------------------------------------------------- the request */

/* What a request has to do with groups of calls: run/group.c. */
struct hly_in_group {
    struct hly_group *member_of;  /* the one that it belongs to; or NULL */
    struct hly_group *stands_for; /* the one whose end the program waits for by it; or NULL */
    bool is_behind;  /* of a group with group steps: these come after those of the calls */
    uint32_t behind; /* before this one, on the communicator that the program knows */
};

/* A call that has returned: run/returned.c. */
struct hly_before_gate {
    bool stands; /* the program's stream, before the gate of this number */
    bool opens;  /* the GPU does so, behind the last that the call does there */
    uint32_t number;
};

/* A persistent request in a device's memory: what lay there when it was made. */
struct hly_kept_memory {
    size_t bytes[2]; /* of IN and OUT */
    uint64_t id[2];  /* of their allocations */
};

enum hly_request_state {
    HLY_IDLE = 0,
    HLY_QUEUED,
    HLY_UNPLANNED, /* it has started; ranks have to agree on a library before it gets a plan */
    HLY_RUNNING,
    HLY_STOPPED, /* it has failed here; news of that are under way to fault/ */
    HLY_FAILING,
    HLY_COMPLETE
};

struct halay_request {
    uint32_t magic;           /* constant, as long as the memory exists */
    halay_context_t *context; /* the same */
    uint64_t generation;      /* of the handle: exec/request.c */
    enum hly_request_state state;
    bool given;      /* the program has a handle */
    bool persistent; /* lives until halay_request_free() */
    bool cached;     /* lives in the call cache of its communicator */
    bool refused;    /* wrong from the beginning: its arguments, or no plan */
    bool bound;      /* its layout is that of `call`, and can serve again */
    bool foreseen;   /* it fails as the program knows already: log less */
    uint8_t overdue; /* looks at the clock since the deadline has passed: fault/call.c */
    bool direct;     /* messages are read and written in a device's memory: wire/register.h */
    bool listens;    /* its plan is done, its end waits: exec/listen.h */
    bool reports;    /* its end is news: HLY_NEWS_COMPLETE */
    halay_comm_t *comm;
    struct hly_device *device;   /* works for the plan */
    struct hly_staging *staging; /* the buffers are copied to the host and back; or NULL */
    halay_request_t *next;       /* in plan->spare, or in the communicator's queue */
    struct hly_call call;
    struct hly_header header; /* of its eager messages; edge and cookie differ */
    uint32_t sequence;
    uint64_t recorded; /* the stamp of its slot in the flight record, as long as that is its own */
    halay_record_call_t *record;
    struct hly_slot
        *slot; /* of this number, in its communicator; valid once the call has started */
    int result;
    struct hly_plan *plan; /* NULL: the arguments allow none, or HLY_UNPLANNED */
    uint64_t plan_hash;    /* 0: the same */
    struct hly_segments segments;
    struct hly_layout layout;
    struct hly_progress_of run;
    struct hly_expected expected;
    struct hly_failure *failure; /* how it has failed, until the program reads it; or NULL */
    struct hly_refusal *refusal; /* why it fails when it starts; or NULL */
    struct hly_in_group group;
    struct hly_kept_memory kept;
    struct hly_before_gate gate;
    struct hly_message message;
    struct hly_explained *explained; /* HALAY_EXPLAIN: gets its time; else NULL */
    uint64_t started_ns, deadline_ns;
    uint32_t targets;       /* open rendezvous targets */
    struct hly_link flying; /* hly_send that a transport or a device holds */
    struct hly_link link;   /* context->requests while running */
    struct hly_link posted; /* context->posted, until it is released */
};

/* ---------------------------------------------------------------- helpers */

/* It has started, and has not failed. */
static inline bool hly_request_runs(const halay_request_t *r)
{
    return r->state == HLY_RUNNING || r->state == HLY_UNPLANNED;
}
/* The request whose steps it waits for: without a plan that is the ranks' agreement. */
static inline const halay_request_t *hly_request_steps(const halay_request_t *r)
{
    const struct hly_nccl_ask *ask = hly_comm_ordered_by(r->comm)->nccl;
    return r->state == HLY_UNPLANNED && ask->request ? ask->request : r;
}

/* The two extents of an operand; the second may be empty. */
static inline const struct hly_extent *hly_operand_extents(const halay_request_t *r,
                                                           uint32_t operand)
{
    return r->layout.spans[operand].extent;
}
static inline size_t hly_operand_bytes(const halay_request_t *r, uint32_t operand)
{
    const struct hly_extent *extent = hly_operand_extents(r, operand);
    return extent[0].bytes + extent[1].bytes;
}
static inline bool hly_step_is_done(const halay_request_t *r, uint32_t step)
{
    return step == HALAY_STEP_NONE || r->run.state[step] == HLY_DONE;
}
static inline const halay_step_t *hly_step(const halay_request_t *r, uint32_t step)
{
    return &r->plan->steps[step];
}
/* Should this step write past the caches? The call is larger than these, and no step reads what it
 * writes. */
static inline bool hly_step_streams(const halay_request_t *r, uint32_t step)
{
    const halay_plan_t *p = r->plan->plan;
    return r->layout.large && r->plan->uses.reader &&
           r->plan->uses.reader[step] == HLY_READ_BY_NONE &&
           p->operands[p->steps[step].operand].buffer == HALAY_BUFFER_OUT;
}

#endif
