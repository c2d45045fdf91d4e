/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_library.c - the ranks of a communicator agree which library does their group steps: NCCL or
 * Halay's own kernels (docs/decisions/group-steps.md#0061, 0069). A context opens both by itself.
 * At its first call in a GPU's memory, if some node has two ranks, each rank starts an allgather on
 * a hidden communicator. It says which NCCL it has, on which GPU, and which ranks its own kernels
 * reach. If all have the same NCCL, and no two ranks of a node share a GPU, all use NCCL. Otherwise
 * they use Halay's kernels, if the ranks of each node reach one another.
 *
 * Nobody waits in a post. Calls in a GPU's memory start without a plan (HLY_UNPLANNED) until the
 * allgather has ended. Meanwhile they are calls like others: compared with what other ranks send,
 * part of the agreement on errors, and over at their deadlines. The allgather itself has none.
 */
#include "run/group_library.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_builtin.h"
#include "exec/exec.h"
#include "groups/nccl/nccl.h"
#include "groups/shared_gpu/shared_gpu.h"
#include "wire/match.h"
#include "wire/news.h"

#define NCCL_TAG    UINT64_C(0x6c63636e)
#define NO_DEADLINE UINT64_C(1000000000000000) /* of the allgather: the calls have one */

/* ---------------------------------------------------------------- this rank's */

static void library_make(struct hly_group_library *library, const halay_group_ops_t *ops, void *arg)
{
    halay_group_attr_t attr = {.size = sizeof(attr)};
    ops->about(arg, &attr);
    *library = (struct hly_group_library){ops, arg, "", attr.captures};
    snprintf(library->name, sizeof(library->name), "%.31s", attr.name);
}

/* Once for each context: finds the GPU and, if the settings allow it, NCCL. */
static void look(halay_context_t *ctx, const struct hly_device *device)
{
    struct hly_nccl_here *here = &ctx->nccl;
    const char *name = ctx->settings.nccl;
    struct hly_nccl *nccl;
    struct hly_shared_gpu *own;
    int ordinal = -1;
    if (here->looked)
        return;
    here->looked = true;
    const bool has_gpu = !hly_device_cuda_gpu(device->handle, &ordinal, &here->place);
    if (ctx->settings.no_nccl)
        snprintf(here->why, sizeof(here->why), "HALAY_NCCL_LIBRARY is %s",
                 ctx->settings.no_shared_gpu ? "off" : "own");
    else if (!has_gpu)
        snprintf(here->why, sizeof(here->why), "the device has no GPU");
    else if (!hly_nccl_open(name, ordinal, &nccl, &here->version, here->why, sizeof(here->why)))
        library_make(&here->nccl, &hly_group_nccl, nccl);
    if (has_gpu && !ctx->settings.no_shared_gpu && !hly_shared_gpu_open(ordinal, 0, &own)) {
        library_make(&here->shared_gpu, &hly_group_shared_gpu, own);
        here->reach = hly_shared_gpu_reach(device->handle);
        here->least = ctx->settings.shared_gpu_least_bytes;
        if (!here->least)
            here->least = hly_shared_gpu_least(device->handle);
    }
    if (has_gpu && *name && !here->nccl.ops)
        hly_log(ctx, HLY_WARN,
                "HALAY_NCCL_LIBRARY is \"%s\", which cannot be used: %s. Name a file of "
                "NCCL " HALAY_NCCL_LEAST_TEXT
                " or newer, or unset it; \"own\" and \"off\" do without",
                name, here->why);
    else
        hly_log(ctx, here->version && !here->nccl.ops ? HLY_WARN : HLY_INFO,
                "device collectives: %s", here->nccl.ops ? here->nccl.name : here->why);
}

void hly_nccl_drop(halay_context_t *ctx)
{
    hly_nccl_close(ctx->nccl.nccl.arg);
    hly_shared_gpu_close(ctx->nccl.shared_gpu.arg);
    while (ctx->nccl.left) {
        struct hly_nccl_ask *next = ctx->nccl.left->next;
        free(ctx->nccl.left->all);
        free(ctx->nccl.left);
        ctx->nccl.left = next;
    }
}

/* ---------------------------------------------------------------- what all say */

static void version_text(const struct hly_nccl_says *says, char text[32])
{
    if (!says->version)
        snprintf(text, 32, "no NCCL");
    else
        snprintf(text, 32, "NCCL %u.%u.%u", (unsigned)says->version / 10000,
                 (unsigned)says->version / 100 % 100, (unsigned)says->version % 100);
}

