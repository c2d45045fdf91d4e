/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain_run.c - HALAY_EXPLAIN=1: rank 0 of a communicator prints why a call got its plan, at the
 * first call of each collective and size class. It measures how long such calls take, from the call
 * to its end. When the communicator is freed it prints these times beside the model's prediction.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/run.h"
#include "select/between.h"
#include "select/select.h"
#include "wire/endpoint.h"

#define SAMPLES_MAX   512 /* the first calls of a class, for the median */
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
        return; /* standard error is closed: the text is lost */
}

/* Prints which row of the selection table served the call. */
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

/* Fills text with ", by NAME": the library that does the group steps, and why another one does
 * not. */
static void library_text(const halay_comm_t *comm, const struct hly_device *device, char *text,
                         size_t bytes)
{
    const struct hly_nccl_ask *ask = hly_comm_ordered_by(comm)->nccl;
    const bool shared = ask && ask->library == &comm->context->nccl.shared_gpu;
    snprintf(text, bytes, ", by %.31s%s%s", hly_comm_group_library(comm, device)->name,
             shared ? ", since " : "", shared ? ask->why : "");
}

/* Why a communicator's calls have no group steps. */
static const char *why_no_library(const halay_comm_t *comm)
{
    const struct hly_nccl_ask *ask = hly_comm_ordered_by(comm)->nccl;
    if ((int)comm->nnodes == comm->nranks)
        return "each rank has a node of its own";
    return ask ? ask->why : "it does not use NCCL";
}

/* Why this collective, in memory of a device, is staged instead of served by group steps. */
static const char *why_staged(const halay_request_t *r, const struct hly_ask *ask)
{
    const char *why = "no plan of this collective has group steps", *no;
    if (!hly_comm_group_library(r->comm, hly_device_of(r->context, r->call.desc.memory)))
        return r->context->nccl.looked && !(r->call.desc.flags & HLY_CALL_VECTOR)
                   ? why_no_library(r->comm)
                   : "no library of device collectives is open";
    if (!ask->group)
        return "the call is too short for it (HALAY_NCCL_LIBRARY=own:BYTES), it has not this type "
               "and "
               "operation, or the input is scaled";
    for (uint32_t i = 0; i < halay_planner_count(); i++) {
        const halay_planner_info_t *info = halay_planner_get(i);
        if (info->collective != ask->collective || !(info->restrictions & HALAY_PLANNER_GROUP))
            continue;
        if (hly_ask_serves(ask, i, false, &no))
            return "another algorithm comes before, by name or by its row";
        why = no;
    }
    return why;
}

/* Why such calls cannot use GPUDirect on any rank. NULL: only the setting HALAY_GPUDIRECT
 * decides. */
static const char *why_not_direct(const halay_request_t *r)
{
    const halay_comm_t *c = r->comm;
    if (r->call.user)
        return "the operation is the program's";
    if (r->call.desc.flags & HLY_CALL_SCALED)
        return "the call scales";
    return halay_planner_indirect(r->plan->planner, (uint32_t)c->nranks, c->nnodes, c->uneven);
}

/* Fills text with whether this rank's GPU and adapter can do GPUDirect. Other ranks' abilities are
 * known only in a call. */
static void explain_direct(const halay_request_t *r, char *text, size_t bytes)
{
    const struct hly_device *device = hly_device_of(r->context, r->call.desc.memory);
    const void *at = r->call.out ? r->call.out : r->call.in;
    halay_export_t e = {.size = sizeof(e), .dmabuf = -1};
    const halay_context_t *ctx = r->context;
    const char *why = why_not_direct(r);
    if (why) {
        snprintf(text, bytes, "not GPUDirect: %s", why);
        return;
    }
    assert(ctx->ntransports > 0); /* there are messages */
    const struct hly_transport *far = &ctx->transports[ctx->ntransports - 1];
    if (!(far->attr.capabilities & HALAY_CAN_DEVICE))
        snprintf(text, bytes, "GPUDirect: the transport %s cannot carry it here (halay-doctor)",
                 far->ops->name);
    else if (at && at != HALAY_IN_PLACE && device->ops->export_mem(device->handle, at, 1, 0, &e))
        snprintf(text, bytes, "GPUDirect: %s", device->ops->why(device->handle));
    else
        snprintf(text, bytes, "GPUDirect: the transport %s can carry it here%s", far->ops->name,
                 ctx->settings.gpudirect ? "" : "; HALAY_GPUDIRECT is not 1");
}

/* Prints how a call in memory that messages cannot carry is done. */
static void explain_apart(const halay_request_t *r, const struct hly_ask *ask)
{
    char text[768], direct[224], by[288] = "";
    if (!ask->apart)
        return;
    const uint32_t has = halay_planner_get(r->plan->planner)->restrictions;
    explain_direct(r, direct, sizeof(direct));
    if (has & HALAY_PLANNER_GROUP)
        library_text(r->comm, hly_device_of(r->context, r->call.desc.memory), by, sizeof(by));
    if (r->direct && has & HALAY_PLANNER_GROUP)
        snprintf(text, sizeof(text),
                 "  in device memory: hierarchical and direct, grouped in the node, and adapters "
                 "read and write it between nodes%s; %s\n",
                 by, direct);
    else if (r->direct)
        snprintf(text, sizeof(text), "  in device memory: direct, adapters read and write it; %s\n",
                 direct);
    else if (!(has & HALAY_PLANNER_GROUP))
        snprintf(text, sizeof(text),
                 "  in device memory: staged, copied through the host's; no group steps: %s; %s\n",
                 why_staged(r, ask), direct);
    else
        snprintf(text, sizeof(text), "  in device memory: %s%s%s\n",
                 ask->nnodes < 2 ? "grouped, all of it on the device"
                                 : "hierarchical, grouped in the node and over the stage between "
                                   "nodes",
                 by,
                 ask->nnodes < 2                  ? ""
                 : r->context->settings.gpudirect ? "; the messages do not carry device memory"
                                                  : "; HALAY_GPUDIRECT is not 1");
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
                                 .relaxed = ask->relaxed,
                                 .group = ask->group,
                                 .apart = ask->apart,
                                 .direct = ask->direct};
    if (!hly_explain(r->context->settings.selection, &question, ask->asked, &e)) {
        size_t bytes = halay_explanation_print(e, 0, NULL, 0);
        char *text = malloc(bytes);
        if (text) {
            halay_explanation_print(e, 0, text, bytes);
            tell(text);
        }
        free(text);
        explain_between(r->comm);
        explain_apart(r, ask);
        for (uint32_t i = 0; i < e->ncandidates; i++)
            if (e->candidate[i].planner == x->planner && !e->candidate[i].result)
                x->predicted_ns = e->candidate[i].cost.predicted_ns;
    }
    halay_explanation_free(e);
    halay_shape_free(shape);
}

/* Finds or makes the entry for calls of this class. NULL: no memory, or too many classes. */
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
    r->reports |= r->explained != NULL;
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
        return; /* not measured: the first call also makes connections */
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
    while (comm->explained) { /* in the order of their first calls */
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
