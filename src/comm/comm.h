/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - communicators: who is in them, the window of their calls, their call cache. */
#ifndef HLY_COMM_H
#define HLY_COMM_H

#include <assert.h>

#include "base/context.h"
#include "comm/call.h"

#define HLY_WINDOW         16 /* calls of one communicator that may be running on this rank */
#define HLY_SLOTS          64 /* must exceed HLY_WINDOW + HLY_UNACKED_MOST: so far ahead come headers */
#define HLY_RELAXED_PERIOD 32 /* every so many-th of equal broadcasts is not relaxed */
#define HLY_UNACKED_MOST   32 /* so far a call may start behind the last that all have made */
#define HLY_COMMS_MAX      65536
#define HLY_FREED_MAX      64
#define HLY_COMM_MAGIC     UINT64_C(0x6d6f63796c6c6168)
#define HLY_COMM_BYTES     8192 /* of the memory of one, and its alignment */
#define HLY_COMM_HANDLES   256  /* of that memory, one after the other */
#define HLY_CACHED_CALLS   4

struct hly_plan;

/* Ranks first_rank, first_rank + 1, ... are world ranks first_world, + stride, ... */
struct hly_run {
    int first_rank, first_world, stride, count;
};

struct hly_ranks { /* the ranks of a communicator: ranks.c */
    size_t bytes;  /* of this struct with word[] */
    int nranks;
    uint32_t nruns; /* how many struct hly_run word[] holds; 0: it holds a table */
    uint32_t width; /* bits that each rank has in the table */
    uint64_t word[];
};

/* Where the call of one sequence number stands on this rank. */
struct hly_slot {
    uint32_t sequence;
    halay_request_t *request;   /* NULL: not made yet */
    bool complete;              /* kept until all older ones are, too */
    bool outcome_known;         /* ranks that fail in it know whether this rank does */
    bool unacked;               /* relaxed: its end does not mean that all have made it */
    struct hly_link unexpected; /* messages that came before they could be used */
    struct hly_fault *fault;    /* NULL: all is well; even of a complete call: fault/call.c */
};

/* An entry of the call cache: arguments that were right, and the request that is bound to them. */
struct hly_cached_call {
    uint64_t key; /* hly_call_key(); 0: the entry is free */
    uint64_t count;
    const void *in, *out;
    halay_request_t *request;
};

struct hly_relaxed_state { /* exec/relaxed.h */
    uint64_t signature;    /* of the last broadcast; 0: it has failed */
    uint64_t ended;        /* bit r: rank r has said that it has ended all calls */
    uint32_t next;         /* sequence number after the last broadcast's */
    uint32_t first;        /* of the first in this unbroken run of broadcasts */
    bool asked, planned;   /* selection was asked for a plan for this signature; there is one */
    uint32_t n;            /* equal broadcasts right before the last one */
    uint32_t end;          /* sequence number after that of the last relaxed call */
    uint64_t asks;         /* bit r: rank r waits until this one has ended call `last` */
    uint32_t last;         /* sequence number; see asks */
    bool late;             /* a call that ended well here has failed elsewhere */
};

/* What a rank says about NCCL and shared_gpu, and what all agree on: run/group_library.c. */
struct hly_nccl_says {
    uint64_t version; /* 22105: 2.21.5; 0: it has none */
    uint64_t place;   /* of its GPU on the node */
    uint64_t reach;   /* groups/shared_gpu/shared_gpu.h; 0: it has none */
    uint64_t least;   /* bytes of a call from which on shared_gpu is used */
};
enum { HLY_NCCL_ASKING, HLY_NCCL_FAILED, HLY_NCCL_NONE, HLY_NCCL_AGREED };
struct hly_nccl_ask {
    struct hly_nccl_ask *next; /* context->nccl.left */
    uint8_t state;             /* HLY_NCCL_* */
    int failed;                /* FAILED: the code of each call in a GPU's memory */
    halay_comm_t *hidden;
    halay_request_t *request; /* the allgather under way; or NULL */
    struct hly_nccl_says mine, *all;
    const struct hly_group_library *library; /* that all have agreed on, */
    uint64_t least;                          /* for calls of so many bytes, and longer ones */
    char why[224];                           /* NCCL is not used; or nothing is */
};

enum { HLY_OF_CALLS, HLY_OF_SURVIVORS, HLY_OF_MESSAGES, HLY_STALLS }; /* what waits */

/* Work of a device that belongs to no call, or to no call yet: api/local.c. */
struct hly_local {
    struct hly_link flying;
    uint32_t nflying;
    int status;
};

