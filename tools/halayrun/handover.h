/* SPDX-License-Identifier: Apache-2.0 */
/* handover.h - the command line of another launcher that starts the ranks in halayrun's place. */
#ifndef HALAYRUN_HANDOVER_H
#define HALAYRUN_HANDOVER_H

#include "options.h"
#include "place.h"

/*
 * Becomes that launcher, or prints its command line where that was asked for. Returns the status to
 * exit with; -1 if the ranks are halayrun's own to start.
 */
int hly_hand_over(const struct hly_place *place, const struct hly_options *options);

#endif
