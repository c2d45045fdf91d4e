/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_cache.c - a plan runs only after it was proved.
 *
 * A certificate says: the plans that this planner makes for all ranks were proved together, and
 * this rank's plan has this hash. It holds for every count, and for one shape if the planner asks
 * for a shape. Certificates belong to the context. Admitted plans belong to a communicator. They
 * are compiled, and know their peers.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

struct hly_certificate {
    struct hly_certificate *next;
    uint32_t planner, version, nranks, rank, root, in_place;
    uint64_t shape; /* hash; 0 where the planner asks for none */
    uint64_t hash;
};

static struct hly_certificate *certificate_find(halay_context_t *context, uint32_t planner,
                                                const halay_plan_params_t *p)
{
    uint32_t version = halay_planner_get(planner)->version;
    uint64_t shape = p->shape ? p->shape->hash : 0;
    struct hly_certificate *c = context->certificates;
    while (c && !(c->planner == planner && c->version == version && c->nranks == p->nranks &&
                  c->shape == shape && c->rank == p->rank && c->root == p->root &&
                  c->in_place == p->in_place))
        c = c->next;
    return c;
}

/* Proves the plans of all ranks together; with more than HLY_PROVE_WHOLE_MAX ranks only what this
 * rank can prove alone. */
static int prove(uint32_t planner, const halay_plan_params_t *p, uint64_t *hash,
                 halay_proof_t *proof)
{
    bool alone = p->nranks > HLY_PROVE_WHOLE_MAX;
    halay_plan_t **plans = calloc(alone ? 1 : p->nranks, sizeof(*plans));
    int rc = plans ? HALAY_OK : HALAY_ENOMEM;
    uint32_t first = alone ? p->rank : 0, n = alone ? 1 : p->nranks;
    for (uint32_t r = 0; !rc && r < n; r++) {
        halay_plan_params_t of_rank = *p;
        of_rank.rank = first + r;
        rc = halay_plan_make(planner, &of_rank, &plans[r]);
    }
    if (!rc && alone)
        rc = halay_plan_prove_local(plans[0], p->shape, proof);
    else if (!rc)
        rc = halay_plan_prove((const halay_plan_t *const *)plans, n, proof);
    if (!rc)
        *hash = halay_plan_hash(plans[p->rank - first]);
    for (uint32_t r = 0; plans && r < n; r++)
        halay_plan_free(plans[r]);
    free(plans);
    return rc;
}

/* Proves the plan of p->rank, and keeps the certificate. */
static int certify(halay_context_t *context, uint32_t planner, const halay_plan_params_t *p,
                   struct hly_certificate **certificate, char *reason, size_t reason_bytes)
{
    halay_proof_t proof = {.size = sizeof(proof)};
    struct hly_certificate *c = calloc(1, sizeof(*c));
    uint64_t hash = 0;
    int rc = c ? prove(planner, p, &hash, &proof) : HALAY_ENOMEM;
    if (rc) {
        snprintf(reason, reason_bytes, "%s", proof.reason[0] ? proof.reason : halay_strerror(rc));
        free(c);
        return rc;
    }
    *c = (struct hly_certificate){context->certificates,
                                  planner,
                                  halay_planner_get(planner)->version,
                                  p->nranks,
                                  p->rank,
                                  p->root,
                                  p->in_place,
                                  p->shape ? p->shape->hash : 0,
                                  hash};
    context->certificates = c;
    context->counters.plans_proved++;
    *certificate = c;
    return HALAY_OK;
}

/* Lays a proved plan out for the executor. */
static int compile(struct hly_plan *p)
{
    p->nsteps = p->plan->nsteps;
    p->steps = p->plan->steps;
    for (uint32_t i = 0; p->plan->ngroups && i < p->nsteps; i++) {
        const halay_step_t *s = &p->steps[i];
        if (s->kind != HALAY_STEP_GROUP)
            continue;
        p->launches[s->edge]++;
        for (uint32_t o = 0; o < 2; o++) /* a device takes whole runs */
            if (hly_operand_wraps(p->plan, &p->plan->operands[s->operand + o]))
                return HALAY_EUNSUPPORTED;
    }
    p->stages = halay_planner_get(p->planner)->restrictions & HALAY_PLANNER_STAGE;
    return hly_plan_uses(p->plan, &p->uses);
}

static void plan_free(struct hly_plan *p)
{
    while (p->spare) {
        halay_request_t *next = p->spare->next;
        hly_request_destroy(p->spare);
        p->spare = next;
    }
    hly_plan_uses_free(&p->uses);
    halay_plan_free(p->plan);
    free(p->peers);
    free(p);
}

void hly_plan_drop_all(halay_comm_t *comm)
{
    hly_cache_forget(comm, NULL);
    while (comm->plans) {
        struct hly_plan *next = comm->plans->next;
        plan_free(comm->plans);
        comm->plans = next;
    }
    comm->nplans = 0;
}

int hly_plan_check(const struct hly_plan *p)
{
    return halay_plan_hash(p->plan) == p->hash ? HALAY_OK : HALAY_EPLAN;
}

