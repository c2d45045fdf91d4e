/* SPDX-License-Identifier: Apache-2.0 */
/* leave.h - a rank finalizes after a failed call: docs/decisions/agreements.md#0094. */
#ifndef HLY_LEAVE_H
#define HLY_LEAVE_H

#include "fault/fault.h"

/* If a call of this rank has failed, sends the reason (LEAVES) to ranks that may wait for it in
 * calls on other communicators. */
void hly_fault_leave(halay_context_t *context);

#endif
