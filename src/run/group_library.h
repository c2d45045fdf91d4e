/* SPDX-License-Identifier: Apache-2.0 */
/* group_library.h - whether calls in a GPU's memory use NCCL or our own group steps, which the
 * context opens by itself. Where it says NCCL, ours are meant, too. */
#ifndef HLY_GROUP_LIBRARY_H
#define HLY_GROUP_LIBRARY_H

#include "run/run.h"

/* Before a call is posted: may it use NCCL? Sets call->grouped. */
void hly_nccl_turn(halay_comm_t *comm, struct hly_call *call, struct hly_check *c);
/* Do its calls use NCCL from now on, whichever is the next? */
static inline bool hly_nccl_is_on(const halay_comm_t *comm)
{
    return comm->nccl && comm->nccl->on;
}
/* It is destroyed. */
void hly_nccl_forget(halay_comm_t *comm);
/* Is there an agreement under way? Takes in one that has ended. */
bool hly_nccl_is_asking(halay_comm_t *comm);
/* The context is destroyed, and nothing runs any more. */
void hly_nccl_drop(halay_context_t *context);

#endif
