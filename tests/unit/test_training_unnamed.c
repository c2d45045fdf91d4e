/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_unnamed.c - tensors that only a number tells apart are replayed like others, and
 * nothing is ever reduced with a tensor of another number: each value says its number.
 */
#include <stdatomic.h>

#include "training_ranks.h"

enum { COUNT_MAX = 96, WARM = 80, STEPS = 60 };

struct call {
    int64_t values[COUNT_MAX];
    size_t count;
    int64_t number;
    halay_ticket_t ticket;
};

static int64_t value_of(int64_t number, size_t i)
{
    return number * 1009 + (int64_t)i;
}

/* As number such of the series, or of names that are used again. */
static void submit(struct rank *rank, struct call *call, const char *series, int64_t number,
                   size_t count)
{
    char name[64];
    CHECK(count <= COUNT_MAX, "too many");
    call->number = number;
    call->count = count;
    for (size_t i = 0; i < count; i++)
        call->values[i] = (rank->rank + 1) * value_of(number, i);
    snprintf(name, sizeof(name), "%s.%lld", series, (long long)number);
    int rc = halay_trainer_allreduce(rank->trainer, name, call->values, call->values, count,
                                     HALAY_INT64, HALAY_SUM, 1, 1, &call->ticket);
    CHECK(!rc, "%s: %d", name, rc);
}

static void collect(struct rank *rank, struct call *call)
{
    int64_t ranks = rank->nranks * (rank->nranks + 1) / 2;
    finish(rank, call->ticket, 0);
    for (size_t i = 0; i < call->count; i++)
        CHECK(call->values[i] == ranks * value_of(call->number, i), "rank %d: number %lld [%zu]",
              rank->rank, (long long)call->number, i);
}

/* In each step so many, of these counts; together: waited for at the end, from behind. */
struct shape {
    size_t counts[16];
    int ncounts, together;
    int named; /* tensors with names before, each with a wait of its own if not together */
    int behind;
};

/* Returns the number that comes next. */
static int64_t steps(struct rank *rank, const struct shape *shape, int64_t number, int nsteps)
{
    struct call calls[32];
    for (int s = 0; s < nsteps; s++) {
        int n = 0;
        for (int part = 0; part < 2; part++) {
            int named = part == shape->behind;
            for (int i = 0; i < (named ? shape->named : shape->ncounts); i++, n++) {
                if (named)
                    submit(rank, &calls[n], "named", i, 20);
                else
                    submit(rank, &calls[n], "a.noname", number++, shape->counts[i]);
                if (!shape->together)
                    collect(rank, &calls[n]);
            }
        }
        while (shape->together && n)
            collect(rank, &calls[--n]);
    }
    return number;
}

static void steady(struct rank *rank)
{
    static const struct shape shapes[] = {
        {.counts = {5}, .ncounts = 1},
        {.counts = {5, 5, 1}, .ncounts = 3},
        {.counts = {5, 5, 1}, .ncounts = 3, .together = 1},
        {.counts = {7, 7, 7, 7, 7, 7}, .ncounts = 6, .together = 1},
        {.counts = {1, 2, 1, 3, 2, 2}, .ncounts = 6},
        {.counts = {9}, .ncounts = 1, .named = 6},
        {.counts = {9}, .ncounts = 1, .named = 6, .behind = 1},
        {.counts = {9, 1, 9}, .ncounts = 3, .named = 6, .behind = 1},
        {.counts = {9, 9, 2}, .ncounts = 3, .named = 6, .together = 1},
        {.counts = {9, 9, 2}, .ncounts = 3, .named = 6, .together = 1, .behind = 1},
        {.counts = {0}, .ncounts = 1},
    };
    int64_t number = 0;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        number = steps(rank, &shapes[i], number, WARM);
        halay_trainer_counters_t before = counters(rank);
        number = steps(rank, &shapes[i], number, STEPS);
        halay_trainer_counters_t after = counters(rank);
        CHECK(after.control_rounds == before.control_rounds, "shape %zu: %d rounds", i,
              (int)(after.control_rounds - before.control_rounds));
        CHECK(after.voids == before.voids && after.cycles > before.cycles, "shape %zu", i);
    }
}

