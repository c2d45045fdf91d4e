/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_op.c - MPI_Put, MPI_Get, MPI_Accumulate and their like, of an origin. The target's
 * datatype becomes runs of memory. They go out in parts of bounded size, each an order of its own.
 * Data are copied or received before a call returns, so a put's buffer can be used again at once.
 * What is fetched arrives later, in receives that were posted before.
 */
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "window.h"

#define RUNS_FULL (HLY_MPI_RUNS_ROOM - 6) /* the rest is for the end of a pair's element */

struct side {
    void *buffer;
    int64_t count;
    struct hly_mpi_type *type;
};
struct call {
    const char *function;
    struct hly_mpi_win *win;
    enum hly_mpi_order_what what;
    struct side origin, result;
    int rank;
    int64_t disp, target_count;
    struct hly_mpi_type *target_type;
    const struct hly_mpi_op *op;
    struct hly_mpi_request **request; /* NULL: none is made */
};

/* ---------------------------------------------------------------- parts */

struct maker {
    const struct call *c;
    struct hly_mpi_order order; /* of the part */
    int64_t from, total, limit; /* bytes before the part; of all; most of a part */
    bool near;
    char *packed, *old; /* rooms */
    struct hly_mpi_gather *gather;
    int rc;
    struct hly_mpi_run runs[HLY_MPI_RUNS_ROOM];
};

static bool fetches(enum hly_mpi_order_what what)
{
    return what == HLY_MPI_GET || what == HLY_MPI_GET_ACCUMULATE || what == HLY_MPI_SWAP;
}

static int far_part(struct maker *m, const char *data)
{
    struct hly_mpi_win *win = m->c->win;
    const struct hly_mpi_fetch wanted = {.gather = m->gather,
                                         .rank = m->c->rank,
                                         .buffer = m->c->result.buffer,
                                         .count = m->c->result.count,
                                         .type = m->c->result.type,
                                         .from = m->from,
                                         .bytes = m->order.bytes,
                                         .disp = m->order.disp};
    const int rc = fetches(m->c->what)
                       ? hly_mpi_win_fetch(m->c->function, win, &wanted, &m->order.answer)
                       : MPI_SUCCESS;
    if (rc)
        return rc;
    const int64_t bytes = !data                        ? 0
                          : m->c->what == HLY_MPI_SWAP ? 2 * m->order.bytes
                                                       : m->order.bytes;
    const int code = hly_mpi_win_send(win, m->c->rank, &m->order, m->runs, data, bytes);
    /* After the send: a flush that begins now flushes it. */
    if (!fetches(m->c->what))
        __atomic_store_n(&win->peers[m->c->rank].dirty, 1, __ATOMIC_RELEASE);
    return hly_mpi_result(code, win->comm, m->c->function);
}

static int near_part(struct maker *m, const char *data)
{
    struct hly_mpi_win *win = m->c->win;
    const struct side *to = &m->c->result;
    const int rank = m->c->rank;
    char *at = win->peers[rank].near + m->order.disp, *old = NULL;
    if (win->flavor == MPI_WIN_FLAVOR_DYNAMIC) {
        at = (char *)(uintptr_t)m->order.disp;
        if (!hly_mpi_order_fits(win, &m->order, m->runs))
            return hly_mpi_fail(
                MPI_ERR_RMA_RANGE, "%s: %lld bytes at address %lld are not attached to the window",
                m->c->function, (long long)m->order.bytes, (long long)m->order.disp);
    }
    if (fetches(m->c->what))
        old = to->type->dense ? (char *)to->buffer + m->from : m->old;
    hly_mpi_order_apply(win, rank, at, &m->order, m->runs, data, old);
    if (old == m->old && old)
        hly_mpi_unpack_range(to->buffer, to->count, to->type, m->from, m->order.bytes, old);
    return MPI_SUCCESS;
}

/* Ends a part: carries it out, or sends it. */
static void end_part(struct maker *m)
{
    const struct side *from = &m->c->origin;
    const char *data = NULL;
    if (m->rc || !m->order.bytes)
        return;
    if (m->c->what == HLY_MPI_SWAP) {
        data = from->buffer;
    } else if (m->c->what != HLY_MPI_GET && m->order.op != HLY_MPI_NO_OP) {
        data = (const char *)from->buffer + m->from;
        if (!from->type->dense) {
            hly_mpi_pack_range(from->buffer, from->count, from->type, m->from, m->order.bytes,
                               m->packed);
            data = m->packed;
        }
    }
    m->rc = m->near ? near_part(m, data) : far_part(m, data);
    m->from += m->order.bytes;
    m->order.bytes = m->order.nruns = 0;
}

