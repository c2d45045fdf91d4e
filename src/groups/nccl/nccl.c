/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - the table. Runs of equal length are one call of NCCL; others are a reduce or a broadcast
 * for each member that has a run, together in a group of calls; an alltoall is a send and a receive
 * for each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halay/device.h>

#include "groups/nccl/inside.h"

_Static_assert(HLY_NCCL_ID_BYTES == HALAY_CIRCLE_ID_BYTES, "an id of NCCL fits");

int hly_nccl_failed(struct hly_nccl *n, const char *call, int result, void *comm)
{
    const char *said = n->library.ncclGetLastError(comm);
    snprintf(n->why, sizeof(n->why), "%s: %s%s%.60s. HALAY_NCCL_LIBRARY=own does without", call,
             n->library.ncclGetErrorString(result), said && *said ? ": " : "", said ? said : "");
    return HALAY_EDEVICE;
}

int hly_nccl_cuda_failed(struct hly_nccl *n, const char *call, int result)
{
    const char *name = NULL;
    n->driver.cuGetErrorName(result, &name);
    snprintf(n->why, sizeof(n->why), "GPU %d: %s: %s (%d)", n->ordinal, call,
             name ? name : "an error of no name", result);
    return result == HLY_CU_OUT_OF_MEMORY ? HALAY_ENOMEM : HALAY_EDEVICE;
}

int hly_nccl_open(const char *library, int ordinal, struct hly_nccl **nccl, int *version, char *why,
                  size_t why_bytes)
{
    struct hly_nccl *n = calloc(1, sizeof(*n));
    *version = 0;
    if (!n)
        return HALAY_ENOMEM;
    n->ordinal = ordinal;
    int rc = hly_cuda_driver_open(&n->driver, false, why, why_bytes);
    if (rc)
        goto free_nccl;
    rc = hly_nccl_library_open(&n->library, library, why, why_bytes);
    *version = n->library.version;
    if (rc)
        goto close_driver;
    *nccl = n;
    return HALAY_OK;

close_driver:
    hly_cuda_driver_close(&n->driver);
free_nccl:
    free(n);
    return rc;
}

void hly_nccl_close(struct hly_nccl *n)
{
    if (!n)
        return;
    hly_nccl_library_close(&n->library);
    hly_cuda_driver_close(&n->driver);
    free(n);
}

const char *hly_nccl_why(const struct hly_nccl *n)
{
    return n->why;
}

/* ------------------------------------------------------------------ before one is opened */

