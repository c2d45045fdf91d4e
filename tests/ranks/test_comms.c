/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several communicators and many requests: started in opposite orders over ways of two slots, used
 * by several threads of a rank at once, split, made while others are in use.
 */
#include <pthread.h>
#include <string.h>

#include "ranks.h"

#define COMMS    64
#define REQUESTS 1000
#define THREADS  4

static void good(int rc, const char *what)
{
    CHECK(rc == 0, "%s: %s", what, halay_strerror(rc));
}

/* 64 communicators, started forwards on even ranks and backwards on odd ones. */
static void opposite_orders(struct rank *r)
{
    enum { COUNT = 700 };
    halay_comm_t *comm[COMMS];
    halay_request_t *request[COMMS];
    int32_t *data = calloc(2 * COMMS, COUNT * sizeof(*data));
    CHECK(data, "no memory");
    for (int c = 0; c < COMMS; c++)
        good(halay_comm_dup(r->world, &comm[c]), "dup");
    for (int i = 0; i < COMMS * COUNT; i++)
        data[i] = i + r->rank;
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < COMMS; k++) {
            int c = r->rank % 2 ? COMMS - 1 - k : k;
            good(halay_iallreduce(data + c * COUNT, data + (COMMS + c) * COUNT, COUNT, HALAY_INT32,
                                  HALAY_SUM, comm[c], &request[c]),
                 "post");
        }
        for (int k = 0; k < COMMS; k++) {
            int c = r->rank % 2 ? k : COMMS - 1 - k;
            good(halay_request_wait(request[c]), "wait");
        }
        for (int i = 0; i < COMMS * COUNT; i++)
            CHECK(data[COMMS * COUNT + i] == r->nranks * i + r->nranks * (r->nranks - 1) / 2,
                  "element %d", i);
        memset(data + COMMS * COUNT, 0, COMMS * COUNT * sizeof(*data));
    }
    for (int c = 0; c < COMMS; c++)
        good(halay_comm_free(comm[c]), "free");
    free(data);
}

/* Far more requests on one communicator than its window holds; waited for in a strange order. */
static void many_requests(struct rank *r)
{
    halay_request_t *request[REQUESTS];
    int64_t in[REQUESTS], out[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        in[i] = i * (r->rank + 1);
        good(halay_iallreduce(&in[i], &out[i], 1, HALAY_INT64, HALAY_SUM, r->world, &request[i]),
             "post");
    }
    CHECK(halay_comm_free(r->world) == HALAY_ESTATE, "the world was freed");
    for (int i = 0; i < REQUESTS; i++) {
        int k = (i * 7 + r->rank * 13) % REQUESTS;
        int rc = halay_request_test(request[k]);
        if (rc == HALAY_INPROGRESS)
            rc = halay_request_wait(request[k]);
        good(rc, "wait");
        CHECK(out[k] == k * (int64_t)(r->nranks * (r->nranks + 1) / 2), "request %d", k);
    }
}

static void check_sum(halay_comm_t *comm, int32_t mine, int32_t want, const char *what)
{
    int32_t sum = -1;
    good(halay_allreduce(&mine, &sum, 1, HALAY_INT32, HALAY_SUM, comm), what);
    CHECK(sum == want, "%s: %d, not %d", what, sum, want);
}

static void splits(struct rank *r)
{
    halay_comm_t *half, *backwards, *none, *again;
    int rank, n;
    int32_t want = 0;
    good(halay_comm_split(r->world, r->rank % 2, 0, &half), "split");
    for (int k = r->rank % 2; k < r->nranks; k += 2)
        want += k;
    check_sum(half, r->rank, want, "half");
    good(halay_comm_rank(half, &rank), "rank");
    CHECK(rank == r->rank / 2, "rank %d of the half is %d", r->rank, rank);
    good(halay_comm_split(r->world, 7, -r->rank, &backwards), "split");
    good(halay_comm_rank(backwards, &rank), "rank");
    CHECK(rank == r->nranks - 1 - r->rank, "keys do not order ranks");
    good(halay_comm_split(backwards, r->rank == 0 ? -1 : 1, 0, &none), "split");
    CHECK((none == NULL) == (r->rank == 0), "a negative colour");
    if (none) {
        good(halay_comm_size(none, &n), "size");
        CHECK(n == r->nranks - 1, "size %d", n);
        check_sum(none, 1, n, "without rank 0");
    }
    good(halay_comm_dup(half, &again), "dup of a split");
    check_sum(again, r->rank, want, "dup");
    good(halay_comm_free(again), "free");
    good(halay_comm_free(none), "free");
    good(halay_comm_free(backwards), "free");
    good(halay_comm_free(half), "free");
}

