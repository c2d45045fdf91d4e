/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents.c - the head's side of its agents. A slot that an agent has brought is as one of this
 * machine, but that its process is started, told and ended through the agent, and that the agent
 * says how it has ended.
 *
 * The job begins when those are there that it waits for. A job whose ranks are always the same has
 * as many as there are places then.
 */
#define _GNU_SOURCE
#include "agents.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"
#include "note.h"

enum { SILENT_MS = 5000, NAMED_MOST = 8 };

struct agent {
    int first, count; /* slots; count 0: nobody is here */
    int leaves;       /* it has said so */
    int named;        /* the discovery script has known its host */
    char host[64];
};

struct hly_agents {
    int most, n;
    int begun, ended;
    int64_t since_ms;
    int64_t look_ms; /* when to look for those that do not answer */
    struct agent all[];
};

struct hly_agents *hly_agents_create(int most)
{
    struct hly_agents *a = calloc(1, sizeof *a + (size_t)most * sizeof a->all[0]);
    if (!a)
        return NULL;
    a->most = most;
    a->since_ms = hly_now_ms();
    return a;
}

void hly_agents_destroy(struct hly_agents *agents)
{
    free(agents);
}

int hly_agents_awaited(const struct hly_job *job)
{
    return job->agents && !job->agents->begun && !job->ending;
}

int hly_agents_from(const struct hly_job *job, const char *host)
{
    const struct hly_agents *a = job->agents;
    for (int i = 0; a && i < a->most; i++)
        if (a->all[i].count && hly_host_same(a->all[i].host, host))
            return 1;
    return 0;
}

/* Places of an agent; a host that is dropped has none. */
static void give(struct hly_job *job, const struct agent *it, int places)
{
    struct hly_drops *d = job->drops;
    const int host = d ? hly_drops_number(d, it->host) : 0;
    if (d)
        hly_slots_seat(job->slots, it->first, it->count, host, hly_drops_has(d, host) ? 0 : places);
    else
        hly_slots_place(job->slots, it->first, it->count, places);
}

int hly_agents_hopes(const struct hly_job *job)
{
    const struct hly_agents *a = job->agents;
    int n = 0;
    for (int i = 0; a && i < a->most; i++)
        n += a->all[i].count && !a->all[i].leaves &&
             !hly_drops_has(job->drops, hly_drops_number(job->drops, a->all[i].host));
    return n;
}

static struct agent *find(struct hly_agents *a, int first)
{
    for (int i = 0; i < a->most; i++)
        if (a->all[i].count && a->all[i].first == first)
            return &a->all[i];
    return NULL;
}

/* ------------------------------------------------------------------ they come and go */

/* All that it waits for are there. */
static void begin(struct hly_job *job)
{
    struct hly_agents *a = job->agents;
    const struct hly_options *o = job->options;
    int total = o->nlocal, top = o->nlocal;
    if (a->begun || a->n < o->agents || job->ending)
        return;
    for (int i = 0; i < a->most; i++) {
        const struct agent *it = &a->all[i];
        total += it->count;
        top = it->count && it->first + it->count > top ? it->first + it->count : top;
    }
    if (!o->least && total != top) {
        hly_note("an agent has left before the job began, and there are others behind its places: "
                 "start the job again");
        hly_job_end(job, 1, 0);
        return;
    }
    a->begun = 1;
    if (!o->least)
        hly_servers_settle(&job->servers, total);
    if (o->verbose)
        hly_note("the job begins, with places for %d processes", hly_slots_places(job->slots));
    hly_job_fill(job, hly_now_ms());
}

static void come(struct hly_job *job, const halay_launch_event_t *e)
{
    struct hly_agents *a = job->agents;
    struct agent *it = a->all;
    while (it->count) /* ends: each has a place, and there are as many places */
        it++;
    *it = (struct agent){.first = e->rank, .count = e->count};
    snprintf(it->host, sizeof it->host, "%.63s", e->text);
    a->n++;
    hly_slots_renew(job->slots, it->first, it->count);
    give(job, it, it->count);
    hly_agents_place(job, hly_discovery_hosts(job->discovery));
    if (it->count == 1)
        hly_note("an agent on %s has brought place %d", it->host, it->first);
    else
        hly_note("an agent on %s has brought places %d to %d", it->host, it->first,
                 it->first + it->count - 1);
    begin(job);
}