static int nccl_about(void *arg, halay_group_attr_t *attr)
{
    const struct hly_nccl *n = arg;
    if (!n || !attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    attr->memory = HALAY_MEMORY_CUDA;
    attr->captures = 1;
    snprintf(attr->name, sizeof(attr->name), "nccl %d.%d.%d", n->library.version / 10000,
             n->library.version / 100 % 100, n->library.version % 100);
    return HALAY_OK;
}

/* What only moves goes as bytes, so NCCL need not know its type. */
static int nccl_query(void *arg, uint32_t kind, halay_type_t type, halay_op_t op)
{
    (void)arg;
    if (kind < HALAY_GROUP_REDUCE_SCATTER || kind > HALAY_GROUP_ALLTOALL || !halay_type_bytes(type))
        return HALAY_EUNSUPPORTED;
    return halay_group_moves(kind) || (hly_nccl_type(type) >= 0 && hly_nccl_op(op) >= 0)
               ? HALAY_OK
               : HALAY_EUNSUPPORTED;
}

static int nccl_invite(void *arg, unsigned char id[HALAY_CIRCLE_ID_BYTES])
{
    struct hly_nccl *n = arg;
    hly_nccl_id_t made;
    const int rc = n->library.ncclGetUniqueId(&made);
    if (rc)
        return hly_nccl_failed(n, "ncclGetUniqueId", rc, NULL);
    memcpy(id, made.bytes, HALAY_CIRCLE_ID_BYTES);
    return HALAY_OK;
}

static int nccl_open(void *arg, const unsigned char id[HALAY_CIRCLE_ID_BYTES], uint32_t me,
                     uint32_t n, halay_circle_t **dcomm)
{
    struct hly_nccl *nccl = arg;
    struct hly_nccl_config config = {.size = sizeof(config),
                                     .magic = HLY_NCCL_MAGIC,
                                     .version = HALAY_NCCL_LEAST,
                                     .blocking = 0,
                                     .cga_cluster_size = HLY_NCCL_UNSET,
                                     .min_ctas = HLY_NCCL_UNSET,
                                     .max_ctas = HLY_NCCL_UNSET,
                                     .split_share = HLY_NCCL_UNSET};
    struct halay_circle *c;
    hly_nccl_id_t given;
    memcpy(given.bytes, id, sizeof(given.bytes));
    int rc = hly_nccl_dcomm_make(nccl, &c);
    if (rc)
        return rc;
    c->me = me;
    rc = hly_nccl_enter(c);
    if (rc)
        goto free_dcomm;
    rc = nccl->library.ncclCommInitRankConfig(&c->comm, (int)n, given, (int)me, &config);
    hly_nccl_leave(c);
    if (rc && rc != HLY_NCCL_IN_PROGRESS) {
        rc = hly_nccl_failed(nccl, "ncclCommInitRankConfig", rc, NULL);
        c->comm = NULL;
        goto free_dcomm;
    }
    *dcomm = c;
    return HALAY_INPROGRESS;

free_dcomm:
    hly_nccl_dcomm_free(c);
    return rc;
}

/* ------------------------------------------------------------------ launches */

/* Runs that are not of one length. */
static int launch_each(struct halay_circle *c, const halay_group_launch_t *g, int type,
                       size_t scale, size_t bytes, void *stream)
{
    const struct hly_nccl_library *l = &c->nccl->library;
    size_t at = 0;
    int rc = l->ncclGroupStart();
    if (rc)
        return rc;
    for (uint32_t i = 0; i < g->n && (!rc || rc == HLY_NCCL_IN_PROGRESS); i++) {
        const size_t count = g->count[i] * scale;
        if (count && halay_group_moves(g->kind)) {
            char *out = (char *)g->out + at;
            rc = l->ncclBroadcast(i == c->me ? g->in : out, out, count, type, (int)i, c->comm,
                                  stream);
        } else if (count) { /* `out` matters at the root alone */
            rc = l->ncclReduce((const char *)g->in + at, g->out, count, type, hly_nccl_op(g->op),
                               (int)i, c->comm, stream);
        }
        at += g->count[i] * bytes;
    }
    const int ended = l->ncclGroupEnd();
    return rc && rc != HLY_NCCL_IN_PROGRESS ? rc : ended;
}

static int launch_exchange(struct halay_circle *c, const halay_group_launch_t *g, size_t bytes,
                           int type, void *stream)
{
    const struct hly_nccl_library *l = &c->nccl->library;
    int rc = l->ncclGroupStart();
    if (rc)
        return rc;
    for (uint32_t i = 0; i < g->n && (!rc || rc == HLY_NCCL_IN_PROGRESS); i++) {
        rc = l->ncclSend((const char *)g->in + i * bytes, bytes, type, (int)i, c->comm, stream);
        if (!rc || rc == HLY_NCCL_IN_PROGRESS)
            rc = l->ncclRecv((char *)g->out + i * bytes, bytes, type, (int)i, c->comm, stream);
    }
    const int ended = l->ncclGroupEnd();
    return rc && rc != HLY_NCCL_IN_PROGRESS ? rc : ended;
}

static int launch_inside(struct halay_circle *c, const halay_group_launch_t *g)
{
    const struct hly_nccl_library *l = &c->nccl->library;
    const size_t bytes = halay_type_bytes(g->type), scale = halay_group_moves(g->kind) ? bytes : 1;
    const size_t count = g->count[0] * scale;
    const int type =
        halay_group_moves(g->kind) ? hly_nccl_type(HALAY_INT8) : hly_nccl_type(g->type);
    void *stream = g->stream ? g->stream->handle : c->stream;
    bool equal = true;
    for (uint32_t i = 1; i < g->n; i++)
        equal = equal && g->count[i] == g->count[0];
    if (g->kind == HALAY_GROUP_ALLREDUCE)
        return l->ncclAllReduce(g->in, g->out, count, type, hly_nccl_op(g->op), c->comm, stream);
    if (g->kind == HALAY_GROUP_REDUCE_SCATTER && equal)
        return l->ncclReduceScatter(g->in, g->out, count, type, hly_nccl_op(g->op), c->comm,
                                    stream);
    if (g->kind == HALAY_GROUP_ALLGATHER && equal)
        return l->ncclAllGather(g->in, g->out, count, type, c->comm, stream);
    if (g->kind == HALAY_GROUP_ALLTOALL)
        return launch_exchange(c, g, count, type, stream);
    return launch_each(c, g, type, scale, bytes, stream);
}

static int record(struct halay_circle *c)
{
    const uint64_t at = (c->last - 1) % HLY_NCCL_FLIGHTS;
    const struct hly_cuda_driver *d = &c->nccl->driver;
    if (c->opens_at && d->cuStreamWriteValue64_v2) /* if it fails the core opens it */
        (void)d->cuStreamWriteValue64_v2(c->stream, c->opens_at, c->opens_value, 0);
    c->opens_at = 0;
    const int rc = c->captured[at] ? 0 : d->cuEventRecord(c->events[at], c->stream);
    c->pending = rc != 0;
    return rc ? hly_nccl_cuda_failed(c->nccl, "cuEventRecord", rc) : HALAY_OK;
}

static int nccl_launch(halay_circle_t *c, const halay_group_launch_t *g)
{
    if (!c || c->ended || !c->opened || nccl_query(c->nccl, g->kind, g->type, g->op))
        return HALAY_EINVAL;
    if (c->pending || c->last - c->first == HLY_NCCL_FLIGHTS)
        return HALAY_EAGAIN;
    int rc = hly_nccl_enter(c);
    if (rc)
        return rc;
    const int result = launch_inside(c, g);
    if (result && result != HLY_NCCL_IN_PROGRESS) {
        rc = c->failed = hly_nccl_failed(c->nccl, "a collective", result, c->comm);
    } else {
        c->captured[c->last % HLY_NCCL_FLIGHTS] = g->stream != NULL;
        c->cookies[c->last++ % HLY_NCCL_FLIGHTS] = g->cookie;
        c->pending = true;
        c->opens_at = g->opens_at;
        c->opens_value = g->opens_value;
        if (!result)
            c->failed = record(c);
    }
    hly_nccl_leave(c);
    return rc ? rc : HALAY_INPROGRESS;
}

/* ------------------------------------------------------------------ what has ended */

/* HALAY_INPROGRESS: NCCL is not ready; HALAY_OK: it is. */
static int look(struct halay_circle *c)
{
    int result = HLY_NCCL_OK;
    int rc = c->nccl->library.ncclCommGetAsyncError(c->comm, &result);
    rc = rc ? rc : result;
    if (rc == HLY_NCCL_IN_PROGRESS)
        return HALAY_INPROGRESS;
    return rc ? hly_nccl_failed(c->nccl, c->opened ? "a communicator" : "opening a communicator",
                                rc, c->comm)
              : HALAY_OK;
}

static int poll_inside(struct halay_circle *c, halay_group_done_t done[], int max)
{
    int n = 0, rc = c->failed ? c->failed : look(c);
    if (rc < 0 && !c->opened) { /* the core aborts it then */
        done[n++] = (halay_group_done_t){HALAY_CIRCLE_OPENED, rc};
        return n;
    }
    if (rc < 0 || (!c->opened && rc == HALAY_INPROGRESS))
        return rc < 0 ? rc : 0;
    if (!c->opened) {
        c->opened = true;
        done[n++] = (halay_group_done_t){HALAY_CIRCLE_OPENED, HALAY_OK};
    }
    if (c->pending && rc == HALAY_OK) {
        rc = record(c);
        if (rc)
            return rc;
    }
    for (; n < max && c->first < c->last - c->pending; c->first++) {
        const uint64_t at = c->first % HLY_NCCL_FLIGHTS;
        rc = c->captured[at] ? 0 : c->nccl->driver.cuEventQuery(c->events[at]);
        if (rc == HLY_CU_NOT_READY)
            break;
        if (rc)
            return hly_nccl_cuda_failed(c->nccl, "cuEventQuery", rc);
        done[n++] = (halay_group_done_t){c->cookies[at], HALAY_OK};
    }
    return n;
}

static int nccl_poll(halay_circle_t *c, halay_group_done_t done[], int max)
{
    if (!c || c->ended || max < 1 || !done)
        return HALAY_EINVAL;
    const int rc = hly_nccl_enter(c);
    if (rc)
        return rc;
    const int n = poll_inside(c, done, max);
    hly_nccl_leave(c);
    return n;
}

static int nccl_abort(halay_circle_t *c, uint64_t timeout_ns)
{
    return hly_nccl_dcomm_end(c, true, timeout_ns);
}

static int nccl_close(halay_circle_t *c, uint64_t timeout_ns)
{
    if (!c)
        return HALAY_OK;
    /* One that has failed may hold what it never launched. What does not end stays. */
    const int rc = hly_nccl_dcomm_end(c, c->failed != HALAY_OK, timeout_ns);
    hly_nccl_dcomm_free(c);
    return rc;
}

static const char *nccl_why(void *arg)
{
    return hly_nccl_why(arg);
}

const halay_group_ops_t hly_group_nccl = {
    .size = sizeof(halay_group_ops_t),
    .about = nccl_about,
    .query = nccl_query,
    .invite = nccl_invite,
    .open = nccl_open,
    .launch = nccl_launch,
    .poll = nccl_poll,
    .abort = nccl_abort,
    .close = nccl_close,
    .why = nccl_why,
};
