/* SPDX-License-Identifier: Apache-2.0 */
#include "program_calls.h"

#include <math.h>
#include <string.h>

#include "reference.h"

#define GUARD 64
#define PERIOD                                                                                     \
    1021 /* data repeat after so many units: a prime, so that no block lines up with it */

static const char *const names[] = {
    "allreduce",       "allreduce_scaled", "broadcast", "allgather", "allgatherv", "reduce_scatter",
    "reduce_scatterv", "reduce",           "scan",      "exscan",    "gather",     "gatherv",
    "scatter",         "scatterv",         "alltoall",  "alltoallv", "barrier",    "send"};

const char *pkind_name(enum pkind kind)
{
    return names[kind];
}

bool pkind_reduces(enum pkind kind)
{
    return kind <= P_SCALED || (kind >= P_REDUCE_SCATTER && kind <= P_EXSCAN);
}

bool pkind_rooted(enum pkind kind)
{
    return kind == P_BROADCAST || kind == P_REDUCE || (kind >= P_GATHER && kind <= P_SCATTERV);
}

uint64_t pmix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    return hash ^ (hash >> 29);
}

/* ---------------------------------------------------------------- data */

void pcall_multiply(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                    const void *right)
{
    const uint32_t *a = left, *b = right;
    uint32_t *c = dst;
    CHECK(!arg && type == HALAY_UINT32 && count % 4 == 0, "%zu elements", count);
    for (size_t i = 0; i < count; i += 4, a += 4, b += 4, c += 4) {
        c[0] = a[0] * b[0] + a[1] * b[2];
        c[1] = a[0] * b[1] + a[1] * b[3];
        c[2] = a[2] * b[0] + a[3] * b[2];
        c[3] = a[2] * b[1] + a[3] * b[3];
    }
}

void pcall_merge(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                 const void *right)
{
    const uint32_t *a = left, *b = right;
    uint32_t *c = dst;
    CHECK(!arg && type == HALAY_UINT32, "%zu elements", count);
    for (size_t i = 0; i < count; i++)
        c[i] = a[i] + b[i];
}

static size_t unit_elements(const struct pcall *c)
{
    return c->data == P_MATRIX ? 4 : 1;
}

/* Between 1/2 and 2, of either sign, with all bits of the fraction: a type's own bits. */
static void rounding(halay_type_t type, int rank, size_t i, uint64_t salt, void *to)
{
    uint64_t state = salt * 1000003 + (uint64_t)rank * 7919 + i;
    const uint64_t h = ranks_random(&state), sign = h >> 63, low = h >> 62 & 1;
    const uint16_t half = (uint16_t)(sign << 15 | (14 + low) << 10 | (h & 0x3ff));
    const uint16_t brain = (uint16_t)(sign << 15 | (126 + low) << 7 | (h & 0x7f));
    const uint32_t single = (uint32_t)(sign << 31 | (126 + low) << 23 | (h & 0x7fffff));
    const uint64_t twice = sign << 63 | (1022 + low) << 52 | (h & 0xfffffffffffffull);
    memcpy(to,
           type == HALAY_FLOAT16    ? (const void *)&half
           : type == HALAY_BFLOAT16 ? (const void *)&brain
           : type == HALAY_FLOAT32  ? (const void *)&single
                                    : (const void *)&twice,
           halay_type_bytes(type));
}

static double decoded(halay_type_t type, const void *from)
{
    uint32_t bits = 0;
    float f;
    double d;
    if (type == HALAY_FLOAT64) {
        memcpy(&d, from, sizeof(d));
        return d;
    }
    if (type == HALAY_FLOAT16) {
        _Float16 h;
        memcpy(&h, from, sizeof(h));
        return (double)h;
    }
    memcpy((char *)&bits + (type == HALAY_BFLOAT16 ? 2 : 0), from, halay_type_bytes(type));
    memcpy(&f, &bits, sizeof(f));
    return (double)f;
}

typedef void generator(const struct pcall *c, int who, size_t unit, char *to);

static void unit_of(const struct pcall *c, int rank, size_t unit, char *to)
{
    const size_t n = unit_elements(c), e = halay_type_bytes(c->type);
    if (c->data == P_ROUNDS)
        rounding(c->type, rank, unit, c->salt, to);
    else
        for (size_t i = 0; i < n; i++)
            reference_input(c->type, c->op, rank, unit * n + i, c->salt, to + i * e);
}