static bool joins(struct hly_mpi_run *last, int64_t offset, int64_t bytes)
{
    if (last->n == 1 && offset == last->offset + last->bytes) {
        last->bytes += bytes;
        return true;
    }
    if (last->bytes != bytes || (last->n > 1 && offset != last->offset + last->n * last->stride))
        return false;
    if (last->n == 1)
        last->stride = offset - last->offset;
    last->n++;
    return true;
}

/* A run of the target's memory; false: no more are needed. */
static bool add(void *arg, int basic, char *at, int64_t bytes)
{
    struct maker *m = arg;
    const int64_t whole = hly_mpi_basic_bytes(m->order.basic);
    int64_t offset = (int64_t)(intptr_t)at;
    (void)basic;
    while (bytes > 0 && !m->rc) {
        const int64_t room = m->limit - m->order.bytes, left = m->total - m->from - m->order.bytes;
        int64_t n = bytes < room ? bytes : room;
        n = n < left ? n : left;
        if (!left)
            return false;
        if (!m->order.nruns || !joins(&m->runs[m->order.nruns - 1], offset, n))
            m->runs[m->order.nruns++] = (struct hly_mpi_run){offset, n, 0, 1};
        m->order.bytes += n;
        offset += n;
        bytes -= n;
        if (m->order.bytes == m->limit || m->from + m->order.bytes == m->total ||
            (m->order.nruns >= (int64_t)RUNS_FULL && m->order.bytes % whole == 0))
            end_part(m);
    }
    return !m->rc;
}

static int make_parts(struct maker *m)
{
    const struct call *c = m->c;
    const bool dense = c->target_type->dense && (!c->origin.type || c->origin.type->dense) &&
                       (!c->result.type || c->result.type->dense);
    m->limit = HLY_MPI_PART_BYTES;
    if (dense && (m->near || c->what == HLY_MPI_PUT || c->what == HLY_MPI_GET))
        m->limit = INT64_MAX;
    const size_t room = (size_t)(m->total < m->limit ? m->total : m->limit);
    if (!dense) {
        m->packed = malloc(room);
        m->old = malloc(room);
        if (!m->packed || !m->old)
            m->rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %zu bytes", c->function, room);
    }
    if (c->target_type->dense)
        add(m, HLY_MPI_NONE, NULL, m->total);
    else if (!m->rc)
        hly_mpi_type_walk(c->target_type, 0, c->target_count, add, m);
    end_part(m);
    free(m->packed);
    free(m->old);
    return m->rc;
}

/* ---------------------------------------------------------------- checks */

static int check_epoch(const struct call *c)
{
    struct hly_mpi_win *win = c->win;
    const enum hly_mpi_epoch epoch = __atomic_load_n(&win->epoch, __ATOMIC_RELAXED);
    const uint8_t access = c->rank < 0 ? 0 : win->peers[c->rank].access;
    const bool locked = epoch == HLY_MPI_LOCKED_ALL ||
                        (epoch == HLY_MPI_LOCKED && (c->rank < 0 || access & HLY_MPI_HAS_LOCK));
    if (c->request && !locked)
        return hly_mpi_fail(MPI_ERR_RMA_SYNC,
                            "%s: the window is not locked: call MPI_Win_lock or MPI_Win_lock_all",
                            c->function);
    if (locked)
        return MPI_SUCCESS;
    if (epoch == HLY_MPI_STARTED && (c->rank < 0 || access & HLY_MPI_HAS_START))
        return MPI_SUCCESS;
    if (epoch == HLY_MPI_FENCED) {
        __atomic_store_n(&win->used, true, __ATOMIC_RELAXED);
        return MPI_SUCCESS;
    }
    if (epoch == HLY_MPI_NO_EPOCH)
        return hly_mpi_fail(MPI_ERR_RMA_SYNC,
                            "%s: no epoch is open: call MPI_Win_fence, MPI_Win_start or "
                            "MPI_Win_lock first",
                            c->function);
    return hly_mpi_fail(MPI_ERR_RMA_SYNC, "%s: the epoch does not include rank %d", c->function,
                        c->rank);
}

