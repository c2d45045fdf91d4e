/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain_run.c - HALAY_EXPLAIN=1: rank 0 of a communicator tells why a call got its plan, the
 * first time that one of its collective and size class is made; notes how long such calls take,
 * from the call to its end; and tells it beside the prediction when the communicator goes.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "select/between.h"
#include "select/select.h"
#include "wire/endpoint.h"

#define SAMPLES_MAX   512 /* the first ones, for the median */
#define EXPLAINED_MAX 256 /* classes of a communicator */

struct hly_explained {
    struct hly_explained *next;
    uint32_t collective, class, planner;
    uint64_t bytes;      /* of the first call */
    double predicted_ns; /* 0: not known */
    uint64_t calls;
    double sum_ns;
    uint32_t nsamples;
    float sample_ns[SAMPLES_MAX];
};

/* One write(2), so that ranks' texts do not mix. */
static void tell(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* nobody to tell */
}

/* The row that was taken. */
static void explain_between(const halay_comm_t *comm)
{
    char why[HLY_BETWEEN_BYTES], text[HLY_BETWEEN_BYTES + 4];
    if (comm->nnodes < 2)
        return;
    const halay_context_t *ctx = comm->context;
    const struct hly_transport *far = &ctx->transports[ctx->ntransports - 1];
    hly_between_text(ctx, far->ops->name, far->attr.over, why, sizeof(why));
    snprintf(text, sizeof(text), "  %s\n", why);
    tell(text);
}

static void explain(halay_request_t *r, const struct hly_ask *ask, struct hly_explained *x)
{
    halay_shape_t *shape = NULL;
    halay_explanation_t *e = NULL;
    if (hly_comm_shape(r->comm, &shape))
        return;
    halay_question_t question = {.collective = ask->collective,
                                 .root = r->call.desc.root,
                                 .in_place = ask->in_place,
                                 .vector = ask->vector,
                                 .commutative = ask->commutative,
                                 .element_bytes = (uint32_t)ask->element_bytes,
                                 .count = ask->count,
                                 .shape = shape,
                                 .oversubscribed = ask->oversubscribed,
                                 .relaxed = ask->relaxed};
    if (!halay_explain(r->context->settings.selection, &question, &e)) {
        size_t bytes = halay_explanation_print(e, 0, NULL, 0);
        char *text = malloc(bytes);
        if (text) {
            halay_explanation_print(e, 0, text, bytes);
            tell(text);
        }
        free(text);
        explain_between(r->comm);
        for (uint32_t i = 0; i < e->ncandidates; i++)
            if (e->candidate[i].planner == x->planner && !e->candidate[i].result)
                x->predicted_ns = e->candidate[i].cost.predicted_ns;
    }
    halay_explanation_free(e);
    halay_shape_free(shape);
}

/* The entry of such calls; NULL: there is no memory, or there are too many. */
static struct hly_explained *entry_of(halay_request_t *r, const struct hly_ask *ask)
{
    halay_comm_t *comm = r->comm;
    const uint32_t class = hly_size_class(ask), planner = r->plan->planner;
    uint32_t n = 0;
    for (struct hly_explained *x = comm->explained; x; x = x->next, n++)
        if (x->collective == ask->collective && x->class == class && x->planner == planner)
            return x;
    struct hly_explained *x = n < EXPLAINED_MAX ? calloc(1, sizeof(*x)) : NULL;
    if (!x)
        return NULL;
    x->collective = ask->collective;
    x->class = class;
    x->planner = planner;
    x->bytes = hly_ask_bytes(ask);
    explain(r, ask, x);
    x->next = comm->explained;
    comm->explained = x;
    return x;
}

uint64_t hly_explain_call(halay_request_t *r)
{
    struct hly_ask ask;
    if (r->comm->rank != 0 || r->comm->parent) /* send and receive have one algorithm */
        return 0;
    hly_select_ask(r->comm, &r->call, &ask);
    r->explained = entry_of(r, &ask);
    return hly_now_ns();
}

void hly_explain_done(halay_request_t *r)
{
    struct hly_explained *x = r->explained;
    r->explained = NULL;
    if (r->result)
        return;
    double ns = (double)(hly_now_ns() - r->started_ns);
    if (x->calls++ == 0)
        return; /* the first one has connected */
    x->sum_ns += ns;
    if (x->nsamples < SAMPLES_MAX)
        x->sample_ns[x->nsamples++] = (float)ns;
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void summarize(struct hly_explained *x)
{
    char text[320], off[48] = "not predicted";
    if (!x->nsamples)
        return;
    qsort(x->sample_ns, x->nsamples, sizeof(x->sample_ns[0]), compare);
    double median = (double)x->sample_ns[x->nsamples / 2];
    if (x->predicted_ns > 0 && median > 0)
        snprintf(off, sizeof(off), "predicted %.2f us, off by %+.0f %%", x->predicted_ns / 1e3,
                 100 * (x->predicted_ns - median) / median);
    snprintf(text, sizeof(text),
             "%s of %llu bytes by %s: %llu calls, median %.2f us, mean %.2f us; %s\n",
             halay_collective_name((halay_collective_t)x->collective), (unsigned long long)x->bytes,
             halay_planner_get(x->planner)->name, (unsigned long long)x->calls, median / 1e3,
             x->sum_ns / (double)(x->calls - 1) / 1e3, off);
    tell(text);
}

void hly_explain_end(halay_comm_t *comm)
{
    struct hly_explained *all = NULL;
    while (comm->explained) { /* in the order in which they came */
        struct hly_explained *x = comm->explained;
        comm->explained = x->next;
        x->next = all;
        all = x;
    }
    while (all) {
        struct hly_explained *next = all->next;
        summarize(all);
        free(all);
        all = next;
    }
}