/* Of the first `upto` ranks. */
static void unit_reduced(const struct pcall *c, int upto, size_t unit, char *to)
{
    if (c->data == P_MATRIX) {
        char sum[16], next[16];
        unit_of(c, 0, unit, to);
        for (int k = 1; k < upto; k++) {
            memcpy(sum, to, 16);
            unit_of(c, k, unit, next);
            pcall_multiply(NULL, c->type, 4, to, sum, next);
        }
    } else if (c->data != P_ROUNDS) {
        reference_result(c->type, c->op, upto, unit, c->salt, to);
        if (c->kind == P_SCALED)
            CHECK(!halay_scale(to, to, 1, c->type, c->prescale * c->postscale), "scale");
    }
}

/* Elements [first, first + n) of a vector. */
static void put(const struct pcall *c, generator *make, int who, char *to, size_t first, size_t n)
{
    const size_t unit = unit_elements(c), bytes = unit * halay_type_bytes(c->type);
    const size_t units = n / unit, from = first / unit;
    char *table = NULL;
    CHECK(n % unit == 0 && first % unit == 0, "parts of groups");
    if (units > PERIOD) {
        table = malloc(PERIOD * bytes);
        CHECK(table, "no memory");
        for (size_t u = 0; u < PERIOD; u++)
            make(c, who, u, table + u * bytes);
    }
    for (size_t u = 0; u < units; u++) {
        if (table)
            memcpy(to + u * bytes, table + (from + u) % PERIOD * bytes, bytes);
        else
            make(c, who, (from + u) % PERIOD, to + u * bytes);
    }
    free(table);
}

static void input(struct pcall *c, size_t at, size_t first, size_t n)
{
    const size_t e = halay_type_bytes(c->type);
    put(c, unit_of, c->team->me, (c->in_place ? c->out : c->in) + at * e, first, n);
}

static void moved(struct pcall *c, size_t at, int who, size_t first, size_t n)
{
    put(c, unit_of, who, c->want + at * halay_type_bytes(c->type), first, n);
}

static void reduced(struct pcall *c, int upto, size_t first, size_t n)
{
    if (c->data != P_ROUNDS)
        put(c, unit_reduced, upto, c->want, first, n);
}

/* ---------------------------------------------------------------- layout */

static bool is_vector(enum pkind kind)
{
    return kind == P_ALLGATHERV || kind == P_GATHERV || kind == P_SCATTERV ||
           kind == P_REDUCE_SCATTERV;
}

static size_t between(const struct pcall *c, int from, int to) /* the same both ways in place */
{
    int x = c->in_place ? (from + to) * 2 + from * to : from * 5 + to * 3;
    return c->kind == P_ALLTOALL ? c->count : x % 4 == 3 ? 0 : c->count / 2 + (size_t)(x % 7);
}

/* counts and displs of the blocks of OUT (scatter: of IN); from: those of IN of an alltoall.
 * Vectors have empty blocks, lie in reverse order, and have gaps of an element. */
static size_t blocks(struct pcall *c)
{
    const int n = c->team->n, me = c->team->me;
    const bool exchange = c->kind == P_ALLTOALL || c->kind == P_ALLTOALLV;
    const bool vector = is_vector(c->kind) || c->kind == P_ALLTOALLV;
    size_t at = 0, from_at = 0;
    for (int k = n - 1; k >= 0; k--) {
        c->counts[k] = exchange ? between(c, k, me)
                       : vector ? (k % 3 == 1 ? 0 : c->count + (size_t)k)
                                : c->count;
        c->from[k] = exchange ? between(c, me, k) : 0;
        c->displs[k] = vector ? at : (size_t)k * c->count;
        c->from_displs[k] = vector ? from_at : (size_t)k * c->count;
        at += c->counts[k] + vector;
        from_at += c->from[k] + vector;
    }
    return at;
}