struct job {
    struct rank *rank;
    halay_comm_t *comm;
    int number;
};

static void *thread_main(void *arg)
{
    struct job *j = arg;
    int32_t in[300], out[300];
    int n = j->rank->nranks, me = j->rank->rank;
    for (int i = 0; i < 60; i++) {
        size_t count = (size_t)(i % 3 ? 300 : 2);
        for (size_t k = 0; k < count; k++)
            in[k] = j->number * 1000 + i + (int)k * j->rank->rank;
        good(halay_allreduce(in, out, count, HALAY_INT32, HALAY_SUM, j->comm), "thread");
        for (size_t k = 0; k < count; k++)
            CHECK(out[k] == n * (j->number * 1000 + i) + (int)k * n * (n - 1) / 2,
                  "thread %d, call %d", j->number, i);
        halay_request_t *request;
        good(halay_isend(in, count, HALAY_INT32, (me + 1) % n, j->comm, &request), "thread");
        good(halay_recv(out, count, HALAY_INT32, (me + n - 1) % n, j->comm), "thread");
        good(halay_request_wait(request), "thread");
        for (size_t k = 0; k < count; k++)
            CHECK(out[k] == j->number * 1000 + i + (int)k * ((me + n - 1) % n),
                  "thread %d, message %d", j->number, i);
    }
    return NULL;
}

