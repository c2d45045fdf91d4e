/* SPDX-License-Identifier: Apache-2.0 */
/* agree_groups.h - whether calls in a GPU's memory use NCCL or our own group steps, which the
 * context opens by itself. Where it says NCCL, ours are meant, too. */
#ifndef HLY_AGREE_GROUPS_H
#define HLY_AGREE_GROUPS_H

#include "api/api.h"

/* Before a call is posted: may it use NCCL? Sets call->grouped. */
void hly_nccl_turn(halay_comm_t *comm, struct hly_call *call, struct hly_check *c);
/* Do its calls use NCCL from now on, whichever is the next? */
static inline bool hly_nccl_is_on(const halay_comm_t *comm)
{
    return comm->nccl && comm->nccl->on;
}
/* ", by ..." those who do its group steps, and why not by others. */
void hly_nccl_by(const halay_comm_t *comm, const struct hly_device *device, char *text,
                 size_t bytes);
/* Why calls on it do not. */
const char *hly_nccl_reason(const halay_comm_t *comm);
/* It is destroyed. */
void hly_nccl_forget(halay_comm_t *comm);
/* Is there an agreement under way? Takes in one that has ended. */
bool hly_nccl_is_asking(halay_comm_t *comm);
/* The context is destroyed, and nothing runs any more. */
void hly_nccl_drop(halay_context_t *context);

#endif