static void sizes(struct pcall *c, size_t *in, size_t *out)
{
    const int n = c->team->n, me = c->team->me;
    const size_t all = blocks(c);
    const bool root = me == c->root;
    *in = *out = c->count;
    if (c->kind == P_BARRIER) {
        *in = *out = 0;
    } else if (c->kind == P_BROADCAST) {
        *in = 0;
    } else if (c->kind == P_SEND) {
        *in = root ? c->count : 0;
        *out = me == c->peer ? c->count : 0;
    } else if (c->kind == P_REDUCE) {
        *out = root ? c->count : 0;
    } else if (c->kind == P_ALLGATHER || c->kind == P_ALLGATHERV) {
        *in = c->counts[me];
        *out = all;
    } else if (c->kind == P_GATHER || c->kind == P_GATHERV) {
        *in = c->counts[me];
        *out = root ? all : 0;
    } else if (c->kind == P_SCATTER || c->kind == P_SCATTERV) {
        *in = root ? all : 0;
        *out = c->in_place ? all : c->counts[me];
    } else if (c->kind == P_ALLTOALL || c->kind == P_ALLTOALLV) {
        *out = all;
        *in = c->from_displs[0] + c->from[0] + 1;
        if (c->kind == P_ALLTOALL)
            *in = all;
    } else if (c->kind == P_REDUCE_SCATTER || c->kind == P_REDUCE_SCATTERV) {
        *in = 0;
        for (int k = 0; k < n; k++)
            *in += c->counts[k];
        *out = c->in_place ? *in : c->counts[me];
    }
}

static char *guarded(size_t bytes)
{
    char *b = malloc(bytes + 2 * GUARD);
    CHECK(b, "no memory");
    return b + GUARD;
}

void pcall_make(struct pcall *c, halay_context_t *context, const struct pteam *team)
{
    const bool at_root = c->kind == P_REDUCE || (c->kind >= P_GATHER && c->kind <= P_SCATTERV);
    size_t in, out;
    c->team = team;
    c->context = context;
    if ((at_root && team->me != c->root) || c->kind == P_BARRIER || c->kind == P_SEND)
        c->in_place = false;
    if (c->kind == P_BROADCAST)
        c->in_place = true; /* of this program: its input stands in `out` */
    sizes(c, &in, &out);
    c->in_bytes = in * halay_type_bytes(c->type);
    c->out_bytes = c->certain = out * halay_type_bytes(c->type);
    const size_t behind = (c->in_bytes + 2 * GUARD + 63) / 64 * 64;
    const size_t bytes = behind + c->out_bytes + 2 * GUARD;
    void *memory = c->registered ? NULL : malloc(bytes);
    if (c->registered)
        CHECK(!halay_mem_alloc(context, bytes, &memory), "no memory");
    CHECK(memory, "no memory");
    c->memory = memory;
    c->bytes = bytes;
    c->there = ranks_there(context) ? ranks_there_take(context, bytes) : NULL;
    c->in = c->memory + GUARD;
    c->out = c->memory + behind + GUARD;
    c->in_was = guarded(c->in_bytes);
    c->want = guarded(c->out_bytes);
}

int pcall_free(struct pcall *c)
{
    int rc = HALAY_OK;
    if (c->there)
        ranks_there_drop(c->context, c->there);
    if (c->registered)
        rc = halay_mem_free(c->context, c->memory);
    else
        free(c->memory);
    free(c->in_was - GUARD);
    free(c->want - GUARD);
    return rc;
}

/* ---------------------------------------------------------------- what goes in, and comes out */

static void fill_input(struct pcall *c)
{
    const int n = c->team->n, me = c->team->me;
    const bool own = c->in_place && c->kind != P_BROADCAST;
    if (c->kind == P_SCATTER || c->kind == P_SCATTERV) {
        for (int k = 0; me == c->root && k < n; k++)
            input(c, c->displs[k], (size_t)k * 100, c->counts[k]);
    } else if (c->kind == P_ALLTOALL || c->kind == P_ALLTOALLV) {
        const size_t *counts = c->in_place ? c->counts : c->from;
        const size_t *displs = c->in_place ? c->displs : c->from_displs;
        for (int k = 0; k < n; k++)
            input(c, displs[k], (size_t)k * 100, counts[k]);
    } else if (c->kind == P_BROADCAST || c->kind == P_SEND) {
        if (me == c->root)
            input(c, 0, 0, c->count);
    } else if (c->kind == P_REDUCE_SCATTER || c->kind == P_REDUCE_SCATTERV) {
        input(c, 0, 0, c->in_bytes / halay_type_bytes(c->type));
    } else if (pkind_reduces(c->kind)) {
        input(c, 0, 0, c->count);
    } else if (c->kind != P_BARRIER) { /* gathers */
        input(c, own ? c->displs[me] : 0, 0, c->counts[me]);
    }
}

