/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents.c - the head's side of its agents (launch.h): places come and go with them, and what
 * becomes of the processes there.
 *
 * An agent says nothing but STARTED and ENDED, each of a process that it was told to start, what
 * one does that it was asked for, and LEAVES; one that says anything else is lost. So a slot has
 * one end to be told of at most, and there is no queue. A process that is `gone` is its launcher's
 * matter until ended().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <hly_build.h>

#include "driver.h"

#define HLY_AGENT_ENDED "its connection ended"

static struct hly_agent *agent_of(const halay_launch_t *d, const struct hly_boot_guest *guest)
{
    for (int i = 0; i < d->most_agents; i++)
        if (d->agents[i].guest == guest)
            return &d->agents[i];
    return NULL;
}

static struct hly_agent *unused_agent(const halay_launch_t *d)
{
    for (int i = 0; i < d->most_agents; i++)
        if (!d->agents[i].guest && !d->agents[i].tell)
            return &d->agents[i];
    return NULL;
}

static bool has_ended(const halay_launch_t *d, int slot)
{
    return d->worlds->place[slot].state == HLY_PLACE_ENDED;
}

static bool lives(const halay_launch_t *d, int slot)
{
    return d->worlds->place[slot].state != HLY_PLACE_FREE && !has_ended(d, slot) &&
           !d->slots[slot].gone;
}

static void go(struct hly_slot *slot, int status, int state, const char *why)
{
    slot->gone = true;
    slot->tell |= HLY_TELL(ENDED);
    slot->status = status;
    slot->left = state;
    snprintf(slot->why, sizeof slot->why, "%s", why);
}

/* Its processes are treated as dead: their agent ends them. */
static void lose_agent(halay_launch_t *d, struct hly_agent *agent, const char *why)
{
    agent->guest = NULL;
    agent->tell |= HLY_TELL(AGENT_LOST);
    agent->why = why;
    for (int s = agent->first; s < agent->first + agent->count; s++) {
        if (!lives(d, s))
            continue;
        go(&d->slots[s], SIGKILL, -1, "");
        d->slots[s].lost_with_agent = true;
    }
}

/* The longest row of places that nobody has brought, of `most`. */
static int find_places(const halay_launch_t *d, int most, int *first)
{
    int best = 0, row = 0;
    for (int s = d->params.nlocal; s < d->params.nranks && best < most; s++) {
        const struct hly_slot *slot = &d->slots[s];
        const bool used = slot->agent || (slot->gone && !has_ended(d, s));
        row = used ? 0 : row + 1;
        if (row > best) {
            best = row;
            *first = s - row + 1;
        }
    }
    return best;
}

static void send_away(halay_launch_t *d, struct hly_boot_guest *guest, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The guest may still be taking the text when another one is refused. */
static void send_away(halay_launch_t *d, struct hly_boot_guest *guest, const char *format, ...)
{
    const struct hly_boot_hello *it = &guest->hello;
    struct hly_boot_reception *r = &d->reception;
    char *text = d->refusals[d->nrefusals++ % HLY_REFUSALS];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof d->refusals[0], format, args);
    va_end(args);
    hly_boot_say(&d->log, 1, "an agent (pid %u on %.63s) was refused: %s", it->pid, it->host, text);
    hly_boot_reception_text(r, guest, text, 0);
}

