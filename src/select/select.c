/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c - which planner serves a call: the first row that fits and whose planner's restrictions
 * allow it. Rows look only at what is equal on all ranks (decision 5), never at pointers or memory:
 * the nodes that a communicator's ranks are on are known to all from the bootstrap. An algorithm
 * asked for by name (HALAY_ALGORITHM) wins wherever its restrictions allow; rows of a file
 * (HALAY_SELECTION) come before those of the table.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "select/select.h"

#define ANYWHERE       HLY_ANYWHERE
#define SHARED         HLY_SHARED
#define APART          HLY_APART
#define TOGETHER       HLY_TOGETHER
#define ONE            HLY_ONE
#define OVERSUBSCRIBED HLY_OVERSUBSCRIBED
#define SINGLE         HLY_SINGLE

static const struct {
    uint32_t collective;
    uint32_t max_ranks; /* where a proof grows with the square of the ranks */
    uint64_t max_bytes; /* of one rank's vector, or of all blocks */
    const char *planner;
    enum hly_where where;
} table[] = {
    {HALAY_ALLREDUCE, UINT32_MAX, 32768, "two_level_short", SHARED},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "two_level", SHARED},
    {HALAY_ALLREDUCE, UINT32_MAX, 65536, "recursive_doubling", SHARED}, /* does not commute */
    {HALAY_ALLREDUCE, 2, 524288, "recursive_doubling", APART},
    {HALAY_ALLREDUCE, UINT32_MAX, 65536, "recursive_doubling", APART},
    {HALAY_ALLREDUCE, 2, 4096, "recursive_multiplying", ONE},
    {HALAY_ALLREDUCE, 2, 31744, "recursive_doubling", ONE},
    {HALAY_ALLREDUCE, 2, 6291456, "ring", ONE},
    {HALAY_ALLREDUCE, 2, UINT64_MAX, "recursive_doubling", ONE},
    {HALAY_ALLREDUCE, 16, 32768, "star", SINGLE},
    {HALAY_ALLREDUCE, 3, 16384, "star", OVERSUBSCRIBED},
    {HALAY_ALLREDUCE, 16, 524288, "two_stars", OVERSUBSCRIBED},
    {HALAY_ALLREDUCE, 16, 32768, "star", OVERSUBSCRIBED}, /* does not commute */
    {HALAY_ALLREDUCE, 4, UINT64_MAX, "two_level", OVERSUBSCRIBED},
    {HALAY_ALLREDUCE, 16, UINT64_MAX, "circulant", OVERSUBSCRIBED},
    {HALAY_ALLREDUCE, 128, 4096, "recursive_multiplying", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, 16384, "recursive_doubling", ANYWHERE},
    {HALAY_ALLREDUCE, 4, 524288, "circulant", APART},
    {HALAY_ALLREDUCE, 4, UINT64_MAX, "sliced_ring", APART},
    {HALAY_ALLREDUCE, 4, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, 524288, "circulant", ANYWHERE},
    {HALAY_ALLREDUCE, 128, UINT64_MAX, "sliced_ring", APART},
    {HALAY_ALLREDUCE, 128, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "circulant", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, 65536, "recursive_doubling", ANYWHERE}, /* does not commute */
    {HALAY_ALLREDUCE, UINT32_MAX, 524288, "halving_doubling", ANYWHERE},
    {HALAY_ALLREDUCE, UINT32_MAX, UINT64_MAX, "double_tree", ANYWHERE},
    {HALAY_BROADCAST, 8, 262144, "two_level", TOGETHER},
    {HALAY_BROADCAST, 8, UINT64_MAX, "chain", TOGETHER},
    {HALAY_BROADCAST, UINT32_MAX, 1048576, "two_level", SHARED},
    {HALAY_BROADCAST, 128, UINT64_MAX, "chain", TOGETHER},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "two_level", SHARED},
    {HALAY_BROADCAST, 4, 1048576, "binomial", APART},
    {HALAY_BROADCAST, UINT32_MAX, 131072, "binomial", APART},
    {HALAY_BROADCAST, UINT32_MAX, 4194304, "scatter_allgather", APART},
    {HALAY_BROADCAST, 64, UINT64_MAX, "chain", APART},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "scatter_allgather", APART},
    {HALAY_BROADCAST, 2, 16384, "flat", ONE}, /* in a series */
    {HALAY_BROADCAST, 2, UINT64_MAX, "dissemination_by_four", ONE},
    {HALAY_BROADCAST, 16, 16384, "flat", OVERSUBSCRIBED},
    {HALAY_BROADCAST, 4, 32768, "binomial", OVERSUBSCRIBED},
    {HALAY_BROADCAST, 4, 8192, "dissemination_by_four", ONE},
    {HALAY_BROADCAST, 4, 131072, "scatter_allgather", ONE},
    {HALAY_BROADCAST, 4, UINT64_MAX, "chain", ONE},
    {HALAY_BROADCAST, 16, 65536, "star", OVERSUBSCRIBED},
    {HALAY_BROADCAST, 16, UINT64_MAX, "posted", OVERSUBSCRIBED},
    {HALAY_BROADCAST, UINT32_MAX, 8192, "dissemination_by_four", ONE},
    {HALAY_BROADCAST, 128, UINT64_MAX, "scatter_allgather", ONE},
    {HALAY_BROADCAST, UINT32_MAX, UINT64_MAX, "binomial", ANYWHERE},
    {HALAY_ALLGATHER, 256, UINT64_MAX, "two_level", SHARED},
    {HALAY_ALLGATHER, 2, UINT64_MAX, "one_shot", ONE},
    {HALAY_ALLGATHER, 4, 2048, "star", OVERSUBSCRIBED},
    {HALAY_ALLGATHER, 4, UINT64_MAX, "circulant", OVERSUBSCRIBED},
    {HALAY_ALLGATHER, 4, UINT64_MAX, "one_shot", ONE},
    {HALAY_ALLGATHER, 16, 65536, "star", OVERSUBSCRIBED},
    {HALAY_ALLGATHER, 16, UINT64_MAX, "circulant", OVERSUBSCRIBED},
    {HALAY_ALLGATHER, 16, 32768, "one_shot", ONE},
    {HALAY_ALLGATHER, UINT32_MAX, 65536, "circulant", ANYWHERE},
    {HALAY_ALLGATHER, 128, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_ALLGATHER, UINT32_MAX, UINT64_MAX, "circulant", ANYWHERE},
    {HALAY_ALLGATHER, UINT32_MAX, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_REDUCE_SCATTER, 256, UINT64_MAX, "two_level", SHARED},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, 65536, "circulant", APART},
    {HALAY_REDUCE_SCATTER, 16, 8192, "pairwise", ANYWHERE},
    {HALAY_REDUCE_SCATTER, 16, 65536, "pairwise", OVERSUBSCRIBED},
    {HALAY_REDUCE_SCATTER, 16, 524288, "ring", OVERSUBSCRIBED},
    {HALAY_REDUCE_SCATTER, 4, UINT64_MAX, "pairwise", OVERSUBSCRIBED},
    {HALAY_REDUCE_SCATTER, 16, UINT64_MAX, "ring", OVERSUBSCRIBED},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, 65536, "circulant", ANYWHERE},
    {HALAY_REDUCE_SCATTER, 128, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, UINT64_MAX, "circulant", ANYWHERE},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, UINT64_MAX, "ring", ANYWHERE},
    {HALAY_REDUCE_SCATTER, UINT32_MAX, UINT64_MAX, "pairwise", ANYWHERE}, /* does not commute */
    {HALAY_BARRIER, UINT32_MAX, UINT64_MAX, "two_level", SHARED},
    {HALAY_BARRIER, UINT32_MAX, UINT64_MAX, "dissemination", APART},
    {HALAY_BARRIER, 2, UINT64_MAX, "dissemination", ONE},
    {HALAY_BARRIER, 16, UINT64_MAX, "star", SINGLE},
    {HALAY_BARRIER, 3, UINT64_MAX, "star", OVERSUBSCRIBED},
    {HALAY_BARRIER, 16, UINT64_MAX, "two_stars", OVERSUBSCRIBED},
    {HALAY_BARRIER, 4, UINT64_MAX, "dissemination", ANYWHERE},
    {HALAY_BARRIER, 128, UINT64_MAX, "dissemination_by_four", ANYWHERE},
    {HALAY_BARRIER, UINT32_MAX, UINT64_MAX, "dissemination", ANYWHERE},
    {HALAY_REDUCE, UINT32_MAX, 65536, "binomial", TOGETHER},
    {HALAY_REDUCE, 32, UINT64_MAX, "chain", TOGETHER},
    {HALAY_REDUCE, UINT32_MAX, UINT64_MAX, "binomial", TOGETHER},
    {HALAY_REDUCE, UINT32_MAX, 131072, "binomial", APART},
    {HALAY_REDUCE, 2, 8192, "binomial", ONE},
    {HALAY_REDUCE, 16, 524288, "two_stars", OVERSUBSCRIBED},
    {HALAY_REDUCE, UINT32_MAX, 8192, "binomial", ANYWHERE},
    {HALAY_REDUCE, UINT32_MAX, UINT64_MAX, "circulant", ANYWHERE},
    {HALAY_REDUCE, UINT32_MAX, UINT64_MAX, "binomial", ANYWHERE}, /* does not commute */
    {HALAY_GATHER, 16, 131072, "binomial", SHARED},
    {HALAY_GATHER, UINT32_MAX, 1048576, "binomial", SHARED},
    {HALAY_GATHER, 7, UINT64_MAX, "linear", ANYWHERE},
    {HALAY_GATHER, UINT32_MAX, 16384, "binomial", APART},
    {HALAY_GATHER, UINT32_MAX, UINT64_MAX, "linear", ANYWHERE},
    {HALAY_SCATTER, 4, UINT64_MAX, "linear", SHARED},
    {HALAY_SCATTER, 16, 65536, "binomial", SHARED},
    {HALAY_SCATTER, UINT32_MAX, 524288, "binomial", SHARED},
    {HALAY_SCATTER, 7, UINT64_MAX, "linear", ANYWHERE},
    {HALAY_SCATTER, UINT32_MAX, 131072, "binomial", APART},
    {HALAY_SCATTER, UINT32_MAX, UINT64_MAX, "linear", ANYWHERE},
    {HALAY_ALLTOALL, 32, 65536, "two_level", SHARED},
    {HALAY_ALLTOALL, 32, UINT64_MAX, "pairwise", SHARED},
    {HALAY_ALLTOALL, UINT32_MAX, 8192, "bruck", SHARED},
    {HALAY_ALLTOALL, UINT32_MAX, 131072, "two_level", SHARED},
    {HALAY_ALLTOALL, 16, UINT64_MAX, "two_level", OVERSUBSCRIBED},
    {HALAY_ALLTOALL, 3, UINT64_MAX, "pairwise", ANYWHERE},
    {HALAY_ALLTOALL, 8, 4096, "bruck", APART},
    {HALAY_ALLTOALL, 8, UINT64_MAX, "pairwise", ANYWHERE},
    {HALAY_ALLTOALL, UINT32_MAX, 65536, "bruck", APART},
    {HALAY_ALLTOALL, UINT32_MAX, UINT64_MAX, "pairwise", ANYWHERE},
    {HALAY_ALLTOALL, UINT32_MAX, UINT64_MAX, "pairwise_checked", ANYWHERE}, /* alltoallv */
    {HALAY_SCAN, UINT32_MAX, 16384, "recursive_doubling", TOGETHER},
    {HALAY_SCAN, 128, UINT64_MAX, "chain", TOGETHER},
    {HALAY_SCAN, UINT32_MAX, 131072, "recursive_doubling", ANYWHERE},
    {HALAY_SCAN, 24, UINT64_MAX, "chain", ANYWHERE},
    {HALAY_SCAN, UINT32_MAX, UINT64_MAX, "recursive_doubling", ANYWHERE},
    {HALAY_EXSCAN, UINT32_MAX, 16384, "recursive_doubling", TOGETHER},
    {HALAY_EXSCAN, 128, UINT64_MAX, "chain", TOGETHER},
    {HALAY_EXSCAN, UINT32_MAX, 131072, "recursive_doubling", ANYWHERE},
    {HALAY_EXSCAN, 24, UINT64_MAX, "chain", ANYWHERE},
    {HALAY_EXSCAN, UINT32_MAX, UINT64_MAX, "recursive_doubling", ANYWHERE},
};

