/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discovery.c - the script runs beside the job, one process at a time, with LIMIT_MS and
 * OUTPUT_BYTES. What it says counts as a whole or not at all: after a failure the last answer
 * stays.
 */
#define _GNU_SOURCE
#include "discovery.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "note.h"

enum { PAUSE_MS = 1000, LIMIT_MS = 10000, OUTPUT_BYTES = 65536 };

struct hly_discovery {
    const char *script;
    int slots_per_host;
    const struct hly_spawner *spawner;
    const struct hly_guard *guard;
    pid_t pid; /* 0: it does not run */
    int fd;    /* its output; -1: at its end */
    int ended, late, status;
    int64_t begun_ms;
    int answered;
    struct hly_hosts hosts; /* last answer */
    char trouble[256], said[256];
    size_t bytes;
    char text[OUTPUT_BYTES + 1];
};

struct hly_discovery *hly_discovery_create(const char *script, int slots_per_host,
                                           const struct hly_spawner *spawner,
                                           const struct hly_guard *guard)
{
    struct hly_discovery *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->script = script;
    d->slots_per_host = slots_per_host;
    d->spawner = spawner;
    d->guard = guard;
    d->fd = -1;
    return d;
}

static void trouble(struct hly_discovery *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void trouble(struct hly_discovery *d, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!d->trouble[0])
        vsnprintf(d->trouble, sizeof d->trouble, format, args);
    va_end(args);
}

/* ------------------------------------------------------------------ its process */

/* Between fork and exec: system calls only (spawn.c). */
static void become(const struct hly_discovery *d, int out)
{
    char shell[] = "sh", command[] = "-c", *script = (char *)(uintptr_t)d->script;
    char *const argv[] = {shell, command, script, NULL};
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != d->spawner->self || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(out, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
        _exit(HLY_EXIT_SELF);
    hly_spawner_restore(d->spawner);
    execve("/bin/sh", argv, environ);
    _exit(HLY_EXIT_REFUSED);
}

static void start(struct hly_discovery *d, int64_t now_ms)
{
    int ends[2];
    d->begun_ms = now_ms;
    d->bytes = 0;
    d->ended = d->late = d->status = 0;
    d->trouble[0] = '\0';
    if (pipe2(ends, O_CLOEXEC)) {
        trouble(d, "cannot make a pipe: %s", strerror(errno));
        return;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    d->pid = fork();
    if (d->pid == 0)
        become(d, ends[1]);
    close(ends[1]);
    d->fd = ends[0];
    if (d->pid > 0) {
        setpgid(d->pid, d->pid);
        hly_guard_tell(d->guard, d->pid);
        return;
    }
    trouble(d, "cannot start a process: %s", strerror(errno));
    close(d->fd);
    d->fd = -1;
    d->pid = 0;
}

static void copy(struct hly_discovery *d)
{
    char more[4096];
    ssize_t n = 0;
    while (d->fd >= 0 && (n = read(d->fd, more, sizeof more)) > 0) {
        if (d->bytes + (size_t)n > OUTPUT_BYTES) {
            trouble(d, "it prints more than %d bytes", OUTPUT_BYTES);
            kill(-d->pid, SIGKILL);
            n = 0;
            break;
        }
        memcpy(d->text + d->bytes, more, (size_t)n);
        d->bytes += (size_t)n;
    }
    if (d->fd >= 0 && n == 0) {
        close(d->fd);
        d->fd = -1;
    }
}

/* 1 once it has ended, and all that it had started is being killed. */
static int ended(struct hly_discovery *d, int64_t now_ms)
{
    siginfo_t info = {0};
    copy(d);
    if (waitid(P_PID, (id_t)d->pid, &info, WEXITED | WNOHANG | WNOWAIT))
        return 0;
    if (info.si_pid != d->pid && now_ms - d->begun_ms >= LIMIT_MS && !d->late) {
        d->late = 1;
        trouble(d, "it has not ended within %d s", LIMIT_MS / 1000);
        kill(-d->pid, SIGKILL);
    }
    if (info.si_pid != d->pid)
        return 0;
    copy(d);
    hly_guard_forget(d->guard, d->pid);
    kill(-d->pid, SIGKILL);
    waitpid(d->pid, &d->status, 0);
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
    d->pid = 0;
    return 1;
}

/* ------------------------------------------------------------------ what it has said */

static void read_host(struct hly_discovery *d, struct hly_hosts *hosts, const char *line,
                      size_t bytes)
{
    struct hly_host host = {.slots = d->slots_per_host};
    const char *wrong = hly_host_read(&host, line, bytes);
    if (wrong)
        trouble(d, "it printed '%.*s', which %s", bytes < 60 ? (int)bytes : 60, line, wrong);
    else if (hly_hosts_add(hosts, &host))
        trouble(d, "there is no memory for its hosts");
}

static void conclude(struct hly_discovery *d)
{
    static const char blanks[] = " \t\r";
    struct hly_hosts hosts = {0};
    d->text[d->bytes] = '\0';
    if (WIFSIGNALED(d->status))
        trouble(d, "it was killed by signal %d", WTERMSIG(d->status));
    else if (WEXITSTATUS(d->status))
        trouble(d, "it exited with status %d (run it by hand to see what it says)",
                WEXITSTATUS(d->status));
    else if (strlen(d->text) < d->bytes)
        trouble(d, "it printed a zero byte");
    for (const char *line = d->text; line && !d->trouble[0]; line = strchr(line, '\n')) {
        line += *line == '\n';
        line += strspn(line, blanks);
        size_t bytes = strcspn(line, "\n");
        while (bytes && strchr(blanks, line[bytes - 1]))
            bytes--;
        if (bytes)
            read_host(d, &hosts, line, bytes);
    }
    if (d->trouble[0]) {
        hly_hosts_destroy(&hosts);
        return;
    }
    hly_hosts_destroy(&d->hosts);
    d->hosts = hosts;
    d->answered = 1;
}

static void tell_trouble(struct hly_discovery *d)
{
    if (strcmp(d->trouble, d->said) != 0 && d->trouble[0])
        hly_note("--host-discovery-script: %s; %s", d->trouble,
                 !d->answered ? "it is asked again each second" : "its last answer stays");
    memcpy(d->said, d->trouble, sizeof d->said);
}

int hly_discovery_turn(struct hly_discovery *d, int64_t now_ms)
{
    if (!d->pid) {
        if (d->begun_ms && now_ms - d->begun_ms < PAUSE_MS)
            return 0;
        start(d, now_ms);
        if (!d->pid)
            tell_trouble(d);
        return 0;
    }
    if (!ended(d, now_ms))
        return 0;
    conclude(d);
    tell_trouble(d);
    return 1;
}

const struct hly_hosts *hly_discovery_hosts(const struct hly_discovery *d)
{
    return d && d->answered ? &d->hosts : NULL;
}

int64_t hly_discovery_next_ms(const struct hly_discovery *d)
{
    if (d->pid)
        return d->late ? 0 : d->begun_ms + LIMIT_MS;
    return d->begun_ms + PAUSE_MS;
}

struct pollfd hly_discovery_poll(const struct hly_discovery *d)
{
    return (struct pollfd){.fd = d->fd, .events = POLLIN};
}

pid_t hly_discovery_pid(const struct hly_discovery *d)
{
    return d ? d->pid : 0;
}

void hly_discovery_destroy(struct hly_discovery *d)
{
    if (!d)
        return;
    if (d->pid)
        kill(-d->pid, SIGKILL);
    if (d->fd >= 0)
        close(d->fd);
    hly_hosts_destroy(&d->hosts);
    free(d);
}
