/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.h - a job whose ranks change: what an end means, who is started and told to leave, and
 * when the job cannot go on. docs/decisions/0100. */
#ifndef HALAYRUN_ELASTIC_H
#define HALAYRUN_ELASTIC_H

#include "job.h"

/* The process in the slot has ended. 1 if that was a failure. */
int hly_elastic_failed(const struct hly_job *job, int slot);
/* What the driver is told of it: status 0 would mean to it that the job ends. */
int hly_elastic_told(const struct hly_job *job, int slot);
/* It was one: its slot cools down. Says in `then` what follows. */
void hly_elastic_fail(struct hly_job *job, int slot, char then[64]);
/* It was none. */
void hly_elastic_left(struct hly_job *job, int slot);

/* Does what is due, and returns when the next thing is; 0: not by waiting. To be called until the
 * job is ending. */
int64_t hly_elastic_due(struct hly_job *job, int64_t now_ms);

/* The ranks may have met again: what has failed before does not count. */
void hly_elastic_look(struct hly_job *job);

#endif
