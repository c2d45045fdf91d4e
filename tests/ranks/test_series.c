/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_series.c - equal broadcasts, one after the other (docs/decisions/plans.md#0046): their root
 * goes ahead, but not further than said; data are right whatever comes between them; however a call
 * of a series fails, all ranks hear of it within HLY_RELAXED_PERIOD calls, in the same words; and a
 * root that leaves takes nothing with it.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

enum { SERIES = 32, MOST = 6000 }; /* calls of which the first is heard of; elements */
#define AWAY_NS 1200000000ull      /* more than ranks take to agree without one of them */
#define LONG_NS 15000000000ull     /* less than the deadline */

static void relax(halay_comm_t *comm)
{
    CHECK(!halay_comm_set_hint(comm, HALAY_HINT_RELAXED_BROADCAST, 1), "hint");
}

static void nap(uint64_t *seed, int one_of)
{
    if (ranks_random(seed) % (uint64_t)one_of == 0)
        usleep((useconds_t)(ranks_random(seed) % 300));
}

static void fill(struct rank *r, int32_t *data, int count, int root, int round)
{
    for (int i = 0; i < count; i++)
        data[i] = r->rank == root ? (int32_t)ranks_value(root, round, i) : -1;
}

static void check(const int32_t *data, int count, int root, int round)
{
    for (int i = 0; i < count; i++)
        CHECK(data[i] == (int32_t)ranks_value(root, round, i), "call %d, element %d", round, i);
}

/* ---------------------------------------------------------------- data */

static void blocking(struct rank *r, int32_t *data, int count, int root, int round)
{
    fill(r, data, count, root, round);
    int rc = halay_broadcast(data, (size_t)count, HALAY_INT32, root, r->world);
    CHECK(rc == 0, "rank %d, call %d: %s", r->rank, round, halay_strerror(rc));
    check(data, count, root, round);
}

static void many_at_once(struct rank *r, int root, int round)
{
    static __thread int32_t data[3 * SERIES][4];
    halay_request_t *request[3 * SERIES];
    for (int i = 0; i < 3 * SERIES; i++) {
        fill(r, data[i], 4, root, round + i);
        CHECK(!halay_ibroadcast(data[i], 4, HALAY_INT32, root, r->world, &request[i]), "post");
    }
    for (int i = 0; i < 3 * SERIES; i++) {
        CHECK(!halay_request_wait(request[i]), "call %d", round + i);
        check(data[i], 4, root, round + i);
    }
}

/* Series of all lengths, roots and sizes, and what ends them; the same on all ranks. */
static void data_are_right(struct rank *r)
{
    relax(r->world);
    static const int counts[] = {1, 2, 100, 1000, MOST};
    static __thread int32_t data[MOST];
    uint64_t shape = 17, own = r->seed;
    int round = 0;
    for (int part = 0; part < *(const int *)r->arg; part++) {
        const int root = (int)(ranks_random(&shape) % (uint64_t)r->nranks);
        const int count = counts[ranks_random(&shape) % 5];
        const int length = 1 + (int)(ranks_random(&shape) % (3 * SERIES));
        for (int i = 0; i < length; i++) {
            nap(&own, 40);
            blocking(r, data, count, root, round++);
        }
        int32_t one = 1, sum = 0;
        switch (ranks_random(&shape) % 4) {
        case 0:
            CHECK(!halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, r->world), "allreduce");
            CHECK(sum == r->nranks, "sum %d", sum);
            break;
        case 1:
            many_at_once(r, root, round);
            round += 3 * SERIES;
            break;
        case 2: /* alternately: never a series */
            for (int i = 0; i < 6; i++)
                blocking(r, data, 1 + i % 2, (root + i) % r->nranks, round++);
            break;
        default:
            break; /* another one follows at once */
        }
    }
    nap(&own, 1); /* and the root leaves first, perhaps */
}

/* ---------------------------------------------------------------- how far ahead */

struct pace {
    atomic_int root; /* calls that it has ended */
    atomic_int posted;
};

