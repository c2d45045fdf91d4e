/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What survivors call, where nobody dies: agreements one after the other; a revoked communicator
 * lets everybody go; a rank that hangs is left out, and told so; ranks that call different things.
 *
 *   test_survivors [CASE]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "ranks.h"

#define NRANKS   5
#define DEADLINE 1500000000ull
#define IN_TIME  20000000000ull /* a loaded machine under a sanitizer */

struct job {
    pthread_barrier_t barrier;
    atomic_bool over;
    int who; /* hangs, or revokes */
};

static void nap(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    nanosleep(&ts, NULL);
}

static void check_sum(const struct rank *r, halay_comm_t *comm, int n, int without)
{
    int32_t in = r->rank + 1, out = 0, sum = 0;
    int size;
    for (int k = 0; k < NRANKS; k++)
        sum += k == without ? 0 : k + 1;
    CHECK(!halay_comm_size(comm, &size) && size == n, "%d ranks, not %d", size, n);
    for (int i = 0; i < 20; i++) {
        const int rc = halay_allreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, comm);
        CHECK(!rc && out == sum, "rank %d: %s, %d, not %d", r->rank, halay_strerror(rc), out, sum);
    }
}

static void check_failed(const struct rank *r, halay_comm_t *comm, int expected)
{
    int ranks[2] = {-7, -7}, n = 2;
    CHECK(!halay_comm_failed(comm, ranks, &n), "failed");
    CHECK(n == (expected >= 0) && ranks[0] == (expected >= 0 ? expected : -7),
          "rank %d: %d have failed, the first is %d", r->rank, n, ranks[0]);
    n = 0;
    CHECK(!halay_comm_failed(comm, NULL, &n) && n == (expected >= 0), "only how many");
}

/* ---------------------------------------------------------------- the cases */

/* One agreement after the other, on ranks that come at any time; then all are there. */
static void agrees(struct rank *r)
{
    for (int i = 0; i < 300; i++) {
        int flag = -1 & ~(1 << ((i + r->rank) % 20)), all = -1;
        for (int k = 0; k < NRANKS; k++)
            all &= ~(1 << ((i + k) % 20));
        if (ranks_random(&r->seed) % 16 == 0)
            nap(ranks_random(&r->seed) % 2000000);
        const int rc = halay_comm_agree(r->world, &flag);
        CHECK(!rc && flag == all, "agreement %d on rank %d: %s, %x", i, r->rank, halay_strerror(rc),
              (unsigned)flag);
    }
    halay_comm_t *same;
    check_failed(r, r->world, -1);
    CHECK(!halay_comm_shrink(r->world, &same), "shrink");
    check_sum(r, same, NRANKS, -1);
    check_sum(r, r->world, NRANKS, -1);
    CHECK(!halay_comm_free(same), "free");
    CHECK(!halay_barrier(r->world), "barrier"); /* nobody leaves before all have freed it */
    CHECK(!halay_finalize(r->context), "finalize");
}

/* Two of them wait for what never comes, one computes; another one revokes. When all have gone on,
 * who has computed leaves, which has nothing to do with that. */
