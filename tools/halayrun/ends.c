/* SPDX-License-Identifier: Apache-2.0 */
/* ends.c - how ranks have ended: which end is a failure, and its message. */
#define _GNU_SOURCE
#include "ends.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "agent.h"
#include "agents.h"
#include "elastic.h"
#include "note.h"

enum { TOGETHER_NS = 50000000 };

static int failed(const struct hly_job *job, int rank)
{
    const struct hly_rank *r = &job->ranks[rank];
    if (job->options->agent)
        return hly_agent_failed(job, rank);
    if (job->options->least)
        return hly_elastic_failed(job, rank);
    return r->status != 0 || hly_servers_connected(&job->servers, rank);
}

long hly_out_of_memory(void)
{
    long n = 0;
    char line[128];
    FILE *file = fopen("/proc/vmstat", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "oom_kill ", 9))
            n = strtol(line + 9, NULL, 10);
    if (file)
        fclose(file);
    return n;
}

const char *hly_job_called(const struct hly_job *job)
{
    return job->options->least || job->changes ? "process" : "rank";
}

const char *hly_job_where(const struct hly_job *job, int slot, char text[96])
{
    const struct hly_rank *r = &job->ranks[slot];
    if (r->far > 0)
        snprintf(text, 96, "pid %d on %s", r->far, r->host);
    else if (r->far)
        snprintf(text, 96, "on %s", r->host);
    else
        snprintf(text, 96, "pid %d on %s", (int)r->pid, job->host);
    return text;
}

/* then: what follows from it. */
static void tell_end(struct hly_job *job, int rank, const char *then)
{
    const struct hly_rank *r = &job->ranks[rank];
    const int number = WIFSIGNALED(r->status) ? WTERMSIG(r->status) : 0;
    char who[128], where[96];
    snprintf(who, sizeof who, "%s %d (%s)", hly_job_called(job), job->first + rank,
             hly_job_where(job, rank, where));
    if (r->lost_with_agent)
        hly_note("%s is lost with its agent%s", who, then);
    else if (number)
        hly_note("%s was killed by signal %d (%s%s)%s%s%s%s", who, number, hly_signal_name(number),
                 WCOREDUMP(r->status) ? ", core dumped" : "",
                 number == SIGKILL && !r->far && hly_out_of_memory() > job->out_of_memory
                     ? ", and the kernel has killed when memory ran out since the job began: is it "
                       "at the limit of its cgroup, or the machine at its own?"
                     : "",
                 r->why[0] ? ": " : "", r->why, then);
    else if (WEXITSTATUS(r->status) == 0 && failed(job, rank))
        hly_note("%s exited %s%s", who,
                 job->options->least
                     ? "with status 0 without halay_finalize"
                     : "without leaving the job: it called PMIx_Init and not PMIx_Finalize",
                 then);
    else
        hly_note("%s exited with status %d%s", who, WEXITSTATUS(r->status), then);
}

int hly_exit_status(int status)
{
    if (WIFSIGNALED(status))
        return HLY_EXIT_SIGNAL + WTERMSIG(status);
    return WEXITSTATUS(status) ? WEXITSTATUS(status) : 1;
}

static void fail(struct hly_job *job, int rank)
{
    char then[HLY_THEN_BYTES] = "";
    if (job->options->least && !job->ending)
        hly_elastic_fail(job, rank, then);
    if (!job->ending || job->options->verbose)
        tell_end(job, rank, then);
    if (job->ending)
        return;
    hly_records_ended(job->records, rank, job->ranks[rank].status);
    if (job->options->agent)
        job->last_status = hly_exit_status(job->ranks[rank].status);
    else if (!job->options->least && !job->options->keep_going)
        hly_job_end(job, hly_exit_status(job->ranks[rank].status), GRACE_MS);
    else if (!job->options->least && !job->exit_status)
        job->exit_status = hly_exit_status(job->ranks[rank].status);
    hly_job_signal(job, rank, SIGTERM); /* what it has started */
}

