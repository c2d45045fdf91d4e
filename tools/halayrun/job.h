/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - the ranks from the first fork to the last wait, and what their failures mean. */
#ifndef HALAYRUN_JOB_H
#define HALAYRUN_JOB_H

#include "discovery.h"
#include "drops.h"
#include "guard.h"
#include "options.h"
#include "record.h"
#include "servers.h"
#include "slots.h"
#include "spawn.h"

/* What all failures have in common; a signal to halayrun leaves options->grace_s instead. */
enum { GRACE_MS = 1000, PROGRAMS = 8 };

struct hly_rank {
    pid_t pid;                /* 0: not started, or elsewhere */
    pid_t programs[PROGRAMS]; /* what a shell that SIGTERM has ended had started; 0: nothing */
    int ended;   /* a zombie by now: it is reaped when all have ended, or another is started in its
                    slot, so that its number, and with it its group's, stays taken */
    int fresh;   /* what its end means is still to be judged */
    int status;  /* as waitpid has it, once ended */
    int state;   /* of its flight record, once ended */
    int dropped; /* ... with its host, and is out of the job already */
    int lost; /* the others have lost it, and so its host is dropped: if it ends, it has failed */
    int condemned;    /* it is being killed, since the others have met without it */
    int far;          /* its pid where an agent has started it; -1: not known yet; 0: it is here */
    int doing;        /* proc(5)'s letter, as its agent has said last; 0: nothing yet */
    int64_t asked_ms; /* since when its agent has not said what it does; 0: it has */
    int lost_with_agent; /* it counts as ended, since its agent is lost */
    char host[64];       /* of the agent */
    char why[252];       /* what else there is to say of its end */
};

struct hly_job {
    const struct hly_options *options;
    struct hly_servers servers;
    struct hly_guard *guard;
    struct hly_spawner *spawner;
    char host[64];
    int signal_fd;
    long out_of_memory; /* kills for it on this machine, before the job began */

    struct hly_rank *ranks; /* by slot */
    struct hly_slots *slots;
    char name[64];               /* of the job */
    struct hly_records *records; /* of their flight; NULL: there are none */
    struct hly_output *output;   /* NULL unless lines are prefixed */
    struct pollfd *fds;
    int report_fd, words; /* ranks that cannot become the program say so there */
    int nstarted, nended; /* over all the time */

    /* A job whose ranks change (elastic.h) has these. */
    struct hly_discovery *discovery;
    struct hly_starters *starters;
    struct hly_drops *drops; /* NULL: a failure costs its slot alone */
    struct hly_hosts hosts;  /* that it began with, where there is no script */
    int hopes;               /* hosts that are not dropped */
    int places;              /* for processes here, by the discovery script; -1: not known yet */
    uint64_t epoch;          /* how often its ranks have met */
    int finishing;           /* no other process is started */
    int lost_status;         /* of the first that has failed since they met */
    int last_status;         /* of the last one that has */
    int64_t few_ms;          /* since when there are too few; 0: there are enough */

    struct hly_agents *agents; /* of a head (agents.h); NULL: it takes none */
    int first;                 /* of an agent (agent.h): its first process, as the head counts */
    int changes;               /* ranks do, its head says */
    int64_t leaves_ms;         /* its processes have been told to leave: until when; 0: not */

    int ended_well;    /* some rank has */
    int ended_early;   /* some rank has left Halay by an exit with status 0 */
    int ending;        /* the job is being ended before its ranks end by themselves */
    int stopped_looks; /* seconds for which all ranks that are left have been stopped */
    int interrupted;   /* ... because of a signal to halayrun */
    int signal;        /* the first of these; 0: none */
    int wrapped; /* 1: it was SIGTERM, and has ended a rank, whose children may be the program;
                    2: they know */
    int64_t signal_ms; /* the last of these; 0: none */
    int exit_status;
    int64_t term_ms, kill_ms, silent_ms, timeout_ms, orphans_ms, stopped_ms; /* when to do what; 0:
                                                                                 never */
};

/* Starts the ranks, waits for all of them and for what they have started. Returns the exit
 * status. */
int hly_job_run(struct hly_job *job);

/* Parts of it, for the files beside it. */
void hly_job_end(struct hly_job *job, int exit_status, int grace_ms);
void hly_job_signal(struct hly_job *job, int slot, int number); /* with its process group */
void hly_job_tell(struct hly_job *job, int slot, int number);   /* alone */
/* Starts processes in all slots that are to have one. */
void hly_job_fill(struct hly_job *job, int64_t now_ms);
/* In one of this machine; timeout_s: for how long it waits for others, 0: not said. 0 or -1, said.
 */
int hly_job_start(struct hly_job *job, int slot, int timeout_s);

#endif
