/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elastic.c - a job whose ranks change. Who is in the next world is the driver's matter
 * (boot/meet); here is who lives.
 *
 * The job is finishing once a process that was not told to leave has ended well. A failure counts
 * for the exit status until the ranks have met without the process that failed.
 */
#define _GNU_SOURCE
#include "elastic.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "../common/flight.h"
#include "agents.h"
#include "note.h"
#include "starters.h"
#include "words.h"

enum { TRIES = 3 };

/* ------------------------------------------------------------------ ends */

/* As it was told to. */
static int by_sigterm(int status)
{
    return WIFSIGNALED(status) ? WTERMSIG(status) == SIGTERM
                               : WEXITSTATUS(status) == HLY_EXIT_SIGNAL + SIGTERM;
}

/* Somebody else may have told it to: then it says so by its status, behind its halay_finalize. */
int hly_elastic_failed(const struct hly_job *job, int slot)
{
    const struct hly_rank *r = &job->ranks[slot];
    const int status = r->status, over = hly_state_is_over(r->state);
    if (by_sigterm(status) && (hly_slots_leaves(job->slots, slot) || (over && WIFEXITED(status))))
        return 0;
    return status != 0 || !over;
}

int hly_elastic_told(const struct hly_job *job, int slot)
{
    const int status = job->ranks[slot].status;
    const int ends_job = !hly_slots_leaves(job->slots, slot) && !hly_elastic_failed(job, slot);
    return status || ends_job ? status : SIGTERM;
}

void hly_elastic_fail(struct hly_job *job, int slot, char then[64])
{
    const int64_t ms = hly_slots_failed(job->slots, slot, hly_now_ms());
    job->last_status = hly_exit_status(job->ranks[slot].status);
    if (!job->lost_status && !job->ranks[slot].condemned && hly_state_met(job->ranks[slot].state))
        job->lost_status = job->last_status;
    if (job->finishing || !ms)
        then[0] = '\0';
    else
        snprintf(then, 64, "; started again in %g s", (double)ms / 1e3);
}

void hly_elastic_left(struct hly_job *job, int slot)
{
    if (!hly_slots_leaves(job->slots, slot) && !job->ranks[slot].status)
        job->finishing = 1;
    hly_slots_left(job->slots, slot);
}

void hly_elastic_look(struct hly_job *job)
{
    const uint64_t epoch = hly_servers_epoch(&job->servers);
    if (epoch == job->epoch)
        return;
    hly_job_collect(job); /* whose end the others have seen before us */
    job->epoch = epoch;
    job->lost_status = 0;
    job->few_ms = 0;
    hly_words_forget(job->words);
    const int limit = job->options->reset_limit;
    if (limit < 0 || epoch < (uint64_t)limit + 2)
        return;
    hly_note("the ranks have had to meet again, 1 time more than --reset-limit %d allows", limit);
    hly_job_end(job, job->last_status ? job->last_status : 1, 0);
}

/* ------------------------------------------------------------------ what is due */

/* Returns when there is something to do. */
static int64_t ask_discovery(struct hly_job *job, int64_t now_ms)
{
    const int local = job->options->nlocal, before = job->places;
    const int answered = hly_discovery_turn(job->discovery, now_ms);
    const struct hly_hosts *hosts = hly_discovery_hosts(job->discovery);
    const int64_t next_ms = hly_discovery_next_ms(job->discovery);
    if (hosts && answered) {
        job->places = 0;
        for (int i = 0; i < hosts->n; i++)
            if (hly_host_here(hosts->list[i].name) && hosts->list[i].slots < local - job->places)
                job->places += hosts->list[i].slots;
            else if (hly_host_here(hosts->list[i].name))
                job->places = local;
        hly_slots_place(job->slots, 0, local, job->places);
        hly_agents_place(job, hosts);
    }
    if (job->places != before && local && (before >= 0 || job->options->verbose))
        hly_note("the discovery script has places for %d process%s", job->places,
                 job->places == 1 ? "" : "es");
    const int64_t start_ms = hosts ? hly_starters_turn(job, hosts, now_ms) : 0;
    return start_ms && start_ms < next_ms ? start_ms : next_ms;
}

static void tell_leavers(struct hly_job *job)
{
    int slot;
    char where[96];
    while ((slot = hly_slots_leaver(job->slots)) >= 0) {
        hly_note("process %d (%s) is told to leave (SIGTERM): its place is gone", slot,
                 hly_job_where(job, slot, where));
        hly_job_tell(job, slot, SIGTERM); /* not its children: they serve it to the end */
    }
}

static void kill_condemned(struct hly_job *job)
{
    int slot;
    char where[96];
    while (hly_servers_condemned(&job->servers, &slot)) {
        struct hly_rank *r = &job->ranks[slot];
        if ((r->pid <= 0 && !r->far) || r->ended)
            continue;
        if (!r->far) /* else its agent knows whether it has ended, and says so */
            hly_note("process %d (%s) %s, and the others have gone on without it: it is killed",
                     slot, hly_job_where(job, slot, where),
                     hly_flight_process((int)r->pid) == 'T' ? "is stopped" : "is lost");
        r->condemned = 1;
        hly_job_signal(job, slot, SIGKILL);
    }
}

/* Can there be enough of them, and are there? */
static void judge(struct hly_job *job, int64_t now_ms)
{
    const int least = job->options->least, limit_s = job->options->elastic_timeout_s;
    const int running = job->nstarted - job->nended, places = hly_slots_places(job->slots);
    if (!job->epoch && places >= least && hly_slots_hopeful(job->slots, TRIES) < least) {
        hly_note("%d of %d processes have failed %d times each, and no ranks have met: there must "
                 "be %d (--min-np)",
                 places - hly_slots_hopeful(job->slots, TRIES), places, TRIES, least);
        hly_job_end(job, job->last_status ? job->last_status : 1, GRACE_MS);
        return;
    }
    if (running >= least && !job->epoch)
        job->few_ms = 0;
    else if (running < least && !job->few_ms)
        job->few_ms = now_ms;
    if (!job->few_ms || now_ms - job->few_ms < (int64_t)limit_s * 1000)
        return;
    hly_note(
        "there have been too few ranks for %d s (--elastic-timeout): %d process%s run, and there "
        "must be %d (--min-np)%s",
        limit_s, running, running == 1 ? "" : "es", least,
        places >= least           ? ""
        : job->options->discovery ? "; the discovery script has fewer places"
                                  : "; there are fewer places");
    hly_job_end(job, job->last_status ? job->last_status : 1, GRACE_MS);
}

int64_t hly_elastic_due(struct hly_job *job, int64_t now_ms)
{
    int64_t next = 0;
    kill_condemned(job);
    if (job->finishing)
        return 0;
    if (job->discovery)
        next = ask_discovery(job, now_ms);
    if (hly_agents_awaited(job))
        return next;
    tell_leavers(job);
    hly_job_fill(job, now_ms);
    if (!job->ending)
        judge(job, now_ms);
    const int64_t cool_ms = hly_slots_next_ms(job->slots);
    const int64_t few_ms =
        job->few_ms ? job->few_ms + (int64_t)job->options->elastic_timeout_s * 1000 : 0;
    if (cool_ms && (!next || cool_ms < next))
        next = cool_ms;
    return few_ms && (!next || few_ms < next) ? few_ms : next;
}