void hly_agents_heard(halay_launch_t *d, struct hly_boot_guest *guest)
{
    const struct hly_boot_hello *it = &guest->hello;
    struct hly_agent *agent = unused_agent(d);
    int first = 0;
    if (!d->most_agents) {
        send_away(d, guest, "the job takes no agents (halayrun --agents)");
        return;
    }
    if (strcmp(it->library, hly_build()) != 0) {
        send_away(d, guest,
                  "it runs Halay %.40s, and the head %s: run the same version on all nodes",
                  it->library, hly_build());
        return;
    }
    const int n = it->nranks >= 1 && it->nranks <= HLY_BOOT_RANKS_MAX
                      ? find_places(d, (int)it->nranks, &first)
                      : 0;
    if (!agent || !n || d->worlds->done) {
        send_away(d, guest,
                  d->worlds->done ? "the job ends" : "the job has agents for all of its places");
        return;
    }
    *agent =
        (struct hly_agent){.guest = guest, .tell = HLY_TELL(AGENT), .first = first, .count = n};
    snprintf(agent->host, sizeof agent->host, "%.63s", it->host);
    for (int s = first; s < first + n; s++) {
        d->slots[s] = (struct hly_slot){.agent = agent};
        hly_worlds_bring(d->worlds, s);
        snprintf(d->slots[s].host, sizeof d->slots[s].host, "%s", agent->host);
    }
    struct hly_boot_answer a = {.joined =
                                    HLY_BOOT_JOINED | (d->params.least ? HLY_BOOT_CHANGES : 0),
                                .nprocesses = (uint32_t)n,
                                .rank = (uint32_t)first,
                                .nranks = (uint32_t)d->params.nranks};
    guest->stays = true;
    hly_frames_init(&agent->frames, &d->key, HLY_FROM_HEAD, &guest->greeting, it);
    hly_frame_keep_alive(guest->fd);
    hly_boot_reception_answer(&d->reception, guest, &a, "", NULL, NULL);
}

static bool take_frame(halay_launch_t *d, struct hly_agent *agent, const struct hly_frame *f)
{
    struct hly_slot *slot = f->rank >= agent->first && f->rank < agent->first + agent->count
                                ? &d->slots[f->rank]
                                : NULL;
    if (f->what == HALAY_LAUNCH_AGENT_LEAVES) {
        agent->tell |= HLY_TELL(AGENT_LEAVES);
        return true;
    }
    if (!slot || !lives(d, f->rank))
        return false;
    if (f->what == HALAY_LAUNCH_STARTED) {
        slot->pid = f->value;
        slot->tell |= HLY_TELL(STARTED);
        return true;
    }
    if (f->what == HALAY_LAUNCH_LOOK && slot->asked) {
        slot->asked = false;
        slot->tell |= slot->wanted ? HLY_TELL(LOOK) : 0;
        slot->wanted = false;
        slot->seen = (char)f->state;
        return true;
    }
    if (f->what != HALAY_LAUNCH_ENDED)
        return false;
    go(slot, f->value, f->state, f->text);
    return true;
}

bool hly_agents_said(void *arg, struct hly_boot_guest *guest, const char *bytes, size_t n)
{
    halay_launch_t *d = arg;
    struct hly_agent *agent = agent_of(d, guest);
    int whole;
    while (agent && n)
        if ((whole = hly_frames_take(&agent->frames, &bytes, &n)) < 0 ||
            (whole && !take_frame(d, agent, &agent->frames.next)))
            return false;
    return agent != NULL;
}

void hly_agents_left(halay_launch_t *d, const struct hly_boot_guest *guest)
{
    struct hly_agent *agent = agent_of(d, guest);
    if (agent)
        lose_agent(d, agent, HLY_AGENT_ENDED);
}

/* ---------------------------------------------------------------- for the launcher */

/* What a process there has come to: of one that has ended with its agent behind its agent's end. */
static bool slot_event(halay_launch_t *d, bool with_agent, halay_launch_event_t *event)
{
    for (int s = 0; s < d->params.nranks; s++) {
        struct hly_slot *slot = &d->slots[s];
        if (hly_frame_tells(&slot->tell, HALAY_LAUNCH_STARTED, s, 0, event)) {
            event->value = (int)slot->pid;
            return true;
        }
        if (hly_frame_tells(&slot->tell, HALAY_LAUNCH_LOOK, s, 0, event)) {
            event->state = (unsigned char)slot->seen;
            return true;
        }
        if (slot->lost_with_agent != with_agent ||
            !hly_frame_tells(&slot->tell, HALAY_LAUNCH_ENDED, s, with_agent, event))
            continue;
        event->value = slot->status;
        event->state = slot->left;
        snprintf(event->text, sizeof event->text, "%.251s", slot->why);
        return true;
    }
    return false;
}

