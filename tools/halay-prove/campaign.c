/* SPDX-License-Identifier: Apache-2.0 */
/*
 * campaign.c - the prover against the oracle. A mutant that the oracle shows to be wrong and the
 * prover accepts has survived: there may be none. Refusing a harmless one is allowed, and counted.
 */
#include "prove.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutant.h"
#include "seen.h"

enum { BASES_MAX = 4096, TRIES_EACH = 200, TRIES_MORE = 3000, PRINTED_MAX = 3 };

static const uint32_t base_ranks[] = {2, 3, 4, 5, 6, 8};

/* Plans as a planner makes them. */
typedef struct base {
    hly_case_t from; /* shape: no more */
    halay_plan_t *plans[HLY_ORACLE_RANKS_MAX];
} base_t;

/* A planner's bases: first up to end. */
typedef struct pool {
    uint32_t first, end;
} pool_t;

typedef struct campaign {
    const hly_options_t *options;
    hly_oracle_limits_t limits;
    base_t *bases;
    uint32_t nbases;
    pool_t *pools; /* of the planners that have bases */
    uint32_t npools;
    hly_seen_t seen; /* hashes of this kind's mutants */
    hly_count_t *count;
} campaign_t;

typedef struct tally {
    uint64_t made, refused, harmful[HLY_FAULT + 1], harmless_refused, harmless_accepted, survived;
} tally_t;

static const halay_plan_t *const *plans_of(const base_t *base)
{
    return (const halay_plan_t *const *)base->plans;
}

static void print_plans(const halay_plan_t *const plans[], uint32_t nplans)
{
    for (uint32_t i = 0; i < nplans; i++) {
        size_t bytes = halay_plan_print(plans[i], NULL, 0) + 1;
        char *text = calloc(1, bytes);
        if (text == NULL)
            return;
        halay_plan_print(plans[i], text, bytes);
        printf("rank %u:\n%s\n", plans[i]->params.rank, text);
        free(text);
    }
}

static void print_base(const char *word, const base_t *base)
{
    printf("%s ", word);
    hly_case_print(&base->from);
}

/* ------------------------------------------------------------------ the plans to start from */

static void add_base(campaign_t *campaign, hly_case_t from)
{
    base_t *base = &campaign->bases[campaign->nbases];
    assert(campaign->nbases < BASES_MAX);
    *base = (base_t){.from = from};
    int rc = hly_plans_make(&from, base->plans);
    base->from.shape = NULL;
    if (rc != 0) {
        print_base("FAILED", base);
        printf(": %s\n", halay_strerror(rc));
        campaign->count->failed++;
        return;
    }
    campaign->nbases++;
}

static void add_bases(campaign_t *campaign, uint32_t planner)
{
    const halay_planner_info_t *info = halay_planner_get(planner);
    for (uint32_t i = 0; i < sizeof base_ranks / sizeof base_ranks[0]; i++) {
        uint32_t nranks = base_ranks[i];
        if (!hly_planner_takes(info, nranks))
            continue;
        hly_shapes_t shapes = {campaign->options, planner, nranks, 0, NULL};
        hly_case_t from;
        while (hly_next_shape(&shapes, &from)) {
            for (from.in_place = 0; from.in_place < 2; from.in_place++) {
                from.root = 0;
                add_base(campaign, from);
                if (halay_collective_rooted((halay_collective_t)info->collective)) {
                    from.root = nranks / 2;
                    add_base(campaign, from);
                    from.root = nranks - 1;
                    add_base(campaign, from);
                }
            }
        }
    }
}

static void add_pool(campaign_t *campaign, uint32_t planner)
{
    pool_t *pool = &campaign->pools[campaign->npools];
    pool->first = campaign->nbases;
    add_bases(campaign, planner);
    pool->end = campaign->nbases;
    campaign->npools += pool->end > pool->first;
}

/* What the planners make has to be right for the oracle and proved. */
static void check_base(campaign_t *campaign, const base_t *base, uint64_t *exhaustive)
{
    hly_outcome_t outcome;
    halay_proof_t proof;
    memset(&proof, 0, sizeof proof);
    proof.size = sizeof proof;
    int rc = hly_oracle_run(plans_of(base), base->from.nranks, &campaign->limits, &outcome);
    int proved = halay_plan_prove(plans_of(base), base->from.nranks, &proof);
    *exhaustive += outcome.exhaustive;
    if (rc == 0 && proved == 0 && outcome.verdict == HLY_RIGHT) {
        campaign->count->passed++;
        return;
    }
    campaign->count->failed++;
    print_base("FAILED", base);
    printf(": oracle: %s %s%s; prover: %s\n", rc == 0 ? hly_verdict_name(outcome.verdict) : "none",
           outcome.why, rc == 0 ? "" : halay_strerror(rc), proved == 0 ? "proved" : proof.reason);
}

