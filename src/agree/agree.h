/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - one agreement of a group of ranks, as functions of a state and an event: no clock, no
 * transport, no memory of its own, no log. agree.c says how it goes, docs/explored.md what was
 * explored of it. Its user hands over events, sends what the sink is given, and keeps one timer.
 */
#ifndef HLY_AGREE_AGREE_H
#define HLY_AGREE_AGREE_H

#include "agree/message.h"
#include "agree/sets.h"

struct hly_agreement_message {
    enum hly_agree_what what;
    int call; /* what the sender has called it for: not 0 */
    int32_t flag, code;
    uint32_t ballot; /* 1 + the coordinator that has proposed this value; 0: it is a contribution */
    const uint64_t *failed, *without; /* sets: known to have failed; left out of the value */
};

enum { /* the sets of a state */
       HLY_SET_FAILED,
       HLY_SET_ABSENT, /* those of them that this rank itself has found silent */
       HLY_SET_HEARD,  /* their contributions are here */
       HLY_SET_TAKEN,  /* they have taken what this rank has proposed */
       HLY_SET_WITHOUT,
       HLY_SETS
};

struct hly_agreement {
    int nranks, rank;
    int call;           /* what ranks have called it for; 0: none has yet */
    int voted_to;       /* the coordinator that has this rank's contribution, or -1 */
    bool entered;       /* the program has called here */
    bool decided;       /* the value is decided */
    bool left_out;      /* the others go on without this rank */
    bool leads;         /* this rank coordinates: all before it have failed */
    bool proposed;      /* and has proposed the value */
    bool late;          /* and waits for silent ranks no more */
    bool wait_anew;     /* an event wants the timer to be due after the deadline from now on */
    int32_t flag, code; /* of the contributions so far */
    uint32_t ballot;    /* 1 + the coordinator that has proposed the value; 0: none has */
    int32_t value_flag, value_code;
    uint64_t set[]; /* HLY_SETS of them, one after the other */
};

struct hly_agreement_sink { /* gets the messages of an event, in their order */
    void (*send)(void *arg, int to, const struct hly_agreement_message *message);
    void *arg;
};

static inline size_t hly_agreement_bytes(int nranks)
{
    return sizeof(struct hly_agreement) +
           (size_t)HLY_SETS * hly_set_words(nranks) * sizeof(uint64_t);
}

static inline const uint64_t *hly_agreement_set(const struct hly_agreement *a, int which)
{
    return a->set + (size_t)(unsigned)which * hly_set_words(a->nranks);
}

static inline bool hly_agreement_is_over(const struct hly_agreement *a)
{
    return a->decided || a->left_out;
}

/* `a` has hly_agreement_bytes(nranks). */
void hly_agreement_init(struct hly_agreement *a, int nranks, int rank);

/* The lowest rank that has not failed as far as this one knows. */
int hly_agreement_coordinator(const struct hly_agreement *a);
/* Is that rank told, if it speaks, that the others go on without it? */
bool hly_agreement_refuses(const struct hly_agreement *a, int rank);
/* Is that rank waited for? */
bool hly_agreement_awaits(const struct hly_agreement *a, int rank);
/* Can a peer have sent that? Others are not to be handed over. */
bool hly_agreement_is_sound(int nranks, const struct hly_agreement_message *m);

/* ---------------------------------------------------------------- events */

/* The program has called; `call` is not 0. This rank knows that one has failed; silent: it was
 * found so, and may live. After any number of these hly_agreement_go_on() has to follow. */
void hly_agreement_enter(struct hly_agreement *a, int call, int32_t flag);
void hly_agreement_note(struct hly_agreement *a, int rank, bool silent);
void hly_agreement_go_on(struct hly_agreement *a, const struct hly_agreement_sink *sink);
void hly_agreement_heard(struct hly_agreement *a, int from, const struct hly_agreement_message *m,
                         const struct hly_agreement_sink *sink);
/* The timer is due: the awaited rank counts as failed. */
void hly_agreement_late(struct hly_agreement *a, const struct hly_agreement_sink *sink);
/* A coordinator says again that it waits; who hears of it does not find it silent. */
void hly_agreement_ask_one(const struct hly_agreement *a, int rank,
                           const struct hly_agreement_sink *sink);
void hly_agreement_ask(const struct hly_agreement *a, const struct hly_agreement_sink *sink);

#endif
