/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failing.h - how the ranks of a call that has failed agree on one verdict, as functions of a state
 * and an event. They read no clock, and have no transport, memory and log. docs/agreements.md and
 * failing.c have the protocol, docs/explored.md says what was explored of it. src/fault passes the
 * events, and sends the messages that the functions hand to hly_failing_view.send.
 */
#ifndef HLY_AGREE_FAILING_H
#define HLY_AGREE_FAILING_H

#include "agree/message.h"
#include "agree/sets.h"
#include "agree/verdict.h"

#define HLY_GRACE_NS     400000000ull  /* how long ranks wait for votes where one is dead */
#define HLY_GRACE_MAX_NS 2000000000ull /* where one is absent: at most */
/* A rank that was not scheduled for long has to read its messages before its time is over. So its
 * time is over after so many looks at the clock after the deadline. It polls between them. */
#define HLY_LATE_LOOKS 8

struct hly_voting {  /* what coordinator.c knows of the ballot */
    bool clocked;    /* another rank has said that the clock ends the agreement */
    bool probed;     /* as the coordinator, this rank has asked ranks that others call dead */
    bool asked;      /* as the coordinator, this rank has asked all */
    bool overdue;    /* this rank's time was over: it waits for no rank that has sent nothing */
    bool answers;    /* the coordinator has sent ASK: this rank has to vote, or to vote again */
    uint32_t ballot; /* the coordinator is rank ballot % nranks, the round is ballot / nranks */
    uint32_t warned; /* 1 + the ballot whose coordinator has got NEWS of a death; 0: none */
    uint32_t voted;  /* 1 + the ballot in which this rank has voted; 0: none */
};

enum hly_failing_set {            /* sets of ranks */
                       HLY_VOTED, /* this rank has their votes in this ballot */
                       HLY_TOOK,  /* ranks of HLY_VOTED whose verdict equals this rank's */
                       HLY_SPOKE, /* they have sent any message of this agreement */
                       HLY_FAILING_SETS
};

/* What one rank knows of the agreement on one call. The rank may not have made the call yet, and it
 * may have completed the call before it heard of the failure. */
struct hly_fault {
    bool entered;         /* this rank has made the call, and takes part in the agreement */
    bool slow;            /* a rank is dead or absent: deadline_ns ends the agreement */
    bool ready;           /* buffers are withdrawn, no older call is under way: this rank votes */
    bool final;           /* `verdict` is decided; or, in a completed call, the time is over */
    bool announced;       /* this rank has sent DECIDED, and ranks are in step */
    bool after;           /* the ranks had decided before this rank made the call */
    bool hurry;           /* src/fault has to ask silent ranks soon: hly_stall_hurry() */
    uint32_t looks;       /* looks at the clock after deadline_ns */
    int speaker;          /* 1 + the lowest rank known to be in the call: it logs the verdict */
    uint64_t deadline_ns; /* when this rank's time is over */
    uint64_t absent_ns;   /* when to name a silent neighbour as absent; UINT64_MAX: it was done */
    struct hly_voting voting;
    struct hly_verdict_wire verdict; /* the best verdict that is known; cause 0: none */
    struct hly_verdict_wire firm;    /* the best one that calls no rank absent; cause 0: none */
    uint64_t sets[];                 /* HLY_FAILING_SETS sets, one after the other */
};

#define HLY_TOLD_MOST 64 /* up to so many ranks, each rank may send to all others */

enum {                      /* what a rank knows of another one */
       HLY_RANK_DEAD = 1,   /* this rank has found it lost, or ranks have left it out */
       HLY_RANK_LINKED = 2, /* there is a link to it */
       HLY_RANK_CALLED = 4, /* one of the two has connected to the other, perhaps without success */
       HLY_RANK_LEFT = 8    /* it has sent LEAVES */
};

struct hly_failing_message {
    bool in_call; /* its sender has made the call */
    int from;
    uint32_t edge; /* the sender's ballot; of DECIDED: its `speaker` */
    enum hly_agree_what what;
};