#define NTABLE ((uint32_t)(sizeof(table) / sizeof(table[0])))

uint32_t hly_select_rows_count(void)
{
    return NTABLE;
}

int hly_select_rows(struct hly_row *rows, uint32_t room, uint32_t *nrows)
{
    for (uint32_t i = 0; i < NTABLE; i++) {
        uint32_t planner;
        int rc =
            halay_planner_find((halay_collective_t)table[i].collective, table[i].planner, &planner);
        if (rc || *nrows == room)
            return rc ? rc : HALAY_ENOMEM;
        rows[(*nrows)++] = (struct hly_row){.collective = table[i].collective,
                                            .max_ranks = table[i].max_ranks,
                                            .max_bytes = table[i].max_bytes,
                                            .planner = planner,
                                            .where = table[i].where,
                                            .number = i + 1};
    }
    return HALAY_OK;
}

/* ---------------------------------------------------------------- a call */

/* The count is that of a vector, which a planner cuts into blocks; else that of one block. */
static bool is_whole(uint32_t collective)
{
    return collective == HALAY_ALLREDUCE || collective == HALAY_BROADCAST ||
           collective == HALAY_REDUCE || collective == HALAY_SCAN || collective == HALAY_EXSCAN;
}

uint64_t hly_ask_bytes(const struct hly_ask *ask)
{
    uint64_t bytes = ask->count * ask->element_bytes;
    return is_whole(ask->collective) ? bytes : bytes * ask->nranks;
}