static void fill_wanted(struct pcall *c)
{
    const int n = c->team->n, me = c->team->me;
    const bool root = me == c->root;
    size_t before = 0;
    for (int k = 0; k < me; k++)
        before += c->counts[k];
    if (c->kind <= P_SCALED || (c->kind == P_REDUCE && root)) {
        reduced(c, n, 0, c->count);
    } else if (c->kind == P_SCAN || (c->kind == P_EXSCAN && me)) {
        reduced(c, c->kind == P_SCAN ? me + 1 : me, 0, c->count);
    } else if (c->kind == P_REDUCE_SCATTER || c->kind == P_REDUCE_SCATTERV) {
        reduced(c, n, before, c->counts[me]);
        c->certain = c->counts[me] * halay_type_bytes(c->type);
    } else if (c->kind == P_BROADCAST || (c->kind == P_SEND && me == c->peer)) {
        moved(c, 0, c->root, 0, c->count);
    } else if (c->kind == P_SCATTER || c->kind == P_SCATTERV) {
        moved(c, c->in_place ? c->displs[me] : 0, c->root, (size_t)me * 100, c->counts[me]);
    } else if (c->kind == P_ALLTOALL || c->kind == P_ALLTOALLV) {
        for (int k = 0; k < n; k++)
            moved(c, c->displs[k], k, (size_t)me * 100, c->counts[k]);
    } else if (c->kind == P_ALLGATHER || c->kind == P_ALLGATHERV ||
               ((c->kind == P_GATHER || c->kind == P_GATHERV) && root)) {
        for (int k = 0; k < n; k++)
            moved(c, c->displs[k], k, 0, c->counts[k]);
    }
}

void pcall_fill(struct pcall *c, uint64_t salt)
{
    c->salt = salt;
    memset(c->in - GUARD, 0xa5, c->in_bytes + 2 * GUARD);
    memset(c->out - GUARD, 0x5a, c->out_bytes + 2 * GUARD);
    fill_input(c);
    memcpy(c->in_was - GUARD, c->in - GUARD, c->in_bytes + 2 * GUARD);
    memcpy(c->want - GUARD, c->out - GUARD, c->out_bytes + 2 * GUARD);
    fill_wanted(c);
    if (c->there)
        ranks_there_put(c->there, c->memory, c->bytes);
}

/* Sums that were rounded, in any order: near the sum of doubles. */
static void check_near(const struct pcall *c, const char *where)
{
    static const double eps[HALAY_TYPE_COUNT] = {[HALAY_FLOAT16] = 1e-3,
                                                 [HALAY_BFLOAT16] = 8e-3,
                                                 [HALAY_FLOAT32] = 1.2e-7,
                                                 [HALAY_FLOAT64] = 2.3e-16};
    const size_t e = halay_type_bytes(c->type), n = c->certain / e;
    size_t first = 0;
    for (int k = 0; c->kind == P_REDUCE_SCATTER && k < c->team->me; k++)
        first += c->counts[k];
    for (size_t i = 0; i<n; i += n> 4000 ? 97 : 1) {
        double sum = 0, most = 0;
        for (int k = 0; k < c->team->n; k++) {
            char x[8];
            unit_of(c, k, (first + i) % PERIOD, x);
            sum += decoded(c->type, x);
            most += fabs(decoded(c->type, x));
        }
        double scale = c->op == HALAY_AVERAGE ? c->team->n : 1;
        double got = decoded(c->type, c->out + i * e);
        CHECK(fabs(got - sum / scale) <= 2 * c->team->n * eps[c->type] * most / scale,
              "%s: element %zu is %g, not %g", where, i, got, sum / scale);
    }
}

static void compare(const struct pcall *c, const char *where, const char *what, const char *got,
                    const char *want, size_t bytes, size_t from, size_t certain)
{
    if (!from && certain == bytes &&
        !memcmp(got - GUARD, want - GUARD, bytes + 2 * GUARD)) /* mostly */
        return;
    for (size_t i = 0; i < bytes + 2 * GUARD; i++) {
        size_t at = i - GUARD; /* wraps in the guard before: larger than bytes */
        if (at < bytes && (at < from || at >= certain))
            continue;
        CHECK(got[at] == want[at],
              "%s: rank %d of %d, %s of %zu %s, %s, root %d%s%s: byte %td of %zu of the %s is "
              "%02x, not %02x",
              where, c->team->me, c->team->n, names[c->kind], c->count, halay_type_name(c->type),
              halay_op_name(c->op), c->root, c->in_place ? ", in place" : "",
              c->registered ? ", registered" : "", (ptrdiff_t)at, bytes, what, got[at] & 0xff,
              want[at] & 0xff);
    }
}

