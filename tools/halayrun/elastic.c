/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elastic.c - a job whose ranks change. The driver (boot/meet) decides who
 * is in the next world; this file knows who lives.
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
#include "ends.h"
#include "note.h"
#include "starters.h"
#include "words.h"

enum { TRIES = 3 };

/* ------------------------------------------------------------------ places */

/* By the discovery script, or the list that the job began with. */
static const struct hly_hosts *known_hosts(const struct hly_job *job)
{
    return job->discovery ? hly_discovery_hosts(job->discovery) : &job->hosts;
}

/* Each name of this machine is a host of its own. */
static void place_hosts(struct hly_job *job, const struct hly_hosts *hosts)
{
    struct hly_drops *d = job->drops;
    const int local = job->options->nlocal;
    int wanted[HLY_DROPS_HOSTS + 1] = {0};
    job->places = job->hopes = 0;
    for (int i = 0; hosts && i < hosts->n; i++) {
        const int here = hly_host_here(hosts->list[i].name);
        const int host = hly_drops_number(d, hosts->list[i].name);
        if (hly_drops_has(d, host))
            continue;
        job->hopes += here || job->agents;
        if (here)
            wanted[host] += hosts->list[i].slots < local - wanted[host] ? hosts->list[i].slots
                                                                        : local - wanted[host];
    }
    for (int host = 1; host <= hly_drops_count(d); host++)
        job->places += hly_slots_seat(job->slots, 0, local, host, wanted[host]);
    hly_agents_place(job, job->discovery ? hosts : NULL);
    job->hopes += hly_agents_hopes(job);
}

static void place(struct hly_job *job, const struct hly_hosts *hosts)
{
    const int local = job->options->nlocal;
    if (job->drops) {
        place_hosts(job, hosts);
        return;
    }
    job->places = 0;
    for (int i = 0; i < hosts->n; i++)
        if (hly_host_here(hosts->list[i].name) && hosts->list[i].slots < local - job->places)
            job->places += hosts->list[i].slots;
        else if (hly_host_here(hosts->list[i].name))
            job->places = local;
    hly_slots_place(job->slots, 0, local, job->places);
    hly_agents_place(job, hosts);
}

int hly_elastic_begin(struct hly_job *job)
{
    const struct hly_options *o = job->options;
    struct hly_host self = {.name = "localhost", .slots = o->nranks};
    int status = 0;
    if (!job->drops) {
        hly_slots_place(job->slots, 0, o->nlocal, o->nranks);
        return 0;
    }
    if (o->hosts)
        status = hly_hosts_parse(&job->hosts, o->hosts);
    else if (o->host_file)
        status = hly_hosts_read(&job->hosts, o->host_file);
    else if (o->nranks)
        status = hly_hosts_add(&job->hosts, &self);
    place_hosts(job, &job->hosts);
    return status;
}

/* Its processes are out of the job at once, as the one that has failed: otherwise the others would
 * meet with them, and have to meet again without them. */
void hly_elastic_drop(struct hly_job *job, int slot)
{
    const int host = hly_slots_host(job->slots, slot);
    if (job->ending || job->finishing || hly_drops_has(job->drops, host))
        return;
    hly_drops_add(job->drops, host, hly_now_ms());
    job->ranks[slot].lost = 1; /* it may take its time to say why, unless it cannot */
    if (job->ranks[slot].pid > 0 && hly_flight_process((int)job->ranks[slot].pid) == 'T')
        hly_job_signal(job, slot, SIGKILL);
    for (int i = 0; i < job->options->slots; i++) {
        struct hly_rank *r = &job->ranks[i];
        if (i == slot || (r->pid <= 0 && !r->far) || r->ended ||
            hly_slots_host(job->slots, i) != host ||
            (r->pid > 0 && hly_flight_process((int)r->pid) == 'Z'))
            continue;
        r->dropped = 1;
        hly_job_signal(job, i, SIGKILL);
        if (!r->far) /* else its agent says when it has ended */
            hly_servers_ended(&job->servers, i, SIGTERM, -1, NULL);
    }
    place_hosts(job, known_hosts(job));
}

void hly_elastic_name(const struct hly_job *job, int slot, char ***env)
{
    char assignment[HLY_HOST_BYTES + 32];
    if (!job->options->horovod)
        return;
    snprintf(assignment, sizeof assignment, "HOROVOD_HOSTNAME=%s",
             job->drops ? hly_drops_name(job->drops, hly_slots_host(job->slots, slot)) : job->host);
    hly_env_set(env, assignment);
}

/* ------------------------------------------------------------------ ends */

