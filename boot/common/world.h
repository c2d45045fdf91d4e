/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - decides one meeting, as functions of a state and an event. A *world* is the set of
 * ranks of one epoch, as MPI_COMM_WORLD is. The functions know which processes ask to be in the
 * next world, for which ones the others wait, and which answer each gets. They have no clock,
 * sockets, memory of their own, or log.
 *
 * The holder of the meeting passes events. After each event, and at the time hly_worlds_due_ns, it
 * does the actions that hly_worlds_next returns, until there are none. docs/meetings.md says
 * which states halay-prove has explored.
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
 * A place is the slot of one process, from its start to its end:
 *   FREE -> STARTED -> ASKING <-> IN -> ENDED, from each of them to ENDED
 * ASKING: its hello has come, and it waits for an answer. IN: it has got the table of `epoch`.
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
    bool member;      /* it is in the last world; false: a newcomer */
    bool leaves;      /* it has said that it leaves: it will not ask again */
    bool reported;    /* HLY_WORLDS_REPORT was returned for it */
    bool lost;        /* the others do not wait for it any more */
    bool was_refused; /* its last answer was a refusal */
    bool stopped;     /* the holder has seen it stopped; for a list: not coming */
    /* it lives, and the others meet without it, or wait for another process in its place: the
     * launcher has to kill it */
    bool condemned;
    bool doomed;     /* it was condemned, also after hly_worlds_condemned() */
    int rank;        /* in the last world */
    uint8_t id[16];  /* of the process that has asked last */
    uint64_t end_ns; /* when it gets an answer at the latest */
    /* since when it is stopped or called lost, while others wait for it; 0: it is not */
    uint64_t unfit_ns;
    struct hly_boot_lost calls_lost[HLY_BOOT_LOST_RUNS];
};

enum hly_worlds_cause {
    HLY_CAUSE_NONE = 0,
    /* hly_worlds_break, or processes that cannot be in one job; the holder has the reason */
    HLY_CAUSE_BROKEN,
    HLY_CAUSE_TWIN,    /* two processes have the same place, in a job that meets once */
    HLY_CAUSE_LEFT,    /* the process of `place` has left such a job before the meeting */
    HLY_CAUSE_ENDED,   /* the process of `place` has ended, and all are needed */
    HLY_CAUSE_FAILED,  /* that of `place` lives, and will not ask */
    HLY_CAUSE_MISSING, /* the time of the asking processes is over, and others are missing */
    HLY_CAUSE_OVER,    /* a newcomer: the job ends */
    HLY_CAUSE_EXPIRED  /* a newcomer: the others have not met again in its time */
};

enum hly_worlds_what {
    HLY_WORLDS_REPORT = 1, /* tell the launcher that asking processes call that of `place` lost */
    HLY_WORLDS_REFUSE,     /* answer `place` with a text */
    HLY_WORLDS_REFUSE_ALL, /* answer all that ask with one text, then hly_worlds_refused */
    HLY_WORLDS_TABLE,      /* answer order[0 .. n - 1] with the table, then hly_worlds_joined */
    HLY_WORLDS_LIST,       /* order[0 .. n - 1] is the node's list: later ranks are not on it */
    HLY_WORLDS_LOOK,       /* look at each absent process; report with _seen and _failed */
    HLY_WORLDS_GO_ON,      /* log that the others go on without the awaited processes */
    HLY_WORLDS_NOTICE      /* log which processes are missing */
};

struct hly_worlds_action {
    enum hly_worlds_what what;
    enum hly_worlds_cause cause;
    int place;
};