int hly_ask_serves(const struct hly_ask *ask, uint32_t planner, bool asked, const char **why)
{
    halay_planner_call_t call = {.nranks = ask->nranks,
                                 .count = ask->count,
                                 .in_place = ask->in_place,
                                 .vector = ask->vector,
                                 .commutative = ask->commutative,
                                 .scattered = ask->scattered,
                                 .series = ask->series,
                                 .group = 0}; /* no device has them yet */
    if (is_whole(ask->collective))
        call.count /= ask->nranks;
    if (asked)
        call.count = UINT64_MAX;
    /* In place is the root's own affair, so the others must not choose by it. */
    if (ask->collective == HALAY_REDUCE || ask->collective == HALAY_GATHER ||
        ask->collective == HALAY_SCATTER)
        call.in_place = 1;
    return halay_planner_serves(planner, &call, why);
}

static bool row_fits(const struct hly_row *row, const struct hly_ask *ask, enum hly_where where,
                     uint64_t bytes)
{
    bool there = row->where == HLY_ANYWHERE || row->where == where ||
                 (row->where == HLY_SHARED && where == HLY_TOGETHER) ||
                 (row->where == HLY_ONE && where >= HLY_OVERSUBSCRIBED) ||
                 (row->where == HLY_OVERSUBSCRIBED && where == HLY_SINGLE);
    return there && bytes <= row->max_bytes && ask->nranks <= row->max_ranks &&
           hly_ask_serves(ask, row->planner, false, NULL);
}

