/* SPDX-License-Identifier: Apache-2.0 */
/* starters.h - the hosts of the discovery script that are not this machine: the command that starts
 * an agent there, or a word that one has to come. */
#ifndef HALAYRUN_STARTERS_H
#define HALAYRUN_STARTERS_H

#include "job.h"

/* NULL: no memory. */
struct hly_starters *hly_starters_create(void);
void hly_starters_destroy(struct hly_starters *starters); /* takes NULL */

/* Starts the command for hosts that have no agent, and says how it has ended. When to call it next;
 * 0: not by waiting. */
int64_t hly_starters_turn(struct hly_job *job, const struct hly_hosts *hosts, int64_t now_ms);
/* One of its processes. */
int hly_starters_has(const struct hly_starters *starters, pid_t pid);
/* The job is over, and the agents know: gives the commands some time to end by themselves. The
 * caller ends and reaps the others. */
void hly_starters_wait(struct hly_starters *starters);

#endif
