/* SPDX-License-Identifier: Apache-2.0 */
/* answers.c - says to the processes, and to the log, what their world says (world.h). */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "../../common/proc.h"
#include "../../src/waits/text.h"
#include "driver.h"

/* ---------------------------------------------------------------- answers */

void hly_driver_tell(halay_launch_t *d, int s, const char *text, uint32_t said)
{
    hly_boot_reception_text(&d->reception, d->slots[s].guest, text, said);
    d->slots[s].guest = NULL;
}

void hly_driver_refuse(halay_launch_t *d, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (format)
        vsnprintf(d->text, sizeof d->text, format, args);
    va_end(args);
    if (strcmp(d->said, d->text) != 0)
        hly_boot_say(&d->log, 0, "%s", d->text);
    memcpy(d->said, d->text, sizeof d->said);
    for (int s = 0; s < d->params.nranks; s++)
        if (d->slots[s].guest)
            hly_driver_tell(d, s, d->text, HLY_BOOT_SAID);
    hly_worlds_refused(d->worlds);
}

void hly_driver_tell_news(halay_launch_t *d)
{
    const uint32_t n = (uint32_t)hly_worlds_newcomers(d->worlds);
    if (d->first && n != d->newcomers_told && hly_boot_reception_push(d->first, &n, sizeof n))
        d->newcomers_told = n;
}

static void make_world(halay_launch_t *d)
{
    struct hly_boot_answer *a = &d->answer;
    const struct hly_worlds *w = d->worlds;
    const bool changes = !hly_worlds_is_static(w);
    hly_boot_reception_forget(&d->reception);
    hly_boot_table_finish(&d->table);
    for (int rank = 0; rank < w->n; rank++)
        d->hellos[rank] = d->slots[w->order[rank]].hello;
    *a = (struct hly_boot_answer){.joined = HLY_BOOT_JOINED | (changes ? HLY_BOOT_CHANGES : 0),
                                  .epoch = w->epoch + 1};
    memcpy(a->job, d->job, sizeof a->job);
    memcpy(a->secret, d->secret, sizeof a->secret);
    if (hly_boot_table_write(d->hellos, w->n, a, &d->table)) {
        hly_driver_refuse(d, "the launcher on %s is out of memory for a job of %d ranks", d->host,
                          w->n);
        return;
    }
    if (w->epoch && !w->place[w->order[0]].member)
        hly_boot_say(&d->log, 1,
                     "no process of the last meeting is left: %d that have been started since "
                     "begin without what it had in memory",
                     w->n);
    if (!w->epoch)
        hly_boot_say_alone(&d->log, d->hellos, w->n);
    hly_sha_init(&d->sha);
    hly_sha_add(&d->sha, d->table.bytes, a->bytes);
    hly_worlds_joined(d->worlds);
    d->first = NULL;
    d->newcomers_told = 0;
    for (int rank = 0; rank < w->n; rank++) {
        struct hly_slot *slot = &d->slots[w->order[rank]];
        struct hly_boot_guest *guest = slot->guest;
        struct hly_boot_answer own = *a;
        const struct hly_piece part = hly_boot_table_part(&d->table, (uint32_t)rank, &own);
        slot->guest = NULL;
        if (rank == 0 && changes) {
            guest->stays = true;
            d->first = guest;
        }
        hly_boot_reception_answer(&d->reception, guest, &own, d->table.bytes, &d->sha, &part);
    }
}

static void how_ended(const struct hly_slot *slot, char text[64])
{
    if (WIFSIGNALED(slot->status))
        snprintf(text, 64, "was killed by signal %d", WTERMSIG(slot->status));
    else
        snprintf(text, 64, "exited with status %d", WEXITSTATUS(slot->status));
}

static const char *host_of(const halay_launch_t *d, const struct hly_slot *slot)
{
    return slot->host[0] ? slot->host : d->host;
}

/* One of a job that needs all has ended. */
static void refuse_ended(halay_launch_t *d, int s)
{
    const struct hly_slot *slot = &d->slots[s];
    char how[64];
    how_ended(slot, how);
    if (slot->why[0])
        hly_driver_refuse(d, "halay_init has failed on rank %d (pid %lld on %s; it %s): %s", s,
                          (long long)slot->pid, host_of(d, slot), how, slot->why);
    else
        hly_driver_refuse(d,
                          "rank %d (pid %lld on %s) has ended before all ranks had joined the "
                          "job%s: it %s. See what it has printed; start the job again",
                          s, (long long)slot->pid, host_of(d, slot),
                          d->worlds->epoch ? " again" : "", how);
}

/* ---------------------------------------------------------------- who is missing */

/* "rank 0 (pid 7: stopped; not in halay_init), and 3 more"; or, where nobody is awaited, "only 1 of
 * the 2 that there must be: process 1 (...)". */