static enum hly_where where_of(const struct hly_ask *ask)
{
    if (ask->nnodes < 2)
        return !ask->oversubscribed       ? HLY_ONE
               : ask->oversubscribed == 1 ? HLY_OVERSUBSCRIBED
                                          : HLY_SINGLE;
    if (ask->nnodes == ask->nranks)
        return HLY_APART;
    return ask->scattered ? HLY_SHARED : HLY_TOGETHER;
}

int hly_select_row(const halay_selection_t *s, const struct hly_ask *ask, uint32_t *planner,
                   const struct hly_row **which)
{
    uint32_t forced = s->forced[ask->collective];
    *which = NULL;
    if (forced != UINT32_MAX && hly_ask_serves(ask, forced, true, NULL)) {
        *planner = forced;
        return HALAY_OK;
    }
    uint64_t bytes = hly_ask_bytes(ask);
    enum hly_where where = where_of(ask);
    for (uint32_t i = s->first[ask->collective]; i < s->first[ask->collective + 1]; i++)
        if (row_fits(&s->rows[i], ask, where, bytes)) {
            *which = &s->rows[i];
            *planner = s->rows[i].planner;
            return HALAY_OK;
        }
    for (uint32_t i = 0; i < halay_planner_count(); i++)
        if (halay_planner_get(i)->collective == ask->collective &&
            hly_ask_serves(ask, i, true, NULL)) {
            *planner = i;
            return HALAY_OK;
        }
    return HALAY_EPLAN;
}

