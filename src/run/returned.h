/* SPDX-License-Identifier: Apache-2.0 */
/* returned.h - calls that return before they have completed (HALAY_STREAM_RETURNS). The program's
 * stream waits after each such call at a gate of the device, which Halay opens when the call has
 * completed. */
#ifndef HLY_RETURNED_H
#define HLY_RETURNED_H

#include "comm/comm.h"

/* Makes the thread that completes such calls. */
int hly_returned_start(halay_context_t *context);
/* Before such a call is posted: waits until there is room for it. */
void hly_returned_room(halay_comm_t *comm);
/* After the call was posted. Returns what the call returns to the program. */
int hly_returned_add(halay_request_t *request);
/* From now on the thread looks for lost ranks, also while no call is under way. */
void hly_returned_watch(halay_context_t *context);
/* Waits until no such call on this communicator is under way. Returns the code of the first one
 * that has failed, once. */
int hly_returned_await(halay_comm_t *comm);
/* The program may see in its stream that a call has completed before Halay does. Waits for such
 * calls, a second at most. comm NULL: on all communicators. */
void hly_returned_land(halay_context_t *context, const halay_comm_t *comm);
/* Opens all gates, whatever is under way, and ends the thread; releases the mutex meanwhile.
 * Returns the code of a call that has failed, unless _await has returned it. */
int hly_returned_end(halay_context_t *context);

#endif
