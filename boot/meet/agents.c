/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents.c - the head's side of its agents (launch.h): places come and go with them, and what
 * becomes of the processes there.
 *
 * An agent says nothing but STARTED and ENDED, each of a process that it was told to start; one
 * that says anything else is lost. So a slot has one end to be told of at most, and there is no
 * queue.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"

static struct hly_agent *agent_of(const halay_launch_t *d, const struct hly_boot_guest *guest)
{
    for (int i = 0; d->agents && i < d->params.nranks; i++)
        if (d->agents[i].guest == guest)
            return &d->agents[i];
    return NULL;
}

static struct hly_agent *unused_agent(const halay_launch_t *d)
{
    for (int i = 0; d->agents && i < d->params.nranks; i++)
        if (!d->agents[i].guest && !d->agents[i].lost)
            return &d->agents[i];
    return NULL;
}

/* Its processes are as good as dead: their agent ends them. */
static void lose(halay_launch_t *d, struct hly_agent *agent, const char *why)
{
    agent->guest = NULL;
    agent->lost = true;
    agent->why = why;
    for (int s = agent->first; s < agent->first + agent->count; s++) {
        if (d->slots[s].state == HLY_SLOT_FREE || d->slots[s].state == HLY_SLOT_ENDED)
            continue;
        d->slots[s].tell_end = true;
        hly_driver_ended(d, s, SIGKILL, NULL);
    }
}

/* The longest row of places that nobody has brought, of `most`. */
static int find_places(const halay_launch_t *d, int most, int *first)
{
    int best = 0, row = 0;
    for (int s = d->params.nlocal; s < d->params.nranks && best < most; s++) {
        const bool used = d->slots[s].agent != NULL;
        row = used ? 0 : row + 1;
        if (row > best) {
            best = row;
            *first = s - row + 1;
        }
    }
    return best;
}

void hly_agents_heard(halay_launch_t *d, struct hly_boot_guest *guest)
{
    const struct hly_boot_hello *it = &guest->hello;
    struct hly_agent *agent = unused_agent(d);
    int first = 0;
    const int n = d->agents && it->nranks >= 1 && it->nranks <= HLY_BOOT_RANKS_MAX
                      ? find_places(d, (int)it->nranks, &first)
                      : 0;
    if (!agent || !n) {
        hly_boot_reception_text(&d->reception, guest,
                                d->agents ? "the job has agents for all of its places"
                                          : "the job takes no agents (halayrun --agents)",
                                false);
        return;
    }
    *agent = (struct hly_agent){.guest = guest, .came = true, .first = first, .count = n};
    snprintf(agent->host, sizeof agent->host, "%.63s", it->host);
    for (int s = first; s < first + n; s++)
        d->slots[s] = (struct hly_slot){.agent = agent, .rank = -1};
    struct hly_boot_answer a = {.magic = HLY_BOOT_MAGIC,
                                .version = HLY_BOOT_VERSION,
                                .joined = HLY_BOOT_JOINED,
                                .nprocesses = (uint32_t)n,
                                .rank = (uint32_t)first,
                                .nranks = (uint32_t)d->params.nranks};
    struct hly_sha sha;
    hly_sha_init(&sha);
    guest->talks = true;
    hly_frames_init(&agent->frames, &d->key, HLY_FROM_HEAD, &guest->greeting, it);
    hly_frame_keep_alive(guest->fd);
    hly_boot_reception_answer(&d->reception, guest, &a, "", &sha, NULL);
    if (guest->fd < 0)
        lose(d, agent, "it was lost");
}

static bool take(halay_launch_t *d, const struct hly_agent *agent, const struct hly_frame *f)
{
    struct hly_slot *slot = f->rank >= agent->first && f->rank < agent->first + agent->count
                                ? &d->slots[f->rank]
                                : NULL;
    if (!slot || slot->state == HLY_SLOT_FREE || slot->state == HLY_SLOT_ENDED)
        return false;
    if (f->what == HLY_FRAME_STARTED) {
        slot->pid = f->value;
        return true;
    }
    if (f->what != HALAY_LAUNCH_ENDED)
        return false;
    slot->tell_end = true;
    hly_driver_ended(d, f->rank, f->value, f->text);
    return true;
}

