/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.h - who is awaited, as far as asking and looking have told, and when the next notice is
 * due: docs/decisions/agreements.md#0080. Pure: its caller gives it the time, sends what it asks
 * for, and looks.
 */
#ifndef HLY_WAITS_H
#define HLY_WAITS_H

#include <stdbool.h>
#include <stdint.h>

/* ---------------------------------------------------------------- notices */

#define HLY_FIRST_NOTICE_NS 1000000000ull /* if nobody sets another time (HALAY_STALL) */

/* The first notice comes after a time of its own, and each later one after twice the time. */
struct hly_notices {
    uint64_t since_ns, first_ns; /* what waits does so since then; first_ns 0: no notices */
    uint32_t given;
};

/* When the next one is due; UINT64_MAX: never. */
uint64_t hly_notices_due_ns(const struct hly_notices *notices);
/* Is one due? It counts as given, and so do those that were missed. */
bool hly_notices_give(struct hly_notices *notices, uint64_t now_ns);

/* ---------------------------------------------------------------- ranks */

#define HLY_AWAITED_MOST 8             /* ranks: no wait connects to very many */
#define HLY_AGAIN_NS     1000000000ull /* between two questions, if they are answered */
#define HLY_SILENT_NS    400000000ull  /* who has not answered for so long is silent */
#define HLY_FRESH_NS     3000000000ull /* what was told longer ago counts no more */

enum hly_doing { /* what a process is seen to do */
                 HLY_DOING_UNKNOWN,
                 HLY_DOING_RUNS,
                 HLY_DOING_SLEEPS,
                 HLY_DOING_DISK, /* waits for a device, and cannot be interrupted */
                 HLY_DOING_STOPPED
};

enum hly_seen {                       /* beyond enum hly_doing, what a rank itself says */
                HLY_SEEN_BEHIND = 16, /* it is in Halay, and has not made this call */
                HLY_SEEN_HERE,        /* it has */
                HLY_SEEN_BEHIND_BY    /* another rank says that it is behind */
};

struct hly_awaited {
    uint32_t rank;         /* 1 + it; 0: free */
    bool awaited;          /* by this rank's call */
    uint8_t says;          /* enum hly_seen; 0: nothing about this call yet */
    uint8_t doing;         /* enum hly_doing, as last seen */
    uint32_t calls;        /* if it is behind: that it had made */
    int64_t pid;           /* 0: not known here */
    uint64_t asked_ns;     /* when, by the question that it has not answered; 0: there is none */
    uint64_t heard_ns;     /* when it last answered; 0: not in this call */
    uint64_t reported_ns;  /* when another rank said last that it is missing; 0: never */
    uint64_t seen_ns;      /* when `doing` was seen */
    uint64_t stopped_ns;   /* for so long, without an end, as far as looks tell */
    struct hly_helper {    /* a rank of its node that is asked about it */
        uint32_t rank;     /* 1 + it; 0: none */
        uint32_t tried;    /* without an answer */
        uint64_t asked_ns; /* as above */
    } helper;
};

/* The waits of one call. */
struct hly_waits {
    struct hly_notices notices; /* since the call has moved on */
    struct hly_awaited awaited[HLY_AWAITED_MOST];
};

/* Another call, or one that begins to wait. Questions that are open stay so: who comes late answers
 * all. */
void hly_waits_begin(struct hly_waits *waits, uint64_t since_ns, uint64_t first_ns);
/* NULL: nothing is known of that rank. */
struct hly_awaited *hly_waits_find(struct hly_waits *waits, int rank);
/* The same, or a free entry for it; NULL: there are so many already. */
struct hly_awaited *hly_waits_add(struct hly_waits *waits, int rank);
/* No rank is awaited until the next news. Of whom nothing was heard for long the entry is free.
 */
void hly_waits_none(struct hly_waits *waits, uint64_t now_ns);

bool hly_awaited_is_silent(const struct hly_awaited *awaited, uint64_t now_ns);
/* Is it to be named in a notice? Who is behind in Halay waits in another call. */
bool hly_awaited_is_missing(const struct hly_awaited *awaited, uint64_t now_ns);
/* It is in Halay, and has not made this call. */
bool hly_awaited_is_behind(const struct hly_awaited *awaited, uint64_t now_ns);
/* Has it said something about this call that still counts? */
bool hly_awaited_is_fresh(const struct hly_awaited *awaited, uint64_t now_ns);
bool hly_waits_any_missing(const struct hly_waits *waits, uint64_t now_ns);

/* Is it to be asked now? The question counts as asked. */
bool hly_awaited_ask(struct hly_awaited *awaited, uint64_t now_ns);
/* Is its helper to be asked now? lost: it has not answered, or there is none: take the next one. */
bool hly_awaited_ask_helper(const struct hly_awaited *awaited, uint64_t now_ns, bool *lost);
/* It has answered; its helper has; another rank reports it missing: seen as in a message. */
void hly_awaited_answers(struct hly_awaited *awaited, bool here, uint32_t calls, uint64_t now_ns);
void hly_awaited_helped(struct hly_awaited *awaited, uint8_t doing, int64_t pid, uint64_t now_ns);
void hly_awaited_reported(struct hly_awaited *awaited, uint32_t seen, uint32_t calls,
                          uint64_t now_ns);
/* A look at its process. */
void hly_awaited_see(struct hly_awaited *awaited, uint8_t doing, uint64_t now_ns);

#endif
