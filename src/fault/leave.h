/* SPDX-License-Identifier: Apache-2.0 */
/* leave.h - a rank finalizes after a call of it has failed: docs/decisions/agreements.md#0094. */
#ifndef HLY_LEAVE_H
#define HLY_LEAVE_H

#include "fault/fault.h"

/* If a call of this rank has failed, those that wait for it in another one are told why it leaves.
 */
void hly_fault_leave(halay_context_t *context);

#endif