/* Ten alike and another one: no period of one, once that has failed. */
static void doubt(struct rank *rank)
{
    struct shape shape = {.ncounts = 11};
    for (int i = 0; i < 10; i++)
        shape.counts[i] = 6;
    shape.counts[10] = 1;
    int64_t number = steps(rank, &shape, 0, 40);
    halay_trainer_counters_t before = counters(rank);
    steps(rank, &shape, number, STEPS);
    halay_trainer_counters_t after = counters(rank);
    CHECK(after.control_rounds == before.control_rounds, "%d rounds",
          (int)(after.control_rounds - before.control_rounds));
    CHECK(before.voids <= 4 && after.voids == before.voids, "%d voids", (int)before.voids);
}

/* What never repeats costs few voids. */
static void chaos(struct rank *rank)
{
    struct call call;
    uint64_t common = 77;
    for (int64_t n = 0; n < 600; n++) {
        submit(rank, &call, "a.noname", n, draw(&common) % 3);
        collect(rank, &call);
    }
    CHECK(counters(rank).voids < 30, "%d voids", (int)counters(rank).voids);
}

/* So many are out at once, and are waited for in another order on each rank. */
static void deep(struct rank *rank)
{
    enum { DEEP = 7, CALLS = 400 };
    struct call calls[DEEP];
    int order[DEEP];
    for (int64_t n = 0; n < CALLS; n++) { /* the oldest of them, when there is no more room */
        if (n >= DEEP)
            collect(rank, &calls[n % DEEP]);
        submit(rank, &calls[n % DEEP], "a.noname", n, 4);
    }
    halay_trainer_counters_t after = counters(rank);
    CHECK(after.cycles > CALLS / 2, "%d cycles", (int)after.cycles);
    shuffle(order, DEEP, &rank->seed);
    for (int i = 0; i < DEEP; i++)
        collect(rank, &calls[order[i]]);
    for (int64_t n = CALLS; n < 2 * CALLS; n += DEEP) {
        for (int i = 0; i < DEEP; i++)
            submit(rank, &calls[i], "a.noname", n + i, 4);
        shuffle(order, DEEP, &rank->seed);
        for (int i = 0; i < DEEP; i++)
            collect(rank, &calls[order[i]]);
    }
}

/* Each rank waits where it likes, and submits up to three more than another one. */
static void uneven(struct rank *rank)
{
    enum { AHEAD = 3, CALLS = 600 };
    struct call calls[AHEAD + 1], named;
    int64_t collected = 0;
    for (int64_t n = 0; n < CALLS; n++) {
        int64_t keep = (int64_t)(draw(&rank->seed) % (AHEAD + 1));
        submit(rank, &calls[n % (AHEAD + 1)], "a.noname", n, 4);
        while (n - collected >= keep && collected <= n)
            collect(rank, &calls[collected++ % (AHEAD + 1)]);
        if (n % 50 == 49) {
            submit(rank, &named, "named", 0, 9);
            collect(rank, &named);
        }
    }
    while (collected < CALLS)
        collect(rank, &calls[collected++ % (AHEAD + 1)]);
}

/* A program of named and unnamed ones with branches that all ranks take. */
static void branches(struct rank *rank)
{
    struct call calls[40];
    int64_t a = 0, b = 0;
    uint64_t common = 4711;
    for (int s = 0; s < 400; s++) {
        int n = 0, order[40];
        int odd = s % 100 > 40 && draw(&common) % 5 == 0, together = s / 50 % 2;
        for (int i = 0; i < 5; i++)
            submit(rank, &calls[n++], "w", i, (size_t)(3 + i));
        for (int i = 0; i < 3 + odd; i++)
            submit(rank, &calls[n++], "a.noname", a++, (size_t)(odd && !i ? 2 : 8));
        while (!together && n)
            collect(rank, &calls[--n]);
        if (s % 10 == 9)
            submit(rank, &calls[n++], "b.1.noname", b++, 8);
        submit(rank, &calls[n++], "a.noname", a++, 1);
        shuffle(order, n, &rank->seed);
        for (int i = 0; i < n; i++)
            collect(rank, &calls[order[i]]);
    }
    CHECK(counters(rank).cycles > 150, "%d cycles", (int)counters(rank).cycles);
}