static void revoke(struct rank *r)
{
    struct job *job = r->arg;
    const int place = (r->rank + NRANKS - job->who) % NRANKS;
    int32_t in = 1, out = 0;
    halay_request_t *request = NULL;
    halay_verdict_t v = {.size = sizeof(v)};
    int rc = HALAY_EREVOKED;
    const uint64_t begin = ranks_now_ns();
    CHECK(!halay_barrier(r->world), "barrier");
    if (place == 1) {
        rc = halay_recv(&out, 1, HALAY_INT32, (r->rank + 2) % NRANKS, r->world);
    } else if (place == 2) {
        rc = halay_allreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, r->world);
    } else if (place == 3) {
        CHECK(!halay_iallreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, r->world, &request), "post");
        rc = halay_request_wait(request);
    } else if (place == 0) {
        nap(50000000);
        CHECK(!halay_comm_revoke(r->world) && !halay_comm_revoke(r->world), "revoke");
    }
    CHECK(rc == HALAY_EREVOKED, "rank %d: %s", r->rank, halay_strerror(rc));
    rc = HALAY_OK;
    while (!rc) /* who has computed hears of it in one of its next calls */
        rc = halay_send(&in, 0, HALAY_INT32, (r->rank + 1) % NRANKS, r->world);
    CHECK(rc == HALAY_EREVOKED, "a later send: %s", halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && v.rank == (place % 4 ? -1 : job->who),
          "of a send to the next one it names rank %d", v.rank);
    rc = halay_barrier(r->world);
    CHECK(rc == HALAY_EREVOKED, "a later barrier: %s", halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && v.rank == job->who &&
              strstr(v.text, "was revoked by rank"),
          "it says: %s", v.text);
    CHECK(ranks_now_ns() - begin < IN_TIME, "it took too long");
    halay_comm_t *same;
    CHECK(!halay_comm_shrink(r->world, &same), "shrink");
    check_sum(r, same, NRANKS, -1);
    if (place != 4) {
        rc = halay_barrier(same);
        CHECK(rc == HALAY_EPEER && !halay_comm_verdict(same, &v), "%s", halay_strerror(rc));
        CHECK(v.rank == (job->who + 4) % NRANKS && !strstr(v.text, "it has left after"),
              "it left when all was well again: %s", v.text);
    }
    CHECK(!halay_finalize(r->context), "finalize");
}

/* The others' deadline has passed: this rank can go on with nobody. */
static void come_late(struct rank *r, bool named)
{
    struct job *job = r->arg;
    halay_verdict_t v = {.size = sizeof(v)};
    halay_comm_t *none;
    int flag = 1;
    while (!atomic_load(&job->over))
        nap(1000000);
    const uint64_t begin = ranks_now_ns();
    int rc = halay_comm_agree(r->world, &flag);
    CHECK(rc == HALAY_EPEER, "the late rank: %s", halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v) && v.rank == r->rank && v.code == rc &&
              strstr(v.text, "without this rank"),
          "the late rank is told: %s", v.text);
    CHECK(halay_comm_shrink(r->world, &none) == HALAY_EPEER, "the late rank shrinks");
    rc = halay_barrier(r->world); /* it may know of the verdict that named it */
    CHECK(rc == HALAY_EPEER || (named && rc == HALAY_ETIMEOUT), "its barrier: %s",
          halay_strerror(rc));
    CHECK(ranks_now_ns() - begin < DEADLINE, "it waited for %.1f s",
          (double)(ranks_now_ns() - begin) * 1e-9);
}

/* A rank does not call. named: a call's verdict has said so before, so nobody waits again. */
static void hang(struct rank *r, bool named)
{
    struct job *job = r->arg;
    halay_comm_t *fewer, *dup;
    int flag = -1 & ~(1 << r->rank), all = -1;
    CHECK(!halay_comm_dup(r->world, &dup), "dup");
    CHECK(!halay_barrier(r->world), "barrier");
    if (r->rank == job->who) {
        come_late(r, named);
    } else {
        if (named) {
            CHECK(halay_barrier(r->world) == HALAY_ETIMEOUT, "a barrier without it");
            check_failed(r, r->world, job->who);
        }
        const uint64_t begin = ranks_now_ns();
        int rc = halay_comm_agree(r->world, &flag);
        const uint64_t took = ranks_now_ns() - begin;
        for (int k = 0; k < NRANKS; k++)
            all &= k == job->who ? -1 : ~(1 << k);
        CHECK(!rc && flag == all, "rank %d: %s, %x", r->rank, halay_strerror(rc), (unsigned)flag);
        CHECK(named || took > DEADLINE / 2, "it was not waited for: %.3f s", (double)took * 1e-9);
        CHECK(took < IN_TIME, "it took %.1f s", (double)took * 1e-9);
        check_failed(r, r->world, job->who);
        CHECK(!halay_comm_shrink(r->world, &fewer), "shrink");
        check_sum(r, fewer, NRANKS - 1, job->who);
        CHECK(halay_barrier(dup) == HALAY_EPEER, "a call that needs it");
        CHECK(!halay_comm_shrink(dup, &fewer), "shrink of another one");
        check_sum(r, fewer, NRANKS - 1, job->who);
        atomic_store(&job->over, true);
    }
    for (int i = 0; i < 1000 || !atomic_load(&job->over); i++)
        halay_context_progress(r->context, 0);
    pthread_barrier_wait(&job->barrier);
    halay_finalize(r->context);
}

