/* SPDX-License-Identifier: Apache-2.0 */
/* proc.h - which process this is, and what proc(5) says of another one. */
#ifndef HALAY_PROC_H
#define HALAY_PROC_H

#include <stdbool.h>

#include <halay/boot.h>

struct hly_proc_stat {
    char state;    /* the letter */
    uint64_t born; /* in clock ticks after boot */
    int status;    /* as wait(2) has it, of a process that has ended and is not reaped */
};

/* This process; space is 0 where /proc does not say. */
void hly_proc_self(halay_process_t *self);
/* Reads /proc/PID/stat. false: it is not there, or hidden. */
bool hly_proc_stat(int64_t pid, struct hly_proc_stat *stat);
/* The same, of this very process: not of another one that has got its pid. */
bool hly_proc_stat_of(const halay_process_t *process, struct hly_proc_stat *stat);
/* This machine's name, as much of it as there is room for; "unknown" where it has none. */
void hly_proc_host(char *name, size_t bytes);
/* What a process in that state does: "stopped", "computes", "sleeps", ... */
const char *hly_proc_doing(char state);

#endif
