/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failing.h - how the ranks of a call that has failed agree on one verdict, as functions of a state
 * and an event: they read no clock, and have no transport, memory and log. failing.c says how it
 * goes, docs/explored.md what was explored of it. src/fault hands over the events, and sends what
 * the view is given.
 */
#ifndef HLY_AGREE_FAILING_H
#define HLY_AGREE_FAILING_H

#include "agree/message.h"
#include "agree/sets.h"
#include "agree/verdict.h"

#define HLY_GRACE_NS     400000000ull /* for all to learn of a dead or absent rank */
#define HLY_GRACE_MAX_NS 2000000000ull
/* A rank that was not scheduled for long must read what came meanwhile before its time is up. So
 * the end takes so many looks at the clock, and it polls between them. */
#define HLY_LATE_LOOKS 8

struct hly_voting { /* coordinator.c: one rank coordinates */
    bool clocked;   /* to another rank the clock ends it */
    bool probed;    /* this rank coordinates, and has asked who is called dead by others */
    bool asked;     /* and all */
    bool overdue;   /* the clock has gone by here: those that have not spoken are not waited for */
    bool answers;   /* the coordinator has asked: this rank votes again */
    uint32_t
        ballot; /* its coordinator is this modulo the ranks; the clock went by this / ranks times */
    uint32_t warned; /* 1 + the ballot whose coordinator this rank has told of the death; 0: none */
    uint32_t voted;  /* 1 + the one in which this rank has voted; 0: none */
};

enum hly_failing_set {            /* of ranks */
                       HLY_VOTED, /* their votes of this ballot are here */
                       HLY_TOOK,  /* of those, who holds this rank's verdict */
                       HLY_SPOKE, /* they have sent anything of this agreement */
                       HLY_FAILING_SETS
};

/* The agreement on one call, as far as this rank is in it: it has made the call, and perhaps has
 * completed it before it heard of the failure. */
struct hly_fault {
    bool entered;         /* this rank has made the call, so it takes part in the agreement */
    bool slow;            /* someone is dead or absent: the clock ends it */
    bool ready;           /* its buffers are withdrawn, and no older call fails: it votes */
    bool final;           /* the verdict is one that others have agreed on already; or this rank
                             has completed the call, and waits no longer */
    bool announced;       /* this rank has told the others that all are in step */
    bool after;           /* it was agreed on before this rank made the call */
    bool hurry;           /* the event wants to know soon what silent ranks do */
    uint32_t looks;       /* looks at the clock since the deadline */
    int speaker;          /* 1 + the lowest rank heard that is in the call: it logs the verdict */
    uint64_t deadline_ns; /* when it ends anyway */
    uint64_t absent_ns;   /* when a silent neighbour is called absent; UINT64_MAX: one was */
    struct hly_voting voting;
    struct hly_verdict_wire verdict; /* the best one heard; cause 0: none */
    struct hly_verdict_wire firm;    /* and the best that calls nobody absent */
    uint64_t sets[];                 /* HLY_FAILING_SETS of them, a bit a rank */
};

#define HLY_TOLD_MOST 64 /* ranks of a communicator in which each tells each */

enum {                      /* what a rank knows of another one */
       HLY_RANK_DEAD = 1,   /* it is lost here */
       HLY_RANK_LINKED = 2, /* this rank has had a link to it */
       HLY_RANK_CALLED = 4, /* one of the two has called the other one */
       HLY_RANK_LEFT = 8    /* it has said why it leaves */
};

struct hly_failing_message {
    bool in_call; /* its sender has made the call */
    int from;
    uint32_t edge; /* the ballot; of CONCLUDED: 1 + the speaker */
    enum hly_agree_what what;
};

struct hly_failing_view { /* what an event finds around the state */
    int nranks, rank;
    uint32_t sequence;    /* of the call */
    bool made;            /* this rank is in it: it has made it, and not ended it */
    bool unconfirmed;     /* other ranks may have ended it without this one */
    int32_t timeout_code; /* of a verdict that names nobody */
    uint64_t now_ns;
    uint64_t deadline_ns;                /* of the communicator's calls */
    unsigned (*is)(void *arg, int rank); /* HLY_RANK_* */
    void (*send)(void *arg, int to, const struct hly_failing_message *message,
                 const struct hly_verdict_wire *verdict);
    void *arg;
};
typedef const struct hly_failing_view hly_view_t;

/* ---------------------------------------------------------------- the control graph */

static inline uint32_t hly_failing_neighbours(int nranks)
{
    uint32_t rounds = 0;
    while ((UINT64_C(1) << rounds) < (uint64_t)nranks)
        rounds++;
    return rounds;
}

static inline int hly_failing_to(hly_view_t *v, uint32_t k)
{
    return (int)(((uint64_t)v->rank + (UINT64_C(1) << k)) % (uint64_t)v->nranks);
}

static inline int hly_failing_from(hly_view_t *v, uint32_t k)
{
    const uint64_t n = (uint64_t)v->nranks;
    return (int)(((uint64_t)v->rank + n - (UINT64_C(1) << k) % n) % n);
}

