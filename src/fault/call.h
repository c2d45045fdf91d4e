/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - runs the agreement on a failing call (agree/failing.h) on a communicator. */
#ifndef HLY_FAULT_CALL_H
#define HLY_FAULT_CALL_H

#include "fault/fault.h"

struct hly_fault_view { /* of a call, as the functions of agree/failing.h are given it */
    struct hly_failing_view is;
    halay_comm_t *comm;
    const halay_request_t *request; /* or NULL */
};

/* Fills *view, and returns it. */
hly_view_t *hly_fault_view(struct hly_fault_view *view, halay_comm_t *comm, uint32_t sequence);
/* A rank is lost while this call is agreed on: others may not know. */
void hly_fault_others(halay_comm_t *comm, struct hly_slot *slot);

#endif
