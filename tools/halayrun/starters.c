/* SPDX-License-Identifier: Apache-2.0 */
/*
 * starters.c - a host gets one command at a time, and no other while an agent of it is here. One
 * that has ended and left no agent is started again after a cool-down that doubles. Whether ranks
 * live, its end does not say.
 */
#define _GNU_SOURCE
#include "starters.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agents.h"
#include "note.h"

enum { COMMAND_BYTES = 8192, WAIT_MS = 2000 };

struct starter {
    char host[HLY_HOST_BYTES];
    int named; /* by the last answer */
    int told;  /* that it needs an agent */
    int failures;
    pid_t pid;       /* 0: the command does not run */
    int64_t next_ms; /* not before */
};

struct hly_starters {
    int n;
    struct starter all[HLY_STARTERS_MAX];
};

struct hly_starters *hly_starters_create(void)
{
    return calloc(1, sizeof(struct hly_starters));
}

void hly_starters_destroy(struct hly_starters *starters)
{
    free(starters);
}

int hly_starters_has(const struct hly_starters *s, pid_t pid)
{
    for (int i = 0; s && i < s->n; i++)
        if (s->all[i].pid == pid)
            return 1;
    return 0;
}

static struct starter *find(struct hly_starters *s, const char *host)
{
    for (int i = 0; i < s->n; i++)
        if (hly_host_same(s->all[i].host, host))
            return &s->all[i];
    if (s->n == HLY_STARTERS_MAX)
        return NULL; /* more than there can be ranks */
    struct starter *it = &s->all[s->n++];
    snprintf(it->host, sizeof it->host, "%s", host);
    return it;
}

/* ------------------------------------------------------------------ the command */

/* %h: the host, which is letters, digits and "._-:"; %a: where agents come to; %%: %. 0: it is too
 * long. */
static int expand(const char *from, const char *host, const char *address, char to[COMMAND_BYTES])
{
    size_t n = 0;
    for (; *from && n < COMMAND_BYTES; from++) {
        const char *word = *from != '%'     ? NULL
                           : from[1] == 'h' ? host
                           : from[1] == 'a' ? address
                           : from[1] == '%' ? "%"
                                            : NULL;
        if (word) {
            n += (size_t)snprintf(to + n, COMMAND_BYTES - n, "%s", word);
            from++;
        } else {
            to[n++] = *from;
        }
    }
    if (n >= COMMAND_BYTES)
        return 0;
    to[n] = '\0';
    return 1;
}

/* Between fork and exec: system calls only (spawn.c). */
static void become(const struct hly_spawner *s, char *command)
{
    char shell[] = "sh", option[] = "-c";
    char *const argv[] = {shell, option, command, NULL};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != s->self || dup2(s->null_fd, STDIN_FILENO) < 0)
        _exit(HLY_EXIT_SELF);
    hly_spawner_restore(s);
    execve("/bin/sh", argv, environ);
    _exit(HLY_EXIT_REFUSED);
}

static void cool(const struct hly_job *job, struct starter *it, int64_t now_ms)
{
    int64_t ms = job->options->cool_ms[0];
    for (int i = 0; i < it->failures && ms < job->options->cool_ms[1]; i++)
        ms *= 2;
    it->failures++;
    it->next_ms = now_ms + (ms < job->options->cool_ms[1] ? ms : job->options->cool_ms[1]);
}

static void start(struct hly_job *job, struct starter *it, int64_t now_ms)
{
    char command[COMMAND_BYTES];
    if (!expand(job->options->start_agent, it->host, hly_servers_address(&job->servers), command)) {
        hly_note("--start-agent: the command for host %s is longer than %d bytes", it->host,
                 COMMAND_BYTES);
        it->next_ms = INT64_MAX;
        return;
    }
    if (job->options->verbose)
        hly_note("host %s: %s", it->host, command);
    it->pid = fork();
    if (it->pid == 0)
        become(job->spawner, command);
    if (it->pid > 0) {
        setpgid(it->pid, it->pid);
        hly_guard_tell(job->guard, it->pid);
        return;
    }
    hly_note("--start-agent: cannot start a process for host %s: %s", it->host, strerror(errno));
    it->pid = 0;
    cool(job, it, now_ms);
}

static void look(struct hly_job *job, struct starter *it, int here, int64_t now_ms)
{
    siginfo_t info = {0};
    int status;
    char how[64];
    if (!it->pid || waitid(P_PID, (id_t)it->pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
        info.si_pid != it->pid)
        return;
    hly_guard_forget(job->guard, it->pid);
    waitpid(it->pid, &status, 0);
    it->pid = 0;
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
    cool(job, it, now_ms);
    if (status || !here)
        hly_note("--start-agent: the command for host %s %s%s", it->host, how,
                 here        ? ", and its agent is here"
                 : it->named ? "; it is run again if no agent comes from there"
                             : "");
}

/* ------------------------------------------------------------------ the hosts */

static void take(struct hly_job *job, const char *host)
{
    struct starter *it = find(job->starters, host);
    const struct hly_options *o = job->options;
    if (!it)
        return;
    it->named = 1;
    if (it->told || o->start_agent || hly_agents_from(job, host))
        return;
    it->told = 1;
    hly_note(
        "--host-discovery-script: host %.200s is not this machine, where alone halayrun starts "
        "processes: its places count once an agent has come from there%s",
        host, o->agents < 0 ? " (see halayrun --agents)" : ", by itself or by --start-agent");
}

int64_t hly_starters_turn(struct hly_job *job, const struct hly_hosts *hosts, int64_t now_ms)
{
    struct hly_starters *s = job->starters;
    int64_t next = 0;
    for (int i = 0; i < s->n; i++)
        s->all[i].named = 0;
    for (int h = 0; h < hosts->n; h++)
        if (!hly_host_here(hosts->list[h].name))
            take(job, hosts->list[h].name);
    for (int i = 0; i < s->n && job->options->start_agent; i++) {
        struct starter *it = &s->all[i];
        const int here = hly_agents_from(job, it->host);
        look(job, it, here, now_ms);
        if (here)
            it->failures = 0;
        if (it->pid || here || !it->named)
            continue;
        if (now_ms >= it->next_ms)
            start(job, it, now_ms);
        else if (!next || it->next_ms < next)
            next = it->next_ms;
    }
    return next;
}

void hly_starters_wait(struct hly_starters *s)
{
    const struct timespec a_little = {0, 10000000};
    const int64_t until = hly_now_ms() + WAIT_MS;
    for (int i = 0; s && i < s->n; i++) {
        while (s->all[i].pid > 0 && waitpid(s->all[i].pid, NULL, WNOHANG) == 0 &&
               hly_now_ms() < until)
            nanosleep(&a_little, NULL);
        s->all[i].pid = 0;
    }
}