/* ---------------------------------------------------------------- sets of ranks */

/* A struct hly_fault has so many, with its sets. */
static inline size_t hly_failing_bytes(int nranks)
{
    return sizeof(struct hly_fault) +
           (size_t)HLY_FAILING_SETS * hly_set_words(nranks) * sizeof(uint64_t);
}

static inline bool hly_failing_has(hly_view_t *v, const struct hly_fault *f,
                                   enum hly_failing_set set, int rank)
{
    return hly_set_has(f->sets + (size_t)set * hly_set_words(v->nranks), rank);
}

/* ---------------------------------------------------------------- held.c: the verdict held */

static inline bool hly_is_dead(hly_view_t *v, int rank)
{
    return v->is(v->arg, rank) & HLY_RANK_DEAD;
}

static inline bool hly_held_is_any(const struct hly_fault *f)
{
    return f->verdict.cause != 0;
}

static inline bool hly_verdict_stops(const struct hly_verdict_wire *verdict, int rank)
{
    return verdict->cause == HLY_CAUSE_STOPPED && verdict->rank == rank;
}

/* That a rank is dead, or stopped. */
static inline bool hly_verdict_is_loss(const struct hly_verdict_wire *verdict)
{
    return verdict->cause == HLY_CAUSE_PEER || verdict->cause == HLY_CAUSE_STOPPED;
}

/* Does the verdict say it of this rank? Then nobody waits for it. */
bool hly_verdict_counts_out(const struct hly_verdict_wire *verdict, int rank);
bool hly_held_is_claim(const struct hly_verdict_wire *verdict); /* that a rank is absent */
bool hly_held_is_present(const struct hly_fault *f, int rank);
/* Is the rank dead, or does this call's verdict count it out? */
bool hly_held_is_gone(hly_view_t *v, const struct hly_fault *f, int rank);
/* All that this rank knows to be dead. True: it is news. */
bool hly_held_note_dead(hly_view_t *v, struct hly_fault *f);
/* Has the rank taken part, as far as this one knows? */
bool hly_held_is_heard(hly_view_t *v, const struct hly_fault *f, int rank);
void hly_held_note_speaker(struct hly_fault *f, int rank);
void hly_held_set(hly_view_t *v, struct hly_fault *f, const struct hly_verdict_wire *verdict);
/* Drops a verdict that calls a present rank absent; the timers look for absent ranks anew. */
bool hly_held_reconsider(hly_view_t *v, struct hly_fault *f);
bool hly_held_share_call(hly_view_t *v, struct hly_verdict_wire *to,
                         const struct hly_verdict_wire *from);
/* Takes a verdict over if it is the first or a better one. True: others should hear of it. */
bool hly_held_adopt(hly_view_t *v, struct hly_fault *f, const struct hly_verdict_wire *theirs);

/* ---------------------------------------------------------------- coordinator.c */

/* Goes on with it. True: this rank coordinates, and all others that live have voted; or it is late.
 */
bool hly_coordinator_decides(hly_view_t *v, struct hly_fault *f, bool late);
/* Does this rank wait for that one's message? */
bool hly_coordinator_awaits(hly_view_t *v, const struct hly_fault *f, int rank);
/* Has every other rank voted in this rank's ballot? */
bool hly_coordinator_has_all(hly_view_t *v, const struct hly_fault *f);
/* The clock has passed: does this rank end it by itself? Else it has more time now. */
bool hly_coordinator_ends(hly_view_t *v, struct hly_fault *f);
void hly_coordinator_heard(hly_view_t *v, struct hly_fault *f, const struct hly_failing_message *m);
/* A message of it has come, and its verdict was adopted, or was not the better one. */
void hly_coordinator_compare(hly_view_t *v, struct hly_fault *f,
                             const struct hly_failing_message *m,
                             const struct hly_verdict_wire *theirs);
/* Tells those whom it concerns that this is agreed on. f: NULL if this rank was not in it. */

/* ---------------------------------------------------------------- failing.c: events */

/* This rank enters: its call, which ends at that deadline, has failed. over: others have agreed
 * already, on that; or NULL. */
void hly_failing_enter(hly_view_t *v, struct hly_fault *f, uint64_t deadline_ns,
                       const struct hly_verdict_wire *over);
/* And so does one that has completed the call. */
void hly_failing_outlive(hly_view_t *v, struct hly_fault *f, const struct hly_verdict_wire *theirs);
/* An ALARM has come. True: another verdict is held now. */
bool hly_failing_heard(hly_view_t *v, struct hly_fault *f, const struct hly_failing_message *m,
                       const struct hly_verdict_wire *theirs);