/* ---------------------------------------------------------------- by the model */

uint32_t hly_size_class(const struct hly_ask *ask)
{
    uint64_t bytes = ask->count * ask->element_bytes;
    uint32_t class = 0;
    while (class < 63 && (uint64_t)1 << class < bytes)
        class ++;
    return class;
}

bool hly_ranking_wanted(const halay_selection_t *s, const struct hly_ask *ask)
{
    return s->by_model && !ask->vector && ask->nranks <= HLY_PREDICTED_RANKS &&
           s->forced[ask->collective] == UINT32_MAX;
}

int hly_ranking_make(const halay_selection_t *s, const struct hly_ask *ask,
                     const halay_shape_t *shape, struct hly_ranking *ranking)
{
    /* Of the class, not of the call: so it does not matter which call came first. */
    halay_question_t question = {.collective = ask->collective,
                                 .in_place = ask->in_place,
                                 .element_bytes = 1,
                                 .count = (uint64_t)1 << hly_size_class(ask),
                                 .shape = shape};
    double ns[HLY_PLANNERS_MAX];
    ranking->nplanners = 0;
    for (uint32_t i = 0; i < halay_planner_count(); i++) {
        halay_cost_t cost = {.size = sizeof(cost)};
        if (halay_planner_get(i)->collective != ask->collective)
            continue;
        int rc = halay_planner_cost(i, &question, &s->model, &cost);
        if (rc == HALAY_ENOMEM)
            return rc;
        if (rc)
            continue;
        uint32_t at = ranking->nplanners++;
        assert(at < HLY_PLANNERS_MAX);
        for (; at > 0 && ns[at - 1] > cost.predicted_ns; at--) {
            ns[at] = ns[at - 1];
            ranking->planner[at] = ranking->planner[at - 1];
        }
        ns[at] = cost.predicted_ns;
        ranking->planner[at] = i;
    }
    return HALAY_OK;
}

int hly_ranking_choose(const struct hly_ranking *ranking, const struct hly_ask *ask,
                       uint32_t *planner)
{
    for (uint32_t i = 0; i < ranking->nplanners; i++)
        if (hly_ask_serves(ask, ranking->planner[i], false, NULL)) {
            *planner = ranking->planner[i];
            return HALAY_OK;
        }
    return HALAY_EPLAN;
}

struct hly_predicted { /* kept a communicator: at most collectives x in place x classes */
    struct hly_predicted *next;
    uint32_t collective, class;
    bool in_place;
    struct hly_ranking ranking;
};

