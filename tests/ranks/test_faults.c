/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that die, leave, hang or are cut off, at random moments of random calls, over every way
 * data can travel: the others return an error in time that names the rank, all with the same words
 * where they failed in the same call, and no byte of their buffers changes afterwards.
 *
 *   test_faults CASE [ROUNDS]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "ranks.h"

#define NRANKS      5
#define COUNT       5000
#define DEADLINE    4000000000ull
#define IN_TIME     (DEADLINE + 6000000000ull) /* a loaded machine under a sanitizer */
#define CALLS_MAX   100000
#define ABANDON_NAP 20000000 /* long enough for the others to complete */

struct outcome {
    int code;
    uint32_t sequence;
    char text[512];
    bool lost;
};

struct round {
    pthread_barrier_t barrier;
    int number, victim;
    uint64_t victim_calls;
    struct outcome outcome[NRANKS];
    const char *test;
    atomic_int listeners; /* ranks that have completed, and make progress */
    atomic_bool left;     /* the victim has finalized */
    uint64_t *quickest;   /* how soon it could, in ns */
};

static void nap(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    nanosleep(&ts, NULL);
}

static int some_call(struct rank *r, uint64_t which, int32_t *in, int32_t *out)
{
    size_t count = which % 3 ? COUNT / NRANKS : 3;
    int root = (int)(which % NRANKS);
    switch (which % 11) {
    case 0:
        return halay_allreduce(in, out, count, HALAY_INT32, HALAY_SUM, r->world);
    case 1:
        return halay_allgather(in, out, count, HALAY_INT32, r->world);
    case 2:
        return halay_reduce_scatter(in, out, count, HALAY_INT32, HALAY_SUM, r->world);
    case 3:
        return halay_broadcast(out, count, HALAY_INT32, root, r->world);
    case 4:
        return halay_reduce(in, out, count, HALAY_INT32, HALAY_SUM, root, r->world);
    case 5:
        return halay_gather(in, out, count, HALAY_INT32, root, r->world);
    case 6:
        return halay_scatter(in, out, count, HALAY_INT32, root, r->world);
    case 7:
        return halay_alltoall(in, out, count, HALAY_INT32, r->world);
    case 8:
        return halay_scan(in, out, count, HALAY_INT32, HALAY_SUM, r->world);
    case 9:
        return halay_exscan(in, out, count, HALAY_INT32, HALAY_SUM, r->world);
    default:
        return halay_barrier(r->world);
    }
}

static void note(struct rank *r, int rc, uint64_t started)
{
    struct round *round = r->arg;
    struct outcome *o = &round->outcome[r->rank];
    halay_verdict_t v = {.size = sizeof(v)};
    CHECK(ranks_now_ns() - started < IN_TIME, "%s: rank %d returned after %.1f s", round->test,
          r->rank, (double)(ranks_now_ns() - started) * 1e-9);
    CHECK(halay_comm_verdict(r->world, &v) == 0 && v.code == rc, "%s: verdict %d, result %d",
          round->test, v.code, rc);
    o->code = rc;
    o->sequence = v.sequence;
    strcpy(o->text, v.text);
    CHECK(v.rank == round->victim, "%s: rank %d blames %d, not %d: %s", round->test, r->rank,
          v.rank, round->victim, v.text);
}

/* `in`, and `out` behind it; in every second round registered memory, which goes with the
 * context, and which is lent.
 */
static int32_t *buffers(const struct rank *r)
{
    const struct round *round = r->arg;
    const size_t bytes = 2 * COUNT * sizeof(int32_t);
    void *in = round->number % 2 ? calloc(1, bytes) : NULL;
    CHECK(in || !halay_mem_alloc(r->context, bytes, &in), "no memory");
    return in;
}

static void buffers_free(const struct rank *r, int32_t *in)
{
    if (((const struct round *)r->arg)->number % 2)
        free(in);
}

/* The buffers as they were at the error are the buffers a moment later, whatever still arrives. */
static void quiescent(struct rank *r, const int32_t *out)
{
    size_t bytes = COUNT * sizeof(*out);
    int32_t *copy = malloc(bytes);
    CHECK(copy, "no memory");
    memcpy(copy, out, bytes);
    for (int i = 0; i < 200; i++)
        halay_context_progress(r->context, 0);
    nap(2000000);
    for (int i = 0; i < 200; i++)
        halay_context_progress(r->context, 0);
    CHECK(!memcmp(copy, out, bytes), "rank %d: the buffer changed after the error", r->rank);
    free(copy);
}

