/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls in device memory that the processor cannot touch, with a double of a library of device
 * collectives: on one node by group steps alone (grouped), on several by these and the stage
 * (hierarchical), else staged. On nodes of several kinds, over late devices, against a serial
 * reference bit for bit. Then faults in one rank's device work, in its group's, and an absent rank:
 * all ranks have an error by the deadline. These trials wait together, each in a process.
 *
 *   test_hierarchy [whole] [SHAPE...]   without "whole" one form of a call in SAMPLE, drawn by seed
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/device_builtin.h"
#include "fated.h"
#include "group_double.h"
#include "ranks.h"
#include "reference.h"

#define MOST_BYTES ((size_t)16 * 1000 * 9)
#define DEADLINE   3000000000ull
#define LONG       (10 * DEADLINE) /* of what ends sooner */

static const struct shape {
    const char *name;
    int nranks;
    int node[9];
} shapes[] = {
    {"1x1", 1, {0}},
    {"1x2", 2, {0}},
    {"1x5", 5, {0}},
    {"2x1", 2, {0, 1}},
    {"2x2", 4, {0, 0, 1, 1}},
    {"2x4", 8, {0, 0, 0, 0, 1, 1, 1, 1}},
    {"3x2", 6, {0, 0, 1, 1, 2, 2}},
    {"3x3", 9, {0, 0, 0, 1, 1, 1, 2, 2, 2}},
    {"unlike", 7, {0, 0, 0, 0, 1, 1, 2}},
    {"scattered", 8, {0, 1, 0, 1, 2, 0, 2, 1}},
};

enum { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, ALLTOALL, KINDS };
enum { SAMPLE = 11 }; /* has no divisor in common with what a form's number decides */

static uint64_t seed;
static bool whole;

/* ---------------------------------------------------------------- right results */

struct form {
    int kind;
    size_t count;
    halay_type_t type;
    halay_op_t op;
    bool in_place;
    int root;
    uint64_t salt;
};

struct data {
    char *in, *out, *want; /* the test's own */
    void *there_in, *there_out;
};

static struct data take(struct rank *r)
{
    struct data d = {malloc(MOST_BYTES), malloc(MOST_BYTES), malloc(MOST_BYTES),
                     ranks_there_take(r->context, MOST_BYTES),
                     ranks_there_take(r->context, MOST_BYTES)};
    CHECK(d.in && d.out && d.want, "no memory");
    return d;
}

static void give(struct rank *r, struct data *d)
{
    ranks_there_drop(r->context, d->there_in);
    ranks_there_drop(r->context, d->there_out);
    free(d->in);
    free(d->out);
    free(d->want);
}

static void want(const struct form *f, const struct rank *r, const struct data *d, size_t nout)
{
    const size_t e = halay_type_bytes(f->type);
    for (size_t i = 0; i < nout; i++) {
        const size_t first = f->kind == REDUCE_SCATTER ? (size_t)r->rank * f->count : 0;
        if (f->kind <= REDUCE_SCATTER)
            reference_result(f->type, f->op, r->nranks, first + i, f->salt, d->want + i * e);
        else if (f->kind == ALLGATHER)
            reference_input(f->type, f->op, (int)(i / f->count), i % f->count, f->salt,
                            d->want + i * e);
        else if (f->kind == ALLTOALL)
            reference_input(f->type, f->op, (int)(i / f->count),
                            (size_t)r->rank * f->count + i % f->count, f->salt, d->want + i * e);
        else
            reference_input(f->type, f->op, f->root, i, f->salt, d->want + i * e);
    }
}

static int call(const struct form *f, const struct data *d, halay_comm_t *comm)
{
    const void *in = f->in_place ? HALAY_IN_PLACE : d->there_in;
    switch (f->kind) {
    case ALLREDUCE:
        return halay_allreduce(in, d->there_out, f->count, f->type, f->op, comm);
    case REDUCE_SCATTER:
        return halay_reduce_scatter(in, d->there_out, f->count, f->type, f->op, comm);
    case ALLGATHER:
        return halay_allgather(in, d->there_out, f->count, f->type, comm);
    case ALLTOALL:
        return halay_alltoall(in, d->there_out, f->count, f->type, comm);
    default:
        return halay_broadcast(d->there_out, f->count, f->type, f->root, comm);
    }
}

