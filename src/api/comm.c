/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - communicators as the program sees them: made, freed, asked. */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "exec/exec.h"
#include "exec/relaxed.h"
#include "fault/fault.h"
#include "select/select.h"
#include "wire/match.h"

int hly_comm_make(halay_context_t *context, uint64_t id, struct hly_ranks *ranks, int rank,
                  uint64_t deadline_ns, halay_comm_t **out)
{
    struct hly_unexpected *m;
    int rc = hly_comm_create(context, id, ranks, rank, deadline_ns, out);
    if (rc)
        return rc;
    hly_fault_new_comm(*out);
    while ((m = hly_orphan_take(*out))) {
        hly_orphan_match(*out, m);
        hly_hand_on(context);
        free(m);
    }
    return HALAY_OK;
}

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
    hly_group_forget(comm->group_open);
    hly_plan_drop_all(comm);
    hly_comm_remove(comm);
    free(comm);
}

int halay_comm_rank(const halay_comm_t *comm, int *rank)
{
    if (!comm || !rank || comm->magic != HLY_COMM_MAGIC)
        return HALAY_EINVAL;
    *rank = comm->rank;
    return HALAY_OK;
}

int halay_comm_size(const halay_comm_t *comm, int *nranks)
{
    if (!comm || !nranks || comm->magic != HLY_COMM_MAGIC)
        return HALAY_EINVAL;
    *nranks = comm->nranks;
    return HALAY_OK;
}

/* Are there calls whose end the program has not seen, on it or between two of its ranks? */
static bool in_use(const halay_comm_t *comm)
{
    bool busy = comm->oldest != comm->next_sequence || comm->npersistent || comm->group_open ||
                !hly_link_empty(&comm->groups) || (comm->inner && in_use(comm->inner));
    const struct hly_link *posted = &comm->context->posted;
    for (const struct hly_link *l = posted->next; l != posted && !busy; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, posted);
        busy = r->comm == comm && r->state != HLY_IDLE; /* perhaps complete, but not waited for */
    }
    for (const struct hly_link *l = comm->pairs.next; l != &comm->pairs && !busy; l = l->next)
        busy = in_use(HLY_OF(l, halay_comm_t, pair_link));
    return busy;
}

int halay_comm_free(halay_comm_t *comm)
{
    if (!comm)
        return HALAY_OK;
    if (comm->magic != HLY_COMM_MAGIC)
        return comm->magic == HLY_COMM_FREED ? HALAY_ESTATE : HALAY_EINVAL;
    halay_context_t *ctx = comm->context;
    int rc = hly_context_enter(ctx);
    if (rc)
        return rc;
    if (comm == ctx->world || in_use(comm)) {
        const char *why = comm == ctx->world ? "the world communicator belongs to the context"
                                             : "requests are in flight on it; wait for them first";
        hly_log(ctx, HLY_ERROR, "comm_free: %s", why);
        rc = hly_fault_alone(comm, HALAY_ESTATE, why);
    } else {
        hly_relaxed_free(comm);
        comm->magic = HLY_COMM_FREED;
        hly_explain_end(comm);
        hly_select_forget(comm);
        hly_plan_drop_all(comm);
        hly_link_remove(&comm->link);
        hly_link_append(&ctx->freed_comms, &comm->link);
        ctx->nfreed++;
        ctx->ncomms--;
        if (ctx->nfreed > HLY_FREED_MAX) {
            hly_comm_destroy(HLY_OF(ctx->freed_comms.next, halay_comm_t, link));
            ctx->nfreed--;
        }
    }
    hly_unlock(ctx);
    return rc;
}

int halay_comm_set_deadline(halay_comm_t *comm, uint64_t deadline_ns)
{
    int rc = deadline_ns ? hly_comm_enter(comm) : HALAY_EINVAL;
    if (rc)
        return rc;
    comm->deadline_ns = deadline_ns;
    hly_unlock(comm->context);
    return HALAY_OK;
}

int halay_comm_deadline(halay_comm_t *comm, uint64_t *deadline_ns)
{
    int rc = deadline_ns ? hly_comm_enter(comm) : HALAY_EINVAL;
    if (rc)
        return rc;
    *deadline_ns = comm->deadline_ns;
    hly_unlock(comm->context);
    return HALAY_OK;
}

int halay_comm_set_hint(halay_comm_t *comm, halay_hint_t hint, int value)
{
    int rc = hint == HALAY_HINT_RELAXED_BROADCAST ? hly_comm_enter(comm) : HALAY_EINVAL;
    if (rc)
        return rc;
    rc = comm->oldest == comm->next_sequence ? HALAY_OK : HALAY_ESTATE;
    if (!rc && !value) /* not before all have ended the relaxed calls */
        rc = comm->acked == comm->oldest ? HALAY_OK : HALAY_ESTATE;
    if (!rc) {
        hly_cache_forget(comm, NULL); /* its broadcasts are other calls now */
        comm->relaxed_hint = value != 0;
    }
    hly_unlock(comm->context);
    return rc;
}

int halay_comm_called(halay_comm_t *comm, int *called)
{
    int rc = called ? hly_comm_enter(comm) : HALAY_EINVAL;
    if (rc)
        return rc;
    bool ahead = hly_comm_ahead(comm) > comm->next_sequence - comm->oldest;
    *called = ahead ? 1 : comm->broken ? 2 : 0;
    hly_unlock(comm->context);
    return HALAY_OK;
}

int halay_comm_verdict(const halay_comm_t *comm, halay_verdict_t *verdict)
{
    halay_verdict_t v = {.rank = -1, .other = -1};
    if (!comm || !verdict || (comm->magic != HLY_COMM_MAGIC && comm->magic != HLY_COMM_FREED))
        return HALAY_EINVAL;
    int rc = hly_context_enter(comm->context);
    if (rc)
        return rc;
    if (comm->failed) {
        const struct hly_failure *f = &comm->last;
        v.code = f->verdict.code;
        v.rank = hly_failure_rank(f, f->verdict.rank);
        v.other = hly_failure_rank(f, f->verdict.other);
        v.sequence = f->sequence;
        snprintf(v.host, sizeof(v.host), "%.63s", f->verdict.host);
        hly_failure_text(f, v.text, sizeof(v.text));
    }
    hly_unlock(comm->context);
    return hly_struct_give(verdict, &v, sizeof(v)) ? HALAY_OK : HALAY_EINVAL;
}
