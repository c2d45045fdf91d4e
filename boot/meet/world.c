/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c - makes the next world (driver.h), or says who is missing.
 *
 * Invariant: a world is made of processes that ask, all at once, and all are told the same. Members
 * of the last one come first, in the order of their ranks, so rank 0 has lived in it; newcomers
 * follow, by slot.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "../../proc/proc.h"
#include "../../src/waits/text.h"
#include "driver.h"

#define S 1000000000ull

struct census {
    int asking;
    int waiting; /* slots that are waited for */
};

static bool is_static(const halay_launch_t *d)
{
    return d->params.least == 0;
}

/* Some process that asks, and was in the last world, says that this rank of it is lost. */
static bool is_lost(const halay_launch_t *d, int rank)
{
    for (int s = 0; s < d->params.nranks; s++) {
        const struct hly_slot *slot = &d->slots[s];
        if (slot->state != HLY_SLOT_ASKING || !slot->member)
            continue;
        for (int i = 0; i < HLY_BOOT_LOST_RUNS; i++)
            if ((uint32_t)rank >= slot->hello.lost[i].first &&
                (uint32_t)rank <= slot->hello.lost[i].last)
                return true;
    }
    return false;
}

/* Static jobs and first worlds wait for all that were started; later ones for the members. */
static bool is_awaited(const halay_launch_t *d, const struct hly_slot *slot)
{
    if (slot->lost)
        return false;
    if (slot->state == HLY_SLOT_STARTED)
        return is_static(d) || !d->epoch;
    return slot->state == HLY_SLOT_IN && slot->member && !slot->leaves && !is_lost(d, slot->rank);
}

/* It lives, and does not ask: awaited, or of no use to those that do. */
static bool is_absent(const struct hly_slot *slot)
{
    return (slot->state == HLY_SLOT_STARTED || slot->state == HLY_SLOT_IN) && !slot->leaves &&
           !slot->doomed;
}

static void condemn(struct hly_slot *slot)
{
    slot->condemned = slot->doomed = true;
}

/* Counts no more of those that are waited for than it must. */
static struct census take_census(const halay_launch_t *d, int most)
{
    struct census c = {0};
    for (int s = 0; s < d->params.nranks; s++) {
        const struct hly_slot *slot = &d->slots[s];
        c.asking += slot->state == HLY_SLOT_ASKING;
        if (c.waiting < most)
            c.waiting += is_awaited(d, slot);
    }
    return c;
}

bool hly_driver_is_newcomer(const halay_launch_t *d, const struct hly_slot *slot)
{
    return slot->state == HLY_SLOT_ASKING && !slot->member && d->epoch && !is_static(d);
}

void hly_driver_set_times(halay_launch_t *d)
{
    const uint64_t before = d->decide_ns, now = hly_boot_now_ns();
    d->decide_ns = d->expire_ns = 0;
    for (int s = 0; s < d->params.nranks; s++) {
        const struct hly_slot *slot = &d->slots[s];
        uint64_t *end = hly_driver_is_newcomer(d, slot) ? &d->expire_ns : &d->decide_ns;
        if (slot->state == HLY_SLOT_ASKING && (!*end || slot->end_ns < *end))
            *end = slot->end_ns;
    }
    if (d->decide_ns && !before)
        d->notices = (struct hly_notices){now, HLY_FIRST_NOTICE_NS, 0};
}

/* ---------------------------------------------------------------- answers */

static void answered(struct hly_slot *slot, enum hly_slot_state state, bool told)
{
    slot->told = told;
    slot->guest = NULL;
    slot->state = state;
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
    for (int s = 0; s < d->params.nranks; s++) {
        struct hly_slot *slot = &d->slots[s];
        if (slot->state != HLY_SLOT_ASKING)
            continue;
        hly_boot_reception_text(&d->reception, slot->guest, d->text, HLY_BOOT_SAID);
        answered(slot, slot->member ? HLY_SLOT_IN : HLY_SLOT_STARTED, true);
    }
    hly_driver_set_times(d);
}