static void one(const struct form *f, struct rank *r, const struct data *d)
{
    const size_t e = halay_type_bytes(f->type), n = (size_t)r->nranks;
    const bool all = f->kind == ALLTOALL;
    const size_t nin = all || f->kind == REDUCE_SCATTER ? n * f->count : f->count;
    const size_t nout = all || f->kind == ALLGATHER ? n * f->count : f->count;
    const size_t at = f->kind == ALLGATHER ? (size_t)r->rank * f->count * e : 0;
    memset(d->out, 0x5a, MOST_BYTES);
    for (size_t i = 0; i < nin; i++)
        reference_input(f->type, f->op, r->rank, i, f->salt, d->in + i * e);
    if (f->in_place || (f->kind == BROADCAST && r->rank == f->root))
        memcpy(d->out + at, d->in, nin * e);
    want(f, r, d, nout);
    ranks_there_put(d->there_in, d->in, MOST_BYTES);
    ranks_there_put(d->there_out, d->out, MOST_BYTES);
    const int rc = call(f, d, r->world);
    CHECK(!rc, "rank %d, kind %d: %s", r->rank, f->kind, halay_strerror(rc));
    ranks_there_get(d->out, d->there_out, nout * e);
    CHECK(!memcmp(d->out, d->want, nout * e), "rank %d: kind %d, %zu %s %s, in place %d", r->rank,
          f->kind, f->count, halay_type_name(f->type), halay_op_name(f->op), f->in_place);
}

/* Of each run another part. */
static void next_part(void)
{
    seed = (seed + 1) % SAMPLE;
}

static void body(struct rank *r)
{
    static const size_t counts[] = {1, 7, 1000, 0, 130};
    struct data d = take(r);
    struct form f = {.salt = 1};
    for (int round = 0; round < 2; round++)
        for (f.kind = 0; f.kind < KINDS; f.kind++)
            for (f.type = round; f.type < HALAY_TYPE_COUNT; f.type += 3)
                for (f.op = 0; f.op < HALAY_OP_COUNT; f.op++) {
                    const bool reduces = f.kind <= REDUCE_SCATTER;
                    if (!halay_op_takes(reduces ? f.op : HALAY_SUM, f.type) ||
                        (!reduces && f.op != HALAY_SUM) || f.op == HALAY_PROD)
                        continue;
                    f.count = counts[f.salt++ % 5];
                    f.root = (int)(f.salt % (uint64_t)r->nranks);
                    f.in_place = f.salt / 4 % 2 && f.kind != BROADCAST;
                    if ((f.count || (f.kind != ALLGATHER && f.kind != ALLTOALL)) &&
                        (whole || f.salt % SAMPLE == seed))
                        one(&f, r, &d);
                }
    give(r, &d);
}

static void run(const struct shape *s, const char *algorithm, bool group, bool has_to_launch)
{
    static struct group_double_arg args[RANKS_MAX];
    struct hly_device_late_arg late = {
        .seed = 9, .delay_polls_max = 4, .capacity = 3, .own_memory = true};
    void *at[RANKS_MAX];
    uint32_t launched = 0;
    for (int i = 0; i < s->nranks; i++) {
        args[i] = (struct group_double_arg){
            .seed = (uint64_t)i + 1, .delay_polls_max = 20, .capacity = 2, .there = true};
        at[i] = &args[i];
    }
    struct ranks_options o = {.nranks = s->nranks,
                              .device = &hly_device_late,
                              .device_arg = &late,
                              .group = group ? &group_double : NULL,
                              .group_args = group ? at : NULL,
                              .node_of_rank = s->node,
                              .algorithm = algorithm,
                              .deadline_ns = 60000000000ull};
    ranks_run(&o, body, NULL);
    for (int i = 0; i < s->nranks; i++)
        launched += args[i].launched;
    CHECK(!!launched == has_to_launch, "%s: %u launches", s->name, launched);
    CHECK(!group_double_left(), "device communicators are left");
    printf("%s, %s, part %u: %u launches\n", s->name, algorithm ? algorithm : "rows",
           (unsigned)seed, launched);
    next_part();
    fflush(stdout);
}

/* ---------------------------------------------------------------- it ends */

enum fate { COPY_FAILS, COPY_NEVER, LAUNCH_FAILS, LAUNCH_NEVER, REFUSED, ABSENT };

/* On 2 nodes of 2 ranks a rank copies 2 blocks down (pieces 1 and 2), then 2 up; it launches 2
 * collectives. `all`: no rank can have what it needs, so none succeeds. */
static const struct trial {
    const char *name;
    enum fate fate;
    uint32_t piece;
    bool all;
    int code;
} trials[] = {
    {"a copy down fails", COPY_FAILS, 1, true, HALAY_EDEVICE},
    {"a copy up fails", COPY_FAILS, 3, false, HALAY_EDEVICE},
    {"a copy down never ends", COPY_NEVER, 2, true, HALAY_EDEVICE},
    {"a copy up never ends", COPY_NEVER, 4, false, HALAY_EDEVICE},
    {"the scatter fails", LAUNCH_FAILS, 1, true, HALAY_EDEVICE},
    {"the gather fails", LAUNCH_FAILS, 2, false, HALAY_EDEVICE},
    {"the scatter never begins", LAUNCH_NEVER, 1, true, HALAY_EDEVICE},
    {"the gather is refused", REFUSED, 2, false, HALAY_EDEVICE},
    {"a rank is absent", ABSENT, 1, true, HALAY_ETIMEOUT},
};

