/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - runs the agreement on a failing call (agree/failing.h) on a communicator. */
#ifndef HLY_FAULT_CALL_H
#define HLY_FAULT_CALL_H

#include "fault/fault.h"

struct hly_fault_view {         /* a call, for the functions of agree/failing.h */
    struct hly_failing_view is; /* what these functions get */
    halay_comm_t *comm;
    const halay_request_t *request; /* NULL: this rank has not made the call, or it has ended */
};

/* Fills *view for the call with this number, and returns view->is. */
hly_view_t *hly_fault_view(struct hly_fault_view *view, halay_comm_t *comm, uint32_t sequence);
/* A rank is lost while ranks agree on this call: sends NEWS of it to others. */
void hly_fault_others(halay_comm_t *comm, struct hly_slot *slot);

#endif