/* True, and why: the ranks have no NCCL in common. False: all have the same usable one. */
static bool differ(const struct hly_nccl_ask *ask, int nranks, char *why, size_t bytes)
{
    char first[32], other[32];
    version_text(&ask->all[0], first);
    for (int r = 0; r < nranks; r++) {
        version_text(&ask->all[r], other);
        if (ask->all[r].version < HALAY_NCCL_LEAST)
            snprintf(why, bytes, "rank %d has %s%s", r, other,
                     ask->all[r].version ? ", and " HALAY_NCCL_LEAST_TEXT " is needed" : "");
        else if (ask->all[r].version != ask->all[0].version)
            snprintf(why, bytes, "rank 0 has %s, and rank %d has %s", first, r, other);
        else
            continue;
        return true;
    }
    return false;
}

/* Do two ranks of a node work on one GPU? NCCL would refuse them. */
static bool share(const struct hly_nccl_ask *ask, const halay_shape_t *s, char *why, size_t bytes)
{
    for (uint32_t node = 0; node < s->nnodes; node++)
        for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++)
            for (uint32_t j = s->first[node]; j < i; j++)
                if (ask->all[s->member[i]].place == ask->all[s->member[j]].place) {
                    snprintf(why, bytes, "ranks %u and %u share a GPU, which NCCL refuses",
                             s->member[j], s->member[i]);
                    return true;
                }
    return false;
}

/* Can Halay's own kernels serve all ranks? If not, appends the reason to `why`. */
static bool reach(const struct hly_nccl_ask *ask, const halay_shape_t *s, char *why, size_t bytes)
{
    const size_t length = strlen(why);
    for (uint32_t node = 0; node < s->nnodes; node++)
        for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
            const uint32_t a = s->member[s->first[node]], b = s->member[i];
            if (ask->all[b].reach && ask->all[a].reach == ask->all[b].reach)
                continue;
            if (ask->all[b].reach)
                snprintf(why + length, bytes - length,
                         "; and Halay's kernels need ranks %u and %u to share one", a, b);
            else
                snprintf(why + length, bytes - length,
                         "; rank %u has no group steps by Halay's kernels", b);
            return false;
        }
    return true;
}

/* Chooses the library. All ranks choose the same one, since all have the same `all`. */
static void choose(halay_comm_t *comm, const halay_shape_t *shape)
{
    struct hly_nccl_ask *ask = comm->nccl;
    struct hly_nccl_here *here = &comm->context->nccl;
    if (!differ(ask, comm->nranks, ask->why, sizeof(ask->why)) &&
        !share(ask, shape, ask->why, sizeof(ask->why)))
        ask->library = &here->nccl;
    else if (reach(ask, shape, ask->why, sizeof(ask->why)))
        ask->library = &here->shared_gpu;
    else
        return;
    ask->state = HLY_NCCL_AGREED;
    for (int r = 0; r < comm->nranks; r++)
        if (ask->library == &here->shared_gpu && ask->all[r].least > ask->least)
            ask->least = ask->all[r].least;
}

/* Should rank 0 warn that calls are staged? Not if no rank has NCCL: a user that has asked for it,
 * or has an old one, got another warning. */
static bool warns(const halay_comm_t *comm)
{
    const struct hly_nccl_here *here = &comm->context->nccl;
    bool any = here->nccl.ops != NULL;
    for (int r = 0; comm->nccl->all && r < comm->nranks; r++)
        any = any || comm->nccl->all[r].version >= HALAY_NCCL_LEAST;
    return any && comm->rank == 0 && !here->warned;
}

/* Ends the agreement. All ranks come to the same result, since they have the same `all`; or calls
 * in a GPU's memory fail, as those of a rank that has none do on all. */
static void judge(halay_comm_t *comm, int rc)
{
    struct hly_nccl_ask *ask = comm->nccl;
    halay_shape_t *shape = NULL;
    assert(rc || ask->all);
    ask->state = HLY_NCCL_NONE;
    rc = rc ? rc : hly_comm_shape(comm, &shape);
    if (rc) {
        ask->state = HLY_NCCL_FAILED;
        ask->failed = rc;
        snprintf(ask->why, sizeof(ask->why), "the ranks could not agree on NCCL: %s",
                 halay_strerror(rc));
    } else {
        choose(comm, shape);
    }
    halay_shape_free(shape);
    if (ask->state == HLY_NCCL_NONE) {
        const bool loud = warns(comm);
        hly_log(comm->context, loud ? HLY_WARN : HLY_INFO,
                "no NCCL on a communicator of %d ranks: %s; its calls in GPUs' memory are staged",
                comm->nranks, ask->why);
        comm->context->nccl.warned = comm->context->nccl.warned || loud;
    }
    free(ask->all);
    ask->all = NULL;
}