/* One communicator a thread, all on one context. */
static void threads(struct rank *r)
{
    struct job jobs[THREADS];
    pthread_t thread[THREADS];
    for (int t = 0; t < THREADS; t++) {
        jobs[t] = (struct job){r, NULL, t};
        good(halay_comm_dup(r->world, &jobs[t].comm), "dup");
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(!pthread_create(&thread[t], NULL, thread_main, &jobs[t]), "no thread");
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    for (int t = 0; t < THREADS; t++)
        good(halay_comm_free(jobs[t].comm), "free");
}

/* Made and freed without end: neither ids nor memory run out, and no handle is another's. */
static void churn(struct rank *r)
{
    enum { MADE = 300 };
    halay_comm_t *made[MADE];
    for (int i = 0; i < MADE; i++) {
        good(halay_comm_dup(r->world, &made[i]), "dup");
        if (i % 10 == 0)
            check_sum(made[i], 1, r->nranks, "churn");
        for (int k = 0; k < i; k++)
            CHECK(made[k] != made[i], "the handles of %d and %d are one", k, i);
        good(halay_comm_free(made[i]), "free");
        CHECK(halay_comm_free(made[i]) == HALAY_ESTATE, "freed twice");
    }
    int n, rank;
    halay_comm_t *dup;
    halay_request_t *request;
    uint64_t deadline_ns;
    /* One that was freed with a call under way stays until that has been waited for. */
    good(halay_comm_dup(r->world, &dup), "dup");
    good(halay_comm_free(dup), "free");
    good(halay_ibarrier(dup, &request), "post");
    for (int i = 0; i < 100; i++) {
        halay_comm_t *other;
        good(halay_comm_dup(r->world, &other), "dup");
        good(halay_comm_free(other), "free");
    }
    CHECK(halay_request_wait(request) == HALAY_ESTATE, "it was freed");
    for (int i = 0; i < MADE - 100; i++) { /* not known any more, and not the memory's next one */
        CHECK(halay_comm_free(made[i]) == HALAY_ESTATE, "freed long ago");
        CHECK(halay_barrier(made[i]) == HALAY_EINVAL, "called");
        CHECK(halay_ibarrier(made[i], &request) == HALAY_EINVAL, "posted");
        CHECK(halay_comm_dup(made[i], &dup) == HALAY_EINVAL, "copied");
        CHECK(halay_comm_size(made[i], &n) == HALAY_EINVAL, "asked for its size");
        CHECK(halay_comm_rank(made[i], &rank) == HALAY_EINVAL, "asked for its rank");
        CHECK(halay_comm_deadline(made[i], &deadline_ns) == HALAY_EINVAL, "asked for its deadline");
        CHECK(halay_group_begin(made[i]) == HALAY_EINVAL, "a group");
    }
}

static uint64_t proofs(struct rank *r)
{
    halay_counters_t c = {.size = sizeof(c)};
    good(halay_context_counters(r->context, &c), "counters");
    return c.plans_proved;
}

/* Communicators of the same ranks in another order have other nodes: each has a proof of its own,
 * and one of the same shape needs none. On nodes 0, 1, 0, 1 ... the first half goes to node 0. */
static void shapes(struct rank *r)
{
    halay_comm_t *sorted, *again;
    halay_topology_t t = {.size = sizeof(t)};
    good(halay_context_topology(r->context, &t), "topology");
    if (t.nnodes != 2 || r->nranks < 4)
        return;
    good(halay_comm_split(r->world, 0, t.node, &sorted), "split");
    good(halay_comm_dup(sorted, &again), "dup");
    check_sum(r->world, 1, r->nranks, "shapes");
    uint64_t before = proofs(r);
    check_sum(sorted, 2, 2 * r->nranks, "shapes");
    CHECK(proofs(r) == before + 1, "the proof of another shape was taken");
    check_sum(again, 3, 3 * r->nranks, "shapes");
    CHECK(proofs(r) == before + 1, "the same shape was proved again");
    good(halay_comm_free(again), "free");
    good(halay_comm_free(sorted), "free");
}

/* A deadline that no clock reaches is no deadline that has passed. */
static void endless(struct rank *r)
{
    halay_comm_t *comm;
    uint64_t told = 0;
    good(halay_comm_dup(r->world, &comm), "dup");
    good(halay_comm_set_deadline(comm, UINT64_MAX), "deadline");
    CHECK(!halay_comm_deadline(comm, &told) && told >= UINT64_MAX / 16, "deadline");
    check_sum(comm, 1, r->nranks, "with a deadline that never comes");
    good(halay_comm_free(comm), "free");
}

/* Lists: every second rank, backwards; nobody; all. Whoever is not in it gets NULL. */
static void subsets(struct rank *r)
{
    int list[RANKS_MAX], n = 0, rank;
    int32_t want = 0;
    halay_comm_t *subset = r->world, *smaller;
    for (int k = r->nranks - 1; k >= 0; k -= 2) {
        list[n++] = k;
        want += k;
    }
    bool in = (r->nranks - 1 - r->rank) % 2 == 0;
    good(halay_comm_from_ranks(r->world, list, n, &subset), "from_ranks");
    CHECK((subset != NULL) == in, "rank %d of %d", r->rank, r->nranks);
    if (in) {
        good(halay_comm_rank(subset, &rank), "rank");
        CHECK(list[rank] == r->rank, "rank %d is %d", r->rank, rank);
        check_sum(subset, r->rank, want, "subset");
        int last = n - 1; /* of a subset's numbers */
        good(halay_comm_from_ranks(subset, &last, 1, &smaller), "from_ranks");
        CHECK((smaller != NULL) == (rank == last), "the last of the subset");
        if (smaller)
            check_sum(smaller, 9, 9, "one rank");
        good(halay_comm_free(smaller), "free");
    }
    good(halay_comm_free(subset), "free");
    good(halay_comm_from_ranks(r->world, NULL, 0, &subset), "from_ranks");
    CHECK(!subset, "a list without ranks");
}

/* Made by their members alone, while the others make nothing, or make others in another order. */
static void groups_of_members(struct rank *r)
{
    const int pairs[2][2] = {{0, 1}, {1, 2}}, twice[2] = {0, 0};
    halay_comm_t *made[2][2] = {{NULL}};
    for (int i = 0; i < 4 && r->nranks > 2; i++) {
        int p = r->rank == 1 ? i % 2 : 1 - i % 2; /* the one they share makes them the other way */
        if (pairs[p][0] == r->rank || pairs[p][1] == r->rank)
            good(halay_comm_create_group(r->world, pairs[p], 2, (uint64_t)i / 2, &made[p][i / 2]),
                 "create_group");
    }
    for (int p = 0; p < 2; p++) {
        for (int tag = 0; tag < 2 && made[p][tag]; tag++)
            check_sum(made[p][tag], r->rank, pairs[p][0] + pairs[p][1], "a group of two");
    }
    halay_comm_t *more = r->world;
    for (int p = 0; p < 2 && made[p][0]; p++) {
        CHECK(halay_comm_create_group(r->world, pairs[p], 2, 0, &more) == HALAY_EINVAL,
              "a tag again");
        good(halay_comm_free(made[p][0]), "free");
        CHECK(halay_comm_create_group(r->world, pairs[p], 2, 0, &more) == HALAY_EINVAL,
              "a freed tag");
        good(halay_comm_free(made[p][1]), "free");
    }
    CHECK(halay_comm_create_group(r->world, twice, 2, 7, &more) == HALAY_EINVAL, "a rank twice");
    const int other = (r->rank + 1) % r->nranks;
    if (r->nranks > 1) {
        good(halay_comm_create_group(r->world, &other, 1, 8, &more), "create_group");
        CHECK(!more, "rank %d is in a group of %d", r->rank, other);
    }
}

static void nodes_apart(struct rank *r)
{
    halay_comm_t *node;
    halay_topology_t t = {.size = sizeof(t)};
    int rank, n;
    good(halay_context_topology(r->context, &t), "topology");
    good(halay_comm_split_node(r->world, &node), "split_node");
    good(halay_comm_rank(node, &rank), "rank");
    good(halay_comm_size(node, &n), "size");
    CHECK(rank == t.local_rank && n == t.local_nranks, "rank %d of %d, not %d of %d", rank, n,
          t.local_rank, t.local_nranks);
    check_sum(node, t.node + 1, n * (t.node + 1), "node");
    good(halay_comm_free(node), "free");
}

/* What is not a request, is one no more, or is something else, is told apart. */
static void handles(struct rank *r)
{
    int32_t in = 1, out = 0;
    int flag = 1;
    halay_request_t *old[9], *request;
    halay_comm_t *comm;
    good(halay_comm_dup(r->world, &comm), "dup");
    for (int i = 0; i < 9; i++) { /* the memory is used again, the handle is another */
        good(halay_iallreduce(&in, &out, 1, HALAY_INT32, HALAY_SUM, comm, &old[i]), "post");
        for (int k = 0; k < i; k++)
            CHECK(halay_request_test(old[k]) == HALAY_ESTATE, "a request that has ended");
        good(halay_request_wait(old[i]), "wait");
        CHECK(halay_request_wait(old[i]) == HALAY_ESTATE, "waited for twice");
        check_sum(comm, 1, r->nranks, "a blocking call between");
    }
    good(halay_iallreduce(&in, NULL, 1, HALAY_INT32, HALAY_SUM, comm, &request), "post");
    CHECK(halay_request_wait(request) == HALAY_EINVAL, "no output");
    CHECK(halay_request_wait(request) == HALAY_ESTATE, "a failed request waited for twice");
    good(halay_ibarrier(comm, &request), "post");
    CHECK(halay_barrier((halay_comm_t *)request) == HALAY_EINVAL, "a request is no communicator");
    CHECK(halay_request_wait((halay_request_t *)comm) == HALAY_EINVAL, "nor the other way round");
    CHECK(halay_request_wait(NULL) == HALAY_EINVAL, "NULL");
    good(halay_request_wait(request), "wait");
    good(halay_comm_free(comm), "free");
    CHECK(halay_request_wait(request) == HALAY_ESTATE, "its communicator is gone");
    CHECK(halay_comm_free(comm) == HALAY_ESTATE, "freed twice");
    CHECK(halay_comm_dup(comm, &comm) == HALAY_ESTATE, "dup of a freed one");
    CHECK(halay_comm_split_node(comm, &comm) == HALAY_ESTATE, "split of a freed one");
    CHECK(halay_comm_revoke(comm) == HALAY_ESTATE, "revoke of a freed one");
    CHECK(halay_comm_agree(comm, &flag) == HALAY_ESTATE, "agree on a freed one");
    CHECK(halay_comm_shrink(comm, &comm) == HALAY_ESTATE, "shrink of a freed one");
}

static void all(struct rank *r)
{
    subsets(r);
    groups_of_members(r);
    endless(r);
    nodes_apart(r);
    handles(r);
    shapes(r);
    opposite_orders(r);
    many_requests(r);
    splits(r);
    threads(r);
    churn(r);
    good(halay_barrier(r->world), "barrier");
}

/* An argument: this number of ranks alone. */
int main(int argc, char **argv)
{
    const int only = argc > 1 ? atoi(argv[1]) : 0;
    static const int nodes[] = {0, 1, 0, 1, 2};
    static const halay_inproc_faults_t faults[] = {
        {.seed = 1, .queue_slots = 2},
        {.seed = 2,
         .queue_slots = 2,
         .reorder = 1,
         .delay_polls_max = 4,
         .late_put_polls = 3,
         .eager_bytes = 256},
        {.seed = 3,
         .queue_slots = 2,
         .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
         .eager_bytes = 64,
         .piece_bytes = 128}};
    for (int n = only ? only : 2; n <= (only ? only : 5); n++)
        for (int f = 0; f < 4; f++) {
            struct ranks_options o = {.nranks = n,
                                      .shm = f == 3,
                                      .faults = &faults[f % 3],
                                      .node_of_rank = f % 2 ? nodes : NULL};
            ranks_run(&o, all, NULL);
        }
    return 0;
}