/* The slot is free, maybe for another host. */
static void leave(struct hly_job *job, int slot)
{
    hly_slots_left(job->slots, slot);
    if (job->drops)
        place_hosts(job, known_hosts(job));
}

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
    if (r->dropped)
        return 0;
    if (job->finishing && WIFEXITED(status) && !hly_state_met(r->state))
        return 0; /* it has come too late (HALAY_EOVER) */
    if (!r->lost && by_sigterm(status) &&
        (hly_slots_leaves(job->slots, slot) || (over && WIFEXITED(status))))
        return 0;
    return status != 0 || !over;
}

int hly_elastic_told(const struct hly_job *job, int slot)
{
    const int status = job->ranks[slot].status;
    const int ends_job = !hly_slots_leaves(job->slots, slot) && !hly_elastic_failed(job, slot);
    return status || ends_job ? status : SIGTERM;
}

/* "; its host a is dropped for 2 s" */
static void tell_drop(const struct hly_job *job, int slot, char then[HLY_THEN_BYTES])
{
    const int host = hly_slots_host(job->slots, slot);
    const int64_t ms = hly_drops_ms(job->drops, host);
    int others = 0, n;
    for (int i = 0; i < job->options->slots; i++)
        others += job->ranks[i].dropped && hly_slots_host(job->slots, i) == host;
    n = snprintf(then, HLY_THEN_BYTES, "; host %.100s is dropped",
                 hly_drops_name(job->drops, host));
    if (ms)
        n += snprintf(then + n, HLY_THEN_BYTES - (size_t)n, " for %g s", (double)ms / 1e3);
    if (others)
        snprintf(then + n, HLY_THEN_BYTES - (size_t)n, ", with %d more process%s of it", others,
                 others == 1 ? "" : "es");
}

void hly_elastic_fail(struct hly_job *job, int slot, char then[HLY_THEN_BYTES])
{
    const int64_t ms = job->drops ? 0 : hly_slots_failed(job->slots, slot, hly_now_ms());
    if (job->drops)
        leave(job, slot); /* its host cools down, not the slot */
    job->last_status = hly_exit_status(job->ranks[slot].status);
    if (!job->lost_status && !job->ranks[slot].condemned && hly_state_met(job->ranks[slot].state))
        job->lost_status = job->last_status;
    then[0] = '\0';
    if (job->drops && !job->finishing)
        tell_drop(job, slot, then);
    else if (!job->finishing && ms)
        snprintf(then, HLY_THEN_BYTES, "; started again in %g s", (double)ms / 1e3);
}

void hly_elastic_left(struct hly_job *job, int slot)
{
    if (!hly_slots_leaves(job->slots, slot) && !job->ranks[slot].status)
        job->finishing = 1;
    leave(job, slot);
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
    if (hosts && answered)
        place(job, hosts);
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
        if (job->ranks[slot].dropped || job->ranks[slot].lost)
            continue;
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
            hly_note("process %d (%s) is %s, and the others go on without it: it is killed", slot,
                     hly_job_where(job, slot, where),
                     hly_flight_is_stopped((int)r->pid) ? "stopped" : "lost");
        r->condemned = 1;
        hly_job_signal(job, slot, SIGKILL);
    }
}

/* Can there be enough of them, and are there? */
static void judge(struct hly_job *job, int64_t now_ms)
{
    const int least = job->options->least, limit_s = job->options->elastic_timeout_s;
    const int running = job->nstarted - job->nended, places = hly_slots_places(job->slots);
    char lack[64] = "";
    if (job->drops && !job->hopes && job->last_status) {
        hly_note("processes have failed on each host, and all hosts are dropped (--blacklist "
                 "hosts): no place is left");
        hly_job_end(job, job->last_status, GRACE_MS);
        return;
    }
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
    if (places < least)
        snprintf(lack, sizeof lack, "; %s %d place%s",
                 job->options->discovery ? "the discovery script has"
                 : job->agents           ? "this machine and the agents have"
                                         : "there are",
                 places, places == 1 ? "" : "s");
    hly_note(
        "there have been too few ranks for %d s (--elastic-timeout): %d process%s run, and there "
        "must be %d (--min-np)%s",
        limit_s, running, running == 1 ? "" : "es", least, lack);
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
    if (job->drops && hly_drops_over(job->drops, now_ms))
        place_hosts(job, known_hosts(job));
    if (hly_agents_awaited(job))
        return next;
    tell_leavers(job);
    hly_job_fill(job, now_ms);
    if (!job->ending)
        judge(job, now_ms);
    const int64_t cool_ms = hly_slots_next_ms(job->slots);
    const int64_t drop_ms = job->drops ? hly_drops_next_ms(job->drops) : 0;
    const int64_t few_ms =
        job->few_ms ? job->few_ms + (int64_t)job->options->elastic_timeout_s * 1000 : 0;
    if (cool_ms && (!next || cool_ms < next))
        next = cool_ms;
    if (drop_ms && (!next || drop_ms < next))
        next = drop_ms;
    return few_ms && (!next || few_ms < next) ? few_ms : next;
}
