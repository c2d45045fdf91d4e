/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c - which planner serves a call: the first row that fits and whose planner's restrictions
 * allow it. Rows look only at what is equal on all ranks (decision 5), never at pointers or memory:
 * the nodes that a communicator's ranks are on are known to all from the bootstrap. An algorithm
 * asked for by name (HALAY_ALGORITHM) wins wherever its restrictions allow; rows of a file
 * (HALAY_SELECTION) come before those of the table (plan/rows.c).
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "plan/collective.h"
#include "select/select.h"

int hly_select_rows(struct hly_row *rows, uint32_t room, uint32_t *nrows)
{
    const struct hly_plan_row *table;
    const uint32_t n = hly_plan_rows(&table);
    for (uint32_t i = 0; i < n; i++) {
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

uint64_t hly_ask_bytes(const struct hly_ask *ask)
{
    uint64_t bytes = ask->count * ask->element_bytes;
    return hly_collective_is_vector(ask->collective) ? bytes : bytes * ask->nranks;
}

int hly_ask_serves(const struct hly_ask *ask, uint32_t planner, bool asked, const char **why)
{
    halay_planner_call_t call = {.nranks = ask->nranks,
                                 .count = ask->count,
                                 .in_place = ask->in_place,
                                 .vector = ask->vector,
                                 .commutative = ask->commutative,
                                 .scattered = ask->scattered,
                                 .relaxed = ask->relaxed,
                                 .group = ask->group,
                                 .apart = ask->apart,
                                 .nodes = ask->nnodes,
                                 .uneven = ask->uneven,
                                 .direct = ask->direct};
    if (hly_collective_is_vector(ask->collective))
        call.count /= ask->nranks;
    if (asked)
        call.count = UINT64_MAX;
    /* In place is the root's own affair, so the others must not choose by it. */
    if (ask->collective == HALAY_REDUCE || ask->collective == HALAY_GATHER ||
        ask->collective == HALAY_SCATTER)
        call.in_place = 1;
    return halay_planner_serves(planner, &call, why);
}

/* halay-bench calibrate has measured calls in the host's memory, each by itself. */
static bool as_measured(const struct hly_ask *ask)
{
    return !ask->vector && ask->commutative && !ask->relaxed && !ask->group && !ask->apart;
}

static bool row_fits(const struct hly_row *row, const struct hly_ask *ask, enum hly_where where,
                     uint64_t bytes)
{
    bool there = row->where == HLY_ANYWHERE || row->where == where ||
                 (row->where == HLY_SHARED && where == HLY_TOGETHER) ||
                 (row->where == HLY_ONE && where >= HLY_OVERSUBSCRIBED) ||
                 (row->where == HLY_OVERSUBSCRIBED && where == HLY_SINGLE);
    if (row->kept && (row->where != where || !as_measured(ask)))
        return false;
    return there && bytes >= row->min_bytes && bytes <= row->max_bytes &&
           ask->nranks <= row->max_ranks && ask->nranks >= row->min_ranks &&
           (!row->nodes || row->nodes == ask->nnodes) &&
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

uint32_t hly_select_forced(const halay_selection_t *s, const struct hly_ask *ask)
{
    return ask->asked ? ask->asked - 1 : s->forced[ask->collective];
}

int hly_select_row(const halay_selection_t *s, const struct hly_ask *ask, uint32_t *planner,
                   const struct hly_row **which)
{
    uint32_t forced = hly_select_forced(s, ask);
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
           hly_select_forced(s, ask) == UINT32_MAX;
}

int hly_ranking_make(const halay_selection_t *s, const struct hly_ask *ask,
                     const halay_shape_t *shape, struct hly_ranking *ranking)
{
    /* The bytes of the class, not of the call: so it does not matter which call came first. */
    halay_question_t question = {.collective = ask->collective,
                                 .in_place = ask->in_place,
                                 .element_bytes = 1,
                                 .count = (uint64_t)1 << hly_size_class(ask),
                                 .apart = ask->apart,
                                 .direct = ask->direct,
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

struct hly_predicted { /* kept a communicator: at most collectives x in place x ways x classes */
    struct hly_predicted *next;
    uint32_t collective, class;
    bool in_place, apart, direct, group;
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
        if (p->collective == ask->collective && p->class == class && p->in_place == ask->in_place &&
            p->group == ask->group && p->apart == ask->apart && p->direct == ask->direct)
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
    p->apart = ask->apart;
    p->direct = ask->direct;
    p->group = ask->group;
    p->next = comm->predicted;
    comm->predicted = p;
    return hly_ranking_choose(&p->ranking, ask, planner);
}

/* ---------------------------------------------------------------- for calls */

/* The bytes of all ranks' blocks together, where each has its own. */
static uint64_t bytes_of(const halay_comm_t *comm, const struct hly_call_desc *desc)
{
    const bool whole =
        desc->collective == HALAY_ALLREDUCE || halay_collective_rooted(desc->collective);
    return desc->count * halay_type_bytes((halay_type_t)desc->type) *
           (whole ? 1 : (uint64_t)comm->nranks);
}

/* Are group steps offered? All ranks have the same implementation (start/transports.c), which gives
 * all the same answer; or they have agreed on it (run/group_library.c). A call whose input is
 * scaled in memory apart is staged. */
static bool offers_group(const halay_comm_t *comm, const struct hly_call *call)
{
    const struct hly_call_desc *desc = &call->desc;
    const struct hly_device *device = hly_device_of(comm->context, desc->memory);
    const bool reduces = halay_collective_reduces((halay_collective_t)desc->collective);
    const halay_op_t op = desc->op == HALAY_AVERAGE ? HALAY_SUM : (halay_op_t)desc->op;
    const struct hly_group_library *library = hly_comm_group_library(comm, device);
    if (!library || !hly_comm_group_long(comm, bytes_of(comm, desc)) ||
        (reduces && desc->op & HLY_CALL_USER) ||
        (!device->touchable && desc->flags & HLY_CALL_SCALED))
        return false;
    for (uint32_t kind = HALAY_GROUP_REDUCE_SCATTER; kind <= HALAY_GROUP_ALLTOALL; kind++) {
        const bool moves = halay_group_moves(kind);
        const bool alltoall = kind == HALAY_GROUP_ALLTOALL;
        if ((reduces || moves) && alltoall == (desc->collective == HALAY_ALLTOALL) &&
            library->ops->query(library->arg, kind, (halay_type_t)desc->type,
                                reduces && !moves ? op : HALAY_SUM))
            return false;
    }
    return true;
}

void hly_select_ask(const halay_comm_t *comm, const struct hly_call *call, struct hly_ask *ask)
{
    bool rooted = halay_collective_rooted((halay_collective_t)call->desc.collective);
    const bool apart = !hly_device_of(comm->context, call->desc.memory)->touchable;
    const uint32_t hint = hly_comm_ordered_by(comm)->planner_hint; /* of a group's members, too */
    const bool asked = hint && halay_planner_get(hint - 1)->collective == call->desc.collective;
    *ask = (struct hly_ask){
        .collective = call->desc.collective,
        .nranks = (uint32_t)comm->nranks,
        .nnodes = comm->nnodes,
        .in_place = call->desc.flags & HLY_CALL_IN_PLACE && !call->staged && !rooted,
        .vector = call->desc.flags & HLY_CALL_VECTOR,
        .commutative = !(call->desc.flags & HLY_CALL_ORDERED),
        .scattered = comm->scattered,
        .oversubscribed = comm->oversubscribed,
        .asked = asked ? hint : 0,
        .pair = call->desc.flags & HLY_CALL_PAIR,
        .relaxed = call->desc.flags & HLY_CALL_RELAXED,
        .group = offers_group(comm, call),
        .uneven = comm->uneven,
        .apart = apart,
        .direct = apart && comm->context->settings.gpudirect && !call->user &&
                  !(call->desc.flags & HLY_CALL_SCALED),
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
    struct hly_ask ask;
    hly_select_ask(comm, call, &ask);
    uint32_t forced = hly_select_forced(comm->context->settings.selection, &ask);
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