/* ---------------------------------------------------------------- asking */

static int hidden_make(halay_comm_t *comm, struct hly_nccl_ask *ask)
{
    const uint64_t tag = NCCL_TAG, id = hly_hash(comm->id, &tag, sizeof(tag));
    struct hly_ranks *ranks;
    int rc = hly_ranks_copy(comm->ranks, &ranks);
    if (!rc)
        rc = hly_comm_make(comm->context, id, ranks, comm->rank, NO_DEADLINE, &ask->hidden);
    if (!rc)
        ask->hidden->asks_for = comm;
    return rc;
}

static int tell_all(halay_comm_t *comm, struct hly_nccl_ask *ask)
{
    struct hly_call call =
        hly_call_of(HALAY_ALLGATHER, &ask->mine, ask->all, sizeof(ask->mine), HALAY_UINT8);
    call.signature = hly_hash(0, &call.desc, sizeof(call.desc));
    int rc = hidden_make(comm, ask);
    if (!rc)
        rc = hly_exec_make(ask->hidden, &call, HALAY_OK, "", &ask->request);
    if (rc)
        return rc;
    ask->request->reports = true;
    hly_exec_go(ask->request);
    if (hly_news_any(comm->context))
        hly_hand_on(comm->context);
    return HALAY_OK;
}

/* Starts the allgather. HALAY_ENOMEM: the next call tries again. */
static int begin(halay_comm_t *comm, struct hly_device *device)
{
    struct hly_nccl_ask *ask = calloc(1, sizeof(*ask));
    const struct hly_nccl_here *here = &comm->context->nccl;
    if (!ask)
        return HALAY_ENOMEM;
    look(comm->context, device);
    ask->all = calloc((size_t)comm->nranks, sizeof(*ask->all));
    ask->mine =
        (struct hly_nccl_says){(uint64_t)here->version, here->place, here->reach, here->least};
    ask->state = HLY_NCCL_ASKING;
    comm->nccl = ask;
    const int rc = ask->all ? tell_all(comm, ask) : HALAY_ENOMEM;
    if (rc) {
        ask->request = NULL;
        judge(comm, rc);
    }
    return HALAY_OK;
}

static bool is_asked(const halay_comm_t *comm, const struct hly_device *device)
{
    return device->ops == &hly_device_cuda && !device->library.ops && !comm->asks_for &&
           !comm->parent && !comm->outer && !comm->broken.is && !comm->freed &&
           (int)comm->nnodes < comm->nranks;
}

void hly_nccl_ask(halay_comm_t *comm, const struct hly_call *call, struct hly_check *c)
{
    struct hly_device *device = hly_device_of(comm->context, call->desc.memory);
    if (comm->nccl || c->code || call->desc.flags & HLY_CALL_VECTOR || !is_asked(comm, device))
        return; /* v forms have no plans with group steps */
    c->code = begin(comm, device);
    if (c->code)
        snprintf(c->text, sizeof(c->text), "no memory to agree on NCCL");
}

/* ---------------------------------------------------------------- the answer */

void hly_nccl_plan(halay_request_t *r)
{
    const struct hly_nccl_ask *ask = hly_comm_ordered_by(r->comm)->nccl;
    if (r->state != HLY_UNPLANNED || ask->state == HLY_NCCL_ASKING)
        return;
    if (hly_exec_plan(r, ask->failed, ask->why))
        return;
    if (r->context->settings.explain)
        hly_explain_call(r);
    hly_exec_begin(r);
}

static void plan_all(halay_comm_t *comm)
{
    for (uint32_t s = comm->oldest; s != comm->started; s++)
        if (comm->slots[s % HLY_SLOTS].request)
            hly_nccl_plan(comm->slots[s % HLY_SLOTS].request);
}

void hly_nccl_answered(halay_request_t *r)
{
    halay_comm_t *comm = r->comm->asks_for;
    const int rc = r->result;
    comm->nccl->request = NULL;
    hly_request_release(r);
    judge(comm, rc);
    plan_all(comm);
    if (comm->inner)
        plan_all(comm->inner);
}

/* ---------------------------------------------------------------- the end */

void hly_nccl_forget(halay_comm_t *comm)
{
    struct hly_nccl_ask *ask = comm->nccl;
    if (!ask)
        return;
    if (ask->hidden) {
        hly_comm_destroy(ask->hidden);
        comm->context->ncomms--;
    }
    comm->nccl = NULL;
    if (ask->state == HLY_NCCL_ASKING) { /* a transport may still write its buffer */
        ask->next = comm->context->nccl.left;
        comm->context->nccl.left = ask;
        return;
    }
    free(ask->all);
    free(ask);
}