/* `expired` is not null: those whose time is over. */
static void refuse_newcomers(halay_launch_t *d, const uint64_t *expired, uint32_t said,
                             const char *text)
{
    for (int s = 0; s < d->params.nranks; s++) {
        struct hly_slot *slot = &d->slots[s];
        if (!hly_driver_is_newcomer(d, slot) || (expired && slot->end_ns > *expired))
            continue;
        hly_boot_reception_text(&d->reception, slot->guest, text, said);
        answered(slot, HLY_SLOT_STARTED, true);
    }
    hly_driver_set_times(d);
}

void hly_driver_tell_news(halay_launch_t *d)
{
    uint32_t n = 0;
    for (int s = 0; s < d->params.nranks; s++)
        n += hly_driver_is_newcomer(d, &d->slots[s]);
    if (d->first && n != d->told && hly_boot_reception_push(d->first, &n, sizeof n))
        d->told = n;
}

/* Who is which rank: members by theirs, then newcomers by slot. Returns how many. */
static int rank_all(halay_launch_t *d)
{
    int n = 0;
    for (int rank = 0; rank < d->params.nranks; rank++)
        d->order[rank] = -1;
    for (int s = 0; s < d->params.nranks; s++)
        if (d->slots[s].state == HLY_SLOT_ASKING && d->slots[s].member)
            d->order[d->slots[s].rank] = s;
    for (int rank = 0; rank < d->params.nranks; rank++)
        if (d->order[rank] >= 0)
            d->order[n++] = d->order[rank]; /* n <= rank: not one that is still to be read */
    for (int s = 0; s < d->params.nranks; s++)
        if (d->slots[s].state == HLY_SLOT_ASKING && !d->slots[s].member)
            d->order[n++] = s;
    return n;
}

