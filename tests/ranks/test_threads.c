/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What docs/threads.md allows several threads of a rank to do at once: make, use and free
 * communicators of parents of their own; wait for each other's requests; ask questions, register
 * memory and make operations meanwhile. The thread sanitizer looks on.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "ranks.h"

enum { MAKERS = 3, TIMES = 6, POSTED = 100, OPERATIONS = 1000 };

struct thread {
    pthread_t thread;
    struct rank *rank;
    halay_comm_t *comm;
    int number;
    atomic_bool *over;
    sem_t *posted;
    halay_request_t **requests;
    int64_t *sums;
};

static void good(int rc, const char *what)
{
    CHECK(rc == 0, "%s: %s", what, halay_strerror(rc));
}

static void check_sum(halay_comm_t *comm, int32_t mine, int32_t want)
{
    int32_t sum = -1;
    good(halay_allreduce(&mine, &sum, 1, HALAY_INT32, HALAY_SUM, comm), "allreduce");
    CHECK(sum == want, "%d, not %d", sum, want);
}

/* Of its own parent, in whatever order the threads of this and of other ranks come. */
static void *make(void *arg)
{
    const struct thread *t = arg;
    const int n = t->rank->nranks, me = t->rank->rank;
    const int all[] = {0, 1};
    for (int i = 0; i < TIMES; i++) {
        halay_comm_t *half, *dup, *node, *two;
        int32_t of_half = 0;
        for (int k = me % 2; k < n; k += 2)
            of_half += k + t->number;
        good(halay_comm_split(t->comm, me % 2, 0, &half), "split");
        good(halay_comm_dup(half, &dup), "dup");
        good(halay_comm_split_node(t->comm, &node), "split_node");
        good(halay_comm_from_ranks(t->comm, all, 2, &two), "from_ranks");
        check_sum(dup, me + t->number, of_half);
        check_sum(node, 1, n);
        if (two)
            check_sum(two, me + 1, 3);
        check_sum(half, me + t->number, of_half);
        good(halay_comm_free(two), "free");
        good(halay_comm_free(node), "free");
        good(halay_comm_free(dup), "free");
        good(halay_comm_free(half), "free");
    }
    return NULL;
}

/* Makes the calls of a communicator; another thread waits for them. */
static void *post(void *arg)
{
    const struct thread *t = arg;
    for (int i = 0; i < POSTED; i++) {
        t->sums[i] = i + t->rank->rank;
        good(halay_iallreduce(HALAY_IN_PLACE, &t->sums[i], 1, HALAY_INT64, HALAY_SUM, t->comm,
                              &t->requests[i]),
             "post");
        sem_post(t->posted);
    }
    return NULL;
}

static void *await(void *arg)
{
    const struct thread *t = arg;
    const int64_t n = t->rank->nranks;
    for (int i = 0; i < POSTED; i++) {
        while (sem_wait(t->posted)) {
        }
        int rc = i % 3 ? HALAY_INPROGRESS : halay_request_test(t->requests[i]);
        if (rc == HALAY_INPROGRESS)
            rc = halay_request_wait(t->requests[i]);
        good(rc, "wait");
        CHECK(t->sums[i] == n * i + n * (n - 1) / 2, "request %d: %lld", i, (long long)t->sums[i]);
    }
    return NULL;
}

static void last_wins(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                      const void *right)
{
    (void)arg, (void)left;
    memcpy(dst, right, count * halay_type_bytes(type));
}

/* About a communicator on which another thread makes calls, and its context. */
static void *ask(void *arg)
{
    const struct thread *t = arg;
    halay_context_t *context = t->rank->context;
    for (int i = 0; !atomic_load(t->over); i++) {
        halay_verdict_t verdict = {.size = sizeof(verdict)};
        halay_counters_t counters = {.size = sizeof(counters)};
        halay_traffic_t traffic = {.size = sizeof(traffic)};
        halay_topology_t topology = {.size = sizeof(topology)};
        uint64_t deadline_ns;
        int rank, called;
        halay_op_t op;
        halay_range_t range;
        void *memory;
        good(halay_comm_rank(t->comm, &rank), "rank");
        good(halay_comm_called(t->comm, &called), "called");
        good(halay_comm_deadline(t->comm, &deadline_ns), "deadline");
        good(halay_comm_set_deadline(t->comm, deadline_ns), "set_deadline");
        good(halay_comm_verdict(t->comm, &verdict), "verdict");
        CHECK(verdict.code == 0 && rank == t->rank->rank, "%s", verdict.text);
        good(halay_context_counters(context, &counters), "counters");
        good(halay_context_traffic(context, 0, &traffic), "traffic");
        good(halay_context_topology(context, &topology), "topology");
        if (i < OPERATIONS) { /* of which there may be so many in a context's life */
            good(halay_op_create(context, last_wins, NULL, 1, 0, &op), "op_create");
            good(halay_op_free(context, op), "op_free");
        }
        good(halay_mem_alloc(context, 8192, &memory), "mem_alloc");
        good(halay_mem_register(context, memory, 4096, &range), "mem_register");
        good(halay_mem_deregister(context, range), "mem_deregister");
        good(halay_mem_free(context, memory), "mem_free");
        good(halay_context_progress(context, 1000000), "progress");
        halay_context_wake(context);
        nanosleep(&(struct timespec){0, 1000000}, NULL); /* the others want the processor */
    }
    return NULL;
}

static void all(struct rank *r)
{
    static void *(*const mains[])(void *) = {make, make, make, post, await, ask, ask};
    enum { N = sizeof(mains) / sizeof(mains[0]), POST = MAKERS };
    struct thread threads[N];
    halay_request_t *requests[POSTED];
    int64_t sums[POSTED];
    atomic_bool over = false;
    sem_t posted;
    CHECK(!sem_init(&posted, 0, 0), "semaphore");
    for (int i = 0; i < N; i++) {
        threads[i] = (struct thread){.rank = r, .number = i, .over = &over, .posted = &posted};
        threads[i].requests = requests;
        threads[i].sums = sums;
        if (i <= POST)
            good(halay_comm_dup(r->world, &threads[i].comm), "dup");
        else
            threads[i].comm = threads[i == N - 1 ? 0 : POST].comm;
    }
    for (int i = 0; i < N; i++)
        CHECK(!pthread_create(&threads[i].thread, NULL, mains[i], &threads[i]), "no thread");
    for (int i = 0; i <= POST + 1; i++)
        pthread_join(threads[i].thread, NULL);
    atomic_store(&over, true);
    for (int i = POST + 2; i < N; i++)
        pthread_join(threads[i].thread, NULL);
    for (int i = 0; i <= POST; i++)
        good(halay_comm_free(threads[i].comm), "free");
    sem_destroy(&posted);
    good(halay_barrier(r->world), "barrier");
}

int main(void)
{
    for (int shm = 0; shm < 2; shm++) {
        struct ranks_options o = {.nranks = 2 + shm, .shm = shm};
        ranks_run(&o, all, NULL);
    }
    return 0;
}