static void leave(struct hly_job *job, const halay_launch_event_t *e)
{
    struct agent *it = find(job->agents, e->rank);
    if (!it)
        return;
    it->leaves = 1;
    hly_slots_place(job->slots, it->first, it->count, 0);
    hly_note("the agent on %s leaves", it->host);
}

static void lose(struct hly_job *job, const halay_launch_event_t *e)
{
    struct agent *it = find(job->agents, e->rank);
    if (!it)
        return;
    hly_slots_place(job->slots, it->first, it->count, 0);
    if (!it->leaves && !job->ending && !job->finishing)
        hly_note("lost the agent on %s", e->text);
    *it = (struct agent){0};
    job->agents->n--;
}

/* A process has ended there. */
static void end(struct hly_job *job, const halay_launch_event_t *e)
{
    struct hly_rank *r = &job->ranks[e->rank];
    if (!r->far || r->ended)
        return;
    r->lost_with_agent = e->count;
    snprintf(r->why, sizeof r->why, "%s", e->text);
    hly_job_ended(job, e->rank, e->value, e->state, r->why[0] ? r->why : NULL);
}

void hly_agents_turn(struct hly_job *job)
{
    halay_launch_event_t e;
    while (hly_servers_event(&job->servers, &e)) {
        if (e.what == HALAY_LAUNCH_AGENT)
            come(job, &e);
        else if (e.what == HALAY_LAUNCH_AGENT_LEAVES)
            leave(job, &e);
        else if (e.what == HALAY_LAUNCH_AGENT_LOST)
            lose(job, &e);
        else if (e.what == HALAY_LAUNCH_ENDED)
            end(job, &e);
        else if (e.what == HALAY_LAUNCH_STARTED)
            job->ranks[e.rank].far = e.value;
        else if (e.what == HALAY_LAUNCH_LOOK)
            job->ranks[e.rank].doing = e.state;
        if (e.what == HALAY_LAUNCH_STARTED || e.what == HALAY_LAUNCH_LOOK)
            job->ranks[e.rank].asked_ms = 0;
        if (e.what == HALAY_LAUNCH_STARTED && job->options->verbose)
            hly_note("%s %d is pid %d on %s", job->options->least ? "process" : "rank", e.rank,
                     e.value, job->ranks[e.rank].host);
    }
    if (!job->agents->begun)
        begin(job);
}

/* ------------------------------------------------------------------ what they are told */

void hly_agents_start(struct hly_job *job, int slot)
{
    const struct hly_agents *a = job->agents;
    struct hly_rank *r = &job->ranks[slot];
    for (int i = 0; i < a->most; i++)
        if (slot >= a->all[i].first && slot < a->all[i].first + a->all[i].count)
            memcpy(r->host, a->all[i].host, sizeof r->host);
    r->far = -1;
    job->nstarted++;
    hly_servers_command(&job->servers, HALAY_LAUNCH_START, slot,
                        job->options->least ? job->options->elastic_timeout_s : 0);
}

void hly_agents_end(struct hly_job *job, int status)
{
    if (!job->agents || job->agents->ended)
        return;
    job->agents->ended = 1;
    hly_servers_command(&job->servers, HALAY_LAUNCH_END, 0, status);
}

