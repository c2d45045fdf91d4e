/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.c - an agent runs its own command line, and is told by its head only when. What the end of
 * a process means, the head knows: this file reports it, and hands on.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "../common/flight.h"
#include "ends.h"
#include "note.h"

void hly_agent_begin(struct hly_job *job)
{
    halay_launch_event_t e;
    if (!hly_servers_event(&job->servers, &e) || e.what != HALAY_LAUNCH_AGENT)
        return;
    job->first = e.rank;
    job->changes = e.value;
    if (e.count < job->options->nranks)
        hly_note("the job has room for %d of the %d processes of this agent", e.count,
                 job->options->nranks);
    else if (job->options->verbose)
        hly_note("an agent of %s: processes %d to %d", job->options->agent, job->first,
                 job->first + e.count - 1);
}

static void start(struct hly_job *job, int slot, int timeout_s)
{
    const struct hly_rank *r = &job->ranks[slot];
    if (job->ending || (r->pid > 0 && !r->ended) || !hly_job_start(job, slot, timeout_s))
        return;
    hly_servers_ended(&job->servers, slot, HLY_EXIT_SELF << 8, -1, "its agent cannot start it");
}

static void send_signal(struct hly_job *job, int slot, int number)
{
    struct hly_rank *r = &job->ranks[slot];
    if (r->pid <= 0 || r->ended)
        return;
    if (number != SIGKILL) {
        kill(r->pid, number); /* not its children: they serve it to the end */
        return;
    }
    if (!job->ending) {
        r->condemned = 1;
        snprintf(r->why, sizeof r->why, "it was %s, and the others go on without it",
                 hly_flight_is_stopped((int)r->pid) ? "stopped" : "lost");
    }
    hly_job_signal(job, slot, SIGKILL);
}

static void end(struct hly_job *job, const halay_launch_event_t *e)
{
    const int running = job->nstarted - job->nended;
    if (!job->ending && (e->text[0] || (running && e->value)))
        hly_note("%s%s", e->text[0] ? e->text : "the head ends the job",
                 running ? ": the processes here are ended" : "");
    hly_job_end(job, e->value, 0);
}

void hly_agent_turn(struct hly_job *job)
{
    halay_launch_event_t e;
    while (hly_servers_event(&job->servers, &e)) {
        if (e.what == HALAY_LAUNCH_START)
            start(job, e.rank, e.value);
        else if (e.what == HALAY_LAUNCH_SIGNAL)
            send_signal(job, e.rank, e.value);
        else if (e.what == HALAY_LAUNCH_END)
            end(job, &e);
    }
}

int hly_agent_failed(const struct hly_job *job, int slot)
{
    const struct hly_rank *r = &job->ranks[slot];
    const int leaves = WIFSIGNALED(r->status) ? WTERMSIG(r->status) == SIGTERM
                                              : WEXITSTATUS(r->status) == HLY_EXIT_SIGNAL + SIGTERM;
    return r->status != 0 && !(job->changes && leaves);
}

int hly_agent_leaves(struct hly_job *job, int number)
{
    if (!job->options->agent || !job->changes || number != SIGTERM || job->ending ||
        job->leaves_ms || job->nended == job->nstarted)
        return 0;
    hly_note("signal %d (%s): the processes here are told to leave the job at their next commit; "
             "a second signal ends them, and so do %d s (--grace)",
             number, hly_signal_name(number), job->options->grace_s);
    job->leaves_ms = hly_now_ms() + (int64_t)job->options->grace_s * 1000;
    job->exit_status = HLY_EXIT_SIGNAL + number;
    hly_servers_command(&job->servers, HALAY_LAUNCH_AGENT_LEAVES, 0, 0);
    return 1;
}

int hly_agent_goes_on(const struct hly_job *job)
{
    return job->nended < job->nstarted || (!job->ending && !job->leaves_ms);
}
