/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - reads /proc/PID/stat: see proc(5). */
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BORN   22 /* the field of that number; the first is 1 */
#define STATUS 52 /* as wait(2) has it, of a process that has ended and is not reaped */

/* From the space before field `from` to that before field `to`; NULL: there is none. */
static const char *skip(const char *at, int from, int to)
{
    for (int field = from; field < to && at; field++)
        at = strchr(at + 1, ' ');
    return at;
}

/* The process's state letter, when it was born, and how it has ended; 0: it is not there. What is
 * in brackets, its name, may hold anything. */
static char read_stat(int64_t pid, uint64_t *born, int *status)
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
    at = skip(at + 1, 3, BORN);
    if (!at)
        return 0;
    *born = strtoull(at, NULL, 10);
    at = skip(at, BORN, STATUS);
    *status = at ? (int)strtol(at, NULL, 10) : 0;
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
    int status;
    if (read_stat(process->pid, &process->born, &status))
        process->space = space_here();
}

/* As read_stat, of this very process: not of another one that has got its pid. */
static char look(const halay_process_t *process, int *status)
{
    uint64_t born = 0;
    if (!process->space || process->pid <= 0 || process->space != space_here())
        return 0;
    const char state = read_stat(process->pid, &born, status);
    return (char)(born == process->born ? state : 0);
}

bool hly_process_was_killed(const halay_process_t *process)
{
    int status;
    const char state = look(process, &status);
    return (state == 'Z' || state == 'X') && WIFSIGNALED(status);
}

enum hly_doing hly_process_look(const halay_process_t *process)
{
    int status;
    switch (look(process, &status)) {
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
