/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - the flight record: the last calls, waits and errors of a rank, in 64 KiB that outlive
 * its process. The library writes it, halayrun keeps it, halay-info ps and halay-replay read it
 * (docs/flight-record.md).
 *
 * It is memory that another process maps while its owner writes, and also the content of a file.
 * One thread at a time writes. Each slot of the tables begins with a stamp: 0, never used; odd,
 * being written; else twice its number, from 1 on. A reader that finds the same even stamp before
 * and after it has copied a slot has all of it. All words are read and written as atomics.
 *
 * A call's slot is written when it is posted. When the call ends, `ended_ns`, `code` and then
 * `state` are written in place. Times are of CLOCK_MONOTONIC. The library does not read the clock
 * for them, so they are exact to a few milliseconds.
 */
#ifndef HALAY_RECORD_H
#define HALAY_RECORD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HALAY_RECORD_MAGIC      UINT64_C(0x6463657279616c68) /* "halyrecd" */
#define HALAY_RECORD_VERSION    2
#define HALAY_RECORD_BYTES      65536
#define HALAY_RECORD_COMMS      128
#define HALAY_RECORD_VERDICTS   8
#define HALAY_RECORD_WAITS      16
#define HALAY_RECORD_CALLS      512  /* a power of two */
#define HALAY_RECORD_STACKS     3    /* of threads */
#define HALAY_RECORD_EDGES      8    /* that one wait names */
#define HALAY_RECORD_STEPS      3136 /* whose states one wait has room for */
#define HALAY_RECORD_AGREEMENTS 4
#define HALAY_RECORD_PLACES     4 /* where threads of the program have waited for long */
#define HALAY_RECORD_AWAITED    8 /* ranks that one agreement names */
#define HALAY_RECORD_NAME       "halay-record" /* of the memfd, and how names of files begin */

enum {                         /* head.state */
       HALAY_RECORD_GIVEN = 0, /* made by the launcher; no rank uses it yet */
       HALAY_RECORD_INIT,      /* in halay_init() */
       HALAY_RECORD_RUNS,
       HALAY_RECORD_FINALIZED,
       HALAY_RECORD_NO_INIT /* halay_init() has failed: a verdict says why */
};

/* The stack of a thread that has waited in a call for long: taken before it sleeps, and when a
 * communicator fails. */
typedef struct halay_record_stack {
    uint64_t stamp, taken_ns;
    int32_t thread;  /* its number, as gettid() gives it */
    uint32_t over;   /* 1: the thread does not sleep there any more */
    char text[1000]; /* a line a frame, the innermost first: "object(function+0x12)" or, for
                      * addr2line, "object+0x1234" */
} halay_record_stack_t;

enum { HALAY_RECORD_AGREE = 1, HALAY_RECORD_SHRINK };

typedef struct halay_record_agreement { /* a call of halay_comm_agree() or halay_comm_shrink() */
    uint64_t stamp, comm, began_ns, ended_ns; /* ended_ns 0: it has not ended */
    uint32_t number, what; /* number of the agreement on its communicator; HALAY_RECORD_* */
    uint32_t nawaited, rest;
    int32_t awaited[HALAY_RECORD_AWAITED]; /* ranks of the job: the first ones */
} halay_record_agreement_t;

enum {                           /* place.in */
       HALAY_RECORD_IN_CALL = 1, /* of the table of calls */
       HALAY_RECORD_IN_RECV,
       HALAY_RECORD_IN_PROBE,
       HALAY_RECORD_IN_SEND
};

typedef struct halay_record_place {           /* a wait of the program that has taken long */
    uint64_t stamp, comm, began_ns, ended_ns; /* ended_ns 0: it has not ended */
    uint64_t call;                            /* IN_CALL: its number */
    uint64_t bytes; /* of a message; of a receive: for which it has room */
    uint32_t in;    /* HALAY_RECORD_IN_* */
    int32_t peer;   /* of a message: rank of the job; -1: any */
    int32_t rank;   /* the same in the communicator */
    int32_t tag;    /* -1: any */
    char name[24];  /* of the function that the program has called, if that is known */
} halay_record_place_t;

typedef struct halay_record_head {
    uint64_t magic;
    uint32_t version, bytes;
    uint32_t head_bytes, ncomms, comm_bytes, nverdicts, verdict_bytes;
    uint32_t nwaits, wait_bytes, ncalls, call_bytes;
    int32_t rank, nranks; /* in the job; -1 and 0: not known yet */
    int32_t node;         /* of the rank: a number; -1: not known */
    int32_t pid;          /* 0: no rank uses the record yet */
    uint32_t state;       /* HALAY_RECORD_* */
    uint32_t sleeping;    /* threads that wait in the library, and have waited for long */
    uint32_t ended;       /* set by the launcher: 1 + waitpid()'s status; 0: it runs */
    uint32_t stopped;     /* set by the launcher: 1 if it was stopped when another rank failed */
    uint64_t began_ns;
    uint64_t epoch_ns; /* this added to a time is the time since 1970 */
    char job[64], host[64];
    uint32_t nstacks, stack_bytes;
    halay_record_agreement_t agreements[HALAY_RECORD_AGREEMENTS];
    int32_t started; /* set by the launcher: pid that it has started for the rank, or 0 */
    char unused[4];
    halay_record_place_t places[HALAY_RECORD_PLACES];
    char rest[1024 - 248 - HALAY_RECORD_AGREEMENTS * sizeof(halay_record_agreement_t) -
              HALAY_RECORD_PLACES * sizeof(halay_record_place_t)];
    halay_record_stack_t stacks[HALAY_RECORD_STACKS];
} halay_record_head_t;