struct hly_failing_view { /* what a function needs besides the state; made for each event */
    int nranks, rank;
    uint32_t sequence;    /* number of the call */
    bool made;            /* this rank has made the call, and it has not ended here */
    bool unconfirmed;     /* a relaxed broadcast: other ranks may have ended it without this one */
    int32_t timeout_code; /* the code of a verdict that names no rank */
    uint64_t now_ns;
    uint64_t deadline_ns;                /* how long calls on the communicator may take */
    unsigned (*is)(void *arg, int rank); /* returns HLY_RANK_* bits */
    void (*send)(void *arg, int to, const struct hly_failing_message *message,
                 const struct hly_verdict_wire *verdict);
    void *arg;
};
typedef const struct hly_failing_view hly_view_t;

/* ---------------------------------------------------------------- the control graph */

/* How many neighbours a rank sends to, and as many it hears from: ceil(log2 nranks). */
static inline uint32_t hly_failing_neighbours(int nranks)
{
    uint32_t rounds = 0;
    while ((UINT64_C(1) << rounds) < (uint64_t)nranks)
        rounds++;
    return rounds;
}

/* The rank 2^k after this one, and the rank 2^k before it. */
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

/* The size of a struct hly_fault with its sets. */
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

/* Does the verdict say that this rank is stopped? */
static inline bool hly_verdict_stops(const struct hly_verdict_wire *verdict, int rank)
{
    return verdict->cause == HLY_CAUSE_STOPPED && verdict->rank == rank;
}

/* Does the verdict say that some rank is dead or stopped? */
static inline bool hly_verdict_is_loss(const struct hly_verdict_wire *verdict)
{
    return verdict->cause == HLY_CAUSE_PEER || verdict->cause == HLY_CAUSE_STOPPED;
}

/* Does the verdict say that this rank is dead or stopped? Then no rank waits for it. */
bool hly_verdict_counts_out(const struct hly_verdict_wire *verdict, int rank);
/* Does the verdict say that some rank is absent? */
bool hly_held_is_claim(const struct hly_verdict_wire *verdict);
/* Was the rank called absent, and heard of since (hly_verdict_wire.present)? */
bool hly_held_is_present(const struct hly_fault *f, int rank);
/* Is the rank dead, or does this call's verdict call it dead or stopped? */
bool hly_held_is_gone(hly_view_t *v, const struct hly_fault *f, int rank);
/* Adds all ranks that this one knows to be dead to the verdict's list. True: some are new. */
bool hly_held_note_dead(hly_view_t *v, struct hly_fault *f);
/* Has the rank taken part, as far as this one knows? */
bool hly_held_is_heard(hly_view_t *v, const struct hly_fault *f, int rank);
/* This rank is in the call: it becomes the speaker if it is the lowest. */
void hly_held_note_speaker(struct hly_fault *f, int rank);
/* Replaces the verdict, except for its lists of ranks. Empties HLY_TOOK. */
void hly_held_set(hly_view_t *v, struct hly_fault *f, const struct hly_verdict_wire *verdict);
/* If the verdict calls a present rank absent: drops it, true. Timers look for absent ranks anew. */
bool hly_held_reconsider(hly_view_t *v, struct hly_fault *f);
/* Copies from one verdict into a better one since which call ranks are out of step. True: done. */
bool hly_held_share_call(hly_view_t *v, struct hly_verdict_wire *to,
                         const struct hly_verdict_wire *from);
/* Adopts a verdict of this or another rank if it is the first or a better one, and adds its lists
 * of ranks. True: something has changed that others should hear of. */
bool hly_held_adopt(hly_view_t *v, struct hly_fault *f, const struct hly_verdict_wire *theirs);

/* ---------------------------------------------------------------- coordinator.c */

/* Votes; or, as the coordinator, asks and proposes. True: this rank coordinates, and its verdict is
 * decided. late: the coordinator decides without the votes that are missing. */