static int look_up_peers(halay_comm_t *comm, struct hly_plan *p)
{
    p->peers = calloc(p->plan->nsteps + 1, sizeof(*p->peers));
    if (!p->peers)
        return HALAY_ENOMEM;
    for (uint32_t i = 0; i < p->plan->nsteps; i++) {
        const halay_step_t *s = &p->plan->steps[i];
        if (s->kind != HALAY_STEP_SEND && s->kind != HALAY_STEP_RECV)
            continue;
        int rc = hly_peer_get(comm->context, hly_comm_world_rank(comm, (int)s->peer), &p->peers[i]);
        if (rc)
            return rc;
    }
    return HALAY_OK;
}

/* Does a call that is under way, or a persistent request, use the plan? */
static bool is_used(const halay_context_t *context, const struct hly_plan *plan)
{
    for (const struct hly_link *l = context->posted.next; l != &context->posted; l = l->next) {
        const halay_request_t *r = HLY_OF(l, halay_request_t, posted);
        if (r->plan == plan && !(r->cached && r->state == HLY_IDLE))
            return true;
    }
    return false;
}

/* Drops the oldest idle plan, so that the cache stays bounded. */
static void evict_one(halay_comm_t *comm)
{
    struct hly_plan **victim = NULL;
    for (struct hly_plan **p = &comm->plans; *p; p = &(*p)->next)
        if (!is_used(comm->context, *p))
            victim = p;
    if (!victim)
        return; /* all are in use: the window bounds their number */
    struct hly_plan *gone = *victim;
    *victim = gone->next;
    hly_cache_forget(comm, gone);
    plan_free(gone);
    comm->nplans--;
}

static int plan_make(halay_comm_t *comm, uint32_t planner, const halay_plan_params_t *params,
                     struct hly_plan **out, char *reason, size_t reason_bytes)
{
    struct hly_certificate *c = certificate_find(comm->context, planner, params);
    int rc = c ? HALAY_OK : certify(comm->context, planner, params, &c, reason, reason_bytes);
    if (rc)
        return rc;
    struct hly_plan *p = calloc(1, sizeof(*p));
    if (!p)
        return HALAY_ENOMEM;
    p->planner = planner;
    p->root = params->root;
    p->in_place = params->in_place;
    p->hash = c->hash;
    rc = halay_plan_make(planner, params, &p->plan);
    if (!rc)
        rc = hly_plan_check(p);
    if (!rc)
        rc = compile(p);
    if (!rc)
        rc = look_up_peers(comm, p);
    if (rc) {
        snprintf(reason, reason_bytes, "plan %s: %s", halay_planner_get(planner)->name,
                 halay_strerror(rc));
        plan_free(p);
        return rc;
    }
    comm->context->counters.plans_made++;
    hly_log(comm->context, HLY_INFO, "plan %s.%s for %u ranks: %u steps, %u blocks, proved",
            halay_collective_name((halay_collective_t)params->collective),
            halay_planner_get(planner)->name, params->nranks, p->plan->nsteps, p->plan->blocks);
    *out = p;
    return HALAY_OK;
}

int hly_plan_admit(halay_comm_t *comm, uint32_t planner, const struct hly_call *call,
                   struct hly_plan **plan, char *reason, size_t reason_bytes)
{
    uint32_t in_place = hly_call_in_place(call);
    if (halay_planner_get(planner)->restrictions & HALAY_PLANNER_GROUP &&
        !hly_comm_group_library(comm, hly_device_of(comm->context, call->desc.memory))) {
        snprintf(reason, reason_bytes,
                 "plan %s: no device offers group steps; choose another "
                 "algorithm (HALAY_ALGORITHM)",
                 halay_planner_get(planner)->name);
        return HALAY_EUNSUPPORTED;
    }
    for (struct hly_plan *p = comm->plans; p; p = p->next)
        if (p->planner == planner && p->root == call->desc.root && p->in_place == in_place) {
            *plan = p;
            return HALAY_OK;
        }
    halay_plan_params_t params = {call->desc.collective,
                                  (uint32_t)comm->nranks,
                                  (uint32_t)comm->rank,
                                  call->desc.root,
                                  in_place,
                                  NULL};
    struct hly_plan *made;
    halay_shape_t *shape = NULL;
    int rc = HALAY_OK;
    if (halay_planner_get(planner)->restrictions & HALAY_PLANNER_SHAPE)
        rc = hly_comm_shape(comm, &shape);
    params.shape = shape;
    if (!rc)
        rc = plan_make(comm, planner, &params, &made, reason, reason_bytes);
    halay_shape_free(shape);
    if (rc)
        return rc;
    if (comm->nplans >= HLY_PLANS_MAX)
        evict_one(comm);
    made->next = comm->plans;
    comm->plans = made;
    comm->nplans++;
    *plan = made;
    return HALAY_OK;
}

void hly_certificates_free(halay_context_t *context)
{
    while (context->certificates) {
        struct hly_certificate *next = context->certificates->next;
        free(context->certificates);
        context->certificates = next;
    }
}
