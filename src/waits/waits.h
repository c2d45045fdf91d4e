/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.h - which ranks a call waits for, what is known of each from its answers and from /proc,
 * and when the next notice is due: docs/decisions/agreements.md#0080. Pure functions: the caller
 * passes the time, sends the questions, and looks at processes.
 */
#ifndef HLY_WAITS_H
#define HLY_WAITS_H

#include <stdbool.h>
#include <stdint.h>

/* ---------------------------------------------------------------- notices */

#define HLY_FIRST_NOTICE_NS 1000000000ull /* if nobody sets another time (HALAY_STALL) */

/* The first notice is due after first_ns. The time between two notices doubles. */
struct hly_notices {
    uint64_t since_ns,
        first_ns;   /* when the wait began; after how long the first is due, 0: never */
    uint32_t given; /* notices that were due so far */
};

/* When the next notice is due; UINT64_MAX: never. */
uint64_t hly_notices_due_ns(const struct hly_notices *notices);
/* Is a notice due? If so, counts it as given, and earlier ones that the caller has missed. */
bool hly_notices_give(struct hly_notices *notices, uint64_t now_ns);

/* ---------------------------------------------------------------- ranks */

#define HLY_AWAITED_MOST 8             /* ranks that one wait asks, so that it needs few links */
#define HLY_AGAIN_NS     1000000000ull /* between two questions to a rank that answers */
#define HLY_SILENT_NS    400000000ull  /* a rank that does not answer for so long is silent */
#define HLY_FRESH_NS     3000000000ull /* older answers and reports do not count any more */

enum hly_doing {                    /* the state of a process, from /proc */
                 HLY_DOING_UNKNOWN, /* nothing can be read there */
                 HLY_DOING_RUNS,
                 HLY_DOING_SLEEPS,
                 HLY_DOING_DISK, /* waits for a device, and cannot be interrupted */
                 HLY_DOING_STOPPED
};

enum hly_seen {                       /* messages have these values beside those of hly_doing */
                HLY_SEEN_BEHIND = 16, /* the rank says that it has not made this call */
                HLY_SEEN_HERE,        /* the rank says that it has made this call */
                HLY_SEEN_BEHIND_BY,   /* another rank says that it has not made this call */
                HLY_SEEN_CYCLE        /* in a REPLY: these ranks wait for each other */
};

struct hly_awaited {      /* what this rank knows of another one, for which a call waits */
    uint32_t rank;        /* 1 + the rank; 0: this entry is free */
    bool awaited;         /* the call waits for it now; else another rank has reported it missing */
    uint8_t says;         /* enum hly_seen; 0: nothing is known about this call yet */
    uint8_t doing;        /* enum hly_doing, at seen_ns */
    uint32_t calls;       /* if it has not made this call: how many calls it had made */
    int64_t pid;          /* its process; 0: not known here */
    uint64_t asked_ns;    /* time of the question that it has not answered; 0: none is open */
    uint64_t heard_ns;    /* when it last answered; 0: not during this call */
    uint64_t reported_ns; /* when another rank last reported it missing; 0: never */
    uint64_t seen_ns;     /* when `doing` was seen */
    uint64_t stopped_ns;  /* for how long looks have shown its process stopped */
    struct hly_helper {   /* a rank of its node, which looks at its process for this rank */
        uint32_t rank;    /* 1 + the helper; 0: there is none */
        uint32_t tried;   /* helpers that did not answer */
        uint64_t asked_ns; /* time of the question that the helper has not answered; 0: none */
    } helper;
};

/* The waits of one call. */
struct hly_waits {
    struct hly_notices notices; /* the wait began when the call last made progress */
    struct hly_awaited awaited[HLY_AWAITED_MOST];
};

/* Begins the wait of another call. Open questions stay open: a rank answers all of them when it
 * makes a Halay call again. */
void hly_waits_begin(struct hly_waits *waits, uint64_t since_ns, uint64_t first_ns);
/* The entry of a rank; NULL: nothing is known of it. */
struct hly_awaited *hly_waits_find(struct hly_waits *waits, int rank);
/* The same, or makes an entry for the rank; NULL: all entries are in use. */
struct hly_awaited *hly_waits_add(struct hly_waits *waits, int rank);
/* Marks all ranks as not awaited; the caller then adds those that the call waits for now. Frees
 * entries of ranks without answers or reports for long. */
void hly_waits_none(struct hly_waits *waits, uint64_t now_ns);

bool hly_awaited_is_silent(const struct hly_awaited *awaited, uint64_t now_ns);
/* Should a notice name the rank? It does not answer, or it waits in another call. */
bool hly_awaited_is_missing(const struct hly_awaited *awaited, uint64_t now_ns);
/* The rank, or another one, says that it has not made this call. */
bool hly_awaited_is_behind(const struct hly_awaited *awaited, uint64_t now_ns);
/* Has the rank answered about this call, less than HLY_FRESH_NS ago? */
bool hly_awaited_is_fresh(const struct hly_awaited *awaited, uint64_t now_ns);
bool hly_waits_any_missing(const struct hly_waits *waits, uint64_t now_ns);

/* Is a question to the rank due, again_ns after its last answer? If so, counts it as asked. */
bool hly_awaited_ask(struct hly_awaited *awaited, uint64_t again_ns, uint64_t now_ns);
/* Is a question to the rank's helper due? *lost: there is no helper, or it has not answered; the
 * caller takes the next rank of that node. */
bool hly_awaited_ask_helper(const struct hly_awaited *awaited, uint64_t now_ns, bool *lost);
/* The rank has answered. here: it has made the call; calls: how many it has made. */
void hly_awaited_answers(struct hly_awaited *awaited, bool here, uint32_t calls, uint64_t now_ns);
/* Its helper has answered. Another rank reports it missing; seen: enum hly_doing or hly_seen. */
void hly_awaited_helped(struct hly_awaited *awaited, uint8_t doing, int64_t pid, uint64_t now_ns);
void hly_awaited_reported(struct hly_awaited *awaited, uint32_t seen, uint32_t calls,
                          uint64_t now_ns);
/* This rank, or a helper, has looked at the rank's process. */
void hly_awaited_see(struct hly_awaited *awaited, uint8_t doing, uint64_t now_ns);

#endif
