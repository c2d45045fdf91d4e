/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - the ranks from the first fork to the last wait, and what their failures mean. */
#ifndef HALAYRUN_JOB_H
#define HALAYRUN_JOB_H

#include "guard.h"
#include "options.h"
#include "record.h"
#include "servers.h"
#include "spawn.h"

struct hly_rank {
    pid_t pid; /* 0: not started */
    int ended; /* a zombie by now: it is reaped when all have ended, so that its number, and with it
                  its group's, stays taken */
    int status; /* as waitpid has it, once ended */
};

struct hly_job {
    const struct hly_options *options;
    struct hly_servers servers;
    struct hly_guard *guard;
    struct hly_spawner *spawner;
    char host[64];
    int signal_fd;
    long out_of_memory; /* kills for it on this machine, before the job began */

    struct hly_rank *ranks;
    char name[64];               /* of the job */
    struct hly_records *records; /* of their flight; NULL: there are none */
    struct hly_output *output;   /* NULL unless lines are prefixed */
    struct pollfd *fds;
    int report_fd; /* ranks that cannot become the program say so here; -1 once all have */
    int nstarted, nended;

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

#endif
