/* SPDX-License-Identifier: Apache-2.0 */
/*
 * news.h - what wire/ and exec/ leave for the folders above them. hly_hand_on() (run/progress.c)
 * hands it on, in order, after each event of a transport. So nobody calls upwards, and no function
 * has to expect that a request ends while it works on it. News are handed on before the mutex is
 * released: so no request is released and made anew while news of it wait.
 */
#ifndef HLY_NEWS_H
#define HLY_NEWS_H

#include "wire/endpoint.h"

enum hly_news_kind {
    /* for exec/ */
    HLY_NEWS_LANDED = 1, /* a RECV step's message is there; value: so is its reduction */
    HLY_NEWS_SENT,       /* a SEND step's memory may be written again */
    HLY_NEWS_BACK,       /* the last message that only the call's end waits for has left */
    HLY_NEWS_LEAVE,      /* a LEAVE message (exec/relaxed.h): header */
    HLY_NEWS_INVITE,     /* an INVITE message (exec/device_comm.h): header, invitation */
    /* for fault/ */
    HLY_NEWS_QUIET,     /* a message, target or piece of work of a failing call has ended */
    HLY_NEWS_REFUSED,   /* the call starts, and fails at once */
    HLY_NEWS_FAILED,    /* an error of this rank: value is the code; text */
    HLY_NEWS_MISMATCH,  /* header is of a call that differs from this rank's */
    HLY_NEWS_MISFIT,    /* a message of `other` bytes, where `value` are expected */
    HLY_NEWS_UNKEPT,    /* no memory for a message that came before its call: comm, sequence */
    HLY_NEWS_VERDICT,   /* an ALARM or REVOKE message: header, verdict */
    HLY_NEWS_CONSENSUS, /* a CONSENSUS message: header, consensus */
    HLY_NEWS_HELLO,     /* value: settings differ; 0: builds do: header, hello */
    HLY_NEWS_ASKED, /* a QUERY, REPLY or MISSING message: header; value: how many `blocked` follow
                     */
    HLY_NEWS_LOST,  /* a peer is lost: peer */
    HLY_NEWS_TRANSPORT_LOST, /* a transport has failed: text says why */
    /* for run/ */
    HLY_NEWS_MADE,      /* comm is made; its orphans (match.h) are to be matched */
    HLY_NEWS_MATCHED,   /* a receive has found its message, which is not here whole, or does not fit
                         */
    HLY_NEWS_TAKEN,     /* a sent message is received: header */
    HLY_NEWS_UNPLANNED, /* the call has started, and has no plan yet */
    HLY_NEWS_COMPLETE   /* a call that reports its end is complete */
};

struct hly_news {
    struct hly_link link; /* context->news */
    enum hly_news_kind kind;
    halay_comm_t *comm;
    halay_request_t *request; /* or NULL. Stale, if it has another sequence number by now */
    uint32_t sequence;
    uint32_t step;
    int64_t value;
    uint64_t other;
    struct hly_peer *peer;
    struct hly_header header;
    union {
        struct hly_verdict_wire verdict;
        struct hly_hello hello;
        struct hly_consensus_wire consensus;
        struct hly_invitation invitation;
        struct hly_blocked blocked[HLY_BLOCKED_MOST];
        char text[256];
    };
};

/* Makes the lists, and news in stock. */
int hly_news_init(halay_context_t *context);
/* Appends news of this kind about the request, which may be NULL. value, other, step (NONE), peer
 * and text are empty; the header and the rest of the union are not set. NULL: no memory, which is
 * logged. */
struct hly_news *hly_news_leave(halay_context_t *context, enum hly_news_kind kind,
                                halay_request_t *request);
/* Keeps memory for COMPLETE of one more member of a group of calls: the group has no deadline of
 * its own, and would wait for ever without it. The second gives it back, of a member that never
 * ran. */
int hly_news_reserve(halay_context_t *context);
void hly_news_unreserve(halay_context_t *context);
struct hly_news *hly_news_take(halay_context_t *context); /* NULL: there are none */
void hly_news_done(halay_context_t *context, struct hly_news *news);
void hly_news_free(halay_context_t *context);
/* Leaves FAILED, and stops the request; text as printf. */
void hly_news_fail(halay_request_t *request, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool hly_news_any(const halay_context_t *context)
{
    return !hly_link_empty(&context->news);
}

#endif
