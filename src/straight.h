/* SPDX-License-Identifier: Apache-2.0 */
/* straight.h - a short blocking call that is made again; and how a thread waits for its messages.
 */
#ifndef HLY_STRAIGHT_H
#define HLY_STRAIGHT_H

#include "core.h"

/* The order of a plan's steps. */
void hly_straight_order(struct hly_plan *plan);
/*
 * Makes the call again, blocking, that was checked last (comm->checked). false: it cannot; else
 * *request is NULL, and the call is complete; or it is running on this request.
 */
bool hly_straight_try(halay_comm_t *comm, halay_request_t **request);

/* Is it the message that this receive step waits for? bytes: without the header. */
bool hly_straight_expects(const halay_request_t *request, uint32_t step, halay_peer_id_t from,
                          const struct hly_header *header, size_t bytes);

/* engine.c: goes on with a request of the spare ones after straight.c: these steps are done;
 * what is flying has been started. */
void hly_engine_resume(halay_request_t *request, const uint16_t done[], uint32_t ndone);

/* progress.c */
bool hly_crowded(const halay_context_t *context);   /* more ranks here than processors */
uint32_t hly_spins(const halay_context_t *context); /* polls without yielding */

#endif
