/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.h - a job whose ranks change: what an end means, who is started and told to leave, and
 * when the job cannot go on. docs/decisions/elastic.md#0100. */
#ifndef HALAYRUN_ELASTIC_H
#define HALAYRUN_ELASTIC_H

#include "job.h"

enum { HLY_THEN_BYTES = 192 };

/* Gives the slots of this machine their places, unless a discovery script is to. 0 or a status,
 * said. */
int hly_elastic_begin(struct hly_job *job);

/* The process in the slot has ended. 1 if that was a failure. */
int hly_elastic_failed(const struct hly_job *job, int slot);
/* What the driver hears about it: status 0 would mean to it that the job ends. */
int hly_elastic_told(const struct hly_job *job, int slot);
/* It was one: its slot cools down. Says in `then` what follows. */
void hly_elastic_fail(struct hly_job *job, int slot, char then[HLY_THEN_BYTES]);
/* It was one, where it costs the host: kills the others there. Call it before anybody hears of it.
 */
void hly_elastic_drop(struct hly_job *job, int slot);
/* Says the name of the slot's host to programs that know Horovod's. */
void hly_elastic_name(const struct hly_job *job, int slot, char ***env);
/* It was none. */
void hly_elastic_left(struct hly_job *job, int slot);

/* Does what is due, and returns when the next thing is; 0: not by waiting. To be called until the
 * job is ending. */
int64_t hly_elastic_due(struct hly_job *job, int64_t now_ms);

/* The ranks may have met again: what has failed before does not count. */
void hly_elastic_look(struct hly_job *job);

#endif
