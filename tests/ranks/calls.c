/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#include <string.h>

#include "reference.h"

#define GUARD 64

static const struct {
    const char *name;
    halay_collective_t collective;
} kinds[CALL_KINDS] = {
    [CALL_REDUCE] = {"reduce", HALAY_REDUCE},
    [CALL_GATHER] = {"gather", HALAY_GATHER},
    [CALL_GATHERV] = {"gatherv", HALAY_GATHER},
    [CALL_SCATTER] = {"scatter", HALAY_SCATTER},
    [CALL_SCATTERV] = {"scatterv", HALAY_SCATTER},
    [CALL_REDUCE_SCATTERV] = {"reduce_scatterv", HALAY_REDUCE_SCATTER},
    [CALL_ALLTOALL] = {"alltoall", HALAY_ALLTOALL},
    [CALL_ALLTOALLV] = {"alltoallv", HALAY_ALLTOALL},
    [CALL_SCAN] = {"scan", HALAY_SCAN},
    [CALL_EXSCAN] = {"exscan", HALAY_EXSCAN},
    [CALL_SEND] = {"send", HALAY_BROADCAST},
};

const char *call_name(enum call_kind kind)
{
    return kinds[kind].name;
}

halay_collective_t call_collective(enum call_kind kind)
{
    return kinds[kind].collective;
}

bool call_is_vector(enum call_kind kind)
{
    return kind == CALL_GATHERV || kind == CALL_SCATTERV || kind == CALL_REDUCE_SCATTERV ||
           kind == CALL_ALLTOALLV;
}

bool call_is_rooted(enum call_kind kind)
{
    return kind == CALL_REDUCE || kind == CALL_GATHER || kind == CALL_GATHERV ||
           kind == CALL_SCATTER || kind == CALL_SCATTERV;
}

bool call_reduces(enum call_kind kind)
{
    return halay_collective_reduces(kinds[kind].collective);
}

/* ---------------------------------------------------------------- buffers */

static char *guarded(size_t bytes, int fill)
{
    char *b = malloc(bytes + 2 * GUARD);
    CHECK(b, "no memory");
    memset(b, fill, bytes + 2 * GUARD);
    return b + GUARD;
}

/* Before the input is written. */
static void take(struct call *c, size_t in_elements, size_t out_elements)
{
    size_t e = halay_type_bytes(c->type);
    c->in_bytes = in_elements * e;
    c->out_bytes = c->certain = out_elements * e;
    c->in = guarded(c->in_bytes, 0xa5);
    c->in_was = guarded(c->in_bytes, 0xa5);
    c->out = guarded(c->out_bytes, 0x5a);
    c->want = guarded(c->out_bytes, 0x5a);
}

/* The input goes to `at` elements in its buffer: elements [first, first + n) of rank's data. */
static void input(struct call *c, size_t at, size_t first, size_t n)
{
    size_t e = halay_type_bytes(c->type);
    char *to = c->in_place ? c->out : c->in;
    for (size_t i = 0; i < n; i++)
        reference_input(c->type, c->op, c->rank->rank, first + i, c->salt, to + (at + i) * e);
}

/* The same expected in the output, of any rank. */
static void moved(struct call *c, size_t at, int rank, size_t first, size_t n)
{
    size_t e = halay_type_bytes(c->type);
    for (size_t i = 0; i < n; i++)
        reference_input(c->type, c->op, rank, first + i, c->salt, c->want + (at + i) * e);
}

static void reduced(struct call *c, int nranks, size_t first, size_t n)
{
    size_t e = halay_type_bytes(c->type);
    for (size_t i = 0; i < n; i++)
        reference_result(c->type, c->op, nranks, first + i, c->salt, c->want + i * e);
}

static char *move_there(const struct call *c, const char *here, size_t bytes)
{
    char *there = ranks_there_take(c->rank->context, bytes + 2 * GUARD);
    ranks_there_put(there, here - GUARD, bytes + 2 * GUARD);
    return there + GUARD;
}

static char *move_here(const struct call *c, char *here, char *there, size_t bytes)
{
    ranks_there_get(here - GUARD, there - GUARD, bytes + 2 * GUARD);
    ranks_there_drop(c->rank->context, there - GUARD);
    return here;
}

/* Call it when the input is complete: what is not a result must stay as it is. */
static void keep(struct call *c)
{
    memcpy(c->in_was, c->in, c->in_bytes);
    memcpy(c->want, c->out, c->out_bytes);
    if (!ranks_there(c->rank->context))
        return;
    c->here_in = c->in;
    c->here_out = c->out;
    c->in = move_there(c, c->in, c->in_bytes);
    c->out = move_there(c, c->out, c->out_bytes);
}

static void post(struct call *c, int rc)
{
    CHECK(rc == 0, "rank %d of %d: %s of %zu %s: %s", c->rank->rank, c->rank->nranks,
          call_name(c->kind), c->count, halay_type_name(c->type), halay_strerror(rc));
    if (!c->blocking)
        c->nrequests++;
}

