/* SPDX-License-Identifier: Apache-2.0 */
/* leave.c - a rank finalizes after one of its calls has failed (leave.h). */
#include "fault/leave.h"

#include <stdio.h>

#include "fault/call.h"
#include "plan/text.h"

#define REASON_BYTES 190

void hly_fault_leave(halay_context_t *context)
{
    const halay_comm_t *failed = NULL;
    char text[512];
    for (struct hly_link *l = context->comms.next; l != &context->comms && !failed; l = l->next) {
        const halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        failed = comm->call_failed && !comm->mended ? comm : NULL;
    }
    if (!failed)
        return;
    hly_failure_text(&failed->last_call, text, sizeof(text));
    hly_text_shorten(text, REASON_BYTES);
    for (struct hly_link *l = context->comms.next; l != &context->comms; l = l->next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        struct hly_verdict_wire v;
        if (comm->broken.agreed || comm->freed)
            continue;
        hly_verdict_init(&v, comm, HLY_CAUSE_PEER, HALAY_EPEER, comm->rank);
        snprintf(v.detail, sizeof(v.detail), "it has left after a call of it%s failed: %.190s",
                 comm == failed ? "" : " on another communicator", text);
        struct hly_fault_view at;
        hly_failing_leave(hly_fault_view(&at, comm, comm->next_sequence), &v);
    }
}
