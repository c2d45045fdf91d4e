/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.c - should halayrun be killed by SIGKILL, the kernel kills the ranks (PR_SET_PDEATHSIG) but
 * not the processes that they have started. The guard sits at the end of a pipe from halayrun; when
 * that breaks it kills the ranks' process groups and removes the session's folder.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "note.h"

/* Ranks', the discovery script's, and those of commands that start agents. */
enum { MOST = HLY_RANKS_MAX + 1 + HLY_STARTERS_MAX };

/* How many are left. */
static int without(pid_t *groups, int n, pid_t group)
{
    for (int i = 0; i < n; i++)
        if (groups[i] == group)
            groups[i] = groups[--n];
    return n;
}

static void watch(int fd, struct hly_session *session)
{
    pid_t groups[MOST], group;
    int n = 0;
    ssize_t got;
    while ((got = read(fd, &group, sizeof group)) == (ssize_t)sizeof group ||
           (got < 0 && errno == EINTR)) {
        if (got < 0)
            continue;
        if (group < 0) {
            n = without(groups, n, -group);
            continue;
        }
        assert(group > 1 && n < MOST);
        groups[n++] = group;
    }
    while (n > 0)
        kill(-groups[--n], SIGKILL);
    hly_session_remove(session);
}

int hly_guard_start(struct hly_guard *guard, struct hly_session *session)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        hly_note("cannot make a pipe: %s", strerror(errno));
        return -1;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    guard->pid = fork();
    if (guard->pid == 0) {
        prctl(PR_SET_NAME, "halayrun-guard");
        setsid(); /* out of reach of the terminal and of signals to halayrun's group */
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; null >= 0 && fd < 3; fd++)
            dup2(null, fd);
        close(ends[1]);
        /* Were the lock's descriptor open here too, the folder would look owned after halayrun's
         * death. */
        close(session->lock_fd);
        session->lock_fd = -1;
        watch(ends[0], session);
        _exit(0);
    }
    close(ends[0]);
    guard->fd = ends[1];
    if (guard->pid < 0) {
        hly_note("cannot start a process: %s%s", strerror(errno),
                 errno == EAGAIN ? ": raise the limit on processes (ulimit -u)" : "");
        close(ends[1]);
        return -1;
    }
    return 0;
}

void hly_guard_tell(const struct hly_guard *guard, pid_t group)
{
    if (write(guard->fd, &group, sizeof group) == (ssize_t)sizeof group)
        return;
    if (errno == EAGAIN) /* it has been stopped for long, and would go on with groups of others */
        kill(guard->pid, SIGKILL);
    /* Somebody has killed it: the job goes on without. */
}

void hly_guard_forget(const struct hly_guard *guard, pid_t group)
{
    hly_guard_tell(guard, -group);
}

void hly_guard_dismiss(struct hly_guard *guard)
{
    if (guard->pid <= 0)
        return;
    kill(guard->pid, SIGKILL); /* also where it is stopped */
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(guard->fd);
    guard->pid = 0;
}