struct halay_comm {
    uint64_t mark;        /* hly_comm_mark() of the first handle, as long as that is valid */
    halay_comm_t *handle; /* what the program has. Constant */
    uint32_t generation;  /* of this memory */
    bool freed;           /* by the program */
    uint64_t id;
    halay_context_t *context;
    struct hly_link link; /* context->comms, or ->freed_comms */
    halay_comm_t *hash_next;
    struct hly_ranks *ranks;
    int rank, nranks;
    uint32_t nnodes;         /* of its ranks. Constant */
    bool scattered;          /* some node's ranks are not consecutive. Constant */
    bool uneven;             /* its nodes have different numbers of ranks. Constant */
    uint32_t oversubscribed; /* 1: one node, more ranks than processors; 2: one processor */
    uint32_t children;       /* communicators made of it so far, */
    uint64_t made;           /* and a hash of how each was */
    uint64_t deadline_ns;
    uint32_t npersistent;       /* persistent requests */
    bool relaxed_hint;          /* HALAY_HINT_RELAXED_BROADCAST */
    uint32_t planner_hint;      /* HALAY_HINT_PLANNER: 1 + the planner; 0: none */
    struct hly_device *follows; /* calls in its memory wait for `stream`; NULL: none do */
    halay_stream_t stream;
    int owed; /* code of a call that has failed after it had returned: run/returned.c */
    struct hly_local moves; /* the next call begins with them: halay_local_precede() */
    bool preceded;          /* and there are some */

    uint32_t next_sequence; /* of the next call */
    uint32_t oldest;        /* first call that is not complete */
    uint32_t acked;         /* all ranks have made the calls before this one */
    uint32_t started;       /* first call that is not started */
    uint32_t peer_sequence; /* 1 + the latest call that another rank is known to have made */
    struct hly_slot slots[HLY_SLOTS];
    halay_request_t *queue_head, *queue_tail; /* calls that wait for room in the window */

    struct hly_plan *plans;
    uint32_t nplans;
    struct hly_cached_call calls[HLY_CACHED_CALLS];
    uint32_t next_call; /* index of the entry to be replaced next */
    struct hly_relaxed_state relaxed;
    struct hly_device_comms *dcomms; /* exec/device_comm.h; or NULL */
    struct hly_nccl_ask *nccl;       /* since the first call in a GPU's memory; or NULL */
    halay_comm_t *asks_for; /* of a hidden one, of which the program has no call; or NULL */
    struct hly_predicted *predicted; /* algorithms by size class: HALAY_SELECTION=model */
    struct hly_explained *explained; /* HALAY_EXPLAIN: what was measured */

    struct hly_broken broken;
    bool said;                            /* the user has been told why */
    uint64_t last_failed;                 /* 1 + the last call that has failed here; 0: none has */
    struct hly_stall *stalls[HLY_STALLS]; /* fault/stall.c; NULL: none has waited long */
    struct hly_failure last;              /* the error that the program read last */
    bool failed;                          /* `last` is valid */
    struct hly_failure last_call;         /* the last one that was a call's */
    bool call_failed;                     /* `last_call` is valid */
    bool mended;                          /* and the program has shrunk since then */

    struct hly_messages *messages;   /* with tags: wire/message.h; NULL: there was none */
    struct hly_survivors *survivors; /* of its survivors: fault/survivors.h; or NULL */
    halay_comm_t *parent;      /* of a hidden communicator of two ranks (api/pair.c), or NULL */
    int pair[2];               /* the parent's ranks: who sends, who receives */
    struct hly_link pairs;     /* hidden communicators of two of its ranks */
    struct hly_link pair_link; /* parent->pairs */
    halay_comm_t *inner;       /* hidden one where members of groups run (run/group.c), or NULL */
    halay_comm_t *outer;       /* of such a hidden one: whose groups' members run here */
    struct hly_group *group_open; /* the group of calls that is being collected, or NULL */
    struct hly_link groups;       /* groups whose members have not begun */
    struct hly_link grouped;      /* groups with group steps that are not over, by their heads */
    uint32_t grouped_first;       /* of the first of them: its head's sequence number */
};

/* ---------------------------------------------------------------- comm.c */

/* What a valid handle points to: nothing else has it, so that whatever else the program passes is
 * recognised without a look at other memory. */
static inline uint64_t hly_comm_mark(const halay_comm_t *handle)
{
    return (uint64_t)(uintptr_t)handle ^ HLY_COMM_MAGIC;
}
/* The communicator of a handle; NULL: there is none. Needs no lock. */
static inline halay_comm_t *hly_comm_of(const halay_comm_t *handle)
{
    if (!handle || *(const uint64_t *)handle != hly_comm_mark(handle))
        return NULL;
    return (halay_comm_t *)((uintptr_t)handle & ~(uintptr_t)(HLY_COMM_BYTES - 1));
}
/* Takes `ranks` over, also on failure. */
int hly_comm_create(halay_context_t *context, uint64_t id, struct hly_ranks *ranks, int rank,
                    uint64_t deadline_ns, halay_comm_t **comm);
