/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - the ranks from the first fork to the last wait.
 *
 * One loop: signals (as a descriptor), the servers' news, output, and four times at which
 * something is due. Once the job is ending nothing but a new signal changes its course:
 *   a rank failed     the others have GRACE_MS to tell what they saw, then SIGTERM
 *   GRACE_MS later    SIGKILL
 *   a signal          it is passed on at once
 *   --grace later     SIGKILL
 */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/flight.h"
#include "agent.h"
#include "agents.h"
#include "elastic.h"
#include "ends.h"
#include "note.h"
#include "numbers.h"
#include "orphans.h"
#include "output.h"
#include "starters.h"
#include "words.h"

enum {
    SILENT_MS = 5000,
    QUIET_MS = 250,
    GIVE_UP_MS = 5000,
    STOPPED_LOOKS = 10,
    WAKE_MS = 1000,
    SAME_MS = 200
};

/* ------------------------------------------------------------------ signals to ranks */

void hly_job_signal(struct hly_job *job, int rank, int number)
{
    const struct hly_rank *r = &job->ranks[rank];
    if (r->pid > 0)
        kill(hly_rank_has_group(job->spawner, rank) ? -r->pid : r->pid, number);
    else if (r->far && !r->ended)
        hly_servers_command(&job->servers, HALAY_LAUNCH_SIGNAL, rank, number);
}

void hly_job_tell(struct hly_job *job, int rank, int number)
{
    const struct hly_rank *r = &job->ranks[rank];
    if (r->pid > 0 && !r->ended)
        kill(r->pid, number);
    else if (r->far && !r->ended)
        hly_servers_command(&job->servers, HALAY_LAUNCH_SIGNAL, rank, number);
}

/* Agents end theirs by themselves once they are told that the job ends. */
static void signal_all(struct hly_job *job, int number)
{
    hly_agents_end(job, job->exit_status);
    for (int rank = 0; rank < job->options->slots; rank++)
        if (!job->ranks[rank].far || number == SIGKILL)
            hly_job_signal(job, rank, number);
}

/* The ranks, not their children: to most of those SIGUSR1 is deadly. */
static void pass_on(struct hly_job *job, int number)
{
    for (int rank = 0; rank < job->options->slots; rank++)
        hly_job_tell(job, rank, number);
}

void hly_job_end(struct hly_job *job, int exit_status, int grace_ms)
{
    if (job->ending)
        return;
    job->ending = 1;
    job->exit_status = exit_status;
    hly_records_trouble(job->records);
    job->term_ms = hly_now_ms() + grace_ms;
    job->kill_ms = job->term_ms + GRACE_MS;
    job->silent_ms = job->kill_ms + SILENT_MS;
}

/* It acts on nothing before it goes on. */
static void pass_to_stopped(struct hly_job *job)
{
    for (int rank = 0; rank < job->options->slots; rank++) {
        const struct hly_rank *r = &job->ranks[rank];
        if (r->pid > 0 && !r->ended && hly_flight_process((int)r->pid) == 'T')
            hly_job_signal(job, rank, SIGCONT);
    }
}

/* A terminal has sent its signal to the rank in halayrun's own group already. SIGTERM, which
 * schedulers send, goes to ranks alone: what they have started serves them to the end, and gets it
 * then (ends.c). One that comes at once again is the same: what has started halayrun had it from
 * the terminal, too, and passes it on. */
