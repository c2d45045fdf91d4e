/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank proves alone: it accepts every plan of every planner, also those for numbers of
 * ranks whose plans nobody could hold together; and it refuses damaged plans, never one that the
 * proof of all ranks accepts.
 *   test_plan_local [NUMBERS [MOST]]   as many random numbers of ranks (6) up to MOST (100000)
 */
#include <time.h>

#include "test_plan.h"

#define ALL_RANKS  20 /* every rank of all numbers of ranks up to this */
#define NODE_RANKS 48
#define MUTANTS    20000
#define STEPS_HUGE 2000000u /* of the rank and its peers: not in this test */

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ z >> 31) % below);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int prove_alone(const halay_plan_t *plan, const halay_shape_t *shape, halay_proof_t *proof)
{
    memset(proof, 0, sizeof(*proof));
    proof->size = sizeof(*proof);
    return halay_plan_prove_local(plan, shape, proof);
}

/* Nodes of NODE_RANKS, one of them smaller; NULL where the planner does not ask. */
static halay_shape_t *shape_of(uint32_t planner, uint32_t nranks, uint32_t node_ranks)
{
    halay_shape_t *shape = NULL;
    if (!(halay_planner_get(planner)->restrictions & HALAY_PLANNER_SHAPE))
        return NULL;
    uint32_t *node = malloc(nranks * sizeof(*node));
    for (uint32_t r = 0; node && r < nranks; r++)
        node[r] = (r + node_ranks / 3) / node_ranks;
    if (!node || halay_shape_make(node, nranks, &shape))
        exit(1);
    free(node);
    return shape;
}

static int takes(uint32_t planner, uint32_t nranks, uint32_t in_place)
{
    halay_planner_call_t call = {.nranks = nranks,
                                 .count = 1u << 30,
                                 .in_place = in_place,
                                 .commutative = 1,
                                 .relaxed = 1,
                                 .group = 1,
                                 .apart = 1};
    return halay_planner_serves(planner, &call, NULL);
}

static halay_plan_params_t params_of(uint32_t planner, uint32_t nranks, uint32_t rank,
                                     uint32_t in_place, const halay_shape_t *shape)
{
    halay_collective_t collective = (halay_collective_t)halay_planner_get(planner)->collective;
    return (halay_plan_params_t){collective, nranks,
                                 rank,       halay_collective_rooted(collective) ? nranks / 2 : 0,
                                 in_place,   shape};
}

static void few_ranks(uint32_t planner)
{
    halay_proof_t proof;
    for (uint32_t n = 1; n <= ALL_RANKS; n++) {
        halay_shape_t *shape = shape_of(planner, n, 4);
        for (uint32_t rank = 0; rank < 2 * n; rank++) {
            halay_plan_params_t params = params_of(planner, n, rank / 2, rank & 1, shape);
            halay_plan_t *plan;
            if (!takes(planner, n, rank & 1))
                continue;
            CHECK(!halay_plan_make(planner, &params, &plan), "%s",
                  halay_planner_get(planner)->name);
            int rc = prove_alone(plan, shape, &proof);
            CHECK(!rc, "%s, %u ranks: %s", halay_planner_get(planner)->name, n, proof.reason);
            CHECK(rc || proof.steps == plan->nsteps, "%llu steps", (unsigned long long)proof.steps);
            halay_plan_free(plan);
        }
        halay_shape_free(shape);
    }
}

/* ---------------------------------------------------------------- many ranks */

/* Steps of the plans that the proof makes, at least. */
static uint64_t work(const halay_plan_t *plan)
{
    uint32_t peers = 0, last = HALAY_STEP_NONE;
    for (uint32_t i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].peer != HALAY_STEP_NONE && plan->steps[i].peer != last) {
            last = plan->steps[i].peer;
            peers++;
        }
    return (uint64_t)plan->nsteps * peers;
}