bool hly_agents_said(halay_launch_t *d, struct hly_boot_guest *guest, const char *bytes, size_t n)
{
    struct hly_agent *agent = agent_of(d, guest);
    int whole;
    while (agent && n)
        if ((whole = hly_frames_take(&agent->frames, &bytes, &n)) < 0 ||
            (whole && !take(d, agent, &agent->frames.next)))
            return false;
    return agent != NULL;
}

void hly_agents_left(halay_launch_t *d, const struct hly_boot_guest *guest)
{
    struct hly_agent *agent = agent_of(d, guest);
    if (agent)
        lose(d, agent, "its connection ended");
}

/* ---------------------------------------------------------------- for the launcher */

static int ended_event(halay_launch_t *d, halay_launch_event_t *event)
{
    for (int s = 0; s < d->params.nranks; s++) {
        struct hly_slot *slot = &d->slots[s];
        if (!slot->tell_end)
            continue;
        slot->tell_end = false;
        *event = (halay_launch_event_t){
            .size = sizeof *event, .what = HALAY_LAUNCH_ENDED, .rank = s, .value = slot->status};
        snprintf(event->text, sizeof event->text, "%.255s", slot->why);
        return 1;
    }
    return 0;
}

int hly_agents_event(halay_launch_t *d, halay_launch_event_t *event)
{
    for (int i = 0; d->agents && i < d->params.nranks; i++) {
        struct hly_agent *agent = &d->agents[i];
        if (!agent->came)
            continue;
        agent->came = false;
        *event = (halay_launch_event_t){.size = sizeof *event,
                                        .what = HALAY_LAUNCH_AGENT,
                                        .rank = agent->first,
                                        .count = agent->count};
        snprintf(event->text, sizeof event->text, "%s", agent->host);
        return 1;
    }
    if (ended_event(d, event))
        return 1;
    for (int i = 0; d->agents && i < d->params.nranks; i++) {
        struct hly_agent *agent = &d->agents[i];
        if (!agent->lost)
            continue;
        *event = (halay_launch_event_t){.size = sizeof *event,
                                        .what = HALAY_LAUNCH_AGENT_LOST,
                                        .rank = agent->first,
                                        .count = agent->count};
        snprintf(event->text, sizeof event->text, "%s: %s", agent->host, agent->why);
        for (int s = agent->first; s < agent->first + agent->count; s++)
            d->slots[s].agent = NULL;
        *agent = (struct hly_agent){0};
        return 1;
    }
    return 0;
}

static void send_to(halay_launch_t *d, struct hly_agent *agent, const halay_launch_event_t *c)
{
    struct hly_frame frame = {.what = c->what, .rank = c->rank, .value = c->value};
    struct hly_boot_guest *guest = agent->guest;
    snprintf(frame.text, sizeof frame.text, "%s", c->text);
    hly_frame_seal(&agent->frames, &frame);
    if (hly_boot_reception_push(guest, &frame, sizeof frame))
        return;
    hly_boot_reception_dismiss(&d->reception, guest);
    lose(d, agent, "it does not read what it is told");
}

void hly_agents_command(halay_launch_t *d, const halay_launch_event_t *c)
{
    if (c->what == HALAY_LAUNCH_END) {
        for (int i = 0; d->agents && i < d->params.nranks; i++)
            if (d->agents[i].guest)
                send_to(d, &d->agents[i], c);
        return;
    }
    struct hly_agent *agent = d->slots[c->rank].agent;
    if (!agent || !agent->guest)
        return;
    if (c->what == HALAY_LAUNCH_START)
        hly_driver_started(d, c->rank, 0); /* it may ask before its agent says so */
    send_to(d, agent, c);
}
