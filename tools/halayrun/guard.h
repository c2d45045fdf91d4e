/* SPDX-License-Identifier: Apache-2.0 */
/* guard.h - a small process that cleans up should halayrun itself be killed. */
#ifndef HALAYRUN_GUARD_H
#define HALAYRUN_GUARD_H

#include <sys/types.h>

#include "session.h"

struct hly_guard {
    pid_t pid;
    int fd;
};

/* To be called before there are threads or ranks. 0 or -1, said. */
int hly_guard_start(struct hly_guard *guard, struct hly_session *session);

/* Tells it of a process group to kill. */
void hly_guard_tell(const struct hly_guard *guard, pid_t group);

/* It has ended, or soon will: its number may become another's. */
void hly_guard_forget(const struct hly_guard *guard, pid_t group);

/* All is cleaned up: the guard ends without doing anything. */
void hly_guard_dismiss(struct hly_guard *guard);

#endif
