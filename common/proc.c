/* SPDX-License-Identifier: Apache-2.0 */
/* proc.c - reads /proc/PID/stat. */
#include "proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { STATE = 3, BORN = 22, STATUS = 52 }; /* numbers of fields */

/* From the space before field `from` to that before field `to`; NULL: there is none. */
static const char *skip(const char *at, int from, int to)
{
    for (int field = from; field < to && at; field++)
        at = strchr(at + 1, ' ');
    return at;
}

bool hly_proc_stat(int64_t pid, struct hly_proc_stat *seen)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at || at[1] != ' ' || !at[2])
        return false;
    seen->state = at[2];
    at = skip(at + 1, STATE, BORN);
    if (!at)
        return false;
    seen->born = strtoull(at, NULL, 10);
    at = skip(at, BORN, STATUS);
    seen->status = at ? (int)strtol(at, NULL, 10) : 0;
    return true;
}

static uint64_t space_here(void)
{
    struct stat space;
    return stat("/proc/self/ns/pid", &space) ? 0 : space.st_ino;
}

void hly_proc_self(halay_process_t *self)
{
    struct hly_proc_stat seen;
    memset(self, 0, sizeof(*self));
    self->pid = getpid();
    if (!hly_proc_stat(self->pid, &seen))
        return;
    self->born = seen.born;
    self->space = space_here();
}

bool hly_proc_stat_of(const halay_process_t *process, struct hly_proc_stat *seen)
{
    return process->space && process->pid > 0 && process->space == space_here() &&
           hly_proc_stat(process->pid, seen) && seen->born == process->born;
}

const char *hly_proc_doing(char state)
{
    switch (state) {
    case 'T':
    case 't':
        return "stopped";
    case 'D':
        return "waits for a disk or device";
    case 'R':
        return "computes";
    case 'Z':
    case 'X':
        return "ended";
    default:
        return "sleeps";
    }
}

/* gethostname() says that a name of 64 characters is too long for 64 bytes. */
void hly_proc_host(char *name, size_t bytes)
{
    struct utsname is;
    snprintf(name, bytes, "%s", !uname(&is) && is.nodename[0] ? is.nodename : "unknown");
}