void hly_agents_place(struct hly_job *job, const struct hly_hosts *hosts)
{
    struct hly_agents *a = job->agents;
    for (int h = 0; hosts && h < hosts->n; h++)
        hosts->list[h].ranks = 0; /* taken */
    for (int i = 0; a && (hosts || job->drops) && i < a->most; i++) {
        struct agent *it = &a->all[i];
        int places = 0, named = 0;
        for (int h = 0; it->count && hosts && h < hosts->n; h++) {
            struct hly_host *host = &hosts->list[h];
            if (!hly_host_same(host->name, it->host))
                continue;
            const int more = host->slots - host->ranks < it->count - places
                                 ? host->slots - host->ranks
                                 : it->count - places;
            named = 1;
            host->ranks += more;
            places += more;
        }
        it->named |= named;
        if (it->count && !it->leaves && (it->named || job->drops))
            give(job, it, it->named ? places : it->count);
    }
}

/* ------------------------------------------------------------------ timeout */

static void tell_who_is_there(const struct hly_job *job)
{
    const struct hly_agents *a = job->agents;
    char text[NAMED_MOST * 96] = "none";
    size_t at = 0;
    for (int i = 0, n = 0; i < a->most && n < NAMED_MOST; i++) {
        if (!a->all[i].count)
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s (%d place%s)", n++ ? ", " : "",
                               a->all[i].host, a->all[i].count, a->all[i].count == 1 ? "" : "s");
    }
    hly_note("%d of %d agents have come to %s within %d s (--elastic-timeout): %s%s", a->n,
             job->options->agents, hly_servers_address(&job->servers),
             job->options->elastic_timeout_s, text, a->n > NAMED_MOST ? ", ..." : "");
}

void hly_agents_forgive(struct hly_agents *agents, int64_t ms)
{
    agents->since_ms += ms;
}

/* Their agents are stopped, or they cannot be killed. */
static void forsake(struct hly_job *job)
{
    for (int slot = job->options->nlocal; slot < job->options->slots; slot++) {
        struct hly_rank *r = &job->ranks[slot];
        char where[96];
        if (!r->far || r->ended)
            continue;
        hly_note("the agent of process %d (%s) does not say that it has ended: it may live", slot,
                 hly_job_where(job, slot, where));
        r->lost_with_agent = 1;
        hly_job_ended(job, slot, SIGKILL, -1, NULL);
    }
}

/* All others have ended, and these agents have not answered for SILENT_MS: nobody would ever say
 * that their processes have ended. 1 if that is so. */
static int are_silent(struct hly_job *job, int64_t now_ms)
{
    int left = 0, silent = 0;
    for (int slot = 0; slot < job->options->slots; slot++) {
        struct hly_rank *r = &job->ranks[slot];
        if ((r->pid <= 0 && !r->far) || r->ended)
            continue;
        left++;
        if (!r->far)
            continue;
        silent += r->asked_ms && now_ms - r->asked_ms >= SILENT_MS;
        r->asked_ms = r->asked_ms ? r->asked_ms : now_ms;
        hly_servers_command(&job->servers, HALAY_LAUNCH_LOOK, slot, 0);
    }
    return left && silent == left;
}

/* When to come again; 0: not by waiting. */
static int64_t look_for_silent(struct hly_job *job, int64_t now_ms)
{
    struct hly_agents *a = job->agents;
    const int late = job->options->least ? job->finishing : job->nended;
    if (job->ending || !late || job->nended == job->nstarted)
        return 0;
    if (now_ms < a->look_ms)
        return a->look_ms;
    a->look_ms = now_ms + GRACE_MS;
    if (!are_silent(job, now_ms))
        return a->look_ms;
    forsake(job);
    return now_ms;
}

int64_t hly_agents_due(struct hly_job *job, int64_t now_ms)
{
    if (hly_agents_awaited(job)) {
        const int64_t until =
            job->agents->since_ms + (int64_t)job->options->elastic_timeout_s * 1000;
        if (now_ms < until)
            return until;
        tell_who_is_there(job);
        hly_job_end(job, 1, 0);
    }
    if (job->ending && job->silent_ms && now_ms >= job->silent_ms) {
        job->silent_ms = 0;
        forsake(job);
        return now_ms;
    }
    return job->ending ? job->silent_ms : look_for_silent(job, now_ms);
}