static void survive(struct rank *r, int expected)
{
    struct round *round = r->arg;
    int32_t *in = buffers(r), *out = in + COUNT;
    int rc = 0;
    uint64_t started = 0, calls = 0;
    while (!rc && calls < CALLS_MAX) {
        started = ranks_now_ns();
        rc = some_call(r, calls++, in, out);
    }
    CHECK(rc == expected, "%s: rank %d got %s", round->test, r->rank, halay_strerror(rc));
    note(r, rc, started);
    quiescent(r, out);
    started = ranks_now_ns();
    rc = some_call(r, calls, in, out); /* the communicator stays broken, and says so at once */
    CHECK(rc < 0 && ranks_now_ns() - started < IN_TIME, "%s: a later call gave %s", round->test,
          halay_strerror(rc));
    buffers_free(r, in);
}

static void victim_calls(struct rank *r)
{
    struct round *round = r->arg;
    int32_t *in = buffers(r), *out = in + COUNT;
    for (uint64_t i = 0; i < round->victim_calls; i++)
        CHECK(some_call(r, i, in, out) == 0, "%s: too early", round->test);
    buffers_free(r, in);
}

static void leave(struct rank *r)
{
    pthread_barrier_wait(&((struct round *)r->arg)->barrier);
    halay_finalize(r->context); /* ESTATE is in order after all this */
}

/* ---------------------------------------------------------------- the cases */

static void *killer(void *arg)
{
    struct rank *r = arg;
    nap(ranks_random(&r->seed) % 3000000);
    halay_inproc_kill(r->hub, r->rank);
    return NULL;
}

/* Dies in the middle of whatever it is doing. */
static void die(struct rank *r)
{
    struct round *round = r->arg;
    CHECK(halay_barrier(r->world) == 0, "die: too early");
    pthread_barrier_wait(
        &round->barrier); /* all are out of it: nobody takes the death for its own */
    if (r->rank != round->victim) {
        survive(r, HALAY_EPEER);
        leave(r);
        return;
    }
    pthread_t thread;
    int32_t *in = buffers(r), *out = in + COUNT;
    r->seed += round->victim_calls;
    CHECK(!pthread_create(&thread, NULL, killer, r), "no thread");
    for (uint64_t i = 0; some_call(r, i, in, out) == 0; i++)
        ;
    pthread_join(thread, NULL);
    leave(r);
    buffers_free(r, in);
}

/* Finalizes in good order while the others go on. */
static void go(struct rank *r)
{
    struct round *round = r->arg;
    if (r->rank != round->victim) {
        survive(r, HALAY_EPEER);
        leave(r);
        return;
    }
    victim_calls(r);
    CHECK(halay_finalize(r->context) == 0, "finalize");
    pthread_barrier_wait(&round->barrier);
}

/* Lives, and does not make its next call. */
static void hang(struct rank *r)
{
    struct round *round = r->arg;
    if (r->rank != round->victim)
        survive(r, HALAY_ETIMEOUT);
    else
        victim_calls(r);
    leave(r);
}

/* Goes on after the call that the victim does not complete. */
static void outlive(struct rank *r)
{
    struct round *round = r->arg;
    uint64_t until = ranks_now_ns() + IN_TIME;
    atomic_fetch_add(&round->listeners, 1);
    while (!atomic_load(&round->left) && ranks_now_ns() < until)
        halay_context_progress(r->context, 1000000);
}

/* Finalizes with a request in flight. */
static void abandon(struct rank *r)
{
    struct round *round = r->arg;
    int32_t in[4] = {0}, out[4];
    uint64_t started = ranks_now_ns();
    if (r->rank != round->victim) {
        int rc = halay_allreduce(in, out, 4, HALAY_INT32, HALAY_SUM, r->world);
        if (rc == 0) { /* it had heard from all before the victim gave up, and the victim had not */
            round->outcome[r->rank].sequence = UINT32_MAX - (uint32_t)r->rank; /* like nobody's */
            if (round->number / NRANKS % 3 == 1) /* else it computes, and hears nothing */
                outlive(r);
            leave(r);
            return;
        }
        CHECK(rc == HALAY_ESTATE, "abandon: rank %d got %s", r->rank, halay_strerror(rc));
        note(r, rc, started);
        leave(r);
        return;
    }
    halay_request_t *request;
    CHECK(!halay_iallreduce(in, out, 4, HALAY_INT32, HALAY_SUM, r->world, &request), "post");
    if (round->number / NRANKS % 3) /* late: some or all of the others complete */
        nap(ABANDON_NAP);
    uint64_t finalized = ranks_now_ns();
    CHECK(halay_finalize(r->context) == HALAY_ESTATE, "a request in flight was not noticed");
    if (atomic_load(&round->listeners) && ranks_now_ns() - finalized < *round->quickest)
        *round->quickest = ranks_now_ns() - finalized;
    atomic_store(&round->left, true);
    pthread_barrier_wait(&round->barrier);
}

