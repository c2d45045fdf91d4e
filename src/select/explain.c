/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain.c - why an algorithm serves a call: every candidate, what forbids the others, what the
 * model predicts. Asks the same functions as the choice itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "plan/text.h"
#include "select/between.h"
#include "select/select.h"

static void describe_row(const struct hly_row *row, char *text, size_t bytes)
{
    static const char *const where[] = {"",
                                        ", several ranks on a node",
                                        ", a node for each rank",
                                        ", several ranks on a node, one after the other",
                                        ", all on one node",
                                        ", all on one node, more than its processors",
                                        ", all on one node of one processor"};
    char ranks[64] = "any number of ranks", nodes[32] = "", size[64] = "any size";
    if (row->min_ranks && row->min_ranks == row->max_ranks)
        snprintf(ranks, sizeof(ranks), "%u ranks", row->max_ranks);
    else if (row->min_ranks > 1 && row->max_ranks == UINT32_MAX)
        snprintf(ranks, sizeof(ranks), "%u ranks or more", row->min_ranks);
    else if (row->min_ranks > 1)
        snprintf(ranks, sizeof(ranks), "%u to %u ranks", row->min_ranks, row->max_ranks);
    else if (row->max_ranks != UINT32_MAX)
        snprintf(ranks, sizeof(ranks), "up to %u ranks", row->max_ranks);
    if (row->nodes)
        snprintf(nodes, sizeof(nodes), " on %u node%s", row->nodes, row->nodes > 1 ? "s" : "");
    if (row->min_bytes && row->max_bytes == UINT64_MAX)
        snprintf(size, sizeof(size), "%llu bytes or more", (unsigned long long)row->min_bytes);
    else if (row->min_bytes)
        snprintf(size, sizeof(size), "%llu to %llu bytes", (unsigned long long)row->min_bytes,
                 (unsigned long long)row->max_bytes);
    else if (row->max_bytes != UINT64_MAX)
        snprintf(size, sizeof(size), "up to %llu bytes", (unsigned long long)row->max_bytes);
    snprintf(text, bytes, "%s %u%s: %s%s, %s%s", row->given ? "line" : "row", row->number,
             row->kept    ? " of what halay-bench calibrate has kept"
             : row->given ? " of HALAY_SELECTION's file"
                          : " of the table",
             ranks, nodes, size, where[row->where]);
}

static int choose(const halay_selection_t *s, const struct hly_ask *ask, const halay_shape_t *shape,
                  uint32_t *planner, char *by, size_t bytes)
{
    struct hly_ranking ranking;
    const struct hly_row *row;
    const char *why = NULL;
    const uint32_t forced = hly_select_forced(s, ask);
    const char *name = ask->asked ? "HALAY_HINT_PLANNER" : "HALAY_ALGORITHM";
    if (hly_ranking_wanted(s, ask)) {
        int rc = hly_ranking_make(s, ask, shape, &ranking);
        if (!rc)
            rc = hly_ranking_choose(&ranking, ask, planner);
        if (rc != HALAY_EPLAN) {
            snprintf(by, bytes, "the least predicted for up to %llu bytes (HALAY_SELECTION=model)",
                     1ull << hly_size_class(ask));
            return rc;
        }
    }
    int rc = hly_select_row(s, ask, planner, &row);
    if (rc)
        return rc;
    if (row)
        describe_row(row, by, bytes);
    else if (*planner == forced)
        snprintf(by, bytes, "it was asked for by name (%s)", name);
    else
        snprintf(by, bytes, "no row serves this call, and it is the first that can");
    if (forced != UINT32_MAX && *planner != forced) {
        size_t used = strlen(by);
        hly_ask_serves(ask, forced, true, &why);
        snprintf(by + used, bytes - used, "; %s's %s cannot: %s", name,
                 halay_planner_get(forced)->name, why ? why : "?");
    }
    return HALAY_OK;
}

int halay_explain(const halay_selection_t *s, const halay_question_t *q,
                  halay_explanation_t **explanation)
{
    return hly_explain(s, q, 0, explanation);
}