static atomic_int ended;

static void ends(struct rank *r)
{
    const struct trial *t = r->arg;
    const bool by_group = t->fate >= LAUNCH_FAILS && t->fate <= REFUSED;
    const bool victim = by_group ? r->rank == 0 : is_victim;
    const struct form f = {.kind = ALLREDUCE, .count = 1000, .type = HALAY_INT32};
    struct data d = take(r);
    ranks_there_put(d.there_in, d.in, MOST_BYTES);
    const uint64_t start = ranks_now_ns();
    int rc = HALAY_ETIMEOUT;
    while (t->fate == ABSENT && victim && atomic_load(&ended) < 3 &&
           ranks_now_ns() < start + 10 * DEADLINE)
        usleep(1000);
    if (t->fate != ABSENT || !victim)
        rc = call(&f, &d, r->world);
    atomic_fetch_add(&ended, 1);
    const uint64_t took = ranks_now_ns() - start;
    CHECK(took < LONG, "%s: rank %d took %llu ms", t->name, r->rank,
          (unsigned long long)took / 1000000);
    CHECK(rc == t->code || (!rc && !t->all && !victim), "%s: rank %d: %s", t->name, r->rank,
          halay_strerror(rc));
    give(r, &d);
    const int last =
        halay_finalize(r->context); /* says what a call that ended well could not know */
    CHECK(!last || (!rc && last == t->code), "%s: rank %d, at the end: %s", t->name, r->rank,
          halay_strerror(last));
}

static void fault(const struct trial *t)
{
    static const int nodes[] = {0, 0, 1, 1};
    static halay_device_ops_t fated;
    struct group_double_arg args[4];
    void *at[4];
    struct hly_device_late_arg late = {.seed = 3, .delay_polls_max = 2, .own_memory = true};
    fated = hly_device_late;
    fated.open = fated_open;
    late.fails = t->fate == COPY_FAILS ? t->piece : 0;
    late.never = t->fate == COPY_NEVER ? t->piece : 0;
    atomic_store(&opened, 0);
    atomic_store(&ended, 0);
    for (int i = 0; i < 4; i++) {
        args[i] = (struct group_double_arg){.seed = (uint64_t)i + 1, .there = true};
        at[i] = &args[i];
    }
    args[0].fails = t->fate == LAUNCH_FAILS ? t->piece : 0;
    args[0].never = t->fate == LAUNCH_NEVER ? t->piece : 0;
    args[0].refused = t->fate == REFUSED ? t->piece : 0;
    const bool late_end = t->fate == COPY_NEVER || t->fate == LAUNCH_NEVER || t->fate == ABSENT;
    struct ranks_options o = {.nranks = 4,
                              .device = &fated,
                              .device_arg = &late,
                              .group = &group_double,
                              .group_args = at,
                              .node_of_rank = nodes,
                              .deadline_ns = late_end ? DEADLINE : LONG,
                              .keep = true};
    ranks_run(&o, ends, (void *)(uintptr_t)t);
    CHECK(!group_double_left(), "device communicators are left");
    printf("%s: it ends\n", t->name);
    fflush(stdout);
}

/* One thread runs yet. */
static void begin(const struct trial *t, pid_t *child)
{
    *child = fork();
    CHECK(*child >= 0, "fork");
    if (*child == 0) {
        fault(t);
        exit(0);
    }
}

static void end(const struct trial *t, pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child, "wait");
    CHECK(!status, "%s: status %x", t->name, (unsigned)status);
}

static void shape(const struct shape *s)
{
    bool shared = false;
    for (int k = 1; k < s->nranks; k++)
        for (int j = 0; j < k; j++)
            shared = shared || s->node[k] == s->node[j];
    run(s, NULL, false, false);
    run(s, NULL, true, shared);
    run(s, "allreduce=sliced_stage,broadcast=sliced_stage,alltoall=two_level_stage", true, shared);
}

int main(int argc, char **argv)
{
    enum { TRIALS = sizeof(trials) / sizeof(trials[0]) };
    pid_t children[TRIALS];
    whole = argc > 1 && !strcmp(argv[1], "whole");
    seed = (uint64_t)time(NULL) % SAMPLE;
    for (size_t i = 0; i < TRIALS; i++)
        begin(&trials[i], &children[i]);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        bool asked = argc < 2 + whole;
        for (int a = 1 + whole; a < argc; a++)
            asked = asked || !strcmp(argv[a], shapes[i].name);
        if (asked)
            shape(&shapes[i]);
    }
    for (size_t i = 0; i < TRIALS; i++)
        end(&trials[i], children[i]);
    return 0;
}
