/* SPDX-License-Identifier: Apache-2.0 */
/* revoke.c - ends communicators without an agreement: the program revokes one, or the other ranks
 * have gone on without this rank. */
#include <stdio.h>

#include "fault/fault.h"
#include "plan/text.h"

/* All calls on the communicator that are under way here, and later ones, end with this verdict. */
static void end_here(halay_comm_t *comm, const struct hly_verdict_wire *v)
{
    if (comm->broken.agreed)
        return;
    struct hly_verdict_wire mine = *v;
    mine.of = (uint64_t)comm->oldest + 1;
    hly_broken_agree(&comm->broken, &mine);
    comm->context->timer_ns = 0;    /* hly_fault_timers() ends the calls in flight, */
    comm->context->listened_ns = 0; /* and no call ends well before that: exec/listen.h */
}

void hly_fault_inherit(const halay_comm_t *parent, halay_comm_t *comm)
{
    struct hly_verdict_wire v = parent->broken.by;
    if (!parent->broken.agreed || v.cause != HLY_CAUSE_REVOKED)
        return;
    v.rank =
        hly_comm_rank_of(comm, hly_comm_world_rank(parent, v.rank)); /* -1: not a rank of comm */
    end_here(comm, &v);
}

void hly_fault_revoked(halay_comm_t *comm)
{
    for (struct hly_link *l = comm->pairs.next; l != &comm->pairs; l = l->next)
        hly_fault_inherit(comm, HLY_OF(l, halay_comm_t, pair_link));
    if (comm->inner)
        hly_fault_inherit(comm, comm->inner);
}

/* Which rank of the communicator this rank knows to have failed, and why; or an empty text. Takes
 * it from the newest communicator: older ones may have a failure after which the program has
 * shrunk. */
static void reason(const halay_comm_t *comm, char *text, size_t bytes)
{
    const halay_context_t *ctx = comm->context;
    text[0] = 0;
    if (hly_interrupted(ctx)) {
        snprintf(text, bytes, ", which was interrupted while it waited");
        return;
    }
    for (const struct hly_link *l = ctx->comms.prev; l != &ctx->comms; l = l->prev) {
        const halay_comm_t *c = HLY_OF(l, halay_comm_t, link);
        const struct hly_verdict_wire *v = &c->broken.by;
        if (!c->broken.is || v->rank < 0 ||
            (v->cause != HLY_CAUSE_PEER && v->cause < HLY_CAUSE_STOPPED))
            continue;
        char who[HLY_RANK_TEXT];
        const int world = hly_comm_world_rank(c, v->rank), rank = hly_comm_rank_of(comm, world);
        if (rank < 0)
            continue;
        hly_rank_text(rank, 0, world, who);
        char detail[sizeof(v->detail)];
        snprintf(detail, sizeof(detail), "%s", v->detail);
        hly_text_shorten(detail, 100);
        snprintf(text, bytes, ", which has seen %s on %.24s fail (%.100s)", who, v->host, detail);
        return;
    }
}

void hly_fault_revoke(halay_comm_t *comm)
{
    struct hly_verdict_wire v;
    char who[HLY_RANK_TEXT], why[HLY_RANK_TEXT + 160];
    hly_verdict_init(&v, comm, HLY_CAUSE_REVOKED, HALAY_EREVOKED, comm->rank);
    hly_rank_text(comm->rank, comm->nranks, comm->context->info.rank, who);
    reason(comm, why, sizeof(why));
    snprintf(v.detail, sizeof(v.detail), "%s on %.24s%s", who, v.host, why);
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
        snprintf(
            v.detail, sizeof(v.detail),
            "this rank itself: it did not answer in time or could not be reached, and the others "
            "have gone on without it");
        end_here(c, &v);
    }
}
