/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group steps over the double of group_double.h: every collective that has a plan with them, on
 * nodes of several kinds, against a serial reference, bit for bit; many calls in flight, several
 * communicators, and those whose ranks are no simple run of the world's.
 *
 *   test_group_steps [SHAPE...]
 */
#include <string.h>

#include "group_double.h"
#include "ranks.h"
#include "reference.h"

#define MOST_BYTES ((size_t)16 * 5000 * 24)
#define FLYING     40

static const struct shape {
    const char *name;
    int nranks;
    int node[24];
} shapes[] = {
    {"one", 1, {0}},
    {"1x2", 2, {0}},
    {"1x5", 5, {0}},
    {"1x8", 8, {0}},
    {"2x1", 2, {0, 1}},
    {"2x2", 4, {0, 0, 1, 1}},
    {"2x4", 8, {0, 0, 0, 0, 1, 1, 1, 1}},
    {"3x3", 9, {0, 0, 0, 1, 1, 1, 2, 2, 2}},
    {"3x8", 24, {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2}},
    {"unlike", 7, {0, 0, 0, 0, 1, 1, 2}},
    {"unlike2", 10, {0, 0, 1, 1, 1, 1, 1, 2, 2, 2}},
    {"scattered", 9, {0, 1, 0, 1, 2, 0, 2, 2, 1}},
    {"scattered2", 7, {0, 1, 1, 0, 0, 1, 0}},
};

static const char algorithms[] = "allreduce=two_level_group,reduce_scatter=two_level_group,"
                                 "allgather=two_level_group,broadcast=sliced_group,"
                                 "alltoall=two_level_group";

enum { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, ALLTOALL, KINDS };

struct data {
    char *in, *out, *want;
};

static struct data take(void)
{
    struct data d = {malloc(MOST_BYTES), malloc(MOST_BYTES), malloc(MOST_BYTES)};
    CHECK(d.in && d.out && d.want, "no memory");
    return d;
}

static void give(struct data d)
{
    free(d.in);
    free(d.out);
    free(d.want);
}

struct form {
    int kind;
    size_t count;
    halay_type_t type;
    halay_op_t op;
    bool in_place;
    int root;
    uint64_t salt;
};

/* Fills in, out and want; returns how many bytes of out are to be compared. */
static size_t prepare(const struct form *f, int me, int n, const struct data *d, size_t *at)
{
    const size_t e = halay_type_bytes(f->type), nblocks = (size_t)n;
    const bool whole = f->kind == ALLREDUCE || f->kind == BROADCAST;
    const bool reduces = f->kind == ALLREDUCE || f->kind == REDUCE_SCATTER;
    const bool all = f->kind == ALLTOALL;
    const size_t nin = all || f->kind == REDUCE_SCATTER ? nblocks * f->count : f->count;
    const size_t nout = all || f->kind == ALLGATHER ? nblocks * f->count : f->count;
    *at = 0;
    memset(d->out, 0x5a, (f->kind == REDUCE_SCATTER && f->in_place ? nin : nout) * e);
    for (size_t i = 0; i < nin; i++)
        reference_input(f->type, f->op, me, i, f->salt, d->in + i * e);
    for (size_t i = 0; i < nout; i++) {
        const size_t first = f->kind == REDUCE_SCATTER ? (size_t)me * f->count : 0;
        const int from = f->kind == BROADCAST ? f->root
                         : whole              ? 0
                                              : (int)(i / (f->count + !f->count));
        if (reduces)
            reference_result(f->type, f->op, n, first + i, f->salt, d->want + i * e);
        else
            reference_input(f->type, f->op, from,
                            whole ? i : i % f->count + all * (size_t)me * f->count, f->salt,
                            d->want + i * e);
    }
    if (f->kind == BROADCAST && me == f->root)
        memcpy(d->out, d->in, nin * e);
    else if (f->in_place && f->kind == ALLGATHER)
        memcpy(d->out + (size_t)me * f->count * e, d->in, nin * e);
    else if (f->in_place)
        memcpy(d->out, d->in, nin * e);
    return nout * e;
}

static int start(const struct form *f, const struct data *d, halay_comm_t *comm,
                 halay_request_t **q)
{
    const void *in = f->in_place ? HALAY_IN_PLACE : d->in;
    switch (f->kind) {
    case ALLREDUCE:
        return halay_iallreduce(in, d->out, f->count, f->type, f->op, comm, q);
    case REDUCE_SCATTER:
        return halay_ireduce_scatter(in, d->out, f->count, f->type, f->op, comm, q);
    case ALLGATHER:
        return halay_iallgather(in, d->out, f->count, f->type, comm, q);
    case ALLTOALL:
        return halay_ialltoall(in, d->out, f->count, f->type, comm, q);
    default:
        return halay_ibroadcast(d->out, f->count, f->type, f->root, comm, q);
    }
}

static void compare(const struct form *f, int me, const struct data *d, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        CHECK(d->out[i] == d->want[i],
              "rank %d: kind %d, %zu %s %s, in place %d: byte %zu: %02x, not %02x", me, f->kind,
              f->count, halay_type_name(f->type), halay_op_name(f->op), f->in_place, i,
              d->out[i] & 0xff, d->want[i] & 0xff);
}

static void one(const struct form *f, int me, int n, const struct data *d, halay_comm_t *comm)
{
    size_t at;
    halay_request_t *q;
    const size_t bytes = prepare(f, me, n, d, &at);
    int rc = start(f, d, comm, &q);
    rc = rc ? rc : halay_request_wait(q);
    CHECK(!rc, "rank %d, kind %d: %s", me, f->kind, halay_strerror(rc));
    compare(f, me, d, bytes);
}