static void make_world(halay_launch_t *d)
{
    struct hly_boot_answer *a = &d->answer;
    const int n = rank_all(d);
    hly_boot_reception_forget(&d->reception);
    hly_boot_table_finish(&d->table);
    for (int rank = 0; rank < n; rank++)
        d->hellos[rank] = d->slots[d->order[rank]].hello;
    *a = (struct hly_boot_answer){.magic = HLY_BOOT_MAGIC,
                                  .version = HLY_BOOT_VERSION,
                                  .joined = HLY_BOOT_JOINED | (is_static(d) ? 0 : HLY_BOOT_CHANGES),
                                  .epoch = d->epoch + 1};
    memcpy(a->job, d->job, sizeof a->job);
    memcpy(a->secret, d->secret, sizeof a->secret);
    if (hly_boot_table_write(d->hellos, n, a, &d->table)) {
        hly_driver_refuse(d, "the launcher on %s is out of memory for a job of %d ranks", d->host,
                          n);
        return;
    }
    if (d->epoch && !d->slots[d->order[0]].member)
        hly_boot_say(
            &d->log, 1,
            "no process of the last meeting is left: %d that have been started since begin "
            "without what it had in memory",
            n);
    if (!d->epoch++)
        hly_boot_say_alone(&d->log, d->hellos, n);
    hly_sha_init(&d->sha);
    hly_sha_add(&d->sha, d->table.bytes, a->bytes);
    for (int s = 0; s < d->params.nranks; s++) {
        struct hly_slot *slot = &d->slots[s];
        const bool left_out = slot->state == HLY_SLOT_IN && slot->member;
        if (is_absent(slot) && (left_out || (slot->lost && slot->unfit_ns)))
            condemn(slot);
        slot->member = false;
    }
    d->first = NULL;
    d->told = 0;
    for (int rank = 0; rank < n; rank++) {
        struct hly_slot *slot = &d->slots[d->order[rank]];
        struct hly_boot_answer own = *a;
        const struct hly_piece part = hly_boot_table_part(&d->table, (uint32_t)rank, &own);
        slot->rank = rank;
        slot->member = true;
        struct hly_boot_guest *guest = slot->guest;
        answered(slot, HLY_SLOT_IN, false);
        if (rank == 0 && !is_static(d)) {
            guest->stays = true;
            d->first = guest;
        }
        hly_boot_reception_answer(&d->reception, guest, &own, d->table.bytes, &d->sha, &part);
    }
    hly_driver_set_times(d);
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

/* Before the others meet: its launcher may know who is lost with it. */
static void report_lost(halay_launch_t *d)
{
    d->reporting = true;
    for (int s = 0; s < d->params.nranks && d->params.lost; s++) {
        struct hly_slot *slot = &d->slots[s];
        if (slot->state != HLY_SLOT_IN || !slot->member || slot->leaves || slot->reported ||
            !is_lost(d, slot->rank))
            continue;
        slot->reported = true;
        d->params.lost(d->params.arg, s);
    }
    d->reporting = false;
}

void hly_driver_consider(halay_launch_t *d)
{
    char how[64];
    if (d->reporting)
        return;
    if (!is_static(d))
        report_lost(d);
    if (d->done)
        refuse_newcomers(
            d, NULL, HLY_BOOT_OVER,
            "the job ends: a process of it has ended with status 0, and it is too late to join");
    const struct census c = take_census(d, 1);
    hly_driver_set_times(d);
    if (!c.asking)
        return;
    if (is_static(d) && d->first_ended >= 0) {
        const struct hly_slot *slot = &d->slots[d->first_ended];
        how_ended(slot, how);
        if (slot->why[0])
            hly_driver_refuse(d, "halay_init has failed on rank %d (pid %lld on %s; it %s): %s",
                              d->first_ended, (long long)slot->pid, host_of(d, slot), how,
                              slot->why);
        else
            hly_driver_refuse(d,
                              "rank %d (pid %lld on %s) has ended before all ranks had joined the "
                              "job%s: it %s. See what it has printed; start the job again",
                              d->first_ended, (long long)slot->pid, host_of(d, slot),
                              d->epoch ? " again" : "", how);
        return;
    }
    const int least = is_static(d) ? d->params.nranks : d->done ? 1 : d->params.least;
    if (!c.waiting && c.asking >= least)
        make_world(d);
}

/* ---------------------------------------------------------------- who is missing */

/* "rank 0 (pid 7: stopped; not in halay_init), and 3 more"; or, where nobody is awaited, "only 1 of
 * the 2 that there must be: process 1 (...)". */
static void name_missing(const halay_launch_t *d, struct hly_line *line)
{
    const struct census c = take_census(d, d->params.nranks);
    if (!c.waiting)
        hly_line_put(line, "only %d of the %d that there must be", c.asking, d->params.least);
    for (int s = 0; s < d->params.nranks; s++) {
        struct hly_proc_stat stat;
        const struct hly_slot *slot = &d->slots[s];
        if (!(c.waiting ? is_awaited(d, slot) : is_absent(slot)))
            continue;
        if (!c.waiting && !line->named)
            hly_line_put(line, ": ");
        if (!hly_line_next(line, ", "))
            continue;
        const char *doing = slot->host[0]                     ? slot->host
                            : hly_proc_stat(slot->pid, &stat) ? hly_proc_doing(stat.state)
                                                              : "not seen";
        hly_line_process(line, is_static(d) ? "rank" : "process", s, slot->pid, doing, false);
    }
    hly_line_more(line, ", ");
}

/* A process that lives, and will not ask: its halay_init has failed before it could. */
static bool has_failed(halay_launch_t *d)
{
    char why[480];
    for (int s = 0; s < d->params.nranks && d->params.failed && is_static(d); s++) {
        const struct hly_slot *slot = &d->slots[s];
        if (slot->told || !is_awaited(d, slot) ||
            !d->params.failed(d->params.arg, s, why, sizeof why))
            continue;
        hly_driver_refuse(d, "halay_init has failed on rank %d (pid %lld on %s; it goes on): %s", s,
                          (long long)slot->pid, d->host, why);
        return true;
    }
    return false;
}

static bool is_stopped(const struct hly_slot *slot)
{
    struct hly_proc_stat stat;
    char state = slot->seen;
    if (!slot->host[0])
        state = (char)(hly_proc_stat(slot->pid, &stat) ? stat.state : 0);
    return state == 'T' || state == 't';
}

/* Newcomers have waited for long, and none of the others will ever come to a commit. */
static bool are_stopped(const halay_launch_t *d)
{
    int running = 0;
    for (int s = 0; s < d->params.nranks; s++)
        running += is_awaited(d, &d->slots[s]) && !is_stopped(&d->slots[s]);
    return running == 0;
}

/* Those that ask are enough without the others. */
static bool are_enough(const halay_launch_t *d)
{
    return !is_static(d) && take_census(d, 0).asking >= d->params.least;
}

/* Will it never ask? It is stopped, or those that ask call it lost. */
static bool is_unfit(const halay_launch_t *d, const struct hly_slot *slot)
{
    return is_stopped(slot) ||
           (slot->state == HLY_SLOT_IN && slot->member && is_lost(d, slot->rank));
}

/* In a job whose ranks change the others go on without a process that is unfit for too long; and,
 * when their time is over, without any that has not asked. Where they are too few without it, it is
 * condemned all the same: another one comes in its place. */
static void give_up(halay_launch_t *d, uint64_t now)
{
    const bool over = d->decide_ns && now >= d->decide_ns;
    const bool wait = d->decide_ns || are_stopped(d);
    const uint64_t epoch = d->epoch;
    char missing[400];
    struct hly_line line = hly_line(missing, sizeof missing);
    bool any = false;
    if (over && are_enough(d)) {
        name_missing(d, &line);
        hly_boot_say(&d->log, 1, "the others go on without %s", missing);
    }
    for (int s = 0; s < d->params.nranks; s++) {
        struct hly_slot *slot = &d->slots[s];
        if (!is_absent(slot))
            continue;
        const bool unfit = wait && is_unfit(d, slot);
        slot->unfit_ns = !unfit ? 0 : slot->unfit_ns ? slot->unfit_ns : now;
        const bool useless = unfit && now - slot->unfit_ns >= d->stop_patience_ns;
        if (is_awaited(d, slot) && (useless || (over && are_enough(d))))
            slot->lost = any = true;
    }
    if (any)
        hly_driver_consider(d);
    for (int s = 0; s < d->params.nranks && d->epoch == epoch && !are_enough(d); s++) {
        struct hly_slot *slot = &d->slots[s];
        if (is_absent(slot) && slot->unfit_ns && now - slot->unfit_ns >= d->stop_patience_ns)
            condemn(slot);
    }
}

/* Newcomers wait for a commit, members for each other: who is stopped matters to the first when
 * no member runs. */
static void look_at_awaited(halay_launch_t *d, uint64_t now)
{
    if ((!d->decide_ns && !d->expire_ns) || is_static(d)) {
        d->look_ns = 0;
        return;
    }
    const bool over = d->decide_ns && now >= d->decide_ns;
    if (now < d->look_ns && !over)
        return;
    d->look_ns = now + (d->decide_ns ? S / 4 : S);
    for (int s = 0; s < d->params.nranks; s++)
        if (is_absent(&d->slots[s]))
            hly_agents_look(d, s);
    give_up(d, now);
}

void hly_driver_look(halay_launch_t *d)
{
    const uint64_t now = hly_boot_now_ns();
    char text[700];
    struct hly_line line = hly_line(text, sizeof text);
    look_at_awaited(d, now);
    if (d->expire_ns && now >= d->expire_ns)
        refuse_newcomers(d, &now, 0,
                         "the ranks of the job have not met again in time: they wait for newcomers "
                         "at a commit (see HALAY_START_DEADLINE)");
    const bool over = d->decide_ns && now >= d->decide_ns;
    if (!d->decide_ns || (!over && now < hly_notices_due_ns(&d->notices)) || has_failed(d))
        return;
    const uint64_t waited_ns = now - d->notices.since_ns;
    const struct census c = take_census(d, d->params.nranks);
    const int known = c.asking + c.waiting, least = d->params.least;
    const int n = is_static(d) ? d->params.nranks : known > least ? known : least;
    if (over) {
        name_missing(d, &line);
        hly_driver_refuse(
            d,
            "not all of the %d ranks joined within %.1f s: on %s %s. Are they running, and "
            "do they call halay_init? (see HALAY_START_DEADLINE)%s",
            n, (double)waited_ns * 1e-9, d->host, text, d->reception.note);
        return;
    }
    hly_line_of_node(&line, waited_ns, n - c.asking, n, d->host);
    name_missing(d, &line);
    if (is_static(d))
        hly_line_until(&line, HLY_ENDS, d->decide_ns, now);
    hly_boot_say(&d->log, 1, "%s", text);
    hly_notices_give(&d->notices, now);
}