void hly_select_forget(halay_comm_t *comm)
{
    while (comm->predicted) {
        struct hly_predicted *next = comm->predicted->next;
        free(comm->predicted);
        comm->predicted = next;
    }
}

static int predicted(halay_comm_t *comm, const struct hly_ask *ask, uint32_t *planner)
{
    uint32_t class = hly_size_class(ask);
    for (struct hly_predicted *p = comm->predicted; p; p = p->next)
        if (p->collective == ask->collective && p->class == class && p->in_place == ask->in_place)
            return hly_ranking_choose(&p->ranking, ask, planner);
    halay_shape_t *shape = NULL;
    struct hly_predicted *p = calloc(1, sizeof(*p));
    int rc = p ? hly_comm_shape(comm, &shape) : HALAY_ENOMEM;
    if (!rc)
        rc = hly_ranking_make(comm->context->settings.selection, ask, shape, &p->ranking);
    halay_shape_free(shape);
    if (rc) {
        free(p);
        return rc;
    }
    p->collective = ask->collective;
    p->class = class;
    p->in_place = ask->in_place;
    p->next = comm->predicted;
    comm->predicted = p;
    return hly_ranking_choose(&p->ranking, ask, planner);
}

/* ---------------------------------------------------------------- for calls */

void hly_select_ask(const halay_comm_t *comm, const struct hly_call *call, struct hly_ask *ask)
{
    bool rooted = halay_collective_rooted((halay_collective_t)call->desc.collective);
    *ask = (struct hly_ask){
        .collective = call->desc.collective,
        .nranks = (uint32_t)comm->nranks,
        .nnodes = comm->nnodes,
        .in_place = call->desc.flags & HLY_CALL_IN_PLACE && !call->staged && !rooted,
        .vector = call->desc.flags & HLY_CALL_VECTOR,
        .commutative = !(call->desc.flags & HLY_CALL_ORDERED),
        .scattered = comm->scattered,
        .oversubscribed = comm->oversubscribed,
        .pair = call->desc.flags & HLY_CALL_PAIR,
        .series = call->desc.flags & HLY_CALL_RELAXED,
        .count = call->desc.count,
        .element_bytes = halay_type_bytes((halay_type_t)call->desc.type),
    };
}

static int choose(halay_comm_t *comm, const struct hly_ask *ask, uint32_t *planner)
{
    const halay_selection_t *s = comm->context->settings.selection;
    const struct hly_row *row;
    if (ask->pair) {
        *planner = s->pair;
        return HALAY_OK;
    }
    if (s->by_model && hly_ranking_wanted(s, ask)) {
        int rc = predicted(comm, ask, planner);
        if (rc != HALAY_EPLAN)
            return rc;
    }
    return hly_select_row(s, ask, planner, &row);
}

/*
 * Where an operation does not commute, an algorithm asked for by name that cannot serve it is an
 * error; else the rows are used instead.
 */
int hly_select(halay_comm_t *comm, const struct hly_call *call, uint32_t *planner, char *reason,
               size_t reason_bytes)
{
    const char *name = halay_collective_name((halay_collective_t)call->desc.collective), *why;
    uint32_t forced = comm->context->settings.selection->forced[call->desc.collective];
    struct hly_ask ask;
    hly_select_ask(comm, call, &ask);
    if (!ask.commutative && forced != UINT32_MAX && !hly_ask_serves(&ask, forced, true, &why)) {
        snprintf(reason, reason_bytes, "algorithm %s=%s was asked for, but %s", name,
                 halay_planner_get(forced)->name, why);
        return HALAY_EUNSUPPORTED;
    }
    int rc = choose(comm, &ask, planner);
    if (rc && ask.commutative)
        snprintf(reason, reason_bytes, "no algorithm serves this call");
    if (rc != HALAY_EPLAN || ask.commutative)
        return rc;
    snprintf(reason, reason_bytes, "no algorithm of %s keeps the ranks' order", name);
    return HALAY_EUNSUPPORTED;
}