typedef struct halay_record_comm {
    uint64_t stamp, id;
    int32_t rank, nranks;  /* in it */
    int32_t first, stride; /* its rank r is rank first + r * stride of the job; stride 0: not so */
    uint64_t rest[4];
} halay_record_comm_t;

typedef struct halay_record_verdict {
    uint64_t stamp, comm, told_ns;
    uint32_t sequence;
    int32_t code, cause, rank, other; /* ranks of the communicator, or -1 */
    uint32_t broken;                  /* the communicator is */
    char text[464];
} halay_record_verdict_t;

typedef struct halay_record_edge { /* a step that has started and is not done */
    uint32_t step, kind;           /* HALAY_STEP_* */
    int32_t peer;                  /* rank of the job; -1: none, a device */
    uint32_t rank;                 /* the same in the communicator */
    uint32_t edge;                 /* of the message, in the plan */
} halay_record_edge_t;

enum {                             /* of a step; two bits each in wait.steps */
       HALAY_RECORD_WAITS_FOR = 0, /* a step before it */
       HALAY_RECORD_STARTED = 2,
       HALAY_RECORD_DONE = 3
};

/* How far a call was when its rank had waited for long, was about to sleep, or saw it fail. */
typedef struct halay_record_wait {
    uint64_t stamp, call, comm, plan, seen_ns; /* call: its number; plan: hash */
    uint32_t sequence, planner, root, in_place;
    uint32_t nsteps, ndone;      /* of the segment */
    uint32_t segment, nsegments; /* a long call runs its plan on one after the other */
    uint32_t failed;             /* the call had failed */
    uint32_t nedges;
    halay_record_edge_t edges[HALAY_RECORD_EDGES]; /* the first ones */
    uint8_t steps[HALAY_RECORD_STEPS / 4];
} halay_record_wait_t;

enum { /* call.state */
       HALAY_RECORD_POSTED = 1,
       HALAY_RECORD_COMPLETE,
       HALAY_RECORD_FAILED
};

enum { /* call.flags; others are the library's own */
       HALAY_RECORD_IN_PLACE = 1,
       HALAY_RECORD_VECTOR = 2, /* the v form */
       HALAY_RECORD_PAIR = 4,   /* send or receive: a broadcast from rank 0 to rank 1 of two */
       HALAY_RECORD_LIST = 8,   /* halay_comm_from_ranks(): a barrier; _split(): an allgather */
       HALAY_RECORD_GROUP = 128 /* the barrier before a group of calls */
};

typedef struct halay_record_call {
    uint64_t stamp, comm;
    uint64_t count;
    uint32_t root;
    uint8_t what; /* the collective in bits 0 to 4, HALAY_MEMORY_* in the others */
    uint8_t type, op, flags;
    uint64_t plan; /* hash; 0: none */
    uint32_t sequence;
    uint8_t state, code; /* code: minus the result */
    uint16_t rest;
    uint64_t started_ns, ended_ns;
} halay_record_call_t;

typedef struct halay_record {
    halay_record_head_t head;
    halay_record_comm_t comms[HALAY_RECORD_COMMS];
    halay_record_verdict_t verdicts[HALAY_RECORD_VERDICTS];
    halay_record_wait_t waits[HALAY_RECORD_WAITS];
    halay_record_call_t calls[HALAY_RECORD_CALLS];
} halay_record_t;

/* Fills the constants of the head. */
static inline void halay_record_format(halay_record_head_t *head)
{
    head->version = HALAY_RECORD_VERSION;
    head->bytes = HALAY_RECORD_BYTES;
    head->head_bytes = sizeof(halay_record_head_t);
    head->ncomms = HALAY_RECORD_COMMS;
    head->comm_bytes = sizeof(halay_record_comm_t);
    head->nverdicts = HALAY_RECORD_VERDICTS;
    head->verdict_bytes = sizeof(halay_record_verdict_t);
    head->nwaits = HALAY_RECORD_WAITS;
    head->wait_bytes = sizeof(halay_record_wait_t);
    head->ncalls = HALAY_RECORD_CALLS;
    head->call_bytes = sizeof(halay_record_call_t);
    head->nstacks = HALAY_RECORD_STACKS;
    head->stack_bytes = sizeof(halay_record_stack_t);
    head->rank = head->node = -1;
    __atomic_store_n(&head->magic, HALAY_RECORD_MAGIC, __ATOMIC_RELEASE);
}

/* Writes a slot: its words except for the stamp come from `from`, a slot too. Each store of a word
 * is a release, so the odd stamp is seen before any of them. */
static inline void halay_record_write(void *slot, const void *from, size_t bytes, uint64_t number)
{
    uint64_t *to = (uint64_t *)slot;
    const uint64_t *word = (const uint64_t *)from;
    __atomic_store_n(to, 2 * number + 1, __ATOMIC_RELAXED);
    for (size_t i = 1; i < bytes / sizeof(*to); i++)
        __atomic_store_n(&to[i], word[i], __ATOMIC_RELEASE);
    __atomic_store_n(to, 2 * number, __ATOMIC_RELEASE);
}

/* Copies a slot. 0: the slot was never used, was written meanwhile, or its writer died while it
 * wrote. */
static inline int halay_record_copy(const void *slot, void *copy, size_t bytes)
{
    const uint64_t *from = (const uint64_t *)slot;
    uint64_t *to = (uint64_t *)copy;
    for (int tries = 0; tries < 100; tries++) {
        to[0] = __atomic_load_n(from, __ATOMIC_ACQUIRE);
        if (!to[0])
            return 0;
        for (size_t i = 1; i < bytes / sizeof(*to); i++)
            to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
        if (!(to[0] & 1) && __atomic_load_n(from, __ATOMIC_RELAXED) == to[0])
            return 1;
    }
    return 0;
}

#ifdef __cplusplus
}
#endif
#endif
