/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_done.c - functions that are called when tickets are done: once each, with the
 * result, though nobody waits or polls; in chains; with errors; beside callers that wait; and of a
 * trainer that is destroyed.
 */
#include <semaphore.h>
#include <stdatomic.h>

#include "training_ranks.h"

enum { TENSORS = 40, ROUNDS = 30, CHAIN = 3000, ANY = 1 };

struct sum {
    struct rank *rank;
    sem_t *all;
    float in, out, wanted;
    int code; /* that is wanted; ANY: of an error */
    atomic_int called;
};

static void called(void *arg, halay_ticket_t ticket)
{
    struct sum *sum = arg;
    const void *data = NULL;
    size_t count = 0;
    CHECK(halay_trainer_poll(sum->rank->trainer, ticket) == 1, "it is not done");
    int rc = halay_trainer_result(sum->rank->trainer, ticket, &data, &count, NULL);
    CHECK(sum->code == ANY ? rc < 0 : rc == sum->code, "%d instead of %d", rc, sum->code);
    CHECK(rc || (data == &sum->out && count == 1 && sum->out == sum->wanted), "%g instead of %g",
          (double)sum->out, (double)sum->wanted);
    halay_trainer_release(sum->rank->trainer, ticket);
    CHECK(halay_trainer_poll(sum->rank->trainer, ticket) == HALAY_EINVAL, "it is out after all");
    CHECK(!atomic_fetch_add(&sum->called, 1), "it was called before");
    sem_post(sum->all);
}

static halay_ticket_t submit(struct sum *sum, const char *name, float value)
{
    const int n = sum->rank->nranks;
    halay_ticket_t ticket;
    sum->in = value + (float)sum->rank->rank;
    sum->wanted = (float)n * value + (float)(n * (n - 1) / 2);
    atomic_store(&sum->called, 0);
    int rc = halay_trainer_allreduce(sum->rank->trainer, name, &sum->in, &sum->out, 1,
                                     HALAY_FLOAT32, HALAY_SUM, 1, 1, &ticket);
    CHECK(!rc, "submit %s: %s", name, halay_strerror(rc));
    return ticket;
}

static void expect(struct sum *sum, halay_ticket_t ticket)
{
    int rc = halay_trainer_on_done(sum->rank->trainer, ticket, called, sum);
    CHECK(!rc, "on_done: %s", halay_strerror(rc));
}

/* In rounds, then in replays; in another order on each rank; then a part of the programme alone. */
static void many(struct rank *rank)
{
    static struct sum all[RANKS_MAX][TENSORS];
    struct sum *sums = all[rank->rank];
    sem_t done;
    sem_init(&done, 0, 0);
    for (int round = 0; round < ROUNDS; round++) {
        const int n = round < ROUNDS - 1 ? TENSORS : 3;
        int order[TENSORS];
        shuffle(order, n, &rank->seed);
        for (int i = 0; i < n; i++) {
            char name[32];
            snprintf(name, sizeof(name), "tensor.%d", order[i]);
            sums[order[i]].rank = rank;
            sums[order[i]].all = &done;
            expect(&sums[order[i]], submit(&sums[order[i]], name, (float)(round + order[i])));
        }
        const uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);
        for (int i = 0; i < n; i++)
            sem_wait(&done);
        CHECK(clock_ns(CLOCK_MONOTONIC) - begin_ns < UINT64_C(5000000000), "round %d is late",
              round);
    }
    meet(rank);
    CHECK(counters(rank).cycles > 0, "nothing was replayed");
    sem_destroy(&done);
}

struct chain {
    struct sum sum; /* the first member */
    int links;
};

/* Each function submits the next: neither the stack grows, nor does anybody wait. */
static void next(void *arg, halay_ticket_t ticket)
{
    struct chain *chain = arg;
    struct sum *sum = &chain->sum;
    CHECK(sum->out == sum->wanted, "%g instead of %g", (double)sum->out, (double)sum->wanted);
    halay_trainer_release(sum->rank->trainer, ticket);
    if (++chain->links == CHAIN) {
        sem_post(sum->all);
        return;
    }
    halay_ticket_t later = submit(sum, "link", (float)chain->links);
    CHECK(!halay_trainer_on_done(sum->rank->trainer, later, next, chain), "on_done");
}

