/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halayrun - starts the ranks of a job: on this machine itself, on others by becoming the launcher
 * that can reach them. Those on this machine find each other through a driver in here, from a
 * plug-in (servers.h).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent.h"
#include "agent_options.h"
#include "elastic.h"
#include "elastic_options.h"
#include "guard.h"
#include "handover.h"
#include "job.h"
#include "note.h"
#include "numbers.h"
#include "options.h"
#include "place.h"
#include "session.h"
#include "spawn.h"

enum { FILES_LEAST = 24, STACK_LEAST = 512 << 10 };

static void log_server(void *arg, int level, const char *text)
{
    (void)arg;
    if (level <= 1)
        hly_note("%s", text);
}

/* A standard descriptor that is closed would become one of our own, and be handed to the ranks. */
static int open_standard(void)
{
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = dup(fd);
    if (fd < 0) {
        hly_note("cannot open /dev/null: %s: a container needs a /dev", strerror(errno));
        return -1;
    }
    close(fd);
    return 0;
}

/* Else one of them would be the end of this process, without a word. */
static int limits_suffice(const struct rlimit *files)
{
    struct rlimit stack;
    if (files->rlim_max < FILES_LEAST) { /* libpmix */
        hly_note(
            "the limit on open files is %llu, and %d are needed at least: raise it (ulimit -n)",
            (unsigned long long)files->rlim_max, FILES_LEAST);
        return 0;
    }
    if (!getrlimit(RLIMIT_STACK, &stack) && stack.rlim_cur < STACK_LEAST) {
        hly_note("the limit on the stack is %llu KiB, and %d are needed at least: raise it "
                 "(ulimit -s)",
                 (unsigned long long)stack.rlim_cur >> 10, STACK_LEAST >> 10);
        return 0;
    }
    return 1;
}

/* As nohup, or a script that starts it in the background, ask for. */
static int is_ignored(int number)
{
    struct sigaction now;
    return (number == SIGINT || number == SIGHUP || number == SIGQUIT) &&
           !sigaction(number, NULL, &now) && now.sa_handler == SIG_IGN;
}

static int set_up_signals(struct hly_spawner *spawner)
{
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!is_ignored(numbers[i]))
            sigaddset(&set, numbers[i]);
    signal(SIGCHLD, SIG_DFL); /* a parent that ignores it would take the ranks' statuses from us */
    sigaction(SIGPIPE, &ignore, &spawner->pipe_action);
    sigaction(SIGXFSZ, &ignore, &spawner->size_action); /* ulimit -f: a write says EFBIG instead */
    sigprocmask(SIG_BLOCK, &set, &spawner->mask);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int set_up(struct hly_spawner *spawner, struct hly_job *job,
                  const struct hly_options *options)
{
    struct rlimit files;
    hly_bind_plan(&spawner->binding, options);
    spawner->argv = options->command;
    spawner->self = getpid();
    spawner->input = !options->agent;
    spawner->terminal = spawner->input && isatty(STDIN_FILENO);
    spawner->base = hly_env_create(options, &spawner->binding);
    spawner->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    job->signal_fd = set_up_signals(spawner);
    spawner->port_fd = -1;
    if (!spawner->base || hly_numbers_common(&spawner->base, options, &spawner->port_fd) ||
        spawner->null_fd < 0 || job->signal_fd < 0 || getrlimit(RLIMIT_NOFILE, &spawner->files)) {
        hly_note("cannot prepare: %s", strerror(errno));
        return -1;
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1)) {
        hly_note("this system cannot hand the ranks' orphans to halayrun (prctl, "
                 "PR_SET_CHILD_SUBREAPER): %s; is it emulated?",
                 strerror(errno));
        return -1;
    }
    if (!limits_suffice(&spawner->files))
        return -1;
    files = spawner->files;
    files.rlim_cur = files.rlim_max; /* pipes and PMIx connections of up to 1,024 ranks */
    setrlimit(RLIMIT_NOFILE, &files);
    if (options->agent_name)
        snprintf(job->host, sizeof job->host, "%s", options->agent_name);
    else if (gethostname(job->host, sizeof job->host - 1) && errno != ENAMETOOLONG) /* cut */
        snprintf(job->host, sizeof job->host, "localhost");
    return 0;
}