struct hly_worlds {
    int nplaces;
    int least;           /* fewest processes of a world; 0: a static job, always all */
    uint64_t timeout_ns; /* how long an awaited process may be stopped */
    /* there is one meeting, whose holder sees connections, not processes: a guest that leaves, or a
     * second process of a place, breaks it */
    bool once;
    bool closed; /* this only meeting has failed */
    bool listed; /* the list (list_ns) is closed */
    /* Not 0: the meeting makes a list of a node's ranks. It closes the list when no other rank is
     * seen to come, but not before this time. They ask until hly_worlds_joined. A rank that is not
     * on the list leaves, or asks late, and is a node of its own. */
    uint64_t list_ns;
    int *order;                   /* [nplaces] the next table: the place of each rank */
    int n;                        /* ranks in `order` */
    uint64_t epoch;               /* of the last world; 0: there was none */
    enum hly_worlds_cause broken; /* not NONE: why there will be no world */
    int leaver;      /* the place whose process has left such a meeting (once); -1: none */
    int failed;      /* a place whose failure the others have yet to hear; -1: none */
    int first_ended; /* place; -1: none */
    int done;        /* 1 + a place whose process has left the last world with status 0 */
    int asking;      /* places */
    bool stale;      /* decide_ns and expire_ns have to be computed anew */
    int looked;      /* 1: a LOOK was returned; 2: then a GO_ON; 0: neither */
    /* when the asking members get an answer at the latest; 0: only newcomers ask */
    uint64_t decide_ns;
    uint64_t expire_ns;         /* when the first newcomer's time is over; 0: there are none */
    uint64_t look_ns;           /* when to return the next LOOK */
    struct hly_notices notices; /* of the wait since the first process asked */
    struct hly_place place[];
};

void hly_worlds_init(struct hly_worlds *w, int nplaces, int least, int *order);

/* ---------------------------------------------------------------- events */

/* A place has been added, without a process; its process has started; it has ended, well or not. */
void hly_worlds_bring(struct hly_worlds *w, int place);
void hly_worlds_start(struct hly_worlds *w, int place);
void hly_worlds_end(struct hly_worlds *w, int place, bool well);

struct hly_worlds_hello {
    const uint8_t *id; /* 16 random bytes of the process */
    uint64_t epoch;    /* that it was in last; 0: none */
    uint64_t left_ns;  /* until its deadline */
    const struct hly_boot_lost *lost;
    bool leaves; /* it leaves, and asks for no rank */
};
enum hly_hello {
    HLY_HELLO_TAKEN = 1, /* the process asks from now on */
    HLY_HELLO_MAY_GO,    /* it leaves: the others do not wait for it any more */
    HLY_HELLO_NOBODY,    /* no process has this place */
    HLY_HELLO_LATE,      /* the only meeting is over */
    HLY_HELLO_TWIN       /* another process has it */
};
enum hly_hello hly_worlds_hello(struct hly_worlds *w, int place,
                                const struct hly_worlds_hello *hello, uint64_t now);
/* The asking processes of places a and b cannot be in one world; b asked later. Returns the place
 * to refuse; -1: the meeting is broken. */
int hly_worlds_differ(struct hly_worlds *w, int a, int b);
/* _left: the connection of an asking process has ended. _seen: the holder has looked at a process.
 * _failed: the last halay_init of a process has failed. _break: the holder has found an error. */
void hly_worlds_left(struct hly_worlds *w, int place);
void hly_worlds_seen(struct hly_worlds *w, int place, bool stopped);
void hly_worlds_failed(struct hly_worlds *w, int place);
void hly_worlds_break(struct hly_worlds *w);

/* ---------------------------------------------------------------- what to do */

/* Returns the next action. False: none until the next event, or the time hly_worlds_due_ns. */
bool hly_worlds_next(struct hly_worlds *w, uint64_t now, struct hly_worlds_action *action);
/* The holder has refused all asking processes; has sent the table to all in order[], which begins
 * the next epoch. */
void hly_worlds_refused(struct hly_worlds *w);
void hly_worlds_joined(struct hly_worlds *w);
/* When to call hly_worlds_next without an event. UINT64_MAX: never. */
uint64_t hly_worlds_due_ns(const struct hly_worlds *w);
/* True, once for each: the launcher has to kill the process of *place. */
bool hly_worlds_condemned(struct hly_worlds *w, int *place);

/* ---------------------------------------------------------------- what there is */

bool hly_worlds_is_static(const struct hly_worlds *w); /* each world has all ranks */
/* The process asks for the next world, and is not in the last one. */
bool hly_worlds_is_newcomer(const struct hly_worlds *w, int place);
/* _is_awaited: the next world waits for this process. _is_absent: it lives, does not ask, has not
 * said that it leaves, and is not condemned. */
bool hly_worlds_is_awaited(const struct hly_worlds *w, int place);
bool hly_worlds_is_absent(const struct hly_worlds *w, int place);
int hly_worlds_asking(const struct hly_worlds *w);
int hly_worlds_waiting(const struct hly_worlds *w);
int hly_worlds_newcomers(const struct hly_worlds *w);
/* How many processes have got neither a table nor a refusal, and have not left. */
int hly_worlds_untold(const struct hly_worlds *w);

#endif