static void interrupt(struct hly_job *job, int number, int from_terminal)
{
    const int again = job->ending, soon = number == SIGPIPE || number == SIGQUIT || job->leaves_ms;
    const int grace_s = soon ? 1 : job->options->grace_s;
    const int64_t now = hly_now_ms();
    if (job->signal_ms && now - job->signal_ms < SAME_MS)
        return;
    job->signal_ms = now;
    if (hly_agent_leaves(job, number))
        return;
    hly_job_end(job, HLY_EXIT_SIGNAL + number, 0);
    job->interrupted = 1;
    job->term_ms = 0;
    if (again) {
        job->kill_ms = now;
        job->silent_ms = now + SILENT_MS;
        return;
    }
    job->signal = number;
    job->kill_ms = now + (int64_t)grace_s * 1000;
    job->silent_ms = job->kill_ms + SILENT_MS;
    if (number != SIGPIPE)
        hly_note("signal %d (%s): ending the job; the ranks have got it, and have %d s to end%s, "
                 "or until a second signal",
                 number, hly_signal_name(number), grace_s, soon ? "" : " (--grace)");
    for (int rank = 0; rank < job->options->slots; rank++)
        if (number == SIGTERM || job->ranks[rank].far)
            hly_job_tell(job, rank, number);
        else if (!from_terminal || hly_rank_has_group(job->spawner, rank))
            hly_job_signal(job, rank, number);
    pass_to_stopped(job);
}

/* 1 if a child has ended. */
static int read_signals(struct hly_job *job)
{
    struct signalfd_siginfo info;
    int child = 0;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            child = 1;
        else if (number == SIGUSR1 || number == SIGUSR2)
            pass_on(job, number);
        else
            interrupt(job, number, info.ssi_code == SI_KERNEL);
    }
    return child;
}

/* ------------------------------------------------------------------ what comes in */

/* The program is there, and may be run. */
static const char *why_not(int error)
{
    return error == ENOEXEC ? " (a script begins with a line such as #!/bin/sh)"
           : error == ENOENT
               ? " (the program that its first line names is not there; a line that ends as on "
                 "Windows names none that is)"
               : "";
}

static void read_reports(struct hly_job *job)
{
    struct hly_report report;
    while (read(job->report_fd, &report, sizeof report) == (ssize_t)sizeof report) {
        if (!job->ending)
            hly_note("cannot start '%s' as %s %d: %s%s", job->options->command[0],
                     hly_job_called(job), job->first + report.rank, strerror(report.error),
                     why_not(report.error));
        if (!job->epoch &&
            !job->options->agent) /* else it could be started before, and may be again */
            hly_job_end(job, report.error == ENOENT ? HLY_EXIT_MISSING : HLY_EXIT_REFUSED, 0);
    }
}

static void read_server(struct hly_job *job)
{
    halay_launch_abort_t abort = {.size = sizeof abort};
    if (!hly_servers_aborted(&job->servers, &abort) || job->ending)
        return;
    hly_note("rank %d (pid %d on %s) ended the job with status %d (PMIx_Abort)%s%s", abort.rank,
             (int)job->ranks[abort.rank].pid, job->host, abort.status, abort.text[0] ? ": " : "",
             abort.text);
    hly_job_end(job, abort.status & 0xff ? abort.status & 0xff : 1, 0);
}

/* ------------------------------------------------------------------ the loop */

static const char *remedy(int error)
{
    return error == EMFILE ? ": each rank takes four, six with --output-filename; raise the limit "
                             "on open files (ulimit -n)"
           : error == EAGAIN ? ": raise the limit on processes (ulimit -u)"
                             : "";
}