/* Messages for its id are dropped from now on. */
void hly_comm_remove(halay_comm_t *comm);
/* Keeps its memory for the next one. */
void hly_comm_give_back(halay_comm_t *comm);
void hly_comms_free_memory(halay_context_t *context);
halay_comm_t *hly_comm_find(const halay_context_t *context, uint64_t id);
bool hly_comm_is_gone(const halay_context_t *context, uint64_t id);
/* How many calls, from `oldest` on, some other rank is known to have made. */
uint32_t hly_comm_ahead(const halay_comm_t *comm);
/* Notes that another rank has made this call; true if that was not known. */
bool hly_comm_heard(halay_comm_t *comm, uint32_t sequence);
/* The number that a hidden communicator's rank has in the one that the program knows. */
int hly_comm_shown_rank(const halay_comm_t *comm, int rank);

static inline halay_comm_t *hly_comm_known(halay_comm_t *comm)
{
    return comm->parent ? comm->parent : comm;
}

/* The communicator whose stream its calls wait for. */
static inline const halay_comm_t *hly_comm_ordered_by(const halay_comm_t *comm)
{
    return comm->outer ? comm->outer : comm->parent ? comm->parent : comm;
}

/* Does such a call wait until the ranks have agreed on a library for its group steps? */
static inline bool hly_comm_is_undecided(const halay_comm_t *comm, const struct hly_call_desc *desc)
{
    const struct hly_nccl_ask *ask = hly_comm_ordered_by(comm)->nccl;
    return ask && ask->state <= HLY_NCCL_FAILED && desc->memory == HALAY_MEMORY_CUDA &&
           !(desc->flags & (HLY_CALL_VECTOR | HLY_CALL_PAIR));
}

/* Is a call of so many bytes long enough for the library that the ranks have agreed on? */
static inline bool hly_comm_group_long(const halay_comm_t *comm, uint64_t bytes)
{
    const struct hly_nccl_ask *ask = hly_comm_ordered_by(comm)->nccl;
    return !ask || bytes >= ask->least;
}

/* The library that does its group steps in this device's memory, if it has some: whom the program
 * has named, or its ranks have agreed on. NULL: nobody. */
static inline const struct hly_group_library *
hly_comm_group_library(const halay_comm_t *comm, const struct hly_device *device)
{
    const struct hly_nccl_ask *ask = hly_comm_ordered_by(comm)->nccl;
    if (device->library.ops)
        return &device->library;
    return ask && device->memory == HALAY_MEMORY_CUDA ? ask->library : NULL;
}

/* Do its blocking calls in memory of this kind return when they are posted? */
static inline bool hly_comm_returns(const halay_comm_t *comm, uint32_t memory)
{
    if (!(comm->stream.flags & HALAY_STREAM_RETURNS))
        return false;
    assert(comm->follows);
    return comm->follows->memory == memory;
}

/* The slot of the call with this number, which is in the window of a communicator that is not
 * broken. */
static inline struct hly_slot *hly_slot_of(halay_comm_t *comm, uint32_t sequence)
{
    struct hly_slot *slot = &comm->slots[sequence % HLY_SLOTS];
    if (slot->sequence != sequence) {
        assert(!slot->request && !slot->fault && hly_link_empty(&slot->unexpected));
        slot->sequence = sequence;
        slot->complete = slot->outcome_known = slot->unacked = false;
    }
    return slot;
}
/* The same of any call; NULL: it is out of the window. */
struct hly_slot *hly_comm_slot(halay_comm_t *comm, uint32_t sequence);

/* ---------------------------------------------------------------- ranks.c */

int hly_ranks_make(const int world_ranks[], int nranks, struct hly_ranks **ranks);
int hly_ranks_copy(const struct hly_ranks *ranks, struct hly_ranks **copy);
int hly_ranks_world_rank(const struct hly_ranks *ranks, int rank);
int hly_ranks_rank_of(const struct hly_ranks *ranks, int world_rank); /* -1: not in it */

static inline int hly_comm_world_rank(const halay_comm_t *comm, int rank)
{
    return hly_ranks_world_rank(comm->ranks, rank);
}
static inline int hly_comm_rank_of(const halay_comm_t *comm, int world_rank)
{
    return hly_ranks_rank_of(comm->ranks, world_rank);
}

/* ---------------------------------------------------------------- shape.c */

/* Which of its ranks share a node. Takes O(ranks) memory: for use while a plan is made. */
int hly_comm_shape(const halay_comm_t *comm, halay_shape_t **shape);
/* Fills nnodes, scattered, uneven, oversubscribed, which selection asks for at each call. */
int hly_comm_count_nodes(halay_comm_t *comm);

#endif