static void root_goes_ahead(struct rank *r)
{
    relax(r->world);
    struct pace *pace = r->arg;
    int32_t data[2] = {0};
    for (int i = 0; i < 2 * SERIES + 1; i++) {
        if (r->rank && i % SERIES == 1) /* until the root has ended all that it need not wait for */
            while (atomic_load(&pace->root) < i + SERIES - 1)
                usleep(100);
        if (r->rank && i % SERIES == 0) { /* of which this is none: it has to wait for us */
            usleep(20000);
            CHECK(atomic_load(&pace->root) <= i, "the root has ended call %d", i);
        }
        blocking(r, data, 2, 0, i);
        if (!r->rank)
            atomic_store(&pace->root, i + 1);
    }
}

/* A call that others take for an answer is not made before the older ones have ended here. */
static void confirms(struct rank *r)
{
    relax(r->world);
    struct pace *pace = r->arg;
    int32_t data[2] = {0};
    for (int i = 0; i < SERIES - 1; i++)
        blocking(r, data, 2, 0, i);
    halay_request_t *request[2];
    if (r->rank == 1) {
        for (int i = 0; i < 2; i++)
            CHECK(!halay_ibroadcast(data, 2, HALAY_INT32, 0, r->world, &request[i]), "post");
        atomic_store(&pace->posted, 1);
        usleep(50000);
        CHECK(atomic_load(&pace->root) < 2, "the root has ended a call after one not ended here");
        for (int i = 0; i < 2; i++)
            CHECK(!halay_request_wait(request[i]), "call %d", SERIES - 1 + i);
        return;
    }
    while (!atomic_load(&pace->posted))
        usleep(100);
    for (int i = 0; i < 2; i++) {
        CHECK(!halay_broadcast(data, 2, HALAY_INT32, 0, r->world), "call %d", SERIES - 1 + i);
        if (!r->rank)
            atomic_store(&pace->root, i + 1);
    }
}

/* ---------------------------------------------------------------- failures */

struct failing {
    int at, who; /* call, and the rank that then */
    enum { CALLS_ANOTHER, HAS_ANOTHER_COUNT, IS_WRONG, LEAVES } how;
    int ahead;  /* calls under way besides the one that is waited for */
    bool polls; /* between the calls, too */
    char text[80];
    struct ranks_board board;
};

#define AHEAD_MOST 3

/* What is under way: `n` calls, the oldest first. */
struct under_way {
    int n;
    halay_request_t *request[AHEAD_MOST + 1];
    int32_t data[2], out[2];
};

static void post(struct rank *r, const struct failing *f, int i, struct under_way *w)
{
    halay_request_t **q = &w->request[w->n++];
    const bool fails = i == f->at && r->rank == f->who;
    if (fails && f->how == CALLS_ANOTHER) {
        CHECK(!halay_iallreduce(w->data, w->out, 2, HALAY_INT32, HALAY_SUM, r->world, q), "post");
        return;
    }
    int32_t *data = fails && f->how == IS_WRONG ? NULL : w->data;
    const size_t count = fails && f->how == HAS_ANOTHER_COUNT ? 1 : 2;
    CHECK(!halay_ibroadcast(data, count, HALAY_INT32, 0, r->world, q), "post");
}

static int await_oldest(struct under_way *w)
{
    const int rc = halay_request_wait(w->request[0]);
    memmove(w->request, w->request + 1, (size_t)--w->n * sizeof(w->request[0]));
    return rc;
}

