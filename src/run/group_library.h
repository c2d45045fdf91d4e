/* SPDX-License-Identifier: Apache-2.0 */
/* group_library.h - whether calls in a GPU's memory have group steps, by NCCL or by Halay's own
 * kernels. The context opens either by itself. In the names of functions here, nccl means both. */
#ifndef HLY_GROUP_LIBRARY_H
#define HLY_GROUP_LIBRARY_H

#include "run/run.h"

/* Before a call is posted: may it use NCCL? Sets call->grouped. */
void hly_nccl_turn(halay_comm_t *comm, struct hly_call *call, struct hly_check *c);
/* Do all calls on the communicator from now on have group steps? */
static inline bool hly_nccl_is_on(const halay_comm_t *comm)
{
    return comm->nccl && comm->nccl->on;
}
/* The communicator is destroyed. */
void hly_nccl_forget(halay_comm_t *comm);
/* Is the agreement on the library under way? If its allgather has ended, reads the result first. */
bool hly_nccl_is_asking(halay_comm_t *comm);
/* The context is destroyed, and nothing runs any more. */
void hly_nccl_drop(halay_context_t *context);

#endif
