/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - why a call has failed, as all its ranks are told, and which of two reasons wins. */
#ifndef HLY_AGREE_VERDICT_H
#define HLY_AGREE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What all ranks must have alike. It is in every header, so that both sides of a mismatch can be
 * printed. */
struct hly_call_desc {
    uint64_t count;
    uint32_t root;
    uint8_t collective : 5;
    uint8_t memory : 3; /* HALAY_MEMORY_*: of its buffers */
    uint8_t type;
    uint8_t op;
    uint8_t flags; /* HLY_CALL_* */
};

/* The verdict with the smaller cause wins; but DEVICE over all. */
enum hly_cause {
    HLY_CAUSE_PEER = 1, /* a process has ended, or cannot be reached */
    HLY_CAUSE_BUILD,
    HLY_CAUSE_SETTINGS,
    HLY_CAUSE_ARGUMENT,
    HLY_CAUSE_STATE,
    HLY_CAUSE_MISMATCH,
    HLY_CAUSE_DEVICE,   /* a device that cannot be stopped: memory may still change */
    HLY_CAUSE_LOCAL,    /* an error of one rank: memory, plan, transport, device */
    HLY_CAUSE_REVOKED,  /* the program has revoked the communicator */
    HLY_CAUSE_STOPPED,  /* a process is stopped; from here on nobody has failed, but does not answer
                         */
    HLY_CAUSE_ABSENT,   /* a rank has not made the call, or hangs */
    HLY_CAUSE_DEADLOCK, /* ranks wait for each other, each in another call; none is to blame */
    HLY_CAUSE_UNCALLED, /* a rank answers that it has not made the call */
    HLY_CAUSE_LATE,     /* a rank made it when others had given it up */
    HLY_CAUSE_DEADLINE
};

/* Ranks of one call that may be named as present after they were called absent. */
#define HLY_PRESENT_MAX 8
/* Dead ranks that verdicts carry. Of more, each rank knows those that it has a link to. */
#define HLY_GONE_MAX 8

/* A verdict as it travels. Every rank makes the same text of it. */
struct hly_verdict_wire {
    uint32_t cause;
    int32_t code;
    int32_t rank; /* the rank at fault, or -1 */
    int32_t other;
    struct hly_call_desc call;       /* of `rank` */
    struct hly_call_desc other_call; /* of `other` */
    /* 1 + the number of the call since which ranks are out of step; 0: they are in step. */
    uint64_t of;
    char host[64];
    char other_host[64];
    char detail[256];
    /* 1 + ranks that were called absent and have been heard of since. Not compared. */
    uint32_t present[HLY_PRESENT_MAX];
    uint32_t gone[HLY_GONE_MAX]; /* 1 + ranks that are dead. Not compared */
    uint64_t
        stamp; /* 1 + the ballot in which a coordinator has proposed it; 0: none. Not compared */
};

/* A communicator of which ranks are lost, or out of step. */
struct hly_broken {
    bool is;        /* every later call fails */
    bool agreed;    /* `by` is the verdict of all ranks; no agreement is needed any more */
    uint32_t since; /* if agreed: the first call that ends with it */
    struct hly_verdict_wire by;
};

/* Does this call end with what the ranks have agreed on? */
static inline bool hly_broken_ends(const struct hly_broken *broken, uint32_t sequence)
{
    return broken->agreed && (int32_t)(sequence - broken->since) >= 0;
}

/* The first verdict counts. True: it was this one. */
bool hly_broken_note(struct hly_broken *broken, const struct hly_verdict_wire *verdict);
void hly_broken_agree(struct hly_broken *broken, const struct hly_verdict_wire *verdict);

bool hly_verdict_better(const struct hly_verdict_wire *a, const struct hly_verdict_wire *b);
/* The lists of ranks that are present or dead serve the agreement only. */
void hly_verdict_drop_lists(struct hly_verdict_wire *verdict);

#endif