static void name_missing(const halay_launch_t *d, struct hly_line *line)
{
    const struct hly_worlds *w = d->worlds;
    const bool waiting = hly_worlds_waiting(w) > 0;
    if (!waiting)
        hly_line_put(line, "only %d of the %d that there must be", hly_worlds_asking(w), w->least);
    for (int s = 0; s < w->nplaces; s++) {
        struct hly_proc_stat stat;
        const struct hly_slot *slot = &d->slots[s];
        if (!(waiting ? hly_worlds_is_awaited(w, s) : hly_worlds_is_absent(w, s)))
            continue;
        if (!waiting && !line->named)
            hly_line_put(line, ": ");
        if (!hly_line_next(line, ", "))
            continue;
        const char *doing = slot->host[0]                     ? slot->host
                            : hly_proc_stat(slot->pid, &stat) ? hly_proc_doing(stat.state)
                                                              : "not seen";
        hly_line_process(line, hly_worlds_is_static(w) ? "rank" : "process", s, slot->pid, doing,
                         false);
    }
    hly_line_more(line, ", ");
}

/* How many there have to be, as far as is known. */
static int needed(const struct hly_worlds *w)
{
    const int known = hly_worlds_asking(w) + hly_worlds_waiting(w);
    return hly_worlds_is_static(w) ? w->nplaces : known > w->least ? known : w->least;
}

static void refuse_missing(halay_launch_t *d, uint64_t now)
{
    char text[700];
    struct hly_line line = hly_line(text, sizeof text);
    name_missing(d, &line);
    hly_driver_refuse(d,
                      "not all of the %d ranks joined within %.1f s: on %s %s. Are they running, "
                      "and do they call halay_init? (see HALAY_START_DEADLINE)%s",
                      needed(d->worlds), (double)(now - d->worlds->notices.since_ns) * 1e-9,
                      d->host, text, d->reception.note);
}

static void remind(const halay_launch_t *d)
{
    const struct hly_worlds *w = d->worlds;
    const int n = needed(w);
    char text[500];
    struct hly_line line = hly_line(text, sizeof text);
    name_missing(d, &line);
    hly_boot_remind(&d->log, w->notices.since_ns, hly_worlds_is_static(w) ? w->decide_ns : 0,
                    "halay_init", HLY_BOOT_OF_NODE "%s", n - hly_worlds_asking(w), n, d->host,
                    text);
}

/* A process that lives, and will not ask, for its halay_init has failed before it could; or one
 * that is stopped. What an agent's does, the agent is asked, and says later. */
static void look(halay_launch_t *d)
{
    struct hly_proc_stat stat;
    for (int s = 0; s < d->params.nranks; s++) {
        struct hly_slot *slot = &d->slots[s];
        if (!hly_worlds_is_absent(d->worlds, s))
            continue;
        if (hly_worlds_is_static(d->worlds)) {
            if (!d->params.failed || d->worlds->place[s].was_refused ||
                !hly_worlds_is_awaited(d->worlds, s) ||
                !d->params.failed(d->params.arg, s, slot->why, sizeof slot->why))
                continue;
            hly_worlds_failed(d->worlds, s);
            return;
        }
        hly_agents_look(d, s);
        char state = slot->seen;
        if (!slot->host[0])
            state = (char)(hly_proc_stat(slot->pid, &stat) ? stat.state : 0);
        hly_worlds_seen(d->worlds, s, state == 'T' || state == 't');
    }
}

static void say_why_not(halay_launch_t *d, const struct hly_worlds_action *a, uint64_t now)
{
    switch (a->cause) {
    case HLY_CAUSE_ENDED:
        refuse_ended(d, a->place);
        break;
    case HLY_CAUSE_FAILED:
        hly_driver_refuse(d, "halay_init has failed on rank %d (pid %lld on %s; it goes on): %s",
                          a->place, (long long)d->slots[a->place].pid, d->host,
                          d->slots[a->place].why);
        d->slots[a->place].why[0] = '\0';
        break;
    case HLY_CAUSE_MISSING:
        refuse_missing(d, now);
        break;
    case HLY_CAUSE_OVER:
        hly_driver_tell(
            d, a->place,
            "the job ends: a process of it has ended with status 0, and it is too late to join",
            HLY_BOOT_OVER);
        break;
    case HLY_CAUSE_EXPIRED:
        hly_driver_tell(d, a->place,
                        "the ranks of the job have not met again in time: they wait for newcomers "
                        "at a commit (see HALAY_START_DEADLINE)",
                        0);
        break;
    default:
        hly_driver_refuse(d, NULL);
        break;
    }
}

void hly_driver_go_on(halay_launch_t *d)
{
    struct hly_worlds_action a;
    uint64_t now = hly_boot_now_ns();
    for (; hly_worlds_next(d->worlds, now, &a); now = hly_boot_now_ns()) {
        char missing[400];
        struct hly_line line = hly_line(missing, sizeof missing);
        switch (a.what) {
        case HLY_WORLDS_REPORT: /* which may end others, and come back here */
            if (d->params.lost)
                d->params.lost(d->params.arg, a.place);
            break;
        case HLY_WORLDS_TABLE:
            make_world(d);
            break;
        case HLY_WORLDS_LOOK:
            look(d);
            break;
        case HLY_WORLDS_GO_ON:
            name_missing(d, &line);
            hly_boot_say(&d->log, 1, "the others go on without %s", missing);
            break;
        case HLY_WORLDS_NOTICE:
            remind(d);
            break;
        default:
            say_why_not(d, &a, now);
            break;
        }
    }
}
