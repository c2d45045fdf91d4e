/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove_local.c - what one rank can prove by itself, where all ranks' plans are too many: its own
 * form and hazards, and that each of its messages has its partner in the peer's plan, which is made
 * for that and thrown away. Time: the steps of its peers; memory: those of one of them.
 *
 * If every rank does this, every plan is well formed, ordered, and matched: those parts of the
 * whole proof are about one rank or one edge. What no rank can see alone (deadlock, values, who has
 * heard of whom) is not proved here: docs/decisions/plans.md#0017.
 */
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "prove.h"

struct message {
    uint32_t peer, edge, sends, step; /* sends: 1 if it is this rank that does; or MEETS */
};

enum { MEETS = 2 }; /* a group step: one message for each other member */

static int compare(const void *a, const void *b)
{
    const struct message *x = a, *y = b;

    if (x->peer != y->peer) {
        return x->peer < y->peer ? -1 : 1;
    }
    if (x->edge != y->edge) {
        return x->edge < y->edge ? -1 : 1;
    }
    if (x->sends != y->sends) {
        return x->sends < y->sends ? -1 : 1;
    }
    return x->step < y->step ? -1 : x->step > y->step;
}

/* Messages that a step is one end of, at most. */
static uint64_t ends_of(const halay_plan_t *plan, const halay_step_t *s)
{
    return s->kind == HALAY_STEP_GROUP ? hly_group_of(plan, s)->nmembers : 1;
}

static void list_members(const halay_plan_t *plan, uint32_t step, uint32_t peer, struct message *m,
                         uint32_t *n)
{
    const halay_step_t *s = &plan->steps[step];
    const halay_member_t *member = hly_members_of(plan, s);

    for (uint32_t i = 0; i < hly_group_of(plan, s)->nmembers; i++) {
        if (member[i].rank != plan->params.rank && (peer == HLY_NONE || member[i].rank == peer)) {
            m[(*n)++] = (struct message){member[i].rank, s->edge, MEETS, step};
        }
    }
}

/* The plan's messages (with `peer` only, or HLY_NONE for all), sorted. Free *list. */
static int list_messages(const halay_plan_t *plan, uint32_t peer, struct message **list,
                         uint32_t *count)
{
    uint64_t room = 1;
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->nsteps; i++) {
        room += ends_of(plan, &plan->steps[i]);
    }
    struct message *m = room > HLY_PROVE_STEPS_MAX ? NULL : malloc(room * sizeof(*m));

    if (!m) {
        return HALAY_ENOMEM;
    }
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *s = &plan->steps[i];
        if ((s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV) &&
            (peer == HLY_NONE || s->peer == peer)) {
            m[n++] = (struct message){s->peer, s->edge, s->kind == HALAY_STEP_SEND, i};
        } else if (s->kind == HALAY_STEP_GROUP) {
            list_members(plan, i, peer, m, &n);
        }
    }
    qsort(m, n, sizeof(*m), compare);
    *list = m;
    *count = n;
    return 0;
}

/* One message of this rank and what stands at its place in the peer's list, or NULL. */
static int check_message(struct hly_prover *v, uint32_t rank, const struct message *mine,
                         const struct message *theirs)
{
    const halay_plan_t *plan = v->plans[rank], *other = v->plans[mine->peer];

    if (mine->sends == MEETS) {
        if (!theirs || theirs->edge != mine->edge || theirs->sends != MEETS ||
            !hly_groups_agree(plan, &plan->steps[mine->step], other, &other->steps[theirs->step],
                              1)) {
            return hly_refuse(v, rank, mine->step, "rank %u, a member, has another group here",
                              mine->peer);
        }
        return 0;
    }
    if (!theirs || theirs->edge != mine->edge || theirs->sends != !mine->sends) {
        return hly_refuse(v, rank, mine->step, "nobody %s this message",
                          mine->sends ? "receives" : "sends");
    }
    const halay_operand_t *a = &plan->operands[plan->steps[mine->step].operand];
    const halay_operand_t *b = &other->operands[other->steps[theirs->step].operand];
    int renumbers = v->params.collective == HALAY_ALLTOALL;
    if (a->count != b->count || (a->count != 0 && a->first != b->first && !renumbers)) {
        return hly_refuse(v, rank, mine->step, "%u blocks from %u on, for its peer %u from %u on",
                          a->count, a->first, b->count, b->first);
    }
    v->proof.messages++;
    return 0;
}