/* What the slot's last process has left behind ends, and its number becomes free. */
static void clear(struct hly_job *job, int slot)
{
    const pid_t pid = job->ranks[slot].pid;
    if (pid > 0) {
        if (hly_rank_has_group(job->spawner, slot))
            hly_guard_forget(job->guard, pid);
        hly_job_signal(job, slot, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    job->ranks[slot] = (struct hly_rank){0};
}

int hly_job_start(struct hly_job *job, int rank, int timeout_s)
{
    int out = -1, err = -1, error = ENOMEM;
    pid_t pid = -1;
    clear(job, rank);
    char **env = hly_env_copy(job->spawner->base);
    if (env && (!timeout_s || !hly_env_set_deadline(&env, timeout_s)) &&
        (!job->output || hly_output_pipes(job->output, rank, &out, &err) == 0)) {
        if (hly_servers_env(&job->servers, rank, &env) == HALAY_OK &&
            !hly_numbers_rank(&env, job->options, rank)) {
            hly_elastic_name(job, rank, &env);
            hly_records_give(job->records, rank, &env); /* without it the rank makes its own */
            pid = hly_spawn(job->spawner, rank, env, out, err);
            error = errno;
        }
    } else if (env) {
        error = errno;
    }
    hly_env_destroy(env);
    if (out >= 0)
        close(out);
    if (err >= 0)
        close(err);
    if (pid < 0) {
        hly_note("cannot start %s %d: %s%s", hly_job_called(job), job->first + rank,
                 strerror(error), remedy(error));
        return -1;
    }
    job->ranks[rank].pid = pid;
    hly_records_started(job->records, rank, pid);
    hly_servers_started(&job->servers, rank, pid);
    job->nstarted++;
    if (hly_rank_has_group(job->spawner, rank))
        hly_guard_tell(job->guard, pid);
    if (job->options->verbose)
        hly_note("%s %d is pid %d on %s", hly_job_called(job), job->first + rank, (int)pid,
                 job->host);
    return 0;
}

void hly_job_fill(struct hly_job *job, int64_t now_ms)
{
    int slot;
    while (!job->ending && (slot = hly_slots_vacant(job->slots, now_ms)) >= 0) {
        hly_slots_started(job->slots, slot, now_ms);
        if (slot >= job->options->nlocal) {
            clear(job, slot);
            hly_agents_start(job, slot);
            continue;
        }
        if (!hly_job_start(job, slot, 0))
            continue;
        if (job->epoch)
            hly_slots_failed(job->slots, slot, now_ms);
        else
            hly_job_end(job, HLY_EXIT_SELF, 0);
    }
}

static void start_ranks(struct hly_job *job)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        hly_note("cannot make a pipe: %s%s", strerror(errno), remedy(errno));
        hly_job_end(job, HLY_EXIT_SELF, 0);
        return;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    job->report_fd = ends[0];
    job->spawner->report_fd = ends[1]; /* of those that are started later, too */
    if (!job->agents && !job->options->agent)
        hly_job_fill(job, hly_now_ms());
}

/* As far as is known: of an agent's process, what it did when it was asked last. */
static int is_stopped(struct hly_job *job, int rank)
{
    const struct hly_rank *r = &job->ranks[rank];
    if (!r->far)
        return hly_flight_process((int)r->pid) == 'T';
    hly_servers_command(&job->servers, HALAY_LAUNCH_LOOK, rank, 0);
    return r->doing == 'T';
}

static int lives(const struct hly_rank *r)
{
    return (r->pid > 0 || r->far) && !r->ended;
}

/* Ranks have ended, and all that are left are stopped: nobody waits for them. */
static void end_stopped(struct hly_job *job)
{
    int left = 0, stopped = 0;
    char where[96];
    job->stopped_ms = hly_now_ms() + GRACE_MS;
    for (int rank = 0; rank < job->options->slots; rank++) {
        if (!lives(&job->ranks[rank]))
            continue;
        left++;
        stopped += is_stopped(job, rank);
    }
    job->stopped_looks = stopped < left ? 0 : job->stopped_looks + 1;
    if (!left || job->stopped_looks < STOPPED_LOOKS)
        return;
    for (int rank = 0; rank < job->options->slots; rank++)
        if (lives(&job->ranks[rank])) {
            hly_note("%s %d (%s) is stopped, and the others have gone on without it and ended: it "
                     "is killed",
                     hly_job_called(job), rank, hly_job_where(job, rank, where));
            hly_job_signal(job, rank, SIGKILL);
        }
}

/* Their time is over. */
static void tell_late(const struct hly_job *job)
{
    const int left = job->nstarted - job->nended;
    const int64_t passed_ms = hly_now_ms() - job->signal_ms;
    if (job->signal && left && passed_ms >= SAME_MS)
        hly_note("%d %s%s not ended within %d s of the signal: SIGKILL", left, hly_job_called(job),
                 left == 1 ? " has" : "s have", (int)(passed_ms / 1000));
}

/* Does what is due; returns in how many milliseconds the next thing is. */
static int due(struct hly_job *job)
{
    int64_t now = hly_now_ms(), next = now + 60000;
    if (job->timeout_ms && now >= job->timeout_ms && !job->ending) {
        hly_note("the job has not ended within %d s (--timeout)", job->options->timeout_s);
        hly_job_end(job, HLY_EXIT_TIMEOUT, 0);
    }
    if (job->term_ms && now >= job->term_ms) {
        job->term_ms = 0;
        signal_all(job, SIGTERM);
    }
    if (job->kill_ms && now >= job->kill_ms) {
        job->kill_ms = 0;
        tell_late(job);
        signal_all(job, SIGKILL);
    }
    if (job->leaves_ms && now >= job->leaves_ms)
        hly_job_end(job, job->exit_status, 0);
    if (job->orphans_ms && now >= job->orphans_ms) {
        job->orphans_ms = 0;
        hly_orphans_visit(job, 0);
    }
    if (((job->options->keep_going && job->nended) || job->finishing) && !job->ending &&
        now >= job->stopped_ms)
        end_stopped(job);
    const int64_t agents_ms = job->agents ? hly_agents_due(job, now) : 0;
    const int64_t elastic_ms = job->options->least && !job->ending ? hly_elastic_due(job, now) : 0;
    const int64_t times[] = {job->term_ms,
                             job->kill_ms,
                             job->orphans_ms,
                             elastic_ms,
                             agents_ms,
                             job->ending ? 0 : job->leaves_ms,
                             job->ending ? 0 : job->stopped_ms,
                             job->ending ? 0 : job->timeout_ms};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (times[i] && times[i] < next)
            next = times[i];
    return next > now ? (int)(next - now) : 0;
}

static void copy_output(struct hly_job *job)
{
    if (job->output && hly_output_copy(job->output) && !job->ending) {
        if (job->options->verbose)
            hly_note("nobody reads the output any more");
        interrupt(job, SIGPIPE, 0);
    }
}

/* A shell that SIGTERM has ended leaves the program that it had started to halayrun: what it has
 * of the grace is that program's. */
static int program_goes_on(struct hly_job *job)
{
    if (!job->wrapped || !job->kill_ms)
        return 0;
    if (job->wrapped == 1)
        hly_orphans_adopt(job, SIGTERM);
    job->wrapped = 2;
    return hly_orphans_go_on(job);
}

static int goes_on(struct hly_job *job)
{
    if (job->options->agent)
        return hly_agent_goes_on(job) || program_goes_on(job);
    if (hly_agents_awaited(job))
        return 1;
    return job->nended < job->nstarted ||
           (job->options->least && !job->ending && !job->finishing) || program_goes_on(job);
}

/* What the servers know. In how many milliseconds they want to be asked again; -1: not by then. */
static int hear_servers(struct hly_job *job)
{
    const int next_ms = hly_servers_progress(&job->servers);
    if (job->options->agent)
        hly_agent_turn(job);
    if (job->agents)
        hly_job_collect(job);
    if (job->options->least && !job->ending)
        hly_elastic_look(job);
    return next_ms;
}

/* halayrun itself was stopped for so long: whom it waits for could not come. */
static void forgive(struct hly_job *job, int64_t ms)
{
    if (job->few_ms)
        job->few_ms += ms;
    if (job->agents)
        hly_agents_forgive(job->agents, ms);
}

/* Until there is something to do. */
static void wait_for_news(struct hly_job *job, int meet_ms)
{
    int timeout = due(job), n = 3 + HLY_SERVERS;
    const int patient = job->few_ms || hly_agents_awaited(job);
    const int64_t begun_ms = hly_now_ms();
    if (meet_ms >= 0 && meet_ms < timeout)
        timeout = meet_ms;
    if (patient && timeout > WAKE_MS)
        timeout = WAKE_MS; /* to see when it was stopped */
    job->fds[0] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    job->fds[1] = (struct pollfd){.fd = job->report_fd, .events = POLLIN};
    job->fds[2] = job->discovery ? hly_discovery_poll(job->discovery) : (struct pollfd){.fd = -1};
    hly_servers_poll(&job->servers, job->fds + 3);
    if (job->output) {
        const int output_ms = hly_output_due(job->output);
        if (output_ms >= 0 && output_ms < timeout)
            timeout = output_ms;
        n += hly_output_poll(job->output, job->fds + n);
    }
    if (poll(job->fds, (nfds_t)n, timeout) < 0 && errno != EINTR) {
        hly_note("poll: %s", strerror(errno));
        hly_job_end(job, HLY_EXIT_SELF, 0);
    }
    const int64_t late_ms = hly_now_ms() - begun_ms - timeout;
    if (late_ms >= WAKE_MS)
        forgive(job, late_ms);
}

static void loop(struct hly_job *job)
{
    for (;;) {
        const int meet_ms = hear_servers(job);
        if (!goes_on(job))
            break;
        wait_for_news(job, meet_ms);
        if (job->report_fd >= 0)
            read_reports(job);
        read_server(job);
        int child = read_signals(job);
        copy_output(job);
        if (child && !hly_job_collect(job) && !job->orphans_ms)
            job->orphans_ms = hly_now_ms() + GRACE_MS;
    }
}

/* What is still in the pipes. A signal ends the wait for a reader that does not read. */
static void drain(struct hly_job *job)
{
    int stop = job->interrupted;
    while (job->output && hly_output_open(job->output)) {
        hly_output_last(job->output);
        if (hly_output_copy(job->output) || !hly_output_open(job->output))
            return;
        job->fds[0] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
        int n = 1 + hly_output_poll(job->output, job->fds + 1);
        int ready = poll(job->fds, (nfds_t)n, stop ? 100 : -1);
        if (stop && ready == 0)
            return;
        job->interrupted = 0;
        read_signals(job);
        stop |= job->interrupted;
    }
}

/* All ranks have ended. What they have started has QUIET_MS to follow, unless the job is being
 * ended. */
static void end_orphans(struct hly_job *job)
{
    struct pollfd p = {.fd = job->signal_fd, .events = POLLIN};
    if (job->ending)
        signal_all(job, SIGKILL);
    for (int rank = 0; rank < job->options->slots; rank++) {
        struct hly_rank *r = &job->ranks[rank];
        if (r->pid > 0)
            waitpid(r->pid, NULL, 0);
        r->pid = 0;
    }
    hly_guard_dismiss(job->guard);
    int64_t start = hly_now_ms(), waited = 0;
    const int64_t timeout = job->ending ? -1 : GRACE_MS;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && waited < GIVE_UP_MS) {
        if (pid > 0)
            continue;
        waited = hly_now_ms() - start;
        if (waited > timeout)
            hly_orphans_visit(job, SIGKILL);
        else if (waited > QUIET_MS)
            hly_orphans_visit(job, SIGTERM);
        poll(&p, 1, 10);
        read_signals(job);
    }
    if (waited >= GIVE_UP_MS)
        hly_note("processes that the ranks have started do not end, not even by SIGKILL");
}

