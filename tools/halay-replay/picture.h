/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h - draws a call that does not end, as SVG. */
#ifndef HALAY_REPLAY_PICTURE_H
#define HALAY_REPLAY_PICTURE_H

#include "run.h"

/*
 * A line a rank: its last calls over time, then the steps of the call, as far as they are. From the
 * step that a rank waits in an arrow goes to the step of the other that has not come. replay NULL:
 * the plans are not known, so there are no steps. 0, or -1: the file cannot be written, which was
 * said.
 */
int hly_picture_draw(const char *path, const hly_flights_t *flights, const hly_question_t *question,
                     const hly_replay_t *replay, const hly_blame_t *blames, uint32_t nblames);

#endif
