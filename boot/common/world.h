/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - one meeting, as functions of a state and an event: who asks to be in the next world,
 * whom the others wait for, and who is told what. No clock, no sockets, no memory of its own, no
 * log.
 *
 * Its holder hands over events, and after each of them, and when hly_worlds_due_ns says so, does
 * what hly_worlds_next says until there is nothing to do. docs/agreements.md says what was
 * explored.
 */
#ifndef HALAY_BOOT_WORLD_H
#define HALAY_BOOT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "../../src/waits/waits.h"

enum { HLY_BOOT_LOST_RUNS = 16 };

struct hly_boot_lost { /* ranks of the last epoch; first > last: none */
    uint32_t first, last;
};

/*
 * A place is that of one process, from its start to its end:
 *   FREE -> STARTED -> ASKING <-> IN -> ENDED, from each of them to ENDED
 * ASKING: its hello is here. IN: it has been answered, and is in the world of `epoch`.
 */
enum hly_place_state {
    HLY_PLACE_FREE = 0,
    HLY_PLACE_STARTED,
    HLY_PLACE_ASKING,
    HLY_PLACE_IN,
    HLY_PLACE_ENDED
};

struct hly_place {
    enum hly_place_state state;
    bool member;      /* of the last world; false: a newcomer */
    bool leaves;      /* the last world, and will not ask: its process is about to end */
    bool reported;    /* its launcher knows that others call it lost */
    bool lost;        /* it has not asked for too long: the others meet without it */
    bool was_refused; /* by the last answer */
    bool stopped;     /* as its holder has seen it last; where a list is made: not to come */
    bool condemned;  /* the others meet without it, or cannot for it has another one's place, and it
                        lives: the launcher is to kill it, */
    bool doomed;     /* and was told so */
    int rank;        /* in the last world */
    uint8_t id[16];  /* of the process that has asked last */
    uint64_t end_ns; /* when it is to hear who is missing */
    uint64_t unfit_ns; /* it was seen stopped, or called lost, since then, while others wait for it;
                          0: not */
    struct hly_boot_lost calls_lost[HLY_BOOT_LOST_RUNS];
};

enum hly_worlds_cause {
    HLY_CAUSE_NONE = 0,
    HLY_CAUSE_BROKEN,  /* the holder has said why: hly_worlds_break */
    HLY_CAUSE_TWIN,    /* two processes have the same place, in a job that meets once */
    HLY_CAUSE_LEFT,    /* the process of `place` has left before that */
    HLY_CAUSE_ENDED,   /* the process of `place` has ended, and all are needed */
    HLY_CAUSE_FAILED,  /* that of `place` lives, and will not ask */
    HLY_CAUSE_MISSING, /* the time of those that ask is over, and some are missing */
    HLY_CAUSE_OVER,    /* a newcomer: the job ends */
    HLY_CAUSE_EXPIRED  /* a newcomer: the others have not met again in its time */
};

enum hly_worlds_what {
    HLY_WORLDS_REPORT = 1, /* those that ask call the process of `place` lost */
    HLY_WORLDS_REFUSE,     /* answer `place` with a text */
    HLY_WORLDS_REFUSE_ALL, /* answer all that ask with one text, then hly_worlds_refused */
    HLY_WORLDS_TABLE,      /* answer order[0 .. n - 1] with the table, then hly_worlds_joined */
    HLY_WORLDS_LIST,       /* order[0 .. n - 1] is the list: who comes later is not on it */
    HLY_WORLDS_LOOK,  /* hly_worlds_seen, hly_worlds_failed of those that hly_worlds_is_absent */
    HLY_WORLDS_GO_ON, /* say that the others go on without those that are awaited */
    HLY_WORLDS_NOTICE /* say who is missing */
};

struct hly_worlds_action {
    enum hly_worlds_what what;
    enum hly_worlds_cause cause;
    int place;
};