/* Nothing gets from or to the victim any more, and nobody is told. */
static void cut(struct rank *r)
{
    struct round *round = r->arg;
    if (r->rank != round->victim) {
        int32_t *in = buffers(r);
        uint64_t started = 0, i = 0;
        int rc = 0;
        while (!rc && i < CALLS_MAX) {
            started = ranks_now_ns();
            rc = some_call(r, i++, in, in + COUNT);
        }
        CHECK((rc == HALAY_ETIMEOUT || rc == HALAY_EPEER) && ranks_now_ns() - started < IN_TIME,
              "cut: rank %d got %s after %.1f s", r->rank, halay_strerror(rc),
              (double)(ranks_now_ns() - started) * 1e-9);
        quiescent(r, in + COUNT);
        leave(r);
        buffers_free(r, in);
        return;
    }
    int32_t *in = buffers(r);
    for (uint64_t i = 0; i < round->victim_calls; i++)
        CHECK(some_call(r, i, in, in + COUNT) == 0, "cut: too early");
    for (int k = 0; k < NRANKS; k++)
        if (k != r->rank)
            halay_inproc_cut(r->hub, r->rank, k);
    int rc = 0;
    for (uint64_t i = round->victim_calls; !rc && i < CALLS_MAX; i++)
        rc = some_call(r, i, in, in + COUNT);
    CHECK(rc == HALAY_ETIMEOUT || rc == HALAY_EPEER, "cut: the victim got %s", halay_strerror(rc));
    leave(r);
    buffers_free(r, in);
}

static const struct test {
    const char *name;
    void (*fn)(struct rank *);
    bool same_words; /* ranks that failed in the same call have the same verdict */
} tests[] = {{"die", die, true},
             {"go", go, true},
             {"hang", hang, true},
             {"abandon", abandon, true},
             {"cut", cut, false}};

static void check_words(const struct round *round)
{
    for (int a = 0; a < NRANKS; a++)
        for (int b = 0; b < a; b++)
            if (a != round->victim && b != round->victim &&
                round->outcome[a].sequence == round->outcome[b].sequence)
                CHECK(!strcmp(round->outcome[a].text, round->outcome[b].text),
                      "%s:\n %d: %s\n %d: %s", round->test, a, round->outcome[a].text, b,
                      round->outcome[b].text);
}

int main(int argc, char **argv)
{
    /* Some rounds on several nodes, where ranks talk through others. */
    static const int nodes[][NRANKS] = {{0, 0, 1, 1, 1}, {0, 1, 0, 1, 0}, {0, 1, 2, 1, 1}};
    static const uint32_t hidden[] = {HALAY_CAN_LAND, HALAY_CAN_PUT,
                                      HALAY_CAN_PUT | HALAY_CAN_LAND};
    const struct test *test = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof(tests) / sizeof(tests[0]); i++)
        if (!strcmp(argv[1], tests[i].name))
            test = &tests[i];
    CHECK(test, "usage: test_faults die|go|hang|abandon|cut [ROUNDS]");
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    int rounds = argc > 2 ? atoi(argv[2]) : 9;
    uint64_t quickest = UINT64_MAX;
    for (int i = 0; i < rounds; i++) {
        struct round round = {.number = i,
                              .victim = i % NRANKS,
                              .victim_calls = (uint64_t)(1 + i * 7 % 23),
                              .test = test->name,
                              .quickest = &quickest};
        halay_inproc_faults_t faults = {.seed = (uint64_t)i + 1,
                                        .delay_polls_max = 3,
                                        .reorder = 1,
                                        .late_put_polls = 6,
                                        .lend_bytes = 32,
                                        .cache = 1,
                                        .eager_bytes = i % 4 ? 64 : 1024, /* few segments */
                                        .hide_capabilities = hidden[i % 3]};
        struct ranks_options o = {.nranks = NRANKS,
                                  .faults = &faults,
                                  .deadline_ns = DEADLINE,
                                  .node_of_rank = i % 2 ? nodes[i / 2 % 3] : NULL,
                                  .shm = i % 4 == 3 && strcmp(test->name, "die") &&
                                         strcmp(test->name, "cut"),
                                  .keep = true};
        pthread_barrier_init(&round.barrier, NULL, NRANKS);
        ranks_run(&o, test->fn, &round);
        pthread_barrier_destroy(&round.barrier);
        if (test->same_words)
            check_words(&round);
    }
    /* Who completed says so, and the victim need not wait until it gives up after a second. */
    CHECK(test->fn != abandon || quickest < 900000000ull, "abandon: at best %.3f s",
          (double)quickest * 1e-9);
    return 0;
}