static int has_failed(void *arg, int rank, char *text, size_t bytes)
{
    const struct hly_job *job = arg;
    return hly_records_why(job->records, rank, text, bytes);
}

static void is_lost(void *arg, int rank)
{
    struct hly_job *job = arg;
    if (job->drops)
        hly_elastic_drop(job, rank);
}

/* An agent may wait for its head: until then a signal ends it, and the guard cleans up. */
static int start_servers(struct hly_job *job, const halay_launch_params_t *params)
{
    sigset_t blocked;
    if (params->head)
        sigprocmask(SIG_SETMASK, &job->spawner->mask, &blocked);
    const int rc = hly_servers_start(&job->servers, params, job->options->verbose);
    if (params->head)
        sigprocmask(SIG_SETMASK, &blocked, NULL);
    if (rc)
        return rc;
    if (params->head)
        hly_agent_begin(job);
    if (params->port)
        hly_note("agents come to %s: halayrun --agent %s -np K program, with the same secret",
                 hly_servers_address(&job->servers), hly_servers_address(&job->servers));
    return 0;
}

static int run(struct hly_job *job, const struct hly_session *session)
{
    const struct hly_options *o = job->options;
    snprintf(job->name, sizeof job->name, "halayrun-%s",
             strrchr(session->path, '/') + sizeof "halayrun-");
    const halay_launch_params_t params = {.size = sizeof params,
                                          .nranks = job->options->slots,
                                          .least = job->options->least,
                                          .job = job->name,
                                          .host = job->host,
                                          .session_dir = session->path,
                                          .secret = hly_env_secret(job->spawner->base),
                                          .port = o->agents < 0 ? 0
                                                  : o->port     ? o->port
                                                                : -1,
                                          .nlocal = o->nlocal,
                                          .listen = o->listen,
                                          .head = o->agent,
                                          .log = log_server,
                                          .failed = has_failed,
                                          .lost = is_lost,
                                          .arg = job};
    if (start_servers(job, &params))
        return HLY_EXIT_SELF;
    int status = hly_job_run(job);
    /* libpmix 4.2 may crash, or wait for ever, in its end after a rank has died in PMIx_Init. The
     * server ends with this process, and its folder goes with the session. */
    if (!job->servers.all[1].ops || (!status && !job->exit_status))
        hly_servers_stop(&job->servers);
    return status;
}

static int run_here(struct hly_options *options)
{
    static struct hly_spawner spawner;
    struct hly_session session;
    struct hly_guard guard;
    struct hly_job job = {.options = options, .guard = &guard, .spawner = &spawner};
    int status = options->command[0] ? hly_find_program(options->command[0], spawner.path) : 0;
    if (status)
        return status;
    status = HLY_EXIT_SELF;
    if (set_up(&spawner, &job, options) || hly_session_create(&session))
        goto undo_set_up;
    if (hly_guard_start(&guard, &session))
        goto undo_session;
    status = run(&job, &session);
    hly_guard_dismiss(&guard);
undo_session:
    hly_session_remove(&session);
undo_set_up:
    hly_env_destroy(spawner.base);
    return status;
}

int main(int argc, char **argv)
{
    struct hly_options options;
    struct hly_place place;
    if (open_standard())
        return HLY_EXIT_SELF;
    int status = hly_options_parse(argc, argv, &options);
    if (status >= 0)
        return status;
    if (options.agents >= 0 || options.agent) {
        status = hly_agent_secret(&options);
    } else {
        status = hly_place_find(&place, &options);
        if (status)
            return status;
        status = hly_hand_over(&place, &options);
        options.nranks = place.nranks;
        hly_hosts_destroy(&place.hosts);
    }
    if (status < 0)
        status = hly_elastic_settle(&options);
    return status >= 0 ? status : run_here(&options);
}