/* A rank that exits by itself says why itself; one that is killed, or a job that hangs, does not.
 */
static void tell_records(const struct hly_job *job)
{
    if (job->exit_status == 0 || job->interrupted || (job->options->agent && !job->last_status))
        return;
    if (job->exit_status > HLY_EXIT_SIGNAL || job->exit_status == HLY_EXIT_TIMEOUT)
        hly_records_tell(job->records);
    hly_records_save(job->records);
}

/* 0 or -1, said. */
static int make_output(struct hly_job *job)
{
    const struct hly_options *o = job->options;
    if (!o->prefix && !o->output && !o->lines)
        return 0;
    job->output = hly_output_create(o->slots, job->first,
                                    o->timestamp ? HLY_MARK_TIME
                                    : o->prefix  ? HLY_MARK_RANK
                                                 : HLY_MARK_NONE);
    if (job->output)
        return o->output ? hly_output_keep(job->output, o->output) : 0;
    hly_note("out of memory");
    return -1;
}

/* 0 or -1, said. */
static int prepare(struct hly_job *job)
{
    const struct hly_options *o = job->options;
    const int n = o->slots;
    int began = 0;
    job->report_fd = job->spawner->report_fd = job->words = -1;
    job->ranks = calloc((size_t)n, sizeof job->ranks[0]);
    job->fds = calloc(2 * (size_t)n + 4 + HLY_SERVERS, sizeof job->fds[0]);
    job->slots = hly_slots_create(n, o->cool_ms[0], o->cool_ms[1]);
    job->records = hly_records_create(n, job->first, job->name, job->host, o->record);
    if (o->discovery)
        job->discovery =
            hly_discovery_create(o->discovery, o->slots_per_host, job->spawner, job->guard);
    job->agents = o->agents >= 0 ? hly_agents_create(n) : NULL;
    job->drops = o->drop_hosts
                     ? hly_drops_create(o->drop_for_good ? 0 : o->cool_ms[0], o->cool_ms[1])
                     : NULL;
    job->starters = o->discovery ? hly_starters_create() : NULL;
    if (!job->ranks || !job->fds || !job->slots ||
        (o->discovery && (!job->discovery || !job->starters)) || (o->agents >= 0 && !job->agents) ||
        (o->drop_hosts && !job->drops)) {
        hly_note("out of memory");
        return -1;
    }
    if (make_output(job))
        return -1;
    job->places = -1;
    if (!o->discovery && !o->agent)
        began = hly_elastic_begin(job);
    job->words = n > 1 ? hly_words_open(&job->spawner->base) : -1;
    job->out_of_memory = hly_out_of_memory();
    if (o->timeout_s)
        job->timeout_ms = hly_now_ms() + (int64_t)o->timeout_s * 1000;
    return began ? -1 : 0;
}

