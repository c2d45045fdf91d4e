/* SPDX-License-Identifier: Apache-2.0 */
/* orphans.c - processes whose parent has died become halayrun's children
 * (PR_SET_CHILD_SUBREAPER). */
#define _GNU_SOURCE
#include "orphans.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starters.h"

static int is_rank(const struct hly_job *job, pid_t pid)
{
    for (int rank = 0; rank < job->options->slots; rank++)
        if (job->ranks[rank].pid == pid)
            return 1;
    return pid == job->guard->pid || pid == hly_discovery_pid(job->discovery) ||
           hly_starters_has(job->starters, pid);
}

/* The parent of a process, 0 if there is none such. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[512], state;
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* the name before it may have any character in it */
    /* NOLINTNEXTLINE(cert-err34-c): the kernel has written it */
    return after && sscanf(after, ") %c %d", &state, &parent) == 2 ? parent : 0;
}

/* The rank in whose group it is; NULL: it is in none. */
static struct hly_rank *leader_of(const struct hly_job *job, pid_t pid)
{
    const pid_t group = getpgid(pid);
    for (int rank = 0; rank < job->options->slots; rank++)
        if (group > 0 && job->ranks[rank].pid == group)
            return &job->ranks[rank];
    return NULL;
}

static void visit(struct hly_job *job, int number, int adopts)
{
    struct dirent *entry;
    DIR *dir = opendir("/proc");
    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        if (!isdigit((unsigned char)entry->d_name[0]) ||
            parent_of(entry->d_name) != job->spawner->self)
            continue;
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (is_rank(job, pid) || waitpid(pid, NULL, WNOHANG) || !number)
            continue;
        struct hly_rank *leader = adopts ? leader_of(job, pid) : NULL;
        for (int i = 0; leader && i < PROGRAMS; i++)
            if (!leader->programs[i]) {
                leader->programs[i] = pid;
                break;
            }
        if (leader || !adopts)
            kill(pid, number);
    }
    closedir(dir);
}

void hly_orphans_visit(struct hly_job *job, int number)
{
    visit(job, number, 0);
}

void hly_orphans_adopt(struct hly_job *job, int number)
{
    visit(job, number, 1);
}

int hly_orphans_go_on(const struct hly_job *job)
{
    for (int rank = 0; rank < job->options->slots; rank++)
        for (int i = 0; i < PROGRAMS; i++) {
            const pid_t pid = job->ranks[rank].programs[i];
            if (pid > 0 && !waitpid(pid, NULL, WNOHANG))
                return 1;
        }
    return 0;
}