/* Within a series from its call, with the same words. */
static void all_hear(struct rank *r)
{
    relax(r->world);
    struct failing *f = r->arg;
    struct ranks_board *b = &f->board;
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    struct under_way w = {0};
    uint64_t seed = r->seed;
    int heard = -1;
    char number[40];
    for (int i = 0; i < f->at + 2 * SERIES + f->ahead; i++) {
        if (f->how == LEAVES && i == f->at && r->rank == f->who)
            break;
        nap(&seed, 10);
        if (f->polls)
            CHECK(!halay_context_progress(r->context, 0), "progress");
        post(r, f, i, &w);
        if (w.n <= f->ahead)
            continue;
        int rc = await_oldest(&w);
        if (!rc || heard >= 0)
            continue;
        heard = i - f->ahead;
        b->code[r->rank] = rc;
        CHECK(!halay_comm_verdict(r->world, &verdict), "verdict");
        snprintf(b->text[r->rank], sizeof(b->text[0]), "%.511s", verdict.text);
    }
    while (w.n)
        await_oldest(&w);
    if (f->how == LEAVES && r->rank == f->who)
        return;
    CHECK(heard >= f->at && heard <= f->at + SERIES, "%s: rank %d heard in %d", f->text, r->rank,
          heard);
    CHECK(b->code[r->rank] == (f->how == LEAVES     ? HALAY_EPEER
                               : f->how == IS_WRONG ? HALAY_EINVAL
                                                    : HALAY_EMISMATCH),
          "%s: rank %d: %s", f->text, r->rank, halay_strerror(b->code[r->rank]));
    snprintf(number, sizeof(number), "call %d on this communicator", f->at);
    CHECK(f->how == LEAVES || strstr(verdict.text, number), "%s: rank %d: %s", f->text, r->rank,
          verdict.text);
    int last = pthread_barrier_wait(&b->barrier);
    for (int i = 1; last && i < r->nranks; i++) {
        const int first = f->how == LEAVES && f->who == 0;
        if (f->how != LEAVES || i != f->who)
            CHECK(!strcmp(b->text[i], b->text[first]), "%s: %s\n%s", f->text, b->text[i],
                  b->text[first]);
    }
}

/* die: which call, rank and failure. */
static void failure(const struct ranks_options *options, uint32_t die, int ahead, bool polls)
{
    static const int at[] = {1, 2, SERIES - 1, SERIES, SERIES + 5, 2 * SERIES + 1};
    struct failing f = {.at = at[die % 6],
                        .who = (int)(die % (unsigned)options->nranks),
                        .how = die / 6 % 4,
                        .ahead = ahead,
                        .polls = polls};
    const uint64_t start = ranks_now_ns();
    snprintf(f.text, sizeof(f.text), "%d ranks%s, rank %d fails in call %d (%d), %d ahead%s",
             options->nranks, options->shm ? " over shm" : "", f.who, f.at, (int)f.how, ahead,
             polls ? ", polls" : "");
    pthread_barrier_init(&f.board.barrier, NULL, (unsigned)(options->nranks - (f.how == LEAVES)));
    ranks_run(options, all_hear, &f);
    pthread_barrier_destroy(&f.board.barrier);
    CHECK(ranks_now_ns() - start < LONG_NS, "%s: a rank has waited for its deadline", f.text);
}

static void failures(const struct ranks_options *options, int step)
{
    for (int i = 0; i < 6 * 4; i += step)
        failure(options, (uint32_t)i, 0, false);
}

/* Who hears of what first is a matter of chance: with 15,000 of them, on a busy machine, there were
 * three in which two ranks had different words, before those who had completed the call took part
 * in the rounds. */
static void random_failures(int n)
{
    unsigned seed = (unsigned)ranks_now_ns();
    for (int i = 0; i < n; i++) {
        struct ranks_options options = {.nranks = 3 + rand_r(&seed) % 4,
                                        .shm = rand_r(&seed) & 1,
                                        .algorithm = "broadcast=flat"};
        failure(&options, (uint32_t)rand_r(&seed) / 7, rand_r(&seed) % (AHEAD_MOST + 1),
                rand_r(&seed) & 1);
    }
}

/*
 * A rank leaves after a call that all have confirmed, while others have posted the next. That waits
 * for the confirmation, so it starts when its root knows of the loss already.
 */
static void leaves_before_a_queued_call(void)
{
    const struct ranks_options options = {.nranks = 5, .algorithm = "broadcast=flat"};
    for (int i = 0; i < 30; i++)
        failure(&options, 5 + 6 * LEAVES + 24, 1, i % 2); /* rank 2, in the last one of at[] */
}

static atomic_bool root_heard;