int hly_explain(const halay_selection_t *s, const halay_question_t *q, uint32_t asked,
                halay_explanation_t **explanation)
{
    if (!s || !q || !q->shape || !explanation || q->collective >= HALAY_COLLECTIVE_COUNT ||
        q->root >= q->shape->nranks)
        return HALAY_EINVAL;
    uint32_t n = halay_planner_count(), planner = UINT32_MAX;
    halay_explanation_t *e = calloc(1, sizeof(*e) + n * sizeof(e->candidate[0]));
    if (!e)
        return HALAY_ENOMEM;
    e->candidate = (halay_candidate_t *)(e + 1);
    struct hly_ask ask = {.collective = q->collective,
                          .nranks = q->shape->nranks,
                          .nnodes = q->shape->nnodes,
                          .in_place = q->in_place,
                          .vector = q->vector,
                          .commutative = q->commutative,
                          .scattered = q->shape->hash & HALAY_SHAPE_SCATTERED,
                          .oversubscribed = q->oversubscribed,
                          .asked = asked,
                          .relaxed = q->relaxed,
                          .group = q->group,
                          .uneven = q->shape->smallest != q->shape->largest,
                          .apart = q->apart,
                          .direct = q->direct,
                          .count = q->count,
                          .element_bytes = q->element_bytes};
    int rc = choose(s, &ask, q->shape, &planner, e->by, sizeof(e->by));
    e->question = *q;
    e->question.shape = NULL;
    e->nranks = ask.nranks;
    e->nnodes = ask.nnodes;
    e->bytes = hly_ask_bytes(&ask);
    e->model_hash = halay_model_hash(&s->model);
    e->bound.size = sizeof(e->bound);
    halay_cost_bound(q, &s->model, &e->bound);
    e->chosen = UINT32_MAX;
    for (uint32_t i = 0; i < n && (!rc || rc == HALAY_EPLAN); i++) {
        halay_candidate_t *c = &e->candidate[e->ncandidates];
        if (halay_planner_get(i)->collective != q->collective)
            continue;
        *c = (halay_candidate_t){.planner = i, .cost.size = sizeof(c->cost)};
        if (i == planner)
            e->chosen = e->ncandidates;
        hly_ask_serves(&ask, i, i == planner, &c->refused);
        if (!c->refused)
            c->result = halay_planner_cost(i, q, &s->model, &c->cost);
        e->ncandidates++;
    }
    if (rc && rc != HALAY_EPLAN) {
        free(e);
        return rc;
    }
    *explanation = e;
    return HALAY_OK;
}

void halay_explanation_free(halay_explanation_t *explanation)
{
    free(explanation);
}

/* ---------------------------------------------------------------- as text */

static const char *unpredicted(int result)
{
    return result == HALAY_EUNSUPPORTED ? "too many steps to predict" : halay_strerror(result);
}