uint64_t pcall_check(struct pcall *c, const char *where)
{
    if (c->there)
        ranks_there_get(c->memory, c->there, c->bytes);
    const bool near = c->data == P_ROUNDS;
    const size_t certain = near && c->kind == P_REDUCE && c->team->me != c->root ? 0 : c->certain;
    uint64_t hash = c->certain, word = 0;
    compare(c, where, "output", c->out, c->want, c->out_bytes, near ? c->certain : 0, c->certain);
    compare(c, where, "input", c->in, c->in_was, c->in_bytes, 0, c->in_bytes);
    if (near && certain)
        check_near(c, where);
    for (size_t i = 0; i < certain; i += 8) {
        memcpy(&word, c->out + i, certain - i < 8 ? certain - i : 8);
        hash = pmix(hash, word);
        word = 0;
    }
    return hash;
}

/* ---------------------------------------------------------------- the calls */

#define CALL(name, ...)                                                                            \
    (form == P_BLOCKING ? halay_##name(__VA_ARGS__, comm)                                          \
     : form == P_POSTED ? halay_i##name(__VA_ARGS__, comm, request)                                \
                        : halay_##name##_init(__VA_ARGS__, comm, request))

static int begin_rooted(struct pcall *c, enum pform form, halay_request_t **request)
{
    halay_comm_t *comm = c->team->comm;
    const bool root = c->team->me == c->root;
    const void *in = c->in_place ? HALAY_IN_PLACE : c->in;
    void *out = root ? c->out : NULL;
    const size_t *displs = root ? c->displs : NULL;
    switch (c->kind) {
    case P_BROADCAST:
        return CALL(broadcast, c->out, c->count, c->type, c->root);
    case P_REDUCE:
        return CALL(reduce, in, out, c->count, c->type, c->called, c->root);
    case P_GATHER:
        return CALL(gather, in, out, c->count, c->type, c->root);
    case P_GATHERV:
        return CALL(gatherv, in, out, c->counts, displs, c->type, c->root);
    case P_SCATTER:
        return CALL(scatter, root ? in : NULL, c->out, c->count, c->type, c->root);
    default:
        return CALL(scatterv, root ? in : NULL, c->out, c->counts, displs, c->type, c->root);
    }
}

int pcall_begin(struct pcall *given, enum pform form, halay_request_t **request)
{
    halay_comm_t *comm = given->team->comm;
    struct pcall moved_there = *given, *c = &moved_there;
    if (c->there) {
        c->in = c->there + (c->in - c->memory);
        c->out = c->out ? c->there + (c->out - c->memory) : NULL;
    }
    const void *in = c->in_place ? HALAY_IN_PLACE : c->in;
    switch (c->kind) {
    case P_ALLREDUCE:
        return CALL(allreduce, in, c->out, c->count, c->type, c->called);
    case P_SCALED:
        return CALL(allreduce_scaled, in, c->out, c->count, c->type, c->called, c->prescale,
                    c->postscale);
    case P_ALLGATHER:
        return CALL(allgather, in, c->out, c->count, c->type);
    case P_ALLGATHERV:
        return CALL(allgatherv, in, c->out, c->counts, c->displs, c->type);
    case P_REDUCE_SCATTER:
        return CALL(reduce_scatter, in, c->out, c->count, c->type, c->called);
    case P_REDUCE_SCATTERV:
        return CALL(reduce_scatterv, in, c->out, c->counts, c->type, c->called);
    case P_SCAN:
        return CALL(scan, in, c->out, c->count, c->type, c->called);
    case P_EXSCAN:
        return CALL(exscan, in, c->team->me || c->in_place ? c->out : NULL, c->count, c->type,
                    c->called);
    case P_ALLTOALL:
        return CALL(alltoall, in, c->out, c->count, c->type);
    case P_ALLTOALLV:
        return CALL(alltoallv, in, c->in_place ? NULL : c->from,
                    c->in_place ? NULL : c->from_displs, c->out, c->counts, c->displs, c->type);
    case P_BARRIER:
        return form == P_BLOCKING ? halay_barrier(comm)
               : form == P_POSTED ? halay_ibarrier(comm, request)
                                  : halay_barrier_init(comm, request);
    case P_SEND:
        return c->team->me == c->root ? CALL(send, c->in, c->count, c->type, c->peer)
                                      : CALL(recv, c->out, c->count, c->type, c->root);
    default:
        return begin_rooted(c, form, request);
    }
}