/* Who fails waits for the others to agree, but not for a root that has gone on. */
static void root_is_away(struct rank *r)
{
    relax(r->world);
    int32_t data[2] = {0};
    CHECK(!halay_broadcast(data, 2, HALAY_INT32, 0, r->world), "the first");
    uint64_t start = ranks_now_ns();
    int rc = halay_broadcast(data, r->rank ? 1 : 2, HALAY_INT32, 0, r->world);
    CHECK(rc == HALAY_EMISMATCH || (!rc && !r->rank), "rank %d: %s", r->rank, halay_strerror(rc));
    CHECK(ranks_now_ns() - start < AWAY_NS, "rank %d waited for the root", r->rank);
    if (r->rank == 0) {
        atomic_store(&root_heard, rc != 0); /* on a busy machine, before it ended the call */
        usleep(AWAY_NS / 1000);
    }
    pthread_barrier_wait(r->arg);
    if (atomic_load(&root_heard))
        return; /* all ranks are in step */
    for (int i = 0; i < SERIES && (i == 0 || !rc); i++)
        rc = halay_broadcast(data, 2, HALAY_INT32, 0, r->world);
    CHECK(rc == HALAY_EMISMATCH, "rank %d: %s", r->rank, halay_strerror(rc));
    pthread_barrier_wait(r->arg); /* else one is lost to the other */
}

/* ---------------------------------------------------------------- the end */

static void root_leaves(struct rank *r)
{
    relax(r->world);
    int32_t data[2];
    for (int i = 0; i < SERIES - 2; i++) {
        if (r->rank && i == 1)
            usleep(30000);
        blocking(r, data, 2, 0, i);
    }
}

/* The communicator is freed before; and the last ranks to come are roots, too. */
static void all_leave(struct rank *r)
{
    halay_comm_t *comm[2];
    int32_t x = 0;
    for (int c = 0; c < 2; c++) {
        CHECK(!halay_comm_dup(r->world, &comm[c]), "dup");
        relax(comm[c]);
    }
    for (int i = 0; i < 5; i++)
        for (int c = 0; c < 2; c++) {
            if (r->rank && i == 2)
                usleep(3000);
            CHECK(!halay_broadcast(&x, 1, HALAY_INT32, c, comm[c]), "call %d", i);
        }
    for (int c = 0; c < 2; c++)
        CHECK(!halay_comm_free(comm[c]), "free");
}

/* The root is told by halay_finalize, where no later call could. */
static void root_is_told_at_the_end(struct rank *r)
{
    relax(r->world);
    int32_t data[2] = {0};
    int rc = 0, want = r->rank == 1 ? HALAY_EMISMATCH : 0;
    for (int i = 0; i < 6 && !rc; i++) {
        if (r->rank && i == 1)
            usleep(10000);
        rc = halay_broadcast(data, r->rank == 1 && i == 5 ? 1 : 2, HALAY_INT32, 0, r->world);
    }
    CHECK(rc == want, "rank %d: %s", r->rank, halay_strerror(rc));
    rc = halay_finalize(r->context);
    CHECK(rc == (r->rank ? 0 : HALAY_EMISMATCH), "rank %d: %s", r->rank, halay_strerror(rc));
}

int main(int argc, char **argv)
{
    const int parts = argc > 1 ? atoi(argv[1]) : 60, step = argc > 2 ? atoi(argv[2]) : 1;
    random_failures(argc > 3 ? atoi(argv[3]) : 100);
    leaves_before_a_queued_call();
    for (int p = 2; p <= 5; p++) {
        struct pace pace = {0};
        /* By name: there are more processors than ranks, perhaps, and for long ones too. */
        const char *flat = "broadcast=flat";
        struct ranks_options shm = {.nranks = p, .shm = true, .algorithm = flat},
                             put = {.nranks = p, .faults = &ranks_put, .algorithm = flat},
                             late = {.nranks = p, .faults = &ranks_staged, .algorithm = flat};
        ranks_run(&shm, data_are_right, (void *)&parts);
        ranks_run(&late, data_are_right, (void *)&parts);
        ranks_run(&shm, root_goes_ahead, &pace);
        atomic_store(&pace.root, 0);
        ranks_run(&shm, confirms, &pace);
        failures(&shm, step);
        failures(&put, step);
        ranks_run(&shm, root_leaves, NULL);
        ranks_run(&put, root_leaves, NULL);
        ranks_run(&shm, all_leave, NULL);
    }
    struct ranks_options two = {.nranks = 2, .shm = true, .keep = true};
    ranks_run(&two, root_is_told_at_the_end, NULL);
    two.keep = false;
    two.deadline_ns = 3 * AWAY_NS;
    pthread_barrier_t both;
    pthread_barrier_init(&both, NULL, 2);
    ranks_run(&two, root_is_away, &both);
    return 0;
}
