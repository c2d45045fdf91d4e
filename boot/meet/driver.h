/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - who is in the next world: a launcher's slots, and the processes in them. Inside
 * boot/meet/ only. */
#ifndef HALAY_BOOT_MEET_DRIVER_H
#define HALAY_BOOT_MEET_DRIVER_H

#include <halay/launch.h>

#include "../../src/waits/waits.h"
#include "../common/meet.h"
#include "frame.h"

/*
 * A slot is one process that the launcher has started, from its start to its end:
 *   FREE -> STARTED -> ASKING <-> IN -> ENDED, from each of them to ENDED
 * ASKING: its hello is here. IN: it has been answered, and is in the world of `epoch`.
 */
enum hly_slot_state {
    HLY_SLOT_FREE = 0,
    HLY_SLOT_STARTED,
    HLY_SLOT_ASKING,
    HLY_SLOT_IN,
    HLY_SLOT_ENDED
};

enum { HLY_REFUSALS = 64 };

struct hly_agent {                /* a launcher elsewhere that has brought places */
    struct hly_boot_guest *guest; /* its connection; NULL: it is lost, or nobody is here */
    bool came, leaves, lost;      /* its launcher is still to be told that */
    const char *why;              /* it is lost */
    int first, count;             /* slots */
    char host[64];
    struct hly_frames frames;
};

struct hly_slot {
    enum hly_slot_state state;
    struct hly_agent *agent; /* NULL: it is this launcher's, or nobody has brought it yet */
    char host[64];           /* of the agent that has, or has had it */
    bool tell_start;         /* of an agent's: its launcher is still to be told so; */
    bool gone, tell_end;     /* it has ended, and that is still to be told; */
    bool with_agent;         /* only its agent is lost */
    int left;                /* state of ended() */
    bool member;             /* of the last world; false: a newcomer */
    bool leaves;             /* the last world, and will not ask: its process is about to end */
    bool reported;           /* its launcher knows that others call it lost */
    bool lost;               /* it has not asked for too long: the others meet without it */
    uint64_t unfit_ns;       /* it was seen stopped, or called lost, since then, while others wait
                                for it; 0: not */
    bool asked;              /* its agent is still to say what it does; */
    char seen;               /* and has said this last, proc(5)'s letter; 0: nothing yet; */
    bool wanted, tell_seen;  /* the launcher has asked for it, and is still to be told */
    bool told;               /* what it has heard last was a text */
    int rank;                /* in the last world */
    int status;              /* as waitpid has it, if ended or gone; */
    char why[480];           /* what its halay_init has failed with; else empty */
    int64_t pid;
    struct hly_boot_guest *guest; /* if asking, */
    uint64_t end_ns;              /* when it is to hear who is missing */
    struct hly_boot_hello hello;  /* the last one */
    /* The others meet without it, or cannot for it has another one's place, and it lives: the
     * launcher is to kill it, */
    bool condemned;
    bool doomed; /* and was told so */
};

struct halay_launch {
    bool reporting;
    halay_launch_params_t params;
    char host[64], path[108];
    struct hly_boot_log log;
    struct hly_boot_key key;
    struct hly_boot_reception reception;
    char address[320];        /* where others find it, "host:port"; "": nowhere */
    struct hly_slot *slots;   /* params.nranks */
    struct hly_agent *agents; /* most_agents of them */
    int most_agents;
    bool broken;     /* there will be no world; text says why */
    int first_ended; /* slot; -1: none yet */
    int done;        /* 1 + a slot that has left the last world with status 0; 0: none */
    struct hly_boot_guest *first; /* rank 0's connection of the last world; or NULL */
    uint32_t told;                /* so many newcomers it has been told */
    uint64_t epoch;               /* of the last world; 0: there was none */
    uint8_t job[16], secret[16];
    int *order;                    /* by rank: its slot, in the world that is made */
    struct hly_boot_hello *hellos; /* by rank */
    struct hly_boot_answer answer;
    struct hly_boot_table table; /* of the last world; guests may still be taking it */
    struct hly_sha sha;
    uint64_t decide_ns; /* when those that ask are to hear who is missing; 0: none asks but
                           newcomers */
    uint64_t expire_ns; /* when the first of these has waited long enough; 0: there are none */
    struct hly_notices notices;       /* since the first of those that ask does so */
    char refusals[HLY_REFUSALS][200]; /* texts of agents that have come last */
    unsigned nrefusals;
    uint64_t look_ns;          /* when to see which of those that are waited for are stopped */
    uint64_t stop_patience_ns; /* for how long they may be */
    char text[HLY_BOOT_TEXT_BYTES], said[HLY_BOOT_TEXT_BYTES]; /* said: in the log, last */
};

/* world.c: makes the next world if all that it waits for have asked; tells them, if it can never be
 * made. */
void hly_driver_consider(halay_launch_t *d);
/* It asks to be in the next world, and the last one goes on without it. */
bool hly_driver_is_newcomer(const halay_launch_t *d, const struct hly_slot *slot);
/* Someone has begun to ask, or asks no more. */
void hly_driver_set_times(halay_launch_t *d);
/* Tells rank 0 how many newcomers wait. */
void hly_driver_tell_news(halay_launch_t *d);
/* Who is missing: notices, and the verdict when the time of those that ask is over. */
void hly_driver_look(halay_launch_t *d);
/* Answers all that ask with a text, and says it if it is news; format NULL: with the one that is
 * there. */
void hly_driver_refuse(halay_launch_t *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---------------------------------------------------------------- agents.c */

/* A launcher says hello. */
void hly_agents_heard(halay_launch_t *d, struct hly_boot_guest *guest);
bool hly_agents_said(halay_launch_t *d, struct hly_boot_guest *guest, const char *bytes, size_t n);
void hly_agents_left(halay_launch_t *d, const struct hly_boot_guest *guest);
int hly_agents_event(halay_launch_t *d, halay_launch_event_t *event);
/* Asks what a process of an agent does, unless that is still to be answered. */
void hly_agents_look(halay_launch_t *d, int slot);
void hly_agents_command(halay_launch_t *d, const halay_launch_event_t *command);

/* ---------------------------------------------------------------- driver.c */

void hly_driver_started(halay_launch_t *d, int slot, int64_t pid);
void hly_driver_ended(halay_launch_t *d, int slot, int status, int state, const char *why);

#endif