static void hang_agree(struct rank *r)
{
    hang(r, false);
}

static void hang_call(struct rank *r)
{
    hang(r, true);
}

/* Wrong use: an error on all ranks, and all go on. */
static void differ(struct rank *r)
{
    int flag = 1, n = -1;
    halay_comm_t *out = NULL;
    const int rc =
        r->rank == 1 ? halay_comm_shrink(r->world, &out) : halay_comm_agree(r->world, &flag);
    CHECK(rc == HALAY_EMISMATCH && !out, "rank %d: %s", r->rank, halay_strerror(rc));
    CHECK(halay_comm_agree(r->world, NULL) == HALAY_EINVAL, "no flag");
    CHECK(halay_comm_shrink(r->world, NULL) == HALAY_EINVAL, "no place");
    CHECK(halay_comm_failed(r->world, &n, &n) == HALAY_EINVAL, "less than no room");
    CHECK(halay_comm_failed(r->world, NULL, NULL) == HALAY_EINVAL, "no number");
    CHECK(halay_comm_revoke(NULL) == HALAY_EINVAL, "no communicator");
    CHECK(!halay_group_begin(r->world), "group");
    CHECK(halay_comm_agree(r->world, &flag) == HALAY_ESTATE, "in a group");
    halay_request_t *request;
    CHECK(!halay_group_end(r->world, &request) && !halay_request_wait(request), "end of it");
    flag = 6;
    CHECK(!halay_comm_agree(r->world, &flag) && flag == 6, "the next one");
    check_sum(r, r->world, NRANKS, -1);
    CHECK(!halay_barrier(r->world), "barrier");
    CHECK(!halay_finalize(r->context), "finalize");
}

static void alone(struct rank *r)
{
    halay_comm_t *self, *shrunk;
    int flag = 5;
    CHECK(!halay_comm_split(r->world, r->rank, 0, &self), "split");
    CHECK(!halay_comm_agree(self, &flag) && flag == 5, "agree");
    CHECK(!halay_comm_revoke(self) && halay_barrier(self) == HALAY_EREVOKED, "revoke");
    CHECK(!halay_comm_shrink(self, &shrunk) && !halay_barrier(shrunk), "shrink");
    CHECK(!halay_barrier(r->world), "barrier");
    CHECK(!halay_finalize(r->context), "finalize");
}

static const struct test {
    const char *name;
    void (*fn)(struct rank *);
} tests[] = {{"agrees", agrees},       {"revoke", revoke}, {"hang-agree", hang_agree},
             {"hang-call", hang_call}, {"differ", differ}, {"alone", alone}};

int main(int argc, char **argv)
{
    setenv("HALAY_DEBUG", "error", 0); /* the failures here are wanted */
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        for (int who = 0; who < NRANKS; who += 2) {
            const bool hangs = tests[i].fn == hang_agree || tests[i].fn == hang_call;
            const halay_inproc_faults_t faults = {
                .seed = (uint64_t)who + 1, .delay_polls_max = 4, .reorder = 1};
            struct job job = {.who = who};
            struct ranks_options o = {.nranks = NRANKS,
                                      .shm = who == 2,
                                      .faults = &faults,
                                      .deadline_ns = hangs ? DEADLINE : IN_TIME,
                                      .keep = true};
            if (argc > 1 && strcmp(argv[1], tests[i].name))
                continue;
            pthread_barrier_init(&job.barrier, NULL, NRANKS);
            ranks_run(&o, tests[i].fn, &job);
            pthread_barrier_destroy(&job.barrier);
            printf("%s, rank %d: as it should be\n", tests[i].name, who);
        }
    return 0;
}
