/* SPDX-License-Identifier: Apache-2.0 */
/* orphans.h - halayrun's children that are no ranks: what these have started, and left behind. */
#ifndef HALAYRUN_ORPHANS_H
#define HALAYRUN_ORPHANS_H

#include "job.h"

/* Reaps those that have ended; sends the others a signal unless it is 0. */
void hly_orphans_visit(struct hly_job *job, int number);
/* Sends it to those that a shell that was a rank has left behind, and keeps who they are. */
void hly_orphans_adopt(struct hly_job *job, int number);
/* Whether one of those lives. */
int hly_orphans_go_on(const struct hly_job *job);

#endif