/* ------------------------------------------------------------------ threads */

struct worker {
    struct rank *rank;
    _Atomic int64_t *next;
    int64_t most;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct call call;
    int64_t n;
    while ((n = atomic_fetch_add(worker->next, 1)) < worker->most) {
        submit(worker->rank, &call, "a.noname", n, 4);
        collect(worker->rank, &call);
    }
    return NULL;
}

/* Which thread has which number differs between ranks, and so does what comes first. */
static void threads(struct rank *rank)
{
    pthread_t thread;
    struct call call;
    _Atomic int64_t next = 0;
    struct worker worker = {rank, &next, 500};
    CHECK(!pthread_create(&thread, NULL, work, &worker), "no thread");
    work(&worker);
    pthread_join(thread, NULL);
    for (int64_t n = 1000; n < 1050; n++) {
        submit(rank, &call, "a.noname", n, 4);
        collect(rank, &call);
    }
}

/* ------------------------------------------------------------------ errors */

/* One rank has another shape: an error on all, and all goes on. */
static void mismatch(struct rank *rank)
{
    struct call call, named;
    for (int64_t n = 0; n < 300; n++) {
        int odd = n % 30 == 29, last = rank->rank == rank->nranks - 1;
        submit(rank, &call, "a.noname", n, odd && last ? 3 : 4);
        if (odd && rank->nranks > 1)
            finish(rank, call.ticket, HALAY_EMISMATCH);
        else
            collect(rank, &call);
        submit(rank, &named, "named", 0, 9);
        collect(rank, &named);
    }
    CHECK(counters(rank).cycles > 100, "%d cycles", (int)counters(rank).cycles);
}

/* One rank leaves one out: the others' error; its next ones are others, and all goes on. */
static void missing(struct rank *rank)
{
    struct call call;
    for (int64_t n = 0; n < 40; n++) {
        int odd = n == 15 || n == 30;
        if (odd && rank->rank == 1) {
            meet(rank);
            continue;
        }
        submit(rank, &call, "a.noname", n, 4);
        if (odd)
            finish(rank, call.ticket, HALAY_ETIMEOUT);
        else
            collect(rank, &call);
        if (odd)
            meet(rank);
    }
}

/* Rank by rank, each with as many more calls; then as before, and under names that begin anew. */
static void join(struct rank *rank)
{
    struct call call;
    char series[32];
    for (int epoch = 0; epoch < 8; epoch++) {
        int64_t n = 0;
        halay_ticket_t ticket;
        snprintf(series, sizeof(series), epoch ? "a.%d.noname" : "a.noname", epoch);
        for (; n < 20 + 3 * ((rank->rank + epoch) % rank->nranks); n++) {
            int alone = n >= 20;
            submit(rank, &call, alone ? "b.noname" : series, n, 4);
            if (!alone)
                collect(rank, &call);
            else
                finish(rank, call.ticket, 0);
        }
        CHECK(!halay_trainer_join(rank->trainer, &ticket), "join");
        finish(rank, ticket, 0);
    }
    /* Names that go on where ranks have used up different numbers. */
    for (int64_t n = 100; n < 140; n++) {
        submit(rank, &call, "b.noname", n, 4);
        collect(rank, &call);
    }
}

/* ------------------------------------------------------------------ other kinds */