static void put_table(struct hly_text *text, const halay_explanation_t *e)
{
    const halay_question_t *q = &e->question;
    hly_text_put(text, "%s%s of %llu bytes, %u rank%s on %u node%s%s%s\n",
                 halay_collective_name((halay_collective_t)q->collective), q->vector ? " (v)" : "",
                 (unsigned long long)e->bytes, e->nranks, e->nranks == 1 ? "" : "s", e->nnodes,
                 e->nnodes == 1 ? "" : "s", q->in_place ? ", in place" : "",
                 q->commutative ? "" : ", does not commute");
    hly_text_put(
        text,
        "  lower bound %.2f us: latency %.2f, bandwidth %.2f, reduction %.2f (model %016llx)\n",
        e->bound.bound_ns / 1e3, e->bound.latency_ns / 1e3, e->bound.bandwidth_ns / 1e3,
        e->bound.reduction_ns / 1e3, (unsigned long long)e->model_hash);
    hly_text_put(text, "  %-21s %13s %8s %7s %14s %9s\n", "algorithm", "predicted us", "x bound",
                 "rounds", "busiest bytes", "messages");
    for (uint32_t i = 0; i < e->ncandidates; i++) {
        const halay_candidate_t *c = &e->candidate[i];
        hly_text_put(text, "%c %-21s ", i == e->chosen ? '*' : ' ',
                     halay_planner_get(c->planner)->name);
        if (c->refused)
            hly_text_put(text, "refused: %s\n", c->refused);
        else if (c->result)
            hly_text_put(text, "%s\n", unpredicted(c->result));
        else
            hly_text_put(text, "%13.2f %8.2f %7u %14llu %9llu\n", c->cost.predicted_ns / 1e3,
                         c->cost.predicted_ns / e->bound.bound_ns, c->cost.rounds,
                         (unsigned long long)c->cost.busiest_bytes,
                         (unsigned long long)c->cost.messages);
    }
    if (e->nnodes > 1) {
        char rows[HLY_BETWEEN_BYTES];
        hly_between_rows(rows, sizeof(rows));
        hly_text_put(text, "  between nodes, the first that serves all: %s\n", rows);
    }
    if (e->chosen == UINT32_MAX)
        hly_text_put(text, "  none can serve this call\n");
    else
        hly_text_put(text, "  chosen: %s: %s\n",
                     halay_planner_get(e->candidate[e->chosen].planner)->name, e->by);
}

/* All strings are our own: none has a quote or a control character. */
static void put_json(struct hly_text *text, const halay_explanation_t *e)
{
    const halay_question_t *q = &e->question;
    hly_text_put(
        text,
        "{\"collective\": \"%s\", \"bytes\": %llu, \"count\": %llu, \"element_bytes\": %u, "
        "\"ranks\": %u, \"nodes\": %u, \"root\": %u, \"in_place\": %s, \"vector\": %s, "
        "\"commutative\": %s,\n \"model\": \"%016llx\", \"bound_ns\": %.1f, \"latency_ns\": %.1f, "
        "\"bandwidth_ns\": %.1f, \"reduction_ns\": %.1f,\n \"candidates\": [",
        halay_collective_name((halay_collective_t)q->collective), (unsigned long long)e->bytes,
        (unsigned long long)q->count, q->element_bytes, e->nranks, e->nnodes, q->root,
        q->in_place ? "true" : "false", q->vector ? "true" : "false",
        q->commutative ? "true" : "false", (unsigned long long)e->model_hash, e->bound.bound_ns,
        e->bound.latency_ns, e->bound.bandwidth_ns, e->bound.reduction_ns);
    for (uint32_t i = 0; i < e->ncandidates; i++) {
        const halay_candidate_t *c = &e->candidate[i];
        hly_text_put(text, "%s\n  {\"algorithm\": \"%s\", ", i ? "," : "",
                     halay_planner_get(c->planner)->name);
        if (c->refused || c->result)
            hly_text_put(text, "\"%s\": \"%s\"}", c->refused ? "refused" : "unpredicted",
                         c->refused ? c->refused : unpredicted(c->result));
        else
            hly_text_put(
                text,
                "\"predicted_ns\": %.1f, \"rounds\": %u, \"busiest_bytes\": %llu, \"messages\": "
                "%llu}",
                c->cost.predicted_ns, c->cost.rounds, (unsigned long long)c->cost.busiest_bytes,
                (unsigned long long)c->cost.messages);
    }
    if (e->chosen == UINT32_MAX)
        hly_text_put(text, "],\n \"chosen\": null}\n");
    else
        hly_text_put(text, "],\n \"chosen\": \"%s\", \"by\": \"%s\"}\n",
                     halay_planner_get(e->candidate[e->chosen].planner)->name, e->by);
}

size_t halay_explanation_print(const halay_explanation_t *e, int json, char *text, size_t bytes)
{
    struct hly_text out = {text, text ? bytes : 0, 0};
    if (json)
        put_json(&out, e);
    else
        put_table(&out, e);
    return out.used + 1; /* with the terminating zero */
}