/* mine[0..n): all messages with one peer; plans[peer] has the right form. */
static int check_pair(struct hly_prover *v, uint32_t rank, const struct message *mine, uint32_t n)
{
    struct message *theirs;
    uint32_t count;
    int result = list_messages(v->plans[mine->peer], rank, &theirs, &count);

    if (result < 0) {
        return result;
    }
    for (uint32_t i = 0; i < count; i++) { /* the same order as mine: by edge, then by who sends */
        theirs[i].sends = theirs[i].sends == MEETS ? MEETS : !theirs[i].sends;
    }
    qsort(theirs, count, sizeof(*theirs), compare);
    for (uint32_t i = 0; result == 0 && i < n; i++) {
        struct message of_peer = i < count ? theirs[i] : mine[i];
        of_peer.sends = of_peer.sends == MEETS ? MEETS : !of_peer.sends;
        if (i > 0 && mine[i].sends != MEETS && mine[i].edge == mine[i - 1].edge &&
            mine[i].sends == mine[i - 1].sends) {
            result =
                hly_refuse(v, rank, mine[i].step, "step %u is the same message", mine[i - 1].step);
        } else {
            result = check_message(v, rank, &mine[i], i < count ? &of_peer : NULL);
        }
    }
    if (result == 0 && count > n) {
        result = hly_refuse(v, rank, HLY_NONE, "has no step for edge %u with rank %u",
                            theirs[n].edge, mine->peer);
    }
    free(theirs);
    return result;
}

static int check_peer(struct hly_prover *v, const halay_plan_t **plans, uint32_t rank,
                      const halay_shape_t *shape, const struct message *mine, uint32_t n,
                      uint64_t *steps)
{
    halay_plan_params_t params = plans[rank]->params;
    halay_plan_t *other;

    params.rank = mine->peer;
    params.shape = shape;
    int result = halay_plan_make(plans[rank]->planner, &params, &other);
    if (result < 0) {
        return result;
    }
    const halay_plan_t *kept = plans[mine->peer]; /* that of rank 0 may stand for the parameters */
    plans[mine->peer] = other;
    *steps += (uint64_t)other->nsteps + other->nmembers;
    if (*steps > HLY_PROVE_STEPS_MAX) {
        result = hly_refuse(v, rank, HLY_NONE, "its peers have too many steps to be proved");
    }
    if (result == 0) {
        result = hly_prove_form_of(v, mine->peer);
    }
    if (result == 0) {
        result = check_pair(v, rank, mine, n);
    }
    plans[mine->peer] = kept;
    halay_plan_free(other);
    return result;
}

static int check_peers(struct hly_prover *v, const halay_plan_t **plans, uint32_t rank,
                       const halay_shape_t *shape)
{
    struct message *mine;
    uint32_t count, n;
    uint64_t steps = 0;
    int result = list_messages(plans[rank], HLY_NONE, &mine, &count);

    if (result < 0) {
        return result;
    }
    for (uint32_t i = 0; result == 0 && i < count; i += n) {
        for (n = 1; i + n < count && mine[i + n].peer == mine[i].peer;) {
            n++;
        }
        result = check_peer(v, plans, rank, shape, &mine[i], n, &steps);
    }
    free(mine);
    return result;
}

static int prove_local(struct hly_prover *v, const halay_plan_t **plans, uint32_t rank,
                       const halay_shape_t *shape)
{
    int result = hly_prove_form_of(v, rank);

    v->proof.steps = plans[rank]->nsteps;
    if (result == 0) {
        result = hly_prove_hazard_of(v, rank);
    }
    return result == 0 ? check_peers(v, plans, rank, shape) : result;
}

int halay_plan_prove_local(const halay_plan_t *plan, const halay_shape_t *shape,
                           halay_proof_t *proof)
{
    if (!plan || !proof || proof->size < sizeof(proof->size) ||
        plan->params.rank >= plan->params.nranks || plan->params.nranks > INT32_MAX) {
        return HALAY_EINVAL;
    }
    /* Only what belongs to this rank and its peers is touched in these two tables. */
    const halay_plan_t **plans = calloc(plan->params.nranks, sizeof(*plans));
    struct hly_prover v = {.plans = plans,
                           .nranks = plan->params.nranks,
                           .params = plan->params,
                           .blocks = plan->blocks,
                           .base = calloc((size_t)plan->params.nranks + 1, sizeof(*v.base))};
    size_t size = proof->size < sizeof(v.proof) ? proof->size : sizeof(v.proof);
    int result = HALAY_ENOMEM;

    if (plans && v.base) {
        plans[0] = plan; /* whose parameters the others are compared with */
        plans[plan->params.rank] = plan;
        result = prove_local(&v, plans, plan->params.rank, shape);
    }
    free(v.base);
    free(plans);
    v.proof.size = proof->size;
    memcpy(proof, &v.proof, size);
    return result;
}
