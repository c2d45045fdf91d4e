/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - reads /proc/PID/stat: see proc(5). */
#include "base/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BORN 22 /* the field of that number; the first is 1 */

/* The process's state letter, and when it was born; 0: it is not there. What is in brackets, its
 * name, may hold anything. */
static char read_stat(int64_t pid, uint64_t *born)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = 0;
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || !at[2])
        return 0;
    const char state = at[2];
    at++;
    for (int field = 3; field < BORN && at; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return 0;
    *born = strtoull(at, NULL, 10);
    return state;
}

static uint64_t space_here(void)
{
    struct stat space;
    return stat("/proc/self/ns/pid", &space) ? 0 : space.st_ino;
}

void hly_process_self(halay_process_t *process)
{
    memset(process, 0, sizeof(*process));
    process->pid = getpid();
    if (read_stat(process->pid, &process->born))
        process->space = space_here();
}

bool hly_process_is_gone(const halay_process_t *process)
{
    uint64_t born;
    if (!process->space || process->pid <= 0 || process->space != space_here())
        return false;
    const char state = read_stat(process->pid, &born);
    if (!state)
        return kill((pid_t)process->pid, 0) && errno == ESRCH;
    return born != process->born || state == 'Z' || state == 'X';
}

enum hly_doing hly_process_look(const halay_process_t *process)
{
    uint64_t born;
    if (!process->space || process->pid <= 0 || process->space != space_here())
        return HLY_DOING_UNKNOWN;
    const char state = read_stat(process->pid, &born);
    if (!state || born != process->born)
        return HLY_DOING_UNKNOWN;
    switch (state) {
    case 'R':
        return HLY_DOING_RUNS;
    case 'S':
        return HLY_DOING_SLEEPS;
    case 'D':
        return HLY_DOING_DISK;
    case 'T':
    case 't':
        return HLY_DOING_STOPPED;
    default:
        return HLY_DOING_UNKNOWN;
    }
}