static void check_bases(campaign_t *campaign)
{
    uint64_t exhaustive = 0;
    uint64_t failed = campaign->count->failed;
    for (uint32_t i = 0; i < campaign->nbases; i++)
        check_base(campaign, &campaign->bases[i], &exhaustive);
    printf("unchanged: %u sets of plans, %llu of them in every order, the others in %u orders with "
           "zero\nand %u with eager buffering; not right or not proved: %llu\n\n",
           campaign->nbases, (unsigned long long)exhaustive, campaign->limits.orders,
           campaign->limits.orders, (unsigned long long)(campaign->count->failed - failed));
}

/* ------------------------------------------------------------------ mutants */

static void print_mutant(const char *word, uint32_t kind, const base_t *base,
                         const hly_mutant_t *mutant)
{
    print_base(word, base);
    printf(": %s: %s\n", hly_mutant_kind_name(kind), mutant->what);
}

static void print_survivor(uint32_t kind, const base_t *base, const hly_mutant_t *mutant,
                           const hly_outcome_t *outcome)
{
    print_mutant("SURVIVED", kind, base, mutant);
    printf("oracle: %s with %s buffering: %s\n", hly_verdict_name(outcome->verdict),
           outcome->buffering == HLY_ZERO_BUFFERING    ? "zero"
           : outcome->buffering == HLY_EAGER_BUFFERING ? "eager"
                                                       : "any",
           outcome->why);
    print_plans((const halay_plan_t *const *)mutant->changed, mutant->nchanged);
}

static void judge_mutant(campaign_t *campaign, uint32_t kind, const base_t *base,
                         const hly_mutant_t *mutant, tally_t *tally)
{
    hly_outcome_t outcome;
    halay_proof_t proof;
    memset(&proof, 0, sizeof proof);
    proof.size = sizeof proof;
    int rc = hly_oracle_run(mutant->plans, mutant->nranks, &campaign->limits, &outcome);
    int proved = halay_plan_prove(mutant->plans, mutant->nranks, &proof) == 0;
    if (rc != 0) {
        printf("FAILED: the oracle gave no verdict on a mutant: %s\n", halay_strerror(rc));
        campaign->count->failed++;
        return;
    }
    tally->made++;
    tally->refused += !proved;
    if (outcome.verdict == HLY_RIGHT) {
        tally->harmless_refused += !proved;
        tally->harmless_accepted += (uint64_t)proved;
        if (!proved && campaign->options->verbose) {
            print_mutant("harmless, but refused:", kind, base, mutant);
            printf("prover: %s\n", proof.reason);
        }
        return;
    }
    tally->harmful[outcome.verdict]++;
    if (proved && tally->survived++ < PRINTED_MAX)
        print_survivor(kind, base, mutant, &outcome);
}

static const base_t *draw_base(const campaign_t *campaign, uint64_t *chance)
{
    const pool_t *pool = &campaign->pools[hly_random_below(chance, campaign->npools)];
    return &campaign->bases[pool->first + hly_random_below(chance, pool->end - pool->first)];
}

static uint64_t harmful(const tally_t *tally)
{
    return tally->harmful[HLY_WRONG] + tally->harmful[HLY_STALL] + tally->harmful[HLY_FAULT];
}

/* Makes mutants until enough of them are harmful, or until hardly any new one turns up. */
static void run_kind(campaign_t *campaign, uint32_t kind, tally_t *tally)
{
    uint64_t chance = campaign->options->seed * 1000003u + kind;
    uint32_t wanted = campaign->options->mutants;
    uint32_t tries_max = TRIES_EACH * wanted + TRIES_MORE;
    memset(tally, 0, sizeof *tally);
    hly_seen_free(&campaign->seen);
    for (uint32_t i = 0; i < tries_max && harmful(tally) < wanted; i++) {
        const base_t *base = draw_base(campaign, &chance);
        hly_mutant_t mutant;
        int rc = hly_mutant_make(kind, plans_of(base), base->from.nranks, &chance, &mutant);
        if (rc == HALAY_EAGAIN)
            continue;
        if (rc != 0) {
            printf("FAILED: %s\n", halay_strerror(rc));
            campaign->count->failed++;
            return;
        }
        uint64_t origin = (uint64_t)(base - campaign->bases + 1) * 0x9e3779b97f4a7c15u;
        if (hly_seen_is_new(&campaign->seen, (hly_mutant_hash(&mutant) ^ origin) | 1))
            judge_mutant(campaign, kind, base, &mutant, tally);
        hly_mutant_free(&mutant);
    }
}