bool hly_coordinator_decides(hly_view_t *v, struct hly_fault *f, bool late);
/* Does this rank wait for a vote or decision of that one? */
bool hly_coordinator_awaits(hly_view_t *v, const struct hly_fault *f, int rank);
/* Has every other rank voted in this rank's ballot? */
bool hly_coordinator_has_all(hly_view_t *v, const struct hly_fault *f);
/* This rank's time is over. True: it ends the agreement by itself. False: it has more time now, and
 * perhaps another coordinator. */
bool hly_coordinator_ends(hly_view_t *v, struct hly_fault *f);
/* Notes the vote and the ballot of a message whose verdict is not adopted yet. */
void hly_coordinator_heard(hly_view_t *v, struct hly_fault *f, const struct hly_failing_message *m);
/* After hly_held_adopt(): adds a voter whose verdict equals this rank's to HLY_TOOK. */
void hly_coordinator_compare(hly_view_t *v, struct hly_fault *f,
                             const struct hly_failing_message *m,
                             const struct hly_verdict_wire *theirs);

/* ---------------------------------------------------------------- failing.c: events */

/* This rank's call has failed: it takes part from now on. deadline_ns: the call's. over: the
 * verdict that the ranks have decided already, or NULL. */
void hly_failing_enter(hly_view_t *v, struct hly_fault *f, uint64_t deadline_ns,
                       const struct hly_verdict_wire *over);
/* This rank has completed the call, and takes part from now on. theirs: the verdict it got. */
void hly_failing_outlive(hly_view_t *v, struct hly_fault *f, const struct hly_verdict_wire *theirs);
/* A message of the agreement has come. True: this rank's verdict or its lists have changed. */
bool hly_failing_heard(hly_view_t *v, struct hly_fault *f, const struct hly_failing_message *m,
                       const struct hly_verdict_wire *theirs);
/* Sends NEWS, with this rank's verdict, to the control neighbours. */
void hly_failing_alarm(hly_view_t *v, const struct hly_fault *f);
/* A rank was found lost during the agreement. */
void hly_failing_lost(hly_view_t *v, struct hly_fault *f);
/* With a verdict of this cause some ranks may never vote: sets the deadline of the agreement. */
void hly_failing_by_time(hly_view_t *v, struct hly_fault *f, enum hly_cause cause);
/* The agreement waits for a rank that is stopped: sets an earlier deadline. */
void hly_failing_hurry(hly_view_t *v, struct hly_fault *f);
/* A look at the clock. deadline_ns: the call's. True: this rank has to name an absent rank now. */
bool hly_failing_look(hly_view_t *v, struct hly_fault *f, uint64_t deadline_ns);
/* May the neighbour 2^k before this rank be called absent? */
bool hly_failing_is_silent(hly_view_t *v, const struct hly_fault *f, uint32_t k);
/* This rank has found a rank absent: adopts this verdict if it is a better one. */
void hly_failing_name(hly_view_t *v, struct hly_fault *f, struct hly_verdict_wire *absent);
/* This rank has looked for absent ranks: sends BY_TIME. */
void hly_failing_named(hly_view_t *v, const struct hly_fault *f);
/* A look at the clock for a call that this rank has completed; hly_failing_help() has to follow. */
void hly_failing_look_alone(hly_view_t *v, struct hly_fault *f);
/* Goes on after the call has completed here. first: no older call is under way. over: the ranks
 * have decided. True: this rank has decided *agreed, as the coordinator. */
bool hly_failing_help(hly_view_t *v, struct hly_fault *f, bool first, bool over,
                      struct hly_verdict_wire *agreed);
/* Sends DECIDED to one rank; to all that have to hear it. f: NULL if this rank has no state. */
void hly_failing_tell(hly_view_t *v, struct hly_fault *f, int to,
                      const struct hly_verdict_wire *agreed);
void hly_failing_tell_all(hly_view_t *v, struct hly_fault *f,
                          const struct hly_verdict_wire *agreed);
/* This rank ends after an error of its own: sends LEAVES, with the reason. */
void hly_failing_leave(hly_view_t *v, const struct hly_verdict_wire *why);

