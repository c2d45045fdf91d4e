/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - reads /proc/PID/stat: see proc(5). */
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE = 3, BORN = 22 }; /* numbers of fields */

char hly_boot_process_look(int64_t pid, uint64_t *born)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at || at[1] != ' ')
        return 0;
    const char state = at[2];
    at += 2;
    for (int field = STATE; field < BORN && at; field++)
        at = strchr(at + 1, ' ');
    *born = at ? strtoull(at, NULL, 10) : 0;
    return (char)(*born ? state : 0);
}

void hly_boot_process_self(halay_process_t *self)
{
    struct stat space;
    *self = (halay_process_t){.pid = getpid()};
    if (hly_boot_process_look(self->pid, &self->born) && !stat("/proc/self/ns/pid", &space))
        self->space = space.st_ino;
}
