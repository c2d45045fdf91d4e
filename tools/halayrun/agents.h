/* SPDX-License-Identifier: Apache-2.0 */
/* agents.h - the head's side: launchers on other nodes that have brought places.
 * docs/decisions/launchers.md#0102. */
#ifndef HALAYRUN_AGENTS_H
#define HALAYRUN_AGENTS_H

#include "job.h"

/* As many as there may be slots. NULL: no memory. */
struct hly_agents *hly_agents_create(int most);
void hly_agents_destroy(struct hly_agents *agents); /* takes NULL */

/* Those of hly_job that have no agents (NULL) need not ask. */

/* Takes what they have said. The ends of their processes are judged later. */
void hly_agents_turn(struct hly_job *job);
/* The job has not begun: too few are there. */
int hly_agents_awaited(const struct hly_job *job);
/* Ends a wait that is too long, and a wait for processes whose agent does not answer. When to call
 * it next; 0: not by waiting. */
int64_t hly_agents_due(struct hly_job *job, int64_t now_ms);
/* So much of its wait for them does not count. */
void hly_agents_forgive(struct hly_agents *agents, int64_t ms);
/* Starts a process in a slot of theirs. */
void hly_agents_start(struct hly_job *job, int slot);
/* Tells them, once, that the job is over. */
void hly_agents_end(struct hly_job *job, int status);
/* What the discovery script says of their hosts. */
void hly_agents_place(struct hly_job *job, const struct hly_hosts *hosts);
/* How many of them are on hosts that are not dropped. */
int hly_agents_hopes(const struct hly_job *job);
/* There is one of that name. */
int hly_agents_from(const struct hly_job *job, const char *host);

#endif
