/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plancache.c - a plan runs only after it was proved.
 *
 * A certificate says: the plans that this planner makes for all ranks (on this shape, if it asks
 * for one) were proved together, and this rank's plan has this hash. It holds for every count.
 * Certificates belong to the context; admitted plans, with peers looked up and successors laid out,
 * to a communicator.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"
#include "core.h"
#include "readers.h"
#include "straight.h"

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

/* The proof of all ranks' plans together; where they are many, what this rank can prove alone. */
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

/* Certifies the plan of p->rank. */
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

static uint32_t edge_hash(uint32_t kind, uint32_t peer, uint32_t edge)
{
    uint64_t x = ((uint64_t)peer << 34) ^ ((uint64_t)edge << 2) ^ kind;
    x *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 32);
}

uint32_t hly_plan_step(const struct hly_plan *plan, uint32_t kind, uint32_t peer, uint32_t edge)
{
    uint32_t at = edge_hash(kind, peer, edge) & plan->table_mask;
    for (; plan->table[at] != HALAY_STEP_NONE; at = (at + 1) & plan->table_mask) {
        const halay_step_t *s = &plan->plan->steps[plan->table[at]];
        if (s->kind == kind && s->peer == peer && s->edge == edge)
            return plan->table[at];
    }
    return HALAY_STEP_NONE;
}

static void fill_table(struct hly_plan *p)
{
    memset(p->table, 0xff, (p->table_mask + 1) * sizeof(*p->table));
    for (uint32_t i = 0; i < p->plan->nsteps; i++) {
        const halay_step_t *s = &p->plan->steps[i];
        if (s->kind != HALAY_STEP_SEND && s->kind != HALAY_STEP_RECV)
            continue;
        uint32_t at = edge_hash(s->kind, s->peer, s->edge) & p->table_mask;
        while (p->table[at] != HALAY_STEP_NONE)
            at = (at + 1) & p->table_mask;
        p->table[at] = i;
    }
}

static void fill_successors(struct hly_plan *p)
{
    const halay_plan_t *plan = p->plan;
    uint32_t *first = p->successor_first;
    memset(first, 0, (plan->nsteps + 2) * sizeof(*first));
    for (uint32_t i = 0; i < plan->nsteps; i++)
        for (int d = 0; d < 2; d++)
            if (plan->steps[i].dep[d] != HALAY_STEP_NONE)
                first[plan->steps[i].dep[d] + 2]++;
    for (uint32_t i = 2; i < plan->nsteps + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < plan->nsteps; i++) /* first[j + 1] moves to its final place */
        for (int d = 0; d < 2; d++)
            if (plan->steps[i].dep[d] != HALAY_STEP_NONE)
                p->successors[first[plan->steps[i].dep[d] + 1]++] = i;
}

static void fill_fresh(struct hly_plan *p)
{
    for (uint32_t i = 0; i < p->plan->nsteps; i++) {
        const halay_step_t *s = &p->plan->steps[i];
        p->fresh[i].pending =
            (uint8_t)((s->dep[0] != HALAY_STEP_NONE) + (s->dep[1] != HALAY_STEP_NONE));
        if (!p->fresh[i].pending)
            p->ready[p->nready++] = i;
    }
}

static void plan_free(struct hly_plan *p)
{
    assert(!p->running);
    while (p->spare) {
        halay_request_t *next = p->spare->next;
        hly_request_destroy(p->spare);
        p->spare = next;
    }
    halay_plan_free(p->plan);
    free(p->peers);
    free(p->successors);
    free(p->successor_first);
    free(p->table);
    free(p->fresh);
    free(p->ready);
    free(p->straight);
    free(p);
}

void hly_plan_drop_all(halay_comm_t *comm)
{
    while (comm->plans) {
        struct hly_plan *next = comm->plans->next;
        plan_free(comm->plans);
        comm->plans = next;
    }
    comm->nplans = 0;
    comm->last_plan = comm->last_series = NULL;
    memset(comm->habits, 0, sizeof(comm->habits));
}

int hly_plan_check(const struct hly_plan *p)
{
    return halay_plan_hash(p->plan) == p->hash ? HALAY_OK : HALAY_EPLAN;
}

static int look_up_peers(halay_comm_t *comm, struct hly_plan *p)
{
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

static int lay_out(halay_comm_t *comm, struct hly_plan *p)
{
    uint32_t n = p->plan->nsteps, room = 4;
    while (room < 2 * n)
        room *= 2;
    p->table_mask = room - 1;
    p->peers = calloc(n + 1, sizeof(*p->peers));
    p->successors = calloc(2 * (size_t)n + 1, sizeof(*p->successors));
    p->successor_first = calloc((size_t)n + 2, sizeof(*p->successor_first));
    p->table = calloc(room, sizeof(*p->table));
    p->fresh = calloc(n + 1, sizeof(*p->fresh));
    p->ready = calloc(n + 1, sizeof(*p->ready));
    p->straight = n <= HLY_WORKS_KEPT ? calloc(n + 1, sizeof(*p->straight)) : NULL;
    if (!p->peers || !p->successors || !p->successor_first || !p->table || !p->fresh || !p->ready)
        return HALAY_ENOMEM;
    fill_fresh(p);
    fill_table(p);
    fill_successors(p);
    hly_straight_order(p);
    hly_ahead_find(p);
    hly_readers_find(p);
    return look_up_peers(comm, p);
}

/* Forgets the idle plan that was made first, so that the cache stays bounded. */
static void evict_one(halay_comm_t *comm)
{
    struct hly_plan **victim = NULL;
    for (struct hly_plan **p = &comm->plans; *p; p = &(*p)->next)
        if (!(*p)->running)
            victim = p;
    if (!victim)
        return; /* all are running: the window bounds them */
    struct hly_plan *gone = *victim;
    *victim = gone->next;
    if (comm->last_plan == gone || comm->last_series == gone)
        comm->last_series = NULL;
    if (comm->last_plan == gone)
        comm->last_plan = NULL;
    for (int i = 0; i < HLY_HABITS; i++)
        if (comm->habits[i].plan == gone || comm->habits[i].series == gone)
            comm->habits[i] = (struct hly_habit){0};
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
        rc = lay_out(comm, p);
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
    for (struct hly_plan *p = comm->plans; p; p = p->next)
        if (p->planner == planner && p->root == call->brief.root && p->in_place == in_place) {
            *plan = p;
            return HALAY_OK;
        }
    halay_plan_params_t params = {call->brief.collective,
                                  (uint32_t)comm->nranks,
                                  (uint32_t)comm->rank,
                                  call->brief.root,
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
