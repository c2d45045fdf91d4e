/* SPDX-License-Identifier: Apache-2.0 */
/* group_library.h - whether calls in a GPU's memory have group steps, by NCCL or by Halay's own
 * kernels. The context opens either by itself. In the names of functions here, nccl means both. */
#ifndef HLY_GROUP_LIBRARY_H
#define HLY_GROUP_LIBRARY_H

#include "run/run.h"

/* Before a call in a GPU's memory is made: begins to agree, if it is the communicator's first. */
void hly_nccl_ask(halay_comm_t *comm, const struct hly_call *call, struct hly_check *c);
/* The call has started without a plan: gives it one, once the ranks have agreed. */
void hly_nccl_plan(halay_request_t *request);
/* The request of an agreement is complete: so calls that wait for it go on. */
void hly_nccl_answered(halay_request_t *request);
/* The communicator is destroyed. */
void hly_nccl_forget(halay_comm_t *comm);
/* The context is destroyed, and nothing runs any more. */
void hly_nccl_drop(halay_context_t *context);

#endif
