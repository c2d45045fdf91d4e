/* SPDX-License-Identifier: Apache-2.0 */
/* revoke.c - communicators that end by a word: the program's, or that of the ranks that go on. */
#include <stdio.h>

#include "fault/agree.h"

/* All calls on it that are under way here, and later ones, end with this verdict. */
static void end_here(halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    if (comm->agreed)
        return;
    comm->broken = comm->agreed = true;
    comm->broken_by = *v;
    comm->broken_by.of = (uint64_t)comm->oldest + 1;
    comm->over = comm->oldest;
    comm->context->timer_ns = 0; /* hly_fault_timers() ends the calls in flight */
}

void hly_fault_inherit(const halay_comm_t *parent, halay_comm_t *comm)
{
    struct hly_verdict_wire v = parent->broken_by;
    if (!parent->agreed || v.cause != HLY_CAUSE_REVOKED)
        return;
    v.rank = -1; /* not of this one, perhaps */
    end_here(comm, &v);
}

void hly_fault_revoked(halay_comm_t *comm)
{
    const struct hly_verdict_wire *v = &comm->broken_by;
    for (struct hly_link *l = comm->pairs.next; l != &comm->pairs; l = l->next)
        hly_fault_inherit(comm, HLY_OF(l, halay_comm_t, pair_link));
    if (comm->inner)
        hly_fault_inherit(comm, comm->inner);
    /* Against the direction of agree.c: whom dead ranks cut off from one side hears it from the
     * other. */
    for (uint32_t k = 0; k < hly_agree_rounds(comm); k++)
        hly_control_send(comm, hly_agree_from(comm, k), HLY_ALARM, (uint32_t)(v->of - 1), k,
                         HLY_CONCLUDED, NULL, v, sizeof(*v));
}

void hly_fault_revoke(halay_comm_t *comm)
{
    struct hly_verdict_wire v;
    hly_verdict_init(&v, comm, HLY_CAUSE_REVOKED, HALAY_EREVOKED, comm->rank);
    snprintf(v.detail, sizeof(v.detail), "rank %d of %d on %s", comm->rank, comm->nranks, v.host);
    v.of = (uint64_t)comm->oldest + 1;
    hly_fault_concluded(comm, &v);
}

void hly_fault_left_out(halay_comm_t *comm)
{
    const halay_context_t *ctx = comm->context;
    for (struct hly_link *l = ctx->comms.next; l != &ctx->comms; l = l->next) {
        halay_comm_t *c = HLY_OF(l, halay_comm_t, link);
        struct hly_verdict_wire v;
        if (c->nranks == 1)
            continue;
        hly_verdict_init(&v, c, HLY_CAUSE_PEER, HALAY_EPEER, c->rank);
        snprintf(v.detail, sizeof(v.detail),
                 "this rank itself: it did not answer in time, and the others have gone on "
                 "without it");
        end_here(c, &v);
    }
}
