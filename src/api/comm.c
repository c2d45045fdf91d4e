/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - communicators as the program sees them: made, freed, asked. */
#include <stdio.h>

#include "api/api.h"
#include "exec/device_comm.h"
#include "exec/exec.h"
#include "exec/relaxed.h"
#include "exec/work.h"
#include "fault/survivors.h"
#include "run/group_library.h"
#include "run/returned.h"
#include "select/select.h"

int halay_comm_rank(const halay_comm_t *handle, int *rank)
{
    halay_comm_t *comm = hly_comm_of(handle);
    if (!comm || !rank || comm->freed)
        return hly_comm_reject(comm, HALAY_EINVAL,
                               rank ? "comm_rank: the communicator was freed on this rank"
                                    : "comm_rank: rank is NULL");
    *rank = comm->rank;
    return HALAY_OK;
}

int halay_comm_size(const halay_comm_t *handle, int *nranks)
{
    halay_comm_t *comm = hly_comm_of(handle);
    if (!comm || !nranks || comm->freed)
        return hly_comm_reject(comm, HALAY_EINVAL,
                               nranks ? "comm_size: the communicator was freed on this rank"
                                      : "comm_size: nranks is NULL");
    *nranks = comm->nranks;
    return HALAY_OK;
}

/* Keeps some of the freed ones, and those with calls that were made when they were freed. */
static void destroy_oldest(halay_context_t *ctx)
{
    struct hly_link *next;
    for (struct hly_link *l = ctx->freed_comms.next;
         ctx->nfreed > HLY_FREED_MAX && l != &ctx->freed_comms; l = next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        next = l->next;
        if (hly_comm_in_use(comm) || (comm->nccl && comm->nccl->state == HLY_NCCL_ASKING))
            continue;
        hly_comm_destroy(comm);
        ctx->nfreed--;
    }
}

int halay_comm_free(halay_comm_t *handle)
{
    if (!handle)
        return HALAY_OK;
    halay_comm_t *comm = hly_comm_of(handle);
    if (!comm) /* it was freed long ago */
        return HALAY_ESTATE;
    if (comm->freed)
        return hly_comm_reject(comm, HALAY_ESTATE, "comm_free: it was freed before on this rank");
    halay_context_t *ctx = comm->context;
    int rc = hly_context_enter(ctx);
    if (rc)
        return rc;
    hly_returned_land(ctx, comm);
    if (comm == ctx->world || hly_comm_in_use(comm)) {
        const char *why = comm == ctx->world ? "the world communicator belongs to the context"
                          : comm->group_open ? "a group of calls was begun on it; end it first"
                          : comm->npersistent
                              ? "it has persistent requests; wait for those under way, and free all"
                              : "requests are in flight on it; wait for them first";
        hly_log(ctx, HLY_ERROR, "comm_free: %s", why);
        rc = hly_fault_alone(comm, HALAY_ESTATE, why);
    } else {
        hly_relaxed_free(comm);
        comm->freed = true;
        hly_work_unprecede(comm);
        hly_explain_end(comm);
        hly_select_forget(comm);
        hly_device_comms_free(comm);
        hly_plan_drop_all(comm);
        hly_consensus_free(comm);
        hly_link_remove(&comm->link);
        hly_link_append(&ctx->freed_comms, &comm->link);
        ctx->nfreed++;
        ctx->ncomms--;
        destroy_oldest(ctx);
    }
    hly_unlock(ctx);
    return rc;
}

int halay_comm_set_deadline(halay_comm_t *handle, uint64_t deadline_ns)
{
    halay_comm_t *comm;
    if (!deadline_ns)
        return hly_comm_reject(hly_comm_of(handle), HALAY_EINVAL,
                               "comm_set_deadline: the deadline must be 1 ns at least");
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    comm->deadline_ns = deadline_ns < HLY_DEADLINE_MAX_NS ? deadline_ns : HLY_DEADLINE_MAX_NS;
    if (comm->deadline_ns > comm->context->longest_ns)
        comm->context->longest_ns = comm->deadline_ns;
    hly_unlock(comm->context);
    return HALAY_OK;
}

int halay_comm_deadline(halay_comm_t *handle, uint64_t *deadline_ns)
{
    halay_comm_t *comm;
    if (!deadline_ns)
        return hly_comm_reject(hly_comm_of(handle), HALAY_EINVAL,
                               "comm_deadline: deadline_ns is NULL");
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    *deadline_ns = comm->deadline_ns;
    hly_unlock(comm->context);
    return HALAY_OK;
}

static int refuse_hint(const halay_comm_t *handle, halay_hint_t hint, int value, bool known)
{
    char text[96];
    if (known)
        snprintf(text, sizeof(text), "comm_set_hint: hint %d does not take the value %d", (int)hint,
                 value);
    else
        snprintf(text, sizeof(text), "comm_set_hint: there is no hint %d", (int)hint);
    return hly_comm_reject(hly_comm_of(handle), HALAY_EINVAL, text);
}

int halay_comm_set_hint(halay_comm_t *handle, halay_hint_t hint, int value)
{
    halay_comm_t *comm;
    const bool planner = hint == HALAY_HINT_PLANNER;
    const int most = planner ? (int)halay_planner_count() - 1 : 1;
    const bool known = planner || hint == HALAY_HINT_RELAXED_BROADCAST;
    const bool good = known && value >= (planner ? -1 : 0) && value <= most;
    if (!good)
        return refuse_hint(handle, hint, value, known);
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    rc = comm->oldest == comm->next_sequence ? HALAY_OK : HALAY_ESTATE;
    if (planner && comm->npersistent) /* their plans are made */
        rc = HALAY_ESTATE;
    if (!rc && (planner || !value)) /* not before all have ended the relaxed calls */
        rc = comm->acked == comm->oldest ? HALAY_OK : HALAY_ESTATE;
    if (!rc) {
        hly_cache_forget(comm, NULL); /* its broadcasts, or all, are other calls now */
        if (planner)
            comm->planner_hint = (uint32_t)(value + 1);
        else
            comm->relaxed_hint = value != 0;
    } else {
        hly_comm_refuse(comm, rc,
                        "comm_set_hint: calls are under way, or persistent requests have plans; a "
                        "relaxed broadcast is under way until a barrier ends");
    }
    hly_unlock(comm->context);
    return rc;
}

int halay_comm_called(halay_comm_t *handle, int *called)
{
    halay_comm_t *comm;
    if (!called)
        return hly_comm_reject(hly_comm_of(handle), HALAY_EINVAL, "comm_called: called is NULL");
    int rc = hly_comm_enter(handle, &comm);
    if (rc)
        return rc;
    bool ahead = hly_comm_ahead(comm) > comm->next_sequence - comm->oldest;
    *called = ahead ? 1 : comm->broken.is ? 2 : 0;
    hly_unlock(comm->context);
    return HALAY_OK;
}

int halay_comm_verdict(const halay_comm_t *handle, halay_verdict_t *verdict)
{
    halay_verdict_t v = {.rank = -1, .other = -1};
    const halay_comm_t *comm = hly_comm_of(handle);
    if (!comm || !verdict)
        return HALAY_EINVAL;
    int rc = hly_context_enter(comm->context);
    if (rc)
        return rc;
    struct hly_failure revoked;
    const struct hly_failure *f = comm->failed ? &comm->last : NULL;
    if (!f && comm->broken.agreed && comm->broken.by.cause == HLY_CAUSE_REVOKED) {
        hly_failure_init(&revoked, comm, 0, &comm->broken.by);
        f = &revoked; /* a program that makes no call on it asks so whether it has to leave */
    }
    if (f) {
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