static void print_tally(const char *name, const tally_t *tally)
{
    printf("%-25s %6llu %8llu | %8llu %6llu %6llu %6llu | %8llu %9llu | %9llu\n", name,
           (unsigned long long)tally->made, (unsigned long long)tally->refused,
           (unsigned long long)harmful(tally), (unsigned long long)tally->harmful[HLY_WRONG],
           (unsigned long long)tally->harmful[HLY_STALL],
           (unsigned long long)tally->harmful[HLY_FAULT],
           (unsigned long long)tally->harmless_refused,
           (unsigned long long)tally->harmless_accepted, (unsigned long long)tally->survived);
}

static void add_tally(tally_t *total, const tally_t *tally)
{
    total->made += tally->made;
    total->refused += tally->refused;
    for (uint32_t i = 0; i <= HLY_FAULT; i++)
        total->harmful[i] += tally->harmful[i];
    total->harmless_refused += tally->harmless_refused;
    total->harmless_accepted += tally->harmless_accepted;
    total->survived += tally->survived;
}

static void run_kinds(campaign_t *campaign)
{
    tally_t total;
    memset(&total, 0, sizeof total);
    printf("%-25s %6s %8s | %8s %6s %6s %6s | %8s %9s | %9s\n", "", "", "", "by the", "oracle:", "",
           "", "harmless", "", "");
    printf("%-25s %6s %8s | %8s %6s %6s %6s | %8s %9s | %9s\n", "kind of mutant", "made", "refused",
           "harmful", "wrong", "stall", "fault", "refused", "accepted", "SURVIVED");
    for (uint32_t kind = 0; kind < hly_mutant_kinds(); kind++) {
        tally_t tally;
        run_kind(campaign, kind, &tally);
        print_tally(hly_mutant_kind_name(kind), &tally);
        fflush(stdout);
        add_tally(&total, &tally);
        campaign->count->passed += harmful(&tally) - tally.survived;
        campaign->count->failed += tally.survived;
        if (harmful(&tally) == 0 && campaign->options->planner == NULL) {
            printf("FAILED: no harmful mutant of this kind was found\n");
            campaign->count->failed++;
        } else if (harmful(&tally) < campaign->options->mutants) {
            printf("%25s fewer than %u: no more turned up\n", "", campaign->options->mutants);
        }
    }
    print_tally("all", &total);
}

static int campaign_init(campaign_t *campaign)
{
    uint32_t nplanners = halay_planner_count();
    campaign->bases = calloc(BASES_MAX, sizeof *campaign->bases);
    campaign->pools = calloc(nplanners + 1, sizeof *campaign->pools);
    if (campaign->bases == NULL || campaign->pools == NULL)
        return HALAY_ENOMEM;
    for (uint32_t planner = 0; planner < nplanners; planner++)
        if (hly_planner_wanted(campaign->options, halay_planner_get(planner)))
            add_pool(campaign, planner);
    return 0;
}

void hly_campaign(const hly_options_t *options, hly_count_t *count)
{
    campaign_t campaign = {.options = options, .limits = HLY_ORACLE_LIMITS_INIT, .count = count};
    campaign.limits.orders = options->orders;
    campaign.limits.seed = options->seed;
    if (campaign_init(&campaign) != 0) {
        printf("FAILED: no memory\n");
        count->failed++;
    } else if (campaign.npools == 0) {
        printf("FAILED: no planner to try\n");
        count->failed++;
    } else {
        check_bases(&campaign);
        run_kinds(&campaign);
    }
    for (uint32_t i = 0; i < campaign.nbases; i++)
        hly_plans_free(campaign.bases[i].plans, campaign.bases[i].from.nranks);
    free(campaign.bases);
    free(campaign.pools);
    hly_seen_free(&campaign.seen);
}