static void many_ranks(uint32_t planner, uint32_t numbers, uint32_t most)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    uint64_t steps = 0, proofs = 0, huge = 0;
    double longest = 0;
    for (uint32_t i = 0; i < numbers; i++) {
        uint32_t n = i ? 1 + draw(most) : most;
        halay_shape_t *shape = shape_of(planner, n, NODE_RANKS);
        for (uint32_t k = 0; k < 3; k++) {
            halay_plan_params_t params = params_of(planner, n, k ? draw(n) : n / 2, draw(2), shape);
            halay_plan_t *plan;
            halay_proof_t proof;
            if (!takes(planner, n, params.in_place))
                continue;
            CHECK(!halay_plan_make(planner, &params, &plan), "%s of %u", info->name, n);
            if (work(plan) > STEPS_HUGE) {
                huge++;
            } else {
                double begin = now_ms();
                int rc = prove_alone(plan, shape, &proof);
                double took = now_ms() - begin;
                if (rc && strstr(proof.reason, "too many blocks to be proved")) {
                    huge++; /* a peer's plan: that of a star's centre */
                    halay_plan_free(plan);
                    continue;
                }
                CHECK(!rc, "%s, %u ranks, rank %u: %s", info->name, n, params.rank, proof.reason);
                longest = took > longest ? took : longest;
                steps = proof.steps > steps ? proof.steps : steps;
                proofs++;
            }
            halay_plan_free(plan);
        }
        halay_shape_free(shape);
    }
    printf("%-18s %-15s %6llu proofs, at most %7llu steps and %8.2f ms; %llu too large\n",
           info->name, halay_collective_name((halay_collective_t)info->collective),
           (unsigned long long)proofs, (unsigned long long)steps, longest,
           (unsigned long long)huge);
}

/* ---------------------------------------------------------------- damaged plans */

static void damage(halay_plan_t *plan)
{
    if (plan->nmembers && draw(3) == 0) {
        halay_group_t *g = &plan->groups[draw(plan->ngroups)];
        halay_member_t *m = &plan->members[draw(plan->nmembers)];
        uint32_t *field[] = {&g->kind, &g->member, &g->nmembers, &m->rank, &m->first, &m->count};
        *field[draw(6)] = draw(plan->blocks + 4);
        return;
    }
    halay_step_t *s = &plan->steps[draw(plan->nsteps)];
    halay_operand_t *o = plan->noperands ? &plan->operands[draw(plan->noperands)] : NULL;
    switch (draw(9)) {
    case 0:
        s->edge += s->peer != HALAY_STEP_NONE ? 1 + draw(3) : 0;
        break;
    case 1:
        s->peer = s->peer != HALAY_STEP_NONE ? draw(plan->params.nranks) : s->peer;
        break;
    case 2:
        s->dep[draw(2)] = HALAY_STEP_NONE;
        break;
    case 3:
        s->dep[draw(2)] = draw(plan->nsteps);
        break;
    case 4:
        s->kind = (uint16_t)(1 + draw(6));
        break;
    case 5:
        plan->nsteps--;
        break;
    default:
        if (!o)
            break;
        uint32_t *field[] = {&o->buffer, &o->first, &o->count, &o->slot};
        *field[draw(4)] = draw(plan->blocks + 2);
    }
}

static void damaged(void)
{
    uint32_t refused = 0, alone = 0;
    for (uint32_t i = 0; i < MUTANTS; i++) {
        uint32_t planner = draw(halay_planner_count()), n = 2 + draw(7), in_place = draw(2);
        uint32_t rank = draw(n);
        struct plans all;
        halay_proof_t proof, whole;
        if (!takes(planner, n, in_place))
            continue;
        halay_shape_t *shape = shape_of(planner, n, 3);
        halay_plan_params_t params = params_of(planner, n, rank, in_place, shape);
        make_plans_on(&all, planner, n, params.root, in_place, shape);
        if (all.plan[rank]->nsteps) {
            damage(all.plan[rank]);
            int rc = prove_plans(&all, &whole), mine = prove_alone(all.plan[rank], shape, &proof);
            CHECK(rc || !mine, "%s of %u: refused alone (%s), but not together",
                  halay_planner_get(planner)->name, n, proof.reason);
            refused += rc != 0;
            alone += mine != 0;
        }
        free_plans(&all);
        halay_shape_free(shape);
    }
    printf("%u damaged plans refused, %u of them by their rank alone\n", refused, alone);
    CHECK(refused > MUTANTS / 4 && alone > refused / 2, "%u, %u", refused, alone);
}

int main(int argc, char **argv)
{
    uint32_t numbers = argc > 1 ? (uint32_t)atoi(argv[1]) : 6;
    uint32_t most = argc > 2 ? (uint32_t)atoi(argv[2]) : 100000;
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        few_ranks(planner);
        many_ranks(planner, numbers, most);
    }
    damaged();
    return failures != 0;
}
