/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound.c - what no plan can beat, in the model of cost.c: the largest of three times that each
 * hold alone. They cannot all be met at once, so a plan at 1.0 is rare.
 *
 *  - Latency: after the call every rank has heard of every other (plan.h), rank 0 among them. In
 * LogP the ranks that can know of it at time t are F(t) = F(t - o) + F(t - (L + 2 o)): who knows
 * tells another every o. Karp, Sahay, Santos, Schauser: Optimal broadcast and summation in the LogP
 * model, SPAA 1993. With o = L + 2 o this would be ceil(log2 p) messages in turn.
 *  - Bandwidth: what has to cross the boundary of a rank, and of a node, in the one direction where
 * it is most: Patarasuk, Yuan, JPDC 69 (2009); Chan et al., CCPE 19 (2007).
 *  - Reduction: p - 1 vectors have to be added, by p ranks.
 */
#include <assert.h>
#include <halay/plan.h>

#define TERMS_MAX 4096

/* Times o and L + 2 o; the least that any message of the shape can have. */
static double tell_all(uint32_t nranks, const halay_link_model_t *link)
{
    double knows[TERMS_MAX], total = 1;
    double whole = link->latency_ns + 2 * link->overhead_ns;

    if (nranks < 2) {
        return 0;
    }
    if (link->overhead_ns <= 0 || whole / link->overhead_ns >= TERMS_MAX) {
        return whole;
    }
    uint32_t delay = (uint32_t)(whole / link->overhead_ns); /* in units of o, rounded down: >= 2 */
    assert(delay > 0);
    uint32_t t = 0;
    for (; total < nranks; t++) { /* knows[t % delay]: ranks that know at time t */
        double known_then = t >= delay ? knows[t % delay] : 0;
        total += t >= delay ? known_then : 0;
        knows[t % delay] = total;
    }
    double ns = (t - 1) * link->overhead_ns;
    return ns > whole ? ns : whole;
}

/* Bytes that have to go into, or out of, a part of `inside` ranks at least, the largest such part
 * of its size; blocks of n bytes for each rank. */
static double crossing(const halay_question_t *q, double inside, double n)
{
    double p = q->shape->nranks, outside = p - inside;

    switch (q->collective) {
    case HALAY_ALLGATHER:
    case HALAY_REDUCE_SCATTER: /* one partial sum for each block of the others */
    case HALAY_GATHER:         /* into the root's, scatter: out of it */
    case HALAY_SCATTER:
        return outside * n;
    case HALAY_ALLTOALL:
        return inside * outside * n;
    case HALAY_BROADCAST:
    case HALAY_REDUCE:
    case HALAY_SCAN:
    case HALAY_EXSCAN:
        return outside > 0 ? n : 0;
    default:
        return 0;
    }
}

/* The same for the collectives whose load can be shared by all parts: 2 (m - 1) / m. */
static double shared(const halay_question_t *q, double parts, double n)
{
    return q->collective == HALAY_ALLREDUCE ? 2 * n * (parts - 1) / parts : 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double bandwidth(const halay_question_t *q, const halay_model_t *model, double n)
{
    const halay_shape_t *shape = q->shape;
    int apart = shape->nnodes == shape->nranks;
    double far = model->far.byte_ns, near = model->near.byte_ns;
    /* A rank may move bytes on both paths at once: their rates add up. */
    double both = near + far > 0 ? near * far / (near + far) : 0;
    double rank_ns = apart ? far : shape->nnodes > 1 ? both : near;
    /* A gather's root may sit on the largest node, of which the others are fewer. */
    int rooted = halay_collective_rooted((halay_collective_t)q->collective);
    double inside = rooted ? shape->largest : shape->smallest;
    double of_rank = larger(crossing(q, 1, n), shared(q, shape->nranks, n)) * rank_ns;
    double of_node = larger(crossing(q, inside, n), shared(q, shape->nnodes, n)) * far;

    return shape->nnodes > 1 ? larger(of_rank, of_node) : of_rank;
}

void halay_cost_bound(const halay_question_t *q, const halay_model_t *model, halay_bound_t *bound)
{
    const halay_shape_t *shape = q->shape;
    double p = shape->nranks, n = (double)q->count * q->element_bytes;
    halay_link_model_t least = shape->nnodes == shape->nranks ? model->far : model->near;
    double far_ns = model->far.latency_ns + 2 * model->far.overhead_ns, latency;

    if (shape->nnodes > 1) {
        least.latency_ns = smaller(least.latency_ns, model->far.latency_ns);
        least.overhead_ns = smaller(least.overhead_ns, model->far.overhead_ns);
    }
    latency = tell_all(shape->nranks, &least);
    bound->latency_ns = shape->nnodes > 1 ? larger(latency, far_ns) : latency;
    bound->bandwidth_ns = bandwidth(q, model, n);
    bound->reduction_ns = 0;
    if (halay_collective_reduces((halay_collective_t)q->collective)) {
        double vector = q->collective == HALAY_REDUCE_SCATTER ? n * p : n;
        double sums = q->collective == HALAY_EXSCAN ? p - 2 : p - 1; /* the last input is unused */
        bound->reduction_ns = vector * sums / p * model->reduce_byte_ns;
    }
    if (p < 2) {
        bound->bandwidth_ns = bound->reduction_ns = 0;
    }
    bound->bound_ns = model->call_ns +
                      larger(bound->latency_ns, larger(bound->bandwidth_ns, bound->reduction_ns));
}