static int check_range(const struct call *c, int64_t *disp)
{
    const struct hly_mpi_win *win = c->win;
    const struct hly_mpi_win_peer *peer = &win->peers[c->rank];
    const struct hly_mpi_type *type = c->target_type;
    const bool dynamic = win->flavor == MPI_WIN_FLAVOR_DYNAMIC;
    const __int128 at = (__int128)c->disp * (dynamic ? 1 : peer->disp_unit),
                   first = at + type->true_lb,
                   span = (__int128)(c->target_count - 1) * type->extent,
                   low = span < 0 ? first + span : first,
                   high = (span < 0 ? first : first + span) + type->true_extent;
    *disp = (int64_t)at;
    if (!c->target_count || !type->size)
        return MPI_SUCCESS;
    if (at != *disp || high > INT64_MAX || low < INT64_MIN ||
        (!dynamic && (low < 0 || high > peer->size)))
        return hly_mpi_fail(
            MPI_ERR_RMA_RANGE,
            "%s: %lld bytes at displacement %lld: the window of rank %d has %lld bytes, and units "
            "of %lld",
            c->function, (long long)(high - low), (long long)c->disp, c->rank,
            (long long)peer->size, (long long)peer->disp_unit);
    return MPI_SUCCESS;
}

static int basic_of(const struct hly_mpi_type *type)
{
    return type->made->shape.unit;
}

static bool same_basic(int a, int b)
{
    const struct hly_mpi_named *x = &hly_mpi_named[a], *y = &hly_mpi_named[b];
    return a == b || (x->of_class != HLY_MPI_PAIR && y->of_class != HLY_MPI_PAIR &&
                      x->size == y->size && x->format == y->format);
}

/* The operation of an accumulate, and its elements. */
static int check_op(const struct call *c, struct hly_mpi_order *order)
{
    const int basic = basic_of(c->target_type);
    order->op = c->op ? c->op->head.handle : 0;
    order->basic = (int16_t)basic;
    if (!c->op || !c->op->predefined)
        return hly_mpi_fail(MPI_ERR_OP, "%s: the operation has to be a predefined one",
                            c->function);
    if (!c->target_type->size || !c->target_count)
        return MPI_SUCCESS;
    if (basic < 0)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the target's datatype has elements of several types",
                            c->function);
    if (order->op == HLY_MPI_NO_OP)
        return MPI_SUCCESS;
    if (c->origin.type->size &&
        (basic_of(c->origin.type) < 0 || !same_basic(basic, basic_of(c->origin.type))))
        return hly_mpi_fail(MPI_ERR_TYPE,
                            "%s: the datatypes of origin and target have different elements",
                            c->function);
    if (order->op != HLY_MPI_REPLACE && !hly_mpi_op_kernel(order->op, basic))
        return hly_mpi_fail(MPI_ERR_OP, "%s: the operation does not take %s", c->function,
                            hly_mpi_named[basic].name);
    return MPI_SUCCESS;
}

static int check_side(const struct call *c, const struct side *side)
{
    int rc = hly_mpi_check_data(c->function, side->buffer, side->count, side->type);
    if (!rc && side->buffer == MPI_IN_PLACE)
        rc = hly_mpi_fail(MPI_ERR_BUFFER, "%s: MPI_IN_PLACE is no buffer here", c->function);
    return rc;
}

/* *total: bytes to move. */
static int check_sizes(const struct call *c, int64_t *total)
{
    const int64_t target = c->target_count * c->target_type->size,
                  origin = c->origin.type ? c->origin.count * c->origin.type->size : target;
    *total = origin;
    if (origin <= target && (!c->result.type || c->result.count * c->result.type->size >= origin))
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_TRUNCATE,
                        "%s: the data do not fit: the origin's arguments have %lld bytes, the "
                        "target's %lld%s",
                        c->function, (long long)origin, (long long)target,
                        c->result.type ? ", and the result's buffer is too short, or long enough"
                                       : "");
}

static int check_rank(const struct call *c)
{
    int rc = hly_mpi_check_win(c->function, c->win);
    if (!rc && c->rank != MPI_PROC_NULL && (c->rank < 0 || c->rank >= c->win->comm->size))
        rc = hly_mpi_fail(MPI_ERR_RANK, "%s: there is no rank %d: the window has ranks 0 to %d",
                          c->function, c->rank, c->win->comm->size - 1);
    return rc ? rc : check_epoch(c);
}

static int check(struct call *c, struct maker *m)
{
    /* The datatype of the target is checked as if its data began at an address that is valid. */
    void *const somewhere = (void *)(uintptr_t)(INT64_MAX / 2);
    int rc = check_rank(c);
    const bool no_op = c->op && c->op->predefined && c->op->head.handle == HLY_MPI_NO_OP;
    if (no_op)
        c->origin = (struct side){0};
    if (!rc && !no_op && c->what != HLY_MPI_GET)
        rc = check_side(c, &c->origin);
    if (!rc && fetches(c->what))
        rc = check_side(c, &c->result);
    if (!rc)
        rc = hly_mpi_check_data(c->function, somewhere, c->target_count, c->target_type);
    if (!rc && (c->what == HLY_MPI_ACCUMULATE || c->what == HLY_MPI_GET_ACCUMULATE))
        rc = check_op(c, &m->order);
    if (!rc)
        rc = check_sizes(c, &m->total);
    if (!rc && c->rank >= 0)
        rc = check_range(c, &m->order.disp);
    return rc;
}

