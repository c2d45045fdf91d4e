/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove.c - the prover's entry: sets up, runs the parts in order, reports.
 * What is proved and how: docs/algorithms.md.
 */
#include "prove.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t describe(const struct hly_prover *v, uint32_t rank, uint32_t index, char *text,
                       size_t bytes)
{
    static const char *const kinds[] = {"unknown", "send", "recv", "copy",
                                        "reduce",  "join", "group"};
    int n;

    if (index == HLY_NONE) {
        n = snprintf(text, bytes, "rank %u: ", rank);
        return (size_t)n;
    }
    const halay_step_t *step = &v->plans[rank]->steps[index];
    const char *kind = kinds[step->kind <= HALAY_STEP_GROUP ? step->kind : 0];
    if (step->kind == HALAY_STEP_SEND || step->kind == HALAY_STEP_RECV) {
        n = snprintf(text, bytes, "rank %u, step %u (%s %s %u, edge %u): ", rank, index, kind,
                     step->kind == HALAY_STEP_SEND ? "to" : "from", step->peer, step->edge);
    } else if (step->kind == HALAY_STEP_GROUP) {
        n = snprintf(text, bytes, "rank %u, step %u (group on channel %u): ", rank, index,
                     step->edge);
    } else {
        n = snprintf(text, bytes, "rank %u, step %u (%s): ", rank, index, kind);
    }
    return (size_t)n;
}

int hly_refuse(struct hly_prover *v, uint32_t rank, uint32_t index, const char *format, ...)
{
    size_t used = describe(v, rank, index, v->proof.reason, sizeof(v->proof.reason));
    va_list args;

    assert(used < sizeof(v->proof.reason));
    va_start(args, format);
    vsnprintf(v->proof.reason + used, sizeof(v->proof.reason) - used, format, args);
    va_end(args);
    return HALAY_EPLAN;
}

enum { NONE = 0, FULL, OWN, FULL_AT_ROOT };

static uint32_t layout_of(const struct hly_prover *v, uint32_t rank, uint32_t buffer)
{
    static const uint8_t layouts[HALAY_COLLECTIVE_COUNT][2] = {
        [HALAY_ALLREDUCE] = {FULL, FULL},     [HALAY_BROADCAST] = {NONE, FULL},
        [HALAY_ALLGATHER] = {OWN, FULL},      [HALAY_REDUCE_SCATTER] = {FULL, OWN},
        [HALAY_BARRIER] = {NONE, NONE},       [HALAY_REDUCE] = {FULL, FULL_AT_ROOT},
        [HALAY_GATHER] = {OWN, FULL_AT_ROOT}, [HALAY_SCATTER] = {FULL_AT_ROOT, OWN},
        [HALAY_ALLTOALL] = {FULL, FULL},      [HALAY_SCAN] = {FULL, FULL},
        [HALAY_EXSCAN] = {FULL, FULL},
    };
    uint32_t layout = layouts[v->params.collective][buffer];

    if (layout == FULL_AT_ROOT) {
        layout = rank == v->params.root ? FULL : NONE;
    }
    return layout;
}

void hly_memory_init(struct hly_memory *memory, const struct hly_prover *v, uint32_t rank)
{
    const uint32_t sizes[] = {[NONE] = 0, [FULL] = v->blocks, [OWN] = 1};
    uint32_t in = layout_of(v, rank, HALAY_BUFFER_IN), out = layout_of(v, rank, HALAY_BUFFER_OUT);
    uint32_t cells = sizes[in] + sizes[out];

    memset(memory, 0, sizeof(*memory));
    memory->blocks = v->blocks;
    memory->own[HALAY_BUFFER_IN] = in == OWN;
    memory->own[HALAY_BUFFER_OUT] = out == OWN;
    memory->none[HALAY_BUFFER_IN] = in == NONE;
    memory->none[HALAY_BUFFER_OUT] = out == NONE;
    if (v->params.in_place && in != NONE && out != NONE) {
        /* One of them lies in the other: block `rank`, but block 0 for a reduce_scatter. */
        cells = in == FULL ? sizes[in] : sizes[out];
        memory->base[HALAY_BUFFER_IN] = in == OWN ? rank : 0;
        memory->base[HALAY_BUFFER_OUT] =
            out == OWN && v->params.collective == HALAY_SCATTER ? rank : 0;
    } else {
        memory->base[HALAY_BUFFER_OUT] = sizes[in];
    }
    memory->base[HALAY_BUFFER_SCRATCH] = cells;
    memory->cells = cells + v->plans[rank]->scratch_slots;
}

static void number_steps(struct hly_prover *v)
{
    for (uint32_t rank = 0; rank < v->nranks; rank++) {
        for (uint32_t number = v->base[rank]; number < v->base[rank + 1]; number++) {
            v->rank_of[number] = rank;
            v->partner[number] = HLY_NONE;
        }
    }
}

static int prove(struct hly_prover *v)
{
    v->base = calloc((size_t)v->nranks + 1, sizeof(*v->base));
    if (!v->base) {
        return HALAY_ENOMEM;
    }
    int result = hly_prove_form(v);
    if (result < 0) {
        goto free_base;
    }
    v->nsteps = v->base[v->nranks];
    v->rank_of = malloc((v->nsteps + 1) * sizeof(*v->rank_of));
    v->partner = malloc((v->nsteps + 1) * sizeof(*v->partner));
    if (!v->rank_of || !v->partner) {
        result = HALAY_ENOMEM;
        goto free_steps;
    }
    number_steps(v);
    result = hly_prove_match(v);
    if (result == 0) {
        result = hly_prove_hazard(v);
    }
    if (result == 0) {
        result = hly_prove_run(v);
    }
free_steps:
    free(v->partner);
    free(v->rank_of);
free_base:
    free(v->base);
    return result;
}

int halay_plan_prove(const halay_plan_t *const plans[], uint32_t nranks, halay_proof_t *proof)
{
    if (!plans || nranks == 0 || !proof || proof->size < sizeof(proof->size)) {
        return HALAY_EINVAL;
    }
    struct hly_prover v = {.plans = plans, .nranks = nranks};
    size_t size = proof->size < sizeof(v.proof) ? proof->size : sizeof(v.proof);
    int result = prove(&v);

    v.proof.size = proof->size;
    memcpy(proof, &v.proof, size);
    return result;
}
