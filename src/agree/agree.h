/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - one agreement of the survivors of a failure, as functions of a state and an event: no
 * clock, no transport, no memory of its own, no log. docs/agreements.md and agree.c have the
 * protocol, docs/explored.md says what was explored of it. The caller (src/fault/survivors.c)
 * passes events, sends the messages that the sink gets, and keeps one timer.
 */
#ifndef HLY_AGREE_AGREE_H
#define HLY_AGREE_AGREE_H

#include "agree/message.h"
#include "agree/sets.h"

struct hly_agreement_message {
    enum hly_agree_what what;
    int call; /* which function the sender's program has called (enum hly_consensus_call); not 0 */
    int32_t flag, code; /* of the value: AND of the flags; 0, or why the agreement fails */
    uint32_t ballot; /* 1 + the coordinator that has proposed this value; 0: a rank's own value */
    /* Sets of ranks: the sender knows that they have failed; the proposed value leaves them out. */
    const uint64_t *failed, *without;
};

enum {                  /* sets of ranks in a state */
       HLY_SET_FAILED,  /* this rank knows them to have failed, or has given them up */
       HLY_SET_ABSENT,  /* ranks of HLY_SET_FAILED that this rank itself has found silent */
       HLY_SET_HEARD,   /* this rank has their votes */
       HLY_SET_TAKEN,   /* they have accepted what this rank has proposed */
       HLY_SET_WITHOUT, /* the value leaves them out */
       HLY_SETS
};

struct hly_agreement {
    int nranks, rank;
    int call;      /* which function ranks have called (enum hly_consensus_call); 0: none has yet */
    int voted_to;  /* the coordinator to which this rank has sent its vote, or -1 */
    bool entered;  /* the program has called the function on this rank */
    bool decided;  /* the value is decided */
    bool left_out; /* the others go on without this rank */
    bool leads;    /* this rank coordinates: all before it have failed */
    bool proposed; /* this rank, as the coordinator, has proposed the value */
    bool late;     /* the coordinator's time was over: it waits for silent ranks no longer */
    bool wait_anew;     /* for the caller: the timer is due one deadline after this event */
    int32_t flag, code; /* joined from the votes so far */
    uint32_t ballot;    /* 1 + the coordinator that has proposed the value; 0: there is no value */
    int32_t value_flag, value_code; /* of the accepted value */
    uint64_t set[];                 /* HLY_SETS sets, one after the other */
};

struct hly_agreement_sink { /* gets the messages that an event causes, in their order */
    void (*send)(void *arg, int to, const struct hly_agreement_message *message);
    void *arg;
};

/* The size of a struct hly_agreement with its sets. */
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
/* Does the rank get LEFT_OUT if it sends a message? */
bool hly_agreement_refuses(const struct hly_agreement *a, int rank);
/* Does this rank wait for that one? */
bool hly_agreement_awaits(const struct hly_agreement *a, int rank);
/* Is a message that a peer has sent valid? The caller drops others. */
bool hly_agreement_is_sound(int nranks, const struct hly_agreement_message *m);

/* ---------------------------------------------------------------- events */

/* The program has called the function `call` (not 0). hly_agreement_go_on() has to follow. */
void hly_agreement_enter(struct hly_agreement *a, int call, int32_t flag);
/* This rank has found that another one has failed. silent: that one may live. hly_agreement_go_on()
 * has to follow any number of these. */
void hly_agreement_note(struct hly_agreement *a, int rank, bool silent);
/* Does what follows from the state: votes; or, as the coordinator, proposes and decides. */
void hly_agreement_go_on(struct hly_agreement *a, const struct hly_agreement_sink *sink);
/* A message has come. */
void hly_agreement_heard(struct hly_agreement *a, int from, const struct hly_agreement_message *m,
                         const struct hly_agreement_sink *sink);
/* The timer is due: the awaited ranks count as failed. But a coordinator that has proposed decides
 * without them. */
void hly_agreement_late(struct hly_agreement *a, const struct hly_agreement_sink *sink);
/* The coordinator sends ASK again, to one rank or to all, so that no rank finds it silent. */
void hly_agreement_ask_one(const struct hly_agreement *a, int rank,
                           const struct hly_agreement_sink *sink);
void hly_agreement_ask(const struct hly_agreement *a, const struct hly_agreement_sink *sink);

#endif