static int begin(struct call *c)
{
    struct hly_mpi_request *r = NULL;
    struct maker m;
    memset(&m, 0, offsetof(struct maker, runs));
    m.c = c;
    m.order.what = (uint8_t)c->what;
    m.order.basic = HLY_MPI_NONE;
    int rc = check(c, &m);
    if (!rc && c->request)
        rc = hly_mpi_gather_make(c->function, c->win, &r);
    if (rc)
        return rc;
    if (r)
        m.gather = r->kept;
    if (c->rank >= 0 && m.total) {
        m.near = c->win->peers[c->rank].near || c->rank == c->win->comm->rank;
        rc = make_parts(&m);
    }
    if (rc && r) /* what was sent before is awaited by the request, which nobody gets */
        while (!r->is_done(r))
            hly_mpi_progress();
    if (rc && r)
        hly_mpi_request_drop(r);
    else if (r)
        *c->request = r;
    return rc;
}

/* ---------------------------------------------------------------- calls of MPI */

/* A call that concerns these elements of the target. */
static struct call to(const char *function, struct hly_mpi_win *win, int rank, int64_t disp,
                      int64_t count, struct hly_mpi_type *type, const struct hly_mpi_op *op,
                      struct hly_mpi_request **request)
{
    return (struct call){.function = function,
                         .win = win,
                         .rank = rank,
                         .disp = disp,
                         .target_count = count,
                         .target_type = type,
                         .op = op,
                         .request = request};
}

static int put(struct call c, const void *origin, int64_t count, struct hly_mpi_type *type)
{
    c.what = HLY_MPI_PUT;
    c.origin = (struct side){(void *)(uintptr_t)origin, count, type};
    return begin(&c);
}

int hly_mpi_put(const void *origin_addr, int64_t origin_count, struct hly_mpi_type *origin_datatype,
                int target_rank, int64_t target_disp, int64_t target_count,
                struct hly_mpi_type *target_datatype, struct hly_mpi_win *win)
{
    return put(
        to("MPI_Put", win, target_rank, target_disp, target_count, target_datatype, NULL, NULL),
        origin_addr, origin_count, origin_datatype);
}

int hly_mpi_rput(const void *origin_addr, int64_t origin_count,
                 struct hly_mpi_type *origin_datatype, int target_rank, int64_t target_disp,
                 int64_t target_count, struct hly_mpi_type *target_datatype,
                 struct hly_mpi_win *win, struct hly_mpi_request **request)
{
    return put(
        to("MPI_Rput", win, target_rank, target_disp, target_count, target_datatype, NULL, request),
        origin_addr, origin_count, origin_datatype);
}

static int get(struct call c, void *result, int64_t count, struct hly_mpi_type *type)
{
    c.what = HLY_MPI_GET;
    c.result = (struct side){result, count, type};
    return begin(&c);
}

int hly_mpi_get(void *origin_addr, int64_t origin_count, struct hly_mpi_type *origin_datatype,
                int target_rank, int64_t target_disp, int64_t target_count,
                struct hly_mpi_type *target_datatype, struct hly_mpi_win *win)
{
    return get(
        to("MPI_Get", win, target_rank, target_disp, target_count, target_datatype, NULL, NULL),
        origin_addr, origin_count, origin_datatype);
}

int hly_mpi_rget(void *origin_addr, int64_t origin_count, struct hly_mpi_type *origin_datatype,
                 int target_rank, int64_t target_disp, int64_t target_count,
                 struct hly_mpi_type *target_datatype, struct hly_mpi_win *win,
                 struct hly_mpi_request **request)
{
    return get(
        to("MPI_Rget", win, target_rank, target_disp, target_count, target_datatype, NULL, request),
        origin_addr, origin_count, origin_datatype);
}

static int accumulate(struct call c, const void *origin, int64_t count, struct hly_mpi_type *type,
                      struct side result)
{
    c.origin = (struct side){(void *)(uintptr_t)origin, count, type};
    c.result = result;
    c.what = result.type ? HLY_MPI_GET_ACCUMULATE : HLY_MPI_ACCUMULATE;
    return begin(&c);
}