#define CALL(c, name, ...)                                                                         \
    post(c, (c)->blocking ? halay_##name(__VA_ARGS__, (c)->comm)                                   \
                          : halay_i##name(__VA_ARGS__, (c)->comm, &(c)->request[(c)->nrequests]))

/* ---------------------------------------------------------------- the calls */

static void reduce(struct call *c)
{
    int me = c->rank->rank;
    bool root = me == c->root;
    c->in_place = c->in_place && root;
    take(c, c->count, root ? c->count : 0);
    input(c, 0, 0, c->count);
    keep(c);
    if (root)
        reduced(c, c->rank->nranks, 0, c->count);
    CALL(c, reduce, c->in_place ? HALAY_IN_PLACE : c->in, root ? c->out : NULL, c->count, c->type,
         c->op, c->root);
}

static void scan(struct call *c)
{
    int me = c->rank->rank;
    take(c, c->count, c->count);
    input(c, 0, 0, c->count);
    keep(c);
    if (c->kind == CALL_SCAN || me > 0)
        reduced(c, c->kind == CALL_SCAN ? me + 1 : me, 0, c->count);
    const void *in = c->in_place ? HALAY_IN_PLACE : c->in;
    if (c->kind == CALL_SCAN)
        CALL(c, scan, in, c->out, c->count, c->type, c->op);
    else
        CALL(c, exscan, in, me || c->in_place ? c->out : NULL, c->count, c->type, c->op);
}

/* Some blocks are empty, all are in reverse order with gaps of one element. Returns the extent. */
static size_t uneven(const struct call *c, size_t counts[], size_t displs[])
{
    size_t at = 0;
    for (int k = c->rank->nranks - 1; k >= 0; k--) {
        counts[k] = !call_is_vector(c->kind) ? c->count : k % 3 == 1 ? 0 : c->count + (size_t)k;
        displs[k] = call_is_vector(c->kind) ? at : c->count * (size_t)k;
        at += counts[k] + 1;
    }
    return call_is_vector(c->kind) ? at : c->count * (size_t)c->rank->nranks;
}

/* Where blocks stand at the root: elsewhere it is not read, as in MPI. */
static const size_t *not_read(const struct call *c)
{
    static const size_t zeros[RANKS_MAX];
    static const size_t beyond[RANKS_MAX] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    return c->salt % 3 == 0 ? NULL : c->salt % 3 == 1 ? zeros : beyond;
}

static void gather(struct call *c)
{
    int me = c->rank->rank;
    bool root = me == c->root;
    size_t counts[RANKS_MAX], displs[RANKS_MAX], all = uneven(c, counts, displs);
    c->in_place = c->in_place && root;
    take(c, counts[me], root ? all : 0);
    input(c, c->in_place ? displs[me] : 0, 0, counts[me]);
    keep(c);
    for (int k = 0; root && k < c->rank->nranks; k++)
        moved(c, displs[k], k, 0, counts[k]);
    const void *in = c->in_place ? HALAY_IN_PLACE : c->in;
    void *out = root ? c->out : NULL;
    if (c->kind == CALL_GATHER)
        CALL(c, gather, in, out, c->count, c->type, c->root);
    else
        CALL(c, gatherv, in, out, counts, root ? displs : not_read(c), c->type, c->root);
}

static void scatter(struct call *c)
{
    int me = c->rank->rank;
    bool root = me == c->root;
    size_t counts[RANKS_MAX], displs[RANKS_MAX], all = uneven(c, counts, displs);
    c->in_place = c->in_place && root;
    take(c, root ? all : 0, c->in_place ? all : counts[me]);
    for (int k = 0; root && k < c->rank->nranks; k++)
        input(c, displs[k], (size_t)k * 100, counts[k]);
    keep(c);
    moved(c, c->in_place ? displs[me] : 0, c->root, (size_t)me * 100, counts[me]);
    const void *in = c->in_place ? HALAY_IN_PLACE : root ? c->in : NULL;
    void *out = c->out;
    if (c->in_place && c->salt % 2) { /* as in MPI */
        in = c->out;
        out = (void *)(uintptr_t)HALAY_IN_PLACE;
    }
    if (c->kind == CALL_SCATTER)
        CALL(c, scatter, in, out, c->count, c->type, c->root);
    else
        CALL(c, scatterv, in, out, counts, root ? displs : not_read(c), c->type, c->root);
}

static void reduce_scatterv(struct call *c)
{
    int me = c->rank->rank;
    size_t counts[RANKS_MAX], ignored[RANKS_MAX], all = 0, before = 0;
    uneven(c, counts, ignored);
    for (int k = 0; k < c->rank->nranks; k++) {
        before += k < me ? counts[k] : 0;
        all += counts[k];
    }
    take(c, all, c->in_place ? all : counts[me]);
    input(c, 0, 0, all);
    keep(c);
    reduced(c, c->rank->nranks, before, counts[me]);
    c->certain = counts[me] * halay_type_bytes(c->type);
    CALL(c, reduce_scatterv, c->in_place ? HALAY_IN_PLACE : c->in, c->out, counts, c->type, c->op);
}

static void alltoall(struct call *c)
{
    int n = c->rank->nranks, me = c->rank->rank;
    size_t count = c->count, all = count * (size_t)n;
    take(c, all, all);
    input(c, 0, 0, all);
    keep(c);
    for (int s = 0; s < n; s++)
        moved(c, (size_t)s * count, s, (size_t)me * count, count);
    CALL(c, alltoall, c->in_place ? HALAY_IN_PLACE : c->in, c->out, count, c->type);
}

/* How much goes from one rank to another: the same both ways in place. */
static size_t between(const struct call *c, int from, int to)
{
    int x = c->in_place ? (from + to) * 2 + from * to : from * 5 + to * 3;
    return x % 4 == 3 ? 0 : x % 2 ? c->count : c->count / 3 + (size_t)x;
}

static void alltoallv(struct call *c)
{
    int n = c->rank->nranks, me = c->rank->rank;
    size_t counts[2][RANKS_MAX], displs[2][RANKS_MAX], at[2] = {0, 0};
    for (int k = n - 1; k >= 0; k--) {
        counts[0][k] = between(c, me, k);
        counts[1][k] = between(c, k, me);
        for (int i = 0; i < 2; i++) {
            displs[i][k] = at[i];
            at[i] += counts[i][k] + 1;
        }
    }
    take(c, at[0], at[1]);
    for (int k = 0; k < n; k++)
        input(c, displs[0][k], (size_t)k * 1000, counts[0][k]);
    keep(c);
    for (int k = 0; k < n; k++)
        moved(c, displs[1][k], k, (size_t)me * 1000, counts[1][k]);
    CALL(c, alltoallv, c->in_place ? HALAY_IN_PLACE : c->in, c->in_place ? NULL : counts[0],
         c->in_place ? NULL : displs[0], c->out, counts[1], displs[1], c->type);
}

/* Round a ring. Blocking: even ranks send first; an odd last one receives last. */
static void send_and_receive(struct call *c)
{
    int n = c->rank->nranks, me = c->rank->rank, next = (me + 1) % n, before = (me + n - 1) % n;
    c->in_place = false;
    take(c, c->count, c->count);
    input(c, 0, 0, c->count);
    keep(c);
    if (n == 1)
        return;
    moved(c, 0, before, 0, c->count);
    if (me % 2 == 0)
        CALL(c, send, c->in, c->count, c->type, next);
    CALL(c, recv, c->out, c->count, c->type, before);
    if (me % 2)
        CALL(c, send, c->in, c->count, c->type, next);
}

void call_start(struct call *c, struct rank *r, halay_comm_t *comm, uint64_t salt)
{
    static void (*const start[CALL_KINDS])(struct call *) = {
        [CALL_REDUCE] = reduce,
        [CALL_GATHER] = gather,
        [CALL_GATHERV] = gather,
        [CALL_SCATTER] = scatter,
        [CALL_SCATTERV] = scatter,
        [CALL_REDUCE_SCATTERV] = reduce_scatterv,
        [CALL_ALLTOALL] = alltoall,
        [CALL_ALLTOALLV] = alltoallv,
        [CALL_SCAN] = scan,
        [CALL_EXSCAN] = scan,
        [CALL_SEND] = send_and_receive,
    };
    c->rank = r;
    c->comm = comm;
    c->salt = salt;
    c->nrequests = 0;
    start[c->kind](c);
}

static void compare(const struct call *c, const char *what, const char *got, const char *want,
                    size_t bytes, size_t certain)
{
    for (size_t i = 0; i < bytes + 2 * GUARD; i++) {
        size_t at = i - GUARD; /* wraps in the guard before: larger than bytes */
        if (at >= certain && at < bytes)
            continue;
        CHECK(got[at] == want[at],
              "rank %d of %d: %s of %zu %s, %s, root %d%s: byte %td of %zu of the %s is %02x, not "
              "%02x",
              c->rank->rank, c->rank->nranks, call_name(c->kind), c->count,
              halay_type_name(c->type), halay_op_name(c->op), c->root,
              c->in_place ? ", in place" : "", (ptrdiff_t)at, bytes, what, got[at] & 0xff,
              want[at] & 0xff);
    }
}

void call_finish(struct call *c)
{
    for (int i = 0; i < c->nrequests; i++) {
        int rc = halay_request_wait(c->request[i]);
        CHECK(rc == 0, "%s: %s", call_name(c->kind), halay_strerror(rc));
    }
    if (ranks_there(c->rank->context)) {
        c->in = move_here(c, c->here_in, c->in, c->in_bytes);
        c->out = move_here(c, c->here_out, c->out, c->out_bytes);
    }
    compare(c, "output", c->out, c->want, c->out_bytes, c->certain);
    compare(c, "input", c->in, c->in_was, c->in_bytes, c->in_bytes);
    free(c->in - GUARD);
    free(c->in_was - GUARD);
    free(c->out - GUARD);
    free(c->want - GUARD);
}
