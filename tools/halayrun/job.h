/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - the ranks from the first fork to the last wait, and what their failures mean. */
#ifndef HALAYRUN_JOB_H
#define HALAYRUN_JOB_H

#include "discovery.h"
#include "guard.h"
#include "options.h"
#include "record.h"
#include "servers.h"
#include "slots.h"
#include "spawn.h"

/* What all failures have in common. */
enum { GRACE_MS = 1000 };

struct hly_rank {
    pid_t pid;  /* 0: not started */
    int ended;  /* a zombie by now: it is reaped when all have ended, or another is started in its
                   slot, so that its number, and with it its group's, stays taken */
    int status; /* as waitpid has it, once ended */
    int condemned; /* it is being killed, since the others have met without it */
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

    /* Of a job whose ranks change (elastic.h). */
    struct hly_discovery *discovery;
    int places;      /* for processes; -1: not known yet */
    uint64_t epoch;  /* how often its ranks have met */
    int finishing;   /* no other process is started */
    int lost_status; /* of the first that has failed since they met */
    int last_status; /* of the last one that has */
    int64_t few_ms;  /* since when there are too few; 0: there are enough */

    int ended_well;    /* some rank has */
    int ended_early;   /* some rank has left Halay by an exit with status 0 */
    int ending;        /* the job is being ended before its ranks end by themselves */
    int stopped_looks; /* seconds for which all ranks that are left have been stopped */
    int interrupted;   /* ... because of a signal to halayrun */
    int exit_status;
    int64_t term_ms, kill_ms, timeout_ms, orphans_ms, stopped_ms; /* when to do what; 0: never */
};

/* Starts the ranks, waits for all of them and for what they have started. Returns the exit
 * status. */
int hly_job_run(struct hly_job *job);

/* Parts of it, for elastic.c. */
void hly_job_end(struct hly_job *job, int exit_status, int grace_ms);
void hly_job_signal(struct hly_job *job, int slot, int number); /* with its process group */
int hly_job_collect(struct hly_job *job);
/* Starts processes in all slots that are to have one. */
void hly_job_fill(struct hly_job *job, int64_t now_ms);
int hly_exit_status(int status);

#endif