int hly_mpi_accumulate(const void *origin_addr, int64_t origin_count,
                       struct hly_mpi_type *origin_datatype, int target_rank, int64_t target_disp,
                       int64_t target_count, struct hly_mpi_type *target_datatype,
                       struct hly_mpi_op *op, struct hly_mpi_win *win)
{
    return accumulate(to("MPI_Accumulate", win, target_rank, target_disp, target_count,
                         target_datatype, op, NULL),
                      origin_addr, origin_count, origin_datatype, (struct side){0});
}

int hly_mpi_raccumulate(const void *origin_addr, int64_t origin_count,
                        struct hly_mpi_type *origin_datatype, int target_rank, int64_t target_disp,
                        int64_t target_count, struct hly_mpi_type *target_datatype,
                        struct hly_mpi_op *op, struct hly_mpi_win *win,
                        struct hly_mpi_request **request)
{
    return accumulate(to("MPI_Raccumulate", win, target_rank, target_disp, target_count,
                         target_datatype, op, request),
                      origin_addr, origin_count, origin_datatype, (struct side){0});
}

static int get_accumulate(struct call c, const void *origin, int64_t count,
                          struct hly_mpi_type *type, struct side result)
{
    if (!result.type)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the result's datatype is MPI_DATATYPE_NULL",
                            c.function);
    return accumulate(c, origin, count, type, result);
}

int hly_mpi_get_accumulate(const void *origin_addr, int64_t origin_count,
                           struct hly_mpi_type *origin_datatype, void *result_addr,
                           int64_t result_count, struct hly_mpi_type *result_datatype,
                           int target_rank, int64_t target_disp, int64_t target_count,
                           struct hly_mpi_type *target_datatype, struct hly_mpi_op *op,
                           struct hly_mpi_win *win)
{
    return get_accumulate(to("MPI_Get_accumulate", win, target_rank, target_disp, target_count,
                             target_datatype, op, NULL),
                          origin_addr, origin_count, origin_datatype,
                          (struct side){result_addr, result_count, result_datatype});
}

int hly_mpi_rget_accumulate(const void *origin_addr, int64_t origin_count,
                            struct hly_mpi_type *origin_datatype, void *result_addr,
                            int64_t result_count, struct hly_mpi_type *result_datatype,
                            int target_rank, int64_t target_disp, int64_t target_count,
                            struct hly_mpi_type *target_datatype, struct hly_mpi_op *op,
                            struct hly_mpi_win *win, struct hly_mpi_request **request)
{
    return get_accumulate(to("MPI_Rget_accumulate", win, target_rank, target_disp, target_count,
                             target_datatype, op, request),
                          origin_addr, origin_count, origin_datatype,
                          (struct side){result_addr, result_count, result_datatype});
}

int hly_mpi_fetch_and_op(const void *origin_addr, void *result_addr, struct hly_mpi_type *datatype,
                         int target_rank, int64_t target_disp, struct hly_mpi_op *op,
                         struct hly_mpi_win *win)
{
    const struct call c =
        to("MPI_Fetch_and_op", win, target_rank, target_disp, 1, datatype, op, NULL);
    if (!datatype || hly_mpi_type_named(datatype) < 0)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the datatype has to be a predefined one",
                            c.function);
    return accumulate(c, origin_addr, 1, datatype, (struct side){result_addr, 1, datatype});
}

int hly_mpi_compare_and_swap(const void *origin_addr, const void *compare_addr, void *result_addr,
                             struct hly_mpi_type *datatype, int target_rank, int64_t target_disp,
                             struct hly_mpi_win *win)
{
    char both[64];
    const int place = datatype ? hly_mpi_type_named(datatype) : -1;
    const int of = place < 0 ? HLY_MPI_TEXT : hly_mpi_named[place].of_class;
    struct call c =
        to("MPI_Compare_and_swap", win, target_rank, target_disp, 1, datatype, NULL, NULL);
    c.what = HLY_MPI_SWAP;
    c.result = (struct side){result_addr, 1, datatype};
    if (of != HLY_MPI_C_INTEGER && of != HLY_MPI_FORTRAN_INTEGER && of != HLY_MPI_MULTI &&
        of != HLY_MPI_LOGIC && of != HLY_MPI_BYTES)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the datatype has to be an integer, logical or byte",
                            c.function);
    c.origin = (struct side){(void *)(uintptr_t)origin_addr, 1, datatype};
    int rc = check_side(&c, &c.origin);
    c.origin.buffer = (void *)(uintptr_t)compare_addr;
    rc = rc ? rc : check_side(&c, &c.origin);
    if (rc)
        return rc;
    memcpy(both, compare_addr, (size_t)datatype->size);
    memcpy(both + datatype->size, origin_addr, (size_t)datatype->size);
    c.origin.buffer = both;
    return begin(&c);
}