static void chains(struct rank *rank)
{
    sem_t done;
    struct chain chain = {.sum = {.rank = rank, .all = &done}};
    sem_init(&done, 0, 0);
    halay_ticket_t first = submit(&chain.sum, "link", 0);
    CHECK(!halay_trainer_on_done(rank->trainer, first, next, &chain), "on_done");
    sem_wait(&done);
    sem_destroy(&done);
}

/* Others wait for what has a function, and for what has none. */
static void waited(struct rank *rank)
{
    sem_t done;
    struct sum a = {.rank = rank, .all = &done}, b = a;
    sem_init(&done, 0, 0);
    for (int i = 0; i < 200; i++) {
        halay_ticket_t first = submit(&a, "a", (float)i), second = submit(&b, "b", (float)-i);
        expect(&a, first);
        finish(rank, second, 0);
        if (i % 2) {
            int rc = halay_trainer_wait(rank->trainer, first, NULL, 0);
            CHECK(rc == 0 || rc == HALAY_EINVAL, "%d", rc); /* its function releases it */
        }
        sem_wait(&done);
        CHECK(b.out == b.wanted, "b");
    }
    sem_destroy(&done);
}

static void refused(struct rank *rank)
{
    sem_t done;
    struct sum a = {.rank = rank, .all = &done}, b = a;
    sem_init(&done, 0, 0);
    CHECK(halay_trainer_on_done(rank->trainer, 12345, called, &a) == HALAY_EINVAL, "no ticket");
    CHECK(halay_trainer_on_done(NULL, 0, called, &a) == HALAY_EINVAL, "no trainer");
    /* done already: at once. Twice: not while one waits */
    halay_ticket_t ticket = submit(&a, "a", 7);
    CHECK(halay_trainer_on_done(rank->trainer, ticket, NULL, &a) == HALAY_EINVAL, "no function");
    CHECK(!halay_trainer_wait(rank->trainer, ticket, NULL, 0), "wait");
    expect(&a, ticket);
    CHECK(atomic_load(&a.called) == 1, "it was not called at once");
    meet(rank);
    if (rank->rank == 0) {
        ticket = submit(&a, "late", 7);
        expect(&a, ticket);
        CHECK(halay_trainer_on_done(rank->trainer, ticket, called, &b) == HALAY_EINVAL, "two");
    }
    meet(rank);
    if (rank->rank)
        expect(&a, submit(&a, "late", 7));
    sem_wait(&done);
    sem_wait(&done);
    /* a mismatch */
    b.code = HALAY_EMISMATCH;
    double other[2] = {0};
    if (rank->rank) {
        expect(&b, submit(&b, "unlike", 1));
    } else {
        CHECK(!halay_trainer_allreduce(rank->trainer, "unlike", other, other, 2, HALAY_FLOAT64,
                                       HALAY_SUM, 1, 1, &ticket),
              "submit");
        expect(&b, ticket);
    }
    sem_wait(&done);
    sem_destroy(&done);
}

/* What one rank alone has submitted ends with the trainer, or because the other's has ended; and
 * its function is called. */
static void destroyed(struct rank *rank)
{
    sem_t done;
    struct sum sums[5];
    sem_init(&done, 0, 0);
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof(name), "only.%d.%d", rank->rank, i);
        sums[i] = (struct sum){.rank = rank, .all = &done, .code = ANY};
        expect(&sums[i], submit(&sums[i], name, 1));
    }
    meet(rank);
    halay_trainer_destroy(rank->trainer);
    for (int i = 0; i < 5; i++)
        CHECK(atomic_load(&sums[i].called) == 1, "function %d was not called", i);
    rank->trainer = NULL;
    sem_destroy(&done);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"many", many, {2, 3}},       {"chains", chains, {2}},          {"waited", waited, {2, 3}},
        {"refused", refused, {2, 3}}, {"destroyed", destroyed, {2, 3}}, {NULL},
    };
    return run_cases(cases, argc, argv);
}
