/* SPDX-License-Identifier: Apache-2.0 */
/* ends.h - how ranks have ended: which end is a failure, and its message. */
#ifndef HALAYRUN_ENDS_H
#define HALAYRUN_ENDS_H

#include "job.h"

/* "process": in a job whose ranks change a slot's process may be any rank; or "rank". */
const char *hly_job_called(const struct hly_job *job);
/* "pid 7 on host" */
const char *hly_job_where(const struct hly_job *job, int slot, char text[96]);
/* It has, as waitpid and its flight record have it; judged in hly_job_collect. */
void hly_job_ended(struct hly_job *job, int slot, int status, int state, const char *why);
/* Judges those that have ended since the last time. 1 if there are any. */
int hly_job_collect(struct hly_job *job);
/* halayrun's, of a rank's status. */
int hly_exit_status(int status);
/* How many processes of this machine the kernel has killed when memory ran out, theirs or all. */
long hly_out_of_memory(void);

#endif