static bool came_event(halay_launch_t *d, halay_launch_event_t *event)
{
    for (int i = 0; i < d->most_agents; i++) {
        struct hly_agent *it = &d->agents[i];
        if (hly_frame_tells(&it->tell, HALAY_LAUNCH_AGENT, it->first, it->count, event)) {
            snprintf(event->text, sizeof event->text, "%s", it->host);
            return true;
        }
        if (hly_frame_tells(&it->tell, HALAY_LAUNCH_AGENT_LEAVES, it->first, it->count, event))
            return true;
    }
    return false;
}

static bool lost_event(halay_launch_t *d, halay_launch_event_t *event)
{
    for (int i = 0; i < d->most_agents; i++) {
        struct hly_agent *it = &d->agents[i];
        if (!hly_frame_tells(&it->tell, HALAY_LAUNCH_AGENT_LOST, it->first, it->count, event))
            continue;
        snprintf(event->text, sizeof event->text, "%s: %s", it->host, it->why);
        for (int s = it->first; s < it->first + it->count; s++)
            d->slots[s].agent = NULL;
        *it = (struct hly_agent){0};
        return true;
    }
    return false;
}

int hly_agents_event(halay_launch_t *d, halay_launch_event_t *event)
{
    return d->most_agents && (came_event(d, event) || slot_event(d, false, event) ||
                              lost_event(d, event) || slot_event(d, true, event));
}

static void send_frame(halay_launch_t *d, struct hly_agent *agent, struct hly_frame *frame)
{
    struct hly_boot_guest *guest = agent->guest;
    hly_frame_seal(&agent->frames, frame);
    errno = EAGAIN;
    if (hly_boot_reception_push(guest, frame, sizeof *frame))
        return;
    const bool full = errno == EAGAIN;
    hly_boot_reception_dismiss(&d->reception, guest);
    lose_agent(d, agent, full ? "it does not read what it is told" : HLY_AGENT_ENDED);
}

static void send_to(halay_launch_t *d, struct hly_agent *agent, const halay_launch_event_t *c)
{
    struct hly_frame frame = {.what = c->what, .rank = c->rank, .value = c->value};
    snprintf(frame.text, sizeof frame.text, "%s", c->text);
    send_frame(d, agent, &frame);
}

/* Asks about a process that runs: its agent has said so, and not yet that it has ended. */
void hly_agents_look(halay_launch_t *d, int slot)
{
    struct hly_frame frame = {.what = HALAY_LAUNCH_LOOK, .rank = slot};
    struct hly_slot *s = &d->slots[slot];
    if (!s->agent || !s->agent->guest || !s->pid || s->asked || !lives(d, slot))
        return;
    s->asked = true;
    send_frame(d, s->agent, &frame);
}

void hly_agents_command(halay_launch_t *d, const halay_launch_event_t *c)
{
    if (c->what == HALAY_LAUNCH_END) {
        for (int i = 0; i < d->most_agents; i++)
            if (d->agents[i].guest)
                send_to(d, &d->agents[i], c);
        return;
    }
    if (c->what == HALAY_LAUNCH_LOOK) {
        d->slots[c->rank].wanted = true;
        hly_agents_look(d, c->rank);
        return;
    }
    const bool start = c->what == HALAY_LAUNCH_START;
    struct hly_agent *agent = d->slots[c->rank].agent;
    if (start)
        hly_driver_started(d, c->rank, 0); /* it may ask before its agent says so */
    if (agent && agent->guest) {
        send_to(d, agent, c);
    } else if (start) {
        go(&d->slots[c->rank], SIGKILL, -1, "");
        d->slots[c->rank].lost_with_agent = true;
    }
}