static bool is_exact(halay_type_t type, halay_op_t op)
{
    return op == HALAY_PROD && (type == HALAY_COMPLEX64 || type == HALAY_COMPLEX128) ? false : true;
}

/* Every type, operation and form. */
static void all(struct rank *r, halay_comm_t *comm, const struct data *d)
{
    static const size_t counts[] = {0, 1, 7, 1000};
    int me, n;
    CHECK(!halay_comm_rank(comm, &me) && !halay_comm_size(comm, &n), "comm");
    struct form f = {.salt = 1};
    for (f.kind = 0; f.kind < KINDS; f.kind++)
        for (f.type = 0; f.type < HALAY_TYPE_COUNT; f.type++)
            for (f.op = 0; f.op < HALAY_OP_COUNT; f.op++) {
                const bool reduces = f.kind == ALLREDUCE || f.kind == REDUCE_SCATTER;
                if (reduces ? !halay_op_takes(f.op, f.type) : f.op != HALAY_SUM)
                    continue;
                if (!reduces && !halay_op_takes(HALAY_SUM, f.type))
                    continue;
                if (!is_exact(f.type, f.op))
                    continue;
                f.count = counts[f.salt++ % 4];
                f.root = (int)(f.salt % (uint64_t)n);
                f.in_place = f.salt / 4 % 2 && f.kind != BROADCAST;
                one(&f, me, n, d, comm);
            }
    (void)r;
}

/* Many in flight on two communicators, waited for in another order. */
static void flying(struct rank *r, halay_comm_t *comm, halay_comm_t *other)
{
    struct data d[FLYING];
    halay_request_t *q[FLYING];
    struct form f[FLYING];
    size_t bytes[FLYING], at;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < FLYING; i++) {
            halay_comm_t *on = i % 3 == 2 ? other : comm;
            int me, n;
            CHECK(!halay_comm_rank(on, &me) && !halay_comm_size(on, &n), "comm");
            f[i] = (struct form){.kind = (i + round) % KINDS,
                                 .count = (size_t)(i * 37 % 300),
                                 .type = i % 2 ? HALAY_INT32 : HALAY_FLOAT64,
                                 .op = HALAY_SUM,
                                 .root = i % n,
                                 .in_place = i % 5 == 0 && (i + round) % KINDS != BROADCAST,
                                 .salt = (uint64_t)(100 * round + i)};
            d[i] = (struct data){malloc(f[i].count * 8 * 24 + 1), malloc(f[i].count * 8 * 24 + 1),
                                 malloc(f[i].count * 8 * 24 + 1)};
            bytes[i] = prepare(&f[i], me, n, &d[i], &at);
            CHECK(!start(&f[i], &d[i], on, &q[i]), "start");
        }
        for (int k = 0; k < FLYING; k++) {
            const int i = (k * 7 + r->rank) % FLYING;
            const int rc = halay_request_wait(q[i]);
            CHECK(!rc, "call %d: %s", i, halay_strerror(rc));
            compare(&f[i], r->rank, &d[i], bytes[i]);
            give(d[i]);
        }
    }
}

static void again(int me, int n, halay_comm_t *comm, const struct data *d)
{
    struct form f = {.kind = ALLREDUCE, .count = 5000, .type = HALAY_FLOAT32, .op = HALAY_AVERAGE};
    for (int i = 0; i < 20; i++) {
        f.salt = (uint64_t)i;
        one(&f, me, n, d, comm);
    }
}

static void body(struct rank *r)
{
    struct data d = take();
    halay_comm_t *dup, *part, *back;
    all(r, r->world, &d);
    CHECK(!halay_comm_dup(r->world, &dup), "dup");
    flying(r, r->world, dup);
    again(r->rank, r->nranks, dup, &d);
    CHECK(!halay_comm_split(r->world, r->rank % 3 == 1, -r->rank, &part), "split");
    CHECK(!halay_comm_split(r->world, 0, -r->rank, &back), "split");
    flying(r, part, back);
    all(r, part, &d);
    all(r, back, &d);
    CHECK(!halay_comm_free(part) && !halay_comm_free(back) && !halay_comm_free(dup), "free");
    give(d);
}

static void run(const struct shape *s, uint32_t delay, uint32_t capacity,
                const halay_inproc_faults_t *faults, const halay_device_ops_t *device)
{
    static struct group_double_arg args[RANKS_MAX];
    void *at[RANKS_MAX];
    uint32_t launched = 0;
    for (int i = 0; i < s->nranks; i++) {
        args[i] = (struct group_double_arg){
            .seed = (uint64_t)i + 1, .delay_polls_max = delay, .capacity = capacity};
        at[i] = &args[i];
    }
    struct ranks_options o = {.nranks = s->nranks,
                              .faults = faults,
                              .device = device,
                              .group = &group_double,
                              .group_args = at,
                              .node_of_rank = s->node,
                              .algorithm = algorithms,
                              .deadline_ns = 60000000000ull};
    ranks_run(&o, body, NULL);
    for (int i = 0; i < s->nranks; i++) {
        launched += args[i].launched;
        CHECK(args[i].opened == args[i].closed, "%u device communicators were opened, %u closed",
              args[i].opened, args[i].closed);
        CHECK(!args[i].aborted, "%u were aborted", args[i].aborted);
    }
    CHECK(!group_double_left(), "device communicators are left");
    printf("%s, %u, %u: %u launches\n", s->name, delay, capacity, launched);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    extern const halay_device_ops_t hly_device_late;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        bool asked = argc < 2;
        for (int a = 1; a < argc; a++)
            asked = asked || !strcmp(argv[a], shapes[i].name);
        if (!asked)
            continue;
        run(&shapes[i], 0, 0, NULL, NULL);
        run(&shapes[i], 20, 2, &ranks_put, &hly_device_late);
    }
    return 0;
}
