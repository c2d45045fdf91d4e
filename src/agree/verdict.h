/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - a verdict: why a call has failed, equal on all its ranks; and which of two verdicts
 * wins. */
#ifndef HLY_AGREE_VERDICT_H
#define HLY_AGREE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The arguments of a call that must be equal on all ranks. Every header has them, so that Halay can
 * print both sides of a mismatch. */
struct hly_call_desc {
    uint64_t count;
    uint32_t root;
    uint8_t collective : 5;
    uint8_t memory : 3; /* HALAY_MEMORY_*: of its buffers */
    uint8_t type;
    uint8_t op;
    uint8_t flags; /* HLY_CALL_* */
};

/* Why a call has failed. DEVICE wins over all other causes. Then a verdict wins since which ranks
 * are out of step (`of`), and then the one with the smaller cause. */
enum hly_cause {
    HLY_CAUSE_PEER = 1, /* a process has ended, or cannot be reached */
    HLY_CAUSE_BUILD,    /* ranks have different builds of Halay */
    HLY_CAUSE_SETTINGS, /* ranks have different settings */
    HLY_CAUSE_ARGUMENT, /* a wrong argument */
    HLY_CAUSE_STATE,    /* a call that is not allowed now */
    HLY_CAUSE_MISMATCH, /* ranks have made different calls */
    HLY_CAUSE_DEVICE,   /* a device that cannot be stopped: memory may still change */
    HLY_CAUSE_LOCAL,    /* an error of one rank: memory, plan, transport, device */
    HLY_CAUSE_REVOKED,  /* the program has revoked the communicator */
    HLY_CAUSE_STOPPED,  /* a process is stopped. With this cause and later ones no rank has an error
                         */
    HLY_CAUSE_ABSENT,   /* a rank has not made the call, or hangs */
    HLY_CAUSE_DEADLOCK, /* ranks wait for each other, each in another call; none is to blame */
    HLY_CAUSE_UNCALLED, /* a rank answers that it has not made the call */
    HLY_CAUSE_LATE,     /* a rank made the call when others had ended it with an error */
    HLY_CAUSE_DEADLINE  /* the call's deadline has passed, and nothing else is known */
};

/* How many ranks a verdict can list that were called absent and are present. */
#define HLY_PRESENT_MAX 8
/* How many dead ranks a verdict can list. If there are more, each rank knows those that it has a
 * link to. */
#define HLY_GONE_MAX 8

/* A verdict as messages carry it. Every rank makes the same text of it. Two verdicts may be equal
 * although their lists of ranks and their stamps differ. */
struct hly_verdict_wire {
    uint32_t cause;                  /* enum hly_cause; 0: no verdict */
    int32_t code;                    /* the result of the call: HALAY_E* */
    int32_t rank;                    /* the rank at fault, or -1 */
    int32_t other;                   /* the second rank of a mismatch or of a cut link, or -1 */
    struct hly_call_desc call;       /* the call as `rank` has made it */
    struct hly_call_desc other_call; /* the call as `other` has made it */
    uint64_t of; /* 1 + number of the call since which ranks are out of step; 0: they are in step */
    char host[64];                     /* where `rank` runs */
    char other_host[64];               /* where `other` runs */
    char detail[256];                  /* evidence, as text */
    uint32_t present[HLY_PRESENT_MAX]; /* list: 1 + rank, called absent and heard of since */
    uint32_t gone[HLY_GONE_MAX];       /* list: 1 + rank, dead */
    uint64_t stamp; /* 1 + the ballot in which a coordinator has proposed it; 0: none has */
};

/* Whether the calls of a communicator fail, because ranks are lost or out of step. */
struct hly_broken {
    bool is;        /* every later call fails */
    bool agreed;    /* the ranks have decided `by`: calls need no agreement any more */
    uint32_t since; /* if agreed: number of the first call that ends with `by` */
    struct hly_verdict_wire by;
};

/* Does this call end with what the ranks have agreed on? */
static inline bool hly_broken_ends(const struct hly_broken *broken, uint32_t sequence)
{
    return broken->agreed && (int32_t)(sequence - broken->since) >= 0;
}

/* Later calls fail with this verdict, unless an earlier one is noted. True: none was. */
bool hly_broken_note(struct hly_broken *broken, const struct hly_verdict_wire *verdict);
/* The ranks have decided this verdict, with which calls end from verdict->of on. */
void hly_broken_agree(struct hly_broken *broken, const struct hly_verdict_wire *verdict);

/* Does a win over b? */
bool hly_verdict_better(const struct hly_verdict_wire *a, const struct hly_verdict_wire *b);
/* After the agreement: empties the lists of ranks and the stamp. */
void hly_verdict_drop_lists(struct hly_verdict_wire *verdict);

#endif
