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
    uint64_t since_ns, first_ns; /* when the wait began; first_ns 0: no notices */
    uint32_t given;
};

/* When the next one is due; UINT64_MAX: never. */
uint64_t hly_notices_due_ns(const struct hly_notices *notices);
/* Is a notice due? If so, counts it as given, with earlier ones that were missed. */
bool hly_notices_give(struct hly_notices *notices, uint64_t now_ns);

/* ---------------------------------------------------------------- ranks */

#define HLY_AWAITED_MOST 8             /* ranks that one wait asks: few connections */
#define HLY_AGAIN_NS     1000000000ull /* between two questions to a rank that answers */
#define HLY_SILENT_NS    400000000ull  /* a rank that does not answer for so long is silent */
#define HLY_FRESH_NS     3000000000ull /* older answers and reports do not count any more */

enum hly_doing { /* the state of a process, from /proc */
                 HLY_DOING_UNKNOWN,
                 HLY_DOING_RUNS,
                 HLY_DOING_SLEEPS,
                 HLY_DOING_DISK, /* waits for a device, and cannot be interrupted */
                 HLY_DOING_STOPPED
};

enum hly_seen {                       /* further values: what a rank says of itself */
                HLY_SEEN_BEHIND = 16, /* it is in another Halay call, and has not made this one */
                HLY_SEEN_HERE,        /* it has made this call */
                HLY_SEEN_BEHIND_BY    /* another rank says that it is behind */
};

struct hly_awaited {
    uint32_t rank;         /* 1 + it; 0: free */
    bool awaited;          /* this rank's call waits for it */
    uint8_t says;          /* enum hly_seen; 0: nothing about this call yet */
    uint8_t doing;         /* enum hly_doing, as last seen */
    uint32_t calls;        /* if it is behind: how many calls it had made */
    int64_t pid;           /* 0: not known here */
    uint64_t asked_ns;     /* time of the question that it has not answered; 0: none is open */
    uint64_t heard_ns;     /* when it last answered; 0: not in this call */
    uint64_t reported_ns;  /* when another rank said last that it is missing; 0: never */
    uint64_t seen_ns;      /* when `doing` was seen */
    uint64_t stopped_ns;   /* how long it has been stopped, as far as looks tell */
    struct hly_helper {    /* a rank of its node, which looks at its process for this rank */
        uint32_t rank;     /* 1 + it; 0: none */
        uint32_t tried;    /* helpers that did not answer */
        uint64_t asked_ns; /* as above */
    } helper;
};

/* The waits of one call. */
struct hly_waits {
    struct hly_notices notices; /* since the call made progress last */
    struct hly_awaited awaited[HLY_AWAITED_MOST];
};

/* Begins the wait of another call, or of one that made progress. Open questions stay open: a rank
 * that is late answers all of them. */
void hly_waits_begin(struct hly_waits *waits, uint64_t since_ns, uint64_t first_ns);
/* NULL: nothing is known of that rank. */
struct hly_awaited *hly_waits_find(struct hly_waits *waits, int rank);
/* The same, or makes an entry for the rank; NULL: all entries are in use. */
struct hly_awaited *hly_waits_add(struct hly_waits *waits, int rank);
/* Marks all ranks as not awaited; the caller then adds those that the call waits for now. Frees
 * entries of ranks that were not heard of for long. */
void hly_waits_none(struct hly_waits *waits, uint64_t now_ns);

bool hly_awaited_is_silent(const struct hly_awaited *awaited, uint64_t now_ns);
/* Should a notice name the rank? It does not answer, or it waits in another call. */
bool hly_awaited_is_missing(const struct hly_awaited *awaited, uint64_t now_ns);
/* The rank is in another Halay call, and has not made this one. */
bool hly_awaited_is_behind(const struct hly_awaited *awaited, uint64_t now_ns);
/* Has the rank answered about this call, less than HLY_FRESH_NS ago? */
bool hly_awaited_is_fresh(const struct hly_awaited *awaited, uint64_t now_ns);
bool hly_waits_any_missing(const struct hly_waits *waits, uint64_t now_ns);

/* Is a question to the rank due? If so, counts it as asked. */
bool hly_awaited_ask(struct hly_awaited *awaited, uint64_t now_ns);
/* Is a question to the rank's helper due? *lost: there is no helper, or it has not answered: take
 * the next rank of that node. */
bool hly_awaited_ask_helper(const struct hly_awaited *awaited, uint64_t now_ns, bool *lost);
/* The rank has answered; its helper has; another rank reports it missing (`seen`: hly_doing or
 * hly_seen). */
void hly_awaited_answers(struct hly_awaited *awaited, bool here, uint32_t calls, uint64_t now_ns);
void hly_awaited_helped(struct hly_awaited *awaited, uint8_t doing, int64_t pid, uint64_t now_ns);
void hly_awaited_reported(struct hly_awaited *awaited, uint32_t seen, uint32_t calls,
                          uint64_t now_ns);
/* This rank, or a helper, has looked at the rank's process. */
void hly_awaited_see(struct hly_awaited *awaited, uint8_t doing, uint64_t now_ns);

#endif
