/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h - a halayrun that starts processes for the head of a job on another node.
 * docs/decisions/launchers.md#0102. */
#ifndef HALAYRUN_AGENT_H
#define HALAYRUN_AGENT_H

#include "job.h"

/* Learns its places, which come first. */
void hly_agent_begin(struct hly_job *job);
/* Does what the head has said. */
void hly_agent_turn(struct hly_job *job);
/* The process in the slot has ended. 1 if that is to be said aloud. */
int hly_agent_failed(const struct hly_job *job, int slot);
/* A signal has come: 1 if the head is to let the processes leave for it. */
int hly_agent_leaves(struct hly_job *job, int number);
/* It has still something to do. */
int hly_agent_goes_on(const struct hly_job *job);

#endif