static void end_discovery(struct hly_job *job)
{
    hly_discovery_destroy(job->discovery);
    job->discovery = NULL;
}

static void undo_prepare(struct hly_job *job)
{
    if (job->report_fd >= 0)
        close(job->report_fd);
    if (job->spawner->report_fd >= 0)
        close(job->spawner->report_fd);
    end_discovery(job);
    hly_agents_destroy(job->agents);
    hly_starters_destroy(job->starters);
    hly_drops_destroy(job->drops);
    hly_hosts_destroy(&job->hosts);
    hly_output_destroy(job->output);
    hly_records_destroy(job->records);
    hly_slots_destroy(job->slots);
    free(job->fds);
    free(job->ranks);
}

int hly_job_run(struct hly_job *job)
{
    int status = HLY_EXIT_SELF;
    if (!prepare(job)) {
        start_ranks(job);
        loop(job);
        end_discovery(job);
        if (job->options->least && !job->ending)
            job->exit_status = job->lost_status;
        hly_agents_end(job, job->exit_status);
        hly_starters_wait(job->starters);
        end_orphans(job);
        drain(job);
        status = job->options->keep_going && job->ended_well && !job->ending ? 0 : job->exit_status;
        tell_records(job);
        hly_words_close(job->words, status != 0 && !job->interrupted);
        if (!status && job->output && hly_output_lost(job->output))
            status = EXIT_FAILURE;
    }
    undo_prepare(job);
    return status;
}
