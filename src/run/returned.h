/* SPDX-License-Identifier: Apache-2.0 */
/* returned.h - calls that return before they are over: HALAY_STREAM_RETURNS. */
#ifndef HLY_RETURNED_H
#define HLY_RETURNED_H

#include "comm/comm.h"

/* Calls may return from now on before they are over. */
int hly_returned_start(halay_context_t *context);
/* Before such a call is posted: waits until there is room for it. */
void hly_returned_room(halay_comm_t *comm);
/* After it was posted: what the call returns. */
int hly_returned_add(halay_request_t *request);
/* Has the thread look from now on who is lost, also while no call is under way. */
void hly_returned_watch(halay_context_t *context);
/* Waits until none on this communicator is under way. Returns the code of one that has failed,
 * once. */
int hly_returned_await(halay_comm_t *comm);
/* The program may have seen in its stream that a call is over before we have. Waits a second for
 * such calls. comm NULL: on all communicators. */
void hly_returned_land(halay_context_t *context, const halay_comm_t *comm);
/* Opens all gates, whatever is under way, and ends the thread; gives the mutex away meanwhile.
 * Returns the code of a call that has failed, if that was not returned by _await. */
int hly_returned_end(halay_context_t *context);

#endif
