/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - destroys communicators, with all that belongs to them. */
#include <stdlib.h>

#include "exec/device_comm.h"
#include "exec/exec.h"
#include "exec/work.h"
#include "fault/fault.h"
#include "run/group.h"
#include "run/group_library.h"
#include "run/run.h"
#include "select/select.h"
#include "wire/match.h"
#include "wire/message.h"

void hly_comm_destroy(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    for (int i = 0; i < HLY_SLOTS; i++) {
        hly_unexpected_forget(&comm->slots[i].unexpected);
        free(comm->slots[i].fault);
    }
    hly_explain_end(comm);
    hly_select_forget(comm);
    while (!hly_link_empty(&comm->pairs)) {
        hly_comm_destroy(HLY_OF(comm->pairs.next, halay_comm_t, pair_link));
        ctx->ncomms--;
    }
    if (comm->outer)
        comm->outer->inner = NULL;
    if (comm->inner) {
        hly_comm_destroy(comm->inner);
        ctx->ncomms--;
    }
    if (comm->asks_for)
        comm->asks_for->nccl->hidden = NULL;
    hly_nccl_forget(comm);
    hly_group_forget(comm->group_open);
    hly_work_unprecede(comm);
    hly_device_comms_free(comm);
    hly_plan_drop_all(comm);
    hly_messages_free(comm);
    hly_comm_remove(comm);
    hly_comm_give_back(comm);
}

bool hly_comm_in_use(const halay_comm_t *comm)
{
    bool busy = comm->oldest != comm->next_sequence || comm->npersistent || comm->group_open ||
                !hly_link_empty(&comm->groups) || (comm->inner && hly_comm_in_use(comm->inner));
    const struct hly_link *posted = &comm->context->posted;
    for (const struct hly_link *l = posted->next; l != posted && !busy; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, posted);
        busy = r->comm == comm && r->state != HLY_IDLE; /* perhaps complete, but not waited for */
    }
    for (const struct hly_link *l = comm->pairs.next; l != &comm->pairs && !busy; l = l->next)
        busy = hly_comm_in_use(HLY_OF(l, halay_comm_t, pair_link));
    return busy;
}