struct hly_worlds {
    int nplaces;
    int least; /* processes in a world; 0: all of them, in each, at the rank of their place */
    uint64_t patience_ns; /* for how long one that others wait for may be stopped */
    bool once;        /* there is one meeting, and of an end only the connection's is seen: one that
                         leaves, or a second process of a place, breaks it */
    bool closed;      /* it has failed */
    bool listed;      /* the list is closed, */
    uint64_t list_ns; /* which is made if this is not 0: of those that ask, when nobody else is seen
                         to come, but not before this time. They ask until hly_worlds_joined; who is
                         not on it says so (leaves, or comes late), and is a world of its own */
    int *order;       /* nplaces: by rank, its place in the table that is made */
    int n;            /* so many ranks has that */
    uint64_t epoch;   /* of the last world; 0: there was none */
    enum hly_worlds_cause broken; /* there will be no world */
    int leaver;                   /* the place that has left such a meeting; -1: none */
    int failed;                   /* a place, while its failure is to be told; -1: none */
    int first_ended;              /* place; -1: none */
    int done;           /* 1 + a place whose process has left the last world with status 0 */
    int asking;         /* places */
    bool stale;         /* the times that follow are to be counted anew */
    int looked;         /* since the last look: 1; those that go on are named: 2; else 0 */
    uint64_t decide_ns; /* when those that ask are to hear who is missing; 0: none asks but
                           newcomers */
    uint64_t expire_ns; /* when the first of these has waited long enough; 0: there are none */
    uint64_t look_ns;   /* when to look again */
    struct hly_notices notices; /* since the first of those that ask does so */
    struct hly_place place[];
};

void hly_worlds_init(struct hly_worlds *w, int nplaces, int least, int *order);

/* ---------------------------------------------------------------- events */

/* A place has been brought, and nobody is in it; its process starts; it has ended, well or not. */
void hly_worlds_bring(struct hly_worlds *w, int place);
void hly_worlds_start(struct hly_worlds *w, int place);
void hly_worlds_end(struct hly_worlds *w, int place, bool well);

struct hly_worlds_hello {
    const uint8_t *id; /* 16 bytes: of the process */
    uint64_t epoch;    /* that it was in last; 0: none */
    uint64_t left_ns;  /* until its deadline */
    const struct hly_boot_lost *lost;
    bool leaves; /* it wants to be in no world any more */
};
enum hly_hello {
    HLY_HELLO_TAKEN = 1, /* it asks from now on */
    HLY_HELLO_MAY_GO,    /* the others need not wait for its end, which may take long */
    HLY_HELLO_NOBODY,    /* no process has this place */
    HLY_HELLO_LATE,      /* the only meeting is over */
    HLY_HELLO_TWIN       /* another process has it */
};
enum hly_hello hly_worlds_hello(struct hly_worlds *w, int place,
                                const struct hly_worlds_hello *hello, uint64_t now);
/* Those that ask at a and b, which has come later, cannot be in one world. Returns which of them is
 * refused; -1: the meeting is broken. */
int hly_worlds_differ(struct hly_worlds *w, int a, int b);
/* The connection of one that asks has ended. */
void hly_worlds_left(struct hly_worlds *w, int place);
void hly_worlds_seen(struct hly_worlds *w, int place, bool stopped);
void hly_worlds_failed(struct hly_worlds *w, int place);
void hly_worlds_break(struct hly_worlds *w);

/* ---------------------------------------------------------------- what to do */

/* False: nothing, until the next event, or the time that hly_worlds_due_ns says. */
bool hly_worlds_next(struct hly_worlds *w, uint64_t now, struct hly_worlds_action *action);
/* All that asked have been refused; have got the table of `epoch`, which is one more. */
void hly_worlds_refused(struct hly_worlds *w);
void hly_worlds_joined(struct hly_worlds *w);
/* UINT64_MAX: never. */
uint64_t hly_worlds_due_ns(const struct hly_worlds *w);
/* The process of a place is to be killed: says so once. */
bool hly_worlds_condemned(struct hly_worlds *w, int *place);

/* ---------------------------------------------------------------- what there is */

bool hly_worlds_is_static(const struct hly_worlds *w); /* as many ranks in each world */
/* It asks to be in the next world, and the last one goes on without it. */
bool hly_worlds_is_newcomer(const struct hly_worlds *w, int place);
/* The next world waits for it; it lives, and does not ask: awaited, or unusable for those that do.
 */
bool hly_worlds_is_awaited(const struct hly_worlds *w, int place);
bool hly_worlds_is_absent(const struct hly_worlds *w, int place);
int hly_worlds_asking(const struct hly_worlds *w);
int hly_worlds_waiting(const struct hly_worlds *w);
int hly_worlds_newcomers(const struct hly_worlds *w);
/* Processes that have neither got a table, nor a refusal, nor left. */
int hly_worlds_untold(const struct hly_worlds *w);

#endif