/* ---------------------------------------------------------------- course.c: what follows */

enum hly_heard {                     /* what a message of a failed call is to this rank */
                 HLY_HEARD_NOTHING,  /* nothing follows from it */
                 HLY_HEARD_IN_STEP,  /* its verdict is decided; ranks are in step */
                 HLY_HEARD_AGREED,   /* its verdict is decided; ranks are out of step */
                 HLY_HEARD_QUESTION, /* its sender does not know yet which verdict is decided */
                 HLY_HEARD_OF_CALL,  /* a call that has not ended here, or was not made yet */
                 HLY_HEARD_AFTER     /* a call that this rank has completed, or ended */
};
/* Classifies a message. f: NULL if this rank has no state. complete: the call has ended here. */
enum hly_heard hly_failing_sort(hly_view_t *v, struct hly_fault *f, const struct hly_broken *broken,
                                const struct hly_failing_message *m,
                                const struct hly_verdict_wire *theirs, bool complete);
/* Handles HLY_HEARD_AFTER. True: later calls fail with another verdict than before. */
bool hly_failing_heard_after(hly_view_t *v, struct hly_fault *f, struct hly_broken *broken,
                             const struct hly_failing_message *m,
                             const struct hly_verdict_wire *theirs);
/* This rank has found the failure `mine`. True: hly_failing_enter() has to follow. */
bool hly_failing_raise(hly_view_t *v, struct hly_fault *f, const struct hly_verdict_wire *mine);
enum hly_given {                 /* which of the call's data another rank has sent to this one */
                 HLY_GIVEN_NONE, /* its plan sends none to this rank */
                 HLY_GIVEN_PART, /* not all; or it has not read all that this rank sends to it */
                 HLY_GIVEN_ALL   /* all: it may have completed the call, and ended */
};
/* A rank is found dead while ranks agree on this call. Is its death a failure of the call? severed:
 * this rank itself has cut the link to it. */
bool hly_failing_blames(hly_view_t *v, const struct hly_fault *f, int rank, enum hly_given given,
                        bool severed);
/* Handles HLY_HEARD_IN_STEP: the call ends with this verdict. */
void hly_failing_end_in_step(struct hly_fault *f, const struct hly_verdict_wire *theirs);
/* The ranks have decided broken->by: the call ends with it. False: hly_failing_enter() follows. */
bool hly_failing_end_too(struct hly_fault *f, const struct hly_broken *broken);
/* Is this rank's time over, and does it end the agreement by itself? */
bool hly_failing_is_late(hly_view_t *v, struct hly_fault *f, const struct hly_broken *broken);

struct hly_failing_now { /* the state of a failing call */
    bool quiet;          /* its buffers are withdrawn, and no message of it is under way */
    bool late;           /* hly_failing_is_late() */
    bool first;          /* no older call is under way */
    bool older_fails;    /* an older call fails, too, and has to end first */
    bool unread;         /* messages may have come that this rank has not read */
};
enum hly_course {                   /* what the caller does next */
                  HLY_COURSE_WAITS, /* waits for the next event */
                  HLY_COURSE_READS, /* reads all messages: the call may have ended elsewhere */
                  HLY_COURSE_ENDS   /* ends the call: hly_failing_end() */
};
enum hly_course hly_failing_go_on(hly_view_t *v, struct hly_fault *f,
                                  const struct hly_broken *broken,
                                  const struct hly_failing_now *now);
enum hly_end {                    /* how a failing call ends on this rank */
               HLY_END_IN_STEP,   /* ranks are in step: later calls may end well */
               HLY_END_AS_AGREED, /* ranks are out of step, and the others know the verdict */
               HLY_END_AGREES,    /* ranks are out of step: the caller sends this verdict to all */
               HLY_END_ALONE      /* ranks are out of step: the others may have another verdict */
};
/* Fills in the verdict with which the call ends. */
enum hly_end hly_failing_end(hly_view_t *v, struct hly_fault *f, struct hly_broken *broken,
                             struct hly_verdict_wire *verdict);

#endif