/* Tells the neighbours what this rank holds. */
void hly_failing_alarm(hly_view_t *v, const struct hly_fault *f);
/* Someone is lost. */
void hly_failing_lost(hly_view_t *v, struct hly_fault *f);
void hly_failing_by_time(hly_view_t *v, struct hly_fault *f, enum hly_cause cause);
/* It waits for a rank that is stopped: the clock ends it soon. */
void hly_failing_hurry(hly_view_t *v, struct hly_fault *f);
/* A look at the clock; the call's own deadline. True: this rank is to say who is absent. */
bool hly_failing_look(hly_view_t *v, struct hly_fault *f, uint64_t deadline_ns);
/* May the neighbour 2^k before this rank be called absent? */
bool hly_failing_is_silent(hly_view_t *v, const struct hly_fault *f, uint32_t k);
/* This one is, as far as this rank knows. */
void hly_failing_name(hly_view_t *v, struct hly_fault *f, struct hly_verdict_wire *absent);
/* This rank has named those that are. */
void hly_failing_named(hly_view_t *v, const struct hly_fault *f);
/* A look at the clock without a call; then hly_failing_help() has to follow. */
void hly_failing_look_alone(hly_view_t *v, struct hly_fault *f);
/* Goes on without a call. first: no older call is under way. True: *agreed is. */
bool hly_failing_help(hly_view_t *v, struct hly_fault *f, bool first, bool over,
                      struct hly_verdict_wire *agreed);
/* Tells one rank. f: NULL if this rank was not in it. */
void hly_failing_tell(hly_view_t *v, struct hly_fault *f, int to,
                      const struct hly_verdict_wire *agreed);
void hly_failing_tell_all(hly_view_t *v, struct hly_fault *f,
                          const struct hly_verdict_wire *agreed);
/* This rank ends, after an error of its own, and will make no call: `why` says so. */
void hly_failing_leave(hly_view_t *v, const struct hly_verdict_wire *why);

/* ---------------------------------------------------------------- course.c: what follows */

enum hly_heard { /* what a message of a failed call is to this rank */
                 HLY_HEARD_NOTHING,
                 HLY_HEARD_IN_STEP,  /* the same, and all were in the call */
                 HLY_HEARD_AGREED,   /* the others have agreed on its verdict */
                 HLY_HEARD_QUESTION, /* its sender does not know yet that they have */
                 HLY_HEARD_OF_CALL,
                 HLY_HEARD_AFTER /* of a call that this rank has completed, or ended */
};
/* f: NULL if this rank knows nothing of the call's failure; complete: it has ended the call. */
enum hly_heard hly_failing_sort(hly_view_t *v, struct hly_fault *f, const struct hly_broken *broken,
                                const struct hly_failing_message *m,
                                const struct hly_verdict_wire *theirs, bool complete);
/* HLY_HEARD_AFTER, of one that takes part in the agreement. True: later calls fail with another
 * verdict than before. */
bool hly_failing_heard_after(hly_view_t *v, struct hly_fault *f, struct hly_broken *broken,
                             const struct hly_failing_message *m,
                             const struct hly_verdict_wire *theirs);
/* This rank has found a failure itself. True: it has to enter. */
bool hly_failing_raise(hly_view_t *v, struct hly_fault *f, const struct hly_verdict_wire *mine);
enum hly_given {                 /* what of the call's data the other rank has given this one */
                 HLY_GIVEN_NONE, /* it gives none */
                 HLY_GIVEN_PART, /* or has not taken all of this one's */
                 HLY_GIVEN_ALL   /* it may have completed the call, and ended */
};
/* A rank is found dead. Is that a failure of this call, whose agreement is under way? severed: this
 * end has cut the link to it. */
bool hly_failing_blames(hly_view_t *v, const struct hly_fault *f, int rank, enum hly_given given,
                        bool severed);
/* HLY_HEARD_IN_STEP: the call ends with this. */
void hly_failing_end_in_step(struct hly_fault *f, const struct hly_verdict_wire *theirs);
/* It has been agreed on. False: this rank has to enter. */
bool hly_failing_end_too(struct hly_fault *f, const struct hly_broken *broken);
/* Its time is up. */
bool hly_failing_is_late(hly_view_t *v, struct hly_fault *f, const struct hly_broken *broken);

struct hly_failing_now {
    bool quiet;       /* the call's buffers are withdrawn */
    bool late;        /* hly_failing_is_late() */
    bool first;       /* no older call is under way: it may decide how this one ends */
    bool older_fails; /* so that one ends first */
    bool unread;      /* messages may have come that this rank has not read */
};
enum hly_course {
    HLY_COURSE_WAITS,
    HLY_COURSE_READS, /* first, for others may have ended it without this rank */
    HLY_COURSE_ENDS
};
enum hly_course hly_failing_go_on(hly_view_t *v, struct hly_fault *f,
                                  const struct hly_broken *broken,
                                  const struct hly_failing_now *now);
enum hly_end {
    HLY_END_IN_STEP,   /* later calls may be well */
    HLY_END_AS_AGREED, /* ranks are out of step, and know that */
    HLY_END_AGREES,    /* they are: all are to be told of this verdict */
    HLY_END_ALONE      /* they are: it is what this rank knows */
};
/* The verdict with which the call ends. */
enum hly_end hly_failing_end(hly_view_t *v, struct hly_fault *f, struct hly_broken *broken,
                             struct hly_verdict_wire *verdict);

#endif