void hly_job_ended(struct hly_job *job, int rank, int status, int state, const char *why)
{
    struct hly_rank *r = &job->ranks[rank];
    r->fresh = r->ended = 1;
    r->status = status;
    r->state = state;
    job->nended++;
    if (job->signal == SIGTERM && !job->wrapped && WIFSIGNALED(status) &&
        WTERMSIG(status) == SIGTERM)
        job->wrapped = 1;
    if (r->dropped && !r->far)
        return; /* they know */
    if (job->drops && hly_elastic_failed(job, rank))
        hly_elastic_drop(job, rank); /* before the others can meet without this one alone */
    hly_servers_ended(&job->servers, rank,
                      job->options->least ? hly_elastic_told(job, rank) : status, state, why);
}

/* Those that have ended since the last time. 1 if one of them has failed, and none was killed. */
static int look_at_ranks(struct hly_job *job)
{
    int failing = 0, killed = 0;
    char why[512];
    for (int rank = 0; rank < job->options->slots; rank++) {
        const struct hly_rank *r = &job->ranks[rank];
        siginfo_t info = {0};
        if (r->pid <= 0 || r->ended ||
            waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
            info.si_pid != r->pid)
            continue;
        const int known = hly_records_why(job->records, rank, why, sizeof why);
        hly_job_ended(job, rank,
                      info.si_code == CLD_EXITED
                          ? info.si_status << 8
                          : info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0),
                      hly_records_state(job->records, rank),
                      r->why[0] ? r->why
                      : known   ? why
                                : NULL);
    }
    if (job->agents)
        hly_agents_turn(job);
    for (int rank = 0; rank < job->options->slots; rank++) {
        const struct hly_rank *r = &job->ranks[rank];
        killed |= r->fresh && WIFSIGNALED(r->status);
        failing |= r->fresh && failed(job, rank);
    }
    return failing && !killed;
}

/* With status 0, and the others wait for it: it is no survivor, and may be the reason of all else.
 */
static void note_early(struct hly_job *job, int rank)
{
    char where[96];
    if (!job->ended_early && !job->ending && job->nended < job->nstarted)
        hly_note("rank %d (%s) exited with status 0 without halay_finalize", rank,
                 hly_job_where(job, rank, where));
    job->ended_early = 1;
}

static void end_well(struct hly_job *job, int rank)
{
    hly_records_ended(job->records, rank, job->ranks[rank].status);
    if (job->options->verbose)
        tell_end(job, rank, "");
    if (job->options->agent)
        return;
    if (job->options->least)
        hly_elastic_left(job, rank);
    else if (hly_state_left_early(job->ranks[rank].state))
        note_early(job, rank);
    else
        job->ended_well = 1;
}

/*
 * 1 if any rank has ended. The culprit is the one killed by a signal of those that ended together.
 * The others may see the end of its sockets, and leave, before its parent can see it end: so who
 * leaves with an error has some time to be the second.
 */
int hly_job_collect(struct hly_job *job)
{
    const struct timespec a_little = {0, TOGETHER_NS};
    const int first = job->nended, n = job->options->slots;
    struct hly_rank *r = job->ranks;
    if (look_at_ranks(job) && !job->ending && job->nended < job->nstarted) {
        nanosleep(&a_little, NULL);
        look_at_ranks(job);
    }
    for (int rank = 0; rank < n; rank++) {
        if (!r[rank].fresh || !WIFSIGNALED(r[rank].status) || !failed(job, rank))
            continue;
        r[rank].fresh = 0;
        fail(job, rank);
    }
    for (int rank = 0; rank < n; rank++) {
        if (!r[rank].fresh)
            continue;
        r[rank].fresh = 0;
        if (failed(job, rank))
            fail(job, rank);
        else
            end_well(job, rank);
    }
    return job->nended > first;
}