static void kinds(struct rank *rank)
{
    halay_trainer_counters_t before = {0};
    for (int64_t s = 0; s < 40; s++) {
        char name[64];
        int64_t sent = rank->rank * 100 + s, got = s;
        size_t rows[RANKS_MAX], nrows = 1 + (size_t)(rank->rank + s) % 2, count;
        const size_t *each;
        const void *data;
        int64_t mine[2] = {sent, sent}, all[RANKS_MAX];
        halay_ticket_t tickets[4];
        halay_dims_t shape = {1, {(size_t)rank->nranks}};
        for (int r = 0; r < rank->nranks; r++) {
            rows[r] = 1;
            all[r] = sent + 1000 * r;
        }
        if (s == 10)
            before = counters(rank);
        snprintf(name, sizeof(name), "broadcast.noname.%lld", (long long)s);
        got = rank->rank ? -1 : s;
        CHECK(!halay_trainer_broadcast(rank->trainer, name, &got, 1, HALAY_INT64, 0, &tickets[0]),
              "broadcast");
        snprintf(name, sizeof(name), "allgather.noname.%lld", (long long)s);
        CHECK(
            !halay_trainer_allgather(rank->trainer, name, mine, nrows, 1, HALAY_INT64, &tickets[1]),
            "allgather");
        snprintf(name, sizeof(name), "alltoall.noname.%lld", (long long)s);
        CHECK(!halay_trainer_alltoall(rank->trainer, name, all, rows, &shape, HALAY_INT64,
                                      &tickets[2]),
              "alltoall");
        snprintf(name, sizeof(name), "barrier.noname.%lld", (long long)s);
        CHECK(!halay_trainer_barrier(rank->trainer, name, &tickets[3]), "barrier");
        CHECK(!halay_trainer_wait(rank->trainer, tickets[2], NULL, 0), "wait");
        CHECK(!halay_trainer_result(rank->trainer, tickets[2], &data, &count, &each), "result");
        for (int r = 0; r < rank->nranks; r++)
            CHECK(((const int64_t *)data)[r] == r * 100 + s + 1000 * rank->rank, "alltoall");
        CHECK(!halay_trainer_wait(rank->trainer, tickets[1], NULL, 0), "wait");
        CHECK(!halay_trainer_result(rank->trainer, tickets[1], &data, &count, &each), "result");
        for (int r = 0, at = 0; r < rank->nranks; at += (int)each[r++])
            CHECK(each[r] == 1 + (size_t)(r + s) % 2 && ((const int64_t *)data)[at] == r * 100 + s,
                  "allgather");
        for (int t = 0; t < 4; t++)
            finish(rank, tickets[t], 0);
        CHECK(got == s, "broadcast");
    }
    CHECK(counters(rank).control_rounds == before.control_rounds, "rounds");
    CHECK(counters(rank).deals == before.deals, "%d deals",
          (int)(counters(rank).deals - before.deals));
}

/* Names that look alike, and numbers that come again: as any name. */
static void lookalikes(struct rank *rank)
{
    static const char *const names[] = {"noname",          "x.noname.0", "xnoname",
                                        "x.noname.noname", "noname.1.x", "anoname.noname",
                                        "nonam",           "x.Noname"};
    enum { NAMES = sizeof(names) / sizeof(names[0]) };
    struct call calls[NAMES];
    for (int s = 0; s < 40; s++) {
        for (int i = 0; i < NAMES; i++)
            submit(rank, &calls[i], names[i], s / 10, 3);
        for (int i = 0; i < NAMES; i++)
            collect(rank, &calls[i]);
    }
    for (int s = 0; s < 30; s++) { /* backwards, and with gaps */
        submit(rank, &calls[0], "y.noname", 1000 - s, 3);
        submit(rank, &calls[1], "z.noname", 1000 + 2 * s, 3);
        collect(rank, &calls[1]);
        collect(rank, &calls[0]);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"steady", steady},
        {"doubt", doubt},
        {"chaos", chaos},
        {"deep", deep},
        {"uneven", uneven},
        {"branches", branches},
        {"branches, unfused", branches, .fusion = "0"},
        {"threads", threads},
        {"mismatch", mismatch},
        {"missing", missing, .sizes = {3}, .deadline_s = "1"},
        {"join", join},
        {"kinds", kinds},
        {"lookalikes", lookalikes},
        {"branches, faults", branches, .faults = &ranks_chaos},
        {"uneven, faults", uneven, .faults = &ranks_chaos},
        {NULL},
    };
    return run_cases(cases, argc, argv);
}
