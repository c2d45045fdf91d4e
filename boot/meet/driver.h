/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - who is in the next world: a launcher's slots, and the processes in them. Inside
 * boot/meet/ only. */
#ifndef HALAY_BOOT_MEET_DRIVER_H
#define HALAY_BOOT_MEET_DRIVER_H

#include <halay/launch.h>

#include "../../src/waits/waits.h"
#include "../common/meet.h"
#include "../common/world.h"
#include "frame.h"

enum { HLY_REFUSALS = 64 };

struct hly_agent {                /* a launcher elsewhere that has brought places */
    struct hly_boot_guest *guest; /* its connection; NULL: it is lost, or nobody is here */
    unsigned tell;                /* HLY_TELL */
    const char *why;              /* it is lost */
    int first, count;             /* slots */
    char host[64];
    struct hly_frames frames;
};

struct hly_slot {            /* one process that the launcher has started; a place of `world` */
    struct hly_agent *agent; /* NULL: it is this launcher's, or nobody has brought it yet */
    char host[64];           /* of the agent that has, or has had it */
    unsigned tell;           /* HLY_TELL: of an agent's */
    bool gone;               /* it has ended, and its launcher has yet to say so; */
    bool lost_with_agent;    /* only its agent is lost */
    int left;                /* state of ended() */
    bool asked;              /* its agent is still to say what it does; */
    char seen;               /* and has said this last, proc(5)'s letter; 0: nothing yet; */
    bool wanted;             /* the launcher has asked for it */
    int status;              /* as waitpid has it, if ended or gone; */
    char why[480];           /* what its halay_init has failed with; else empty */
    int64_t pid;
    struct hly_boot_guest *guest; /* if asking */
    struct hly_boot_hello hello;  /* the last one */
};

struct halay_launch {
    halay_launch_params_t params;
    char host[64], path[108];
    struct hly_boot_log log;
    struct hly_boot_key key;
    struct hly_boot_reception reception;
    char address[320];         /* where others find it, "host:port"; "": nowhere */
    struct hly_worlds *worlds; /* who asks, and whom the others wait for: params.nranks places */
    struct hly_slot *slots;    /* params.nranks */
    struct hly_agent *agents;  /* most_agents of them */
    int most_agents;
    struct hly_boot_guest *first; /* rank 0's connection of the last world; or NULL */
    uint32_t newcomers_told;      /* the number that rank 0 has heard last */
    uint8_t job[16], secret[16];
    struct hly_boot_hello *hellos; /* by rank */
    struct hly_boot_answer answer;
    struct hly_boot_table table; /* of the last world; guests may still be taking it */
    struct hly_sha sha;
    char refusals[HLY_REFUSALS][200]; /* texts of agents that have come last */
    unsigned nrefusals;
    char text[HLY_BOOT_TEXT_BYTES], said[HLY_BOOT_TEXT_BYTES]; /* said: in the log, last */
};

/* answers.c: does what the world says after an event, or as time goes by. */
void hly_driver_go_on(halay_launch_t *d);
/* Tells rank 0 how many newcomers wait. */
void hly_driver_tell_news(halay_launch_t *d);
/* Answers one that asks with a text. */
void hly_driver_tell(halay_launch_t *d, int slot, const char *text, uint32_t said);
/* Answers all that ask with a text, and says it if it is news; format NULL: with the one that is
 * there. */
void hly_driver_refuse(halay_launch_t *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---------------------------------------------------------------- agents.c */

/* A launcher says hello. */
void hly_agents_heard(halay_launch_t *d, struct hly_boot_guest *guest);
bool hly_agents_said(void *d, struct hly_boot_guest *guest, const char *bytes, size_t n);
void hly_agents_left(halay_launch_t *d, const struct hly_boot_guest *guest);
int hly_agents_event(halay_launch_t *d, halay_launch_event_t *event);
/* Asks what a process of an agent does, unless that is still to be answered. */
void hly_agents_look(halay_launch_t *d, int slot);
void hly_agents_command(halay_launch_t *d, const halay_launch_event_t *command);

/* ---------------------------------------------------------------- driver.c */

void hly_driver_started(halay_launch_t *d, int slot, int64_t pid);
void hly_driver_ended(halay_launch_t *d, int slot, int status, int state, const char *why);

#endif
